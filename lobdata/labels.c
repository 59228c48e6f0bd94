#include "lobdata/labels.h"

#include <math.h>

enum { LONGEST_HORIZON = 1000000 }; // keeps a sum of doubled mid prices within int64

lob_label_params lob_label_default(void) {
    return (lob_label_params){.horizon = 100, .smoothing = 20};
}

int lob_label_check(const lob_label_params *params, io_error *err) {
    if (params->horizon < 1 || params->horizon > LONGEST_HORIZON)
        return io_error_set(err, "label horizon of %d events: expected 1 to %d", params->horizon, LONGEST_HORIZON);
    if (params->smoothing < 1 || params->smoothing > params->horizon)
        return io_error_set(err, "smoothing over %d mid prices: expected 1 to the label horizon (%d)",
                            params->smoothing, params->horizon);
    return 0;
}

// A sliding sum of doubled mid prices that knows how many of them are undefined.
typedef struct mid_window {
    int64_t sum;
    size_t undefined;
} mid_window;

static void window_add(mid_window *window, const lob_book *book, size_t row) {
    int64_t mid = lob_mid_doubled(book, row);
    window->sum += mid;
    window->undefined += mid == 0;
}

static void window_remove(mid_window *window, const lob_book *book, size_t row) {
    int64_t mid = lob_mid_doubled(book, row);
    window->sum -= mid;
    window->undefined -= mid == 0;
}

static void trend_of_segment(const lob_book *book, lob_segment segment, size_t h, size_t k, double *trend) {
    if (segment.end - segment.begin < h + k)
        return;
    mid_window back = {0}, ahead = {0};
    for (size_t t = segment.begin; t + h < segment.end; t++) {
        window_add(&back, book, t);
        window_add(&ahead, book, t + h);
        if (t >= segment.begin + k) {
            window_remove(&back, book, t - k);
            window_remove(&ahead, book, t + h - k);
        }
        if (t + 1 >= segment.begin + k && !back.undefined && !ahead.undefined)
            trend[t] = (double)(ahead.sum - back.sum) / (double)back.sum;
    }
}

int lob_trend(const lob_label_params *params, const lob_book *book, double *trend, io_error *err) {
    if (lob_label_check(params, err))
        return -1;
    for (size_t t = 0; t < book->rows; t++)
        trend[t] = NAN;
    for (size_t s = 0; s < book->n_segments; s++)
        trend_of_segment(book, book->segments[s], (size_t)params->horizon, (size_t)params->smoothing, trend);
    return 0;
}

int lob_trend_class(double trend, double theta) {
    return trend > theta ? LOB_UP : trend < -theta ? LOB_DOWN : LOB_STATIONARY;
}

double lob_half_spread(const lob_book *book, size_t row) {
    int64_t mid = lob_mid_doubled(book, row);
    if (!mid)
        return NAN;
    size_t first = row * (size_t)book->levels;
    return (double)(book->ask_price[first] - book->bid_price[first]) / (double)mid;
}
