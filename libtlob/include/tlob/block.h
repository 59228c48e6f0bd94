/** The TLOB attention block: fused QKV projection, attention on one axis, output projection; forward and backward. */
#ifndef TLOB_BLOCK_H
#define TLOB_BLOCK_H

#include <tlob/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Along which axis tokens attend to each other: the two of TLOB's dual attention. */
typedef enum tlob_axis {
    TLOB_AXIS_FEATURE, /**< tokens: the d_out/head_dim groups of head_dim consecutive rows of one column */
    TLOB_AXIS_TIME,    /**< tokens: the seq columns of one sample; heads: the d_out/head_dim groups of head_dim rows */
} tlob_axis;

/** "feature" or "time". Static storage. */
TLOB_API const char *tlob_axis_name(tlob_axis axis);

/** The largest head_dim of a block. */
#define TLOB_HEAD_DIM_MAX 64

/**
 * The sizes of a block. X is [d_in, N] and Y is [d_out, N], float32, column-major, packed; a column is one event,
 * N = samples * seq, and the seq columns of one sample stand together.
 */
typedef struct tlob_block_shape {
    int64_t d_in;     /**< rows of X, >= 1 */
    int64_t d_out;    /**< rows of Y, >= 1 */
    int64_t head_dim; /**< 1 to TLOB_HEAD_DIM_MAX, divides d_out */
    int64_t seq;      /**< columns of one sample, >= 1 */
    tlob_axis axis;   /**< what attends to what */
} tlob_block_shape;

/** d_in 32, d_out 16, head_dim 4, seq 1, FEATURE axis: four tokens of four. */
TLOB_API tlob_block_shape tlob_block_shape_default(void);

/** Whether the shape is valid. Errors: ARGUMENT names the field. Thread-safe. */
TLOB_API tlob_status tlob_block_shape_check(const tlob_block_shape *shape);

/**
 * Floats in the flat weights [W_Q | W_K | W_V | W_O], and in their gradients: 3*d_out*d_in + d_out*d_out. W_Q, W_K, W_V
 * are [d_out, d_in], W_O is [d_out, d_out], column-major. `shape` must be valid.
 */
TLOB_API int64_t tlob_block_weight_count(const tlob_block_shape *shape);

/**
 * Fills flat weights with Xavier uniform values, U(-b, b) with b = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio
 * 2010), from Philox4x32-10 (Salmon et al. 2011) keyed by `seed`, one counter space for each matrix: the same bits on
 * host and GPU. Asynchronous. `weights` is memory of the stream's context.
 * Errors: ARGUMENT, MEMORY_SPACE, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_block_init_weights(tlob_stream *stream, const tlob_block_shape *shape, uint64_t seed,
                                             float *weights);

/** Scratch of a block: what forward leaves for backward. One block serves one stream at a time. */
typedef struct tlob_block tlob_block;

/** How to make a block. */
typedef struct tlob_block_params {
    tlob_block_shape shape; /**< the sizes, and the axis */
    int64_t max_samples;  /**< the most samples of one pass, >= 1; the number for which the plan is decided */
    tlob_block_plan plan; /**< DEFAULT: what tlob_block_explain says */
    bool inference;       /**< forward passes alone: they keep nothing, and less scratch is made; backward, mean_max and
                               get_state are then ARGUMENT */
} tlob_block_params;

/** The default shape, max_samples 256, plan DEFAULT, training. */
TLOB_API tlob_block_params tlob_block_params_default(void);

/**
 * The shapes that have fused kernels of their own, on the FEATURE axis with seq 1, by an index from 0 on; false past
 * the last, and for a negative one, and then `*shape` stays as it is. Thread-safe.
 */
TLOB_API bool tlob_block_fused_shape(int index, tlob_block_shape *shape);

/** A decision on a block. */
typedef struct tlob_block_choice {
    tlob_block_plan plan; /**< COMPOSED or FUSED */
    char reason[256];     /**< in words, such as "the caller's choice" */
    char obstacle[200];   /**< why the fused kernels do not cover the block here; empty: they do */
    bool refused;         /**< whether a table's entry says fused, and they do not */
} tlob_block_choice;

/**
 * Which plan a block made from `params` gets in `ctx`, and why: what params->plan names; else what the context's
 * block_decide returns, or its block_plan names; else, where the context's policy is `tuned`, what the table has for a
 * block of this shape with max_samples samples, for inference or not, in the context's compute mode; else fused where
 * the shape has fused kernels of its own, and they can run in this context, and composed where not. docs/fused.md says
 * what the fused kernels cover. A block that would be composed needs no entry; else no entry, or one that is refused,
 * is a miss: the choice by shape, or with `tuned:strict` an error. Launches nothing.
 *
 * Thread-safe if block_decide is. Errors: ARGUMENT, CLOSED; UNSUPPORTED, with the obstacle, where fused is named or
 * decided on and does not cover it; POLICY where block_decide returns no plan, or a strict table has none.
 */
TLOB_API tlob_status tlob_block_explain(const tlob_context *ctx, const tlob_block_params *params,
                                        tlob_block_choice *choice);

/**
 * tlob_block_explain in a context of `memory` with these settings that need not exist: so without a GPU, which is taken
 * to be one that the fused kernels are for. A table in settings->policy answers with the first entry for the block,
 * whatever device and libraries it is for. Errors: as tlob_block_explain, and ARGUMENT for policy tuned without a
 * table.
 */
TLOB_API tlob_status tlob_block_plan_explain(const tlob_settings *settings, tlob_memory memory,
                                             const tlob_block_params *params, tlob_block_choice *choice);

/**
 * Allocates scratch for up to params->max_samples samples. Free with tlob_block_destroy.
 * Errors: as tlob_block_explain, and OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_block_create_with(tlob_context *ctx, const tlob_block_params *params, tlob_block **block);

/** tlob_block_create_with these two and the other parameters' defaults. */
TLOB_API tlob_status tlob_block_create(tlob_context *ctx, const tlob_block_shape *shape, int64_t max_samples,
                                       tlob_block **block);

/** Frees the scratch and sets `*block` to NULL; NULL is allowed. */
TLOB_API void tlob_block_destroy(tlob_block **block);

/**
 * Y = W_O attend(W_Q X, W_K X, W_V X), with S = q k^T / sqrt(head_dim), P = softmax of each row of S, o = P v. The
 * three projections are one strided-batched product, or all is one kernel: the block's plan. The composed plan keeps Q,
 * K, V and O in the block for the backward pass; the fused one does not, and its backward pass forms them anew from x.
 *
 * weights: flat, see tlob_block_weight_count; x: [d_in, N]; y: [d_out, N]; N = samples * seq, samples from 0 to
 * max_samples. All in the memory of the stream's context; x and y may be NULL where samples is 0; y must not overlap what
 * is read. Asynchronous. NaN and infinities in a sample of x reach Y of that sample alone; docs/fused.md says where
 * infinities are NaN.
 * Errors: as tlob_gemm_run, and ARGUMENT for another context's stream.
 */
TLOB_API tlob_status tlob_block_forward(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                        int64_t samples, float *y);

/**
 * The gradients of a scalar loss, given dy = dLoss/dY [d_out, N], for the samples of the last forward with the same
 * weights and x. Nothing on the device may write the weights between the two passes: those at the same address may be
 * read as soon as the forward pass has ended, before what was enqueued behind it has. dweights: flat as the weights,
 * overwritten; dx: [d_in, N], overwritten; neither may overlap what is read. Either is NULL where it is not wanted, and
 * then the other has the same bits as with both. No atomics and a fixed order of summation: the same inputs give the same
 * bits on the same backend and device.
 *
 *     dO = W_O^T dY, dW_O = dY O^T, dP = dO v^T, dS = P * (dP - rowsum(dP * P)), dv = P^T dO,
 *     dq = dS k / sqrt(head_dim), dk = dS^T q / sqrt(head_dim),
 *     dW_{Q,K,V} = d{Q,K,V} X^T (one strided-batched product),
 *     dX = W_Q^T dQ + W_K^T dK + W_V^T dV
 *
 * Errors: as tlob_block_forward; ARGUMENT where `samples` is not that of the last forward, or dweights and dx are NULL.
 */
TLOB_API tlob_status tlob_block_backward(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                         const float *dy, int64_t samples, float *dweights, float *dx);

/**
 * The focus of the attention in the last forward: the mean over all softmax rows of the row's largest P; 1/tokens is
 * uniform, 1 is one-hot, NaN before the first forward. The number of rows is that of the last call of
 * tlob_block_forward, also when a graph has been launched since: launch only graphs of as many samples before asking.
 * Blocking. Errors: ARGUMENT, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_block_mean_max(tlob_block *block, tlob_stream *stream, float *value);

/** What the last forward kept: pointers into the block, in the memory of its context, valid until it is destroyed. */
typedef struct tlob_block_state {
    const float *q; /**< [d_out, N] */
    const float *k; /**< [d_out, N] */
    const float *v; /**< [d_out, N] */
    const float *o; /**< [d_out, N] */
} tlob_block_state;

/**
 * Looks into a block, for tests and pictures. Errors: ARGUMENT (also before the first forward), CLOSED; UNSUPPORTED with
 * the fused plan, which keeps none of it.
 */
TLOB_API tlob_status tlob_block_get_state(const tlob_block *block, tlob_block_state *state);

#ifdef __cplusplus
}
#endif
#endif
