#include "lobdata/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A sample before the split is known. Rows count through all books, so that rows of different books differ.
typedef struct candidate {
    size_t first_column;
    size_t last_row;
    double trend, half_spread;
} candidate;

// What is under construction.
typedef struct builder {
    const lob_dataset_params *params;
    lob_dataset *data;
    candidate *candidates;
    double *trend;  // of one book
    uint8_t *valid; // of one book
    size_t rows;    // of all books
} builder;

lob_dataset_params lob_dataset_default(void) {
    return (lob_dataset_params){
        .features = lob_feature_default(),
        .label = lob_label_default(),
        .theta_mode = LOB_THETA_MEAN,
        .seq = 1,
        .stride = 1,
        .train_fraction = 0.8,
        .validation_fraction = 0.2,
    };
}

void lob_dataset_destroy(lob_dataset **dataset) {
    if (!dataset || !*dataset)
        return;
    free((*dataset)->x);
    free((*dataset)->first_column);
    free((*dataset)->label);
    free(*dataset);
    *dataset = NULL;
}

// --- checks ---------------------------------------------------------------------------------------------------------

static int check_params(const lob_dataset_params *params, io_error *err) {
    double train = params->train_fraction, validation = params->validation_fraction;
    if (params->seq < 1 || params->seq > LOB_HORIZON_MAX)
        return io_error_set(err, "samples of %d events: expected 1 to %d", params->seq, LOB_HORIZON_MAX);
    if (params->stride < 1)
        return io_error_set(err, "stride of %d events: expected 1 or more", params->stride);
    if (!(train >= 0 && validation >= 0 && train + validation > 0 && train + validation <= 1 + 1e-9))
        return io_error_set(err,
                            "fractions %g for training and %g for validation: expected a sum above 0 and at most 1",
                            train, validation);
    if (params->theta_mode == LOB_THETA_GIVEN && !(params->theta >= 0 && isfinite(params->theta)))
        return io_error_set(err, "theta of %g: expected a number that is not negative", params->theta);
    return lob_label_check(&params->label, err);
}

static int check_books(const lob_dataset_params *params, const lob_book *const *books, size_t n_books, size_t *rows,
                       size_t *most_rows, io_error *err) {
    const lob_book deep = {.levels = LOB_FEATURES_MAX}; // lacks nothing: what is wrong with it is wrong with the params
    io_error reason;
    *rows = *most_rows = 0;
    if (!n_books)
        return io_error_set(err, "no book was given");
    if (lob_feature_check(&params->features, &deep, err))
        return -1;
    for (size_t b = 0; b < n_books; b++) {
        if (lob_feature_check(&params->features, books[b], &reason))
            return io_error_set(err, "book %zu of %zu: %s", b + 1, n_books, reason.text);
        *rows += books[b]->rows;
        if (books[b]->rows > *most_rows)
            *most_rows = books[b]->rows;
    }
    return 0;
}

static int check_norm(const lob_norm *norm, int features, io_error *err) {
    if (norm->features != features)
        return io_error_set(err, "the given statistics are of %d features, the samples have %d", norm->features,
                            features);
    for (int f = 0; f < features; f++)
        if (!isfinite(norm->mean[f]) || !isfinite(norm->std[f]) || norm->std[f] < 0)
            return io_error_set(err, "the given statistics of feature %d are not finite or negative", f);
    if (!(norm->theta >= 0 && isfinite(norm->theta)))
        return io_error_set(err, "the given theta of %g is not a number from 0 on", norm->theta);
    return 0;
}

// --- from books to candidates ---------------------------------------------------------------------------------------

static int allocate(builder *build, size_t features, size_t most_rows, io_error *err) {
    lob_dataset *data = build->data;
    size_t rows = build->rows;
    if (rows <= SIZE_MAX / (features * sizeof *data->x) && rows <= SIZE_MAX / sizeof *build->candidates) {
        data->x = malloc(rows * features * sizeof *data->x);
        build->candidates = malloc(rows * sizeof *build->candidates);
        build->trend = malloc(most_rows * sizeof *build->trend);
        build->valid = malloc(most_rows);
    }
    if (!data->x || !build->candidates || !build->trend || !build->valid)
        return io_error_set(err, "out of memory for %zu events of %zu features", rows, features);
    return 0;
}

// Moves the valid columns of a book's matrix together. Returns how many there are.
static size_t pack_columns(float *x, const uint8_t *valid, size_t rows, size_t features) {
    size_t packed = 0;
    for (size_t t = 0; t < rows; t++)
        if (valid[t]) {
            if (packed != t)
                memcpy(x + packed * features, x + t * features, features * sizeof *x);
            packed++;
        }
    return packed;
}

// Lists the samples of a segment. `column` is the column of its first valid event; rows of the book count from
// `row_offset`. Returns the column after its last.
static size_t list_samples(builder *build, const lob_book *book, lob_segment segment, size_t column,
                           size_t row_offset) {
    const lob_dataset_params *params = build->params;
    size_t first_valid = segment.begin + (size_t)lob_feature_window(&params->features);
    size_t seq = (size_t)params->seq;
    if (first_valid >= segment.end)
        return column;
    for (size_t t = first_valid + seq - 1; t < segment.end; t += (size_t)params->stride)
        if (!isnan(build->trend[t]))
            build->candidates[build->data->samples++] = (candidate){
                .first_column = column + t + 1 - seq - first_valid,
                .last_row = row_offset + t,
                .trend = build->trend[t],
                .half_spread = lob_half_spread(book, t),
            };
    return column + segment.end - first_valid;
}

static int add_book(builder *build, const lob_book *book, size_t row_offset, io_error *err) {
    lob_dataset *data = build->data;
    size_t features = (size_t)data->features, column = data->events;
    float *x = data->x + column * features;
    if (lob_features(&build->params->features, book, x, build->valid, err) ||
        lob_trend(&build->params->label, book, build->trend, err))
        return -1;
    data->events += pack_columns(x, build->valid, book->rows, features);
    for (size_t s = 0; s < book->n_segments; s++)
        column = list_samples(build, book, book->segments[s], column, row_offset);
    return 0;
}

// --- split, statistics, labels --------------------------------------------------------------------------------------

// The first row that a sample reads, for its inputs or for its label.
static size_t first_row_read(const lob_dataset_params *params, const candidate *sample) {
    int inputs = params->seq - 1 + lob_feature_window(&params->features), label = params->label.smoothing - 1;
    return sample->last_row - (size_t)(inputs > label ? inputs : label);
}

static size_t share(size_t samples, double fraction) {
    double share = floor((double)samples * fraction + 0.5);
    return share >= (double)samples ? samples : (size_t)share;
}

static void split(builder *build) {
    const lob_dataset_params *params = build->params;
    lob_dataset *data = build->data;
    size_t border = share(data->samples, params->train_fraction);
    size_t end = share(data->samples, params->train_fraction + params->validation_fraction);
    data->train = (lob_range){0, border};
    data->validation = (lob_range){border, end};
    if (border == end)
        return;
    size_t untouchable = first_row_read(params, &build->candidates[border]);
    while (data->train.end &&
           build->candidates[data->train.end - 1].last_row + (size_t)params->label.horizon >= untouchable)
        data->train.end--;
    data->purged = border - data->train.end;
}

static double theta_of_training(const builder *build) {
    const lob_dataset_params *params = build->params;
    lob_range train = build->data->train;
    double sum = 0;
    if (params->theta_mode == LOB_THETA_GIVEN)
        return params->theta;
    for (size_t i = train.begin; i < train.end; i++)
        sum += params->theta_mode == LOB_THETA_MEAN ? fabs(build->candidates[i].trend) / 2
                                                    : build->candidates[i].half_spread;
    return fmax(sum / (double)(train.end - train.begin), 0);
}

// Mean and standard deviation of every feature by Welford's recurrence, which gives exactly 0 for a constant.
static void measure(const builder *build, lob_norm *norm) {
    const lob_dataset *data = build->data;
    size_t features = (size_t)data->features;
    size_t begin = build->candidates[data->train.begin].first_column;
    size_t end = build->candidates[data->train.end - 1].first_column + (size_t)data->seq;
    for (size_t f = 0; f < features; f++) {
        double mean = 0, squares = 0;
        for (size_t c = begin; c < end; c++) {
            double value = data->x[c * features + f], delta = value - mean;
            mean += delta / (double)(c - begin + 1);
            squares += delta * (value - mean);
        }
        norm->mean[f] = (float)mean;
        norm->std[f] = (float)sqrt(squares / (double)(end - begin));
        if (norm->std[f] < 1e-12f)
            norm->std[f] = 0;
    }
    norm->features = data->features;
    norm->theta = theta_of_training(build);
}

static void normalise(lob_dataset *data) {
    size_t features = (size_t)data->features;
    for (size_t c = 0; c < data->events; c++)
        for (size_t f = 0; f < features; f++) {
            float *value = &data->x[c * features + f];
            *value = data->norm.std[f] > 0 ? (*value - data->norm.mean[f]) / data->norm.std[f] : 0;
        }
}

static void count_classes(const lob_dataset *data, lob_range range, size_t classes[LOB_CLASSES]) {
    for (size_t i = range.begin; i < range.end; i++)
        classes[data->label[i]]++;
}

static int set_labels(builder *build, io_error *err) {
    lob_dataset *data = build->data;
    data->first_column = malloc(data->samples * sizeof *data->first_column);
    data->label = malloc(data->samples);
    if (!data->first_column || !data->label)
        return io_error_set(err, "out of memory for %zu samples", data->samples);
    for (size_t i = 0; i < data->samples; i++) {
        data->first_column[i] = (int64_t)build->candidates[i].first_column;
        data->label[i] = (uint8_t)lob_trend_class(build->candidates[i].trend, data->norm.theta);
    }
    count_classes(data, data->train, data->train_classes);
    count_classes(data, data->validation, data->validation_classes);
    return 0;
}

static int finish(builder *build, const lob_norm *given_norm, io_error *err) {
    const lob_dataset_params *params = build->params;
    lob_dataset *data = build->data;
    if (!data->samples)
        return io_error_set(err, "%zu rows hold no sample: one needs %d consecutive rows of one segment and mid prices",
                            build->rows, lob_feature_window(&params->features) + params->seq + params->label.horizon);
    split(build);
    if (!given_norm && data->train.end == data->train.begin)
        return io_error_set(err, "no training sample is left: %zu samples, %zu purged at the border to validation",
                            data->samples, data->purged);
    if (given_norm)
        data->norm = *given_norm;
    else
        measure(build, &data->norm);
    normalise(data);
    return set_labels(build, err);
}

static int build_all(builder *build, const lob_book *const *books, size_t n_books, const lob_norm *given_norm,
                     io_error *err) {
    size_t most_rows, row_offset = 0;
    if (check_params(build->params, err) || check_books(build->params, books, n_books, &build->rows, &most_rows, err))
        return -1;
    build->data->features = lob_feature_count(&build->params->features);
    build->data->seq = build->params->seq;
    if ((given_norm && check_norm(given_norm, build->data->features, err)) ||
        allocate(build, (size_t)build->data->features, most_rows, err))
        return -1;
    for (size_t b = 0; b < n_books; b++) {
        if (add_book(build, books[b], row_offset, err))
            return -1;
        row_offset += books[b]->rows;
    }
    return finish(build, given_norm, err);
}

int lob_dataset_build(const lob_dataset_params *params, const lob_book *const *books, size_t n_books,
                      const lob_norm *given_norm, lob_dataset **dataset, io_error *err) {
    lob_dataset_params defaults = lob_dataset_default();
    builder build = {.params = params ? params : &defaults, .data = calloc(1, sizeof *build.data)};
    *dataset = NULL;
    if (!build.data)
        return io_error_set(err, "out of memory");
    int result = build_all(&build, books, n_books, given_norm, err);
    free(build.candidates);
    free(build.trend);
    free(build.valid);
    if (result)
        lob_dataset_destroy(&build.data);
    *dataset = build.data;
    return result;
}
