/* The oracle against the definition, on the whole table; and the checker against backends that are wrong on purpose. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"
#include "parity/parity.h"
#include "tests/gemm/host.h"

static void log_result(void *user, const parity_case *c, const parity_result *result) {
    (void)user, (void)c;
    if (result->verdict == PARITY_FAIL || result->verdict == PARITY_ERROR)
        cr_log_error("%s", result->message);
}

/* Runs what matches the filter of `ask` on the oracle: the table, or random cases for so many seconds. */
static parity_tally sweep(parity_sweep ask, double random_seconds) {
    tlob_context *ctx = host_context((tlob_policy){0});
    OK(tlob_stream_open(ctx, NULL, &ask.stream));
    ask.backend = "cpu_ref";
    ask.compute = TLOB_COMPUTE_FP32;
    ask.each = log_result;
    parity_tally tally = random_seconds > 0 ? parity_run_random(&ask, random_seconds) : parity_run_table(&ask);
    tlob_stream_close(&ask.stream);
    tlob_context_destroy(&ctx);
    return tally;
}

#define PASSES(tally_)                                                                                                 \
    do {                                                                                                               \
        parity_tally t_ = (tally_);                                                                                    \
        cr_assert_eq(parity_failed(&t_), 0, "%d of %d cases; the first: %s", parity_failed(&t_), t_.ran, t_.first);    \
        cr_assert_eq(t_.count[PARITY_UNSUPPORTED], 0);                                                                 \
    } while (0)

Test(parity, the_oracle_obeys_the_definition) {
    parity_sweep ask = parity_sweep_from_environment();
    parity_tally tally = sweep(ask, 0);
    cr_assert_gt(tally.ran, 0, "no case matches TLOB_TEST_CASE=%s", ask.filter);
    PASSES(tally);
}

Test(parity, the_oracle_obeys_the_definition_at_random) {
    parity_sweep ask = parity_sweep_from_environment();
    ask.filter = NULL;
    PASSES(sweep(ask, parity_random_seconds(1)));
}

Test(parity, the_table_has_what_it_must) {
    static const char *const needed[] = {"tlob/q/n64",
                                         "tlob/dx_o/n4096",
                                         "fused/qkv/n256",
                                         "fused/dw_qkv/n64",
                                         "transpose/tt",
                                         "size/*129*",
                                         "deep/*65536",
                                         "batch/*x1000",
                                         "bias/m65+3",
                                         "scalars/alpha-0.5-beta2-apart",
                                         "empty/3x3x0x3*",
                                         "data/nan/*",
                                         "support/bgradb/nt/x3",
                                         "epilogue/dgelu_bgrad/tt/x3-padded/alpha1-beta-0.5",
                                         "exact/relu_aux_bias/nn",
                                         "aux/drelu_bgrad/m129-batch",
                                         "shift/bias/vectors+4",
                                         "shift/dgelu_bgrad/all+16",
                                         "spread/relu_bias/shared",
                                         "spread/bgrada/gaps",
                                         "fill/nan-a/gelu_aux_bias",
                                         "unit/drelu_bgrad/1x1x0x1",
                                         "long/*/k1000003",
                                         "many/relu_aux_bias",
                                         "grad/relu/*",
                                         "grad/gelu/*",
                                         "huge/*"};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        int found = 0;
        for (int k = 0; k < parity_case_count(); k++)
            found += parity_case_matches(needed[i], parity_case_get(k).name);
        cr_assert_gt(found, 0, "no case matches %s", needed[i]);
    }
}

Test(parity, names_are_unique_and_problems_valid) {
    int count = parity_case_count();
    parity_case *cases = malloc((size_t)count * sizeof(*cases));
    for (int i = 0; i < count; i++) {
        cases[i] = parity_case_get(i);
        OK(tlob_gemm_check(&cases[i].gemm));
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(cases[i].name, cases[j].name);
    }
    free(cases);
}

/* A name is enough to replay: the same case whatever was drawn before, and another for another seed. */
Test(parity, random_cases_are_valid_and_replay) {
    bool seen[TLOB_EPILOGUE_COUNT] = {0};
    for (int i = 0; i < 2000; i++) {
        parity_case c = parity_case_random(11, i), again = parity_case_random(11, i);
        OK(tlob_gemm_check(&c.gemm));
        cr_assert_eq(memcmp(&c, &again, sizeof(c)), 0);
        seen[c.gemm.epilogue] = true;
    }
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++)
        cr_assert(seen[e]);
    parity_case one = parity_case_random(11, 3), other = parity_case_random(12, 3);
    cr_assert_str_eq(one.name, "random/11/3");
    one.name[0] = other.name[0] = 0;
    cr_assert_neq(memcmp(&one, &other, sizeof(one)), 0);
    parity_tally tally = sweep((parity_sweep){.filter = "random/11/3", .seed = 5}, 0);
    cr_assert_eq(tally.ran, 1);
    PASSES(tally);
}

/* A value that is not valid fails whatever runs, instead of quietly running something else. */
Test(parity, the_environment_is_read_strictly) {
    static const struct {
        const char *name, *value, *valid; /* NULL: this one is */
    } given[] = {
        {"TLOB_TEST_SEED", "abc", "whole numbers from 0 to 2^64 - 1"},
        {"TLOB_TEST_SEED", "-1", "whole numbers"},
        {"TLOB_TEST_SEED", "12x", "whole numbers"},
        {"TLOB_TEST_SEED", "18446744073709551616", "whole numbers"},
        {"TLOB_TEST_SEED", "18446744073709551615", NULL},
        {"TLOB_TEST_HUGE", "yes", "0, 1"},
        {"TLOB_TEST_HUGE", "", "0, 1"},
        {"TLOB_TEST_HUGE", "0", NULL},
        {"TLOB_TEST_RANDOM_SECONDS", "abc", "numbers from 0 to 1000000"},
        {"TLOB_TEST_RANDOM_SECONDS", "1s", "numbers"},
        {"TLOB_TEST_RANDOM_SECONDS", "inf", "numbers"},
        {"TLOB_TEST_RANDOM_SECONDS", "0.25", NULL},
    };
    unsetenv("TLOB_TEST_CASE");
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        unsetenv("TLOB_TEST_SEED"), unsetenv("TLOB_TEST_HUGE"), unsetenv("TLOB_TEST_RANDOM_SECONDS");
        setenv(given[i].name, given[i].value, 1);
        parity_sweep ask = parity_sweep_from_environment();
        ask.filter = "unit/drelu_bgrad/1x1x0x1";
        for (int random = 0; random < 2; random++) {
            parity_tally tally = sweep(ask, random * 0.01);
            if (!given[i].valid) {
                PASSES(tally);
                continue;
            }
            cr_assert_eq(parity_failed(&tally), 1, "%s=%s passes", given[i].name, given[i].value);
            cr_assert(strstr(tally.first, given[i].name) && strstr(tally.first, given[i].value) &&
                          strstr(tally.first, given[i].valid),
                      "%s", tally.first);
        }
        parity_tally one = {0};
        parity_case c = parity_case_get(0);
        parity_run_one(&(parity_sweep){.fault = "wrong"}, &c, &one);
        cr_assert_str_eq(one.first, "wrong");
    }
}

/* Huge cases are for those who ask. */
Test(parity, huge_cases_are_left_out) {
    cr_assert_eq(sweep((parity_sweep){.filter = "huge/*", .seed = 1}, 0).ran, 0);
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        cr_assert_eq(c.huge, parity_case_matches("huge/*", c.name), "%s", c.name);
    }
}

Test(parity, a_filter_is_a_glob) {
    cr_assert(parity_case_matches(NULL, "tlob/q/n64"));
    cr_assert(parity_case_matches("", "tlob/q/n64"));
    cr_assert(parity_case_matches("tlob/*", "tlob/q/n64"));
    cr_assert_not(parity_case_matches("tlob", "tlob/q/n64"));
    cr_assert_eq(sweep((parity_sweep){.filter = "no such case"}, 0).ran, 0);
}

Test(parity, data_depends_on_the_seed_alone) {
    double sum = 0, squares = 0, zeros = 0;
    const int count = 100000;
    for (int i = 0; i < count; i++) {
        float x = parity_fill_value(PARITY_ORDER_FLOW, 7, 1, i, count);
        cr_assert_eq(x, parity_fill_value(PARITY_ORDER_FLOW, 7, 1, i, count));
        sum += x;
        squares += (double)x * x;
        zeros += x == 0;
    }
    cr_assert_float_eq(sum / count, 0, 0.02);
    cr_assert_float_eq(squares / count, 1, 0.03);
    cr_assert_float_eq(zeros / count, 0.6, 0.01);
    cr_assert_neq(parity_fill_value(PARITY_UNIFORM, 7, 1, 3, 9), parity_fill_value(PARITY_UNIFORM, 8, 1, 3, 9));
    cr_assert_neq(parity_fill_value(PARITY_UNIFORM, 7, 1, 3, 9), parity_fill_value(PARITY_UNIFORM, 7, 2, 3, 9));
}

/* Bounds must be wide enough for what float32 sums do, and tight enough to tell TF32 from FP32. */
Test(parity, bounds_tell_the_modes_apart) {
    tlob_gemm g = tlob_gemm_init(16, 16, 32);
    g.compute = TLOB_COMPUTE_FP32;
    double fp32 = parity_bound(&g, TLOB_MEMORY_CUDA, 1);
    cr_assert(fp32 > 1e-6 && fp32 < 1e-5, "%g", fp32);
    cr_assert_lt(parity_bound(&g, TLOB_MEMORY_HOST, 1), 1e-7);
    g.compute = TLOB_COMPUTE_TF32;
    double tf32 = parity_bound(&g, TLOB_MEMORY_CUDA, 1);
    cr_assert(tf32 > 1.0 / 512 && tf32 < 1.1 / 512, "%g", tf32);
    g.compute = TLOB_COMPUTE_FP32;
    g.k = 1 << 20;
    cr_assert_float_eq(parity_bound(&g, TLOB_MEMORY_CUDA, 1), 2e-5, 1e-12);
}

/* The derivatives of the definition, from the plain formula, at places where they are known. */
Test(parity, the_expectations_of_epilogues) {
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    float a = 1, b = 1, bias = 0, aux[4] = {1};
    tlob_gemm_operands x = {.a = &a, .b = &b, .bias = &bias, .aux = aux};
    parity_expectation e;
    g.ld_aux = 128;
    g.epilogue = TLOB_EPILOGUE_GELU_AUX_BIAS;
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert_float_eq((double)e.value, 0.84119199, 1e-8);
    cr_assert_eq((double)e.z, 1);
    g.epilogue = TLOB_EPILOGUE_DGELU_BGRAD; /* (gelu(1 + h) - gelu(1 - h)) / 2h */
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert_float_eq((double)e.value, 1.0829641, 1e-6);
    g.epilogue = TLOB_EPILOGUE_RELU;
    a = NAN;
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert(e.value == 0 && e.scale == 0);
    g.epilogue = TLOB_EPILOGUE_RELU_AUX_BIAS;
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert(isnan(e.value) && isnan(e.z));
    g.epilogue = TLOB_EPILOGUE_GELU_BIAS;
    a = -INFINITY;
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert(isnan(e.value));
    g.epilogue = TLOB_EPILOGUE_DRELU_BGRAD;
    memset(aux, 0, sizeof(aux));
    parity_expect(&g, &x, 0, 0, &e);
    cr_assert(e.value == 0 && e.scale == 0);
}

/* --- backends that are wrong on purpose ------------------------------------------------------------------------ */

enum fault {
    NONE,
    PAST_THE_END,
    BEFORE_THE_START,
    IN_THE_PADDING,
    TOUCHES_A,
    ONE_PERCENT,
    LEAVES_ONE_OUT,
    HIDES_NAN,
    READS_C,
    SWAPS_TRANSPOSE,
    BIAS_ALONG_COLUMNS,
    LAST_MATRIX_ONLY,
    ONE_BIT,
    BIT_OF_ZERO,
    LEAVES_AUX_OUT,
    AUX_AFTER_THE_FUNCTION,
    PAST_AUX,
    PAST_BGRAD,
    LEAVES_BGRAD_OUT,
    HALF_A_BGRAD,
    TOUCHES_THE_MASK,
    FIRST_BIAS_FOR_ALL,
    RELU_KEEPS_NAN,
    EXACT_GELU,
    REFUSES,
    NO_GELU_GRADIENT
};

static enum fault fault;

/* What is wrong with what an epilogue writes besides D. */
static void spoil_epilogue(const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    unsigned char *mask = x->aux;
    float *aux = x->aux;
    int64_t past = g->ld_aux * (g->n - 1) + (traits->aux_is_mask ? g->ld_aux : g->m);
    if (fault == ONE_BIT)
        mask[(g->ld_aux * (g->n - 1) + g->m - 1) / 8] ^= (unsigned char)(1u << (g->m - 1) % 8);
    for (int64_t j = 0; fault == BIT_OF_ZERO && j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++)
            if (x->d[i + j * g->ldc] == 0)
                mask[(g->ld_aux * j + i) / 8] &= (unsigned char)~(1u << i % 8);
    if (fault == LEAVES_AUX_OUT)
        aux[(g->n - 1) * g->ld_aux] = NAN;
    if (fault == AUX_AFTER_THE_FUNCTION)
        aux[0] = x->d[0];
    if (fault == PAST_AUX)
        aux[traits->aux_is_mask ? past / 32 : past] = 0;
    if (fault == TOUCHES_THE_MASK)
        mask[0] ^= 1;
    if (fault == PAST_BGRAD)
        x->bgrad[g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m] = 0;
    if (fault == LEAVES_BGRAD_OUT)
        x->bgrad[0] = NAN;
    if (fault == HALF_A_BGRAD)
        x->bgrad[0] /= 2;
    if (fault == RELU_KEEPS_NAN)
        x->d[0] = NAN;
    for (int64_t i = 0; fault == EXACT_GELU && i < g->m; i++) /* of z, with the error function */
        x->d[i] = (float)(0.5 * aux[i] * (1 + erf(aux[i] / sqrt(2))));
}

static TLOB_GEMM_FN(faulty) {
    tlob_gemm_operands same = *x;
    if (fault == REFUSES)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, "cpu_ref", "run", 0, NULL, gemm, "not in the mood");
    tlob_gemm g = *gemm;
    int64_t last = (g.batch - 1) * (g.batch > 1 ? g.stride_c : 0) + (g.n - 1) * g.ldc + g.m - 1;
    float before = x->d[0];
    if (fault == SWAPS_TRANSPOSE && g.m == g.k)
        g.transa = g.transa == TLOB_OP_N ? TLOB_OP_T : TLOB_OP_N;
    if (fault == FIRST_BIAS_FOR_ALL)
        g.stride_bias = 0;
    if (fault == NO_GELU_GRADIENT && g.epilogue == TLOB_EPILOGUE_DGELU_BGRAD)
        g.alpha *= 1.01f;
    tlob_cpu_ref_ops.matmul_bias(lane, &g, &same, pick, memo);
    spoil_epilogue(&g, x);
    if (fault == READS_C && g.beta == 0)
        x->d[0] += before * 0;
    if (fault == PAST_THE_END)
        x->d[last + 1] = 0;
    if (fault == BEFORE_THE_START)
        x->d[-1] = 0;
    if (fault == IN_THE_PADDING)
        x->d[g.m] = 0;
    if (fault == TOUCHES_A)
        ((float *)(uintptr_t)x->a)[0] += 1;
    if (fault == ONE_PERCENT)
        x->d[last] *= 1.01f;
    if (fault == LEAVES_ONE_OUT)
        x->d[last] = NAN;
    if (fault == HIDES_NAN)
        for (int64_t i = 0; i <= last; i++)
            x->d[i] = isnan(x->d[i]) ? 0 : x->d[i];
    if (fault == BIAS_ALONG_COLUMNS)
        for (int64_t j = 0; j < g.n; j++)
            for (int64_t i = 0; i < g.m; i++)
                x->d[i + j * g.ldc] += x->bias[j] - x->bias[i];
    if (fault == LAST_MATRIX_ONLY)
        x->d[0] = x->d[last];
    return TLOB_OK;
}

static void expect_verdict(enum fault f, const char *name, parity_verdict verdict, const char *words) {
    tlob_context *ctx = host_context((tlob_policy){0});
    tlob_stream *stream;
    tlob_backend_ops wrong = tlob_cpu_ref_ops;
    wrong.sgemm = wrong.sgemm_strided_batched = wrong.matmul_bias = faulty;
    ctx->backends[0] = &wrong;
    OK(tlob_stream_open(ctx, NULL, &stream));
    int ran = 0;
    fault = f;
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        parity_result result;
        if (!parity_case_matches(name, c.name))
            continue;
        ran++;
        parity_run(stream, NULL, "cpu_ref", &c, TLOB_COMPUTE_FP32, 3, &result);
        cr_expect_eq(result.verdict, verdict, "fault %d, %s: verdict %d: %s", (int)f, c.name, (int)result.verdict,
                     result.message);
        cr_expect(strstr(result.message, words), "no '%s' in: %s", words, result.message);
    }
    cr_assert_gt(ran, 0, "no case matches %s", name);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(parity, the_checker_sees_every_fault) {
    expect_verdict(NONE, "size/*/33x64x*", PARITY_PASS, "");
    expect_verdict(PAST_THE_END, "size/*/33x64x*", PARITY_FAIL, "wrote outside D");
    expect_verdict(BEFORE_THE_START, "bias/m31+1", PARITY_FAIL, "wrote outside D: -1");
    expect_verdict(IN_THE_PADDING, "padded/*/31x65x17+3", PARITY_FAIL, "wrote outside D: 31 floats");
    expect_verdict(IN_THE_PADDING, "slices/nn", PARITY_FAIL, ", expected");
    expect_verdict(TOUCHES_A, "size/*/33x64x*", PARITY_FAIL, "changed its input a, 0 floats");
    expect_verdict(ONE_PERCENT, "tlob/q/n64", PARITY_FAIL, "error");
    expect_verdict(LEAVES_ONE_OUT, "size/*/33x64x*", PARITY_FAIL, "is nan, expected");
    expect_verdict(HIDES_NAN, "data/nan/*", PARITY_FAIL, "expected nan");
    expect_verdict(READS_C, "poison/plain/*", PARITY_FAIL, "is nan");
    expect_verdict(SWAPS_TRANSPOSE, "tlob/o/n64", PARITY_FAIL, "error");
    expect_verdict(BIAS_ALONG_COLUMNS, "axis/8x8x1", PARITY_FAIL, "error 1");
    expect_verdict(LAST_MATRIX_ONLY, "stride/packed/*", PARITY_FAIL, "of matrix 0");
}

Test(parity, the_checker_sees_every_fault_of_an_epilogue) {
    expect_verdict(NONE, "spread/*", PARITY_PASS, "");
    expect_verdict(ONE_BIT, "aux/relu_aux_bias/m129-least", PARITY_FAIL, "bit [128, 6] of the mask");
    expect_verdict(BIT_OF_ZERO, "exact/relu_aux_bias/nn", PARITY_FAIL, "where z is 0");
    expect_verdict(LEAVES_AUX_OUT, "aux/gelu_aux_bias/m16-spare", PARITY_FAIL, "aux[0, 6] of matrix 0 is nan");
    expect_verdict(AUX_AFTER_THE_FUNCTION, "aux/gelu_aux_bias/m16-spare", PARITY_FAIL, "aux[0, 0]");
    expect_verdict(PAST_AUX, "aux/gelu_aux_bias/m127-least", PARITY_FAIL, "wrote outside aux: 889");
    expect_verdict(PAST_AUX, "aux/relu_aux_bias/m127-least", PARITY_FAIL, "wrote outside aux: 28");
    expect_verdict(TOUCHES_THE_MASK, "aux/drelu_bgrad/m40-offset", PARITY_FAIL, "changed its input aux, 0 floats");
    expect_verdict(PAST_BGRAD, "shift/bgradb/vectors+4", PARITY_FAIL, "wrote outside bgrad: 24");
    expect_verdict(PAST_BGRAD, "shift/drelu_bgrad/vectors+4", PARITY_FAIL, "wrote outside bgrad: 64");
    expect_verdict(LEAVES_BGRAD_OUT, "spread/bgrada/own", PARITY_FAIL, "bgrad[0, 0] of matrix 0 is nan");
    expect_verdict(HALF_A_BGRAD, "bgrad/*/33-of-300", PARITY_FAIL, "bgrad[0, 0] of matrix 0");
    expect_verdict(FIRST_BIAS_FOR_ALL, "spread/relu/own", PARITY_PASS, "");
    expect_verdict(FIRST_BIAS_FOR_ALL, "spread/relu_bias/own", PARITY_FAIL, "error");
    expect_verdict(RELU_KEEPS_NAN, "fill/nan-a/relu_bias", PARITY_FAIL, "D[0, 0] of matrix 0 is nan");
    expect_verdict(EXACT_GELU, "aux/gelu_aux_bias/m16-spare", PARITY_FAIL, "D[");
}

/* The steps of gradient mode each pass alone; together they must agree. */
Test(parity, gradient_mode_sees_a_backward_pass_that_is_not_of_the_forward_one) {
    expect_verdict(NO_GELU_GRADIENT, "grad/gelu/*", PARITY_FAIL, "central differences say");
    expect_verdict(NO_GELU_GRADIENT, "grad/relu/*", PARITY_PASS, "");
}

/* A backend that the embedder registers runs the same table. What it refuses is no failure where its row says so, and
 * is one where it does not. */
static bool no_tuesdays(const tlob_gemm *gemm, const char **why) {
    *why = "it is Tuesday";
    return gemm->m != 16;
}

Test(parity, an_honest_refusal_and_a_broken_promise) {
    expect_verdict(REFUSES, "support/relu/nn/x1", PARITY_FAIL, "supports() said yes, and then it refused");
    tlob_backend_ops picky = tlob_cpu_ref_ops;
    const tlob_backend_ops *const rows[] = {&picky};
    picky.name = "picky";
    picky.supports = no_tuesdays;
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.backends = rows;
    params.n_backends = 1;
    tlob_context *ctx;
    tlob_stream *stream;
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_open(ctx, NULL, &stream));
    parity_case c = parity_case_support(TLOB_EPILOGUE_RELU, 0, 1);
    parity_result result;
    cr_assert_not(parity_run(stream, NULL, "picky", &c, TLOB_COMPUTE_FP32, 1, &result));
    cr_assert_eq(result.verdict, PARITY_UNSUPPORTED, "%s", result.message);
    cr_assert(strstr(result.message, "it is Tuesday"), "%s", result.message);
    cr_assert_not(strstr(result.message, "replay"), "nothing is to be replayed: %s", result.message);
    parity_tally tally =
        parity_run_table(&(parity_sweep){.stream = stream, .backend = "picky", .filter = "support/relu/*", .seed = 1});
    cr_assert_eq(tally.count[PARITY_UNSUPPORTED], 8);
    cr_assert_eq(parity_failed(&tally), 0);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(parity, a_failure_prints_the_line_that_replays_it) {
    expect_verdict(ONE_PERCENT, "tlob/k/n64", PARITY_FAIL,
                   "replay: tlob parity --backend cpu_ref --compute fp32 --filter 'tlob/k/n64' --seed 3");
}

/* For a GPU backend the oracle comes first: where it is wrong, the backend is not blamed. */
Test(parity, a_wrong_oracle_is_an_error_and_not_a_failure) {
    tlob_context *good = host_context((tlob_policy){0}), *bad = host_context((tlob_policy){0});
    tlob_stream *stream, *oracle;
    tlob_backend_ops wrong = tlob_cpu_ref_ops;
    wrong.sgemm = faulty;
    bad->backends[0] = &wrong;
    OK(tlob_stream_open(good, NULL, &stream));
    OK(tlob_stream_open(bad, NULL, &oracle));
    parity_case c = parity_case_get(0);
    parity_result result;
    fault = ONE_PERCENT;
    cr_assert_not(parity_run(stream, oracle, "cpu_ref", &c, TLOB_COMPUTE_DEFAULT, 1, &result));
    cr_assert_eq(result.verdict, PARITY_ERROR);
    fault = NONE;
    cr_assert(parity_run(stream, oracle, "cpu_ref", &c, TLOB_COMPUTE_DEFAULT, 1, &result), "%s", result.message);
    cr_assert_not(parity_run(stream, oracle, "cublas", &c, TLOB_COMPUTE_DEFAULT, 1, &result));
    cr_assert_eq(result.verdict, PARITY_ERROR);
    cr_assert(strstr(result.message, "cpu_ref"), "lists the valid names: %s", result.message);
    tlob_stream_close(&stream);
    tlob_stream_close(&oracle);
    tlob_context_destroy(&good);
    tlob_context_destroy(&bad);
}
