/** Configurations that a caller chooses: which there are for a problem, and those that a lane has adopted. */
#ifndef TLOB_BACKENDS_CUBLASLT_PICK_H
#define TLOB_BACKENDS_CUBLASLT_PICK_H

#include "backends/cublaslt/algorithm.h"

/** A configuration. One for each that differs, as long as the lane: plans have its address in their keys. */
struct tlob_pick {
    tlob_algo_config config; /**< without the workspace, which depends on the problem */
    tlob_pick *next;
};

/** From fields, as tlob_backend_ops.adopt has them. Errors: UNSUPPORTED. */
tlob_status tlob_pick_init(tlob_pick *pick, const tlob_algorithm_field *fields, int count, const tlob_gemm *gemm);

/** The lane's pick of the same configuration, or NULL. */
const tlob_pick *tlob_pick_find(const tlob_lane *lane, const tlob_pick *pick);

/** Sets the algorithm of a plan to that of its key's pick. Errors: UNSUPPORTED, with plan->refusal; BACKEND. */
tlob_status tlob_pick_apply(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm);

/** UNSUPPORTED, recorded: why a configuration cannot be used. */
tlob_status tlob_pick_refuse(const char *why, const tlob_gemm *gemm);

/** The slots of these names. A configuration that is refused is kept too. */
tlob_status tlob_pick_propose(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                              tlob_configuration_fn visit, void *user);
tlob_status tlob_pick_adopt(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, const tlob_pick **pick);

/** Frees the picks of a lane that has no plans any more. */
void tlob_pick_free_all(tlob_lane *lane);

#endif
