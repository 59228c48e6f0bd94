/* Which plan a block gets, and why: decided once, when it is created. */
#include <stdio.h>

#include "libtlob/kernels/block_fused.h"
#include "libtlob/parts.h"

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

/* NULL, or why a block of this shape cannot be fused in this context. */
static const char *find_obstacle(const tlob_context *ctx, const tlob_block_shape *shape) {
    if (ctx->space->memory == TLOB_MEMORY_HOST)
        return "the host has no fused kernels";
    if (ctx->device.sm < 90 || ctx->device.sm >= 120)
        return "the fused kernels need more than 200 KiB of shared memory, which GPUs of compute capability 9.0 to 11 "
               "have";
    if (!ctx->has_fused_code) /* older code would not wait for the kernel before, which it overlaps with */
        return "this build has no code of compute capability 9.0 for the device, or the driver is older than CUDA "
               "12.3, and the fused kernels need both";
    return tlob_block_fused_obstacle(shape);
}

/* What the caller or a setting asks for, and who does. */
static tlob_block_plan wanted(const tlob_context *ctx, const tlob_block_params *params, const char **who) {
    *who = "the caller's";
    if (params->plan != TLOB_PLAN_DEFAULT)
        return params->plan;
    *who = ctx->settings.block_plan_origin == TLOB_ORIGIN_ARGUMENT      ? "the context's"
           : ctx->settings.block_plan_origin == TLOB_ORIGIN_ENVIRONMENT ? "TLOB_BLOCK_PLAN's"
                                                                        : "the configuration file's";
    return ctx->settings.block_plan;
}

tlob_status tlob_block_explain(const tlob_context *ctx, const tlob_block_params *params, tlob_block_choice *choice) {
    const char *where = "tlob_block_explain";
    tlob_status status = tlob_context_check(ctx, where);
    if (status != TLOB_OK)
        return status;
    if (!params || !choice)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", params ? "choice" : "params");
    if ((status = tlob_block_shape_check(&params->shape)) != TLOB_OK)
        return status;
    if ((unsigned)params->plan > TLOB_PLAN_FUSED)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "plan is %d, which is no tlob_block_plan", (int)params->plan);
    const char *obstacle = find_obstacle(ctx, &params->shape), *who;
    const tlob_block_plan plan = wanted(ctx, params, &who);
    if (plan == TLOB_PLAN_FUSED && obstacle)
        return tlob_fail(TLOB_ERR_UNSUPPORTED, where,
                         "a block with plan fused (%s choice): %s; use plan composed, or leave the choice to libtlob",
                         who, obstacle);
    *choice = (tlob_block_choice){.plan = plan};
    if (plan != TLOB_PLAN_DEFAULT) {
        snprintf(choice->reason, sizeof(choice->reason), "%s choice", who);
        return TLOB_OK;
    }
    if (!obstacle && !tlob_block_fused_listed(&params->shape))
        obstacle = "the shape has no fused kernels of its own, and those for any shape are for who asks for them";
    choice->plan = obstacle ? TLOB_PLAN_COMPOSED : TLOB_PLAN_FUSED;
    snprintf(choice->reason, sizeof(choice->reason), "%s",
             obstacle ? obstacle : "the shape has fused kernels of its own, the fastest at every number of samples");
    return TLOB_OK;
}
