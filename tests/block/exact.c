#include "tests/block/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *zeros(int64_t count) {
    return calloc((size_t)count, sizeof(double));
}

/* C [m, n] += op(A) op(B), packed; (i, j) of a transposed matrix is (j, i) of what lies there. */
static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < k; l++)
                c[i + j * m] += (ta ? a[l + i * k] : a[i + l * m]) * (tb ? b[j + l * n] : b[l + j * k]);
}

exact_attention exact_attention_create(int64_t tokens, int64_t d) {
    exact_attention a = {.tokens = tokens, .d = d, .p = zeros(tokens * tokens)};
    double **rows[] = {&a.q, &a.k, &a.v, &a.o, &a.d_o, &a.dq, &a.dk, &a.dv};
    for (int i = 0; i < 8; i++)
        *rows[i] = zeros(tokens * d);
    return a;
}

void exact_attention_free(exact_attention *a) {
    double *rows[] = {a->q, a->k, a->v, a->p, a->o, a->d_o, a->dq, a->dk, a->dv};
    for (int i = 0; i < 9; i++)
        free(rows[i]);
}

void exact_attend_forward(exact_attention *a) {
    const int64_t t = a->tokens, d = a->d;
    for (int64_t i = 0; i < t; i++) {
        double max = -HUGE_VAL, sum = 0.0;
        for (int64_t j = 0; j < t; j++) {
            double s = 0.0;
            for (int64_t e = 0; e < d; e++)
                s += a->q[i * d + e] * a->k[j * d + e];
            a->p[i * t + j] = s / sqrt((double)d);
            max = fmax(max, a->p[i * t + j]);
        }
        for (int64_t j = 0; j < t; j++)
            sum += a->p[i * t + j] = exp(a->p[i * t + j] - max);
        memset(a->o + i * d, 0, (size_t)d * sizeof(double));
        for (int64_t j = 0; j < t; j++) {
            a->p[i * t + j] /= sum;
            for (int64_t e = 0; e < d; e++)
                a->o[i * d + e] += a->p[i * t + j] * a->v[j * d + e];
        }
    }
}

void exact_attend_backward(exact_attention *a) {
    const int64_t t = a->tokens, d = a->d;
    double *dp = zeros(t);
    memset(a->dq, 0, (size_t)(t * d) * sizeof(double));
    memset(a->dk, 0, (size_t)(t * d) * sizeof(double));
    memset(a->dv, 0, (size_t)(t * d) * sizeof(double));
    for (int64_t i = 0; i < t; i++) {
        double dot = 0.0;
        for (int64_t j = 0; j < t; j++) {
            dp[j] = 0.0;
            for (int64_t e = 0; e < d; e++)
                dp[j] += a->d_o[i * d + e] * a->v[j * d + e];
            dot += dp[j] * a->p[i * t + j];
        }
        for (int64_t j = 0; j < t; j++) {
            double ds = a->p[i * t + j] * (dp[j] - dot) / sqrt((double)d);
            for (int64_t e = 0; e < d; e++) {
                a->dq[i * d + e] += ds * a->k[j * d + e];
                a->dk[j * d + e] += ds * a->q[i * d + e];
                a->dv[j * d + e] += a->p[i * t + j] * a->d_o[i * d + e];
            }
        }
    }
    free(dp);
}

int64_t exact_place(const tlob_block_shape *shape, int64_t g, int64_t t, int64_t e) {
    if (shape->axis == TLOB_AXIS_FEATURE) /* column g, rows of token t */
        return g * shape->d_out + t * shape->head_dim + e;
    int64_t heads = shape->d_out / shape->head_dim, sample = g / heads, head = g % heads;
    return (sample * shape->seq + t) * shape->d_out + head * shape->head_dim + e;
}

/* Everything between x and the loss. */
typedef struct pass {
    int64_t n, groups, tokens, features;
    const double *w[3], *w_o, *w_head, *b_head;
    double *qkv[3], *o, *y, *d_qkv[3], *d_o, *dy, *d_logits;
    exact_attention *attention; /* one for each group */
} pass;

static pass start(const exact_problem *r) {
    const tlob_block_shape *s = &r->shape;
    const int64_t heads = s->d_out / s->head_dim, chunk = s->d_out * s->d_in;
    pass f = {.n = r->samples * s->seq, .features = s->d_out * s->seq};
    f.groups = s->axis == TLOB_AXIS_TIME ? r->samples * heads : f.n;
    f.tokens = s->axis == TLOB_AXIS_TIME ? s->seq : heads;
    for (int i = 0; i < 3; i++) {
        f.w[i] = r->parameters + i * chunk;
        f.qkv[i] = zeros(s->d_out * f.n);
        f.d_qkv[i] = zeros(s->d_out * f.n);
    }
    f.w_o = r->parameters + 3 * chunk;
    f.w_head = f.w_o + s->d_out * s->d_out;
    f.b_head = f.w_head + 3 * f.features;
    f.o = zeros(s->d_out * f.n);
    f.y = zeros(s->d_out * f.n);
    f.d_o = zeros(s->d_out * f.n);
    f.dy = zeros(s->d_out * f.n);
    f.d_logits = zeros(3 * r->samples);
    f.attention = calloc((size_t)f.groups, sizeof(*f.attention));
    for (int64_t g = 0; g < f.groups; g++)
        f.attention[g] = exact_attention_create(f.tokens, s->head_dim);
    return f;
}

static void finish(pass *f) {
    for (int64_t g = 0; g < f->groups; g++)
        exact_attention_free(&f->attention[g]);
    double *arrays[] = {f->qkv[0],   f->qkv[1],   f->qkv[2], f->o,  f->y,       f->d_qkv[0],
                        f->d_qkv[1], f->d_qkv[2], f->d_o,    f->dy, f->d_logits};
    for (int i = 0; i < 11; i++)
        free(arrays[i]);
    free(f->attention);
}

/* Copies the tokens of every group to (`in`) or from a packed array. */
static void regroup(const tlob_block_shape *s, pass *f, double *packed, size_t field, bool in) {
    for (int64_t g = 0; g < f->groups; g++) {
        double *rows;
        memcpy(&rows, (char *)&f->attention[g] + field, sizeof(rows));
        for (int64_t t = 0; t < f->tokens; t++) {
            for (int64_t e = 0; e < s->head_dim; e++) {
                double *there = &packed[exact_place(s, g, t, e)], *here = &rows[t * s->head_dim + e];
                *(in ? here : there) = *(in ? there : here);
            }
        }
    }
}

#define FIELD(name) offsetof(exact_attention, name)

static double forward(const exact_problem *r, pass *f) {
    const tlob_block_shape *s = &r->shape;
    for (int i = 0; i < 3; i++)
        product(false, false, s->d_out, f->n, s->d_in, f->w[i], r->x, f->qkv[i]);
    regroup(s, f, f->qkv[0], FIELD(q), true);
    regroup(s, f, f->qkv[1], FIELD(k), true);
    regroup(s, f, f->qkv[2], FIELD(v), true);
    for (int64_t g = 0; g < f->groups; g++)
        exact_attend_forward(&f->attention[g]);
    regroup(s, f, f->o, FIELD(o), false);
    product(false, false, s->d_out, f->n, s->d_out, f->w_o, f->o, f->y);

    double loss = 0.0;
    for (int64_t i = 0; i < r->samples; i++) {
        double z[3], sum = 0.0;
        for (int c = 0; c < 3; c++) {
            z[c] = f->b_head[c];
            for (int64_t j = 0; j < f->features; j++)
                z[c] += f->w_head[c + 3 * j] * f->y[i * f->features + j];
            sum += exp(z[c]);
        }
        loss += (log(sum) - z[r->labels[i]]) / (double)r->samples;
        for (int c = 0; c < 3; c++)
            f->d_logits[3 * i + c] = (exp(z[c]) / sum - (c == r->labels[i])) / (double)r->samples;
    }
    return loss;
}

/* From d_logits back to d_qkv; the head's and the output projection's gradients where `d` is not NULL. */
static void backward(const exact_problem *r, pass *f, double *d) {
    const tlob_block_shape *s = &r->shape;
    product(true, false, f->features, r->samples, 3, f->w_head, f->d_logits, f->dy);
    product(true, false, s->d_out, f->n, s->d_out, f->w_o, f->dy, f->d_o);
    regroup(s, f, f->d_o, FIELD(d_o), true);
    for (int64_t g = 0; g < f->groups; g++)
        exact_attend_backward(&f->attention[g]);
    regroup(s, f, f->d_qkv[0], FIELD(dq), false);
    regroup(s, f, f->d_qkv[1], FIELD(dk), false);
    regroup(s, f, f->d_qkv[2], FIELD(dv), false);
    if (!d)
        return;
    for (int i = 0; i < 3; i++)
        product(false, true, s->d_out, s->d_in, f->n, f->d_qkv[i], r->x, d + i * s->d_out * s->d_in);
    double *head = d + (f->w_head - r->parameters);
    product(false, true, s->d_out, s->d_out, f->n, f->dy, f->o, d + (f->w_o - r->parameters));
    product(false, true, 3, f->features, r->samples, f->d_logits, f->y, head);
    for (int64_t i = 0; i < 3 * r->samples; i++)
        head[3 * f->features + i % 3] += f->d_logits[i];
}

double exact_loss(const exact_problem *r) {
    pass f = start(r);
    double loss = forward(r, &f);
    finish(&f);
    return loss;
}

double exact_gradients(const exact_problem *r, double *d_parameters, double *dx) {
    const tlob_block_shape *s = &r->shape;
    pass f = start(r);
    double loss = forward(r, &f);
    if (d_parameters)
        memset(d_parameters, 0, (size_t)tlob_model_weight_count(s) * sizeof(double));
    backward(r, &f, d_parameters);
    if (dx) {
        memset(dx, 0, (size_t)(s->d_in * f.n) * sizeof(double));
        for (int i = 0; i < 3; i++)
            product(true, false, s->d_in, f.n, s->d_out, f.w[i], f.d_qkv[i], dx);
    }
    finish(&f);
    return loss;
}
