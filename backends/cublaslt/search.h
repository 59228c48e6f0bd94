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

/**
 * The first `most` configurations of that order that pass, and how many they are: fewer where fewer pass. Changes
 * plan->algo. Errors: BACKEND; OUT_OF_MEMORY.
 */
tlob_status tlob_algo_search_many(tlob_lane *lane, tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                                  tlob_algo_config *configs, size_t most, size_t *count);

/**
 * Sets plan->algo from attributes that anyone may have given, and config->workspace_bytes to what they need. `*why` is
 * NULL, or why they must not be used: the library does not know or refuses them, they round more than the mode allows,
 * need more alignment or workspace than there is, are known to be wrong, or on a lane that asks for determinism sum in
 * no fixed order. Errors: BACKEND.
 */
tlob_status tlob_algo_try(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, tlob_algo_config *config,
                          const char **why);

/** The attributes of an algorithm that the library has made. What cannot be read is 0. */
void tlob_algo_read(const cublasLtMatmulAlgo_t *algo, tlob_algo_config *config);

/** The schemes with a fixed order in which algorithm `id` sums the parts of a split K, as bits; 0: it splits none so. */
uint32_t tlob_algo_stable_reductions(cublasLtHandle_t handle, const tlob_product_key *key, int64_t id);

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
