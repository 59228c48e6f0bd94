#include "libtlob/kernels/attend_tiles.cuh"

/** dq = scale * sum over keys of dS k, with dS = P * (dP - rowsum(dP * P)) and rowsum(dP * P) = dO . O. */
struct query_kernel {
    static constexpr int OWN_TILES = 2;

    static constexpr __host__ __device__ int blocks(int d, bool) {
        return d <= 32 ? 4 : d <= 64 ? 3 : 2;
    }

    static constexpr __host__ __device__ int walk(int d, bool fp32) {
        return d <= 32 && !fp32 ? 64 : 32;
    }

    /** A row's dO . O, each of its four lanes a quarter. */
    static __device__ float row_dot(const float *d_o, const float *o, int head_dim, bool vectors) {
        float sum = 0.0f;
        if (vectors) {
            for (int e = threadIdx.x % 4 * 4; e < head_dim; e += 16) {
                const float4 a = *(const float4 *)(d_o + e), b = *(const float4 *)(o + e);
                sum = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
            }
        } else {
            for (int e = threadIdx.x % 4; e < head_dim; e += 4)
                sum = fmaf(d_o[e], o[e], sum);
        }
        return row_sum(sum);
    }

    template <int D, bool FP32> static __device__ void run(const tlob_attend_args &x, const tiling &t, float *shared) {
        constexpr int WALK = walk(D, FP32), N = WALK / 8;
        typedef pair_of_tiles<WALK, D, FP32> tiles;
        const own_place at = own_place_of(x, t);
        const int d = (int)x.head_dim;
        const tokens_at q = {x.q + at.group.in, x.in.token_stride}, k = {x.k + at.group.in, x.in.token_stride},
                        v = {x.v + at.group.in, x.in.token_stride}, d_o = {x.d_o + at.group.out, x.out.token_stride};
        const float *own_q = shared + at.warp_row * pitch_of(D), *own_d_o = own_q + tiles::own_tile::size;
        tiles::own_tile::fetch(shared, q.first + at.first * q.stride, q.stride, at.left, d, t.vectors);
        tiles::own_tile::fetch(shared + tiles::own_tile::size, d_o.first + at.first * d_o.stride, d_o.stride, at.left, d,
                               t.vectors);

        float max[2], inv_sum[2], dot[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t token = at.first + at.warp_row + upper_row() + 8 * half;
            const int64_t there = token < x.tokens ? token : x.tokens - 1, row = at.group.row + there;
            max[half] = x.row_max[row];
            inv_sum[half] = x.row_inv_sum[row];
            dot[half] = row_dot(d_o.first + there * d_o.stride, x.o + at.group.out + there * d_o.stride, d, t.vectors);
            if (first_column() == 0 && token < x.tokens)
                x.row_dot[row] = dot[half];
        }

        float dq[D / 8][4] = {};
        tiles::walk(x, t, shared, OWN_TILES, k, v, [&](const float *keys, const float *values, int64_t from) {
            float p[N][4], ds[N][4];
            dot_products<FP32, D>(p, own_q, keys);
            dot_products<FP32, D>(ds, own_d_o, values);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ds[n][i] = weight_of<FP32>(t.scale * p[n][i], max[i / 2]) * inv_sum[i / 2] * (ds[n][i] - dot[i / 2]);
            fill_past(ds, x.tokens - from, 0.0f);
            add_rows<FP32, D>(dq, ds, keys);
        });
        const float scale[2] = {t.scale, t.scale};
        store_rows<D>(x.dq + at.group.in + (at.first + at.warp_row) * q.stride, q.stride, at.warp_left, d, t.vectors, dq,
                      scale);
    }
};

/** dk = scale * sum over queries of dS q, dv = sum over queries of P dO; after query_kernel. Scores lie transposed. */
struct key_kernel {
    static constexpr int OWN_TILES = 2;

    static constexpr __host__ __device__ int blocks(int d, bool fp32) {
        return d <= 32 ? (fp32 ? 3 : 4) : d <= 64 ? (fp32 ? 2 : 3) : 2;
    }

    static constexpr __host__ __device__ int walk(int, bool) {
        return 32;
    }

    template <int D, bool FP32> static __device__ void run(const tlob_attend_args &x, const tiling &t, float *shared) {
        constexpr int WALK = walk(D, FP32), N = WALK / 8;
        typedef pair_of_tiles<WALK, D, FP32> tiles;
        const own_place at = own_place_of(x, t);
        const int d = (int)x.head_dim;
        const int64_t stride = x.in.token_stride;
        const tokens_at q = {x.q + at.group.in, stride}, d_o = {x.d_o + at.group.out, x.out.token_stride};
        const float *own_k = shared + at.warp_row * pitch_of(D), *own_v = own_k + tiles::own_tile::size;
        tiles::own_tile::fetch(shared, x.k + at.group.in + at.first * stride, stride, at.left, d, t.vectors);
        tiles::own_tile::fetch(shared + tiles::own_tile::size, x.v + at.group.in + at.first * stride, stride, at.left, d,
                               t.vectors);

        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        tiles::walk(x, t, shared, OWN_TILES, q, d_o, [&](const float *queries, const float *d_outs, int64_t from) {
            float p[N][4], ds[N][4];
            const float *max = x.row_max + at.group.row + from, *inv_sum = x.row_inv_sum + at.group.row + from,
                        *dot = x.row_dot + at.group.row + from;
            const int last = x.tokens - from < WALK ? (int)(x.tokens - from) - 1 : WALK - 1;
            dot_products<FP32, D>(p, own_k, queries);
            dot_products<FP32, D>(ds, own_v, d_outs);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int column = 0; column < 2; column++) {
                    const int row = min(8 * n + first_column() + column, last);
#pragma unroll
                    for (int i = column; i < 4; i += 2) {
                        p[n][i] = weight_of<FP32>(t.scale * p[n][i], max[row]) * inv_sum[row];
                        ds[n][i] = p[n][i] * (ds[n][i] - dot[row]);
                    }
                }
            fill_past(p, x.tokens - from, 0.0f);
            fill_past(ds, x.tokens - from, 0.0f);
            add_rows<FP32, D>(dv, p, d_outs);
            add_rows<FP32, D>(dk, ds, queries);
        });
        const int64_t to = at.group.in + (at.first + at.warp_row) * stride;
        const float scale[2] = {t.scale, t.scale}, one[2] = {1.0f, 1.0f};
        store_rows<D>(x.dk + to, stride, at.warp_left, d, t.vectors, dk, scale);
        store_rows<D>(x.dv + to, stride, at.warp_left, d, t.vectors, dv, one);
    }
};

int tlob_attend_tiled_backward(struct CUstream_st *stream, const tlob_attend_args *x) {
    int code = run_sized<query_kernel>(stream, x);
    return code ? code : run_sized<key_kernel>(stream, x);
}
