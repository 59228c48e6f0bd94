#include <math.h>

#include "libtlob/kernels/table.h"

/* 1 - beta^t. */
static double correction(float beta, int64_t t) {
    return 1.0 - pow(beta, (double)t);
}

static void update(const tlob_adam_args *x, int64_t i, double g, double m_scale, double v_scale) {
    const tlob_adam_state *s = x->state;
    double m = (double)s->beta1 * x->m[i] + (1.0 - s->beta1) * g;
    double v = (double)s->beta2 * x->v[i] + (1.0 - s->beta2) * g * g;
    x->m[i] = (float)m;
    x->v[i] = (float)v;
    x->w[i] = (float)(x->w[i] - s->lr * (m / m_scale) / (sqrt(v / v_scale) + s->eps));
}

int tlob_host_adam(struct CUstream_st *stream, const tlob_adam_args *args) {
    (void)stream;
    tlob_adam_state *s = args->state;
    s->t += 1;
    const double m_scale = correction(s->beta1, s->t), v_scale = correction(s->beta2, s->t);
    for (int64_t i = 0; i < args->count; i++)
        update(args, i, args->g[i], m_scale, v_scale);
    return 0;
}

int tlob_host_adam_chunked(struct CUstream_st *stream, const tlob_adam_chunked_args *args) {
    const tlob_adam_args *x = &args->adam;
    const tlob_adam_state *s = x->state;
    const double m_scale = correction(s->beta1, s->t), v_scale = correction(s->beta2, s->t);
    (void)stream;
    for (int p = 0; p < 2; p++) {
        const tlob_chunked *of = &args->part[p];
        for (int64_t i = 0; i < of->count; i++) {
            const int64_t at = i + (p ? args->part[0].count : 0);
            double sum = 0.0;
            for (int64_t chunk = 0; chunk < of->chunks; chunk++)
                sum += of->partial[i + of->count * chunk];
            if (at < x->count)
                update(x, at, sum, m_scale, v_scale);
            else
                args->figures[at - x->count] = (float)sum;
        }
    }
    return 0;
}

int tlob_host_set_scalar(struct CUstream_st *stream, float *dst, float value) {
    (void)stream;
    *dst = value;
    return 0;
}
