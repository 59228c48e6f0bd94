// `tlob algorithms`: what a file of algorithms holds and whether it holds here, or a new file for the block's products.
#include "cli/common.h"

#include "parity/parity.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct algorithms_options {
    cli_context_options context;
    const char *file, *problems;
    bool make;
} algorithms_options;

enum { KEY_MAKE = CLI_KEY_OWN, KEY_PROBLEMS };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "A new file:", 2},
    {"make", KEY_MAKE, NULL, 0, "Choose algorithms on this device, and write them to FILE", 2},
    {"problems", KEY_PROBLEMS, "GLOB", 0,
     "With --make, for the products that `tlob parity --list' shows by such names (default: tlob/* and fused/*, those "
     "of the block)",
     2},
    {0},
};

static const char doc[] =
    "Lists the entries of a file of algorithms, and tells of each whether it holds on this device, or why not; or, with "
    "--make, writes such a file."
    "\vAn entry is the algorithm that a deterministic context has chosen for a problem, by its attributes. It holds for "
    "one device model, one version of the vendor's library and one order of the search. An entry that is accepted is "
    "still a promise: a context that has loaded it chooses for itself when the problem is first needed, and compares. "
    "--make chooses for the backend cublaslt, in both modes or in that of --compute.\n"
    "\n"
    "Exit status 1 if an entry is rejected.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    algorithms_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_MAKE:
        options->make = true;
        return 0;
    case KEY_PROBLEMS:
        options->problems = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (options->file)
            argp_error(state, "unexpected argument '%s': one FILE is enough", arg);
        options->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!options->file)
            argp_error(state, "a FILE is needed");
        if (options->problems && !options->make)
            argp_error(state, "--problems chooses what --make looks at");
        if (options->make && options->context.params.policy.kind)
            argp_error(state, "--policy: what --make chooses is for cublaslt");
        if (options->context.params.deterministic == TLOB_SWITCH_OFF)
            argp_error(state, "--deterministic=off: without it no table is kept");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// --- the list ---

static int64_t field(const tlob_algorithm_field *fields, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(fields[i].name, name))
            return fields[i].value;
    return -1;
}

static void print_entry(void *user, const tlob_algorithm *entry) {
    (void)user;
    printf("%-9s %s%s%s", tlob_algorithm_state_name(entry->state), entry->backend, *entry->backend ? ", " : "",
           entry->source);
    if (entry->n_key) {
        const tlob_algorithm_field *key = entry->key;
        int n = entry->n_key;
        int64_t epilogue = field(key, n, "epilogue");
        printf(": %c%c %" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64 " %s %s,",
               field(key, n, "transa") ? 'T' : 'N', field(key, n, "transb") ? 'T' : 'N', field(key, n, "m"),
               field(key, n, "n"), field(key, n, "k"), field(key, n, "batch"),
               tlob_compute_name((tlob_compute)field(key, n, "compute")),
               epilogue >= 0 && epilogue < TLOB_EPILOGUE_COUNT
                   ? tlob_epilogue_get_traits((tlob_epilogue)epilogue)->name
                   : "?");
        for (int i = 0; i < entry->n_configuration; i++)
            if (entry->configuration[i].value)
                printf(" %s %" PRId64, entry->configuration[i].name, entry->configuration[i].value);
    }
    printf("%s%s\n", *entry->reason ? ": " : "", entry->reason);
}

static int show(tlob_context *ctx, const char *path) {
    tlob_algorithms_report report;
    if (tlob_algorithms_load(ctx, path, &report) || tlob_algorithms_list(ctx, print_entry, NULL))
        return cli_tlob_error(NULL);
    printf("%d accepted, %d rejected\n", report.accepted, report.rejected);
    return report.rejected ? CLI_FAILED : CLI_OK;
}

// --- a new file ---

static bool is_wanted(const parity_case *c, const char *problems) {
    if (c->huge || c->gemm.m < 1 || c->gemm.n < 1 || c->gemm.k < 1 || c->gemm.batch < 1)
        return false;
    return problems ? !fnmatch(problems, c->name, 0)
                    : !fnmatch("tlob/*", c->name, 0) || !fnmatch("fused/*", c->name, 0);
}

// To be asked how a product would be done is enough for its algorithm to be chosen. Operands are allocations of their
// own, but for a C that is D, as the block has it. CLI_FAILED after printing why.
static int choose(tlob_stream *stream, const parity_case *c, tlob_compute compute, float *d, int *count) {
    tlob_gemm gemm = c->gemm;
    tlob_explanation explanation;
    const tlob_gemm_operands x = {.c = d, .d = d};
    gemm.compute = compute;
    if (tlob_context_supports(tlob_stream_context(stream), "cublaslt", &gemm))
        return CLI_OK;
    if (tlob_gemm_explain(stream, &gemm, &x, &explanation))
        return cli_tlob_error(c->name);
    if (!strncmp(explanation.algorithm, "not known", 9))
        return cli_error("%s: %s", c->name, explanation.algorithm);
    ++*count;
    return CLI_OK;
}

static int choose_all(tlob_stream *stream, const algorithms_options *options, float *d, int *count) {
    static const tlob_compute both[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    tlob_compute one = options->context.params.compute;
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        for (int mode = 0; mode < 2 && is_wanted(&c, options->problems); mode++)
            if ((!one || one == both[mode]) && choose(stream, &c, both[mode], d, count))
                return CLI_FAILED;
    }
    if (!*count)
        return cli_error("--problems %s: no product that cublaslt can do has such a name",
                         options->problems ? options->problems : "(not given)");
    return CLI_OK;
}

static int make(tlob_context *ctx, const algorithms_options *options) {
    tlob_stream *stream = NULL;
    tlob_buffer *d = NULL;
    int count = 0, status = CLI_OK;
    if (tlob_stream_open(ctx, NULL, &stream) || tlob_buffer_create(ctx, 256, &d))
        status = cli_tlob_error(NULL);
    if (!status)
        status = choose_all(stream, options, tlob_buffer_data(d), &count);
    if (!status && tlob_algorithms_save(ctx, options->file))
        status = cli_tlob_error(NULL);
    if (!status)
        printf("%s: algorithms of %d products\n", options->file, count);
    tlob_buffer_destroy(&d);
    tlob_stream_close(&stream);
    return status;
}

int cli_algorithms(int argc, char **argv) {
    algorithms_options options = {0};
    const struct argp argp = {own_options, parse, "FILE", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    tlob_context_params *params = &options.context.params;
    params->deterministic = TLOB_SWITCH_ON;
    if (options.make)
        params->policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    tlob_context *ctx = cli_context_create(&options.context);
    if (!ctx)
        return CLI_FAILED;
    int status = options.make ? make(ctx, &options) : show(ctx, options.file);
    tlob_context_destroy(&ctx);
    return status;
}
