/* The fields that epilogues need: what is a valid problem, and what is left of one without a product. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <tlob/tlob.h>

#define FAILS(call, expected, words)                                                                                   \
    do {                                                                                                               \
        cr_assert_eq(call, expected, "%s", tlob_last_error()->message);                                                \
        cr_assert(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);     \
    } while (0)

static tlob_gemm problem(tlob_epilogue epilogue, int64_t batch) {
    tlob_gemm g = tlob_gemm_init(5, 4, 3);
    g.epilogue = epilogue;
    g.batch = batch;
    g.stride_a = 15;
    g.stride_b = 12;
    g.stride_c = 20;
    g.stride_aux = g.ld_aux * 4;
    g.stride_bias = 5;
    return g;
}

Test(epilogue, traits_and_names) {
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++) {
        const tlob_epilogue_traits *t = tlob_epilogue_get_traits((tlob_epilogue)i);
        cr_assert(*t->name);
        cr_assert_eq(t->reads_bias, i && !strcmp(t->name + strlen(t->name) - 4, "bias"), "%s", t->name);
        cr_assert_eq(t->writes_bgrad, strstr(t->name, "bgrad") != NULL, "%s", t->name);
        cr_assert_eq(t->writes_aux, strstr(t->name, "aux") != NULL, "%s", t->name);
        cr_assert_eq(t->reads_aux, t->name[0] == 'd', "%s", t->name);
        cr_assert_eq(t->aux_is_mask, (t->reads_aux || t->writes_aux) && strstr(t->name, "relu"), "%s", t->name);
        for (int batch = 1; batch <= 3; batch += 2) {
            tlob_gemm g = problem((tlob_epilogue)i, batch);
            cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "%s: %s", t->name, tlob_last_error()->message);
        }
    }
    cr_assert_str_eq(tlob_epilogue_get_traits((tlob_epilogue)99)->name, "none");
    cr_assert_str_eq(tlob_epilogue_get_traits((tlob_epilogue)-1)->name, "none");
}

Test(epilogue, packed_leading_dimensions_of_aux) {
    cr_assert_eq(tlob_gemm_init(0, 1, 1).ld_aux, 128);
    cr_assert_eq(tlob_gemm_init(128, 1, 1).ld_aux, 128);
    cr_assert_eq(tlob_gemm_init(129, 1, 1).ld_aux, 256);
    cr_assert_eq(tlob_gemm_init(INT64_MAX, 1, 1).ld_aux, INT64_MAX);
    cr_assert_eq(tlob_gemm_init(-1, 1, 1).ld_aux, 128);
}

Test(epilogue, what_a_mask_must_be) {
    tlob_gemm g = problem(TLOB_EPILOGUE_RELU_AUX_BIAS, 3), good = g;
    g.ld_aux = 64;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 64, must be a multiple of 128");
    g.ld_aux = 0;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 0");
    g = good;
    g.m = g.lda = g.ldc = 130;
    g.stride_c = 520;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "ld_aux is 128, must be at least max(1, m) = 130");
    g = good;
    g.stride_aux = 100;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 100, must be a multiple of 128");
    g.stride_aux = -128;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is -128");
    g.stride_aux = 384;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 384, one output spans 389");
    g.ld_aux = 384;
    g.stride_aux = 128;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "slices of one parent: %s", tlob_last_error()->message);
    g.stride_aux = INT64_MAX - 127;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "2^63 bits");
    g.epilogue = TLOB_EPILOGUE_DRELU_BGRAD;
    g.stride_aux = 0;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "an aux that is read may be shared: %s", tlob_last_error()->message);
    g.batch = 1;
    g.stride_aux = -7;
    g.stride_bias = -7;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "strides of one product are not looked at");
    g.epilogue = TLOB_EPILOGUE_NONE;
    g.ld_aux = -1;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "nor is ld_aux without aux");
}

Test(epilogue, what_floats_and_vectors_must_be) {
    tlob_gemm g = problem(TLOB_EPILOGUE_GELU_AUX_BIAS, 3);
    g.ld_aux = 5;
    g.stride_aux = 20;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "%s", tlob_last_error()->message);
    g.stride_aux = 19;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_aux is 19, one output spans 20");
    g.stride_aux = INT64_MAX / 8;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "aux spans more than 2^63 bytes");
    g = problem(TLOB_EPILOGUE_BIAS, 3);
    g.stride_bias = 0;
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "a bias may be shared");
    g.stride_bias = -1;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "stride_bias is -1");
    g.stride_bias = INT64_MAX / 4;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "bias spans more than 2^63 bytes");
    g = problem(TLOB_EPILOGUE_BGRADA, 3);
    g.stride_bias = 4;
    FAILS(tlob_gemm_check(&g), TLOB_ERR_ARGUMENT, "bgrads of the batch overlap: stride_bias is 4, and each has 5");
    g.epilogue = TLOB_EPILOGUE_BGRADB; /* n is 4 */
    cr_assert_eq(tlob_gemm_check(&g), TLOB_OK, "%s", tlob_last_error()->message);
}

/* --- operands -------------------------------------------------------------------------------------------------- */

static tlob_context *ctx;
static tlob_stream *stream;
static _Alignas(256) float a[64], b[64], c[64], d[64], bias[16], bgrad[16];
static _Alignas(256) float aux[512];

static void setup(void) {
    tlob_context_params params = {.memory = TLOB_MEMORY_HOST};
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_open(ctx, NULL, &stream), TLOB_OK);
    for (int i = 0; i < 64; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = (float)(i % 5 - 2);
        c[i] = (float)(i % 11 - 5);
        d[i] = -9;
    }
    for (int i = 0; i < 16; i++)
        bias[i] = (float)i, bgrad[i] = -9;
}

static void teardown(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

TestSuite(operands, .init = setup, .fini = teardown);

static const tlob_gemm_operands all = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

Test(operands, what_an_epilogue_needs_must_be_there) {
    tlob_gemm_operands x = all;
    tlob_gemm g = problem(TLOB_EPILOGUE_RELU_AUX_BIAS, 1);
    x.aux = NULL;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "aux is NULL");
    x.aux = (char *)aux + 8;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "16 bytes, as a mask must be");
    x = all;
    x.bias = NULL;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "bias is NULL");
    x = all;
    x.bgrad = NULL;
    g = problem(TLOB_EPILOGUE_BGRADB, 1);
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "bgrad is NULL");
    x.bgrad = x.d;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "d is the same memory as bgrad");
    x = all;
    g = problem(TLOB_EPILOGUE_DGELU_BGRAD, 1);
    x.aux = d;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT, "d is the same memory as aux");
    x.aux = (char *)aux + 4;
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK, "floats need no more than their alignment");
    g = problem(TLOB_EPILOGUE_NONE, 1);
    cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d}), TLOB_OK);
}

/* alpha = 0 and k = 0 give what a product of zeros gives, without reading A and B but for their sums. */
Test(operands, without_a_product_the_epilogue_still_applies) {
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        float want_d[64], want_bgrad[16], want_aux[512], zeros[64] = {0};
        bool sums_a = e == TLOB_EPILOGUE_BGRADA, sums_b = e == TLOB_EPILOGUE_BGRADB;
        tlob_gemm g = problem((tlob_epilogue)e, 1);
        tlob_gemm_operands x = all;
        g.beta = -0.5f;
        memset(aux, 0x35, sizeof(aux));
        x.a = sums_b ? zeros : a; /* one factor is 0, the one that is summed is not */
        x.b = sums_b ? b : zeros;
        cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK, "%s", tlob_last_error()->message);
        memcpy(want_d, d, sizeof(d));
        memcpy(want_bgrad, bgrad, sizeof(bgrad));
        memcpy(want_aux, aux, sizeof(aux));
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < 20; i++)
                d[i] = -9;
            memset(aux, 0x35, sizeof(aux));
            g.alpha = kind ? 1.0f : 0.0f;
            g.k = kind ? 0 : 3;
            x.a = sums_a ? a : NULL;
            x.b = sums_b ? b : NULL;
            cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK, "epilogue %d: %s", e, tlob_last_error()->message);
            for (int i = 0; i < 20; i++)
                cr_assert_eq(d[i], want_d[i], "epilogue %d, element %d", e, i);
            for (int j = 0; j < 4 && e == TLOB_EPILOGUE_RELU_AUX_BIAS; j++)
                cr_assert_eq((((unsigned char *)aux)[16 * j] ^ ((unsigned char *)want_aux)[16 * j]) & 31, 0);
            for (int i = 0; i < 512 && e == TLOB_EPILOGUE_GELU_AUX_BIAS; i++)
                cr_assert_eq(aux[i], want_aux[i], "epilogue %d, aux %d", e, i);
            for (int i = 0; i < 4; i++)
                cr_assert_eq(bgrad[i], (sums_a || sums_b) && kind ? 0 : want_bgrad[i], "epilogue %d, sum %d", e, i);
        }
    }
}
