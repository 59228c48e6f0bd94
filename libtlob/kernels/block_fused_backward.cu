#include "libtlob/kernels/block_fused.cuh"
#include "libtlob/kernels/block_fused_any.cuh"
#include "libtlob/kernels/chunks.h"

/** Warps of a block of threads, which take the tiles of a chunk in turn: as many as have registers for their sums. */
static constexpr __host__ __device__ int warps_of(bool fp32) {
    return fp32 ? 8 : 16;
}

/*
 * A warp walks through its tiles: X and dY of the next come into shared memory while one is worked on. Q, K, V and P
 * are computed again from X as in the forward pass, and then dQ, dK, dV from them, each lane having whole tokens of
 * two columns. A weight gradient is a product over columns, which must lie along lanes of a quad there and not across
 * quads: dQ, dK, dV and O change sides through shared memory, X and dY are read from it that way too. The sums stay in
 * registers through all tiles of a chunk.
 */

/* --- tiles in shared memory ------------------------------------------------------------------------------------- */

/** The columns of a tile that are rows q and q + 8 of the mma: this and the one 8 further on. */
[[maybe_unused]] static __device__ int quad_column() {
    return quad_of_lane() / 2 + quad_of_lane() % 2 * 4;
}

/** Those that are steps t and t + 4 of a product over columns: this and the next. */
[[maybe_unused]] static __device__ int step_column(int step) {
    return 8 * step + 2 * lane_of_quad();
}

/**
 * 16 columns of D floats, 4 floats further apart than they are long. For columns as quad_column and step_column choose
 * them, neither reads of four rows of eight columns nor those of eight rows of four columns meet in a bank, nor do
 * stores of fours.
 */
template <int D> struct fused_tile {
    static constexpr int pitch = D + 4, size = TILE * pitch;
    static constexpr int fours = D / 4, columns = 32 / fours; /* that a warp copies at once */
    static_assert(32 % fours == 0, "a copy takes whole columns");

    static __device__ int at(int column, int row) {
        return column * pitch + row;
    }

    /** Begins to copy the columns at `from`, of which `left` exist; the others become 0 and are not read. */
    static __device__ void fetch(float *to, const float *from, int left, bool vectors) {
        const int lane = threadIdx.x % 32, first = lane / fours;
        const float *source = from + 4 * lane;
        to += at(first, lane % fours * 4);
#pragma unroll
        for (int column = 0; column < TILE; column += columns) {
            const bool there = left >= TILE || first + column < left;
            if (vectors) {
                copy_async<16>(to + column * pitch, source + column * D, there);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                copy_async<4>(to + column * pitch + e, source + column * D + e, there);
        }
    }

    /** Rows 2q and 2q + 1 of the pair-th sixteen, q being the quad's number. */
    static __device__ float2 two(const float *tile, int column, int pair) {
        return *(const float2 *)(tile + at(column, 16 * pair + 2 * quad_of_lane()));
    }
};

/** Rows 8s to 8s + 7 of a tile, as a left operand. */
template <int D, bool FP32> static __device__ operand<4> left_rows(const float *tile, int s) {
    const int column = quad_column(), row = 8 * s + lane_of_quad();
    const float four[4] = {tile[fused_tile<D>::at(column, row)], tile[fused_tile<D>::at(column + 8, row)],
                           tile[fused_tile<D>::at(column, row + 4)], tile[fused_tile<D>::at(column + 8, row + 4)]};
    return factors<FP32>(four);
}

/* --- weights in shared memory ----------------------------------------------------------------------------------- */

/** The weights as right operands of every product, in pairs: one float4 for each lane. */
template <class S, bool DX> struct fused_operands {
    static constexpr int project = 0, to_o = 3 * S::eights * S::in_eights, to_x = to_o + S::eights * S::eights;
    static constexpr int count = to_x + (DX ? 3 * S::in_eights * S::eights : 0), size = count * 64;

    /** The row of dX that column `column` of the n-th eight of a result is: a lane gets fours of them. */
    static __device__ int dx_row(int n, int column) {
        return 16 * (n / 2) + 2 * column + n % 2;
    }

    /** Where float `half` of lane `lane` of operand i lies. */
    static __device__ int place(int i, int lane, int half) {
        return (i / 2 * 32 + lane) * 4 + i % 2 * 2 + half;
    }

    /** A lane has in operand (n, s) rows 8s + t and 8s + t + 4 of the right factor's column lane/4. All is read before
     *  anything is written, so that the reads overlap. */
    template <bool FP32, int WARPS> static __device__ void fill(float *to, const float *weights) {
        constexpr int projections = 3 * S::in_eights * 2, outs = S::eights * S::eights;
        constexpr int inputs = DX ? 3 * S::in_eights * S::eights : 0;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = quad_of_lane(), t = lane_of_quad();
        float w[(projections - 1) / WARPS + 1][S::eights], out[(outs - 1) / WARPS + 1][2], in[inputs / WARPS + 1][2];
        auto put = [&](int i, int half, float value) { to[place(i, lane, half)] = FP32 ? value : rounded(value); };
        each<projections, WARPS>(warp, [&](int i, int k) {
            const float *from = weights + i / (2 * S::in_eights) * S::matrix + result_row<S>(0, column) +
                                S::d_out * (8 * (i / 2 % S::in_eights) + t + 4 * (i % 2));
#pragma unroll
            for (int n = 0; n < S::eights; n++)
                w[k][n] = __ldcg(from + n);
        });
        each<outs, WARPS>(warp, [&](int i, int k) {
            const float *from = weights + 3 * S::matrix + 8 * (i % S::eights) + t +
                                S::d_out * result_row<S>(i / S::eights, column);
            out[k][0] = __ldcg(from);
            out[k][1] = __ldcg(from + 4);
        });
        each<inputs, WARPS>(warp, [&](int i, int k) {
            const float *from = weights + i / (S::in_eights * S::eights) * S::matrix + 8 * (i % S::eights) + t +
                                S::d_out * dx_row(i / S::eights % S::in_eights, column);
            in[k][0] = __ldcg(from);
            in[k][1] = __ldcg(from + 4);
        });
        each<projections, WARPS>(warp, [&](int i, int k) {
#pragma unroll
            for (int n = 0; n < S::eights; n++)
                put(project + (i / (2 * S::in_eights) * S::eights + n) * S::in_eights + i / 2 % S::in_eights, i % 2,
                    w[k][n]);
        });
        each<outs, WARPS>(warp, [&](int i, int k) {
            put(to_o + i, 0, out[k][0]);
            put(to_o + i, 1, out[k][1]);
        });
        each<inputs, WARPS>(warp, [&](int i, int k) {
            put(to_x + i, 0, in[k][0]);
            put(to_x + i, 1, in[k][1]);
        });
    }

    /** use(i, k) for every WARPS-th i below COUNT, from `warp` on; it is the k-th. */
    template <int COUNT, int WARPS, class Use> static __device__ void each(int warp, Use use) {
#pragma unroll
        for (int k = 0; k * WARPS < COUNT; k++)
            if (k * WARPS + warp < COUNT)
                use(k * WARPS + warp, k);
    }

    template <bool FP32> static __device__ operand<2> at(const float *from, int i) {
        const float4 pair = ((const float4 *)from)[32 * (i / 2) + threadIdx.x % 32]; /* one read for both */
        const float two[2] = {i % 2 ? pair.z : pair.x, i % 2 ? pair.w : pair.y};
        return split<FP32>(two);
    }
};

/* --- attention -------------------------------------------------------------------------------------------------- */

/**
 * Half a column: its two columns' tokens are shared out anew, so that lanes t and t ^ 1 have one column between them,
 * lanes 0 and 1 the first and lanes 2 and 3 the second. A lane keeps its own tokens of that column (slot 0), and gets
 * those of lane t ^ 2 (slot 1): half as many values change lanes as with a column for all four.
 */
template <class S> struct half_column {
    float slot[2][S::own];

    __device__ void zero() {
        each([&](float &x, int, int) { x = 0.0f; });
    }

    __device__ void take(const float (&columns)[2][S::own]) {
        const bool second = lane_of_quad() >= 2;
#pragma unroll
        for (int e = 0; e < S::own; e++) {
            slot[0][e] = second ? columns[1][e] : columns[0][e];
            slot[1][e] = of_lane(second ? columns[0][e] : columns[1][e], 2);
        }
    }

    /** The other half, which lane t ^ 1 has. */
    __device__ half_column other() const {
        half_column x;
        x.each([&](float &value, int s, int e) { value = of_lane(slot[s][e], 1); });
        return x;
    }

    __device__ void add(const half_column &x) {
        each([&](float &value, int s, int e) { value += x.slot[s][e]; });
    }

    /** use(element, slot, index) for all. */
    template <class Use> __device__ void each(Use use) {
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int e = 0; e < S::own; e++)
                use(slot[s][e], s, e);
    }

    /** Element e of token w, of 2*S::tokens. */
    __device__ float &at(int w, int e) {
        return slot[w / S::tokens][w % S::tokens * S::head_dim + e];
    }

    __device__ float at(int w, int e) const {
        return slot[w / S::tokens][w % S::tokens * S::head_dim + e];
    }

    /** The scalar product of token w with token u of `with`. */
    __device__ float dot(int w, const half_column &with, int u) const {
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < S::head_dim; e++)
            sum = fmaf(at(w, e), with.at(u, e), sum);
        return sum;
    }

    /** Token w += by times token u of `of`. */
    __device__ void add(int w, float by, const half_column &of, int u) {
#pragma unroll
        for (int e = 0; e < S::head_dim; e++)
            at(w, e) = fmaf(by, of.at(u, e), at(w, e));
    }

    /** Into a tile of columns. */
    __device__ void put(float *tile) const {
        const int t = lane_of_quad(), column = quad_column() + t / 2 * 8;
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int e = 0; e < S::own; e += 4)
                *(float4 *)(tile + fused_tile<S::d_out>::at(column, S::own * (t ^ 2 * s) + e)) =
                    make_float4(slot[s][e], slot[s][e + 1], slot[s][e + 2], slot[s][e + 3]);
    }
};

/** What a lane has of a warp's two columns for each row of its quads. */
template <class S> struct fused_rows {
    float q[2][S::own], k[2][S::own], v[2][S::own], d_o[2][S::own];
};

/**
 * dQ, dK, dV and, with OUT, O into four tiles in this order. scale: log2(e) / sqrt(head_dim), root: 1 / sqrt(head_dim).
 */
template <class S, bool OUT>
static __device__ void attend_backward(float *tiles, const fused_rows<S> &rows, float scale, float root) {
    constexpr int TOKENS = 2 * S::tokens, size = fused_tile<S::d_out>::size;
    half_column<S> q, keys, values, d_o, sum, far; /* far: of the other half, for as long as it is needed */
    float p[TOKENS][2 * TOKENS], ds[TOKENS][2 * TOKENS];
    auto each_key = [](auto use) { /* token u of this half or the other, the i-th of all */
#pragma unroll
        for (int i = 0; i < 2 * TOKENS; i++)
            use(i / TOKENS, i % TOKENS, i);
    };
    q.take(rows.q);
    keys.take(rows.k);
    far = keys.other();
#pragma unroll
    for (int w = 0; w < TOKENS; w++) {
        float max = -INFINITY, all = 0.0f;
        each_key([&](int half, int u, int i) {
            p[w][i] = q.dot(w, half ? far : keys, u);
            max = fmaxf(max, p[w][i]);
        });
        const float most = scale * max;
        each_key([&](int, int, int i) {
            p[w][i] = p[w][i] == max ? 1.0f : power_of_two(fmaf(scale, p[w][i], -most));
            all += p[w][i];
        });
        const float inv_sum = __fdividef(1.0f, all);
        each_key([&](int, int, int i) { p[w][i] *= inv_sum; });
    }

    /* What this half's queries give the keys, and the values, of both halves. */
    auto give = [&](const float(&factors)[TOKENS][2 * TOKENS], const half_column<S> &from, float *to) {
        sum.zero();
        far.zero();
#pragma unroll
        for (int w = 0; w < TOKENS; w++)
            each_key([&](int half, int u, int i) { (half ? far : sum).add(u, factors[w][i], from, w); });
        sum.add(far.other());
        sum.put(to);
    };
    d_o.take(rows.d_o);
    give(p, d_o, tiles + 2 * size);
    values.take(rows.v);
    far = values.other();
    if (OUT) {
        sum.zero();
#pragma unroll
        for (int w = 0; w < TOKENS; w++)
            each_key([&](int half, int u, int i) { sum.add(w, p[w][i], half ? far : values, u); });
        sum.put(tiles + 3 * size);
    }
#pragma unroll
    for (int w = 0; w < TOKENS; w++) {
        float dot = 0.0f;
        each_key([&](int half, int u, int i) {
            ds[w][i] = d_o.dot(w, half ? far : values, u);
            dot = fmaf(p[w][i], ds[w][i], dot);
        });
        each_key([&](int, int, int i) { ds[w][i] = p[w][i] * root * (ds[w][i] - dot); });
    }

    far = keys.other(); /* once more: to exchange it costs less than to hold it */
    sum.zero();
#pragma unroll
    for (int w = 0; w < TOKENS; w++)
        each_key([&](int half, int u, int i) { sum.add(w, ds[w][i], half ? far : keys, u); });
    sum.put(tiles);
    give(ds, q, tiles + size);
}

/** Q, K, V and dO of a warp's columns. */
template <class S, bool DX, bool FP32>
static __device__ void project(fused_rows<S> &rows, const float *w, const float *x, const float *dy) {
    typedef fused_operands<S, DX> operands;
    auto of = [&](int first, int steps) {
        return [=](int n, int s) { return operands::template at<FP32>(w, first + n * steps + s); };
    };
    constexpr int matrix = S::eights * S::in_eights;
    operand<4> left[S::in_eights], left_o[S::eights];
#pragma unroll
    for (int s = 0; s < S::in_eights; s++)
        left[s] = left_rows<S::d_in, FP32>(x, s);
    own_rows<S, FP32>(rows.q, left, of(operands::project, S::in_eights));
    own_rows<S, FP32>(rows.k, left, of(operands::project + matrix, S::in_eights));
    own_rows<S, FP32>(rows.v, left, of(operands::project + 2 * matrix, S::in_eights));
#pragma unroll
    for (int s = 0; s < S::eights; s++)
        left_o[s] = left_rows<S::d_out, FP32>(dy, s);
    own_rows<S, FP32>(rows.d_o, left_o, of(operands::to_o, S::eights));
}

/* --- gradients of the weights ----------------------------------------------------------------------------------- */

/** The sums of a warp: lane (q, t) has rows 16m + 2q + r and columns 8n + 2t + j in its sum[m][n][2r + j]. */
template <class S> struct fused_sums {
    static constexpr int wide = S::d_out / 16;
    static constexpr int of_matrix = wide * S::in_eights * 4, count = 3 * of_matrix + wide * S::eights * 4;
    float w[3][wide][S::in_eights][4], out[wide][S::eights][4];

    /** use(sum, i) for each that a lane has, i counting them. */
    template <class Use> __device__ void each(Use use) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int m = i / of_matrix, k = i % of_matrix;
            if (m < 3)
                use(w[m][k / (4 * S::in_eights)][k / 4 % S::in_eights][k % 4], i);
            else
                use(out[k / (4 * S::eights)][k / 4 % S::eights][k % 4], i);
        }
    }

    /** Which of the flat weights it is that sum i of a lane is the gradient of. */
    static __device__ int weight(int i, int lane) {
        const int m = i / of_matrix, k = i % of_matrix;
        return m * S::matrix + (m < 3 ? element<S::in_eights>(k, lane) : element<S::eights>(k, lane));
    }

    /** The same in a matrix of N eights of columns. */
    template <int N> static __device__ int element(int k, int lane) {
        const int row = 16 * (k / (4 * N)) + 2 * (lane / 4) + k / 2 % 2;
        return row + S::d_out * (8 * (k / 4 % N) + 2 * (lane % 4) + k % 2);
    }
};

/** Columns 8*step to 8*step + 7 of a tile of d_out rows, as left operands. */
template <class S, bool FP32>
static __device__ void left_columns(operand<4> (&left)[S::d_out / 16], const float *tile, int step, bool of_caller) {
    const int column = step_column(step);
#pragma unroll
    for (int m = 0; m < S::d_out / 16; m++) {
        const float2 near = fused_tile<S::d_out>::two(tile, column, m);
        const float2 far = fused_tile<S::d_out>::two(tile, column + 1, m);
        const float four[4] = {near.x, near.y, far.x, far.y};
        left[m] = of_caller ? factors<FP32>(four) : plain_factors<FP32>(four);
    }
}

/** The same of a tile of D rows, as right operands. A NaN in X needs no care here: it has made dQ, dK and dV NaN. */
template <int D, bool FP32>
static __device__ void right_columns(operand<2> (&right)[D / 8], const float *tile, int step) {
    const int column = step_column(step);
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        const float two[2] = {tile[fused_tile<D>::at(column, 8 * n + quad_of_lane())],
                              tile[fused_tile<D>::at(column + 1, 8 * n + quad_of_lane())]};
        right[n] = plain_factors<FP32>(two);
    }
}

/** sums += left right. The tensor cores round sums towards zero, so FP32 adds up in registers. */
template <bool FP32, int M, int N>
static __device__ void add_outer(float (&sums)[M][N][4], const operand<4> (&left)[M], const operand<2> (&right)[N]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (!FP32) {
                mma(sums[m][n], left[m].high, right[n].high);
                continue;
            }
            float fresh[4] = {};
            add_product<FP32>(fresh, left[m], right[n]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[m][n][i] += fresh[i];
        }
}

/** What the 16 columns of a tile give. */
template <class S, bool FP32>
static __device__ void add_tile(fused_sums<S> &sums, const float *x, const float *dy, const float *changed) {
    constexpr int size = fused_tile<S::d_out>::size;
#pragma unroll
    for (int step = 0; step < TILE / 8; step++) {
        operand<4> left[S::d_out / 16];
        operand<2> right[S::in_eights], right_o[S::eights];
        right_columns<S::d_in, FP32>(right, x, step);
#pragma unroll
        for (int m = 0; m < 3; m++) {
            left_columns<S, FP32>(left, changed + m * size, step, false);
            add_outer<FP32>(sums.w[m], left, right);
        }
        left_columns<S, FP32>(left, dy, step, true);
        right_columns<S::d_out, FP32>(right_o, changed + 3 * size, step);
        add_outer<FP32>(sums.out, left, right_o);
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------- */

/** Floats of shared memory that a warp has for itself: two tiles each of X and dY, and one of dQ, dK, dV and O. */
template <class S, bool DW> struct fused_room {
    static constexpr int x = fused_tile<S::d_in>::size, y = fused_tile<S::d_out>::size;
    static constexpr int fetched = x + y, changed = 2 * fetched, tiles = changed + (DW ? 4 : 3) * y;
    static constexpr int size = !DW || tiles > 32 * fused_sums<S>::count ? tiles : 32 * fused_sums<S>::count;
};

template <class S, bool FP32, bool DX, bool VEC>
static __device__ void store_dx(const tlob_block_fused_args &a, const float *w, const float *changed, int64_t column) {
    typedef fused_operands<S, DX> operands;
    operand<4> left[3][S::eights];
#pragma unroll
    for (int m = 0; m < 3; m++) {
#pragma unroll
        for (int s = 0; s < S::eights; s++)
            left[m][s] = left_rows<S::d_out, FP32>(changed + m * fused_tile<S::d_out>::size, s);
    }
#pragma unroll
    for (int pair = 0; pair < S::d_in / 16; pair++) {
        float c[2][4] = {};
#pragma unroll
        for (int m = 0; m < 3; m++)
#pragma unroll
            for (int s = 0; s < S::eights; s++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    add_product<FP32>(c[i], left[m][s],
                                      operands::template at<FP32>(w, operands::to_x +
                                                                         (m * S::in_eights + 2 * pair + i) * S::eights +
                                                                         s));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t at = column + quad_column() + 8 * half;
            const float four[4] = {c[0][2 * half], c[1][2 * half], c[0][2 * half + 1], c[1][2 * half + 1]};
            if (at < a.columns)
                store<4, VEC>(a.dx + at * S::d_in + 16 * pair + 4 * lane_of_quad(), four);
        }
    }
}

/** threadIdx.x, so that what depends on it is worked out anew: to hold it through an attention would take registers. */
[[maybe_unused]] static __device__ int thread_again() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/** Columns of dQ, dK, dV and O from `first` on, which are past the last: X and dY are 0 there, but what an infinite
 *  weight has made of that is NaN, and must not get into a sum. */
template <class S> static __device__ void clear_columns(float *tiles, int first) {
    typedef fused_tile<S::d_out> tile;
    __syncwarp(); /* dX has been formed */
#pragma unroll 1
    for (int i = tile::at(first, 0) + thread_again() % 32; i < tile::size; i += 32)
#pragma unroll
        for (int m = 0; m < 4; m++)
            tiles[m * tile::size + i] = 0.0f;
    __syncwarp();
}

/** The sums of all warps that a chunk of `tiles` keeps busy, added up in their order. */
template <class S, int WARPS>
static __device__ void store_sums(fused_sums<S> &sums, float *shared, int room, int64_t tiles, float *to) {
    const int busy = tiles < WARPS ? (int)tiles : WARPS;
    float *own = shared + threadIdx.x / 32 * room + threadIdx.x % 32;
    if (threadIdx.x / 32 < busy)
        sums.each([&](float sum, int i) { own[32 * i] = sum; });
    __syncthreads();
    for (int i = threadIdx.x; i < S::weights; i += 32 * WARPS) {
        float sum = shared[i];
#pragma unroll 4
        for (int warp = 1; warp < busy; warp++)
            sum += shared[warp * room + i];
        to[fused_sums<S>::weight(i / 32, i % 32)] = sum;
    }
}

/** One block of threads for each chunk. scale: log2(e) / sqrt(head_dim), root: 1 / sqrt(head_dim). */
template <class S, bool FP32, bool DW, bool DX, bool VEC>
static __global__ void __launch_bounds__(32 * warps_of(FP32), 1)
    block_fused_backward(const __grid_constant__ tlob_block_fused_args a, int64_t chunk, float scale, float root) {
#if __CUDA_ARCH__ >= TLOB_MMA_ARCH
    let_next_start();
    typedef fused_operands<S, DX> operands;
    typedef fused_room<S, DW> room;
    constexpr int WARPS = warps_of(FP32);
    extern __shared__ float4 shared[];
    float *w = (float *)shared, *warps = w + operands::size, *own = warps + threadIdx.x / 32 * room::size;
    float *changed = own + room::changed;
    const int64_t first = blockIdx.x * chunk * TILE; /* column of the chunk, of which all others are counted from */
    const int columns = (int)(a.columns - first < chunk * TILE ? a.columns - first : chunk * TILE);
    int column = threadIdx.x / 32 * TILE;
    auto fetch = [&](int from, float *to) {
        fused_tile<S::d_in>::fetch(to, a.x + (first + from) * S::d_in, columns - from, VEC);
        fused_tile<S::d_out>::fetch(to + room::x, a.dy + (first + from) * S::d_out, columns - from, VEC);
    };
    fused_sums<S> sums;
    if (DW)
        sums.each([](float &sum, int) { sum = 0.0f; });
    if (!a.settled)
        wait_for_kernel_before();
    operands::template fill<FP32, WARPS>(w, a.weights);
    if (a.settled)
        wait_for_kernel_before();
    if (column < columns)
        fetch(column, own);
    __syncthreads();

    for (; column < columns; column += WARPS * TILE) {
        const int stage = column / (WARPS * TILE) % 2;
        const float *x = own + stage * room::fetched, *dy = x + room::x;
        wait_for_copies();
        __syncwarp();
        if (column + WARPS * TILE < columns)
            fetch(column + WARPS * TILE, own + (1 - stage) * room::fetched);
        fused_rows<S> rows;
        project<S, DX, FP32>(rows, w, x, dy);
        attend_backward<S, DW>(changed, rows, scale, root);
        __syncwarp();
        if (DX)
            store_dx<S, FP32, DX, VEC>(a, w, warps + thread_again() / 32 * room::size + room::changed, first + column);
        if (DW) {
            float *again = warps + thread_again() / 32 * room::size;
            const float *fetched = again + stage * room::fetched;
            if (column + TILE > columns)
                clear_columns<S>(again + room::changed, columns - column);
            add_tile<S, FP32>(sums, fetched, fetched + room::x, again + room::changed);
        }
    }
    if (DW) {
        __syncwarp(); /* the tiles have been read, and their place is the sums' now */
        store_sums<S, WARPS>(sums, warps, room::size, chunk, a.partial + blockIdx.x * (int64_t)S::weights);
    }
#else
    __trap(); /* block.c sends nothing here */
#endif
}

/* --- launches --------------------------------------------------------------------------------------------------- */

template <class S, bool FP32, bool DW, bool DX, bool VEC>
static int run(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    const int64_t tiles = tlob_block_fused_tiles(&x->shape, x->columns), unit = tlob_block_fused_unit(&x->shape);
    const double root = 1.0 / sqrt((double)S::head_dim);
    constexpr int bytes = (fused_operands<S, DX>::size + warps_of(FP32) * fused_room<S, DW>::size) * (int)sizeof(float);
    static_assert(bytes <= 227 * 1024 && S::d_out <= S::d_in, "room in shared memory; and W_O is no larger than W_Q");
    auto kernel = block_fused_backward<S, FP32, DW, DX, VEC>;
    const int code = taken(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    if (code)
        return code;
    return launch_overlapping(stream, x->overlaps, tlob_chunk_count(tiles, unit, TLOB_BLOCK_FUSED_MOST),
                              32 * warps_of(FP32), bytes, kernel, *x,
                              tlob_chunk_length(tiles, unit, TLOB_BLOCK_FUSED_MOST), (float)fused_scale(S::head_dim),
                              (float)root);
}

template <class S, bool FP32, bool VEC>
static int run_wanted(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    if (!x->partial)
        return run<S, FP32, false, true, VEC>(stream, x);
    return x->dx ? run<S, FP32, true, true, VEC>(stream, x) : run<S, FP32, true, false, VEC>(stream, x);
}

template <class S> static int run_shape(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    if (x->compute == TLOB_COMPUTE_FP32)
        return fours_fit(x) ? run_wanted<S, true, true>(stream, x) : run_wanted<S, true, false>(stream, x);
    return fours_fit(x) ? run_wanted<S, false, true>(stream, x) : run_wanted<S, false, false>(stream, x);
}

template <class S, bool FP32, bool VEC> static int load_wanted() {
    return load(block_fused_backward<S, FP32, true, true, VEC>, block_fused_backward<S, FP32, true, false, VEC>,
                block_fused_backward<S, FP32, false, true, VEC>);
}

template <class S> static int load_shape() {
    int code = load_wanted<S, true, true>();
    if (code == 0)
        code = load_wanted<S, true, false>();
    if (code == 0)
        code = load_wanted<S, false, true>();
    return code ? code : load_wanted<S, false, false>();
}

extern "C" int tlob_cuda_block_fused_backward(struct CUstream_st *stream, const tlob_block_fused_args *args) {
    if (!tlob_block_fused_listed(&args->shape))
        return tlob_block_fused_any_backward(stream, args);
#define RUN(in, out, head)                                                                                             \
    if (args->shape.d_in == in && args->shape.d_out == out && args->shape.head_dim == head)                            \
        return run_shape<fused_shape<in, out, head>>(stream, args);
    TLOB_BLOCK_FUSED_SHAPES(RUN)
#undef RUN
    return (int)cudaErrorInvalidValue; /* tlob_block_fused_obstacle has named it */
}

extern "C" bool tlob_cuda_block_fused_has_code(void) {
    cudaFuncAttributes compiled;
    int driver = 0; /* graphs have edges for launches that overlap since CUDA 12.3, and captures refuse them before */
    if (taken(cudaDriverGetVersion(&driver)) || driver < 12030)
        return false;
    auto any = block_fused_backward<fused_shape<32, 16, 4>, false, true, false, true>;
    return taken(cudaFuncGetAttributes(&compiled, any)) == 0 && compiled.ptxVersion >= 90;
}

extern "C" int tlob_cuda_load_block_fused_backward(void) {
    int code = tlob_block_fused_any_load();
#define LOAD(in, out, head)                                                                                            \
    if (code == 0)                                                                                                     \
        code = load_shape<fused_shape<in, out, head>>();
    TLOB_BLOCK_FUSED_SHAPES(LOAD)
#undef LOAD
    return code;
}
