/* Policies: what they choose, how they are written, and how they fail. */
#include "libtlob/internal.h"
#include "tests/gemm/host.h"

static tlob_choice explain(tlob_policy policy, int64_t m, int64_t n, int64_t k) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    tlob_choice choice;
    OK(tlob_dispatch_explain(&policy, &g, &choice));
    return choice;
}

Test(dispatch, the_threshold_looks_at_the_smallest_size) {
    tlob_policy policy = {.kind = TLOB_POLICY_THRESHOLD};
    static const struct {
        int64_t m, n, k;
        const char *backend;
    } rows[] = {{64, 64, 64, "cublaslt"},       {63, 64, 64, "cublas_classic"},     {64, 63, 64, "cublas_classic"},
                {64, 64, 63, "cublas_classic"}, {16, 256, 32, "cublas_classic"},    {4096, 4096, 4096, "cublaslt"},
                {0, 64, 64, "cublas_classic"},  {65536, 65536, 1, "cublas_classic"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tlob_choice choice = explain(policy, rows[i].m, rows[i].n, rows[i].k);
        cr_assert_str_eq(choice.backend, rows[i].backend, "row %zu", i);
        cr_assert(strstr(choice.reason, "64"), "%s", choice.reason);
    }
    policy.threshold = 17;
    cr_assert_str_eq(explain(policy, 17, 17, 17).backend, "cublaslt");
    cr_assert_str_eq(explain(policy, 16, 256, 32).backend, "cublas_classic");
    cr_assert(strstr(explain(policy, 16, 256, 32).reason, "16 is below 17"));
    cr_assert_str_eq(explain((tlob_policy){0}, 64, 64, 64).backend, "cublaslt", "the default is the threshold");
}

Test(dispatch, batch_and_epilogue_do_not_count_for_the_threshold) {
    tlob_policy policy = {.kind = TLOB_POLICY_THRESHOLD};
    tlob_gemm g = tlob_gemm_init(64, 64, 64);
    tlob_choice choice;
    g.batch = 3;
    g.stride_c = 4096;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    OK(tlob_dispatch_explain(&policy, &g, &choice));
    cr_assert_str_eq(choice.backend, "cublaslt");
}

/* The gradient of weights as a batch: small outputs of a long sum, which the library would not split. */
Test(dispatch, a_deep_batch_is_done_in_a_loop) {
    const tlob_policy policy = {0}, fixed = {.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    static const struct {
        int64_t m, n, k, batch;
        tlob_compute compute;
        tlob_epilogue epilogue;
        bool loops;
    } rows[] = {
        {16, 32, 65536, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, true},
        {16, 32, 65536, 3, TLOB_COMPUTE_DEFAULT, TLOB_EPILOGUE_NONE, true},
        {64, 64, 65536, 32, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, true},
        {16, 32, 1350, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, true},
        {16, 32, 1349, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {16, 32, 900, 3, TLOB_COMPUTE_FP32, TLOB_EPILOGUE_NONE, true},
        {16, 32, 899, 3, TLOB_COMPUTE_FP32, TLOB_EPILOGUE_NONE, false},
        {16, 129, 2100, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, true},
        {16, 129, 2099, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {128, 128, 5120, 8, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, true},
        {129, 128, 5120, 8, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {65, 64, 65536, 32, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {16, 32, 65536, 1, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {257, 32, 65536, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {16, 257, 65536, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {16, 32, 65536, 33, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_NONE, false},
        {16, 32, 65536, 3, TLOB_COMPUTE_TF32, TLOB_EPILOGUE_RELU, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tlob_gemm g = tlob_gemm_init(rows[i].m, rows[i].n, rows[i].k);
        tlob_choice choice;
        g.batch = rows[i].batch;
        g.stride_a = g.m * g.k;
        g.stride_c = g.m * g.n;
        g.compute = rows[i].compute;
        g.epilogue = rows[i].epilogue;
        OK(tlob_dispatch_explain(&policy, &g, &choice));
        cr_assert_eq(choice.form, rows[i].loops ? TLOB_FORM_LOOP : TLOB_FORM_WHOLE, "row %zu: %s", i, choice.reason);
        cr_assert_eq(strstr(choice.reason, "in form loop, by rule dw_batch: k = ") != NULL, rows[i].loops);
        cr_assert(strstr(choice.reason, "threshold: min(m, n, k) = ") == choice.reason, "%s", choice.reason);
        cr_assert_str_empty(choice.configuration);
        OK(tlob_dispatch_explain(&fixed, &g, &choice));
        cr_assert_eq(choice.form, TLOB_FORM_WHOLE, "fixed is fixed");
    }
}

Test(dispatch, fixed_is_fixed) {
    tlob_policy policy = {.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    cr_assert_str_eq(explain(policy, 1, 1, 1).backend, "cublaslt");
    policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    cr_assert_str_eq(explain(policy, 512, 512, 512).backend, "cpu_ref");
    cr_assert(explain(policy, 1, 1, 1).built);
}

/* A pure function: the same answer every time, and no trace of earlier questions. */
Test(dispatch, explain_is_pure) {
    tlob_policy policy = {.kind = TLOB_POLICY_THRESHOLD, .threshold = 32};
    tlob_gemm g = tlob_gemm_init(31, 64, 64), before = g;
    tlob_choice first, again, other;
    OK(tlob_dispatch_explain(&policy, &g, &first));
    tlob_gemm large = tlob_gemm_init(99, 99, 99);
    OK(tlob_dispatch_explain(&policy, &large, &other));
    OK(tlob_dispatch_explain(&policy, &g, &again));
    cr_assert_arr_eq(&first, &again, sizeof(first));
    cr_assert_arr_eq(&g, &before, sizeof(g));
    cr_assert_str_neq(first.backend, other.backend);
}

Test(dispatch, bad_arguments) {
    tlob_policy policy = {.kind = TLOB_POLICY_THRESHOLD};
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    tlob_choice choice, untouched;
    memset(&choice, 0x5a, sizeof(choice));
    untouched = choice;
    FAILS(tlob_dispatch_explain(NULL, &g, &choice), TLOB_ERR_ARGUMENT, "policy is NULL");
    FAILS(tlob_dispatch_explain(&policy, NULL, &choice), TLOB_ERR_ARGUMENT, "gemm is NULL");
    FAILS(tlob_dispatch_explain(&policy, &g, NULL), TLOB_ERR_ARGUMENT, "choice is NULL");
    g.m = -1;
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_ARGUMENT, "m is -1");
    g.m = 1;
    policy.threshold = -4;
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_ARGUMENT, "-4");
    policy = (tlob_policy){.kind = (tlob_policy_kind)9};
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_ARGUMENT, "9");
    policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "mkl"};
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_UNKNOWN_NAME, "cpu_ref, cublas_classic, cublaslt");
    policy = (tlob_policy){.kind = TLOB_POLICY_FIXED};
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_UNKNOWN_NAME, "cublaslt");
    policy = (tlob_policy){.kind = TLOB_POLICY_CALLBACK};
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_ARGUMENT, "decide");
    cr_assert_arr_eq(&choice, &untouched, sizeof(choice), "written only on success");
}

/* --- how policies are written ---------------------------------------------------------------------------------- */

Test(dispatch, policies_are_read_and_printed_alike) {
    static const char *const texts[] = {"threshold:64",  "threshold:1",          "threshold:4096",
                                        "fixed:cpu_ref", "fixed:cublas_classic", "fixed:cublaslt"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        tlob_policy policy;
        char text[64];
        OK(tlob_policy_parse(texts[i], &policy));
        tlob_policy_print(&policy, text, sizeof(text));
        cr_assert_str_eq(text, texts[i]);
    }
    tlob_policy policy;
    char text[64];
    OK(tlob_policy_parse("threshold", &policy));
    tlob_policy_print(&policy, text, sizeof(text));
    cr_assert_str_eq(text, "threshold:64");
}

Test(dispatch, what_is_no_policy_is_refused) {
    tlob_policy policy, untouched;
    memset(&policy, 0x5a, sizeof(policy));
    untouched = policy;
    FAILS(tlob_policy_parse("", &policy), TLOB_ERR_UNKNOWN_NAME, "threshold:N");
    FAILS(tlob_policy_parse("Threshold", &policy), TLOB_ERR_UNKNOWN_NAME, "fixed:BACKEND");
    FAILS(tlob_policy_parse("fixed", &policy), TLOB_ERR_UNKNOWN_NAME, "fixed:BACKEND");
    FAILS(tlob_policy_parse("fixed:", &policy), TLOB_ERR_UNKNOWN_NAME, "cublas_classic");
    FAILS(tlob_policy_parse("fixed:cublasLt", &policy), TLOB_ERR_UNKNOWN_NAME, "cublasLt");
    FAILS(tlob_policy_parse("fixed:cublas_classic_but_much_longer", &policy), TLOB_ERR_UNKNOWN_NAME, "cublaslt");
    static const char *const numbers[] = {"threshold:",     "threshold:0",   "threshold:-1",
                                          "threshold:+5",   "threshold: 5",  "threshold:5x",
                                          "threshold:0x10", "threshold:1e3", "threshold:99999999999999999999"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        FAILS(tlob_policy_parse(numbers[i], &policy), TLOB_ERR_ARGUMENT, "threshold");
    FAILS(tlob_policy_parse(NULL, &policy), TLOB_ERR_ARGUMENT, "NULL");
    FAILS(tlob_policy_parse("threshold", NULL), TLOB_ERR_ARGUMENT, "NULL");
    cr_assert_arr_eq(&policy, &untouched, sizeof(policy), "written only on success");
}

/* --- callbacks ------------------------------------------------------------------------------------------------- */

typedef struct rule {
    const char *backend, *reason;
    int calls;
    tlob_gemm seen;
} rule;

static const char *follow(void *user, const tlob_gemm *gemm, const char **reason) {
    rule *r = user;
    r->calls++;
    r->seen = *gemm;
    if (r->reason)
        *reason = r->reason;
    return r->backend;
}

static tlob_policy callback(rule *r) {
    return (tlob_policy){.kind = TLOB_POLICY_CALLBACK, .decide = follow, .user = r};
}

Test(dispatch, a_callback_chooses_and_says_why) {
    rule r = {.backend = "cublaslt", .reason = "k is prime"};
    tlob_choice choice = explain(callback(&r), 5, 7, 11);
    cr_assert_str_eq(choice.backend, "cublaslt");
    cr_assert(strstr(choice.reason, "k is prime"), "%s", choice.reason);
    cr_assert_eq(r.seen.k, 11);
    cr_assert_eq(r.calls, 1);
    r.reason = NULL;
    cr_assert(strstr(explain(callback(&r), 5, 7, 11).reason, "callback"));
}

Test(dispatch, a_callback_that_fails_is_a_policy_error) {
    tlob_gemm g = tlob_gemm_init(5, 7, 11);
    tlob_choice choice;
    rule r = {.backend = NULL, .reason = "never seen such a thing"};
    tlob_policy policy = callback(&r);
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_POLICY, "never seen such a thing");
    r = (rule){.backend = "cuda"};
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_POLICY, "'cuda'");
    cr_assert(strstr(tlob_last_error()->message, "cpu_ref, cublas_classic, cublaslt"));
}

Test(dispatch, a_context_follows_its_callback_on_every_product) {
    rule r = {.backend = "cpu_ref"};
    tlob_context *ctx = host_context(callback(&r));
    tlob_stream *stream;
    OK(tlob_stream_open(ctx, NULL, &stream));
    const float a[1] = {3}, b[1] = {5};
    float d[1] = {0};
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    OK(tlob_gemm_run(stream, &g, &x));
    OK(tlob_gemm_run(stream, &g, &x));
    cr_assert_eq(r.calls, 2);
    cr_assert_eq(d[0], 15);
    cr_assert_eq(r.seen.compute, TLOB_COMPUTE_FP32, "a policy sees the mode in force");

    d[0] = -1;
    r.backend = "cublaslt"; /* exists, but not in a host context */
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_POLICY, "cpu_ref");
    cr_assert(tlob_last_error()->has_gemm && tlob_last_error()->gemm.m == g.m, "the problem is named");
    r.backend = NULL;
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_POLICY, "returned no backend");
    r.backend = "";
    FAILS(tlob_gemm_run(stream, &g, &x), TLOB_ERR_POLICY, "no backend");
    cr_assert_eq(d[0], -1, "nothing else was tried");
    OK(tlob_gemm_run_on(stream, "cpu_ref", &g, &x));
    cr_assert_eq(r.calls, 5, "an explicit backend asks no policy");
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

/* A policy that can never work in a context is refused when the context is made, not at the first product. */
Test(dispatch, a_hopeless_policy_makes_no_context) {
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    tlob_status status = tlob_context_create(&ctx, &params);
    cr_assert(status == TLOB_ERR_ARGUMENT || status == TLOB_ERR_NOT_BUILT, "%s", tlob_status_name(status));
    cr_assert_null(ctx);
    params.policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD};
    status = tlob_context_create(&ctx, &params);
    cr_assert(status == TLOB_ERR_ARGUMENT || status == TLOB_ERR_NOT_BUILT, "%s", tlob_status_name(status));
    cr_assert_null(ctx);
}
