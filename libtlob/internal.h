/** What the files of libtlob/ share: the objects behind the public types, and how failures are recorded. */
#ifndef TLOB_INTERNAL_H
#define TLOB_INTERNAL_H

#include <stdatomic.h>
#include <pthread.h>

#include <tlob/tlob.h>

#include "backends/backend.h"
#include "libtlob/kernels/kernels.h"

#define TLOB_MAX_BACKENDS TLOB_CANDIDATES_MAX /* libtlob's own and TLOB_BACKENDS_MAX of the embedder's */
#define TLOB_SEEN_BITS 8                      /* a stream remembers 2^8 operands as checked */

/* --- errors (error.c) ----------------------------------------------------------------------------------------------- */

/** Records a failure of `operation` on this thread and returns `status`. */
tlob_status tlob_fail(tlob_status status, const char *operation, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** A problem as messages have it: "NT m=16 n=256 k=32 ..."; at most `size` bytes. */
void tlob_problem_print(const tlob_gemm *gemm, char *text, size_t size);

/** The message of the last error, without what stands before: backend, operation and problem. */
const char *tlob_error_reason(void);

/** Puts back what tlob_last_error() gave before a call whose failure is nobody's business. */
void tlob_error_restore(const tlob_error *error);

/** Adds the problem at hand to the error just recorded. */
void tlob_fail_gemm(const tlob_gemm *gemm);

/** Puts words, 63 characters at most, before the message of the error just recorded. */
void tlob_fail_in(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- memory spaces (space_host.c, space_cuda.c) --------------------------------------------------------------------- */

/** The device of a context, and how threads get there and back. The host needs none of it. */
typedef struct tlob_home {
    int device;
    void *context;         /**< its primary context, which this holds a reference to */
    unsigned long long id; /**< the number of that context: a device that is reset gets another */
    int (*get_current)(void **context);                      /**< cuCtxGetCurrent */
    int (*set_current)(void *context);                       /**< cuCtxSetCurrent */
    int (*get_id)(void *context, unsigned long long *id);    /**< cuCtxGetId */
    int (*release)(int device);                              /**< cuDevicePrimaryCtxRelease */
} tlob_home;

/**
 * What differs between host and CUDA below the level of backends. Slots return a cudaError_t as a number (0: success)
 * unless they say otherwise. Those below `leave` run between enter and leave.
 */
typedef struct tlob_space {
    tlob_memory memory;
    const tlob_kernels *kernels;

    tlob_status (*probe)(int device);               /**< whether the device can be used; records the error */
    tlob_status (*count)(int *count);               /**< devices of this kind; records the error */
    int (*describe)(int device, tlob_device_info *info);
    void (*versions)(int *driver, int *runtime);
    tlob_status (*settle)(int device, tlob_home *home);          /**< starts the device; records the error */
    void (*abandon)(tlob_home *home);                            /**< gives it back; not in a forked child */
    int (*enter)(const tlob_home *home, void **previous);        /**< makes the device current on this thread */
    void (*leave)(const tlob_home *home, void *previous);        /**< restores what was */
    int (*exchange_capture_mode)(int mode); /**< this thread's, a cudaStreamCaptureMode; gives what was */
    int (*alloc)(void **ptr, size_t bytes);
    void (*free)(void *ptr);
    int (*alloc_mapped)(void **host, void **device, size_t bytes);
    void (*free_mapped)(void *host);
    int (*stream_create)(struct CUstream_st **stream);
    void (*stream_destroy)(struct CUstream_st *stream);
    int (*stream_sync)(struct CUstream_st *stream);
    bool (*capturing)(struct CUstream_st *stream);
    int (*capture_begin)(struct CUstream_st *stream); /**< of this thread alone; NULL where nothing can be captured */
    /** Ends it, whatever comes of it: `exec` gets what can be launched, or NULL drops it; `call` is what failed. */
    int (*capture_end)(struct CUstream_st *stream, void **exec, const char **call);
    int (*graph_launch)(void *exec, struct CUstream_st *stream);
    void (*graph_destroy)(void *exec);
    int (*event_create)(void **event);
    void (*event_destroy)(void *event);
    int (*event_record)(void *event, struct CUstream_st *stream);
    int (*event_wait)(void *event);                 /**< blocks the calling thread */
    int (*stream_wait)(struct CUstream_st *stream, void *event); /**< what is enqueued from now on waits */
    int (*copy)(void *dst, const void *src, size_t bytes, struct CUstream_st *stream);
    int (*fill)(void *dst, int value, size_t bytes, struct CUstream_st *stream);
    const char *(*misplaced)(const void *ptr, int device); /**< NULL, or what is wrong with the pointer's place */
    const char *(*error_name)(int code);
    const char *(*advice)(int code);                /**< what to do about it; NULL for nothing in particular */
} tlob_space;

/* cudaErrorMemoryAllocation, which the host space uses too, and cudaErrorInitializationError */
enum { TLOB_CUDA_OUT_OF_MEMORY = 2, TLOB_CUDA_NOT_INITIALIZED = 3 };

/**
 * Records a CUDA runtime failure of `call` (0 is TLOB_OK and records nothing). Out of memory becomes OUT_OF_MEMORY, a
 * driver that cannot be used NO_DEVICE.
 */
tlob_status tlob_fail_cuda(const tlob_space *space, int code, const char *call);

extern const tlob_space tlob_space_host;
extern const tlob_space tlob_space_cuda; /* CUDA builds only */

/** The space of `memory`, or NULL where this build lacks it. */
const tlob_space *tlob_space_of(tlob_memory memory);

/* --- context (context.c) -------------------------------------------------------------------------------------------- */

/** An entry of a file of algorithms that no table has taken (algorithms.c). */
typedef struct tlob_refused tlob_refused;

struct tlob_context {
    atomic_int refs;                 /**< one for the owner, one for each object made from it */
    atomic_bool closed;
    const tlob_space *space;
    tlob_home home;
    tlob_device_info device;         /**< all 0 on the host */
    bool attend_has_tiles;           /**< what the kernel of that name says of the device */
    bool has_fused_code;             /**< what block_has_code says of it */
    atomic_bool kernels_loaded;      /**< whether the code of all of them is on the device (graph.c) */
    tlob_settings settings;
    tlob_log_fn log;
    void *log_user;
    bool trust_pointers;
    tlob_trace_fn trace;
    void *trace_user;
    int trace_fd;                    /**< -1: no trace file */
    atomic_bool trace_failed;        /**< whether a write to it has failed, which is logged once */
    atomic_bool trace_torn;          /**< whether it ends within a record */
    bool tracing;                    /**< the one question on a warm call: is there a callback or a file? */
    const char *alive;               /**< CUDA contexts: a page of ones that a fork wipes; NULL where forks do no harm */
    int n_backends;
    const tlob_backend_ops *backends[TLOB_MAX_BACKENDS]; /**< those that work here: libtlob's, then the embedder's */
    tlob_shared *shared[TLOB_MAX_BACKENDS]; /**< what each of them keeps for its lanes */
    tlob_table *table;               /**< that this context has read for its policy, or NULL */
    atomic_uchar *refusals;          /**< of each entry of the policy's table, in order: whether it was warned of */
    pthread_mutex_t refused_lock;    /**< guards the list below */
    tlob_refused *refused;           /**< in the order in which they were read */
    tlob_refused **refused_end;      /**< where the next one belongs */
    int n_rows;
    const tlob_backend_ops *rows[TLOB_BACKENDS_MAX]; /**< the embedder's, as given */
    pthread_mutex_t streams_lock;    /**< guards the list below, on cold paths alone */
    struct tlob_stream *streams;     /**< the registry: every open entry */
    struct tlob_stream *default_stream;
};

void tlob_context_ref(tlob_context *ctx);
void tlob_context_unref(tlob_context *ctx);

/** Logs one line if `level` is on; formats only then. */
void tlob_log(const tlob_context *ctx, tlob_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The backend of this context with this name, or NULL. `*index` may be NULL. */
const tlob_backend_ops *tlob_context_backend(const tlob_context *ctx, const char *name, int *index);

/** The names of the context's backends, separated by ", ": for messages. */
void tlob_context_backend_names(const tlob_context *ctx, char *text, size_t size);

/** ARGUMENT for a NULL context, CLOSED for a destroyed one, NO_DEVICE for one from before a fork, else OK. */
tlob_status tlob_context_check(const tlob_context *ctx, const char *operation);

/** Whether this process is a fork of the one that made a CUDA context: CUDA is then not to be touched. */
static inline bool tlob_context_forked(const tlob_context *ctx) {
    return ctx->alive && !*ctx->alive;
}

/**
 * A visit to the device that makes or frees something there, or waits for a stream: this thread says that it knows of
 * captures in global mode (cudaThreadExchangeStreamCaptureMode), so that its calls are not refused and spoil none. What
 * waits for the whole device spoils a capture in every mode, and so is not done at all: see backends/handles.h.
 */
typedef struct tlob_visit {
    void *previous;
    int capture_mode;
} tlob_visit;

tlob_status tlob_enter_cold(const tlob_context *ctx, tlob_visit *visit);

/** Likewise, to give something back; false where there is nothing left: the device is lost, or of a parent. */
bool tlob_enter_to_free(const tlob_context *ctx, tlob_visit *visit);

void tlob_leave_cold(const tlob_context *ctx, const tlob_visit *visit);

/** A problem that has passed every check, how it is done, and the operands that it last ran with. */
typedef struct tlob_known {
    tlob_gemm gemm;                  /**< as the caller gave it */
    bool named;                      /**< whether the caller named the backend */
    uint8_t layout;                  /**< of the operands for which the policy decided: see tlob_layout */
    uint8_t answer;                  /**< of the table: a tlob_answer */
    int index;                       /**< of the backend; -1 in an empty entry */
    tlob_form form;                  /**< in which it is done */
    const tlob_pick *pick;           /**< the backend's: the configuration; NULL: it chooses by itself */
    void *memo;                      /**< the backend's: see TLOB_GEMM_FN */
    tlob_gemm_operands x;            /**< checked; d is NULL before the first run */
} tlob_known;

#define TLOB_KNOWN_PROBLEMS 32       /* that a stream remembers; a power of two */

/* --- streams (stream.c) --------------------------------------------------------------------------------------------- */

struct tlob_stream {
    tlob_context *ctx;
    struct tlob_stream *next;
    int refs;                        /**< the owner's and those of graphs; guarded by the context's streams_lock */
    bool capturing;                  /**< between tlob_graph_begin and tlob_graph_end */
    bool owns_cuda_stream;
    struct CUstream_st *cuda_stream;
    void *workspace;
    void *scratch;                   /**< TLOB_SCRATCH_FLOATS; made by tlob_stream_need_scratch, never replaced */
    tlob_lane *lanes[TLOB_MAX_BACKENDS]; /**< one for each backend of the context */
    tlob_stream_stats stats;
    tlob_staging *staging;           /**< for tlob_upload and tlob_download; made on first use */
    tlob_known known[TLOB_KNOWN_PROBLEMS];
    const void *seen[1 << TLOB_SEEN_BITS]; /**< operands known to lie in the right memory space */
};

/** Counts a reference, to give back with tlob_stream_close. */
void tlob_stream_ref(tlob_stream *stream);

/** Waits for the stream and frees what it holds in the memory space; the entry itself stays. */
void tlob_stream_release(tlob_stream *stream);

#define TLOB_SCRATCH_FLOATS ((int64_t)1 << 20) /* 4 MiB, for each stream that needs them */

/**
 * Makes the scratch of the stream, which is not the workspace: a product may use that while its result goes here. Where
 * it lies, and its size, are for good, as a graph that was captured needs it. OUT_OF_MEMORY; NOT_WARM during a capture.
 * With the device current.
 */
tlob_status tlob_stream_need_scratch(tlob_stream *stream);

/** ARGUMENT for NULL, CLOSED for a stream of a destroyed context, else OK. */
tlob_status tlob_stream_check(const tlob_stream *stream, const char *operation);

/** tlob_stream_check, and that `stream` belongs to `ctx`. */
tlob_status tlob_stream_check_in(const tlob_stream *stream, const tlob_context *ctx, const char *operation);

/** NOT_WARM while `cuda_stream` is captured: for what may not happen then, and would spoil the capture. */
tlob_status tlob_refuse_capture(const tlob_context *ctx, struct CUstream_st *cuda_stream, const char *operation,
                                const char *advice);

/** Makes the stream's device current; pair with tlob_leave. */
tlob_status tlob_enter(const tlob_context *ctx, void **previous);
void tlob_leave(const tlob_context *ctx, void *previous);

/** MEMORY_SPACE if `ptr` (not NULL) does not belong to the context's memory space; `name` is the argument's. */
tlob_status tlob_check_pointer(const tlob_context *ctx, const void *ptr, const char *operation, const char *name);

/** tlob_check_pointer, but only the first time that the stream sees `ptr`: asking the driver costs 150 ns. */
tlob_status tlob_check_operand(tlob_stream *stream, const void *ptr, const char *operation, const char *name);

/* --- rows of the embedder (rows.c) ---------------------------------------------------------------------------------- */

/** Backends of the embedder's own, as in tlob_context_params. */
typedef struct tlob_rows {
    const tlob_backend_ops *const *row;
    int count;
} tlob_rows;

static inline tlob_rows tlob_context_rows(const tlob_context *ctx) {
    return (tlob_rows){ctx->rows, ctx->n_rows};
}

/** Whether the rows can be backends of a context of `memory`: ARGUMENT names the row and what is wrong with it. */
tlob_status tlob_rows_check(tlob_rows rows, tlob_memory memory);

/** Whether `name` is one that a backend may have. */
bool tlob_name_well_formed(const char *name, size_t size);

/** Backend `index` of all: libtlob's, built or not, then the embedder's. NULL past the last. */
const tlob_backend_ops *tlob_row_at(tlob_rows rows, int index);

/** The backend of this name, built or not, or NULL. */
const tlob_backend_ops *tlob_row_find(tlob_rows rows, const char *name);

/** "cpu_ref, cublas_classic, cublaslt", then the embedder's: for messages. */
void tlob_row_names(tlob_rows rows, char *text, size_t size);

/* --- dispatch (dispatch.c, explain.c) ------------------------------------------------------------------------------- */

/** What of its operands a decision may look at, as bits. */
typedef enum tlob_layout {
    TLOB_LAYOUT_ALIGNED = 1,  /**< every matrix, vector and aux that counts is aligned to 16 bytes */
    TLOB_LAYOUT_IN_PLACE = 2, /**< C is read, and is D */
} tlob_layout;

/** How the host is called where devices have names. */
extern const tlob_device_info tlob_host_device;

/** The device of a context, tlob_host_device for the host's. */
const tlob_device_info *tlob_context_device_info(const tlob_context *ctx);

/**
 * What `policy` decides: the method, `*entry` of a table that says so, or NULL, and `reason` (if not NULL) with words.
 * device: NULL where it is not known. Allocates nothing. Errors: POLICY.
 */
tlob_status tlob_policy_decide(const tlob_policy *policy, tlob_rows rows, const tlob_device_info *device,
                               const tlob_gemm *gemm, bool aligned, tlob_method *method,
                               const tlob_table_entry **entry, char *reason, size_t size);

/** What the default policy decides on a device: as tlob_policy_decide. */
void tlob_default_decide(const tlob_device_info *device, const tlob_gemm *gemm, tlob_method *method, char *reason,
                         size_t size);

/** tlob_dispatch_explain on a device, or where it is not known (NULL); the arguments are not NULL. */
tlob_status tlob_policy_ask(const tlob_policy *policy, const tlob_device_info *device, const tlob_gemm *gemm,
                            tlob_choice *choice);

/** What a method of backend `ops` (NULL: there is none) amounts to in a choice: all but the reason. */
void tlob_choice_tell(const tlob_method *method, const tlob_backend_ops *ops, tlob_choice *choice);

/** Whether a policy is well-formed: ARGUMENT, UNKNOWN_NAME. */
tlob_status tlob_policy_check(const tlob_policy *policy, tlob_rows rows);

/**
 * The method by which `ctx` does `gemm`: whole on the backend `name`, or where that is NULL what the policy decides,
 * with the entry of a table that says so, or NULL. Returns the backend's index, or -1 after an error: where `*entry` is not
 * NULL, because the context lacks its backend.
 */
int tlob_choose(const tlob_context *ctx, const char *name, const tlob_gemm *gemm, bool aligned, tlob_method *method,
                const tlob_table_entry **entry, char *reason, size_t size, tlob_status *status);

/**
 * NULL if the backend can do `gemm` (whose compute mode is resolved), else why not. x: NULL where not known yet.
 * `deterministic` is the context's setting.
 */
const char *tlob_unsupported(const tlob_backend_ops *ops, bool deterministic, const tlob_gemm *gemm,
                             const tlob_gemm_operands *x);

/**
 * How `ops` does what the form of `method` makes of `gemm`, always terminated; a failure becomes the answer and no last
 * error.
 */
void tlob_describe(const tlob_backend_ops *ops, tlob_lane *lane, const tlob_method *method, const tlob_gemm *gemm,
                   const tlob_gemm_operands *x, tlob_lane_plan *plan);

/* --- policy tuned (tuned.c) ----------------------------------------------------------------------------------------- */

/** Which answer the table has given: counted for each product. */
typedef enum tlob_answer {
    TLOB_ANSWER_NONE,     /**< it was not asked */
    TLOB_ANSWER_HIT,      /**< the product is done as an entry says */
    TLOB_ANSWER_MISS,     /**< there is no entry for it */
    TLOB_ANSWER_REJECTED, /**< the entry for it was refused */
} tlob_answer;

/** Reads the table that the settings name, and logs what the one of the policy is good for here. FILE, OUT_OF_MEMORY. */
tlob_status tlob_tuned_open(tlob_context *ctx);
void tlob_tuned_close(tlob_context *ctx);

/** tlob_policy_decide for policy tuned. */
tlob_status tlob_tuned_decide(const tlob_policy *policy, const tlob_device_info *device, const tlob_gemm *gemm,
                              bool aligned, tlob_method *method, const tlob_table_entry **entry, char *reason,
                              size_t size);

/**
 * What an entry says cannot be done here, as the last error tells: by the policy's rule for misses another method,
 * without a configuration, and the reason. Errors: POLICY, of a strict policy.
 */
tlob_status tlob_tuned_miss(const tlob_context *ctx, const tlob_gemm *gemm, const tlob_table_entry *entry,
                            tlob_method *method, char *reason, size_t size);

/** Logs, once for each entry, that it was refused, as the last error tells. */
void tlob_tuned_warn(tlob_context *ctx, const tlob_table_entry *entry);

/* --- methods (method.c) --------------------------------------------------------------------------------------------- */

/** ARGUMENT for a method that is not well formed; which backends there are is not looked at. */
tlob_status tlob_method_check(const tlob_method *method, const char *operation);

/** "id 21 tile 15 split_k 4", without what is 0; empty where the backend chooses by itself. */
void tlob_configuration_print(const tlob_method *method, char *text, size_t size);

/* --- forms (form.c) ------------------------------------------------------------------------------------------------- */

/** The problem that a backend is given of `gemm`, for which the form has no obstacle. */
tlob_gemm tlob_form_part(tlob_form form, const tlob_gemm *gemm);

/** The operands that a backend is given of `x`, of a batch in a loop the first. scratch: the stream's, or NULL. */
tlob_gemm_operands tlob_form_operands(tlob_form form, const tlob_gemm_operands *x, float *scratch);

/** NULL if `ops` can do `gemm` in this form, else why not. Otherwise as tlob_unsupported. */
const char *tlob_form_unsupported(const tlob_backend_ops *ops, bool deterministic, tlob_form form,
                                  const tlob_gemm *gemm, const tlob_gemm_operands *x);

/**
 * Operands that lie as badly as any that the form will hand to a backend: to be looked at, not to be read. NULL of `x`
 * is taken to be aligned to 256 bytes, and C apart from D.
 */
tlob_gemm_operands tlob_form_least_aligned(tlob_form form, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/** Runs a problem with a product on backend `index`, with the device current. `*memo` belongs to the part. */
tlob_status tlob_form_run(tlob_stream *stream, int index, tlob_form form, const tlob_pick *pick, const tlob_gemm *gemm,
                          const tlob_gemm_operands *x, void **memo);

/**
 * How `ops` would do it: the algorithm of the first product that the form makes, the most workspace that any needs, and
 * whether all are cached. x may hold NULL. Errors: as its slot `describe`, for the first product that it refuses.
 */
tlob_status tlob_form_describe(const tlob_backend_ops *ops, tlob_lane *lane, const tlob_method *method,
                               const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_lane_plan *plan);

/** Has backend `index` take the configuration of `method`, for all that the form will ask of it. As its slot `adopt`. */
tlob_status tlob_form_adopt(tlob_stream *stream, int index, const tlob_method *method, const tlob_gemm *gemm,
                            const tlob_gemm_operands *x, const tlob_pick **pick);

/** The epilogue of `gemm` on D = z, by the kernel of the memory space. */
tlob_status tlob_form_finish(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x);

/* --- operands (run.c) ----------------------------------------------------------------------------------------------- */

/** Bits of tlob_layout; x may be NULL: aligned and apart. */
unsigned tlob_operand_layout(const tlob_gemm *gemm, const tlob_gemm_operands *x);

/** Whether op(A) op(B) counts, and there is a D to put it into. */
static inline bool tlob_has_product(const tlob_gemm *g) {
    return g->m > 0 && g->n > 0 && g->k > 0 && g->batch > 0 && g->alpha != 0.0f;
}

/* --- settings (config.c, settings.c) -------------------------------------------------------------------------------- */

typedef enum tlob_setting {
    TLOB_SETTING_COMPUTE,
    TLOB_SETTING_POLICY,
    TLOB_SETTING_WORKSPACE,
    TLOB_SETTING_LOG,
    TLOB_SETTING_TRACE,
    TLOB_SETTING_DETERMINISTIC,
    TLOB_SETTING_TABLE,
    TLOB_SETTING_BLOCK_PLAN,
    TLOB_SETTING_COUNT,
} tlob_setting;

/** The keys of a configuration file, in the order of the enum. */
extern const char *const tlob_setting_keys[TLOB_SETTING_COUNT];

#define TLOB_SETTING_TEXT 256

/** A configuration file: for each setting its text, as the environment would have it; empty where it has none. */
typedef struct tlob_config {
    bool given[TLOB_SETTING_COUNT];
    char text[TLOB_SETTING_COUNT][TLOB_SETTING_TEXT];
} tlob_config;

/** Reads a configuration file. SETTING names the file, and key or line. Whether the values are valid is not looked at. */
tlob_status tlob_config_read(const char *path, tlob_config *config);

/* --- algorithms (algorithms.c) --------------------------------------------------------------------------------------- */

/** Describes the device and its kernels, and has every backend make what its lanes share. */
tlob_status tlob_shared_attach(tlob_context *ctx);

/** Gives it all back, as far as it has come. No lane is open any more. */
void tlob_shared_detach(tlob_context *ctx);

/** tlob_algorithms_load from a text; `path` is what messages call it. The context is deterministic. */
tlob_status tlob_algorithms_parse(tlob_context *ctx, const char *path, const char *text, size_t length,
                                  tlob_algorithms_report *report);

/* --- trace (trace.c) ------------------------------------------------------------------------------------------------ */

/** Opens the trace file that the settings name: SETTING where that fails. */
tlob_status tlob_trace_open(tlob_context *ctx);
void tlob_trace_close(tlob_context *ctx);

/** Hands a record to the callback and appends it to the file. */
void tlob_trace_write(tlob_stream *stream, const tlob_trace *trace);

/* --- sizes ------------------------------------------------------------------------------------------------------- */

/** a * b into *product; false if either is negative or the product overflows int64. Every size product goes through it. */
static inline bool tlob_mul(int64_t a, int64_t b, int64_t *product) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

#endif
