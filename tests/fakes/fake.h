/**
 * Vendor libraries that are none: they compute on host memory, keep a record of their calls, and fail on demand. A
 * backend that is compiled with them runs without a GPU, so that what it hands to the vendor can be tested anywhere.
 *
 * fake_core.c stands for libtlob's services, fake_cublas.c for cuBLAS, fake_cublaslt.c for cublasLt.
 */
#ifndef TLOB_TESTS_FAKE_H
#define TLOB_TESTS_FAKE_H

#include <cublas_api.h>

#include "backends/backend.h"

typedef struct fake_state {
    /* what a test sets */
    const char *failing_call;       /**< the vendor call that fails, or NULL */
    cublasStatus_t failing_code;    /**< what it fails with */
    bool capturing;                 /**< what tlob_backend_capturing answers */
    int cublas_version, lt_version; /**< as cublasLtGetVersion counts */
    int found;                      /**< results that the heuristic returns where it is asked for one: 1 or 0 */
    int listed;                     /**< where it is asked for more: one of each of the first algorithms, twice over */
    cublasStatus_t found_state;     /**< the state of the result */
    int rotated;                    /**< by so many places the list of algorithms is turned; negative: and reversed */
    uint32_t refused;               /**< bit (1 << place in fake_algorithms): the check refuses it */
    bool in_place_alone;            /**< no algorithm reads a C that is not D */
    uint64_t more_workspace;        /**< that every algorithm needs, besides the parts of a split K */

    /* what the fakes note */
    char calls[4096];           /**< names of the calls in their order, each followed by a space */
    tlob_error error;           /**< the last one that a backend recorded */
    struct CUstream_st *stream; /**< that the handle is bound to, or the product ran on */
    void *workspace;            /**< likewise */
    size_t workspace_bytes;
    tlob_gemm gemm; /**< the last product, translated back into a problem */
    tlob_gemm_operands x;
    uint32_t alignment[4];     /**< preferences of the last heuristic query for A, B, C, D */
    uint64_t workspace_limit;  /**< likewise */
    const void *bias_at_query; /**< the pointer of the bias or bgrad in the descriptor at the last query */
    const void *aux_at_query;  /**< likewise */
    uint32_t epilogue;         /**< the vendor's number of the epilogue of the last product */
    uint32_t config[9];        /**< attributes of every algorithm, by cublasLtMatmulAlgoConfigAttributes_t */
    uint64_t algorithm;        /**< number of the algorithm that the last product ran with: queries count them */
    uint64_t queries;
    uint32_t ran[9];             /**< attributes of the algorithm of the last product, where the backend configured it */
    uint32_t checked_split_most; /**< the largest split K that was checked */
    bool checked_in_place;       /**< whether an in-place reduction was */
} fake_state;

/** An algorithm as the fake of cublasLt lists it. */
typedef struct fake_algorithm {
    int id;
    uint32_t tiles[4], stages[4]; /* each ends with 0 */
    int32_t split_k;
    uint32_t reductions;
    int32_t custom_max;
    uint32_t alignment;
    uint64_t inputs; /* of the numerics */
} fake_algorithm;

enum { FAKE_ALGORITHMS = 9 };
extern const fake_algorithm fake_algorithms[FAKE_ALGORITHMS];

extern _Thread_local fake_state fake; /* each thread has its own */

/** Back to working libraries of version 13.1.0, with nothing noted. */
void fake_reset(void);

/** Forgets the calls noted so far. */
void fake_forget_calls(void);

/** Notes a call; returns what it shall return. */
cublasStatus_t fake_call(const char *name);

/** How often `name` has been called. */
int fake_count(const char *name);

/** Notes and computes a product. */
void fake_multiply(const tlob_gemm *gemm, const tlob_gemm_operands *x);

/**
 * Runs every case of the parity table that has a product through the slots of `ops`, and compares with the definition.
 * Returns how many cases ran; `failed` gets the name of the first that is wrong, or "".
 */
int fake_sweep(const tlob_backend_ops *ops, tlob_lane *lane, tlob_compute compute, char failed[64]);

#endif
