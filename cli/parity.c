// `tlob parity`: every backend of a context against the oracle, over one table of cases.
#include "cli/common.h"

#include "parity/parity.h"

#include <cjson/cJSON.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parity_options {
    cli_context_options context;
    const char *backend, *filter;
    uint64_t seed;
    double random; // seconds; 0: the table
    bool verbose, list, json, matrix, huge;
} parity_options;

enum {
    KEY_BACKEND = CLI_KEY_OWN,
    KEY_FILTER,
    KEY_SEED,
    KEY_VERBOSE,
    KEY_LIST,
    KEY_JSON,
    KEY_MATRIX,
    KEY_RANDOM,
    KEY_HUGE
};

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "What is compared:", 2},
    {"backend", KEY_BACKEND, "NAME", 0, "Only this backend (default: every one that the device has)", 2},
    {"filter", KEY_FILTER, "GLOB", 0, "Only cases with such names, as 'tlob/*', or one random case, 'random/7/12'", 2},
    {"seed", KEY_SEED, "NUMBER", 0, "Of the operands: the same data on every machine (default 1)", 2},
    {"random", KEY_RANDOM, "SECONDS", 0, "Not the table: draw cases from the seed for so long, in each mode", 2},
    {"huge", KEY_HUGE, NULL, 0, "Also the cases past 2^31 elements: 9 GB of device memory, of host addresses twice", 2},
    {NULL, 0, NULL, 0, "What is printed:", 3},
    {"verbose", KEY_VERBOSE, NULL, 0, "A line for each case, not only for those that fail", 3},
    {"list", KEY_LIST, NULL, 0, "Only print the names of the cases", 3},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of lines", 3},
    {"matrix", KEY_MATRIX, NULL, 0,
     "Not the table, but which epilogue each backend does for which transposes and batch, each by a run", 3},
    {0},
};

static const char doc[] =
    "Compares every backend of a device with the oracle on the products of the TLOB block and many others."
    "\vOn a GPU the reference is the backend cpu_ref of a host context, itself compared with a computation in long "
    "double; on the host it is that computation. Guards around every operand show a write outside. A case that fails "
    "prints its worst element, its bound, and the line that replays it. One that is right, but off by more than half "
    "of "
    "its bound, counts as a warning; one that a backend says it cannot do counts apart.\n"
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
    case KEY_RANDOM:
        options->random = cli_number(state, "--random", arg, 0.1, 1e6);
        return 0;
    case KEY_HUGE:
        options->huge = true;
        return 0;
    case KEY_VERBOSE:
        options->verbose = true;
        return 0;
    case KEY_LIST:
        options->list = true;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_MATRIX:
        options->matrix = true;
        return 0;
    case ARGP_KEY_END:
        if (options->matrix && (options->json || options->random > 0 || options->filter))
            argp_error(state, "--matrix has cases and a form of its own: it takes no --json, --random or --filter");
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

// What one run of the program works with.
typedef struct job {
    const parity_options *options;
    tlob_context *ctx;
    tlob_stream *stream, *oracle;
    cJSON *cases; // with --json
    parity_tally total;
} job;

// Where in a job a case is being run.
typedef struct place {
    job *job;
    const char *backend;
    tlob_compute compute;
} place;

// --- one case ---

static void add_case(cJSON *cases, const place *at, const parity_case *c, const parity_result *r) {
    cJSON *object = cJSON_CreateObject(), *worst = cJSON_AddObjectToObject(object, "worst");
    cJSON_AddItemToArray(cases, object);
    cJSON_AddStringToObject(object, "name", c->name);
    cJSON_AddStringToObject(object, "backend", at->backend);
    cJSON_AddStringToObject(object, "compute", tlob_compute_name(at->compute));
    cJSON_AddNumberToObject(object, "seed", (double)at->job->options->seed);
    cJSON_AddStringToObject(object, "verdict", parity_verdict_name(r->verdict));
    cJSON_AddStringToObject(worst, "output", r->output ? r->output : "");
    cJSON_AddNumberToObject(worst, "matrix", (double)r->matrix);
    cJSON_AddNumberToObject(worst, "row", (double)r->row);
    cJSON_AddNumberToObject(worst, "col", (double)r->col);
    cJSON_AddNumberToObject(worst, "value", r->value); // cJSON writes NaN and infinity as null
    cJSON_AddNumberToObject(worst, "expected", r->expected);
    cJSON_AddNumberToObject(object, "error", r->error);
    cJSON_AddNumberToObject(object, "bound", r->bound);
    cJSON_AddNumberToObject(object, "normalised_error", r->normalised);
    cJSON_AddStringToObject(object, "message", r->message);
}

static void show_case(void *user, const parity_case *c, const parity_result *r) {
    static const char *const words[PARITY_VERDICTS] = {"ok", "WARN", "FAIL", "ERROR", "cannot"};
    const place *at = user;
    const parity_options *options = at->job->options;
    bool failed = r->verdict == PARITY_FAIL || r->verdict == PARITY_ERROR;
    if (at->job->cases)
        add_case(at->job->cases, at, c, r);
    else if (failed)
        printf("%-6s%-15s %s %s: %s\n", words[r->verdict], at->backend, tlob_compute_name(at->compute), c->name,
               r->message);
    else if (options->verbose && r->verdict == PARITY_UNSUPPORTED)
        printf("%-6s%-15s %s %s\n", words[r->verdict], at->backend, tlob_compute_name(at->compute), r->message);
    else if (options->verbose)
        printf("%-6s%-15s %s %-40s normalised error %.2e\n", words[r->verdict], at->backend,
               tlob_compute_name(at->compute), c->name, r->normalised);
}

// --- one backend in one mode ---

static parity_sweep sweep_of(place *at) {
    const job *j = at->job;
    return (parity_sweep){
        .stream = j->stream,
        .oracle = j->oracle,
        .backend = at->backend,
        .compute = at->compute,
        .seed = j->options->seed,
        .filter = j->options->filter,
        .huge = j->options->huge,
        .each = show_case,
        .user = at,
    };
}

static void print_tally(const char *backend, const char *mode, const parity_tally *t) {
    printf("%-15s %-4s  %d passed, %d failed, %d warnings, %d unsupported, largest normalised error %.2e\n", backend,
           mode, t->count[PARITY_PASS] + t->count[PARITY_WARN], parity_failed(t), t->count[PARITY_WARN],
           t->count[PARITY_UNSUPPORTED], t->normalised);
}

static void run_backend(place *at) {
    const parity_options *options = at->job->options;
    parity_sweep sweep = sweep_of(at);
    parity_tally tally = options->random > 0 ? parity_run_random(&sweep, options->random) : parity_run_table(&sweep);
    if (!options->json)
        print_tally(at->backend, tlob_compute_name(at->compute), &tally);
    parity_add(&at->job->total, &tally);
}

// --- the support matrix ---

enum { COLUMNS = 8, NOTES = TLOB_EPILOGUE_COUNT * COLUMNS }; // as many notes as there are cells

typedef struct notes {
    int count;
    char text[NOTES][sizeof(((parity_result *)0)->message)];
} notes;

// The number of a reason among the notes, from 1 on.
static int note(notes *n, const char *text) {
    const char *reason = strstr(text, ": "); // without the name of the case and the backend
    reason = reason ? reason + 2 : text;
    for (int i = 0; i < n->count; i++)
        if (!strcmp(n->text[i], reason))
            return i + 1;
    snprintf(n->text[n->count], sizeof n->text[0], "%s", reason);
    return ++n->count;
}

static void run_cell(place *at, tlob_epilogue epilogue, int column, notes *n) {
    parity_case c = parity_case_support(epilogue, column % 4, column < 4 ? 1 : 3);
    const job *j = at->job;
    char cell[24] = "yes";
    parity_result r;
    if (!parity_run(j->stream, j->oracle, at->backend, &c, at->compute, j->options->seed, &r))
        snprintf(cell, sizeof cell, "%s[%d]", r.verdict == PARITY_UNSUPPORTED ? "no" : "WRONG", note(n, r.message));
    printf("  %-8s", cell);
    at->job->total.ran++;
    at->job->total.count[r.verdict]++;
}

static void run_matrix(place *at) {
    notes n = {0};
    printf("%s, %s\n%-15s", at->backend, tlob_compute_name(at->compute), "epilogue");
    for (int column = 0; column < COLUMNS; column++)
        printf("  %s x%-5d", parity_ops_name(column % 4), column < 4 ? 1 : 3);
    printf("\n");
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        printf("%-15s", tlob_epilogue_get_traits((tlob_epilogue)e)->name);
        for (int column = 0; column < COLUMNS; column++)
            run_cell(at, (tlob_epilogue)e, column, &n);
        printf("\n");
    }
    for (int i = 0; i < n.count; i++)
        printf("[%d] %s\n", i + 1, n.text[i]);
    printf("\n");
}

// --- all of them ---

static int print_json(const job *j) {
    cJSON *root = cJSON_CreateObject(), *versions = cJSON_AddObjectToObject(root, "versions");
    cJSON *total = cJSON_AddObjectToObject(root, "total");
    char device[160];
    int driver, runtime;
    cli_context_describe(j->ctx, device, sizeof device);
    tlob_cuda_versions(&driver, &runtime);
    cJSON_AddStringToObject(root, "device", device);
    cJSON_AddNumberToObject(root, "seed", (double)j->options->seed);
    cJSON_AddStringToObject(versions, "tlob", tlob_version());
    cJSON_AddNumberToObject(versions, "cuda_driver", driver);
    cJSON_AddNumberToObject(versions, "cuda_runtime", runtime);
    for (int i = 0; i < tlob_backend_count(); i++) {
        tlob_backend_info info;
        if (!tlob_backend_get_info(i, &info) && info.built)
            cJSON_AddStringToObject(versions, info.name, info.version);
    }
    for (int v = 0; v < PARITY_VERDICTS; v++)
        cJSON_AddNumberToObject(total, parity_verdict_name((parity_verdict)v), j->total.count[v]);
    cJSON_AddItemReferenceToObject(root, "cases", j->cases);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    cJSON_Delete(root);
    free(text);
    return text ? CLI_OK : cli_error("no memory for the JSON text");
}

static int conclude(const job *j) {
    const parity_options *options = j->options;
    if (!j->total.ran && options->backend)
        return cli_error("no case was run: is '%s' a backend of a %s context, and does a case match? (tlob info, "
                         "tlob parity --list)",
                         options->backend, tlob_memory_name(tlob_context_memory(j->ctx)));
    if (!j->total.ran)
        return cli_error("no case has a name like '%s' (tlob parity --list shows them%s)",
                         options->filter ? options->filter : "*", options->huge ? "" : "; huge ones need --huge");
    if (options->json && print_json(j))
        return CLI_FAILED;
    if (!options->json && !options->matrix)
        print_tally("total", "", &j->total);
    return parity_failed(&j->total) ? CLI_FAILED : CLI_OK;
}

// Every backend of the context in every mode that was asked for.
static int run_all(job *j) {
    const parity_options *options = j->options;
    for (int i = 0; i < tlob_backend_count(); i++) {
        tlob_backend_info info;
        if (tlob_backend_get_info(i, &info) || !info.built || info.caps.memory != tlob_context_memory(j->ctx) ||
            (options->backend && strcmp(options->backend, info.name)))
            continue;
        tlob_compute only = options->context.params.compute;
        for (tlob_compute compute = TLOB_COMPUTE_TF32; compute <= TLOB_COMPUTE_FP32; compute++) {
            place at = {.job = j, .backend = info.name, .compute = compute};
            if (only && only != compute)
                continue;
            if (options->matrix)
                run_matrix(&at);
            else
                run_backend(&at);
        }
    }
    return conclude(j);
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
    tlob_context *host = NULL;
    job j = {.options = &options, .ctx = cli_context_create(&options.context)};
    if (!j.ctx)
        return CLI_FAILED;
    if (options.json)
        j.cases = cJSON_CreateArray();
    if (tlob_stream_create(j.ctx, &j.stream))
        cli_tlob_error(NULL);
    else if (tlob_context_memory(j.ctx) == TLOB_MEMORY_HOST || open_oracle(&host, &j.oracle))
        status = run_all(&j);
    cJSON_Delete(j.cases);
    tlob_stream_close(&j.oracle);
    tlob_stream_close(&j.stream);
    tlob_context_destroy(&host);
    tlob_context_destroy(&j.ctx);
    return status;
}
