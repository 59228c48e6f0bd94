// Samples: which there are, what they contain, and that nothing of validation leaks into training.
#include "helper.h"
#include "lobdata/synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(dataset, .init = make_dir, .fini = remove_dir);

// 2 levels, horizons 1 and 5, labels 6 ahead over 3, samples of 4 events: rows are few enough to count by hand.
static lob_dataset_params small_params(void) {
    lob_dataset_params params = lob_dataset_default();
    params.features = (lob_feature_params){2, 2, {1, 5}};
    params.label = (lob_label_params){6, 3};
    params.seq = 4;
    return params;
}

static lob_dataset *build(const lob_dataset_params *params, const lob_book *book, const lob_norm *norm) {
    lob_dataset *data;
    io_error err;
    cr_assert_eq(lob_dataset_build(params, &book, 1, norm, &data, &err), 0, "%s", err.text);
    return data;
}

Test(dataset, samples_by_hand) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(1, 100, 2);
    lob_dataset *data = build(&params, book, NULL);
    // Valid events are rows 5..99, samples end at rows 8..93, and 69 of these 86 come before the border.
    cr_expect_eq(data->features, 4);
    cr_expect_eq(data->seq, 4);
    cr_expect_eq(data->events, 95);
    cr_expect_eq(data->samples, 86);
    for (size_t i = 0; i < 86; i++)
        cr_expect_eq(data->first_column[i], (int64_t)i);
    // The first validation sample ends at row 77 and reads from row 77 - 3 - 5 = 69; a training label must end before
    // it, so the last training sample ends at row 62.
    cr_expect_eq(data->validation.begin, 69);
    cr_expect_eq(data->validation.end, 86);
    cr_expect_eq(data->train.begin, 0);
    cr_expect_eq(data->train.end, 62 - 8 + 1);
    cr_expect_eq(data->purged, 14);
    size_t classes = 0;
    for (int c = 0; c < LOB_CLASSES; c++)
        classes += data->train_classes[c] + data->validation_classes[c];
    cr_expect_eq(classes, 55 + 17);
    lob_dataset_destroy(&data);
    cr_expect_null(data);
    lob_dataset_destroy(NULL);
    lob_book_destroy(&book);
}

Test(dataset, inputs_labels_and_statistics) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(2, 300, 2);
    lob_dataset *data = build(&params, book, NULL);
    float x[300 * 4];
    uint8_t valid[300];
    double trend[300], theta = 0;
    cr_assert_eq(lob_features(&params.features, book, x, valid, NULL), 0);
    cr_assert_eq(lob_trend(&params.label, book, trend, NULL), 0);
    for (size_t i = 0; i < data->train.end; i++)
        theta += fabs(trend[8 + i]) / 2 / (double)data->train.end;
    cr_expect_float_eq(data->norm.theta, theta, 1e-12);
    for (size_t i = 0; i < data->samples; i++)
        cr_expect_eq(data->label[i], lob_trend_class(trend[8 + i], data->norm.theta), "sample %zu", i);
    size_t used = data->train.end + 3; // columns up to the last training sample
    for (size_t f = 0; f < 4; f++) {
        double mean = 0, variance = 0;
        for (size_t c = 0; c < used; c++)
            mean += x[(5 + c) * 4 + f] / (double)used;
        for (size_t c = 0; c < used; c++)
            variance += pow(x[(5 + c) * 4 + f] - mean, 2) / (double)used;
        cr_expect_float_eq(data->norm.mean[f], mean, 1e-5);
        cr_expect_float_eq(data->norm.std[f], sqrt(variance), 1e-5);
        for (size_t c = 0; c < data->events; c++)
            cr_expect_float_eq(data->x[c * 4 + f], (x[(5 + c) * 4 + f] - mean) / sqrt(variance), 1e-4);
    }
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

// What training sees must not depend on any row that validation reads, nor on one after it.
Test(dataset, training_knows_nothing_of_validation) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(3, 200, 2);
    lob_dataset *before = build(&params, book, NULL);
    size_t first_row = 5 + (size_t)before->first_column[before->validation.begin] - 5; // of the state before its window
    for (size_t r = first_row; r < 200; r++) {
        book->bid_size[2 * r] += 1000 + (int64_t)r * 7;
        book->ask_price[2 * r] += 10000;
        book->ask_price[2 * r + 1] += 20000;
    }
    lob_dataset *after = build(&params, book, NULL);
    cr_assert_eq(before->train.end, after->train.end);
    cr_assert_gt(before->train.end, 50);
    cr_expect_arr_eq(&before->norm, &after->norm, sizeof before->norm);
    cr_expect_arr_eq(before->label, after->label, before->train.end);
    cr_expect_arr_eq(before->x, after->x, (before->train.end + 3) * 4 * sizeof(float));
    cr_expect(memcmp(before->x, after->x, before->events * 4 * sizeof(float)) != 0, "the change shows where it may");
    lob_dataset_destroy(&before);
    lob_dataset_destroy(&after);
    lob_book_destroy(&book);
}

Test(dataset, purge_is_not_more_than_needed) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(4, 200, 2);
    for (int smoothing = 1; smoothing <= 40; smoothing += 13)
        for (params.seq = 1; params.seq <= 9; params.seq += 4) {
            params.label = (lob_label_params){40, smoothing};
            lob_dataset *data = build(&params, book, NULL);
            size_t back = (size_t)(params.seq - 1 + 5 > smoothing - 1 ? params.seq - 1 + 5 : smoothing - 1);
            size_t last[2] = {data->train.end - 1, data->validation.begin};
            for (int i = 0; i < 2; i++)
                last[i] = 5 + (size_t)data->first_column[last[i]] + (size_t)params.seq - 1;
            cr_expect_eq(last[0] + 40, last[1] - back - 1, "the label ends right before the first row that is read");
            lob_dataset_destroy(&data);
        }
    lob_book_destroy(&book);
}

Test(dataset, given_statistics_are_applied) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(5, 200, 2), *other = random_book(6, 150, 2);
    lob_dataset *train = build(&params, book, NULL);
    params.train_fraction = 0;
    params.validation_fraction = 1;
    lob_dataset *test = build(&params, other, &train->norm);
    cr_expect_arr_eq(&test->norm, &train->norm, sizeof train->norm);
    cr_expect_eq(test->train.end, 0);
    cr_expect_eq(test->validation.begin, 0);
    cr_expect_eq(test->validation.end, test->samples);
    cr_expect_eq(test->purged, 0);
    float x[150 * 4];
    uint8_t valid[150];
    lob_features(&params.features, other, x, valid, NULL);
    for (size_t c = 0; c < test->events; c++)
        for (size_t f = 0; f < 4; f++)
            cr_expect_eq(test->x[c * 4 + f], (x[(5 + c) * 4 + f] - train->norm.mean[f]) / train->norm.std[f]);
    // The training data with their own statistics give themselves.
    lob_dataset_params again = small_params();
    lob_dataset *same = build(&again, book, &train->norm);
    cr_expect_arr_eq(same->x, train->x, train->events * 4 * sizeof(float));
    cr_expect_arr_eq(same->label, train->label, train->samples);
    lob_dataset_destroy(&same);
    lob_dataset_destroy(&train);
    lob_dataset_destroy(&test);
    lob_book_destroy(&book);
    lob_book_destroy(&other);
}

Test(dataset, theta_modes) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(7, 200, 2);
    params.theta_mode = LOB_THETA_HALF_SPREAD;
    lob_dataset *data = build(&params, book, NULL);
    double theta = 0;
    for (size_t i = 0; i < data->train.end; i++)
        theta += lob_half_spread(book, 8 + i) / (double)data->train.end;
    cr_expect_float_eq(data->norm.theta, theta, 1e-12);
    lob_dataset_destroy(&data);
    params.theta_mode = LOB_THETA_GIVEN;
    params.theta = 1;
    data = build(&params, book, NULL);
    cr_expect_eq(data->norm.theta, 1);
    cr_expect_eq(data->train_classes[LOB_STATIONARY], data->train.end);
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

Test(dataset, an_input_that_does_not_vary_is_zero) {
    lob_dataset_params params = small_params();
    lob_book *book = random_book(8, 200, 2);
    for (size_t r = 0; r < 200; r++) { // level 2 stands still until validation
        size_t i = 2 * r + 1;
        book->bid_price[i] = 100;
        book->ask_price[i] = 9000000;
        book->bid_size[i] = r < 190 ? 10 : 10 * (int64_t)r;
        book->ask_size[i] = 10;
    }
    lob_dataset *data = build(&params, book, NULL);
    for (size_t f = 2; f < 4; f++) {
        cr_expect_eq(data->norm.std[f], 0);
        for (size_t c = 0; c < data->events; c++)
            cr_expect_eq(data->x[c * 4 + f], 0);
    }
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

static void expect_samples_inside(const lob_dataset *data, const int64_t *border, size_t borders) {
    for (size_t i = 0; i < data->samples; i++)
        for (size_t b = 0; b < borders; b++)
            cr_expect(data->first_column[i] + data->seq <= border[b] || data->first_column[i] >= border[b],
                      "sample %zu crosses column %lld", i, (long long)border[b]);
}

Test(dataset, books_and_segments_are_not_crossed) {
    lob_dataset_params params = small_params();
    lob_book *books[] = {random_book(9, 60, 2), random_book(10, 12, 2), random_book(11, 80, 2)};
    books[2]->segments = realloc(books[2]->segments, 2 * sizeof *books[2]->segments);
    books[2]->segments[0].end = 30;
    books[2]->segments[1] = (lob_segment){31, 80};
    books[2]->n_segments = 2;
    const lob_book *list[] = {books[0], books[1], books[2]};
    lob_dataset *data;
    io_error err;
    cr_assert_eq(lob_dataset_build(&params, list, 3, NULL, &data, &err), 0, "%s", err.text);
    // Valid events: 55 + 7 + 25 + 44. Samples: ends 8..53, none of 12 rows (8..5), 8..23, 39..73 (31 + 8 .. 79 - 6).
    cr_expect_eq(data->events, 55 + 7 + 25 + 44);
    cr_expect_eq(data->samples, 46 + 16 + 35);
    const int64_t borders[] = {55, 62, 87};
    expect_samples_inside(data, borders, 3);
    cr_expect_eq(data->first_column[46], 62, "the book without a sample still has columns");
    cr_expect_eq(data->first_column[46 + 16], 87);
    lob_dataset_destroy(&data);
    for (int b = 0; b < 3; b++)
        lob_book_destroy(&books[b]);
}

Test(dataset, nothing_is_purged_between_books) {
    lob_dataset_params params = small_params();
    params.train_fraction = params.validation_fraction = 0.5;
    lob_book *books[] = {random_book(15, 100, 2), random_book(16, 100, 2)};
    const lob_book *list[] = {books[0], books[1]};
    lob_dataset *data;
    cr_assert_eq(lob_dataset_build(&params, list, 2, NULL, &data, NULL), 0);
    cr_expect_eq(data->train.end, 86);
    cr_expect_eq(data->validation.begin, 86);
    cr_expect_eq(data->purged, 0, "%zu", data->purged);
    lob_dataset_destroy(&data);
    lob_book_destroy(&books[0]);
    lob_book_destroy(&books[1]);
}

Test(dataset, stride) {
    lob_dataset_params params = small_params();
    params.stride = 7;
    lob_book *book = random_book(12, 100, 2);
    lob_dataset *data = build(&params, book, NULL);
    cr_expect_eq(data->samples, 13);
    for (size_t i = 0; i < data->samples; i++)
        cr_expect_eq(data->first_column[i], (int64_t)(7 * i));
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

Test(dataset, rest_is_in_neither_part) {
    lob_dataset_params params = small_params();
    params.train_fraction = 0.5;
    params.validation_fraction = 0.25;
    lob_book *book = random_book(13, 113, 2);
    lob_dataset *data = build(&params, book, NULL);
    cr_expect_eq(data->samples, 99);
    cr_expect_eq(data->validation.begin, 50);
    cr_expect_eq(data->validation.end, 74);
    params.validation_fraction = 0;
    lob_dataset_destroy(&data);
    data = build(&params, book, NULL);
    cr_expect_eq(data->train.end, 50);
    cr_expect_eq(data->purged, 0);
    lob_dataset_destroy(&data);
    lob_book_destroy(&book);
}

static void expect_refused(const lob_dataset_params *params, const lob_book *book, const lob_norm *norm,
                           const char *error) {
    lob_dataset *data = (lob_dataset *)1;
    io_error err = {""};
    cr_expect_eq(lob_dataset_build(params, &book, 1, norm, &data, &err), -1);
    cr_expect_null(data);
    cr_expect_str_eq(err.text, error, "%s", err.text);
}

Test(dataset, errors) {
    lob_book *book = random_book(14, 100, 2);
    lob_dataset_params params = small_params();
    lob_norm norm = {.features = 3};
    io_error err;
    lob_dataset *data;
    expect_refused(NULL, book, NULL,
                   "book 1 of 1: the book has 2 levels and 8 were asked for: set levels to 2 or fewer");
    cr_expect_eq(lob_dataset_build(NULL, NULL, 0, NULL, &data, &err), -1);
    cr_expect_str_eq(err.text, "no book was given");
    expect_refused(&params, book, &norm, "the given statistics are of 3 features, the samples have 4");
    params.features.n_horizons = 9;
    expect_refused(&params, book, NULL, "9 feature horizons: expected 1 to 8");
    params.features.n_horizons = 2;
    norm = (lob_norm){.features = 4, .std = {1, 1, NAN, 1}};
    expect_refused(&params, book, &norm, "the given statistics of feature 2 are not finite or negative");
    norm = (lob_norm){.features = 4, .theta = -1};
    expect_refused(&params, book, &norm, "the given theta of -1 is not a number from 0 on");
    params.seq = 0;
    expect_refused(&params, book, NULL, "samples of 0 events: expected 1 to 1000000");
    params.seq = 90;
    expect_refused(&params, book, NULL,
                   "100 rows hold no sample: one needs 101 consecutive rows of one segment and mid prices");
    params.seq = 40;
    expect_refused(&params, book, NULL,
                   "no training sample is left: 50 samples, 40 purged at the border to validation");
    params = small_params();
    params.stride = 0;
    expect_refused(&params, book, NULL, "stride of 0 events: expected 1 or more");
    params = small_params();
    params.train_fraction = 0.9;
    expect_refused(&params, book, NULL,
                   "fractions 0.9 for training and 0.2 for validation: expected a sum above 0 and at most 1");
    params.train_fraction = NAN;
    expect_refused(&params, book, NULL,
                   "fractions nan for training and 0.2 for validation: expected a sum above 0 and at most 1");
    params = small_params();
    params.theta_mode = LOB_THETA_GIVEN;
    params.theta = NAN;
    expect_refused(&params, book, NULL, "theta of nan: expected a number that is not negative");
    params = small_params();
    params.label.smoothing = 7;
    expect_refused(&params, book, NULL, "smoothing over 7 mid prices: expected 1 to the label horizon (6)");
    lob_book_destroy(&book);
}

// ARL: empty levels, one-sided rows and stub quotes must leave everything finite.
Test(dataset, real_files) {
    const char *prefixes[] = {"lobster_arl_l10_dummy/ARL_2025-07-17_14400000_72000000",
                              "lobster_aapl_l10_45min/AAPL_2012-06-21_34200000_36900000"};
    const size_t events[] = {3698 - 200, 59316 - 200};
    for (int i = 0; i < 2; i++) {
        lob_book *book = read_shared(prefixes[i], 10, ".gz", NULL);
        lob_dataset *data = build(NULL, book, NULL);
        cr_expect_eq(data->events, events[i]);
        for (size_t e = 0; e < 32 * data->events; e++)
            cr_assert(isfinite(data->x[e]));
        for (int c = 0; c < LOB_CLASSES; c++)
            cr_expect_gt(data->train_classes[c], data->train.end / 20, "class %d", c);
        lob_dataset_destroy(&data);
        lob_book_destroy(&book);
    }
}
