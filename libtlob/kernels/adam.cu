#include "libtlob/kernels/chunks.cuh"
#include "libtlob/kernels/table.h"

/** Parameters of a thread where one block has them all. */
#define FEW     4
#define THREADS 1024

static __global__ void advance(tlob_adam_state *state) {
    state->t += 1;
}

/** What all parameters share in step t. */
struct shared_state {
    float lr, beta1, beta2, eps, correction1, correction2;

    __device__ shared_state(const tlob_adam_state &s, int64_t t)
        : lr(s.lr), beta1(s.beta1), beta2(s.beta2), eps(s.eps), correction1(-expm1f((float)t * s.ln_beta1)),
          correction2(-expm1f((float)t * s.ln_beta2)) {}
};

/** One parameter on its way through a step. */
struct parameter {
    float g, w, m, v;

    __device__ void load(const tlob_adam_args &x, int64_t i) {
        w = __ldcg(x.w + i);
        m = __ldcg(x.m + i);
        v = __ldcg(x.v + i);
    }

    __device__ void step(const tlob_adam_args &x, int64_t i, const shared_state &s) {
        m = s.beta1 * m + (1.0f - s.beta1) * g;
        v = s.beta2 * v + (1.0f - s.beta2) * g * g;
        x.m[i] = m;
        x.v[i] = v;
        x.w[i] = w - s.lr * (m / s.correction1) / (sqrtf(v / s.correction2) + s.eps);
    }
};

static __global__ void adam(tlob_adam_args x) {
    const shared_state s(*x.state, x.state->t);
    TLOB_GRID_LOOP(i, x.count) {
        parameter p;
        p.g = x.g[i];
        p.load(x, i);
        p.step(x, i, s);
    }
}

/** The whole step in one block, which can advance t itself. */
static __global__ void __launch_bounds__(THREADS) adam_of_few(tlob_adam_args x) {
    const int64_t t = x.state->t + 1;
    const shared_state s(*x.state, t);
    parameter p[FEW];
#pragma unroll
    for (int k = 0; k < FEW; k++) {
        const int64_t i = threadIdx.x + k * THREADS;
        if (i < x.count) {
            p[k].g = x.g[i];
            p[k].load(x, i);
        }
    }
    __syncthreads(); /* all have read t */
    if (threadIdx.x == 0)
        x.state->t = t;
#pragma unroll
    for (int k = 0; k < FEW; k++) {
        const int64_t i = threadIdx.x + k * THREADS;
        if (i < x.count)
            p[k].step(x, i, s);
    }
}

/** Gradients are added up on the way, and so are the figures behind them. */
static __global__ void __launch_bounds__(TLOB_SUM_BLOCK) adam_of_chunks(tlob_adam_chunked_args a) {
    let_next_start();
    const tlob_adam_args &x = a.adam;
    const int64_t i = sum_of_thread(), second = i - a.part[0].count;
    const bool updates = lane_of_sum() == 0 && i < x.count;
    parameter p;
    if (updates)
        p.load(x, i); /* not by the kernel before: see kernels.h */
    wait_for_kernel_before();
    const shared_state s(*x.state, x.state->t);
    const tlob_chunked part = second < 0 ? a.part[0] : a.part[1];
    p.g = sum_over_chunks(part, second < 0 ? i : second);
    if (updates)
        p.step(x, i, s);
    else if (lane_of_sum() == 0 && second < a.part[1].count)
        a.figures[i - x.count] = p.g;
}

static __global__ void set_scalar(float *dst, float value) {
    *dst = value;
}

extern "C" int tlob_cuda_adam(struct CUstream_st *stream, const tlob_adam_args *args) {
    if (args->count <= FEW * THREADS)
        return launch(stream, THREADS, THREADS, adam_of_few, *args);
    int code = launch(stream, 1, 1, advance, args->state);
    return code ? code : launch(stream, args->count, TLOB_BLOCK, adam, *args);
}

extern "C" int tlob_cuda_adam_chunked(struct CUstream_st *stream, const tlob_adam_chunked_args *args) {
    return launch_sums(stream, args->overlaps, args->part[0].count + args->part[1].count, adam_of_chunks, *args);
}

extern "C" int tlob_cuda_set_scalar(struct CUstream_st *stream, float *dst, float value) {
    return launch(stream, 1, 1, set_scalar, dst, value);
}

extern "C" int tlob_cuda_load_adam(void) {
    return load(advance, adam, adam_of_few, adam_of_chunks, set_scalar);
}
