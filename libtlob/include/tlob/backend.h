/**
 * The backend vtable: how libtlob calls a GEMM backend, its own or one that the embedder brings at run time.
 *
 * A backend of one's own is a `tlob_backend_ops` row in tlob_context_params.backends. The core validates every problem
 * before a slot is called; a backend only computes, reports what it cannot do, and tries nothing else instead.
 */
#ifndef TLOB_BACKEND_H
#define TLOB_BACKEND_H

#include <tlob/algorithms.h>
#include <tlob/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Raised by one whenever this file changes what a row means. */
#define TLOB_BACKEND_API 3

/** What is known of a backend, as data. 0 means "cannot". */
typedef struct tlob_backend_caps {
    tlob_memory memory;     /**< the one memory space it works in */
    uint32_t computes;      /**< bit (1 << tlob_compute) of TF32 and FP32 */
    uint32_t epilogues;     /**< bit (1 << tlob_epilogue); NONE is required */
    int64_t max_batch;      /**< largest batch of one call; 1: no strided batch */
    uint32_t aux_alignment; /**< bytes that an aux of floats must be aligned to; 0: those of a float */
    bool deterministic;     /**< on a lane that asks for it: the same problem, with operands of the same alignment and C
                                 being D or not as before, gives the same bits on the same device model with the same
                                 library and workspace */
} tlob_backend_caps;

/** A backend's share of one stream: vendor handle, cached plans. Each backend defines its own. */
typedef struct tlob_lane tlob_lane;

/** What the lanes of one backend share within a context. Each backend defines its own. */
typedef struct tlob_shared tlob_shared;

/** What a share is made from. All of it outlives the share. */
typedef struct tlob_shared_params {
    bool deterministic;       /**< the context's setting */
    size_t workspace_bytes;   /**< of each stream; 0 on a host context */
    const char *device;       /**< the device's name, such as "NVIDIA H200"; "" on a host context */
    int sm;                   /**< its compute capability, major * 10 + minor; 0 on a host context */
    int multiprocessors;      /**< how many it has; 0 on a host context */
    tlob_log_fn log;          /**< never NULL; thread-safe; drops what the context's level leaves out */
    void *log_user;           /**< handed to `log` */
} tlob_shared_params;

/** What a lane is made from. All of it belongs to the stream and outlives the lane. */
typedef struct tlob_lane_params {
    struct CUstream_st *cuda_stream; /**< NULL on a host context */
    unsigned long long device_context; /**< a number for the device's context, unlike that of any other device, or of the
                                            same device before it was reset; 0 on a host context */
    void *workspace;                 /**< shared by the lanes of one stream, aligned to 256 bytes; NULL on a host context */
    size_t workspace_bytes;          /**< its size */
    bool deterministic;              /**< the context's setting */
    tlob_shared *shared;             /**< what attach gave; NULL without attach. Belongs to the context, outlives the lane */
    tlob_stream_stats *stats;        /**< counters that the lane keeps: plan_hits, plan_misses, handles */
} tlob_lane_params;

/** A configuration that a lane has adopted. Each backend that takes configurations defines its own; the lane owns it. */
typedef struct tlob_pick tlob_pick;

/** Receives one configuration. Fields are valid during the call only, their names for ever. */
typedef void (*tlob_configuration_fn)(void *user, const tlob_algorithm_field *fields, int count);

/** How a backend would run a problem, in words. */
typedef struct tlob_lane_plan {
    char algorithm[128];    /**< such as "algo 21 tile 64x64 stages 3 split-k 1", or why it is not known */
    size_t workspace_bytes; /**< what it would use of the stream's workspace; 0 where not known */
    bool cached;            /**< whether a plan for it exists already */
} tlob_lane_plan;

/** For a parameter that not every function of a signature uses: no warning then. */
#if defined(__GNUC__)
#    define TLOB_UNUSED __attribute__((unused))
#else
#    define TLOB_UNUSED
#endif

/**
 * One signature per operation: slots and implementations are declared with it and cannot drift apart. `gemm->compute` is
 * resolved (never DEFAULT); m, n, k, batch >= 1; alpha != 0; supports() and caps have said yes. The operation is finished
 * or enqueued on the lane's stream when the slot returns.
 *
 * `pick` is NULL: the backend chooses the algorithm by itself; or what adopt of this lane gave, for the same problem: it
 * is then used and nothing else is tried.
 *
 * `*memo` is the backend's to use or to ignore: NULL, or what the slot left there when this lane last ran this very
 * problem with this pick, whose operands may have been others. So a backend finds the plan that it made without looking
 * it up. The core may forget it at any time and frees nothing: what it points to belongs to the lane.
 */
#define TLOB_GEMM_FN(name)                                                                                             \
    tlob_status name(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,                              \
                     const tlob_pick *pick TLOB_UNUSED, void **memo TLOB_UNUSED)

/** A backend. The row, and the strings in it, must outlive every context that uses it. */
typedef struct tlob_backend_ops {
    uint32_t api;           /**< TLOB_BACKEND_API of the header that the row was compiled with; first for ever */
    const char *name;       /**< as users type it: lower case letters, digits and '_', at most 23, unlike any other's */
    const char *missing;    /**< NULL; or why this build does not contain it, and then every slot is NULL */
    tlob_backend_caps caps; /**< what the backend can do */

    void (*version)(char *text, size_t size);                              /**< optional; NULL: no vendor library */
    tlob_status (*open)(tlob_lane **lane, const tlob_lane_params *params); /**< required; may give a NULL lane */
    void (*close)(tlob_lane *lane);                                        /**< required; must accept a NULL lane */
    /** Optional: makes what the lanes of a context share. Called once, before any lane is opened; may leave NULL. */
    tlob_status (*attach)(tlob_shared **shared, const tlob_shared_params *params);
    /** Required with attach: for what is not NULL, when all lanes are closed, on whatever thread and device. */
    void (*detach)(tlob_shared *shared);
    /** Optional; visits the algorithms that a deterministic context has chosen, sorted by key. Thread-safe. */
    void (*list_algorithms)(tlob_shared *shared, tlob_algorithm_fn visit, void *user);
    /**
     * Required with list_algorithms: an entry of a file, for the same device model. True: it is kept, to be checked when
     * its key is first needed. False: `why` has the reason. Thread-safe.
     */
    bool (*offer_algorithm)(tlob_shared *shared, const tlob_algorithm *entry, char *why, size_t size);
    /** Optional; NULL: caps tell all. A pure function of the problem; false sets `*why` to a string that outlives it. */
    bool (*supports)(const tlob_gemm *gemm, const char **why);
    /**
     * Optional; NULL: how is not known. Runs nothing and changes no plan; x may hold NULL for operands not known yet. By
     * the configuration of `count` fields, as for adopt; count 0: by the backend's own choice.
     */
    tlob_status (*describe)(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan);
    /**
     * Optional; NULL: there is nothing to choose from. Visits configurations that pass the library's own check for this
     * problem and these operands, each once, sorted by their attributes; which they are depends on problem, operands,
     * device, library and workspace alone. On a lane that asks for determinism only those with a fixed order of sums.
     * At most TLOB_METHOD_FIELDS_MAX fields each. Runs nothing and keeps nothing; x may hold NULL as for describe.
     */
    tlob_status (*propose)(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           tlob_configuration_fn visit, void *user);
    /**
     * Required with propose: makes ready to run this problem, with operands that lie as these do, by a configuration,
     * and keeps that as long as the lane. `*pick` is written on success alone; equal configurations give the same one,
     * and whoever asks again gets it without a query. UNSUPPORTED, with the reason, where a field is unknown, missing,
     * given twice or out of range, the library's check refuses the configuration, or the lane asks for determinism and
     * the order of its sums is not fixed; NOT_WARM for a new one in a capture. A refusal should be kept as well: a
     * product whose table has such an entry asks again, and must get the same answer in a capture.
     */
    tlob_status (*adopt)(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                         const tlob_algorithm_field *fields, int count, const tlob_pick **pick);

    TLOB_GEMM_FN((*sgemm));                 /**< required: batch 1, no epilogue */
    TLOB_GEMM_FN((*sgemm_strided_batched)); /**< required where caps.max_batch > 1: batch > 1, no epilogue */
    TLOB_GEMM_FN((*matmul_bias));           /**< required where caps.epilogues has more than NONE: any batch up to max */
} tlob_backend_ops;

/**
 * For backends: records a failure on this thread as tlob_last_error and returns `status`. `operation` is the call that
 * failed, `gemm` may be NULL, `vendor` is the vendor's name for `vendor_code` or NULL. The message is built from all of
 * them and the printf format. Thread-safe.
 */
TLOB_API tlob_status tlob_backend_fail(tlob_status status, const char *backend, const char *operation, int vendor_code,
                                       const char *vendor, const tlob_gemm *gemm, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 7, 8)))
#endif
    ;

#ifdef __cplusplus
}
#endif
#endif
