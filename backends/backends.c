#include "backends/backend.h"

#if !TLOB_HAVE_CUBLAS_CLASSIC
const tlob_backend_ops tlob_cublas_classic_ops = {
    .api = TLOB_BACKEND_API,
    .name = "cublas_classic",
    .missing = "built without cublas_classic: configure with -Dcublas_classic=enabled and a CUDA toolkit",
    .caps = {.memory = TLOB_MEMORY_CUDA},
};
#endif

#if !TLOB_HAVE_CUBLASLT
const tlob_backend_ops tlob_cublaslt_ops = {
    .api = TLOB_BACKEND_API,
    .name = "cublaslt",
    .missing = "built without cublaslt: configure with -Dcublaslt=enabled and a CUDA toolkit",
    .caps = {.memory = TLOB_MEMORY_CUDA},
};
#endif

const tlob_backend_ops *const tlob_backend_table[] = {
    &tlob_cpu_ref_ops,
    &tlob_cublas_classic_ops,
    &tlob_cublaslt_ops,
    NULL,
};
