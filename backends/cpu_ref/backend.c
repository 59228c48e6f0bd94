/*
 * The oracle: plain loops on host memory, accumulated in double, k ascending, rounded to float32 once.
 *
 * Products of two floats are exact in double, so the only errors are those of the sum (k * 2^-53) and of the one
 * rounding at the end. Nothing here is parallel, blocked over k or reordered: two runs give the same bits on any
 * machine.
 */
#include "backends/backend.h"

/* Rows of D that are summed at a time: the accumulators stay on the stack and in the first-level cache, for any m. */
#define BLOCK_ROWS 256

/** acc[r] = row i0 + r of op(A), times column j of op(B), for `rows` rows. */
static void accumulate(const tlob_gemm *g, const float *a, const float *b, int64_t i0, int64_t rows, int64_t j,
                       double *acc) {
    int64_t b_step = g->transb == TLOB_OP_N ? 1 : g->ldb;
    const float *b_col = b + (g->transb == TLOB_OP_N ? j * g->ldb : j);

    for (int64_t r = 0; r < rows; r++)
        acc[r] = 0;
    if (g->transa == TLOB_OP_N) { /* walk A along its columns */
        for (int64_t l = 0; l < g->k; l++) {
            const float *a_col = a + l * g->lda + i0;
            double factor = b_col[l * b_step];
            for (int64_t r = 0; r < rows; r++)
                acc[r] += a_col[r] * factor;
        }
    } else {
        for (int64_t r = 0; r < rows; r++) {
            const float *a_col = a + (i0 + r) * g->lda;
            for (int64_t l = 0; l < g->k; l++)
                acc[r] += (double)a_col[l] * b_col[l * b_step];
        }
    }
}

/** One matrix of the batch. */
static void multiply(const tlob_gemm *g, const float *a, const float *b, const float *c, const float *bias, float *d) {
    double acc[BLOCK_ROWS];

    for (int64_t j = 0; j < g->n; j++) {
        for (int64_t i0 = 0; i0 < g->m; i0 += BLOCK_ROWS) {
            int64_t rows = g->m - i0 < BLOCK_ROWS ? g->m - i0 : BLOCK_ROWS;
            accumulate(g, a, b, i0, rows, j, acc);
            for (int64_t r = 0; r < rows; r++) {
                int64_t at = i0 + r + j * g->ldc;
                double value = g->alpha * acc[r];
                if (g->beta != 0) /* else C is not read: it may be NaN or absent */
                    value += (double)g->beta * c[at];
                if (bias)
                    value += bias[i0 + r];
                d[at] = (float)value;
            }
        }
    }
}

/* One function for the three slots: batch 1 is a batch, and no epilogue is a NULL bias. */
static TLOB_GEMM_FN(run) {
    (void)lane;
    const float *bias = gemm->epilogue == TLOB_EPILOGUE_BIAS ? x->bias : NULL;
    const float *c = gemm->beta != 0 ? x->c : x->d; /* C may be NULL where it is not read */
    for (int64_t p = 0; p < gemm->batch; p++) {
        int64_t at = p * gemm->stride_c;
        multiply(gemm, x->a + p * gemm->stride_a, x->b + p * gemm->stride_b, c + at, bias, x->d + at);
    }
    return TLOB_OK;
}

/* The oracle keeps nothing between calls, so its lane is NULL. */
static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
}

const tlob_backend_ops tlob_cpu_ref_ops = {
    .name = "cpu_ref",
    .caps =
        {
            .memory = TLOB_MEMORY_HOST,
            .computes = 1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32,
            .epilogues = 1u << TLOB_EPILOGUE_NONE | 1u << TLOB_EPILOGUE_BIAS,
            .max_batch = INT64_MAX,
        },
    .open = open_lane,
    .close = close_lane,
    .sgemm = run,
    .sgemm_strided_batched = run,
    .matmul_bias = run,
};
