#include "libtlob/kernels/epilogue.h"
#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

/*
 * One kernel a call. Epilogues without sums are elementwise; those with sums read and write their matrix in the same
 * walk that adds it up.
 */

/** A mask word covers the 32 rows of a warp. ld_aux is a multiple of 128, so that words neither split nor overrun. */
static __device__ uint32_t *mask_word(const tlob_finish_args &a, int64_t matrix, int64_t column, int64_t row) {
    return (uint32_t *)a.x.aux + (matrix * a.gemm.stride_aux + column * a.gemm.ld_aux + row) / 32;
}

static __device__ float *aux_float(const tlob_finish_args &a, int64_t matrix, int64_t column, int64_t row) {
    return (float *)a.x.aux + matrix * a.gemm.stride_aux + column * a.gemm.ld_aux + row;
}

/* --- elementwise ----------------------------------------------------------------------------------------------- */

static constexpr __host__ __device__ bool has_bias(tlob_epilogue e) {
    return e != TLOB_EPILOGUE_RELU;
}

/** Rows of a column that threads are given: whole warps where they vote on a mask. */
static __host__ __device__ int64_t rows_covered(tlob_epilogue e, int64_t m) {
    return e == TLOB_EPILOGUE_RELU_AUX_BIAS ? (m + 31) / 32 * 32 : m;
}

template <tlob_epilogue E, class Index>
static __global__ void elementwise(tlob_finish_args a, Index rows, Index columns, Index count) {
    const tlob_gemm &g = a.gemm;
    TLOB_GRID_LOOP_OF(Index, i, count) {
        Index all_columns = i / rows, row = i - all_columns * rows;
        Index matrix = all_columns / columns, column = all_columns - matrix * columns;
        float *d = a.x.d + matrix * g.stride_c + column * g.ldc + row;
        float z = 0.0f;
        if (row < g.m)
            z = has_bias(E) ? *d + a.x.bias[matrix * g.stride_bias + row] : *d;

        if (E == TLOB_EPILOGUE_RELU_AUX_BIAS) { /* the grid and its stride are whole warps, and so is the range */
            unsigned word = __ballot_sync(0xffffffffu, !(z < 0.0f));
            if (row % 32 == 0)
                *mask_word(a, matrix, column, row) = word;
            if (row >= g.m)
                continue;
            z = tlob_relu_nan(z);
        } else if (E == TLOB_EPILOGUE_RELU || E == TLOB_EPILOGUE_RELU_BIAS) {
            z = tlob_relu(z);
        } else if (E == TLOB_EPILOGUE_GELU_BIAS) {
            z = tlob_gelu(z);
        } else if (E == TLOB_EPILOGUE_GELU_AUX_BIAS) {
            *aux_float(a, matrix, column, row) = z;
            z = tlob_gelu(z);
        }
        *d = z;
    }
}

template <tlob_epilogue E, class Index>
static int each_element_of(struct CUstream_st *stream, const tlob_finish_args &a, int64_t count) {
    return launch(stream, count, TLOB_BLOCK, elementwise<E, Index>, a, (Index)rows_covered(E, a.gemm.m),
                  (Index)a.gemm.n, (Index)count);
}

template <tlob_epilogue E> static int each_element(struct CUstream_st *stream, const tlob_finish_args &a) {
    const int64_t count = rows_covered(E, a.gemm.m) * a.gemm.n * a.gemm.batch;
    return tlob_index_fits(count) ? each_element_of<E, uint32_t>(stream, a, count)
                                  : each_element_of<E, int64_t>(stream, a, count);
}

/* --- sums ------------------------------------------------------------------------------------------------------ */

/* A block sums 32 rows of one matrix with 32 threads each. */
#define TILE 32

/**
 * A matrix seen as `rows` sums of `terms` terms: term l of row r of matrix b lies at b*stride + r*step + l*step_term.
 * One of the steps is 1, and threads of a warp lie along it, so that they read neighbouring floats.
 */
struct summed {
    const float *from;
    float *to;
    int64_t rows, terms, step, step_term, stride, stride_to, batch;
};

/** D on its way through the mask or the derivative; or A or B as they are. */
template <tlob_epilogue E>
static __device__ float term(const tlob_finish_args &a, const float *from, int64_t matrix, int64_t row, int64_t l) {
    if (E == TLOB_EPILOGUE_DRELU_BGRAD)
        return *mask_word(a, matrix, l, row) >> row % 32 & 1 ? *from : 0.0f;
    if (E == TLOB_EPILOGUE_DGELU_BGRAD)
        return *from * tlob_gelu_slope(*aux_float(a, matrix, l, row));
    return *from;
}

/** The terms lane, lane + 32, ... of a row in order; D is stored. Some are loaded before a store is in the way. */
template <tlob_epilogue E>
static __device__ double walk(const tlob_finish_args &a, const summed &s, int64_t matrix, int64_t row, int lane) {
    constexpr int ahead = 4;
    constexpr bool stores = E == TLOB_EPILOGUE_DRELU_BGRAD || E == TLOB_EPILOGUE_DGELU_BGRAD;
    const int64_t base = matrix * s.stride + row * s.step;
    double sum = 0.0;
    for (int64_t first = lane; first < s.terms; first += ahead * TILE) {
        float value[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            int64_t l = first + i * TILE;
            value[i] = l < s.terms ? term<E>(a, s.from + base + l * s.step_term, matrix, row, l) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            int64_t l = first + i * TILE;
            if (stores && l < s.terms)
                a.x.d[base + l * s.step_term] = value[i];
            sum += value[i];
        }
    }
    return sum;
}

/** The lanes of a row meet in a tree of fixed shape. In double: the kernel waits for memory anyway, and a sum over a
 *  million columns keeps its digits. */
template <tlob_epilogue E> static __global__ void __launch_bounds__(TILE *TILE) sums(tlob_finish_args a, summed s) {
    __shared__ double part[TILE][TILE + 1]; /* [lane][row]; one more, so that a column lies across the banks */
    const bool side_by_side = s.step == 1;
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const int local = side_by_side ? x : y, lane = side_by_side ? y : x;
    const int64_t tiles = (s.rows + TILE - 1) / TILE;
    for (int64_t work = blockIdx.x; work < tiles * s.batch; work += gridDim.x) {
        int64_t matrix = work / tiles, row = (work - matrix * tiles) * TILE + local;
        part[lane][local] = row < s.rows ? walk<E>(a, s, matrix, row, lane) : 0.0;
        __syncthreads();
        for (int half = TILE / 2; half > 0; half /= 2) {
            if (y < half)
                part[y][x] += part[y + half][x];
            __syncthreads();
        }
        row += x - local;
        if (y == 0 && row < s.rows)
            s.to[matrix * s.stride_to + row] = (float)part[0][x];
        __syncthreads(); /* `part` is written again for the next piece of work */
    }
}

template <tlob_epilogue E> static int each_sum(struct CUstream_st *stream, const tlob_finish_args &a, const summed &s) {
    return launch(stream, (s.rows + TILE - 1) / TILE * s.batch * TILE * TILE, TILE * TILE, sums<E>, a, s);
}

static summed of_d(const tlob_finish_args &a) {
    const tlob_gemm &g = a.gemm;
    return {a.x.d, a.x.bgrad, g.m, g.n, 1, g.ldc, g.stride_c, g.stride_bias, g.batch};
}

static summed of_operand(const tlob_finish_args &a) {
    const tlob_gemm &g = a.gemm;
    if (g.epilogue == TLOB_EPILOGUE_BGRADA) {
        bool across = g.transa == TLOB_OP_N;
        return {a.x.a, a.x.bgrad, g.m, g.k, across ? 1 : g.lda, across ? g.lda : 1, g.stride_a, g.stride_bias, g.batch};
    }
    bool across = g.transb == TLOB_OP_T;
    return {a.x.b, a.x.bgrad, g.n, g.k, across ? 1 : g.ldb, across ? g.ldb : 1, g.stride_b, g.stride_bias, g.batch};
}

extern "C" int tlob_cuda_finish(struct CUstream_st *stream, const tlob_finish_args *args) {
    const tlob_finish_args &a = *args;
    switch (a.gemm.epilogue) {
    case TLOB_EPILOGUE_NONE:
        break;
    case TLOB_EPILOGUE_BIAS:
        return each_element<TLOB_EPILOGUE_BIAS>(stream, a);
    case TLOB_EPILOGUE_RELU:
        return each_element<TLOB_EPILOGUE_RELU>(stream, a);
    case TLOB_EPILOGUE_RELU_BIAS:
        return each_element<TLOB_EPILOGUE_RELU_BIAS>(stream, a);
    case TLOB_EPILOGUE_RELU_AUX_BIAS:
        return each_element<TLOB_EPILOGUE_RELU_AUX_BIAS>(stream, a);
    case TLOB_EPILOGUE_GELU_BIAS:
        return each_element<TLOB_EPILOGUE_GELU_BIAS>(stream, a);
    case TLOB_EPILOGUE_GELU_AUX_BIAS:
        return each_element<TLOB_EPILOGUE_GELU_AUX_BIAS>(stream, a);
    case TLOB_EPILOGUE_DRELU_BGRAD:
        return each_sum<TLOB_EPILOGUE_DRELU_BGRAD>(stream, a, of_d(a));
    case TLOB_EPILOGUE_DGELU_BGRAD:
        return each_sum<TLOB_EPILOGUE_DGELU_BGRAD>(stream, a, of_d(a));
    case TLOB_EPILOGUE_BGRADA:
    case TLOB_EPILOGUE_BGRADB:
        return each_sum<TLOB_EPILOGUE_BGRADA>(stream, a, of_operand(a)); /* one kernel for both */
    }
    return 0;
}

template <tlob_epilogue... E> static int load_elementwise() {
    return load(elementwise<E, uint32_t>..., elementwise<E, int64_t>...);
}

extern "C" int tlob_cuda_load_finish(void) {
    int code = load_elementwise<TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_RELU, TLOB_EPILOGUE_RELU_BIAS,
                                TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_GELU_BIAS, TLOB_EPILOGUE_GELU_AUX_BIAS>();
    return code ? code
                : load(sums<TLOB_EPILOGUE_DRELU_BGRAD>, sums<TLOB_EPILOGUE_DGELU_BGRAD>, sums<TLOB_EPILOGUE_BGRADA>);
}
