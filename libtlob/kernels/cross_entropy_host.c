#include <math.h>

#include "libtlob/kernels/table.h"

static void one_sample(const tlob_xent_args *x, int64_t i) {
    const float *z = x->logits + 3 * i;
    int label = x->labels[i], best = 0;
    double shifted[3], e[3], sum = 0.0;
    for (int c = 1; c < 3; c++) {
        if (z[c] > z[best])
            best = c;
    }
    for (int c = 0; c < 3; c++) {
        shifted[c] = z[c] == z[best] ? 0.0 : (double)z[c] - z[best];
        e[c] = exp(shifted[c]);
        sum += e[c];
    }
    double loss = label < 3 ? log(sum) - shifted[label] : (double)NAN;
    x->figures[2 * i] = (float)loss;
    x->figures[2 * i + 1] = label == best && !isnan(loss) ? 1.0f : 0.0f;
    for (int c = 0; c < 3 && x->dlogits; c++) {
        double slope = (e[c] / sum - (c == label ? 1.0 : 0.0)) / (double)x->samples;
        x->dlogits[3 * i + c] = label < 3 ? (float)slope : NAN;
    }
}

int tlob_host_cross_entropy(struct CUstream_st *stream, const tlob_xent_args *args) {
    (void)stream;
    for (int64_t i = 0; i < args->samples; i++)
        one_sample(args, i);
    return 0;
}
