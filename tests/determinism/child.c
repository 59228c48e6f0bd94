/* determinism_child POLICY CONDITION [--perturb | --forget]
 *
 * Computes what tests compare between processes and prints a line for each result: mode, name, part, hash, first word.
 *
 *   POLICY     fixed:cublas_classic or fixed:cublaslt on the first GPU, in tf32 and fp32; fixed:cpu_ref on the host
 *   CONDITION  probe: only say whether there is such a device. quiet. busy: a second stream computes and copies all the
 *              time. tight: all device memory but 512 MiB is taken.
 *   --perturb  flips one bit of the first weight of everything
 *   --forget   lets a training that goes on lose its optimizer's state
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage, 77 no such device or no such backend in this build.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/determinism/work.h"

enum { EXIT_USAGE = 2, EXIT_NO_DEVICE = 77 };

static tlob_context *open_context(tlob_memory memory, const tlob_policy *policy, tlob_compute compute) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = memory;
    params.policy = *policy;
    params.compute = compute;
    params.deterministic = TLOB_SWITCH_ON;
    tlob_context *ctx;
    tlob_status status = tlob_context_create(&ctx, &params);
    if (status == TLOB_ERR_NO_DEVICE || status == TLOB_ERR_NOT_BUILT) {
        fprintf(stderr, "%s\n", tlob_last_error()->message);
        exit(EXIT_NO_DEVICE);
    }
    WORK_OK(status);
    return ctx;
}

/* --- busy: products and copies on a stream of its own
 * ----------------------------------------------------------------- */

typedef struct load {
    tlob_context *ctx;
    pthread_t thread;
    atomic_bool stop;
    atomic_long rounds;
} load;

static void *compute_and_copy(void *arg) {
    load *l = arg;
    const int64_t n = tlob_context_memory(l->ctx) == TLOB_MEMORY_HOST ? 24 : 1024;
    const size_t bytes = (size_t)(n * n) * sizeof(float);
    const tlob_gemm gemm = tlob_gemm_init(n, n, n);
    float *host = calloc(1, bytes);
    tlob_stream *stream;
    tlob_buffer *a, *d;
    WORK_OK(tlob_stream_create(l->ctx, &stream));
    WORK_OK(tlob_buffer_create(l->ctx, bytes, &a));
    WORK_OK(tlob_buffer_create(l->ctx, bytes, &d));
    const tlob_gemm_operands operands = {.a = tlob_buffer_data(a), .b = tlob_buffer_data(a), .d = tlob_buffer_data(d)};
    for (; host && !atomic_load(&l->stop); atomic_fetch_add(&l->rounds, 1)) {
        WORK_OK(tlob_upload(stream, tlob_buffer_data(a), host, bytes));
        for (int i = 0; i < 16; i++)
            WORK_OK(tlob_gemm_run(stream, &gemm, &operands));
        WORK_OK(tlob_download(stream, host, tlob_buffer_data(d), bytes));
    }
    tlob_buffer_destroy(&a);
    tlob_buffer_destroy(&d);
    tlob_stream_close(&stream);
    free(host);
    return NULL;
}

static void start_load(load *l, tlob_context *ctx) {
    *l = (load){.ctx = ctx};
    if (pthread_create(&l->thread, NULL, compute_and_copy, l)) {
        fprintf(stderr, "no thread for the second stream\n");
        exit(1);
    }
    while (!atomic_load(&l->rounds)) /* until it runs */
        ;
}

/* Fails where the second stream stood still meanwhile. */
static void stop_load(load *l, long rounds_before) {
    long rounds = atomic_load(&l->rounds) - rounds_before;
    atomic_store(&l->stop, true);
    pthread_join(l->thread, NULL);
    if (rounds < 1) {
        fprintf(stderr, "the second stream was not busy\n");
        exit(1);
    }
}

/* --- tight: the device's memory, but for a rest
 * ------------------------------------------------------------------------- */

#define REST ((size_t)512 << 20)

typedef struct hoard {
    int count;
    tlob_buffer *buffers[256];
} hoard;

static void take_memory(hoard *h, tlob_context *ctx) {
    tlob_buffer *rest;
    WORK_OK(tlob_buffer_create(ctx, REST, &rest));
    for (size_t bytes = (size_t)16 << 30; bytes >= (size_t)1 << 20;) {
        tlob_status status = h->count < 256 ? tlob_buffer_create(ctx, bytes, &h->buffers[h->count]) : TLOB_OK;
        if (status == TLOB_ERR_OUT_OF_MEMORY) {
            bytes /= 2;
            continue;
        }
        WORK_OK(status);
        if (h->count++ == 256) {
            fprintf(stderr, "more memory than 256 buffers take\n");
            exit(1);
        }
    }
    tlob_buffer_destroy(&rest);
}

static void give_memory(hoard *h) {
    while (h->count)
        tlob_buffer_destroy(&h->buffers[--h->count]);
}

/* --- */

static void compute(const char *mode, tlob_context *ctx, bool busy, work w) {
    load l;
    if (busy)
        start_load(&l, ctx);
    long rounds = busy ? atomic_load(&l.rounds) : 0;
    w.ctx = ctx;
    w.mode = mode;
    WORK_OK(tlob_stream_create(ctx, &w.stream));
    work_run(&w);
    tlob_stream_close(&w.stream);
    if (busy)
        stop_load(&l, rounds);
}

static int usage(void) {
    fprintf(stderr, "usage: determinism_child POLICY probe|quiet|busy|tight [--perturb|--forget]\n");
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    tlob_policy policy;
    const char *condition = argc > 2 ? argv[2] : "", *option = argc > 3 ? argv[3] : "";
    bool probe = !strcmp(condition, "probe"), busy = !strcmp(condition, "busy"), tight = !strcmp(condition, "tight");
    work w = {.perturb = !strcmp(option, "--perturb"), .forget = !strcmp(option, "--forget")};
    if (argc < 3 || argc > 4 || (*option && !w.perturb && !w.forget) || tlob_policy_parse(argv[1], &policy) ||
        (!probe && !busy && !tight && strcmp(condition, "quiet")))
        return usage();
    bool on_host = !strcmp(argv[1], "fixed:cpu_ref");
    if (on_host && tight)
        return usage(); /* the host's memory is not to be taken */
    tlob_memory memory = on_host ? TLOB_MEMORY_HOST : TLOB_MEMORY_CUDA;
    tlob_context *first = open_context(memory, &policy, TLOB_COMPUTE_FP32);
    hoard h = {0};
    if (tight)
        take_memory(&h, first);
    if (!probe) {
        compute("fp32", first, busy, w);
        tlob_context *second = on_host ? NULL : open_context(memory, &policy, TLOB_COMPUTE_TF32);
        if (second)
            compute("tf32", second, busy, w);
        tlob_context_destroy(&second);
    }
    give_memory(&h);
    tlob_context_destroy(&first);
    return 0;
}
