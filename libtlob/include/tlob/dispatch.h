/** Dispatch: which backend runs a problem, in which form, and why. */
#ifndef TLOB_DISPATCH_H
#define TLOB_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include <tlob/form.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tlob_table;

/** The threshold of TLOB_POLICY_THRESHOLD where none is given. */
#define TLOB_THRESHOLD_DEFAULT 64

/** How a policy decides. */
typedef enum tlob_policy_kind {
    TLOB_POLICY_DEFAULT,   /**< not chosen here: environment, else `threshold` (CUDA) or `fixed:cpu_ref` (host) */
    TLOB_POLICY_THRESHOLD, /**< any of m, n, k below the threshold: cublas_classic; all at or above it: cublaslt */
    TLOB_POLICY_FIXED,     /**< always the named backend */
    TLOB_POLICY_CALLBACK,  /**< the embedder's own function */
    TLOB_POLICY_TUNED,     /**< what was measured, from a table */
} tlob_policy_kind;

/** A decision. */
typedef struct tlob_choice {
    char backend[24];  /**< name of the backend */
    bool built;        /**< whether this build of libtlob contains it */
    tlob_form form;    /**< how the problem is put to it */
    char configuration[128]; /**< the algorithm as tlob_method_print tells it; empty: the backend chooses by itself */
    char reason[200];  /**< in words, with the numbers that decided */
} tlob_choice;

/**
 * The embedder's policy: returns the name of the backend for `gemm`, and may set `*reason` (a string that outlives the
 * call, such as a literal). It must be a pure function of `gemm` and `user`: no clock, no memory of earlier calls. NULL
 * or an unknown name makes the product fail with TLOB_ERR_POLICY. Called on the thread of the product, on every call.
 * `gemm->compute` is never DEFAULT in a product; tlob_dispatch_explain, which knows no context, hands on what it gets.
 */
typedef const char *(*tlob_policy_fn)(void *user, const tlob_gemm *gemm, const char **reason);

/** A policy as a value. Zero-initialised it is TLOB_POLICY_DEFAULT. */
typedef struct tlob_policy {
    tlob_policy_kind kind;  /**< which of the fields below count */
    int64_t threshold;      /**< THRESHOLD: >= 1; 0 means TLOB_THRESHOLD_DEFAULT */
    char backend[24];       /**< FIXED: name of the backend */
    tlob_policy_fn decide;  /**< CALLBACK */
    void *user;             /**< CALLBACK: handed to `decide`; must outlive every context that uses the policy */
    const struct tlob_table *table; /**< TUNED: must outlive every context that uses the policy, and not change. NULL: a
                                         context reads the one that its settings name */
    bool strict;            /**< TUNED: a problem that the table does not answer fails with TLOB_ERR_POLICY. Else a
                                 the default policy decides */
} tlob_policy;

/** A backend that was considered for a problem. */
typedef struct tlob_candidate {
    char backend[24]; /**< name of the backend */
    bool picked;      /**< whether it is the one that would run the problem */
    bool able;        /**< whether it could run the problem here: built in, of this memory space, supports() says yes */
    char why[200];    /**< why not able, or why not picked, or by which rule it was picked */
} tlob_candidate;

/** Room for the candidates of an explanation: as many as backends can exist. */
#define TLOB_CANDIDATES_MAX 16

/** A decision in full. */
typedef struct tlob_explanation {
    tlob_choice choice;          /**< backend and reason */
    tlob_compute compute;        /**< numerics: TF32 or FP32 */
    char algorithm[128];         /**< as the backend tells, or why it is not known; empty without a stream */
    size_t workspace_bytes;      /**< that the algorithm would use; 0 where not known */
    bool warm;                   /**< whether a plan for the problem is cached on the stream */
    int candidates;              /**< how many of `candidate` are filled */
    tlob_candidate candidate[TLOB_CANDIDATES_MAX]; /**< every backend considered, in the order of the list */
} tlob_explanation;

/**
 * Reads a policy as users write it: "threshold", "threshold:96", "fixed:cublaslt", "tuned", "tuned:strict".
 *
 * Errors: UNKNOWN_NAME lists the valid policies, or names a backend that is no possible name; ARGUMENT for a threshold
 * that is no number >= 1. Whether a named backend exists is known only with a context's own rows, and so is checked
 * when settings are resolved. `*policy` is written only on success. Thread-safe.
 */
TLOB_API tlob_status tlob_policy_parse(const char *text, tlob_policy *policy);

/** Writes `policy` as tlob_policy_parse reads it ("callback" for a callback) into `text`, at most `size` bytes. */
TLOB_API void tlob_policy_print(const tlob_policy *policy, char *text, size_t size);

/**
 * What `policy` decides for `gemm`, with the reason in words, through the code that tlob_gemm_run uses. A pure
 * function: needs no GPU and launches nothing. TLOB_POLICY_DEFAULT is taken as `threshold`. TUNED: with the first entry
 * for the problem, whatever device and library it is for; compute DEFAULT is taken as TF32.
 *
 * Errors: ARGUMENT for an invalid problem or policy, also one that is TUNED without a table; POLICY where a callback or
 * a strict table fails. Thread-safe if the callback is.
 */
TLOB_API tlob_status tlob_dispatch_explain(const tlob_policy *policy, const tlob_gemm *gemm, tlob_choice *choice);

/**
 * What tlob_gemm_run on `stream` would do with `gemm`, in full, through the same code; launches nothing and caches
 * nothing. `x` may be NULL: operands are then taken to be aligned to 256 bytes and apart.
 *
 * Errors: ARGUMENT, CLOSED, POLICY. A backend that cannot do the problem is no error here: it shows in the candidates.
 */
TLOB_API tlob_status tlob_gemm_explain(struct tlob_stream *stream, const tlob_gemm *gemm,
                                       const tlob_gemm_operands *x, tlob_explanation *explanation);

#ifdef __cplusplus
}
#endif
#endif
