/** What the two families of attention kernels share: a thread for each token (attend.cu, which also chooses), and tiles
 *  on tensor cores (attend_tiles.cuh). */
#ifndef TLOB_KERNELS_ATTEND_CUH
#define TLOB_KERNELS_ATTEND_CUH

#include "libtlob/kernels/kernels.h"
#include "libtlob/kernels/launch.cuh"

/** exp(score - max): 1 at the maximum itself, even an infinite one; a NaN score is equal to nothing and stays NaN. */
template <bool FP32> static inline __device__ float weight_of(float score, float max) {
    return score == max ? 1.0f : FP32 ? expf(score - max) : __expf(score - max);
}

/** Whether every token of every operand starts at a multiple of 16 bytes and is made of whole fours. */
static inline bool vectors_fit(const tlob_attend_args *x) {
    uintptr_t address = (uintptr_t)x->q | (uintptr_t)x->k | (uintptr_t)x->v | (uintptr_t)x->o | (uintptr_t)x->d_o |
                        (uintptr_t)x->dq | (uintptr_t)x->dk | (uintptr_t)x->dv;
    int64_t elements = x->head_dim | x->in.inner_stride | x->in.outer_stride | x->in.token_stride |
                       x->out.inner_stride | x->out.outer_stride | x->out.token_stride;
    return address % 16 == 0 && elements % 4 == 0;
}

int tlob_attend_tiled_forward(struct CUstream_st *stream, const tlob_attend_args *x);
int tlob_attend_tiled_backward(struct CUstream_st *stream, const tlob_attend_args *x);
int tlob_attend_tiled_forward_load();
int tlob_attend_tiled_backward_load();

#endif
