#include <math.h>
#include <string.h>

#include "libtlob/kernels/table.h"

/* The oracle of the attention: everything in double, each result rounded once. A row's statistics are computed again
 * wherever they are needed, because their float copies would cost digits: a maximum of 1e4 rounds by 5e-4. */

#define KEYS_AT_ONCE 32 /* whose gradients are summed on the stack */

static int64_t base_of(const tlob_attend_args *x, const tlob_attend_layout *layout, int64_t group) {
    return group / x->inner * layout->outer_stride + group % x->inner * layout->inner_stride;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0.0;
    for (int64_t e = 0; e < n; e++)
        sum += (double)a[e] * b[e];
    return sum;
}

/* One query: where its group's keys and itself lie in Q, K and V, where its output lies, the softmax of its scores. */
struct query {
    int64_t base, at, out;
    double max, sum, dot;
};

static double score(const tlob_attend_args *x, const struct query *q, int64_t key) {
    const double scale = 1.0 / sqrt((double)x->head_dim);
    return scale * dot(x->q + q->at, x->k + q->base + key * x->in.token_stride, x->head_dim);
}

/* exp(score - max): 1 at the maximum itself, even an infinite one; a NaN score is equal to nothing and stays NaN. */
static double weight_of(double s, double max) {
    return s == max ? 1.0 : exp(s - max);
}

static double probability(const tlob_attend_args *x, const struct query *q, int64_t key) {
    return weight_of(score(x, q, key), q->max) / q->sum;
}

static struct query query_of(const tlob_attend_args *x, int64_t group, int64_t token) {
    struct query q = {.base = base_of(x, &x->in, group), .max = -(double)INFINITY};
    q.at = q.base + token * x->in.token_stride;
    q.out = base_of(x, &x->out, group) + token * x->out.token_stride;
    for (int64_t j = 0; j < x->tokens; j++)
        q.max = fmax(q.max, score(x, &q, j));
    for (int64_t j = 0; j < x->tokens; j++)
        q.sum += weight_of(score(x, &q, j), q.max);
    return q;
}

static double d_probability(const tlob_attend_args *x, const struct query *q, int64_t key) {
    return dot(x->d_o + q->out, x->v + q->base + key * x->in.token_stride, x->head_dim);
}

/* With rowsum(dP * P), for the backward pass. */
static struct query query_with_dot(const tlob_attend_args *x, int64_t group, int64_t token) {
    struct query q = query_of(x, group, token);
    for (int64_t j = 0; j < x->tokens; j++)
        q.dot += d_probability(x, &q, j) * probability(x, &q, j);
    return q;
}

static void forward_query(const tlob_attend_args *x, int64_t group, int64_t token) {
    const struct query q = query_of(x, group, token);
    double o[TLOB_ATTEND_HEAD_DIM_MAX] = {0.0};
    for (int64_t j = 0; j < x->tokens; j++) {
        const float *v = x->v + q.base + j * x->in.token_stride;
        double p = probability(x, &q, j);
        for (int64_t e = 0; e < x->head_dim; e++)
            o[e] += p * v[e];
    }
    for (int64_t e = 0; e < x->head_dim; e++)
        x->o[q.out + e] = (float)o[e];
    x->row_max[group * x->tokens + token] = (float)q.max;
    x->row_inv_sum[group * x->tokens + token] = (float)(1.0 / q.sum);
}

static void backward_query(const tlob_attend_args *x, int64_t group, int64_t token) {
    const struct query q = query_with_dot(x, group, token);
    double dq[TLOB_ATTEND_HEAD_DIM_MAX] = {0.0};
    for (int64_t j = 0; j < x->tokens; j++) {
        const float *k = x->k + q.base + j * x->in.token_stride;
        double ds = probability(x, &q, j) * (d_probability(x, &q, j) - q.dot);
        for (int64_t e = 0; e < x->head_dim; e++)
            dq[e] += ds * k[e];
    }
    for (int64_t e = 0; e < x->head_dim; e++)
        x->dq[q.at + e] = (float)(dq[e] / sqrt((double)x->head_dim));
    x->row_dot[group * x->tokens + token] = (float)q.dot;
}

static void backward_keys(const tlob_attend_args *x, int64_t group, int64_t first, int64_t count) {
    double dk[KEYS_AT_ONCE][TLOB_ATTEND_HEAD_DIM_MAX], dv[KEYS_AT_ONCE][TLOB_ATTEND_HEAD_DIM_MAX];
    memset(dk, 0, (size_t)count * sizeof(dk[0]));
    memset(dv, 0, (size_t)count * sizeof(dv[0]));
    for (int64_t i = 0; i < x->tokens; i++) {
        const struct query q = query_with_dot(x, group, i);
        for (int64_t j = 0; j < count; j++) {
            double p = probability(x, &q, first + j);
            double ds = p * (d_probability(x, &q, first + j) - q.dot);
            for (int64_t e = 0; e < x->head_dim; e++) {
                dk[j][e] += ds * x->q[q.at + e];
                dv[j][e] += p * x->d_o[q.out + e];
            }
        }
    }
    for (int64_t j = 0; j < count; j++) {
        int64_t at = base_of(x, &x->in, group) + (first + j) * x->in.token_stride;
        for (int64_t e = 0; e < x->head_dim; e++) {
            x->dk[at + e] = (float)(dk[j][e] / sqrt((double)x->head_dim));
            x->dv[at + e] = (float)dv[j][e];
        }
    }
}

bool tlob_host_attend_has_tiles(void) {
    return false;
}

int tlob_host_attend_forward(struct CUstream_st *stream, const tlob_attend_args *args) {
    (void)stream;
    for (int64_t group = 0; group < args->groups; group++) {
        for (int64_t token = 0; token < args->tokens; token++)
            forward_query(args, group, token);
    }
    return 0;
}

int tlob_host_attend_backward(struct CUstream_st *stream, const tlob_attend_args *args) {
    (void)stream;
    for (int64_t group = 0; group < args->groups; group++) {
        for (int64_t token = 0; token < args->tokens; token++)
            backward_query(args, group, token);
        for (int64_t first = 0; first < args->tokens; first += KEYS_AT_ONCE) {
            int64_t left = args->tokens - first;
            backward_keys(args, group, first, left < KEYS_AT_ONCE ? left : KEYS_AT_ONCE);
        }
    }
    return 0;
}
