/**
 * What the two passes of the fused block share, for the shapes of TLOB_BLOCK_FUSED_SHAPES.
 *
 * A warp takes a tile of 16 columns. Columns are the rows of the mma, so that a lane holds parts of two columns,
 * lane/4 and lane/4 + 8: the four lanes of a quad share a column. Which row of W, and so of Q, K, V, O or Y, is a
 * column of the mma's right operand is free to choose, and is chosen so that lane t of the quad gets rows own*t to
 * own*t + own - 1: whole tokens. Then scores need values of the quad's other lanes only, and what a product leaves in
 * registers is the left operand of the next one as it lies. The order of a product's inner dimension is as free: a
 * lane reads four neighbouring floats of X.
 *
 *     rows of Q, K, V, O, Y:  own*t + e          for e < own                         own = d_out/4
 *     rows of X:              16*(i/4) + 4*t + i%4  for i < d_in/4
 */
#ifndef TLOB_KERNELS_BLOCK_FUSED_CUH
#define TLOB_KERNELS_BLOCK_FUSED_CUH

#include "libtlob/kernels/block_fused.h"
#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/mma.cuh"

#define TILE TLOB_BLOCK_FUSED_TILE

template <int D_IN, int D_OUT, int HEAD_DIM> struct fused_shape {
    static constexpr int d_in = D_IN, d_out = D_OUT, head_dim = HEAD_DIM;
    static constexpr int own_in = D_IN / 4, own = D_OUT / 4;   /* floats of a column that a lane holds */
    static constexpr int tokens = own / HEAD_DIM;              /* of a column, in a lane */
    static constexpr int in_eights = D_IN / 8, eights = D_OUT / 8; /* steps of the mma, or its columns */
    static constexpr int matrix = D_OUT * D_IN;
    static constexpr int weights = 3 * matrix + D_OUT * D_OUT;
    static_assert(D_IN % 16 == 0 && D_OUT % 16 == 0 && own % HEAD_DIM == 0, "see TLOB_BLOCK_FUSED_SHAPES");
};

static inline __device__ int quad_of_lane() {
    return threadIdx.x % 32 / 4;
}

static inline __device__ int lane_of_quad() {
    return threadIdx.x % 4;
}

/* --- which row is where ----------------------------------------------------------------------------------------- */

/** The row of X that step s of a product over d_in takes from lane t: half 0 as column t of the mma, 1 as t + 4. */
static inline __device__ int in_row(int s, int t, int half) {
    return 16 * (s / 2) + 4 * t + 2 * (s % 2) + half;
}

/** The same of Q, K, V, O and Y, in a product over d_out. */
template <class S> static inline __device__ int own_row(int s, int t, int half) {
    return S::own * t + 2 * s + half;
}

/** The row of Q, K, V, O or Y that column `column` of the n-th eight of a result is. */
template <class S> static inline __device__ int result_row(int n, int column) {
    return S::own / 2 * column + n;
}

/* --- products --------------------------------------------------------------------------------------------------- */

/** c += a b. In FP32 the small parts first. */
template <bool FP32>
static inline __device__ void add_product(float (&c)[4], const operand<4> &a, const operand<2> &b) {
    if (FP32) {
        mma(c, a.low, b.high);
        mma(c, a.high, b.low);
    }
    mma(c, a.high, b.high);
}

/** Step s of what a lane holds of its two columns, as a left operand. */
template <bool FP32, int N> static inline __device__ operand<4> left_of(const float (&x)[2][N], int s) {
    const float four[4] = {x[0][2 * s], x[1][2 * s], x[0][2 * s + 1], x[1][2 * s + 1]};
    return factors<FP32>(four);
}

/** rows = the lane's rows of W x, for right(n, s) the eights and steps of W as right operands. */
template <class S, bool FP32, int STEPS, class Right>
static inline __device__ void own_rows(float (&rows)[2][S::own], const operand<4> (&left)[STEPS], Right right) {
#pragma unroll
    for (int n = 0; n < S::eights; n++) {
        float c[4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            add_product<FP32>(c, left[s], right(n, s));
#pragma unroll
        for (int i = 0; i < 4; i++)
            rows[i / 2][S::own / 2 * (i % 2) + n] = c[i];
    }
}

/* --- attention within a quad ------------------------------------------------------------------------------------ */

/** x of lane t ^ r of the quad. */
static inline __device__ float of_lane(float x, int r) {
    return r == 0 ? x : __shfl_xor_sync(ALL_LANES, x, r);
}

/** use(r, u, i): token u of lane t ^ r, which is i-th among all tokens as lane t counts them. */
template <class S, class Use> static inline __device__ void each_token(Use use) {
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int u = 0; u < S::tokens; u++)
            use(r, u, r * S::tokens + u);
}

/** Token u of lane t ^ r. */
template <class S> struct token {
    float e[S::head_dim];

    __device__ token(const float (&rows)[S::own], int r, int u) {
#pragma unroll
        for (int i = 0; i < S::head_dim; i++)
            e[i] = of_lane(rows[u * S::head_dim + i], r);
    }

    /** The scalar product with the lane's own token w. */
    __device__ float dot(const float (&rows)[S::own], int w) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < S::head_dim; i++)
            sum = fmaf(rows[w * S::head_dim + i], e[i], sum);
        return sum;
    }

    /** The lane's own token w += scale times this. */
    __device__ void add_to(float (&rows)[S::own], int w, float scale) const {
#pragma unroll
        for (int i = 0; i < S::head_dim; i++)
            rows[w * S::head_dim + i] = fmaf(scale, e[i], rows[w * S::head_dim + i]);
    }
};

static inline __device__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/** The rows of P that belong to the lane's tokens. scale: log2(e) / sqrt(head_dim). */
template <class S>
static inline __device__ void weigh(float (&p)[S::tokens][4 * S::tokens], float (&inv_sum)[S::tokens],
                                    const float (&q)[S::own], const float (&k)[S::own], float scale) {
    float scaled[S::own];
#pragma unroll
    for (int e = 0; e < S::own; e++)
        scaled[e] = scale * q[e];
    each_token<S>([&](int r, int u, int i) {
        const token<S> key(k, r, u);
#pragma unroll
        for (int w = 0; w < S::tokens; w++)
            p[w][i] = key.dot(scaled, w);
    });
#pragma unroll
    for (int w = 0; w < S::tokens; w++) {
        float max = -INFINITY, sum = 0.0f;
        each_token<S>([&](int, int, int i) { max = fmaxf(max, p[w][i]); });
        each_token<S>([&](int, int, int i) {
            p[w][i] = p[w][i] == max ? 1.0f : power_of_two(p[w][i] - max); /* 1 even where it is infinite */
            sum += p[w][i];
        });
        inv_sum[w] = __fdividef(1.0f, sum);
        each_token<S>([&](int, int, int i) { p[w][i] *= inv_sum[w]; });
    }
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/** As one store: the compiler would make four of one whose values lie apart in registers. */
static inline __device__ void store_four(float *to, float a, float b, float c, float d) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

template <int N, bool VEC> static inline __device__ void store(float *to, const float (&x)[N]) {
    if (VEC) {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            store_four(to + i, x[i], x[i + 1], x[i + 2], x[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = x[i];
    }
}

/* --- launches --------------------------------------------------------------------------------------------------- */

/** log2(e) / sqrt(head_dim), to be rounded once. */
static inline double fused_scale(int head_dim) {
    return 1.4426950408889634 / sqrt((double)head_dim);
}

/** Whether all that is given lies at multiples of 16 bytes. */
static inline bool fours_fit(const tlob_block_fused_args *x) {
    return ((uintptr_t)x->weights | (uintptr_t)x->x | (uintptr_t)x->y | (uintptr_t)x->dy | (uintptr_t)x->dx) % 16 == 0;
}

#endif
