#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

#define TRANSFER_BYTES ((size_t)1 << 20) /* of the staging behind tlob_upload and tlob_download */
#define ADVICE_CAPTURE "copy before or after the capture, or capture a copy from or to a tlob_staging"

struct tlob_buffer {
    tlob_context *ctx;
    void *data;
    size_t bytes;
};

struct tlob_staging {
    tlob_context *ctx;
    void *host, *device;
    size_t bytes;
    void *event;    /* recorded behind the last transfer */
    bool in_flight; /* a transfer was enqueued and not acquired since */
};

static tlob_status check_create(tlob_context *ctx, size_t bytes, const void *out, const char *where) {
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "the result pointer is NULL");
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK && (bytes == 0 || bytes > PTRDIFF_MAX))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "bytes is %zu, must be from 1 to %td", bytes, PTRDIFF_MAX);
    return status;
}

tlob_status tlob_buffer_create(tlob_context *ctx, size_t bytes, tlob_buffer **out) {
    const char *where = "tlob_buffer_create";
    tlob_status status = check_create(ctx, bytes, out, where);
    if (out)
        *out = NULL;
    if (status != TLOB_OK)
        return status;
    tlob_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a buffer's header", sizeof(*buffer));
    tlob_visit visit;
    if ((status = tlob_enter_cold(ctx, &visit)) == TLOB_OK) {
        int code = ctx->space->alloc(&buffer->data, bytes);
        tlob_leave_cold(ctx, &visit);
        if (code == TLOB_CUDA_OUT_OF_MEMORY)
            status = tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes of %s memory are not to be had", bytes,
                               tlob_memory_name(ctx->space->memory));
        else
            status = tlob_fail_cuda(ctx->space, code, "cudaMalloc");
    }
    if (status != TLOB_OK) {
        free(buffer);
        return status;
    }
    buffer->ctx = ctx;
    buffer->bytes = bytes;
    tlob_context_ref(ctx);
    *out = buffer;
    return TLOB_OK;
}

void tlob_buffer_destroy(tlob_buffer **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_buffer *buffer = *ptr;
    *ptr = NULL;
    tlob_context *ctx = buffer->ctx;
    tlob_visit visit;
    if (tlob_enter_to_free(ctx, &visit)) {
        ctx->space->free(buffer->data);
        tlob_leave_cold(ctx, &visit);
    }
    free(buffer);
    tlob_context_unref(ctx);
}

void *tlob_buffer_data(const tlob_buffer *buffer) {
    return buffer ? buffer->data : NULL;
}

size_t tlob_buffer_bytes(const tlob_buffer *buffer) {
    return buffer ? buffer->bytes : 0;
}

tlob_status tlob_staging_create(tlob_context *ctx, size_t bytes, tlob_staging **out) {
    const char *where = "tlob_staging_create";
    tlob_status status = check_create(ctx, bytes, out, where);
    if (out)
        *out = NULL;
    if (status != TLOB_OK)
        return status;
    tlob_staging *staging = calloc(1, sizeof(*staging));
    if (!staging)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a staging's header", sizeof(*staging));
    staging->ctx = ctx;
    staging->bytes = bytes;
    tlob_context_ref(ctx);
    const tlob_space *space = ctx->space;
    tlob_visit visit;
    if ((status = tlob_enter_cold(ctx, &visit)) == TLOB_OK) {
        status = tlob_fail_cuda(space, space->alloc_mapped(&staging->host, &staging->device, bytes), "cudaHostAlloc");
        if (status == TLOB_OK)
            status = tlob_fail_cuda(space, space->event_create(&staging->event), "cudaEventCreateWithFlags");
        tlob_leave_cold(ctx, &visit);
    }
    if (status != TLOB_OK) {
        tlob_staging_destroy(&staging);
        return status;
    }
    *out = staging;
    return TLOB_OK;
}

void tlob_staging_destroy(tlob_staging **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_staging *staging = *ptr;
    *ptr = NULL;
    tlob_context *ctx = staging->ctx;
    tlob_visit visit;
    if (tlob_enter_to_free(ctx, &visit)) {
        if (staging->in_flight)
            ctx->space->event_wait(staging->event);
        if (staging->event)
            ctx->space->event_destroy(staging->event);
        ctx->space->free_mapped(staging->host);
        tlob_leave_cold(ctx, &visit);
    }
    free(staging);
    tlob_context_unref(ctx);
}

tlob_status tlob_staging_acquire(tlob_staging *staging, void **host) {
    const char *where = "tlob_staging_acquire";
    if (!staging || !host)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", staging ? "host" : "staging");
    *host = NULL;
    tlob_context *ctx = staging->ctx;
    tlob_status status = tlob_context_check(ctx, where);
    if (status != TLOB_OK)
        return status;
    if (staging->in_flight) {
        tlob_visit visit;
        if ((status = tlob_enter_cold(ctx, &visit)) != TLOB_OK)
            return status;
        status = tlob_fail_cuda(ctx->space, ctx->space->event_wait(staging->event), "cudaEventSynchronize");
        tlob_leave_cold(ctx, &visit);
        if (status != TLOB_OK)
            return status;
        staging->in_flight = false;
    }
    *host = staging->host;
    return TLOB_OK;
}

static tlob_status check_transfer(const tlob_staging *staging, const tlob_stream *stream, const void *ptr, size_t bytes,
                                  const char *where, const char *name) {
    if (!staging)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "staging is NULL");
    tlob_status status = tlob_stream_check_in(stream, staging->ctx, where);
    if (status != TLOB_OK)
        return status;
    if (bytes > staging->bytes)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "bytes is %zu, and the staging holds %zu", bytes, staging->bytes);
    if (staging->in_flight)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "a transfer of this staging may still be in flight: call tlob_staging_acquire first");
    if (!ptr && bytes)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", name);
    return bytes ? tlob_check_pointer(stream->ctx, ptr, where, name) : TLOB_OK;
}

/* In a capture the copy becomes a node: nothing is in flight, and the event, which would become part of the graph too,
 * could never be waited for again. */
static tlob_status transfer(tlob_staging *staging, tlob_stream *stream, void *dst, const void *src, size_t bytes) {
    if (bytes == 0)
        return TLOB_OK;
    tlob_context *ctx = stream->ctx;
    const tlob_space *space = ctx->space;
    void *previous;
    tlob_status status = tlob_enter(ctx, &previous);
    if (status != TLOB_OK)
        return status;
    status = tlob_fail_cuda(space, space->copy(dst, src, bytes, stream->cuda_stream), "cudaMemcpyAsync");
    if (status == TLOB_OK && !space->capturing(stream->cuda_stream)) {
        staging->in_flight = true;
        status = tlob_fail_cuda(space, space->event_record(staging->event, stream->cuda_stream), "cudaEventRecord");
    }
    tlob_leave(ctx, previous);
    return status;
}

tlob_status tlob_staging_upload(tlob_staging *staging, tlob_stream *stream, void *dst, size_t bytes) {
    tlob_status status = check_transfer(staging, stream, dst, bytes, "tlob_staging_upload", "dst");
    return status == TLOB_OK ? transfer(staging, stream, dst, staging->device, bytes) : status;
}

tlob_status tlob_staging_download(tlob_staging *staging, tlob_stream *stream, const void *src, size_t bytes) {
    tlob_status status = check_transfer(staging, stream, src, bytes, "tlob_staging_download", "src");
    return status == TLOB_OK ? transfer(staging, stream, staging->device, src, bytes) : status;
}

/* The staging of a stream, free to be used. */
static tlob_status own_staging(tlob_stream *stream, const void *dst, const void *src, size_t bytes, const char *where,
                               void **host) {
    tlob_status status = tlob_stream_check(stream, where);
    if (status != TLOB_OK)
        return status;
    if (bytes && (!dst || !src))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", dst ? "src" : "dst");
    if ((status = tlob_refuse_capture(stream->ctx, stream->cuda_stream, where, ADVICE_CAPTURE)) != TLOB_OK)
        return status;
    if (!stream->staging)
        status = tlob_staging_create(stream->ctx, TRANSFER_BYTES, &stream->staging);
    return status == TLOB_OK ? tlob_staging_acquire(stream->staging, host) : status;
}

tlob_status tlob_upload(tlob_stream *stream, void *dst, const void *src, size_t bytes) {
    void *host;
    tlob_status status = own_staging(stream, dst, src, bytes, "tlob_upload", &host);
    for (size_t done = 0; done < bytes && status == TLOB_OK;) {
        size_t part = bytes - done < TRANSFER_BYTES ? bytes - done : TRANSFER_BYTES;
        memcpy(host, (const char *)src + done, part);
        status = tlob_staging_upload(stream->staging, stream, (char *)dst + done, part);
        done += part;
        if (status == TLOB_OK && done < bytes)
            status = tlob_staging_acquire(stream->staging, &host);
    }
    return status;
}

tlob_status tlob_download(tlob_stream *stream, void *dst, const void *src, size_t bytes) {
    void *host;
    tlob_status status = own_staging(stream, dst, src, bytes, "tlob_download", &host);
    for (size_t done = 0; done < bytes && status == TLOB_OK;) {
        size_t part = bytes - done < TRANSFER_BYTES ? bytes - done : TRANSFER_BYTES;
        status = tlob_staging_download(stream->staging, stream, (const char *)src + done, part);
        if (status == TLOB_OK)
            status = tlob_staging_acquire(stream->staging, &host);
        if (status == TLOB_OK)
            memcpy((char *)dst + done, host, part);
        done += part;
    }
    return status;
}

tlob_status tlob_fill(tlob_stream *stream, void *dst, int value, size_t bytes) {
    const char *where = "tlob_fill";
    tlob_status status = tlob_stream_check(stream, where);
    if (status != TLOB_OK)
        return status;
    if (value < 0 || value > 255)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "value is %d, must be from 0 to 255", value);
    if (bytes == 0)
        return TLOB_OK;
    if (!dst)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "dst is NULL");
    tlob_context *ctx = stream->ctx;
    if ((status = tlob_check_pointer(ctx, dst, where, "dst")) != TLOB_OK)
        return status;
    void *previous;
    if ((status = tlob_enter(ctx, &previous)) != TLOB_OK)
        return status;
    status = tlob_fail_cuda(ctx->space, ctx->space->fill(dst, value, bytes, stream->cuda_stream), "cudaMemsetAsync");
    tlob_leave(ctx, previous);
    return status;
}
