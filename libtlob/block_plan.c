/* Which plan a block gets, and why: decided once, when it is created, by whoever has the say. */
#include <stdio.h>

#include "libtlob/kernels/block_fused.h"
#include "libtlob/parts.h"
#include "libtlob/table.h"

const char *tlob_block_plan_name(tlob_block_plan plan) {
    static const char *const names[] = {"default", "composed", "fused"};
    return (unsigned)plan < 3 ? names[plan] : "?";
}

tlob_block_params tlob_block_params_default(void) {
    return (tlob_block_params){.shape = tlob_block_shape_default(), .max_samples = 256};
}

const char *tlob_block_fused_obstacle(const tlob_block_shape *shape) {
    if (tlob_block_fused_listed(shape))
        return NULL;
    if (shape->d_in % 8 || shape->d_in > 128 || shape->d_out % 8 || shape->d_out > 128)
        return "the fused kernels need d_in and d_out that are multiples of 8, and at most 128";
    if (shape->head_dim != 4 && shape->head_dim != 8 && shape->head_dim != 16 && shape->head_dim != 32)
        return "the fused kernels need a head_dim of 4, 8, 16 or 32";
    if (shape->axis == TLOB_AXIS_FEATURE && shape->d_out / shape->head_dim > 16)
        return "the fused kernels have room for at most 16 tokens on the FEATURE axis";
    if (shape->axis == TLOB_AXIS_TIME && shape->seq > 128)
        return "the fused kernels have room for a seq of at most 128 on the TIME axis";
    return NULL;
}

bool tlob_block_fused_shape(int index, tlob_block_shape *shape) {
#define ROW(in, out, head) {.d_in = in, .d_out = out, .head_dim = head, .seq = 1, .axis = TLOB_AXIS_FEATURE},
    static const tlob_block_shape shapes[] = {TLOB_BLOCK_FUSED_SHAPES(ROW)};
#undef ROW
    if (index < 0 || (size_t)index >= sizeof(shapes) / sizeof(*shapes))
        return false;
    *shape = shapes[index];
    return true;
}

/* Where a block is to be computed, as far as that is known. */
typedef struct place {
    const tlob_settings *settings;
    tlob_memory memory;
    const tlob_device_info *device; /* NULL: not known, and taken to be one that the fused kernels are for */
    bool has_fused_code;            /* for the device */
} place;

/* NULL, or why a block of this shape cannot be fused there. */
static const char *find_obstacle(const place *p, const tlob_block_shape *shape) {
    if (p->memory == TLOB_MEMORY_HOST)
        return "the host has no fused kernels";
    if (p->device && (p->device->sm < 90 || p->device->sm >= 120))
        return "the fused kernels need more than 200 KiB of shared memory, which GPUs of compute capability 9.0 to 11 "
               "have";
    if (p->device && !p->has_fused_code) /* older code would not wait for the kernel before, which it overlaps with */
        return "this build has no code of compute capability 9.0 for the device, or its driver is older than CUDA 12.3";
    return tlob_block_fused_obstacle(shape);
}

/* What the caller or a setting names, and who does. */
static tlob_block_plan named(const tlob_settings *settings, const tlob_block_params *params, const char **who) {
    *who = "the caller's";
    if (params->plan != TLOB_PLAN_DEFAULT)
        return params->plan;
    *who = settings->block_plan_origin == TLOB_ORIGIN_ARGUMENT      ? "the context's"
           : settings->block_plan_origin == TLOB_ORIGIN_ENVIRONMENT ? "TLOB_BLOCK_PLAN's"
                                                                    : "the configuration file's";
    return settings->block_plan;
}

/* --- who decides -------------------------------------------------------------------------------------------------- */

/* A plan that someone insists on. */
static tlob_status take(tlob_block_plan plan, const char *who, tlob_block_choice *choice) {
    choice->plan = plan;
    if (plan != TLOB_PLAN_FUSED || !*choice->obstacle)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_UNSUPPORTED, "tlob_block_explain",
                     "a block with plan fused (%s choice): %s; use plan composed, or leave the choice to libtlob", who,
                     choice->obstacle);
}

static tlob_status decide_callback(const tlob_settings *settings, const tlob_block_params *params,
                                   tlob_block_choice *choice) {
    const char *why = NULL;
    const tlob_block_plan plan = settings->block_decide(settings->block_user, params, &why);
    if (plan != TLOB_PLAN_COMPOSED && plan != TLOB_PLAN_FUSED)
        return tlob_fail(TLOB_ERR_POLICY, "block callback",
                         "returned %d, which is no plan: TLOB_PLAN_COMPOSED or TLOB_PLAN_FUSED%s%s", (int)plan,
                         why ? "; " : "", why ? why : "");
    snprintf(choice->reason, sizeof(choice->reason), "callback: %s", why ? why : "no reason given");
    return take(plan, "the callback's", choice);
}

/* Whether fused is a plan that libtlob takes by itself: the shapes of TLOB_BLOCK_FUSED_SHAPES, where the device has
 * room and code for them. */
static bool is_fused_by_shape(const tlob_block_shape *shape, const tlob_block_choice *choice) {
    return tlob_block_fused_listed(shape) && !*choice->obstacle;
}

/* The rule by shape. `miss`: of a table, or NULL. */
static void decide_by_shape(const tlob_block_shape *shape, const char *miss, tlob_block_choice *choice) {
    const bool fused = is_fused_by_shape(shape, choice);
    const char *why = *choice->obstacle ? choice->obstacle
                      : fused ? "the shape has fused kernels of its own, the fastest at every number of samples"
                              : "the shape has no fused kernels of its own, and those that shapes share are for who "
                                "asks for them";
    choice->plan = fused ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED;
    if (miss)
        snprintf(choice->reason, sizeof(choice->reason), "tuned: %.110s; %.135s", miss, why);
    else
        snprintf(choice->reason, sizeof(choice->reason), "%s", why);
}

/* What the table says, or why it says nothing that can be done. */
static tlob_status decide_tuned(const place *p, const tlob_block_params *params, tlob_block_choice *choice) {
    const tlob_policy *policy = &p->settings->policy;
    char why[240], words[200];
    const tlob_table_block *found = tlob_table_find_block(policy->table, params, p->settings->compute, p->device);
    if (found && (found->plan == TLOB_PLAN_COMPOSED || !*choice->obstacle)) {
        choice->plan = found->plan;
        snprintf(choice->reason, sizeof(choice->reason), "tuned: %.90s (%.60s; %.63s)",
                 *found->source ? found->source : "an entry of the table", found->origin.device, found->origin.library);
        return TLOB_OK;
    }
    if (!found && !is_fused_by_shape(&params->shape, choice)) { /* one plan, and nothing to miss */
        decide_by_shape(&params->shape, NULL, choice);
        return TLOB_OK;
    }
    choice->refused = found != NULL;
    if (found)
        snprintf(why, sizeof(why), "%.90s is refused: %.130s", *found->source ? found->source : "an entry of the table",
                 choice->obstacle);
    else
        tlob_table_miss_block(policy->table, params, p->settings->compute, p->device, why, sizeof(why));
    if (policy->strict) {
        tlob_table_block_words(params, p->settings->compute, words, sizeof(words));
        return tlob_fail(TLOB_ERR_POLICY, "policy tuned:strict",
                         "%s, on a block %s: %s; measure it (tlob tune --blocks does so for some numbers of samples), or "
                         "use `tuned`, which leaves such blocks to the choice by shape", tlob_table_name(policy->table), words, why);
    }
    decide_by_shape(&params->shape, why, choice);
    return TLOB_OK;
}

static tlob_status decide(const place *p, const tlob_block_params *params, tlob_block_choice *choice) {
    const char *obstacle = find_obstacle(p, &params->shape), *who;
    const tlob_block_plan plan = named(p->settings, params, &who);
    snprintf(choice->obstacle, sizeof(choice->obstacle), "%s", obstacle ? obstacle : "");
    if (plan != TLOB_PLAN_DEFAULT) {
        snprintf(choice->reason, sizeof(choice->reason), "%s choice", who);
        return take(plan, who, choice);
    }
    if (p->settings->block_decide)
        return decide_callback(p->settings, params, choice);
    if (p->settings->policy.kind == TLOB_POLICY_TUNED)
        return decide_tuned(p, params, choice);
    decide_by_shape(&params->shape, NULL, choice);
    return TLOB_OK;
}

/* --- the two questions -------------------------------------------------------------------------------------------- */

static tlob_status explain(const place *p, const tlob_block_params *params, tlob_block_choice *choice,
                           const char *where) {
    tlob_block_choice found = {0};
    if (!params || !choice)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", params ? "choice" : "params");
    tlob_status status = tlob_block_shape_check(&params->shape);
    if (status == TLOB_OK && (unsigned)params->plan > TLOB_PLAN_FUSED)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "plan is %d, which is no tlob_block_plan", (int)params->plan);
    if (status == TLOB_OK)
        status = tlob_check_positive(params->max_samples, where, "max_samples");
    if (status == TLOB_OK)
        status = decide(p, params, &found);
    if (status == TLOB_OK)
        *choice = found;
    return status;
}

tlob_status tlob_block_explain(const tlob_context *ctx, const tlob_block_params *params, tlob_block_choice *choice) {
    tlob_status status = tlob_context_check(ctx, "tlob_block_explain");
    if (status != TLOB_OK)
        return status;
    const place p = {&ctx->settings, ctx->space->memory, tlob_context_device_info(ctx), ctx->has_fused_code};
    return explain(&p, params, choice, "tlob_block_explain");
}

tlob_status tlob_block_plan_explain(const tlob_settings *settings, tlob_memory memory,
                                    const tlob_block_params *params, tlob_block_choice *choice) {
    const char *where = "tlob_block_plan_explain";
    if (!settings)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "settings is NULL");
    if (memory != TLOB_MEMORY_HOST && memory != TLOB_MEMORY_CUDA)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "memory is %d, must be TLOB_MEMORY_HOST or TLOB_MEMORY_CUDA",
                         (int)memory);
    if (settings->policy.kind == TLOB_POLICY_TUNED && !settings->policy.table)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "without a context, policy tuned needs a table in `table`");
    const place p = {settings, memory, memory == TLOB_MEMORY_HOST ? &tlob_host_device : NULL, false};
    return explain(&p, params, choice, where);
}
