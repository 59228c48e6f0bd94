#include "cli/data.h"

#include "io/atomic_file.h"
#include "io/hash.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- files ---

enum { KEY_MESSAGE = CLI_KEY_DATA, KEY_ORDERBOOK, KEY_ODD_ROWS, KEY_DROP_HIDDEN };

static const struct argp_option data_options[] = {
    {NULL, 0, NULL, 0, "Order-book files (LOBSTER format, plain or gzip):", 2},
    {"message", KEY_MESSAGE, "FILE", 0,
     "The events: time, type, order id, size, price, direction. May be given several times, in the order of time", 2},
    {"orderbook", KEY_ORDERBOOK, "FILE", 0,
     "The book after each of them: ask price, ask size, bid price, bid size for each level. One for each --message, "
     "in the same order",
     2},
    {"odd-rows", KEY_ODD_ROWS, "WHAT", 0,
     "What to do with crossed, locked and ghost rows: error (default), keep, or drop", 2},
    {"drop-hidden", KEY_DROP_HIDDEN, NULL, 0, "Leave executions of hidden orders (type 5) out", 2},
    {0},
};

static void append(struct argp_state *state, const char ***list, int *count, const char *name) {
    const char **longer = realloc(*list, ((size_t)*count + 1) * sizeof *longer);
    if (!longer)
        argp_failure(state, CLI_FAILED, 0, "out of memory");
    longer[*count] = name;
    *list = longer;
    ++*count;
}

const char *const cli_odd_rows_names[] = {
    [LOB_ODD_ERROR] = "error", [LOB_ODD_KEEP] = "keep", [LOB_ODD_DROP] = "drop", NULL};

static error_t parse_data(int key, char *arg, struct argp_state *state) {
    cli_data_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options->read = lob_read_default();
        return 0;
    case KEY_MESSAGE:
        append(state, &options->messages, &options->n_messages, arg);
        return 0;
    case KEY_ORDERBOOK:
        append(state, &options->orderbooks, &options->n_orderbooks, arg);
        return 0;
    case KEY_ODD_ROWS:
        options->read.odd_rows = (lob_odd_rows)cli_choice(state, "--odd-rows", arg, cli_odd_rows_names);
        options->odd_rows_given = true;
        return 0;
    case KEY_DROP_HIDDEN:
        options->read.drop_hidden = 1;
        options->drop_hidden_given = true;
        return 0;
    case ARGP_KEY_END:
        if (!options->optional && !options->n_messages && !options->n_orderbooks)
            argp_error(state, "order-book files are needed: --message FILE --orderbook FILE");
        if (options->n_messages != options->n_orderbooks)
            argp_error(state, "%d --message and %d --orderbook do not make pairs", options->n_messages,
                       options->n_orderbooks);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_data_argp = {.options = data_options, .parser = parse_data};

void cli_data_free(cli_data_options *options) {
    free(options->messages);
    free(options->orderbooks);
}

bool cli_output_spares_input(const cli_data_options *options, const char *name, const char *path) {
    for (int i = 0; path && i < options->n_messages; i++)
        for (int side = 0; side < 2; side++) {
            const char *input = side ? options->orderbooks[i] : options->messages[i];
            if (io_atomic_same(path, input)) {
                cli_error("%s %s would overwrite the input %s: name another file", name, path, input);
                return false;
            }
        }
    return true;
}

int cli_books_read(const cli_data_options *options, cli_books *books, FILE *out) {
    *books = (cli_books){.names = options->orderbooks};
    books->book = calloc((size_t)options->n_messages, sizeof *books->book);
    if (!books->book)
        return cli_error("out of memory");
    for (int i = 0; i < options->n_messages; i++) {
        lob_report report;
        io_error err;
        if (lob_book_read(&options->read, options->messages[i], options->orderbooks[i], &books->book[i], &report, &err))
            return cli_error("%s", err.text);
        books->count++;
        fprintf(out, "%s\n%s\n", options->messages[i], options->orderbooks[i]);
        lob_report_print(&report, out);
    }
    return CLI_OK;
}

void cli_books_free(cli_books *books) {
    for (int i = 0; i < books->count; i++)
        lob_book_destroy(&books->book[i]);
    free(books->book);
}

// --- samples ---

enum {
    KEY_LEVELS = CLI_KEY_DATA + 0x80,
    KEY_WINDOWS,
    KEY_HORIZON,
    KEY_SMOOTHING,
    KEY_THETA,
    KEY_AXIS,
    KEY_SEQ,
    KEY_STRIDE,
    KEY_SHARE
};

const char *const cli_axis_names[] = {[TLOB_AXIS_FEATURE] = "feature", [TLOB_AXIS_TIME] = "time", NULL};

// --axis is first, for what follows it to be a list of its own.
static const struct argp_option recipe_options[] = {
    {"axis", KEY_AXIS, "AXIS", 0, "What attends to what: feature (groups of features; the default) or time (events)",
     3},
    {NULL, 0, NULL, 0, "Inputs and labels:", 3},
    {"levels", KEY_LEVELS, "COUNT", 0, "Price levels that inputs are made of (default 8)", 3},
    {"windows", KEY_WINDOWS, "LIST", 0,
     "Numbers of events over which order flow imbalance is summed (default 1,10,50,200). Levels times windows is the "
     "number of inputs",
     3},
    {"horizon", KEY_HORIZON, "EVENTS", 0, "How far ahead the label looks (default 100)", 3},
    {"smoothing", KEY_SMOOTHING, "EVENTS", 0, "How many mid prices are averaged for it (default 20)", 3},
    {"theta", KEY_THETA, "WHAT", 0,
     "How large a relative move is a trend: mean (half the mean absolute move; the default), half-spread (the mean "
     "relative half spread), both of the training part, or a number",
     3},
    {"seq", KEY_SEQ, "EVENTS", 0, "Consecutive events of one sample (default 1)", 3},
    {"stride", KEY_STRIDE, "EVENTS", 0, "Events from one sample to the next (default 1)", 3},
    {"train-share", KEY_SHARE, "SHARE", 0,
     "Share of the samples, from the beginning, that is for training; the rest is for validation (default 0.8)", 3},
    {0},
};

bool cli_windows_parse(const char *text, lob_feature_params *features) {
    lob_feature_params parsed = *features;
    parsed.n_horizons = 0;
    for (const char *next = text;;) {
        char *end;
        if (parsed.n_horizons == LOB_HORIZONS_MAX || *next < '0' || *next > '9')
            return false;
        long value = strtol(next, &end, 10);
        if (value < 1 || value > LOB_HORIZON_MAX)
            return false;
        parsed.horizons[parsed.n_horizons++] = (int)value;
        if (!*end)
            break;
        if (*end != ',')
            return false;
        next = end + 1;
    }
    *features = parsed;
    return true;
}

void cli_windows_print(const lob_feature_params *features, char *text, size_t size) {
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < features->n_horizons && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? "," : "", features->horizons[i]);
}

static void parse_theta(struct argp_state *state, const char *arg, lob_dataset_params *params) {
    params->theta = 0;
    if (!strcmp(arg, "mean"))
        params->theta_mode = LOB_THETA_MEAN;
    else if (!strcmp(arg, "half-spread"))
        params->theta_mode = LOB_THETA_HALF_SPREAD;
    else {
        char *end;
        params->theta_mode = LOB_THETA_GIVEN;
        errno = 0;
        params->theta = strtod(arg, &end);
        if (errno || end == arg || *end || isspace((unsigned char)*arg) || !(params->theta >= 0 && params->theta <= 1))
            argp_error(state, "--theta: '%s' is not one of: mean, half-spread, a number from 0 to 1", arg);
    }
}

static error_t parse_recipe(int key, char *arg, struct argp_state *state) {
    cli_recipe_options *options = state->input;
    lob_dataset_params *params = &options->recipe.dataset;
    switch (key) {
    case ARGP_KEY_INIT:
        *params = lob_dataset_default();
        return 0;
    case KEY_LEVELS:
        params->features.levels = (int)cli_integer(state, "--levels", arg, 1, LOB_FEATURES_MAX);
        options->given |= CLI_GIVEN_LEVELS;
        return 0;
    case KEY_WINDOWS:
        if (!cli_windows_parse(arg, &params->features))
            argp_error(state, "--windows: '%s' is not a list of 1 to %d numbers from 1 to %d, such as 1,10,50", arg,
                       LOB_HORIZONS_MAX, LOB_HORIZON_MAX);
        options->given |= CLI_GIVEN_WINDOWS;
        return 0;
    case KEY_HORIZON:
        params->label.horizon = (int)cli_integer(state, "--horizon", arg, 1, 1000000);
        options->given |= CLI_GIVEN_HORIZON;
        return 0;
    case KEY_SMOOTHING:
        params->label.smoothing = (int)cli_integer(state, "--smoothing", arg, 1, 1000000);
        options->given |= CLI_GIVEN_SMOOTHING;
        return 0;
    case KEY_THETA:
        parse_theta(state, arg, params);
        options->given |= CLI_GIVEN_THETA;
        return 0;
    case KEY_AXIS:
        options->recipe.axis = (tlob_axis)cli_choice(state, "--axis", arg, cli_axis_names);
        options->given |= CLI_GIVEN_AXIS;
        return 0;
    case KEY_SEQ:
        params->seq = (int)cli_integer(state, "--seq", arg, 1, 1000000);
        options->given |= CLI_GIVEN_SEQ;
        return 0;
    case KEY_STRIDE:
        params->stride = (int)cli_integer(state, "--stride", arg, 1, 1000000);
        options->given |= CLI_GIVEN_STRIDE;
        return 0;
    case KEY_SHARE:
        params->train_fraction = cli_number(state, "--train-share", arg, 0, 1);
        params->validation_fraction = 1 - params->train_fraction;
        options->given |= CLI_GIVEN_SHARE;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_recipe_argp = {.options = recipe_options, .parser = parse_recipe};
const struct argp cli_samples_argp = {.options = recipe_options + 1, .parser = parse_recipe};

// The one thing that a book can lack, checked here for a message with the name of its file.
static bool levels_suffice(int levels, const cli_books *books, const lob_norm *norm) {
    for (int i = 0; i < books->count; i++)
        if (books->book[i]->levels < levels) {
            if (norm)
                cli_error("%s: the book has %d levels and the model reads %d", books->names[i], books->book[i]->levels,
                          levels);
            else
                cli_error("%s: the book has %d levels and %d were asked for: set --levels to %d or fewer",
                          books->names[i], books->book[i]->levels, levels, books->book[i]->levels);
            return false;
        }
    return true;
}

lob_dataset *cli_dataset_build(const cli_recipe *recipe, const cli_books *books, const lob_norm *norm) {
    lob_dataset *dataset;
    io_error err;
    if (!levels_suffice(recipe->dataset.features.levels, books, norm))
        return NULL;
    if (!lob_dataset_build(&recipe->dataset, (const lob_book *const *)books->book, (size_t)books->count, norm, &dataset,
                           &err))
        return dataset;
    cli_error("%s", err.text);
    return NULL;
}

uint64_t cli_dataset_hash(const lob_dataset *dataset) {
    const lob_norm *norm = &dataset->norm;
    size_t inputs = (size_t)dataset->features, floats = inputs * sizeof(float);
    uint64_t hash = io_hash(IO_HASH_EMPTY, dataset->x, dataset->events * floats);
    hash = io_hash(hash, dataset->first_column, dataset->samples * sizeof *dataset->first_column);
    hash = io_hash(hash, dataset->label, dataset->samples);
    hash = io_hash(hash, &dataset->train, sizeof dataset->train);
    hash = io_hash(hash, &dataset->validation, sizeof dataset->validation);
    hash = io_hash(hash, norm->mean, floats);
    hash = io_hash(hash, norm->std, floats);
    return io_hash(hash, &norm->theta, sizeof norm->theta);
}
