/** Multi-head self-attention with biases, the trunk of TLOB: torch.nn.MultiheadAttention, forward and backward. */
#ifndef TLOB_MHA_H
#define TLOB_MHA_H

#include <tlob/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The largest head_dim = dim/heads. */
#define TLOB_MHA_HEAD_DIM_MAX 128

/**
 * The sizes of the attention. X and Y are [dim, N], float32, column-major and packed, N = samples * seq; the seq
 * columns of one sample stand together and attend to each other (torch's [batch, seq, dim] with batch_first, byte for
 * byte).
 */
typedef struct tlob_mha_shape {
    int64_t dim;   /**< rows of X and Y, >= 1 */
    int64_t heads; /**< divides dim, with dim/heads at most TLOB_MHA_HEAD_DIM_MAX */
    int64_t seq;   /**< columns of one sample, >= 1 */
} tlob_mha_shape;

/** Whether the shape is valid. Errors: ARGUMENT names the field. Thread-safe. */
TLOB_API tlob_status tlob_mha_shape_check(const tlob_mha_shape *shape);

/**
 * Floats in the flat parameters [W_in | b_in | W_out | b_out], and in their gradients: 4 dim^2 + 4 dim. They lie as
 * torch keeps in_proj_weight [3 dim, dim], in_proj_bias, out_proj.weight [dim, dim] and out_proj.bias, row-major:
 * W_in^T is column-major [dim, 3 dim], its first dim columns W_Q^T, then W_K^T, W_V^T. `shape` must be valid.
 */
TLOB_API int64_t tlob_mha_weight_count(const tlob_mha_shape *shape);

/**
 * Fills flat parameters as torch does: W_in ~ U(-b, b) with b = sqrt(6/(dim + 3 dim)) (Glorot and Bengio 2010), W_out ~
 * U(-1/sqrt(dim), 1/sqrt(dim)) (He et al. 2015 with a leak of sqrt(5)), biases 0; from Philox4x32-10 keyed by `seed`,
 * the same bits on host and GPU (not torch's). Asynchronous. `weights` is memory of the stream's context.
 * Errors: ARGUMENT, MEMORY_SPACE, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_mha_init_weights(tlob_stream *stream, const tlob_mha_shape *shape, uint64_t seed,
                                           float *weights);

/** How Q, K and V are projected. The same values but for rounding, and the same parameters. */
typedef enum tlob_mha_projection {
    TLOB_MHA_STACKED,  /**< one product for the three, with W_in as it lies */
    TLOB_MHA_SEPARATE, /**< three products */
} tlob_mha_projection;

/** Scratch of one attention: what forward leaves for backward. One serves one stream and one thread at a time. */
typedef struct tlob_mha tlob_mha;

/**
 * Allocates scratch for up to `max_samples` samples (>= 1), 8 dim + 3 heads floats a column, and at most 1536 dim
 * besides. Blocking. Free with tlob_mha_destroy. Errors: ARGUMENT, CLOSED, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_mha_create(tlob_context *ctx, const tlob_mha_shape *shape, tlob_mha_projection projection,
                                     int64_t max_samples, tlob_mha **mha);

/** Frees and sets `*mha` to NULL; NULL is allowed. */
TLOB_API void tlob_mha_destroy(tlob_mha **mha);

/**
 * Y = W_out attend(Q, K, V) + b_out with [Q; K; V] = W_in X + b_in: every projection one product with the epilogue
 * BIAS; attend as in tlob_block_forward on the time axis, with heads of head_dim = dim/heads rows, in the compute mode
 * of the context. Scores are never stored: memory grows with seq, not its square. Keeps Q, K, V, O and a softmax
 * maximum and sum for each row.
 *
 * weights: flat; x, y: [dim, samples*seq]; samples from 0 to max_samples. All in the memory of the stream's context; x
 * and y may be NULL where samples is 0; y must not overlap the others. Asynchronous. Errors: as tlob_gemm_run, and
 * ARGUMENT for another context's stream.
 */
TLOB_API tlob_status tlob_mha_forward(tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x,
                                      int64_t samples, float *y);

/**
 * The gradients of a scalar loss, given dy = dLoss/dY [dim, N], for the samples of the last forward with the same
 * weights and x. dweights: flat as the weights, overwritten; dx: [dim, N], overwritten, or NULL where not wanted.
 * Outputs must not overlap inputs. No atomics and a fixed order of summation.
 *
 *     dO = W_out^T dY, dW_out = dY O^T, db_out = rowsum(dY), the attention's backward as in tlob_block_backward,
 *     dW_in = d[Q; K; V] X^T, db_in = rowsum(d[Q; K; V]), dX = W_in^T d[Q; K; V]
 *
 * Products: dO, dW_out, dW_in, dX, the last two as three each where the projection is SEPARATE; no epilogues. Where
 * samples is 0 the gradients are 0, and x, dy and dx may be NULL.
 * Errors: as tlob_mha_forward; ARGUMENT where `samples` is not that of the last forward.
 */
TLOB_API tlob_status tlob_mha_backward(tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x,
                                       const float *dy, int64_t samples, float *dweights, float *dx);

/** What the last forward kept: pointers into the attention's scratch, valid until it is destroyed. */
typedef struct tlob_mha_state {
    const float *q; /**< element (i, column) of Q lies at i + column*ld */
    const float *k; /**< likewise */
    const float *v; /**< likewise */
    int64_t ld;     /**< of the three: 3 dim */
    const float *o; /**< [dim, N], packed */
} tlob_mha_state;

/** Looks inside, for tests and pictures. Errors: ARGUMENT (also before the first forward), CLOSED. */
TLOB_API tlob_status tlob_mha_get_state(const tlob_mha *mha, tlob_mha_state *state);

#ifdef __cplusplus
}
#endif
#endif
