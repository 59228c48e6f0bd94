#include "libtlob/kernels/block_fused.cuh"
#include "libtlob/kernels/block_fused_any.cuh"
#include "libtlob/kernels/chunks.h"

#define THREADS 256
#define WARPS   (THREADS / 32)
#define ROOM    (146 * 1024) /* bytes of shared memory, the most that a shape takes: gradients of 128 tokens of 32 */

/*
 * The fused block for every shape that tlob_block_fused_obstacle lets pass, at sizes known at run time but for
 * head_dim. A block of threads takes a tile of columns and, in it, one slice of rows of Q, K, V and O after the other:
 * along the feature axis all rows, along the time axis whole heads, and at least 8 rows. What belongs to a slice lies
 * in shared memory, a column's rows next to each other; weights, X and dY come from global memory and its caches.
 * Products are those of tensor cores, 16 x 8 at a time by one warp; a thread attends for one token at a time.
 */

/** How a shape is cut. */
struct any_tiling {
    int d_in, d_out, columns, used; /* columns of a tile: a multiple of 16, and how many of them are for samples */
    int width, slices, ld, ld_o;    /* rows of a slice; floats from column to column of a slice, and of all of O */
    int groups, tokens, heads;      /* of a tile's slice: groups that attend, of `tokens` each; heads of a slice */
    int seq;                        /* along the time axis; 0 along the feature axis */
    int64_t tiles, chunk;           /* all of them, and how many are summed as one chunk */
};

static any_tiling tiling_of(const tlob_block_fused_args *x) {
    const int head = (int)x->shape.head_dim, seq = (int)x->shape.seq;
    any_tiling t = {};
    t.d_in = (int)x->shape.d_in;
    t.d_out = (int)x->shape.d_out;
    t.columns = t.used = (int)tlob_block_fused_tile(&x->shape);
    t.width = t.d_out;
    t.groups = t.used;
    t.tokens = t.d_out / head;
    t.heads = 1;
    if (x->shape.axis == TLOB_AXIS_TIME) {
        t.seq = t.tokens = seq;
        t.columns = (t.used - 1) / TILE * TILE + TILE;
        t.width = head < 8 ? 8 : head;
        t.heads = t.width / head;
        t.groups = t.used / seq * t.heads;
    }
    t.slices = t.d_out / t.width;
    t.ld = t.width + 4;
    t.ld_o = t.d_out + 4;
    t.tiles = tlob_block_fused_tiles(&x->shape, x->columns);
    t.chunk = tlob_chunk_length(t.tiles, tlob_block_fused_unit(&x->shape), TLOB_BLOCK_FUSED_MOST);
    return t;
}

/* --- products --------------------------------------------------------------------------------------------------- */

/** c = a b for 16 rows and 8 columns, of `steps` eights in between. FP32 adds up in registers, as add_outer. */
template <bool FP32, class A, class B>
static __device__ void any_product(float (&c)[4], int steps, A a, B b) {
    const int q = quad_of_lane(), t = lane_of_quad();
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = 0.0f;
    for (int k = t; k < 8 * steps; k += 8) {
        const float four[4] = {a(q, k), a(q + 8, k), a(q, k + 4), a(q + 8, k + 4)};
        const float two[2] = {b(k, q), b(k + 4, q)};
        if (!FP32) {
            add_product<FP32>(c, factors<FP32>(four), factors<FP32>(two));
            continue;
        }
        float fresh[4] = {};
        add_product<FP32>(fresh, factors<FP32>(four), factors<FP32>(two));
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[i] += fresh[i];
    }
}

/** use(i, row, column) for the lane's elements of a product at (row, column). */
template <class Use> static __device__ void any_elements(int row, int column, Use use) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        use(i, row + quad_of_lane() + i / 2 * 8, column + 2 * lane_of_quad() + i % 2);
}

/** use(row, column) by one warp each for the corners of all products that make `rows` x `columns`; the same warp for
 *  the same corner every time. */
template <class Use> static __device__ void any_corners(int rows, int columns, Use use) {
    const int down = (rows - 1) / 16 + 1, across = columns / 8;
    for (int i = threadIdx.x / 32; i < down * across; i += WARPS)
        use(i % down * 16, i / down * 8);
}

/** What a block of threads looks at: its tile, and the slice of it. Columns that do not exist are 0 in X and dY; what
 *  they give in shared memory may be anything, and is not to be read in a product over columns. */
struct any_place {
    const any_tiling &t;
    const tlob_block_fused_args &a;
    int64_t first; /* column of the tile */
    int count;     /* of its columns that exist */
    int row;       /* the slice's first */

    __device__ float x(int column, int row) const {
        return column < count ? *(a.x + (first + column) * t.d_in + row) : 0.0f;
    }

    __device__ float dy(int column, int row) const {
        return column < count ? *(a.dy + (first + column) * t.d_out + row) : 0.0f;
    }

    /** W_Q, W_K or W_V at a row of the slice. */
    __device__ float project(int m, int r, int column) const {
        return *(a.weights + m * t.d_out * t.d_in + row + r + t.d_out * column);
    }

    __device__ float out(int row, int column) const {
        return *(a.weights + 3 * t.d_out * t.d_in + row + t.d_out * column);
    }
};

/** The slice of Q, K and V, one after the other: as one product, so that no warp waits for work. */
template <bool FP32> static __device__ void any_project(const any_place &p, float *qkv) {
    const any_tiling &t = p.t;
    any_corners(t.columns, 3 * t.width, [&](int column, int of_all) {
        const int m = of_all / t.width, r = of_all % t.width;
        float c[4], *to = qkv + m * t.columns * t.ld;
        any_product<FP32>(
            c, t.d_in / 8, [&](int i, int k) { return p.x(column + i, k); },
            [&](int k, int j) { return p.project(m, r + j, k); });
        any_elements(column, r, [&](int i, int col, int row) { to[col * t.ld + row] = c[i]; });
    });
}

/* --- attention -------------------------------------------------------------------------------------------------- */

/** Where token i of a group lies in an array of `ld` floats a column, from `at` on. */
struct any_group {
    int at, step;

    __device__ any_group(const any_tiling &t, int group, int ld, int head_dim) {
        at = t.seq ? group / t.heads * t.seq * ld + group % t.heads * head_dim : group * ld;
        step = t.seq ? ld : head_dim;
    }

    __device__ int of(int token) const {
        return at + token * step;
    }
};

/** use(group, token, row of the statistics within the tile's slice), by the thread whose token it is. Neighbouring
 *  threads take neighbouring columns. */
template <class Use> static __device__ void any_tokens(const any_tiling &t, Use use) {
    for (int i = threadIdx.x; i < t.groups * t.tokens; i += THREADS) {
        const int group = t.seq ? i / t.tokens : i % t.groups, token = t.seq ? i % t.tokens : i / t.groups;
        use(group, token, i);
    }
}

template <int D> struct any_vector {
    float e[D];

    __device__ any_vector(const float *from, float scale = 1.0f) {
#pragma unroll
        for (int i = 0; i < D; i += 4) {
            const float4 four = *(const float4 *)(from + i);
            e[i] = four.x * scale;
            e[i + 1] = four.y * scale;
            e[i + 2] = four.z * scale;
            e[i + 3] = four.w * scale;
        }
    }

    __device__ any_vector() {
#pragma unroll
        for (int i = 0; i < D; i++)
            e[i] = 0.0f;
    }

    __device__ float dot(const any_vector &with) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < D; i++)
            sum = fmaf(e[i], with.e[i], sum);
        return sum;
    }

    __device__ void add(float by, const any_vector &of) {
#pragma unroll
        for (int i = 0; i < D; i++)
            e[i] = fmaf(by, of.e[i], e[i]);
    }

    __device__ void put(float *to, float scale = 1.0f) const {
#pragma unroll
        for (int i = 0; i < D; i += 4)
            *(float4 *)(to + i) = make_float4(e[i] * scale, e[i + 1] * scale, e[i + 2] * scale, e[i + 3] * scale);
    }
};

/** 2^(score - max): 1 at the maximum itself, even an infinite one. */
[[maybe_unused]] static __device__ float any_weight(float score, float max) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(score - max));
    return score == max ? 1.0f : power;
}

/** o = P v of one query, the largest score and 1 / sum of 2^(score - max). q: times log2(e) / sqrt(head_dim). */
template <int D>
static __device__ any_vector<D> any_attend(const any_tiling &t, const any_group &group, const any_vector<D> &q,
                                           const float *k, const float *v, float *max, float *inv_sum) {
    any_vector<D> o;
    float sum = 0.0f;
    *max = -INFINITY;
    for (int j = 0; j < t.tokens; j++)
        *max = fmaxf(*max, q.dot(any_vector<D>(k + group.of(j))));
    for (int j = 0; j < t.tokens; j++) {
        const float weight = any_weight(q.dot(any_vector<D>(k + group.of(j))), *max);
        sum += weight;
        o.add(weight, any_vector<D>(v + group.of(j)));
    }
    *inv_sum = __fdividef(1.0f, sum);
#pragma unroll
    for (int i = 0; i < D; i++)
        o.e[i] *= *inv_sum;
    return o;
}

/** The row of P among all, as tlob_attend_args counts them. */
[[maybe_unused]] static __device__ int64_t any_row(const any_place &p, int group, int token, int slice) {
    const any_tiling &t = p.t;
    if (!t.seq)
        return (p.first + group) * t.tokens + token;
    const int64_t sample = p.first / t.seq + group / t.heads;
    return (sample * (t.heads * t.slices) + slice * t.heads + group % t.heads) * t.seq + token;
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

template <int D, bool FP32>
static __global__ void __launch_bounds__(THREADS, 2)
    block_fused_any_forward(const __grid_constant__ tlob_block_fused_args a, const __grid_constant__ any_tiling t,
                            float scale) {
#if __CUDA_ARCH__ >= TLOB_MMA_ARCH
    extern __shared__ float4 shared[];
    float *const q = (float *)shared, *const k = q + t.columns * t.ld, *const v = k + t.columns * t.ld;
    float *const o = v + t.columns * t.ld;
    wait_for_kernel_before();
    let_next_start(); /* behind the wait: the backward pass counts on it */
    for (int64_t tile = blockIdx.x; tile < t.tiles; tile += gridDim.x) {
        any_place p = {t, a, tile * t.used, 0, 0};
        p.count = (int)(a.columns - p.first < t.used ? a.columns - p.first : t.used);
        for (int slice = 0; slice < t.slices; slice++, p.row += t.width) {
            any_project<FP32>(p, q);
            __syncthreads();
            any_tokens(t, [&](int group, int token, int) {
                const any_group in(t, group, t.ld, D), to(t, group, t.ld_o, D);
                float max, inv_sum;
                any_attend<D>(t, in, any_vector<D>(q + in.of(token), scale), k, v, &max, &inv_sum)
                    .put(o + p.row + to.of(token));
                if (a.focus && (t.seq ? group / t.heads * t.seq : group) < p.count)
                    a.focus[any_row(p, group, token, slice)] = inv_sum;
            });
            __syncthreads();
        }
        any_corners(t.columns, t.d_out, [&](int column, int r) {
            float c[4];
            any_product<FP32>(
                c, t.d_out / 8, [&](int i, int k) { return o[(column + i) * t.ld_o + k]; },
                [&](int k, int j) { return p.out(r + j, k); });
            any_elements(column, r, [&](int i, int col, int row) {
                if (col < p.count)
                    a.y[(p.first + col) * t.d_out + row] = c[i];
            });
        });
    }
#else
    __trap(); /* block.c sends nothing here */
#endif
}

/* --- backward --------------------------------------------------------------------------------------------------- */

/** A slice's arrays in shared memory. */
struct any_slices {
    float *q, *k, *v, *dq, *dk, *dv, *d_o, *o; /* one after the other */
    float *max, *inv_sum, *dot;                /* of each row of P, and rowsum(dP * P) */

    __device__ any_slices(const any_tiling &t, float *all) {
        const int size = t.columns * t.ld, rows = t.groups * t.tokens;
        q = all;
        k = q + size;
        v = k + size;
        dq = v + size;
        dk = dq + size;
        dv = dk + size;
        d_o = dv + size;
        o = d_o + size;
        max = o + size;
        inv_sum = max + rows;
        dot = inv_sum + rows;
    }
};

static int any_backward_floats(const any_tiling &t) {
    return 8 * t.columns * t.ld + 3 * t.groups * t.tokens;
}

/** O and dQ, and the statistics: a thread for each query, which leaves Q times `scale`, so that scores have the same
 *  bits when they are computed again. */
template <int D>
static __device__ void any_queries(const any_tiling &t, const any_slices &s, float scale, float root) {
    any_tokens(t, [&](int group, int token, int row) {
        const any_group at(t, group, t.ld, D);
        const any_vector<D> q(s.q + at.of(token), scale), d_o(s.d_o + at.of(token));
        float max, inv_sum;
        const any_vector<D> o = any_attend<D>(t, at, q, s.k, s.v, &max, &inv_sum);
        const float dot = o.dot(d_o);
        any_vector<D> dq;
        for (int j = 0; j < t.tokens; j++) {
            const any_vector<D> k(s.k + at.of(j));
            const float p = any_weight(q.dot(k), max) * inv_sum;
            dq.add(p * (d_o.dot(any_vector<D>(s.v + at.of(j))) - dot), k);
        }
        q.put(s.q + at.of(token));
        o.put(s.o + at.of(token));
        dq.put(s.dq + at.of(token), root);
        s.max[row] = max;
        s.inv_sum[row] = inv_sum;
        s.dot[row] = dot;
    });
}

/** dK and dV: a thread for each key. unscale: 1 / (sqrt(head_dim) times what Q was multiplied by). */
template <int D> static __device__ void any_keys(const any_tiling &t, const any_slices &s, float unscale) {
    any_tokens(t, [&](int group, int token, int) {
        const any_group at(t, group, t.ld, D);
        const any_vector<D> k(s.k + at.of(token)), v(s.v + at.of(token));
        any_vector<D> dk, dv;
        for (int i = 0; i < t.tokens; i++) {
            const any_vector<D> q(s.q + at.of(i)), d_o(s.d_o + at.of(i));
            const int row = t.seq ? group * t.tokens + i : i * t.groups + group;
            const float p = any_weight(q.dot(k), s.max[row]) * s.inv_sum[row];
            dv.add(p, d_o);
            dk.add(p * (d_o.dot(v) - s.dot[row]), q);
        }
        dk.put(s.dk + at.of(token), unscale);
        dv.put(s.dv + at.of(token));
    });
}

/** The slice's part of the gradients of the weights, set by the first tile of a chunk and added to by the others. */
template <bool FP32>
static __device__ void any_add_weights(const any_place &p, const any_slices &s, float *sums, bool set) {
    const any_tiling &t = p.t;
    auto take = [&](float *to, float value) { *to = set ? value : *to + value; };
    any_corners(t.width, 3 * t.d_in, [&](int r, int of_all) {
        const int m = of_all / t.d_in, in = of_all % t.d_in;
        const float *d = s.dq + m * t.columns * t.ld;
        float c[4];
        any_product<FP32>(
            c, t.columns / 8,
            [&](int i, int k) { return k < p.count && r + i < t.width ? d[k * t.ld + r + i] : 0.0f; },
            [&](int k, int j) { return p.x(k, in + j); });
        any_elements(r, in, [&](int i, int row, int column) {
            if (row < t.width)
                take(sums + m * t.d_out * t.d_in + p.row + row + t.d_out * column, c[i]);
        });
    });
    any_corners(t.d_out, t.width, [&](int r, int in) {
        float c[4];
        any_product<FP32>(
            c, t.columns / 8, [&](int i, int k) { return r + i < t.d_out ? p.dy(k, r + i) : 0.0f; },
            [&](int k, int j) { return k < p.count ? s.o[k * t.ld + in + j] : 0.0f; });
        any_elements(r, in, [&](int i, int row, int column) {
            if (row < t.d_out)
                take(sums + 3 * t.d_out * t.d_in + row + t.d_out * (p.row + column), c[i]);
        });
    });
}

/** The slice's part of dX, to which every slice adds. */
template <bool FP32> static __device__ void any_add_dx(const any_place &p, const any_slices &s) {
    const any_tiling &t = p.t;
    any_corners(t.columns, t.d_in, [&](int column, int in) {
        float c[3][4];
#pragma unroll
        for (int m = 0; m < 3; m++)
            any_product<FP32>(
                c[m], t.width / 8, [&](int i, int k) { return s.dq[(m * t.columns + column + i) * t.ld + k]; },
                [&](int k, int j) { return p.project(m, k, in + j); });
        any_elements(column, in, [&](int i, int col, int row) {
            float *to = p.a.dx + (p.first + col) * t.d_in + row;
            if (col < p.count)
                *to = (p.row ? *to : 0.0f) + (c[0][i] + c[1][i] + c[2][i]);
        });
    });
}

/** One block of threads for each chunk. scale: log2(e) / sqrt(head_dim), root: 1 / sqrt(head_dim), unscale: ln 2. */
template <int D, bool FP32>
static __global__ void __launch_bounds__(THREADS, 1)
    block_fused_any_backward(const __grid_constant__ tlob_block_fused_args a, const __grid_constant__ any_tiling t,
                             float scale, float root, float unscale) {
#if __CUDA_ARCH__ >= TLOB_MMA_ARCH
    extern __shared__ float4 shared[];
    const any_slices s(t, (float *)shared);
    let_next_start();
    wait_for_kernel_before();
    float *sums = a.partial + blockIdx.x * (int64_t)(3 * t.d_out * t.d_in + t.d_out * t.d_out);
    const int64_t from = blockIdx.x * t.chunk, to = from + t.chunk < t.tiles ? from + t.chunk : t.tiles;
    for (int64_t tile = from; tile < to; tile++) {
        any_place p = {t, a, tile * t.used, 0, 0};
        p.count = (int)(a.columns - p.first < t.used ? a.columns - p.first : t.used);
        for (int slice = 0; slice < t.slices; slice++, p.row += t.width) {
            __syncthreads(); /* the slice before has been read */
            any_project<FP32>(p, s.q);
            any_corners(t.columns, t.width, [&](int column, int r) {
                float c[4];
                any_product<FP32>(
                    c, t.d_out / 8, [&](int i, int k) { return p.dy(column + i, k); },
                    [&](int k, int j) { return p.out(k, p.row + r + j); });
                any_elements(column, r, [&](int i, int col, int row) { s.d_o[col * t.ld + row] = c[i]; });
            });
            __syncthreads();
            any_queries<D>(t, s, scale, root);
            __syncthreads();
            any_keys<D>(t, s, unscale);
            __syncthreads();
            if (a.partial)
                any_add_weights<FP32>(p, s, sums, tile == from);
            if (a.dx)
                any_add_dx<FP32>(p, s);
        }
    }
#else
    __trap(); /* block.c sends nothing here */
#endif
}

/* --- launches --------------------------------------------------------------------------------------------------- */

static int any_forward_floats(const any_tiling &t) {
    return t.columns * (3 * t.ld + t.ld_o);
}

/** All shapes have one kernel between them, and so one limit of its shared memory: two threads that set it to what each
 *  needs would undo each other's. */
template <class... Params, class... Args>
static int start(struct CUstream_st *stream, const tlob_block_fused_args *x, int64_t blocks, int floats,
                 void (*kernel)(Params...), Args... args) {
    const int code = taken(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ROOM));
    return code ? code
                : launch_overlapping(stream, x->overlaps, blocks, THREADS, floats * (int)sizeof(float), kernel,
                                     args...);
}

/** use(the kernel's head_dim and compute mode as template arguments) */
#define FOR_HEAD(x, name, ...)                                                                                         \
    switch ((int)(x)->shape.head_dim) {                                                                                \
    case 4:                                                                                                            \
        return (x)->compute == TLOB_COMPUTE_FP32 ? name<4, true>(__VA_ARGS__) : name<4, false>(__VA_ARGS__);           \
    case 8:                                                                                                            \
        return (x)->compute == TLOB_COMPUTE_FP32 ? name<8, true>(__VA_ARGS__) : name<8, false>(__VA_ARGS__);           \
    case 16:                                                                                                           \
        return (x)->compute == TLOB_COMPUTE_FP32 ? name<16, true>(__VA_ARGS__) : name<16, false>(__VA_ARGS__);         \
    case 32:                                                                                                           \
        return (x)->compute == TLOB_COMPUTE_FP32 ? name<32, true>(__VA_ARGS__) : name<32, false>(__VA_ARGS__);         \
    default:                                                                                                           \
        return (int)cudaErrorInvalidValue; /* tlob_block_fused_obstacle has named it */                                \
    }

template <int D, bool FP32> static int run_forward(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    const any_tiling t = tiling_of(x);
    const int64_t most = 8 * (int64_t)x->multiprocessors;
    return start(stream, x, t.tiles < most ? t.tiles : most, any_forward_floats(t), block_fused_any_forward<D, FP32>,
                 *x, t, (float)fused_scale(D));
}

template <int D, bool FP32> static int run_backward(struct CUstream_st *stream, const tlob_block_fused_args *x) {
    const any_tiling t = tiling_of(x);
    const double root = 1.0 / sqrt((double)D);
    return start(stream, x, (t.tiles - 1) / t.chunk + 1, any_backward_floats(t), block_fused_any_backward<D, FP32>, *x,
                 t, (float)fused_scale(D), (float)root, (float)(root / fused_scale(D)));
}

int tlob_block_fused_any_forward(struct CUstream_st *stream, const tlob_block_fused_args *args) {
    FOR_HEAD(args, run_forward, stream, args)
}

int tlob_block_fused_any_backward(struct CUstream_st *stream, const tlob_block_fused_args *args) {
    FOR_HEAD(args, run_backward, stream, args)
}

template <int... D> static int load_heads() {
    const int code = load(block_fused_any_forward<D, true>..., block_fused_any_forward<D, false>...);
    return code ? code : load(block_fused_any_backward<D, true>..., block_fused_any_backward<D, false>...);
}

int tlob_block_fused_any_load() {
    return load_heads<4, 8, 16, 32>();
}
