/** Memory of a context: buffers where the data lives, and staging for the way there and back. */
#ifndef TLOB_MEMORY_H
#define TLOB_MEMORY_H

#include <tlob/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A block of memory in the memory space of a context: device memory on CUDA, heap on a host context. */
typedef struct tlob_buffer tlob_buffer;

/**
 * Allocates `bytes` (>= 1), aligned to 256 bytes, contents undefined. Blocking; never on a warm path.
 * Ownership: free with tlob_buffer_destroy. Errors: ARGUMENT, CLOSED, OUT_OF_MEMORY (with the size), CUDA. Thread-safe.
 */
TLOB_API tlob_status tlob_buffer_create(tlob_context *ctx, size_t bytes, tlob_buffer **buffer);

/**
 * Frees a buffer and sets `*buffer` to NULL; NULL is allowed. Waits for work of the device, so none can still use it.
 * Safe during captures of any stream, in whatever mode; what a captured graph uses must not be freed before the graph.
 */
TLOB_API void tlob_buffer_destroy(tlob_buffer **buffer);

/** The memory itself; NULL for a NULL buffer. */
TLOB_API void *tlob_buffer_data(const tlob_buffer *buffer);

/** Its size; 0 for a NULL buffer. */
TLOB_API size_t tlob_buffer_bytes(const tlob_buffer *buffer);

/**
 * Pinned host memory that the device sees too. Host to device goes through such memory only: write through the host
 * pointer, then enqueue a copy, so that no pageable copy can race a non-blocking stream. One staging buffer has at most
 * one transfer in flight; tlob_staging_acquire waits for it. A transfer that is captured into a graph copies again at
 * each launch of the graph: to wait for such a copy, and to keep the staging as long as the graph, is the caller's
 * task.
 */
typedef struct tlob_staging tlob_staging;

/** Allocates `bytes` (>= 1). Free with tlob_staging_destroy. Errors: ARGUMENT, CLOSED, OUT_OF_MEMORY, CUDA. */
TLOB_API tlob_status tlob_staging_create(tlob_context *ctx, size_t bytes, tlob_staging **staging);

/** Waits for a transfer in flight, frees, and sets `*staging` to NULL; NULL is allowed. */
TLOB_API void tlob_staging_destroy(tlob_staging **staging);

/**
 * Waits until no transfer is in flight and hands out the host memory, to be written before an upload or read after a
 * download. The pointer is valid until the next transfer. Errors: ARGUMENT, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_staging_acquire(tlob_staging *staging, void **host);

/**
 * Enqueues a copy of the first `bytes` of `staging` to `dst`, memory of the same context. Asynchronous.
 * Errors: ARGUMENT (also when a transfer is still in flight that was not acquired), MEMORY_SPACE, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_staging_upload(tlob_staging *staging, tlob_stream *stream, void *dst, size_t bytes);

/** Enqueues a copy of `bytes` from `src` to the start of `staging`; read them after tlob_staging_acquire. As above. */
TLOB_API tlob_status tlob_staging_download(tlob_staging *staging, tlob_stream *stream, const void *src, size_t bytes);

/**
 * Copies from any host memory to memory of the stream's context, in order with the stream's other work, through a
 * staging buffer of the stream's own that is made on first use. Returns when `src` may be changed or freed.
 * Errors: ARGUMENT, MEMORY_SPACE, CLOSED, NOT_WARM during a capture of the stream, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_upload(tlob_stream *stream, void *dst, const void *src, size_t bytes);

/** Copies from memory of the stream's context to any host memory, after the stream's earlier work. Blocking. Errors: as
 *  above. */
TLOB_API tlob_status tlob_download(tlob_stream *stream, void *dst, const void *src, size_t bytes);

/** Sets `bytes` bytes to `value` (0 to 255). Asynchronous. Errors: ARGUMENT, MEMORY_SPACE, CLOSED, CUDA. */
TLOB_API tlob_status tlob_fill(tlob_stream *stream, void *dst, int value, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
