#include "tests/block/block_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/exact.h"
#include "tests/block/reference.h"

/* --- a block, run once ----------------------------------------------------------------------------------------- */

/* What a forward and a backward pass leave, on the host. */
typedef struct outcome {
    int64_t w_count, y_count, x_count;
    float *y, *q, *k, *v, *o, *dw, *dx, mean_max; /* q to o: NULL with the fused plan, which keeps none of them */
} outcome;

static void free_outcome(outcome *r) {
    float *arrays[] = {r->y, r->q, r->k, r->v, r->o, r->dw, r->dx};
    for (int i = 0; i < 7; i++)
        free(arrays[i]);
}

/* `block` may have more room than `samples` need. Outputs start as NaN. */
static outcome run_block(lab *l, tlob_block *block, const tlob_block_shape *s, int64_t samples, const float *w,
                         const float *x, const float *dy) {
    const int64_t n = samples * s->seq;
    outcome r = {.w_count = tlob_block_weight_count(s), .y_count = s->d_out * n, .x_count = s->d_in * n};
    array aw = lab_array(l, w, r.w_count, 0), ax = lab_array(l, x, r.x_count, 0), ady = lab_array(l, dy, r.y_count, 0);
    array y = lab_array(l, NULL, r.y_count, 0), dw = lab_array(l, NULL, r.w_count, 0);
    array dx = lab_array(l, NULL, r.x_count, 0);
    LAB_OK(tlob_block_forward(block, l->stream, aw.at, ax.at, samples, y.at));
    LAB_OK(tlob_block_mean_max(block, l->stream, &r.mean_max));
    LAB_OK(tlob_block_backward(block, l->stream, aw.at, ax.at, ady.at, samples, dw.at, dx.at));
    r.y = lab_read(l, y);
    r.dw = lab_read(l, dw);
    r.dx = lab_read(l, dx);
    tlob_block_state state;
    tlob_status status = tlob_block_get_state(block, &state);
    if (status == TLOB_ERR_UNSUPPORTED)
        return r;
    LAB_OK(status);
    r.q = lab_read_at(l, state.q, r.y_count);
    r.k = lab_read_at(l, state.k, r.y_count);
    r.v = lab_read_at(l, state.v, r.y_count);
    r.o = lab_read_at(l, state.o, r.y_count);
    return r;
}

/* --- reference values ------------------------------------------------------------------------------------------ */

/* [W_Q | W_K | W_V | W_O] of tensors "<prefix>q" to "<prefix>o": row-major [out, in] there, column-major here. */
static double *flat_weights(const io_safetensors *file, const char *prefix, int64_t count) {
    double *flat = malloc((size_t)count * sizeof(double)), *at = flat;
    for (const char *letter = "qkvo"; *letter; letter++) {
        char name[16];
        snprintf(name, sizeof(name), "%s%c", prefix, *letter);
        const io_tensor *t = reference_tensor(file, name);
        const double *from = t->data;
        for (int64_t i = 0; i < t->shape[0]; i++)
            for (int64_t j = 0; j < t->shape[1]; j++)
                at[i + j * t->shape[0]] = from[i * t->shape[1] + j];
        at += reference_count(t);
    }
    cr_assert_eq(at - flat, count);
    return flat;
}

static double mean_of_row_maxima(const io_tensor *p) {
    const double *at = p->data;
    int64_t tokens = p->shape[p->rank - 1], rows = reference_count(p) / tokens;
    double sum = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double max = 0.0;
        for (int64_t j = 0; j < tokens; j++)
            max = fmax(max, at[r * tokens + j]);
        sum += max;
    }
    return sum / (double)rows;
}

void case_reference(lab *l, const char *name) {
    io_safetensors *file = reference_open(name);
    const io_tensor *x = reference_tensor(file, "x"), *y = reference_tensor(file, "y");
    tlob_block_shape s = {
        .d_in = x->shape[1],
        .d_out = y->shape[1],
        .head_dim = reference_number(file, "head_dim"),
        .seq = reference_number(file, "seq"),
        .axis = strcmp(io_safetensors_metadata(file, "axis"), "time") ? TLOB_AXIS_FEATURE : TLOB_AXIS_TIME,
    };
    const int64_t samples = reference_number(file, "samples"), count = tlob_block_weight_count(&s);
    double *w = flat_weights(file, "w_", count), *dw = flat_weights(file, "dw_", count);
    float *w_float = malloc((size_t)count * sizeof(float)), *xs = reference_floats(file, "x"),
          *dy = reference_floats(file, "dy");
    for (int64_t i = 0; i < count; i++)
        w_float[i] = (float)w[i];

    tlob_block *block;
    LAB_OK(tlob_block_create(l->ctx, &s, samples, &block));
    outcome r = run_block(l, block, &s, samples, w_float, xs, dy);
    const struct {
        const char *name;
        const float *got;
    } results[] = {{"q", r.q}, {"k", r.k}, {"v", r.v}, {"o", r.o}, {"y", r.y}, {"dx", r.dx}};
    for (int i = 0; i < 6; i++) {
        const io_tensor *want = reference_tensor(file, results[i].name);
        if (!results[i].got)
            continue;
        lab_close_to(results[i].name, results[i].got, want->data, reference_count(want), l->bar);
    }
    for (int i = 0; i < 4; i++) { /* each matrix on its own: the largest must not hide an error in another */
        static const char *const names[] = {"dW_Q", "dW_K", "dW_V", "dW_O"};
        int64_t at = i * s.d_out * s.d_in;
        lab_close_to(names[i], r.dw + at, dw + at, i < 3 ? s.d_out * s.d_in : s.d_out * s.d_out, l->bar);
    }
    double focus = mean_of_row_maxima(reference_tensor(file, "p"));
    lab_close_to("mean_max", &r.mean_max, &focus, 1, l->bar);

    tlob_block_destroy(&block);
    free_outcome(&r);
    free(w);
    free(dw);
    free(w_float);
    free(xs);
    free(dy);
    io_safetensors_free(&file);
}

/* --- gradients ------------------------------------------------------------------------------------------------- */

static tlob_block_shape small_shape(tlob_axis axis) {
    if (axis == TLOB_AXIS_FEATURE)
        return (tlob_block_shape){.d_in = 7, .d_out = 6, .head_dim = 2, .seq = 2, .axis = axis};
    return (tlob_block_shape){.d_in = 5, .d_out = 6, .head_dim = 3, .seq = 4, .axis = axis};
}

/* The library's loss and gradients, through block and head: `d` as tlob_model's parameters, dx as x; to free. */
static void library_gradients(lab *l, const tlob_block_shape *s, int64_t samples, const float *w, const float *x,
                              const uint8_t *labels, tlob_loss *loss, float **d, float **dx) {
    const int64_t n = samples * s->seq, count = tlob_model_weight_count(s), features = s->d_out * s->seq;
    const int64_t at_head = tlob_block_weight_count(s);
    tlob_block *block;
    tlob_head *head;
    LAB_OK(tlob_block_create(l->ctx, s, samples, &block));
    LAB_OK(tlob_head_create(l->ctx, features, samples, &head));
    array aw = lab_array(l, w, count, 0), ax = lab_array(l, x, s->d_in * n, 0), ad = lab_array(l, NULL, count, 0);
    array adx = lab_array(l, NULL, s->d_in * n, 0), y = lab_array(l, NULL, s->d_out * n, 0);
    array dy = lab_array(l, NULL, s->d_out * n, 0), logits = lab_array(l, NULL, 3 * samples, 0);
    const uint8_t *label_at = lab_bytes(l, labels, samples);
    LAB_OK(tlob_block_forward(block, l->stream, aw.at, ax.at, samples, y.at));
    LAB_OK(tlob_head_forward(head, l->stream, aw.at + at_head, y.at, samples, logits.at));
    LAB_OK(
        tlob_head_loss(head, l->stream, aw.at + at_head, y.at, logits.at, label_at, samples, ad.at + at_head, dy.at));
    LAB_OK(tlob_block_backward(block, l->stream, aw.at, ax.at, dy.at, samples, ad.at, adx.at));
    LAB_OK(tlob_head_result(head, l->stream, loss));
    *d = lab_read(l, ad);
    *dx = lab_read(l, adx);
    tlob_block_destroy(&block);
    tlob_head_destroy(&head);
}

static double loss_of(const void *problem) {
    return exact_loss(problem);
}

void case_gradients(lab *l, tlob_axis axis) {
    const tlob_block_shape s = small_shape(axis);
    const int64_t samples = 5, count = tlob_model_weight_count(&s), x_count = s.d_in * s.seq * samples;
    const int64_t chunk = s.d_out * s.d_in, features = s.d_out * s.seq;
    const uint8_t labels[] = {2, 0, 1, 1, 2};
    float *w = lab_random(count, 0.8f, 11), *x = lab_random(x_count, 1.5f, 12), *d, *dx;
    exact_problem problem = {s, samples, lab_double(w, count), lab_double(x, x_count), labels};
    double *exact = malloc((size_t)count * sizeof(double)), *exact_dx = malloc((size_t)x_count * sizeof(double));
    double loss = exact_gradients(&problem, exact, exact_dx);
    tlob_loss got;
    library_gradients(l, &s, samples, w, x, labels, &got, &d, &dx);
    lab_close_to("loss", &got.loss, &loss, 1, l->bar);

    const struct {
        const char *name;
        int64_t at, count;
    } parts[] = {
        {"dW_Q", 0, chunk},
        {"dW_K", chunk, chunk},
        {"dW_V", 2 * chunk, chunk},
        {"dW_O", 3 * chunk, s.d_out * s.d_out},
        {"dW_head", 3 * chunk + s.d_out * s.d_out, 3 * features},
        {"db_head", 3 * chunk + s.d_out * s.d_out + 3 * features, 3},
    };
    const double steps[] = {1e-4, 1e-5};
    for (int i = 0; i < 2; i++) {
        double *by_w = lab_differences(loss_of, &problem, problem.parameters, count, steps[i]);
        double *by_x = lab_differences(loss_of, &problem, problem.x, x_count, steps[i]);
        for (int p = 0; p < 6; p++) {
            int64_t at = parts[p].at;
            lab_compare_gradients(parts[p].name, exact + at, by_w + at, d + at, parts[p].count, l->bar);
        }
        lab_compare_gradients("dx", exact_dx, by_x, dx, x_count, l->bar);
        free(by_w);
        free(by_x);
    }
    free(w);
    free(x);
    free(d);
    free(dx);
    free(problem.parameters);
    free(problem.x);
    free(exact);
    free(exact_dx);
}

/* --- scratch, repetition --------------------------------------------------------------------------------------- */

static void close_outcomes(const outcome *got, const outcome *want, double bar) {
    const struct {
        const char *name;
        const float *got, *want;
        int64_t count;
    } pairs[] = {
        {"q", got->q, want->q, got->y_count},    {"k", got->k, want->k, got->y_count},
        {"v", got->v, want->v, got->y_count},    {"o", got->o, want->o, got->y_count},
        {"y", got->y, want->y, got->y_count},    {"dw", got->dw, want->dw, got->w_count},
        {"dx", got->dx, want->dx, got->x_count}, {"mean_max", &got->mean_max, &want->mean_max, 1},
    };
    for (int i = 0; i < 8; i++) {
        if (!pairs[i].got && !pairs[i].want)
            continue;
        if (bar == 0.0) {
            lab_same_bits(pairs[i].name, pairs[i].got, pairs[i].want, pairs[i].count);
            continue;
        }
        double *exact = lab_double(pairs[i].want, pairs[i].count);
        lab_close_to(pairs[i].name, pairs[i].got, exact, pairs[i].count, bar);
        free(exact);
    }
}

void case_capacity(lab *l) {
    for (int axis = 0; axis < 2; axis++) {
        const tlob_block_shape s = small_shape(axis ? TLOB_AXIS_TIME : TLOB_AXIS_FEATURE);
        const int64_t room = 7, samples = 3, y_count = s.d_out * s.seq * room, x_count = s.d_in * s.seq * room;
        const int64_t w_count = tlob_block_weight_count(&s);
        float *w = lab_random(w_count, 0.8f, 21), *x = lab_random(x_count, 1.5f, 22),
              *dy = lab_random(y_count, 1.0f, 23);
        tlob_block *roomy, *exact;
        LAB_OK(tlob_block_create(l->ctx, &s, room, &roomy));
        LAB_OK(tlob_block_create(l->ctx, &s, samples, &exact));

        array nan_x = lab_array(l, NULL, x_count, 0), nan_dy = lab_array(l, NULL, y_count, 0);
        array aw = lab_array(l, w, w_count, 0), y = lab_array(l, NULL, y_count, 0), dw = lab_array(l, NULL, w_count, 0);
        LAB_OK(tlob_block_forward(roomy, l->stream, aw.at, nan_x.at, room, y.at));
        LAB_OK(tlob_block_backward(roomy, l->stream, aw.at, nan_x.at, nan_dy.at, room, dw.at, NULL));

        outcome got = run_block(l, roomy, &s, samples, w, x, dy), want = run_block(l, exact, &s, samples, w, x, dy);
        close_outcomes(&got, &want, l->bar);
        free_outcome(&got);
        free_outcome(&want);
        tlob_block_destroy(&roomy);
        tlob_block_destroy(&exact);
        free(w);
        free(x);
        free(dy);
    }
}

void case_no_samples(lab *l) {
    const tlob_block_shape s = tlob_block_shape_default();
    const int64_t count = tlob_block_weight_count(&s);
    tlob_block *block;
    float mean_max = 0.0f;
    array w = lab_array(l, NULL, count, 0), dw = lab_array(l, NULL, count, 0);
    LAB_OK(tlob_block_create(l->ctx, &s, 4, &block));
    LAB_OK(tlob_block_mean_max(block, l->stream, &mean_max));
    cr_assert(isnan(mean_max), "before the first forward pass");
    LAB_OK(tlob_block_forward(block, l->stream, w.at, NULL, 0, NULL));
    LAB_OK(tlob_block_backward(block, l->stream, w.at, NULL, NULL, 0, dw.at, NULL));
    LAB_OK(tlob_block_backward(block, l->stream, w.at, NULL, NULL, 0, NULL, dw.at)); /* dX has no element */
    mean_max = 0.0f;
    LAB_OK(tlob_block_mean_max(block, l->stream, &mean_max));
    cr_assert(isnan(mean_max), "the mean of no rows");
    float *got = lab_read(l, dw);
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(got[i], 0.0f, "dweights[%ld] is %g", (long)i, (double)got[i]);
    free(got);
    tlob_block_destroy(&block);
}

void case_repeats(lab *l, tlob_axis axis) {
    tlob_block_shape s = tlob_block_shape_default();
    s.axis = axis;
    s.seq = axis == TLOB_AXIS_TIME ? 8 : 1;
    const int64_t samples = 300, n = samples * s.seq, w_count = tlob_block_weight_count(&s);
    float *w = lab_random(w_count, 0.4f, 31), *x = lab_random(s.d_in * n, 1.5f, 32),
          *dy = lab_random(s.d_out * n, 1.0f, 33);
    tlob_block *block;
    LAB_OK(tlob_block_create(l->ctx, &s, samples, &block));
    outcome first = run_block(l, block, &s, samples, w, x, dy), second = run_block(l, block, &s, samples, w, x, dy);
    close_outcomes(&second, &first, 0.0);
    free_outcome(&first);
    free_outcome(&second);
    tlob_block_destroy(&block);
    free(w);
    free(x);
    free(dy);
}

/* --- head and model -------------------------------------------------------------------------------------------- */

void case_head(lab *l) {
    const float logits[] = {1.0f, 1.0f, 0.0f, 0.0f, 3.0f, 3.0f, -1.0f, 0.0f, 2.0f, 0.0f, 0.0f, 0.0f};
    const uint8_t labels[] = {0, 2, 2, 0}, bad[] = {0, 3, 255, 2};
    tlob_head *head;
    LAB_OK(tlob_head_create(l->ctx, 2, 4, &head));
    array z = lab_array(l, logits, 12, 0);
    tlob_loss loss;
    LAB_OK(tlob_head_loss(head, l->stream, NULL, NULL, z.at, lab_bytes(l, labels, 4), 4, NULL, NULL));
    LAB_OK(tlob_head_result(head, l->stream, &loss));
    cr_assert_eq(loss.correct, 3, "the lowest class wins a tie: %ld right", (long)loss.correct);
    double want = 0.0;
    for (int i = 0; i < 4; i++) {
        const float *at = logits + 3 * i;
        want += (log(exp(at[0]) + exp(at[1]) + exp(at[2])) - at[labels[i]]) / 4.0;
    }
    lab_close_to("loss", &loss.loss, &want, 1, l->bar);

    array w = lab_array(l, logits, tlob_head_weight_count(2), 0), y = lab_array(l, logits, 8, 0);
    array dw = lab_array(l, NULL, tlob_head_weight_count(2), 0), dy = lab_array(l, NULL, 8, 0);
    LAB_OK(tlob_head_loss(head, l->stream, w.at, y.at, z.at, lab_bytes(l, bad, 4), 4, dw.at, dy.at));
    LAB_OK(tlob_head_result(head, l->stream, &loss));
    cr_assert(isnan(loss.loss), "a label out of range must not pass for a loss of %g", (double)loss.loss);
    cr_assert_eq(loss.correct, 1);
    float *got = lab_read(l, dw);
    cr_assert(isnan(got[0]), "nor may its gradient");
    free(got);
    free(lab_read(l, dy));
    tlob_head_destroy(&head);
}

void case_init(lab *l) {
    const tlob_block_shape s = tlob_block_shape_default();
    const int64_t chunk = s.d_out * s.d_in, count = tlob_block_weight_count(&s), features = 37;
    const int64_t head_count = tlob_head_weight_count(features);
    array w = lab_array(l, NULL, count, 0), h = lab_array(l, NULL, head_count, 1);
    LAB_OK(tlob_block_init_weights(l->stream, &s, 0x123456789abcdefull, w.at));
    LAB_OK(tlob_head_init_weights(l->stream, features, 0x123456789abcdefull, h.at));
    float *got = lab_read(l, w), *got_head = lab_read(l, h), *want = malloc((size_t)count * sizeof(float));
    for (int i = 0; i < 4; i++) {
        int64_t size = i < 3 ? chunk : s.d_out * s.d_out;
        float bound = (float)sqrt(6.0 / (double)(i < 3 ? s.d_in + s.d_out : 2 * s.d_out)), largest = 0.0f;
        tlob_kernels_host.uniform(NULL, size, bound, 0x123456789abcdefull, (uint32_t)i, want);
        lab_same_bits("W", got + i * chunk, want, size);
        for (int64_t j = 0; j < size; j++)
            largest = fmaxf(largest, fabsf(want[j]));
        cr_assert(largest <= bound && largest > 0.9f * bound, "matrix %d: largest %g, bound %g", i, (double)largest,
                  (double)bound);
    }
    cr_assert(memcmp(got, got + chunk, (size_t)chunk * sizeof(float)) != 0, "W_Q and W_K are the same");
    tlob_kernels_host.uniform(NULL, 3 * features, (float)sqrt(6.0 / 40.0), 0x123456789abcdefull, TLOB_SPACE_HEAD, want);
    lab_same_bits("W_head", got_head, want, 3 * features);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(got_head[3 * features + i], 0.0f);
    free(got);
    free(got_head);
    free(want);
}

/* Labels that a linear rule gives, so that there is something to learn. */
static uint8_t *labels_for(const float *x, int64_t d_in, int64_t samples) {
    float *rule = lab_random(3 * d_in, 1.0f, 41);
    uint8_t *labels = malloc((size_t)samples);
    for (int64_t i = 0; i < samples; i++) {
        double best = -HUGE_VAL;
        for (int c = 0; c < 3; c++) {
            double z = 0.0;
            for (int64_t j = 0; j < d_in; j++)
                z += rule[c * d_in + j] * x[i * d_in + j];
            if (z > best) {
                best = z;
                labels[i] = (uint8_t)c;
            }
        }
    }
    free(rule);
    return labels;
}

void train(lab *l, int steps, float *losses, float *weights) {
    const int64_t batch = 64, batches = 8;
    tlob_model_params params = tlob_model_params_default();
    params.max_samples = 100; /* more than a batch */
    params.adam.lr = 1e-2f;
    const int64_t d_in = params.shape.d_in, total = batch * batches;
    float *x = lab_random(d_in * total, 1.7f, 42);
    uint8_t *labels = labels_for(x, d_in, total);
    array ax = lab_array(l, x, d_in * total, 0);
    const uint8_t *label_at = lab_bytes(l, labels, total);
    tlob_model *model;
    LAB_OK(tlob_model_create(l->stream, &params, &model));
    for (int i = 0; i < steps; i++) {
        int64_t at = i % batches * batch;
        tlob_model_figures figures;
        LAB_OK(tlob_model_step(model, l->stream, ax.at + at * d_in, label_at + at, batch));
        LAB_OK(tlob_model_result(model, l->stream, &figures));
        losses[i] = figures.loss;
        cr_assert(figures.mean_max >= 0.25f && figures.mean_max <= 1.0f, "step %d: mean_max %g", i,
                  (double)figures.mean_max);
        cr_assert(figures.correct >= 0 && figures.correct <= batch);
    }
    if (weights)
        LAB_OK(tlob_model_get_weights(model, l->stream, weights, tlob_model_weight_count(&params.shape)));
    tlob_model_destroy(&model);
    lab_clear(l);
    free(x);
    free(labels);
}

static void try_model(lab *l, const tlob_block_shape *shape) {
    tlob_model_params params = tlob_model_params_default();
    params.shape = *shape;
    params.max_samples = 9;
    const tlob_block_shape *s = &params.shape;
    const int64_t samples = 5, x_count = s->d_in * s->seq * samples, count = tlob_model_weight_count(s);
    const uint8_t labels[] = {2, 0, 1, 1, 0};
    float *x = lab_random(x_count, 1.5f, 51), *w = lab_random(count, 0.8f, 52),
          *back = calloc((size_t)count, sizeof(float));
    tlob_model *model;
    LAB_OK(tlob_model_create(l->stream, &params, &model));
    LAB_OK(tlob_model_set_weights(model, l->stream, w, count));
    LAB_OK(tlob_model_get_weights(model, l->stream, back, count));
    lab_same_bits("weights", back, w, count);

    array ax = lab_array(l, x, x_count, 0), logits = lab_array(l, NULL, 3 * samples, 0);
    tlob_model_figures figures;
    LAB_OK(tlob_model_evaluate(model, l->stream, ax.at, lab_bytes(l, labels, samples), samples, logits.at));
    LAB_OK(tlob_model_result(model, l->stream, &figures));
    exact_problem problem = {*s, samples, lab_double(w, count), lab_double(x, x_count), labels};
    double loss = exact_loss(&problem);
    lab_close_to("loss", &figures.loss, &loss, 1, l->bar);
    float *z = lab_read(l, logits);
    int64_t correct = 0;
    for (int64_t i = 0; i < samples; i++) {
        const float *at = z + 3 * i;
        int best = at[1] > at[0] ? 1 : 0;
        correct += (at[2] > at[best] ? 2 : best) == labels[i];
    }
    cr_assert_eq(figures.correct, correct);
    array alone = lab_array(l, NULL, 3 * samples, 0);
    LAB_OK(tlob_model_predict(model, l->stream, ax.at, samples, alone.at));
    float *z_alone = lab_read(l, alone);
    lab_same_bits("logits of a prediction", z_alone, z, 3 * samples);
    free(z_alone);
    LAB_OK(tlob_model_get_weights(model, l->stream, back, count));
    lab_same_bits("weights after an evaluation", back, w, count);

    const uint8_t *label_at = lab_bytes(l, labels, samples);
    LAB_OK(tlob_model_set_lr(model, l->stream, 0.0f));
    LAB_OK(tlob_model_step(model, l->stream, ax.at, label_at, samples));
    LAB_OK(tlob_model_get_weights(model, l->stream, back, count));
    lab_same_bits("weights after a step of rate 0", back, w, count);
    LAB_OK(tlob_model_set_lr(model, l->stream, 0.1f));
    LAB_OK(tlob_model_step(model, l->stream, ax.at, label_at, samples));
    LAB_OK(tlob_model_get_weights(model, l->stream, back, count));
    cr_assert_neq(back[0], w[0]);

    tlob_model_destroy(&model);
    free(problem.parameters);
    free(problem.x);
    free(x);
    free(w);
    free(back);
    free(z);
}

/* A shape of either axis; the default one is fused where there are fused kernels. */
void case_model(lab *l) {
    const tlob_block_shape shapes[] = {small_shape(TLOB_AXIS_TIME), tlob_block_shape_default()};
    for (int i = 0; i < 2; i++)
        try_model(l, &shapes[i]);
}

/* `steps` steps on batches that go round, from batch `first` on. */
static void numbered_steps(lab *l, tlob_model *model, const float *x, const uint8_t *labels, int64_t batch_floats,
                           int64_t batch, int first, int steps) {
    for (int i = first; i < first + steps; i++)
        LAB_OK(tlob_model_step(model, l->stream, x + i % 4 * batch_floats, labels + i % 4 * batch, batch));
}

static void try_resume(lab *l, const tlob_block_shape *shape) {
    enum { BATCH = 6, STOP = 11, STEPS = 25 };
    tlob_model_params params = tlob_model_params_default();
    params.shape = *shape;
    params.adam.lr = 1e-2f;
    params.max_samples = BATCH;
    const int64_t floats = params.shape.d_in * params.shape.seq * BATCH;
    const int64_t count = tlob_model_weight_count(&params.shape);
    uint8_t labels[4 * BATCH];
    for (int i = 0; i < 4 * BATCH; i++)
        labels[i] = (uint8_t)(i * 5 % 7 % 3);
    float *x = lab_random(4 * floats, 1.5f, 61), *w = calloc((size_t)count, sizeof(float));
    float *moments = calloc((size_t)(2 * count), sizeof(float)), *w2 = calloc((size_t)count, sizeof(float));
    float *moments2 = calloc((size_t)(2 * count), sizeof(float));
    array ax = lab_array(l, x, 4 * floats, 0);
    const uint8_t *label_at = lab_bytes(l, labels, 4 * BATCH);
    tlob_model *model, *other;
    int64_t steps;
    LAB_OK(tlob_model_create(l->stream, &params, &model));
    params.seed++;
    LAB_OK(tlob_model_create(l->stream, &params, &other));
    numbered_steps(l, model, ax.at, label_at, floats, BATCH, 0, STOP);
    LAB_OK(tlob_model_get_weights(model, l->stream, w, count));
    LAB_OK(tlob_model_get_optimizer(model, l->stream, moments, 2 * count, &steps));
    cr_assert_eq(steps, STOP);
    LAB_OK(tlob_model_set_weights(other, l->stream, w, count));
    LAB_OK(tlob_model_set_optimizer(other, l->stream, moments, 2 * count, steps));
    numbered_steps(l, model, ax.at, label_at, floats, BATCH, STOP, STEPS - STOP);
    numbered_steps(l, other, ax.at, label_at, floats, BATCH, STOP, STEPS - STOP);
    LAB_OK(tlob_model_get_weights(model, l->stream, w, count));
    LAB_OK(tlob_model_get_weights(other, l->stream, w2, count));
    LAB_OK(tlob_model_get_optimizer(model, l->stream, moments, 2 * count, &steps));
    LAB_OK(tlob_model_get_optimizer(other, l->stream, moments2, 2 * count, &steps));
    cr_assert_eq(steps, STEPS);
    lab_same_bits("weights", w2, w, count);
    lab_same_bits("moments", moments2, moments, 2 * count);
    tlob_model_destroy(&model);
    tlob_model_destroy(&other);
    free(x);
    free(w);
    free(w2);
    free(moments);
    free(moments2);
}

void case_resume(lab *l) {
    const tlob_block_shape shapes[] = {small_shape(TLOB_AXIS_TIME), tlob_block_shape_default()};
    for (int i = 0; i < 2; i++)
        try_resume(l, &shapes[i]);
}
