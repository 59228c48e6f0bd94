/* The oracle against the definition, on the whole table; and the checker against backends that are wrong on purpose. */
#include <math.h>
#include <stdlib.h>

#include "libtlob/internal.h"
#include "parity/parity.h"
#include "tests/gemm/host.h"

static uint64_t seed_from_environment(void) {
    const char *text = getenv("TLOB_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* Runs what matches `filter`; returns how many cases that were, how many failed, and the message of the first. */
static int sweep(const char *filter, uint64_t seed, int *failed, parity_result *first) {
    tlob_context *ctx = host_context((tlob_policy){0});
    tlob_stream *stream;
    OK(tlob_stream_open(ctx, NULL, &stream));
    int ran = 0;
    *failed = 0;
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        parity_result result;
        if (!parity_case_matches(filter, c.name))
            continue;
        ran++;
        if (!parity_run(stream, NULL, "cpu_ref", &c, TLOB_COMPUTE_FP32, seed, &result)) {
            cr_log_error("%s", result.message);
            if (!(*failed)++)
                *first = result;
        }
    }
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return ran;
}

Test(parity, the_oracle_obeys_the_definition) {
    parity_result first = {0};
    int failed, ran = sweep(getenv("TLOB_TEST_CASE"), seed_from_environment(), &failed, &first);
    cr_assert_gt(ran, 0, "no case matches TLOB_TEST_CASE=%s", getenv("TLOB_TEST_CASE"));
    cr_assert_eq(failed, 0, "%d of %d cases; the first: %s", failed, ran, first.message);
}

Test(parity, the_table_has_what_it_must) {
    static const char *const needed[] = {
        "tlob/q/n64",     "tlob/dx_o/n4096", "fused/qkv/n256", "fused/dw_qkv/n64", "transpose/tt",
        "size/*129*",     "deep/*65536",     "batch/*x1000",   "bias/m65+3",       "scalars/alpha-0.5-beta2-apart",
        "empty/3x3x0x3*", "data/nan/*"};
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

Test(parity, a_filter_is_a_glob) {
    cr_assert(parity_case_matches(NULL, "tlob/q/n64"));
    cr_assert(parity_case_matches("", "tlob/q/n64"));
    cr_assert(parity_case_matches("tlob/*", "tlob/q/n64"));
    cr_assert_not(parity_case_matches("tlob", "tlob/q/n64"));
    parity_result first;
    int failed;
    cr_assert_eq(sweep("no such case", 1, &failed, &first), 0);
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
    LAST_MATRIX_ONLY
};

static enum fault fault;

static TLOB_GEMM_FN(faulty) {
    tlob_gemm g = *gemm;
    int64_t last = (g.batch - 1) * (g.batch > 1 ? g.stride_c : 0) + (g.n - 1) * g.ldc + g.m - 1;
    float before = x->d[0];
    if (fault == SWAPS_TRANSPOSE && g.m == g.k)
        g.transa = g.transa == TLOB_OP_N ? TLOB_OP_T : TLOB_OP_N;
    tlob_cpu_ref_ops.matmul_bias(lane, &g, x);
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
