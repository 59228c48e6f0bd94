#include <type_traits>

#include "libtlob/kernels/attend.cuh"
#include "libtlob/kernels/mma.cuh"
#include "libtlob/kernels/table.h"

/*
 * One thread computes one token. Thread i takes the i-th run of head_dim elements where the tensor is packed: heads lie
 * side by side within a token, tokens within a group, so neighbouring threads read and write neighbouring memory on
 * both axes, and the keys that they walk through are shared by the threads of a group and come from L1.
 *
 * 128 threads a block: the widest kernels use most of the 255 registers that a thread can have, and two such blocks
 * still fit the 64 Ki registers of a multiprocessor; with head_dim 4 sixteen blocks fill its 2048 threads.
 */
#define ATTEND_BLOCK 128

/** Tokens of the inner loop handled at once: more than one where rows are short, so that their loads overlap. */
static constexpr __host__ __device__ int at_once(int head_dim) {
    return head_dim <= 8 ? 4 : 1;
}

/** Where a token lies: its elements in Q, K and V, those in O, its row in the statistics, the first of each in its
 *  group. */
struct token_place {
    int64_t group_base, base, group_out, out, first_row, row;
};

static __device__ token_place place_of(const tlob_attend_args &x, int64_t i) {
    int64_t heads_left = i / x.inner, head = i - heads_left * x.inner;
    int64_t outer = heads_left / x.tokens, token = heads_left - outer * x.tokens;
    token_place p;
    p.group_base = outer * x.in.outer_stride + head * x.in.inner_stride;
    p.base = p.group_base + token * x.in.token_stride;
    p.group_out = outer * x.out.outer_stride + head * x.out.inner_stride;
    p.out = p.group_out + token * x.out.token_stride;
    p.first_row = (outer * x.inner + head) * x.tokens;
    p.row = p.first_row + token;
    return p;
}

/**
 * Elements of a gradient summed in one walk over the tokens. Rows of up to 64 take several walks, because three or four
 * of them at once would not fit a thread's registers; keys of unknown length need some more for their bounds.
 */
static constexpr __host__ __device__ int query_part(int head_dim) {
    return head_dim <= 32 ? head_dim : 32;
}

static constexpr __host__ __device__ int key_part(int head_dim, bool exact) {
    return exact ? query_part(head_dim) : 16;
}

/**
 * head_dim floats in registers. EXACT: head_dim is D; otherwise it is at most D and `d` tells. VEC: loads and stores of
 * four, for addresses that are multiples of 16 bytes and head_dim a multiple of 4. Every loop unrolls, so that no
 * element is indexed at run time, and sums in four lanes, the same in every kernel: a score has the same bits wherever
 * it is computed again.
 */
template <int D, bool EXACT, bool VEC> struct token_row {
    float e[D];

    static __device__ bool past(int i, int d) {
        return !EXACT && i >= d;
    }

    __device__ void zero() {
#pragma unroll
        for (int i = 0; i < D; i++)
            e[i] = 0.0f;
    }

    __device__ void load(const float *from, int d) {
        each(from, d, [&](int i, float value) { e[i] = value; });
    }

    __device__ float dot(const float *with, int d) const {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        each(with, d, [&](int i, float value) { sum[i % 4] = fmaf(e[i], value, sum[i % 4]); });
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    __device__ void add(float scale, const float *from, int d) {
        each(from, d, [&](int i, float value) { e[i] = fmaf(scale, value, e[i]); });
    }

    __device__ void store(float scale, float *to, int d) const {
        if (VEC) {
#pragma unroll
            for (int i = 0; i + 3 < D; i += 4) {
                if (past(i, d))
                    break;
                *(float4 *)(to + i) = make_float4(scale * e[i], scale * e[i + 1], scale * e[i + 2], scale * e[i + 3]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < D; i++) {
                if (past(i, d))
                    break;
                to[i] = scale * e[i];
            }
        }
    }

    /** use(i, from[i]) for every element. */
    template <class Use> static __device__ void each(const float *from, int d, Use use) {
        if (VEC) {
#pragma unroll
            for (int i = 0; i + 3 < D; i += 4) {
                if (past(i, d))
                    break;
                float4 four = *(const float4 *)(from + i);
                use(i, four.x);
                use(i + 1, four.y);
                use(i + 2, four.z);
                use(i + 3, four.w);
            }
        } else {
#pragma unroll
            for (int i = 0; i < D; i++) {
                if (past(i, d))
                    break;
                use(i, from[i]);
            }
        }
    }
};

/** A row that would not fit in the registers and stays where it lies; sums as a token_row. */
template <bool VEC> struct far_row {
    const float *at;

    __device__ void load(const float *from, int d) {
        at = from;
    }

    __device__ float dot(const float *with, int d) const {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int e = 0; e < d; e += 4) {
            token_row<4, false, VEC> four;
            four.zero();
            four.load(at + e, d - e);
            four.each(with + e, d - e, [&](int i, float value) { sum[i] = fmaf(four.e[i], value, sum[i]); });
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
};

/** A row that scores are formed with. */
template <int D, bool EXACT, bool VEC>
using factor_row = typename std::conditional<D <= 64, token_row<D, EXACT, VEC>, far_row<VEC>>::type;

struct forward_pass {
    template <int D, bool EXACT, bool VEC>
    static __device__ void token(const tlob_attend_args &x, float scale, int64_t i) {
        const token_place at = place_of(x, i);
        const int d = (int)x.head_dim;
        factor_row<D, EXACT, VEC> q;
        token_row<D, EXACT, VEC> o;
        q.load(x.q + at.base, d);

        const float *keys = x.k + at.group_base, *values = x.v + at.group_base;
        float max = -INFINITY;
#pragma unroll(at_once(D))
        for (int64_t j = 0; j < x.tokens; j++)
            max = fmaxf(max, scale * q.dot(keys + j * x.in.token_stride, d));

        float sum = 0.0f;
        o.zero();
#pragma unroll(at_once(D))
        for (int64_t j = 0; j < x.tokens; j++) {
            float weight = weight_of<true>(scale * q.dot(keys + j * x.in.token_stride, d), max);
            sum += weight;
            o.add(weight, values + j * x.in.token_stride, d);
        }
        o.store(1.0f / sum, x.o + at.out, d);
        x.row_max[at.row] = max;
        x.row_inv_sum[at.row] = 1.0f / sum;
    }
};

/** A query: dq = scale * sum over keys of dS k, with dS = P * (dP - rowsum(dP * P)) and rowsum(dP * P) = dO . O. */
struct query_pass {
    template <int D, bool EXACT, bool VEC>
    static __device__ void token(const tlob_attend_args &x, float scale, int64_t i) {
        const token_place at = place_of(x, i);
        const int d = (int)x.head_dim;
        factor_row<D, EXACT, VEC> q, d_o;
        q.load(x.q + at.base, d);
        d_o.load(x.d_o + at.out, d);

        const float *keys = x.k + at.group_base, *values = x.v + at.group_base;
        const float max = x.row_max[at.row], inv_sum = x.row_inv_sum[at.row], dot = d_o.dot(x.o + at.out, d);
#pragma unroll 1
        for (int part = 0; part < d; part += query_part(D)) {
            token_row<query_part(D), EXACT, VEC> dq;
            dq.zero();
#pragma unroll(at_once(D))
            for (int64_t j = 0; j < x.tokens; j++) {
                float p = weight_of<true>(scale * q.dot(keys + j * x.in.token_stride, d), max) * inv_sum;
                float ds = p * (d_o.dot(values + j * x.in.token_stride, d) - dot);
                dq.add(ds, keys + j * x.in.token_stride + part, d - part);
            }
            dq.store(scale, x.dq + at.base + part, d - part);
        }
        x.row_dot[at.row] = dot;
    }
};

/** A key and its value: dk = scale * sum over queries of dS q, dv = sum over queries of P dO; after query_pass. */
struct key_pass {
    /** The sums of `part` for dk, dv or both in one walk over the queries. */
    template <bool DK, bool DV, int D, bool EXACT, bool VEC>
    static __device__ void walk(const tlob_attend_args &x, float scale, const token_place &at, int part) {
        const int d = (int)x.head_dim;
        factor_row<D, EXACT, VEC> k, v;
        token_row<key_part(D, EXACT), EXACT, VEC> dk, dv;
        k.load(x.k + at.base, d);
        if (DK)
            v.load(x.v + at.base, d);
        dk.zero();
        dv.zero();

#pragma unroll(at_once(D))
        for (int64_t j = 0; j < x.tokens; j++) {
            const float *q = x.q + at.group_base + j * x.in.token_stride;
            const float *d_o = x.d_o + at.group_out + j * x.out.token_stride;
            const int64_t row = at.first_row + j;
            float p = weight_of<true>(scale * k.dot(q, d), x.row_max[row]) * x.row_inv_sum[row];
            if (DK)
                dk.add(p * (v.dot(d_o, d) - x.row_dot[row]), q + part, d - part);
            if (DV)
                dv.add(p, d_o + part, d - part);
        }
        if (DK)
            dk.store(scale, x.dk + at.base + part, d - part);
        if (DV)
            dv.store(1.0f, x.dv + at.base + part, d - part);
    }

    template <int D, bool EXACT, bool VEC>
    static __device__ void token(const tlob_attend_args &x, float scale, int64_t i) {
        const token_place at = place_of(x, i);
        const bool together = key_part(D, EXACT) == D;
#pragma unroll 1
        for (int part = 0; part < (int)x.head_dim; part += key_part(D, EXACT)) {
            walk<together, true, D, EXACT, VEC>(x, scale, at, part);
            if (!together)
                walk<true, false, D, EXACT, VEC>(x, scale, at, part);
        }
    }
};

template <class Pass, int D, bool EXACT, bool VEC>
static __global__ void __launch_bounds__(ATTEND_BLOCK) attend(tlob_attend_args x, float scale) {
    TLOB_GRID_LOOP(i, x.groups * x.tokens)
    Pass::template token<D, EXACT, VEC>(x, scale, i);
}

template <class Pass, int D, bool EXACT, bool VEC>
static int run(struct CUstream_st *stream, const tlob_attend_args *x) {
    float scale = (float)(1.0 / sqrt((double)x->head_dim));
    return launch(stream, x->groups * x->tokens, ATTEND_BLOCK, attend<Pass, D, EXACT, VEC>, *x, scale);
}

template <class Pass> static int run_sized(struct CUstream_st *stream, const tlob_attend_args *x) {
    bool fit = vectors_fit(x);
    switch (x->head_dim) {
    case 1:
        return run<Pass, 1, true, false>(stream, x);
    case 2:
        return run<Pass, 2, true, false>(stream, x);
    case 4:
        return fit ? run<Pass, 4, true, true>(stream, x) : run<Pass, 4, true, false>(stream, x);
    case 8:
        return fit ? run<Pass, 8, true, true>(stream, x) : run<Pass, 8, true, false>(stream, x);
    case 16:
        return fit ? run<Pass, 16, true, true>(stream, x) : run<Pass, 16, true, false>(stream, x);
    case 32:
        return fit ? run<Pass, 32, true, true>(stream, x) : run<Pass, 32, true, false>(stream, x);
    case 64:
        return fit ? run<Pass, 64, true, true>(stream, x) : run<Pass, 64, true, false>(stream, x);
    default:
        break;
    }
    if (x->head_dim < 64)
        return fit ? run<Pass, 64, false, true>(stream, x) : run<Pass, 64, false, false>(stream, x);
    return fit ? run<Pass, 128, false, true>(stream, x) : run<Pass, 128, false, false>(stream, x);
}

/* Where tiles are faster than threads, as measured on an H200: few or short tokens leave most of a tile empty, but rows
 * of more than 64 elements do not fit in a thread's registers. */
static bool tiles_pay(int64_t tokens, int64_t head_dim) {
    return head_dim > 64 ? tokens >= 4 : head_dim > 4 && tokens >= 16 && tokens * head_dim >= 384;
}

static bool tiles_serve(const tlob_attend_args *x) {
    return x->tiles && tiles_pay(x->tokens, x->head_dim);
}

/* By the code that runs there and not by the device, since a newer one may run what was compiled for an older. */
extern "C" bool tlob_cuda_attend_has_tiles(void) {
    cudaFuncAttributes compiled;
    if (cudaFuncGetAttributes(&compiled, attend<forward_pass, 1, true, false>) == cudaSuccess)
        return compiled.ptxVersion * 10 >= TLOB_MMA_ARCH;
    cudaGetLastError();
    return false; /* the launch will say what is wrong */
}

extern "C" int tlob_cuda_attend_forward(struct CUstream_st *stream, const tlob_attend_args *args) {
    return tiles_serve(args) ? tlob_attend_tiled_forward(stream, args) : run_sized<forward_pass>(stream, args);
}

extern "C" int tlob_cuda_attend_backward(struct CUstream_st *stream, const tlob_attend_args *args) {
    if (tiles_serve(args))
        return tlob_attend_tiled_backward(stream, args);
    int code = run_sized<query_pass>(stream, args);
    return code ? code : run_sized<key_pass>(stream, args);
}

template <class Pass, int... D> static int load_exact() {
    return load(attend<Pass, D, true, false>...);
}

template <class Pass, bool EXACT, int... D> static int load_vectors() {
    return load(attend<Pass, D, EXACT, true>...);
}

/** All that run_sized chooses from. */
template <class Pass> static int load_pass() {
    int code = load_exact<Pass, 1, 2, 4, 8, 16, 32, 64>();
    if (code == 0)
        code = load_vectors<Pass, true, 4, 8, 16, 32, 64>();
    if (code == 0)
        code = load_vectors<Pass, false, 64, 128>();
    return code ? code : load(attend<Pass, 64, false, false>, attend<Pass, 128, false, false>);
}

extern "C" int tlob_cuda_load_attend(void) {
    int code = load_pass<forward_pass>();
    if (code == 0)
        code = load_pass<query_pass>();
    if (code == 0)
        code = load_pass<key_pass>();
    if (code == 0)
        code = tlob_attend_tiled_forward_load();
    return code ? code : tlob_attend_tiled_backward_load();
}
