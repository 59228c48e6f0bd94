/* The registry of streams: one entry for each CUDA stream, with its lanes (vendor handles), workspace and scratch. */
#include <stdlib.h>

#include "libtlob/internal.h"

#define LEGACY_STREAM     ((uintptr_t)1) /* cudaStreamLegacy: the default stream by another name */
#define PER_THREAD_STREAM ((uintptr_t)2) /* cudaStreamPerThread */

tlob_status tlob_stream_check(const tlob_stream *stream, const char *operation) {
    if (!stream)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the stream is NULL");
    return tlob_context_check(stream->ctx, operation);
}

tlob_status tlob_stream_check_in(const tlob_stream *stream, const tlob_context *ctx, const char *operation) {
    tlob_status status = tlob_stream_check(stream, operation);
    if (status == TLOB_OK && stream->ctx != ctx)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the stream belongs to another context");
    return status;
}

tlob_status tlob_check_pointer(const tlob_context *ctx, const void *ptr, const char *operation, const char *name) {
    if (ctx->trust_pointers)
        return TLOB_OK;
    const char *wrong = ctx->space->misplaced(ptr, ctx->home.device);
    if (!wrong)
        return TLOB_OK;
    void *previous;
    tlob_status status = tlob_enter(ctx, &previous); /* nothing lies on a device that was reset: that is what to say */
    if (status != TLOB_OK)
        return status;
    tlob_leave(ctx, previous);
    return tlob_fail(TLOB_ERR_MEMORY_SPACE, operation, "%s (%p) %s, and the context is for %s memory", name, ptr, wrong,
                     tlob_memory_name(ctx->space->memory));
}

tlob_status tlob_check_operand(tlob_stream *stream, const void *ptr, const char *operation, const char *name) {
    uintptr_t at = (uintptr_t)ptr;
    const void **seen = &stream->seen[(uint64_t)at * 0x9e3779b97f4a7c15u >> (64 - TLOB_SEEN_BITS)];
    if (*seen == ptr)
        return TLOB_OK;
    tlob_status status = tlob_check_pointer(stream->ctx, ptr, operation, name);
    if (status == TLOB_OK)
        *seen = ptr;
    return status;
}

void tlob_stream_ref(tlob_stream *stream) {
    pthread_mutex_lock(&stream->ctx->streams_lock);
    stream->refs++;
    pthread_mutex_unlock(&stream->ctx->streams_lock);
}

static tlob_status open_lanes(tlob_stream *stream) {
    tlob_context *ctx = stream->ctx;
    tlob_lane_params params = {
        .cuda_stream = stream->cuda_stream,
        .device_context = ctx->home.id,
        .workspace = stream->workspace,
        .workspace_bytes = stream->workspace ? ctx->settings.workspace_bytes : 0,
        .deterministic = ctx->settings.deterministic,
        .stats = &stream->stats,
    };
    tlob_status status = TLOB_OK;
    for (int i = 0; i < ctx->n_backends && status == TLOB_OK; i++) {
        params.shared = ctx->shared[i];
        status = ctx->backends[i]->open(&stream->lanes[i], &params);
    }
    return status;
}

/* Everything an entry holds in the memory space; the caller's device is current again afterwards. */
static tlob_status acquire(tlob_stream *stream) {
    const tlob_space *space = stream->ctx->space;
    tlob_visit visit;
    tlob_status status = tlob_enter_cold(stream->ctx, &visit);
    if (status != TLOB_OK)
        return status;
    if (stream->owns_cuda_stream)
        status = tlob_fail_cuda(space, space->stream_create(&stream->cuda_stream), "cudaStreamCreateWithFlags");
    if (status == TLOB_OK && space->memory == TLOB_MEMORY_CUDA)
        status = tlob_fail_cuda(space, space->alloc(&stream->workspace, stream->ctx->settings.workspace_bytes),
                                "cudaMalloc (workspace of a stream)");
    if (status == TLOB_OK)
        status = open_lanes(stream);
    tlob_leave_cold(stream->ctx, &visit);
    return status;
}

tlob_status tlob_stream_need_scratch(tlob_stream *stream) {
    static const char where[] = "scratch of a stream";
    const tlob_context *ctx = stream->ctx;
    const size_t bytes = (size_t)TLOB_SCRATCH_FLOATS * sizeof(float);
    tlob_visit visit;
    if (stream->scratch)
        return TLOB_OK;
    if (ctx->space->capturing(stream->cuda_stream))
        return tlob_fail(TLOB_ERR_NOT_WARM, where,
                         "the stream is being captured, and nothing that needs its scratch has run on it yet; run the "
                         "product once before the capture, or give it to tlob_warm");
    tlob_status status = tlob_enter_cold(ctx, &visit);
    if (status != TLOB_OK)
        return status;
    int code = ctx->space->alloc(&stream->scratch, bytes);
    tlob_leave_cold(ctx, &visit);
    if (code == TLOB_CUDA_OUT_OF_MEMORY)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes of %s memory are not to be had", bytes,
                         tlob_memory_name(ctx->space->memory));
    return tlob_fail_cuda(ctx->space, code, "cudaMalloc (scratch of a stream)");
}

void tlob_stream_release(tlob_stream *stream) {
    tlob_context *ctx = stream->ctx;
    const tlob_space *space = ctx->space;
    tlob_visit visit;
    tlob_staging_destroy(&stream->staging); /* holds a reference to the context, even where the device is lost */
    if (!tlob_enter_to_free(ctx, &visit))
        return; /* with the device goes everything that there was to free, but for what vendors keep in host memory */
    if (stream->capturing)
        space->capture_end(stream->cuda_stream, NULL, &(const char *){NULL});
    stream->capturing = false;
    space->stream_sync(stream->cuda_stream);
    for (int i = 0; i < ctx->n_backends; i++) {
        if (stream->lanes[i])
            ctx->backends[i]->close(stream->lanes[i]);
        stream->lanes[i] = NULL;
    }
    space->free(stream->workspace);
    stream->workspace = NULL;
    space->free(stream->scratch);
    stream->scratch = NULL;
    if (stream->owns_cuda_stream && stream->cuda_stream)
        space->stream_destroy(stream->cuda_stream);
    stream->cuda_stream = NULL;
    tlob_leave_cold(ctx, &visit);
}

tlob_status tlob_refuse_capture(const tlob_context *ctx, struct CUstream_st *cuda_stream, const char *operation,
                                const char *advice) {
    void *previous;
    tlob_status status = tlob_enter(ctx, &previous);
    if (status != TLOB_OK)
        return status;
    if (ctx->space->capturing(cuda_stream))
        status = tlob_fail(TLOB_ERR_NOT_WARM, operation, "the stream is being captured: %s", advice);
    tlob_leave(ctx, previous);
    return status;
}

/* Adds a new entry to the registry; the caller holds the lock. */
static tlob_status add(tlob_context *ctx, struct CUstream_st *cuda_stream, bool owns, tlob_stream **out) {
    tlob_status status =
        tlob_refuse_capture(ctx, cuda_stream, "tlob_stream_open", "open it before the capture begins");
    if (status != TLOB_OK)
        return status;
    tlob_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "tlob_stream_open", "%zu bytes for a stream", sizeof(*stream));
    stream->ctx = ctx;
    stream->refs = 1;
    stream->owns_cuda_stream = owns;
    stream->cuda_stream = cuda_stream;
    for (int i = 0; i < TLOB_KNOWN_PROBLEMS; i++)
        stream->known[i].index = -1;
    status = acquire(stream);
    if (status != TLOB_OK) {
        tlob_stream_release(stream);
        free(stream);
        return status;
    }
    stream->next = ctx->streams;
    ctx->streams = stream;
    tlob_context_ref(ctx);
    *out = stream;
    return TLOB_OK;
}

tlob_status tlob_stream_open(tlob_context *ctx, struct CUstream_st *cuda_stream, tlob_stream **out) {
    const char *where = "tlob_stream_open";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "stream is NULL");
    *out = NULL;
    tlob_status status = tlob_context_check(ctx, where);
    if (status != TLOB_OK)
        return status;
    if (cuda_stream && ctx->space->memory == TLOB_MEMORY_HOST)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "cuda_stream must be NULL on a host context");
    if ((uintptr_t)cuda_stream == PER_THREAD_STREAM)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "cudaStreamPerThread is another stream on each thread; make a stream with cudaStreamCreate");
    if ((uintptr_t)cuda_stream == LEGACY_STREAM)
        cuda_stream = NULL;
    pthread_mutex_lock(&ctx->streams_lock);
    tlob_stream *stream = ctx->streams;
    while (stream && (stream->cuda_stream != cuda_stream || (!cuda_stream && stream->owns_cuda_stream)))
        stream = stream->next;
    if (stream) {
        stream->refs++;
        *out = stream;
    } else {
        status = add(ctx, cuda_stream, false, out);
    }
    pthread_mutex_unlock(&ctx->streams_lock);
    return status;
}

tlob_status tlob_stream_create(tlob_context *ctx, tlob_stream **out) {
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_stream_create", "stream is NULL");
    *out = NULL;
    tlob_status status = tlob_context_check(ctx, "tlob_stream_create");
    if (status != TLOB_OK)
        return status;
    pthread_mutex_lock(&ctx->streams_lock);
    status = add(ctx, NULL, true, out);
    pthread_mutex_unlock(&ctx->streams_lock);
    return status;
}

void tlob_stream_close(tlob_stream **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_stream *stream = *ptr;
    tlob_context *ctx = stream->ctx;
    *ptr = NULL;
    bool forked = tlob_context_forked(ctx); /* then the lock may be held for ever, by a thread that is not here */
    if (!forked)
        pthread_mutex_lock(&ctx->streams_lock);
    bool last = --stream->refs == 0;
    if (last) {
        tlob_stream **link = &ctx->streams;
        while (*link != stream)
            link = &(*link)->next;
        *link = stream->next;
        if (!atomic_load(&ctx->closed))
            tlob_stream_release(stream);
    }
    if (!forked)
        pthread_mutex_unlock(&ctx->streams_lock);
    if (!last)
        return;
    free(stream);
    tlob_context_unref(ctx);
}

tlob_status tlob_stream_sync(tlob_stream *stream) {
    tlob_status status = tlob_stream_check(stream, "tlob_stream_sync");
    if (status == TLOB_OK)
        status = tlob_refuse_capture(stream->ctx, stream->cuda_stream, "tlob_stream_sync", "wait after the capture");
    if (status != TLOB_OK)
        return status;
    tlob_visit visit;
    if ((status = tlob_enter_cold(stream->ctx, &visit)) != TLOB_OK)
        return status;
    const tlob_space *space = stream->ctx->space;
    status = tlob_fail_cuda(space, space->stream_sync(stream->cuda_stream), "cudaStreamSynchronize");
    tlob_leave_cold(stream->ctx, &visit);
    return status;
}

struct CUstream_st *tlob_stream_cuda(const tlob_stream *stream) {
    return stream->cuda_stream;
}

tlob_context *tlob_stream_context(const tlob_stream *stream) {
    return atomic_load(&stream->ctx->closed) ? NULL : stream->ctx;
}

tlob_status tlob_stream_get_stats(const tlob_stream *stream, tlob_stream_stats *stats) {
    if (!stream || !stats)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_stream_get_stats", "%s is NULL", stream ? "stats" : "stream");
    *stats = stream->stats;
    return TLOB_OK;
}
