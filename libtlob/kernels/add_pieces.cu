#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

/* A warp at the least reads 8 floats of each of 4 pieces at once: 8 are a sector, the least that memory gives. */
#define LANES_MAX 32

/* More lanes are worth a higher tree where the threads are less than half of those that a large device runs at once. */
#define THREADS_ENOUGH (1 << 17)

/** How many threads share the pieces of an element, a power of two: by the problem alone, as the order of sums is. */
static int count_lanes(int64_t elements, int64_t pieces) {
    int lanes = 1;
    while (lanes < LANES_MAX && 8 * lanes <= pieces && elements * lanes < THREADS_ENOUGH)
        lanes *= 2;
    return lanes;
}

/**
 * The threads of a block are lanes x elements, so that neighbours read neighbouring floats. Lanes walk the pieces in
 * order and meet in a tree of fixed shape. There are so few elements that one grid has them all.
 */
static __global__ void __launch_bounds__(TLOB_BLOCK) add_pieces(tlob_add_pieces_args x, uint32_t count, int lanes) {
    __shared__ float sums[TLOB_BLOCK];
    const uint32_t width = TLOB_BLOCK / lanes, lane = threadIdx.x / width, m = (uint32_t)x.m;
    const uint32_t at = blockIdx.x * width + threadIdx.x % width;
    float sum = 0.0f;
    if (at < count) {
#pragma unroll 8
        for (uint32_t p = lane; p < x.pieces; p += lanes)
            sum += x.piece[p * count + at];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = lanes / 2; half > 0; half /= 2) {
        if (lane < half)
            sums[threadIdx.x] += sums[threadIdx.x + half * width];
        __syncthreads();
    }
    if (lane == 0 && at < count) {
        const uint32_t column = at / m;
        const int64_t to = column * x.ld + (at - column * m);
        sum = sums[threadIdx.x];
        x.d[to] = x.beta == 0.0f ? sum : sum + x.beta * x.c[to]; /* beta 0: C may hold NaN, or not be there */
    }
}

extern "C" int tlob_cuda_add_pieces(struct CUstream_st *stream, const tlob_add_pieces_args *args) {
    const int64_t count = args->m * args->n;
    const int lanes = count_lanes(count, args->pieces);
    return launch(stream, count * lanes, TLOB_BLOCK, add_pieces, *args, (uint32_t)count, lanes);
}

extern "C" int tlob_cuda_load_add_pieces(void) {
    return load(add_pieces);
}
