#include "cli/common.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cli_error(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    fprintf(stderr, "tlob: %s\n", line);
    return CLI_FAILED;
}

int cli_tlob_error(const char *what) {
    const tlob_error *error = tlob_last_error();
    const char *message = *error->message ? error->message : tlob_status_text(error->status);
    return cli_error("%s%s%s", what ? what : "", what ? ": " : "", message);
}

int64_t cli_integer(const struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text) || value < low || value > high)
        argp_error(state, "%s: '%s' is not a whole number from %" PRId64 " to %" PRId64, option, text, low, high);
    return value;
}

double cli_number(const struct argp_state *state, const char *option, const char *text, double low, double high) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || isspace((unsigned char)*text) || !(value >= low && value <= high))
        argp_error(state, "%s: '%s' is not a number from %g to %g", option, text, low, high);
    return value;
}

int cli_choice(const struct argp_state *state, const char *option, const char *text, const char *const *names) {
    char list[256] = "";
    for (int i = 0; names[i]; i++) {
        if (!strcmp(text, names[i]))
            return i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    argp_error(state, "%s: '%s' is not one of: %s", option, text, list);
    return 0;
}

error_t cli_no_arguments(int key, char *arg, struct argp_state *state) {
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "unexpected argument '%s'", arg);
    return 0;
}

// --- the context ---

enum {
    KEY_DEVICE = CLI_KEY_CONTEXT,
    KEY_COMPUTE,
    KEY_POLICY,
    KEY_DETERMINISTIC,
    KEY_CONFIG,
    KEY_TABLE,
    KEY_BLOCK_PLAN,
};

static const struct argp_option context_options[] = {
    {NULL, 0, NULL, 0, "Where and how to compute:", 1},
    {"device", KEY_DEVICE, "DEVICE", 0,
     "cuda (the default: the first GPU), cuda:N, or host (the CPU, on the slow but exact backend cpu_ref)", 1},
    {"compute", KEY_COMPUTE, "MODE", 0,
     "fp32, or tf32: GPU backends may round the inputs of products to 10 bits (default: TLOB_COMPUTE, else tf32 on a "
     "GPU; the host always works in fp32)",
     1},
    {"policy", KEY_POLICY, "POLICY", 0,
     "How a product is done: threshold, threshold:N, fixed:BACKEND, tuned or tuned:strict (default: TLOB_POLICY, else "
     "threshold:64 on a GPU and fixed:cpu_ref on the host). `tlob explain' shows what a policy decides",
     1},
    {"table", KEY_TABLE, "FILE", 0,
     "The table of what was measured, for the policy tuned (default: TLOB_TABLE, else that of the configuration file)",
     1},
    {"deterministic", KEY_DETERMINISTIC, "on|off", OPTION_ARG_OPTIONAL,
     "The same products give the same bits, on the same GPU model with the same libraries (default: "
     "TLOB_DETERMINISTIC, else off)",
     1},
    {"block-plan", KEY_BLOCK_PLAN, "PLAN", 0,
     "How the attention block is computed: composed of products and an attention kernel, or fused into one kernel, "
     "which is an error where there is none for its shape (default: TLOB_BLOCK_PLAN, else what the table of the policy "
     "tuned has for the block, else fused where the shape has kernels of its own)",
     1},
    {"config", KEY_CONFIG, "FILE", 0,
     "A JSON file with one object of settings, for those that neither an option nor a TLOB_* variable gives: compute, "
     "policy, workspace_mib, log, trace, deterministic, table, block_plan (default: TLOB_CONFIG, else none)",
     1},
    {0},
};

void cli_device(const struct argp_state *state, const char *text, tlob_context_params *params) {
    params->device = 0;
    if (!strcmp(text, "host")) {
        params->memory = TLOB_MEMORY_HOST;
        return;
    }
    if (strncmp(text, "cuda", 4) || (text[4] && text[4] != ':'))
        argp_error(state, "--device: '%s' is not one of: cuda, cuda:N, host", text);
    params->memory = TLOB_MEMORY_CUDA;
    if (text[4])
        params->device = (int)cli_integer(state, "--device cuda:N", text + 5, 0, INT32_MAX);
}

// A name that no backend has is wrong usage: the program brings none of its own.
static void parse_policy(struct argp_state *state, const char *text, tlob_policy *policy) {
    tlob_gemm gemm = tlob_gemm_init(1, 1, 1);
    tlob_choice choice;
    if (tlob_policy_parse(text, policy) ||
        (policy->kind == TLOB_POLICY_FIXED && tlob_dispatch_explain(policy, &gemm, &choice)))
        argp_error(state, "--policy: %s", tlob_last_error()->message);
}

static error_t parse_context(int key, char *arg, struct argp_state *state) {
    static const char *const computes[] = {"tf32", "fp32", NULL}, *const switches[] = {"on", "off", NULL};
    static const char *const plans[] = {"composed", "fused", NULL};
    cli_context_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options->params = tlob_context_params_default();
        return 0;
    case KEY_DEVICE:
        options->device_given = true;
        cli_device(state, arg, &options->params);
        return 0;
    case KEY_COMPUTE:
        options->params.compute = cli_choice(state, "--compute", arg, computes) ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
        return 0;
    case KEY_POLICY:
        parse_policy(state, arg, &options->params.policy);
        return 0;
    case KEY_DETERMINISTIC:
        options->params.deterministic =
            arg && cli_choice(state, "--deterministic", arg, switches) ? TLOB_SWITCH_OFF : TLOB_SWITCH_ON;
        return 0;
    case KEY_TABLE:
        options->params.table_path = arg;
        return 0;
    case KEY_BLOCK_PLAN:
        options->params.block_plan =
            cli_choice(state, "--block-plan", arg, plans) ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED;
        return 0;
    case KEY_CONFIG:
        options->params.config_path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_context_argp = {.options = context_options, .parser = parse_context};

tlob_policy cli_default_policy(tlob_memory memory) {
    return memory == TLOB_MEMORY_HOST ? (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"}
                                      : (tlob_policy){.kind = TLOB_POLICY_THRESHOLD};
}

static void print_log(void *user, tlob_log_level level, const char *line) {
    (void)user;
    (void)level;
    cli_error("%s", line);
}

tlob_context *cli_context_create(const cli_context_options *options) {
    tlob_context *ctx;
    tlob_context_params params = options->params;
    params.log = print_log;
    tlob_status status = tlob_context_create(&ctx, &params);
    if (!status)
        return ctx;
    if (params.memory == TLOB_MEMORY_CUDA && (status == TLOB_ERR_NO_DEVICE || status == TLOB_ERR_NOT_BUILT))
        cli_error("--device cuda:%d: %s (to compute on the CPU, use --device host)", params.device,
                  tlob_last_error()->message);
    else
        cli_tlob_error(NULL);
    return NULL;
}

void cli_context_describe(const tlob_context *ctx, char *text, size_t size) {
    tlob_device_info info;
    int device = tlob_context_device(ctx);
    if (tlob_context_memory(ctx) == TLOB_MEMORY_HOST)
        snprintf(text, size, "host");
    else if (tlob_device_get_info(device, &info))
        snprintf(text, size, "cuda:%d", device);
    else
        snprintf(text, size, "cuda:%d (%s)", device, info.name);
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool cli_read_all(FILE *file, char **bytes, size_t *length) {
    const size_t limit = (size_t)1 << 30;
    size_t room = 1 << 16;
    char *longer = malloc(room);
    *bytes = NULL;
    *length = 0;
    while (longer) {
        *bytes = longer;
        *length += fread(*bytes + *length, 1, room - 1 - *length, file);
        (*bytes)[*length] = 0;
        if (*length < room - 1)
            return !ferror(file);
        if (room > limit) {
            errno = EFBIG;
            return false;
        }
        longer = realloc(*bytes, room *= 2);
    }
    return false;
}
