#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

static __global__ void affine(tlob_affine_args x) {
    TLOB_GRID_LOOP(i, x.m * x.n * x.batch) {
        int64_t column = i / x.m, row = i - column * x.m;
        int64_t matrix = column / x.n;
        int64_t at = matrix * x.stride + (column - matrix * x.n) * x.ld + row;
        float sum = x.beta == 0.0f ? 0.0f : x.beta * x.c[at]; /* beta 0: C may hold NaN, or not be there */
        x.d[at] = x.bias ? sum + x.bias[matrix * x.stride_bias + row] : sum;
    }
}

extern "C" int tlob_cuda_affine(struct CUstream_st *stream, const tlob_affine_args *args) {
    return launch(stream, args->m * args->n * args->batch, TLOB_BLOCK, affine, *args);
}
