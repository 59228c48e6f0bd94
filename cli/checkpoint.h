// The file of a training run that stops and goes on: what the next step depends on, and of which run it is.
//
// safetensors; `count` parameters, flat and in the order of tlob_model_get_weights (a model's file has them by name):
//
//     F32 weights, adam_m, adam_v [count]
//     with --keep best, after the first validation: F32 best_weights [count], F64 best_figures [2] (loss, mean_max),
//     I64 best_confusion [3, 3]
//
// Metadata (text): format, version; what describes the run, as cli_checkpoint_load compares it; steps (done, of
// training and so of Adam), draw (the state of the sampler after them, as int64), best_step (0: none), checksum (of all
// the others and of the tensors).
#ifndef CLI_CHECKPOINT_H
#define CLI_CHECKPOINT_H

#include "cli/figures.h"
#include "cli/meta.h"

// Keys of the run that are no options: a hash of its samples; what it computes with, of which another is only warned
// of.
#define CLI_RUN_DATA    "data"
#define CLI_RUN_MACHINE "machine"

typedef struct cli_checkpoint {
    int64_t count;  // parameters
    float *weights; // [count]
    float *moments; // [m | v]: 2 * count, as tlob_model_get_optimizer gives them
    float *best;    // [count], of the lowest validation loss so far; NULL without --keep best
    int64_t steps;
    cli_draw draw;
    int64_t best_step;        // 0: no validation yet, and `best` means nothing
    cli_figures best_figures; // of the validation part then
} cli_checkpoint;

// Memory for `count` parameters; everything else is 0. False after printing why; cli_checkpoint_finish is due in both
// cases.
bool cli_checkpoint_init(cli_checkpoint *checkpoint, int64_t count, bool keep_best);
void cli_checkpoint_finish(cli_checkpoint *checkpoint);

// What became of a checkpoint.
typedef enum cli_checkpoint_fate {
    CLI_CHECKPOINT_SAVED,
    CLI_CHECKPOINT_DIVERGED,  // not finite: it could not be loaded, and there is nothing to save
    CLI_CHECKPOINT_UNWRITTEN, // the file could not be written; the one before it is as it was
} cli_checkpoint_fate;

// Writes the file aside, syncs it and puts it in place. `run`: what the run depends on, by the names of options. Prints
// why where it is not saved.
cli_checkpoint_fate cli_checkpoint_save(const char *path, const cli_checkpoint *checkpoint, const cli_meta *run);

// Fills an initialised checkpoint. Checks everything: a file that is cut off, of another kind or damaged, a run that
// differs from `run` in anything, and a state that is not one are refused by name. False after printing why.
bool cli_checkpoint_load(const char *path, cli_checkpoint *checkpoint, const cli_meta *run);

#endif
