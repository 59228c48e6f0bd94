// `tlob explain`: which backend runs a matrix product, in which form, why, and how. Without a GPU it tells all but the
// algorithm.
#include "cli/common.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct explain_options {
    cli_context_options context;
    tlob_gemm gemm;
    int64_t lda, ldb, ldc, ld_aux;                              // 0: packed
    int64_t stride_a, stride_b, stride_c, stride_aux, stride_bias; // -1: one after the other
    int64_t threshold;                                          // 0: not given
    bool json;
} explain_options;

enum {
    KEY_TRANSA = CLI_KEY_OWN,
    KEY_TRANSB,
    KEY_BATCH,
    KEY_EPILOGUE,
    KEY_ALPHA,
    KEY_BETA,
    KEY_THRESHOLD,
    KEY_JSON,
    KEY_LDA, // sizes, in the order of size_fields
    KEY_LDB,
    KEY_LDC,
    KEY_LD_AUX,
    KEY_STRIDE_A,
    KEY_STRIDE_B,
    KEY_STRIDE_C,
    KEY_STRIDE_AUX,
    KEY_STRIDE_BIAS,
};

// What these options are called, the least that they take, and where they go.
static const struct {
    const char *option;
    int64_t least;
    size_t offset;
} size_fields[] = {
    {"--lda", 1, offsetof(explain_options, lda)},
    {"--ldb", 1, offsetof(explain_options, ldb)},
    {"--ldc", 1, offsetof(explain_options, ldc)},
    {"--ld-aux", 1, offsetof(explain_options, ld_aux)},
    {"--stride-a", 0, offsetof(explain_options, stride_a)},
    {"--stride-b", 0, offsetof(explain_options, stride_b)},
    {"--stride-c", 0, offsetof(explain_options, stride_c)},
    {"--stride-aux", 0, offsetof(explain_options, stride_aux)},
    {"--stride-bias", 0, offsetof(explain_options, stride_bias)},
};

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "The product D = epilogue(alpha op(A) op(B) + beta C):", 2},
    {"transa", KEY_TRANSA, NULL, 0, "A lies transposed, as k x m", 2},
    {"transb", KEY_TRANSB, NULL, 0, "B lies transposed, as n x k", 2},
    {"batch", KEY_BATCH, "COUNT", 0, "A strided batch of COUNT products (default 1)", 2},
    {"epilogue", KEY_EPILOGUE, "NAME", 0,
     "none (the default), bias, relu, relu_bias, relu_aux_bias, drelu_bgrad, bgrada, bgradb, gelu_bias, gelu_aux_bias "
     "or dgelu_bgrad",
     2},
    {"alpha", KEY_ALPHA, "NUMBER", 0, "Default 1", 2},
    {"beta", KEY_BETA, "NUMBER", 0, "Default 0", 2},
    {"lda", KEY_LDA, "N", 0, "Leading dimensions (default: packed; that of aux: a multiple of 128)", 2},
    {"ldb", KEY_LDB, "N", 0, NULL, 2},
    {"ldc", KEY_LDC, "N", 0, NULL, 2},
    {"ld-aux", KEY_LD_AUX, "N", 0, NULL, 2},
    {"stride-a", KEY_STRIDE_A, "N", 0, "Strides of a batch (default: one matrix after the other)", 2},
    {"stride-b", KEY_STRIDE_B, "N", 0, NULL, 2},
    {"stride-c", KEY_STRIDE_C, "N", 0, NULL, 2},
    {"stride-aux", KEY_STRIDE_AUX, "N", 0, NULL, 2},
    {"stride-bias", KEY_STRIDE_BIAS, "N", 0, NULL, 2},
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
    "  tlob explain 16 256 32 --batch 3";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static void parse_size(struct argp_state *state, const char *arg, tlob_gemm *gemm) {
    static const char *const names[] = {"M", "N", "K"};
    int64_t *sizes[] = {&gemm->m, &gemm->n, &gemm->k};
    if (state->arg_num >= 3)
        argp_error(state, "unexpected argument '%s': three sizes M N K are enough", arg);
    *sizes[state->arg_num] = cli_integer(state, names[state->arg_num], arg, 0, INT64_MAX);
}

static void parse_epilogue(struct argp_state *state, const char *arg, tlob_gemm *gemm) {
    const char *names[TLOB_EPILOGUE_COUNT + 1] = {NULL};
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++)
        names[i] = tlob_epilogue_get_traits((tlob_epilogue)i)->name;
    gemm->epilogue = (tlob_epilogue)cli_choice(state, "--epilogue", arg, names);
}

static void check_end(const struct argp_state *state, const explain_options *options) {
    if (state->arg_num < 3)
        argp_error(state, "three sizes are needed: M N K");
    if (options->threshold && options->context.params.policy.kind)
        argp_error(state, "--threshold and --policy exclude each other");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    explain_options *options = state->input;
    tlob_gemm *gemm = &options->gemm;
    if (key >= KEY_LDA && key <= KEY_STRIDE_BIAS) {
        int i = key - KEY_LDA;
        *(int64_t *)((char *)options + size_fields[i].offset) =
            cli_integer(state, size_fields[i].option, arg, size_fields[i].least, INT64_MAX);
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_TRANSA:
        gemm->transa = TLOB_OP_T;
        return 0;
    case KEY_TRANSB:
        gemm->transb = TLOB_OP_T;
        return 0;
    case KEY_BATCH:
        gemm->batch = cli_integer(state, "--batch", arg, 0, INT64_MAX);
        return 0;
    case KEY_EPILOGUE:
        parse_epilogue(state, arg, gemm);
        return 0;
    case KEY_ALPHA:
        gemm->alpha = (float)cli_number(state, "--alpha", arg, -1e30, 1e30);
        return 0;
    case KEY_BETA:
        gemm->beta = (float)cli_number(state, "--beta", arg, -1e30, 1e30);
        return 0;
    case KEY_THRESHOLD:
        options->threshold = cli_integer(state, "--threshold", arg, 1, INT64_MAX);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        parse_size(state, arg, gemm);
        return 0;
    case ARGP_KEY_END:
        check_end(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// A stride that was not given: one matrix after the other. One that does not fit is left to the library's own check of
// the extents.
static int64_t default_stride(int64_t given, int64_t ld, int64_t columns) {
    int64_t stride;
    if (given >= 0)
        return given;
    return __builtin_mul_overflow(ld, columns, &stride) ? INT64_MAX : stride;
}

static void fill_layout(explain_options *options) {
    tlob_gemm *gemm = &options->gemm, packed = tlob_gemm_init(gemm->m, gemm->n, gemm->k);
    bool ta = gemm->transa == TLOB_OP_T, tb = gemm->transb == TLOB_OP_T;
    gemm->lda = options->lda ? options->lda : ta ? packed.ldb : packed.lda;
    gemm->ldb = options->ldb ? options->ldb : tb ? (gemm->n > 1 ? gemm->n : 1) : packed.ldb;
    gemm->ldc = options->ldc ? options->ldc : packed.ldc;
    gemm->ld_aux = options->ld_aux ? options->ld_aux : packed.ld_aux;
    gemm->stride_a = default_stride(options->stride_a, gemm->lda, ta ? gemm->m : gemm->k);
    gemm->stride_b = default_stride(options->stride_b, gemm->ldb, tb ? gemm->k : gemm->n);
    gemm->stride_c = default_stride(options->stride_c, gemm->ldc, gemm->n);
    gemm->stride_aux = default_stride(options->stride_aux, gemm->ld_aux, gemm->n);
    int64_t vector = gemm->epilogue == TLOB_EPILOGUE_BGRADB ? gemm->n : gemm->m;
    gemm->stride_bias = default_stride(options->stride_bias, vector, 1);
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
    *fits = !status;
    if (status && (!settings->policy.kind || (status != TLOB_ERR_ARGUMENT && status != TLOB_ERR_NOT_BUILT)))
        return status;
    if (status)
        snprintf(a->algorithm, sizeof a->algorithm, "not known: %s", tlob_last_error()->message);
    a->gemm.compute = settings->compute;
    a->origin = settings->policy_origin;
    tlob_policy_print(&settings->policy, a->policy, sizeof a->policy);
    return TLOB_OK;
}

static tlob_status ask(explain_options *options, answer *a) {
    tlob_context_params *params = &options->context.params;
    if (options->threshold)
        params->policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = options->threshold};
    tlob_settings settings;
    bool fits, found;
    a->gemm = options->gemm;
    tlob_status status = tlob_gemm_check(&a->gemm);
    if (!status)
        status = find_device(params, &found, a);
    if (!status)
        status = resolve(params, &fits, &settings, a);
    if (status)
        return status;
    if (fits && found)
        return ask_device(options, a);
    return tlob_dispatch_candidates(&settings.policy, params->memory, &a->gemm, &a->explanation);
}

static const char *const operations[] = {"sgemm", "sgemm_strided_batched", "matmul_bias"};

static void print_problem(const tlob_gemm *gemm) {
    const tlob_epilogue_traits *epilogue = tlob_epilogue_get_traits(gemm->epilogue);
    printf("operation  %s\n", operations[tlob_gemm_operation(gemm)]);
    printf("problem    m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", op %c%c, ld %" PRId64 " %" PRId64 " %" PRId64
           ", batch %" PRId64 ", alpha %g, beta %g, epilogue %s\n",
           gemm->m, gemm->n, gemm->k, gemm->transa ? 'T' : 'N', gemm->transb ? 'T' : 'N', gemm->lda, gemm->ldb,
           gemm->ldc, gemm->batch, (double)gemm->alpha, (double)gemm->beta, epilogue->name);
    if (gemm->batch > 1)
        printf("strides    %" PRId64 " %" PRId64 " %" PRId64 "\n", gemm->stride_a, gemm->stride_b, gemm->stride_c);
    if (epilogue->reads_aux || epilogue->writes_aux)
        printf("aux        ld %" PRId64 ", stride %" PRId64 ", %s\n", gemm->ld_aux, gemm->stride_aux,
               epilogue->aux_is_mask ? "bits" : "floats");
}

static const char *candidate_word(const tlob_candidate *candidate) {
    if (candidate->able)
        return candidate->picked ? "picked" : "able";
    return candidate->picked ? "picked, but not able" : "not able";
}

static void print_table(const answer *a) {
    const tlob_explanation *e = &a->explanation;
    print_problem(&a->gemm);
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

static void add_problem(cJSON *json, const tlob_gemm *gemm) {
    const struct {
        const char *key;
        int64_t value;
    } fields[] = {
        {"m", gemm->m}, {"n", gemm->n}, {"k", gemm->k}, {"lda", gemm->lda}, {"ldb", gemm->ldb}, {"ldc", gemm->ldc},
        {"batch", gemm->batch}, {"stride_a", gemm->stride_a}, {"stride_b", gemm->stride_b},
        {"stride_c", gemm->stride_c}, {"ld_aux", gemm->ld_aux}, {"stride_aux", gemm->stride_aux},
        {"stride_bias", gemm->stride_bias},
    };
    cJSON *problem = cJSON_AddObjectToObject(json, "problem");
    cJSON_AddStringToObject(problem, "operation", operations[tlob_gemm_operation(gemm)]);
    cJSON_AddStringToObject(problem, "transa", gemm->transa ? "T" : "N");
    cJSON_AddStringToObject(problem, "transb", gemm->transb ? "T" : "N");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char digits[32]; // as they are: a double holds no int64
        snprintf(digits, sizeof digits, "%" PRId64, fields[i].value);
        cJSON_AddRawToObject(problem, fields[i].key, digits);
    }
    cJSON_AddNumberToObject(problem, "alpha", (double)gemm->alpha);
    cJSON_AddNumberToObject(problem, "beta", (double)gemm->beta);
    cJSON_AddStringToObject(problem, "epilogue", tlob_epilogue_get_traits(gemm->epilogue)->name);
}

static int print_json(const answer *a) {
    const tlob_explanation *e = &a->explanation;
    cJSON *json = cJSON_CreateObject();
    add_problem(json, &a->gemm);
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
    explain_options options = {.gemm = tlob_gemm_init(1, 1, 1),
                               .stride_a = -1,
                               .stride_b = -1,
                               .stride_c = -1,
                               .stride_aux = -1,
                               .stride_bias = -1};
    const struct argp argp = {own_options, parse, "M N K", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    fill_layout(&options);
    answer a = {.asked = false};
    if (ask(&options, &a))
        return cli_tlob_error(NULL);
    if (options.json)
        return print_json(&a);
    print_table(&a);
    return CLI_OK;
}
