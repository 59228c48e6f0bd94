// Tuning of attention blocks: both plans of each are checked and timed, and the better one goes into a table.
#ifndef CLI_TUNE_BLOCKS_H
#define CLI_TUNE_BLOCKS_H

#include "cli/tune_measure.h"

typedef struct tune_blocks_summary {
    int done, unsolved; // blocks with a plan chosen, and those of which a plan is wrong
    bool interrupted;
} tune_blocks_summary;

// Measures every shape that has fused kernels of its own with several numbers of samples, for inference (forward) and
// for training (forward and backward), in the compute mode of the lab's context; prints a line for each, and puts an
// entry into the table, in the place of one that is there: composed where fused is wrong. Where composed is, it ends.
// Only names that match `filter` (NULL: all), such as "block/32x16x4/n256/training". False after printing why nothing
// more can be measured; an interrupt ends it too, and what was done until then is kept.
bool tune_blocks_run(const tune_lab *lab, const char *filter, tlob_table *table, tune_blocks_summary *summary);

// The plan that is chosen where they take `us`[TLOB_PLAN_COMPOSED] and [TLOB_PLAN_FUSED]: fused, which is the choice by
// shape, unless composed is faster by more than the band.
tlob_block_plan tune_blocks_choose(const double us[3], double band);

#endif
