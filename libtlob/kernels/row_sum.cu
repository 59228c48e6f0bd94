#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/row_sum.h"
#include "libtlob/kernels/table.h"

/**
 * One block sums one chunk of columns for up to 32 rows: out[i + chunk*m] = scale * sum of the chunk. The threads are
 * lanes x rows, so that neighbours read neighbouring floats whatever m is: m = 3 is as fast as m = 1. Lanes walk the
 * columns in order and meet in a tree of fixed shape.
 */
static __global__ void __launch_bounds__(TLOB_BLOCK)
    row_sum(int64_t m, int64_t n, int64_t chunks, const float *x, float scale, float *out) {
    __shared__ float sums[TLOB_BLOCK];
    int64_t tiles = (m - 1) / TLOB_ROW_SUM_ROWS + 1;
    for (int64_t work = blockIdx.x; work < tiles * chunks; work += gridDim.x) {
        int64_t first_row = work / chunks * TLOB_ROW_SUM_ROWS, chunk = work % chunks;
        int rows = m - first_row < TLOB_ROW_SUM_ROWS ? (int)(m - first_row) : TLOB_ROW_SUM_ROWS;
        int lanes = TLOB_BLOCK / rows;
        int row = threadIdx.x % rows, lane = threadIdx.x / rows;
        int64_t width = (n + chunks - 1) / chunks;
        int64_t end = (chunk + 1) * width < n ? (chunk + 1) * width : n;

        float sum = 0.0f;
        for (int64_t j = chunk * width + lane; lane < lanes && j < end; j += lanes)
            sum += x[first_row + row + j * m];
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int half = TLOB_BLOCK / 2; half > 0; half /= 2) {
            if (lane < half && lane + half < lanes)
                sums[threadIdx.x] += sums[threadIdx.x + half * rows];
            __syncthreads();
        }
        if (lane == 0)
            out[first_row + row + chunk * m] = scale * sums[threadIdx.x];
        __syncthreads(); /* `sums` is written again for the next piece of work */
    }
}

static int one_level(struct CUstream_st *stream, int64_t m, int64_t n, int64_t chunks, const float *x, float scale,
                     float *out) {
    int64_t tiles = (m - 1) / TLOB_ROW_SUM_ROWS + 1;
    return launch(stream, tiles * chunks * TLOB_BLOCK, TLOB_BLOCK, row_sum, m, n, chunks, x, scale, out);
}

extern "C" int tlob_cuda_row_sum(struct CUstream_st *stream, int64_t m, int64_t n, const float *x, float scale,
                                 float *partial, float *out) {
    int64_t chunks = tlob_row_sum_chunks(m, n);
    if (m < 1)
        return 0;
    if (chunks == 1)
        return one_level(stream, m, n, 1, x, scale, out);
    int code = one_level(stream, m, n, chunks, x, 1.0f, partial);
    return code ? code : one_level(stream, m, chunks, 1, partial, scale, out);
}

extern "C" int tlob_cuda_load_row_sum(void) {
    return load(row_sum);
}
