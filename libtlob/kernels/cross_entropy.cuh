/** The loss of a sample on a device. */
#ifndef TLOB_KERNELS_CROSS_ENTROPY_CUH
#define TLOB_KERNELS_CROSS_ENTROPY_CUH

#include <cmath>

/** What a sample adds: to the sums of the slopes, to the loss, and 1 or 0 to the number of right ones. */
struct xent {
    float slope[3], loss, right;

    /** Of logits z over `samples`: see tlob_xent_args. */
    __device__ xent(const float (&z)[3], int label, int64_t samples) {
        int best = 0;
        float max = z[0], shifted[3], e[3], sum = 0.0f;
#pragma unroll
        for (int c = 1; c < 3; c++) {
            if (z[c] > max) {
                best = c;
                max = z[c];
            }
        }
#pragma unroll
        for (int c = 0; c < 3; c++) {
            shifted[c] = z[c] == max ? 0.0f : z[c] - max; /* not inf - inf at an infinite maximum; a NaN stays one */
            e[c] = expf(shifted[c]);
            sum += e[c];
        }
        const bool valid = label < 3;
        const float at_label = label == 0 ? shifted[0] : label == 1 ? shifted[1] : shifted[2];
        loss = valid ? logf(sum) - at_label : NAN;
        right = label == best && !isnan(loss) ? 1.0f : 0.0f;
#pragma unroll
        for (int c = 0; c < 3; c++)
            slope[c] = valid ? (e[c] / sum - (c == label ? 1.0f : 0.0f)) / (float)samples : NAN;
    }

    /** Adds it to sums in the order [slopes, loss, right]. */
    __device__ void add_to(float (&sums)[5]) const {
#pragma unroll
        for (int c = 0; c < 3; c++)
            sums[c] += slope[c];
        sums[3] += loss;
        sums[4] += right;
    }
};

#endif
