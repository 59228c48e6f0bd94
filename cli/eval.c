// `tlob eval`: a trained block on order-book files.
#include "cli/figures.h"
#include "cli/model_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_options {
    cli_context_options context;
    cli_data_options data;
    cli_recipe_options asked; // options that the model answers already: they must agree with it
    const char *model;
    int part;
} eval_options;

enum { KEY_MODEL = CLI_KEY_OWN, KEY_PART };
enum { PART_ALL, PART_TRAINING, PART_VALIDATION };

static const char *const part_names[] = {"all", "training", "validation", NULL};

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Evaluation:", 4},
    {"model", KEY_MODEL, "FILE", 0, "The model that `tlob train' wrote: needed", 4},
    {"part", KEY_PART, "PART", 0,
     "Which samples: all (default), or the training or validation part by the model's train-share: given the files "
     "that "
     "it was trained on, the same samples as then",
     4},
    {0},
};

static const char doc[] =
    "Evaluates a model on order-book files: loss, accuracy, macro-F1, the share of the commonest class (majority), the "
    "focus of the attention, each class's scores, and the confusion matrix."
    "\vThe model's file says how inputs and labels are made, and what they are normalised with: nothing is learnt from "
    "these files. The options of `tlob train' for inputs and labels, and --drop-hidden, may be given, but only to make "
    "sure: one that differs from the model is refused. Only --odd-rows, whose default here is what the model was "
    "trained with, may differ.";

static const struct argp_child children[] = {
    {&cli_context_argp, 0, NULL, 0}, {&cli_data_argp, 0, NULL, 0}, {&cli_recipe_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    eval_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        state->child_inputs[1] = &options->data;
        state->child_inputs[2] = &options->asked;
        return 0;
    case KEY_MODEL:
        options->model = arg;
        return 0;
    case KEY_PART:
        options->part = cli_choice(state, "--part", arg, part_names);
        return 0;
    case ARGP_KEY_END:
        if (!options->model)
            argp_error(state, "say which model: --model FILE");
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

static bool agrees(const eval_options *options, unsigned bit, const char *name, double asked, double has) {
    if (!(options->asked.given & bit) || asked == has)
        return true;
    cli_error("--%s %g was asked for, but %s was made with %s %g", name, asked, options->model, name, has);
    return false;
}

static bool agrees_text(const eval_options *options, unsigned bit, const char *name, const char *asked,
                        const char *has) {
    if (!(options->asked.given & bit) || !strcmp(asked, has))
        return true;
    cli_error("--%s %s was asked for, but %s was made with %s %s", name, asked, options->model, name, has);
    return false;
}

static bool check_asked(const eval_options *options, const cli_model_file *file) {
    const lob_dataset_params *asked = &options->asked.recipe.dataset, *has = &file->recipe.dataset;
    static const char *const modes[] = {
        [LOB_THETA_MEAN] = "mean", [LOB_THETA_HALF_SPREAD] = "half-spread", [LOB_THETA_GIVEN] = "(a number)"};
    char asked_windows[128], windows[128];
    cli_windows_print(&asked->features, asked_windows, sizeof asked_windows);
    cli_windows_print(&has->features, windows, sizeof windows);
    return agrees(options, CLI_GIVEN_LEVELS, "levels", asked->features.levels, has->features.levels) &&
           agrees_text(options, CLI_GIVEN_WINDOWS, "windows", asked_windows, windows) &&
           agrees(options, CLI_GIVEN_HORIZON, "horizon", asked->label.horizon, has->label.horizon) &&
           agrees(options, CLI_GIVEN_SMOOTHING, "smoothing", asked->label.smoothing, has->label.smoothing) &&
           agrees_text(options, CLI_GIVEN_THETA, "theta", modes[asked->theta_mode], modes[has->theta_mode]) &&
           (asked->theta_mode != LOB_THETA_GIVEN ||
            agrees(options, CLI_GIVEN_THETA, "theta", asked->theta, file->norm.theta)) &&
           agrees_text(options, CLI_GIVEN_AXIS, "axis", cli_axis_names[options->asked.recipe.axis],
                       cli_axis_names[file->shape.axis]) &&
           agrees(options, CLI_GIVEN_SEQ, "seq", asked->seq, has->seq) &&
           agrees(options, CLI_GIVEN_STRIDE, "stride", asked->stride, has->stride) &&
           agrees(options, CLI_GIVEN_SHARE, "train-share", asked->train_fraction, has->train_fraction);
}

static int evaluate(tlob_context *ctx, const cli_model_file *file, const lob_dataset *data, lob_range range) {
    tlob_model_params params = tlob_model_params_default();
    params.shape = file->shape;
    params.max_samples = cli_evaluation_batch(file->shape.seq);
    tlob_stream *stream = NULL;
    tlob_model *model = NULL;
    cli_feed feed = {0};
    cli_figures figures;
    int status = CLI_FAILED;
    if (tlob_stream_create(ctx, &stream) || tlob_model_create(stream, &params, &model) ||
        tlob_model_set_weights(model, stream, file->weights, tlob_model_weight_count(&file->shape)))
        cli_tlob_error("making the model");
    else if (cli_feed_init(&feed, stream, data, params.max_samples) &&
             cli_evaluate(model, &feed, range, params.max_samples, &figures)) {
        cli_figures_print(&figures, stdout);
        cli_confusion_print(&figures, stdout);
        status = CLI_OK;
    }
    cli_feed_finish(&feed);
    tlob_model_destroy(&model);
    tlob_stream_close(&stream);
    return status;
}

static int eval_in(tlob_context *ctx, const eval_options *options, const cli_model_file *file) {
    lob_dataset *data = cli_model_file_samples(options->model, file, &options->data, options->part == PART_ALL);
    if (!data)
        return CLI_FAILED;
    lob_range range = options->part == PART_TRAINING ? data->train : data->validation;
    char device[192];
    cli_context_describe(ctx, device, sizeof device);
    printf("device     %s\npart       %s\n", device, part_names[options->part]);
    int status = range.begin < range.end ? evaluate(ctx, file, data, range)
                                         : cli_error("there is no sample in the %s part", part_names[options->part]);
    lob_dataset_destroy(&data);
    return status;
}

int cli_eval(int argc, char **argv) {
    eval_options options = {0};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    int status = CLI_FAILED;
    cli_model_file file = {0};
    tlob_context *ctx = cli_context_create(&options.context);
    if (ctx && cli_model_file_load(options.model, &file) && check_asked(&options, &file))
        status = eval_in(ctx, &options, &file);
    free(file.weights);
    tlob_context_destroy(&ctx);
    cli_data_free(&options.data);
    return status;
}
