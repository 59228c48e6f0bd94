#include "libtlob/kernels/block_fused.cuh"
#include "libtlob/kernels/block_fused_any.cuh"

/** Warps of a block of threads at most; fewer where that spreads a small N over more multiprocessors. */
#define WARPS 4

/** Blocks of threads that a multiprocessor runs at once, as far as registers go: most of them hold the weights. */
template <class S> static constexpr __host__ __device__ int blocks_at_once(bool fp32) {
    return S::d_in <= 16 ? (fp32 ? 4 : 5) : S::d_in <= 32 ? (fp32 ? 2 : 4) : fp32 ? 2 : 3;
}

/** The weights as right operands, in registers for as long as the kernel runs. */
template <class S> struct fused_weights {
    operand<2> project[3][S::eights][S::in_eights], out[S::eights][S::eights];

    /** The rows own/2*column to own/2*column + own/2 - 1 of two columns of W: those of each eight of the result. */
    template <bool FP32, bool VEC, int STEPS>
    static __device__ void load(operand<2> (&w)[S::eights][STEPS], int s, const float *first, const float *second) {
        float rows[2][S::eights];
        const float *from[2] = {first, second};
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int n = 0; n < S::eights; n += 2) {
                const float *at = from[half] + S::eights * quad_of_lane() + n;
                const float2 two = VEC ? *(const float2 *)at : make_float2(at[0], at[1]);
                rows[half][n] = two.x;
                rows[half][n + 1] = two.y;
            }
        }
#pragma unroll
        for (int n = 0; n < S::eights; n++) {
            const float two[2] = {rows[0][n], rows[1][n]};
            w[n][s] = factors<FP32>(two);
        }
    }

    template <bool FP32, bool VEC> __device__ void load(const float *weights) {
        const int t = lane_of_quad();
#pragma unroll
        for (int m = 0; m < 3; m++)
#pragma unroll
            for (int s = 0; s < S::in_eights; s++)
                load<FP32, VEC>(project[m], s, weights + m * S::matrix + S::d_out * in_row(s, t, 0),
                                weights + m * S::matrix + S::d_out * in_row(s, t, 1));
#pragma unroll
        for (int s = 0; s < S::eights; s++)
            load<FP32, VEC>(out, s, weights + 3 * S::matrix + S::d_out * own_row<S>(s, t, 0),
                            weights + 3 * S::matrix + S::d_out * own_row<S>(s, t, 1));
    }
};

/** What a lane holds of a column of X; 0 of one past the last. */
template <class S, bool VEC>
static __device__ void load_column(float (&x)[S::own_in], const float *from, int64_t column, int64_t columns) {
    from += column * S::d_in + 4 * lane_of_quad();
#pragma unroll
    for (int i = 0; i < S::own_in; i += 4) {
        const float *at = from + 4 * i;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (column < columns)
            four = VEC ? *(const float4 *)at : make_float4(at[0], at[1], at[2], at[3]);
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
    }
}

/** The sum over all lanes, in the order of a butterfly. */
[[maybe_unused]] static __device__ void store_focus(float *to, float focus) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        focus += __shfl_xor_sync(ALL_LANES, focus, lanes);
    if (threadIdx.x % 32 == 0)
        *to = focus;
}

template <class S, bool FP32, bool VEC>
static __global__ void __launch_bounds__(32 * WARPS, blocks_at_once<S>(FP32))
    block_fused_forward(tlob_block_fused_args a, float scale) {
#if __CUDA_ARCH__ >= TLOB_MMA_ARCH
    wait_for_kernel_before();
    let_next_start(); /* behind the wait: the backward pass counts on it */
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32) * TILE;
    int64_t column = ((int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * TILE + quad_of_lane();
    float x[2][S::own_in];
    fused_weights<S> w;
    load_column<S, VEC>(x[0], a.x, column, a.columns);
    load_column<S, VEC>(x[1], a.x, column + 8, a.columns);
    w.template load<FP32, VEC>(a.weights);

    for (; column - quad_of_lane() < a.columns; column += step) {
        float q[2][S::own], k[2][S::own], v[2][S::own], o[2][S::own], y[2][S::own];
        operand<4> left[S::in_eights], left_o[S::eights];
#pragma unroll
        for (int s = 0; s < S::in_eights; s++)
            left[s] = left_of<FP32>(x, s);
        own_rows<S, FP32>(q, left, [&](int n, int s) { return w.project[0][n][s]; });
        own_rows<S, FP32>(k, left, [&](int n, int s) { return w.project[1][n][s]; });
        own_rows<S, FP32>(v, left, [&](int n, int s) { return w.project[2][n][s]; });
        load_column<S, VEC>(x[0], a.x, column + step, a.columns); /* comes while the rest is computed */
        load_column<S, VEC>(x[1], a.x, column + step + 8, a.columns);

        float focus = 0.0f; /* 1 / sum exp(s - max) is the largest P of a row */
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float p[S::tokens][4 * S::tokens], inv_sum[S::tokens];
            weigh<S>(p, inv_sum, q[half], k[half], scale);
#pragma unroll
            for (int e = 0; e < S::own; e++)
                o[half][e] = 0.0f;
            each_token<S>([&](int r, int u, int i) {
                const token<S> value(v[half], r, u);
#pragma unroll
                for (int n = 0; n < S::tokens; n++)
                    value.add_to(o[half], n, p[n][i]);
            });
#pragma unroll
            for (int n = 0; n < S::tokens; n++)
                focus += column + 8 * half < a.columns ? inv_sum[n] : 0.0f;
        }
        if (a.focus)
            store_focus(a.focus + column / TILE, focus);
#pragma unroll
        for (int s = 0; s < S::eights; s++)
            left_o[s] = left_of<FP32>(o, s);
        own_rows<S, FP32>(y, left_o, [&](int n, int s) { return w.out[n][s]; });
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t at = column + 8 * half;
            if (at < a.columns)
                store<S::own, VEC>(a.y + at * S::d_out + S::own * lane_of_quad(), y[half]);
        }
    }
#else
    __trap(); /* block.c sends nothing here */
#endif
}

/** As many blocks of threads as the device runs at once, each of as many warps as it takes to use them all. */
template <class S, bool FP32, bool VEC> static int run(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    const int64_t tiles = (x->columns - 1) / TILE + 1;
    const int most = x->multiprocessors * blocks_at_once<S>(FP32);
    const int64_t wanted = tiles / x->multiprocessors, warps = wanted < 1 ? 1 : wanted > WARPS ? WARPS : wanted;
    const int64_t blocks = (tiles - 1) / warps + 1;
    return launch_overlapping(stream, x->overlaps, blocks < most ? blocks : most, 32 * warps, 0,
                              block_fused_forward<S, FP32, VEC>, *x, (float)fused_scale(S::head_dim));
}

template <class S> static int run_shape(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    if (x->compute == TLOB_COMPUTE_FP32)
        return fours_fit(x) ? run<S, true, true>(stream, x) : run<S, true, false>(stream, x);
    return fours_fit(x) ? run<S, false, true>(stream, x) : run<S, false, false>(stream, x);
}

template <class S> static int load_shape() {
    return load(block_fused_forward<S, true, true>, block_fused_forward<S, true, false>,
                block_fused_forward<S, false, true>, block_fused_forward<S, false, false>);
}

extern "C" int tlob_cuda_block_fused_forward(struct CUstream_st *stream, const tlob_block_fused_args *args) {
    if (!tlob_block_fused_listed(&args->shape))
        return tlob_block_fused_any_forward(stream, args);
#define RUN(in, out, head)                                                                                             \
    if (args->shape.d_in == in && args->shape.d_out == out && args->shape.head_dim == head)                            \
        return run_shape<fused_shape<in, out, head>>(stream, args);
    TLOB_BLOCK_FUSED_SHAPES(RUN)
#undef RUN
    return (int)cudaErrorInvalidValue; /* tlob_block_fused_obstacle has named it */
}

extern "C" int tlob_cuda_load_block_fused_forward(void) {
    int code = 0;
#define LOAD(in, out, head)                                                                                            \
    if (code == 0)                                                                                                     \
        code = load_shape<fused_shape<in, out, head>>();
    TLOB_BLOCK_FUSED_SHAPES(LOAD)
#undef LOAD
    return code;
}
