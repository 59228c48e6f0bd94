/** The context: one memory space, its backends, and the settings that every call in it obeys. */
#ifndef TLOB_CONTEXT_H
#define TLOB_CONTEXT_H

#include <stddef.h>

#include <tlob/dispatch.h>
#include <tlob/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where the data of a context lies. A host context has exactly `cpu_ref`; a CUDA context exactly the GPU backends. */
typedef enum tlob_memory { TLOB_MEMORY_HOST = 1, TLOB_MEMORY_CUDA = 2 } tlob_memory;

/** Levels of log lines, the most urgent first. */
typedef enum tlob_log_level {
    TLOB_LOG_DEFAULT, /**< as a setting: environment, else WARN */
    TLOB_LOG_NONE,
    TLOB_LOG_ERROR,
    TLOB_LOG_WARN,
    TLOB_LOG_INFO,
    TLOB_LOG_DEBUG,
} tlob_log_level;

/** A setting that is on or off. */
typedef enum tlob_switch {
    TLOB_SWITCH_DEFAULT, /**< as a setting: environment, else configuration file, else off */
    TLOB_SWITCH_OFF,
    TLOB_SWITCH_ON,
} tlob_switch;

/** How the attention block is computed (<tlob/block.h>). */
typedef enum tlob_block_plan {
    TLOB_PLAN_DEFAULT,  /**< as a setting: environment, else configuration file, else a table of policy `tuned`, else by
                             shape */
    TLOB_PLAN_COMPOSED, /**< products by the context's backends, and an attention kernel */
    TLOB_PLAN_FUSED,    /**< one kernel a pass, and one more that adds up the gradients of the weights */
} tlob_block_plan;

/** "composed", "fused", or "default". Static storage. */
TLOB_API const char *tlob_block_plan_name(tlob_block_plan plan);

struct tlob_block_params;

/**
 * The embedder's policy for blocks: returns the plan of one made from `params`, and may set `*reason` (a string that
 * outlives the call, such as a literal). It must be a pure function of shape, max_samples and inference of `params`,
 * and of `user`; params->plan is DEFAULT. Anything but COMPOSED and FUSED makes the block fail with TLOB_ERR_POLICY,
 * and FUSED where the fused kernels do not cover it with TLOB_ERR_UNSUPPORTED. Called on the thread that creates or
 * explains the block, for each block.
 */
typedef tlob_block_plan (*tlob_block_plan_fn)(void *user, const struct tlob_block_params *params, const char **reason);

/** Receives one log line without a trailing newline. May be called from any thread that uses the context. */
typedef void (*tlob_log_fn)(void *user, tlob_log_level level, const char *line);

/** One product as it was run, for the trace. Pointers are valid during the callback only. */
typedef struct tlob_trace {
    const tlob_gemm *gemm;    /**< with its compute mode resolved */
    const char *backend;      /**< that ran it or refused it, or as the caller named it; "" where none was chosen */
    tlob_form form;           /**< in which it ran or would have run */
    const char *algorithm;    /**< as the backend tells; "" where it does not */
    size_t workspace_bytes;   /**< that the algorithm uses; 0 where the backend does not tell */
    bool deterministic;       /**< whether the context is */
    const char *reason;       /**< why so: of the policy, "named by the caller", or of tlob_gemm_run_as */
    tlob_status status;       /**< what tlob_gemm_run returned */
    const char *message;      /**< of the failure; "" for TLOB_OK */
} tlob_trace;

/** Receives one record for each product. May be called from any thread that uses the context. */
typedef void (*tlob_trace_fn)(void *user, const tlob_trace *trace);

/** Where a setting's value came from, in order of precedence. */
typedef enum tlob_origin {
    TLOB_ORIGIN_ARGUMENT,
    TLOB_ORIGIN_ENVIRONMENT,
    TLOB_ORIGIN_FILE, /**< the configuration file */
    TLOB_ORIGIN_DEFAULT,
} tlob_origin;

/** "argument", "environment", "file" or "default". Static storage. */
TLOB_API const char *tlob_origin_name(tlob_origin origin);

/** "host" or "cuda". Static storage. */
TLOB_API const char *tlob_memory_name(tlob_memory memory);

/** "tf32" or "fp32" ("default" for TLOB_COMPUTE_DEFAULT). Static storage. */
TLOB_API const char *tlob_compute_name(tlob_compute compute);

/** The workspace of one stream where none is set: 32 MiB. */
#define TLOB_WORKSPACE_BYTES_DEFAULT ((size_t)32 << 20)

/**
 * How to make a context. Fields left at 0 are taken from the environment, then from the configuration file, then from
 * the default:
 *
 * | field           | variable           | key in the file | values                                  | default |
 * |-----------------|--------------------|-----------------|-----------------------------------------|---------|
 * | compute         | TLOB_COMPUTE       | compute         | tf32, fp32                              | tf32 (CUDA), fp32 (host) |
 * | policy          | TLOB_POLICY        | policy          | threshold, threshold:N, fixed:BACKEND, tuned, tuned:strict | threshold:64 (CUDA), fixed:cpu_ref (host) |
 * | table_path      | TLOB_TABLE         | table           | a table of methods, for policy tuned    | none    |
 * | workspace_bytes | TLOB_WORKSPACE_MIB | workspace_mib   | 1 to 65536                              | 32 MiB  |
 * | log_level       | TLOB_LOG           | log             | none, error, warn, info, debug          | warn    |
 * | trace_path      | TLOB_TRACE         | trace           | a file to append JSON lines to          | none    |
 * | deterministic   | TLOB_DETERMINISTIC | deterministic   | on, off                                 | off     |
 * | block_plan      | TLOB_BLOCK_PLAN    | block_plan      | composed, fused                         | by shape |
 * | config_path     | TLOB_CONFIG        |                 | a JSON file: one object with these keys | none    |
 *
 * Variables and file are read once, when a context is created or settings are resolved. An invalid value, an unknown key
 * or a file that is no such object is TLOB_ERR_SETTING, which names variable or file, line where it can, and the valid
 * values.
 */
typedef struct tlob_context_params {
    tlob_memory memory;        /**< where the data lies; never taken from the environment */
    int device;                /**< CUDA ordinal; must be 0 for a host context */
    tlob_compute compute;      /**< how products are formed where they do not say so themselves */
    tlob_policy policy;        /**< which backend runs a product */
    size_t workspace_bytes;    /**< per stream, shared by the backends of the context */
    tlob_log_level log_level;  /**< the least urgent level that is logged */
    tlob_log_fn log;           /**< NULL: nothing is logged */
    void *log_user;            /**< handed to `log` */
    bool trust_pointers;       /**< skip the check that operands lie in the context's memory space, which is made the
                                    first time that a stream sees a pointer */
    const char *config_path;   /**< of the configuration file, or NULL */
    const char *trace_path;    /**< of the file that gets a JSON line for each product, or NULL */
    const char *table_path;    /**< of the table that policy `tuned` reads, or NULL; with another policy an error, unless
                                    that comes from a place before the table's */
    tlob_switch deterministic; /**< on: the same problem gives the same bits, on the same device model, with the same
                                    vendor library, workspace and alignment of operands (docs/determinism.md); a
                                    backend whose caps do not promise that is then unsupported */
    tlob_block_plan block_plan; /**< how blocks that do not say so themselves are computed; with fused, one that it does
                                    not cover is an error, and gets no other plan */
    tlob_block_plan_fn block_decide; /**< decides on those blocks instead, before environment and file; NULL: none.
                                    With a block_plan an error */
    void *block_user;          /**< handed to `block_decide`; must outlive the context */
    tlob_trace_fn trace;       /**< NULL: no callback */
    void *trace_user;          /**< handed to `trace` */
    const struct tlob_backend_ops *const *backends; /**< rows of one's own (<tlob/backend.h>), besides libtlob's */
    int n_backends;            /**< how many; at most TLOB_BACKENDS_MAX, each for `memory` */
} tlob_context_params;

/** The most backends of one's own that a context can have. */
#define TLOB_BACKENDS_MAX 8

/** All zero but `memory` = CUDA. */
TLOB_API tlob_context_params tlob_context_params_default(void);

/** The settings in force, and where each came from. */
typedef struct tlob_settings {
    tlob_compute compute;     /**< never DEFAULT */
    tlob_policy policy;       /**< never DEFAULT */
    size_t workspace_bytes;   /**< of each stream */
    tlob_log_level log_level; /**< never DEFAULT */
    bool deterministic;       /**< whether it is on */
    tlob_block_plan block_plan;     /**< DEFAULT: none is named; tlob_block_explain tells what then decides */
    tlob_block_plan_fn block_decide; /**< NULL: no callback decides */
    void *block_user;         /**< handed to `block_decide` */
    char trace_path[256];  /**< empty: no trace file */
    char config_path[256]; /**< empty: no configuration file */
    char table_path[256];  /**< empty: policy `tuned` has the table in `policy`, or the policy is another */
    tlob_origin compute_origin;   /**< of compute */
    tlob_origin policy_origin;    /**< of policy */
    tlob_origin workspace_origin; /**< of workspace_bytes */
    tlob_origin log_level_origin; /**< of log_level */
    tlob_origin trace_origin;     /**< of trace_path */
    tlob_origin deterministic_origin; /**< of deterministic */
    tlob_origin block_plan_origin; /**< of block_plan, or of block_decide */
    tlob_origin config_origin;    /**< of config_path */
    tlob_origin table_origin;     /**< of table_path, or of the table in `policy` */
} tlob_settings;

/**
 * What a context made from `params` would be set to; needs no GPU.
 *
 * Errors: ARGUMENT, UNKNOWN_NAME, SETTING (names variable and value). A policy that can only choose backends that the
 * memory space does not have, or that this build lacks, is ARGUMENT or NOT_BUILT here, not at the first call.
 */
TLOB_API tlob_status tlob_settings_resolve(const tlob_context_params *params, tlob_settings *settings);

/**
 * tlob_dispatch_explain with every backend of libtlob considered, as in a context of `memory` that need not exist: so
 * without a GPU, and without the algorithm, which only a device can tell. A compute mode of DEFAULT is taken as the
 * default of that memory space. Errors: as tlob_dispatch_explain.
 */
TLOB_API tlob_status tlob_dispatch_candidates(const tlob_policy *policy, tlob_memory memory, const tlob_gemm *gemm,
                                              tlob_explanation *explanation);

/** A context. Thread-safe: may be shared by threads that use distinct streams. */
typedef struct tlob_context tlob_context;

/**
 * Makes a context, its backends and its default stream. Blocking: on CUDA this starts the device's primary context,
 * which takes on the order of a second the first time. The caller's current CUDA device is as it was on return.
 *
 * Where the policy is `tuned` and names no table itself, the one at table_path is read and belongs to the context. The
 * log tells how many of its entries are for this device and these libraries, and warns of the others.
 *
 * Ownership: free with tlob_context_destroy. Errors: ARGUMENT; SETTING; FILE of a table; NOT_BUILT without
 * CUDA; NO_DEVICE names the reason (no driver, driver older than the runtime, ordinal out of range); OUT_OF_MEMORY;
 * BACKEND; CUDA. `*ctx` is NULL after a failure.
 */
TLOB_API tlob_status tlob_context_create(tlob_context **ctx, const tlob_context_params *params);

/**
 * Closes a context: waits for its streams, frees handles and workspaces, sets `*ctx` to NULL. NULL and a pointer to NULL
 * are allowed. Streams, buffers, blocks and models made from it stay valid objects whose every call is TLOB_ERR_CLOSED;
 * destroying them is still the caller's duty. No other thread may be inside a call that uses the context.
 */
TLOB_API void tlob_context_destroy(tlob_context **ctx);

/** The settings of a context; a table in them that it has read is valid as long as it is. Errors: ARGUMENT. */
TLOB_API tlob_status tlob_context_settings(const tlob_context *ctx, tlob_settings *settings);

/** The memory space of a context. `ctx` must not be NULL. */
TLOB_API tlob_memory tlob_context_memory(const tlob_context *ctx);

/** The CUDA ordinal of a context; -1 for a host context. `ctx` must not be NULL. */
TLOB_API int tlob_context_device(const tlob_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
