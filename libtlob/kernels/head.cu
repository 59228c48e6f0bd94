#include "libtlob/kernels/chunks.cuh"
#include "libtlob/kernels/chunks.h"
#include "libtlob/kernels/cross_entropy.cuh"
#include "libtlob/kernels/table.h"

#define THREADS 256
#define FEW     64 /* features for which four threads have a sample between them, and else a warp */

/** The logits of sample s, by LANES threads, which all get them. */
template <int LANES> static __device__ void logits_of(float (&z)[3], const tlob_head_args &x, int64_t s, bool there) {
    const float *y = x.y + s * x.features;
    for (int64_t f = threadIdx.x % LANES; there && f < x.features; f += LANES)
#pragma unroll
        for (int c = 0; c < 3; c++)
            z[c] = fmaf(x.weights[3 * f + c], y[f], z[c]);
#pragma unroll
    for (int c = 0; c < 3; c++) {
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
            z[c] += __shfl_xor_sync(0xffffffffu, z[c], lanes);
        z[c] += x.weights[3 * x.features + c];
    }
}

/** dlogits of the samples from `first` to `end`, and the parts of the sums [db, loss, right] of a thread. */
template <int LANES>
static __device__ void losses(float (&sums)[5], const tlob_head_args &x, int64_t first, int64_t end) {
    for (int64_t base = first; base < end; base += THREADS / LANES) { /* in step: warps exchange */
        const int64_t s = base + threadIdx.x / LANES;
        float z[3] = {};
        logits_of<LANES>(z, x, s, s < end);
        if (s >= end || threadIdx.x % LANES)
            continue;
        const xent one(z, x.labels[s], x.samples);
        one.add_to(sums);
        for (int c = 0; c < 3; c++)
            x.dlogits[3 * s + c] = one.slope[c];
    }
}

/**
 * dy of those samples, and dW, their part of it, to `to`. A thread has one feature at a time, which it shares with
 * others where there are few; those meet in a tree of fixed shape.
 */
static __device__ void gradients(const tlob_head_args &x, int64_t first, int64_t end, float *to) {
    __shared__ float parts[3][THREADS];
    const int rows = x.features < THREADS ? (int)x.features : THREADS, lanes = THREADS / rows;
    const int row = threadIdx.x % rows, lane = threadIdx.x / rows;
    for (int64_t f = row; f - row < x.features; f += rows) {
        float w[3], sum[3] = {};
        for (int c = 0; c < 3; c++)
            w[c] = f < x.features ? x.weights[3 * f + c] : 0.0f;
        for (int64_t s = first + lane; lane < lanes && f < x.features && s < end; s += lanes) {
            const float *slope = x.dlogits + 3 * s, y = x.y[s * x.features + f];
            for (int c = 0; c < 3; c++)
                sum[c] = fmaf(slope[c], y, sum[c]);
            x.dy[s * x.features + f] = fmaf(w[0], slope[0], fmaf(w[1], slope[1], w[2] * slope[2]));
        }
        for (int c = 0; c < 3; c++)
            parts[c][threadIdx.x] = sum[c];
        for (int half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            for (int c = 0; c < 3 && lane < half && lane + half < lanes; c++)
                parts[c][threadIdx.x] += parts[c][threadIdx.x + half * rows];
        }
        for (int c = 0; c < 3 && lane == 0 && f < x.features; c++)
            to[3 * f + c] = parts[c][threadIdx.x];
        __syncthreads(); /* `parts` is written again for the next features */
    }
}

/** One block of threads for each chunk. */
template <int LANES> static __global__ void __launch_bounds__(THREADS) head(tlob_head_args x, int64_t chunk) {
    let_next_start();
    wait_for_kernel_before();
    const int64_t first = blockIdx.x * chunk, end = first + chunk < x.samples ? first + chunk : x.samples;
    if (x.advance && first == 0 && threadIdx.x == 0)
        x.advance->t += 1;
    float sums[5] = {}, *to = x.partial + blockIdx.x * (3 * x.features + 5);
    losses<LANES>(sums, x, first, end);
    const float sum = sum_over_block(sums); /* after which all of the block sees dlogits */
    if (threadIdx.x < 5)
        to[3 * x.features + threadIdx.x] = sum;
    gradients(x, first, end, to);
}

extern "C" int tlob_cuda_head(struct CUstream_st *stream, const tlob_head_args *args) {
    const int64_t chunks = tlob_chunk_count(args->samples, TLOB_HEAD_UNIT, TLOB_HEAD_MOST);
    return launch_overlapping(stream, args->overlaps, chunks, THREADS, 0, args->features <= FEW ? head<4> : head<32>,
                              *args, tlob_chunk_length(args->samples, TLOB_HEAD_UNIT, TLOB_HEAD_MOST));
}

template <int LANES> static __global__ void __launch_bounds__(THREADS) head_logits(tlob_head_args x) {
    let_next_start();
    wait_for_kernel_before();
    const int64_t step = (int64_t)gridDim.x * (THREADS / LANES);
    for (int64_t base = (int64_t)blockIdx.x * (THREADS / LANES); base < x.samples; base += step) {
        const int64_t s = base + threadIdx.x / LANES;
        float z[3] = {};
        logits_of<LANES>(z, x, s, s < x.samples);
        for (int c = 0; s < x.samples && threadIdx.x % LANES == 0 && c < 3; c++)
            x.logits[3 * s + c] = z[c];
    }
}

template <int LANES> static int run_logits(struct CUstream_st *stream, const tlob_head_args *x) {
    const int64_t blocks = (x->samples - 1) / (THREADS / LANES) + 1;
    return launch_overlapping(stream, x->overlaps, blocks < TLOB_MAX_BLOCKS ? blocks : TLOB_MAX_BLOCKS, THREADS, 0,
                              head_logits<LANES>, *x);
}

extern "C" int tlob_cuda_head_logits(struct CUstream_st *stream, const tlob_head_args *args) {
    return args->features <= FEW ? run_logits<4>(stream, args) : run_logits<32>(stream, args);
}

extern "C" int tlob_cuda_load_head(void) {
    return load(head<4>, head<32>, head_logits<4>, head_logits<32>);
}
