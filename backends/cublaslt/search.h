/**
 * The fixed search: every configuration of every algorithm that the library lists is put in an order that depends on
 * the key alone (by an estimate of its time, then by its attributes), and the first that passes the library's own check,
 * the alignment of the operands, the workspace and the list of those known to be wrong wins. Neither the order in which
 * the library lists algorithms nor a clock has a part in it.
 */
#ifndef TLOB_BACKENDS_CUBLASLT_SEARCH_H
#define TLOB_BACKENDS_CUBLASLT_SEARCH_H

#include "backends/cublaslt/algorithm.h"

/** Sets plan->algo to the winner, and `*config` to its attributes. Errors: UNSUPPORTED; BACKEND; OUT_OF_MEMORY. */
tlob_status tlob_algo_search(tlob_lane *lane, tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                             tlob_algo_config *config);

/** Sets plan->algo from attributes. Errors: BACKEND. */
tlob_status tlob_algo_make(cublasLtHandle_t handle, tlob_plan *plan, const tlob_algo_config *config,
                           const tlob_gemm *gemm);

/* --- estimate.c ------------------------------------------------------------------------------------------------ */

/** Rows and columns of a tile id; false where they are not known. */
bool tlob_algo_tile(int64_t tile, int *rows, int *columns);

/** Depth in k of one step of a stages id, and how many steps are under way; false where they are not known. */
bool tlob_algo_stages(int64_t stages, int *depth, int *steps);

/**
 * About how many microseconds a configuration takes: only the order of the estimates counts. Those whose tiles, stages
 * or custom option are not known come after all others. A pure function, of operations that every machine rounds
 * alike.
 */
double tlob_algo_estimate(const tlob_product_key *problem, const tlob_algo_config *config, int multiprocessors);

#endif
