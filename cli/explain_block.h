// The part of `tlob explain` that is about attention blocks: which plan one gets, and why.
#ifndef CLI_EXPLAIN_BLOCK_H
#define CLI_EXPLAIN_BLOCK_H

#include "cli/common.h"

// Filled by cli_block_argp, whose input it is.
typedef struct cli_block_options {
    tlob_block_params params;
    bool asked;        // whether --block was given
    const char *given; // another of the options, or NULL
} cli_block_options;

// --block, --d-in to --inference: option keys from CLI_KEY_BLOCK on.
extern const struct argp cli_block_argp;

// Nothing is given yet.
cli_block_options cli_block_begin(void);

// Prints the plan of the block, the reason, and what keeps it from being fused. Without a GPU that of one that the
// fused kernels are for. Gives the program's exit status.
int cli_explain_block(const cli_block_options *block, const cli_context_options *context, bool json);

#endif
