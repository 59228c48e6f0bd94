/* Warm streams, captures and graphs, on the real core with a device that is none: every status, and what is left. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/threads/device.h"
#if TLOB_HAVE_CUDA
#include "tests/fakes/fake.h"
#endif

#define OK(call) cr_assert_eq(call, TLOB_OK, "%s", tlob_last_error()->message)

/** Asserts a status, and that the message has these words. */
#define FAILS(call, status, words)                                                                                     \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        cr_assert_eq(status_, status, "%s: %s", tlob_status_name(status_), tlob_last_error()->message);                \
        cr_assert(strstr(tlob_last_error()->message, words), "%s", tlob_last_error()->message);                        \
    } while (0)

#define NEED_DEVICE()                                                                                                  \
    do {                                                                                                               \
        if (DEVICE_MEMORY == TLOB_MEMORY_HOST)                                                                         \
            cr_skip_test("this build has no vendor's headers to fake a device with");                                  \
    } while (0)

static const char *const backends[] = {"cublas_classic", "cublaslt", NULL}; /* NULL: by threshold */

static tlob_context *ctx;
static tlob_stream *stream;

static void open_on(tlob_memory memory, const char *backend) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = memory;
    if (backend) {
        params.policy.kind = TLOB_POLICY_FIXED;
        strcpy(params.policy.backend, backend);
    }
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
}

static void close_all(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

static tlob_stream_stats stats_of(const tlob_stream *of) {
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(of, &stats));
    return stats;
}

/* --- problems, and operands of the caller's for them --- */

enum { PROBLEMS = 4 * TLOB_EPILOGUE_COUNT + 3 };

/* Every epilogue, with a C to read, in a batch, and with padding. */
static int problems_of(tlob_gemm problems[PROBLEMS]) {
    int count = 0;
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++)
        for (int kind = 0; kind < 4; kind++) {
            tlob_gemm g = tlob_gemm_init(6, 5, 7);
            g.epilogue = (tlob_epilogue)e;
            g.ld_aux = 128;
            if (e == TLOB_EPILOGUE_BGRADB) {
                g.transb = TLOB_OP_T;
                g.ldb = 5;
            }
            g.beta = kind == 1 ? -0.5f : 0;
            if (kind == 2) {
                g.batch = 3;
                g.stride_a = 42, g.stride_b = 35, g.stride_c = 30, g.stride_aux = 640, g.stride_bias = 7;
            }
            if (kind == 3)
                g.lda = 9, g.ldb = 11, g.ldc = 13, g.ld_aux = 256;
            problems[count++] = g;
        }
    problems[count] = tlob_gemm_init(6, 5, 0);
    problems[count++].epilogue = TLOB_EPILOGUE_BIAS;
    problems[count] = tlob_gemm_init(6, 5, 7);
    problems[count++].alpha = 0;
    problems[count++] = tlob_gemm_init(0, 5, 7);
    return count;
}

static _Alignas(256) float in[2048], c[2048], d[2048], bgrad[64], bias[64];
static _Alignas(256) float aux[4096];

static tlob_gemm_operands operands_for(const tlob_gemm *g, bool in_place) {
    return (tlob_gemm_operands){
        .a = in, .b = in + 1024, .c = g->beta == 0 ? NULL : in_place ? d : c, .d = d, .bias = bias, .bgrad = bgrad,
        .aux = aux};
}

static bool has_product(const tlob_gemm *g) {
    return g->m > 0 && g->k > 0 && g->alpha != 0;
}

/* --- warming --- */

Test(graph, what_is_warm_can_be_captured_and_what_is_cold_cannot) {
    static tlob_gemm problems[PROBLEMS];
    const int count = problems_of(problems);
    NEED_DEVICE();
    for (int p = 0; p < 3; p++) {
        open_on(TLOB_MEMORY_CUDA, backends[p]);
        tlob_graph *graph;
        OK(tlob_graph_begin(stream));
        for (int i = 0; i < count; i++) {
            const tlob_gemm_operands x = operands_for(&problems[i], false);
            const tlob_status expected = has_product(&problems[i]) ? TLOB_ERR_NOT_WARM : TLOB_OK;
            cr_assert_eq(tlob_gemm_run(stream, &problems[i], &x), expected, "policy %d, problem %d", p, i);
        }
        FAILS(tlob_warm(stream, problems, count), TLOB_ERR_NOT_WARM, "warm it before");
        OK(tlob_graph_end(stream, &graph));
        tlob_graph_destroy(&graph);

        OK(tlob_warm(stream, problems, count));
        const tlob_stream_stats warm = stats_of(stream);
        OK(tlob_graph_begin(stream));
        for (int i = 0; i < 2 * count; i++) {
            const tlob_gemm *g = &problems[i / 2];
            const tlob_gemm_operands x = operands_for(g, i % 2);
            cr_assert_eq(tlob_gemm_run(stream, g, &x), TLOB_OK, "policy %d, problem %d: %s", p, i / 2,
                         tlob_last_error()->message);
        }
        cr_assert_eq(stats_of(stream).plan_misses, warm.plan_misses);
        tlob_gemm_operands x = operands_for(&problems[0], false);
        x.a++;
        FAILS(tlob_gemm_run(stream, &problems[0], &x), TLOB_ERR_NOT_WARM, "same alignment");
        OK(tlob_graph_end(stream, &graph));
        tlob_graph_destroy(&graph);
        x.a = in + 1;
        OK(tlob_gemm_run(stream, &problems[0], &x)); /* later work */
        close_all();
    }
}

/* --- with a table --- */

#if TLOB_HAVE_CUDA

static void keep_configured(void *user, const tlob_method *method) {
    if (method->n_configuration && method->form == TLOB_FORM_WHOLE)
        *(tlob_method *)user = *method;
}

/* What the library refuses today is done by the rule for misses, warm as any other, with C that is D or elsewhere. */
Test(graph, an_entry_that_is_refused_is_as_warm_as_any_product) {
    tlob_table_entry entry = {.gemm = tlob_gemm_init(6, 5, 7),
                              .origin = {.device = "fake", .sm = 90, .multiprocessors = 132}};
    tlob_context_params params = tlob_context_params_default();
    tlob_table *table;
    tlob_graph *graph;
    NEED_DEVICE();
    strcpy(entry.origin.library, "cuBLASLt 13.1.0");
    entry.gemm.beta = 1;
    entry.gemm.compute = TLOB_COMPUTE_FP32;
    open_on(TLOB_MEMORY_CUDA, NULL);
    OK(tlob_gemm_methods(stream, &entry.gemm, NULL, keep_configured, &entry.method));
    cr_assert(entry.method.n_configuration);
    close_all();
    OK(tlob_table_create(&table));
    OK(tlob_table_put(table, &entry));
    params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table};
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
    fake.refused = ~0u;
    OK(tlob_warm(stream, &entry.gemm, 1));
    OK(tlob_graph_begin(stream));
    for (int i = 0; i < 4; i++) {
        const tlob_gemm_operands x = operands_for(&entry.gemm, i % 2);
        OK(tlob_gemm_run(stream, &entry.gemm, &x));
    }
    OK(tlob_graph_end(stream, &graph));
    tlob_graph_destroy(&graph);
    cr_assert_eq(stats_of(stream).table_rejected, 6);
    close_all();
    tlob_table_destroy(&table);
}
#endif

/* --- the operands that warming makes: a backend of this test's own looks at them --- */

typedef struct extent {
    char *from, *to;
    bool output;
} extent;

/* From the first element of a batch to its last, element by element; bits: of an element. */
static extent extent_of(const void *at, int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride,
                        int bits, bool output) {
    int64_t last = (batch - 1) * (batch > 1 ? stride : 0) + (columns - 1) * ld + rows - 1;
    char *from = (char *)(uintptr_t)at;
    return (extent){from, from + last * bits / 8 + (bits == 1 ? 1 : 4), output};
}

static int looked_at;

static TLOB_GEMM_FN(look) {
    const tlob_gemm *g = gemm;
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    const bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    const int64_t length = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m;
    extent all[6];
    int count = 0;
    (void)lane;
    all[count++] = extent_of(x->a, ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g->batch, g->stride_a, 32, false);
    all[count++] = extent_of(x->b, tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g->batch, g->stride_b, 32, false);
    all[count++] = extent_of(x->d, g->m, g->n, g->ldc, g->batch, g->stride_c, 32, true);
    if (g->beta != 0 && x->c != x->d)
        all[count++] = extent_of(x->c, g->m, g->n, g->ldc, g->batch, g->stride_c, 32, false);
    if (t->reads_bias || t->writes_bgrad)
        all[count++] = extent_of(t->reads_bias ? x->bias : x->bgrad, length, 1, length, g->batch, g->stride_bias, 32,
                                 t->writes_bgrad);
    if (t->reads_aux || t->writes_aux) /* to the end of the last column, which is whole words */
        all[count++] = extent_of(x->aux, t->aux_is_mask ? g->ld_aux : g->m, g->n, g->ld_aux, g->batch, g->stride_aux,
                                 t->aux_is_mask ? 1 : 32, true);
    for (int i = 0; i < count; i++) {
        cr_assert_eq((uintptr_t)all[i].from % 256, 0u);
        for (int j = 0; j < count; j++)
            cr_assert(i == j || !all[i].output || all[i].to <= all[j].from || all[j].to <= all[i].from,
                      "epilogue %d: extents %d and %d of %d overlap", (int)g->epilogue, i, j, count);
        for (char *at = all[i].from; at < all[i].to; at++)
            cr_assert_eq(*at, 0);
        looked_at++;
    }
    for (int i = 0; i < count; i++) /* a checker of memory sees what is not theirs */
        all[i].to[-1] = 0;
    return TLOB_OK;
}

static tlob_status open_none(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_none(tlob_lane *lane) {
    (void)lane;
}

/* Each operand is the largest in turn. */
Test(graph, operands_made_for_warming_are_as_large_as_the_problem_says) {
    static const tlob_backend_ops looker = {
        .api = TLOB_BACKEND_API,
        .name = "looker",
        .caps = {.memory = TLOB_MEMORY_HOST,
                 .computes = 1u << TLOB_COMPUTE_FP32 | 1u << TLOB_COMPUTE_TF32,
                 .epilogues = (1u << TLOB_EPILOGUE_COUNT) - 1,
                 .max_batch = INT64_MAX},
        .open = open_none,
        .close = close_none,
        .sgemm = look,
        .sgemm_strided_batched = look,
        .matmul_bias = look,
    };
    static const tlob_backend_ops *const rows[] = {&looker};
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.backends = rows;
    params.n_backends = 1;
    params.policy.kind = TLOB_POLICY_FIXED;
    strcpy(params.policy.backend, "looker");
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++)
        for (int i = 0; i < 6 * 2 * 2; i++) {
            tlob_gemm g = tlob_gemm_init(3, 70, 7);
            g.epilogue = (tlob_epilogue)e;
            g.transa = i / 6 % 2 ? TLOB_OP_T : TLOB_OP_N;
            g.transb = i / 12 ? TLOB_OP_T : TLOB_OP_N;
            g.lda = 9, g.ldb = 80, g.ldc = 4, g.ld_aux = 128;
            g.beta = 1;
            g.batch = 3;
            g.stride_a = g.stride_b = 100, g.stride_c = 300, g.stride_bias = 72, g.stride_aux = 8960;
            *(int64_t *[]){&g.lda, &g.ldb, &g.ldc, &g.stride_c, &g.stride_bias, &g.stride_aux}[i % 6] = 12800;
            if (i % 6 == 2)
                g.stride_c = 70 * 12800;
            OK(tlob_warm(stream, &g, 1));
        }
    cr_assert_gt(looked_at, 3 * 2 * 24 * TLOB_EPILOGUE_COUNT);
    close_all();
}

/* Its own memory is all that it touches: a checker of memory sees the rest. */
Test(graph, a_host_context_is_warmed_like_any_other) {
    static tlob_gemm problems[PROBLEMS];
    const int count = problems_of(problems);
    open_on(TLOB_MEMORY_HOST, NULL);
    OK(tlob_warm(stream, NULL, 0));
    OK(tlob_warm(stream, problems, count));
    cr_assert_gt(stats_of(stream).products, count - 2);
    cr_assert_eq(stats_of(stream).rejected, 0);
    close_all();
}

Test(graph, what_warming_refuses) {
    tlob_gemm problems[3] = {tlob_gemm_init(2, 3, 4), tlob_gemm_init(2, 3, 4), tlob_gemm_init(2, 3, 4)};
    open_on(DEVICE_MEMORY, NULL);
    FAILS(tlob_warm(NULL, problems, 1), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_warm(stream, problems, -1), TLOB_ERR_ARGUMENT, "-1");
    FAILS(tlob_warm(stream, NULL, 1), TLOB_ERR_ARGUMENT, "problems is NULL");
    problems[1].lda = 1;
    FAILS(tlob_warm(stream, problems, 3), TLOB_ERR_ARGUMENT, "problem 1 of tlob_warm: ");
    cr_assert(strstr(tlob_last_error()->message, "lda is 1"), "%s", tlob_last_error()->message);
    cr_assert(tlob_last_error()->has_gemm && tlob_last_error()->gemm.lda == 1);
    cr_assert_eq(stats_of(stream).products, 1, "the one before it, and none after it");
    problems[1] = tlob_gemm_init((int64_t)1 << 29, 1 << 29, 1);
    FAILS(tlob_warm(stream, problems, 2), TLOB_ERR_OUT_OF_MEMORY, "problem 1 of tlob_warm: ");
    problems[1] = tlob_gemm_init(1, 1, 1);
    problems[1].epilogue = TLOB_EPILOGUE_RELU_AUX_BIAS;
    problems[1].ld_aux = INT64_MAX - 127; /* of one column, of which a bit is looked at */
    FAILS(tlob_warm(stream, problems, 2), TLOB_ERR_OUT_OF_MEMORY, "problem 1 of tlob_warm: ");
    tlob_stream *kept = stream;
    tlob_context_destroy(&ctx);
    FAILS(tlob_warm(kept, problems, 1), TLOB_ERR_CLOSED, "destroyed");
    tlob_stream_close(&kept);
}

Test(graph, kernels_are_loaded_once_a_context) {
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    cr_assert_eq(device_graph.loads, 0, "not when a context is made");
    device_graph.load_code = 209;
    FAILS(tlob_warm(stream, NULL, 0), TLOB_ERR_CUDA, "kernels");
    FAILS(tlob_graph_begin(stream), TLOB_ERR_CUDA, "kernels");
    cr_assert_null(device_graph.capturing);
    device_graph.load_code = 0;
    OK(tlob_warm(stream, NULL, 0));
    cr_assert_eq(device_graph.loads, 3);
    OK(tlob_warm(stream, NULL, 0));
    cr_assert_eq(device_graph.loads, 3);
    close_all();
    open_on(TLOB_MEMORY_CUDA, NULL);
    tlob_graph *graph;
    OK(tlob_graph_begin(stream));
    cr_assert_eq(device_graph.loads, 4, "a capture needs them too");
    OK(tlob_graph_end(stream, &graph));
    tlob_graph_destroy(&graph);
    close_all();
}

/* --- graphs --- */

Test(graph, a_host_context_has_nothing_to_capture) {
    tlob_graph *graph = (tlob_graph *)&graph;
    open_on(TLOB_MEMORY_HOST, NULL);
    FAILS(tlob_graph_begin(stream), TLOB_ERR_UNSUPPORTED, "run at once");
    FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_UNSUPPORTED, "run at once");
    cr_assert_null(graph);
    close_all();
}

Test(graph, calls_out_of_order) {
    tlob_graph *graph = NULL;
    tlob_stream *default_stream;
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    FAILS(tlob_graph_begin(NULL), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_graph_end(NULL, &graph), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_graph_end(stream, NULL), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_graph_launch(NULL, stream), TLOB_ERR_ARGUMENT, "NULL");
    tlob_graph_destroy(NULL);
    tlob_graph_destroy(&graph);
    FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_ARGUMENT, "has not begun");
    OK(tlob_stream_open(ctx, NULL, &default_stream));
    FAILS(tlob_graph_begin(default_stream), TLOB_ERR_ARGUMENT, "default stream");
    tlob_stream_close(&default_stream);

    OK(tlob_graph_begin(stream));
    FAILS(tlob_graph_begin(stream), TLOB_ERR_ARGUMENT, "already");
    FAILS(tlob_graph_end(stream, NULL), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_stream_sync(stream), TLOB_ERR_NOT_WARM, "after the capture");
    cr_assert_not_null(device_graph.capturing, "none of these has ended it");
    OK(tlob_graph_end(stream, &graph));
    FAILS(tlob_graph_end(stream, &(tlob_graph *){NULL}), TLOB_ERR_ARGUMENT, "has not begun");
    FAILS(tlob_graph_launch(graph, NULL), TLOB_ERR_ARGUMENT, "NULL");
    OK(tlob_graph_launch(graph, stream));
    tlob_graph_destroy(&graph);
    cr_assert_null(graph);

    device_graph.capturing = tlob_stream_cuda(stream); /* by the caller, who ends it too */
    FAILS(tlob_graph_begin(stream), TLOB_ERR_ARGUMENT, "already");
    FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_ARGUMENT, "has not begun");
    cr_assert_not_null(device_graph.capturing);
    device_graph.capturing = NULL;
    close_all();
}

Test(graph, failures_of_cuda_leave_the_stream_as_it_was) {
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    const struct {
        int *code;
        const char *call;
    } rows[] = {{&device_graph.end_code, "end"},
                {&device_graph.instantiate_code, "instantiate"},
                {&device_graph.event_code, "cudaEventCreate"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tlob_graph *graph = (tlob_graph *)&graph;
        OK(tlob_graph_begin(stream));
        *rows[i].code = 901;
        FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_CUDA, rows[i].call);
        cr_assert_eq(tlob_last_error()->vendor_code, 901);
        cr_assert_null(graph);
        cr_assert_eq(device_graph.alive, 0);
        *rows[i].code = 0;
        OK(tlob_graph_begin(stream));
        OK(tlob_graph_end(stream, &graph));
        OK(tlob_graph_launch(graph, stream));
        tlob_graph_destroy(&graph);
        cr_assert_eq(device_graph.alive + device_graph.events, 0);
    }
    device_graph.begin_code = 900;
    FAILS(tlob_graph_begin(stream), TLOB_ERR_CUDA, "cudaStreamBeginCapture");
    device_graph.begin_code = 0;
    FAILS(tlob_graph_end(stream, &(tlob_graph *){NULL}), TLOB_ERR_ARGUMENT, "has not begun");

    tlob_graph *graph;
    OK(tlob_graph_begin(stream));
    device_graph.capturing = NULL; /* ended behind our back */
    FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_CUDA, "end");
    OK(tlob_graph_begin(stream));
    device_graph.capturing = NULL;
    OK(tlob_graph_begin(stream));
    OK(tlob_graph_end(stream, &graph));
    device_graph.launch_code = 700;
    FAILS(tlob_graph_launch(graph, stream), TLOB_ERR_CUDA, "cudaGraphLaunch");
    device_graph.launch_code = 0;
    OK(tlob_graph_launch(graph, stream));
    tlob_graph_destroy(&graph);
    close_all();
    cr_assert_eq(device_graph.streams, 0);
}

static void *end_elsewhere(void *arg) {
    tlob_graph *graph = (tlob_graph *)&graph;
    device_graph.elsewhere = tlob_stream_cuda(stream);
    FAILS(tlob_graph_end(stream, &graph), TLOB_ERR_CUDA, "end");
    cr_assert_null(graph);
    return arg;
}

/* CUDA ends it on no other thread, and it goes on. */
Test(graph, a_capture_that_another_thread_tries_to_end_goes_on) {
    tlob_graph *graph;
    pthread_t thread;
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    OK(tlob_graph_begin(stream));
    cr_assert_eq(pthread_create(&thread, NULL, end_elsewhere, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    FAILS(tlob_graph_begin(stream), TLOB_ERR_ARGUMENT, "already");
    OK(tlob_graph_end(stream, &graph));
    OK(tlob_graph_launch(graph, stream));
    tlob_graph_destroy(&graph);
    close_all();
    cr_assert_eq(device_graph.streams + device_graph.alive + device_graph.events, 0);
}

/* The workspace has one user at a time, whatever stream a graph is launched on. */
Test(graph, a_launch_elsewhere_is_ordered_with_the_stream_of_the_capture) {
    tlob_stream *other;
    tlob_graph *graph;
    char expected[64];
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    OK(tlob_stream_create(ctx, &other));
    OK(tlob_graph_begin(stream));
    OK(tlob_graph_end(stream, &graph));
    const int home = device_stream_number(tlob_stream_cuda(stream));
    const int away = device_stream_number(tlob_stream_cuda(other));
    OK(tlob_graph_launch(graph, stream));
    snprintf(expected, sizeof(expected), "l%d ", home);
    cr_assert_str_eq(device_graph.order, expected);
    device_graph.order[0] = 0;
    OK(tlob_graph_launch(graph, other));
    snprintf(expected, sizeof(expected), "r%d w%d l%d r%d w%d ", home, away, away, away, home);
    cr_assert_str_eq(device_graph.order, expected);

    tlob_stream *const streams[] = {stream, other};
    for (int captured = 0; captured < 2; captured++) {
        tlob_graph *second;
        device_graph.order[0] = 0;
        OK(tlob_graph_begin(streams[captured]));
        FAILS(tlob_graph_launch(graph, other), TLOB_ERR_NOT_WARM, "being captured");
        cr_assert_eq(tlob_graph_launch(graph, stream), captured == 0 ? TLOB_ERR_NOT_WARM : TLOB_OK);
        cr_assert_eq(device_graph.order[0] != 0, captured == 1, "a capture of the other is no concern");
        OK(tlob_graph_end(streams[captured], &second));
        OK(tlob_graph_launch(second, stream));
        tlob_graph_destroy(&second);
    }
    tlob_graph_destroy(&graph);
    tlob_stream_close(&other);
    close_all();
}

Test(graph, a_graph_outlives_its_stream_and_its_context) {
    tlob_stream *other, *foreign;
    tlob_graph *graph, *second;
    NEED_DEVICE();
    open_on(TLOB_MEMORY_CUDA, NULL);
    tlob_context *foreign_ctx = ctx;
    foreign = stream;
    open_on(TLOB_MEMORY_CUDA, NULL);
    OK(tlob_stream_create(ctx, &other));
    OK(tlob_graph_begin(stream));
    OK(tlob_graph_end(stream, &graph));
    OK(tlob_graph_begin(stream));
    OK(tlob_graph_end(stream, &second));
    FAILS(tlob_graph_launch(graph, foreign), TLOB_ERR_ARGUMENT, "another context");
    const int streams = device_graph.streams;
    tlob_stream_close(&stream);
    cr_assert_eq(device_graph.streams, streams, "two graphs hold it");
    OK(tlob_graph_launch(graph, other));
    tlob_graph_destroy(&second);
    cr_assert_eq(device_graph.streams, streams, "one does");
    OK(tlob_graph_launch(graph, other));
    tlob_graph_destroy(&graph);
    cr_assert_eq(device_graph.streams, streams - 1);

    OK(tlob_graph_begin(other));
    OK(tlob_graph_end(other, &graph));
    tlob_context_destroy(&ctx);
    FAILS(tlob_graph_launch(graph, other), TLOB_ERR_CLOSED, "destroyed");
    FAILS(tlob_graph_launch(graph, foreign), TLOB_ERR_CLOSED, "destroyed");
    FAILS(tlob_graph_begin(other), TLOB_ERR_CLOSED, "destroyed");
    FAILS(tlob_graph_end(other, &second), TLOB_ERR_CLOSED, "destroyed");
    tlob_stream_close(&other);
    tlob_graph_destroy(&graph);
    tlob_stream_close(&foreign);
    tlob_context_destroy(&foreign_ctx);
    cr_assert_eq(device_graph.streams + device_graph.alive + device_graph.events, 0);
}

Test(graph, a_stream_that_is_closed_while_it_is_captured) {
    NEED_DEVICE();
    for (int whole = 0; whole < 2; whole++) {
        open_on(TLOB_MEMORY_CUDA, NULL);
        OK(tlob_graph_begin(stream));
        if (whole)
            tlob_context_destroy(&ctx);
        tlob_stream_close(&stream);
        cr_assert_null(device_graph.capturing);
        tlob_context_destroy(&ctx);
        cr_assert_eq(device_graph.streams + device_graph.alive, 0);
    }
}
