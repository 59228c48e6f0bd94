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

bool tune_resolve(const tlob_stream *stream, tlob_gemm *gemm) {
    tlob_settings settings;
    if (!gemm->compute && tlob_context_settings(tlob_stream_context(stream), &settings)) {
        cli_tlob_error("tune");
        return false;
    }
    if (!gemm->compute)
        gemm->compute = settings.compute;
    return true;
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

bool tune_origin(const tlob_context *ctx, tlob_table_origin *origin) {
    tlob_device_info device;
    if (!tune_device(ctx, &device))
        return false;
    memcpy(origin->device, device.name, sizeof origin->device);
    origin->sm = device.sm;
    origin->multiprocessors = device.multiprocessors;
    return true;
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

// Why it was chosen: the table had it, or these bands choose it.
static void add_reason(cJSON *object, const tune_choice *choice) {
    if (choice->kept) {
        cJSON_AddTrueToObject(object, "kept");
        return;
    }
    const double bands[2] = {round(choice->from * 1e5) / 1e3, round(choice->to * 1e5) / 1e3};
    if (choice->index >= 0)
        cJSON_AddItemToObject(object, "bands_percent", cJSON_CreateDoubleArray(bands, 2));
}

static bool record_problem(const tune_job *job, const cli_problem *problem, const tune_session *s,
                           const tune_choice *choice, bool first) {
    if (!job->measurements)
        return true;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", problem->name);
    add_gemm(object, tune_session_gemm(s));
    add_method_name(object, "default", s, tune_session_standard(s));
    add_method_name(object, "chosen", s, choice->index);
    add_reason(object, choice);
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

// --- the table ---

// The entry that answers a problem here, or NULL. False after printing why.
static bool find_entry(const tune_job *job, const tlob_gemm *gemm, const tlob_table_entry **entry) {
    tlob_device_info device;
    if (!tune_device(tlob_stream_context(job->lab->stream), &device))
        return false;
    *entry = tlob_table_find(*job->table, gemm, &device);
    return true;
}

// All that a table has but one entry.
typedef struct removal {
    const tlob_table_entry *entry;
    tlob_table *others;
    tlob_status status;
} removal;

static void copy_other(void *user, const tlob_table_entry *entry) {
    removal *r = user;
    if (entry != r->entry && !r->status)
        r->status = tlob_table_put(r->others, entry);
}

static void copy_block(void *user, const tlob_table_block *entry) {
    removal *r = user;
    if (!r->status)
        r->status = tlob_table_put_block(r->others, entry);
}

static bool remove_entry(const tune_job *job, const tlob_table_entry *entry) {
    removal r = {.entry = entry};
    r.status = tlob_table_create(&r.others);
    if (!r.status)
        tlob_table_list(*job->table, copy_other, &r);
    if (!r.status)
        tlob_table_list_blocks(*job->table, copy_block, &r);
    if (r.status) {
        cli_tlob_error("tune");
        tlob_table_destroy(&r.others);
        return false;
    }
    tlob_table_destroy(job->table);
    *job->table = r.others;
    return true;
}

// Puts what was chosen in the place of what the table had, `before` or NULL, which goes also if it is of another
// release: two would answer.
static bool put_entry(const tune_job *job, const tune_session *s, int chosen, const tlob_table_entry *before,
                      tune_summary *summary) {
    tlob_table_entry entry = {.gemm = tlob_table_problem(tune_session_gemm(s)),
                              .method = tune_session_method(s, chosen)->method};
    const tlob_context *ctx = tlob_stream_context(job->lab->stream);
    if (!tune_origin(ctx, &entry.origin))
        return false;
    find_library(ctx, entry.method.backend, entry.origin.library, sizeof entry.origin.library);
    const tlob_table_entry *same = tlob_table_same(*job->table, &entry);
    if (before || same)
        summary->replaced++;
    else
        summary->added++;
    if (tlob_table_put(*job->table, &entry)) {
        cli_tlob_error("tune");
        return false;
    }
    return !before || before == same || remove_entry(job, before);
}

// What is wrong must not stay, of whatever release.
static bool remove_wrong(const tune_job *job, const cli_problem *problem, const tlob_gemm *gemm,
                         tune_summary *summary) {
    const tlob_table_entry *entry;
    char text[256];
    bool good = find_entry(job, gemm, &entry);
    while (good && entry) {
        tlob_method_print(&entry->method, text, sizeof text);
        cli_error("%s: removed from the table: %s", problem->name, text);
        summary->removed++;
        good = remove_entry(job, entry) && find_entry(job, gemm, &entry);
    }
    return good;
}

// --- a problem ---

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

static bool compete(const tune_job *job, const tlob_gemm *gemm, const tlob_table_entry *entry, tune_session **s,
                    tune_choice *choice) {
    tlob_method standard;
    return tune_standard(job->lab->stream, gemm, &standard) &&
           tune_session_open(job->lab, gemm, &standard, entry ? &entry->method : NULL, s) &&
           tune_session_compete(*s, choice);
}

// Whether the table's method is right, but would lose its place.
static bool is_displaced(const tune_session *s, const tune_choice *choice) {
    const int index = tune_session_incumbent(s);
    return index >= 0 && !choice->kept && !*tune_session_method(s, index)->why &&
           !tune_session_method(s, index)->dropped;
}

// What the table has loses its place only by two measurements: where operands lie in memory makes a difference too. The
// second one has others beside the first, if there is memory for them.
static bool measure(const tune_job *job, const cli_problem *problem, const tlob_gemm *gemm,
                    const tlob_table_entry *entry, tune_session **s, tune_choice *choice) {
    tune_session *again = NULL;
    tune_choice second;
    if (!compete(job, gemm, entry, s, choice))
        return false;
    if (!is_displaced(*s, choice))
        return true;
    const bool good = compete(job, gemm, entry, &again, &second), lacks_memory = tune_session_lacks_memory(again);
    if (good && second.kept) {
        tune_session *first = *s;
        *s = again;
        *choice = second;
        again = first;
    }
    tune_session_close(&again);
    if (lacks_memory)
        cli_error("%s: no memory to measure it once more: one measurement decides", problem->name);
    return good || lacks_memory;
}

static bool settle(const tune_job *job, const cli_problem *problem, const tune_session *s, const tune_choice *choice,
                   const tlob_table_entry *entry, tune_summary *summary) {
    const bool first = !summary->done && !summary->unsolved;
    print_wrong(problem, s, summary);
    if (!record_problem(job, problem, s, choice, first))
        return false;
    if (choice->index < 0) {
        cli_error("%s: no method does it right", problem->name);
        summary->unsolved++;
        return remove_wrong(job, problem, tune_session_gemm(s), summary);
    }
    print_problem(job, problem, s, choice->index, summary);
    summary->done++;
    summary->kept += choice->kept;
    return choice->kept || put_entry(job, s, choice->index, entry, summary);
}

static bool run_problem(const tune_job *job, const cli_problem *problem, tune_summary *summary) {
    tlob_gemm gemm = problem->gemm;
    const tlob_table_entry *entry;
    tune_session *session = NULL;
    tune_choice choice;
    bool good = tune_resolve(job->lab->stream, &gemm) && find_entry(job, &gemm, &entry);
    if (good && measure(job, problem, &gemm, entry, &session, &choice)) {
        good = settle(job, problem, session, &choice, entry, summary);
    } else if (good) {
        good = tune_session_lacks_memory(session);
        summary->no_memory += good;
        if (good)
            cli_error("%s: not measured, for want of memory", problem->name);
    }
    tune_session_close(&session);
    return good;
}

bool tune_run(const tune_job *job, tune_summary *summary) {
    bool good = record_begin(job);
    *summary = (tune_summary){0};
    printf("%-36s %10s %10s %7s  %s\n", "problem", "us", "default us", "ratio", "method");
    for (int i = 0; i < job->problems->count && good && !summary->interrupted; i++) {
        good = run_problem(job, &job->problems->list[i], summary);
        summary->interrupted = job->lab->interrupted && *job->lab->interrupted;
    }
    if (job->measurements)
        fprintf(job->measurements, "\n]}\n");
    return good || summary->interrupted;
}
