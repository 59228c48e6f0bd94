/* Every environment variable that libtlob reads is here, and is read here alone: once, when settings are resolved. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

static const char *const compute_names[] = {"default", "tf32", "fp32"};
static const char *const switch_names[] = {"default", "off", "on"};
static const char *const plan_names[] = {"default", "composed", "fused"};
static const char *const log_names[] = {"default", "none", "error", "warn", "info", "debug"};

const char *tlob_compute_name(tlob_compute compute) {
    return (unsigned)compute < 3 ? compute_names[compute] : "?";
}

const char *tlob_memory_name(tlob_memory memory) {
    return memory == TLOB_MEMORY_HOST ? "host" : memory == TLOB_MEMORY_CUDA ? "cuda" : "?";
}

const char *tlob_origin_name(tlob_origin origin) {
    static const char *const names[] = {"argument", "environment", "file", "default"};
    return (unsigned)origin < 4 ? names[origin] : "?";
}

/* Index of `value` in `names` from 1 on, or 0. */
static int find_name(const char *value, const char *const *names, int count) {
    for (int i = 1; i < count; i++)
        if (!strcmp(value, names[i]))
            return i;
    return 0;
}

/* What settings are resolved from, once the arguments have been looked at. */
typedef struct sources {
    const tlob_context_params *params;
    tlob_rows rows;
    char config_path[TLOB_SETTING_TEXT];
    tlob_config config;
} sources;

/* A setting as a user wrote it: in the environment or in the file. `text` is NULL where it is in neither. */
typedef struct written {
    const char *text;
    const char *name; /* of the variable or the key */
    const char *file; /* NULL for the environment */
    tlob_origin origin;
} written;

static written look_up(const sources *from, tlob_setting setting) {
    static const char *const variables[TLOB_SETTING_COUNT] = {"TLOB_COMPUTE", "TLOB_POLICY", "TLOB_WORKSPACE_MIB",
                                                              "TLOB_LOG", "TLOB_TRACE", "TLOB_DETERMINISTIC",
                                                              "TLOB_TABLE", "TLOB_BLOCK_PLAN"};
    const char *value = getenv(variables[setting]);
    if (value)
        return (written){value, variables[setting], NULL, TLOB_ORIGIN_ENVIRONMENT};
    if (from->config.given[setting])
        return (written){from->config.text[setting], tlob_setting_keys[setting], from->config_path, TLOB_ORIGIN_FILE};
    return (written){.origin = TLOB_ORIGIN_DEFAULT};
}

static tlob_status bad_value(const written *w, const char *valid) {
    if (w->file)
        return tlob_fail(TLOB_ERR_SETTING, w->name, "'%s' has %s='%s'; valid are: %s", w->file, w->name, w->text,
                         valid);
    return tlob_fail(TLOB_ERR_SETTING, w->name, "the environment has %s='%s'; valid are: %s", w->name, w->text, valid);
}

static tlob_status resolve_compute(const sources *from, tlob_settings *settings) {
    settings->compute = from->params->compute;
    settings->compute_origin = TLOB_ORIGIN_ARGUMENT;
    if (settings->compute != TLOB_COMPUTE_DEFAULT)
        return TLOB_OK;
    written w = look_up(from, TLOB_SETTING_COMPUTE);
    settings->compute_origin = w.origin;
    if (w.text) {
        settings->compute = (tlob_compute)find_name(w.text, compute_names, 3);
        return settings->compute ? TLOB_OK : bad_value(&w, "tf32, fp32");
    }
    settings->compute = from->params->memory == TLOB_MEMORY_HOST ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
    return TLOB_OK;
}

static tlob_status resolve_log_level(const sources *from, tlob_settings *settings) {
    settings->log_level = from->params->log_level;
    settings->log_level_origin = TLOB_ORIGIN_ARGUMENT;
    if (settings->log_level != TLOB_LOG_DEFAULT)
        return TLOB_OK;
    written w = look_up(from, TLOB_SETTING_LOG);
    settings->log_level_origin = w.origin;
    if (w.text) {
        settings->log_level = (tlob_log_level)find_name(w.text, log_names, 6);
        return settings->log_level ? TLOB_OK : bad_value(&w, "none, error, warn, info, debug");
    }
    settings->log_level = TLOB_LOG_WARN;
    return TLOB_OK;
}

static tlob_status resolve_deterministic(const sources *from, tlob_settings *settings) {
    tlob_switch value = from->params->deterministic;
    settings->deterministic_origin = TLOB_ORIGIN_ARGUMENT;
    if (value == TLOB_SWITCH_DEFAULT) {
        written w = look_up(from, TLOB_SETTING_DETERMINISTIC);
        settings->deterministic_origin = w.origin;
        value = w.text ? (tlob_switch)find_name(w.text, switch_names, 3) : TLOB_SWITCH_OFF;
        if (!value)
            return bad_value(&w, "on, off");
    }
    settings->deterministic = value == TLOB_SWITCH_ON;
    return TLOB_OK;
}

static tlob_status resolve_block_plan(const sources *from, tlob_settings *settings) {
    settings->block_plan = from->params->block_plan;
    settings->block_decide = from->params->block_decide;
    settings->block_user = from->params->block_user;
    settings->block_plan_origin = TLOB_ORIGIN_ARGUMENT;
    if (settings->block_decide && settings->block_plan != TLOB_PLAN_DEFAULT)
        return tlob_fail(TLOB_ERR_ARGUMENT, "block_decide",
                         "block_plan names plan %s already: leave one of the two out",
                         tlob_block_plan_name(settings->block_plan));
    if (settings->block_decide || settings->block_plan != TLOB_PLAN_DEFAULT)
        return TLOB_OK;
    written w = look_up(from, TLOB_SETTING_BLOCK_PLAN);
    settings->block_plan_origin = w.origin;
    if (!w.text)
        return TLOB_OK;
    settings->block_plan = (tlob_block_plan)find_name(w.text, plan_names, 3);
    return settings->block_plan ? TLOB_OK : bad_value(&w, "composed, fused");
}

static tlob_status resolve_workspace(const sources *from, tlob_settings *settings) {
    settings->workspace_bytes = from->params->workspace_bytes;
    settings->workspace_origin = TLOB_ORIGIN_ARGUMENT;
    if (settings->workspace_bytes)
        return TLOB_OK;
    written w = look_up(from, TLOB_SETTING_WORKSPACE);
    settings->workspace_origin = w.origin;
    settings->workspace_bytes = TLOB_WORKSPACE_BYTES_DEFAULT;
    if (!w.text)
        return TLOB_OK;
    char *end;
    errno = 0;
    unsigned long long mib = strtoull(w.text, &end, 10);
    if (*w.text < '0' || *w.text > '9' || *end || errno || mib < 1 || mib > 65536)
        return bad_value(&w, "1 to 65536");
    settings->workspace_bytes = (size_t)mib << 20;
    return TLOB_OK;
}

static tlob_status take_path(const written *w, const char *argument, const char *valid,
                             char path[TLOB_SETTING_TEXT]) {
    size_t length = strlen(w->text);
    if (length < 1 || length >= TLOB_SETTING_TEXT)
        return w->name ? bad_value(w, valid)
                       : tlob_fail(TLOB_ERR_ARGUMENT, argument, "is '%s', must be %s", w->text, valid);
    memcpy(path, w->text, length + 1);
    return TLOB_OK;
}

static tlob_status resolve_trace(const sources *from, tlob_settings *settings) {
    written w = {from->params->trace_path, NULL, NULL, TLOB_ORIGIN_ARGUMENT};
    if (!w.text)
        w = look_up(from, TLOB_SETTING_TRACE);
    settings->trace_origin = w.origin;
    return w.text ? take_path(&w, "trace_path", "the name of a file to append to, of 1 to 255 bytes",
                              settings->trace_path)
                  : TLOB_OK;
}

/* `policy` was written by a user: whatever is wrong with it is an error of the setting. */
static tlob_status parse_policy(const sources *from, const written *w, tlob_policy *policy) {
    if (tlob_policy_parse(w->text, policy) == TLOB_OK && tlob_policy_check(policy, from->rows) == TLOB_OK)
        return TLOB_OK;
    char names[320], valid[400];
    tlob_row_names(from->rows, names, sizeof(names));
    snprintf(valid, sizeof(valid), "threshold, threshold:N, tuned, tuned:strict, fixed:BACKEND with one of %s", names);
    return bad_value(w, valid);
}

static tlob_status resolve_policy(const sources *from, tlob_settings *settings) {
    settings->policy = from->params->policy;
    settings->policy_origin = TLOB_ORIGIN_ARGUMENT;
    if (settings->policy.kind != TLOB_POLICY_DEFAULT) {
        if (settings->policy.kind == TLOB_POLICY_THRESHOLD && !settings->policy.threshold)
            settings->policy.threshold = TLOB_THRESHOLD_DEFAULT;
        return tlob_policy_check(&from->params->policy, from->rows);
    }
    written w = look_up(from, TLOB_SETTING_POLICY);
    settings->policy_origin = w.origin;
    if (w.text)
        return parse_policy(from, &w, &settings->policy);
    if (from->params->memory == TLOB_MEMORY_HOST)
        settings->policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    else
        settings->policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = TLOB_THRESHOLD_DEFAULT};
    return TLOB_OK;
}

/* A table counts for policy `tuned` alone. Given with another, it would be read by nobody: unless that policy comes
 * from a place that goes before the table's, for then the table is not looked at, as a policy there would not be. */
static tlob_status resolve_table(const sources *from, tlob_settings *settings) {
    const tlob_policy *policy = &settings->policy;
    bool tuned = policy->kind == TLOB_POLICY_TUNED;
    char name[64];
    tlob_policy_print(policy, name, sizeof(name));
    written w = {from->params->table_path, NULL, NULL, TLOB_ORIGIN_ARGUMENT};
    if (!w.text && !policy->table)
        w = look_up(from, TLOB_SETTING_TABLE);
    settings->table_origin = w.text || policy->table ? w.origin : TLOB_ORIGIN_DEFAULT;
    if (w.text && policy->table)
        return tlob_fail(TLOB_ERR_ARGUMENT, "table_path", "the policy has a table already: leave table_path NULL");
    if (w.text && tuned)
        return take_path(&w, "table_path", "the name of a table, of 1 to 255 bytes", settings->table_path);
    if (w.text && w.origin > settings->policy_origin) {
        settings->table_origin = TLOB_ORIGIN_DEFAULT;
        return TLOB_OK;
    }
    if (w.text)
        return tlob_fail(w.name ? TLOB_ERR_SETTING : TLOB_ERR_ARGUMENT, w.name ? w.name : "table_path",
                         "the table '%s' is for policy tuned, and the policy is %s (%s): set the policy to tuned, or "
                         "leave the table out", w.text, name, tlob_origin_name(settings->policy_origin));
    if (tuned && !policy->table)
        return tlob_fail(settings->policy_origin == TLOB_ORIGIN_ARGUMENT ? TLOB_ERR_ARGUMENT : TLOB_ERR_SETTING,
                         "policy", "%s (%s) needs a table of what was measured: name it by table_path, --table, "
                         "TLOB_TABLE or \"table\" in the configuration file", name,
                         tlob_origin_name(settings->policy_origin));
    return TLOB_OK;
}

/* A policy that names a backend which this memory space or this build lacks fails here, not at the first product. */
static tlob_status check_reach(const sources *from, const tlob_policy *policy, const char *backend) {
    char text[64];
    tlob_memory memory = from->params->memory;
    tlob_policy_print(policy, text, sizeof(text));
    const tlob_backend_ops *ops = tlob_row_find(from->rows, backend);
    if (ops->caps.memory != memory)
        return tlob_fail(TLOB_ERR_ARGUMENT, "policy",
                         "%s needs %s, which works on %s memory, and the context is for %s; for a host context "
                         "use fixed:cpu_ref", text, backend, tlob_memory_name(ops->caps.memory),
                         tlob_memory_name(memory));
    if (ops->missing)
        return tlob_fail(TLOB_ERR_NOT_BUILT, "policy", "%s needs %s: %s", text, backend, ops->missing);
    return TLOB_OK;
}

static tlob_status check_fit(const sources *from, const tlob_policy *policy) {
    if (policy->kind == TLOB_POLICY_FIXED)
        return check_reach(from, policy, policy->backend);
    bool misses = policy->kind == TLOB_POLICY_TUNED && !policy->strict && from->params->memory == TLOB_MEMORY_CUDA;
    if (policy->kind != TLOB_POLICY_THRESHOLD && !misses)
        return TLOB_OK;
    tlob_status status = check_reach(from, policy, "cublas_classic");
    return status == TLOB_OK ? check_reach(from, policy, "cublaslt") : status;
}

/* The file comes first, because the other settings may be in it. */
static tlob_status read_config(sources *from, tlob_settings *settings) {
    const char *path = from->params->config_path;
    settings->config_origin = TLOB_ORIGIN_ARGUMENT;
    if (!path) {
        path = getenv("TLOB_CONFIG");
        settings->config_origin = path ? TLOB_ORIGIN_ENVIRONMENT : TLOB_ORIGIN_DEFAULT;
    }
    if (!path)
        return TLOB_OK;
    size_t length = strlen(path);
    if (length < 1 || length >= sizeof(settings->config_path))
        return tlob_fail(from->params->config_path ? TLOB_ERR_ARGUMENT : TLOB_ERR_SETTING,
                         from->params->config_path ? "config_path" : "TLOB_CONFIG",
                         "'%s' is not the name of a file, of 1 to 255 bytes", path);
    memcpy(settings->config_path, path, length + 1);
    memcpy(from->config_path, path, length + 1);
    return tlob_config_read(path, &from->config);
}

static tlob_status check_enums(const tlob_context_params *params) {
    const char *where = "tlob_settings_resolve";
    if (params->memory != TLOB_MEMORY_HOST && params->memory != TLOB_MEMORY_CUDA)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "memory is %d, must be TLOB_MEMORY_HOST or TLOB_MEMORY_CUDA",
                         (int)params->memory);
    if ((unsigned)params->compute > TLOB_COMPUTE_FP32)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "compute is %d, which is no tlob_compute", (int)params->compute);
    if ((unsigned)params->log_level > TLOB_LOG_DEBUG)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "log_level is %d, which is no tlob_log_level",
                         (int)params->log_level);
    if ((unsigned)params->deterministic > TLOB_SWITCH_ON)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "deterministic is %d, which is no tlob_switch",
                         (int)params->deterministic);
    if ((unsigned)params->block_plan > TLOB_PLAN_FUSED)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "block_plan is %d, which is no tlob_block_plan",
                         (int)params->block_plan);
    return TLOB_OK;
}

tlob_status tlob_settings_resolve(const tlob_context_params *params, tlob_settings *settings) {
    if (!params || !settings)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_settings_resolve", "%s is NULL", params ? "settings" : "params");
    memset(settings, 0, sizeof(*settings));
    sources from = {.params = params, .rows = {params->backends, params->n_backends}};
    tlob_status status = check_enums(params);
    if (status == TLOB_OK)
        status = tlob_rows_check(from.rows, params->memory);
    if (status == TLOB_OK)
        status = read_config(&from, settings);
    if (status == TLOB_OK)
        status = resolve_compute(&from, settings);
    if (status == TLOB_OK)
        status = resolve_log_level(&from, settings);
    if (status == TLOB_OK)
        status = resolve_workspace(&from, settings);
    if (status == TLOB_OK)
        status = resolve_trace(&from, settings);
    if (status == TLOB_OK)
        status = resolve_deterministic(&from, settings);
    if (status == TLOB_OK)
        status = resolve_block_plan(&from, settings);
    if (status == TLOB_OK)
        status = resolve_policy(&from, settings);
    if (status == TLOB_OK)
        status = resolve_table(&from, settings);
    if (status == TLOB_OK)
        status = check_fit(&from, &settings->policy);
    return status;
}
