/* The trace: one record for each product, to the embedder's function and as a JSON line to a file. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libtlob/internal.h"

tlob_status tlob_trace_open(tlob_context *ctx) {
    const char *path = ctx->settings.trace_path;
    atomic_init(&ctx->trace_torn, false);
    ctx->trace_fd = -1;
    if (*path && (ctx->trace_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        return tlob_fail(TLOB_ERR_SETTING, "trace", "cannot append to '%s' (%s): %s", path,
                         tlob_origin_name(ctx->settings.trace_origin), strerror(errno));
    ctx->tracing = ctx->trace || ctx->trace_fd >= 0;
    return TLOB_OK;
}

void tlob_trace_close(tlob_context *ctx) {
    if (ctx->trace_fd >= 0)
        close(ctx->trace_fd);
    ctx->trace_fd = -1;
}

#define STRING_BYTES 512 /* of a string of a record; more has only a caller who names a backend that cannot be */

/* A record as it grows. It holds the longest one: strings of a record have at most 512 + 128 + 200 + 512 bytes, each of
 * which takes at most 6, and the rest is numbers. */
typedef struct line {
    size_t used;
    char text[12288];
} line;

static void put(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, sizeof(l->text) - l->used, format, args);
    va_end(args);
    if (n > 0)
        l->used = l->used + (size_t)n < sizeof(l->text) ? l->used + (size_t)n : sizeof(l->text) - 1;
}

/* How many bytes the character at `s` has; 0 if it is not UTF-8, as where a message was cut. */
static int utf8_length(const unsigned char *s) {
    int length = *s < 0x80                  ? 1
                 : *s >= 0xc2 && *s < 0xe0 ? 2
                 : *s >= 0xe0 && *s < 0xf0 ? 3
                 : *s >= 0xf0 && *s < 0xf5 ? 4
                                           : 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    bool beyond = (*s == 0xed && s[1] > 0x9f) || (*s == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : length;
}

static void put_string(line *l, const char *key, const char *value) {
    const unsigned char *s = (const unsigned char *)value, *end = s + strnlen(value, STRING_BYTES);
    put(l, ", \"%s\": \"", key);
    while (s < end) {
        int length = utf8_length(s);
        if (*s == '"' || *s == '\\')
            put(l, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f || length == 0)
            put(l, "\\u%04x", length ? *s : 0xfffd);
        else
            put(l, "%.*s", length, (const char *)s);
        s += length ? length : 1;
    }
    put(l, "\"");
}

/* JSON has no word for what is not finite; and its decimal point is none of the program's locale. */
static void put_number(line *l, const char *key, float value) {
    char text[32];
    if (value - value != 0) {
        put(l, ", \"%s\": \"%g\"", key, (double)value);
        return;
    }
    snprintf(text, sizeof(text), "%.9g", (double)value);
    int whole = (int)strspn(text, "-0123456789");
    int point = (int)strcspn(text + whole, "0123456789e");
    put(l, ", \"%s\": %.*s%s%s", key, whole, text, point ? "." : "", text + whole + point);
}

static void put_integers(line *l, const tlob_gemm *g) {
    const struct {
        const char *key;
        int64_t value;
    } fields[] = {
        {"m", g->m}, {"n", g->n}, {"k", g->k}, {"lda", g->lda}, {"ldb", g->ldb}, {"ldc", g->ldc},
        {"batch", g->batch}, {"stride_a", g->stride_a}, {"stride_b", g->stride_b}, {"stride_c", g->stride_c},
        {"ld_aux", g->ld_aux}, {"stride_aux", g->stride_aux}, {"stride_bias", g->stride_bias},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        put(l, ", \"%s\": %lld", fields[i].key, (long long)fields[i].value);
}

static void format_line(line *l, const tlob_trace *trace, bool after_torn) {
    const tlob_gemm *g = trace->gemm;
    l->used = 0;
    put(l, "%s{\"pid\": %ld", after_torn ? "\n" : "", (long)getpid());
    put_string(l, "trans", g->transa == TLOB_OP_T ? g->transb == TLOB_OP_T ? "TT" : "TN"
                                                  : g->transb == TLOB_OP_T ? "NT" : "NN");
    put_integers(l, g);
    put_number(l, "alpha", g->alpha);
    put_number(l, "beta", g->beta);
    put_string(l, "compute", tlob_compute_name(g->compute));
    put_string(l, "epilogue", tlob_epilogue_get_traits(g->epilogue)->name);
    put_string(l, "backend", trace->backend);
    put_string(l, "form", tlob_form_name(trace->form));
    put_string(l, "algorithm", trace->algorithm);
    put(l, ", \"workspace_bytes\": %zu", trace->workspace_bytes);
    put(l, ", \"deterministic\": %s", trace->deterministic ? "true" : "false");
    put_string(l, "reason", trace->reason);
    put_string(l, "status", tlob_status_name(trace->status));
    put_string(l, "message", trace->message);
    put(l, "}\n");
}

/* One write(2) a record, at the end of the file: threads and processes do not interleave. A record that is cut short by
 * a full disk is not finished later, when another's may have followed: the next one begins a new line. */
static void append_line(tlob_stream *stream, const line *l, bool after_torn) {
    tlob_context *ctx = stream->ctx;
    ssize_t done;
    do
        done = write(ctx->trace_fd, l->text, l->used);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)l->used)
        return;
    int code = errno;
    if (done > 0 || after_torn)
        atomic_store(&ctx->trace_torn, true);
    stream->stats.trace_lost++;
    if (!atomic_exchange(&ctx->trace_failed, true))
        tlob_log(ctx, TLOB_LOG_ERROR,
                 "trace: a record could not be written to '%s': %s; further losses are only counted",
                 ctx->settings.trace_path, done < 0 ? strerror(code) : "it was cut short");
}

void tlob_trace_write(tlob_stream *stream, const tlob_trace *trace) {
    tlob_context *ctx = stream->ctx;
    if (ctx->trace)
        ctx->trace(ctx->trace_user, trace);
    if (ctx->trace_fd < 0)
        return;
    line l;
    bool after_torn = atomic_load(&ctx->trace_torn) && atomic_exchange(&ctx->trace_torn, false);
    format_line(&l, trace, after_torn);
    append_line(stream, &l, after_torn);
}
