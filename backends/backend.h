/**
 * The vtable: all that libtlob/ knows of a backend, and the services that a backend gets from libtlob/.
 *
 * The core has validated every problem before a slot is called, and has made the context's device current. A backend only
 * computes, and reports what its vendor library refuses; it tries nothing else instead.
 */
#ifndef TLOB_BACKENDS_BACKEND_H
#define TLOB_BACKENDS_BACKEND_H

#include <tlob/tlob.h>

/** What is known of a backend, as data. 0 means "cannot". */
typedef struct tlob_backend_caps {
    tlob_memory memory;     /**< the one memory space it works in */
    uint32_t computes;      /**< bit (1 << tlob_compute) */
    uint32_t epilogues;     /**< bit (1 << tlob_epilogue) */
    int64_t max_batch;
} tlob_backend_caps;

/** A backend's share of one stream: vendor handle, cached plans. Each backend defines its own. */
typedef struct tlob_lane tlob_lane;

/** What a lane is made from. All of it belongs to the stream and outlives the lane. */
typedef struct tlob_lane_params {
    struct CUstream_st *cuda_stream;
    void *workspace;        /**< shared by the lanes of one stream, aligned to 256 bytes */
    size_t workspace_bytes;
    tlob_stream_stats *stats; /**< counters that the lane keeps: plan_hits, plan_misses, handles_created */
} tlob_lane_params;

/* One signature per operation: slots and implementations are declared with it and cannot drift apart. `gemm->compute` is
 * resolved (never DEFAULT); m, n, k, batch >= 1; alpha != 0. The operation is finished or enqueued on the lane's stream. */
#define TLOB_GEMM_FN(name) tlob_status name(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x)

typedef struct tlob_backend_ops {
    const char *name;       /**< as users type it: "cublaslt" */
    const char *missing;    /**< NULL; or why this build does not contain it, and then every slot is NULL */
    tlob_backend_caps caps;

    void (*version)(char *text, size_t size);                                /* optional; NULL: no vendor library */
    tlob_status (*open)(tlob_lane **lane, const tlob_lane_params *params);   /* required */
    void (*close)(tlob_lane *lane);                                          /* required; NULL lane allowed */
    bool (*supports)(const tlob_gemm *gemm, const char **why);               /* optional; NULL: caps tell all */

    TLOB_GEMM_FN((*sgemm));                 /* required: batch 1, no epilogue */
    TLOB_GEMM_FN((*sgemm_strided_batched)); /* required where caps.max_batch > 1: batch > 1, no epilogue */
    TLOB_GEMM_FN((*matmul_bias));           /* required where caps.epilogues has BIAS: any batch */
} tlob_backend_ops;

/** Every backend, built in or not, in the order in which they are listed to users. Ends with NULL. */
extern const tlob_backend_ops *const tlob_backend_table[];

extern const tlob_backend_ops tlob_cpu_ref_ops;
extern const tlob_backend_ops tlob_cublas_classic_ops;
extern const tlob_backend_ops tlob_cublaslt_ops;

/* --- services ------------------------------------------------------------------------------------------------------ */

/**
 * Records a failure on this thread as tlob_last_error and returns `status`. `operation` is the vendor call, `gemm` may be
 * NULL, `vendor` is the vendor's name for `vendor_code` or NULL. The message is built from all of them and the format.
 */
tlob_status tlob_backend_fail(tlob_status status, const char *backend, const char *operation, int vendor_code,
                              const char *vendor, const tlob_gemm *gemm, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/** Whether work on `cuda_stream` is being captured into a graph: asked on cold paths alone. CUDA builds only. */
bool tlob_backend_capturing(struct CUstream_st *cuda_stream);

/**
 * D_b = beta * C_b + bias in the memory space of CUDA: one kernel on `cuda_stream`. beta 0: C is not read; bias may be
 * NULL; D may be C. Sizes, leading dimension and batch are those of `gemm`; its alpha, beta and epilogue do not count.
 */
tlob_status tlob_backend_affine_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     float beta, const float *c, const float *bias, float *d);

#endif
