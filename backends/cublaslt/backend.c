/* One cublasLtMatmul a product, with the bias as an epilogue. What depends on the shape alone is cached: see plan.h. */
#include <stdio.h>
#include <stdlib.h>

#include "backends/cublaslt/plan.h"

static void version(char *text, size_t size) {
    int v = (int)cublasLtGetVersion();
    snprintf(text, size, "cuBLASLt %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

static void close_lane(tlob_lane *lane) {
    if (!lane)
        return;
    tlob_plan_table_free(&lane->plans);
    if (lane->handle)
        cublasLtDestroy(lane->handle);
    free(lane);
}

/* That libcublas and libcublasLt come from one toolkit is checked where both are used, in cublas_classic. */
static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    tlob_lane *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "open", 0, NULL, NULL,
                                 "no host memory for a lane");
    made->params = *params;
    cublasStatus_t code = cublasLtCreate(&made->handle);
    if (code != CUBLAS_STATUS_SUCCESS) {
        made->handle = NULL;
        close_lane(made);
        return tlob_cublaslt_fail(code, "cublasLtCreate", NULL,
                                  "no handle; a driver older than the CUDA runtime and a full device look like this");
    }
    params->stats->handles_created++;
    *lane = made;
    return TLOB_OK;
}

/* One function for the three slots: batch and epilogue are part of the plan. */
static TLOB_GEMM_FN(run) {
    tlob_plan *plan;
    tlob_status status = tlob_plan_get(lane, gemm, x, &plan);
    if (status != TLOB_OK)
        return status;
    cublasStatus_t code = cublasLtMatmul(lane->handle, &plan->desc, &gemm->alpha, x->a, &plan->a, x->b, &plan->b,
                                         &gemm->beta, tlob_plan_c(gemm, x), &plan->c, x->d, &plan->c, &plan->algo,
                                         lane->params.workspace, plan->workspace_bytes, lane->params.cuda_stream);
    return code == CUBLAS_STATUS_SUCCESS ? TLOB_OK : tlob_cublaslt_fail(code, "cublasLtMatmul", gemm, NULL);
}

const tlob_backend_ops tlob_cublaslt_ops = {
    .name = TLOB_CUBLASLT_NAME,
    .caps =
        {
            .memory = TLOB_MEMORY_CUDA,
            .computes = 1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32,
            .epilogues = 1u << TLOB_EPILOGUE_NONE | 1u << TLOB_EPILOGUE_BIAS,
            .max_batch = INT32_MAX, /* the layout attribute BATCH_COUNT is int32 */
        },
    .version = version,
    .open = open_lane,
    .close = close_lane,
    .sgemm = run,
    .sgemm_strided_batched = run,
    .matmul_bias = run,
};
