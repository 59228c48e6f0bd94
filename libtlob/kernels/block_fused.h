/**
 * The whole attention block in one kernel: Y = W_O attend(W_Q X, W_K X, W_V X) without an intermediate in memory, and
 * the gradients with Q, K, V and P computed again from X. CUDA builds only.
 */
#ifndef TLOB_KERNELS_BLOCK_FUSED_H
#define TLOB_KERNELS_BLOCK_FUSED_H

#include <stdbool.h>
#include <stdint.h>

#include <tlob/block.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/**
 * The shapes (d_in, d_out, head_dim) on the FEATURE axis that have kernels of their own, where others share one; they
 * hold a column's tokens in the registers of four lanes. One template makes all of them from this list. The backward
 * pass has no room for more: with d_out 32 it would take more shared memory than there is, which is an error when it is
 * compiled.
 */
#define TLOB_BLOCK_FUSED_SHAPES(X)                                                                                     \
    X(16, 16, 4)                                                                                                       \
    X(32, 16, 4)

/** Weights, X, Y and their gradients need no more alignment than a float has; at multiples of 16 bytes they are moved
 *  in fours. */
typedef struct tlob_block_fused_args {
    tlob_block_shape shape;
    int64_t columns;        /**< N >= 1 */
    tlob_compute compute;   /**< TF32, or FP32: products in three parts, which keep a float's accuracy */
    int multiprocessors;    /**< of the device; no result depends on it */
    bool overlaps;          /**< whether the device starts a kernel while the one before ends: sm_90 and later */
    const float *weights;   /**< flat, as in tlob_block_forward */
    bool settled;           /**< backward: weights have not been written since a forward pass with them, and may be read
                                 before the kernel before has ended */
    const float *x;         /**< [d_in, N] */
    float *y;               /**< forward: [d_out, N] */
    float *focus;           /**< forward: [tlob_block_fused_focus] sums of rows' largest P; NULL: not wanted */
    const float *dy;        /**< backward: [d_out, N] */
    float *partial;         /**< backward: [weights, chunks] sums of the weights' gradients; NULL: none are wanted */
    float *dx;              /**< backward: [d_in, N], or NULL; not NULL where partial is */
} tlob_block_fused_args;

/** Whether a shape has kernels of its own. */
static inline bool tlob_block_fused_listed(const tlob_block_shape *s) {
#define TLOB_BLOCK_FUSED_IS(in, out, head) || (s->d_in == in && s->d_out == out && s->head_dim == head)
    return s->axis == TLOB_AXIS_FEATURE && (false TLOB_BLOCK_FUSED_SHAPES(TLOB_BLOCK_FUSED_IS));
#undef TLOB_BLOCK_FUSED_IS
}

/** The rows of an mma: columns that a warp takes at once. */
#define TLOB_BLOCK_FUSED_TILE 16

/** Columns of a tile, of N >= 1: those of an mma, or, along the time axis, of whole samples. */
static inline int64_t tlob_block_fused_tile(const tlob_block_shape *s) {
    if (s->axis == TLOB_AXIS_FEATURE)
        return TLOB_BLOCK_FUSED_TILE;
    return s->seq < 32 ? 32 / s->seq * s->seq : s->seq;
}

static inline int64_t tlob_block_fused_tiles(const tlob_block_shape *s, int64_t columns) {
    return (columns - 1) / tlob_block_fused_tile(s) + 1;
}

/**
 * Weight gradients are summed within chunks (chunks.h) of tiles, in a fixed order of tiles. There is a chunk for each
 * multiprocessor of an H200 at most, and few enough to add up in a microsecond or two. One has a tile at least, or,
 * where the shape has kernels of its own, which give a tile to a warp, one for each scheduler of a multiprocessor.
 */
#define TLOB_BLOCK_FUSED_MOST 132

static inline int64_t tlob_block_fused_unit(const tlob_block_shape *s) {
    return tlob_block_fused_listed(s) ? 4 : 1;
}

/** How many sums of rows' largest P a forward pass stores: one for each tile, or, where the shape has no kernels of its
 *  own, one for each row. */
static inline int64_t tlob_block_fused_focus(const tlob_block_shape *s, int64_t columns) {
    return tlob_block_fused_listed(s) ? tlob_block_fused_tiles(s, columns) : columns * (s->d_out / s->head_dim);
}

/** NULL, or why the kernels do not cover a (valid) shape. A pure function; static storage. */
const char *tlob_block_fused_obstacle(const tlob_block_shape *shape);

/** As the kernels of tlob_kernels. */
int tlob_cuda_block_fused_forward(struct CUstream_st *stream, const tlob_block_fused_args *args);
int tlob_cuda_block_fused_backward(struct CUstream_st *stream, const tlob_block_fused_args *args);
bool tlob_cuda_block_fused_has_code(void);

#ifdef __cplusplus
}
#endif
#endif
