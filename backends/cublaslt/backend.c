/* One cublasLtMatmul a product, whatever its epilogue. What depends on the shape alone is cached: see plan.h. */
#include <stdio.h>
#include <stdlib.h>

#include "backends/cublaslt/pick.h"
#include "backends/handles.h"

static tlob_handle_pool pool = TLOB_HANDLE_POOL_INIT;

static void version(char *text, size_t size) {
    int v = (int)cublasLtGetVersion();
    snprintf(text, size, "cuBLASLt %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

static void close_lane(tlob_lane *lane) {
    if (!lane)
        return;
    tlob_product_table_free(&lane->plans);
    tlob_pick_free_all(lane);
    if (lane->kept)
        tlob_handle_keep(&pool, lane->kept);
    free(lane);
}

static tlob_status create_handle(void **vendor) {
    cublasLtHandle_t made;
    cublasStatus_t code = cublasLtCreate(&made);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtCreate", NULL,
                                  "no handle; a driver older than the CUDA runtime and a full device look like this");
    *vendor = made;
    return TLOB_OK;
}

/* That libcublas and libcublasLt come from one toolkit is checked where both are used, in cublas_classic. */
static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    tlob_lane *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "open", 0, NULL, NULL,
                                 "no host memory for a lane");
    made->params = *params;
    tlob_status status =
        tlob_handle_take(&pool, params->device_context, TLOB_CUBLASLT_NAME, create_handle, &made->kept);
    if (status != TLOB_OK) {
        close_lane(made);
        return status;
    }
    made->handle = made->kept->vendor;
    params->stats->handles++;
    *lane = made;
    return TLOB_OK;
}

/* From the first byte of D to past its last. The core has checked that it does not overflow, unless there is no D. */
static int64_t span_of_d(const tlob_gemm *g) {
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return 0;
    int64_t elements = (g->n - 1) * g->ldc + g->m + (g->batch > 1 ? (g->batch - 1) * g->stride_c : 0);
    return elements * (int64_t)sizeof(float);
}

/* What cublasLt 13.1 was measured, or is documented, to refuse or to get wrong, besides what caps say. */
static bool supports(const tlob_gemm *g, const char **why) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    bool floats = (traits->reads_aux || traits->writes_aux) && !traits->aux_is_mask;

    if (g->epilogue == TLOB_EPILOGUE_BGRADA && g->transa != TLOB_OP_N)
        *why = "cublasLt has BGRADA only where A is not transposed";
    else if (g->epilogue == TLOB_EPILOGUE_BGRADB && g->transb != TLOB_OP_T)
        *why = "cublasLt has BGRADB only where B is transposed";
    else if (floats && g->ld_aux % 8)
        *why = "cublasLt wants ld_aux to be a multiple of 8 where aux holds floats";
    else if (floats && g->batch > 1 && g->stride_aux % 8)
        *why = "cublasLt wants stride_aux to be a multiple of 8 where aux holds floats";
    else if (traits->reads_bias && g->compute == TLOB_COMPUTE_FP32 && span_of_d(g) >= (int64_t)1 << 32)
        *why = "cublasLt gives wrong values with a bias in FP32 where D spans 4 GiB or more";
    else
        return true;
    return false;
}

/* One function for the three slots: batch and epilogue are part of the plan. */
static TLOB_GEMM_FN(run) {
    tlob_plan *plan = *memo;
    tlob_status status = tlob_plan_get(lane, gemm, x, pick, &plan);
    if (status != TLOB_OK)
        return status;
    *memo = plan;
    cublasStatus_t code = cublasLtMatmul(lane->handle, &plan->desc, &gemm->alpha, x->a, &plan->a, x->b, &plan->b,
                                         &gemm->beta, tlob_product_c(gemm, x), &plan->c, x->d, &plan->c, &plan->algo,
                                         lane->params.workspace, plan->workspace_bytes, lane->params.cuda_stream);
    return code == CUBLAS_STATUS_SUCCESS ? TLOB_OK : tlob_cublaslt_fail(code, "cublasLtMatmul", gemm, NULL);
}

const tlob_backend_ops tlob_cublaslt_ops = {
    .api = TLOB_BACKEND_API,
    .name = TLOB_CUBLASLT_NAME,
    .caps =
        {
            .memory = TLOB_MEMORY_CUDA,
            .computes = 1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32,
            .epilogues = (1u << TLOB_EPILOGUE_COUNT) - 1,
            .max_batch = INT32_MAX, /* the layout attribute BATCH_COUNT is int32 */
            .aux_alignment = 16,
            .deterministic = true,
        },
    .version = version,
    .attach = tlob_algo_attach,
    .detach = tlob_algo_detach,
    .list_algorithms = tlob_algo_list,
    .offer_algorithm = tlob_algo_offer,
    .open = open_lane,
    .close = close_lane,
    .supports = supports,
    .describe = tlob_plan_describe,
    .propose = tlob_pick_propose,
    .adopt = tlob_pick_adopt,
    .sgemm = run,
    .sgemm_strided_batched = run,
    .matmul_bias = run,
};
