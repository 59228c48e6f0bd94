/*
 * The oracle: plain loops on host memory, accumulated in double, k ascending, rounded to float32 once.
 *
 * Products of two floats are exact in double, so the only errors are those of the sum (k * 2^-53) and of the one
 * rounding at the end. Nothing here is parallel, blocked over k or reordered: two runs give the same bits on any
 * machine. Epilogues work on the unrounded z: an activation, a mask and the sums of bgrad know nothing of float32.
 */
#include "backends/backend.h"
#include "libtlob/kernels/epilogue.h"

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

/** z of a tile of D. */
static void multiply(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile *t) {
    accumulate(g, x->a + t->matrix * g->stride_a, x->b + t->matrix * g->stride_b, t->row, t->rows, t->column, t->z);
    for (int64_t r = 0; r < t->rows; r++)
        t->z[r] *= g->alpha;
    if (g->beta == 0) /* C is not read: it may be NaN or absent */
        return;
    const float *c = x->c + t->matrix * g->stride_c + t->column * g->ldc + t->row;
    for (int64_t r = 0; r < t->rows; r++)
        t->z[r] += (double)g->beta * c[r];
}

/* One function for the three slots: batch 1 is a batch, and no epilogue is one. */
static TLOB_GEMM_FN(run) {
    (void)lane;
    tlob_host_epilogue(gemm, x, multiply);
    return TLOB_OK;
}

/* Nothing to choose and nothing to keep. */
static tlob_status describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan) {
    (void)lane, (void)gemm, (void)x, (void)fields, (void)count;
    *plan = (tlob_lane_plan){.algorithm = "plain loops in double, k ascending"};
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
    .api = TLOB_BACKEND_API,
    .name = "cpu_ref",
    .caps =
        {
            .memory = TLOB_MEMORY_HOST,
            .computes = 1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32,
            .epilogues = (1u << TLOB_EPILOGUE_COUNT) - 1,
            .max_batch = INT64_MAX,
            .deterministic = true,
        },
    .open = open_lane,
    .close = close_lane,
    .describe = describe,
    .sgemm = run,
    .sgemm_strided_batched = run,
    .matmul_bias = run,
};
