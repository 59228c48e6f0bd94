/* Methods on a CUDA device that is none: which there are, what each computes, and what a stream keeps of them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/threads/device.h"

#define OK(call) cr_assert_eq(call, TLOB_OK, "%s", tlob_last_error()->message)
#define FAILS(call, expected, words)                                                                                   \
    do {                                                                                                               \
        cr_assert_eq(call, expected, "%s", tlob_last_error()->message);                                                \
        cr_assert(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);     \
    } while (0)

enum { FLOATS = 1 << 15, VECTOR = 64 };

static tlob_context *ctx;
static tlob_stream *stream;
static _Alignas(256) float a[FLOATS], b[FLOATS], c[FLOATS], d[FLOATS], want[FLOATS], aux[FLOATS], want_aux[FLOATS];
static _Alignas(256) float bias[VECTOR], bgrad[VECTOR], want_bgrad[VECTOR];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

static struct {
    int count;
    tlob_form form;
    char backend[24], reason[200], algorithm[128];
} traced;

static void note_trace(void *user, const tlob_trace *trace) {
    (void)user;
    traced.count++;
    traced.form = trace->form;
    snprintf(traced.backend, sizeof(traced.backend), "%s", trace->backend);
    snprintf(traced.reason, sizeof(traced.reason), "%s", trace->reason);
    snprintf(traced.algorithm, sizeof(traced.algorithm), "%s", trace->algorithm);
}

static void open_context(tlob_switch deterministic, tlob_trace_fn trace) {
    tlob_context_params params = tlob_context_params_default();
    params.deterministic = deterministic;
    params.trace = trace;
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
}

static void close_context(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

static void setup(void) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    for (int i = 0; i < FLOATS; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = (float)(i % 5 - 2);
        c[i] = (float)(i % 3 - 1);
        bias[i % VECTOR] = (float)(i % 4 - 2);
    }
    open_context(TLOB_SWITCH_OFF, NULL);
}

TestSuite(methods, .init = setup, .fini = close_context);

/* A batch whose matrices lie one after the other; B is shared. */
static tlob_gemm batch_of(int64_t count, int64_t m, int64_t n, int64_t k) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.batch = count;
    g.stride_a = m * k;
    g.stride_c = m * n;
    g.stride_bias = m;
    g.stride_aux = g.ld_aux * n;
    return g;
}

/* The gradient of the weights of a batch, as the block asks for it. */
static tlob_gemm dw(int64_t k) {
    tlob_gemm g = batch_of(3, 4, 4, k);
    g.transb = TLOB_OP_T;
    g.ldb = 4;
    return g;
}

/* --- which there are, and what they compute ------------------------------------------------------------------------- */

enum { MOST = 2048 };

typedef struct methods {
    int count;
    tlob_method of[MOST];
} methods;

static void note_method(void *user, const tlob_method *method) {
    methods *all = user;
    cr_assert_lt(all->count, MOST);
    all->of[all->count++] = *method;
}

static const methods *methods_of(const tlob_gemm *g, const tlob_gemm_operands *x) {
    static methods all[2];
    static int which;
    which = !which;
    all[which].count = 0;
    OK(tlob_gemm_methods(stream, g, x, note_method, &all[which]));
    return &all[which];
}

static int count(const methods *all, const char *backend, tlob_form form, bool configured) {
    int found = 0;
    for (int i = 0; i < all->count; i++)
        found += !strcmp(all->of[i].backend, backend) && all->of[i].form == form &&
                 (all->of[i].n_configuration > 0) == configured;
    return found;
}

static void poison(void) {
    memset(d, 0xff, sizeof(d)); /* NaN */
    memset(bgrad, 0xff, sizeof(bgrad));
    if (operands.aux)
        memset(aux, 0x5a, sizeof(aux));
}

/* By every method the same bits: sums of small whole numbers are exact in any order. GELU is none of these. */
static void every_method_gives_the_same(const tlob_gemm *g) {
    const methods *all = methods_of(g, &operands);
    char text[160];
    poison();
    OK(tlob_gemm_run_on(stream, "cublas_classic", g, &operands));
    memcpy(want, d, sizeof(d));
    memcpy(want_aux, aux, sizeof(aux));
    memcpy(want_bgrad, bgrad, sizeof(bgrad));
    for (int i = 0; i < all->count; i++) {
        tlob_method_print(&all->of[i], text, sizeof(text));
        poison();
        OK(tlob_gemm_run_as(stream, &all->of[i], g, &operands));
        cr_assert_eq(memcmp(d, want, sizeof(d)), 0, "%s", text);
        cr_assert_eq(memcmp(aux, want_aux, sizeof(aux)), 0, "%s", text);
        cr_assert_eq(memcmp(bgrad, want_bgrad, sizeof(bgrad)), 0, "%s", text);
        for (int j = 0; j < i; j++)
            cr_assert_not(tlob_method_equal(&all->of[i], &all->of[j]), "%s", text);
    }
    cr_assert_geq(count(all, "cublas_classic", TLOB_FORM_WHOLE, false), 1);
    cr_assert_eq(count(all, "cublas_classic", TLOB_FORM_WHOLE, true), 0);
}

Test(methods, each_of_them_computes_the_same) {
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_NONE,          TLOB_EPILOGUE_BIAS,
                                              TLOB_EPILOGUE_RELU_BIAS,     TLOB_EPILOGUE_RELU_AUX_BIAS,
                                              TLOB_EPILOGUE_DRELU_BGRAD,   TLOB_EPILOGUE_BGRADA};
    for (size_t e = 0; e < sizeof(epilogues) / sizeof(*epilogues); e++)
        for (int batch = 1; batch <= 3; batch += 2) {
            tlob_gemm g = batch_of(batch, 8, 4, 8);
            g.epilogue = epilogues[e];
            g.beta = e % 2 ? 1.0f : 0.0f;
            every_method_gives_the_same(&g);
            const methods *all = methods_of(&g, &operands);
            cr_assert_eq(count(all, "cublas_classic", TLOB_FORM_LOOP, false), batch > 1);
            cr_assert_eq(count(all, "cublaslt", TLOB_FORM_LOOP, false), batch > 1);
            cr_assert_eq(count(all, "cublaslt", TLOB_FORM_SEPARATE, false), e > 0);
            cr_assert_gt(count(all, "cublaslt", TLOB_FORM_WHOLE, true), 1);
            cr_assert_eq(count(all, "cublaslt", TLOB_FORM_LOOP, true) > 0, batch > 1);
            cr_assert_eq(count(all, "cublaslt", TLOB_FORM_SEPARATE, true) > 0, e > 0);
        }
}

Test(methods, a_wide_batch_is_one_of_them) {
    tlob_gemm g = batch_of(3, 4, 8, 8);
    g.stride_a = g.stride_c = g.stride_bias = 4;
    g.lda = g.ldc = 12;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    every_method_gives_the_same(&g);
    cr_assert_gt(count(methods_of(&g, &operands), "cublaslt", TLOB_FORM_WIDE, true), 1);
}

/* A product that can be split, with padding in every matrix. */
static tlob_gemm long_sum(int ops) {
    tlob_gemm g = tlob_gemm_init(8, 3, 1024);
    g.transa = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
    g.lda = ops & 2 ? 1026 : 9;
    g.ldb = ops & 1 ? 5 : 1028;
    g.ldc = 10;
    return g;
}

static void every_split_gives_the_same(const tlob_gemm *g) {
    every_method_gives_the_same(g);
    const methods *all = methods_of(g, &operands);
    cr_assert_eq(count(all, "cublas_classic", TLOB_FORM_SPLIT, false), 1);
    cr_assert_eq(count(all, "cublaslt", TLOB_FORM_SPLIT, false), 1);
    cr_assert_gt(count(all, "cublaslt", TLOB_FORM_SPLIT, true), 1);
}

Test(methods, a_product_in_pieces_is_one_of_them) {
    static const float betas[] = {0.0f, 1.0f, -2.0f};
    for (int i = 0; i < 12; i++) {
        tlob_gemm g = long_sum(i % 4);
        g.beta = betas[i / 4];
        every_split_gives_the_same(&g);
    }
    const tlob_gemm shallow = tlob_gemm_init(8, 3, 128);
    cr_assert_eq(count(methods_of(&shallow, &operands), "cublaslt", TLOB_FORM_SPLIT, false), 0);
}

/* D lies in the scratch of the stream, and so may itself be less aligned than an algorithm wants. */
Test(methods, of_a_split_product_need_no_aligned_d) {
    const tlob_gemm g = tlob_gemm_init(8, 4, 1024);
    tlob_gemm_operands x = operands;
    x.d = d + 1;
    const methods *all = methods_of(&g, &x), *aligned = methods_of(&g, &operands);
    cr_assert_eq(count(all, "cublaslt", TLOB_FORM_SPLIT, true), count(aligned, "cublaslt", TLOB_FORM_SPLIT, true));
    cr_assert_lt(count(all, "cublaslt", TLOB_FORM_WHOLE, true), count(aligned, "cublaslt", TLOB_FORM_WHOLE, true));
    for (int i = 0; i < all->count; i++)
        OK(tlob_gemm_run_as(stream, &all->of[i], &g, &x));
}

Test(methods, come_in_a_fixed_order) {
    const tlob_gemm g = dw(64);
    const methods first = *methods_of(&g, &operands);
    for (int i = 1; i < first.count; i++) {
        const tlob_method *x = &first.of[i - 1], *y = &first.of[i];
        int backends = strcmp(x->backend, y->backend);
        cr_assert_leq(backends, 0);
        cr_assert(backends || x->form <= y->form);
        cr_assert(backends || x->form != y->form || y->n_configuration > 0, "the own choice comes first");
    }
    close_context();
    open_context(TLOB_SWITCH_OFF, NULL);
    const methods *again = methods_of(&g, NULL);
    cr_assert_eq(again->count, first.count, "operands that are not known are aligned");
    for (int i = 0; i < first.count; i++)
        cr_assert(tlob_method_equal(&again->of[i], &first.of[i]));
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.products + stats.plan_misses + stats.plan_hits, 0, "nothing has run");
}

Test(methods, without_a_product_there_is_nothing_to_choose_from) {
    tlob_gemm g = dw(0);
    g.lda = 4;
    const methods *all = methods_of(&g, &operands);
    cr_assert_eq(count(all, "cublaslt", TLOB_FORM_WHOLE, false), 1);
    cr_assert_eq(count(all, "cublaslt", TLOB_FORM_WHOLE, true), 0);
    every_method_gives_the_same(&g);
}

static int64_t *field(tlob_method *method, const char *name) {
    for (int i = 0; i < method->n_configuration; i++)
        if (!strcmp(method->configuration[i].name, name))
            return &method->configuration[i].value;
    cr_assert(false, "no %s", name);
    return NULL;
}

/* Where matrices step by an odd number of floats, the second product of a loop is less aligned than the first. */
Test(methods, of_a_loop_fit_its_worst_product) {
    tlob_gemm g = batch_of(2, 8, 4, 8);
    g.stride_a += 1;
    const methods *all = methods_of(&g, &operands);
    tlob_method wide_steps = {0};
    for (int i = 0; i < all->count; i++) {
        tlob_method method = all->of[i];
        OK(tlob_gemm_run_as(stream, &method, &g, &operands));
        if (!strcmp(method.backend, "cublaslt") && method.form == TLOB_FORM_LOOP && method.n_configuration)
            cr_assert_neq(*field(&method, "id"), 21, "wants 16 bytes");
    }
    g.stride_a -= 1;
    all = methods_of(&g, &operands);
    for (int i = 0; i < all->count; i++)
        if (all->of[i].form == TLOB_FORM_LOOP && all->of[i].n_configuration)
            wide_steps = all->of[i];
    cr_assert_eq(wide_steps.form, TLOB_FORM_LOOP);
    *field(&wide_steps, "id") = 21;
    *field(&wide_steps, "tile") = 15;
    *field(&wide_steps, "stages") = 6;
    OK(tlob_gemm_run_as(stream, &wide_steps, &g, &operands));
    g.stride_a += 1;
    poison();
    FAILS(tlob_gemm_run_as(stream, &wide_steps, &g, &operands), TLOB_ERR_UNSUPPORTED, "more aligned");
    cr_assert(d[0] != d[0], "nothing has run");
}

Test(methods, of_a_loop_keep_aux_aligned) {
    tlob_gemm g = batch_of(2, 8, 2, 4);
    g.epilogue = TLOB_EPILOGUE_GELU_AUX_BIAS;
    g.ld_aux = 8;
    g.stride_aux = 18;
    tlob_method loop = {.backend = "cublaslt", .form = TLOB_FORM_LOOP};
    FAILS(tlob_gemm_run_as(stream, &loop, &g, &operands), TLOB_ERR_UNSUPPORTED, "less aligned");
    cr_assert_eq(count(methods_of(&g, &operands), "cublaslt", TLOB_FORM_LOOP, false), 0);
    strcpy(loop.backend, "cublas_classic");
    OK(tlob_gemm_run_as(stream, &loop, &g, &operands));
    strcpy(loop.backend, "cublaslt");
    g.stride_aux = 20;
    OK(tlob_gemm_run_as(stream, &loop, &g, &operands));
}

Test(methods, of_a_deterministic_context_have_a_fixed_order_of_sums) {
    const tlob_gemm g = dw(64);
    int in_place = 0;
    const methods *all = methods_of(&g, &operands);
    for (int i = 0; i < all->count; i++) {
        tlob_method method = all->of[i];
        in_place += method.n_configuration && *field(&method, "reduction") == 1;
    }
    cr_assert_gt(in_place, 0);
    close_context();
    open_context(TLOB_SWITCH_ON, NULL);
    all = methods_of(&g, &operands);
    cr_assert_gt(all->count, 10);
    for (int i = 0; i < all->count; i++) {
        tlob_method method = all->of[i];
        cr_assert(!method.n_configuration || *field(&method, "reduction") != 1);
    }
    every_method_gives_the_same(&g);
    const tlob_gemm pieces = long_sum(1);
    every_split_gives_the_same(&pieces);
}

/* --- captures, arguments -------------------------------------------------------------------------------------------- */

Test(methods, a_configuration_that_is_warm_can_be_captured) {
    const tlob_gemm g = dw(64);
    const methods all = *methods_of(&g, &operands);
    const tlob_method *warm = &all.of[all.count - 1], *cold = &all.of[all.count - 2];
    cr_assert_gt(cold->n_configuration, 0);
    tlob_graph *graph;
    OK(tlob_gemm_run_as(stream, warm, &g, &operands));
    OK(tlob_graph_begin(stream));
    OK(tlob_gemm_run_as(stream, warm, &g, &operands));
    FAILS(tlob_gemm_run_as(stream, cold, &g, &operands), TLOB_ERR_NOT_WARM, "has not run on this stream");
    FAILS(tlob_gemm_methods(stream, &g, &operands, note_method, NULL), TLOB_ERR_NOT_WARM, "before the capture");
    OK(tlob_graph_end(stream, &graph));
    tlob_graph_destroy(&graph);
}

/* Both libraries' own choice, and a configuration. */
enum { SPLITS = 3 };

static tlob_method split_of(const tlob_gemm *g, int which) {
    const methods *all = methods_of(g, &operands);
    tlob_method found = {.form = TLOB_FORM_WHOLE};
    for (int i = 0; i < all->count; i++)
        if (all->of[i].form == TLOB_FORM_SPLIT && (all->of[i].n_configuration > 0) == (which == 2) &&
            !strcmp(all->of[i].backend, which ? "cublaslt" : "cublas_classic"))
            found = all->of[i];
    cr_assert_eq(found.form, TLOB_FORM_SPLIT);
    return found;
}

/* Cold is what a capture may not make: the scratch, and then the product. */
Test(methods, the_scratch_of_a_split_product_is_made_before_a_capture) {
    const tlob_gemm g = long_sum(0);
    for (int i = 0; i < SPLITS; i++) {
        const tlob_method split = split_of(&g, i), other = split_of(&g, (i + 1) % SPLITS);
        const int before = device_graph.blocks;
        tlob_graph *graph;
        OK(tlob_graph_begin(stream));
        poison();
        FAILS(tlob_gemm_run_as(stream, &split, &g, &operands), TLOB_ERR_NOT_WARM, "nothing that needs its scratch");
        cr_assert(tlob_last_error()->has_gemm);
        cr_assert_null(stream->scratch);
        OK(tlob_graph_end(stream, &graph));
        tlob_graph_destroy(&graph);
        cr_assert_eq(device_graph.blocks, before);

        OK(tlob_gemm_run_as(stream, &other, &g, &operands));
        cr_assert_eq(device_graph.blocks, before + 1);
        const float *scratch = stream->scratch;
        OK(tlob_graph_begin(stream));
        FAILS(tlob_gemm_run_as(stream, &split, &g, &operands), TLOB_ERR_NOT_WARM, "has not run on this stream");
        OK(tlob_graph_end(stream, &graph));
        tlob_graph_destroy(&graph);

        OK(tlob_gemm_run_as(stream, &split, &g, &operands));
        poison();
        OK(tlob_graph_begin(stream));
        OK(tlob_gemm_run_as(stream, &split, &g, &operands));
        OK(tlob_graph_end(stream, &graph));
        cr_assert_eq(d[0], d[0]);
        cr_assert_eq(stream->scratch, scratch, "for good");
        cr_assert_eq(device_graph.blocks, before + 1);
        tlob_graph_destroy(&graph);
        close_context();
        cr_assert_eq(device_graph.blocks, 0);
        open_context(TLOB_SWITCH_OFF, NULL);
    }
}

Test(methods, the_scratch_lives_as_long_as_a_graph_that_holds_it) {
    const tlob_gemm g = long_sum(0);
    const tlob_method split = split_of(&g, 0);
    tlob_stream *other;
    tlob_graph *graph;
    OK(tlob_stream_create(ctx, &other));
    OK(tlob_gemm_run_as(stream, &split, &g, &operands));
    OK(tlob_graph_begin(stream));
    OK(tlob_gemm_run_as(stream, &split, &g, &operands));
    OK(tlob_graph_end(stream, &graph));
    const int blocks = device_graph.blocks;
    tlob_stream_close(&stream);
    cr_assert_eq(device_graph.blocks, blocks);
    OK(tlob_graph_launch(graph, other));
    tlob_graph_destroy(&graph);
    cr_assert_eq(device_graph.blocks, blocks - 2, "the scratch and the workspace");
    stream = other;
}

Test(methods, no_memory_for_the_scratch_is_an_error_with_its_size) {
    const tlob_gemm g = long_sum(0);
    for (int i = 0; i < SPLITS; i++) {
        const tlob_method split = split_of(&g, i);
        poison();
        device_graph.alloc_code = TLOB_CUDA_OUT_OF_MEMORY;
        FAILS(tlob_gemm_run_as(stream, &split, &g, &operands), TLOB_ERR_OUT_OF_MEMORY, "4194304 bytes of cuda memory");
        cr_assert(tlob_last_error()->has_gemm && tlob_last_error()->gemm.k == 1024);
        device_graph.alloc_code = 700;
        FAILS(tlob_gemm_run_as(stream, &split, &g, &operands), TLOB_ERR_CUDA, "scratch of a stream");
        device_graph.alloc_code = 0;
        cr_assert(d[0] != d[0], "nothing has run");
        OK(tlob_gemm_run_as(stream, &split, &g, &operands));
        device_graph.alloc_code = TLOB_CUDA_OUT_OF_MEMORY;
        OK(tlob_gemm_run_as(stream, &split, &g, &operands)); /* warm: nothing to allocate */
        device_graph.alloc_code = 0;
        close_context();
        open_context(TLOB_SWITCH_OFF, NULL);
    }
}

/* What a table says is split is warm after tlob_warm. */
Test(methods, a_table_of_split_products_is_warmed_like_any_other) {
    tlob_gemm g = long_sum(2);
    g.compute = TLOB_COMPUTE_TF32;
    for (int i = 0; i < SPLITS; i++) {
        tlob_table_entry entry = {.gemm = g, .method = split_of(&g, i), .origin = {.sm = 90, .multiprocessors = 132}};
        tlob_context_params params = tlob_context_params_default();
        tlob_table *table;
        tlob_graph *graph;
        tlob_explanation e;
        tlob_stream_stats stats;
        strcpy(entry.origin.device, "fake");
        tlob_row_find((tlob_rows){0}, entry.method.backend)->version(entry.origin.library, 64);
        OK(tlob_table_create(&table));
        OK(tlob_table_put(table, &entry));
        close_context();
        params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table, .strict = true};
        OK(tlob_context_create(&ctx, &params));
        OK(tlob_stream_create(ctx, &stream));
        OK(tlob_gemm_explain(stream, &g, NULL, &e));
        cr_assert(e.choice.form == TLOB_FORM_SPLIT && !e.warm && !stream->scratch);
        OK(tlob_warm(stream, &g, 1));
        OK(tlob_gemm_explain(stream, &g, &operands, &e));
        cr_assert(e.choice.form == TLOB_FORM_SPLIT && (i == 0 || e.warm), "%s", e.algorithm);
        tlob_gemm_operands x = operands;
        x.d = d + 4;
        OK(tlob_gemm_explain(stream, &g, &x, &e));
        cr_assert(i == 0 || e.warm, "where D lies does not count: %s", e.algorithm);
        OK(tlob_graph_begin(stream));
        OK(tlob_gemm_run(stream, &g, &operands));
        OK(tlob_graph_end(stream, &graph));
        tlob_graph_destroy(&graph);
        OK(tlob_stream_get_stats(stream, &stats));
        cr_assert(stats.table_hits == 2 && stats.table_misses == 0);
        close_context();
        tlob_table_destroy(&table);
        open_context(TLOB_SWITCH_OFF, NULL);
    }
}

Test(methods, bad_arguments) {
    tlob_gemm g = dw(64);
    methods *all = calloc(1, sizeof(*all));
    FAILS(tlob_gemm_methods(NULL, &g, &operands, note_method, all), TLOB_ERR_ARGUMENT, "stream is NULL");
    FAILS(tlob_gemm_methods(stream, NULL, &operands, note_method, all), TLOB_ERR_ARGUMENT, "gemm is NULL");
    FAILS(tlob_gemm_methods(stream, &g, &operands, NULL, all), TLOB_ERR_ARGUMENT, "visit is NULL");
    g.m = -1;
    FAILS(tlob_gemm_methods(stream, &g, &operands, note_method, all), TLOB_ERR_ARGUMENT, "m is -1");
    cr_assert_eq(all->count, 0);
    free(all);
}

/* --- what the policy does with a batch that the library does not split ---------------------------------------------- */

Test(methods, the_default_policy_loops_over_a_deep_batch) {
    static const struct {
        int64_t k;
        tlob_form form;
    } rows[] = {{1349, TLOB_FORM_WHOLE}, {1350, TLOB_FORM_LOOP}};
    for (int i = 0; i < 2; i++) {
        const tlob_gemm g = dw(rows[i].k);
        tlob_explanation e;
        OK(tlob_gemm_explain(stream, &g, &operands, &e));
        cr_assert_eq(e.choice.form, rows[i].form);
        cr_assert_eq(strstr(e.choice.reason, "dw_batch") != NULL, rows[i].form == TLOB_FORM_LOOP);
        cr_assert_str_eq(e.choice.backend, "cublas_classic");
        for (int round = 0; round < 2; round++) {
            poison();
            OK(tlob_gemm_run_on(stream, "cublaslt", &g, &operands));
            memcpy(want, d, sizeof(d));
            poison();
            OK(tlob_gemm_run(stream, &g, &operands));
            cr_assert_eq(memcmp(d, want, sizeof(d)), 0);
        }
        int loops = 0;
        for (int k = 0; k < TLOB_KNOWN_PROBLEMS; k++)
            loops += stream->known[k].index >= 0 && stream->known[k].form == TLOB_FORM_LOOP;
        cr_assert_eq(loops, i, "the stream remembers the form");
    }
}

Test(methods, a_trace_tells_the_form_and_who_wanted_it) {
    close_context();
    open_context(TLOB_SWITCH_OFF, note_trace);
    const tlob_gemm deep = dw(1500), g = dw(64);
    OK(tlob_gemm_run(stream, &deep, &operands));
    cr_assert_eq(traced.form, TLOB_FORM_LOOP);
    cr_assert(strstr(traced.reason, "threshold: min(m, n, k) = 4 is below 64; in form loop, by rule dw_batch: k = 1500"),
              "%s", traced.reason);
    OK(tlob_gemm_run(stream, &g, &operands));
    cr_assert_eq(traced.form, TLOB_FORM_WHOLE);
    const methods *all = methods_of(&g, &operands);
    tlob_method last = all->of[all->count - 1];
    OK(tlob_gemm_run_as(stream, &last, &g, &operands));
    cr_assert_eq(traced.form, last.form);
    cr_assert_str_eq(traced.backend, "cublaslt");
    cr_assert_str_eq(traced.reason, "method: insisted on by the caller");
    char algorithm[32];
    snprintf(algorithm, sizeof(algorithm), "algo %d ", (int)*field(&last, "id"));
    cr_assert(strstr(traced.algorithm, algorithm) == traced.algorithm, "%s is not %s", traced.algorithm, algorithm);
    last.form = TLOB_FORM_SEPARATE;
    FAILS(tlob_gemm_run_as(stream, &last, &g, &operands), TLOB_ERR_UNSUPPORTED, "no epilogue");
    cr_assert_eq(traced.form, TLOB_FORM_SEPARATE);
    const tlob_gemm pieces = long_sum(0);
    last = split_of(&pieces, 2);
    OK(tlob_gemm_run_as(stream, &last, &pieces, &operands));
    cr_assert_eq(traced.form, TLOB_FORM_SPLIT);
    snprintf(algorithm, sizeof(algorithm), "algo %d ", (int)*field(&last, "id"));
    cr_assert(strstr(traced.algorithm, algorithm) == traced.algorithm, "%s is not %s", traced.algorithm, algorithm);
    cr_assert_eq(traced.count, 5);
}

/* Operands that lie otherwise are decided on anew, and each way is found again. */
Test(methods, a_stream_remembers_how_operands_lay) {
    const tlob_gemm g = tlob_gemm_init(8, 4, 8);
    tlob_gemm_operands x = operands;
    x.b = b + 1;
    int aligned[2] = {0};
    for (int i = 0; i < 4; i++) {
        OK(tlob_gemm_run(stream, &g, i % 2 ? &x : &operands));
        for (int k = 0; k < TLOB_KNOWN_PROBLEMS; k++)
            if (stream->known[k].index >= 0)
                aligned[i % 2] += stream->known[k].layout & TLOB_LAYOUT_ALIGNED;
    }
    cr_assert_eq(aligned[0], 2);
    cr_assert_eq(aligned[1], 0);
}
