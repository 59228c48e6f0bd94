/* A decision in full: every backend, what became of it, and how the chosen one would do the problem. */
#include <stdio.h>
#include <string.h>

#include "libtlob/internal.h"

/* Why a backend can not run `gemm` in this form in `memory`, or NULL. */
static const char *find_obstacle(const tlob_backend_ops *ops, tlob_memory memory, bool deterministic, tlob_form form,
                                 const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    if (ops->caps.memory != memory)
        return memory == TLOB_MEMORY_HOST ? "works on cuda memory, and the context is for host"
                                          : "works on host memory, and the context is for cuda";
    return ops->missing ? ops->missing : tlob_form_unsupported(ops, deterministic, form, gemm, x);
}

/* The one that is picked is asked in the form that the policy wants. */
static void consider(const tlob_backend_ops *ops, tlob_memory memory, bool deterministic, const tlob_gemm *gemm,
                     const tlob_gemm_operands *x, tlob_explanation *e) {
    tlob_candidate *candidate = &e->candidate[e->candidates++];
    candidate->picked = !strcmp(ops->name, e->choice.backend);
    const tlob_form form = candidate->picked ? e->choice.form : TLOB_FORM_WHOLE;
    const char *obstacle = find_obstacle(ops, memory, deterministic, form, gemm, x);
    snprintf(candidate->backend, sizeof(candidate->backend), "%s", ops->name);
    candidate->able = !obstacle;
    if (obstacle)
        snprintf(candidate->why, sizeof(candidate->why), "%.199s", obstacle);
    else
        snprintf(candidate->why, sizeof(candidate->why), "%s%.180s", candidate->picked ? "" : "not picked: ",
                 e->choice.reason);
}

/* `gemm` has its compute mode resolved, and `e` the choice; `x` may be NULL. */
static void consider_all(tlob_rows rows, tlob_memory memory, bool deterministic, const tlob_gemm *gemm,
                         const tlob_gemm_operands *x, tlob_explanation *e) {
    const tlob_backend_ops *ops;
    e->compute = gemm->compute;
    for (int i = 0; (ops = tlob_row_at(rows, i)) && i < TLOB_CANDIDATES_MAX; i++)
        consider(ops, memory, deterministic, gemm, x, e);
}

tlob_status tlob_dispatch_candidates(const tlob_policy *policy, tlob_memory memory, const tlob_gemm *gemm,
                                     tlob_explanation *explanation) {
    const char *where = "tlob_dispatch_candidates";
    if (!explanation)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "explanation is NULL");
    if (memory != TLOB_MEMORY_HOST && memory != TLOB_MEMORY_CUDA)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "memory is %d, must be TLOB_MEMORY_HOST or TLOB_MEMORY_CUDA",
                         (int)memory);
    if (!policy || !gemm)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", policy ? "gemm" : "policy");
    tlob_explanation e = {0};
    tlob_gemm g = *gemm;
    if (g.compute == TLOB_COMPUTE_DEFAULT)
        g.compute = memory == TLOB_MEMORY_HOST ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
    tlob_status status = tlob_policy_ask(policy, memory == TLOB_MEMORY_HOST ? &tlob_host_device : NULL, &g, &e.choice);
    if (status != TLOB_OK)
        return status;
    consider_all((tlob_rows){0}, memory, false, &g, NULL, &e); /* libtlob's own all promise to be deterministic */
    *explanation = e;
    return TLOB_OK;
}

/* That a backend cannot say how is no failure of the product or the question: it is part of the answer. */
void tlob_describe(const tlob_backend_ops *ops, tlob_lane *lane, const tlob_method *method, const tlob_gemm *gemm,
                   const tlob_gemm_operands *x, tlob_lane_plan *plan) {
    const tlob_error before = *tlob_last_error();
    if (tlob_form_describe(ops, lane, method, gemm, x, plan) != TLOB_OK) {
        snprintf(plan->algorithm, sizeof(plan->algorithm), "not known: %.110s", tlob_last_error()->message);
        plan->workspace_bytes = 0;
        plan->cached = false;
        tlob_error_restore(&before);
    }
    plan->algorithm[sizeof(plan->algorithm) - 1] = 0;
}

/* How the backend would do it. With what is not known of the operands taken as apart and aligned to 256 bytes. */
static tlob_status describe(tlob_stream *stream, int index, const tlob_method *method, const tlob_gemm *gemm,
                            const tlob_gemm_operands *x, tlob_explanation *e) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    const char *unknown = NULL;
    bool able = true;
    for (int i = 0; i < e->candidates; i++)
        able = able && (e->candidate[i].able || !e->candidate[i].picked);
    if (!able) /* first, for so does tlob_gemm_run */
        unknown = "none: the backend cannot do the problem";
    else if (gemm->m == 0 || gemm->n == 0 || gemm->batch == 0)
        unknown = "none: there is nothing to compute";
    else if (!tlob_has_product(gemm))
        unknown = "none: without a product, libtlob's own kernels do the rest";
    else if (!ops->describe)
        unknown = "not known: the backend does not tell";
    if (unknown) {
        snprintf(e->algorithm, sizeof(e->algorithm), "%s", unknown);
        return TLOB_OK;
    }
    const tlob_gemm_operands none = {0};
    tlob_lane_plan plan = {0};
    void *previous;
    tlob_status status = tlob_enter(stream->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    tlob_describe(ops, stream->lanes[index], method, gemm, x ? x : &none, &plan);
    tlob_leave(stream->ctx, previous);
    memcpy(e->algorithm, plan.algorithm, sizeof(e->algorithm));
    e->workspace_bytes = plan.workspace_bytes;
    e->warm = plan.cached;
    return TLOB_OK;
}

/* Whether what a table's entry says would be refused, by the backend or for it; then the last error tells why. */
static bool is_refused(tlob_stream *stream, int index, const tlob_method *method, const tlob_gemm *gemm,
                       const tlob_gemm_operands *x) {
    const tlob_gemm_operands none = {0};
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    tlob_lane_plan plan = {0};
    void *previous;
    const char *why = tlob_form_unsupported(ops, stream->ctx->settings.deterministic, method->form, gemm, x);
    if (!why && !method->n_configuration)
        return false;
    if (!why && (!ops->adopt || !ops->describe))
        why = "the backend takes no configurations";
    if (why)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, ops->name, "supports", 0, NULL, gemm, "%s", why) != TLOB_OK;
    if (tlob_enter(stream->ctx, &previous) != TLOB_OK)
        return false; /* and then describe fails likewise */
    tlob_status status = tlob_form_describe(ops, stream->lanes[index], method, gemm, x ? x : &none, &plan);
    tlob_leave(stream->ctx, previous);
    return status == TLOB_ERR_UNSUPPORTED;
}

/* tlob_choose, and what becomes of an entry that would be refused when the problem is first needed. */
static int choose(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_method *method,
                  tlob_explanation *e, tlob_status *status) {
    const tlob_context *ctx = stream->ctx;
    const tlob_error before = *tlob_last_error();
    const tlob_table_entry *entry;
    char *reason = e->choice.reason;
    size_t size = sizeof(e->choice.reason);
    bool aligned = tlob_operand_layout(gemm, x) & TLOB_LAYOUT_ALIGNED;
    int index = tlob_choose(ctx, NULL, gemm, aligned, method, &entry, reason, size, status);
    if (!entry || (index >= 0 && !is_refused(stream, index, method, gemm, x)))
        return index;
    *status = tlob_tuned_miss(ctx, gemm, entry, method, reason, size);
    if (*status != TLOB_OK)
        return -1;
    tlob_error_restore(&before);
    if (tlob_context_backend(ctx, method->backend, &index))
        return index;
    *status = tlob_fail(TLOB_ERR_POLICY, "tlob_gemm_explain", "the policy's rule for misses chose '%s', which this "
                        "context does not have", method->backend);
    return -1;
}

tlob_status tlob_gemm_explain(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                              tlob_explanation *explanation) {
    tlob_status status = tlob_stream_check(stream, "tlob_gemm_explain");
    if (status == TLOB_OK && !explanation)
        status = tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_explain", "explanation is NULL");
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status != TLOB_OK)
        return status;
    const tlob_context *ctx = stream->ctx;
    tlob_explanation e = {0};
    tlob_gemm g = *gemm;
    if (g.compute == TLOB_COMPUTE_DEFAULT)
        g.compute = ctx->settings.compute;
    tlob_method method;
    int index = choose(stream, &g, x, &method, &e, &status);
    if (index < 0)
        return status;
    tlob_choice_tell(&method, ctx->backends[index], &e.choice);
    consider_all(tlob_context_rows(ctx), ctx->space->memory, ctx->settings.deterministic, &g, x, &e);
    status = describe(stream, index, &method, &g, x, &e);
    if (status == TLOB_OK)
        *explanation = e;
    return status;
}
