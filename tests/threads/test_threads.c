/*
 * One context, many threads, each with streams of its own: on the real core, with a device and vendor that are none.
 * Speaks TAP by itself: the thread sanitizer does not get along with Criterion.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/threads/device.h"

#define THREADS 6
#define ROUNDS  20

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("# line %d: ", __LINE__);                                                                           \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
            return FAILED;                                                                                             \
        }                                                                                                              \
    } while (0)

#define OK(call) CHECK((call) == TLOB_OK, "%s", tlob_last_error()->message)

typedef struct worker {
    tlob_context *ctx;
    pthread_t thread;
    const char *wrong; /* NULL, or what went wrong */
    char name;         /* its address is the worker's CUDA stream */
} worker;

static atomic_int traced;

static void count_trace(void *user, const tlob_trace *trace) {
    (void)user;
    atomic_fetch_add(&traced, trace->status == TLOB_OK || *trace->message);
}

/* D = 3 * 5 * k + bias on every backend of the context, single and in a batch. */
static const char *run_products(tlob_context *ctx, tlob_stream *stream, int64_t k) {
    _Alignas(256) float a[3 * 64], b[3 * 64], d[3 * 64], bias[8];
    for (int i = 0; i < 3 * 64; i++)
        a[i] = 3, b[i] = 5, d[i] = -1;
    for (int i = 0; i < 8; i++)
        bias[i] = (float)i;
    tlob_gemm g = tlob_gemm_init(8, 8, k);
    g.stride_a = g.stride_b = g.stride_c = 64;
    for (int i = 0; i < ctx->n_backends; i++)
        for (int kind = 0; kind < 3; kind++) {
            g.batch = kind == 1 ? 3 : 1;
            g.epilogue = kind == 2 ? TLOB_EPILOGUE_BIAS : TLOB_EPILOGUE_NONE;
            tlob_gemm_operands x = {.a = a, .b = b, .d = d, .bias = bias};
            if (tlob_gemm_run_on(stream, ctx->backends[i]->name, &g, &x) != TLOB_OK)
                return "a product failed";
            if (d[2] != 15 * (float)k + (kind == 2 ? 2 : 0))
                return "a product is wrong";
        }
    return NULL;
}

/* Errors belong to their thread: each provokes its own and reads it back. */
static const char *run_failure(tlob_stream *stream, int64_t number) {
    char words[32];
    tlob_gemm g = tlob_gemm_init(-number, 1, 1);
    snprintf(words, sizeof(words), "m is -%d,", (int)number);
    if (tlob_gemm_run(stream, &g, &(tlob_gemm_operands){0}) != TLOB_ERR_ARGUMENT)
        return "a wrong product was run";
    return strstr(tlob_last_error()->message, words) ? NULL : "another thread's error";
}

static const char *one_round(worker *w, int round) {
    tlob_stream *stream, *shared;
    tlob_explanation explanation;
    struct CUstream_st *cuda = DEVICE_MEMORY == TLOB_MEMORY_CUDA ? (struct CUstream_st *)(void *)&w->name : NULL;
    if (cuda ? tlob_stream_open(w->ctx, cuda, &stream) : tlob_stream_create(w->ctx, &stream))
        return "no stream";
    if (tlob_stream_open(w->ctx, NULL, &shared))
        return "no default stream";
    const char *wrong = NULL;
    for (int64_t k = 1; k <= 4 && !wrong; k++)
        wrong = run_products(w->ctx, stream, k);
    if (!wrong)
        wrong = run_failure(stream, 100 + round + (int)((uintptr_t)w % 1000));
    tlob_gemm g = tlob_gemm_init(8, 8, 8);
    if (!wrong && tlob_gemm_explain(stream, &g, NULL, &explanation) != TLOB_OK)
        wrong = "no explanation";
    tlob_stream_stats stats;
    tlob_stream_get_stats(stream, &stats);
    if (!wrong && (stats.products != 12 * w->ctx->n_backends || stats.rejected != 1 || stats.trace_lost))
        wrong = "the counters are off";
    tlob_stream_close(&shared);
    tlob_stream_close(&stream);
    return wrong;
}

static void *work(void *user) {
    worker *w = user;
    for (int round = 0; round < ROUNDS && !w->wrong; round++)
        w->wrong = one_round(w, round);
    return NULL;
}

static tlob_context_params params_with(const char *trace_path) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = DEVICE_MEMORY;
    params.trace_path = trace_path;
    params.trace = count_trace;
    return params;
}

static bool make_file(char path[32]) {
    strcpy(path, "/tmp/tlob-threads-XXXXXX");
    int fd = mkstemp(path);
    return fd >= 0 && close(fd) == 0;
}

/* Every line is one whole record, for threads do not interleave: their number, or -1. */
static int count_lines(const char *path) {
    char line[8192];
    int lines = 0;
    FILE *file = fopen(path, "r");
    for (; file && lines >= 0 && fgets(line, sizeof(line), file); lines++) {
        size_t length = strlen(line);
        if (strncmp(line, "{\"pid\": ", 8) || length < 4 || strcmp(line + length - 2, "}\n") || strstr(line + 1, "{"))
            lines = -2;
    }
    if (file)
        fclose(file);
    return lines;
}

static outcome each_with_streams_of_its_own(void) {
    char path[32];
    CHECK(make_file(path), "no file");
    tlob_context_params params = params_with(path);
    tlob_context *ctx;
    OK(tlob_context_create(&ctx, &params));
    worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        workers[i].ctx = ctx;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK(!workers[i].wrong, "%s", workers[i].wrong);
    }
    int expected = THREADS * ROUNDS * (12 * ctx->n_backends + 1);
    CHECK(atomic_load(&traced) == expected, "%d records of %d", atomic_load(&traced), expected);
    tlob_context_destroy(&ctx);
    CHECK(count_lines(path) == expected, "%d lines of %d", count_lines(path), expected);
    unlink(path);
    return PASSED;
}

static void *make_context(void *path) {
    for (int i = 0; i < 10; i++) {
        tlob_context_params params = tlob_context_params_default();
        params.memory = DEVICE_MEMORY;
        params.config_path = path;
        tlob_context *ctx;
        if (tlob_context_create(&ctx, &params) != TLOB_OK || ctx->settings.workspace_bytes != (size_t)1 << 20)
            return "no context";
        tlob_context_destroy(&ctx);
    }
    return NULL;
}

static outcome contexts_from_one_configuration_file(void) {
    char path[32];
    CHECK(make_file(path), "no file");
    FILE *file = fopen(path, "w");
    fputs("{\"workspace_mib\": 1}", file);
    fclose(file);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, make_context, path) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK(!wrong, "%s", (const char *)wrong);
    }
    unlink(path);
    return PASSED;
}

/* --- one table of algorithms for all streams --- */

enum { PROBLEMS = 12 };

typedef struct chooser {
    tlob_context *ctx;
    pthread_t thread;
    const char *wrong;
    char told[PROBLEMS][128];
} chooser;

static void *choose(void *user) {
    chooser *c = user;
    tlob_stream *stream;
    _Alignas(256) float a[64] = {0}, d[64];
    if (tlob_stream_create(c->ctx, &stream))
        return c->wrong = "no stream", NULL;
    for (int i = 0; i < PROBLEMS && !c->wrong; i++) {
        tlob_gemm g = tlob_gemm_init(1 + i % 4, 1 + i / 4, 8);
        const tlob_gemm_operands x = {.a = a, .b = a, .d = d};
        tlob_explanation e;
        if (tlob_gemm_run(stream, &g, &x) || tlob_gemm_explain(stream, &g, &x, &e))
            c->wrong = "a product failed";
        else
            strcpy(c->told[i], e.algorithm);
    }
    tlob_stream_close(&stream);
    return NULL;
}

static void count_entry(void *user, const tlob_algorithm *entry) {
    *(int *)user += entry->state == TLOB_ALGORITHM_CHOSEN;
}

/* Threads that need one key at once get one answer, which is searched for once. */
static outcome one_answer_for_one_key(void) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        return SKIPPED;
    tlob_context_params params = params_with(NULL);
    params.trace = NULL;
    params.deterministic = TLOB_SWITCH_ON;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    tlob_context *ctx;
    static chooser choosers[THREADS];
    OK(tlob_context_create(&ctx, &params));
    atomic_store(&device_searches, 0);
    for (int i = 0; i < THREADS; i++) {
        choosers[i].ctx = ctx;
        CHECK(pthread_create(&choosers[i].thread, NULL, choose, &choosers[i]) == 0, "no thread");
    }
    int entries = 0;
    for (int i = 0; i < 20; i++)
        OK(tlob_algorithms_list(ctx, count_entry, &(int){0})); /* meanwhile */
    for (int i = 0; i < THREADS; i++) {
        pthread_join(choosers[i].thread, NULL);
        CHECK(!choosers[i].wrong, "%s", choosers[i].wrong);
        CHECK(!memcmp(choosers[i].told, choosers[0].told, sizeof(choosers[0].told)), "another answer");
    }
    CHECK(strstr(choosers[0].told[0], "deterministic"), "%s", choosers[0].told[0]);
    OK(tlob_algorithms_list(ctx, count_entry, &entries));
    CHECK(entries == PROBLEMS, "%d entries", entries);
    CHECK(atomic_load(&device_searches) == PROBLEMS, "%d searches", atomic_load(&device_searches));
    tlob_context_destroy(&ctx);
    return PASSED;
}

/* Known trap: a library that leaves its own device current, not least where it fails. */
static outcome the_callers_device_is_as_it_was(void) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        return SKIPPED;
    tlob_context_params params = params_with(NULL);
    tlob_context *ctx;
    tlob_stream *stream;
    params.device = 1;
    OK(tlob_context_create(&ctx, &params));
    CHECK(device_current == 0, "device %d is current", device_current);
    OK(tlob_stream_create(ctx, &stream));
    for (int caller = 0; caller < 2; caller++) {
        device_current = caller; /* changed behind our back */
        CHECK(!run_products(ctx, stream, 2), "a product");
        CHECK(device_current == caller, "device %d is current", device_current);
        CHECK(!run_failure(stream, 7), "a failure");
        CHECK(device_current == caller, "device %d is current", device_current);
    }
    device_current = 0;
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    CHECK(device_current == 0, "device %d is current", device_current);
    return PASSED;
}

/* In the child of a fork: 0 if every call says so and none touches the device, else the number of what is wrong. */
static int use_after_fork(tlob_context *ctx, tlob_stream *stream, tlob_buffer *buffer) {
    int entered = atomic_load(&device_entered);
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    float one = 1, word;
    tlob_stream *other;
    tlob_buffer *more;
    const tlob_status statuses[] = {
        tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = &one, .b = &one, .d = &word}),
        tlob_stream_sync(stream),
        tlob_stream_create(ctx, &other),
        tlob_buffer_create(ctx, 4, &more),
        tlob_download(stream, &word, tlob_buffer_data(buffer), 4),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (statuses[i] != TLOB_ERR_NO_DEVICE)
            return 1 + (int)i;
    if (!strstr(tlob_last_error()->message, "forked"))
        return 10;
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return atomic_load(&device_entered) == entered ? 0 : 11;
}

static outcome a_forked_child_touches_no_device(void) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        return SKIPPED;
    tlob_context_params params = params_with(NULL);
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_buffer *buffer;
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 64, &buffer));
    pid_t child = fork();
    if (child == 0)
        _exit(use_after_fork(ctx, stream, buffer));
    int how;
    CHECK(waitpid(child, &how, 0) == child, "no child");
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child's status is 0x%x", (unsigned)how);
    CHECK(!run_products(ctx, stream, 2), "the parent cannot go on");
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return PASSED;
}

int main(void) {
    static const struct {
        const char *name;
        outcome (*run)(void);
    } tests[] = {
        {"each_with_streams_of_its_own", each_with_streams_of_its_own},
        {"contexts_from_one_configuration_file", contexts_from_one_configuration_file},
        {"one_answer_for_one_key", one_answer_for_one_key},
        {"the_callers_device_is_as_it_was", the_callers_device_is_as_it_was},
        {"a_forked_child_touches_no_device", a_forked_child_touches_no_device},
    };
    enum { COUNT = sizeof(tests) / sizeof(*tests) };
    int failed = 0;
    printf("1..%d\n", COUNT);
    for (int i = 0; i < COUNT; i++) {
        fflush(stdout);
        outcome o = tests[i].run();
        failed += o == FAILED;
        printf("%s %d - threads::%s%s\n", o == FAILED ? "not ok" : "ok", i + 1, tests[i].name,
               o == SKIPPED ? " # SKIP without the vendor's headers there is no device to fake" : "");
    }
    return failed != 0;
}
