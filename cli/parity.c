// `tlob parity`: every backend of a context against the oracle, over one table of cases.
#include "cli/common.h"

#include "parity/parity.h"

#include <stdio.h>
#include <string.h>

typedef struct parity_options {
    cli_context_options context;
    const char *backend, *filter;
    uint64_t seed;
    bool verbose, list;
} parity_options;

enum { KEY_BACKEND = CLI_KEY_OWN, KEY_FILTER, KEY_SEED, KEY_VERBOSE, KEY_LIST };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "What is compared:", 2},
    {"backend", KEY_BACKEND, "NAME", 0, "Only this backend (default: every one that the device has)", 2},
    {"filter", KEY_FILTER, "GLOB", 0, "Only cases with such names, as 'tlob/*'", 2},
    {"seed", KEY_SEED, "NUMBER", 0, "Of the operands: the same data on every machine (default 1)", 2},
    {"verbose", KEY_VERBOSE, NULL, 0, "A line for each case, not only for those that fail", 2},
    {"list", KEY_LIST, NULL, 0, "Only print the names of the cases", 2},
    {0},
};

static const char doc[] =
    "Compares every backend of a device with the oracle on the products of the TLOB block and many others."
    "\vOn a GPU the reference is the backend cpu_ref of a host context, itself compared with a computation in long "
    "double; on the host it is that computation. Guards around every operand show a write outside. A case that fails "
    "prints its worst element, its bound, and the line that replays it.\n"
    "\n"
    "Both modes, tf32 and fp32, are checked unless --compute names one. Exit status 1 if any case fails, or if none "
    "matches.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    parity_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_BACKEND:
        options->backend = arg;
        return 0;
    case KEY_FILTER:
        options->filter = arg;
        return 0;
    case KEY_SEED:
        options->seed = (uint64_t)cli_integer(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_VERBOSE:
        options->verbose = true;
        return 0;
    case KEY_LIST:
        options->list = true;
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

typedef struct tally {
    int passed, failed;
    double worst; // largest normalised error
} tally;

static void run_case(const parity_options *options, tlob_stream *stream, tlob_stream *oracle, const char *backend,
                     const parity_case *c, tlob_compute compute, tally *count) {
    parity_result result;
    if (parity_run(stream, oracle, backend, c, compute, options->seed, &result)) {
        count->passed++;
        if (result.normalised > count->worst)
            count->worst = result.normalised;
        if (options->verbose)
            printf("ok    %-15s %s %-40s normalised error %.2e\n", backend, tlob_compute_name(compute), c->name,
                   result.normalised);
        return;
    }
    count->failed++;
    printf("FAIL  %-15s %s %s: %s\n", backend, tlob_compute_name(compute), c->name, result.message);
}

static void run_backend(const parity_options *options, tlob_stream *stream, tlob_stream *oracle, const char *backend,
                        tlob_compute compute, tally *total) {
    tally count = {0};
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        if (parity_case_matches(options->filter, c.name))
            run_case(options, stream, oracle, backend, &c, compute, &count);
    }
    printf("%-15s %s  %d passed, %d failed, largest normalised error %.2e\n", backend, tlob_compute_name(compute),
           count.passed, count.failed, count.worst);
    total->passed += count.passed;
    total->failed += count.failed;
}

// Every backend of the context in every mode that was asked for.
static int run_all(const parity_options *options, tlob_context *ctx, tlob_stream *stream, tlob_stream *oracle) {
    tally total = {0};
    for (int i = 0; i < tlob_backend_count(); i++) {
        tlob_backend_info info;
        if (tlob_backend_get_info(i, &info) || !info.built || info.memory != tlob_context_memory(ctx) ||
            (options->backend && strcmp(options->backend, info.name)))
            continue;
        tlob_compute only = options->context.params.compute;
        for (tlob_compute compute = TLOB_COMPUTE_TF32; compute <= TLOB_COMPUTE_FP32; compute++)
            if (!only || only == compute)
                run_backend(options, stream, oracle, info.name, compute, &total);
    }
    if (total.passed + total.failed) {
        printf("%-15s       %d passed, %d failed\n", "total", total.passed, total.failed);
        return total.failed ? CLI_FAILED : CLI_OK;
    }
    if (options->backend)
        return cli_error("no case was run: is '%s' a backend of a %s context, and does a case match? (tlob info, "
                         "tlob parity --list)",
                         options->backend, tlob_memory_name(tlob_context_memory(ctx)));
    return cli_error("no case has a name like '%s' (tlob parity --list shows them)", options->filter);
}

static void list_cases(const char *filter) {
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        if (parity_case_matches(filter, c.name))
            printf("%s\n", c.name);
    }
}

// A stream of a host context for the oracle of a GPU context; *host is to be destroyed by the caller.
static bool open_oracle(tlob_context **host, tlob_stream **oracle) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy.kind = TLOB_POLICY_FIXED;
    strcpy(params.policy.backend, "cpu_ref");
    if (!tlob_context_create(host, &params) && !tlob_stream_create(*host, oracle))
        return true;
    cli_tlob_error("the oracle");
    return false;
}

int cli_parity(int argc, char **argv) {
    parity_options options = {.seed = 1};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    if (options.list) {
        list_cases(options.filter);
        return CLI_OK;
    }
    int status = CLI_FAILED;
    tlob_context *host = NULL, *ctx = cli_context_create(&options.context);
    tlob_stream *stream = NULL, *oracle = NULL;
    if (!ctx)
        return CLI_FAILED;
    if (tlob_stream_create(ctx, &stream))
        cli_tlob_error(NULL);
    else if (tlob_context_memory(ctx) == TLOB_MEMORY_HOST || open_oracle(&host, &oracle))
        status = run_all(&options, ctx, stream, oracle);
    tlob_stream_close(&oracle);
    tlob_stream_close(&stream);
    tlob_context_destroy(&host);
    tlob_context_destroy(&ctx);
    return status;
}
