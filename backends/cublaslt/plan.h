/** Plans of the cublaslt backend: everything that a product needs besides its pointers, built once and kept. */
#ifndef TLOB_BACKENDS_CUBLASLT_PLAN_H
#define TLOB_BACKENDS_CUBLASLT_PLAN_H

#include <cublasLt.h>

#include "backends/product.h"

#define TLOB_CUBLASLT_NAME "cublaslt"

/** Descriptors and an algorithm. Nothing in it changes after it is made but the pointers of the epilogue. */
typedef struct tlob_plan {
    tlob_product_key key;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c; /**< `c` serves D as well */
    cublasLtMatmulAlgo_t algo;
    const char *refusal;    /**< NULL, or why the pick cannot be used: kept, so that nobody asks again */
    size_t workspace_bytes; /**< what the algorithm uses of the lane's workspace */
    const void *bias;       /**< the pointer that `desc` holds: the bias, or bgrad, which goes by the same name */
    const void *aux;        /**< likewise */
} tlob_plan;

/** The cublaslt backend's share of a stream. One thread at a time uses it, so that it needs no lock. */
struct tlob_lane {
    cublasLtHandle_t handle;
    struct tlob_handle *kept; /**< what goes back to the pool: the handle */
    tlob_lane_params params;
    tlob_product_table plans; /**< of tlob_plan */
    tlob_pick *picks;         /**< the configurations that were adopted (pick.h) */
};

/**
 * The plan of a product, ready to run with the bias, bgrad and aux of `x`. `*plan` is NULL, or a plan of the same problem
 * with whatever operands: it is kept where it fits these, without a look into the table. On a hit: no allocation, no
 * query, nothing built. On a miss: builds descriptors, and takes the algorithm from the pick; without one it asks the
 * heuristic once, or where the context is deterministic its table of algorithms. That a pick is refused is kept like a
 * plan, and is known in a capture.
 *
 * Errors: NOT_WARM for a miss while the stream is captured; UNSUPPORTED where the library knows no algorithm, or refuses
 * that of the pick; BACKEND; OUT_OF_MEMORY.
 */
tlob_status tlob_plan_get(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x, const tlob_pick *pick,
                          tlob_plan **plan);

/** Makes the plan where there is none; counts no hit. Errors: as tlob_plan_get. */
tlob_status tlob_plan_warm(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x, const tlob_pick *pick);

/**
 * A plan without its algorithm, in zeroed memory that stays where it is. Operands that are NULL are taken to be aligned
 * to 256 bytes and apart. Errors: NOT_WARM in a capture, when a query would fail, or spoil it; BACKEND.
 */
tlob_status tlob_plan_frame(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/**
 * Asks the heuristic for up to `wanted` algorithms for a plan without one: `*found` of them, the library's best first.
 * Errors: BACKEND; UNSUPPORTED.
 */
tlob_status tlob_plan_query(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, int wanted,
                            cublasLtMatmulHeuristicResult_t *results, int *found);

/**
 * The plan of a product in words. A cached one is only read; else one is built, told and dropped, and no counter moves.
 * Operands that are NULL are taken to be aligned to 256 bytes and apart. Of the configuration of `count` fields; 0: that
 * of the backend's own choice. Errors: as tlob_plan_get.
 */
tlob_status tlob_plan_describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                               const tlob_algorithm_field *fields, int count, tlob_lane_plan *told);

/** Why the algorithm of a plan must not run, though the library offers it; NULL where it may. */
const char *tlob_plan_why_denied(const tlob_plan *plan);

/** Records a failure of a cublasLt call, with the status that its code amounts to. */
tlob_status tlob_cublaslt_fail(cublasStatus_t code, const char *call, const tlob_gemm *gemm, const char *advice);

#endif
