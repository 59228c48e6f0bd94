#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

template <class Index> static __global__ void affine(tlob_affine_args x, Index m, Index n, Index count) {
    TLOB_GRID_LOOP_OF(Index, i, count) {
        Index column = i / m, row = i - column * m;
        Index matrix = column / n;
        int64_t at = matrix * x.stride + (column - matrix * n) * x.ld + row;
        float sum = x.beta == 0.0f ? 0.0f : x.beta * x.c[at]; /* beta 0: C may hold NaN, or not be there */
        x.d[at] = x.bias ? sum + x.bias[matrix * x.stride_bias + row] : sum;
    }
}

template <class Index> static int each_element(struct CUstream_st *stream, const tlob_affine_args *x) {
    const int64_t count = x->m * x->n * x->batch;
    return launch(stream, count, TLOB_BLOCK, affine<Index>, *x, (Index)x->m, (Index)x->n, (Index)count);
}

extern "C" int tlob_cuda_affine(struct CUstream_st *stream, const tlob_affine_args *args) {
    return tlob_index_fits(args->m * args->n * args->batch) ? each_element<uint32_t>(stream, args)
                                                            : each_element<int64_t>(stream, args);
}

extern "C" int tlob_cuda_load_affine(void) {
    return load(affine<uint32_t>, affine<int64_t>);
}
