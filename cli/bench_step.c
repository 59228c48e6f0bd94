// The training step of the block with its head: as one CUDA graph and call by call, whole and stage by stage.
#include "cli/bench.h"

#include "parity/parity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"graph", "calls"};

// Data that both the whole and the stages are timed on.
typedef struct batch {
    int64_t n; // samples
    tlob_block_shape shape;
    tlob_buffer *x, *labels;
} batch;

static int64_t features_in(const batch *d) {
    return d->shape.d_in * d->shape.seq * d->n;
}

static int64_t features_out(const batch *d) {
    return d->shape.d_out * d->shape.seq * d->n;
}

// Another batch for each `step`.
static bool fill_batch(const bench *b, const batch *d, int step) {
    const int64_t count = features_in(d);
    float *x = malloc((size_t)count * sizeof *x);
    uint8_t *labels = malloc((size_t)d->n);
    bool good = x && labels;
    if (!good)
        cli_error("out of memory");
    for (int64_t i = 0; good && i < count; i++)
        x[i] = parity_fill_value(PARITY_ORDER_FLOW, b->options->seed, (uint32_t)step, i, count);
    for (int64_t i = 0; good && i < d->n; i++)
        labels[i] = (uint8_t)((i * 7 + step) % TLOB_CLASSES);
    if (good && (tlob_upload(b->stream, tlob_buffer_data(d->x), x, (size_t)count * sizeof *x) ||
                 tlob_upload(b->stream, tlob_buffer_data(d->labels), labels, (size_t)d->n))) {
        cli_tlob_error("bench");
        good = false;
    }
    free(labels);
    free(x);
    return good;
}

// Runs a work once, which makes it warm, and captures it `calls` times as one graph. NULL after printing why.
static tlob_graph *capture(const bench *b, const bench_work *work, int calls) {
    tlob_graph *graph = NULL;
    tlob_status status = work->enqueue(work->user, b->stream);
    if (!status && !(status = tlob_graph_begin(b->stream))) {
        for (int i = 0; i < calls && !status; i++)
            status = work->enqueue(work->user, b->stream);
        tlob_status ended = tlob_graph_end(b->stream, &graph);
        status = status ? status : ended;
    }
    if (!status)
        return graph;
    cli_tlob_error("bench");
    tlob_graph_destroy(&graph);
    return NULL;
}

static tlob_status launch(const void *user, tlob_stream *stream) {
    return tlob_graph_launch(*(tlob_graph *const *)user, stream);
}

// A work as often as a graph has it.
typedef struct repeated {
    bench_work work;
    int times;
} repeated;

static tlob_status run_repeated(const void *user, tlob_stream *stream) {
    const repeated *r = user;
    tlob_status status = TLOB_OK;
    for (int i = 0; i < r->times && !status; i++)
        status = r->work.enqueue(r->work.user, stream);
    return status;
}

// Times a work as a graph of `in_graph` calls, launched again and again, against the calls themselves; microseconds of
// one call. *row is the row in JSON, NULL with a table. False after printing why.
static bool compare(const bench *b, const char *what, int64_t n, bench_work work, int in_graph, int64_t bytes,
                    cJSON **row) {
    const int repeat = bench_repeat(b), calls = 20 / in_graph;
    double *samples = malloc(2 * (size_t)repeat * sizeof *samples);
    tlob_graph *graph = samples ? capture(b, &work, in_graph) : NULL;
    if (!samples)
        cli_error("out of memory");
    const repeated again = {work, in_graph};
    bench_needs needs = {.bytes = bytes};
    bool good =
        graph &&
        bench_measure(b, BENCH_STREAM, (bench_work[2]){{launch, &graph}, {run_repeated, &again}}, 2, calls, samples) &&
        bench_cuda_count(b->cuda, b->stream, &work, &needs.kernels);
    for (int i = 0; good && i < 2 * repeat; i++)
        samples[i] /= in_graph;
    if (good) {
        const bench_times result[] = {bench_summarize(samples, repeat), bench_summarize(samples + repeat, repeat)};
        *row = bench_report_needs(b, what, n, BENCH_STREAM, names, result, (bench_needs[2]){needs, needs});
    }
    tlob_graph_destroy(&graph);
    free(samples);
    return good;
}

// --- the whole ---

typedef struct training {
    tlob_model *model;
    const batch *data;
} training;

static tlob_status run_step(const void *user, tlob_stream *stream) {
    const training *t = user;
    return tlob_model_step(t->model, stream, tlob_buffer_data(t->data->x), tlob_buffer_data(t->data->labels),
                           t->data->n);
}

static bool make_model(const bench *b, training *t) {
    tlob_model_params params = tlob_model_params_default();
    params.shape = t->data->shape;
    params.max_samples = t->data->n;
    params.seed = b->options->seed;
    if (!tlob_model_create(b->stream, &params, &t->model))
        return true;
    cli_tlob_error("bench");
    return false;
}

enum { CHECKED = 50 };

// The losses of steps on batches that differ, after one that makes all warm.
static bool train(const bench *b, const batch *data, bool captured, float losses[CHECKED]) {
    training t = {.data = data};
    tlob_graph *graph = NULL;
    const bench_work work = {run_step, &t};
    bool good = fill_batch(b, data, 0) && make_model(b, &t);
    if (good && captured)
        good = (graph = capture(b, &work, 1)) != NULL;
    else if (good && run_step(&t, b->stream))
        good = !cli_tlob_error("bench");
    for (int i = 0; good && i < CHECKED; i++) {
        tlob_model_figures figures;
        good = fill_batch(b, data, i + 1);
        if (good && ((captured ? tlob_graph_launch(graph, b->stream) : run_step(&t, b->stream)) ||
                     tlob_model_result(t.model, b->stream, &figures)))
            good = !cli_tlob_error("bench");
        losses[i] = good ? figures.loss : 0;
    }
    tlob_graph_destroy(&graph);
    tlob_model_destroy(&t.model);
    return good;
}

static bool check_losses(const bench *b, const batch *data) {
    float losses[2][CHECKED];
    for (int captured = 0; captured < 2; captured++)
        if (!train(b, data, captured, losses[captured]))
            return false;
    for (int i = 0; i < CHECKED; i++)
        if (memcmp(&losses[0][i], &losses[1][i], sizeof(float)) || !(losses[0][i] > 0))
            return !cli_error("bench step: the loss of step %d is %.9g call by call, and %.9g as a graph", i + 1,
                              (double)losses[0][i], (double)losses[1][i]);
    return true;
}

static bool time_step(const bench *b, const batch *data) {
    const int64_t weights = tlob_model_weight_count(&data->shape);
    const int64_t bytes = (int64_t)sizeof(float) * (features_in(data) + 6 * weights) + data->n; // w, m, v: in and out
    training t = {.data = data};
    cJSON *row = NULL;
    bool good = fill_batch(b, data, 0) && make_model(b, &t) &&
                compare(b, "step", data->n, (bench_work){run_step, &t}, 1, bytes, &row);
    if (row)
        cJSON_AddNumberToObject(row, "equal_losses", CHECKED);
    tlob_model_destroy(&t.model);
    return good;
}

// --- its stages ---

typedef struct stages {
    const batch *data;
    bool fused; // plan of the block: a step adds up then the gradients of backward and head in Adam's kernel
    tlob_block *block;
    tlob_head *head;
    tlob_adam *adam;
    tlob_buffer *weights, *gradients, *y, *dy, *logits;
} stages;

// The head's part of what is laid out as the weights are.
static float *head_part(const stages *s, const tlob_buffer *buffer) {
    return (float *)tlob_buffer_data(buffer) + tlob_block_weight_count(&s->data->shape);
}

static tlob_status run_forward(const void *user, tlob_stream *stream) {
    const stages *s = user;
    return tlob_block_forward(s->block, stream, tlob_buffer_data(s->weights), tlob_buffer_data(s->data->x), s->data->n,
                              tlob_buffer_data(s->y));
}

static tlob_status run_head(const void *user, tlob_stream *stream) {
    const stages *s = user;
    const float *weights = head_part(s, s->weights), *y = tlob_buffer_data(s->y);
    const uint8_t *labels = tlob_buffer_data(s->data->labels);
    float *logits = tlob_buffer_data(s->logits), *gradients = head_part(s, s->gradients), *dy = tlob_buffer_data(s->dy);
    if (s->fused)
        return tlob_head_train(s->head, stream, weights, y, labels, s->data->n, gradients, dy);
    tlob_status status = tlob_head_forward(s->head, stream, weights, y, s->data->n, logits);
    return status ? status
                  : tlob_head_loss(s->head, stream, weights, y, logits, labels, s->data->n, gradients, dy);
}

static tlob_status run_backward(const void *user, tlob_stream *stream) {
    const stages *s = user;
    return tlob_block_backward(s->block, stream, tlob_buffer_data(s->weights), tlob_buffer_data(s->data->x),
                               tlob_buffer_data(s->dy), s->data->n, tlob_buffer_data(s->gradients), NULL);
}

static tlob_status run_adam(const void *user, tlob_stream *stream) {
    const stages *s = user;
    return tlob_adam_step(s->adam, stream, tlob_buffer_data(s->weights), tlob_buffer_data(s->gradients));
}

// With learning rate 0: thousands of steps along one gradient would lead the weights to where nothing is finite.
static bool make_stages(const bench *b, const batch *data, stages *s) {
    const tlob_block_params params = {.shape = data->shape, .max_samples = data->n};
    tlob_block_choice choice;
    const int64_t weights = tlob_model_weight_count(&data->shape), features = data->shape.d_out * data->shape.seq;
    tlob_adam_params adam = tlob_adam_params_default();
    adam.lr = 0;
    s->data = data;
    s->weights = bench_data(b, weights, 1);
    s->gradients = bench_data(b, weights, 2);
    s->y = bench_data(b, features_out(data), 3);
    s->dy = bench_data(b, features_out(data), 4);
    s->logits = bench_data(b, TLOB_CLASSES * data->n, 5);
    if (!s->weights || !s->gradients || !s->y || !s->dy || !s->logits)
        return false;
    if (!tlob_block_explain(b->ctx, &params, &choice) && !tlob_block_create_with(b->ctx, &params, &s->block) &&
        !tlob_head_create(b->ctx, features, data->n, &s->head) && !tlob_adam_create(b->ctx, weights, &adam, &s->adam) &&
        !tlob_block_init_weights(b->stream, &data->shape, b->options->seed, tlob_buffer_data(s->weights)) &&
        !tlob_head_init_weights(b->stream, features, b->options->seed, head_part(s, s->weights))) {
        s->fused = choice.plan == TLOB_PLAN_FUSED;
        return true;
    }
    cli_tlob_error("bench");
    return false;
}

static bool compare_stages(const bench *b, const stages *s) {
    enum { IN_GRAPH = 20 }; // a launch of their own would hide what short stages take
    const int64_t block = tlob_block_weight_count(&s->data->shape), all = tlob_model_weight_count(&s->data->shape);
    const int64_t in = features_in(s->data), out = features_out(s->data), size = sizeof(float);
    const struct {
        const char *name;
        tlob_status (*enqueue)(const void *user, tlob_stream *stream);
        int64_t bytes;
    } stage[] = {
        {"forward", run_forward, size * (block + in + out)},
        {"head_loss", run_head, size * (2 * (all - block) + 2 * out) + s->data->n},
        {"backward", run_backward, size * (2 * block + in + out)},
        {"adam", run_adam, size * 7 * all}, // g, and w, m, v in and out
    };
    for (int i = 0; i < 4; i++) {
        cJSON *row = NULL;
        if (!compare(b, stage[i].name, s->data->n, (bench_work){stage[i].enqueue, s}, IN_GRAPH, stage[i].bytes, &row))
            return false;
        if (row)
            cJSON_AddStringToObject(row, "part_of", "step");
    }
    return true;
}

static bool time_stages(const bench *b, const batch *data) {
    stages s = {0};
    bool good = fill_batch(b, data, 0) && make_stages(b, data, &s) && compare_stages(b, &s);
    tlob_adam_destroy(&s.adam);
    tlob_head_destroy(&s.head);
    tlob_block_destroy(&s.block);
    tlob_buffer_destroy(&s.logits);
    tlob_buffer_destroy(&s.dy);
    tlob_buffer_destroy(&s.y);
    tlob_buffer_destroy(&s.gradients);
    tlob_buffer_destroy(&s.weights);
    return good;
}

bool bench_step(bench *b) {
    batch data = {.n = b->options->samples, .shape = tlob_block_shape_default()};
    bool good = !tlob_buffer_create(b->ctx, (size_t)features_in(&data) * sizeof(float), &data.x) &&
                !tlob_buffer_create(b->ctx, (size_t)data.n, &data.labels);
    if (!good)
        cli_tlob_error("bench");
    good = good && check_losses(b, &data) && time_step(b, &data) && time_stages(b, &data);
    if (good && !b->options->json)
        printf("The losses of %d steps as one graph are those of their calls, bit for bit.\n", CHECKED);
    tlob_buffer_destroy(&data.labels);
    tlob_buffer_destroy(&data.x);
    return good;
}
