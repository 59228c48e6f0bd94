#include "libtlob/kernels/attend_tiles.cuh"

struct forward_kernel : walking_kernel<1> {
    static constexpr __host__ __device__ int blocks(int d, bool fp32) {
        return d <= 32 ? 4 : d <= 64 ? (fp32 ? 3 : 4) : 2;
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
                        v = {x.v + at.group.in, x.in.token_stride};
        const float *own = shared + at.warp_row * pitch_of(D);
        float o[D / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

        tiles::own_tile::fetch(shared, q.first + at.first * q.stride, q.stride, at.left, d, t.vectors);
        tiles::walk(x, t, shared, OWN_TILES, k, v, [&](const float *keys, const float *values, int64_t, int left) {
            if (at.warp_left <= 0)
                return;
            float p[N][4];
            dot_products<FP32, D>(p, own, keys);
            float now[2] = {max[0], max[1]};
            each_sum<N>([&](int n, int i) { p[n][i] *= t.scale; });
            fill_past(p, left, -INFINITY);
            each_sum<N>([&](int n, int i) { now[i / 2] = fmaxf(now[i / 2], p[n][i]); });
#pragma unroll
            for (int half = 0; half < 2; half++) {
                now[half] = row_max(now[half]);
                const float shrink = weight_of<FP32>(max[half], now[half]);
                max[half] = now[half];
                sum[half] *= shrink;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    o[n][2 * half] *= shrink;
                    o[n][2 * half + 1] *= shrink;
                }
            }
            each_sum<N>([&](int n, int i) { p[n][i] = weight_of<FP32>(p[n][i], max[i / 2]); });
            fill_past(p, left, 0.0f); /* a row whose every score is -infinite weighs them all alike */
            each_sum<N>([&](int n, int i) { sum[i / 2] += p[n][i]; });
            add_rows<FP32, D>(o, p, values);
        });

        const float inv_sum[2] = {1.0f / row_sum(sum[0]), 1.0f / row_sum(sum[1])};
        const int64_t first = at.first + at.warp_row;
        store_rows<D>(x.o + at.group.out + first * x.out.token_stride, x.out.token_stride, at.warp_left, d, t.vectors,
                      o, inv_sum);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = upper_row() + 8 * half;
            if (first_column() == 0 && row < at.warp_left) {
                x.row_max[at.group.row + first + row] = max[half];
                x.row_inv_sum[at.group.row + first + row] = inv_sum[half];
            }
        }
    }
};

int tlob_attend_tiled_forward(struct CUstream_st *stream, const tlob_attend_args *x) {
    return run_sized<forward_kernel>(stream, x);
}

int tlob_attend_tiled_forward_load() {
    return load_sized<forward_kernel>();
}
