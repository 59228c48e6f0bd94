// `tlob tune`: measures every method of many products, and writes the best of each into a table.
#include "cli/interrupt.h"
#include "cli/tune_blocks.h"
#include "cli/tune_run.h"

#include "io/atomic_file.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tune_options {
    cli_context_options context;
    const char *problems; // "builtin", "trace:FILE" or "list:FILE"
    const char *filter, *output, *merge_into, *measurements;
    bool cold, blocks;
    struct stat read; // of the file of --merge-into, before it was read; 0 where there was none
    double band; // percent
    int repeat;
} tune_options;

enum {
    KEY_PROBLEMS = CLI_KEY_OWN,
    KEY_FILTER,
    KEY_OUTPUT,
    KEY_MERGE_INTO,
    KEY_MEASUREMENTS,
    KEY_CACHE,
    KEY_BAND,
    KEY_REPEAT,
    KEY_BLOCKS,
};

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "What is measured:", 2},
    {"problems", KEY_PROBLEMS, "WHICH", 0,
     "builtin (the default: some hundred of the block's, of layers and of others), trace:FILE (those of a file that "
     "TLOB_TRACE wrote) or list:FILE (one a line, in the words of `tlob explain')",
     2},
    {"blocks", KEY_BLOCKS, NULL, 0,
     "Instead of products attention blocks: the plans composed and fused of every shape with fused kernels of its own, for several "
     "numbers of samples, in the mode of --compute",
     2},
    {"filter", KEY_FILTER, "GLOB", 0, "Only problems with such names, such as 'block/*'", 2},
    {NULL, 0, NULL, 0, "What is written:", 3},
    {"output", KEY_OUTPUT, "TABLE", 0, "A table of the methods that were chosen", 3},
    {"merge-into", KEY_MERGE_INTO, "TABLE", 0,
     "The same, into what TABLE has: entries for other problems, devices and libraries stay, and those for problems "
     "that are measured as long as they are right and within the band; so it is the way to tune again",
     3},
    {"measurements", KEY_MEASUREMENTS, "FILE", 0, "All methods of all problems with their times, as JSON", 3},
    {NULL, 0, NULL, 0, "How it is measured:", 4},
    {"cache", KEY_CACHE, "STATE", 0,
     "Which times decide: warm (the default: operands lie in the L2 cache if they fit) or cold (nothing does)", 4},
    {"band", KEY_BAND, "PERCENT", 0,
     "The largest tie band: what is chosen is slower than the best by no more than that (default 2)", 4},
    {"repeat", KEY_REPEAT, "COUNT", 0, "Rounds in which methods take turns (default 21)", 4},
    {0},
};

static const char doc[] =
    "Measures the methods by which products can be done (backends, forms, algorithms) on this device, checks each "
    "against the oracle, and writes the best of each product into a table, for the policy `tuned'."
    "\vPrinted are the time of the method that was chosen, that of the policy's own (--policy, else the default), and "
    "their ratio. A method that computes something else, or writes outside its output, is told of and never chosen. "
    "Methods that are within a tie band of the fastest are as good, and the first of those in a fixed order is chosen, "
    "the policy's own before all others; the bands from 0.4 of --band to all of it vote.\n"
    "\n"
    "--output makes a new table, and replaces the file. With --merge-into a method that the table has is kept while it "
    "is right and within --band of the fastest, so that a table that is tuned again changes only where something has "
    "changed; where no method is right any more its entry is removed.\n"
    "\n"
    "With --blocks the plan of each block that was faster goes into the table, for a block made with so many samples; "
    "fused, where that is within the tie band.\n"
    "\n"
    "After Ctrl-C what was measured until then is written. On --device host the clock is read: that says nothing about "
    "a GPU.\n"
    "\n"
    "Exit status 1 also where not one method of a problem is right, or there was no memory for one; the others are "
    "written.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static void check_options(const struct argp_state *state, const tune_options *options) {
    if (strcmp(options->problems, "builtin") && strncmp(options->problems, "trace:", 6) &&
        strncmp(options->problems, "list:", 5))
        argp_error(state, "--problems: '%s' is not one of: builtin, trace:FILE, list:FILE", options->problems);
    if (options->context.params.policy.kind == TLOB_POLICY_TUNED || options->context.params.table_path)
        argp_error(state, "a table is what this writes: --table and --policy tuned are for other commands");
    if (options->output && options->merge_into)
        argp_error(state, "--output and --merge-into exclude each other");
    if (options->blocks && (strcmp(options->problems, "builtin") || options->measurements || options->cold))
        argp_error(state, "--problems, --measurements and --cache cold are for products, and --blocks is not");
    if (options->cold && options->context.params.memory == TLOB_MEMORY_HOST)
        argp_error(state, "--cache cold: there is no cold cache on --device host");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    static const char *const states[] = {"warm", "cold", NULL};
    tune_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_PROBLEMS:
        options->problems = arg;
        return 0;
    case KEY_BLOCKS:
        options->blocks = true;
        return 0;
    case KEY_FILTER:
        options->filter = arg;
        return 0;
    case KEY_OUTPUT:
        options->output = arg;
        return 0;
    case KEY_MERGE_INTO:
        options->merge_into = arg;
        return 0;
    case KEY_MEASUREMENTS:
        options->measurements = arg;
        return 0;
    case KEY_CACHE:
        options->cold = cli_choice(state, "--cache", arg, states) == 1;
        return 0;
    case KEY_BAND:
        options->band = cli_number(state, "--band", arg, 0, 100);
        return 0;
    case KEY_REPEAT:
        options->repeat = (int)cli_integer(state, "--repeat", arg, 1, 100000);
        return 0;
    case ARGP_KEY_END:
        check_options(state, options);
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

// --- files ---

// The file that --problems names, or NULL.
static const char *problems_file(const tune_options *options) {
    const char *colon = strchr(options->problems, ':');
    return colon ? colon + 1 : NULL;
}

static bool read_problems(const tune_options *options, cli_problems *problems) {
    const char *file = problems_file(options);
    if (!(!file                         ? cli_problems_builtin(problems)
          : options->problems[0] == 't' ? cli_problems_from_trace(file, problems)
                                        : cli_problems_from_list(file, problems)))
        return false;
    if (options->filter)
        cli_problems_filter(problems, options->filter);
    if (problems->count)
        return true;
    cli_error("--filter %s: no problem has such a name", options->filter);
    return false;
}

static bool check_files(const tune_options *options) {
    const char *table = options->output ? options->output : options->merge_into, *records = options->measurements;
    const char *inputs[] = {problems_file(options), options->context.params.config_path};
    for (int i = 0; i < 2; i++) {
        const char *output = inputs[i] && table && io_atomic_same(table, inputs[i])       ? table
                             : inputs[i] && records && io_atomic_same(records, inputs[i]) ? records
                                                                                          : NULL;
        if (output) {
            cli_error("%s would overwrite the input %s", output, inputs[i]);
            return false;
        }
    }
    if (!table || !records || !io_atomic_same(table, records))
        return true;
    cli_error("the table %s and the measurements %s are one file", table, records);
    return false;
}

// An empty table, or the one that entries are added to: what it could not hand on is no part of it. One that is there
// and cannot be read is no reason to begin anew.
static bool open_table(tune_options *options, tlob_table **table) {
    tlob_table_report report = {0};
    bool there = options->merge_into && (stat(options->merge_into, &options->read) == 0 || errno != ENOENT);
    if (there ? tlob_table_read(options->merge_into, table, &report) : tlob_table_create(table)) {
        cli_tlob_error(NULL);
        return false;
    }
    if (!report.rejected)
        return true;
    cli_error("--merge-into %s: it has %lld entries that would be lost, the first: %s; write to another file with "
              "--output",
              options->merge_into, (long long)report.rejected, report.reason);
    return false;
}

// --- the run ---

static void print_mean(const char *of, double log_ratio, int count) {
    if (count)
        printf("geometric mean of default us / us over %d problems%s: %.3f\n", count, of, exp(log_ratio / count));
}

static void print_summary(const tune_options *options, const tune_summary *summary) {
    printf("%d problems, %d methods, %d of them wrong%s\n", summary->done + summary->unsolved, summary->methods,
           summary->wrong, summary->interrupted ? "; interrupted" : "");
    if (summary->unsolved || summary->no_memory)
        printf("%d problems without a method that is right, %d more not measured for want of memory\n",
               summary->unsolved, summary->no_memory);
    if (options->merge_into)
        printf("entries: %d kept, %d replaced, %d added, %d removed\n", summary->kept, summary->replaced,
               summary->added, summary->removed);
    print_mean("", summary->log_ratio, summary->ratios);
    print_mean(" with m and n below 128", summary->log_ratio_small, summary->ratios_small);
}

// Whether the file that is merged into is still what was read.
static bool is_as_read(const tune_options *options) {
    const struct stat *then = &options->read;
    struct stat now;
    if (stat(options->merge_into, &now))
        return !then->st_ino;
    return now.st_ino == then->st_ino && now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

// What somebody else has put into the table meanwhile is not lost: then the result goes into a file beside it.
static bool write_table(const tune_options *options, const tlob_table *table) {
    const char *path = options->output ? options->output : options->merge_into;
    char beside[4096];
    bool good = true;
    if (options->merge_into && !is_as_read(options)) {
        snprintf(beside, sizeof beside, "%.4000s.new", path);
        cli_error("%s has been changed meanwhile: the result is %s; put them together with tlob table merge", path, beside);
        path = beside;
        good = false;
    }
    if (!path || !tlob_table_write(table, path))
        return good;
    cli_tlob_error(NULL);
    return false;
}

// Measures, and writes what was done, whatever ended it; of measurements only a whole file.
static int tune(const tune_options *options, const tune_lab *lab, const cli_problems *problems, tlob_table **table) {
    io_atomic *records = NULL;
    io_error err = {""};
    tune_summary summary;
    if (options->measurements && io_atomic_open(options->measurements, &records, &err))
        return cli_error("%s", err.text);
    const tune_job job = {lab, problems, table, records ? io_atomic_stream(records) : NULL};
    if (!tune_run(&job, &summary)) {
        io_atomic_abort(&records);
        if ((summary.done || summary.removed) && (options->output || options->merge_into) && write_table(options, *table))
            cli_error("it ended early: the table has the %d problems before", summary.done);
        return CLI_FAILED;
    }
    print_summary(options, &summary);
    if (!write_table(options, *table)) {
        io_atomic_abort(&records);
        return CLI_FAILED;
    }
    if (records && io_atomic_commit(&records, &err))
        return cli_error("%s", err.text);
    return summary.interrupted ? CLI_INTERRUPTED : summary.unsolved || summary.no_memory ? CLI_FAILED : CLI_OK;
}

// Likewise for the plans of blocks.
static int tune_plans(const tune_options *options, const tune_lab *lab, tlob_table *table) {
    tune_blocks_summary summary;
    bool good = tune_blocks_run(lab, options->filter, table, &summary);
    if (good)
        printf("%d blocks, %d of them with a plan that is wrong%s\n", summary.done + summary.unsolved, summary.unsolved,
               summary.interrupted ? "; interrupted" : "");
    if ((good || summary.done || summary.unsolved) && !write_table(options, table))
        return CLI_FAILED;
    if (!good)
        cli_error("it ended early: the table has the %d blocks before", summary.done + summary.unsolved);
    return !good ? CLI_FAILED : summary.interrupted ? CLI_INTERRUPTED : summary.unsolved ? CLI_FAILED : CLI_OK;
}

// The policy that times are held against: what --policy says, else the default, whatever the environment says.
static tlob_context *open_context(tune_options *options) {
    tlob_context_params *params = &options->context.params;
    if (!params->policy.kind)
        params->policy = cli_default_policy(params->memory);
    return cli_context_create(&options->context);
}

static int run_on(tune_options *options, tlob_context *ctx, const cli_problems *problems, tlob_table **table) {
    tlob_context *host = NULL;
    bench_cuda *cuda = NULL;
    tune_lab lab = {.seconds = cli_seconds,
                    .seed = 1,
                    .repeat = options->repeat,
                    .band = options->band / 100,
                    .cold = options->cold,
                    .interrupted = cli_catch_interrupts()};
    int status = CLI_FAILED;
    bool good = tlob_context_memory(ctx) == TLOB_MEMORY_HOST || bench_cuda_open(tlob_context_device(ctx), &cuda);
    lab.cuda = cuda;
    if (good && tlob_stream_open(ctx, cuda ? bench_cuda_stream(cuda) : NULL, &lab.stream)) {
        cli_tlob_error("tune");
        good = false;
    }
    if (good && tune_oracle_open(&host, &lab.oracle))
        status = options->blocks ? tune_plans(options, &lab, *table) : tune(options, &lab, problems, table);
    tlob_stream_close(&lab.oracle);
    tlob_context_destroy(&host);
    tlob_stream_close(&lab.stream);
    bench_cuda_close(&cuda);
    return status;
}

int cli_tune(int argc, char **argv) {
    tune_options options = {.problems = "builtin", .band = 2, .repeat = 21};
    const struct argp argp = {own_options, parse, NULL, doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    cli_problems problems = {0};
    tlob_table *table = NULL;
    tlob_context *ctx = NULL;
    int status = CLI_FAILED;
    if (check_files(&options) && (options.blocks || read_problems(&options, &problems)) &&
        open_table(&options, &table) && (ctx = open_context(&options)))
        status = run_on(&options, ctx, &problems, &table);
    tlob_context_destroy(&ctx);
    tlob_table_destroy(&table);
    cli_problems_free(&problems);
    return status;
}
