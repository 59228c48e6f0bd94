#include "cli/tune_run.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- around the measurement ---

bool tune_oracle_open(tlob_context **ctx, tlob_stream **stream) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    params.compute = TLOB_COMPUTE_FP32;
    params.deterministic = TLOB_SWITCH_OFF;
    *stream = NULL;
    if (!tlob_context_create(ctx, &params) && !tlob_stream_open(*ctx, NULL, stream))
        return true;
    cli_tlob_error("the oracle");
    return false;
}

bool tune_standard(const tlob_stream *stream, const tlob_gemm *gemm, tlob_method *standard) {
    tlob_settings settings;
    tlob_choice choice;
    if (tlob_context_settings(tlob_stream_context(stream), &settings) ||
        tlob_dispatch_explain(&settings.policy, gemm, &choice)) {
        cli_tlob_error("the policy");
        return false;
    }
    *standard = (tlob_method){.form = choice.form};
    memcpy(standard->backend, choice.backend, sizeof standard->backend);
    return true;
}

bool tune_device(const tlob_context *ctx, tlob_device_info *device) {
    *device = (tlob_device_info){.name = "host"};
    if (tlob_context_memory(ctx) == TLOB_MEMORY_HOST || !tlob_device_get_info(tlob_context_device(ctx), device))
        return true;
    cli_tlob_error("tune");
    return false;
}

static void find_library(const tlob_context *ctx, const char *backend, char *text, size_t size) {
    tlob_backend_info info;
    *text = 0;
    for (int i = 0; i < tlob_context_backend_count(ctx); i++)
        if (!tlob_context_backend_get_info(ctx, i, &info) && !strcmp(info.name, backend))
            snprintf(text, size, "%s", info.version);
}

// --- the record of measurements ---

static void add_integer(cJSON *object, const char *key, int64_t value) {
    char digits[32]; // as they are: a double holds no int64
    snprintf(digits, sizeof digits, "%" PRId64, value);
    cJSON_AddRawToObject(object, key, digits);
}

static void add_time(cJSON *object, const char *key, double us) {
    if (isfinite(us))
        cJSON_AddNumberToObject(object, key, round(us * 1000) / 1000);
    else
        cJSON_AddNullToObject(object, key);
}

// As tables have it: what does not count in this problem is left out.
static void add_gemm(cJSON *object, const tlob_gemm *g) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    const bool batched = g->batch > 1, aux = t->reads_aux || t->writes_aux, bias = t->reads_bias || t->writes_bgrad;
    const struct {
        const char *key;
        int64_t value;
        bool counts;
    } sizes[] = {
        {"beta", g->beta != 0, true},
        {"m", g->m, true},
        {"n", g->n, true},
        {"k", g->k, true},
        {"lda", g->lda, true},
        {"ldb", g->ldb, true},
        {"ldc", g->ldc, true},
        {"batch", g->batch, true},
        {"stride_a", g->stride_a, batched},
        {"stride_b", g->stride_b, batched},
        {"stride_c", g->stride_c, batched},
        {"ld_aux", g->ld_aux, aux},
        {"stride_aux", g->stride_aux, aux && batched},
        {"stride_bias", g->stride_bias, bias && batched},
    };
    cJSON *gemm = cJSON_AddObjectToObject(object, "gemm");
    cJSON_AddStringToObject(gemm, "transa", g->transa ? "t" : "n");
    cJSON_AddStringToObject(gemm, "transb", g->transb ? "t" : "n");
    cJSON_AddStringToObject(gemm, "compute", tlob_compute_name(g->compute));
    cJSON_AddStringToObject(gemm, "epilogue", t->name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].counts)
            add_integer(gemm, sizes[i].key, sizes[i].value);
}

static void add_method_name(cJSON *object, const char *key, const tune_session *s, int index) {
    char text[256];
    if (index < 0) {
        cJSON_AddNullToObject(object, key);
        return;
    }
    tlob_method_print(&tune_session_method(s, index)->method, text, sizeof text);
    cJSON_AddStringToObject(object, key, text);
}

static void add_method(cJSON *methods, const tune_session *s, int index) {
    const tune_method *m = tune_session_method(s, index);
    cJSON *object = cJSON_CreateObject();
    add_method_name(object, "method", s, index);
    cJSON_AddStringToObject(object, "backend", m->method.backend);
    cJSON_AddStringToObject(object, "form", tlob_form_name(m->method.form));
    cJSON *configuration = cJSON_AddObjectToObject(object, "configuration");
    for (int i = 0; i < m->method.n_configuration; i++)
        add_integer(configuration, m->method.configuration[i].name, m->method.configuration[i].value);
    add_time(object, "warm_us", m->warm_us);
    add_time(object, "cold_us", m->cold_us);
    cJSON_AddStringToObject(object, "check", *m->why ? m->why : "ok");
    if (m->dropped)
        cJSON_AddTrueToObject(object, "dropped");
    cJSON_AddItemToArray(methods, object);
}

static bool record_text(FILE *file, cJSON *object, const char *before) {
    char *text = cJSON_PrintUnformatted(object);
    if (text)
        fprintf(file, "%s%s", before, text);
    else
        cli_error("out of memory");
    bool good = text != NULL;
    cJSON_free(text);
    cJSON_Delete(object);
    return good;
}

static bool record_problem(const tune_job *job, const cli_problem *problem, const tune_session *s, int chosen,
                           bool first) {
    if (!job->measurements)
        return true;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", problem->name);
    add_gemm(object, tune_session_gemm(s));
    add_method_name(object, "default", s, tune_session_standard(s));
    add_method_name(object, "chosen", s, chosen);
    cJSON *methods = cJSON_AddArrayToObject(object, "methods");
    for (int i = 0; i < tune_session_count(s); i++)
        add_method(methods, s, i);
    return record_text(job->measurements, object, first ? "\n" : ",\n");
}

// Up to the array of problems.
static bool record_begin(const tune_job *job) {
    char device[192], library[sizeof((tlob_backend_info *)0)->version] = "";
    const tlob_context *ctx = tlob_stream_context(job->lab->stream);
    tlob_backend_info info;
    if (!job->measurements)
        return true;
    cli_context_describe(ctx, device, sizeof device);
    for (int i = 0; i < tlob_context_backend_count(ctx); i++)
        if (!tlob_context_backend_get_info(ctx, i, &info) && *info.version)
            memcpy(library, info.version, sizeof library);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "format", "tlob-tune");
    cJSON_AddNumberToObject(object, "version", 1);
    cJSON_AddStringToObject(object, "device", device);
    cJSON_AddStringToObject(object, "library", library);
    cJSON_AddStringToObject(object, "cache", job->lab->cold ? "cold" : "warm");
    cJSON_AddNumberToObject(object, "band_percent", round(job->lab->band * 1e5) / 1e3);
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (text)
        fprintf(job->measurements, "%.*s,\"problems\":[", (int)strlen(text) - 1, text);
    else
        cli_error("out of memory");
    bool good = text != NULL;
    cJSON_free(text);
    return good;
}

// --- a problem ---

static bool put_entry(const tune_job *job, const tune_session *s, int chosen) {
    tlob_table_entry entry = {.gemm = tlob_table_problem(tune_session_gemm(s)),
                              .method = tune_session_method(s, chosen)->method};
    const tlob_context *ctx = tlob_stream_context(job->lab->stream);
    tlob_device_info device;
    if (!tune_device(ctx, &device))
        return false;
    memcpy(entry.origin.device, device.name, sizeof entry.origin.device);
    entry.origin.sm = device.sm;
    entry.origin.multiprocessors = device.multiprocessors;
    find_library(ctx, entry.method.backend, entry.origin.library, sizeof entry.origin.library);
    if (!tlob_table_put(job->table, &entry))
        return true;
    cli_tlob_error("tune");
    return false;
}

static double deciding_time(const tune_job *job, const tune_method *m) {
    return job->lab->cold ? m->cold_us : m->warm_us;
}

static void print_wrong(const cli_problem *problem, const tune_session *s, tune_summary *summary) {
    char text[256];
    for (int i = 0; i < tune_session_count(s); i++) {
        const tune_method *m = tune_session_method(s, i);
        if (!*m->why || m->dropped)
            continue;
        tlob_method_print(&m->method, text, sizeof text);
        cli_error("%s: %s: %s", problem->name, text, m->why);
        summary->wrong++;
    }
    summary->methods += tune_session_count(s);
}

static void print_problem(const tune_job *job, const cli_problem *problem, const tune_session *s, int chosen,
                          tune_summary *summary) {
    const tune_method *m = tune_session_method(s, chosen);
    const int standard = tune_session_standard(s);
    const double us = deciding_time(job, m),
                 standard_us = standard < 0 ? NAN : deciding_time(job, tune_session_method(s, standard));
    char text[256];
    tlob_method_print(&m->method, text, sizeof text);
    if (isfinite(standard_us)) {
        const double ratio = log(standard_us / us);
        printf("%-36s %10.2f %10.2f %7.2f  %s\n", problem->name, us, standard_us, standard_us / us, text);
        summary->log_ratio += ratio;
        summary->ratios++;
        if (problem->gemm.m < 128 && problem->gemm.n < 128) {
            summary->log_ratio_small += ratio;
            summary->ratios_small++;
        }
    } else {
        printf("%-36s %10.2f %10s %7s  %s\n", problem->name, us, "-", "-", text);
    }
    fflush(stdout);
}

static bool run_problem(const tune_job *job, const cli_problem *problem, tune_session *s, tune_summary *summary) {
    const bool first = !summary->done && !summary->unsolved;
    int chosen;
    if (!tune_session_compete(s, &chosen))
        return false;
    print_wrong(problem, s, summary);
    if (!record_problem(job, problem, s, chosen, first))
        return false;
    if (chosen < 0) {
        cli_error("%s: no method does it right", problem->name);
        summary->unsolved++;
        return true;
    }
    print_problem(job, problem, s, chosen, summary);
    summary->done++;
    return put_entry(job, s, chosen);
}

bool tune_run(const tune_job *job, tune_summary *summary) {
    bool good = record_begin(job);
    *summary = (tune_summary){0};
    printf("%-36s %10s %10s %7s  %s\n", "problem", "us", "default us", "ratio", "method");
    for (int i = 0; i < job->problems->count && good && !summary->interrupted; i++) {
        const cli_problem *problem = &job->problems->list[i];
        tune_session *session = NULL;
        tlob_method standard;
        good = tune_standard(job->lab->stream, &problem->gemm, &standard) &&
               tune_session_open(job->lab, &problem->gemm, &standard, &session) &&
               run_problem(job, problem, session, summary);
        summary->interrupted = job->lab->interrupted && *job->lab->interrupted;
        tune_session_close(&session);
    }
    if (job->measurements)
        fprintf(job->measurements, "\n]}\n");
    return good || summary->interrupted;
}
