#include "tests/trunk/trunk_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/reference.h"
#include "tests/trunk/exact_trunk.h"

/* What a forward and a backward pass leave, on the host. */
typedef struct outcome {
    int64_t count, elements; /* of the weights, of x and y */
    float *y, *qkv, *o, *dw, *dx;
} outcome;

static void free_outcome(outcome *r) {
    float *arrays[] = {r->y, r->qkv, r->o, r->dw, r->dx};
    for (int i = 0; i < 5; i++)
        free(arrays[i]);
}

/* `mha` may have more room than `samples` need. Outputs start as NaN. */
static outcome run_mha(lab *l, tlob_mha *mha, const tlob_mha_shape *s, int64_t samples, const float *w, const float *x,
                       const float *dy, bool with_dx) {
    outcome r = {.count = tlob_mha_weight_count(s), .elements = s->dim * s->seq * samples};
    array aw = lab_array(l, w, r.count, 0), ax = lab_array(l, x, r.elements, 0), ady = lab_array(l, dy, r.elements, 0);
    array y = lab_array(l, NULL, r.elements, 0), dw = lab_array(l, NULL, r.count, 0);
    array dx = lab_array(l, NULL, r.elements, 0);
    tlob_mha_state state;
    LAB_OK(tlob_mha_forward(mha, l->stream, aw.at, ax.at, samples, y.at));
    LAB_OK(tlob_mha_backward(mha, l->stream, aw.at, ax.at, ady.at, samples, dw.at, with_dx ? dx.at : NULL));
    LAB_OK(tlob_mha_get_state(mha, &state));
    cr_assert_eq(state.ld, 3 * s->dim);
    cr_assert(state.k == state.q + s->dim && state.v == state.k + s->dim);
    r.y = lab_read(l, y);
    r.qkv = lab_read_at(l, state.q, 3 * r.elements);
    r.o = lab_read_at(l, state.o, r.elements);
    r.dw = lab_read(l, dw);
    r.dx = lab_read(l, dx);
    return r;
}

static outcome run_once(lab *l, const tlob_mha_shape *s, tlob_mha_projection projection, int64_t samples,
                        const float *w, const float *x, const float *dy) {
    tlob_mha *mha;
    LAB_OK(tlob_mha_create(l->ctx, s, projection, samples, &mha));
    outcome r = run_mha(l, mha, s, samples, w, x, dy, true);
    tlob_mha_destroy(&mha);
    return r;
}

/* The parameters by name. The bias of K has a gradient of 0, for a softmax does not see what is added to all scores of
 * a row: it is compared with the others, on whose scale its rounding errors are. */
typedef struct part {
    const char *name;
    int64_t at, count;
} part;

#define PARTS 6

static void parts_of(const tlob_mha_shape *s, part parts[PARTS]) {
    static const char *const names[PARTS] = {"dW_Q", "dW_K", "dW_V", "db_in", "dW_out", "db_out"};
    const int64_t square = s->dim * s->dim, counts[PARTS] = {square, square, square, 3 * s->dim, square, s->dim};
    int64_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        parts[i] = (part){names[i], at, counts[i]};
        at += counts[i];
    }
    cr_assert_eq(at, tlob_mha_weight_count(s));
}

/* --- reference values ------------------------------------------------------------------------------------------ */

/* in_proj_weight, in_proj_bias, out_proj.weight and out_proj.bias, one after the other as they lie. */
static double *flat_weights(const io_safetensors *file, const char *prefix, int64_t count) {
    static const char *const names[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
    double *flat = malloc((size_t)count * sizeof(double)), *at = flat;
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%s", prefix, names[i]);
        const io_tensor *t = reference_tensor(file, name);
        memcpy(at, t->data, t->bytes);
        at += reference_count(t);
    }
    cr_assert_eq(at - flat, count);
    return flat;
}

static void check_p(const lab *l, const io_safetensors *file, const tlob_mha_shape *s, int64_t samples,
                    const float *qkv) {
    const int64_t d = s->dim / s->heads, size = s->seq * s->seq;
    const double *want = reference_tensor(file, "p")->data;
    double *p = malloc((size_t)size * sizeof(double));
    float *got = malloc((size_t)size * sizeof(float));
    for (int64_t g = 0; g < samples * s->heads; g++) {
        const float *q = qkv + g / s->heads * s->seq * 3 * s->dim + g % s->heads * d;
        exact_mha_p(s->seq, d, q, q + s->dim, 3 * s->dim, p);
        for (int64_t i = 0; i < size; i++)
            got[i] = (float)p[i];
        lab_close_to("p", got, want + g * size, size, l->bar);
    }
    free(p);
    free(got);
}

void case_mha_reference(lab *l, tlob_mha_projection projection) {
    io_safetensors *file = reference_open("mha_128");
    const tlob_mha_shape s = {
        .dim = reference_number(file, "embed_dim"),
        .heads = reference_number(file, "heads"),
        .seq = reference_number(file, "seq"),
    };
    const int64_t samples = reference_number(file, "batch"), count = tlob_mha_weight_count(&s);
    double *w = flat_weights(file, "", count), *dw = flat_weights(file, "grad.", count);
    float *w_float = malloc((size_t)count * sizeof(float)), *x = reference_floats(file, "x");
    float *dy = reference_floats(file, "dy");
    for (int64_t i = 0; i < count; i++)
        w_float[i] = (float)w[i];
    outcome r = run_once(l, &s, projection, samples, w_float, x, dy);
    lab_close_to("y", r.y, reference_tensor(file, "y")->data, r.elements, l->bar);
    lab_close_to("dx", r.dx, reference_tensor(file, "dx")->data, r.elements, l->bar);
    part parts[PARTS];
    parts_of(&s, parts);
    for (int i = 0; i < PARTS; i++)
        lab_close_to(parts[i].name, r.dw + parts[i].at, dw + parts[i].at, parts[i].count, l->bar);
    check_p(l, file, &s, samples, r.qkv);
    free_outcome(&r);
    free(w);
    free(dw);
    free(w_float);
    free(x);
    free(dy);
    io_safetensors_free(&file);
}

/* --- gradients ------------------------------------------------------------------------------------------------- */

/* Random parameters, inputs and gradients, as floats and as doubles. */
typedef struct problem {
    exact_mha exact;
    int64_t count, elements;
    float *w, *x, *dy;
    double *c, *y, *dw, *dx;
} problem;

static problem make_problem(const tlob_mha_shape *s, int64_t samples) {
    problem p = {.count = tlob_mha_weight_count(s), .elements = s->dim * s->seq * samples};
    p.w = lab_random(p.count, 1.5f / sqrtf((float)s->dim), 91);
    p.x = lab_random(p.elements, 1.5f, 92);
    p.dy = lab_random(p.elements, 1.0f, 93);
    p.c = lab_double(p.dy, p.elements);
    p.exact = (exact_mha){*s, samples, lab_double(p.w, p.count), lab_double(p.x, p.elements), p.c};
    p.y = malloc((size_t)p.elements * sizeof(double));
    p.dw = malloc((size_t)p.count * sizeof(double));
    p.dx = malloc((size_t)p.elements * sizeof(double));
    exact_mha_run(&p.exact, p.y, p.dw, p.dx);
    return p;
}

static void free_problem(problem *p) {
    float *floats[] = {p->w, p->x, p->dy};
    double *doubles[] = {p->exact.weights, p->exact.x, p->c, p->y, p->dw, p->dx};
    for (int i = 0; i < 3; i++)
        free(floats[i]);
    for (int i = 0; i < 6; i++)
        free(doubles[i]);
}

static double loss_of(const void *mha) {
    return exact_mha_run(mha, NULL, NULL, NULL);
}

void case_mha_gradients(lab *l, tlob_mha_projection projection) {
    const tlob_mha_shape s = {.dim = 24, .heads = 3, .seq = 5};
    const int64_t samples = 2;
    problem p = make_problem(&s, samples);
    outcome r = run_once(l, &s, projection, samples, p.w, p.x, p.dy);
    lab_close_to("y", r.y, p.y, p.elements, l->bar);
    double *by_w = lab_differences(loss_of, &p.exact, p.exact.weights, p.count, 1e-5);
    double *by_x = lab_differences(loss_of, &p.exact, p.exact.x, p.elements, 1e-5);
    part parts[PARTS];
    parts_of(&s, parts);
    for (int i = 0; i < PARTS; i++) {
        const int64_t at = parts[i].at;
        lab_compare_gradients(parts[i].name, p.dw + at, by_w + at, r.dw + at, parts[i].count, l->bar);
    }
    lab_compare_gradients("dx", p.dx, by_x, r.dx, p.elements, l->bar);
    free(by_w);
    free(by_x);
    free_outcome(&r);
    free_problem(&p);
}

/* dW_Q and dW_K are 0 where a row of P has one element: they are compared on the scale of all of W_in. */
static void check_outcome(const lab *l, const tlob_mha_shape *s, const problem *p, const outcome *r) {
    part parts[PARTS];
    parts_of(s, parts);
    parts[0] = (part){"dW_in", 0, 3 * s->dim * s->dim};
    for (int i = 0; i < PARTS; i += i == 0 ? 3 : 1)
        lab_close_to(parts[i].name, r->dw + parts[i].at, p->dw + parts[i].at, parts[i].count, l->bar);
    lab_close_to("y", r->y, p->y, p->elements, l->bar);
    lab_close_to("dx", r->dx, p->dx, p->elements, l->bar);
}

static void check_same(const outcome *a, const outcome *b) {
    lab_same_bits("y", a->y, b->y, a->elements);
    lab_same_bits("qkv", a->qkv, b->qkv, 3 * a->elements);
    lab_same_bits("o", a->o, b->o, a->elements);
    lab_same_bits("dw", a->dw, b->dw, a->count);
}

void case_mha_shapes(lab *l, int64_t widest) {
    static const struct {
        tlob_mha_shape shape;
        int64_t samples;
    } sizes[] = {
        {{1, 1, 1}, 1},  {{3, 1, 1}, 5},   {{3, 3, 7}, 3},   {{15, 5, 3}, 3},  {{21, 3, 33}, 1},  {{33, 11, 5}, 7},
        {{65, 5, 9}, 1}, {{129, 3, 3}, 3}, {{127, 1, 5}, 1}, {{256, 2, 3}, 1}, {{21, 3, 5}, 451},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const tlob_mha_shape *s = &sizes[i].shape;
        if (s->dim / s->heads > widest)
            continue;
        problem p = make_problem(s, sizes[i].samples);
        outcome stacked = run_once(l, s, TLOB_MHA_STACKED, sizes[i].samples, p.w, p.x, p.dy);
        outcome separate = run_once(l, s, TLOB_MHA_SEPARATE, sizes[i].samples, p.w, p.x, p.dy);
        check_outcome(l, s, &p, &stacked);
        check_outcome(l, s, &p, &separate);
        if (l->ctx->space->memory == TLOB_MEMORY_HOST) /* where each result is a sum in double, rounded once */
            check_same(&stacked, &separate);
        free_outcome(&stacked);
        free_outcome(&separate);
        free_problem(&p);
        lab_clear(l);
    }
}

/* --- scratch --------------------------------------------------------------------------------------------------- */

void case_mha_scratch(lab *l, tlob_mha_projection projection) {
    const tlob_mha_shape s = {.dim = 21, .heads = 3, .seq = 5};
    const int64_t room = 7, samples = 3;
    problem p = make_problem(&s, samples);
    tlob_mha *roomy;
    LAB_OK(tlob_mha_create(l->ctx, &s, projection, room, &roomy));
    array nan_x = lab_array(l, NULL, s.dim * s.seq * room, 0), y = lab_array(l, NULL, s.dim * s.seq * room, 0);
    array w = lab_array(l, p.w, p.count, 0), dw = lab_array(l, NULL, p.count, 0);
    LAB_OK(tlob_mha_forward(roomy, l->stream, w.at, nan_x.at, room, y.at));
    LAB_OK(tlob_mha_backward(roomy, l->stream, w.at, nan_x.at, nan_x.at, room, dw.at, NULL));

    outcome first = run_mha(l, roomy, &s, samples, p.w, p.x, p.dy, true);
    outcome second = run_mha(l, roomy, &s, samples, p.w, p.x, p.dy, true);
    outcome without = run_mha(l, roomy, &s, samples, p.w, p.x, p.dy, false);
    check_outcome(l, &s, &p, &first);
    check_same(&first, &second);
    lab_same_bits("dx", first.dx, second.dx, p.elements);
    check_same(&first, &without);
    for (int64_t i = 0; i < p.elements; i++)
        cr_assert(isnan(without.dx[i]), "dx[%ld] was written", (long)i);

    problem fewer = make_problem(&s, 1);
    outcome one = run_mha(l, roomy, &s, 1, fewer.w, fewer.x, fewer.dy, true);
    check_outcome(l, &s, &fewer, &one);
    outcome *outcomes[] = {&first, &second, &without, &one};
    for (int i = 0; i < 4; i++)
        free_outcome(outcomes[i]);
    free_problem(&p);
    free_problem(&fewer);
    tlob_mha_destroy(&roomy);
}

void case_mha_no_samples(lab *l, tlob_mha_projection projection) {
    const tlob_mha_shape s = {.dim = 15, .heads = 3, .seq = 7};
    const int64_t count = tlob_mha_weight_count(&s);
    tlob_mha *mha;
    array w = lab_array(l, NULL, count, 0), dw = lab_array(l, NULL, count, 0);
    LAB_OK(tlob_mha_create(l->ctx, &s, projection, 4, &mha));
    LAB_OK(tlob_mha_forward(mha, l->stream, w.at, NULL, 0, NULL));
    LAB_OK(tlob_mha_backward(mha, l->stream, w.at, NULL, NULL, 0, dw.at, NULL));
    float *got = lab_read(l, dw);
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(got[i], 0.0f, "dweights[%ld] is %g", (long)i, (double)got[i]);
    free(got);
    tlob_mha_destroy(&mha);
}

/* --- what is run ----------------------------------------------------------------------------------------------- */

void case_mha_products(lab *l) {
    const tlob_mha_shape s = {.dim = 15, .heads = 3, .seq = 7};
    static const tlob_epilogue bias[] = {TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_BIAS,
                                         TLOB_EPILOGUE_BIAS};
    static const tlob_epilogue none[8] = {TLOB_EPILOGUE_NONE};
    problem p = make_problem(&s, 2);
    array w = lab_array(l, p.w, p.count, 0), x = lab_array(l, p.x, p.elements, 0);
    array y = lab_array(l, NULL, p.elements, 0), dx = lab_array(l, NULL, p.elements, 0);
    array dw = lab_array(l, NULL, p.count, 0);
    seen_products seen;
    products_watch(l, &seen);
    for (int separate = 0; separate < 2; separate++) {
        tlob_mha *mha;
        LAB_OK(tlob_mha_create(l->ctx, &s, separate ? TLOB_MHA_SEPARATE : TLOB_MHA_STACKED, 2, &mha));
        LAB_OK(tlob_mha_forward(mha, l->stream, w.at, x.at, 2, y.at));
        products_expect(&seen, "forward", bias, separate ? 4 : 2);
        LAB_OK(tlob_mha_backward(mha, l->stream, w.at, x.at, y.at, 2, dw.at, dx.at));
        products_expect(&seen, "backward", none, separate ? 8 : 4);
        LAB_OK(tlob_mha_backward(mha, l->stream, w.at, x.at, y.at, 2, dw.at, NULL));
        products_expect(&seen, "backward without dx", none, separate ? 5 : 3);
        tlob_mha_destroy(&mha);
    }
    products_unwatch(l);
    free_problem(&p);
}

/* Asserts that `got` has the bits that the host draws, and fills the range. */
static void check_uniform(const char *name, const float *got, int64_t count, double bound, uint32_t space) {
    float *want = malloc((size_t)count * sizeof(float)), largest = 0.0f;
    tlob_kernels_host.uniform(NULL, count, (float)bound, 0x123456789abcdefull, space, want);
    lab_same_bits(name, got, want, count);
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    cr_assert(largest <= (float)bound && largest > 0.9f * (float)bound, "%s: largest %g, bound %g", name,
              (double)largest, bound);
    free(want);
}

void case_mha_init(lab *l) {
    const tlob_mha_shape s = {.dim = 21, .heads = 3, .seq = 1};
    const int64_t square = 21 * 21, count = tlob_mha_weight_count(&s);
    array w = lab_array(l, NULL, count, 0);
    LAB_OK(tlob_mha_init_weights(l->stream, &s, 0x123456789abcdefull, w.at));
    float *got = lab_read(l, w);
    check_uniform("W_in", got, 3 * square, sqrt(6.0 / 84.0), TLOB_SPACE_MHA_IN);
    check_uniform("W_out", got + 3 * square + 63, square, 1.0 / sqrt(21.0), TLOB_SPACE_MHA_OUT);
    for (int64_t i = 0; i < 63; i++)
        cr_assert_eq(got[3 * square + i], 0.0f, "b_in[%ld]", (long)i);
    for (int64_t i = 0; i < 21; i++)
        cr_assert_eq(got[count - 21 + i], 0.0f, "b_out[%ld]", (long)i);
    free(got);
}
