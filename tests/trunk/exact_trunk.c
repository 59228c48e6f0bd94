#include "tests/trunk/exact_trunk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/exact.h"

static double *zeros(int64_t count) {
    return calloc((size_t)(count > 0 ? count : 1), sizeof(double));
}

/* --- linear layers --------------------------------------------------------------------------------------------- */

#define GELU_SCALE 0.79788456080286535588 /* sqrt(2/pi) */

static double activate(tlob_activation activation, double z) {
    switch (activation) {
    case TLOB_ACTIVATION_RELU:
        return z > 0.0 ? z : 0.0;
    case TLOB_ACTIVATION_GELU:
        return 0.5 * z * (1.0 + tanh(GELU_SCALE * (z + 0.044715 * z * z * z)));
    default:
        return z;
    }
}

static double slope(tlob_activation activation, double z) {
    double t;
    switch (activation) {
    case TLOB_ACTIVATION_RELU:
        return z >= 0.0;
    case TLOB_ACTIVATION_GELU:
        t = tanh(GELU_SCALE * (z + 0.044715 * z * z * z));
        return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * GELU_SCALE * (1.0 + 3.0 * 0.044715 * z * z);
    default:
        return 1.0;
    }
}

void exact_linear_forward(const tlob_linear *l, int64_t n, const double *w, const double *b, const double *x, double *z,
                          double *y) {
    for (int64_t j = 0; j < n; j++) {
        for (int64_t o = 0; o < l->out; o++) {
            double sum = b[o];
            for (int64_t i = 0; i < l->in; i++)
                sum += w[o * l->in + i] * x[j * l->in + i];
            z[j * l->out + o] = sum;
            y[j * l->out + o] = activate(l->activation, sum);
        }
    }
}

void exact_linear_derivative(const tlob_linear *l, int64_t n, const double *z, const double *dy, double *dz) {
    for (int64_t i = 0; i < n * l->out; i++)
        dz[i] = dy[i] * slope(l->activation, z[i]);
}

void exact_linear_backward(const tlob_linear *l, int64_t n, const double *w, const double *x, const double *dz,
                           double *dw, double *db, double *dx) {
    memset(dw, 0, (size_t)(l->out * l->in) * sizeof(double));
    memset(db, 0, (size_t)l->out * sizeof(double));
    if (dx)
        memset(dx, 0, (size_t)(n * l->in) * sizeof(double));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t o = 0; o < l->out; o++) {
            double d = dz[j * l->out + o];
            db[o] += d;
            for (int64_t i = 0; i < l->in; i++) {
                dw[o * l->in + i] += d * x[j * l->in + i];
                if (dx)
                    dx[j * l->in + i] += d * w[o * l->in + i];
            }
        }
    }
}

static int64_t layer_count(const tlob_linear *l) {
    return l->in * l->out + l->out;
}

int64_t exact_chain_count(const exact_chain *chain) {
    return layer_count(&chain->layer[0]) + layer_count(&chain->layer[1]);
}

/* z and y of each layer. */
typedef struct walk {
    double *w[EXACT_LAYERS], *b[EXACT_LAYERS], *z[EXACT_LAYERS], *y[EXACT_LAYERS];
} walk;

static walk walk_forward(const exact_chain *c) {
    walk f;
    double *at = c->parameters, *x = c->x;
    for (int i = 0; i < EXACT_LAYERS; i++) {
        const tlob_linear *l = &c->layer[i];
        f.w[i] = at;
        f.b[i] = at + l->in * l->out;
        f.z[i] = zeros(c->n * l->out);
        f.y[i] = zeros(c->n * l->out);
        exact_linear_forward(l, c->n, f.w[i], f.b[i], x, f.z[i], f.y[i]);
        x = f.y[i];
        at += layer_count(l);
    }
    return f;
}

static void free_walk(walk *f) {
    for (int i = 0; i < EXACT_LAYERS; i++) {
        free(f->z[i]);
        free(f->y[i]);
    }
}

double exact_chain_loss(const exact_chain *c, double *nearest) {
    walk f = walk_forward(c);
    double loss = 0.0;
    for (int64_t i = 0; i < c->n * c->layer[1].out; i++)
        loss += c->c[i] * f.y[1][i];
    for (int l = 0; nearest && l < EXACT_LAYERS; l++) {
        for (int64_t i = 0; c->layer[l].activation == TLOB_ACTIVATION_RELU && i < c->n * c->layer[l].out; i++)
            *nearest = fmin(*nearest, fabs(f.z[l][i]));
    }
    free_walk(&f);
    return loss;
}

void exact_chain_gradients(const exact_chain *c, double *d, double *dx) {
    const tlob_linear *bottom = &c->layer[0], *top = &c->layer[1];
    walk f = walk_forward(c);
    double *dz_top = zeros(c->n * top->out), *dz_bottom = zeros(c->n * bottom->out);
    double *d_top = d + layer_count(bottom);
    exact_linear_derivative(top, c->n, f.z[1], c->c, dz_top);
    exact_linear_backward(top, c->n, f.w[1], f.y[0], dz_top, d_top, d_top + top->in * top->out, dz_bottom);
    exact_linear_derivative(bottom, c->n, f.z[0], dz_bottom, dz_bottom);
    exact_linear_backward(bottom, c->n, f.w[0], c->x, dz_bottom, d, d + bottom->in * bottom->out, dx);
    free(dz_top);
    free(dz_bottom);
    free_walk(&f);
}

/* --- multi-head attention --------------------------------------------------------------------------------------- */

/* Rows of [N][width] that belong to one head of one sample, to or from [seq][head_dim]. */
static void slice(const tlob_mha_shape *s, double *rows, int64_t width, int64_t column, int64_t sample, double *head,
                  bool out) {
    const int64_t d = s->dim / s->heads;
    for (int64_t t = 0; t < s->seq; t++) {
        for (int64_t e = 0; e < d; e++) {
            double *there = &rows[(sample * s->seq + t) * width + column + e], *here = &head[t * d + e];
            *(out ? there : here) = *(out ? here : there);
        }
    }
}

/* Attention of every head of every sample: from qkv to o, and with d_o also to d_qkv. */
static void attend(const exact_mha *m, double *qkv, double *o, double *d_o, double *d_qkv) {
    const tlob_mha_shape *s = &m->shape;
    const int64_t dim = s->dim, d = dim / s->heads;
    for (int64_t g = 0; g < m->samples * s->heads; g++) {
        const int64_t sample = g / s->heads, at = g % s->heads * d;
        exact_attention a = exact_attention_create(s->seq, d);
        double *in[] = {a.q, a.k, a.v}, *back[] = {a.dq, a.dk, a.dv};
        for (int i = 0; i < 3; i++)
            slice(s, qkv, 3 * dim, i * dim + at, sample, in[i], false);
        exact_attend_forward(&a);
        slice(s, o, dim, at, sample, a.o, true);
        if (d_o) {
            slice(s, d_o, dim, at, sample, a.d_o, false);
            exact_attend_backward(&a);
            for (int i = 0; i < 3; i++)
                slice(s, d_qkv, 3 * dim, i * dim + at, sample, back[i], true);
        }
        exact_attention_free(&a);
    }
}

double exact_mha_run(const exact_mha *m, double *y, double *d_weights, double *dx) {
    const int64_t dim = m->shape.dim, n = m->samples * m->shape.seq, w_out = 3 * dim * dim + 3 * dim;
    const tlob_linear in = {dim, 3 * dim, TLOB_ACTIVATION_NONE}, out = {dim, dim, TLOB_ACTIVATION_NONE};
    double *qkv = zeros(3 * dim * n), *o = zeros(dim * n), *own = zeros(dim * n), *d_o = zeros(dim * n);
    double *d_qkv = zeros(3 * dim * n), loss = 0.0;
    const double *w = m->weights;
    exact_linear_forward(&in, n, w, w + 3 * dim * dim, m->x, qkv, qkv);
    attend(m, qkv, o, NULL, NULL);
    exact_linear_forward(&out, n, w + w_out, w + w_out + dim * dim, o, own, own);
    for (int64_t i = 0; i < dim * n; i++)
        loss += m->c[i] * own[i];
    if (y)
        memcpy(y, own, (size_t)(dim * n) * sizeof(double));
    if (d_weights) {
        double *dw = d_weights;
        exact_linear_backward(&out, n, w + w_out, o, m->c, dw + w_out, dw + w_out + dim * dim, d_o);
        attend(m, qkv, o, d_o, d_qkv);
        exact_linear_backward(&in, n, w, m->x, d_qkv, dw, dw + 3 * dim * dim, dx);
    }
    free(qkv);
    free(o);
    free(own);
    free(d_o);
    free(d_qkv);
    return loss;
}

void exact_mha_p(int64_t seq, int64_t head_dim, const float *q, const float *k, int64_t ld, double *p) {
    exact_attention a = exact_attention_create(seq, head_dim);
    for (int64_t t = 0; t < seq; t++) {
        for (int64_t e = 0; e < head_dim; e++) {
            a.q[t * head_dim + e] = q[t * ld + e];
            a.k[t * head_dim + e] = k[t * ld + e];
        }
    }
    exact_attend_forward(&a);
    memcpy(p, a.p, (size_t)(seq * seq) * sizeof(double));
    exact_attention_free(&a);
}
