#include "libtlob/kernels/attend_tiles.cuh"

/** The statistics of the two rows that a lane has a part of. */
struct row_statistics {
    float max[2], inv_sum[2], dot[2];

    /** A row's dO . O, each of its four lanes a quarter. */
    static __device__ float dot_of(const float *d_o, const float *o, int head_dim, bool vectors) {
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

    /** Reads a row's statistics and works out row_dot, also for key_kernel; rows past the last have its. */
    static __device__ row_statistics of(const tlob_attend_args &x, const tiling &t, const own_place &at) {
        row_statistics s;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t token = at.first + at.warp_row + upper_row() + 8 * half;
            const int64_t there = token < x.tokens ? token : x.tokens - 1, row = at.group.row + there;
            const int64_t out = at.group.out + there * x.out.token_stride;
            s.max[half] = x.row_max[row];
            s.inv_sum[half] = x.row_inv_sum[row];
            s.dot[half] = dot_of(x.d_o + out, x.o + out, (int)x.head_dim, t.vectors);
            if (first_column() == 0 && token < x.tokens)
                x.row_dot[row] = s.dot[half];
        }
        return s;
    }
};

/** dq = scale * sum over keys of dS k, with dS = P * (dP - rowsum(dP * P)) and rowsum(dP * P) = dO . O. */
struct query_kernel : walking_kernel<2> {
    static constexpr __host__ __device__ int blocks(int d, bool) {
        return d <= 32 ? 4 : d <= 64 ? 3 : 2;
    }

    static constexpr __host__ __device__ int walk(int d, bool fp32) {
        return d <= 32 && !fp32 ? 64 : 32;
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
        tiles::own_tile::fetch(shared + tiles::own_tile::size, d_o.first + at.first * d_o.stride, d_o.stride, at.left,
                               d, t.vectors);

        const row_statistics row = row_statistics::of(x, t, at);
        float dq[D / 8][4] = {};
        tiles::walk(x, t, shared, OWN_TILES, k, v, [&](const float *keys, const float *values, int64_t, int left) {
            if (at.warp_left <= 0)
                return;
            float p[N][4], ds[N][4];
            dot_products<FP32, D>(p, own_q, keys);
            dot_products<FP32, D>(ds, own_d_o, values);
            each_sum<N>([&](int n, int i) {
                ds[n][i] = weight_of<FP32>(t.scale * p[n][i], row.max[i / 2]) * row.inv_sum[i / 2] *
                           (ds[n][i] - row.dot[i / 2]);
            });
            fill_past(ds, left, 0.0f);
            add_rows<FP32, D>(dq, ds, keys);
        });
        const float scale[2] = {t.scale, t.scale};
        store_rows<D>(x.dq + at.group.in + (at.first + at.warp_row) * q.stride, q.stride, at.warp_left, d, t.vectors,
                      dq, scale);
    }
};

/** dk = scale * sum over queries of dS q, dv = sum over queries of P dO; after query_kernel. Scores lie transposed. */
struct key_kernel : walking_kernel<2> {
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
        tiles::own_tile::fetch(shared + tiles::own_tile::size, x.v + at.group.in + at.first * stride, stride, at.left,
                               d, t.vectors);

        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        tiles::walk(
            x, t, shared, OWN_TILES, q, d_o, [&](const float *queries, const float *d_os, int64_t from, int left) {
                if (at.warp_left <= 0)
                    return;
                float p[N][4], ds[N][4];
                const float *max = x.row_max + at.group.row + from, *inv_sum = x.row_inv_sum + at.group.row + from,
                            *dot = x.row_dot + at.group.row + from;
                dot_products<FP32, D>(p, own_k, queries);
                dot_products<FP32, D>(ds, own_v, d_os);
                each_sum<N>([&](int n, int i) {
                    const int row = min(8 * n + first_column() + i % 2, left - 1);
                    p[n][i] = weight_of<FP32>(t.scale * p[n][i], max[row]) * inv_sum[row];
                    ds[n][i] = p[n][i] * (ds[n][i] - dot[row]);
                });
                fill_past(p, left, 0.0f);
                fill_past(ds, left, 0.0f);
                add_rows<FP32, D>(dv, p, d_os);
                add_rows<FP32, D>(dk, ds, queries);
            });
        const int64_t to = at.group.in + (at.first + at.warp_row) * stride;
        const float scale[2] = {t.scale, t.scale}, one[2] = {1.0f, 1.0f};
        store_rows<D>(x.dk + to, stride, at.warp_left, d, t.vectors, dk, scale);
        store_rows<D>(x.dv + to, stride, at.warp_left, d, t.vectors, dv, one);
    }
};

/** All three gradients of a group that fits in one tile, from scores that are formed once: each warp has 16 queries'
 *  rows of P and dS, and then, through shared memory, 16 keys' columns. */
struct group_kernel {
    static constexpr int WIDEST = 64;
    static constexpr bool WALKS = false;

    static constexpr __host__ __device__ int own_floats(int d) {
        return 4 * OWN * pitch_of(d) + OWN * pitch_of(OWN);
    }

    static constexpr __host__ __device__ int blocks(int d, bool fp32) {
        return d <= 32 ? (fp32 ? 3 : 4) : 2;
    }

    static constexpr __host__ __device__ int walk(int, bool) {
        return OWN;
    }

    template <int D, bool FP32> static __device__ void run(const tlob_attend_args &x, const tiling &t, float *shared) {
        typedef tile<OWN, D> own_tile;
        constexpr int N = OWN / 8;
        const own_place at = own_place_of(x, t);
        const int64_t stride = x.in.token_stride;
        const int d = (int)x.head_dim;
        float *q = shared, *k = q + own_tile::size, *v = k + own_tile::size, *d_o = v + own_tile::size;
        float *square = d_o + own_tile::size; /* P, then dS */
        own_tile::fetch(q, x.q + at.group.in, stride, at.left, d, t.vectors);
        own_tile::fetch(k, x.k + at.group.in, stride, at.left, d, t.vectors);
        own_tile::fetch(v, x.v + at.group.in, stride, at.left, d, t.vectors);
        own_tile::fetch(d_o, x.d_o + at.group.out, x.out.token_stride, at.left, d, t.vectors);
        const row_statistics row = row_statistics::of(x, t, at);
        wait_for_copies();
        for (int i = 0; !FP32 && i < 4; i++)
            own_tile::round(shared + i * own_tile::size);
        __syncthreads();

        const int own = at.warp_row * pitch_of(D);
        float p[N][4], ds[N][4];
        dot_products<FP32, D>(p, q + own, k);
        dot_products<FP32, D>(ds, d_o + own, v);
        each_sum<N>([&](int n, int i) {
            p[n][i] = weight_of<FP32>(t.scale * p[n][i], row.max[i / 2]) * row.inv_sum[i / 2];
            ds[n][i] = p[n][i] * (ds[n][i] - row.dot[i / 2]);
        });
        fill_past(p, at.left, 0.0f);
        fill_past(ds, at.left, 0.0f);
        clear_rows(p, at.warp_left);
        clear_rows(ds, at.warp_left);

        const float scale[2] = {t.scale, t.scale}, one[2] = {1.0f, 1.0f};
        const int64_t to = at.group.in + at.warp_row * stride;
        float sums[D / 8][4] = {};
        put_rows(square + at.warp_row * pitch_of(OWN), p);
        __syncthreads();
        add_columns<FP32, D, N>(sums, square + at.warp_row, d_o);
        store_rows<D>(x.dv + to, stride, at.warp_left, d, t.vectors, sums, one);
        __syncthreads();
        put_rows(square + at.warp_row * pitch_of(OWN), ds);
        __syncthreads();
        clear_sums(sums);
        add_columns<FP32, D, N>(sums, square + at.warp_row, q);
        store_rows<D>(x.dk + to, stride, at.warp_left, d, t.vectors, sums, scale);
        clear_sums(sums);
        add_rows<FP32, D>(sums, ds, k);
        store_rows<D>(x.dq + to, stride, at.warp_left, d, t.vectors, sums, scale);
    }

    template <int N> static __device__ void clear_sums(float (&sums)[N][4]) {
        clear_rows(sums, 0);
    }
};

int tlob_attend_tiled_backward(struct CUstream_st *stream, const tlob_attend_args *x) {
    if (x->tokens <= OWN && x->head_dim <= group_kernel::WIDEST)
        return run_sized<group_kernel>(stream, x);
    int code = run_sized<query_kernel>(stream, x);
    return code ? code : run_sized<key_kernel>(stream, x);
}

int tlob_attend_tiled_backward_load() {
    int code = load_sized<group_kernel>();
    if (code == 0)
        code = load_sized<query_kernel>();
    return code ? code : load_sized<key_kernel>();
}
