/* Which plan a block gets on devices that are not here: on a device that is none, and says what it is told to. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/block_fused.h"
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

/* --- who decides -------------------------------------------------------------------------------------------------- */

static tlob_block_params asked; /* what the callback was last asked */

static tlob_block_plan answer(void *user, const tlob_block_params *params, const char **reason) {
    asked = *params;
    *reason = "few samples";
    return *(const tlob_block_plan *)user;
}

static tlob_context *open_with(tlob_context_params params) {
    tlob_context *ctx = NULL;
    params.memory = DEVICE_MEMORY;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    ctx->has_fused_code = true;
    return ctx;
}

static void decides(const tlob_context *ctx, const tlob_block_params *block, tlob_block_plan plan, const char *words) {
    tlob_block_choice choice;
    cr_assert_eq(tlob_block_explain(ctx, block, &choice), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(choice.plan, plan, "%s: %s", tlob_block_plan_name(choice.plan), choice.reason);
    cr_assert(strstr(choice.reason, words), "no '%s' in: %s", words, choice.reason);
}

static void fails(const tlob_context *ctx, const tlob_block_params *block, tlob_status status, const char *words) {
    tlob_block_choice choice;
    tlob_block *made = (tlob_block *)(void *)&made;
    cr_assert_eq(tlob_block_explain(ctx, block, &choice), status, "%s", tlob_last_error()->message);
    cr_assert(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);
    cr_assert_eq(tlob_block_create_with((tlob_context *)(uintptr_t)ctx, block, &made), status);
    cr_assert_null(made);
}

Test(plans, a_callback_decides_and_gets_no_other_plan) {
    static tlob_block_plan says = TLOB_PLAN_COMPOSED;
    tlob_context_params params = tlob_context_params_default();
    tlob_block_params block = tlob_block_params_default();
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    params.block_decide = answer;
    params.block_user = &says;
    setenv("TLOB_BLOCK_PLAN", "fused", 1); /* the argument goes before it */
    tlob_context *ctx = open_with(params);
    block.max_samples = 77;
    block.inference = true;
    decides(ctx, &block, TLOB_PLAN_COMPOSED, "callback: few samples");
    cr_assert(asked.max_samples == 77 && asked.inference && asked.plan == TLOB_PLAN_DEFAULT && asked.shape.d_in == 32);
    says = TLOB_PLAN_FUSED;
    decides(ctx, &block, TLOB_PLAN_FUSED, "callback: few samples");
    asked.max_samples = 0;
    block.plan = TLOB_PLAN_COMPOSED;
    decides(ctx, &block, TLOB_PLAN_COMPOSED, "the caller's choice");
    cr_assert_eq(asked.max_samples, 0, "nobody is asked where the caller names the plan");
    block.plan = TLOB_PLAN_DEFAULT;
    block.shape.d_in = 31;
    fails(ctx, &block, TLOB_ERR_UNSUPPORTED, "(the callback's choice): the fused kernels need d_in and d_out");
    static const int none[] = {TLOB_PLAN_DEFAULT, 3, -1};
    for (int i = 0; i < 3; i++) {
        says = (tlob_block_plan)none[i];
        fails(ctx, &block, TLOB_ERR_POLICY, "which is no plan: TLOB_PLAN_COMPOSED or TLOB_PLAN_FUSED; few samples");
    }
    tlob_context_destroy(&ctx);
    params.block_plan = TLOB_PLAN_FUSED;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "block_plan names plan fused"), "%s", tlob_last_error()->message);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static char warned[512];

static void note_warning(void *user, tlob_log_level level, const char *line) {
    (void)user;
    if (level == TLOB_LOG_WARN)
        snprintf(warned, sizeof(warned), "%s", line);
}

static tlob_table_block entry_for(const tlob_block_params *block, tlob_block_plan plan) {
    tlob_table_block entry = {.shape = block->shape, .samples = block->max_samples, .inference = block->inference,
                              .compute = TLOB_COMPUTE_TF32, .plan = plan,
                              .origin = {.device = "fake", .sm = 90, .multiprocessors = 132}};
    tlob_table_block_library(entry.origin.library, sizeof(entry.origin.library));
    return entry;
}

static void put(tlob_table *table, tlob_table_block entry) {
    cr_assert_eq(tlob_table_put_block(table, &entry), TLOB_OK, "%s", tlob_last_error()->message);
}

Test(plans, a_table_decides_and_a_miss_is_by_shape_or_an_error) {
    tlob_context_params params = tlob_context_params_default();
    tlob_block_params block = tlob_block_params_default(), other = block, time = block, shared = block;
    tlob_table *table;
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    cr_assert_eq(tlob_table_create(&table), TLOB_OK);
    block.max_samples = 77;
    put(table, entry_for(&block, TLOB_PLAN_COMPOSED));
    tlob_table_block old = entry_for(&other, TLOB_PLAN_COMPOSED);
    snprintf(old.origin.library, sizeof(old.origin.library), "libtlob 0.0.1");
    put(table, old);
    time.shape.axis = shared.shape.axis = TLOB_AXIS_TIME;
    shared.shape.seq = 9;
    put(table, entry_for(&shared, TLOB_PLAN_FUSED));
    params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table};
    for (int strict = 0; strict < 2; strict++) {
        params.policy.strict = strict;
        tlob_context *ctx = open_with(params);
        decides(ctx, &block, TLOB_PLAN_COMPOSED, "tuned: an entry of the table (fake; libtlob ");
        block.inference = true; /* which is another block */
        if (strict) {
            fails(ctx, &block, TLOB_ERR_POLICY, "77 samples, inference, tf32: no entry for this block; measure it");
            fails(ctx, &other, TLOB_ERR_POLICY, "does not count here: it is of 'libtlob 0.0.1'");
        } else {
            decides(ctx, &block, TLOB_PLAN_FUSED, "tuned: no entry for this block; the shape has fused kernels");
            decides(ctx, &other, TLOB_PLAN_FUSED, "does not count here: it is of 'libtlob 0.0.1'");
        }
        block.inference = false;
        decides(ctx, &time, TLOB_PLAN_COMPOSED, "no fused kernels of its own"); /* nothing to miss */
        decides(ctx, &shared, TLOB_PLAN_FUSED, "tuned: an entry of the table");
        block.plan = TLOB_PLAN_FUSED;
        decides(ctx, &block, TLOB_PLAN_FUSED, "the caller's choice");
        block.plan = TLOB_PLAN_DEFAULT;
        ctx->has_fused_code = false;
        decides(ctx, &block, TLOB_PLAN_COMPOSED, "tuned: an entry of the table");
        tlob_context_destroy(&ctx);
    }
    tlob_table_destroy(&table);
}

/* Known trap: what a table says cannot be done, and something else is done without a word. */
Test(plans, an_entry_that_says_fused_where_it_is_not_is_warned_of) {
    tlob_context_params params = tlob_context_params_default();
    const tlob_block_params block = tlob_block_params_default();
    tlob_block_choice choice;
    tlob_block *made;
    tlob_table *table;
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    cr_assert_eq(tlob_table_create(&table), TLOB_OK);
    put(table, entry_for(&block, TLOB_PLAN_FUSED));
    params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table};
    params.log = note_warning;
    params.log_level = TLOB_LOG_WARN;
    tlob_context *ctx = open_with(params);
    decides(ctx, &block, TLOB_PLAN_FUSED, "tuned: an entry of the table (fake; ");
    ctx->has_fused_code = false;
    decides(ctx, &block, TLOB_PLAN_COMPOSED, "an entry of the table is refused: this build has no code of compute");
    cr_assert_eq(tlob_block_explain(ctx, &block, &choice), TLOB_OK);
    cr_assert(choice.refused && strstr(choice.obstacle, "no code of compute capability 9.0"));
    cr_assert_eq(tlob_block_create_with(ctx, &block, &made), TLOB_OK);
    cr_assert(strstr(warned, "plan composed: tuned: an entry of the table is refused"), "%s", warned);
    tlob_block_destroy(&made);
    tlob_context_destroy(&ctx);
    params.policy.strict = true;
    ctx = open_with(params);
    ctx->has_fused_code = false;
    fails(ctx, &block, TLOB_ERR_POLICY, "is refused: this build has no code");
    tlob_context_destroy(&ctx);
    tlob_table_destroy(&table);
}

Test(plans, every_shape_of_the_list_has_no_obstacle) {
    tlob_block_shape shape = {0};
    int count = 0;
    while (tlob_block_fused_shape(count, &shape)) {
        cr_assert_null(tlob_block_fused_obstacle(&shape));
        cr_assert_eq(tlob_block_shape_check(&shape), TLOB_OK);
        count++;
    }
    cr_assert(count > 0 && !tlob_block_fused_shape(-1, &shape) && shape.d_out == 16, "the last one stays");
}

/* Without a context, and so without a device, which is then one that has what it takes. */
Test(plans, are_explained_without_a_device) {
    tlob_context_params params = tlob_context_params_default();
    tlob_block_params block = tlob_block_params_default();
    tlob_block_choice choice;
    tlob_settings settings;
    params.memory = TLOB_MEMORY_HOST;
    cr_assert_eq(tlob_settings_resolve(&params, &settings), TLOB_OK);
    cr_assert_eq(tlob_block_plan_explain(&settings, TLOB_MEMORY_HOST, &block, &choice), TLOB_OK);
    cr_assert(choice.plan == TLOB_PLAN_COMPOSED && strstr(choice.obstacle, "the host has no"));
    cr_assert_eq(tlob_block_plan_explain(&settings, TLOB_MEMORY_CUDA, &block, &choice), TLOB_OK);
    cr_assert(choice.plan == TLOB_PLAN_FUSED && !*choice.obstacle);
    settings.block_plan = TLOB_PLAN_FUSED;
    block.shape.d_out = 20;
    cr_assert_eq(tlob_block_plan_explain(&settings, TLOB_MEMORY_CUDA, &block, &choice), TLOB_ERR_UNSUPPORTED);
    settings.block_plan = TLOB_PLAN_DEFAULT;
    settings.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED};
    cr_assert_eq(tlob_block_plan_explain(&settings, TLOB_MEMORY_CUDA, &block, &choice), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_block_plan_explain(NULL, TLOB_MEMORY_CUDA, &block, &choice), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_block_plan_explain(&settings, (tlob_memory)0, &block, &choice), TLOB_ERR_ARGUMENT);
    block.max_samples = 0;
    settings.policy.kind = TLOB_POLICY_FIXED;
    cr_assert_eq(tlob_block_plan_explain(&settings, TLOB_MEMORY_HOST, &block, &choice), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "max_samples is 0"), "%s", tlob_last_error()->message);
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
