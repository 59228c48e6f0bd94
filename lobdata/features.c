#include "lobdata/features.h"

#include <string.h>

lob_feature_params lob_feature_default(void) {
    return (lob_feature_params){.levels = 8, .n_horizons = 4, .horizons = {1, 10, 50, 200}};
}

int lob_feature_count(const lob_feature_params *params) {
    return params->levels * params->n_horizons;
}

int lob_feature_window(const lob_feature_params *params) {
    int longest = 0;
    for (int i = 0; i < params->n_horizons; i++)
        if (params->horizons[i] > longest)
            longest = params->horizons[i];
    return longest;
}

int lob_feature_check(const lob_feature_params *params, const lob_book *book, io_error *err) {
    if (params->n_horizons < 1 || params->n_horizons > LOB_HORIZONS_MAX)
        return io_error_set(err, "%d feature horizons: expected 1 to %d", params->n_horizons, LOB_HORIZONS_MAX);
    for (int i = 0; i < params->n_horizons; i++)
        if (params->horizons[i] < 1 || params->horizons[i] > LOB_HORIZON_MAX)
            return io_error_set(err, "feature horizon of %d events: expected 1 to %d", params->horizons[i],
                                LOB_HORIZON_MAX);
    if (params->levels < 1 || params->levels > LOB_FEATURES_MAX / params->n_horizons)
        return io_error_set(err, "%d levels: expected 1 to %d with %d horizons", params->levels,
                            LOB_FEATURES_MAX / params->n_horizons, params->n_horizons);
    if (params->levels > book->levels)
        return io_error_set(err, "the book has %d levels and %d were asked for: set levels to %d or fewer",
                            book->levels, params->levels, book->levels);
    return 0;
}

int64_t lob_ofi(const lob_book *book, size_t row, int level) {
    size_t levels = (size_t)book->levels, now = row * levels + (size_t)level, before = now - levels;
    int64_t bid = book->bid_price[now], bid_before = book->bid_price[before];
    int64_t ask = book->ask_price[now], ask_before = book->ask_price[before];
    int64_t e = 0;
    if (bid >= bid_before)
        e += book->bid_size[now];
    if (bid <= bid_before)
        e -= book->bid_size[before];
    if (ask <= ask_before)
        e -= book->ask_size[now];
    if (ask >= ask_before)
        e += book->ask_size[before];
    return e;
}

static int64_t depth_doubled(const lob_book *book, size_t row, int level) {
    size_t i = row * (size_t)book->levels + (size_t)level;
    return book->bid_size[i] + book->ask_size[i];
}

// One feature of one segment: `out` is the feature's place in the segment's first column, `count` the distance between
// columns. The window slides from event 1 on, since event 0 has no state before it.
static void slide(const lob_book *book, lob_segment segment, int level, size_t window, size_t first_valid, float *out,
                  size_t count) {
    int64_t flow = 0, depth = 0;
    for (size_t t = segment.begin + 1; t < segment.end; t++) {
        flow += lob_ofi(book, t, level);
        depth += depth_doubled(book, t, level);
        if (t > segment.begin + window) {
            flow -= lob_ofi(book, t - window, level);
            depth -= depth_doubled(book, t - window, level);
        }
        if (t >= first_valid && depth)
            out[(t - segment.begin) * count] = (float)(2.0 * (double)window * (double)flow / (double)depth);
    }
}

int lob_features(const lob_feature_params *params, const lob_book *book, float *x, uint8_t *valid, io_error *err) {
    if (lob_feature_check(params, book, err))
        return -1;
    size_t count = (size_t)lob_feature_count(params), longest = (size_t)lob_feature_window(params);
    memset(x, 0, book->rows * count * sizeof *x);
    memset(valid, 0, book->rows);
    for (size_t s = 0; s < book->n_segments; s++) {
        lob_segment segment = book->segments[s];
        if (segment.end - segment.begin <= longest)
            continue;
        size_t first_valid = segment.begin + longest;
        memset(valid + first_valid, 1, segment.end - first_valid);
        for (int f = 0; f < (int)count; f++)
            slide(book, segment, f / params->n_horizons, (size_t)params->horizons[f % params->n_horizons], first_valid,
                  x + segment.begin * count + f, count);
    }
    return 0;
}
