#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

tlob_status tlob_policy_check(const tlob_policy *policy, tlob_rows rows) {
    switch (policy->kind) {
    case TLOB_POLICY_DEFAULT:
        return TLOB_OK;
    case TLOB_POLICY_THRESHOLD:
        if (policy->threshold < 0)
            return tlob_fail(TLOB_ERR_ARGUMENT, "policy", "threshold is %" PRId64 ", must be at least 1 (or 0 for %d)",
                             policy->threshold, TLOB_THRESHOLD_DEFAULT);
        return TLOB_OK;
    case TLOB_POLICY_FIXED:
        if (!memchr(policy->backend, 0, sizeof(policy->backend)) || !tlob_row_find(rows, policy->backend)) {
            char names[320];
            tlob_row_names(rows, names, sizeof(names));
            return tlob_fail(TLOB_ERR_UNKNOWN_NAME, "policy", "no backend is named '%.*s'; there are: %s",
                             (int)sizeof(policy->backend), policy->backend, names);
        }
        return TLOB_OK;
    case TLOB_POLICY_CALLBACK:
        if (!policy->decide)
            return tlob_fail(TLOB_ERR_ARGUMENT, "policy", "a callback policy needs a function in `decide`");
        return TLOB_OK;
    }
    return tlob_fail(TLOB_ERR_ARGUMENT, "policy", "kind is %d, which is no tlob_policy_kind", (int)policy->kind);
}

static const char *decide_threshold(const tlob_policy *policy, const tlob_gemm *gemm, char *reason, size_t size) {
    int64_t threshold = policy->threshold ? policy->threshold : TLOB_THRESHOLD_DEFAULT;
    int64_t smallest = gemm->m < gemm->n ? gemm->m : gemm->n;
    smallest = gemm->k < smallest ? gemm->k : smallest;
    bool small = smallest < threshold;
    if (reason)
        snprintf(reason, size, "threshold: min(m, n, k) = %" PRId64 " is %s %" PRId64, smallest,
                 small ? "below" : "at least", threshold);
    return small ? "cublas_classic" : "cublaslt";
}

static const char *decide_callback(const tlob_policy *policy, tlob_rows rows, const tlob_gemm *gemm, char *reason,
                                   size_t size) {
    const char *why = NULL;
    const char *name = policy->decide(policy->user, gemm, &why);
    if (!name) {
        tlob_fail(TLOB_ERR_POLICY, "policy callback", "returned no backend%s%s", why ? ": " : "", why ? why : "");
        return NULL;
    }
    if (!tlob_row_find(rows, name)) {
        char names[320];
        tlob_row_names(rows, names, sizeof(names));
        tlob_fail(TLOB_ERR_POLICY, "policy callback", "returned '%s', which is no backend; there are: %s", name, names);
        return NULL;
    }
    if (reason)
        snprintf(reason, size, "callback: %s", why ? why : "no reason given");
    return name;
}

const char *tlob_policy_decide(const tlob_policy *policy, tlob_rows rows, const tlob_gemm *gemm, char *reason,
                               size_t size) {
    switch (policy->kind) {
    case TLOB_POLICY_FIXED:
        if (reason)
            snprintf(reason, size, "fixed: always %s", policy->backend);
        return policy->backend;
    case TLOB_POLICY_CALLBACK:
        return decide_callback(policy, rows, gemm, reason, size);
    case TLOB_POLICY_DEFAULT:
    case TLOB_POLICY_THRESHOLD:
        break;
    }
    return decide_threshold(policy, gemm, reason, size);
}

tlob_status tlob_dispatch_explain(const tlob_policy *policy, const tlob_gemm *gemm, tlob_choice *choice) {
    if (!policy || !gemm || !choice)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_dispatch_explain", "%s is NULL",
                         !policy ? "policy" : !gemm ? "gemm" : "choice");
    const tlob_rows none = {0};
    tlob_status status = tlob_policy_check(policy, none);
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status != TLOB_OK)
        return status;

    tlob_choice found = {0};
    const char *name = tlob_policy_decide(policy, none, gemm, found.reason, sizeof(found.reason));
    if (!name)
        return TLOB_ERR_POLICY;
    snprintf(found.backend, sizeof(found.backend), "%s", name);
    found.built = !tlob_row_find(none, name)->missing;
    *choice = found;
    return TLOB_OK;
}

int tlob_choose(const tlob_context *ctx, const char *name, const tlob_gemm *gemm, char *reason, size_t size,
                tlob_status *status) {
    int index;
    bool explicitly = name != NULL;
    if (explicitly && reason)
        snprintf(reason, size, "named by the caller");
    if (!explicitly &&
        !(name = tlob_policy_decide(&ctx->settings.policy, tlob_context_rows(ctx), gemm, reason, size))) {
        *status = TLOB_ERR_POLICY;
        return -1;
    }
    if (tlob_context_backend(ctx, name, &index))
        return index;
    char names[320];
    tlob_context_backend_names(ctx, names, sizeof(names));
    *status = tlob_fail(explicitly ? TLOB_ERR_UNKNOWN_NAME : TLOB_ERR_POLICY, "tlob_gemm_run",
                        "%s '%s', and this %s context has: %s",
                        explicitly ? "the caller named backend" : "the policy chose", name,
                        tlob_memory_name(ctx->space->memory), names);
    return -1;
}

static tlob_status parse_threshold(const char *text, tlob_policy *policy) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < 1 || value == INT64_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_policy_parse", "'%s' is no threshold: a whole number from 1 on",
                         text);
    *policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = value};
    return TLOB_OK;
}

/* Which names exist is not known here: a context may bring its own. */
static tlob_status parse_fixed(const char *name, tlob_policy *policy) {
    tlob_policy fixed = {.kind = TLOB_POLICY_FIXED};
    if (!tlob_name_well_formed(name, sizeof(fixed.backend))) {
        char names[128];
        tlob_row_names((tlob_rows){0}, names, sizeof(names));
        return tlob_fail(TLOB_ERR_UNKNOWN_NAME, "tlob_policy_parse",
                         "no backend can be named '%s': 1 to 23 lower case letters, digits and '_'; libtlob has: %s",
                         name, names);
    }
    snprintf(fixed.backend, sizeof(fixed.backend), "%s", name);
    *policy = fixed;
    return TLOB_OK;
}

tlob_status tlob_policy_parse(const char *text, tlob_policy *policy) {
    if (!text || !policy)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_policy_parse", "%s is NULL", text ? "policy" : "text");
    if (!strcmp(text, "threshold")) {
        *policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = TLOB_THRESHOLD_DEFAULT};
        return TLOB_OK;
    }
    if (!strncmp(text, "threshold:", 10))
        return parse_threshold(text + 10, policy);
    if (!strncmp(text, "fixed:", 6))
        return parse_fixed(text + 6, policy);
    return tlob_fail(TLOB_ERR_UNKNOWN_NAME, "tlob_policy_parse",
                     "no policy is named '%s'; there are: threshold, threshold:N, fixed:BACKEND", text);
}

void tlob_policy_print(const tlob_policy *policy, char *text, size_t size) {
    if (policy->kind == TLOB_POLICY_FIXED)
        snprintf(text, size, "fixed:%s", policy->backend);
    else if (policy->kind == TLOB_POLICY_CALLBACK)
        snprintf(text, size, "callback");
    else if (policy->kind == TLOB_POLICY_THRESHOLD)
        snprintf(text, size, "threshold:%" PRId64, policy->threshold ? policy->threshold : TLOB_THRESHOLD_DEFAULT);
    else
        snprintf(text, size, "default");
}
