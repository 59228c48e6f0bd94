#include "tests/determinism/work.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "io/hash.h"

enum { STEPS = 300, BATCHES = 16, LAYERS = 3 };

/* Sizes of one kind of memory. */
typedef struct sizes {
    tlob_block_shape feature, time;
    int64_t block_samples;
    tlob_mha_shape mha;
    int64_t mha_samples;
    int64_t chain[LAYERS + 1], chain_columns; /* rows of the input and of each layer's output */
    int64_t model_batch;
    int64_t trunk_in, trunk_batch;
    tlob_mha_shape trunk;
} sizes;

static const sizes on_gpu = {
    .feature = {32, 16, 4, 1, TLOB_AXIS_FEATURE},
    .time = {40, 64, 16, 32, TLOB_AXIS_TIME},
    .block_samples = 256,
    .mha = {256, 8, 64},
    .mha_samples = 8,
    .chain = {256, 512, 384, 128},
    .chain_columns = 1000,
    .model_batch = 64,
    .trunk_in = 40,
    .trunk_batch = 32,
    .trunk = {64, 4, 16},
};
static const sizes on_host = {
    .feature = {32, 16, 4, 1, TLOB_AXIS_FEATURE},
    .time = {10, 12, 4, 6, TLOB_AXIS_TIME},
    .block_samples = 7,
    .mha = {24, 3, 9},
    .mha_samples = 3,
    .chain = {20, 33, 24, 12},
    .chain_columns = 21,
    .model_batch = 8,
    .trunk_in = 10,
    .trunk_batch = 4,
    .trunk = {16, 2, 4},
};

static const sizes *sizes_of(const work *w) {
    return tlob_context_memory(w->ctx) == TLOB_MEMORY_HOST ? &on_host : &on_gpu;
}

static void *allocate(int64_t count, size_t size) {
    void *memory = calloc((size_t)count, size);
    if (!memory) {
        fprintf(stderr, "out of memory for %" PRId64 " x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

/* --- arrays ----------------------------------------------------------------------------------------------------------
 */

static void *upload(work *w, const void *from, size_t bytes) {
    tlob_buffer **buffer = &w->buffers[w->n_buffers++];
    WORK_OK(tlob_buffer_create(w->ctx, bytes, buffer));
    if (from)
        WORK_OK(tlob_upload(w->stream, tlob_buffer_data(*buffer), from, bytes));
    else
        WORK_OK(tlob_fill(w->stream, tlob_buffer_data(*buffer), 0xff, bytes)); /* NaN: what a call must overwrite */
    return tlob_buffer_data(*buffer);
}

static float *output(work *w, int64_t count) {
    return upload(w, NULL, (size_t)count * sizeof(float));
}

/* Uniform in [-bound, bound) by SplitMix64 (Steele, Lea, Flood 2014). */
static float *random_floats(int64_t count, float bound, uint64_t seed) {
    float *x = allocate(count, sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        x[i] = bound * ((float)((z ^ z >> 31) >> 40) / 8388608.0f - 1.0f);
    }
    return x;
}

static float *random_input(work *w, int64_t count, float bound, uint64_t seed) {
    float *x = random_floats(count, bound, seed), *at = upload(w, x, (size_t)count * sizeof(float));
    free(x);
    return at;
}

static void clear(work *w) {
    while (w->n_buffers)
        tlob_buffer_destroy(&w->buffers[--w->n_buffers]);
}

/* A bit that TF32 keeps. */
static void perturb(const work *w, float *weights) {
    uint32_t bits;
    memcpy(&bits, weights, sizeof(bits));
    bits ^= w->perturb ? UINT32_C(1) << 18 : 0;
    memcpy(weights, &bits, sizeof(bits));
}

static void perturb_device(const work *w, float *weights) {
    float first;
    WORK_OK(tlob_download(w->stream, &first, weights, sizeof(first)));
    perturb(w, &first);
    WORK_OK(tlob_upload(w->stream, weights, &first, sizeof(first)));
}

/* --- what is printed
 * --------------------------------------------------------------------------------------------------- */

static void print(const work *w, const char *name, const char *part, const float *x, int64_t count) {
    bool any = false;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            fprintf(stderr, "%s %s %s: element %" PRId64 " is %g\n", w->mode, name, part, i, (double)x[i]);
            exit(1);
        }
        any |= x[i] != 0.0f;
    }
    if (!any) {
        fprintf(stderr, "%s %s %s: 0 everywhere\n", w->mode, name, part);
        exit(1);
    }
    uint32_t first;
    memcpy(&first, x, sizeof(first));
    printf("%s %-15s %-9s %016" PRIx64 " %08" PRIx32 "\n", w->mode, name, part,
           io_hash(IO_HASH_EMPTY, x, (size_t)count * sizeof(float)), first);
}

static void print_device(const work *w, const char *name, const char *part, const float *x, int64_t count) {
    float *host = allocate(count, sizeof(float));
    WORK_OK(tlob_download(w->stream, host, x, (size_t)count * sizeof(float)));
    print(w, name, part, host, count);
    free(host);
}

/* --- forward and backward: the loss is |y|^2 / 2, so that dy is y and everything depends on every weight
 * --------------- */

static void block(work *w, const char *name, const tlob_block_shape *s, int64_t samples) {
    const int64_t columns = samples * s->seq, count = tlob_block_weight_count(s), chunk = s->d_out * s->d_in;
    tlob_block *object;
    float *weights = output(w, count), *x = random_input(w, s->d_in * columns, 1.5f, 11);
    float *y = output(w, s->d_out * columns), *dweights = output(w, count), *dx = output(w, s->d_in * columns);
    WORK_OK(tlob_block_init_weights(w->stream, s, 12, weights));
    perturb_device(w, weights);
    WORK_OK(tlob_block_create(w->ctx, s, samples, &object));
    WORK_OK(tlob_block_forward(object, w->stream, weights, x, samples, y));
    WORK_OK(tlob_block_backward(object, w->stream, weights, x, y, samples, dweights, dx));
    print_device(w, name, "y", y, s->d_out * columns);
    print_device(w, name, "dw_q", dweights, chunk);
    print_device(w, name, "dw_k", dweights + chunk, chunk);
    print_device(w, name, "dw_v", dweights + 2 * chunk, chunk);
    print_device(w, name, "dw_o", dweights + 3 * chunk, s->d_out * s->d_out);
    print_device(w, name, "dx", dx, s->d_in * columns);
    tlob_block_destroy(&object);
    clear(w);
}

static void attention(work *w, const char *name, tlob_mha_projection projection) {
    const tlob_mha_shape *s = &sizes_of(w)->mha;
    const int64_t samples = sizes_of(w)->mha_samples, n = s->dim * s->seq * samples, square = s->dim * s->dim;
    tlob_mha *object;
    float *weights = output(w, tlob_mha_weight_count(s)), *dweights = output(w, tlob_mha_weight_count(s));
    float *x = random_input(w, n, 1.5f, 21), *y = output(w, n), *dx = output(w, n);
    WORK_OK(tlob_mha_init_weights(w->stream, s, 22, weights));
    perturb_device(w, weights);
    WORK_OK(tlob_mha_create(w->ctx, s, projection, samples, &object));
    WORK_OK(tlob_mha_forward(object, w->stream, weights, x, samples, y));
    WORK_OK(tlob_mha_backward(object, w->stream, weights, x, y, samples, dweights, dx));
    print_device(w, name, "y", y, n);
    print_device(w, name, "dw_in", dweights, 3 * square);
    print_device(w, name, "db_in", dweights + 3 * square, 3 * s->dim);
    print_device(w, name, "dw_out", dweights + 3 * square + 3 * s->dim, square);
    print_device(w, name, "db_out", dweights + 4 * square + 3 * s->dim, s->dim);
    print_device(w, name, "dx", dx, n);
    tlob_mha_destroy(&object);
    clear(w);
}

static void chain(work *w, const char *name, tlob_activation activation) {
    const int64_t *rows = sizes_of(w)->chain, n = sizes_of(w)->chain_columns;
    tlob_linear layer[LAYERS];
    float *weight[LAYERS], *bias[LAYERS], *a[LAYERS + 1], *dz[LAYERS + 1], *dweight[LAYERS], *dbias[LAYERS];
    void *aux[LAYERS] = {NULL};
    a[0] = random_input(w, rows[0] * n, 1.5f, 31);
    for (int i = 0; i < LAYERS; i++) {
        layer[i] = (tlob_linear){rows[i], rows[i + 1], i < LAYERS - 1 ? activation : TLOB_ACTIVATION_NONE};
        weight[i] = random_input(w, rows[i] * rows[i + 1], 0.2f, 32 + (uint64_t)i);
        bias[i] = random_input(w, rows[i + 1], 0.2f, 42 + (uint64_t)i);
        dweight[i] = output(w, rows[i] * rows[i + 1]);
        dbias[i] = output(w, rows[i + 1]);
        a[i + 1] = output(w, rows[i + 1] * n);
        dz[i] = output(w, rows[i] * n);
        if (tlob_linear_aux_bytes(&layer[i], n))
            aux[i] = upload(w, NULL, (size_t)tlob_linear_aux_bytes(&layer[i], n));
    }
    perturb_device(w, weight[0]);
    for (int i = 0; i < LAYERS; i++)
        WORK_OK(tlob_linear_forward(w->stream, &layer[i], weight[i], bias[i], a[i], n, a[i + 1], aux[i]));
    dz[LAYERS] = a[LAYERS]; /* dz[i + 1] is of layer i */
    for (int i = LAYERS - 1; i >= 0; i--) {
        WORK_OK(tlob_linear_backward_weight(w->stream, &layer[i], a[i], dz[i + 1], n, dweight[i],
                                            i == LAYERS - 1 ? dbias[i] : NULL));
        WORK_OK(tlob_linear_backward_input(w->stream, &layer[i], weight[i], dz[i + 1], n, i ? &layer[i - 1] : NULL,
                                           i ? aux[i - 1] : NULL, dz[i], i ? dbias[i - 1] : NULL));
    }
    print_device(w, name, "y", a[LAYERS], rows[LAYERS] * n);
    for (int i = 0; i < LAYERS; i++) {
        char part[16];
        snprintf(part, sizeof(part), "dw%d", i);
        print_device(w, name, part, dweight[i], rows[i] * rows[i + 1]);
        snprintf(part, sizeof(part), "db%d", i);
        print_device(w, name, part, dbias[i], rows[i + 1]);
    }
    print_device(w, name, "dx", dz[0], rows[0] * n);
    clear(w);
}

/* --- training
 * ---------------------------------------------------------------------------------------------------------- */

/* All that the next step depends on, in host memory, and the losses so far. */
typedef struct training {
    int64_t count; /* parameters */
    int64_t steps;
    float *weights, *moments;
    float losses[STEPS];
} training;

/* Some steps with objects of its own, from the state `t` or the beginning, and the state afterwards. */
typedef void (*train_fn)(work *w, training *t, int64_t steps);

static training new_training(int64_t count) {
    return (training){
        .count = count, .weights = allocate(count, sizeof(float)), .moments = allocate(2 * count, sizeof(float))};
}

static void free_training(training *t) {
    free(t->weights);
    free(t->moments);
}

/* The batches of every step: the same few, in an order that depends on the step alone. */
typedef struct stream_of_batches {
    int64_t floats, samples; /* of one */
    const float *x;
    const uint8_t *labels;
} stream_of_batches;

static stream_of_batches make_batches(work *w, int64_t floats, int64_t samples) {
    uint8_t *labels = allocate(BATCHES * samples, 1);
    for (int64_t i = 0; i < BATCHES * samples; i++)
        labels[i] = (uint8_t)(i * i % 11 % TLOB_CLASSES);
    stream_of_batches b = {floats, samples, random_input(w, BATCHES * floats, 1.5f, 51),
                           upload(w, labels, (size_t)(BATCHES * samples))};
    free(labels);
    return b;
}

static const float *batch_x(const stream_of_batches *b, int64_t step) {
    return b->x + step * 7 % BATCHES * b->floats;
}

static const uint8_t *batch_labels(const stream_of_batches *b, int64_t step) {
    return b->labels + step * 7 % BATCHES * b->samples;
}

static void train_model(work *w, training *t, int64_t steps) {
    tlob_model_params params = tlob_model_params_default();
    params.shape = sizes_of(w)->feature;
    params.max_samples = sizes_of(w)->model_batch;
    tlob_model *model;
    int64_t end = t->steps + steps, done;
    stream_of_batches b =
        make_batches(w, params.shape.d_in * params.shape.seq * params.max_samples, params.max_samples);
    WORK_OK(tlob_model_create(w->stream, &params, &model));
    if (t->steps) {
        WORK_OK(tlob_model_set_weights(model, w->stream, t->weights, t->count));
        if (!w->forget)
            WORK_OK(tlob_model_set_optimizer(model, w->stream, t->moments, 2 * t->count, t->steps));
    } else {
        WORK_OK(tlob_model_get_weights(model, w->stream, t->weights, t->count));
        perturb(w, t->weights);
        WORK_OK(tlob_model_set_weights(model, w->stream, t->weights, t->count));
    }
    for (; t->steps < end; t->steps++) {
        tlob_model_figures figures;
        WORK_OK(tlob_model_step(model, w->stream, batch_x(&b, t->steps), batch_labels(&b, t->steps), b.samples));
        WORK_OK(tlob_model_result(model, w->stream, &figures));
        t->losses[t->steps] = figures.loss;
    }
    WORK_OK(tlob_model_get_weights(model, w->stream, t->weights, t->count));
    WORK_OK(tlob_model_get_optimizer(model, w->stream, t->moments, 2 * t->count, &done));
    tlob_model_destroy(&model);
    clear(w);
}

/* A trunk made of parts: linear layer with RELU, multi-head attention, head on the columns of a sample one below the
 * other; parameters in that order. */
typedef struct trunk {
    tlob_linear layer;
    tlob_mha_shape shape;
    int64_t samples, columns;
    int64_t bias_at, mha_at, head_at, count; /* in the flat parameters */
    tlob_mha *mha;
    tlob_head *head;
    tlob_adam *adam;
    float *weights, *gradients;
    float *h, *y, *logits, *dy, *dh;
    void *aux;
} trunk;

static trunk trunk_sizes(const sizes *s) {
    trunk k = {
        .layer = {s->trunk_in, s->trunk.dim, TLOB_ACTIVATION_RELU}, .shape = s->trunk, .samples = s->trunk_batch};
    k.columns = k.samples * k.shape.seq;
    k.bias_at = k.layer.in * k.layer.out;
    k.mha_at = k.bias_at + k.layer.out;
    k.head_at = k.mha_at + tlob_mha_weight_count(&k.shape);
    k.count = k.head_at + tlob_head_weight_count(k.shape.dim * k.shape.seq);
    return k;
}

static void make_trunk(work *w, trunk *k) {
    const tlob_adam_params params = tlob_adam_params_default();
    const int64_t n = k->shape.dim * k->columns;
    WORK_OK(tlob_mha_create(w->ctx, &k->shape, TLOB_MHA_STACKED, k->samples, &k->mha));
    WORK_OK(tlob_head_create(w->ctx, k->shape.dim * k->shape.seq, k->samples, &k->head));
    WORK_OK(tlob_adam_create(w->ctx, k->count, &params, &k->adam));
    k->weights = random_input(w, k->count, 0.2f, 61);
    k->gradients = output(w, k->count);
    k->h = output(w, n);
    k->y = output(w, n);
    k->dy = output(w, n);
    k->dh = output(w, n);
    k->logits = output(w, TLOB_CLASSES * k->samples);
    k->aux = upload(w, NULL, (size_t)tlob_linear_aux_bytes(&k->layer, k->columns));
    WORK_OK(tlob_mha_init_weights(w->stream, &k->shape, 62, k->weights + k->mha_at));
    WORK_OK(tlob_head_init_weights(w->stream, k->shape.dim * k->shape.seq, 63, k->weights + k->head_at));
    perturb_device(w, k->weights);
}

static void trunk_step(work *w, trunk *k, const float *x, const uint8_t *labels) {
    float *p = k->weights, *g = k->gradients;
    tlob_stream *s = w->stream;
    WORK_OK(tlob_linear_forward(s, &k->layer, p, p + k->bias_at, x, k->columns, k->h, k->aux));
    WORK_OK(tlob_mha_forward(k->mha, s, p + k->mha_at, k->h, k->samples, k->y));
    WORK_OK(tlob_head_forward(k->head, s, p + k->head_at, k->y, k->samples, k->logits));
    WORK_OK(tlob_head_loss(k->head, s, p + k->head_at, k->y, k->logits, labels, k->samples, g + k->head_at, k->dy));
    WORK_OK(tlob_mha_backward(k->mha, s, p + k->mha_at, k->h, k->dy, k->samples, g + k->mha_at, k->dh));
    WORK_OK(tlob_linear_backward_output(s, &k->layer, k->dh, k->aux, k->columns, k->dh, g + k->bias_at));
    WORK_OK(tlob_linear_backward_weight(s, &k->layer, x, k->dh, k->columns, g, NULL));
    WORK_OK(tlob_adam_step(k->adam, s, p, g));
}

static void train_trunk(work *w, training *t, int64_t steps) {
    trunk k = trunk_sizes(sizes_of(w));
    const size_t bytes = (size_t)k.count * sizeof(float);
    int64_t end = t->steps + steps, done;
    make_trunk(w, &k);
    stream_of_batches b = make_batches(w, k.layer.in * k.columns, k.samples);
    if (t->steps) {
        WORK_OK(tlob_upload(w->stream, k.weights, t->weights, bytes));
        if (!w->forget)
            WORK_OK(tlob_adam_set_state(k.adam, w->stream, t->moments, 2 * t->count, t->steps));
    }
    for (; t->steps < end; t->steps++) {
        tlob_loss loss;
        trunk_step(w, &k, batch_x(&b, t->steps), batch_labels(&b, t->steps));
        WORK_OK(tlob_head_result(k.head, w->stream, &loss));
        t->losses[t->steps] = loss.loss;
    }
    WORK_OK(tlob_download(w->stream, t->weights, k.weights, bytes));
    WORK_OK(tlob_adam_get_state(k.adam, w->stream, t->moments, 2 * t->count, &done));
    tlob_mha_destroy(&k.mha);
    tlob_head_destroy(&k.head);
    tlob_adam_destroy(&k.adam);
    clear(w);
}

static void print_training(const work *w, const char *name, const training *t) {
    print(w, name, "weights", t->weights, t->count);
    print(w, name, "adam_m", t->moments, t->count);
    print(w, name, "adam_v", t->moments + t->count, t->count);
    print(w, name, "losses", t->losses, STEPS);
}

static void expect_same(const work *w, const char *name, const training *a, const training *b) {
    size_t bytes = (size_t)a->count * sizeof(float);
    const char *differs = memcmp(a->losses, b->losses, sizeof(a->losses)) ? "losses"
                          : memcmp(a->weights, b->weights, bytes)         ? "weights"
                          : memcmp(a->moments, b->moments, 2 * bytes)     ? "moments"
                                                                          : NULL;
    if (differs) {
        fprintf(stderr, "%s %s: the %s of a training that stopped and went on differ from those of one in one go\n",
                w->mode, name, differs);
        exit(1);
    }
}

static void train(work *w, const char *name, int64_t count, train_fn run) {
    training whole = new_training(count), parts = new_training(count);
    run(w, &whole, STEPS);
    print_training(w, name, &whole);
    run(w, &parts, STEPS / 2);
    run(w, &parts, STEPS - STEPS / 2);
    expect_same(w, name, &whole, &parts);
    char stopped[32];
    snprintf(stopped, sizeof(stopped), "%s-resumed", name);
    print_training(w, stopped, &parts);
    free_training(&whole);
    free_training(&parts);
}

void work_run(work *w) {
    const sizes *s = sizes_of(w);
    block(w, "block-feature", &s->feature, s->block_samples);
    block(w, "block-time", &s->time, s->block_samples);
    attention(w, "mha-stacked", TLOB_MHA_STACKED);
    attention(w, "mha-separate", TLOB_MHA_SEPARATE);
    chain(w, "chain-relu", TLOB_ACTIVATION_RELU);
    chain(w, "chain-gelu", TLOB_ACTIVATION_GELU);
    train(w, "model", tlob_model_weight_count(&s->feature), train_model);
    train(w, "trunk", trunk_sizes(s).count, train_trunk);
}
