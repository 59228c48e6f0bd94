/* The configuration file: what it may hold, what is wrong with one that is wrong, and what beats it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tlob/tlob.h>

static char path[64];

static void setup(void) {
    static const char *const variables[] = {"TLOB_COMPUTE", "TLOB_POLICY", "TLOB_WORKSPACE_MIB", "TLOB_LOG",
                                            "TLOB_TRACE", "TLOB_CONFIG", "TLOB_DETERMINISTIC", "TLOB_TABLE",
                                            "TLOB_BLOCK_PLAN"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        unsetenv(variables[i]);
    strcpy(path, "/tmp/tlob-config-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void teardown(void) {
    unlink(path);
}

TestSuite(config, .init = setup, .fini = teardown);

static void write_file(const char *text, size_t size) {
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fwrite(text, 1, size, file), size);
    fclose(file);
}

static tlob_status resolve(const char *text, tlob_settings *s) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.config_path = path;
    if (text)
        write_file(text, strlen(text));
    return tlob_settings_resolve(&params, s);
}

Test(config, every_key) {
    tlob_settings s;
    cr_assert_eq(resolve("\n{\"compute\": \"tf32\", \"policy\": \"fixed:cpu_ref\", \"workspace_mib\": 7, \"log\": \"none\","
                         " \"trace\": \"/tmp/t\", \"deterministic\": \"on\", \"block_plan\": \"fused\"}\n", &s),
                 TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(s.compute, TLOB_COMPUTE_TF32);
    cr_assert_str_eq(s.policy.backend, "cpu_ref");
    cr_assert_eq(s.workspace_bytes, (size_t)7 << 20);
    cr_assert_eq(s.log_level, TLOB_LOG_NONE);
    cr_assert_str_eq(s.trace_path, "/tmp/t");
    cr_assert(s.deterministic);
    cr_assert_eq(s.block_plan, TLOB_PLAN_FUSED);
    cr_assert_str_eq(s.config_path, path);
    const tlob_origin origins[] = {s.compute_origin, s.policy_origin, s.workspace_origin, s.log_level_origin,
                                   s.trace_origin, s.deterministic_origin, s.block_plan_origin};
    for (int i = 0; i < 7; i++)
        cr_assert_str_eq(tlob_origin_name(origins[i]), "file");
    cr_assert_eq(s.config_origin, TLOB_ORIGIN_ARGUMENT);
}

Test(config, argument_beats_environment_beats_file_beats_default) {
    tlob_context_params params = tlob_context_params_default();
    tlob_settings s;
    static const char text[] = "{\"compute\": \"tf32\", \"workspace_mib\": 7}";
    write_file(text, sizeof(text) - 1);
    setenv("TLOB_CONFIG", path, 1);
    setenv("TLOB_WORKSPACE_MIB", "9", 1);
    params.memory = TLOB_MEMORY_HOST;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(s.config_origin, TLOB_ORIGIN_ENVIRONMENT);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_FILE);
    cr_assert_eq(s.workspace_bytes, (size_t)9 << 20);
    cr_assert_eq(s.workspace_origin, TLOB_ORIGIN_ENVIRONMENT);
    cr_assert_eq(s.log_level_origin, TLOB_ORIGIN_DEFAULT);
    params.compute = TLOB_COMPUTE_FP32;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    cr_assert_eq(s.compute, TLOB_COMPUTE_FP32);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_ARGUMENT);
}

Test(config, an_empty_object_says_nothing) {
    tlob_settings s;
    cr_assert_eq(resolve("{}", &s), TLOB_OK);
    cr_assert_eq(s.compute_origin, TLOB_ORIGIN_DEFAULT);
}

Test(config, what_is_wrong_is_named) {
    static const char *const bad[][2] = {
        {"{\"compute\": \"fp16\"}", "compute='fp16'; valid are: tf32, fp32"},
        {"{\"compute\": 32}", "\"compute\" must be a string"},
        {"{\"compute\": null}", "\"compute\" must be a string"},
        {"{\"comptue\": \"fp32\"}", "\"comptue\"; valid are: compute, policy, workspace_mib, log, trace, deterministic, "
                                   "table, block_plan"},
        {"{\"block_plan\": \"default\"}", "block_plan='default'; valid are: composed, fused"},
        {"{\"Compute\": \"fp32\"}", "\"Compute\""},
        {"{\"log\": \"warn\", \"log\": \"warn\"}", "\"log\" twice"},
        {"{\"log\": \"loud\"}", "none, error, warn, info, debug"},
        {"{\"policy\": \"fixed:mkl\"}", "cpu_ref, cublas_classic, cublaslt"},
        {"{\"policy\": \"threshold:0\"}", "threshold:N"},
        {"{\"deterministic\": \"yes\"}", "deterministic='yes'; valid are: on, off"},
        {"{\"deterministic\": true}", "must be a string"},
        {"{\"workspace_mib\": \"7\"}", "\"workspace_mib\" must be a whole number"},
        {"{\"workspace_mib\": 7.5}", "whole number"},
        {"{\"workspace_mib\": 1e400}", "whole number"},
        {"{\"workspace_mib\": 0}", "1 to 65536"},
        {"{\"workspace_mib\": -1}", "1 to 65536"},
        {"{\"workspace_mib\": 65537}", "1 to 65536"},
        {"{\"trace\": \"\"}", "a file to append to"},
        {"", "line 1, column 1: this is not JSON"},
        {"{\n \"compute\": \"fp32\",\n \"log\" \"none\"\n}", "line 3, column 8: this is not JSON"},
        {"{}\n{}", "line 2, column 1: this is not JSON"},
        {"{} x", "line 1, column 4: this is not JSON"},
        {"[]", "is not one JSON object"},
        {"\"compute\"", "is not one JSON object"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        tlob_settings s;
        cr_assert_eq(resolve(bad[i][0], &s), TLOB_ERR_SETTING, "%s", bad[i][0]);
        const char *message = tlob_last_error()->message;
        cr_assert(strstr(message, bad[i][1]), "%s: no '%s' in: %s", bad[i][0], bad[i][1], message);
        cr_assert(strstr(message, path), "%s", message);
    }
}

Test(config, files_that_are_none) {
    tlob_settings s;
    char *large = malloc(70000);
    memset(large, ' ', 70000);
    write_file(large, 70000);
    free(large);
    cr_assert_eq(resolve(NULL, &s), TLOB_ERR_SETTING);
    cr_assert(strstr(tlob_last_error()->message, "65536"));
    write_file("{}\0{}", 5);
    cr_assert_eq(resolve(NULL, &s), TLOB_ERR_SETTING, "a byte 0");
    write_file("{\"log\": \"none\0x\"}", 17);
    cr_assert_eq(resolve(NULL, &s), TLOB_ERR_SETTING, "a byte 0 behind a string that is valid up to it");
    cr_assert_eq(resolve("{\"log\": \"none\\u0000x\"}", &s), TLOB_ERR_SETTING, "its escape");
    cr_assert_eq(resolve("{\"log\\u0000x\": \"none\"}", &s), TLOB_ERR_SETTING, "in a key");
    cr_assert(strstr(tlob_last_error()->message, "character 0"), "%s", tlob_last_error()->message);
    unlink(path);
    cr_assert_eq(resolve(NULL, &s), TLOB_ERR_SETTING);
    cr_assert(strstr(tlob_last_error()->message, "No such file"), "%s", tlob_last_error()->message);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(resolve(NULL, &s), TLOB_ERR_SETTING);
    cr_assert(strstr(tlob_last_error()->message, "directory"), "%s", tlob_last_error()->message);
    rmdir(path);
}

Test(config, a_context_is_made_from_it) {
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    params.memory = TLOB_MEMORY_HOST;
    params.config_path = path;
    write_file("{\"log\": \"bad\"}", 14);
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_SETTING);
    cr_assert_null(ctx);
    write_file("{\"log\": \"info\"}", 15);
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK);
    tlob_settings s;
    cr_assert_eq(tlob_context_settings(ctx, &s), TLOB_OK);
    cr_assert_eq(s.log_level, TLOB_LOG_INFO);
    tlob_context_destroy(&ctx);
}
