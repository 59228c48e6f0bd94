// `tlob features`: checks order-book files and writes the model's inputs and labels.
#include "cli/figures.h"
#include "cli/interrupt.h"

#include "io/atomic_file.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct features_options {
    cli_data_options data;
    cli_recipe_options recipe;
    const char *out;
} features_options;

enum { KEY_OUT = CLI_KEY_OWN };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Output:", 1},
    {"out", KEY_OUT, "FILE", 0, "Where to: a name that ends in .safetensors or .csv; without it files are only checked",
     1},
    {0},
};

static const char doc[] =
    "Checks order-book files, prints what they hold, and writes the inputs and labels that training would use."
    "\vA .csv file has one line for each sample: its part (training, validation, or - for one that is in neither), its "
    "label (up, stationary, down), and the inputs of its last event, normalised.\n"
    "\n"
    "A .safetensors file has x [events, inputs] (normalised), first_column [samples] (the row of x at which each "
    "sample "
    "begins; it is seq rows long), label [samples] (0 up, 1 stationary, 2 down), training and validation [2] (the "
    "first "
    "sample and the one after the last), and mean and std [inputs], with which inputs were normalised; seq, windows, "
    "theta and the like are in its metadata.\n"
    "\n"
    "A file that breaks LOBSTER's format is refused with file, line, column, and what was expected.";

static const struct argp_child children[] = {{&cli_data_argp, 0, NULL, 0}, {&cli_samples_argp, 0, NULL, 0}, {0}};

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && !strcmp(text + length - tail, end);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    features_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->data;
        state->child_inputs[1] = &options->recipe;
        return 0;
    case KEY_OUT:
        if (!ends_with(arg, ".safetensors") && !ends_with(arg, ".csv"))
            argp_error(state, "--out: '%s' ends neither in .safetensors nor in .csv", arg);
        options->out = arg;
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

static const char *part_of(const lob_dataset *data, size_t sample) {
    if (sample >= data->train.begin && sample < data->train.end)
        return "training";
    return sample >= data->validation.begin && sample < data->validation.end ? "validation" : "-";
}

static void print_header(FILE *out, const lob_feature_params *features) {
    fprintf(out, "part,label");
    for (int level = 0; level < features->levels; level++)
        for (int i = 0; i < features->n_horizons; i++)
            fprintf(out, ",level%d_window%d", level + 1, features->horizons[i]);
    fprintf(out, "\n");
}

static int write_csv(const char *path, const lob_dataset *data, const lob_feature_params *features,
                     const volatile sig_atomic_t *interrupted) {
    io_atomic *file;
    io_error err;
    if (io_atomic_open(path, &file, &err))
        return cli_error("%s", err.text);
    FILE *out = io_atomic_stream(file);
    print_header(out, features);
    for (size_t i = 0; i < data->samples && !*interrupted; i++) {
        const float *x = data->x + ((size_t)data->first_column[i] + (size_t)data->seq - 1) * (size_t)data->features;
        fprintf(out, "%s,%s", part_of(data, i), cli_class_names[data->label[i]]);
        for (int f = 0; f < data->features; f++)
            fprintf(out, ",%.9g", (double)x[f]);
        fprintf(out, "\n");
    }
    if (*interrupted) {
        io_atomic_abort(&file);
        cli_error("interrupted: %s was not written", path);
        return CLI_INTERRUPTED;
    }
    return io_atomic_commit(&file, &err) ? cli_error("%s", err.text) : CLI_OK;
}

static int write_safetensors(const char *path, const lob_dataset *data, const cli_recipe *recipe,
                             const lob_read_params *read) {
    const lob_dataset_params *params = &recipe->dataset;
    int64_t events = (int64_t)data->events, samples = (int64_t)data->samples, n = data->features;
    const int64_t training[2] = {(int64_t)data->train.begin, (int64_t)data->train.end};
    const int64_t validation[2] = {(int64_t)data->validation.begin, (int64_t)data->validation.end};
    const io_tensor tensors[] = {
        {"x", IO_F32, 2, {events, n}, data->x, (size_t)(events * n) * sizeof(float)},
        {"first_column", IO_I64, 1, {samples}, data->first_column, (size_t)samples * sizeof(int64_t)},
        {"label", IO_U8, 1, {samples}, data->label, (size_t)samples},
        {"training", IO_I64, 1, {2}, training, sizeof training},
        {"validation", IO_I64, 1, {2}, validation, sizeof validation},
        {"mean", IO_F32, 1, {n}, data->norm.mean, (size_t)n * sizeof(float)},
        {"std", IO_F32, 1, {n}, data->norm.std, (size_t)n * sizeof(float)},
    };
    char levels[16], windows[128], horizon[16], smoothing[16], seq[16], stride[16], theta[32];
    snprintf(levels, sizeof levels, "%d", params->features.levels);
    cli_windows_print(&params->features, windows, sizeof windows);
    snprintf(horizon, sizeof horizon, "%d", params->label.horizon);
    snprintf(smoothing, sizeof smoothing, "%d", params->label.smoothing);
    snprintf(seq, sizeof seq, "%d", params->seq);
    snprintf(stride, sizeof stride, "%d", params->stride);
    snprintf(theta, sizeof theta, "%.17g", data->norm.theta);
    const io_metadata meta[] = {
        {"format", "tlob-features 1"},
        {"version", tlob_version()},
        {"levels", levels},
        {"windows", windows},
        {"horizon", horizon},
        {"smoothing", smoothing},
        {"seq", seq},
        {"stride", stride},
        {"odd_rows", cli_odd_rows_names[read->odd_rows]},
        {"drop_hidden", read->drop_hidden ? "1" : "0"},
        {"theta", theta},
    };
    io_error err;
    if (!io_safetensors_save(path, tensors, sizeof tensors / sizeof *tensors, meta, sizeof meta / sizeof *meta, &err))
        return cli_error("%s", err.text);
    return CLI_OK;
}

// Only now can a file be left behind: before, a signal ends the program as usual.
static int write_out(const features_options *options, const lob_dataset *data) {
    const cli_recipe *recipe = &options->recipe.recipe;
    const volatile sig_atomic_t *interrupted = cli_catch_interrupts();
    if (ends_with(options->out, ".csv"))
        return write_csv(options->out, data, &recipe->dataset.features, interrupted);
    int status = write_safetensors(options->out, data, recipe, &options->data.read);
    if (status || !*interrupted)
        return status;
    cli_error("interrupted; %s was complete by then", options->out);
    return CLI_INTERRUPTED;
}

static void print_samples(const lob_dataset *data) {
    const size_t *classes[] = {data->train_classes, data->validation_classes};
    const lob_range parts[] = {data->train, data->validation};
    printf("inputs     %d\nevents     %zu\nsamples    %zu\n", data->features, data->events, data->samples);
    for (int i = 0; i < 2; i++)
        printf("%-10s %zu samples, %zu %s, %zu %s, %zu %s\n", i ? "validation" : "training",
               parts[i].end - parts[i].begin, classes[i][0], cli_class_names[0], classes[i][1], cli_class_names[1],
               classes[i][2], cli_class_names[2]);
    printf("purged     %zu samples between them\ntheta      %.6g\n", data->purged, data->norm.theta);
}

int cli_features(int argc, char **argv) {
    features_options options = {0};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    cli_books books = {0};
    int status = CLI_FAILED;
    if (cli_output_spares_input(&options.data, "--out", options.out))
        status = cli_books_read(&options.data, &books, stdout);
    lob_dataset *data = status ? NULL : cli_dataset_build(&options.recipe.recipe, &books, NULL);
    cli_books_free(&books);
    if (!data)
        status = CLI_FAILED;
    else {
        print_samples(data);
        if (options.out)
            status = write_out(&options, data);
    }
    lob_dataset_destroy(&data);
    cli_data_free(&options.data);
    return status;
}
