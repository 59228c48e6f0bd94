// `tlob explain`: what a policy decides for a matrix product, and why. Needs no GPU.
#include "cli/common.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct explain_options {
    cli_context_options context;
    tlob_gemm gemm;
    int64_t lda, ldb, ldc; // 0: packed
    int64_t threshold;     // 0: not given
} explain_options;

enum { KEY_TRANSA = CLI_KEY_OWN, KEY_TRANSB, KEY_BATCH, KEY_BIAS, KEY_THRESHOLD, KEY_LDA, KEY_LDB, KEY_LDC, KEY_BETA };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "The product D = op(A) op(B) + beta C:", 2},
    {"transa", KEY_TRANSA, NULL, 0, "A lies transposed, as k x m", 2},
    {"transb", KEY_TRANSB, NULL, 0, "B lies transposed, as n x k", 2},
    {"batch", KEY_BATCH, "COUNT", 0, "A strided batch of COUNT products (default 1)", 2},
    {"bias", KEY_BIAS, NULL, 0, "With the bias epilogue", 2},
    {"beta", KEY_BETA, "NUMBER", 0, "Default 0", 2},
    {"lda", KEY_LDA, "N", 0, "Leading dimensions (default: packed)", 2},
    {"ldb", KEY_LDB, "N", 0, NULL, 2},
    {"ldc", KEY_LDC, "N", 0, NULL, 2},
    {NULL, 0, NULL, 0, "The policy:", 3},
    {"threshold", KEY_THRESHOLD, "N", 0, "Short for --policy threshold:N", 3},
    {0},
};

static const char doc[] =
    "Shows which backend would run a product of an M x K with a K x N matrix, and the reason in words."
    "\vThe answer comes from the code that a real call goes through, but nothing is launched and no GPU is needed. The "
    "policy is that of --policy or --threshold, else of TLOB_POLICY, else the default of --device (host or cuda).\n"
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

static error_t parse(int key, char *arg, struct argp_state *state) {
    explain_options *options = state->input;
    tlob_gemm *gemm = &options->gemm;
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
    case KEY_BIAS:
        gemm->epilogue = TLOB_EPILOGUE_BIAS;
        return 0;
    case KEY_BETA:
        gemm->beta = (float)cli_number(state, "--beta", arg, -1e30, 1e30);
        return 0;
    case KEY_LDA:
        options->lda = cli_integer(state, "--lda", arg, 1, INT64_MAX);
        return 0;
    case KEY_LDB:
        options->ldb = cli_integer(state, "--ldb", arg, 1, INT64_MAX);
        return 0;
    case KEY_LDC:
        options->ldc = cli_integer(state, "--ldc", arg, 1, INT64_MAX);
        return 0;
    case KEY_THRESHOLD:
        options->threshold = cli_integer(state, "--threshold", arg, 1, INT64_MAX);
        return 0;
    case ARGP_KEY_ARG:
        parse_size(state, arg, gemm);
        return 0;
    case ARGP_KEY_END:
        if (state->arg_num < 3)
            argp_error(state, "three sizes are needed: M N K");
        if (options->threshold && options->context.params.policy.kind)
            argp_error(state, "--threshold and --policy exclude each other");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Strides and leading dimensions that were not given: packed, one matrix after the other. A stride that does not fit is
// left to the library's own check of the extents.
static void fill_layout(explain_options *options) {
    tlob_gemm *gemm = &options->gemm, packed = tlob_gemm_init(gemm->m, gemm->n, gemm->k);
    bool ta = gemm->transa == TLOB_OP_T, tb = gemm->transb == TLOB_OP_T;
    gemm->lda = options->lda ? options->lda : ta ? packed.ldb : packed.lda;
    gemm->ldb = options->ldb ? options->ldb : tb ? (gemm->n > 1 ? gemm->n : 1) : packed.ldb;
    gemm->ldc = options->ldc ? options->ldc : packed.ldc;
    if (__builtin_mul_overflow(gemm->lda, ta ? gemm->m : gemm->k, &gemm->stride_a) ||
        __builtin_mul_overflow(gemm->ldb, tb ? gemm->k : gemm->n, &gemm->stride_b) ||
        __builtin_mul_overflow(gemm->ldc, gemm->n, &gemm->stride_c))
        gemm->stride_a = gemm->stride_b = gemm->stride_c = INT64_MAX;
}

// The policy in force and where it came from. One that was given here is asked as it is, even if this build could not
// run what it chooses.
static tlob_status find_policy(explain_options *options, tlob_policy *policy, const char **origin) {
    tlob_context_params *params = &options->context.params;
    if (options->threshold)
        params->policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .threshold = options->threshold};
    *policy = params->policy;
    *origin = tlob_origin_name(TLOB_ORIGIN_ARGUMENT);
    if (policy->kind)
        return TLOB_OK;
    tlob_settings settings;
    tlob_status status = tlob_settings_resolve(params, &settings);
    if (status)
        return status;
    *policy = settings.policy;
    *origin = tlob_origin_name(settings.policy_origin);
    return TLOB_OK;
}

static void print_problem(const tlob_gemm *gemm) {
    static const char *const operations[] = {"sgemm", "sgemm_strided_batched", "matmul_bias"};
    printf("operation  %s\n", operations[tlob_gemm_operation(gemm)]);
    printf("problem    m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", op %c%c, ld %" PRId64 " %" PRId64 " %" PRId64
           ", batch %" PRId64 ", beta %g, %s\n",
           gemm->m, gemm->n, gemm->k, gemm->transa ? 'T' : 'N', gemm->transb ? 'T' : 'N', gemm->lda, gemm->ldb,
           gemm->ldc, gemm->batch, (double)gemm->beta, gemm->epilogue ? "bias" : "no epilogue");
}

int cli_explain(int argc, char **argv) {
    explain_options options = {.gemm = tlob_gemm_init(1, 1, 1)};
    const struct argp argp = {own_options, parse, "M N K", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    fill_layout(&options);
    options.gemm.compute = options.context.params.compute;
    tlob_policy policy;
    tlob_choice choice;
    const char *origin;
    if (tlob_gemm_check(&options.gemm) || find_policy(&options, &policy, &origin) ||
        tlob_dispatch_explain(&policy, &options.gemm, &choice))
        return cli_tlob_error(NULL);
    char text[64];
    tlob_policy_print(&policy, text, sizeof text);
    print_problem(&options.gemm);
    printf("policy     %s (%s)\n", text, origin);
    printf("backend    %s%s\n", choice.backend, choice.built ? "" : ", which this build does not contain");
    printf("reason     %s\n", choice.reason);
    return CLI_OK;
}
