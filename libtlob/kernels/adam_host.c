#include <math.h>

#include "libtlob/kernels/table.h"

int tlob_host_adam(struct CUstream_st *stream, const tlob_adam_args *args) {
    tlob_adam_state *s = args->state;
    (void)stream;
    s->t += 1;
    s->correction1 = (float)(1.0 - pow(s->beta1, (double)s->t));
    s->correction2 = (float)(1.0 - pow(s->beta2, (double)s->t));
    for (int64_t i = 0; i < args->count; i++) {
        double g = args->g[i];
        double m = (double)s->beta1 * args->m[i] + (1.0 - s->beta1) * g;
        double v = (double)s->beta2 * args->v[i] + (1.0 - s->beta2) * g * g;
        args->m[i] = (float)m;
        args->v[i] = (float)v;
        args->w[i] = (float)(args->w[i] - s->lr * (m / s->correction1) / (sqrt(v / s->correction2) + s->eps));
    }
    return 0;
}

int tlob_host_set_scalar(struct CUstream_st *stream, float *dst, float value) {
    (void)stream;
    *dst = value;
    return 0;
}
