#include "tests/trunk/trunk_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/reference.h"
#include "tests/trunk/exact_trunk.h"

static const tlob_activation activations[] = {TLOB_ACTIVATION_NONE, TLOB_ACTIVATION_RELU, TLOB_ACTIVATION_GELU};

/* A device's tanh is approximate: the derivative of GELU may be off by as much (see parity/parity.h). */
static double bar_of(const lab *l, tlob_activation activation) {
    bool device = l->ctx->space->memory == TLOB_MEMORY_CUDA;
    return l->bar + (device && activation == TLOB_ACTIVATION_GELU ? 0x1p-13 : 0.0);
}

/* Room for aux between guards; NULL where the layer leaves nothing. */
static void *aux_for(lab *l, const tlob_linear *layer, int64_t n, array *a) {
    int64_t bytes = tlob_linear_aux_bytes(layer, n);
    *a = lab_array(l, NULL, bytes / (int64_t)sizeof(float), 0);
    return bytes > 0 ? a->at : NULL;
}

/* --- one layer --------------------------------------------------------------------------------------------------- */

/* What both passes of one layer leave, on the host. */
typedef struct outcome {
    float *y, *y_without_aux, *dz, *dw, *db, *dx;
} outcome;

static void free_outcome(outcome *r) {
    float *arrays[] = {r->y, r->y_without_aux, r->dz, r->dw, r->db, r->dx};
    for (int i = 0; i < 6; i++)
        free(arrays[i]);
}

static outcome run_layer(lab *l, const tlob_linear *layer, int64_t n, const float *w, const float *b, const float *x,
                         const float *dy, bool in_place) {
    const int64_t in = layer->in, out = layer->out;
    const bool active = layer->activation != TLOB_ACTIVATION_NONE;
    array aw = lab_array(l, w, in * out, 0), ab = lab_array(l, b, out, 0), ax = lab_array(l, x, in * n, 0), aux;
    array y = lab_array(l, NULL, out * n, 0), plain = lab_array(l, NULL, out * n, 0);
    array ady = lab_array(l, dy, out * n, 0);
    array dz = in_place || !active ? ady : lab_array(l, NULL, out * n, 0), dx = lab_array(l, NULL, in * n, 0);
    array dw = lab_array(l, NULL, in * out, 0), db = lab_array(l, NULL, out, 0);
    void *aux_at = aux_for(l, layer, n, &aux);
    LAB_OK(tlob_linear_forward(l->stream, layer, aw.at, ab.at, ax.at, n, y.at, aux_at));
    LAB_OK(tlob_linear_forward(l->stream, layer, aw.at, ab.at, ax.at, n, plain.at, NULL));
    if (active)
        LAB_OK(tlob_linear_backward_output(l->stream, layer, ady.at, aux_at, n, dz.at, db.at));
    LAB_OK(tlob_linear_backward_weight(l->stream, layer, ax.at, dz.at, n, dw.at, active ? NULL : db.at));
    LAB_OK(tlob_linear_backward_input(l->stream, layer, aw.at, dz.at, n, NULL, NULL, dx.at, NULL));
    free(lab_read(l, aux));
    return (outcome){lab_read(l, y),  lab_read(l, plain), lab_read(l, dz),
                     lab_read(l, dw), lab_read(l, db),    lab_read(l, dx)};
}

/* Against double. Where a ReLU is open is taken from the outcome: next to 0 rounding decides it. */
static void check_layer(lab *l, const tlob_linear *layer, int64_t n, const float *w, const float *b, const float *x,
                        const float *dy, const outcome *r) {
    const int64_t in = layer->in, out = layer->out;
    const double bar = bar_of(l, layer->activation);
    double *ew = lab_double(w, in * out), *eb = lab_double(b, out), *ex = lab_double(x, in * n);
    double *dz = lab_double(dy, out * n), *z = malloc((size_t)(out * n) * sizeof(double));
    double *y = malloc((size_t)(out * n) * sizeof(double)), *dw = malloc((size_t)(in * out) * sizeof(double));
    double *db = malloc((size_t)out * sizeof(double)), *dx = malloc((size_t)(in * n) * sizeof(double));
    exact_linear_forward(layer, n, ew, eb, ex, z, y);
    for (int64_t i = 0; i < out * n && layer->activation == TLOB_ACTIVATION_RELU; i++)
        z[i] = r->y[i] > 0.0f ? 1.0 : -1.0;
    exact_linear_derivative(layer, n, z, dz, dz);
    exact_linear_backward(layer, n, ew, ex, dz, dw, db, dx);
    lab_close_to("y", r->y, y, out * n, bar);
    lab_close_to("y without aux", r->y_without_aux, y, out * n, bar);
    lab_close_to("dz", r->dz, dz, out * n, bar);
    lab_close_to("dw", r->dw, dw, in * out, bar);
    lab_close_to("db", r->db, db, out, bar);
    lab_close_to("dx", r->dx, dx, in * n, bar);
    double *all[] = {ew, eb, ex, dz, z, y, dw, db, dx};
    for (int i = 0; i < 9; i++)
        free(all[i]);
}

void case_linear_reference(lab *l) {
    io_safetensors *file = reference_open("linear_relu");
    const io_tensor *x = reference_tensor(file, "x"), *y = reference_tensor(file, "y");
    const tlob_linear layer = {.in = x->shape[1], .out = y->shape[1], .activation = TLOB_ACTIVATION_RELU};
    const int64_t n = x->shape[0];
    float *w = reference_floats(file, "w"), *b = reference_floats(file, "b"), *xs = reference_floats(file, "x");
    float *dy = reference_floats(file, "dy");
    outcome r = run_layer(l, &layer, n, w, b, xs, dy, false);
    const struct {
        const char *name;
        const float *got;
    } results[] = {{"y", r.y}, {"dw", r.dw}, {"db", r.db}, {"dx", r.dx}};
    /* In TF32 some ReLU open that are closed there. */
    for (int i = 0; i < (l->ctx->settings.compute == TLOB_COMPUTE_TF32 ? 1 : 4); i++) {
        const io_tensor *want = reference_tensor(file, results[i].name);
        lab_close_to(results[i].name, results[i].got, want->data, reference_count(want), l->bar);
    }
    check_layer(l, &layer, n, w, b, xs, dy, &r);
    free_outcome(&r);
    free(w);
    free(b);
    free(xs);
    free(dy);
    io_safetensors_free(&file);
}

void case_linear_shapes(lab *l) {
    static const struct {
        int64_t in, out, n;
    } sizes[] = {{1, 1, 1},    {1, 3, 5},     {3, 1, 2},    {5, 129, 3}, {129, 5, 7},
                 {31, 33, 65}, {128, 256, 1}, {65, 127, 9}, {5, 3, 2049}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int64_t in = sizes[i].in, out = sizes[i].out, n = sizes[i].n;
        float *w = lab_random(in * out, 1.0f, 61), *b = lab_random(out, 1.0f, 62), *x = lab_random(in * n, 1.5f, 63);
        float *dy = lab_random(out * n, 1.0f, 64);
        for (int a = 0; a < 3; a++) {
            const tlob_linear layer = {in, out, activations[a]};
            outcome r = run_layer(l, &layer, n, w, b, x, dy, false);
            check_layer(l, &layer, n, w, b, x, dy, &r);
            outcome again = run_layer(l, &layer, n, w, b, x, dy, true);
            lab_same_bits("dz in place of dy", again.dz, r.dz, out * n);
            lab_same_bits("dw from dz in place", again.dw, r.dw, in * out);
            free_outcome(&r);
            free_outcome(&again);
            lab_clear(l);
        }
        free(w);
        free(b);
        free(x);
        free(dy);
    }
}

static void expect_zeros(lab *l, const char *what, array a) {
    float *got = lab_read(l, a);
    for (int64_t i = 0; i < a.count; i++)
        cr_assert_eq(got[i], 0.0f, "%s[%ld] is %g", what, (long)i, (double)got[i]);
    free(got);
}

void case_linear_no_columns(lab *l) {
    const tlob_linear layer = {5, 3, TLOB_ACTIVATION_RELU}, above = {3, 7, TLOB_ACTIVATION_GELU};
    array w = lab_array(l, NULL, 21, 0), b = lab_array(l, NULL, 7, 0);
    array dw = lab_array(l, NULL, 15, 0), db = lab_array(l, NULL, 3, 0), db_out = lab_array(l, NULL, 3, 0);
    array dw_alone = lab_array(l, NULL, 15, 0), db_below = lab_array(l, NULL, 3, 0);
    cr_assert_eq(tlob_linear_aux_bytes(&layer, 0), 0);
    LAB_OK(tlob_linear_forward(l->stream, &layer, w.at, b.at, NULL, 0, NULL, NULL));
    LAB_OK(tlob_linear_backward_output(l->stream, &layer, NULL, NULL, 0, NULL, db_out.at));
    LAB_OK(tlob_linear_backward_weight(l->stream, &layer, NULL, NULL, 0, dw.at, db.at));
    LAB_OK(tlob_linear_backward_weight(l->stream, &layer, NULL, NULL, 0, dw_alone.at, NULL));
    LAB_OK(tlob_linear_backward_input(l->stream, &layer, w.at, NULL, 0, NULL, NULL, NULL, NULL));
    LAB_OK(tlob_linear_backward_input(l->stream, &above, w.at, NULL, 0, &layer, NULL, NULL, db_below.at));
    expect_zeros(l, "dweight", dw);
    expect_zeros(l, "dbias", db);
    expect_zeros(l, "dweight alone", dw_alone);
    expect_zeros(l, "dbias of backward_output", db_out);
    expect_zeros(l, "dbias_below", db_below);
}

/* --- two layers -------------------------------------------------------------------------------------------------- */

/* Both passes of a chain with parameters `p`, x and c as floats: `d` laid out as the parameters; to free. */
static void run_chain(lab *l, const exact_chain *chain, const float *p, const float *x, const float *c, float **d,
                      float **dx) {
    const tlob_linear *bottom = &chain->layer[0], *top = &chain->layer[1];
    const int64_t n = chain->n, b0 = bottom->in * bottom->out, w1 = b0 + bottom->out, b1 = w1 + top->in * top->out;
    array ap = lab_array(l, p, b1 + top->out, 0), ad = lab_array(l, NULL, b1 + top->out, 0), aux0, aux1;
    array ax = lab_array(l, x, bottom->in * n, 0), adx = lab_array(l, NULL, bottom->in * n, 0);
    array y0 = lab_array(l, NULL, bottom->out * n, 0), dz0 = lab_array(l, NULL, bottom->out * n, 0);
    array y1 = lab_array(l, NULL, top->out * n, 0), dz1 = lab_array(l, c, top->out * n, 0);
    const bool active0 = bottom->activation != TLOB_ACTIVATION_NONE, active1 = top->activation != TLOB_ACTIVATION_NONE;
    void *aux0_at = aux_for(l, bottom, n, &aux0), *aux1_at = aux_for(l, top, n, &aux1);
    LAB_OK(tlob_linear_forward(l->stream, bottom, ap.at, ap.at + b0, ax.at, n, y0.at, aux0_at));
    LAB_OK(tlob_linear_forward(l->stream, top, ap.at + w1, ap.at + b1, y0.at, n, y1.at, aux1_at));
    if (active1)
        LAB_OK(tlob_linear_backward_output(l->stream, top, dz1.at, aux1_at, n, dz1.at, ad.at + b1));
    LAB_OK(tlob_linear_backward_weight(l->stream, top, y0.at, dz1.at, n, ad.at + w1, active1 ? NULL : ad.at + b1));
    LAB_OK(tlob_linear_backward_input(l->stream, top, ap.at + w1, dz1.at, n, active0 ? bottom : NULL, aux0_at, dz0.at,
                                      active0 ? ad.at + b0 : NULL));
    LAB_OK(tlob_linear_backward_weight(l->stream, bottom, ax.at, dz0.at, n, ad.at, active0 ? NULL : ad.at + b0));
    LAB_OK(tlob_linear_backward_input(l->stream, bottom, ap.at, dz0.at, n, NULL, NULL, adx.at, NULL));
    array written[] = {aux0, aux1, y0, dz0, y1};
    for (int i = 0; i < 5; i++)
        free(lab_read(l, written[i]));
    *d = lab_read(l, ad);
    *dx = lab_read(l, adx);
}

static double loss_of(const void *chain) {
    return exact_chain_loss(chain, NULL);
}

static void check_chain(lab *l, tlob_activation bottom, tlob_activation top) {
    exact_chain chain = {.layer = {{5, 9, bottom}, {9, 4, top}}, .n = 7};
    const int64_t count = exact_chain_count(&chain), x_count = 5 * 7, c_count = 4 * 7;
    const double bar = fmax(bar_of(l, bottom), bar_of(l, top));
    float *p = lab_random(count, 0.9f, 71), *x = lab_random(x_count, 1.5f, 72), *c = lab_random(c_count, 1.0f, 73);
    float *d, *dx;
    double *exact_c = lab_double(c, c_count), nearest = 1.0;
    double *exact = malloc((size_t)count * sizeof(double)), *exact_dx = malloc((size_t)x_count * sizeof(double));
    chain.parameters = lab_double(p, count);
    chain.x = lab_double(x, x_count);
    chain.c = exact_c;
    exact_chain_loss(&chain, &nearest);
    cr_assert(nearest > 1e-4, "a ReLU %g from its corner has no difference to compare with", nearest);
    exact_chain_gradients(&chain, exact, exact_dx);
    run_chain(l, &chain, p, x, c, &d, &dx);
    double *by_p = lab_differences(loss_of, &chain, chain.parameters, count, 1e-5);
    double *by_x = lab_differences(loss_of, &chain, chain.x, x_count, 1e-5);
    const struct {
        const char *name;
        int64_t at, count;
    } parts[] = {{"dW_0", 0, 45}, {"db_0", 45, 9}, {"dW_1", 54, 36}, {"db_1", 90, 4}};
    for (int i = 0; i < 4; i++)
        lab_compare_gradients(parts[i].name, exact + parts[i].at, by_p + parts[i].at, d + parts[i].at, parts[i].count,
                              bar);
    lab_compare_gradients("dx", exact_dx, by_x, dx, x_count, bar);
    double *doubles[] = {chain.parameters, chain.x, exact_c, exact, exact_dx, by_p, by_x};
    float *floats[] = {p, x, c, d, dx};
    for (int i = 0; i < 7; i++)
        free(doubles[i]);
    for (int i = 0; i < 5; i++)
        free(floats[i]);
}

void case_linear_gradients(lab *l) {
    for (int i = 0; i < 9; i++) {
        check_chain(l, activations[i / 3], activations[i % 3]);
        lab_clear(l);
    }
}

void case_linear_products(lab *l) {
    static const struct {
        tlob_activation activation;
        tlob_epilogue passes[7];
    } expected[] = {
        {TLOB_ACTIVATION_NONE,
         {TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_BGRADB, TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_BGRADB,
          TLOB_EPILOGUE_NONE}},
        {TLOB_ACTIVATION_RELU,
         {TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_DRELU_BGRAD, TLOB_EPILOGUE_NONE,
          TLOB_EPILOGUE_DRELU_BGRAD, TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_NONE}},
        {TLOB_ACTIVATION_GELU,
         {TLOB_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_DGELU_BGRAD, TLOB_EPILOGUE_NONE,
          TLOB_EPILOGUE_DGELU_BGRAD, TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_NONE}},
    };
    static const tlob_epilogue without_aux[] = {TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_RELU_BIAS, TLOB_EPILOGUE_GELU_BIAS};
    float *random = lab_random(94, 1.0f, 81);
    seen_products seen;
    products_watch(l, &seen);
    for (int a = 0; a < 3; a++) {
        const tlob_activation activation = expected[a].activation;
        const exact_chain chain = {.layer = {{5, 9, activation}, {9, 4, activation}}, .n = 7};
        float *d, *dx;
        run_chain(l, &chain, random, random, random, &d, &dx);
        const bool active = activation != TLOB_ACTIVATION_NONE;
        cr_assert(!active || (seen.at[2].k == 0 && seen.at[4].k == 4), "k is %ld and %ld: dy takes no product",
                  (long)seen.at[2].k, (long)seen.at[4].k);
        products_expect(&seen, "two layers", expected[a].passes, active ? 7 : 6);
        free(d);
        free(dx);
        array x = lab_array(l, random, 45, 0), y = lab_array(l, NULL, 28, 0);
        LAB_OK(tlob_linear_forward(l->stream, &chain.layer[1], x.at, x.at, x.at, 5, y.at, NULL));
        products_expect(&seen, "without aux", &without_aux[a], 1);
    }
    products_unwatch(l);
    free(random);
}
