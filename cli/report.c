// `tlob report`: what bench and train wrote, and what a model attends to, as pictures and one page of HTML.
#include "cli/report.h"

#include "cli/gnuplot.h"
#include "cli/html.h"
#include "cli/interrupt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STEPS_MAX 9007199254740992.0 // doubles hold each whole number up to it

typedef struct report_options {
    cli_context_options context;
    cli_data_options data;
    const char **benches;
    int n_benches;
    const char *out, *measurements, *losses, *validation, *model;
} report_options;

enum { KEY_OUT = CLI_KEY_OWN, KEY_BENCH, KEY_MEASUREMENTS, KEY_LOSSES, KEY_VALIDATION, KEY_MODEL };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Report:", 4},
    {"out", KEY_OUT, "FOLDER", 0, "Where the files go: needed. It is made if it does not exist", 4},
    {"bench", KEY_BENCH, "FILE", 0, "What `tlob bench --json' printed. May be given several times", 4},
    {"measurements", KEY_MEASUREMENTS, "FILE", 0, "What `tlob tune --measurements' wrote", 4},
    {"losses", KEY_LOSSES, "FILE", 0, "What `tlob train --losses' wrote", 4},
    {"validation", KEY_VALIDATION, "FILE", 0, "What `tlob train --validation' wrote", 4},
    {"model", KEY_MODEL, "FILE", 0,
     "What `tlob train --out' wrote: the attention of its block over the validation part of --message and --orderbook",
     4},
    {0},
};

static const char doc[] =
    "Draws what bench, tune and train wrote, and what a model attends to."
    "\vThe folder gets a CSV file, a script of gnuplot, an SVG and a PNG for each picture: bench1 and so on (median "
    "times with quartiles, and ratios; for a bench with stages also stages1 and so on), map_tf32 and map_fp32 (the "
    "fastest method for each m and n, a panel for each k), gains (what tuning gains over the default policy), loss, "
    "validation (loss, macro-F1 and accuracy), attention (a map of each head); and index.html, with the pictures and "
    "the numbers, which needs no other file. Files of the same names are replaced, others are left alone.\n"
    "\n"
    "The options where and how to compute, and those of order-book files, are for --model, whose file says how samples "
    "are "
    "made.\n"
    "\n"
    "Without gnuplot (Debian and Ubuntu: apt install gnuplot-nox) the CSV files, the scripts and the page are written "
    "without pictures, and the exit status is 3.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {&cli_data_argp, 0, NULL, 0}, {0}};

static void add_bench(struct argp_state *state, report_options *options, const char *path) {
    const char **longer = realloc(options->benches, ((size_t)options->n_benches + 1) * sizeof *longer);
    if (!longer)
        argp_failure(state, CLI_FAILED, 0, "out of memory");
    options->benches = longer;
    options->benches[options->n_benches++] = path;
}

static void check_options(const struct argp_state *state, const report_options *options) {
    if (!options->out)
        argp_error(state, "say where the report goes: --out FOLDER");
    if (!options->n_benches && !options->measurements && !options->losses && !options->validation && !options->model)
        argp_error(state,
                   "say what to draw: --bench, --measurements, --losses, --validation or --model, each with a FILE");
    if (options->model && !options->data.n_messages)
        argp_error(state, "--model needs order-book files: --message FILE --orderbook FILE");
    if (!options->model && options->data.n_messages)
        argp_error(state, "--message and --orderbook are for --model FILE, which is not given");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    report_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        state->child_inputs[1] = &options->data;
        return 0;
    case KEY_OUT:
        options->out = arg;
        return 0;
    case KEY_BENCH:
        add_bench(state, options, arg);
        return 0;
    case KEY_MEASUREMENTS:
        options->measurements = arg;
        return 0;
    case KEY_LOSSES:
        options->losses = arg;
        return 0;
    case KEY_VALIDATION:
        options->validation = arg;
        return 0;
    case KEY_MODEL:
        options->model = arg;
        return 0;
    case ARGP_KEY_END:
        check_options(state, options);
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

// --- inputs: all are read before anything is written ---

typedef struct material {
    cli_bench_file *bench; // [n_benches]
    cli_measurements measurements;
    report_table losses, validation;
    report_attention attention;
} material;

static bool read_bench(const char *path, cli_bench_file *bench) {
    size_t length;
    io_error err;
    char *text = report_read(path, &length);
    bool good = text && !cli_bench_file_parse(path, text, length, bench, &err);
    if (text && !good)
        cli_error("%s", err.text);
    free(text);
    return good;
}

static bool read_measurements(const char *path, cli_measurements *measurements) {
    size_t length;
    io_error err;
    char *text = report_read(path, &length);
    bool good = text && !cli_measurements_parse(path, text, length, measurements, &err);
    if (text && !good)
        cli_error("%s", err.text);
    free(text);
    return good;
}

static bool read_table(const char *path, const report_column *columns, int n_columns, report_table *table) {
    size_t length;
    io_error err;
    char *text = report_read(path, &length);
    bool good = text && !report_table_parse(path, text, length, columns, n_columns, table, &err);
    if (text && !good)
        cli_error("%s", err.text);
    free(text);
    return good;
}

static bool read_material(const report_options *options, material *m) {
    static const report_column columns[] = {
        {"step", 1, STEPS_MAX}, {"loss", -1e300, 1e300}, {"accuracy", 0, 1}, {"macro_f1", 0, 1}};
    m->bench = calloc((size_t)options->n_benches + 1, sizeof *m->bench);
    if (!m->bench)
        return !cli_error("out of memory");
    for (int i = 0; i < options->n_benches; i++)
        if (!read_bench(options->benches[i], &m->bench[i]))
            return false;
    return (!options->measurements || read_measurements(options->measurements, &m->measurements)) &&
           (!options->losses || read_table(options->losses, columns, 2, &m->losses)) &&
           (!options->validation || read_table(options->validation, columns, 4, &m->validation)) &&
           (!options->model ||
            report_attention_compute(&options->context, &options->data, options->model, &m->attention));
}

static void free_material(const report_options *options, material *m) {
    for (int i = 0; m->bench && i < options->n_benches; i++)
        cli_bench_file_finish(&m->bench[i]);
    free(m->bench);
    cli_measurements_finish(&m->measurements);
    report_table_finish(&m->losses);
    report_table_finish(&m->validation);
    report_attention_finish(&m->attention);
}

// --- the report ---

static bool write_parts(const report *r, const report_options *options, const material *m) {
    for (int i = 0; i < options->n_benches; i++)
        if (!report_write_bench(r, i + 1, options->benches[i], &m->bench[i]) ||
            !report_write_stages(r, i + 1, &m->bench[i]))
            return false;
    return (!options->measurements || report_write_tune(r, options->measurements, &m->measurements)) &&
           (!options->losses || report_write_losses(r, options->losses, &m->losses)) &&
           (!options->validation || report_write_validation(r, options->validation, &m->validation)) &&
           (!options->model || report_write_attention(r, &m->attention));
}

// From here on an interrupt is no reason to leave files behind that were not put in place.
static bool write_report(report *r, const report_options *options, const material *m) {
    r->interrupted = cli_catch_interrupts();
    if (mkdir(r->folder, 0777) && errno != EEXIST)
        return !cli_error("%s: %s", r->folder, strerror(errno));
    io_atomic *page = report_open(r, "index", "html");
    if (!page)
        return false;
    r->page = io_atomic_stream(page);
    html_begin(r->page, "tlob report");
    bool good = write_parts(r, options, m);
    html_end(r->page);
    return report_close(page, good);
}

// What the report reads, which it must not write over. NULL after printing why.
static const char **list_inputs(const report_options *options, int *count) {
    const cli_data_options *data = &options->data;
    const char **list = calloc((size_t)(options->n_benches + 2 * data->n_messages + 4), sizeof *list);
    if (!list) {
        cli_error("out of memory");
        return NULL;
    }
    const char *const single[] = {options->measurements, options->losses, options->validation, options->model};
    *count = 0;
    for (int i = 0; i < options->n_benches; i++)
        list[(*count)++] = options->benches[i];
    for (int i = 0; i < 4; i++)
        if (single[i])
            list[(*count)++] = single[i];
    for (int i = 0; i < data->n_messages; i++) {
        list[(*count)++] = data->messages[i];
        list[(*count)++] = data->orderbooks[i];
    }
    return list;
}

static int make_report(const report_options *options) {
    report r = {.folder = options->out};
    material m = {0};
    const char **inputs = list_inputs(options, &r.n_inputs);
    char *gnuplot = gnuplot_find();
    r.inputs = inputs;
    r.gnuplot = gnuplot;
    bool good = inputs && read_material(options, &m) && write_report(&r, options, &m);
    if (good)
        printf("report     %s/index.html\n", options->out);
    if (good && !gnuplot)
        cli_error("gnuplot was not found: the report is without pictures; install it, on Debian or Ubuntu by `apt "
                  "install gnuplot-nox', and run this again");
    free_material(options, &m);
    free(inputs);
    int status = !good ? CLI_FAILED : gnuplot ? CLI_OK : CLI_NO_GNUPLOT;
    if (!good && r.interrupted && *r.interrupted) {
        cli_error("interrupted: %s/index.html was not written", options->out);
        status = CLI_INTERRUPTED;
    }
    free(gnuplot);
    return status;
}

int cli_report(int argc, char **argv) {
    report_options options = {.data = {.optional = true}};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    int status = make_report(&options);
    free(options.benches);
    cli_data_free(&options.data);
    return status;
}
