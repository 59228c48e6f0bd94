// The problems that libtlob is tuned on: the built-in table, lists and traces.
#include "run.h"

#include "cli/problems.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

TestSuite(problems, .init = run_begin, .fini = run_end, .timeout = 240);

static cli_problems builtin(void) {
    cli_problems problems;
    cr_assert(cli_problems_builtin(&problems));
    return problems;
}

static bool same(const tlob_gemm *a, const tlob_gemm *b) {
    return a->transa == b->transa && a->transb == b->transb && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc && a->batch == b->batch &&
           a->stride_a == b->stride_a && a->stride_b == b->stride_b && a->stride_c == b->stride_c &&
           a->alpha == b->alpha && a->beta == b->beta && a->epilogue == b->epilogue && a->ld_aux == b->ld_aux &&
           a->stride_aux == b->stride_aux && a->stride_bias == b->stride_bias;
}

static const tlob_gemm *find(const cli_problems *problems, const char *name) {
    for (int i = 0; i < problems->count; i++)
        if (!strcmp(problems->list[i].name, name))
            return &problems->list[i].gemm;
    cr_assert(false, "no problem is called %s", name);
    return NULL;
}

// --- the table ---

static double bytes_of(const tlob_gemm *g) {
    return 4 * (double)g->batch *
           ((double)g->m * (double)g->k + (double)g->k * (double)g->n + 2 * (double)g->m * (double)g->n);
}

Test(problems, the_table_is_valid_named_and_small_enough) {
    cli_problems p = builtin();
    int fp32 = 0, epilogues[TLOB_EPILOGUE_COUNT] = {0}, twice = 0;
    cr_expect_geq(p.count, 200);
    for (int i = 0; i < p.count; i++) {
        const tlob_gemm *g = &p.list[i].gemm;
        const tlob_gemm problem = tlob_table_problem(g);
        cr_expect_eq(tlob_gemm_check(g), TLOB_OK, "%s: %s", p.list[i].name, tlob_last_error()->message);
        cr_expect(same(g, &problem), "%s", p.list[i].name);
        cr_expect_neq(g->compute, TLOB_COMPUTE_DEFAULT);
        cr_expect_lt(bytes_of(g), (double)(1 << 30), "%s", p.list[i].name);
        fp32 += g->compute == TLOB_COMPUTE_FP32;
        epilogues[g->epilogue]++;
        for (int j = 0; j < i; j++) {
            cr_expect_str_neq(p.list[i].name, p.list[j].name);
            twice += g->compute == p.list[j].gemm.compute && same(g, &p.list[j].gemm);
        }
    }
    cr_expect_leq(twice, 2, "the squares of the map");
    cr_expect(fp32 > 10 && fp32 < p.count / 2);
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++)
        cr_expect_geq(epilogues[e], 2);
    cli_problems_free(&p);
}

Test(problems, some_batches_can_be_one_product) {
    cli_problems p = builtin();
    int shared = 0;
    for (int i = 0; i < p.count; i++)
        if (!strncmp(p.list[i].name, "batch/one_", 10)) {
            const char *why = tlob_form_obstacle(TLOB_FORM_WIDE, &p.list[i].gemm);
            cr_expect_null(why, "%s: %s", p.list[i].name, why);
            shared++;
        }
    cr_expect_eq(shared, 8);
    cr_expect_not_null(tlob_form_obstacle(TLOB_FORM_WIDE, find(&p, "batch/64x64x64_x16")));
    cli_problems_free(&p);
}

Test(problems, the_map_is_a_full_grid) {
    cli_problems p = builtin();
    cli_problems_filter(&p, "map/k256/*");
    cr_assert_eq(p.count, 49);
    const tlob_gemm *g = find(&p, "map/k256/1024x16");
    cr_expect(g->m == 1024 && g->n == 16 && g->k == 256);
    cli_problems_filter(&p, "nothing*");
    cr_expect_eq(p.count, 0);
    cli_problems_free(&p);
}

// --- what the models really run ---

typedef struct seen {
    const cli_problems *problems;
    const char *prefix;
    int products;
} seen;

static void look_up(void *user, const tlob_trace *trace) {
    seen *s = user;
    const tlob_gemm gemm = tlob_table_problem(trace->gemm);
    s->products++;
    for (int i = 0; i < s->problems->count; i++)
        if (!strncmp(s->problems->list[i].name, s->prefix, strlen(s->prefix)) &&
            same(&s->problems->list[i].gemm, &gemm))
            return;
    cr_expect(false, "%s: no problem for %" PRId64 " x %" PRId64 " x %" PRId64 ", %c%c, batch %" PRId64 ", %s",
              s->prefix, gemm.m, gemm.n, gemm.k, gemm.transa ? 'T' : 'N', gemm.transb ? 'T' : 'N', gemm.batch,
              tlob_epilogue_get_traits(gemm.epilogue)->name);
}

static tlob_context *traced_context(seen *s, tlob_stream **stream) {
    tlob_context *ctx;
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.trace = look_up;
    params.trace_user = s;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_open(ctx, NULL, stream), TLOB_OK);
    return ctx;
}

static float *zeros(int64_t count) {
    float *values = calloc((size_t)count, sizeof *values);
    cr_assert(values);
    return values;
}

Test(problems, a_block_runs_what_the_table_has) {
    cli_problems p = builtin();
    seen s = {.problems = &p, .prefix = "block/"};
    tlob_stream *stream;
    tlob_context *ctx = traced_context(&s, &stream);
    const tlob_block_shape shape = tlob_block_shape_default();
    tlob_block *block;
    cr_assert_eq(tlob_block_create(ctx, &shape, 256, &block), TLOB_OK);
    float *w = zeros(tlob_block_weight_count(&shape)), *dw = zeros(tlob_block_weight_count(&shape));
    float *x = zeros(32 * 256), *y = zeros(16 * 256), *dx = zeros(32 * 256);
    for (int64_t n = 64; n <= 256; n *= 4) {
        cr_expect_eq(tlob_block_forward(block, stream, w, x, n, y), TLOB_OK);
        cr_expect_eq(tlob_block_backward(block, stream, w, x, y, n, dw, dx), TLOB_OK);
    }
    cr_expect_eq(s.products, 2 * 8);
    tlob_block_destroy(&block);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    free(w), free(dw), free(x), free(y), free(dx);
    cli_problems_free(&p);
}

Test(problems, attention_runs_what_the_table_has) {
    cli_problems p = builtin();
    seen s = {.problems = &p, .prefix = "attention/"};
    tlob_stream *stream;
    tlob_context *ctx = traced_context(&s, &stream);
    const tlob_mha_shape shape = {.dim = 64, .heads = 4, .seq = 64};
    const int64_t samples = 64, columns = 4096, weights = tlob_mha_weight_count(&shape);
    tlob_mha *mha;
    cr_assert_eq(tlob_mha_create(ctx, &shape, TLOB_MHA_STACKED, samples, &mha), TLOB_OK);
    float *w = zeros(weights), *dw = zeros(weights), *x = zeros(64 * columns), *y = zeros(64 * columns);
    float *dx = zeros(64 * columns);
    cr_expect_eq(tlob_mha_forward(mha, stream, w, x, samples, y), TLOB_OK);
    cr_expect_eq(tlob_mha_backward(mha, stream, w, x, y, samples, dw, dx), TLOB_OK);
    cr_expect_eq(s.products, 6);
    tlob_mha_destroy(&mha);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    free(w), free(dw), free(x), free(y), free(dx);
    cli_problems_free(&p);
}

Test(problems, layers_run_what_the_table_has) {
    cli_problems p = builtin();
    seen s = {.problems = &p, .prefix = "layer/"};
    tlob_stream *stream;
    tlob_context *ctx = traced_context(&s, &stream);
    const int64_t n = 1024;
    const tlob_linear up = {.in = 64, .out = 256, .activation = TLOB_ACTIVATION_GELU}, down = {.in = 256, .out = 64};
    float *w = zeros(64 * 256), *b = zeros(256), *x = zeros(64 * n), *h = zeros(256 * n), *y = zeros(64 * n);
    float *dh = zeros(256 * n), *dw = zeros(64 * 256), *db = zeros(256);
    void *aux = zeros(tlob_linear_aux_bytes(&up, n) / 4);
    cr_expect_eq(tlob_linear_forward(stream, &up, w, b, x, n, h, aux), TLOB_OK);
    cr_expect_eq(tlob_linear_forward(stream, &down, w, b, h, n, y, NULL), TLOB_OK);
    cr_expect_eq(tlob_linear_backward_input(stream, &down, w, y, n, &up, aux, dh, db), TLOB_OK);
    cr_expect_eq(tlob_linear_backward_weight(stream, &up, x, dh, n, dw, db), TLOB_OK);
    cr_expect_eq(s.products, 4);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    free(w), free(b), free(x), free(h), free(y), free(dh), free(dw), free(db), free(aux);
    cli_problems_free(&p);
}

// --- lists ---

static bool parse_list(const char *text, cli_problems *problems, io_error *err) {
    *err = (io_error){""};
    return cli_problems_parse_list("f", text, strlen(text), problems, err);
}

Test(problems, a_list_has_the_words_of_explain) {
    cli_problems p;
    io_error err;
    const char *text = "# some of mine\n"
                       "16 256 32 --batch 3 --stride-b 0 # the projections\n"
                       "\n"
                       "\t24 40 33 --transa --transb --beta=-0.5 --compute fp32\r\n"
                       "--epilogue gelu_aux_bias 8 --ld-aux 256 9 --ldc 12 10";
    cr_assert(parse_list(text, &p, &err), "%s", err.text);
    cr_assert_eq(p.count, 3);
    const tlob_gemm *g = &p.list[0].gemm;
    cr_expect_str_eq(p.list[0].name, "list/2");
    cr_expect(g->m == 16 && g->n == 256 && g->k == 32 && g->batch == 3 && g->stride_a == 512 && g->stride_b == 0 &&
              g->stride_c == 4096 && g->compute == TLOB_COMPUTE_DEFAULT);
    g = &p.list[1].gemm;
    cr_expect_str_eq(p.list[1].name, "list/4");
    cr_expect(g->transa == TLOB_OP_T && g->transb == TLOB_OP_T && g->lda == 33 && g->ldb == 40 && g->ldc == 24 &&
              g->beta == 1 && g->compute == TLOB_COMPUTE_FP32);
    g = &p.list[2].gemm;
    cr_expect(g->m == 8 && g->n == 9 && g->k == 10 && g->ldc == 12 && g->ld_aux == 256 &&
              g->epilogue == TLOB_EPILOGUE_GELU_AUX_BIAS);
    cli_problems_free(&p);
}

typedef struct bad_text {
    const char *text, *expected;
} bad_text;

Test(problems, what_is_wrong_with_a_list_is_told_with_its_line) {
    static const bad_text all[] = {
        {"", "f: not one product in it"},
        {"# nothing\n", "f: not one product in it"},
        {"1 2\n", "f:1: three sizes are needed: M N K"},
        {"1 2 3\n1 2 3 4\n", "f:2: unexpected argument '4'"},
        {"1 2 3\n\n1 two 3\n", "f:3: N: 'two' is not a whole number"},
        {"1 2 3 --batch\n", "f:1: --batch needs a value"},
        {"1 2 3 --transa=1\n", "f:1: --transa takes no value"},
        {"1 2 3 --batches 4\n", "f:1: '--batches' is no option of a product"},
        {"1 2 3 --\n", "f:1: '--' is no option of a product"},
        {"1 2 3 --epilogue biass\n", "dgelu_bgrad"},
        {"1 2 3 --compute fp64\n", "f:1: --compute: 'fp64' is not one of: tf32, fp32"},
        {"1 2 3 --beta x\n", "f:1: --beta: 'x' is not a number"},
        {"8 8 8 --lda 4\n", "f:1: tlob_gemm_check: lda is 4"},
        {"8 8 0\n", "f:1: a product with nothing to multiply"},
        {"0 8 8\n", "f:1: a product with nothing to multiply"},
        {"8 8 8 --alpha 0\n", "f:1: a product with nothing to multiply"},
        {"8 8 99999999999999999999\n", "f:1: K: '99999999999999999999'"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cli_problems p;
        io_error err;
        cr_expect_not(parse_list(all[i].text, &p, &err), "%s", all[i].text);
        cr_expect(strstr(err.text, all[i].expected), "'%s' is not in: %s", all[i].expected, err.text);
        cr_expect(!p.list && !p.count);
    }
    cli_problems p;
    io_error err = {""};
    cr_expect_not(cli_problems_parse_list("f", "1 2 3\0 4", 8, &p, &err));
    cr_expect(strstr(err.text, "byte 0"), "%s", err.text);
}

// --- traces ---

static void run_traced(const char *path) {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.trace_path = path;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_open(ctx, NULL, &stream), TLOB_OK);
    float *a = zeros(1024), *b = zeros(1024), *d = zeros(1024), *bias = zeros(64);
    const tlob_gemm_operands x = {.a = a, .b = b, .c = d, .d = d, .bias = bias};
    tlob_gemm gemm = tlob_gemm_init(5, 7, 3);
    tlob_gemm_run(stream, &gemm, &x);
    gemm.alpha = 2;
    tlob_gemm_run(stream, &gemm, &x); // the same problem for a table
    gemm.stride_a = 99;
    tlob_gemm_run(stream, &gemm, &x); // not looked at
    gemm = tlob_gemm_init(5, 7, 0);
    tlob_gemm_run(stream, &gemm, &x); // nothing to multiply
    gemm = tlob_gemm_init(5, 7, 3);
    gemm.lda = 1;
    tlob_gemm_run(stream, &gemm, &x); // fails
    gemm = tlob_gemm_init(6, 7, 3);
    gemm.transa = TLOB_OP_T;
    gemm.lda = 4;
    gemm.beta = 0.5f;
    gemm.batch = 2;
    gemm.stride_a = 24;
    gemm.stride_b = 0;
    gemm.stride_c = 42;
    gemm.stride_bias = 6;
    gemm.compute = TLOB_COMPUTE_TF32;
    gemm.epilogue = TLOB_EPILOGUE_BIAS;
    tlob_gemm_run(stream, &gemm, &x);
    tlob_gemm_run(stream, &gemm, &x);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    free(a), free(b), free(d), free(bias);
}

Test(problems, a_trace_gives_its_distinct_problems) {
    cli_problems p;
    run_traced(run_path("t"));
    cr_assert(cli_problems_from_trace(run_path("t"), &p));
    cr_assert_eq(p.count, 2);
    const tlob_gemm *g = &p.list[0].gemm;
    cr_expect_str_eq(p.list[0].name, "trace/1");
    cr_expect(g->m == 5 && g->n == 7 && g->k == 3 && g->batch == 1 && g->alpha == 1 && g->beta == 0 &&
              g->stride_a == 0 && g->compute == TLOB_COMPUTE_FP32);
    g = &p.list[1].gemm;
    cr_expect_str_eq(p.list[1].name, "trace/6");
    cr_expect(g->transa == TLOB_OP_T && g->transb == TLOB_OP_N && g->lda == 4 && g->beta == 1 && g->batch == 2 &&
              g->stride_a == 24 && g->stride_b == 0 && g->stride_c == 42 && g->stride_bias == 6 &&
              g->compute == TLOB_COMPUTE_TF32 && g->epilogue == TLOB_EPILOGUE_BIAS);
    cli_problems_free(&p);
}

#define SIZES                                                                                                          \
    "\"m\": 2, \"n\": 3, \"k\": 4, \"lda\": 2, \"ldb\": 4, \"ldc\": 2, \"batch\": 1, \"stride_a\": 0, "                \
    "\"stride_b\": 0, \"stride_c\": 0, \"ld_aux\": 0, \"stride_aux\": 0, "
#define RECORD(trans, sizes, stride, alpha, rest)                                                                      \
    "{\"trans\": \"" trans "\", " sizes "\"stride_bias\": " stride ", \"alpha\": " alpha                               \
    ", \"beta\": 0, \"compute\": \"tf32\", " rest "}\n"
#define REST "\"epilogue\": \"none\", \"status\": \"TLOB_OK\""
#define GOOD RECORD("NN", SIZES, "0", "1", REST)

Test(problems, what_is_wrong_with_a_trace_is_told_with_its_line) {
    static const bad_text all[] = {
        {"", "f: not one product in it"},
        {GOOD "{\"trans\": \"NN\"\n", "f:2: one JSON object expected"},
        {GOOD "[1]\n", "f:2: one JSON object expected"},
        {GOOD "{} {}\n", "f:2: one JSON object expected"},
        {"{}\n", "f:1: \"status\": a text expected, as TLOB_TRACE writes it"},
        {RECORD("XN", SIZES, "0", "1", REST), "f:1: \"trans\": a word"},
        {RECORD("NN", SIZES, "0", "1", "\"epilogue\": \"gelu\", \"status\": \"TLOB_OK\""), "\"epilogue\": a word"},
        {RECORD("NN", SIZES, "0", "null", REST), "\"alpha\": a number"},
        {RECORD("NN", SIZES, "-1", "1", REST), "\"stride_bias\": a whole number from 0 to 2^53"},
        {RECORD("NN", SIZES, "0.5", "1", REST), "\"stride_bias\": a whole number"},
        {RECORD("NN", SIZES, "1e300", "1", REST), "\"stride_bias\": a whole number"},
        {RECORD("NN", "", "0", "1", REST), "\"m\": a whole number"},
        {RECORD("TN", SIZES, "0", "1", REST), "f:1: tlob_gemm_check: lda is 2"},
        {RECORD("NN", SIZES, "0", "1", "\"epilogue\": \"none\", \"status\": \"TLOB_ERR_CUDA\""), "not one product"},
    };
    cli_problems p;
    io_error err = {""};
    cr_assert(cli_problems_parse_trace("f", GOOD GOOD, strlen(GOOD GOOD), &p, &err), "%s", err.text);
    cr_expect_eq(p.count, 1);
    cli_problems_free(&p);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_expect_not(cli_problems_parse_trace("f", all[i].text, strlen(all[i].text), &p, &err), "%s", all[i].text);
        cr_expect(strstr(err.text, all[i].expected), "'%s' is not in: %s", all[i].expected, err.text);
    }
    cr_expect_not(cli_problems_from_trace("/nowhere", &p));
}
