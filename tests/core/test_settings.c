/* Settings: argument, then environment, then default; strict parsing; policies that cannot be reached are refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <tlob/tlob.h>

#include "backends/backend.h"

static void clear_environment(void) {
    unsetenv("TLOB_COMPUTE");
    unsetenv("TLOB_POLICY");
    unsetenv("TLOB_WORKSPACE_MIB");
    unsetenv("TLOB_LOG");
    unsetenv("TLOB_TRACE");
    unsetenv("TLOB_DETERMINISTIC");
    unsetenv("TLOB_BLOCK_PLAN");
    unsetenv("TLOB_CONFIG");
    unsetenv("TLOB_TABLE");
}

TestSuite(settings, .init = clear_environment);

static tlob_context_params host_params(void) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    return params;
}

static bool have_both_gpu_backends(void) {
    return !tlob_cublas_classic_ops.missing && !tlob_cublaslt_ops.missing;
}

Test(settings, defaults_of_a_host_context) {
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert_eq(s.compute, TLOB_COMPUTE_FP32);
    cr_assert_eq(s.policy.kind, TLOB_POLICY_FIXED);
    cr_assert_str_eq(s.policy.backend, "cpu_ref");
    cr_assert_eq(s.workspace_bytes, (size_t)32 << 20);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_DEFAULT);
    cr_assert_eq(s.policy_origin, TLOB_ORIGIN_DEFAULT);
}

Test(settings, defaults_of_a_cuda_context_need_no_gpu) {
    tlob_context_params params = tlob_context_params_default();
    tlob_settings s;
    tlob_status status = tlob_settings_resolve(&params, &s);
    cr_assert_eq(status, have_both_gpu_backends() ? TLOB_OK : TLOB_ERR_NOT_BUILT);
    cr_assert_eq(s.compute, TLOB_COMPUTE_TF32);
    cr_assert_eq(s.policy.kind, TLOB_POLICY_THRESHOLD);
    cr_assert_eq(s.policy.threshold, 64);
    if (status != TLOB_OK)
        cr_assert(strstr(tlob_last_error()->message, "built without"), "%s", tlob_last_error()->message);
}

Test(settings, an_argument_beats_the_environment_and_that_the_default) {
    setenv("TLOB_COMPUTE", "tf32", 1);
    setenv("TLOB_WORKSPACE_MIB", "5", 1);
    setenv("TLOB_LOG", "debug", 1);
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert_eq(s.compute, TLOB_COMPUTE_TF32);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_ENVIRONMENT);
    cr_assert_eq(s.workspace_bytes, (size_t)5 << 20);
    cr_assert_eq(s.workspace_origin, TLOB_ORIGIN_ENVIRONMENT);
    cr_assert_eq(s.log_level, TLOB_LOG_DEBUG);
    cr_assert_eq(s.log_level_origin, TLOB_ORIGIN_ENVIRONMENT);
    params.compute = TLOB_COMPUTE_FP32;
    params.workspace_bytes = 4096;
    params.log_level = TLOB_LOG_ERROR;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert_eq(s.compute, TLOB_COMPUTE_FP32);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_ARGUMENT);
    cr_assert_eq(s.workspace_bytes, 4096u);
    cr_assert_eq(s.workspace_origin, TLOB_ORIGIN_ARGUMENT);
    cr_assert_eq(s.log_level, TLOB_LOG_ERROR);
}

Test(settings, deterministic_is_off_unless_asked_for) {
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(!s.deterministic && s.deterministic_origin == TLOB_ORIGIN_DEFAULT);
    setenv("TLOB_DETERMINISTIC", "on", 1);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.deterministic && s.deterministic_origin == TLOB_ORIGIN_ENVIRONMENT);
    params.deterministic = TLOB_SWITCH_OFF;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(!s.deterministic && s.deterministic_origin == TLOB_ORIGIN_ARGUMENT);
    setenv("TLOB_DETERMINISTIC", "off", 1);
    params.deterministic = TLOB_SWITCH_ON;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.deterministic && s.deterministic_origin == TLOB_ORIGIN_ARGUMENT);
    params.deterministic = (tlob_switch)3;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "deterministic is 3"), "%s", tlob_last_error()->message);
}

static tlob_block_plan decide_nothing(void *user, const tlob_block_params *params, const char **reason) {
    (void)user, (void)params, (void)reason;
    return TLOB_PLAN_DEFAULT;
}

Test(settings, block_plan_is_by_shape_unless_asked_for) {
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.block_plan == TLOB_PLAN_DEFAULT && s.block_plan_origin == TLOB_ORIGIN_DEFAULT);
    setenv("TLOB_BLOCK_PLAN", "fused", 1);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.block_plan == TLOB_PLAN_FUSED && s.block_plan_origin == TLOB_ORIGIN_ENVIRONMENT);
    params.block_plan = TLOB_PLAN_COMPOSED;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.block_plan == TLOB_PLAN_COMPOSED && s.block_plan_origin == TLOB_ORIGIN_ARGUMENT);
    params.block_decide = decide_nothing;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "plan composed already"), "%s", tlob_last_error()->message);
    params.block_plan = TLOB_PLAN_DEFAULT; /* and the environment's does not count */
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert(s.block_plan == TLOB_PLAN_DEFAULT && s.block_decide == decide_nothing);
    cr_assert_eq(s.block_plan_origin, TLOB_ORIGIN_ARGUMENT);
    params.block_decide = NULL;
    params.block_plan = (tlob_block_plan)3;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "block_plan is 3"), "%s", tlob_last_error()->message);
}

Test(settings, an_invalid_variable_is_an_error_that_lists_what_is_valid) {
    static const char *const bad[][3] = {
        {"TLOB_COMPUTE", "TF32", "tf32, fp32"},     {"TLOB_COMPUTE", "", "tf32, fp32"},
        {"TLOB_COMPUTE", "default", "tf32, fp32"},  {"TLOB_LOG", "verbose", "none, error, warn, info, debug"},
        {"TLOB_DETERMINISTIC", "1", "on, off"},     {"TLOB_DETERMINISTIC", "", "on, off"},
        {"TLOB_BLOCK_PLAN", "", "composed, fused"}, {"TLOB_BLOCK_PLAN", "default", "composed, fused"},
        {"TLOB_WORKSPACE_MIB", "0", "1 to 65536"},  {"TLOB_WORKSPACE_MIB", "32x", "1 to 65536"},
        {"TLOB_WORKSPACE_MIB", "-1", "1 to 65536"}, {"TLOB_WORKSPACE_MIB", " 3", "1 to 65536"},
        {"TLOB_WORKSPACE_MIB", "99999999999999999999", "1 to 65536"},
        {"TLOB_WORKSPACE_MIB", "65537", "1 to 65536"},
        {"TLOB_POLICY", "fastest", "cublas_classic"}, {"TLOB_POLICY", "fixed:cublas", "cublas_classic"},
        {"TLOB_POLICY", "threshold:0", "threshold:N"}, {"TLOB_POLICY", "", "threshold"},
        {"TLOB_TRACE", "", "a file to append to"},  {"TLOB_CONFIG", "", "the name of a file"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        clear_environment();
        setenv(bad[i][0], bad[i][1], 1);
        tlob_context_params params = host_params();
        tlob_settings s;
        cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_SETTING, "%s='%s'", bad[i][0], bad[i][1]);
        const char *message = tlob_last_error()->message;
        cr_assert(strstr(message, bad[i][0]) && strstr(message, bad[i][1]) && strstr(message, bad[i][2]), "%s", message);
    }
}

Test(settings, a_policy_of_the_other_memory_space_is_refused) {
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_policy_parse("threshold", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "fixed:cpu_ref"), "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_policy_parse("fixed:cublaslt", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params.memory = TLOB_MEMORY_CUDA;
    cr_assert_eq(tlob_policy_parse("fixed:cpu_ref", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "cpu_ref"), "%s", tlob_last_error()->message);
}

Test(settings, a_policy_from_the_environment_must_fit_too) {
    setenv("TLOB_POLICY", "fixed:cublaslt", 1);
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    setenv("TLOB_POLICY", "fixed:cpu_ref", 1);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert_eq(s.policy_origin, TLOB_ORIGIN_ENVIRONMENT);
}

Test(settings, policies_print_as_they_parse) {
    static const char *const texts[] = {"threshold:1", "threshold:64", "threshold:1000000", "fixed:cpu_ref",
                                        "fixed:cublas_classic", "fixed:cublaslt"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        tlob_policy policy;
        char text[64];
        cr_assert_eq(tlob_policy_parse(texts[i], &policy), TLOB_OK);
        tlob_policy_print(&policy, text, sizeof(text));
        cr_assert_str_eq(text, texts[i]);
    }
    static const char *const bad[] = {"",          "threshold:",   "threshold:-1", "threshold:6.4", "threshold:+7",
                                      "fixed:",    "fixed:CPU",    "fixed:cpu_ref_and_something_long_behind_it",
                                      "THRESHOLD", "threshold:99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        tlob_policy policy = {.threshold = 7};
        cr_assert_neq(tlob_policy_parse(bad[i], &policy), TLOB_OK, "'%s'", bad[i]);
        cr_assert_eq(policy.threshold, 7, "written on failure");
    }
}

Test(settings, bad_arguments) {
    tlob_context_params params = host_params();
    tlob_settings s;
    cr_assert_eq(tlob_settings_resolve(NULL, &s), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_settings_resolve(&params, NULL), TLOB_ERR_ARGUMENT);
    params.memory = (tlob_memory)3;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params = host_params();
    params.compute = (tlob_compute)9;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params = host_params();
    params.log_level = (tlob_log_level)-1;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params = host_params();
    params.policy.kind = (tlob_policy_kind)17;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params.policy = (tlob_policy){.kind = TLOB_POLICY_CALLBACK};
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT);
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "nonesuch"};
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_UNKNOWN_NAME);
    cr_assert(strstr(tlob_last_error()->message, "cpu_ref, cublas_classic, cublaslt"));
    memset(params.policy.backend, 'x', sizeof(params.policy.backend));
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_UNKNOWN_NAME, "a name without an end");
}
