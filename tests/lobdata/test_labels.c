// Trend labels: by hand, which way is up, and that nothing outside two windows can change one.
#include "helper.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 60 };

static void trend_of(const lob_book *book, int horizon, int smoothing, double *trend) {
    lob_label_params params = {horizon, smoothing};
    io_error err;
    cr_assert_eq(lob_trend(&params, book, trend, &err), 0, "%s", err.text);
}

Test(labels, by_hand) {
    const int64_t bid[] = {100, 110, 120, 100, 140, 160}, ask[] = {120, 130, 140, 120, 160, 180};
    lob_book *book = book_of_quotes(6, bid, ask); // mid 110 120 130 110 150 170
    double trend[6];
    trend_of(book, 2, 1, trend);
    const double h2k1[] = {20 / 110., -10 / 120., 20 / 130., 60 / 110., NAN, NAN};
    for (int t = 0; t < 6; t++)
        cr_expect(isnan(h2k1[t]) ? isnan(trend[t]) : fabs(trend[t] - h2k1[t]) < 1e-15, "h 2, k 1, event %d: %g", t,
                  trend[t]);
    trend_of(book, 2, 2, trend);
    const double h2k2[] = {NAN, (120 - 115) / 115., (130 - 125) / 125., (160 - 120) / 120., NAN, NAN};
    for (int t = 0; t < 6; t++)
        cr_expect(isnan(h2k2[t]) ? isnan(trend[t]) : fabs(trend[t] - h2k2[t]) < 1e-15, "h 2, k 2, event %d: %g", t,
                  trend[t]);
    lob_book_destroy(&book);
}

Test(labels, rising_is_class_0) {
    cr_expect_eq(LOB_UP, 0);
    cr_expect_eq(LOB_STATIONARY, 1);
    cr_expect_eq(LOB_DOWN, 2);
    cr_expect_eq(lob_trend_class(0.2, 0.1), 0);
    cr_expect_eq(lob_trend_class(0.1, 0.1), 1, "the bound itself is stationary");
    cr_expect_eq(lob_trend_class(-0.1, 0.1), 1);
    cr_expect_eq(lob_trend_class(-0.2, 0.1), 2);
    cr_expect_eq(lob_trend_class(0, 0), 1);
    for (int direction = -1; direction <= 1; direction++) {
        int64_t bid[ROWS], ask[ROWS];
        double trend[ROWS];
        for (int t = 0; t < ROWS; t++) {
            bid[t] = 100000 + direction * 100 * t;
            ask[t] = bid[t] + 100;
        }
        lob_book *book = book_of_quotes(ROWS, bid, ask);
        trend_of(book, 10, 5, trend);
        for (int t = 4; t < ROWS - 10; t++)
            cr_expect_eq(lob_trend_class(trend[t], 1e-6), 1 - direction, "direction %d, event %d", direction, t);
        lob_book_destroy(&book);
    }
}

static void random_quotes(unsigned seed, int64_t *bid, int64_t *ask) {
    for (int t = 0; t < ROWS; t++) {
        bid[t] = 100000 + 100 * (rand_r(&seed) % 50);
        ask[t] = bid[t] + 100 * (1 + rand_r(&seed) % 5);
    }
}

// Changes one row at a time and sees which labels change: those whose two windows hold it, and no other bit.
Test(labels, no_look_ahead) {
    const int h = 9, k = 4;
    int64_t bid[ROWS], ask[ROWS];
    double before[ROWS], after[ROWS];
    random_quotes(7, bid, ask);
    lob_book *book = book_of_quotes(ROWS, bid, ask);
    trend_of(book, h, k, before);
    for (int row = 0; row < ROWS; row++) {
        book->ask_price[row] += 50000;
        trend_of(book, h, k, after);
        book->ask_price[row] -= 50000;
        for (int t = k - 1; t < ROWS - h; t++) {
            int inside = (row > t - k && row <= t) || (row > t + h - k && row <= t + h);
            cr_assert_eq(before[t] != after[t], inside, "row %d, label %d", row, t);
        }
    }
    lob_book_destroy(&book);
}

Test(labels, undefined_at_the_ends_and_at_one_sided_rows) {
    const int h = 6, k = 3;
    int64_t bid[ROWS], ask[ROWS];
    double trend[ROWS];
    random_quotes(9, bid, ask);
    ask[30] = LOB_EMPTY_ASK;
    lob_book *book = book_of_quotes(ROWS, bid, ask);
    trend_of(book, h, k, trend);
    for (int t = 0; t < ROWS; t++) {
        int defined = t >= k - 1 && t < ROWS - h && !(30 > t - k && 30 <= t) && !(30 > t + h - k && 30 <= t + h);
        cr_expect_eq(!isnan(trend[t]), defined, "event %d", t);
        cr_expect(isnan(trend[t]) || isfinite(trend[t]));
    }
    cr_expect(isnan(lob_half_spread(book, 30)));
    lob_book_destroy(&book);
}

Test(labels, segments_are_not_crossed) {
    int64_t bid[ROWS], ask[ROWS];
    double trend[ROWS];
    random_quotes(11, bid, ask);
    lob_book *book = book_of_quotes(ROWS, bid, ask);
    book->segments = realloc(book->segments, 3 * sizeof *book->segments);
    book->segments[0] = (lob_segment){0, 20};
    book->segments[1] = (lob_segment){21, 29}; // as long as horizon and smoothing: one label
    book->segments[2] = (lob_segment){29, 60};
    book->n_segments = 3;
    trend_of(book, 5, 3, trend);
    for (int t = 0; t < ROWS; t++)
        cr_expect_eq(!isnan(trend[t]), (t >= 2 && t < 15) || t == 23 || (t >= 31 && t < 55), "event %d", t);
    lob_book_destroy(&book);
}

Test(labels, crossed_rows_stay_finite) {
    int64_t bid[ROWS], ask[ROWS];
    double trend[ROWS];
    random_quotes(13, bid, ask);
    lob_book *book = book_of_quotes(ROWS, bid, ask);
    book->bid_price[20] = book->ask_price[20];
    book->bid_price[21] = book->ask_price[21] + 300;
    book->ask_price[22] = 1920000000;
    trend_of(book, 5, 3, trend);
    for (int t = 2; t < ROWS - 5; t++)
        cr_expect(isfinite(trend[t]));
    lob_book_destroy(&book);
}

Test(labels, half_spread) {
    const int64_t bid[] = {990}, ask[] = {1010};
    lob_book *book = book_of_quotes(1, bid, ask);
    cr_expect_float_eq(lob_half_spread(book, 0), 10 / 1000., 1e-15);
    lob_book_destroy(&book);
}

Test(labels, params_out_of_range) {
    static const struct {
        lob_label_params params;
        const char *error;
    } cases[] = {
        {{0, 1}, "label horizon of 0 events: expected 1 to 1000000"},
        {{1000001, 1}, "label horizon of 1000001 events: expected 1 to 1000000"},
        {{10, 0}, "smoothing over 0 mid prices: expected 1 to the label horizon (10)"},
        {{10, 11}, "smoothing over 11 mid prices: expected 1 to the label horizon (10)"},
    };
    lob_label_params standard = lob_label_default();
    io_error err;
    cr_expect_eq(lob_label_check(&standard, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(lob_label_check(&cases[i].params, &err), -1);
        cr_expect_str_eq(err.text, cases[i].error, "%s", err.text);
    }
}

Test(labels, real_files_are_finite) {
    lob_book *book = read_shared("lobster_arl_l10_dummy/ARL_2025-07-17_14400000_72000000", 10, ".gz", NULL);
    double *trend = malloc(book->rows * sizeof *trend);
    size_t defined = 0;
    trend_of(book, 100, 20, trend);
    for (size_t t = 0; t < book->rows; t++) {
        cr_expect(isnan(trend[t]) || isfinite(trend[t]));
        defined += !isnan(trend[t]);
    }
    // The first 19 events have too few rows behind them and the 20th looks back on row 0, which is one-sided; the last
    // 100 have too few ahead, and the 8 before them look ahead to row 3690.
    cr_expect_eq(defined, 3698 - 100 - 20 - 8, "%zu", defined);
    free(trend);
    lob_book_destroy(&book);
}
