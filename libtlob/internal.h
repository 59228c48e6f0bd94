/** What the files of libtlob/ share: the objects behind the public types, and how failures are recorded. */
#ifndef TLOB_INTERNAL_H
#define TLOB_INTERNAL_H

#include <stdatomic.h>
#include <pthread.h>

#include <tlob/tlob.h>

#include "backends/backend.h"
#include "libtlob/kernels/kernels.h"

#define TLOB_MAX_BACKENDS 8

/* --- errors (error.c) ----------------------------------------------------------------------------------------------- */

/** Records a failure of `operation` on this thread and returns `status`. */
tlob_status tlob_fail(tlob_status status, const char *operation, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Adds the problem at hand to the error just recorded. */
void tlob_fail_gemm(const tlob_gemm *gemm);

/* --- memory spaces (space_host.c, space_cuda.c) --------------------------------------------------------------------- */

/**
 * What differs between host and CUDA below the level of backends. Slots return a cudaError_t as a number (0: success)
 * unless they say otherwise. All but the first four run between enter and leave.
 */
typedef struct tlob_space {
    tlob_memory memory;
    const tlob_kernels *kernels;

    tlob_status (*probe)(int device);               /**< whether the device can be used; records the error */
    tlob_status (*count)(int *count);               /**< devices of this kind; records the error */
    int (*describe)(int device, tlob_device_info *info);
    void (*versions)(int *driver, int *runtime);
    int (*enter)(int device, int *previous);        /**< makes `device` current */
    void (*leave)(int device, int previous);        /**< restores the caller's */
    int (*alloc)(void **ptr, size_t bytes);
    void (*free)(void *ptr);
    int (*alloc_mapped)(void **host, void **device, size_t bytes);
    void (*free_mapped)(void *host);
    int (*stream_create)(struct CUstream_st **stream);
    void (*stream_destroy)(struct CUstream_st *stream);
    int (*stream_sync)(struct CUstream_st *stream);
    bool (*capturing)(struct CUstream_st *stream);
    int (*event_create)(void **event);
    void (*event_destroy)(void *event);
    int (*event_record)(void *event, struct CUstream_st *stream);
    int (*event_wait)(void *event);                 /**< blocks the calling thread */
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

struct tlob_context {
    atomic_int refs;                 /**< one for the owner, one for each object made from it */
    atomic_bool closed;
    const tlob_space *space;
    int device;
    tlob_settings settings;
    tlob_log_fn log;
    void *log_user;
    bool trust_pointers;
    int n_backends;
    const tlob_backend_ops *backends[TLOB_MAX_BACKENDS];
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

/** ARGUMENT for a NULL context, CLOSED for a destroyed one, else OK. */
tlob_status tlob_context_check(const tlob_context *ctx, const char *operation);

/* --- streams (stream.c) --------------------------------------------------------------------------------------------- */

struct tlob_stream {
    tlob_context *ctx;
    struct tlob_stream *next;
    int refs;                        /**< guarded by the context's streams_lock */
    bool owns_cuda_stream;
    struct CUstream_st *cuda_stream;
    void *workspace;
    tlob_lane *lanes[TLOB_MAX_BACKENDS]; /**< one for each backend of the context */
    tlob_stream_stats stats;
    tlob_staging *staging;           /**< for tlob_upload and tlob_download; made on first use */
};

/** Waits for the stream and frees what it holds in the memory space; the entry itself stays. */
void tlob_stream_release(tlob_stream *stream);

/** ARGUMENT for NULL, CLOSED for a stream of a destroyed context, else OK. */
tlob_status tlob_stream_check(const tlob_stream *stream, const char *operation);

/** tlob_stream_check, and that `stream` belongs to `ctx`. */
tlob_status tlob_stream_check_in(const tlob_stream *stream, const tlob_context *ctx, const char *operation);

/** NOT_WARM while `cuda_stream` is captured: for what may not happen then, and would spoil the capture. */
tlob_status tlob_refuse_capture(const tlob_context *ctx, struct CUstream_st *cuda_stream, const char *operation,
                                const char *advice);

/** Makes the stream's device current; pair with tlob_leave. */
tlob_status tlob_enter(const tlob_context *ctx, int *previous);
void tlob_leave(const tlob_context *ctx, int previous);

/** MEMORY_SPACE if `ptr` (not NULL) does not belong to the context's memory space; `name` is the argument's. */
tlob_status tlob_check_pointer(const tlob_context *ctx, const void *ptr, const char *operation, const char *name);

/* --- dispatch (dispatch.c) ------------------------------------------------------------------------------------------ */

/** The backend's name by `policy`, or NULL after recording an error; fills `reason` (if not NULL) with words. */
const char *tlob_policy_decide(const tlob_policy *policy, const tlob_gemm *gemm, char *reason, size_t size);

/** Whether a policy is well-formed: ARGUMENT, UNKNOWN_NAME. */
tlob_status tlob_policy_check(const tlob_policy *policy);

/** "cpu_ref, cublas_classic, cublaslt": for messages. */
void tlob_backend_names(char *text, size_t size);

/* --- sizes (gemm.c) ------------------------------------------------------------------------------------------------- */

/** a * b into *product; false if either is negative or the product overflows int64. Every size product goes through it. */
static inline bool tlob_mul(int64_t a, int64_t b, int64_t *product) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

#endif
