/** Streams: where work is enqueued, and what belongs to each (handles, one workspace, one scratch). */
#ifndef TLOB_STREAM_H
#define TLOB_STREAM_H

#include <tlob/context.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t points to */

/**
 * A stream of a context, with its classic handle, its Lt handle, and one workspace shared by the two; and with 4 MiB of
 * scratch from its first product in form SPLIT on, on a host context too. Work on one stream runs in the order of the
 * calls. On a host context every call has finished when it returns.
 *
 * Thread-safety: distinct streams from distinct threads; one stream from one thread at a time.
 */
typedef struct tlob_stream tlob_stream;

/**
 * The entry of a CUDA stream that the caller owns; NULL is the default stream, which exists since the context was
 * created. The first call for a CUDA stream makes handles and workspace (milliseconds, not while it is captured); further
 * calls return the same object and count a reference. The CUDA stream must belong to the device of the context and
 * outlive the entry, which every tlob_graph captured on it keeps. On a host context `cuda_stream` must be NULL.
 *
 * Ownership: pair each call with tlob_stream_close. Errors: ARGUMENT (also for cudaStreamPerThread, which is another
 * stream on each thread), CLOSED, NOT_WARM during a capture, OUT_OF_MEMORY, BACKEND, CUDA. Thread-safe.
 */
TLOB_API tlob_status tlob_stream_open(tlob_context *ctx, struct CUstream_st *cuda_stream, tlob_stream **stream);

/** As tlob_stream_open, with a new non-blocking CUDA stream that lives as long as the entry. */
TLOB_API tlob_status tlob_stream_create(tlob_context *ctx, tlob_stream **stream);

/**
 * Gives a reference back and sets `*stream` to NULL; NULL is allowed. A tlob_graph has a reference of its own. The last
 * one waits for the stream and frees workspace and scratch, so keep a stream open while it is in use or while a graph
 * that is no tlob_graph lives. Vendor handles are kept for the next stream on the device: to destroy one would spoil
 * every capture under way. Safe during captures of other streams, in whatever mode.
 */
TLOB_API void tlob_stream_close(tlob_stream **stream);

/**
 * Waits until everything enqueued on `stream` has finished.
 * Errors: ARGUMENT, CLOSED, NOT_WARM during a capture of the stream, CUDA (also of earlier work).
 */
TLOB_API tlob_status tlob_stream_sync(tlob_stream *stream);

/** The CUDA stream behind `stream`; NULL for the default stream and on a host context. `stream` must not be NULL. */
TLOB_API struct CUstream_st *tlob_stream_cuda(const tlob_stream *stream);

/** The context of `stream`; NULL once it has been destroyed. `stream` must not be NULL. */
TLOB_API tlob_context *tlob_stream_context(const tlob_stream *stream);

/** What has happened on a stream since it was opened. */
typedef struct tlob_stream_stats {
    int64_t products;        /**< matrix products enqueued */
    int64_t plan_hits;       /**< products whose descriptors and algorithm were cached */
    int64_t plan_misses;     /**< products that built them: one heuristic query each, or where the context is deterministic
                                  one look into its table of algorithms */
    int64_t rejected;        /**< products that no backend ran: invalid, unsupported, cold in a capture, failed */
    int64_t handles;         /**< vendor handles bound to it: new ones, or those of streams that were closed */
    int64_t table_hits;      /**< products done as the table of policy `tuned` says */
    int64_t table_misses;    /**< products of that policy which its table does not answer, done by its rule for misses */
    int64_t table_rejected;  /**< of the misses, those for which it has an entry that a backend has refused */
    int64_t trace_lost;      /**< records that could not be written to the trace file, or only in part */
} tlob_stream_stats;

/** Reads the counters. Errors: ARGUMENT. Not to be called while another thread uses the stream. */
TLOB_API tlob_status tlob_stream_get_stats(const tlob_stream *stream, tlob_stream_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
