#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

static __global__ void cross_entropy(tlob_xent_args x) {
    TLOB_GRID_LOOP(i, x.samples) {
        const float *z = x.logits + 3 * i;
        int label = x.labels[i], best = 0;
        float max = z[0], shifted[3], e[3], sum = 0.0f;
        for (int c = 1; c < 3; c++) {
            if (z[c] > max) {
                best = c;
                max = z[c];
            }
        }
        for (int c = 0; c < 3; c++) {
            shifted[c] = z[c] == max ? 0.0f : z[c] - max; /* not inf - inf at an infinite maximum; a NaN stays one */
            e[c] = expf(shifted[c]);
            sum += e[c];
        }
        bool valid = label < 3;
        float at_label = label == 0 ? shifted[0] : label == 1 ? shifted[1] : shifted[2];
        float loss = valid ? logf(sum) - at_label : NAN;
        x.figures[2 * i] = loss;
        x.figures[2 * i + 1] = label == best && !isnan(loss) ? 1.0f : 0.0f;
        if (x.dlogits) {
            for (int c = 0; c < 3; c++)
                x.dlogits[3 * i + c] = valid ? (e[c] / sum - (c == label ? 1.0f : 0.0f)) / (float)x.samples : NAN;
        }
    }
}

extern "C" int tlob_cuda_cross_entropy(struct CUstream_st *stream, const tlob_xent_args *args) {
    return launch(stream, args->samples, TLOB_BLOCK, cross_entropy, *args);
}

extern "C" int tlob_cuda_load_cross_entropy(void) {
    return load(cross_entropy);
}
