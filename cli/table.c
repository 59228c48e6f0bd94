// `tlob table`: what tables of measured methods hold, and which of their entries answers a product.
#include "cli/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LIST, EXPLAIN, DIFF, VERIFY, MERGE };
static const char *const names[] = {"list", "explain", "diff", "verify", "merge", NULL};

enum { KEY_DEVICE = CLI_KEY_OWN, KEY_COMPUTE, KEY_PREFER, KEY_JSON, KEY_REJECTED };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "For list:", 3},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of lines", 3},
    {"rejected", KEY_REJECTED, NULL, 0, "The entries that are rejected, each with the reason, instead of the others", 3},
    {NULL, 0, NULL, 0, "For explain, and the product's options above:", 4},
    {"compute", KEY_COMPUTE, "MODE", 0, "fp32 or tf32 (default: tf32, and fp32 with --device host)", 4},
    {NULL, 0, NULL, 0, "For explain and verify:", 5},
    {"device", KEY_DEVICE, "DEVICE", 0,
     "cuda, cuda:N or host: only entries for this device and the libraries at hand count; verify runs them there", 5},
    {NULL, 0, NULL, 0, "For merge:", 6},
    {"prefer", KEY_PREFER, "first|last", 0,
     "Which table is right where two contradict each other (default: none, and that is an error)", 6},
    {0},
};

static const char doc[] =
    "Looks at tables of measured methods, which the policy `tuned' reads.\n"
    "\n"
    "  list FILE...        the entries: product, method, device and library; for blocks the plan\n"
    "  explain FILE M N K  which entry answers a product, or why none does\n"
    "  diff A B            what is only in A, only in B, or differs\n"
    "  verify FILE...      whether every entry is sound; with --device also whether what it does is right\n"
    "  merge OUT IN...     one table from several"
    "\vAn entry is for one product, one device model and one version of a library. What is wrong with an entry rejects "
    "that entry alone: it is never used, `list --rejected' shows it with the reason, and `merge' leaves it out and says "
    "so. Two entries contradict each other where product, device and release are the same, and the methods are not.\n"
    "\n"
    "diff exits with 0 if the tables are the same, 1 if they differ, and 2 if that cannot be said, for a file cannot be "
    "read or an entry is rejected.\n"
    "\n"
    "verify exits with 1 if an entry is rejected or, with --device, if one that is for this device and these libraries "
    "cannot be done as it says or gives a wrong result: each is run between guards, on outputs full of NaN, and "
    "compared with the oracle. Entries for blocks are not run.";

static const struct argp_child children[] = {{&cli_product_argp, 0, NULL, 2}, {0}};

static void take_argument(struct argp_state *state, const char *arg, cli_table_options *options) {
    if (options->what < 0)
        options->what = cli_choice(state, "what to do", arg, names);
    else if (options->what == EXPLAIN && options->n_files == 1)
        cli_product_size(state, state->arg_num - 2, arg, &options->product);
    else if (options->n_files == (options->what == EXPLAIN ? 1 : options->what == DIFF ? 2 : state->argc))
        argp_error(state, "unexpected argument '%s'", arg);
    else
        options->files[options->n_files++] = arg;
}

// An option of one subcommand means nothing to another.
static void check_options(const struct argp_state *state, const cli_table_options *options) {
    static const char *const needs[] = {"list: a FILE is needed", "explain: a FILE and three sizes are needed: M N K",
                                        "diff: two FILEs are needed", "verify: a FILE is needed",
                                        "merge: OUT and at least one IN are needed"};
    static const int least[] = {1, 1, 2, 1, 2};
    int what = options->what;
    if (what < 0)
        argp_error(state, "say what to do: list, explain, diff, verify or merge");
    else if (options->n_files < least[what] || (what == EXPLAIN && state->arg_num < 5))
        argp_error(state, "%s", needs[what]);
    else if ((options->json || options->rejected) && what != LIST)
        argp_error(state, "--%s is for list", options->json ? "json" : "rejected");
    else if ((options->product.given || options->compute) && what != EXPLAIN)
        argp_error(state, "options of a product are for explain");
    else if (options->context.device_given && what != EXPLAIN && what != VERIFY)
        argp_error(state, "--device is for explain and verify");
    else if (options->prefer != CLI_PREFER_NONE && what != MERGE)
        argp_error(state, "--prefer is for merge");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    static const char *const computes[] = {"tf32", "fp32", NULL}, *const sides[] = {"first", "last", NULL};
    cli_table_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->product;
        return 0;
    case KEY_DEVICE:
        options->context.device_given = true;
        cli_device(state, arg, &options->context.params);
        return 0;
    case KEY_COMPUTE:
        options->compute = cli_choice(state, "--compute", arg, computes) ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
        return 0;
    case KEY_PREFER:
        options->prefer = cli_choice(state, "--prefer", arg, sides) ? CLI_PREFER_LAST : CLI_PREFER_FIRST;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_REJECTED:
        options->rejected = true;
        return 0;
    case ARGP_KEY_ARG:
        take_argument(state, arg, options);
        return 0;
    case ARGP_KEY_END:
        check_options(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// --- files and entries ---

bool cli_table_read(const char *path, cli_table_file *file) {
    file->path = path;
    if (!tlob_table_read(path, &file->table, &file->report))
        return true;
    cli_tlob_error(NULL);
    return false;
}

void cli_table_print_report(const cli_table_file *file) {
    const tlob_table_report *r = &file->report;
    const int64_t blocks = tlob_table_count_blocks(file->table, NULL);
    printf("%s: %" PRId64 " entries", file->path, tlob_table_count(file->table, NULL));
    if (blocks)
        printf(", %" PRId64 " blocks", blocks);
    if (r->rejected)
        printf(", %" PRId64 " rejected, the first: %s", r->rejected, r->reason);
    printf("\n");
}

static void origin_words(const tlob_table_origin *origin, char *text, size_t size) {
    bool host = !origin->sm && !origin->multiprocessors;
    int used = snprintf(text, size, "%s", origin->device);
    if (!host)
        used += snprintf(text + used, size - (size_t)used, ", sm_%d, %d multiprocessors", origin->sm,
                         origin->multiprocessors);
    if (*origin->library)
        snprintf(text + used, size - (size_t)used, "; %s", origin->library);
}

void cli_table_words(const tlob_table_entry *entry, char *text, size_t size) {
    char product[512], method[256], origin[256];
    cli_product_words(&entry->gemm, product, sizeof product);
    tlob_method_print(&entry->method, method, sizeof method);
    origin_words(&entry->origin, origin, sizeof origin);
    snprintf(text, size, "%s: %s (%s)", product, method, origin);
}

void cli_table_block_words(const tlob_table_block *entry, char *text, size_t size) {
    const tlob_block_shape *s = &entry->shape;
    char seq[40] = "", origin[256];
    if (s->seq != 1)
        snprintf(seq, sizeof seq, " --seq %" PRId64, s->seq);
    origin_words(&entry->origin, origin, sizeof origin);
    snprintf(text, size,
             "--block --d-in %" PRId64 " --d-out %" PRId64 " --head-dim %" PRId64 "%s --samples %" PRId64
             "%s%s --compute %s: %s (%s)",
             s->d_in, s->d_out, s->head_dim, seq, entry->samples, s->axis == TLOB_AXIS_TIME ? " --axis time" : "",
             entry->inference ? " --inference" : "", tlob_compute_name(entry->compute),
             tlob_block_plan_name(entry->plan), origin);
}

// --- list ---

static void print_entry(void *user, const tlob_table_entry *entry) {
    const cli_table_options *options = user;
    char words[1280];
    if ((entry->rejected != NULL) != options->rejected)
        return;
    cli_table_words(entry, words, sizeof words);
    if (entry->rejected)
        printf("%s: %s\n", entry->source, entry->rejected);
    else
        printf("%s\n", words);
}

static void print_block(void *user, const tlob_table_block *entry) {
    const cli_table_options *options = user;
    char words[640];
    if ((entry->rejected != NULL) != options->rejected)
        return;
    cli_table_block_words(entry, words, sizeof words);
    if (entry->rejected)
        printf("%s: %s\n", entry->source, entry->rejected);
    else
        printf("%s\n", words);
}

static void add_origin(cJSON *object, const tlob_table_origin *of) {
    cJSON *origin = cJSON_AddObjectToObject(object, "origin");
    cJSON_AddStringToObject(origin, "device", of->device);
    cJSON_AddNumberToObject(origin, "sm", of->sm);
    cJSON_AddNumberToObject(origin, "multiprocessors", of->multiprocessors);
    cJSON_AddStringToObject(origin, "library", of->library);
}

static void add_entry(void *user, const tlob_table_entry *entry) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(user, object);
    cJSON_AddStringToObject(object, "source", entry->source);
    if (entry->rejected) {
        cJSON_AddStringToObject(object, "rejected", entry->rejected);
        return;
    }
    cli_product_add(object, &entry->gemm);
    cJSON_AddStringToObject(object, "compute", tlob_compute_name(entry->gemm.compute));
    cJSON *method = cJSON_AddObjectToObject(object, "method");
    cJSON_AddStringToObject(method, "backend", entry->method.backend);
    cJSON_AddStringToObject(method, "form", tlob_form_name(entry->method.form));
    cJSON *configuration = cJSON_AddObjectToObject(method, "configuration");
    for (int i = 0; i < entry->method.n_configuration; i++) {
        char digits[32]; // as they are: a double holds no int64
        snprintf(digits, sizeof digits, "%" PRId64, entry->method.configuration[i].value);
        cJSON_AddRawToObject(configuration, entry->method.configuration[i].name, digits);
    }
    add_origin(object, &entry->origin);
}

typedef struct filtered {
    cJSON *entries;
    bool rejected;
} filtered;

static void add_filtered(void *user, const tlob_table_entry *entry) {
    const filtered *f = user;
    if ((entry->rejected != NULL) == f->rejected)
        add_entry(f->entries, entry);
}

static void add_block(void *user, const tlob_table_block *entry) {
    const filtered *f = user;
    if ((entry->rejected != NULL) != f->rejected)
        return;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(f->entries, object);
    cJSON_AddStringToObject(object, "source", entry->source);
    if (entry->rejected) {
        cJSON_AddStringToObject(object, "rejected", entry->rejected);
        return;
    }
    cJSON *block = cJSON_AddObjectToObject(object, "block");
    cJSON_AddNumberToObject(block, "d_in", (double)entry->shape.d_in);
    cJSON_AddNumberToObject(block, "d_out", (double)entry->shape.d_out);
    cJSON_AddNumberToObject(block, "head_dim", (double)entry->shape.head_dim);
    cJSON_AddNumberToObject(block, "seq", (double)entry->shape.seq);
    cJSON_AddNumberToObject(block, "samples", (double)entry->samples);
    cJSON_AddStringToObject(block, "axis", tlob_axis_name(entry->shape.axis));
    cJSON_AddBoolToObject(block, "inference", entry->inference);
    cJSON_AddStringToObject(block, "compute", tlob_compute_name(entry->compute));
    cJSON_AddStringToObject(object, "plan", tlob_block_plan_name(entry->plan));
    add_origin(object, &entry->origin);
}

static void add_file(cJSON *json, const cli_table_file *file, bool rejected) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(json, object);
    cJSON_AddStringToObject(object, "file", file->path);
    cJSON_AddNumberToObject(object, "accepted", (double)file->report.accepted);
    cJSON_AddNumberToObject(object, "rejected", (double)file->report.rejected);
    filtered f = {cJSON_AddArrayToObject(object, "entries"), rejected};
    tlob_table_list(file->table, add_filtered, &f);
    f.entries = cJSON_AddArrayToObject(object, "blocks");
    tlob_table_list_blocks(file->table, add_block, &f);
}

static int print_json(cJSON *json) {
    char *text = cJSON_Print(json);
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    return text ? CLI_OK : cli_error("no memory for the JSON text");
}

static int list(cli_table_options *options) {
    cJSON *json = cJSON_CreateObject(), *files = cJSON_AddArrayToObject(json, "files");
    int status = CLI_OK;
    for (int i = 0; i < options->n_files && !status; i++) {
        cli_table_file file = {NULL};
        if (!cli_table_read(options->files[i], &file)) {
            status = CLI_FAILED;
        } else if (options->json) {
            add_file(files, &file, options->rejected);
        } else {
            tlob_table_list(file.table, print_entry, options);
            tlob_table_list_blocks(file.table, print_block, options);
            cli_table_print_report(&file);
        }
        tlob_table_destroy(&file.table);
    }
    if (!status && options->json)
        status = print_json(json);
    cJSON_Delete(json);
    return status;
}

// --- explain ---

// The device that the options name, or none: then entries of any count. False after printing why not.
static bool find_device(const cli_table_options *options, tlob_device_info *info, const tlob_device_info **device) {
    const tlob_context_params *params = &options->context.params;
    *device = options->context.device_given ? info : NULL;
    if (!*device)
        return true;
    memset(info, 0, sizeof *info);
    if (params->memory == TLOB_MEMORY_HOST)
        snprintf(info->name, sizeof info->name, "host");
    else if (tlob_device_get_info(params->device, info)) {
        cli_tlob_error("--device");
        return false;
    }
    return true;
}

// What is looked for among entries that do not answer.
typedef struct search {
    const tlob_gemm *gemm;
    const tlob_table_entry *answer;
} search;

// Entries that would answer, were they not rejected or of another device.
static void print_other(void *user, const tlob_table_entry *entry) {
    const search *s = user;
    tlob_gemm wanted = tlob_table_problem(s->gemm), has = tlob_table_problem(&entry->gemm);
    char origin[256];
    if (entry == s->answer || memcmp(&wanted, &has, sizeof wanted))
        return;
    origin_words(&entry->origin, origin, sizeof origin);
    if (entry->rejected)
        printf("also       %s, rejected: %s\n", entry->source, entry->rejected);
    else
        printf("also       %s, of %s\n", entry->source, origin);
}

static void print_answer(const tlob_table_entry *entry) {
    tlob_method algorithm = entry->method;
    char text[256], origin[256], *configuration;
    algorithm.form = TLOB_FORM_WHOLE;
    tlob_method_print(&algorithm, text, sizeof text);
    configuration = strstr(text, "whole, ");
    origin_words(&entry->origin, origin, sizeof origin);
    printf("entry      %s\n", entry->source);
    printf("backend    %s\n", entry->method.backend);
    printf("form       %s\n", tlob_form_name(entry->method.form));
    printf("algorithm  %s\n", configuration ? configuration + strlen("whole, ") : "as the backend chooses by itself");
    printf("measured   %s\n", origin);
}

static int explain(cli_table_options *options) {
    cli_table_file file = {NULL};
    tlob_device_info info;
    const tlob_device_info *device;
    tlob_gemm *gemm = &options->product.gemm;
    bool host = options->context.device_given && options->context.params.memory == TLOB_MEMORY_HOST;
    cli_product_finish(&options->product);
    gemm->compute = options->compute ? options->compute : host ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
    if (tlob_gemm_check(gemm))
        return cli_tlob_error(NULL);
    if (!find_device(options, &info, &device) || !cli_table_read(options->files[0], &file))
        return CLI_FAILED;
    search s = {gemm, tlob_table_find(file.table, gemm, device)};
    cli_product_print(gemm);
    printf("numerics   %s\n", tlob_compute_name(gemm->compute));
    printf("device     %s\n", device ? device->name : "any");
    if (s.answer) {
        print_answer(s.answer);
    } else {
        char why[400];
        tlob_table_miss(file.table, gemm, device, why, sizeof why);
        printf("entry      none: %s\n", why);
    }
    tlob_table_list(file.table, print_other, &s);
    tlob_table_destroy(&file.table);
    return CLI_OK;
}

int cli_table(int argc, char **argv) {
    cli_table_options options = {.what = -1, .prefer = CLI_PREFER_NONE};
    const struct argp argp = {own_options, parse, "WHAT FILE...", doc, children, NULL, NULL};
    options.context.params = tlob_context_params_default();
    options.files = calloc((size_t)argc + 1, sizeof *options.files);
    if (!options.files)
        return cli_error("out of memory");
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    int status = CLI_FAILED;
    switch (options.what) {
    case LIST:
        status = list(&options);
        break;
    case EXPLAIN:
        status = explain(&options);
        break;
    case DIFF:
        status = cli_table_diff(&options);
        break;
    case VERIFY:
        status = cli_table_verify(&options);
        break;
    case MERGE:
        status = cli_table_merge(&options);
        break;
    }
    free(options.files);
    return status;
}
