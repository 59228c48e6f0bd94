#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libtlob/internal.h"

/* The one thing that is kept per thread: like errno, it belongs to the caller and not to any context. */
static _Thread_local tlob_error last_error;
static _Thread_local size_t reason_at; /* where in the message the words about the failure begin */

const tlob_error *tlob_last_error(void) {
    return &last_error;
}

void tlob_error_restore(const tlob_error *error) {
    last_error = *error;
    reason_at = 0;
}

const char *tlob_error_reason(void) {
    return last_error.message + reason_at;
}

static void record(tlob_status status, const char *operation) {
    memset(&last_error, 0, sizeof(last_error));
    reason_at = 0;
    last_error.status = status;
    snprintf(last_error.operation, sizeof(last_error.operation), "%s", operation);
}

tlob_status tlob_fail(tlob_status status, const char *operation, const char *format, ...) {
    record(status, operation);
    int used = snprintf(last_error.message, sizeof(last_error.message), "%s: ", operation);
    reason_at = (size_t)used < sizeof(last_error.message) ? (size_t)used : 0;
    va_list args;
    va_start(args, format);
    vsnprintf(last_error.message + used, sizeof(last_error.message) - (size_t)used, format, args);
    va_end(args);
    return status;
}

void tlob_fail_gemm(const tlob_gemm *gemm) {
    last_error.has_gemm = true;
    last_error.gemm = *gemm;
}

void tlob_fail_in(const char *format, ...) {
    enum { SIZE = sizeof(last_error.message) };
    char words[64];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    size_t length = strlen(words);
    memmove(last_error.message + length, last_error.message, SIZE - length);
    memcpy(last_error.message, words, length);
    reason_at = 0;
    last_error.message[SIZE - 1] = 0; /* one that is too long is cut */
}

tlob_status tlob_fail_cuda(const tlob_space *space, int code, const char *call) {
    if (code == 0)
        return TLOB_OK;
    const char *name = space->error_name(code), *advice = space->advice(code);
    tlob_status status = code == TLOB_CUDA_OUT_OF_MEMORY     ? TLOB_ERR_OUT_OF_MEMORY
                         : code == TLOB_CUDA_NOT_INITIALIZED ? TLOB_ERR_NO_DEVICE
                                                             : TLOB_ERR_CUDA;
    if (!advice && status == TLOB_ERR_CUDA)
        advice = "the failure may come from work enqueued earlier on this device";
    tlob_fail(status, call, "%s (%d)%s%s", name, code, advice ? "; " : "", advice ? advice : "");
    last_error.vendor_code = code;
    snprintf(last_error.vendor, sizeof(last_error.vendor), "%s", name);
    return status;
}

void tlob_problem_print(const tlob_gemm *g, char *text, size_t size) {
    snprintf(text, size,
                    "%c%c m=%lld n=%lld k=%lld lda=%lld ldb=%lld ldc=%lld batch=%lld strides %lld,%lld,%lld %s%s%s",
                    g->transa == TLOB_OP_T ? 'T' : 'N', g->transb == TLOB_OP_T ? 'T' : 'N', (long long)g->m,
                    (long long)g->n, (long long)g->k, (long long)g->lda, (long long)g->ldb, (long long)g->ldc,
                    (long long)g->batch, (long long)g->stride_a, (long long)g->stride_b, (long long)g->stride_c,
                    tlob_compute_name(g->compute), g->epilogue ? " epilogue " : "",
                    g->epilogue ? tlob_epilogue_get_traits(g->epilogue)->name : "");
}

/* Appends to a full-length buffer; a message that is too long is cut, never overrun. */
static void append(char *text, size_t size, size_t *used, const char *format, va_list args) {
    int n = vsnprintf(text + *used, size - *used, format, args);
    if (n > 0)
        *used = *used + (size_t)n < size ? *used + (size_t)n : size - 1;
}

static void append_words(size_t *used, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_words(size_t *used, const char *format, ...) {
    va_list args;
    va_start(args, format);
    append(last_error.message, sizeof(last_error.message), used, format, args);
    va_end(args);
}

tlob_status tlob_backend_fail(tlob_status status, const char *backend, const char *operation, int vendor_code,
                              const char *vendor, const tlob_gemm *gemm, const char *format, ...) {
    record(status, operation);
    snprintf(last_error.backend, sizeof(last_error.backend), "%s", backend);
    last_error.vendor_code = vendor_code;
    snprintf(last_error.vendor, sizeof(last_error.vendor), "%s", vendor ? vendor : "");
    if (gemm)
        tlob_fail_gemm(gemm);

    size_t used = 0;
    append_words(&used, "%s: %s", backend, operation);
    if (vendor)
        append_words(&used, " gave %s (%d)", vendor, vendor_code);
    if (gemm) {
        char problem[256];
        tlob_problem_print(gemm, problem, sizeof(problem));
        append_words(&used, " on %s", problem);
    }
    append_words(&used, ": ");
    reason_at = used;
    va_list args;
    va_start(args, format);
    append(last_error.message, sizeof(last_error.message), &used, format, args);
    va_end(args);
    return status;
}
