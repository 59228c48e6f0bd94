/* Deterministic contexts on a CUDA device: that what the fixed order chooses runs, is right, is the same every time, and
 * is not slow. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parity/parity.h"
#include "tests/gpu/gpu.h"

/** A stream of a context, deterministic or not, and operands that are large enough. */
typedef struct world {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_buffer *a, *b, *d;
} world;

static char last_algorithm[128]; /* as the trace tells */

static void note_algorithm(void *user, const tlob_trace *trace) {
    (void)user;
    snprintf(last_algorithm, sizeof(last_algorithm), "%s", trace->algorithm);
}

static world open_world(tlob_switch deterministic, bool traced) {
    world w = {0};
    tlob_context_params params = tlob_context_params_default();
    params.deterministic = deterministic;
    params.trace = traced ? note_algorithm : NULL;
    OK(tlob_policy_parse("fixed:cublaslt", &params.policy));
    OK(tlob_context_create(&w.ctx, &params));
    OK(tlob_stream_create(w.ctx, &w.stream));
    return w;
}

static void close_world(world *w) {
    tlob_buffer_destroy(&w->a);
    tlob_buffer_destroy(&w->b);
    tlob_buffer_destroy(&w->d);
    tlob_stream_close(&w->stream);
    tlob_context_destroy(&w->ctx);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "an error was left behind");
}

/** Values in (-1, 1), the same in every world. */
static void fill(world *w, tlob_buffer **buffer, int64_t count) {
    OK(tlob_buffer_create(w->ctx, (size_t)count * sizeof(float), buffer));
    float *x = malloc((size_t)count * sizeof(float));
    uint32_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    OK(tlob_upload(w->stream, tlob_buffer_data(*buffer), x, (size_t)count * sizeof(float)));
    free(x);
}

static tlob_gemm problem(int ops, int64_t m, int64_t n, int64_t k, int64_t batch, tlob_compute compute) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.transa = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
    g.lda = ops & 2 ? k : m;
    g.ldb = ops & 1 ? n : k;
    g.compute = compute;
    g.batch = batch;
    g.stride_a = m * k;
    g.stride_b = n * k;
    g.stride_c = m * n;
    return g;
}

static tlob_gemm_operands operands(const world *w) {
    return (tlob_gemm_operands){
        .a = tlob_buffer_data(w->a), .b = tlob_buffer_data(w->b), .d = tlob_buffer_data(w->d)};
}

/* --- the table of parity --------------------------------------------------------------------------------------- */

static void log_failure(void *user, const parity_case *c, const parity_result *result) {
    (void)user;
    (void)c;
    if (result->verdict == PARITY_FAIL || result->verdict == PARITY_ERROR)
        cr_log_error("%s", result->message);
}

/** The same cases run as without the setting: how many the backend refuses must not change. */
static parity_tally sweep(tlob_switch deterministic, tlob_compute mode) {
    world w = open_world(deterministic, false);
    tlob_context *host;
    tlob_stream *oracle;
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    OK(tlob_policy_parse("fixed:cpu_ref", &params.policy));
    OK(tlob_context_create(&host, &params));
    OK(tlob_stream_open(host, NULL, &oracle));
    parity_sweep asked = parity_sweep_from_environment();
    asked.stream = w.stream;
    asked.oracle = oracle;
    asked.backend = "cublaslt";
    asked.compute = mode;
    asked.filter = getenv("TLOB_TEST_CASE");
    if (!asked.filter && getenv("TLOB_SANITIZED"))
        asked.filter = "tlob/*";
    asked.each = log_failure;
    parity_tally t = parity_run_table(&asked);
    tlob_stream_close(&oracle);
    tlob_context_destroy(&host);
    close_world(&w);
    return t;
}

static void whole_table(tlob_compute mode) {
    parity_tally t = sweep(TLOB_SWITCH_ON, mode), usual = sweep(TLOB_SWITCH_OFF, mode);
    cr_assert_gt(t.ran, 0);
    cr_assert_eq(parity_failed(&t), 0, "%d of %d cases; the first: %s", parity_failed(&t), t.ran, t.first);
    cr_assert_eq(t.count[PARITY_UNSUPPORTED], usual.count[PARITY_UNSUPPORTED], "%d cases refused, usually %d",
                 t.count[PARITY_UNSUPPORTED], usual.count[PARITY_UNSUPPORTED]);
}

Test(gpu_algorithms, the_table_in_fp32) {
    NEED_GPU();
    whole_table(TLOB_COMPUTE_FP32);
}

Test(gpu_algorithms, the_table_in_tf32) {
    NEED_GPU();
    whole_table(TLOB_COMPUTE_TF32);
}

/* --- the same bits --------------------------------------------------------------------------------------------- */

/* Known trap: the parts of a split K summed in the order in which they finish. */
Test(gpu_algorithms, a_deep_product_gives_the_same_bits_a_hundred_times) {
    NEED_GPU();
    static const struct {
        int64_t m, n, k;
    } shapes[] = {{16, 32, 65536}, {256, 256, 4096}, {768, 256, 4096}, {15, 7, 4097}};
    static const tlob_compute modes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    world w = open_world(TLOB_SWITCH_ON, true);
    fill(&w, &w.a, 768 * 4096);
    fill(&w, &w.b, 32 * 65536);
    fill(&w, &w.d, 768 * 256);
    const tlob_gemm_operands x = operands(&w);
    float *first = malloc(768 * 256 * sizeof(float)), *again = malloc(768 * 256 * sizeof(float));
    for (int i = 0; i < 8; i++) {
        tlob_gemm g = problem(1, shapes[i / 2].m, shapes[i / 2].n, shapes[i / 2].k, 1, modes[i % 2]);
        size_t bytes = (size_t)(g.m * g.n) * sizeof(float);
        for (int round = 0; round < 100; round++) {
            OK(tlob_fill(w.stream, x.d, 0xff, bytes));
            OK(tlob_gemm_run(w.stream, &g, &x));
            OK(tlob_download(w.stream, round ? again : first, x.d, bytes));
            cr_assert(!round || !memcmp(first, again, bytes), "%dx%dx%d in %s, round %d: %s", (int)g.m, (int)g.n,
                      (int)g.k, tlob_compute_name(g.compute), round, last_algorithm);
        }
        cr_assert(strstr(last_algorithm, "deterministic"), "%s", last_algorithm);
        cr_assert(!strstr(last_algorithm, "reduction 1"), "in place: %s", last_algorithm);
        cr_log_info("%dx%dx%d in %s: %s", (int)g.m, (int)g.n, (int)g.k, tlob_compute_name(g.compute), last_algorithm);
    }
    free(first);
    free(again);
    close_world(&w);
}

/* --- the same algorithms --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int ops;
    int64_t m, n, k, batch;
} shapes[] = {
    {"qkv, 256", 0, 16, 256, 32, 3},     {"qkv, 4096", 0, 16, 4096, 32, 3},   {"o, 256", 0, 16, 256, 16, 1},
    {"o, 4096", 0, 16, 4096, 16, 1},     {"dx_o, 4096", 2, 16, 4096, 16, 1},  {"dx, 256", 2, 32, 256, 16, 1},
    {"dx, 4096", 2, 32, 4096, 16, 1},    {"dw_o, 256", 1, 16, 16, 256, 1},    {"dw_o, 4096", 1, 16, 16, 4096, 1},
    {"dw_qkv, 256", 1, 16, 32, 256, 3},  {"dw_qkv, 4096", 1, 16, 32, 4096, 3}, {"dw_q, 4096", 1, 16, 32, 4096, 1},
    {"dw_q, 65536", 1, 16, 32, 65536, 1}, {"dw_qkv, 65536", 1, 16, 32, 65536, 3},
    {"square, 64", 0, 64, 64, 64, 1},    {"square, 128", 0, 128, 128, 128, 1}, {"square, 256", 0, 256, 256, 256, 1},
    {"square, 512", 0, 512, 512, 512, 1}, {"square, 1024", 0, 1024, 1024, 1024, 1},
    {"square, 512 tn", 2, 512, 512, 512, 1}, {"square, 1024 tn", 2, 1024, 1024, 1024, 1},
    {"square, 1024 nt", 1, 1024, 1024, 1024, 1}, {"square, 512 tt", 3, 512, 512, 512, 1},
    {"256x4096x256 nn", 0, 256, 4096, 256, 1}, {"256x4096x256 tn", 2, 256, 4096, 256, 1},
    {"256x4096x256 nt", 1, 256, 4096, 256, 1}, {"768x4096x256 nn", 0, 768, 4096, 256, 1},
    {"768x4096x256 tn", 2, 768, 4096, 256, 1}, {"768x4096x256 nt", 1, 768, 4096, 256, 1},
    {"4096x256x256 nn", 0, 4096, 256, 256, 1}, {"4096x256x256 tn", 2, 4096, 256, 256, 1},
    {"4096x768x256 nt", 1, 4096, 768, 256, 1}, {"4096x768x256 tn", 2, 4096, 768, 256, 1},
    {"256x4096x768 nn", 0, 256, 4096, 768, 1}, {"256x4096x768 tn", 2, 256, 4096, 768, 1},
    {"dw 256x256x4096", 1, 256, 256, 4096, 1}, {"dw 768x256x4096", 1, 768, 256, 4096, 1},
    {"dw 256x256x65536", 1, 256, 256, 65536, 1}, {"dw 64x64x65536", 1, 64, 64, 65536, 1},
    {"127x129x65", 0, 127, 129, 65, 1},  {"333x777x555", 0, 333, 777, 555, 1},
    {"1x4096x256 nn", 0, 1, 4096, 256, 1}, {"256x1x4096 tn", 2, 256, 1, 4096, 1},
    {"4096x1x256 nn", 0, 4096, 1, 256, 1}, {"1x1000x1000 nt", 1, 1, 1000, 1000, 1},
    {"1x1x65536", 0, 1, 1, 65536, 1},    {"3x1x4096 nn", 0, 3, 1, 4096, 1},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static tlob_gemm shape(int i, tlob_compute compute) {
    return problem(shapes[i].ops, shapes[i].m, shapes[i].n, shapes[i].k, shapes[i].batch, compute);
}

/** How a world would run every shape. */
static void explain_all(const world *w, char told[SHAPES][2][128]) {
    for (int i = 0; i < 2 * SHAPES; i++) {
        tlob_gemm g = shape(i / 2, i % 2 ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32);
        tlob_explanation e;
        OK(tlob_gemm_explain(w->stream, &g, NULL, &e));
        memcpy(told[i / 2][i % 2], e.algorithm, 128);
        cr_assert(strstr(e.algorithm, "algo "), "%s: %s", shapes[i / 2].name, e.algorithm);
    }
}

static void count_states(void *user, const tlob_algorithm *entry) {
    ((int *)user)[entry->state]++;
}

Test(gpu_algorithms, two_contexts_and_a_file_agree) {
    NEED_GPU();
    static char first[SHAPES][2][128], second[SHAPES][2][128];
    char path[] = "/tmp/tlob-algorithms-XXXXXX";
    int fd = mkstemp(path), counts[4] = {0};
    close(fd);
    world w = open_world(TLOB_SWITCH_ON, false);
    explain_all(&w, first);
    OK(tlob_algorithms_save(w.ctx, path));
    close_world(&w);
    w = open_world(TLOB_SWITCH_ON, false);
    tlob_algorithms_report report;
    OK(tlob_algorithms_load(w.ctx, path, &report));
    cr_assert_eq(report.rejected, 0, "%s", report.reason);
    explain_all(&w, second);
    for (int i = 0; i < 2 * SHAPES; i++)
        cr_assert_str_eq(first[i / 2][i % 2], second[i / 2][i % 2], "%s", shapes[i / 2].name);
    OK(tlob_algorithms_list(w.ctx, count_states, counts));
    cr_assert_eq(counts[TLOB_ALGORITHM_CONFIRMED], report.accepted);
    cr_assert_eq(counts[TLOB_ALGORITHM_LOADED] + counts[TLOB_ALGORITHM_CHOSEN], 0);
    unlink(path);
    close_world(&w);
}

/* --- how fast -------------------------------------------------------------------------------------------------- */

enum { LAUNCHES = 20 };

/** Microseconds of one product: the least of several replays of a graph of many. */
static double microseconds(const world *w, const tlob_gemm *g, const tlob_gemm_operands *x) {
    cudaStream_t stream = tlob_stream_cuda(w->stream);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float least = 1e9f, ms;
    OK(tlob_gemm_run(w->stream, g, x));
    cr_assert_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (int i = 0; i < LAUNCHES; i++)
        OK(tlob_gemm_run(w->stream, g, x));
    cr_assert_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cr_assert_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaGraphLaunch(exec, stream);
    for (int round = 0; round < 4; round++) {
        cudaEventRecord(begin, stream);
        cudaGraphLaunch(exec, stream);
        cudaEventRecord(end, stream);
        cr_assert_eq(cudaStreamSynchronize(stream), cudaSuccess);
        cudaEventElapsedTime(&ms, begin, end);
        least = ms < least ? ms : least;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return 1e3 * (double)least / LAUNCHES;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The order is by an estimate: how far what it chooses is from what the library itself proposes first. */
Test(gpu_algorithms, what_is_chosen_is_about_as_fast_as_what_the_library_proposes) {
    NEED_GPU();
    if (getenv("TLOB_SANITIZED"))
        cr_skip_test("times mean nothing under a sanitizer");
    world w[2] = {open_world(TLOB_SWITCH_ON, false), open_world(TLOB_SWITCH_OFF, false)};
    double ratios[2 * SHAPES];
    for (int i = 0; i < 2; i++) {
        fill(&w[i], &w[i].a, 256 * 65536);
        fill(&w[i], &w[i].b, 256 * 65536);
        fill(&w[i], &w[i].d, 4096 * 1024);
    }
    for (int i = 0; i < 2 * SHAPES; i++) {
        tlob_gemm g = shape(i / 2, i % 2 ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32);
        tlob_explanation e[2];
        double us[2];
        for (int j = 0; j < 2; j++) {
            const tlob_gemm_operands x = operands(&w[j]);
            us[j] = microseconds(&w[j], &g, &x);
            OK(tlob_gemm_explain(w[j].stream, &g, &x, &e[j]));
        }
        ratios[i] = us[0] / us[1];
        cr_log_info("%-18s %s %7.2f us, the library's %7.2f us, ratio %.2f: %s | %s", shapes[i / 2].name,
                    tlob_compute_name(g.compute), us[0], us[1], ratios[i], e[0].algorithm, e[1].algorithm);
    }
    qsort(ratios, 2 * SHAPES, sizeof(*ratios), compare_doubles);
    cr_log_info("median ratio %.2f, largest %.2f", ratios[SHAPES], ratios[2 * SHAPES - 1]);
    cr_expect_leq(ratios[SHAPES], 1.15);
    cr_expect_leq(ratios[2 * SHAPES - 1], 3);
    close_world(&w[0]);
    close_world(&w[1]);
}
