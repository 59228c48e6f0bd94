// From books to samples: normalised inputs, labels, and the border between training and validation.
#ifndef LOBDATA_DATASET_H
#define LOBDATA_DATASET_H

#include "lobdata/features.h"
#include "lobdata/labels.h"

// How large a trend must be to count as a move.
typedef enum lob_theta_mode {
    LOB_THETA_MEAN,        // mean |trend| / 2 of the training samples
    LOB_THETA_HALF_SPREAD, // mean relative half spread of the training samples (lob_half_spread), at least 0
    LOB_THETA_GIVEN        // the number `theta`
} lob_theta_mode;

// seq: events in one sample, 1 or more; the label is that of the last of them. stride: events from one sample to the
// next, 1 or more. The fractions are of the samples in time order: the first train_fraction of them is for training,
// the validation_fraction after them for validation, the rest for neither. Each is from 0 to 1, their sum as well.
typedef struct lob_dataset_params {
    lob_feature_params features;
    lob_label_params label;
    lob_theta_mode theta_mode;
    double theta; // relative to the mid price, not negative; read with LOB_THETA_GIVEN only
    int seq;
    int stride;
    double train_fraction, validation_fraction;
} lob_dataset_params;

// Default features and labels, LOB_THETA_MEAN, seq 1, stride 1, fractions 0.8 and 0.2.
lob_dataset_params lob_dataset_default(void);

// What was learnt from the training part and must be applied unchanged to every other part. A value type without
// pointers: save it with a model and hand it back for evaluation.
typedef struct lob_norm {
    int features;
    float mean[LOB_FEATURES_MAX];
    float std[LOB_FEATURES_MAX]; // 0: the input did not vary, and is always 0 after normalisation
    double theta;
} lob_norm;

// Samples [begin, end).
typedef struct lob_range {
    size_t begin, end;
} lob_range;

// The samples of one or more books.
//
// x is the column-major matrix [features, events], leading dimension `features`: the normalised inputs of all events
// that have them, in the order of the books and of their rows. Sample i is the `seq` columns from first_column[i] on,
// which are consecutive events of one segment, and its class is label[i] (LOB_UP, LOB_STATIONARY, LOB_DOWN). Samples
// are in time order; those of `train` come first. Samples in neither range are the purged ones, and those after
// validation.
//
// Between training and validation samples are purged: a training sample is left out if the rows of its label reach the
// first row that the first validation sample reads (the state before its longest feature window, or the mid prices that
// its label looks back on). So no validation input and no validation label shares a row with a training label.
typedef struct lob_dataset {
    int features, seq;
    size_t events;
    float *x;
    size_t samples;
    int64_t *first_column;
    uint8_t *label;
    lob_range train, validation;
    size_t purged;
    size_t train_classes[LOB_CLASSES], validation_classes[LOB_CLASSES];
    lob_norm norm; // computed here, or a copy of the given one
} lob_dataset;

// Builds the samples of n_books books, which the caller lists in time order and keeps. Windows and labels never cross
// a book or a segment; an event whose label is undefined ends no sample.
//
// params may be NULL (defaults). given_norm: NULL to compute mean, standard deviation (of the population) and theta
// from the training samples alone, where the statistics take each event up to the last training sample once; or what
// an earlier dataset computed, in which case theta_mode and theta of the params are not read and the training part may
// be empty. A standard deviation below 1e-12 counts as 0.
//
// On success *dataset is new and the caller destroys it; on failure it is NULL. Errors: params out of range, a book
// with too few levels (named by its number from 1), no sample at all, no training sample without a given norm, a given
// norm with another number of features or values that are not finite, out of memory. Needs about 4 * features + 40
// bytes a row while it runs. Blocking; thread-safe. Returns 0, or -1.
int lob_dataset_build(const lob_dataset_params *params, const lob_book *const *books, size_t n_books,
                      const lob_norm *given_norm, lob_dataset **dataset, io_error *err);

// Frees *dataset and sets it to NULL. NULL and a pointer to NULL are allowed.
void lob_dataset_destroy(lob_dataset **dataset);

#endif
