/* Of cuBLAS what the backend cublas_classic calls. */
#include <cublasLt.h>
#include <cublas_v2.h>

#include "tests/fakes/fake.h"

__attribute__((weak)) size_t cublasLtGetVersion(void) { /* fake_cublaslt.c has it too */
    return (size_t)fake.lt_version;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    int v = fake.cublas_version;
    *value = type == MAJOR_VERSION ? v / 10000 : type == MINOR_VERSION ? v / 100 % 100 : v % 100;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_FAKE";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    *handle = (cublasHandle_t)(void *)&fake;
    return fake_call("create");
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    (void)handle;
    return fake_call("destroy");
}

/* As documented: the stream takes the handle back to the library's own workspace. */
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    (void)handle;
    fake.stream = stream;
    fake.workspace = NULL;
    fake.workspace_bytes = 0;
    return fake_call("set_stream");
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    (void)handle;
    fake.workspace = workspace;
    fake.workspace_bytes = bytes;
    return fake_call("set_workspace");
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    (void)handle;
    return mode == CUBLAS_POINTER_MODE_HOST ? fake_call("set_pointer_mode") : CUBLAS_STATUS_INVALID_VALUE;
}

static tlob_op op(cublasOperation_t trans) {
    return trans == CUBLAS_OP_T ? TLOB_OP_T : TLOB_OP_N;
}

static tlob_compute compute(cublasComputeType_t type) {
    return type == CUBLAS_COMPUTE_32F_FAST_TF32 ? TLOB_COMPUTE_TF32
           : type == CUBLAS_COMPUTE_32F         ? TLOB_COMPUTE_FP32
                                                : TLOB_COMPUTE_DEFAULT;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m,
                               int64_t n, int64_t k, const void *alpha, const void *a, cudaDataType at, int64_t lda,
                               const void *b, cudaDataType bt, int64_t ldb, const void *beta, void *c, cudaDataType ct,
                               int64_t ldc, cublasComputeType_t type, cublasGemmAlgo_t algo) {
    (void)handle, (void)algo;
    cublasStatus_t code = fake_call("gemm");
    if (code != CUBLAS_STATUS_SUCCESS || at != CUDA_R_32F || bt != CUDA_R_32F || ct != CUDA_R_32F)
        return code != CUBLAS_STATUS_SUCCESS ? code : CUBLAS_STATUS_INVALID_VALUE;
    tlob_gemm gemm = {.transa = op(transa),
                      .transb = op(transb),
                      .m = m,
                      .n = n,
                      .k = k,
                      .lda = lda,
                      .ldb = ldb,
                      .ldc = ldc,
                      .batch = 1,
                      .alpha = *(const float *)alpha,
                      .beta = *(const float *)beta,
                      .compute = compute(type)};
    fake_multiply(&gemm, &(tlob_gemm_operands){.a = a, .b = b, .c = c, .d = c});
    return code;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                             int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
                                             cudaDataType at, int64_t lda, long long stride_a, const void *b,
                                             cudaDataType bt, int64_t ldb, long long stride_b, const void *beta,
                                             void *c, cudaDataType ct, int64_t ldc, long long stride_c, int64_t batch,
                                             cublasComputeType_t type, cublasGemmAlgo_t algo) {
    (void)handle, (void)algo;
    cublasStatus_t code = fake_call("gemm_batched");
    if (code != CUBLAS_STATUS_SUCCESS || at != CUDA_R_32F || bt != CUDA_R_32F || ct != CUDA_R_32F)
        return code != CUBLAS_STATUS_SUCCESS ? code : CUBLAS_STATUS_INVALID_VALUE;
    tlob_gemm gemm = {.transa = op(transa),
                      .transb = op(transb),
                      .m = m,
                      .n = n,
                      .k = k,
                      .lda = lda,
                      .ldb = ldb,
                      .ldc = ldc,
                      .batch = batch,
                      .stride_a = stride_a,
                      .stride_b = stride_b,
                      .stride_c = stride_c,
                      .alpha = *(const float *)alpha,
                      .beta = *(const float *)beta,
                      .compute = compute(type)};
    fake_multiply(&gemm, &(tlob_gemm_operands){.a = a, .b = b, .c = c, .d = c});
    return code;
}
