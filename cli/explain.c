// `tlob explain`: which backend runs a matrix product, in which form, why, and how. Without a GPU it tells all but the
// algorithm. Of blocks: explain_block.c.
#include "cli/explain_block.h"
#include "cli/product.h"

#include <stdio.h>
#include <string.h>

typedef struct explain_options {
    cli_context_options context;
    cli_product_options product;
    cli_block_options block;
    int64_t threshold; // 0: not given
    bool json;
} explain_options;

enum { KEY_THRESHOLD = CLI_KEY_OWN, KEY_JSON };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "The policy:", 3},
    {"threshold", KEY_THRESHOLD, "N", 0, "Short for --policy threshold:N", 3},
    {NULL, 0, NULL, 0, "The answer:", 4},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of a table", 4},
    {0},
};

static const char doc[] =
    "Shows which backend would run a product of an M x K with a K x N matrix, in which form, the reason in words, what "
    "became of every other backend, and how the product would be done."
    "\vThe answer comes from the code that a real call goes through, but nothing is launched. The policy is that of "
    "--policy or --threshold, else of TLOB_POLICY, else of the configuration file, else the default of --device (host "
    "or cuda). Where there is no GPU, or this build or the device cannot do what the policy says, only the algorithm "
    "is not known, with the reason. A device cuda:N is an error where there are GPUs, but no such one.\n"
    "\n"
    "For example, the fused Q, K and V projections of a TLOB block at batch 256:\n"
    "\n"
    "  tlob explain 16 256 32 --batch 3\n"
    "\n"
    "With --block it shows which plan that block itself gets, composed of products or fused, and why:\n"
    "\n"
    "  tlob explain --block --samples 256";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {&cli_product_argp, 0, NULL, 0},
                                             {&cli_block_argp, 0, NULL, 0}, {0}};

static void check_end(const struct argp_state *state, const explain_options *options) {
    if (options->block.asked && (options->product.given || options->threshold))
        argp_error(state, "--block is of no product: leave sizes and options of products, and --threshold, out");
    if (options->block.given && !options->block.asked)
        argp_error(state, "--%s is of a block, and needs --block", options->block.given);
    if (!options->block.asked && state->arg_num < 3)
        argp_error(state, "three sizes are needed: M N K");
    if (options->threshold && options->context.params.policy.kind)
        argp_error(state, "--threshold and --policy exclude each other");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    explain_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        state->child_inputs[1] = &options->product;
        state->child_inputs[2] = &options->block;
        return 0;
    case KEY_THRESHOLD:
        options->threshold = cli_integer(state, "--threshold", arg, 1, INT64_MAX);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        cli_product_size(state, state->arg_num, arg, &options->product);
        return 0;
    case ARGP_KEY_END:
        check_end(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// The answer, and what it was an answer to.
typedef struct answer {
    tlob_gemm gemm;
    tlob_explanation explanation;
    char policy[64];
    char algorithm[sizeof(((tlob_error *)0)->message) + 64]; // or why it is not known
    tlob_origin origin;
    bool asked; // whether a device was
} answer;

// Whether there is a device to ask; if not, a->algorithm has the driver's word on it. Where there are devices, one that
// is not among them is an error.
static tlob_status find_device(const tlob_context_params *params, bool *found, answer *a) {
    int count = 0;
    tlob_device_info info;
    tlob_status status = TLOB_OK;
    *found = params->memory == TLOB_MEMORY_HOST;
    if (*found)
        return TLOB_OK;
    if (tlob_device_count(&count))
        snprintf(a->algorithm, sizeof a->algorithm, "not known without a device: %s", tlob_last_error()->message);
    else if (count == 0)
        snprintf(a->algorithm, sizeof a->algorithm, "not known without a device: the driver shows none");
    else
        status = tlob_device_get_info(params->device, &info);
    *found = count > 0 && !status;
    return status;
}

static tlob_status ask_device(const explain_options *options, answer *a) {
    tlob_context *ctx = NULL;
    tlob_stream *stream = NULL;
    tlob_status status = tlob_context_create(&ctx, &options->context.params);
    a->asked = true;
    if (!status)
        status = tlob_stream_open(ctx, NULL, &stream);
    if (!status)
        status = tlob_gemm_explain(stream, &a->gemm, NULL, &a->explanation);
    if (!status)
        snprintf(a->algorithm, sizeof a->algorithm, "%s", a->explanation.algorithm);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return status;
}

// The settings in force. A policy that a context would refuse, for this build or the device lacks what it chooses, is
// asked all the same: *fits is false, and a->algorithm tells why.
static tlob_status resolve(const tlob_context_params *params, bool *fits, tlob_settings *settings, answer *a) {
    tlob_status status = tlob_settings_resolve(params, settings);
    bool tuned = settings->policy.kind == TLOB_POLICY_TUNED;
    bool table_fits = tuned ? *settings->table_path != 0 : !params->table_path;
    bool lacks = status == TLOB_ERR_ARGUMENT || status == TLOB_ERR_NOT_BUILT;
    *fits = !status;
    if (status && !(lacks && table_fits && settings->policy.kind))
        return status;
    if (status)
        snprintf(a->algorithm, sizeof a->algorithm, "not known: %s", tlob_last_error()->message);
    a->gemm.compute = settings->compute;
    a->origin = settings->policy_origin;
    tlob_policy_print(&settings->policy, a->policy, sizeof a->policy);
    return TLOB_OK;
}

// Without a device: the policy alone, with the table that a context would read.
static tlob_status ask_without(const tlob_settings *settings, tlob_memory memory, answer *a) {
    tlob_policy policy = settings->policy;
    tlob_table *table = NULL;
    tlob_status status = TLOB_OK;
    if (*settings->table_path) {
        status = tlob_table_read(settings->table_path, &table, NULL);
        policy.table = table;
    }
    if (!status)
        status = tlob_dispatch_candidates(&policy, memory, &a->gemm, &a->explanation);
    tlob_table_destroy(&table);
    return status;
}

static tlob_status ask(explain_options *options, answer *a) {
    tlob_context_params *params = &options->context.params;
    if (options->threshold)
        params->policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = options->threshold};
    tlob_settings settings;
    bool fits, found;
    a->gemm = options->product.gemm;
    tlob_status status = tlob_gemm_check(&a->gemm);
    if (!status)
        status = find_device(params, &found, a);
    if (!status)
        status = resolve(params, &fits, &settings, a);
    if (status)
        return status;
    if (fits && found)
        return ask_device(options, a);
    return ask_without(&settings, params->memory, a);
}

static const char *candidate_word(const tlob_candidate *candidate) {
    if (candidate->able)
        return candidate->picked ? "picked" : "able";
    return candidate->picked ? "picked, but not able" : "not able";
}

static void print_table(const answer *a) {
    const tlob_explanation *e = &a->explanation;
    cli_product_print(&a->gemm);
    printf("policy     %s (%s)\n", a->policy, tlob_origin_name(a->origin));
    printf("backend    %s%s\n", e->choice.backend, e->choice.built ? "" : ", which this build does not contain");
    printf("form       %s\n", tlob_form_name(e->choice.form));
    if (*e->choice.configuration)
        printf("by         %s\n", e->choice.configuration);
    printf("reason     %s\n", e->choice.reason);
    printf("numerics   %s\n", tlob_compute_name(e->compute));
    printf("algorithm  %s\n", a->algorithm);
    if (a->asked)
        printf("workspace  %zu bytes\n", e->workspace_bytes);
    for (int i = 0; i < e->candidates; i++)
        printf("%s%-15s %s, %s\n", i ? "           " : "considered ", e->candidate[i].backend,
               candidate_word(&e->candidate[i]), e->candidate[i].why);
}

static int print_json(const answer *a) {
    const tlob_explanation *e = &a->explanation;
    cJSON *json = cJSON_CreateObject();
    cli_product_add(json, &a->gemm);
    cJSON_AddStringToObject(json, "policy", a->policy);
    cJSON_AddStringToObject(json, "policy_origin", tlob_origin_name(a->origin));
    cJSON_AddStringToObject(json, "backend", e->choice.backend);
    cJSON_AddBoolToObject(json, "built", e->choice.built);
    cJSON_AddStringToObject(json, "form", tlob_form_name(e->choice.form));
    cJSON_AddStringToObject(json, "configuration", e->choice.configuration);
    cJSON_AddStringToObject(json, "reason", e->choice.reason);
    cJSON_AddStringToObject(json, "numerics", tlob_compute_name(e->compute));
    cJSON_AddStringToObject(json, "algorithm", a->algorithm);
    if (a->asked)
        cJSON_AddNumberToObject(json, "workspace_bytes", (double)e->workspace_bytes);
    cJSON *candidates = cJSON_AddArrayToObject(json, "considered");
    for (int i = 0; i < e->candidates; i++) {
        cJSON *candidate = cJSON_CreateObject();
        cJSON_AddStringToObject(candidate, "backend", e->candidate[i].backend);
        cJSON_AddBoolToObject(candidate, "able", e->candidate[i].able);
        cJSON_AddBoolToObject(candidate, "picked", e->candidate[i].picked);
        cJSON_AddStringToObject(candidate, "why", e->candidate[i].why);
        cJSON_AddItemToArray(candidates, candidate);
    }
    char *text = cJSON_Print(json);
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return text ? CLI_OK : cli_error("no memory for the JSON text");
}

int cli_explain(int argc, char **argv) {
    explain_options options = {.block = cli_block_begin()};
    const struct argp argp = {own_options, parse, "M N K\n--block", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.block.asked)
        return cli_explain_block(&options.block, &options.context, options.json);
    cli_product_finish(&options.product);
    answer a = {.asked = false};
    if (ask(&options, &a))
        return cli_tlob_error(NULL);
    if (options.json)
        return print_json(&a);
    print_table(&a);
    return CLI_OK;
}
