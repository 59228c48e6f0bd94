// `tlob explain --block`: the plan of an attention block. The answer comes from the code that makes one.
#include "cli/explain_block.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BLOCK = CLI_KEY_BLOCK, KEY_D_IN, KEY_D_OUT, KEY_HEAD_DIM, KEY_SEQ, KEY_SAMPLES, KEY_AXIS, KEY_INFERENCE };

static const struct argp_option block_options[] = {
    {NULL, 0, NULL, 0, "An attention block:", 5},
    {"block", KEY_BLOCK, NULL, 0, "Show which plan a block gets, instead of how a product is done", 5},
    {"d-in", KEY_D_IN, "ROWS", 0, "Inputs of a column (default 32)", 5},
    {"d-out", KEY_D_OUT, "ROWS", 0, "Outputs of a column (default 16)", 5},
    {"head-dim", KEY_HEAD_DIM, "ROWS", 0, "Rows of a head, or of a token on the feature axis (default 4)", 5},
    {"seq", KEY_SEQ, "COLUMNS", 0, "Columns of a sample (default 1)", 5},
    {"samples", KEY_SAMPLES, "COUNT", 0, "The most samples of a pass (default 256)", 5},
    {"axis", KEY_AXIS, "AXIS", 0, "What attends to what: feature (the default) or time", 5},
    {"inference", KEY_INFERENCE, NULL, 0, "A block for forward passes alone", 5},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    static const char *const axes[] = {"feature", "time", NULL};
    cli_block_options *options = state->input;
    tlob_block_params *params = &options->params;
    int64_t *const sizes[] = {&params->shape.d_in, &params->shape.d_out, &params->shape.head_dim, &params->shape.seq,
                              &params->max_samples};
    if (key == KEY_BLOCK)
        options->asked = true;
    else if (key > KEY_BLOCK && key <= KEY_INFERENCE)
        options->given = block_options[1 + key - KEY_BLOCK].name;
    if (key >= KEY_D_IN && key <= KEY_SAMPLES) {
        char name[16];
        snprintf(name, sizeof name, "--%s", options->given);
        *sizes[key - KEY_D_IN] = cli_integer(state, name, arg, 1, INT64_MAX);
    } else if (key == KEY_AXIS) {
        params->shape.axis = (tlob_axis)cli_choice(state, "--axis", arg, axes);
    } else if (key == KEY_INFERENCE) {
        params->inference = true;
    } else if (key != KEY_BLOCK) {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp cli_block_argp = {.options = block_options, .parser = parse};

cli_block_options cli_block_begin(void) {
    return (cli_block_options){.params = tlob_block_params_default()};
}

typedef struct answer {
    tlob_block_choice choice;
    tlob_settings settings;
    char device[sizeof((tlob_error *)0)->message + 96];
} answer;

static tlob_status ask_device(const tlob_context_params *params, const tlob_block_params *block, answer *a) {
    tlob_context *ctx = NULL;
    tlob_status status = tlob_context_create(&ctx, params);
    if (!status)
        status = tlob_block_explain(ctx, block, &a->choice);
    if (!status)
        cli_context_describe(ctx, a->device, sizeof a->device);
    tlob_context_destroy(&ctx);
    return status;
}

// The settings alone, with the table that a context would read.
static tlob_status ask_without(tlob_memory memory, const tlob_block_params *block, answer *a) {
    tlob_settings settings = a->settings;
    tlob_table *table = NULL;
    tlob_status status = TLOB_OK;
    if (*settings.table_path) {
        status = tlob_table_read(settings.table_path, &table, NULL);
        settings.policy.table = table;
    }
    if (!status)
        status = tlob_block_plan_explain(&settings, memory, block, &a->choice);
    tlob_table_destroy(&table);
    return status;
}

// Where a build lacks the GPU's backends, the settings are known all the same.
static tlob_status ask(const tlob_context_params *params, const tlob_block_params *block, answer *a) {
    tlob_status status = tlob_settings_resolve(params, &a->settings);
    bool built = status != TLOB_ERR_NOT_BUILT;
    int count = 0;
    if (status && built)
        return status;
    if (params->memory == TLOB_MEMORY_HOST)
        return ask_device(params, block, a);
    const char *why = built && !tlob_device_count(&count) ? "the driver shows none" : tlob_last_error()->message;
    if (count > 0)
        return ask_device(params, block, a);
    snprintf(a->device, sizeof a->device, "none (%s): taken to be one that the fused kernels are for", why);
    return ask_without(params->memory, block, a);
}

static void print_table(const tlob_block_params *block, const answer *a) {
    const tlob_block_shape *s = &block->shape;
    char policy[64];
    tlob_policy_print(&a->settings.policy, policy, sizeof policy);
    printf("block      d_in %" PRId64 ", d_out %" PRId64 ", head_dim %" PRId64 ", seq %" PRId64 ", %s axis\n", s->d_in,
           s->d_out, s->head_dim, s->seq, tlob_axis_name(s->axis));
    printf("samples    %" PRId64 ", for %s\n", block->max_samples, block->inference ? "inference" : "training");
    printf("device     %s\n", a->device);
    printf("policy     %s (%s)\n", policy, tlob_origin_name(a->settings.policy_origin));
    printf("plan       %s\n", tlob_block_plan_name(a->choice.plan));
    printf("reason     %s\n", a->choice.reason);
    printf("fused      %s%s\n", *a->choice.obstacle ? "not here: " : "covers it", a->choice.obstacle);
    printf("numerics   %s\n", tlob_compute_name(a->settings.compute));
}

static int print_json(const tlob_block_params *block, const answer *a) {
    cJSON *json = cJSON_CreateObject(), *shape = cJSON_AddObjectToObject(json, "block");
    char policy[64];
    tlob_policy_print(&a->settings.policy, policy, sizeof policy);
    cJSON_AddNumberToObject(shape, "d_in", (double)block->shape.d_in);
    cJSON_AddNumberToObject(shape, "d_out", (double)block->shape.d_out);
    cJSON_AddNumberToObject(shape, "head_dim", (double)block->shape.head_dim);
    cJSON_AddNumberToObject(shape, "seq", (double)block->shape.seq);
    cJSON_AddNumberToObject(shape, "samples", (double)block->max_samples);
    cJSON_AddStringToObject(shape, "axis", tlob_axis_name(block->shape.axis));
    cJSON_AddBoolToObject(shape, "inference", block->inference);
    cJSON_AddStringToObject(json, "device", a->device);
    cJSON_AddStringToObject(json, "policy", policy);
    cJSON_AddStringToObject(json, "policy_origin", tlob_origin_name(a->settings.policy_origin));
    cJSON_AddStringToObject(json, "plan", tlob_block_plan_name(a->choice.plan));
    cJSON_AddStringToObject(json, "reason", a->choice.reason);
    cJSON_AddStringToObject(json, "obstacle", a->choice.obstacle);
    cJSON_AddStringToObject(json, "numerics", tlob_compute_name(a->settings.compute));
    char *text = cJSON_Print(json);
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return text ? CLI_OK : cli_error("no memory for the JSON text");
}

int cli_explain_block(const cli_block_options *block, const cli_context_options *context, bool json) {
    answer a = {.device = ""};
    if (ask(&context->params, &block->params, &a))
        return cli_tlob_error(NULL);
    if (json)
        return print_json(&block->params, &a);
    print_table(&block->params, &a);
    return CLI_OK;
}
