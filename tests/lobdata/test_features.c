// Order flow imbalance against known values and by hand, and what a window may and may not see.
#include "helper.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(features, expected_flow_of_every_row_and_level) {
    lob_book *book = read_shared("lobster_aapl_l10_999/AAPL_2012-06-21_34200000_57600000", 10, "", NULL);
    FILE *file = fopen(shared_file("expected/lobster_aapl_l10_999_ofi.csv"), "r");
    cr_assert(file != NULL);
    char line[512];
    size_t rows = 0;
    cr_assert(fgets(line, sizeof line, file) != NULL);
    while (fgets(line, sizeof line, file)) {
        char *next;
        size_t row = strtoull(line, &next, 10);
        for (int level = 0; level < 10; level++) {
            long long expected = strtoll(next + 1, &next, 10), is = lob_ofi(book, row, level);
            cr_assert_eq(is, expected, "row %zu, level %d: %lld, expected %lld", row, level + 1, is, expected);
        }
        rows++;
    }
    cr_expect_eq(rows, 998);
    fclose(file);
    lob_book_destroy(&book);
}

static lob_book *parse(const char *message, const char *orderbook) {
    lob_book *book;
    io_error err;
    lob_text texts[2] = {{"m", message, strlen(message)}, {"b", orderbook, strlen(orderbook)}};
    cr_assert_eq(lob_book_parse(NULL, &texts[0], &texts[1], &book, NULL, &err), 0, "%s", err.text);
    return book;
}

#define EVENT "1,1,1,1,100,1\n"

Test(features, flow_by_hand) {
    // ask price, ask size, bid price, bid size; one thing changes from row to row
    lob_book *book = parse(EVENT EVENT EVENT EVENT EVENT EVENT EVENT EVENT,
                           "110,5,100,7\n"
                           "110,5,100,9\n"   // bid size up by 2: +2
                           "110,5,101,4\n"   // bid improves: +4
                           "110,5,100,9\n"   // bid falls: -4
                           "110,8,100,9\n"   // ask size up by 3: -3
                           "109,2,100,9\n"   // ask improves: -2
                           "110,8,100,9\n"   // ask rises: +2
                           "110,8,100,9\n"); // nothing
    const int64_t expected[] = {2, 4, -4, -3, -2, 2, 0};
    for (size_t r = 1; r < 8; r++)
        cr_expect_eq(lob_ofi(book, r, 0), expected[r - 1], "row %zu: %lld", r, (long long)lob_ofi(book, r, 0));
    lob_book_destroy(&book);
}

Test(features, flow_of_empty_levels) {
    lob_book *book = parse(EVENT EVENT EVENT EVENT EVENT EVENT, "110,5,100,7\n"
                                                                "110,5,-9999999999,0\n"
                                                                "9999999999,0,-9999999999,0\n"
                                                                "9999999999,0,-9999999999,0\n"
                                                                "9999999999,0,100,3\n"
                                                                "110,2,100,3\n");
    const int64_t expected[] = {-7, 5, 0, 3, -2};
    for (size_t r = 1; r < 6; r++)
        cr_expect_eq(lob_ofi(book, r, 0), expected[r - 1], "row %zu: %lld", r, (long long)lob_ofi(book, r, 0));
    lob_feature_params params = {.levels = 1, .n_horizons = 2, .horizons = {1, 2}};
    float x[12];
    uint8_t valid[6];
    cr_assert_eq(lob_features(&params, book, x, valid, NULL), 0);
    // bid + ask = 5, 0, 0, 3, 5; a depth of 0 gives 0
    const float expected_x[] = {0, 0, 0, 0, 0, 4 * -2 / 5.f, 0, 0, 2, 4 * 3 / 3.f, 2 * -2 / 5.f, 4 * 1 / 8.f};
    for (int i = 0; i < 12; i++)
        cr_expect_float_eq(x[i], expected_x[i], 1e-6, "element %d: %g, expected %g", i, x[i], expected_x[i]);
    lob_book_destroy(&book);
}

Test(features, inputs_by_hand) {
    lob_book *book = parse(EVENT EVENT EVENT EVENT EVENT, "110,5,100,7,120,50,90,70\n"
                                                          "110,5,100,9,120,50,90,75\n"
                                                          "110,5,101,4,120,50,90,75\n"
                                                          "110,5,101,4,120,60,90,75\n"
                                                          "110,9,101,4,120,60,90,75\n");
    // level 1: e = 2, 4, 0, -4 and bid + ask = 14, 9, 9, 13; level 2: e = 5, 0, -10, 0 and 125, 125, 135, 135
    lob_feature_params params = {.levels = 2, .n_horizons = 2, .horizons = {1, 3}};
    float x[5 * 4];
    uint8_t valid[5];
    cr_assert_eq(lob_features(&params, book, x, valid, NULL), 0);
    const uint8_t expected_valid[] = {0, 0, 0, 1, 1};
    const float row3[] = {0, 6 * 6 / 32.f, 2 * -10 / 135.f, 6 * -5 / 385.f};
    const float row4[] = {2 * -4 / 13.f, 0, 0, 6 * -10 / 395.f};
    cr_expect_arr_eq(valid, expected_valid, 5);
    for (int f = 0; f < 12; f++)
        cr_expect_eq(x[f], 0, "an invalid column is 0");
    for (int f = 0; f < 4; f++) {
        cr_expect_float_eq(x[12 + f], row3[f], 1e-6, "row 3, feature %d: %g, expected %g", f, x[12 + f], row3[f]);
        cr_expect_float_eq(x[16 + f], row4[f], 1e-6, "row 4, feature %d: %g, expected %g", f, x[16 + f], row4[f]);
    }
    lob_book_destroy(&book);
}

// The definition, without sliding.
static float plain_feature(const lob_book *book, size_t t, int level, int window) {
    double flow = 0, depth = 0;
    for (size_t r = t + 1 - (size_t)window; r <= t; r++) {
        size_t i = r * (size_t)book->levels + (size_t)level;
        flow += (double)lob_ofi(book, r, level);
        depth += (double)(book->bid_size[i] + book->ask_size[i]) / 2;
    }
    return depth > 0 ? (float)(flow / (depth / window)) : 0;
}

Test(features, default_is_8_levels_of_4_horizons) {
    lob_feature_params params = lob_feature_default();
    cr_assert_eq(lob_feature_count(&params), 32);
    cr_expect_eq(lob_feature_window(&params), 200);
    lob_book *book = random_book(3, 500, 10);
    float *x = malloc(500 * 32 * sizeof *x);
    uint8_t valid[500];
    cr_assert_eq(lob_features(&params, book, x, valid, NULL), 0);
    for (size_t t = 0; t < 500; t++) {
        cr_assert_eq(valid[t], t >= 200);
        for (int f = 0; f < 32 && t >= 200; f++) {
            float expected = plain_feature(book, t, f / 4, params.horizons[f % 4]);
            cr_assert_float_eq(x[t * 32 + (size_t)f], expected, 1e-5 * (1 + fabs(expected)), "event %zu, feature %d", t,
                               f);
        }
    }
    free(x);
    lob_book_destroy(&book);
}

Test(features, windows_end_at_halts) {
    char message[4096] = "", orderbook[4096] = "";
    for (int r = 0; r < 20; r++) {
        strcat(message, r == 9 ? "1,7,0,0,1,-1\n" : EVENT);
        sprintf(orderbook + strlen(orderbook), "110,5,100,%d\n", 10 + r);
    }
    lob_book *book = parse(message, orderbook);
    lob_feature_params params = {.levels = 1, .n_horizons = 1, .horizons = {4}};
    float x[20];
    uint8_t valid[20];
    cr_assert_eq(lob_features(&params, book, x, valid, NULL), 0);
    for (size_t t = 0; t < 20; t++)
        cr_expect_eq(valid[t], (t >= 4 && t < 9) || t >= 14, "event %zu", t);
    lob_book_destroy(&book);
}

Test(features, params_out_of_range) {
    static const struct {
        lob_feature_params params;
        const char *error;
    } cases[] = {
        {{8, 4, {1, 10, 50, 200}}, "the book has 3 levels and 8 were asked for: set levels to 3 or fewer"},
        {{0, 1, {1}}, "0 levels: expected 1 to 512 with 1 horizons"},
        {{1, 0, {0}}, "0 feature horizons: expected 1 to 8"},
        {{1, 9, {1}}, "9 feature horizons: expected 1 to 8"},
        {{1, 2, {1, 0}}, "feature horizon of 0 events: expected 1 to 1000000"},
        {{1, 1, {1000001}}, "feature horizon of 1000001 events: expected 1 to 1000000"},
    };
    lob_book *book = random_book(1, 2, 3);
    float x[2 * 512];
    uint8_t valid[2];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_error err;
        cr_expect_eq(lob_features(&cases[i].params, book, x, valid, &err), -1);
        cr_expect_str_eq(err.text, cases[i].error, "%s", err.text);
    }
    lob_book_destroy(&book);
}

Test(features, largest_sizes_do_not_overflow) {
    lob_book *book = parse(EVENT EVENT EVENT, "110,1000000000000,100,1\n"
                                              "111,1,101,1000000000000\n"
                                              "112,1000000000000,102,1000000000000\n");
    lob_feature_params params = {.levels = 1, .n_horizons = 1, .horizons = {2}};
    float x[3];
    uint8_t valid[3];
    cr_assert_eq(lob_features(&params, book, x, valid, NULL), 0);
    cr_expect_float_eq(x[2], 4 * 3e12 / 3e12, 1e-5);
    lob_book_destroy(&book);
}
