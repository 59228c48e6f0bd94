// The artificial market: the same bytes for a seed, a file that the reader finds no fault with, and a trend that order
// flow gives away.
#include "helper.h"
#include "lobdata/synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(synth, .init = make_dir, .fini = remove_dir);

static void write_pair(const lob_synth_params *params, const char *message, const char *orderbook) {
    io_error err;
    cr_assert_eq(lob_synth_write(params, in_dir(message), in_dir(orderbook), &err), 0, "%s", err.text);
}

static lob_book *read_pair(const char *message, const char *orderbook, lob_report *report) {
    lob_book *book;
    io_error err;
    cr_assert_eq(lob_book_read(NULL, in_dir(message), in_dir(orderbook), &book, report, &err), 0, "%s", err.text);
    return book;
}

static uint64_t fnv1a(const char *path) {
    size_t size;
    char *bytes = read_file(path, &size);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    free(bytes);
    return hash;
}

Test(synth, a_seed_gives_the_same_bytes) {
    lob_synth_params params = {.seed = 42, .rows = 2000, .levels = 5, .events_per_second = 50, .hidden_share = 0.02};
    write_pair(&params, "m", "b");
    uint64_t message = fnv1a(in_dir("m")), orderbook = fnv1a(in_dir("b"));
    write_pair(&params, "m2", "b2");
    cr_expect_eq(fnv1a(in_dir("m2")), message);
    cr_expect_eq(fnv1a(in_dir("b2")), orderbook);
    // The bytes of every machine and every version: a change here changes published examples.
    cr_expect_eq(message, UINT64_C(0x6d9fc525a312bfdc), "0x%llx", (unsigned long long)message);
    cr_expect_eq(orderbook, UINT64_C(0x11b26adcc26ba02f), "0x%llx", (unsigned long long)orderbook);
    params.seed = 43;
    write_pair(&params, "m2", "b2");
    cr_expect_neq(fnv1a(in_dir("m2")), message);
}

// + (type 1) or - (types 2, 3, 4) direction * size at or inside the touch.
static int64_t flow_of_message(const lob_book *book, size_t r) {
    int adds = book->type[r] == LOB_SUBMISSION;
    size_t touch = (r - !adds) * (size_t)book->levels; // where the order stands, or stood
    int64_t price = book->price[r];
    int at_touch = book->direction[r] > 0 ? price >= book->bid_price[touch] : price <= book->ask_price[touch];
    return at_touch && book->type[r] <= LOB_EXECUTION ? (adds ? 1 : -1) * book->direction[r] * book->size[r] : 0;
}

static int64_t size_at(const int64_t *price, const int64_t *size, int levels, int64_t wanted) {
    for (int m = 0; m < levels; m++)
        if (price[m] == wanted)
            return size[m];
    return 0;
}

// The level at the message's price changes by its size. Beyond the last level that is written nothing can be seen.
static int explained(const lob_book *book, size_t r) {
    int bid = book->direction[r] > 0, levels = book->levels;
    const int64_t *price = (bid ? book->bid_price : book->ask_price) + r * (size_t)levels;
    const int64_t *size = (bid ? book->bid_size : book->ask_size) + r * (size_t)levels;
    const int64_t *other = (bid ? book->ask_price : book->bid_price) + r * (size_t)levels;
    int64_t change =
        size_at(price, size, levels, book->price[r]) - size_at(price - levels, size - levels, levels, book->price[r]);
    int64_t expected = book->type[r] == LOB_SUBMISSION         ? book->size[r]
                       : book->type[r] == LOB_HIDDEN_EXECUTION ? 0
                                                               : -book->size[r];
    int appears = book->type[r] == LOB_SUBMISSION && !size_at(price - levels, size - levels, levels, book->price[r]);
    return change == expected && (!appears || size_at(price, size, levels, book->price[r]) == book->size[r]) &&
           !memcmp(other, other - levels, (size_t)levels * sizeof *other);
}

static void check_market(const lob_synth_params *params, const char *message, const char *orderbook) {
    lob_report report;
    write_pair(params, message, orderbook);
    lob_book *book = read_pair(message, orderbook, &report); // refuses crossed, locked and ghost rows
    cr_expect_eq(book->rows, params->rows);
    cr_expect_eq(book->levels, params->levels);
    cr_expect_eq(report.empty_levels, 0);
    cr_expect_eq(report.segments, 1);
    cr_expect_geq(book->time_ns[0], INT64_C(34200000000000));
    for (int type = LOB_SUBMISSION; type <= LOB_EXECUTION; type++)
        cr_expect_gt(report.types[type], 0, "type %d", type);
    double hidden = (double)report.types[LOB_HIDDEN_EXECUTION] / (double)params->rows;
    cr_expect_float_eq(hidden, params->hidden_share, 0.01, "hidden share %g", hidden);
    size_t broken = 0, unexplained = 0;
    for (size_t r = 1; r < book->rows; r++) {
        broken += lob_ofi(book, r, 0) != flow_of_message(book, r);
        unexplained += !explained(book, r);
    }
    cr_expect_eq(broken, 0, "%zu rows break the identity of level 1", broken);
    cr_expect_eq(unexplained, 0, "%zu rows change what their message does not say", unexplained);
    lob_book_destroy(&book);
}

Test(synth, the_reader_finds_no_fault) {
    static const int levels[] = {1, 2, 10, 50};
    for (int i = 0; i < 4; i++) {
        lob_synth_params params = {(uint64_t)i, 20000, levels[i], 50, i % 2 ? 0.1 : 0};
        check_market(&params, "m.csv", i % 2 ? "b.csv.gz" : "b.csv");
    }
}

Test(synth, gz_is_compressed) {
    lob_synth_params params = {1, 1000, 3, 50, 0};
    size_t size, plain_size;
    write_pair(&params, "m", "b");
    write_pair(&params, "m", "b.gz");
    char *bytes = read_file(in_dir("b.gz"), &size), *plain = read_file(in_dir("b"), &plain_size);
    cr_expect(size > 2 && (unsigned char)bytes[0] == 0x1f && (unsigned char)bytes[1] == 0x8b);
    cr_expect_lt(size, plain_size / 3);
    cr_expect_neq((unsigned char)plain[0], 0x1f);
    free(bytes);
    free(plain);
}

// Order flow tells the trend: the sign of the level-1 flow over 200 events agrees with the trend far more often than
// chance, and no class is rare.
Test(synth, the_trend_can_be_learnt) {
    lob_synth_params params = lob_synth_default();
    write_pair(&params, "m", "b");
    lob_book *book = read_pair("m", "b", NULL);
    lob_dataset *data;
    cr_assert_eq(lob_dataset_build(NULL, (const lob_book *const *)&book, 1, NULL, &data, NULL), 0);
    size_t right = 0, moved = 0;
    for (size_t i = data->validation.begin; i < data->validation.end; i++) {
        if (data->label[i] == LOB_STATIONARY)
            continue;
        moved++;
        right += (data->x[(size_t)data->first_column[i] * 32 + 3] > 0) == (data->label[i] == LOB_UP);
    }
    cr_expect_gt((double)right, 0.6 * (double)moved, "%zu of %zu", right, moved);
    for (int c = 0; c < LOB_CLASSES; c++)
        cr_expect_gt(data->train_classes[c], data->train.end / 4, "class %d: %zu", c, data->train_classes[c]);
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

Test(synth, errors) {
    static const struct {
        lob_synth_params params;
        const char *error;
    } cases[] = {
        {{1, 0, 10, 50, 0}, "0 rows: expected 1 or more"},
        {{1, 10, 0, 50, 0}, "0 levels: expected 1 to 50"},
        {{1, 10, 51, 50, 0}, "51 levels: expected 1 to 50"},
        {{1, 10, 10, 0, 0}, "0 events per second: expected 0.001 to 1000000"},
        {{1, 10, 10, NAN, 0}, "nan events per second: expected 0.001 to 1000000"},
        {{1, 10, 10, 50, 0.6}, "hidden share of 0.6: expected 0 to 0.5"},
    };
    io_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(lob_synth_write(&cases[i].params, in_dir("m"), in_dir("b"), &err), -1);
        cr_expect_str_eq(err.text, cases[i].error, "%s", err.text);
    }
    cr_expect_eq(lob_synth_write(NULL, in_dir("same"), in_dir("same"), &err), -1);
    cr_expect(strstr(err.text, "cannot be one file") != NULL, "%s", err.text);
    write_file(in_dir("m"), "old", 3);
    cr_expect_eq(lob_synth_write(NULL, in_dir("m"), in_dir("no/b"), &err), -1);
    size_t size;
    char *old = read_file(in_dir("m"), &size);
    cr_expect_str_eq(old, "old", "the first file is untouched where the second cannot be written");
    free(old);
}

Test(synth, a_full_disk_leaves_no_half_a_pair) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100000, 100000};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    io_error err;
    char expected[300];
    cr_expect_eq(lob_synth_write(NULL, in_dir("m"), in_dir("b"), &err), -1);
    snprintf(expected, sizeof expected, "%s: write failed: File too large", in_dir("b"));
    cr_expect_str_eq(err.text, expected, "%s", err.text);
    cr_expect_neq(access(in_dir("m"), F_OK), 0);
    cr_expect_neq(access(in_dir("b"), F_OK), 0);
}
