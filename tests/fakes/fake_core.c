#include "tests/fakes/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libtlob/kernels/table.h"

_Thread_local fake_state fake;

void fake_reset(void) {
    memset(&fake, 0, sizeof(fake));
    fake.cublas_version = fake.lt_version = 130100;
    fake.found = 1;
    fake.listed = 3;
}

void fake_forget_calls(void) {
    fake.calls[0] = 0;
}

cublasStatus_t fake_call(const char *name) {
    size_t used = strlen(fake.calls);
    snprintf(fake.calls + used, sizeof(fake.calls) - used, "%s ", name);
    return fake.failing_call && !strcmp(fake.failing_call, name) ? fake.failing_code : CUBLAS_STATUS_SUCCESS;
}

int fake_count(const char *name) {
    char word[80];
    int count = 0;
    size_t length = (size_t)snprintf(word, sizeof(word), "%s ", name);
    for (const char *at = fake.calls; (at = strstr(at, word)); at += length)
        count += at == fake.calls || at[-1] == ' ';
    return count;
}

void fake_multiply(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    fake.gemm = *gemm;
    fake.x = *x;
    tlob_cpu_ref_ops.matmul_bias(NULL, gemm, x, NULL, &(void *){NULL});
}

/* --- the services of libtlob ----------------------------------------------------------------------------------- */

tlob_status tlob_backend_fail(tlob_status status, const char *backend, const char *operation, int vendor_code,
                              const char *vendor, const tlob_gemm *gemm, const char *format, ...) {
    fake.error = (tlob_error){.status = status, .vendor_code = vendor_code, .has_gemm = gemm != NULL};
    snprintf(fake.error.backend, sizeof(fake.error.backend), "%s", backend);
    snprintf(fake.error.operation, sizeof(fake.error.operation), "%s", operation);
    snprintf(fake.error.vendor, sizeof(fake.error.vendor), "%s", vendor ? vendor : "");
    if (gemm)
        fake.error.gemm = *gemm;
    va_list args;
    va_start(args, format);
    vsnprintf(fake.error.message, sizeof(fake.error.message), format, args);
    va_end(args);
    return status;
}

bool tlob_backend_capturing(struct CUstream_st *cuda_stream) {
    (void)cuda_stream;
    return fake.capturing;
}

tlob_status tlob_backend_affine_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     float beta, const float *c, const float *bias, float *d) {
    fake.stream = cuda_stream;
    if (fake_call("affine") != CUBLAS_STATUS_SUCCESS)
        return tlob_backend_fail(TLOB_ERR_CUDA, backend, "affine kernel", 700, "cudaErrorFake", gemm, "no kernel");
    tlob_affine_args args = {.m = gemm->m,
                             .n = gemm->n,
                             .ld = gemm->ldc,
                             .batch = gemm->batch,
                             .stride_bias = gemm->stride_bias,
                             .beta = beta,
                             .c = c,
                             .bias = bias,
                             .d = d,
                             .stride = gemm->stride_c};
    tlob_host_affine(cuda_stream, &args);
    return TLOB_OK;
}

tlob_status tlob_backend_finish_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     const tlob_gemm_operands *x) {
    fake.stream = cuda_stream;
    if (fake_call("finish") != CUBLAS_STATUS_SUCCESS)
        return tlob_backend_fail(TLOB_ERR_CUDA, backend, "finish kernel", 700, "cudaErrorFake", gemm, "no kernel");
    tlob_host_finish(cuda_stream, &(tlob_finish_args){.gemm = *gemm, .x = *x});
    return TLOB_OK;
}
