/**
 * What no vendor library has, once per memory space: CUDA kernels (*.cu) and their plain C twins (*_host.c), which
 * accumulate in double. Launchers only enqueue on `stream` and return a cudaError_t as a number, 0 for success; the
 * twins ignore `stream`. Arguments have been validated. No atomics; every sum has a fixed order.
 */
#ifndef TLOB_KERNELS_H
#define TLOB_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tlob/gemm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct tlob_block_fused_args;

/** D_b = beta * C_b + bias, m x n each; beta 0: C is not read; bias: m floats or NULL; D may be C. */
typedef struct tlob_affine_args {
    int64_t m, n, ld, batch, stride;
    int64_t stride_bias;    /**< of a batch; 0 shares the bias */
    float beta;
    const float *c, *bias;
    float *d;
} tlob_affine_args;

/** D = beta * C + the sum of `pieces` matrices, m x n each; beta 0: C is not read; D may be C. */
typedef struct tlob_add_pieces_args {
    int64_t m, n, ld;       /**< ld: of C and D */
    int64_t pieces;         /**< pieces*m*n is at most 2^20 */
    float beta;
    const float *piece;     /**< [pieces*m*n] the matrices, packed, one after the other */
    const float *c;
    float *d;
} tlob_add_pieces_args;

/**
 * The rest of an epilogue on D = z without bias (tlob_epilogue has the formulas): bias, activation, mask or derivative
 * in place, aux, and bgrad. Sizes, strides and the epilogue are those of `gemm`. BGRADA and BGRADB read A or B and leave
 * D; with k = 0 their sums are 0. A mask's bits past m become anything, but no byte outside (ld_aux/8)*n is touched.
 */
typedef struct tlob_finish_args {
    tlob_gemm gemm;
    tlob_gemm_operands x;
} tlob_finish_args;

#define TLOB_ATTEND_HEAD_DIM_MAX 128

/** Where the tokens of an attention lie in a tensor, in elements; tlob_attend_args says how. */
typedef struct tlob_attend_layout {
    int64_t inner_stride, outer_stride, token_stride;
} tlob_attend_layout;

/**
 * Attention in groups of tokens. Element e of token t of group g lies at base(g) + t*token_stride + e in a tensor, with
 * base(g) = (g / inner)*outer_stride + (g % inner)*inner_stride; inner divides groups. Q, K, V and their gradients share
 * the layout `in`, O and its gradient the layout `out`:
 *
 *     FEATURE: a group is a column:          inner 1,              outer_stride d_out,     token_stride head_dim
 *     TIME:    a group is a head of a sample: inner d_out/head_dim, inner_stride head_dim, outer_stride seq*d_out,
 *                                            token_stride d_out
 *     TIME with Q, K and V as row slices of one [3 d_out, N]: likewise, but in.outer_stride and in.token_stride are
 *                                            three times as large
 *
 * Row r = g*tokens + t of the statistics belongs to token t of group g. An operand needs no more alignment
 * than a float; where all of them start, and step, by multiples of 16 bytes, a device moves four floats at once.
 */
typedef struct tlob_attend_args {
    int64_t groups, tokens;
    int64_t head_dim;       /**< 1 to TLOB_ATTEND_HEAD_DIM_MAX */
    int64_t inner;
    tlob_attend_layout in, out;
    tlob_compute compute;   /**< TF32: products may round their inputs to TF32; FP32: they keep a float's accuracy */
    bool tiles;             /**< what attend_has_tiles says of the device; the same for both passes */
    const float *q, *k, *v;
    float *o;               /**< forward: written; backward: read */
    float *row_max;         /**< [groups*tokens] largest scaled score of the row: forward writes, backward reads */
    float *row_inv_sum;     /**< [groups*tokens] 1 / sum exp(s - max), which is also the row's largest P; likewise */
    const float *d_o;       /**< backward: dLoss/dO */
    float *row_dot;         /**< [groups*tokens] backward scratch: rowsum(dP * P), which is also rowsum(dO * O) */
    float *dq, *dk, *dv;    /**< backward: written */
} tlob_attend_args;

/** `count` sums over chunks (chunks.h), still to be added up: of each chunk its own, one chunk after the other. */
typedef struct tlob_chunked {
    int64_t count, chunks;
    const float *partial;   /**< [count, chunks] */
} tlob_chunked;

typedef struct tlob_sum_args {
    tlob_chunked of;
    int64_t split;          /**< sums below it go to `out`, from it on to `rest` */
    float *out, *rest;
    bool overlaps;          /**< whether the kernel may start while the one before ends: see launch_overlapping */
} tlob_sum_args;

/** Softmax cross-entropy over 3 classes, in chunks of TLOB_XENT_UNIT and so on. */
typedef struct tlob_xent_args {
    int64_t samples;        /**< >= 1 */
    const float *logits;    /**< [3, samples] */
    const uint8_t *labels;  /**< [samples] */
    float *dlogits;         /**< [3, samples]: (softmax - onehot) / samples, or NULL; NaN where the label is above 2 */
    float *partial;         /**< [5, chunks]: sums of dlogits, of the loss, and how many are right; a label above 2 makes
                                 the former NaN and counts as wrong */
    float *dbias, *figures; /**< [3] and [2]: the same of all samples, where they are one chunk; partial is not written */
} tlob_xent_args;

/** A head of 3 classes with its loss and the gradients of both, in chunks of TLOB_HEAD_UNIT and so on. */
typedef struct tlob_head_args {
    int64_t samples, features; /**< >= 1 */
    const float *weights;   /**< [W | b] */
    const float *y;         /**< [features, samples] */
    const uint8_t *labels;  /**< [samples] */
    float *logits;          /**< [3, samples], of head_logits alone, which reads no labels and writes nothing else */
    float *dlogits;         /**< [3, samples]: as of tlob_xent_args; scratch */
    float *dy;              /**< [features, samples] */
    float *partial;         /**< [3 features + 5, chunks]: gradients as the weights lie, loss, and how many are right */
    struct tlob_adam_state *advance; /**< an optimizer whose t is to be advanced by one, or NULL */
    bool overlaps;          /**< as of tlob_sum_args */
} tlob_head_args;

/** Optimizer scalars, in memory that the device sees. */
typedef struct tlob_adam_state {
    int64_t t;
    float lr, beta1, beta2, eps;
    float ln_beta1, ln_beta2; /**< with which 1 - beta^t = -expm1(t ln beta) keeps a float's digits in floats */
} tlob_adam_state;

typedef struct tlob_adam_args {
    int64_t count;
    tlob_adam_state *state; /**< t is advanced by one, then used */
    const float *g;
    float *w, *m, *v;
} tlob_adam_args;

/** A step with gradients, one part after the other, that are still to be added up. With overlaps, some
 *  kernel since w, m and v were written must wait before it lets the next one start (launch.cuh). */
typedef struct tlob_adam_chunked_args {
    tlob_adam_args adam;    /**< without g; t is that of this step already */
    tlob_chunked part[2];   /**< of gradients, and of figures behind them */
    float *figures;         /**< those from sum `count` on */
    bool overlaps;          /**< as of tlob_sum_args */
} tlob_adam_chunked_args;

typedef struct tlob_kernels {
    int (*affine)(struct CUstream_st *stream, const tlob_affine_args *args);
    int (*add_pieces)(struct CUstream_st *stream, const tlob_add_pieces_args *args);
    int (*finish)(struct CUstream_st *stream, const tlob_finish_args *args);
    /** Whether the code for the current device has the attention in tiles. Asks CUDA: for once, not for every call. */
    bool (*attend_has_tiles)(void);
    int (*attend_forward)(struct CUstream_st *stream, const tlob_attend_args *args);
    int (*attend_backward)(struct CUstream_st *stream, const tlob_attend_args *args);
    int (*cross_entropy)(struct CUstream_st *stream, const tlob_xent_args *args);
    int (*head)(struct CUstream_st *stream, const tlob_head_args *args);
    int (*head_logits)(struct CUstream_st *stream, const tlob_head_args *args);
    int (*sum_chunks)(struct CUstream_st *stream, const tlob_sum_args *args);
    /** out[i] = scale * sum over j of x[i + j*m], i < m, j < n; partial: tlob_row_sum_scratch(m, n) floats. */
    int (*row_sum)(struct CUstream_st *stream, int64_t m, int64_t n, const float *x, float scale, float *partial,
                   float *out);
    int (*adam)(struct CUstream_st *stream, const tlob_adam_args *args);
    int (*adam_chunked)(struct CUstream_st *stream, const tlob_adam_chunked_args *args);
    /** *dst = value in the order of the stream: how optimizer scalars reach memory that the host may not write. */
    int (*set_scalar)(struct CUstream_st *stream, float *dst, float value);
    /** w[i] = bound * u_i with u_i in [-1, 1), from block i/4, word i%4 of Philox4x32-10, key `seed`, counter
     *  (i/4, `space`): bit-equal in both memory spaces. */
    int (*uniform)(struct CUstream_st *stream, int64_t count, float bound, uint64_t seed, uint32_t space, float *w);
    /** The passes of the fused block (block_fused.h); NULL where there is none. */
    int (*block_forward)(struct CUstream_st *stream, const struct tlob_block_fused_args *args);
    int (*block_backward)(struct CUstream_st *stream, const struct tlob_block_fused_args *args);
    /** Whether the code for the current device is of compute capability 9.0 or later, and its driver captures kernels
     *  that overlap. Asks CUDA, as attend_has_tiles. */
    bool (*block_has_code)(void);
    /** Has the code of every kernel on the current device, which CUDA may otherwise load at its first launch only. */
    int (*load)(void);
} tlob_kernels;

/** Counter spaces of `uniform`, so that matrices drawn from one seed share no block of random numbers. */
enum {
    TLOB_SPACE_W_Q,
    TLOB_SPACE_W_K,
    TLOB_SPACE_W_V,
    TLOB_SPACE_W_O,
    TLOB_SPACE_HEAD,
    TLOB_SPACE_MHA_IN,
    TLOB_SPACE_MHA_OUT,
};

/** Floats of scratch that row_sum needs: at least 1, and no less for a larger m or n. */
int64_t tlob_row_sum_scratch(int64_t m, int64_t n);

extern const tlob_kernels tlob_kernels_host;
extern const tlob_kernels tlob_kernels_cuda; /* CUDA builds only */

#ifdef __cplusplus
}
#endif
#endif
