/**
 * Attention in tiles on tensor cores, after FlashAttention-2 (Dao 2023): a block of threads keeps OWN tokens of a group
 * in shared memory and walks through the group's others tile by tile; no score leaves its registers. Forward and the
 * gradient of Q own queries and walk through keys, the gradients of K and V own keys and walk through queries: three
 * kernels, so that every sum belongs to one thread and has one order, at the price of forming the scores anew in each.
 *
 * Products are mma.m16n8k8 on TF32. In FP32 each operand is split in two, x = high + low, and a product takes three of
 * them, high high + (low high + high low), which keeps 21 bits of each operand (the 3xTF32 of CUTLASS). The tensor
 * cores round sums towards zero, so FP32 adds up long sums, those over tiles, in registers, as Ootomo and Yokota (2022)
 * do.
 */
#ifndef TLOB_KERNELS_ATTEND_TILES_CUH
#define TLOB_KERNELS_ATTEND_TILES_CUH

#include "libtlob/kernels/attend.cuh"
#include "libtlob/kernels/mma.cuh"

#define WARPS      4
#define THREADS    (32 * WARPS)
#define OWN        (16 * WARPS) /* each warp owns the 16 rows of an mma */
#define SHARED_MAX (99 * 1024) /* bytes: a block may have them on every device, and two blocks fit on an sm_90 */

/** Floats from row to row of a tile. Four more than a row has: then neither ldmatrix, which takes 4 floats of 8 rows,
 *  nor the loads of one float of 8 columns in every second row meet in a bank. */
static constexpr __host__ __device__ int pitch_of(int d) {
    return d + 4;
}

/* --- tiles in shared memory ------------------------------------------------------------------------------------- */

/** ROWS x D floats in shared memory; each thread copies, and then rounds, the same fours of them. */
template <int ROWS, int D> struct tile {
    static constexpr int size = ROWS * pitch_of(D);

    /** AT_ONCE of the fours in one turn of the loop. */
    template <int AT_ONCE, class Use> static __device__ void each_four(Use use) {
#pragma unroll AT_ONCE
        for (int i = threadIdx.x; i < ROWS * D / 4; i += THREADS)
            use(i / (D / 4), i % (D / 4) * 4);
    }

    /** Begins to copy `rows` tokens of head_dim floats; 0 takes the place of what lies beyond either. */
    static __device__ void fetch(float *to, const float *from, int64_t stride, int rows, int head_dim, bool vectors) {
        /* One at once: addresses worked out ahead would take the registers of the products. */
        each_four<1>([&](int row, int e) {
            const float *at = row < rows ? from + row * stride : from;
            const int there = row < rows ? head_dim - e : 0;
            float *put = to + row * pitch_of(D) + e;
            if (vectors) {
                copy_async<16>(put, there > 0 ? at + e : from, there > 0);
                return;
            }
            for (int i = 0; i < 4; i++)
                copy_async<4>(put + i, i < there ? at + e + i : from, i < there);
        });
    }

    static __device__ void round(float *t) {
        each_four<4>([&](int row, int e) {
            float4 *four = (float4 *)(t + row * pitch_of(D) + e);
            *four = make_float4(rounded(four->x), rounded(four->y), rounded(four->z), rounded(four->w));
        });
    }
};

/* --- products of tiles ------------------------------------------------------------------------------------------ */

/*
 * Lane l of a warp has, of the 16 x 8 sums of an mma, rows l/4 and l/4 + 8, columns 2(l%4) and 2(l%4) + 1: c[0], c[1]
 * in the upper row, c[2], c[3] in the lower. As an operand of the next product the mma wants columns l%4 and l%4 + 4 of
 * it. A sum over columns may take them in any order, so c serves as it lies, and the other operand's rows follow suit.
 */
static __device__ int upper_row() {
    return (threadIdx.x % 32) / 4;
}

static __device__ int first_column() {
    return threadIdx.x % 4 * 2;
}

/** use(n, i) for every sum that a lane has of 16 x 8 N. */
template <int N, class Use> static __device__ void each_sum(Use use) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            use(n, i);
}

/** c += a b, or in FP32 what is smaller than c's last bits to `rest`. */
template <bool FP32>
static __device__ void multiply(float (&c)[4], float (&rest)[4], const operand<4> &a, const operand<2> &b) {
    if (FP32) {
        mma(rest, a.low, b.high);
        mma(rest, a.high, b.low);
    }
    mma(c, a.high, b.high);
}

/** Both parts of a sum; an infinite or NaN one is right already, while its rest is NaN. */
static __device__ float whole(float sum, float rest) {
    return isfinite(sum) ? sum + rest : sum;
}

/** Four 8 x 4 parts of a tile: lane l has of each row l/4, column l%4, and names with `row` the row that it fetches. */
static __device__ void load_parts(float (&x)[4], const float *row) {
    uint32_t b[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = __uint_as_float(b[i]);
}

/** c = A B^T for 16 rows of A, 8 N rows of B, D columns: the dot products of tokens. */
template <bool FP32, int D, int N>
static __device__ void dot_products(float (&c)[N][4], const float *a, const float *b) {
    const int lane = threadIdx.x % 32;
    constexpr int AT_ONCE = D <= 32 ? 2 : 4; /* eights of columns: more would spill */
    float rest[N][4] = {};
    a += lane % 16 * pitch_of(D) + lane / 16 * 4;
    b += (lane % 8 + lane / 16 * 8) * pitch_of(D) + lane / 8 % 2 * 4;
    each_sum<N>([&](int n, int i) { c[n][i] = 0.0f; });
#pragma unroll AT_ONCE
    for (int e = 0; e < D; e += 8) {
        float rows[4];
        load_parts(rows, a + e);
        const operand<4> left = split<FP32>(rows);
#pragma unroll
        for (int n = 0; n < N; n += 2) { /* 16 rows of B at once */
            load_parts(rows, b + n * 8 * pitch_of(D) + e);
            const float even[2] = {rows[0], rows[1]}, odd[2] = {rows[2], rows[3]};
            multiply<FP32>(c[n], rest[n], left, split<FP32>(even));
            multiply<FP32>(c[n + 1], rest[n + 1], left, split<FP32>(odd));
        }
    }
    if (FP32) {
        each_sum<N>([&](int n, int i) { c[n][i] = whole(c[n][i], rest[n][i]); });
    }
}

/** sums += P B for 16 x 8 N factors P, 8 N rows of B, D columns; factors(n) gives its columns from 8n on. */
template <bool FP32, int D, int N, class Factors>
static __device__ void add_products(float (&sums)[D / 8][4], const float *b, Factors factors) {
    constexpr int AT_ONCE = !FP32 || D < 32 ? D / 8 : D < 128 ? 4 : 2; /* the fresh sums of FP32 are held besides */
    b += first_column() * pitch_of(D) + upper_row();
#pragma unroll
    for (int first = 0; first < D / 8; first += AT_ONCE) {
        float fresh[AT_ONCE][4] = {}, rest[AT_ONCE][4] = {};
#pragma unroll
        for (int n = 0; n < N; n++) {
            const operand<4> left = factors(n);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float *at = b + n * 8 * pitch_of(D) + (first + i) * 8, rows[2] = {at[0], at[pitch_of(D)]};
                multiply<FP32>(FP32 ? fresh[i] : sums[first + i], rest[i], left, split<FP32>(rows));
            }
        }
        if (FP32)
            each_sum<AT_ONCE>([&](int n, int i) { sums[first + n][i] += whole(fresh[n][i], rest[n][i]); });
    }
}

template <bool FP32> static __device__ operand<4> factors_of(float a, float b, float c, float d) {
    const float cut[4] = {a, b, c, d}, near[4] = {rounded(a), rounded(b), rounded(c), rounded(d)};
    return split<FP32>(FP32 ? cut : near);
}

/** sums += P B, with P as a product left it in registers. */
template <bool FP32, int D, int N>
static __device__ void add_rows(float (&sums)[D / 8][4], const float (&p)[N][4], const float *b) {
    add_products<FP32, D, N>(sums, b, [&](int n) { return factors_of<FP32>(p[n][0], p[n][2], p[n][1], p[n][3]); });
}

/** sums += P^T B for the 16 columns of P from `p` on, which lies in shared memory with pitch_of(8 N). */
template <bool FP32, int D, int N>
static __device__ void add_columns(float (&sums)[D / 8][4], const float *p, const float *b) {
    constexpr int PITCH = pitch_of(8 * N);
    p += first_column() * PITCH + upper_row();
    add_products<FP32, D, N>(sums, b, [&](int n) {
        const float *at = p + n * 8 * PITCH;
        return factors_of<FP32>(at[0], at[8], at[PITCH], at[PITCH + 8]);
    });
}

/** x = value in the columns of a tile from `left` on. */
template <int N> static __device__ void fill_past(float (&x)[N][4], int left, float value) {
    if (left >= 8 * N)
        return;
    each_sum<N>([&](int n, int i) { x[n][i] = 8 * n + first_column() + i % 2 < left ? x[n][i] : value; });
}

/** Sum over the four lanes that share a row; the same bits in all four. */
static __device__ float row_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

static __device__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/** x = 0 in the rows of a warp from `left` on. */
template <int N> static __device__ void clear_rows(float (&x)[N][4], int left) {
    each_sum<N>([&](int n, int i) { x[n][i] = upper_row() + i / 2 * 8 < left ? x[n][i] : 0.0f; });
}

/** A warp's 16 rows of 8 N columns into shared memory. */
template <int N> static __device__ void put_rows(float *to, const float (&x)[N][4]) {
    to += upper_row() * pitch_of(8 * N) + first_column();
#pragma unroll
    for (int n = 0; n < N; n++) {
        *(float2 *)(to + 8 * n) = make_float2(x[n][0], x[n][1]);
        *(float2 *)(to + 8 * n + 8 * pitch_of(8 * N)) = make_float2(x[n][2], x[n][3]);
    }
}

/** A warp's 16 rows to the tokens from `to` on, of which `rows` exist. */
template <int D>
static __device__ void store_rows(float *to, int64_t stride, int rows, int head_dim, bool vectors,
                                  const float (&x)[D / 8][4], const float (&scale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = upper_row() + 8 * half;
        if (row >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const int e = 8 * n + first_column();
            float *at = to + row * stride + e;
            const float2 two = make_float2(scale[half] * x[n][2 * half], scale[half] * x[n][2 * half + 1]);
            if (vectors && e < head_dim) {
                *(float2 *)at = two;
            } else {
                if (e < head_dim)
                    at[0] = two.x;
                if (e + 1 < head_dim)
                    at[1] = two.y;
            }
        }
    }
}

/* --- where a block of threads works ----------------------------------------------------------------------------- */

/** What every kernel is given beside the operands. */
struct tiling {
    float scale;
    int own_tiles; /**< of a group */
    int buffers;   /**< of walked tiles: 2 where they fit, so that the next comes while one is used */
    bool vectors;  /**< whether vectors_fit */
};

/** Where a group starts in Q, K and V, in O, and in the statistics. */
struct group_place {
    int64_t in, out, row;
};

static __device__ group_place place_of(const tlob_attend_args &x, int64_t group) {
    const int64_t outer = group / x.inner, inner = group - outer * x.inner;
    return {outer * x.in.outer_stride + inner * x.in.inner_stride,
            outer * x.out.outer_stride + inner * x.out.inner_stride, group * x.tokens};
}

/** How many of `size` tokens from `from` on a group has. */
static __device__ int left_of(const tlob_attend_args &x, int64_t from, int size) {
    return (int)(x.tokens - from < size ? x.tokens - from : size);
}

/** The tokens that a block of threads owns: the first of them, and how many they are. */
struct own_place {
    group_place group;
    int64_t first;
    int left;
    int warp_row;  /**< of the tile: where the warp's 16 rows start */
    int warp_left; /**< tokens from there on; 0 or less: none */
};

static __device__ own_place own_place_of(const tlob_attend_args &x, const tiling &t) {
    const int64_t g = blockIdx.x / t.own_tiles;
    own_place p;
    p.group = place_of(x, g);
    p.first = (blockIdx.x - g * t.own_tiles) * (int64_t)OWN;
    p.left = left_of(x, p.first, OWN);
    p.warp_row = threadIdx.x / 32 * 16;
    p.warp_left = p.left - p.warp_row;
    return p;
}

/**
 * A kernel that has TILES own tiles and walks through two tensors. Every kernel says besides:
 *     blocks(D, FP32)  how many blocks of threads must fit on a multiprocessor, which bounds their registers
 *     walk(D, FP32)    tokens of a tile that is walked through: as many as registers have room for their scores, which
 *                      FP32 holds twice for a while
 */
template <int TILES> struct walking_kernel {
    static constexpr int WIDEST = TLOB_ATTEND_HEAD_DIM_MAX, OWN_TILES = TILES;
    static constexpr bool WALKS = true;

    static constexpr __host__ __device__ int own_floats(int d) {
        return OWN_TILES * OWN * pitch_of(d);
    }
};

/** One of a group's tensors in global memory. */
struct tokens_at {
    const float *first;
    int64_t stride;
};

/** Two tensors' own tiles and walked tiles in shared memory. */
template <int WALK, int D, bool FP32> struct pair_of_tiles {
    typedef tile<OWN, D> own_tile;
    typedef tile<WALK, D> walked_tile;

    static __device__ void fetch_walked(const tlob_attend_args &x, const tiling &t, float *to, tokens_at a, tokens_at b,
                                        int64_t from) {
        const int rows = left_of(x, from, WALK), d = (int)x.head_dim;
        walked_tile::fetch(to, a.first + from * a.stride, a.stride, rows, d, t.vectors);
        walked_tile::fetch(to + walked_tile::size, b.first + from * b.stride, b.stride, rows, d, t.vectors);
    }

    /** use(a, b, from, tokens) for every tile of a and b; what was begun to be copied to `own`, `n_own` tiles, is there
     *  then. */
    template <class Use>
    static __device__ void walk(const tlob_attend_args &x, const tiling &t, float *own, int n_own, tokens_at a,
                                tokens_at b, Use use) {
        float *walked = own + n_own * own_tile::size;
        fetch_walked(x, t, walked, a, b, 0);
        int buffer = 0;
        for (int64_t from = 0; from < x.tokens; from += WALK) {
            float *at = walked + buffer * 2 * walked_tile::size;
            wait_for_copies();
            if (!FP32) {
                for (int i = 0; from == 0 && i < n_own; i++)
                    own_tile::round(own + i * own_tile::size);
                walked_tile::round(at);
                walked_tile::round(at + walked_tile::size);
            }
            __syncthreads();
            const int64_t next = from + WALK;
            if (t.buffers == 2 && next < x.tokens) {
                buffer = 1 - buffer;
                fetch_walked(x, t, walked + buffer * 2 * walked_tile::size, a, b, next);
            }
            use(at, at + walked_tile::size, from, left_of(x, from, WALK));
            if (t.buffers == 1 && next < x.tokens) {
                __syncthreads();
                fetch_walked(x, t, walked, a, b, next);
            }
        }
    }
};

template <class Kernel, int D, bool FP32>
static __global__ void __launch_bounds__(THREADS, Kernel::blocks(D, FP32)) attend_tiled(tlob_attend_args x, tiling t) {
#if __CUDA_ARCH__ >= TLOB_MMA_ARCH
    extern __shared__ float4 shared[];
    Kernel::template run<D, FP32>(x, t, (float *)shared);
#else
    __trap(); /* attend.cu sends nothing here */
#endif
}

/* --- launches --------------------------------------------------------------------------------------------------- */

template <class Kernel, int D, bool FP32> static int run(struct CUstream_st *stream, const tlob_attend_args *x) {
    constexpr int WALK = Kernel::walk(D, FP32);
    constexpr int own = Kernel::own_floats(D) * (int)sizeof(float);
    constexpr int walked = Kernel::WALKS ? 2 * tile<WALK, D>::size * (int)sizeof(float) : 0;
    static_assert(own + walked <= SHARED_MAX, "a tile of its own and one to walk through must fit");
    constexpr int most_buffers = own + 2 * walked <= SHARED_MAX ? 2 : 1, most = own + most_buffers * walked;
    const int64_t own_tiles = (x->tokens - 1) / OWN + 1, blocks = x->groups * own_tiles;
    if (blocks <= 0)
        return 0;
    if (blocks > INT32_MAX)
        return (int)cudaErrorInvalidConfiguration;
    const int buffers = x->tokens > WALK ? most_buffers : 1;
    void (*kernel)(tlob_attend_args, tiling) = attend_tiled<Kernel, D, FP32>;
    /* The same for every shape: threads share a kernel's attributes, and another may launch it with both buffers. */
    int code = taken(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    if (code)
        return code;
    const tiling t = {(float)(1.0 / sqrt((double)x->head_dim)), (int)own_tiles, buffers, vectors_fit(x)};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = (size_t)(own + buffers * walked);
    config.stream = stream;
    return taken(cudaLaunchKernelEx(&config, kernel, *x, t));
}

template <class Kernel, int D> static int run_in(struct CUstream_st *stream, const tlob_attend_args *x) {
    return x->compute == TLOB_COMPUTE_TF32 ? run<Kernel, D, false>(stream, x) : run<Kernel, D, true>(stream, x);
}

template <class Kernel> static int run_sized(struct CUstream_st *stream, const tlob_attend_args *x) {
    if (x->head_dim <= 16)
        return run_in<Kernel, 16>(stream, x);
    if (x->head_dim <= 32)
        return run_in<Kernel, 32>(stream, x);
    if (Kernel::WIDEST == 64 || x->head_dim <= 64)
        return run_in<Kernel, 64>(stream, x);
    return run_in<Kernel, Kernel::WIDEST>(stream, x);
}

template <class Kernel, int... D> static int load_in() {
    return load(attend_tiled<Kernel, D, false>..., attend_tiled<Kernel, D, true>...);
}

/** All that run_sized chooses from. */
template <class Kernel> static int load_sized() {
    return load_in<Kernel, 16, 32, 64, Kernel::WIDEST>();
}

#endif
