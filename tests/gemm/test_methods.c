/* Forms and methods on the host: each form of every case against the definition, and what is refused. */
#include <stdio.h>

#include "libtlob/internal.h"
#include "parity/parity.h"
#include "tests/gemm/host.h"

static tlob_context *ctx;
static tlob_stream *stream;
static _Alignas(256) float a[256], b[256], c[256], d[256], bias[64], bgrad[64], aux[1024];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

static void setup(void) {
    ctx = host_context((tlob_policy){0});
    OK(tlob_stream_open(ctx, NULL, &stream));
}

static void teardown(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

TestSuite(methods, .init = setup, .fini = teardown);

static tlob_method method_of(tlob_form form) {
    return (tlob_method){.backend = "cpu_ref", .form = form};
}

/* A batch of `count` with all strides packed. */
static tlob_gemm batch_of(int64_t count, int64_t m, int64_t n, int64_t k, int ops) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.transa = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
    g.lda = ops & 2 ? k : m;
    g.ldb = ops & 1 ? n : k;
    g.batch = count;
    g.stride_a = m * k;
    g.stride_b = n * k;
    g.stride_c = m * n;
    g.stride_bias = m;
    g.stride_aux = g.ld_aux * n;
    return g;
}

/* --- every form of every case -------------------------------------------------------------------------------------- */

/* Runs the case in a form; returns whether it could. */
static bool runs(tlob_form form, const parity_case *one, uint64_t seed) {
    const tlob_method method = method_of(form);
    parity_result result;
    bool can = !tlob_form_obstacle(form, &one->gemm);
    bool passed = parity_run_as(stream, NULL, &method, 1, one, TLOB_COMPUTE_FP32, seed, &result);
    cr_assert(can ? passed : result.verdict == PARITY_UNSUPPORTED, "%s", result.message);
    return can;
}

Test(methods, every_form_of_the_table) {
    int ran[TLOB_FORM_COUNT] = {0};
    const parity_sweep ask = parity_sweep_from_environment();
    for (int i = 0; i < parity_case_count(); i++) {
        const parity_case one = parity_case_get(i);
        if (one.huge || !parity_case_matches(ask.filter, one.name))
            continue;
        for (int form = 0; form < TLOB_FORM_COUNT; form++)
            ran[form] += runs((tlob_form)form, &one, ask.seed);
    }
    for (int form = 0; form < TLOB_FORM_COUNT && !(ask.filter && *ask.filter); form++)
        cr_assert_gt(ran[form], 0, "%s", tlob_form_name((tlob_form)form));
}

/* What the table has few of: batches that are one product, with every layout that allows it. */
static parity_case wide_case(int i) {
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_RELU,
                                              TLOB_EPILOGUE_RELU_BIAS};
    static const float betas[] = {0.0f, 1.0f, -0.5f};
    const int ops = i % 4, down = i / 4 % 2, pad = i / 8 % 2 * 3, shape = i / 16 % 4;
    static const int64_t sizes[][4] = {{3, 5, 7, 2}, {33, 4, 9, 3}, {6, 1, 1, 4}, {1, 8, 1, 5}};
    const int64_t m = sizes[shape][0], n = sizes[shape][1], k = sizes[shape][2], count = sizes[shape][3];
    parity_case one = {.a = PARITY_UNIFORM, .b = PARITY_UNIFORM, .c = PARITY_UNIFORM, .bias = PARITY_UNIFORM};
    tlob_gemm g = batch_of(count, m, n, k, ops);
    g.epilogue = epilogues[i / 64 % 4];
    g.beta = betas[i % 3];
    one.apart = i % 5 < 2 && g.beta != 0.0f;
    g.alpha = i % 7 ? 1.0f : -2.0f;
    if (down) {
        g.lda = (ops & 2 ? k : count * m) + pad;
        g.stride_a = ops & 2 ? m * g.lda : m;
        g.ldb += pad + 1;
        g.stride_b = 0;
        g.ldc = count * m + pad;
        g.stride_c = m;
        g.stride_bias = m;
    } else {
        g.lda += pad + 1;
        g.stride_a = 0;
        g.ldb = (ops & 1 ? count * n : k) + pad;
        g.stride_b = ops & 1 ? n : n * g.ldb;
        g.ldc = m + pad;
        g.stride_c = n * g.ldc;
        g.stride_bias = 0;
    }
    one.gemm = g;
    snprintf(one.name, sizeof(one.name), "wide/%d", i);
    return one;
}

Test(methods, batches_that_are_one_product) {
    for (int i = 0; i < 1024; i++) {
        const parity_case one = wide_case(i);
        OK(tlob_gemm_check(&one.gemm));
        cr_assert_null(tlob_form_obstacle(TLOB_FORM_WIDE, &one.gemm), "%s: %s", one.name,
                       tlob_form_obstacle(TLOB_FORM_WIDE, &one.gemm));
        const tlob_gemm part = tlob_form_part(TLOB_FORM_WIDE, &one.gemm);
        OK(tlob_gemm_check(&part));
        cr_assert_eq(part.batch, 1);
        cr_assert_eq(part.m * part.n, one.gemm.m * one.gemm.n * one.gemm.batch);
        for (int form = 0; form < TLOB_FORM_COUNT; form++)
            runs((tlob_form)form, &one, 1);
    }
}

/* What can be split: every layout, odd sizes, and C in every place. Of a ramp all terms of a sum have one sign, and all
 * its roundings count. */
static parity_case split_case(int i) {
    static const float betas[] = {0.0f, 1.0f, -0.5f};
    static const int64_t sizes[][3] = {{3, 5, 256},  {16, 16, 2048}, {33, 7, 1000},
                                       {1, 1, 4096}, {7, 1, 520},    {1, 9, 776}};
    const int ops = i % 4, shape = i / 4 % 6, beta = i / 24 % 3, pad = i / 72 % 2;
    const int64_t *size = sizes[shape];
    parity_case one = {.a = PARITY_UNIFORM, .b = PARITY_UNIFORM, .c = beta ? PARITY_UNIFORM : PARITY_NAN};
    if (i / 144)
        one.a = one.b = PARITY_RAMP;
    tlob_gemm g = batch_of(1, size[0], size[1], size[2], ops);
    g.stride_a = g.stride_b = g.stride_c = 0;
    g.lda += pad * 3;
    g.ldb += pad * 5;
    g.ldc += pad * 2;
    g.beta = betas[beta];
    g.alpha = i % 7 ? 1.0f : -2.0f;
    one.apart = i % 5 < 2;
    one.gemm = g;
    snprintf(one.name, sizeof(one.name), "split/%d", i);
    return one;
}

Test(methods, products_in_pieces) {
    for (int i = 0; i < 288; i++) {
        const parity_case one = split_case(i);
        OK(tlob_gemm_check(&one.gemm));
        cr_assert_null(tlob_form_obstacle(TLOB_FORM_SPLIT, &one.gemm), "%s: %s", one.name,
                       tlob_form_obstacle(TLOB_FORM_SPLIT, &one.gemm));
        for (int form = 0; form < TLOB_FORM_COUNT; form++)
            runs((tlob_form)form, &one, 1);
    }
}

/* How many pieces there are, as the header has it. */
Test(methods, the_pieces_of_a_product) {
    static const struct {
        int64_t m, n, k, pieces;
    } rows[] = {
        {16, 16, 256, 2},      {16, 16, 504, 2},       {16, 16, 512, 4},       {16, 16, 65536, 256},
        {32, 32, 2048, 16},    {16, 16, 1 << 20, 256}, {64, 64, 65536, 256},   {64, 65, 65536, 128},
        {128, 128, 65536, 64}, {724, 724, 65536, 2},   {1, 1, 8 * 4097, 2},    {1, 1, 264, 2},
        {5, 3, 48 * 129, 4},   {0, 7, 512, 4},         {1024, 512, 65536, 2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int ops = 0; ops < 4; ops++) {
            tlob_gemm g = batch_of(1, rows[i].m, rows[i].n, rows[i].k, ops);
            g.lda = (g.lda ? g.lda : 1) + 3;
            g.ldb += 5;
            g.ldc = (g.ldc ? g.ldc : 1) + 7;
            g.beta = 1.0f;
            cr_assert_null(tlob_form_obstacle(TLOB_FORM_SPLIT, &g), "row %zu", i);
            const tlob_gemm part = tlob_form_part(TLOB_FORM_SPLIT, &g);
            OK(tlob_gemm_check(&part));
            cr_assert_eq(part.batch, rows[i].pieces, "row %zu: %d pieces", i, (int)part.batch);
            cr_assert_eq(part.batch * part.k, g.k);
            cr_assert_geq(part.k, 128);
            cr_assert_eq(part.k % 4, 0);
            cr_assert_leq(part.batch * part.m * part.n, 1 << 20);
            cr_assert_eq(part.stride_a, part.k * (ops & 2 ? 1 : g.lda));
            cr_assert_eq(part.stride_b, part.k * (ops & 1 ? g.ldb : 1));
            cr_assert_eq(part.stride_c, g.m * g.n);
            cr_assert_eq(part.beta, 0.0f);
        }
}

/* C is not read where beta is 0, though it is D; and is where it is not. */
Test(methods, a_split_product_in_place) {
    enum { M = 3, N = 2, K = 512 };
    static float ones[M * K], out[M * N];
    const tlob_method split = method_of(TLOB_FORM_SPLIT);
    const tlob_gemm_operands x = {.a = ones, .b = ones, .c = out, .d = out};
    tlob_gemm g = tlob_gemm_init(M, N, K);
    for (int i = 0; i < M * K; i++)
        ones[i] = 1.0f;
    memset(out, 0xff, sizeof(out)); /* NaN */
    OK(tlob_gemm_run_as(stream, &split, &g, &x));
    for (int i = 0; i < M * N; i++)
        cr_assert_eq(out[i], (float)K);
    g.beta = 2.0f;
    g.alpha = 0.5f;
    OK(tlob_gemm_run_as(stream, &split, &g, &x));
    for (int i = 0; i < M * N; i++)
        cr_assert_eq(out[i], 2.5f * K);
    g.alpha = 0.0f; /* no product, and so no pieces */
    OK(tlob_gemm_run_as(stream, &split, &g, &x));
    cr_assert_eq(out[0], 5.0f * K);
}

/* --- obstacles ------------------------------------------------------------------------------------------------------ */

static void has_obstacle(tlob_form form, const tlob_gemm *g, const char *words) {
    const char *why = tlob_form_obstacle(form, g);
    const tlob_method method = method_of(form);
    OK(tlob_gemm_check(g));
    cr_assert(why && strstr(why, words), "no '%s' in: %s", words, why ? why : "(none)");
    FAILS(tlob_gemm_run_as(stream, &method, g, &operands), TLOB_ERR_UNSUPPORTED, words);
    cr_assert_str_eq(tlob_last_error()->backend, "cpu_ref");
}

Test(methods, a_form_has_names_and_obstacles) {
    tlob_gemm g = tlob_gemm_init(3, 2, 4);
    cr_assert_str_eq(tlob_form_name(TLOB_FORM_WHOLE), "whole");
    cr_assert_str_eq(tlob_form_name(TLOB_FORM_LOOP), "loop");
    cr_assert_str_eq(tlob_form_name(TLOB_FORM_WIDE), "wide");
    cr_assert_str_eq(tlob_form_name(TLOB_FORM_SEPARATE), "separate");
    cr_assert_str_eq(tlob_form_name(TLOB_FORM_SPLIT), "split");
    cr_assert_str_eq(tlob_form_name((tlob_form)TLOB_FORM_COUNT), "?");
    cr_assert_str_eq(tlob_form_name((tlob_form)-1), "?");
    cr_assert(tlob_form_obstacle((tlob_form)TLOB_FORM_COUNT, &g));
    cr_assert_null(tlob_form_obstacle(TLOB_FORM_WHOLE, &g));
    has_obstacle(TLOB_FORM_LOOP, &g, "no batch");
    has_obstacle(TLOB_FORM_WIDE, &g, "no batch");
    has_obstacle(TLOB_FORM_SEPARATE, &g, "no epilogue");
}

Test(methods, a_batch_that_is_no_one_product) {
    tlob_gemm down = wide_case(4).gemm, across = wide_case(0).gemm, g = down;
    down.epilogue = across.epilogue = TLOB_EPILOGUE_RELU_BIAS;
    g.stride_b = 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "neither A nor B");
    g = down;
    g.stride_a += 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "the A of the batch");
    g = down;
    g.lda -= 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "the A of the batch");
    g = down;
    g.stride_c += 1;
    g.ldc += 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "the D of the batch");
    g = down;
    g.stride_c = g.ldc * g.n;
    has_obstacle(TLOB_FORM_WIDE, &g, "the D of the batch");
    g = down;
    g.stride_bias = 0;
    has_obstacle(TLOB_FORM_WIDE, &g, "biases");
    g = across;
    g.stride_b += 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "the B of the batch");
    g = across;
    g.stride_c += 1;
    has_obstacle(TLOB_FORM_WIDE, &g, "the D of the batch");
    g = across;
    g.stride_bias = g.m;
    has_obstacle(TLOB_FORM_WIDE, &g, "bias");
    g = down;
    g.epilogue = TLOB_EPILOGUE_GELU_BIAS;
    has_obstacle(TLOB_FORM_WIDE, &g, "epilogue");
    g = down;
    g.batch = (int64_t)1 << 62; /* no overflow on the way to an answer */
    g.stride_c = g.stride_a = g.m = (int64_t)1 << 40;
    cr_assert(tlob_form_obstacle(TLOB_FORM_WIDE, &g));
}

Test(methods, a_product_that_has_no_pieces) {
    static const int64_t none[] = {0, 1, 128, 255, 257, 260, 1002};
    tlob_gemm g = tlob_gemm_init(3, 2, 4);
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        g.k = none[i];
        g.ldb = 2048;
        has_obstacle(TLOB_FORM_SPLIT, &g, "below 256, or no multiple of 8");
    }
    g.k = 256;
    cr_assert_null(tlob_form_obstacle(TLOB_FORM_SPLIT, &g));
    g.batch = 2;
    g.stride_c = 6;
    has_obstacle(TLOB_FORM_SPLIT, &g, "not a batch");
    g.batch = 1;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    has_obstacle(TLOB_FORM_SPLIT, &g, "there is an epilogue");
    g = tlob_gemm_init(1025, 512, 256);
    has_obstacle(TLOB_FORM_SPLIT, &g, "more than 4 MiB");
    g.m = g.n = (int64_t)1 << 31; /* no overflow on the way to an answer */
    cr_assert(tlob_form_obstacle(TLOB_FORM_SPLIT, &g));
    g.m = g.n = INT64_MAX;
    cr_assert(tlob_form_obstacle(TLOB_FORM_SPLIT, &g));
    g = tlob_gemm_init(1, 1, (int64_t)1 << 60);
    cr_assert_null(tlob_form_obstacle(TLOB_FORM_SPLIT, &g));
    cr_assert_eq(tlob_form_part(TLOB_FORM_SPLIT, &g).batch, 256);
}

/* --- run_as --------------------------------------------------------------------------------------------------------- */

Test(methods, what_is_no_method_is_an_argument_error) {
    tlob_gemm g = tlob_gemm_init(3, 2, 4);
    tlob_method method = method_of(TLOB_FORM_WHOLE), bad = method;
    OK(tlob_gemm_run_as(stream, &method, &g, &operands));
    FAILS(tlob_gemm_run_as(stream, NULL, &g, &operands), TLOB_ERR_ARGUMENT, "method is NULL");
    memset(bad.backend, 'x', sizeof(bad.backend));
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_ARGUMENT, "23 characters");
    bad = method;
    bad.form = (tlob_form)TLOB_FORM_COUNT;
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_ARGUMENT, "form of the method is 5");
    bad = method;
    bad.n_configuration = TLOB_METHOD_FIELDS_MAX + 1;
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_ARGUMENT, "17 fields");
    bad.n_configuration = -1;
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_ARGUMENT, "-1 fields");
    bad.n_configuration = 1;
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_ARGUMENT, "field 0");
    bad.configuration[0] = (tlob_algorithm_field){"id", 1};
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_UNSUPPORTED, "takes no configurations");
    bad = method;
    strcpy(bad.backend, "cublaslt");
    FAILS(tlob_gemm_run_as(stream, &bad, &g, &operands), TLOB_ERR_UNKNOWN_NAME, "cpu_ref");
    FAILS(tlob_gemm_run_as(stream, &method, NULL, &operands), TLOB_ERR_ARGUMENT, "gemm is NULL");
    FAILS(tlob_gemm_run_as(stream, &method, &g, NULL), TLOB_ERR_ARGUMENT, "operands are NULL");
    FAILS(tlob_gemm_run_as(NULL, &method, &g, &operands), TLOB_ERR_ARGUMENT, "stream is NULL");
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.products, 1);
}

/* What one call insists on is no decision for the next. */
Test(methods, run_as_is_not_remembered) {
    tlob_gemm g = batch_of(2, 3, 2, 4, 0);
    const tlob_method loop = method_of(TLOB_FORM_LOOP);
    OK(tlob_gemm_run_as(stream, &loop, &g, &operands));
    for (int i = 0; i < TLOB_KNOWN_PROBLEMS; i++)
        cr_assert_eq(stream->known[i].index, -1);
    OK(tlob_gemm_run(stream, &g, &operands));
    OK(tlob_gemm_run_as(stream, &loop, &g, &operands));
    int known = 0;
    for (int i = 0; i < TLOB_KNOWN_PROBLEMS; i++)
        known += stream->known[i].index >= 0 && stream->known[i].form == TLOB_FORM_WHOLE;
    cr_assert_eq(known, 1);
}

Test(methods, a_method_in_words_and_whether_two_are_the_same) {
    tlob_method one = {.backend = "cublaslt",
                       .form = TLOB_FORM_LOOP,
                       .n_configuration = 4,
                       .configuration = {{"id", 21}, {"tile", 15}, {"stages", 0}, {"split_k", 4}}};
    tlob_method two = one;
    char text[128];
    tlob_method_print(&one, text, sizeof(text));
    cr_assert_str_eq(text, "cublaslt, loop, id 21 tile 15 split_k 4");
    tlob_method_print(&one, text, 20);
    cr_assert_str_eq(text, "cublaslt, loop, id ");
    two.n_configuration = 0;
    tlob_method_print(&two, text, sizeof(text));
    cr_assert_str_eq(text, "cublaslt, loop");
    cr_assert_not(tlob_method_equal(&one, &two));
    two = one;
    cr_assert(tlob_method_equal(&one, &two));
    two.configuration[0] = one.configuration[3];
    two.configuration[3] = one.configuration[0];
    cr_assert(tlob_method_equal(&one, &two), "whatever the order");
    two.configuration[0].value++;
    cr_assert_not(tlob_method_equal(&one, &two));
    two = one;
    two.configuration[1] = two.configuration[0];
    cr_assert_not(tlob_method_equal(&one, &two));
    cr_assert_not(tlob_method_equal(&two, &one));
    two = one;
    two.form = TLOB_FORM_WHOLE;
    cr_assert_not(tlob_method_equal(&one, &two));
    two = one;
    strcpy(two.backend, "cpu_ref");
    cr_assert_not(tlob_method_equal(&one, &two));
}
