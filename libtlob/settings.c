/* Every environment variable that libtlob reads is here, and is read here alone: once, when settings are resolved. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libtlob/internal.h"

static const char *const compute_names[] = {"default", "tf32", "fp32"};
static const char *const log_names[] = {"default", "none", "error", "warn", "info", "debug"};

const char *tlob_compute_name(tlob_compute compute) {
    return (unsigned)compute < 3 ? compute_names[compute] : "?";
}

const char *tlob_memory_name(tlob_memory memory) {
    return memory == TLOB_MEMORY_HOST ? "host" : memory == TLOB_MEMORY_CUDA ? "cuda" : "?";
}

const char *tlob_origin_name(tlob_origin origin) {
    static const char *const names[] = {"argument", "environment", "default"};
    return (unsigned)origin < 3 ? names[origin] : "?";
}

static tlob_status bad_variable(const char *name, const char *value, const char *valid) {
    return tlob_fail(TLOB_ERR_SETTING, name, "the environment has %s='%s'; valid are: %s", name, value, valid);
}

/* Index of `value` in `names` from 1 on, or 0. */
static int find_name(const char *value, const char *const *names, int count) {
    for (int i = 1; i < count; i++)
        if (!strcmp(value, names[i]))
            return i;
    return 0;
}

static tlob_status resolve_compute(const tlob_context_params *params, tlob_settings *settings) {
    settings->compute = params->compute;
    settings->compute_origin = TLOB_ORIGIN_ARGUMENT;
    if (params->compute != TLOB_COMPUTE_DEFAULT)
        return TLOB_OK;
    const char *value = getenv("TLOB_COMPUTE");
    if (value) {
        settings->compute_origin = TLOB_ORIGIN_ENVIRONMENT;
        settings->compute = (tlob_compute)find_name(value, compute_names, 3);
        return settings->compute ? TLOB_OK : bad_variable("TLOB_COMPUTE", value, "tf32, fp32");
    }
    settings->compute_origin = TLOB_ORIGIN_DEFAULT;
    settings->compute = params->memory == TLOB_MEMORY_HOST ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
    return TLOB_OK;
}

static tlob_status resolve_log_level(const tlob_context_params *params, tlob_settings *settings) {
    settings->log_level = params->log_level;
    settings->log_level_origin = TLOB_ORIGIN_ARGUMENT;
    if (params->log_level != TLOB_LOG_DEFAULT)
        return TLOB_OK;
    const char *value = getenv("TLOB_LOG");
    if (value) {
        settings->log_level_origin = TLOB_ORIGIN_ENVIRONMENT;
        settings->log_level = (tlob_log_level)find_name(value, log_names, 6);
        return settings->log_level ? TLOB_OK : bad_variable("TLOB_LOG", value, "none, error, warn, info, debug");
    }
    settings->log_level_origin = TLOB_ORIGIN_DEFAULT;
    settings->log_level = TLOB_LOG_WARN;
    return TLOB_OK;
}

static tlob_status resolve_workspace(const tlob_context_params *params, tlob_settings *settings) {
    settings->workspace_bytes = params->workspace_bytes;
    settings->workspace_origin = TLOB_ORIGIN_ARGUMENT;
    if (params->workspace_bytes)
        return TLOB_OK;
    const char *value = getenv("TLOB_WORKSPACE_MIB");
    if (value) {
        char *end;
        errno = 0;
        unsigned long long mib = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || errno || mib < 1 || mib > 65536)
            return bad_variable("TLOB_WORKSPACE_MIB", value, "1 to 65536");
        settings->workspace_origin = TLOB_ORIGIN_ENVIRONMENT;
        settings->workspace_bytes = (size_t)mib << 20;
        return TLOB_OK;
    }
    settings->workspace_origin = TLOB_ORIGIN_DEFAULT;
    settings->workspace_bytes = TLOB_WORKSPACE_BYTES_DEFAULT;
    return TLOB_OK;
}

static tlob_status resolve_policy(const tlob_context_params *params, tlob_settings *settings) {
    settings->policy = params->policy;
    settings->policy_origin = TLOB_ORIGIN_ARGUMENT;
    if (params->policy.kind != TLOB_POLICY_DEFAULT) {
        if (params->policy.kind == TLOB_POLICY_THRESHOLD && !params->policy.threshold)
            settings->policy.threshold = TLOB_THRESHOLD_DEFAULT;
        return tlob_policy_check(&params->policy);
    }
    const char *value = getenv("TLOB_POLICY");
    if (value) {
        settings->policy_origin = TLOB_ORIGIN_ENVIRONMENT;
        if (tlob_policy_parse(value, &settings->policy) != TLOB_OK) {
            char names[128];
            tlob_backend_names(names, sizeof(names));
            char valid[256];
            snprintf(valid, sizeof(valid), "threshold, threshold:N, fixed:BACKEND with one of %s", names);
            return bad_variable("TLOB_POLICY", value, valid);
        }
        return TLOB_OK;
    }
    settings->policy_origin = TLOB_ORIGIN_DEFAULT;
    if (params->memory == TLOB_MEMORY_HOST)
        settings->policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    else
        settings->policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = TLOB_THRESHOLD_DEFAULT};
    return TLOB_OK;
}

/* A policy that names a backend which this memory space or this build lacks fails here, not at the first product. */
static tlob_status check_reach(const tlob_policy *policy, tlob_memory memory, const char *backend) {
    char text[64];
    tlob_policy_print(policy, text, sizeof(text));
    for (int i = 0; tlob_backend_table[i]; i++) {
        const tlob_backend_ops *ops = tlob_backend_table[i];
        if (strcmp(ops->name, backend))
            continue;
        if (ops->caps.memory != memory)
            return tlob_fail(TLOB_ERR_ARGUMENT, "policy",
                             "%s needs %s, which works on %s memory, and the context is for %s; for a host context "
                             "use fixed:cpu_ref", text, backend, tlob_memory_name(ops->caps.memory),
                             tlob_memory_name(memory));
        if (ops->missing)
            return tlob_fail(TLOB_ERR_NOT_BUILT, "policy", "%s needs %s: %s", text, backend, ops->missing);
    }
    return TLOB_OK;
}

static tlob_status check_fit(const tlob_policy *policy, tlob_memory memory) {
    if (policy->kind == TLOB_POLICY_FIXED)
        return check_reach(policy, memory, policy->backend);
    if (policy->kind != TLOB_POLICY_THRESHOLD)
        return TLOB_OK;
    tlob_status status = check_reach(policy, memory, "cublas_classic");
    return status == TLOB_OK ? check_reach(policy, memory, "cublaslt") : status;
}

tlob_status tlob_settings_resolve(const tlob_context_params *params, tlob_settings *settings) {
    const char *where = "tlob_settings_resolve";
    if (!params || !settings)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", params ? "settings" : "params");
    if (params->memory != TLOB_MEMORY_HOST && params->memory != TLOB_MEMORY_CUDA)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "memory is %d, must be TLOB_MEMORY_HOST or TLOB_MEMORY_CUDA",
                         (int)params->memory);
    if ((unsigned)params->compute > TLOB_COMPUTE_FP32)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "compute is %d, which is no tlob_compute", (int)params->compute);
    if ((unsigned)params->log_level > TLOB_LOG_DEBUG)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "log_level is %d, which is no tlob_log_level",
                         (int)params->log_level);

    memset(settings, 0, sizeof(*settings));
    tlob_status status = resolve_compute(params, settings);
    if (status == TLOB_OK)
        status = resolve_log_level(params, settings);
    if (status == TLOB_OK)
        status = resolve_workspace(params, settings);
    if (status == TLOB_OK)
        status = resolve_policy(params, settings);
    if (status == TLOB_OK)
        status = check_fit(&settings->policy, params->memory);
    return status;
}
