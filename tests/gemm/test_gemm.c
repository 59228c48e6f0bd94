/* What the core refuses before any backend is asked, and what it makes of problems without a product. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "libtlob/internal.h"
#include "tests/gemm/host.h"

/* --- tlob_gemm_check ------------------------------------------------------------------------------------------- */

Test(check, the_common_case) {
    tlob_gemm g = tlob_gemm_init(5, 7, 11);
    OK(tlob_gemm_check(&g));
    cr_assert(g.lda == 5 && g.ldb == 11 && g.ldc == 5 && g.batch == 1 && g.alpha == 1 && g.beta == 0);
    cr_assert(g.transa == TLOB_OP_N && g.transb == TLOB_OP_N && g.compute == TLOB_COMPUTE_DEFAULT);
    g = tlob_gemm_init(0, 0, 0);
    OK(tlob_gemm_check(&g));
    FAILS(tlob_gemm_check(NULL), TLOB_ERR_ARGUMENT, "NULL");
}

Test(check, the_operation_follows_from_epilogue_and_batch) {
    tlob_gemm g = tlob_gemm_init(5, 7, 11);
    cr_assert_eq(tlob_gemm_operation(&g), TLOB_OPERATION_SGEMM);
    g.batch = 2;
    cr_assert_eq(tlob_gemm_operation(&g), TLOB_OPERATION_SGEMM_STRIDED_BATCHED);
    g.epilogue = TLOB_EPILOGUE_BIAS;
    cr_assert_eq(tlob_gemm_operation(&g), TLOB_OPERATION_MATMUL_BIAS);
    g.batch = 1;
    cr_assert_eq(tlob_gemm_operation(&g), TLOB_OPERATION_MATMUL_BIAS);
}

/* Each spoils one field of a valid problem; the message must name the field and its value. */
Test(check, every_field_is_checked_and_named) {
    tlob_gemm g, good = tlob_gemm_init(5, 7, 11);
#define SPOILED(assignment, words)                                                                                     \
    do {                                                                                                               \
        g = good;                                                                                                      \
        assignment;                                                                                                    \
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, words);                                                          \
    } while (0)
    SPOILED(g.m = -1, "m is -1");
    SPOILED(g.n = -2, "n is -2");
    SPOILED(g.k = INT64_MIN, "k is -9223372036854775808");
    SPOILED(g.batch = -3, "batch is -3");
    SPOILED(g.lda = 4, "lda is 4");
    SPOILED(g.ldb = 10, "ldb is 10");
    SPOILED(g.ldc = 4, "ldc is 4");
    SPOILED(g.lda = -5, "lda is -5");
    SPOILED(g.transa = (tlob_op)7, "transa is 7");
    SPOILED(g.transb = (tlob_op)-1, "transb is -1");
    SPOILED(g.compute = (tlob_compute)9, "compute is 9");
    SPOILED(g.epilogue = (tlob_epilogue)11, "epilogue is 11");
    good.batch = 2;
    good.stride_c = 35;
    SPOILED(g.stride_a = -1, "stride_a is -1");
    SPOILED(g.stride_b = -1, "stride_b is -1");
    SPOILED(g.stride_c = -1, "stride_c is -1");
#undef SPOILED
}

/* The least leading dimension is the rows of the matrix as it lies: it changes with the transposes. */
Test(check, leading_dimensions_follow_the_transposes) {
    for (int ops = 0; ops < 4; ops++) {
        tlob_gemm g = tlob_gemm_init(5, 7, 11);
        g.transa = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
        g.transb = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
        g.lda = ops & 2 ? 11 : 5;
        g.ldb = ops & 1 ? 7 : 11;
        OK(tlob_gemm_check(&g));
        g.lda--;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, ops & 2 ? "max(1, k) = 11" : "max(1, m) = 5");
        g.lda++;
        g.ldb--;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, ops & 1 ? "max(1, n) = 7" : "max(1, k) = 11");
    }
    tlob_gemm empty = tlob_gemm_init(0, 3, 3);
    empty.ldc = 0;
    FAILS(tlob_gemm_check(&empty), TLOB_ERR_ARGUMENT, "ldc is 0");
}

/* Known trap: m*n in int, or in int64 without a check. */
Test(check, sizes_that_overflow_are_refused) {
    tlob_gemm g = tlob_gemm_init(65536, 32769, 16);
    g.batch = 2;
    g.stride_c = (int64_t)65536 * 32769;
    OK(tlob_gemm_check(&g));
    cr_assert_gt(g.stride_c, INT32_MAX);

    g = tlob_gemm_init((int64_t)1 << 40, (int64_t)1 << 40, 1);
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix c spans more than 2^63 bytes");
    g = tlob_gemm_init((int64_t)1 << 40, 1, (int64_t)1 << 40);
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix a spans");
    g = tlob_gemm_init(1, (int64_t)1 << 40, (int64_t)1 << 40);
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix b spans");
    g = tlob_gemm_init((int64_t)1 << 31, (int64_t)1 << 30, 1); /* 2^61 elements: their bytes are 2^63, one too many */
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix c");
    g = tlob_gemm_init(INT64_MAX, 1, 1);
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "spans");
    g = tlob_gemm_init(1, 2, 1);
    g.ldc = INT64_MAX;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix c");
    g = tlob_gemm_init(4, 4, 4);
    g.batch = INT64_MAX;
    g.stride_c = 16;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix c");
    g.batch = 3;
    g.stride_b = INT64_MAX / 2;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "matrix b");
}

Test(check, outputs_of_a_batch_must_not_overlap) {
    tlob_gemm g = tlob_gemm_init(4, 5, 3);
    g.batch = 3;
    g.stride_c = 20;
    OK(tlob_gemm_check(&g));
    g.stride_c = 19;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");
    g.stride_c = 0;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");
    g.batch = 1; /* strides are not looked at */
    OK(tlob_gemm_check(&g));

    g.batch = 3; /* row slices of one parent matrix */
    g.ldc = 12;
    g.stride_c = 4;
    OK(tlob_gemm_check(&g));
    g.ldc = 11;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");
    g.ldc = 12;
    g.stride_c = 3;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");

    g = tlob_gemm_init(4, 5, 3); /* the last column is not padded to ldc */
    g.ldc = 10;
    g.batch = 2;
    g.stride_c = 4 * 10 + 4;
    OK(tlob_gemm_check(&g));
    g.stride_c--;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");
}

/* A valid problem of `epilogue` in a batch of three, which the tests below spoil. */
static tlob_gemm batch_of(tlob_epilogue epilogue) {
    tlob_gemm g = tlob_gemm_init(5, 7, 11);
    g.batch = 3;
    g.stride_c = 35;
    g.epilogue = epilogue;
    g.stride_aux = 128 * 7;
    g.stride_bias = 7;
    return g;
}

Test(check, the_common_case_fits_every_epilogue) {
    static const int64_t ms[] = {0, 1, 127, 128, 129};
    static const int64_t lds[] = {128, 128, 128, 128, 256};
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        tlob_gemm g = batch_of((tlob_epilogue)e);
        OK(tlob_gemm_check(&g));
        for (int i = 0; i < 5; i++) {
            g = tlob_gemm_init(ms[i], 3, 2);
            cr_assert(g.ld_aux == lds[i] || ms[i] == 0, "m %d: ld_aux is %d", (int)ms[i], (int)g.ld_aux);
            g.epilogue = (tlob_epilogue)e;
            OK(tlob_gemm_check(&g));
        }
    }
}

Test(check, traits_tell_what_an_epilogue_takes_and_gives) {
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        const tlob_epilogue_traits *t = tlob_epilogue_get_traits((tlob_epilogue)e);
        cr_assert_eq(t->reads_bias, strstr(t->name, "bias") != NULL, "%s", t->name);
        cr_assert_eq(t->writes_bgrad, strstr(t->name, "bgrad") != NULL, "%s", t->name);
        cr_assert_eq(t->writes_aux, strstr(t->name, "aux") != NULL, "%s", t->name);
        cr_assert_eq(t->reads_aux, t->name[0] == 'd', "%s", t->name);
        cr_assert_eq(t->aux_is_mask, (t->reads_aux || t->writes_aux) && strstr(t->name, "relu"), "%s", t->name);
        for (int other = 0; other < e; other++)
            cr_assert_str_neq(t->name, tlob_epilogue_get_traits((tlob_epilogue)other)->name);
    }
    cr_assert_str_eq(tlob_epilogue_get_traits((tlob_epilogue)-1)->name, "none");
    cr_assert_str_eq(tlob_epilogue_get_traits((tlob_epilogue)TLOB_EPILOGUE_COUNT)->name, "none");
}

/* Known trap: the leading dimension of a mask counts bits, in whole groups of 128. */
Test(check, aux_has_a_leading_dimension_and_a_stride_of_its_own) {
    static const tlob_epilogue masks[] = {TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_DRELU_BGRAD};
    static const tlob_epilogue with_floats[] = {TLOB_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_DGELU_BGRAD};
    for (int i = 0; i < 2; i++) {
        tlob_gemm g = batch_of(masks[i]);
        g.ld_aux = 4;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 4, must be at least");
        g.ld_aux = 64;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 64, must be a multiple of 128");
        g.ld_aux = 128;
        g.stride_aux = 128 * 7 + 8;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 904, must be a multiple of 128");
        g.stride_aux = -128;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is -128");

        g = batch_of(with_floats[i]);
        g.ld_aux = 4;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 4, must be at least");
        g.ld_aux = 5;
        g.stride_aux = 35;
        OK(tlob_gemm_check(&g));
        g.stride_aux = -1;
        FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is -1");
        g.batch = 1; /* strides are not looked at */
        OK(tlob_gemm_check(&g));
    }
    tlob_gemm g = batch_of(TLOB_EPILOGUE_BIAS); /* nor is aux, where there is none */
    g.ld_aux = g.stride_aux = -1;
    OK(tlob_gemm_check(&g));
}

/* Outputs of a batch must be apart; inputs may be shared. */
Test(check, aux_and_bgrad_of_a_batch_must_not_overlap) {
    tlob_gemm g = batch_of(TLOB_EPILOGUE_RELU_AUX_BIAS);
    g.stride_aux = 128 * 6;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 768");
    g.stride_aux = 0;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "overlap");
    g = batch_of(TLOB_EPILOGUE_GELU_AUX_BIAS);
    g.ld_aux = 5;
    g.stride_aux = 34;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 34");
    g = batch_of(TLOB_EPILOGUE_DRELU_BGRAD);
    g.stride_aux = 0;
    OK(tlob_gemm_check(&g));
    g.stride_bias = 4;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_bias is 4");
    g.stride_bias = 0;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "bgrads of the batch overlap");
    g = batch_of(TLOB_EPILOGUE_BGRADA); /* m = 5 sums each, of BGRADB n = 7 */
    g.stride_bias = 5;
    OK(tlob_gemm_check(&g));
    g.epilogue = TLOB_EPILOGUE_BGRADB;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_bias is 5");
    g = batch_of(TLOB_EPILOGUE_RELU_BIAS);
    g.stride_bias = 0;
    OK(tlob_gemm_check(&g));
    g.stride_bias = -1;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_bias is -1");
}

Test(check, aux_and_bias_that_overflow_are_refused) {
    tlob_gemm g = batch_of(TLOB_EPILOGUE_GELU_AUX_BIAS);
    g.ld_aux = INT64_MAX / 8;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "aux spans more than 2^63 bytes");
    g = batch_of(TLOB_EPILOGUE_DRELU_BGRAD);
    g.ld_aux = (int64_t)1 << 61;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "aux spans");
    g = batch_of(TLOB_EPILOGUE_RELU_BIAS);
    g.stride_bias = INT64_MAX / 2;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "bias spans more than 2^63 bytes");
    g = batch_of(TLOB_EPILOGUE_BGRADB);
    g.stride_bias = INT64_MAX / 2;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "bgrad spans more than 2^63 bytes");
}

Test(check, a_failure_carries_the_problem) {
    tlob_gemm g = tlob_gemm_init(5, 7, 11);
    g.lda = 1;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "lda is 1");
    cr_assert(tlob_last_error()->has_gemm);
    cr_assert_eq(tlob_last_error()->gemm.n, 7);
}

/* --- tlob_gemm_run --------------------------------------------------------------------------------------------- */

static tlob_context *ctx;
static tlob_stream *stream;
static float a[16], b[16], c[16], d[16], bias[4];

static void setup(void) {
    ctx = host_context((tlob_policy){0});
    OK(tlob_stream_open(ctx, NULL, &stream));
    for (int i = 0; i < 16; i++) {
        a[i] = b[i] = (float)i;
        c[i] = d[i] = -1;
    }
}

static void teardown(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

TestSuite(run, .init = setup, .fini = teardown);

Test(run, missing_arguments) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    FAILS(tlob_gemm_run(NULL, &g, &x), TLOB_ERR_ARGUMENT, "stream");
    FAILS(tlob_gemm_run(stream, NULL, &x), TLOB_ERR_ARGUMENT, "gemm is NULL");
    FAILS(tlob_gemm_run(stream, &g, NULL), TLOB_ERR_ARGUMENT, "operands");
    FAILS(tlob_gemm_run_on(stream, NULL, &g, &x), TLOB_ERR_ARGUMENT, "backend is NULL");
    OK(tlob_gemm_run(stream, &g, &x));
}

Test(run, each_operand_is_needed_where_it_is_read) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x, good = {.a = a, .b = b, .c = c, .d = d, .bias = bias};
    g.beta = 1;
    g.epilogue = TLOB_EPILOGUE_BIAS;
#define NEEDED(field)                                                                                                  \
    do {                                                                                                               \
        x = good;                                                                                                      \
        x.field = NULL;                                                                                                \
        FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand " #field " is NULL");                         \
    } while (0)
    NEEDED(a);
    NEEDED(b);
    NEEDED(c);
    NEEDED(d);
    NEEDED(bias);
    x = (tlob_gemm_operands){.a = a, .b = b, .d = d, .bias = bias};
    g.beta = 0;
    OK(tlob_gemm_run(stream, &g, &x));
    g.epilogue = TLOB_EPILOGUE_NONE;
    x.bias = NULL;
    OK(tlob_gemm_run(stream, &g, &x));
    g.alpha = 0;
    x.a = x.b = NULL;
    OK(tlob_gemm_run(stream, &g, &x));
    g.beta = 1; /* without a product, the others are needed as ever */
    g.epilogue = TLOB_EPILOGUE_BIAS;
    NEEDED(c);
    NEEDED(d);
    NEEDED(bias);
#undef NEEDED
}

Test(run, crooked_and_overlapping_operands) {
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    tlob_gemm_operands x = {.a = (const float *)((uintptr_t)a + 2), .b = b, .d = d};
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand a");
    x = (tlob_gemm_operands){.a = a, .b = b, .d = a};
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "d is the same memory as a");
    x.d = b;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "d is the same memory as b");
}

/* Every operand that an epilogue has is needed, and no other is looked at. */
Test(run, the_operands_of_each_epilogue) {
    static _Alignas(16) unsigned char aux[4 * 4 * 128];
    float bgrad[4];
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        const tlob_epilogue_traits *t = tlob_epilogue_get_traits((tlob_epilogue)e);
        bool has_aux = t->reads_aux || t->writes_aux;
        tlob_gemm g = tlob_gemm_init(4, 4, 4);
        tlob_gemm_operands x, good = {.a = a,
                                      .b = b,
                                      .d = d,
                                      .bias = t->reads_bias ? bias : NULL,
                                      .bgrad = t->writes_bgrad ? bgrad : NULL,
                                      .aux = has_aux ? aux : NULL};
        g.epilogue = (tlob_epilogue)e;
        x = good;
        OK(tlob_gemm_run(stream, &g, &x));
        if (t->reads_bias) {
            x.bias = NULL;
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand bias is NULL");
        }
        x = good;
        if (t->writes_bgrad) {
            x.bgrad = NULL;
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand bgrad is NULL");
            x.bgrad = d;
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "is the same memory as");
        }
        x = good;
        if (has_aux) {
            x.aux = NULL;
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand aux is NULL");
            x.aux = aux + (t->aux_is_mask ? 8 : 2);
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, t->aux_is_mask ? "16 bytes" : "a float");
        }
        x = good;
        g.alpha = 0; /* A and B are not read, but by those that sum them */
        x.a = e == TLOB_EPILOGUE_BGRADA ? a : NULL;
        x.b = e == TLOB_EPILOGUE_BGRADB ? b : NULL;
        OK(tlob_gemm_run(stream, &g, &x));
        x.a = x.b = NULL;
        if (e == TLOB_EPILOGUE_BGRADA)
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand a is NULL");
        if (e == TLOB_EPILOGUE_BGRADB)
            FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "operand b is NULL");
    }
}

Test(run, an_invalid_problem_touches_nothing) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    tlob_stream_stats stats;
    g.ldc = 3;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "ldc is 3");
    for (int i = 0; i < 16; i++)
        cr_assert_eq(d[i], -1);
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.products, 0);
}

/* Known traps: k = 0 must still write beta*C + bias; m, n or batch = 0 must read and write nothing, NULL included. */
Test(run, products_of_nothing) {
    tlob_gemm g = tlob_gemm_init(2, 2, 0);
    tlob_gemm_operands x = {.c = c, .d = d, .bias = bias};
    for (int i = 0; i < 4; i++)
        d[i] = NAN;
    OK(tlob_gemm_run(stream, &g, &x));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(d[i], 0);
    g.beta = 2;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    bias[0] = 10;
    bias[1] = 20;
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert(d[0] == 8 && d[1] == 18 && d[2] == 8 && d[3] == 18, "%g %g %g %g", (double)d[0], (double)d[1],
              (double)d[2], (double)d[3]);

    x = (tlob_gemm_operands){0};
    for (int which = 0; which < 3; which++) {
        g = tlob_gemm_init(which == 0 ? 0 : 2, which == 1 ? 0 : 2, 2);
        g.batch = which == 2 ? 0 : 1;
        OK(tlob_gemm_run(stream, &g, &x));
    }
}

Test(run, a_bias_without_the_epilogue_is_not_added) {
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    tlob_gemm_operands x = {.a = a + 2, .b = b + 3, .d = d, .bias = bias};
    bias[0] = 100;
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert_eq(d[0], 6);
}

Test(run, unknown_backends_are_refused_with_the_valid_names) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    FAILS(tlob_gemm_run_on(stream, "cublass", &g, &x), TLOB_ERR_UNKNOWN_NAME, "cpu_ref");
    cr_assert(strstr(tlob_last_error()->message, "cublass"));
    FAILS(tlob_gemm_run_on(stream, "", &g, &x), TLOB_ERR_UNKNOWN_NAME, "cpu_ref");
    FAILS(tlob_gemm_run_on(stream, "cublaslt", &g, &x), TLOB_ERR_UNKNOWN_NAME, "host context has: cpu_ref");
    for (int i = 0; i < 16; i++)
        cr_assert_eq(d[i], -1, "nothing else is tried");
}

/* The checks of a problem that is remembered are not made again; those of operands that are new are. */
Test(run, a_remembered_problem_is_checked_for_new_operands) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    const tlob_gemm_operands x = {.a = a, .b = b, .d = d}, none = {0};
    FAILS(tlob_gemm_run(stream, &g, &none), TLOB_ERR_ARGUMENT, "operand a is NULL");
    FAILS(tlob_gemm_run(stream, &g, &none), TLOB_ERR_ARGUMENT, "operand a is NULL");
    for (int i = 0; i < 3; i++) {
        OK(tlob_gemm_run(stream, &g, &x));
        FAILS(tlob_gemm_run(stream, &g, &none), TLOB_ERR_ARGUMENT, "operand a is NULL");
        tlob_gemm_operands other = x;
        other.a = (const float *)((const char *)a + 1);
        FAILS(tlob_gemm_run(stream, &g, &other), TLOB_ERR_ARGUMENT, "operand a");
        other = x;
        other.d = NULL;
        FAILS(tlob_gemm_run(stream, &g, &other), TLOB_ERR_ARGUMENT, "operand d is NULL");
    }
}

/* What a slot leaves in its memo comes back with the same problem on the same backend, and with no other. */
static TLOB_GEMM_FN(remembers) {
    static int64_t seen[2];
    (void)lane, (void)x;
    int64_t *mine = &seen[gemm->alpha == 2.0f];
    cr_assert(*memo == NULL || *memo == mine, "the memo of another problem");
    *memo = mine;
    *mine += 1;
    x->d[0] = (float)*mine;
    return TLOB_OK;
}

Test(run, a_backend_finds_what_it_left_for_a_problem) {
    tlob_backend_ops own = tlob_cpu_ref_ops;
    own.sgemm = remembers;
    ctx->backends[0] = &own;
    const tlob_gemm_operands x = {.a = a, .b = b, .d = d}, y = {.a = a, .b = b, .d = d + 1};
    for (int round = 0; round < 3; round++) /* problems that differ in alpha alone share a place in the memory */
        for (int i = 0; i < 10; i++) {
            tlob_gemm g = tlob_gemm_init(1, 1, 1);
            g.alpha = i % 3 ? 1.0f : 2.0f;
            OK(tlob_gemm_run(stream, &g, i % 2 ? &x : &y));
            OK(tlob_gemm_run_on(stream, "cpu_ref", &g, i % 2 ? &x : &y));
        }
    const tlob_known *known = stream->known;
    int memos = 0;
    for (int i = 0; i < TLOB_KNOWN_PROBLEMS; i++)
        memos += known[i].index >= 0 && known[i].memo;
    cr_assert_gt(memos, 0);
}

/* A problem beyond a backend's caps is refused by the core; the backend is not called, and no other is. */
static TLOB_GEMM_FN(never) {
    (void)lane, (void)gemm, (void)x;
    cr_assert(false, "called");
    return TLOB_OK;
}

static bool refuses(const tlob_gemm *gemm, const char **why) {
    (void)gemm;
    *why = "it is Tuesday";
    return false;
}

Test(run, what_a_backend_cannot_do_is_refused_with_its_reason) {
    tlob_backend_ops poor = tlob_cpu_ref_ops;
    poor.sgemm = poor.sgemm_strided_batched = poor.matmul_bias = never;
    poor.caps.max_batch = 2;
    poor.caps.computes = 1u << TLOB_COMPUTE_FP32;
    poor.caps.epilogues = 1u << TLOB_EPILOGUE_NONE;
    ctx->backends[0] = &poor;
    tlob_gemm_operands x = {.a = a, .b = b, .d = d, .bias = bias};
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    g.stride_a = g.stride_b = g.stride_c = 1;

    g.batch = 3;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED, "batch");
    cr_assert_str_eq(tlob_last_error()->backend, "cpu_ref");
    cr_assert(tlob_last_error()->has_gemm);
    g.batch = 1;
    g.compute = TLOB_COMPUTE_TF32;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED, "compute mode");
    g.compute = TLOB_COMPUTE_FP32;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED, "epilogue");
    static _Alignas(16) float aux[64];
    poor.caps.epilogues |= 1u << TLOB_EPILOGUE_DGELU_BGRAD;
    poor.caps.aux_alignment = 16;
    g.epilogue = TLOB_EPILOGUE_DGELU_BGRAD;
    x.aux = aux + 2;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED, "aux_alignment");
    g.epilogue = TLOB_EPILOGUE_NONE;
    poor.supports = refuses;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED, "it is Tuesday");
}

/* The slot follows the problem: a batch of one is a plain product, and an epilogue decides before the batch. */
static char called[8];

static TLOB_GEMM_FN(note_plain) {
    (void)lane, (void)gemm, (void)x;
    strcat(called, "p");
    return TLOB_OK;
}

static TLOB_GEMM_FN(note_batch) {
    (void)lane, (void)gemm, (void)x;
    strcat(called, "b");
    return TLOB_OK;
}

static TLOB_GEMM_FN(note_bias) {
    (void)lane, (void)x;
    strcat(called, gemm->compute == TLOB_COMPUTE_FP32 ? "B" : "?");
    return TLOB_OK;
}

Test(run, each_problem_reaches_its_slot_and_no_other) {
    tlob_backend_ops notes = tlob_cpu_ref_ops;
    notes.sgemm = note_plain;
    notes.sgemm_strided_batched = note_batch;
    notes.matmul_bias = note_bias;
    ctx->backends[0] = &notes;
    tlob_gemm_operands x = {.a = a, .b = b, .d = d, .bias = bias};
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    g.stride_a = g.stride_b = g.stride_c = 1;
    OK(tlob_gemm_run(stream, &g, &x));
    g.batch = 2;
    OK(tlob_gemm_run(stream, &g, &x));
    g.epilogue = TLOB_EPILOGUE_BIAS;
    OK(tlob_gemm_run(stream, &g, &x));
    g.batch = 1;
    OK(tlob_gemm_run(stream, &g, &x));
    g.k = 0; /* no product, so no backend */
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert_str_eq(called, "pbBB");
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.products, 5);
}

static TLOB_GEMM_FN(fail_with_words) {
    (void)lane;
    (void)x;
    return tlob_backend_fail(TLOB_ERR_BACKEND, "cpu_ref", "a call", 7, "SEVEN", gemm, "no");
}

Test(run, a_product_that_fails_is_not_counted) {
    tlob_backend_ops failing = tlob_cpu_ref_ops;
    failing.sgemm = fail_with_words;
    ctx->backends[0] = &failing;
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    tlob_stream_stats stats;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_BACKEND, "SEVEN (7)");
    const tlob_error *error = tlob_last_error();
    cr_assert(error->vendor_code == 7 && error->has_gemm && error->backend[0]);
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.products, 0);
    FAILS(tlob_gemm_run(NULL, &g, &x), TLOB_ERR_ARGUMENT, "stream");
    cr_assert(!error->vendor_code && !error->vendor[0] && !error->has_gemm && !error->backend[0],
              "a failure keeps nothing of the one before it");
}

Test(run, a_closed_context_is_said_to_be_one) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    tlob_context_destroy(&ctx);
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_CLOSED, "");
}

/* The oracle rounds once: 2^24 + 1 is lost in a float sum, and kept in its own. */
Test(run, the_oracle_accumulates_in_double) {
    tlob_gemm g = tlob_gemm_init(1, 1, 3);
    const float big[3] = {16777216, 1, -16777216}, ones[3] = {1, 1, 1};
    tlob_gemm_operands x = {.a = big, .b = ones, .d = d};
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert_eq(d[0], 1);
    const float tf32_would_round[1] = {1024.5f};
    g = tlob_gemm_init(1, 1, 1);
    g.compute = TLOB_COMPUTE_TF32;
    x.a = tf32_would_round;
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert_eq(d[0], 1024.5f, "the oracle never rounds its inputs");
}
