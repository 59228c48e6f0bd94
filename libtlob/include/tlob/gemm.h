/** Matrix products: the problem as a value, and the call that runs it on the backend that the policy chooses. */
#ifndef TLOB_GEMM_H
#define TLOB_GEMM_H

#include <stdint.h>

#include <tlob/export.h>
#include <tlob/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tlob_context;
struct tlob_stream;

/** Whether a matrix is used as it lies or transposed. */
typedef enum tlob_op { TLOB_OP_N, TLOB_OP_T } tlob_op;

/**
 * How products are formed. TF32 permits a backend to round the inputs to 10 mantissa bits, with float32 accumulation;
 * FP32 forbids it. The oracle `cpu_ref` never rounds inputs and accumulates in double in either mode.
 */
typedef enum tlob_compute {
    TLOB_COMPUTE_DEFAULT, /**< the context's mode; see tlob_settings */
    TLOB_COMPUTE_TF32,
    TLOB_COMPUTE_FP32,
} tlob_compute;

/** What is done to the product before it is stored. */
typedef enum tlob_epilogue {
    TLOB_EPILOGUE_NONE,
    TLOB_EPILOGUE_BIAS, /**< + bias[i] in row i of every column, after alpha and beta */
} tlob_epilogue;

/** The slot of the backend vtable that a problem uses. */
typedef enum tlob_operation {
    TLOB_OPERATION_SGEMM,                 /**< one product, no epilogue */
    TLOB_OPERATION_SGEMM_STRIDED_BATCHED, /**< batch > 1, no epilogue */
    TLOB_OPERATION_MATMUL_BIAS,           /**< an epilogue, any batch */
} tlob_operation;

/**
 * One matrix product, or a strided batch of them, in BLAS terms:
 *
 *     D_b = alpha * op(A_b) op(B_b) + beta * C_b + bias        b = 0 .. batch-1
 *
 * op(A) is m x k, op(B) is k x n, C and D are m x n, all float32 and column-major; leading dimensions and strides count
 * elements. C and D share ldc and stride_c. A plain value: copy it, compare it, keep it; tlob_gemm_init fills the
 * common case, so that a caller sets only what differs.
 *
 * beta = 0: C is not read. alpha = 0 or k = 0: A and B are not read, the product is 0 and the rest still applies.
 * m, n or batch = 0: nothing is read or written.
 */
typedef struct tlob_gemm {
    tlob_op transa, transb;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;                /**< at least the rows of the matrix as it lies, and at least 1 */
    int64_t batch;                        /**< 1 for a single product */
    int64_t stride_a, stride_b, stride_c; /**< from one matrix of the batch to the next, >= 0; 0 shares an input.
                                               Not looked at when batch is 1 */
    float alpha, beta;
    tlob_compute compute;
    tlob_epilogue epilogue;
} tlob_gemm;

/** Operands of a product. All pointers belong to the memory space of the stream's context; none is kept. */
typedef struct tlob_gemm_operands {
    const float *a, *b;
    const float *c;    /**< may be NULL when beta = 0 */
    float *d;          /**< may be c itself; must not overlap a, b, or c in any other way */
    const float *bias; /**< m floats, shared by the batch; NULL without the BIAS epilogue */
} tlob_gemm_operands;

/** m x n x k: no transposes, packed leading dimensions, batch 1, alpha 1, beta 0, default compute mode, no epilogue. */
TLOB_API tlob_gemm tlob_gemm_init(int64_t m, int64_t n, int64_t k);

/** The vtable slot that `gemm` uses: decided by epilogue and batch alone. `gemm` must not be NULL. */
TLOB_API tlob_operation tlob_gemm_operation(const tlob_gemm *gemm);

/**
 * Whether `gemm` is a valid problem: enums in range, sizes >= 0, leading dimensions large enough, strides >= 0, outputs
 * of a batch disjoint, every extent below 2^63 bytes. Needs no context, no GPU, and looks at no data.
 *
 * Errors: TLOB_ERR_ARGUMENT names the field, its value and what it must be. Thread-safe.
 */
TLOB_API tlob_status tlob_gemm_check(const tlob_gemm *gemm);

/**
 * Enqueues a product on `stream`, on the backend that the policy of the stream's context chooses.
 *
 * Asynchronous on a CUDA context: returns when the work is enqueued. A warm problem (same shape, layout and alignment as
 * an earlier call on this stream) allocates nothing and may be captured in a CUDA graph.
 *
 * Thread-safety: distinct streams may be used from distinct threads; one stream from one thread at a time.
 *
 * Errors: ARGUMENT names the argument; MEMORY_SPACE the pointer; POLICY a choice that the context does not have;
 * UNSUPPORTED backend and reason; NOT_WARM a cold call during capture; BACKEND carries the vendor's status. After any of
 * these nothing else has been tried.
 */
TLOB_API tlob_status tlob_gemm_run(struct tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/** As tlob_gemm_run, on the named backend whatever the policy says. TLOB_ERR_UNKNOWN_NAME lists the valid names. */
TLOB_API tlob_status tlob_gemm_run_on(struct tlob_stream *stream, const char *backend, const tlob_gemm *gemm,
                                      const tlob_gemm_operands *x);

#ifdef __cplusplus
}
#endif
#endif
