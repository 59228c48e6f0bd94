/** Matrix products: the problem as a value, and the call that runs it on the backend that the policy chooses. */
#ifndef TLOB_GEMM_H
#define TLOB_GEMM_H

#include <stdbool.h>
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

/**
 * What is done to the product before it is stored, with z = alpha op(A) op(B) + beta C, plus bias[i] in row i of every
 * column where the name ends in BIAS. GELU is the tanh form, 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))) (Hendrycks
 * and Gimpel 2016), as in cuBLASLt.
 *
 * Where the textbooks leave a choice, every backend does what cuBLASLt 13.1 was measured to do: a NaN in z gives 0
 * through RELU and RELU_BIAS (but NaN from some algorithms of cublaslt), and NaN through RELU_AUX_BIAS and GELU; a mask
 * has 0 where z < 0 and 1 elsewhere, so that the gradient at z = 0 is 1; beta C is added before the mask or the
 * derivative is applied.
 */
typedef enum tlob_epilogue {
    TLOB_EPILOGUE_NONE,          /**< D = z */
    TLOB_EPILOGUE_BIAS,          /**< D = z */
    TLOB_EPILOGUE_RELU,          /**< D = max(z, 0) */
    TLOB_EPILOGUE_RELU_BIAS,     /**< D = max(z, 0) */
    TLOB_EPILOGUE_RELU_AUX_BIAS, /**< D = max(z, 0); aux: the mask, bit i of column j is 0 where z[i,j] < 0 */
    TLOB_EPILOGUE_DRELU_BGRAD,   /**< D = z where the mask in aux has a 1, else 0; bgrad[i] = sum over j of D[i,j] */
    TLOB_EPILOGUE_BGRADA,        /**< D = z; bgrad[i] = sum over l of op(A)[i,l], m values */
    TLOB_EPILOGUE_BGRADB,        /**< D = z; bgrad[j] = sum over l of op(B)[l,j], n values */
    TLOB_EPILOGUE_GELU_BIAS,     /**< D = gelu(z) */
    TLOB_EPILOGUE_GELU_AUX_BIAS, /**< D = gelu(z); aux: z itself */
    TLOB_EPILOGUE_DGELU_BGRAD,   /**< D = z * gelu'(aux); bgrad[i] = sum over j of D[i,j] */
} tlob_epilogue;

/** How many epilogues there are; their values are 0 to one below. */
#define TLOB_EPILOGUE_COUNT (TLOB_EPILOGUE_DGELU_BGRAD + 1)

/** What an epilogue takes and gives besides D. */
typedef struct tlob_epilogue_traits {
    const char *name;   /**< as users type it: "relu_aux_bias"; static storage */
    bool reads_bias;    /**< `bias` is needed */
    bool writes_bgrad;  /**< `bgrad` is written */
    bool writes_aux;    /**< `aux` is an output */
    bool reads_aux;     /**< `aux` is an input, written by the forward epilogue of the same kind */
    bool aux_is_mask;   /**< aux holds bits; else floats */
} tlob_epilogue_traits;

/** The traits of `epilogue`; those of NONE for a value that is none. Never NULL; static storage; thread-safe. */
TLOB_API const tlob_epilogue_traits *tlob_epilogue_get_traits(tlob_epilogue epilogue);

/** The slot of the backend vtable that a problem uses. */
typedef enum tlob_operation {
    TLOB_OPERATION_SGEMM,                 /**< one product, no epilogue */
    TLOB_OPERATION_SGEMM_STRIDED_BATCHED, /**< batch > 1, no epilogue */
    TLOB_OPERATION_MATMUL_BIAS,           /**< any epilogue but NONE, any batch */
} tlob_operation;

/**
 * One matrix product, or a strided batch of them, in BLAS terms:
 *
 *     D_b = epilogue(alpha * op(A_b) op(B_b) + beta * C_b)        b = 0 .. batch-1
 *
 * op(A) is m x k, op(B) is k x n, C and D are m x n, all float32 and column-major; leading dimensions and strides count
 * elements. C and D share ldc and stride_c. A plain value: copy it, compare it, keep it; tlob_gemm_init fills the
 * common case, so that a caller sets only what differs.
 *
 * beta = 0: C is not read. alpha = 0 or k = 0: the product is 0 and the rest still applies; A and B are not read, but
 * by BGRADA and BGRADB when k > 0.
 * m, n or batch = 0: nothing is read or written.
 */
typedef struct tlob_gemm {
    tlob_op transa;      /**< A lies as m x k, or transposed as k x m */
    tlob_op transb;      /**< B lies as k x n, or transposed as n x k */
    int64_t m;           /**< rows of op(A), C and D */
    int64_t n;           /**< columns of op(B), C and D */
    int64_t k;           /**< columns of op(A), rows of op(B) */
    int64_t lda;         /**< of A: at least its rows as it lies, and at least 1 */
    int64_t ldb;         /**< of B, likewise */
    int64_t ldc;         /**< of C and D, likewise */
    int64_t batch;       /**< 1 for a single product */
    int64_t stride_a;    /**< from one A of the batch to the next, >= 0; 0 shares A. Not looked at when batch is 1 */
    int64_t stride_b;    /**< of B, likewise */
    int64_t stride_c;    /**< of C and D, likewise, but large enough to keep the D apart */
    float alpha;         /**< 1, in the common case */
    float beta;          /**< 0, in the common case */
    tlob_compute compute;   /**< DEFAULT: the context's mode */
    tlob_epilogue epilogue; /**< what is done to the product before it is stored */
    int64_t ld_aux;      /**< from one column of aux to the next. A mask: in bits, a multiple of 128, at least m;
                              floats: at least m. Not looked at without aux */
    int64_t stride_aux;  /**< of a batch: in bits for a mask, a multiple of 128; in floats else; outputs apart */
    int64_t stride_bias; /**< of a batch, between the biases or the bgrads; 0 shares a bias, bgrads must be apart */
} tlob_gemm;

/** Operands of a product. All pointers belong to the memory space of the stream's context; none is kept. */
typedef struct tlob_gemm_operands {
    const float *a;    /**< A; read as the problem says */
    const float *b;    /**< B, likewise */
    const float *c;    /**< may be NULL when beta = 0 */
    float *d;          /**< may be c itself; must not overlap a, b, or c in any other way */
    const float *bias; /**< m floats, read; NULL where the epilogue reads none */
    float *bgrad;      /**< m floats (BGRADB: n), written; NULL where the epilogue writes none */
    void *aux;         /**< written by *_AUX_*, read by DRELU_* and DGELU_*; NULL else. A mask: (ld_aux/8)*n bytes,
                            bit i%8 of byte i/8 of a column, aligned to 16 bytes; bits past m are undefined */
} tlob_gemm_operands;

/**
 * m x n x k: no transposes, packed leading dimensions (ld_aux: m rounded up to a multiple of 128, which fits a mask and
 * floats alike), batch 1, alpha 1, beta 0, default compute mode, no epilogue.
 */
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
 * Asynchronous on a CUDA context: returns when the work is enqueued. A warm problem (same shape, layout and alignment
 * as an earlier call on this stream, or as one of tlob_warm) allocates nothing and may be captured in a CUDA graph.
 *
 * Thread-safety: distinct streams may be used from distinct threads; one stream from one thread at a time.
 *
 * Errors: ARGUMENT names the argument; MEMORY_SPACE the pointer; POLICY a choice that the context does not have;
 * UNSUPPORTED backend and reason; NOT_WARM a cold call during capture; BACKEND carries the vendor's status; CUDA,
 * OUT_OF_MEMORY and NO_DEVICE (after a fork) what the device lacks; CLOSED a destroyed context. After any of these
 * nothing else has been tried.
 */
TLOB_API tlob_status tlob_gemm_run(struct tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/** As tlob_gemm_run, on the named backend whatever the policy says. TLOB_ERR_UNKNOWN_NAME lists the valid names. */
TLOB_API tlob_status tlob_gemm_run_on(struct tlob_stream *stream, const char *backend, const tlob_gemm *gemm,
                                      const tlob_gemm_operands *x);

#ifdef __cplusplus
}
#endif
#endif
