/* Which plan a block gets on devices that are not here: on a device that is none, and says what it is told to. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/threads/device.h"

static const struct {
    int sm;
    bool code, tiles;
    const char *obstacle; /* NULL: fused */
} rows[] = {
    {75, false, false, "200 KiB of shared memory"}, {80, false, true, "200 KiB of shared memory"},
    {89, true, true, "200 KiB of shared memory"},   {90, true, true, NULL},
    {90, false, true, "no code of compute capability 9.0"}, /* built for 8.0: it would not wait for the kernel before */
    {100, true, true, NULL},                        {120, true, true, "200 KiB of shared memory"},
};

Test(plans, fused_is_for_devices_that_have_room_and_code_for_it) {
    tlob_context_params params = tlob_context_params_default();
    tlob_block_params block = tlob_block_params_default();
    tlob_context *ctx;
    params.memory = DEVICE_MEMORY;
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tlob_block_choice choice;
        ctx->device.sm = rows[i].sm;
        ctx->has_fused_code = rows[i].code;
        ctx->attend_has_tiles = rows[i].tiles;
        block.plan = TLOB_PLAN_DEFAULT;
        cr_assert_eq(tlob_block_explain(ctx, &block, &choice), TLOB_OK);
        cr_assert_eq(choice.plan, rows[i].obstacle ? TLOB_PLAN_COMPOSED : TLOB_PLAN_FUSED, "row %zu", i);
        cr_assert(!rows[i].obstacle || strstr(choice.reason, rows[i].obstacle), "row %zu: %s", i, choice.reason);
        block.plan = TLOB_PLAN_FUSED;
        cr_assert_eq(tlob_block_explain(ctx, &block, &choice), rows[i].obstacle ? TLOB_ERR_UNSUPPORTED : TLOB_OK);
        cr_assert(!rows[i].obstacle || strstr(tlob_last_error()->message, rows[i].obstacle), "row %zu: %s", i,
                  tlob_last_error()->message);
    }
    tlob_context_destroy(&ctx);
}

/* What has kernels of its own gets them; what shares them gets them if it asks, and what has none is told why. */
Test(plans, fused_kernels_that_shapes_share_are_for_who_asks) {
    static const struct {
        tlob_block_shape shape;
        const char *obstacle; /* NULL: none */
    } shapes[] = {
        {{.d_in = 40, .d_out = 24, .head_dim = 8, .seq = 3, .axis = TLOB_AXIS_FEATURE}, NULL},
        {{.d_in = 128, .d_out = 128, .head_dim = 32, .seq = 128, .axis = TLOB_AXIS_TIME}, NULL},
        {{.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_TIME}, NULL},
        {{.d_in = 136, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "at most 128"},
        {{.d_in = 32, .d_out = 20, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "multiples of 8"},
        {{.d_in = 32, .d_out = 64, .head_dim = 64, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "4, 8, 16 or 32"},
        {{.d_in = 32, .d_out = 128, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "16 tokens"},
        {{.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 129, .axis = TLOB_AXIS_TIME}, "seq of at most 128"},
    };
    tlob_context_params params = tlob_context_params_default();
    tlob_block_params block = tlob_block_params_default();
    tlob_block_choice choice;
    tlob_context *ctx;
    params.memory = DEVICE_MEMORY;
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    ctx->device.sm = 90;
    ctx->has_fused_code = true;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        const char *obstacle = shapes[i].obstacle;
        block.shape = shapes[i].shape;
        block.plan = TLOB_PLAN_DEFAULT;
        cr_assert_eq(tlob_block_explain(ctx, &block, &choice), TLOB_OK);
        cr_assert(choice.plan == TLOB_PLAN_COMPOSED &&
                      strstr(choice.reason, obstacle ? obstacle : "no fused kernels of its own"),
                  "shape %zu: %s", i, choice.reason);
        block.plan = TLOB_PLAN_FUSED;
        cr_assert_eq(tlob_block_explain(ctx, &block, &choice), obstacle ? TLOB_ERR_UNSUPPORTED : TLOB_OK);
        cr_assert(!obstacle || strstr(tlob_last_error()->message, obstacle), "shape %zu: %s", i,
                  tlob_last_error()->message);
    }
    tlob_context_destroy(&ctx);
}
