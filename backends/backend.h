/** The rows of libtlob's own backends, and the services that they get from libtlob/ besides <tlob/backend.h>. */
#ifndef TLOB_BACKENDS_BACKEND_H
#define TLOB_BACKENDS_BACKEND_H

#include <tlob/tlob.h>

/** Every backend of libtlob, built in or not, in the order in which they are listed to users. Ends with NULL. */
extern const tlob_backend_ops *const tlob_backend_table[];

extern const tlob_backend_ops tlob_cpu_ref_ops;
extern const tlob_backend_ops tlob_cublas_classic_ops;
extern const tlob_backend_ops tlob_cublaslt_ops;

/** Whether work on `cuda_stream` is being captured into a graph: asked on cold paths alone. CUDA builds only. */
bool tlob_backend_capturing(struct CUstream_st *cuda_stream);

/**
 * D_b = beta * C_b + bias in the memory space of CUDA: one kernel on `cuda_stream`. beta 0: C is not read; bias may be
 * NULL; D may be C. Sizes, leading dimension, batch and strides are those of `gemm`; its alpha, beta and epilogue do not
 * count.
 */
tlob_status tlob_backend_affine_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     float beta, const float *c, const float *bias, float *d);

/**
 * What follows the product in D = alpha op(A) op(B) + beta C: the bias, activation, mask or derivative, aux and bgrad of
 * gemm->epilogue, in place, as one kernel on `cuda_stream`. No atomics; sums in a fixed order.
 */
tlob_status tlob_backend_finish_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     const tlob_gemm_operands *x);

#endif
