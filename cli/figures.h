// What a classifier achieved on a set of samples.
#ifndef CLI_FIGURES_H
#define CLI_FIGURES_H

#include "cli/feed.h"

#include <stdio.h>

typedef struct cli_figures {
    int64_t samples;
    int64_t confusion[LOB_CLASSES][LOB_CLASSES]; // [true class][predicted class]
    double loss;                                 // mean cross-entropy, nats
    double mean_max;                             // focus of the attention, see tlob_block_mean_max
} cli_figures;

extern const char *const cli_class_names[LOB_CLASSES]; // up, stationary, down

double cli_accuracy(const cli_figures *figures);

// Share of the largest true class: what always answering with it would achieve.
double cli_majority(const cli_figures *figures);

typedef struct cli_class_score {
    double precision, recall, f1; // 0 where undefined
} cli_class_score;

cli_class_score cli_score(const cli_figures *figures, int class_index);

// Mean F1 of the classes that occur, be it as truth or as prediction: what scikit-learn calls macro-F1.
double cli_macro_f1(const cli_figures *figures);

// How many samples of `seq` events to evaluate at a time: scratch grows with events, on the time axis with seq events
// for each of them.
int64_t cli_evaluation_batch(int64_t seq);

// Runs the model over the samples of `range`, at most `capacity` (of model and feed) at a time. Counts from the logits
// on the host, independently of what the device counted. False after printing why.
bool cli_evaluate(tlob_model *model, cli_feed *feed, lob_range range, int64_t capacity, cli_figures *figures);

// One "name value" pair a line.
void cli_figures_print(const cli_figures *figures, FILE *out);

// The scores of each class and the confusion matrix.
void cli_confusion_print(const cli_figures *figures, FILE *out);

#endif
