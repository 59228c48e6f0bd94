// Order flow imbalance of a book, and the model's inputs made of it.
//
// R. Cont, A. Kukanov, S. Stoikov, "The Price Impact of Order Book Events", J. Financial Econometrics 12 (2014);
// several levels: K. Xu, M. Gould, S. Howison, "Multi-Level Order-Flow Imbalance in a Limit Order Book" (2019).
#ifndef LOBDATA_FEATURES_H
#define LOBDATA_FEATURES_H

#include "lobdata/lobster.h"

enum {
    LOB_HORIZONS_MAX = 8,
    LOB_HORIZON_MAX = 1000000, // events; with LOB_SIZE_MAX it keeps every sum within int64
    LOB_FEATURES_MAX = 512     // levels times horizons
};

// Which inputs to make: the feature of level m (0 is the best) and horizon i has the number m * n_horizons + i.
//
// levels: 1 or more, at most what the book has. horizons: n_horizons numbers of events, each 1 or more, in any order.
typedef struct lob_feature_params {
    int levels;
    int n_horizons;
    int horizons[LOB_HORIZONS_MAX];
} lob_feature_params;

// 8 levels and the horizons 1, 10, 50, 200: 32 inputs.
lob_feature_params lob_feature_default(void);

// levels * n_horizons. No checks: for params that lob_feature_check accepts.
int lob_feature_count(const lob_feature_params *params);

// The longest horizon.
int lob_feature_window(const lob_feature_params *params);

// Whether the params are in range and `book` has the levels that they ask for. The error says what was asked, what
// there is and what to set. Returns 0, or -1.
int lob_feature_check(const lob_feature_params *params, const lob_book *book, io_error *err);

// Order flow imbalance of `level` (0 is the best) at event `row`, which must be 1 or more, in shares. With b = bid,
// a = ask, P = price, q = size, n = row:
//
//     e = [Pb_n >= Pb_{n-1}] qb_n - [Pb_n <= Pb_{n-1}] qb_{n-1} - [Pa_n <= Pa_{n-1}] qa_n + [Pa_n >= Pa_{n-1}] qa_{n-1}
//
// An empty bid counts as a price below every other with size 0, an empty ask as a price above every other with size 0:
// a side that empties gives minus its size (bid) or plus its size (ask), one that fills the opposite, one that stays
// empty 0. No bounds are checked.
int64_t lob_ofi(const lob_book *book, size_t row, int level);

// The inputs of every event of a book, not normalised: feature f of event t goes to x[t * count + f], with count =
// lob_feature_count(params). That is a column-major [count, rows] matrix. The feature of level m and horizon w is
//
//     (sum of e over the w events up to t) / (mean of (qb + qa) / 2 at level m after each of the same w events)
//
// and 0 where the mean depth is 0. Sums are taken in integers, so a feature depends on its own window only, to the bit.
//
// valid[t] becomes 1 where the longest window and the state before it lie in one segment, that is from the event
// numbered lob_feature_window(params) of a segment on, counted from 0. Elsewhere valid[t] is 0 and the column is 0.
//
// x (rows * count elements) and valid (rows elements) belong to the caller. Errors: as lob_feature_check. Blocking;
// thread-safe. Returns 0, or -1.
int lob_features(const lob_feature_params *params, const lob_book *book, float *x, uint8_t *valid, io_error *err);

#endif
