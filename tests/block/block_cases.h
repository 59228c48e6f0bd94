/** What must hold of the block, its kernels, the head, the optimizer and the model in any memory space. */
#ifndef TLOB_TESTS_BLOCK_CASES_H
#define TLOB_TESTS_BLOCK_CASES_H

#include "tests/block/lab.h"

/* The block and the model (block_cases.c). */

/** A file of reference values from PyTorch in float64: "block_feature" or "block_time". Skips where it is missing. */
void case_reference(lab *l, const char *name);

/** Both passes of every fused shape, and of some that share kernels, against the oracle, with N from 1 to 70001, arrays
 *  a float past alignment, and one gradient wanted or both, with the same bits. `l` has fused kernels; `bar` is for its
 *  compute mode. */
void case_fused(lab *l, double bar);

/** Models of both axes learn as the oracle's do; twice with the same bits. `l` has fused kernels. */
void case_fused_model(lab *l);

/** Few samples of few shapes, and two training steps: the same bits with one gradient wanted or both. */
void case_fused_in_short(lab *l);

/** Four million samples. */
void case_fused_many(lab *l, double bar);

/** dW and dX alone and together, of the composed plan: the same bits. */
void case_alone(lab *l);

/** NaN and infinities reach what they must, and nothing else. */
void case_not_finite(lab *l, tlob_block_plan plan);

/** Which plan a block gets, and what one with a plan or without a backward pass refuses. obstacle: why this context has
 *  no fused kernels; NULL where it has. */
void case_plans(lab *l, const char *obstacle);

/** Every gradient against central differences of the loss in double, with d_in != d_out, on one axis. */
void case_gradients(lab *l, tlob_axis axis);

/** Fewer samples than the scratch has room for, after NaN has filled all of it. */
void case_capacity(lab *l);

void case_no_samples(lab *l);

/** Forward and backward twice: the same bits. */
void case_repeats(lab *l, tlob_axis axis);

/** Head alone: loss, hits, a label out of range, ties. */
void case_head(lab *l);

/** Evaluation against the loss in double, weights out and in again. */
void case_model(lab *l);

/** Training that stops, and goes on in a new model with weights and optimizer put back: the bits of one that did not. */
void case_resume(lab *l);

/** Weights come from Philox, within Xavier's bounds, the same bits as on the host. */
void case_init(lab *l);

/** Trains for `steps` steps on artificial data; `weights` (may be NULL): tlob_model_weight_count of the default shape.
 */
void train(lab *l, int steps, float *losses, float *weights);

/* Kernels and the optimizer (kernel_cases.c). */

/** head_dim x tokens x axis x alignment, against double. */
void case_attend_shapes(lab *l);

/** Scores from 0 to FLT_MAX and beyond. */
void case_attend_pathological(lab *l);

void case_affine(lab *l);
void case_add_pieces(lab *l);
void case_row_sum(lab *l);
void case_cross_entropy(lab *l);
void case_uniform(lab *l);

/** Steps against a table worked out by hand in double, with an eps large enough to tell where it is added. */
void case_adam_table(lab *l);

/** Many parameters against double, and a learning rate that changes on the way. */
void case_adam_lr(lab *l);

/** Steps, state out, state into another optimizer, steps: the bits of one that went on. */
void case_adam_state(lab *l);

/* Sums in chunks (chunk_cases.c). */

/** How ranges are cut. */
void case_chunks(void);

/** tlob_head_train against double, with features and samples around the edges of threads and chunks; twice. */
void case_head_train(lab *l);

void case_sum_chunks(lab *l);

/** The optimizer that adds up its gradients, against the one that is given them. */
void case_adam_chunked(lab *l);

/* Attention with many tokens and wide heads (attend_cases.c). */

/** Relative errors allowed against float64; tf32 0: not tried. */
typedef struct attend_bars {
    double fp32, tf32;
} attend_bars;

/** tokens x head_dim x arrangement of Q, K and V x alignment, against double; every run twice with the same bits. */
void case_attend_heads(lab *l, const attend_bars *bars);

/** The same with hundreds and thousands of tokens. */
void case_attend_long(lab *l, const attend_bars *bars);

/** Scores of +-1e4, FLT_MAX, infinite and NaN ones, in rows of more than a tile. */
void case_attend_extremes(lab *l);

/* The epilogues after a product (finish_cases.c). */

/** Every epilogue, both transposes, batches with gaps and without, masks around the edges of their words; twice. */
void case_finish(lab *l);

/** NaN, infinities, -0 and what overflows on the way. */
void case_finish_pathological(lab *l);

/** More elements than the largest grid has threads. */
void case_beyond_the_grid(lab *l);

#endif
