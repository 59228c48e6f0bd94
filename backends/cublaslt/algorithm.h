/**
 * The algorithm of a product where the context is deterministic: a pure function of the problem, the device and the
 * version of the library (search.h). One table of answers serves all lanes of a context.
 */
#ifndef TLOB_BACKENDS_CUBLASLT_ALGORITHM_H
#define TLOB_BACKENDS_CUBLASLT_ALGORITHM_H

#include "backends/cublaslt/plan.h"

/** Raised whenever the order changes: entries of another order are no promise of this one. */
#define TLOB_ALGO_ORDER 1

/** All that a choice depends on, besides the device, the library's version and the order, which are the table's. */
typedef struct tlob_algo_key {
    tlob_product_key problem;
    int64_t type; /**< of A, B, C, D and the scalars: CUDA_R_32F */
    int64_t workspace_bytes;
} tlob_algo_key;

/** An algorithm by its attributes, which mean the same in every process; its number in a list does not. */
typedef struct tlob_algo_config {
    int64_t id, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster_shape;
    int64_t workspace_bytes; /**< that it uses */
} tlob_algo_config;

/** Order by attributes; 0 for equal ones. */
int tlob_algo_compare(const tlob_algo_config *a, const tlob_algo_config *b);

/** The attributes as fields, at most TLOB_ALGORITHM_FIELDS_MAX; returns how many. */
int tlob_algo_tell_config(const tlob_algo_config *config, tlob_algorithm_field *fields);

/** Attributes from fields: each must be there once, and none that is not known. False: `why` has the reason. */
bool tlob_algo_take_config(const tlob_algorithm_field *fields, int count, tlob_algo_config *config, char *why,
                           size_t size);

/** How many multiprocessors the device has, at least 1. */
int tlob_algo_multiprocessors(const tlob_shared *shared);

/**
 * Chooses the algorithm of a plan whose descriptors are made: from the lanes' table, or by the function above. Threads
 * that ask for one key at once get one answer, found once.
 *
 * Errors: UNSUPPORTED where no configuration passes; BACKEND; OUT_OF_MEMORY.
 */
tlob_status tlob_algo_choose(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm);

tlob_status tlob_algo_attach(tlob_shared **shared, const tlob_shared_params *params);
void tlob_algo_detach(tlob_shared *shared);
void tlob_algo_list(tlob_shared *shared, tlob_algorithm_fn visit, void *user);
bool tlob_algo_offer(tlob_shared *shared, const tlob_algorithm *entry, char *why, size_t size);

#endif
