// `tlob train`: a TLOB attention block and its head, trained on order-book files.
#include "cli/checkpoint.h"
#include "cli/interrupt.h"
#include "cli/model_file.h"

#include "io/atomic_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_EVERY       50 // steps between two looks at the loss: each waits for the device
#define PROGRESS_SECONDS 0.2
#define BATCH_MAX        1048576 // an interrupt waits for the step at hand
#define FEW_SAMPLES      10      // of a class: too few to learn it

typedef struct train_options {
    cli_context_options context;
    cli_data_options data;
    cli_recipe_options recipe;
    int64_t steps, batch, d_out, head_dim, validate_every, checkpoint_every;
    int keep;
    bool no_graph;
    uint64_t seed;
    float lr;
    const char *out, *losses, *validation, *checkpoint, *resume;
} train_options;

enum {
    KEY_STEPS = CLI_KEY_OWN,
    KEY_BATCH,
    KEY_SEED,
    KEY_LR,
    KEY_D_OUT,
    KEY_HEAD_DIM,
    KEY_OUT,
    KEY_LOSSES,
    KEY_VALIDATE_EVERY,
    KEY_VALIDATION,
    KEY_KEEP,
    KEY_CHECKPOINT,
    KEY_CHECKPOINT_EVERY,
    KEY_RESUME,
    KEY_NO_GRAPH
};
enum { KEEP_LAST, KEEP_BEST };

static const char *const keep_names[] = {[KEEP_LAST] = "last", [KEEP_BEST] = "best", NULL};

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Training:", 4},
    {"out", KEY_OUT, "FILE", 0, "Where the model is written: needed. A file that exists is replaced at the end", 4},
    {"steps", KEY_STEPS, "COUNT", 0, "Steps of the optimizer (default 2000)", 4},
    {"batch", KEY_BATCH, "SAMPLES", 0, "Samples of one step, 1 to 1048576 (default 64)", 4},
    {"lr", KEY_LR, "NUMBER", 0, "Learning rate of Adam (default 0.001)", 4},
    {"seed", KEY_SEED, "NUMBER", 0,
     "Of the initial weights and of the order of samples: the same on every device (default 1)", 4},
    {"d-out", KEY_D_OUT, "ROWS", 0, "Rows of the block's output (default 16)", 4},
    {"head-dim", KEY_HEAD_DIM, "ROWS", 0, "Rows of a token (feature) or of a head (time); divides d-out (default 4)",
     4},
    {"losses", KEY_LOSSES, "FILE", 0,
     "Write the loss of every step of this run as CSV: step,loss. Slower, for it waits each time", 4},
    {"validate-every", KEY_VALIDATE_EVERY, "STEPS", 0,
     "Evaluate the validation part each time so many steps are done, and after the last; a line each (default 0: only "
     "at the end)",
     4},
    {"validation", KEY_VALIDATION, "FILE", 0,
     "Write the lines of --validate-every, which it needs, of this run as CSV: step,loss,accuracy,macro_f1", 4},
    {"keep", KEY_KEEP, "WHICH", 0,
     "Which model is written: last (default), or best, of the lowest validation loss seen; needs --validate-every", 4},
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "Write there all that --resume needs to go on: at the end, or after Ctrl-C", 4},
    {"checkpoint-every", KEY_CHECKPOINT_EVERY, "STEPS", 0,
     "And each time so many steps are done (default 0: only at the end); needs --checkpoint", 4},
    {"resume", KEY_RESUME, "FILE", 0,
     "Go on from a checkpoint to --steps, with the other options and the files of then; --checkpoint may name the same "
     "file",
     4},
    {"no-graph", KEY_NO_GRAPH, NULL, 0,
     "Enqueue each step call by call on a GPU, not as one CUDA graph: slower, with the same bits, and TLOB_TRACE then "
     "has the products of every step; a block with the fused plan makes none",
     4},
    {0},
};

static const char doc[] =
    "Trains a TLOB attention block with a classification head on order-book files."
    "\vFrom each pair of files come order flow imbalances (the inputs) and trend labels: up, stationary, down. The "
    "first "
    "part of the samples is for training, the rest for validation; normalisation and theta are learnt from the "
    "training "
    "part alone, and no window or label crosses a file, a halt or the border between the parts. Batches are drawn at "
    "random from the training part.\n"
    "\n"
    "At the end the figures of the validation part are printed: loss (mean cross-entropy), accuracy, macro-F1, the "
    "share "
    "of its commonest class (majority), and the focus of the attention (mean_max: 1 is one-hot); with --train-share 1 "
    "there is no validation part. The model goes to "
    "--out, with all that `tlob eval' needs.\n"
    "\n"
    "A validation loss that rises while the training loss falls is overfitting: --validate-every shows it, and --keep "
    "best writes the model of before; the figures at the end are of the step that is written. (A model chosen by the "
    "validation part looks better there than it is.)\n"
    "\n"
    "Ctrl-C ends the training after the step at hand; the model so far is written and the exit status is 130. A loss "
    "that is not finite ends it with an error, and nothing is written but --losses and "
    "--validation. So does a checkpoint that cannot be written, but the model so far is.\n"
    "\n"
    "A run that is resumed writes, bit for bit, the model of one that was not stopped, however often it is stopped: on "
    "the host always, on a GPU with --deterministic. One with other options or samples than the checkpoint's is "
    "refused; on another GPU or with another version of a vendor's library it goes on with a warning.\n"
    "\n"
    "A class with fewer than 10 training samples is named by a warning on standard error.\n"
    "\n"
    "A line with rate, loss and time left is shown while it runs, if standard error is a terminal.";

static const struct argp_child children[] = {
    {&cli_context_argp, 0, NULL, 0}, {&cli_data_argp, 0, NULL, 0}, {&cli_recipe_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    train_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        state->child_inputs[1] = &options->data;
        state->child_inputs[2] = &options->recipe;
        return 0;
    case KEY_STEPS:
        options->steps = cli_integer(state, "--steps", arg, 1, INT64_C(1000000000));
        return 0;
    case KEY_BATCH:
        options->batch = cli_integer(state, "--batch", arg, 1, BATCH_MAX);
        return 0;
    case KEY_SEED:
        options->seed = (uint64_t)cli_integer(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_LR:
        options->lr = (float)cli_number(state, "--lr", arg, 0, 1e30);
        return 0;
    case KEY_D_OUT:
        options->d_out = cli_integer(state, "--d-out", arg, 1, 1 << 20);
        return 0;
    case KEY_HEAD_DIM:
        options->head_dim = cli_integer(state, "--head-dim", arg, 1, TLOB_HEAD_DIM_MAX);
        return 0;
    case KEY_OUT:
        options->out = arg;
        return 0;
    case KEY_LOSSES:
        options->losses = arg;
        return 0;
    case KEY_VALIDATE_EVERY:
        options->validate_every = cli_integer(state, "--validate-every", arg, 0, INT64_C(1000000000));
        return 0;
    case KEY_VALIDATION:
        options->validation = arg;
        return 0;
    case KEY_KEEP:
        options->keep = cli_choice(state, "--keep", arg, keep_names);
        return 0;
    case KEY_CHECKPOINT:
        options->checkpoint = arg;
        return 0;
    case KEY_CHECKPOINT_EVERY:
        options->checkpoint_every = cli_integer(state, "--checkpoint-every", arg, 0, INT64_C(1000000000));
        return 0;
    case KEY_RESUME:
        options->resume = arg;
        return 0;
    case KEY_NO_GRAPH:
        options->no_graph = true;
        return 0;
    case ARGP_KEY_END:
        if (options->keep == KEEP_BEST && !options->validate_every)
            argp_error(state, "--keep best needs --validate-every STEPS");
        if (options->validation && !options->validate_every)
            argp_error(state, "--validation needs --validate-every STEPS");
        if (options->checkpoint_every && !options->checkpoint)
            argp_error(state, "--checkpoint-every needs --checkpoint FILE");
        if (!options->out)
            argp_error(state, "say where the model is to be written: --out FILE");
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

// --- the loop ---

// The figures of the validation part after a step.
typedef struct validation_line {
    int64_t step;
    double loss, accuracy, macro_f1;
} validation_line;

typedef struct trainer {
    const train_options *options;
    const lob_dataset *data;
    tlob_stream *stream;
    tlob_model *model;
    bool captures;     // steps are launched as one graph, once a first one has been made
    bool warm;         // the last that the model did was such a step
    tlob_graph *graph; // of a step, NULL before it is captured
    cli_feed feed;
    cli_draw draw;
    size_t *samples;              // numbers of the batch at hand
    float *losses;                // of every step of this run, or NULL
    validation_line *validations; // of this run, in order, or NULL; there is room for all
    int64_t n_validations;
    int64_t begun, done, looked; // steps done at the beginning and now; the last one whose loss was looked at
    int64_t validated;           // the step that the figures are of, which --keep tells; 0: none yet
    cli_figures figures;         // of the validation part then
    cli_checkpoint state;        // on the host: of the last checkpoint, but `best` is always that of now
    const cli_meta *run;         // what a checkpoint must agree with
    double started, shown;
    const volatile sig_atomic_t *interrupted;
    bool unwritten;              // a checkpoint could not be written: the run ends, and its model is all that is left
} trainer;

static tlob_block_shape block_shape(const trainer *t) {
    return (tlob_block_shape){.d_in = t->data->features,
                              .d_out = t->options->d_out,
                              .head_dim = t->options->head_dim,
                              .seq = t->data->seq,
                              .axis = t->options->recipe.recipe.axis};
}

static int64_t weight_count(const trainer *t) {
    tlob_block_shape shape = block_shape(t);
    return tlob_model_weight_count(&shape);
}

static void show_progress(trainer *t, float loss) {
    double now = cli_seconds();
    bool last = t->done == t->options->steps;
    if (!isatty(STDERR_FILENO) || (now - t->shown < PROGRESS_SECONDS && !last))
        return;
    double rate = (double)(t->done - t->begun) / (now - t->started);
    int64_t left = (int64_t)((double)(t->options->steps - t->done) / rate + 0.5);
    fprintf(stderr, "\rstep %" PRId64 "/%" PRId64 "  %.0f steps/s  loss %.4f  %" PRId64 ":%02" PRId64 " left\033[K",
            t->done, t->options->steps, rate, (double)loss, left / 60, left % 60);
    t->shown = now;
}

static void end_progress(void) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

// Looks at the loss of the step just done, waiting for it.
static bool look(trainer *t) {
    tlob_model_figures figures;
    if (tlob_model_result(t->model, t->stream, &figures)) {
        end_progress();
        cli_tlob_error("training");
        return false;
    }
    if (t->losses)
        t->losses[t->done - t->begun - 1] = figures.loss;
    if (!isfinite(figures.loss)) {
        end_progress();
        cli_error("the loss is %g after step %" PRId64 ": training has diverged; try a smaller --lr than %g",
                  (double)figures.loss, t->done, (double)t->options->lr);
        return false;
    }
    t->looked = t->done;
    show_progress(t, figures.loss);
    return true;
}

// Evaluates the validation part with the model at hand, and keeps the figures unless --keep prefers earlier ones.
static bool validate(trainer *t) {
    cli_figures figures;
    end_progress();
    t->warm = false;
    if (!cli_evaluate(t->model, &t->feed, t->data->validation, cli_evaluation_batch(t->data->seq), &figures))
        return false;
    const validation_line line = {t->done, figures.loss, cli_accuracy(&figures), cli_macro_f1(&figures)};
    if (t->options->validate_every) {
        printf("step %" PRId64 ": validation loss %.6f, accuracy %.4f, macro_f1 %.4f\n", line.step, line.loss,
               line.accuracy, line.macro_f1);
        fflush(stdout);
    }
    if (t->validations)
        t->validations[t->n_validations++] = line;
    if (t->state.best && t->validated && !(figures.loss < t->figures.loss))
        return true;
    t->validated = t->done;
    t->figures = figures;
    if (t->state.best && tlob_model_get_weights(t->model, t->stream, t->state.best, t->state.count)) {
        cli_tlob_error("reading the weights");
        return false;
    }
    return true;
}

static bool save_checkpoint(trainer *t) {
    cli_checkpoint *state = &t->state;
    end_progress();
    if (tlob_model_get_weights(t->model, t->stream, state->weights, state->count) ||
        tlob_model_get_optimizer(t->model, t->stream, state->moments, 2 * state->count, &state->steps)) {
        cli_tlob_error("reading the model");
        return false;
    }
    state->draw = t->draw;
    state->best_step = t->validated;
    state->best_figures = t->figures;
    cli_checkpoint_fate fate = cli_checkpoint_save(t->options->checkpoint, state, t->run);
    t->unwritten = fate == CLI_CHECKPOINT_UNWRITTEN;
    return fate != CLI_CHECKPOINT_DIVERGED;
}

// Puts the model and the trainer where the checkpoint was written.
static bool resume(trainer *t) {
    cli_checkpoint *state = &t->state;
    const char *path = t->options->resume;
    if (!cli_checkpoint_load(path, state, t->run))
        return false;
    if (state->steps > t->options->steps) {
        cli_error("%s: of step %" PRId64 ": to go on, give more --steps than %" PRId64, path, state->steps,
                  t->options->steps);
        return false;
    }
    if (tlob_model_set_weights(t->model, t->stream, state->weights, state->count) ||
        tlob_model_set_optimizer(t->model, t->stream, state->moments, 2 * state->count, state->steps)) {
        cli_tlob_error("resuming");
        return false;
    }
    t->begun = t->done = t->looked = state->steps;
    t->draw = state->draw;
    t->validated = state->best_step;
    t->figures = state->best_figures;
    printf("resumed    step %" PRId64 " of %s\n", t->done, path);
    return true;
}

// Whether what is done `every` so many steps (0: never) is due after the step just done.
static bool is_turn(const trainer *t, int64_t every) {
    return every && t->done % every == 0;
}

// Makes a graph of the step on the batch, whose place and size are those of all.
static tlob_status capture_step(trainer *t, const cli_batch *batch) {
    tlob_status status = tlob_graph_begin(t->stream);
    if (status)
        return status;
    status = tlob_model_step(t->model, t->stream, batch->x, batch->labels, batch->count);
    tlob_status ended = tlob_graph_end(t->stream, &t->graph);
    return status ? status : ended;
}

// The first step makes its products warm, as a capture needs them. After an evaluation the step is called too: a graph
// repeats what the device does, and not what the model notes on the host, of how many samples its figures are.
static tlob_status run_step(trainer *t, const cli_batch *batch) {
    if (!t->captures || !t->warm) {
        t->warm = true;
        return tlob_model_step(t->model, t->stream, batch->x, batch->labels, batch->count);
    }
    tlob_status status = t->graph ? TLOB_OK : capture_step(t, batch);
    return status ? status : tlob_graph_launch(t->graph, t->stream);
}

static bool step(trainer *t) {
    cli_batch batch;
    for (int64_t i = 0; i < t->options->batch; i++)
        t->samples[i] = cli_draw_sample(&t->draw, t->data->train);
    if (!cli_feed_upload(&t->feed, t->samples, t->options->batch, &batch))
        return false;
    if (run_step(t, &batch)) {
        end_progress();
        cli_tlob_error("training");
        return false;
    }
    t->done++;
    bool validation = is_turn(t, t->options->validate_every), saving = is_turn(t, t->options->checkpoint_every);
    bool due = validation || saving || t->losses || t->done % LOOK_EVERY == 0 || t->done == t->options->steps ||
               *t->interrupted;
    return !due || (look(t) && (!validation || validate(t)) && (!saving || save_checkpoint(t)));
}

static bool run_steps(trainer *t) {
    const train_options *options = t->options;
    t->interrupted = cli_catch_interrupts();
    t->started = t->shown = cli_seconds();
    bool good = true;
    while (good && t->done < options->steps && !*t->interrupted && !t->unwritten)
        good = step(t);
    if (good && *t->interrupted && t->looked < t->done)
        good = look(t); // a signal may have come after the last look
    if (good && options->checkpoint && !t->unwritten && (t->done == t->begun || !is_turn(t, options->checkpoint_every)))
        good = save_checkpoint(t);
    // After the checkpoint: a run with more steps would not look here, and may not keep what it sees.
    if (good && options->validate_every && t->done == options->steps && !is_turn(t, options->validate_every))
        good = validate(t);
    end_progress();
    return good;
}

// --- around it ---

static int write_losses(const trainer *t) {
    io_atomic *file;
    io_error err;
    if (io_atomic_open(t->options->losses, &file, &err))
        return cli_error("%s", err.text);
    fprintf(io_atomic_stream(file), "step,loss\n");
    for (int64_t i = t->begun; i < t->done; i++)
        fprintf(io_atomic_stream(file), "%" PRId64 ",%.9g\n", i + 1, (double)t->losses[i - t->begun]);
    return io_atomic_commit(&file, &err) ? cli_error("%s", err.text) : CLI_OK;
}

static int write_validations(const trainer *t) {
    io_atomic *file;
    io_error err;
    if (io_atomic_open(t->options->validation, &file, &err))
        return cli_error("%s", err.text);
    fprintf(io_atomic_stream(file), "step,loss,accuracy,macro_f1\n");
    for (const validation_line *v = t->validations; v < t->validations + t->n_validations; v++)
        fprintf(io_atomic_stream(file), "%" PRId64 ",%.17g,%.17g,%.17g\n", v->step, v->loss, v->accuracy, v->macro_f1);
    return io_atomic_commit(&file, &err) ? cli_error("%s", err.text) : CLI_OK;
}

static cli_model_file model_file(const trainer *t, int64_t steps, float *weights) {
    return (cli_model_file){.shape = block_shape(t),
                            .recipe = t->options->recipe.recipe,
                            .read = t->options->data.read,
                            .norm = t->data->norm,
                            .seed = t->options->seed,
                            .steps = steps,
                            .batch = t->options->batch,
                            .lr = t->options->lr,
                            .weights = weights};
}

static int write_model(trainer *t) {
    bool best = t->state.best && t->validated;
    if (!best && tlob_model_get_weights(t->model, t->stream, t->state.weights, t->state.count))
        return cli_tlob_error("reading the weights");
    cli_model_file file = model_file(t, best ? t->validated : t->done, best ? t->state.best : t->state.weights);
    return cli_model_file_save(t->options->out, &file) ? CLI_OK : CLI_FAILED;
}

// What the version, the device and the vendors' libraries make of a product's last bits.
static void describe_machine(const tlob_context *ctx, char *text, size_t size) {
    tlob_memory memory = tlob_context_memory(ctx);
    tlob_device_info device;
    bool named = memory == TLOB_MEMORY_CUDA && !tlob_device_get_info(tlob_context_device(ctx), &device);
    size_t used =
        (size_t)snprintf(text, size, "tlob %s, %s", tlob_version(), named ? device.name : tlob_memory_name(memory));
    for (int i = 0; i < tlob_backend_count() && used < size; i++) {
        tlob_backend_info info;
        if (!tlob_backend_get_info(i, &info) && info.built && info.caps.memory == memory)
            used += (size_t)snprintf(text + used, size - used, ", %s%s%s", info.name, *info.version ? " " : "",
                                     info.version);
    }
}

// All that the state after a step depends on. Options come before what follows from them, for the first that differs is
// the one that is named.
static bool describe_run(const trainer *t, const tlob_context *ctx, int64_t capacity, cli_meta *run) {
    const train_options *options = t->options;
    cli_model_file file = model_file(t, 0, NULL);
    tlob_settings settings;
    char policy[64], machine[CLI_META_TEXT];
    const tlob_block_params block = {.shape = block_shape(t), .max_samples = capacity};
    tlob_block_choice plan;
    if (tlob_context_settings(ctx, &settings) || tlob_block_explain(ctx, &block, &plan)) {
        cli_tlob_error(NULL);
        return false;
    }
    tlob_policy_print(&settings.policy, policy, sizeof policy);
    describe_machine(ctx, machine, sizeof machine);
    cli_meta_add(run, "device", "%s", tlob_memory_name(tlob_context_memory(ctx)));
    cli_meta_add(run, "compute", "%s", tlob_compute_name(settings.compute));
    cli_meta_add(run, "policy", "%s", policy);
    cli_meta_add(run, "deterministic", "%s", settings.deterministic ? "on" : "off");
    cli_meta_add(run, "block_plan", "%s", tlob_block_plan_name(plan.plan)); // what it came to, whoever chose
    cli_meta_add(run, "workspace_mib", "%.17g", (double)settings.workspace_bytes / (1 << 20));
    cli_meta_add(run, "keep", "%s", keep_names[options->keep]);
    // Where the last is kept, how often it is looked at changes nothing.
    cli_meta_add(run, "validate_every", "%" PRId64, options->keep == KEEP_BEST ? options->validate_every : 0);
    cli_model_file_describe(&file, run);
    cli_meta_add(run, "training_samples", "%zu", t->data->train.end - t->data->train.begin);
    cli_meta_add(run, "validation_samples", "%zu", t->data->validation.end - t->data->validation.begin);
    cli_meta_add(run, CLI_RUN_DATA, "%016" PRIx64, cli_dataset_hash(t->data));
    cli_meta_add(run, CLI_RUN_MACHINE, "%s", machine);
    return true;
}

static void print_part(const char *name, lob_range range, const size_t *classes) {
    printf("%-10s %zu samples", name, range.end - range.begin);
    for (int i = 0; i < LOB_CLASSES; i++)
        printf(", %zu %s", classes[i], cli_class_names[i]);
    printf("\n");
}

static void warn_of_rare_classes(const lob_dataset *data) {
    for (int i = 0; i < LOB_CLASSES; i++)
        if (data->train_classes[i] < FEW_SAMPLES)
            cli_error("warning: class %s has %zu training samples: too few to learn it; more rows or another --theta "
                      "would give more",
                      cli_class_names[i], data->train_classes[i]);
}

static int report(trainer *t) {
    if (t->data->validation.begin == t->data->validation.end) {
        printf("no validation part\n");
        return CLI_OK;
    }
    if (!t->validated && !validate(t))
        return CLI_FAILED;
    printf("validation\nstep       %" PRId64 "\n", t->validated);
    cli_figures_print(&t->figures, stdout);
    return CLI_OK;
}

static int train(trainer *t) {
    bool good = run_steps(t);
    double seconds = cli_seconds() - t->started;
    int status = good ? CLI_OK : CLI_FAILED;
    if (t->losses && write_losses(t))
        status = CLI_FAILED;
    if (t->validations && write_validations(t))
        status = CLI_FAILED;
    if (!good)
        return status;
    if (write_model(t))
        return CLI_FAILED;
    int64_t steps = t->done - t->begun;
    printf("trained    %" PRId64 " steps in %.2f s, %.0f steps/s\n", steps, seconds, (double)steps / seconds);
    printf("model      %s\n", t->options->out);
    if (t->options->checkpoint && !t->unwritten)
        printf("checkpoint %s\n", t->options->checkpoint);
    if (t->state.best && t->validated)
        printf("kept       step %" PRId64 ", of the lowest validation loss\n", t->validated);
    if (t->unwritten) {
        cli_error("ended after step %" PRId64 " of %" PRId64 ", for the checkpoint could not be written; the model so far "
                  "is in %s", t->done, t->options->steps, t->options->out);
        return CLI_FAILED;
    }
    if (*t->interrupted) {
        const char *checkpoint = t->options->checkpoint;
        cli_error("interrupted after step %" PRId64 " of %" PRId64 "; the model so far is in %s%s%s", t->done,
                  t->options->steps, t->options->out, checkpoint ? ", and --resume goes on from " : "",
                  checkpoint ? checkpoint : "");
        return status ? status : CLI_INTERRUPTED;
    }
    return report(t) ? CLI_FAILED : status;
}

// Makes stream, model and buffers, trains, and frees them.
static int train_in(tlob_context *ctx, const train_options *options, const lob_dataset *data) {
    cli_meta run = {.count = 0};
    trainer t = {.options = options, .data = data, .draw = {options->seed}, .run = &run};
    tlob_model_params params = tlob_model_params_default();
    int64_t evaluation = cli_evaluation_batch(data->seq);
    int64_t capacity = options->batch > evaluation ? options->batch : evaluation;
    t.captures = !options->no_graph && tlob_context_memory(ctx) == TLOB_MEMORY_CUDA;
    params.shape = block_shape(&t);
    params.adam.lr = options->lr;
    params.max_samples = capacity;
    params.seed = options->seed;
    t.samples = malloc((size_t)options->batch * sizeof *t.samples);
    t.losses = options->losses ? malloc((size_t)options->steps * sizeof *t.losses) : NULL;
    if (options->validation) // one each time, one after the last step, and one for the figures at the end
        t.validations = malloc((size_t)(options->steps / options->validate_every + 2) * sizeof *t.validations);
    int status = CLI_FAILED;
    if (!t.samples || (options->losses && !t.losses) || (options->validation && !t.validations))
        cli_error("out of memory");
    else if (tlob_stream_create(ctx, &t.stream) || tlob_model_create(t.stream, &params, &t.model))
        cli_tlob_error("making the model");
    else if (cli_checkpoint_init(&t.state, weight_count(&t), options->keep == KEEP_BEST) &&
             cli_feed_init(&t.feed, t.stream, data, capacity) &&
             ((!options->checkpoint && !options->resume) || describe_run(&t, ctx, capacity, &run)) &&
             (!options->resume || resume(&t)))
        status = train(&t);
    cli_feed_finish(&t.feed);
    cli_checkpoint_finish(&t.state);
    tlob_graph_destroy(&t.graph);
    tlob_model_destroy(&t.model);
    tlob_stream_close(&t.stream);
    free(t.validations);
    free(t.losses);
    free(t.samples);
    return status;
}

// Whether a file can be written there, before hours are spent on what goes into it.
static bool can_write(const char *path) {
    io_atomic *file;
    io_error err;
    if (path && io_atomic_open(path, &file, &err)) {
        cli_error("%s", err.text);
        return false;
    }
    if (path)
        io_atomic_abort(&file);
    return true;
}

// Whether two files that are named, each by its option, are two.
static bool differ(const char *a_option, const char *a, const char *b_option, const char *b) {
    if (!a || !b || !io_atomic_same(a, b))
        return true;
    cli_error("%s %s and %s %s are one file: name two", a_option, a, b_option, b);
    return false;
}

static bool outputs_are_good(const train_options *options) {
    const struct {
        const char *option, *path;
    } files[] = {{"--out", options->out},
                 {"--losses", options->losses},
                 {"--validation", options->validation},
                 {"--checkpoint", options->checkpoint},
                 {"--resume", options->resume}};
    enum { OUTPUTS = 4, FILES }; // a checkpoint may take the place of the one that it goes on from
    for (int i = 0; i < FILES; i++) {
        if (i < OUTPUTS && !cli_output_spares_input(&options->data, files[i].option, files[i].path))
            return false;
        for (int j = 0; j < i && j < OUTPUTS - (i == OUTPUTS); j++)
            if (!differ(files[i].option, files[i].path, files[j].option, files[j].path))
                return false;
    }
    return can_write(options->out) && can_write(options->losses) && can_write(options->validation) &&
           can_write(options->checkpoint);
}

static lob_dataset *load(const train_options *options) {
    cli_books books;
    lob_dataset *data = NULL;
    if (!cli_books_read(&options->data, &books, stdout))
        data = cli_dataset_build(&options->recipe.recipe, &books, NULL);
    cli_books_free(&books);
    if (data && data->train.begin == data->train.end) {
        cli_error("no sample is left for training: more rows or a larger --train-share are needed");
        lob_dataset_destroy(&data);
    } else if (data && options->validate_every && data->validation.begin == data->validation.end) {
        cli_error("--validate-every: there is no validation part; more rows or a smaller --train-share are needed");
        lob_dataset_destroy(&data);
    }
    return data;
}

int cli_train(int argc, char **argv) {
    train_options options = {.steps = 2000, .batch = 64, .d_out = 16, .head_dim = 4, .seed = 1, .lr = 1e-3f};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    int status = CLI_FAILED;
    tlob_context *ctx = cli_context_create(&options.context);
    lob_dataset *data = NULL;
    if (ctx && outputs_are_good(&options) && (data = load(&options))) {
        char device[192];
        cli_context_describe(ctx, device, sizeof device);
        printf("device     %s\n", device);
        print_part("training", data->train, data->train_classes);
        print_part("validation", data->validation, data->validation_classes);
        printf("purged     %zu samples between them\ntheta      %.6g\n", data->purged, data->norm.theta);
        warn_of_rare_classes(data);
        status = train_in(ctx, &options, data);
    }
    lob_dataset_destroy(&data);
    tlob_context_destroy(&ctx);
    cli_data_free(&options.data);
    return status;
}
