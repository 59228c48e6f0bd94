#include "libtlob/kernels/chunks.h"
#include "libtlob/kernels/cross_entropy_host.h"
#include "libtlob/kernels/table.h"

static void logits_of(const tlob_head_args *x, int64_t s, double *z) {
    const float *y = x->y + s * x->features;
    for (int c = 0; c < 3; c++)
        z[c] = x->weights[3 * x->features + c];
    for (int64_t f = 0; f < x->features; f++)
        for (int c = 0; c < 3; c++)
            z[c] += (double)x->weights[3 * f + c] * y[f];
}

static void one_sample(const tlob_head_args *x, int64_t s, double *sums) {
    double z[3], slope[3];
    logits_of(x, s, z);
    tlob_xent_sample(z, x->labels[s], x->samples, slope, sums);
    for (int c = 0; c < 3; c++)
        x->dlogits[3 * s + c] = (float)slope[c];
}

static void one_feature(const tlob_head_args *x, int64_t f, int64_t first, int64_t end, float *to) {
    const float *w = x->weights + 3 * f;
    double sum[3] = {0};
    for (int64_t s = first; s < end; s++) {
        const float *slope = x->dlogits + 3 * s;
        double dy = 0.0;
        for (int c = 0; c < 3; c++) {
            sum[c] += (double)slope[c] * x->y[s * x->features + f];
            dy += (double)w[c] * slope[c];
        }
        x->dy[s * x->features + f] = (float)dy;
    }
    for (int c = 0; c < 3; c++)
        to[3 * f + c] = (float)sum[c];
}

int tlob_host_head(struct CUstream_st *stream, const tlob_head_args *args) {
    const int64_t length = tlob_chunk_length(args->samples, TLOB_HEAD_UNIT, TLOB_HEAD_MOST);
    float *to = args->partial;
    (void)stream;
    for (int64_t first = 0; first < args->samples; first += length, to += 3 * args->features + 5) {
        const int64_t end = first + length < args->samples ? first + length : args->samples;
        double sums[5] = {0};
        for (int64_t s = first; s < end; s++)
            one_sample(args, s, sums);
        for (int64_t f = 0; f < args->features; f++)
            one_feature(args, f, first, end, to);
        for (int i = 0; i < 5; i++)
            to[3 * args->features + i] = (float)sums[i];
    }
    if (args->advance)
        args->advance->t += 1;
    return 0;
}

int tlob_host_head_logits(struct CUstream_st *stream, const tlob_head_args *args) {
    (void)stream;
    for (int64_t s = 0; s < args->samples; s++) {
        double z[3];
        logits_of(args, s, z);
        for (int c = 0; c < 3; c++)
            args->logits[3 * s + c] = (float)z[c];
    }
    return 0;
}
