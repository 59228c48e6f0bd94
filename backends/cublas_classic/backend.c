/*
 * cublasGemmEx and cublasGemmStridedBatchedEx, one handle a stream.
 *
 * cuBLAS computes C = alpha op(A) op(B) + beta C in place and has no epilogues. What must be in D before that, beta*C
 * from elsewhere or a plain bias, is put there by one affine kernel, and the product then adds itself with beta 1.
 * Every other epilogue is one kernel after the product.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cublas_v2.h>

#include "backends/handles.h"
#include "backends/product.h"

#define NAME "cublas_classic"

struct tlob_lane {
    struct CUstream_st *cuda_stream;
    cublasHandle_t handle;
    tlob_handle *kept; /* what goes back to the pool: the handle, once it is bound */
    tlob_product_table ran; /* what has run here: cuBLAS has loaded its kernels, which a capture may not wait for */
};

static tlob_handle_pool pool = TLOB_HANDLE_POOL_INIT;

static tlob_status fail(cublasStatus_t code, const char *call, const tlob_gemm *gemm, const char *advice) {
    tlob_status status = code == CUBLAS_STATUS_ALLOC_FAILED    ? TLOB_ERR_OUT_OF_MEMORY
                         : code == CUBLAS_STATUS_NOT_SUPPORTED ? TLOB_ERR_UNSUPPORTED
                                                               : TLOB_ERR_BACKEND;
    return tlob_backend_fail(status, NAME, call, code, cublasGetStatusName(code), gemm, "%s", advice);
}

/* As cublasLtGetVersion counts: major * 10000 + minor * 100 + patch. */
static int cublas_version(void) {
    int major = 0, minor = 0, patch = 0;
    cublasGetProperty(MAJOR_VERSION, &major);
    cublasGetProperty(MINOR_VERSION, &minor);
    cublasGetProperty(PATCH_LEVEL, &patch);
    return major * 10000 + minor * 100 + patch;
}

static void version(char *text, size_t size) {
    int v = cublas_version();
    snprintf(text, size, "cuBLAS %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

/* cuBLAS calls cublasLt. A stray copy of one of them on the library path gives failures that seem to have no cause. */
static tlob_status check_versions(void) {
    int classic = cublas_version(), lt = (int)cublasLtGetVersion();
    if (classic == lt)
        return TLOB_OK;
    return tlob_backend_fail(
        TLOB_ERR_BACKEND, NAME, "cublasGetProperty", 0, NULL, NULL,
        "libcublas is version %d and libcublasLt is version %d: they must come from one CUDA toolkit; "
        "check LD_LIBRARY_PATH and RUNPATH",
        classic, lt);
}

static void close_lane(tlob_lane *lane) {
    if (!lane)
        return;
    tlob_product_table_free(&lane->ran);
    if (lane->kept)
        tlob_handle_keep(&pool, lane->kept);
    free(lane);
}

/* cublasSetStream drops the workspace that was set before it, so the workspace comes after it. */
static tlob_status bind(tlob_lane *lane, const tlob_lane_params *params) {
    const char *call = "cublasSetStream";
    cublasStatus_t code = cublasSetStream(lane->handle, params->cuda_stream);
    if (code == CUBLAS_STATUS_SUCCESS) {
        call = "cublasSetWorkspace";
        code = cublasSetWorkspace(lane->handle, params->workspace, params->workspace_bytes);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        call = "cublasSetPointerMode";
        code = cublasSetPointerMode(lane->handle, CUBLAS_POINTER_MODE_HOST);
    }
    return code == CUBLAS_STATUS_SUCCESS ? TLOB_OK
                                         : fail(code, call, NULL, "the handle could not be bound to its stream");
}

static tlob_status create_handle(void **vendor) {
    cublasHandle_t made;
    cublasStatus_t code = cublasCreate(&made);
    if (code != CUBLAS_STATUS_SUCCESS)
        return fail(code, "cublasCreate", NULL,
                    "no handle; a driver older than the CUDA runtime and a full device look like this");
    *vendor = made;
    return TLOB_OK;
}

static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    tlob_status status = check_versions();
    if (status != TLOB_OK)
        return status;
    tlob_lane *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, NAME, "open", 0, NULL, NULL, "no host memory for a lane");
    made->cuda_stream = params->cuda_stream;
    status = tlob_handle_take(&pool, params->device_context, NAME, create_handle, &made->kept);
    if (status == TLOB_OK) {
        made->handle = made->kept->vendor;
        params->stats->handles++;
        status = bind(made, params);
    }
    if (status != TLOB_OK) {
        close_lane(made);
        return status;
    }
    *lane = made;
    return TLOB_OK;
}

static cublasOperation_t op(tlob_op op) {
    return op == TLOB_OP_T ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* D = alpha op(A) op(B) + beta D. The compute type says FP32 or TF32 in each call: the handle has no mode to restore.
 */
static tlob_status product(tlob_lane *lane, const tlob_gemm *g, const tlob_gemm_operands *x, float beta) {
    cublasComputeType_t compute = g->compute == TLOB_COMPUTE_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const char *call;
    cublasStatus_t code;

    if (g->batch > 1) {
        call = "cublasGemmStridedBatchedEx";
        code = cublasGemmStridedBatchedEx_64(lane->handle, op(g->transa), op(g->transb), g->m, g->n, g->k, &g->alpha,
                                             x->a, CUDA_R_32F, g->lda, g->stride_a, x->b, CUDA_R_32F, g->ldb,
                                             g->stride_b, &beta, x->d, CUDA_R_32F, g->ldc, g->stride_c, g->batch,
                                             compute, CUBLAS_GEMM_DEFAULT);
    } else { /* never a batch of one: it may be sent to a slower kernel */
        call = "cublasGemmEx";
        code = cublasGemmEx_64(lane->handle, op(g->transa), op(g->transb), g->m, g->n, g->k, &g->alpha, x->a,
                               CUDA_R_32F, g->lda, x->b, CUDA_R_32F, g->ldb, &beta, x->d, CUDA_R_32F, g->ldc, compute,
                               CUBLAS_GEMM_DEFAULT);
    }
    if (code == CUBLAS_STATUS_SUCCESS)
        return TLOB_OK;
    return fail(code, call, g, "nothing else was tried; choose another backend by the policy or tlob_gemm_run_on");
}

static tlob_status product_and_rest(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    const float *bias = gemm->epilogue == TLOB_EPILOGUE_BIAS ? x->bias : NULL;
    float beta = gemm->beta;
    tlob_status status = TLOB_OK;

    if (bias || (beta != 0 && x->c != x->d)) {
        status = tlob_backend_affine_cuda(lane->cuda_stream, NAME, gemm, beta, x->c, bias, x->d);
        beta = 1;
    }
    if (status == TLOB_OK)
        status = product(lane, gemm, x, beta);
    if (status == TLOB_OK && gemm->epilogue != TLOB_EPILOGUE_NONE && !bias)
        status = tlob_backend_finish_cuda(lane->cuda_stream, NAME, gemm, x);
    return status;
}

/* A product that has not run here. It is remembered once it has. */
static tlob_status run_cold(tlob_lane *lane, const tlob_product_key *key, const tlob_gemm *gemm,
                            const tlob_gemm_operands *x, tlob_product_key **ran) {
    tlob_status status = tlob_product_refuse_capture(lane->cuda_stream, NAME, gemm);
    if (status != TLOB_OK)
        return status;
    tlob_product_key *entry = malloc(sizeof(*entry));
    if (!entry || !tlob_product_table_reserve(&lane->ran)) {
        free(entry);
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, NAME, "run", 0, NULL, gemm,
                                 "no host memory to remember the problem");
    }
    *entry = *key;
    if ((status = product_and_rest(lane, gemm, x)) != TLOB_OK) {
        free(entry);
        return status;
    }
    tlob_product_table_add(&lane->ran, entry);
    *ran = entry;
    return TLOB_OK;
}

/* One function for the three slots: batch and epilogue are read from the problem. */
static TLOB_GEMM_FN(run) {
    tlob_product_key *ran = *memo;
    if (!ran || !tlob_product_key_fits(ran, gemm, x, NULL)) {
        tlob_product_key key;
        tlob_product_key_init(&key, gemm, x, NULL);
        ran = tlob_product_table_get(&lane->ran, &key);
        if (!ran) {
            tlob_status status = run_cold(lane, &key, gemm, x, &ran);
            if (status == TLOB_OK)
                *memo = ran;
            return status;
        }
        *memo = ran;
    }
    return product_and_rest(lane, gemm, x);
}

/* There is no plan: cuBLAS chooses anew in each call. */
static tlob_status describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan) {
    (void)lane, (void)gemm, (void)x, (void)fields, (void)count;
    *plan = (tlob_lane_plan){.algorithm = "chosen inside cuBLAS, which does not tell"};
    return TLOB_OK;
}

const tlob_backend_ops tlob_cublas_classic_ops = {
    .api = TLOB_BACKEND_API,
    .name = NAME,
    .caps =
        {
            .memory = TLOB_MEMORY_CUDA,
            .computes = 1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32,
            .epilogues = (1u << TLOB_EPILOGUE_COUNT) - 1,
            .max_batch = INT64_MAX,
            .deterministic = true, /* cuBLAS documents it, for one stream a handle; atomics are off */
        },
    .version = version,
    .open = open_lane,
    .close = close_lane,
    .describe = describe,
    .sgemm = run,
    .sgemm_strided_batched = run,
    .matmul_bias = run,
};
