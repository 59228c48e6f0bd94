/** Plans of the cublaslt backend: everything that a product needs besides its pointers, built once and kept. */
#ifndef TLOB_BACKENDS_CUBLASLT_PLAN_H
#define TLOB_BACKENDS_CUBLASLT_PLAN_H

#include <cublasLt.h>

#include "backends/backend.h"

#define TLOB_CUBLASLT_NAME "cublaslt"

/**
 * What a plan is looked up by: all that descriptors, layouts and the choice of an algorithm depend on, and nothing
 * else. Compared byte by byte, so it is made by tlob_plan_key_init alone, which leaves no byte undefined.
 */
typedef struct tlob_plan_key {
    int64_t m, n, k, lda, ldb, ldc;       /**< the layouts */
    int64_t batch;                        /**< the layouts; 1 has no strides */
    int64_t stride_a, stride_b, stride_c; /**< the layouts; 0 when batch is 1, where the caller's are not looked at */
    int64_t stride_bias;                  /**< the descriptor: of the bias or bgrad; likewise, and 0 without either */
    int64_t ld_aux, stride_aux;           /**< the descriptor; likewise, and 0 without aux */
    int32_t transa, transb;               /**< the descriptor */
    int32_t compute;                      /**< the descriptor: FP32 must never run a plan made for TF32 */
    int32_t epilogue;                     /**< the descriptor; support differs between epilogues */
    int32_t align_a, align_b, align_c, align_d; /**< algorithms need alignment: one chosen for 16 bytes faults at 4 */
    int32_t align_bias; /**< likewise, of the bias or bgrad, and there is no preference for it; 0 without either */
    int32_t align_aux;  /**< likewise; 0 without aux */
    int32_t reads_c;    /**< beta != 0: may be another kernel, which a warm call must have loaded */
    int32_t in_place;   /**< C is D: likewise */
} tlob_plan_key;

/** Descriptors and an algorithm. Nothing in it changes after it is made but the pointers of the epilogue. */
typedef struct tlob_plan {
    tlob_plan_key key;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c; /**< `c` serves D as well */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes; /**< what the algorithm uses of the lane's workspace */
    const void *bias;       /**< the pointer that `desc` holds: the bias, or bgrad, which goes by the same name */
    const void *aux;        /**< likewise */
} tlob_plan;

/** Open addressing with linear probing; grows, never shrinks; a plan is never dropped, for a captured graph used it. */
typedef struct tlob_plan_table {
    tlob_plan **slots; /**< plans never move: the library may keep addresses inside its opaque descriptors */
    size_t capacity;   /**< 0 or a power of two */
    size_t count;
} tlob_plan_table;

/** The cublaslt backend's share of a stream. One thread at a time uses it, so that it needs no lock. */
struct tlob_lane {
    cublasLtHandle_t handle;
    tlob_lane_params params;
    tlob_plan_table plans;
};

/** C as cublasLt shall see it: D itself where beta is 0, because C may then be NULL. */
static inline const float *tlob_plan_c(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    return gemm->beta != 0 ? x->c : x->d;
}

void tlob_plan_key_init(tlob_plan_key *key, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/**
 * The plan of a product, ready to run with the bias, bgrad and aux of `x`. `*plan` is NULL, or a plan of the same problem
 * with whatever operands: it is kept where it fits these, without a look into the table. On a hit: no allocation, no
 * query, nothing built. On a miss: builds descriptors, and asks the heuristic once, or where the context is deterministic
 * its table of algorithms.
 *
 * Errors: NOT_WARM for a miss while the stream is captured; UNSUPPORTED where the library knows no algorithm; BACKEND;
 * OUT_OF_MEMORY.
 */
tlob_status tlob_plan_get(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_plan **plan);

/**
 * The plan of a product in words. A cached one is only read; else one is built, told and dropped, and no counter moves.
 * Operands that are NULL are taken to be aligned to 256 bytes and apart. Errors: as tlob_plan_get.
 */
tlob_status tlob_plan_describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                               tlob_lane_plan *told);

/** Why the algorithm of a plan must not run, though the library offers it; NULL where it may. */
const char *tlob_plan_why_denied(const tlob_plan *plan);

void tlob_plan_table_free(tlob_plan_table *table);

/** Records a failure of a cublasLt call, with the status that its code amounts to. */
tlob_status tlob_cublaslt_fail(cublasStatus_t code, const char *call, const tlob_gemm *gemm, const char *advice);

#endif
