// Trend labels: does the smoothed mid price rise, stay or fall?
#ifndef LOBDATA_LABELS_H
#define LOBDATA_LABELS_H

#include "lobdata/lobster.h"

// The classes, as the FI-2010 dataset page orders them, counted from 0.
enum { LOB_UP = 0, LOB_STATIONARY = 1, LOB_DOWN = 2, LOB_CLASSES = 3 };

// horizon: how many events ahead, 1 or more. smoothing: how many mid prices are averaged, from 1 to horizon, so that
// what is averaged ahead does not overlap what is averaged back.
typedef struct lob_label_params {
    int horizon;
    int smoothing;
} lob_label_params;

// Horizon 100, smoothing 20.
lob_label_params lob_label_default(void);

// Whether the params are in range; horizon is at most 1000000. Returns 0, or -1 with err set.
int lob_label_check(const lob_label_params *params, io_error *err);

// The relative trend of the mid price at every event t, with h = horizon and k = smoothing:
//
//     w- = mean of the k mid prices up to t        w+ = mean of the k mid prices up to t + h        l = (w+ - w-) / w-
//
// goes to trend[t]. Only rows t-k+1..t and t+h-k+1..t+h are read, and sums are taken in integers, so that nothing else
// can change a label, not even in its last bit. NaN where a segment does not hold both windows and all between them,
// or where a mid price in either window is undefined because a side is empty.
//
// trend has book->rows elements and belongs to the caller. Errors: as lob_label_check. Blocking; thread-safe.
// Returns 0, or -1.
int lob_trend(const lob_label_params *params, const lob_book *book, double *trend, io_error *err);

// LOB_UP if trend > theta, LOB_DOWN if trend < -theta, else LOB_STATIONARY. trend must not be NaN, theta not negative.
int lob_trend_class(double trend, double theta);

// Half the spread relative to the mid price, (ask - bid) / (ask + bid); NaN where a side is empty. In the units of a
// trend: a move of half a spread is what a trade at the touch pays.
double lob_half_spread(const lob_book *book, size_t row);

#endif
