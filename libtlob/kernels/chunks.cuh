/** Sums over chunks on a device. */
#ifndef TLOB_KERNELS_CHUNKS_CUH
#define TLOB_KERNELS_CHUNKS_CUH

#include "libtlob/kernels/kernels.h"
#include "libtlob/kernels/launch.cuh"

/** What a block of threads sums at once, and the threads that have one sum between them. */
#define TLOB_SUM_WIDTH 32
#define TLOB_SUM_LANES 16
#define TLOB_SUM_BLOCK (TLOB_SUM_WIDTH * TLOB_SUM_LANES)

/** The sum that a thread has a part in, and its place among those who have. */
static inline __device__ int64_t sum_of_thread() {
    return (int64_t)blockIdx.x * TLOB_SUM_WIDTH + threadIdx.x % TLOB_SUM_WIDTH;
}

static inline __device__ int lane_of_sum() {
    return threadIdx.x / TLOB_SUM_WIDTH;
}

/**
 * To lane 0: sum i of `of`; 0 where there is none, and to other lanes. Lanes walk through the chunks in order and meet
 * in a tree of fixed shape. All threads of the block come here.
 */
static inline __device__ float sum_over_chunks(const tlob_chunked &of, int64_t i) {
    __shared__ float sums[TLOB_SUM_LANES][TLOB_SUM_WIDTH];
    const int lane = lane_of_sum(), x = threadIdx.x % TLOB_SUM_WIDTH;
    float sum = 0.0f;
#pragma unroll 8
    for (int chunk = lane; i < of.count && chunk < of.chunks; chunk += TLOB_SUM_LANES)
        sum += of.partial[i + of.count * chunk];
    sums[lane][x] = sum;
    for (int half = TLOB_SUM_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            sums[lane][x] += sums[lane + half][x];
    }
    return lane == 0 ? sums[0][x] : 0.0f;
}

/** A block of threads for every TLOB_SUM_WIDTH of `count` sums. */
template <class... Params, class... Args>
static int launch_sums(struct CUstream_st *stream, bool overlaps, int64_t count, void (*kernel)(Params...),
                       Args... args) {
    return launch_overlapping(stream, overlaps, (count - 1) / TLOB_SUM_WIDTH + 1, TLOB_SUM_BLOCK, 0, kernel, args...);
}

/**
 * The sums of `v` over a block of whole warps, in its first N threads: sum i in thread i. Lanes meet in a butterfly, and
 * warps in their order.
 */
template <int N> static __device__ float sum_over_block(float (&v)[N]) {
    __shared__ float warps[32][N];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            v[i] += __shfl_xor_sync(0xffffffffu, v[i], lanes);
        if (threadIdx.x % 32 == 0)
            warps[threadIdx.x / 32][i] = v[i];
    }
    __syncthreads();
    for (int warp = 0; threadIdx.x < N && warp < blockDim.x / 32; warp++)
        sum += warps[warp][threadIdx.x];
    return sum;
}

#endif
