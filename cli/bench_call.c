// What a warm call costs the host, against a bare call of the vendor's library.
#include "cli/bench.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define D_IN  32
#define D_OUT 16

typedef struct warm_call {
    const char *backend;
    tlob_gemm gemm;
    tlob_gemm_operands x;
} warm_call;

static tlob_status run_warm(const void *user, tlob_stream *stream) {
    const warm_call *call = user;
    return tlob_gemm_run_on(stream, call->backend, &call->gemm, &call->x);
}

// Microseconds of host time a call. The device is waited for between samples, so that its queue is never full.
static bool time_calls(const bench *b, const bench_work *work, int calls, double *us) {
    tlob_status status = TLOB_OK;
    double start = cli_seconds();
    for (int i = 0; i < calls && !status; i++)
        status = work->enqueue(work->user, b->stream);
    *us = 1e6 * (cli_seconds() - start) / calls;
    if (!status && !(status = tlob_stream_sync(b->stream)))
        return true;
    cli_error("bench: a call failed: %s", tlob_status_name(status));
    return false;
}

static bool compare_calls(const bench *b, const char *what, const bench_work works[2]) {
    enum { CALLS = 20, WARM_UP = 20 };
    static const char *const names[] = {"bare", "libtlob"};
    int repeat = b->options->repeat ? b->options->repeat : 4001;
    double *samples = malloc(2 * (size_t)repeat * sizeof *samples);
    bool good = samples != NULL;
    size_t heap = 0;
    for (int r = -WARM_UP; good && r < repeat; r++) {
        if (r == 0)
            heap = mallinfo2().uordblks;
        for (int i = 0; good && i < 2; i++) {
            int work = r % 2 ? 1 - i : i;
            double us;
            good = time_calls(b, &works[work], CALLS, &us);
            if (r >= 0)
                samples[work * repeat + r] = us;
        }
    }
    size_t grown = mallinfo2().uordblks - heap;
    bench_times result[2], more = {0};
    if (good)
        more = bench_median_difference(samples, samples + repeat, repeat);
    for (int i = 0; good && i < 2; i++)
        result[i] = bench_summarize(samples + i * repeat, repeat);
    free(samples);
    if (!good)
        return false;
    cJSON *row = bench_report(b, what, D_IN * 8, BENCH_WALL, names, result);
    if (row) {
        cJSON_AddNumberToObject(row, "heap_growth_bytes", (double)grown);
        cJSON_AddNumberToObject(row, "more_us", more.median);
    } else {
        printf("%-12s libtlob costs %.3f us more, 95 %% confidence [%.3f %.3f], %d pairs; the heap grew by %zu bytes\n",
               "", more.median, more.low, more.high, repeat, grown);
    }
    return true;
}

bool bench_call(bench *b) {
    const int64_t n = D_IN * 8;
    tlob_settings settings;
    tlob_context_settings(b->ctx, &settings);
    tlob_buffer *w = bench_data(b, D_OUT * D_IN, 0), *x = bench_data(b, D_IN * n, 1), *q = bench_data(b, D_OUT * n, 2);
    bench_bare *bare = NULL;
    bool good = w && x && q;
    if (good) {
        tlob_gemm gemm = tlob_gemm_init(D_OUT, n, D_IN);
        gemm.compute = settings.compute;
        const tlob_gemm_operands operands = {
            .a = tlob_buffer_data(w), .b = tlob_buffer_data(x), .d = tlob_buffer_data(q)};
        const warm_call classic = {"cublas_classic", gemm, operands}, lt = {"cublaslt", gemm, operands};
        good = bench_bare_open(b->cuda, &gemm, operands.a, operands.b, operands.d, &bare) &&
               compare_calls(b, "classic", (bench_work[2]){{bench_bare_classic, bare}, {run_warm, &classic}}) &&
               compare_calls(b, "cublaslt", (bench_work[2]){{bench_bare_lt, bare}, {run_warm, &lt}});
    }
    bench_bare_close(&bare);
    tlob_buffer_destroy(&q);
    tlob_buffer_destroy(&x);
    tlob_buffer_destroy(&w);
    return good;
}
