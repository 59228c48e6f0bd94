/** What kernels share that have to do with Adam's state. */
#ifndef TLOB_KERNELS_ADAM_CUH
#define TLOB_KERNELS_ADAM_CUH

#include "libtlob/kernels/kernels.h"

/**
 * One step further, by a block of two warps or more. Powers in double: beta^t near 1 leaves a correction that float would
 * round to a few digits. They are taken by threads of two warps, for they take long.
 */
static inline __device__ void advance(tlob_adam_state *state) {
    const int64_t t = state->t + 1;
    if (threadIdx.x == 0)
        state->correction1 = (float)(1.0 - pow((double)state->beta1, (double)t));
    if (threadIdx.x == 32)
        state->correction2 = (float)(1.0 - pow((double)state->beta2, (double)t));
    __syncthreads(); /* all have read t */
    if (threadIdx.x == 0)
        state->t = t;
}

#endif
