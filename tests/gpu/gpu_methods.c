/* Methods on a CUDA device: every one that is offered for a problem, against the oracle and against itself. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parity/parity.h"
#include "tests/gpu/gpu.h"

enum { MOST = 16384 };

static tlob_method found[MOST];
static int n_found;

static void note(void *user, const tlob_method *method) {
    (void)user;
    cr_assert_lt(n_found, MOST);
    found[n_found++] = *method;
}

static void find(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    n_found = 0;
    OK(tlob_gemm_methods(stream, g, x, note, NULL));
}

static int count(const char *backend, tlob_form form, bool configured) {
    int n = 0;
    for (int i = 0; i < n_found; i++)
        n += !strcmp(found[i].backend, backend) && found[i].form == form &&
             (found[i].n_configuration > 0) == configured;
    return n;
}

static void open_cuda(tlob_switch deterministic, tlob_context **ctx, tlob_stream **stream) {
    tlob_context_params params = tlob_context_params_default();
    params.deterministic = deterministic;
    OK(tlob_context_create(ctx, &params));
    OK(tlob_stream_create(*ctx, stream));
}

static void close_cuda(tlob_context **ctx, tlob_stream **stream) {
    tlob_stream_close(stream);
    tlob_context_destroy(ctx);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "an error was left behind");
}

/* --- problems ------------------------------------------------------------------------------------------------------- */

/* Of the table, by name; each lies on aligned memory, and where C is read it is not D. */
static const char *const names[] = {
    "tlob/q/n64",
    "fused/qkv/n256",
    "fused/dw_qkv/n64",
    "transpose/tt*",
    "batch/3x5x7/x10",
    "deep/nt/k65536",
    "size/nn/129x1x129",
    "epilogue/relu_bias/nt/x3-padded/alpha1-beta0",
};

/* Batches that are one product. */
static parity_case wide_case(int i) {
    parity_case c = {.a = PARITY_UNIFORM, .b = PARITY_UNIFORM, .c = PARITY_UNIFORM, .bias = PARITY_UNIFORM};
    tlob_gemm g = tlob_gemm_init(20, 12, 40);
    g.batch = 3;
    g.epilogue = i % 2 ? TLOB_EPILOGUE_RELU_BIAS : TLOB_EPILOGUE_NONE;
    g.beta = i % 2 ? 0.0f : -0.5f;
    c.apart = true;
    if (i / 2) { /* A is shared */
        g.stride_b = g.n * g.ldb;
        g.stride_c = g.n * g.ldc;
    } else {
        g.lda = 64;
        g.ldc = 68;
        g.stride_a = g.stride_c = g.stride_bias = g.m;
    }
    c.gemm = g;
    snprintf(c.name, sizeof(c.name), "methods/wide/%d", i);
    return c;
}

/* Products that can be split: all transposes, padded and odd, C elsewhere or not to be read. */
static parity_case split_case(int i) {
    parity_case c = {.a = PARITY_UNIFORM, .b = PARITY_UNIFORM, .c = i % 2 ? PARITY_UNIFORM : PARITY_NAN};
    tlob_gemm g = i < 4 ? tlob_gemm_init(16, 16, 2048) : tlob_gemm_init(33, 7, 1000);
    const int64_t pad = i < 4 ? 0 : 3;
    g.transa = i & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = i & 1 ? TLOB_OP_T : TLOB_OP_N;
    g.lda = (i & 2 ? g.k : g.m) + pad;
    g.ldb = (i & 1 ? g.n : g.k) + pad;
    g.ldc += pad;
    g.beta = i % 2 ? -0.5f : 0.0f;
    c.apart = i % 2 || i < 4;
    c.gemm = g;
    snprintf(c.name, sizeof(c.name), "methods/split/%d", i);
    return c;
}

static bool find_case(const char *name, parity_case *c) {
    for (int i = 0; i < parity_case_count(); i++) {
        *c = parity_case_get(i);
        if (parity_case_matches(name, c->name))
            return true;
    }
    return false;
}

enum {
    NAMES = sizeof(names) / sizeof(*names),
    WIDE = 4,
    SPLIT = 8,
    SUPPORT = 2 * TLOB_EPILOGUE_COUNT,
    CASES = NAMES + WIDE + SPLIT + SUPPORT,
};

static parity_case case_of(int i) {
    parity_case c;
    if (i < NAMES)
        cr_assert(find_case(names[i], &c), "no case matches %s", names[i]);
    else if (i < NAMES + WIDE)
        c = wide_case(i - NAMES);
    else if (i < NAMES + WIDE + SPLIT)
        c = split_case(i - NAMES - WIDE);
    else /* with A as it lies and B transposed, all epilogues have a kernel */
        c = parity_case_support((tlob_epilogue)((i - NAMES - WIDE - SPLIT) / 2), 1, i % 2 ? 3 : 1);
    return c;
}

/* --- the tests ------------------------------------------------------------------------------------------------------ */

static void run_all(tlob_compute mode) {
    tlob_context *ctx, *host;
    tlob_stream *stream, *oracle;
    tlob_context_params params = tlob_context_params_default();
    open_cuda(TLOB_SWITCH_OFF, &ctx, &stream);
    params.memory = TLOB_MEMORY_HOST;
    OK(tlob_context_create(&host, &params));
    OK(tlob_stream_open(host, NULL, &oracle));
    for (int i = 0; i < CASES; i++) {
        const parity_case c = case_of(i);
        tlob_gemm g = c.gemm;
        parity_result result;
        g.compute = mode;
        find(stream, &g, NULL);
        cr_log_info("%s: %d methods", c.name, n_found);
        cr_expect(parity_run_as(stream, oracle, found, n_found, &c, mode, 1, &result), "%s", result.message);
        cr_expect_eq(count("cublas_classic", TLOB_FORM_WHOLE, false), 1);
        cr_expect_gt(count("cublaslt", TLOB_FORM_WHOLE, true), 1, "%s", c.name);
        cr_expect_eq(count("cublaslt", TLOB_FORM_LOOP, true) > 0, g.batch > 1, "%s", c.name);
        cr_expect_eq(count("cublaslt", TLOB_FORM_SEPARATE, true) > 0, g.epilogue != TLOB_EPILOGUE_NONE, "%s", c.name);
        if (i >= NAMES && i < NAMES + WIDE)
            cr_expect_gt(count("cublaslt", TLOB_FORM_WIDE, true), 1, "%s", c.name);
        const bool splits = !tlob_form_obstacle(TLOB_FORM_SPLIT, &g);
        cr_expect(splits || i < NAMES + WIDE || i >= NAMES + WIDE + SPLIT, "%s", c.name);
        cr_expect_eq(count("cublas_classic", TLOB_FORM_SPLIT, false), splits, "%s", c.name);
        cr_expect_eq(count("cublaslt", TLOB_FORM_SPLIT, true) > 0, splits, "%s", c.name);
    }
    tlob_stream_close(&oracle);
    tlob_context_destroy(&host);
    close_cuda(&ctx, &stream);
}

Test(gpu_methods, every_one_is_right_in_fp32, .timeout = 280) {
    NEED_GPU();
    run_all(TLOB_COMPUTE_FP32);
}

Test(gpu_methods, every_one_is_right_in_tf32, .timeout = 280) {
    NEED_GPU();
    run_all(TLOB_COMPUTE_TF32);
}

/* Operands on the device, all from one block; D last. */
typedef struct lab {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_buffer *buffer;
    tlob_gemm gemm;
    tlob_gemm_operands x;
    size_t bytes; /* of D */
    void *d[2];   /* on the host */
} lab;

/* The gradient of the weights of `count` projections over k samples. */
static lab open_lab(tlob_switch deterministic, int64_t count, int64_t k) {
    lab l = {.gemm = tlob_gemm_init(16, 32, k)};
    tlob_gemm *g = &l.gemm;
    g->transb = TLOB_OP_T;
    g->ldb = g->n;
    g->batch = count;
    g->stride_a = g->m * k;
    g->stride_c = g->m * g->n;
    const int64_t a = count * g->stride_a, b = g->n * k, d = count * g->stride_c;
    open_cuda(deterministic, &l.ctx, &l.stream);
    l.bytes = (size_t)d * sizeof(float);
    OK(tlob_buffer_create(l.ctx, (size_t)(a + b + d) * sizeof(float), &l.buffer));
    float *at = tlob_buffer_data(l.buffer), *values = malloc((size_t)(a + b) * sizeof(float));
    for (int64_t i = 0; i < a + b; i++)
        values[i] = parity_fill_value(PARITY_UNIFORM, 1, 0, i, a + b);
    OK(tlob_upload(l.stream, at, values, (size_t)(a + b) * sizeof(float)));
    free(values);
    l.x = (tlob_gemm_operands){.a = at, .b = at + a, .d = at + a + b};
    l.d[0] = malloc(l.bytes);
    l.d[1] = malloc(l.bytes);
    return l;
}

static void close_lab(lab *l) {
    free(l->d[0]);
    free(l->d[1]);
    tlob_buffer_destroy(&l->buffer);
    close_cuda(&l->ctx, &l->stream);
}

static void poison(const lab *l) {
    OK(tlob_fill(l->stream, l->x.d, 0xff, l->bytes));
}

Test(gpu_methods, of_a_deterministic_context_give_the_same_bits_again, .timeout = 120) {
    NEED_GPU();
    lab l = open_lab(TLOB_SWITCH_ON, 3, 4096);
    find(l.stream, &l.gemm, &l.x);
    cr_assert_gt(n_found, 50);
    for (int i = 0; i < n_found; i++) {
        char text[160];
        tlob_method_print(&found[i], text, sizeof(text));
        for (int round = 0; round < 4; round++) {
            poison(&l);
            OK(tlob_gemm_run_as(l.stream, &found[i], &l.gemm, &l.x));
            OK(tlob_download(l.stream, l.d[round > 0], l.x.d, l.bytes));
            cr_expect(round == 0 || memcmp(l.d[0], l.d[1], l.bytes) == 0, "%s, round %d", text, round);
        }
    }
    close_lab(&l);
}

/* The list depends on nothing but problem, device and library. */
Test(gpu_methods, are_the_same_in_another_context, .timeout = 60) {
    NEED_GPU();
    static tlob_method before[MOST];
    int n = 0;
    for (int round = 0; round < 2; round++) {
        lab l = open_lab(TLOB_SWITCH_OFF, 3, 1024);
        find(l.stream, &l.gemm, &l.x);
        cr_assert(round == 0 || n == n_found, "%d, then %d", n, n_found);
        for (int i = 0; round && i < n; i++)
            cr_assert(tlob_method_equal(&before[i], &found[i]), "%d", i);
        memcpy(before, found, sizeof(found));
        n = n_found;
        close_lab(&l);
    }
}

Test(gpu_methods, that_are_warm_can_be_captured, .timeout = 60) {
    NEED_GPU();
    lab l = open_lab(TLOB_SWITCH_OFF, 3, 1024);
    find(l.stream, &l.gemm, &l.x);
    const int step = n_found / 24 + 1;
    for (int i = 0; i < n_found; i += step) {
        char text[160];
        tlob_graph *graph;
        tlob_method_print(&found[i], text, sizeof(text));
        OK(tlob_gemm_run_as(l.stream, &found[i], &l.gemm, &l.x));
        OK(tlob_download(l.stream, l.d[0], l.x.d, l.bytes));
        OK(tlob_graph_begin(l.stream));
        OK(tlob_gemm_run_as(l.stream, &found[i], &l.gemm, &l.x));
        if (i + 1 < n_found && found[i + 1].n_configuration)
            cr_expect_eq(tlob_gemm_run_as(l.stream, &found[i + 1], &l.gemm, &l.x), TLOB_ERR_NOT_WARM, "%s", text);
        OK(tlob_graph_end(l.stream, &graph));
        poison(&l);
        OK(tlob_graph_launch(graph, l.stream));
        OK(tlob_download(l.stream, l.d[1], l.x.d, l.bytes));
        cr_expect(found[i].n_configuration == 0 || memcmp(l.d[0], l.d[1], l.bytes) == 0, "%s", text);
        tlob_graph_destroy(&graph);
    }
    close_lab(&l);
}

/* Both backends' own choice, and some configurations: alone, and from a graph on this stream and on another. */
static void capture_splits(lab *l) {
    tlob_stream *other;
    int tried = 0, last = -1;
    OK(tlob_stream_create(l->ctx, &other));
    find(l->stream, &l->gemm, &l->x);
    const int step = count("cublaslt", TLOB_FORM_SPLIT, true) / 8 + 1;
    for (int i = 0; i < n_found; i++) {
        char text[160];
        tlob_graph *graph;
        if (found[i].form != TLOB_FORM_SPLIT || (found[i].n_configuration && i < last + step))
            continue;
        last = i;
        tried++;
        tlob_method_print(&found[i], text, sizeof(text));
        poison(l);
        OK(tlob_gemm_run_as(l->stream, &found[i], &l->gemm, &l->x));
        OK(tlob_download(l->stream, l->d[0], l->x.d, l->bytes));
        OK(tlob_graph_begin(l->stream));
        OK(tlob_gemm_run_as(l->stream, &found[i], &l->gemm, &l->x));
        OK(tlob_graph_end(l->stream, &graph));
        for (int where = 0; where < 2; where++) {
            poison(l);
            OK(tlob_graph_launch(graph, where ? other : l->stream));
            OK(tlob_download(l->stream, l->d[1], l->x.d, l->bytes));
            cr_expect_eq(memcmp(l->d[0], l->d[1], l->bytes), 0, "%s", text);
        }
        tlob_graph_destroy(&graph);
    }
    cr_expect_gt(tried, 4);
    tlob_stream_close(&other);
}

/* In a deterministic context, so that one plan gives one order of sums. */
Test(gpu_methods, that_split_can_be_captured, .timeout = 120) {
    NEED_GPU();
    for (int mode = TLOB_COMPUTE_TF32; mode <= TLOB_COMPUTE_FP32; mode++) {
        lab l = open_lab(TLOB_SWITCH_ON, 1, 65536);
        l.gemm.compute = (tlob_compute)mode;
        capture_splits(&l);
        close_lab(&l);
    }
}

/* By default a deep batch is done in a loop, and what comes out is what the batch would give. */
Test(gpu_methods, the_default_policy_loops_over_a_deep_batch, .timeout = 60) {
    NEED_GPU();
    const int64_t k = 65536;
    lab l = open_lab(TLOB_SWITCH_OFF, 3, k);
    tlob_explanation e;
    OK(tlob_gemm_explain(l.stream, &l.gemm, &l.x, &e));
    cr_assert_eq(e.choice.form, TLOB_FORM_LOOP);
    cr_assert(strstr(e.choice.reason, "dw_batch"), "%s", e.choice.reason);
    poison(&l);
    OK(tlob_gemm_run(l.stream, &l.gemm, &l.x));
    OK(tlob_download(l.stream, l.d[0], l.x.d, l.bytes));
    poison(&l);
    OK(tlob_gemm_run_on(l.stream, "cublaslt", &l.gemm, &l.x));
    OK(tlob_download(l.stream, l.d[1], l.x.d, l.bytes));
    const float *loop = l.d[0], *whole = l.d[1];
    for (size_t i = 0; i < l.bytes / sizeof(float); i++) {
        /* |a b| is 1/4 on average, and each side is within the bound of TF32 */
        double apart = (double)loop[i] - (double)whole[i], bound = 2 * parity_bound(&l.gemm, TLOB_MEMORY_CUDA, k / 4.0);
        cr_assert(apart <= bound && -apart <= bound, "%zu: %g and %g", i, (double)loop[i], (double)whole[i]);
    }
    close_lab(&l);
}
