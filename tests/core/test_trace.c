/* The trace: one record a product, to a function and to a file. And the explanation, which is none. */
#include <criterion/criterion.h>
#include <cjson/cJSON.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tlob/tlob.h>

static char path[64];
static float a[64], b[64], d[64];

static void setup(void) {
    unsetenv("TLOB_TRACE");
    strcpy(path, "/tmp/tlob-trace-XXXXXX");
    close(mkstemp(path));
    for (int i = 0; i < 64; i++)
        a[i] = b[i] = 1;
}

static void teardown(void) {
    unlink(path);
}

TestSuite(trace, .init = setup, .fini = teardown);

static tlob_context *open_context(tlob_context_params params, tlob_stream **stream) {
    tlob_context *ctx;
    params.memory = TLOB_MEMORY_HOST;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_create(ctx, stream), TLOB_OK);
    return ctx;
}

static void close_context(tlob_context *ctx, tlob_stream *stream) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

typedef struct seen {
    int count;
    tlob_trace last;
    tlob_gemm gemm;
    char words[512];
} seen;

static void note(void *user, const tlob_trace *trace) {
    seen *s = user;
    s->count++;
    s->last = *trace;
    s->gemm = *trace->gemm;
    snprintf(s->words, sizeof(s->words), "%s|%s|%s|%s", trace->backend, trace->algorithm, trace->reason,
             trace->message);
}

Test(trace, the_callback_sees_every_product) {
    seen s = {0};
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){.trace = note, .trace_user = &s}, &stream);
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
    cr_assert_eq(s.count, 1);
    cr_assert_eq(s.gemm.compute, TLOB_COMPUTE_FP32, "resolved");
    cr_assert_eq(s.last.status, TLOB_OK);
    cr_assert(strstr(s.words, "cpu_ref|") && strstr(s.words, "fixed: always cpu_ref|"), "%s", s.words);
    cr_assert_eq(tlob_gemm_run_on(stream, "cpu_ref", &g, &x), TLOB_OK);
    cr_assert(strstr(s.words, "named by the caller"), "%s", s.words);
    cr_assert_eq(tlob_gemm_run_on(stream, "mkl", &g, &x), TLOB_ERR_UNKNOWN_NAME);
    cr_assert(!strncmp(s.words, "mkl||", 5) && strstr(s.words, "cpu_ref"), "%s", s.words);
    g.m = -3;
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(s.words, "m is -3"), "%s", s.words);
    cr_assert_eq(s.count, 4);
    tlob_stream_stats stats;
    cr_assert_eq(tlob_stream_get_stats(stream, &stats), TLOB_OK);
    cr_assert_eq(stats.products, 2);
    cr_assert_eq(stats.rejected, 2);
    close_context(ctx, stream);
}

Test(trace, the_file_gets_a_line_of_json_each) {
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){.trace_path = path}, &stream);
    tlob_gemm g = tlob_gemm_init(4, 3, 2);
    g.batch = INT64_MAX; /* more than a double holds */
    cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d}), TLOB_ERR_ARGUMENT);
    g.batch = 1;
    g.beta = __builtin_inff();
    cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .c = d, .d = d}), TLOB_OK);
    cr_assert_eq(tlob_gemm_run_on(stream, "a\"b\\c\n\xff\xc3\xa4\x01", &g, &(tlob_gemm_operands){0}),
                 TLOB_ERR_UNKNOWN_NAME);
    close_context(ctx, stream);

    FILE *file = fopen(path, "r");
    char line[8192];
    cJSON *json[3];
    for (int i = 0; i < 3; i++) {
        cr_assert_not_null(fgets(line, sizeof(line), file));
        json[i] = cJSON_Parse(line);
        cr_assert_not_null(json[i], "%s", line);
        if (i == 0)
            cr_assert(strstr(line, "\"batch\": 9223372036854775807,"), "%s", line);
    }
    cr_assert_null(fgets(line, sizeof(line), file));
    fclose(file);
    cr_assert_eq(cJSON_GetObjectItem(json[1], "k")->valueint, 2);
    cr_assert_str_eq(cJSON_GetObjectItem(json[1], "trans")->valuestring, "NN");
    cr_assert_str_eq(cJSON_GetObjectItem(json[1], "backend")->valuestring, "cpu_ref");
    cr_assert_str_eq(cJSON_GetObjectItem(json[1], "form")->valuestring, "whole");
    cr_assert_str_eq(cJSON_GetObjectItem(json[1], "beta")->valuestring, "inf");
    cr_assert_str_eq(cJSON_GetObjectItem(json[1], "status")->valuestring, "TLOB_OK");
    cr_assert_str_eq(cJSON_GetObjectItem(json[2], "backend")->valuestring, "a\"b\\c\n\xef\xbf\xbd\xc3\xa4\x01");
    for (int i = 0; i < 3; i++)
        cJSON_Delete(json[i]);
}

/* A program's locale, where this machine has one whose decimal point is a comma. */
static void use_a_comma(void) {
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    for (size_t i = 0; i < sizeof(locales) / sizeof(*locales) && !setlocale(LC_ALL, locales[i]); i++)
        continue;
}

Test(trace, a_line_is_whole_whatever_name_and_locale) {
    static char name[20000];
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){.trace_path = path}, &stream);
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    const float scalars[] = {0.5f, -1.5e-30f, 3e38f, 16777216};
    memset(name, 1, sizeof(name) - 1); /* each byte takes six */
    cr_assert_eq(tlob_gemm_run_on(stream, name, &g, &(tlob_gemm_operands){0}), TLOB_ERR_UNKNOWN_NAME);
    use_a_comma();
    for (int i = 0; i < 4; i++) {
        g.alpha = scalars[i];
        cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d}), TLOB_OK);
    }
    setlocale(LC_ALL, "C");
    close_context(ctx, stream);

    FILE *file = fopen(path, "r");
    static char line[16384];
    for (int i = -1; i < 4; i++) {
        cr_assert_not_null(fgets(line, sizeof(line), file));
        cJSON *json = cJSON_Parse(line);
        cr_assert_not_null(json, "%s", line);
        if (i >= 0)
            cr_assert_eq((float)cJSON_GetObjectItem(json, "alpha")->valuedouble, scalars[i], "%s", line);
        cJSON_Delete(json);
    }
    cr_assert_null(fgets(line, sizeof(line), file));
    fclose(file);
}

Test(trace, the_file_is_appended_to) {
    for (int i = 0; i < 2; i++) {
        setenv("TLOB_TRACE", path, 1);
        tlob_stream *stream;
        tlob_context *ctx = open_context((tlob_context_params){0}, &stream);
        tlob_gemm g = tlob_gemm_init(1, 1, 1);
        cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d}), TLOB_OK);
        close_context(ctx, stream);
    }
    FILE *file = fopen(path, "r");
    char line[8192];
    int lines = 0;
    while (fgets(line, sizeof(line), file))
        lines++;
    fclose(file);
    cr_assert_eq(lines, 2);
}

Test(trace, a_file_that_cannot_be_opened_makes_no_context) {
    tlob_context_params params = {.memory = TLOB_MEMORY_HOST, .trace_path = "/nonexistent/trace"};
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_SETTING);
    cr_assert_null(ctx);
    cr_assert(strstr(tlob_last_error()->message, "/nonexistent/trace' (argument)"), "%s", tlob_last_error()->message);
}

static void count_lines(void *user, tlob_log_level level, const char *line) {
    cr_assert_eq(level, TLOB_LOG_ERROR);
    cr_assert(strstr(line, "/dev/full"), "%s", line);
    ++*(int *)user;
}

Test(trace, a_full_disk_is_logged_once_and_counted) {
    if (access("/dev/full", W_OK))
        cr_skip_test("there is no /dev/full to write to");
    int lines = 0;
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){.trace_path = "/dev/full", .log_level = TLOB_LOG_WARN,
                                                           .log = count_lines, .log_user = &lines}, &stream);
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d}), TLOB_OK);
    tlob_stream_stats stats;
    cr_assert_eq(tlob_stream_get_stats(stream, &stats), TLOB_OK);
    cr_assert_eq(stats.trace_lost, 3);
    cr_assert_eq(lines, 1);
    close_context(ctx, stream);
}

Test(trace, a_record_that_is_cut_short_spoils_no_other) {
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){.trace_path = path}, &stream);
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    tlob_gemm_operands x = {.a = a, .b = b, .d = d};
    struct rlimit limit = {700, RLIM_INFINITY}; /* of the file: room for one record and a part of the next */
    cr_assert_eq(signal(SIGXFSZ, SIG_IGN) == SIG_ERR, 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
    tlob_stream_stats stats;
    cr_assert_eq(tlob_stream_get_stats(stream, &stats), TLOB_OK);
    close_context(ctx, stream);

    FILE *file = fopen(path, "r");
    static char line[8192];
    int whole = 0, torn = 0;
    while (fgets(line, sizeof(line), file)) {
        cJSON *json = cJSON_Parse(line);
        whole += json != NULL;
        torn += json == NULL;
        cJSON_Delete(json);
    }
    fclose(file);
    cr_assert_eq(torn, 1);
    cr_assert_eq(whole + stats.trace_lost, 5, "%d whole, %d counted as lost", whole, (int)stats.trace_lost);
}

/* --- explanations ---------------------------------------------------------------------------------------------- */

Test(explain, every_backend_is_considered) {
    tlob_stream *stream;
    tlob_context *ctx = open_context((tlob_context_params){0}, &stream);
    tlob_gemm g = tlob_gemm_init(8, 8, 8);
    tlob_explanation e;
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_str_eq(e.choice.backend, "cpu_ref");
    cr_assert_str_eq(e.choice.reason, "fixed: always cpu_ref");
    cr_assert_eq(e.compute, TLOB_COMPUTE_FP32);
    cr_assert_eq(e.candidates, tlob_backend_count());
    for (int i = 0; i < e.candidates; i++) {
        bool first = i == 0;
        cr_assert(e.candidate[i].picked == first && e.candidate[i].able == first && *e.candidate[i].why);
    }
    cr_assert_gt(strlen(e.algorithm), 0);
    g.k = 0;
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK);
    cr_assert(strstr(e.algorithm, "without a product"), "%s", e.algorithm);
    g.n = 0;
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK);
    cr_assert(strstr(e.algorithm, "nothing to compute"), "%s", e.algorithm);
    cr_assert_eq(tlob_gemm_explain(stream, NULL, NULL, &e), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_gemm_explain(NULL, &g, NULL, &e), TLOB_ERR_ARGUMENT);
    close_context(ctx, stream);
}

Test(explain, without_a_device) {
    tlob_policy policy = {.kind = TLOB_POLICY_THRESHOLD, .threshold = 64};
    tlob_gemm g = tlob_gemm_init(64, 64, 64);
    tlob_explanation e;
    cr_assert_eq(tlob_dispatch_candidates(&policy, TLOB_MEMORY_CUDA, &g, &e), TLOB_OK, "%s",
                 tlob_last_error()->message);
    cr_assert_str_eq(e.choice.backend, "cublaslt");
    cr_assert_eq(e.compute, TLOB_COMPUTE_TF32);
    cr_assert(!e.candidate[0].able && strstr(e.candidate[0].why, "host memory"), "%s", e.candidate[0].why);
    cr_assert(e.candidate[2].picked && e.candidate[2].able == e.choice.built);
    cr_assert_str_empty(e.algorithm);
    cr_assert_eq(tlob_dispatch_candidates(&policy, (tlob_memory)7, &g, &e), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_dispatch_candidates(&policy, TLOB_MEMORY_CUDA, &g, NULL), TLOB_ERR_ARGUMENT);
}
