/** What the vendor's backends remember products by, and the table in which they do. */
#ifndef TLOB_BACKENDS_PRODUCT_H
#define TLOB_BACKENDS_PRODUCT_H

#include "backends/backend.h"

/**
 * All that descriptors, layouts and the choice of an algorithm or kernel depend on, and nothing else. Compared byte by
 * byte, so it is made by tlob_product_key_init alone, which leaves no byte undefined.
 */
typedef struct tlob_product_key {
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
    const tlob_pick *pick; /**< the configuration that was asked for; NULL: the backend's own choice */
} tlob_product_key;

/** C as the vendor shall see it: D itself where beta is 0, because C may then be NULL. */
static inline const float *tlob_product_c(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    return gemm->beta != 0 ? x->c : x->d;
}

/** What cublasLt calls the bias: that vector, or bgrad in its place; NULL where the epilogue has neither. */
const void *tlob_product_bias(const tlob_gemm *gemm, const tlob_gemm_operands *x);

void tlob_product_key_init(tlob_product_key *key, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           const tlob_pick *pick);

/** Whether a key of the same problem is that of these operands and this pick too: all that init takes besides. */
bool tlob_product_key_fits(const tlob_product_key *key, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           const tlob_pick *pick);

/**
 * Open addressing with linear probing; grows, never shrinks; an entry is never dropped, for a captured graph used it.
 * Entries come from malloc, begin with their key and never move.
 */
typedef struct tlob_product_table {
    tlob_product_key **slots;
    size_t capacity; /**< 0 or a power of two */
    size_t count;
} tlob_product_table;

/** The entry of `key`, or NULL. */
tlob_product_key *tlob_product_table_get(const tlob_product_table *table, const tlob_product_key *key);

/** Makes room for one more entry, at most half full. False: no memory, the table is as it was. */
bool tlob_product_table_reserve(tlob_product_table *table);

/** Adds an entry whose key is not there yet, after tlob_product_table_reserve. */
void tlob_product_table_add(tlob_product_table *table, tlob_product_key *entry);

/** Frees the entries and the table. */
void tlob_product_table_free(tlob_product_table *table);

/** NOT_WARM for a product that has not run on its stream: recorded where that is being captured, else OK. */
tlob_status tlob_product_refuse_capture(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm);

#endif
