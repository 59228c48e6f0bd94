#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

const tlob_device_info tlob_host_device = {.name = "host"};

tlob_status tlob_policy_check(const tlob_policy *policy, tlob_rows rows) {
    if (policy->table && policy->kind != TLOB_POLICY_TUNED)
        return tlob_fail(TLOB_ERR_ARGUMENT, "policy",
                         "it has a table, which no other kind than TLOB_POLICY_TUNED reads");
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
    case TLOB_POLICY_TUNED: /* where it has no table, a context reads one */
        return TLOB_OK;
    }
    return tlob_fail(TLOB_ERR_ARGUMENT, "policy", "kind is %d, which is no tlob_policy_kind", (int)policy->kind);
}

/* --- problems whose form counts more than their backend ----------------------------------------------------------- */

/** For small m and n, and sums so long that another form is faster, measured on an H200 with cuBLAS 13.1. */
typedef struct form_rule {
    const char *name;
    int64_t most_m, most_n;
    int64_t least_batch, most_batch;
    int64_t least_k_tf32, least_k_fp32; /* for each product of the batch */
    tlob_form form;
    const char *why;
} form_rule;

/*
 * dw_batch, the gradients of a batch of weights: a batch, which is not split, takes 3 us and 9 ns (TF32) or 17 ns (FP32)
 * for each k; a single product, which is split, 5 us and, by its size, 0.1 to 0.8 ns.
 */
static const form_rule form_rules[] = {
    {"dw_batch", 128, 128, 2, 4, 450, 300, TLOB_FORM_LOOP, "which the library does not split"},
    {"dw_batch", 256, 256, 2, 4, 700, 500, TLOB_FORM_LOOP, "which the library does not split"},
    {"dw_batch", 128, 128, 5, 8, 640, 450, TLOB_FORM_LOOP, "which the library does not split"},
    {"dw_batch", 64, 64, 9, 32, 1050, 650, TLOB_FORM_LOOP, "which the library does not split"},
};

static const form_rule *find_form_rule(const tlob_gemm *g) {
    for (size_t i = 0; i < sizeof(form_rules) / sizeof(form_rules[0]); i++) {
        const form_rule *rule = &form_rules[i];
        int64_t least_k = g->compute == TLOB_COMPUTE_FP32 ? rule->least_k_fp32 : rule->least_k_tf32;
        if (g->epilogue == TLOB_EPILOGUE_NONE && g->batch >= rule->least_batch && g->batch <= rule->most_batch &&
            g->m <= rule->most_m && g->n <= rule->most_n && g->k >= least_k * g->batch)
            return rule;
    }
    return NULL;
}

/* --- policies ------------------------------------------------------------------------------------------------------ */

/** Whole, the algorithm the backend's own choice. A name that is too long is cut, and then is no backend's. */
static void set_method(tlob_method *method, const char *backend, tlob_form form) {
    snprintf(method->backend, sizeof(method->backend), "%s", backend);
    method->form = form;
    method->n_configuration = 0;
}

static void decide_threshold(const tlob_policy *policy, const tlob_gemm *gemm, tlob_method *method, char *reason,
                             size_t size) {
    int64_t threshold = policy->threshold ? policy->threshold : TLOB_THRESHOLD_DEFAULT;
    int64_t smallest = gemm->m < gemm->n ? gemm->m : gemm->n;
    smallest = gemm->k < smallest ? gemm->k : smallest;
    bool small = smallest < threshold;
    const form_rule *rule = find_form_rule(gemm);
    set_method(method, small ? "cublas_classic" : "cublaslt", rule ? rule->form : TLOB_FORM_WHOLE);
    if (!reason)
        return;
    int used = snprintf(reason, size, "threshold: min(m, n, k) = %" PRId64 " is %s %" PRId64, smallest,
                        small ? "below" : "at least", threshold);
    if (rule && used > 0 && (size_t)used < size)
        snprintf(reason + used, size - (size_t)used, "; in form %s, by rule %s: k = %" PRId64 " of a batch of %" PRId64
                 ", %s", tlob_form_name(rule->form), rule->name, gemm->k, gemm->batch, rule->why);
}

static tlob_status decide_callback(const tlob_policy *policy, tlob_rows rows, const tlob_gemm *gemm,
                                   tlob_method *method, char *reason, size_t size) {
    const char *why = NULL;
    const char *name = policy->decide(policy->user, gemm, &why);
    if (!name)
        return tlob_fail(TLOB_ERR_POLICY, "policy callback", "returned no backend%s%s", why ? ": " : "",
                         why ? why : "");
    if (!tlob_row_find(rows, name)) {
        char names[320];
        tlob_row_names(rows, names, sizeof(names));
        return tlob_fail(TLOB_ERR_POLICY, "policy callback", "returned '%s', which is no backend; there are: %s", name,
                         names);
    }
    set_method(method, name, TLOB_FORM_WHOLE);
    if (reason)
        snprintf(reason, size, "callback: %s", why ? why : "no reason given");
    return TLOB_OK;
}

void tlob_default_decide(const tlob_device_info *device, const tlob_gemm *gemm, tlob_method *method, char *reason,
                         size_t size) {
    static const tlob_policy threshold = {.kind = TLOB_POLICY_THRESHOLD};
    if (!device || strcmp(device->name, tlob_host_device.name)) {
        decide_threshold(&threshold, gemm, method, reason, size);
        return;
    }
    set_method(method, "cpu_ref", TLOB_FORM_WHOLE);
    if (reason)
        snprintf(reason, size, "on the host, cpu_ref");
}

tlob_status tlob_policy_decide(const tlob_policy *policy, tlob_rows rows, const tlob_device_info *device,
                               const tlob_gemm *gemm, bool aligned, tlob_method *method,
                               const tlob_table_entry **entry, char *reason, size_t size) {
    *entry = NULL;
    switch (policy->kind) {
    case TLOB_POLICY_TUNED:
        return tlob_tuned_decide(policy, device, gemm, aligned, method, entry, reason, size);
    case TLOB_POLICY_FIXED:
        set_method(method, policy->backend, TLOB_FORM_WHOLE);
        if (reason)
            snprintf(reason, size, "fixed: always %s", policy->backend);
        return TLOB_OK;
    case TLOB_POLICY_CALLBACK:
        return decide_callback(policy, rows, gemm, method, reason, size);
    case TLOB_POLICY_DEFAULT:
    case TLOB_POLICY_THRESHOLD:
        break;
    }
    decide_threshold(policy, gemm, method, reason, size);
    return TLOB_OK;
}

void tlob_choice_tell(const tlob_method *method, const tlob_backend_ops *ops, tlob_choice *choice) {
    snprintf(choice->backend, sizeof(choice->backend), "%s", method->backend);
    choice->built = ops && !ops->missing;
    choice->form = method->form;
    tlob_configuration_print(method, choice->configuration, sizeof(choice->configuration));
}

tlob_status tlob_policy_ask(const tlob_policy *policy, const tlob_device_info *device, const tlob_gemm *gemm,
                            tlob_choice *choice) {
    const tlob_rows none = {0};
    tlob_status status = tlob_policy_check(policy, none);
    if (status == TLOB_OK && policy->kind == TLOB_POLICY_TUNED && !policy->table)
        status = tlob_fail(TLOB_ERR_ARGUMENT, "policy", "without a context, policy tuned needs a table in `table`");
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status != TLOB_OK)
        return status;

    tlob_choice found = {0};
    tlob_method method;
    const tlob_table_entry *entry;
    status = tlob_policy_decide(policy, none, device, gemm, true, &method, &entry, found.reason, sizeof(found.reason));
    if (status != TLOB_OK)
        return status;
    const tlob_backend_ops *ops = tlob_row_find(none, method.backend);
    tlob_choice_tell(&method, ops, &found);
    *choice = found;
    return TLOB_OK;
}

tlob_status tlob_dispatch_explain(const tlob_policy *policy, const tlob_gemm *gemm, tlob_choice *choice) {
    if (!policy || !gemm || !choice)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_dispatch_explain", "%s is NULL",
                         !policy ? "policy" : !gemm ? "gemm" : "choice");
    return tlob_policy_ask(policy, NULL, gemm, choice);
}

const tlob_device_info *tlob_context_device_info(const tlob_context *ctx) {
    return ctx->space->memory == TLOB_MEMORY_HOST ? &tlob_host_device : &ctx->device;
}

int tlob_choose(const tlob_context *ctx, const char *name, const tlob_gemm *gemm, bool aligned, tlob_method *method,
                const tlob_table_entry **entry, char *reason, size_t size, tlob_status *status) {
    int index;
    bool explicitly = name != NULL;
    *entry = NULL;
    if (explicitly) {
        set_method(method, name, TLOB_FORM_WHOLE);
        if (reason)
            snprintf(reason, size, "named by the caller");
    } else {
        *status = tlob_policy_decide(&ctx->settings.policy, tlob_context_rows(ctx), tlob_context_device_info(ctx), gemm,
                                     aligned, method, entry, reason, size);
        if (*status != TLOB_OK)
            return -1;
        name = method->backend;
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
    if (!strcmp(text, "tuned") || !strcmp(text, "tuned:strict")) {
        *policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .strict = text[5] != 0};
        return TLOB_OK;
    }
    return tlob_fail(TLOB_ERR_UNKNOWN_NAME, "tlob_policy_parse",
                     "no policy is named '%s'; there are: threshold, threshold:N, fixed:BACKEND, tuned, tuned:strict",
                     text);
}

void tlob_policy_print(const tlob_policy *policy, char *text, size_t size) {
    if (policy->kind == TLOB_POLICY_FIXED)
        snprintf(text, size, "fixed:%s", policy->backend);
    else if (policy->kind == TLOB_POLICY_TUNED)
        snprintf(text, size, "tuned%s", policy->strict ? ":strict" : "");
    else if (policy->kind == TLOB_POLICY_CALLBACK)
        snprintf(text, size, "callback");
    else if (policy->kind == TLOB_POLICY_THRESHOLD)
        snprintf(text, size, "threshold:%" PRId64, policy->threshold ? policy->threshold : TLOB_THRESHOLD_DEFAULT);
    else
        snprintf(text, size, "default");
}
