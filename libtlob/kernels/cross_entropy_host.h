/** The loss of a sample on the host, in double. */
#ifndef TLOB_KERNELS_CROSS_ENTROPY_HOST_H
#define TLOB_KERNELS_CROSS_ENTROPY_HOST_H

#include <math.h>

/** As `xent` of cross_entropy.cuh; adds to sums in the order [slopes, loss, right]. */
static inline void tlob_xent_sample(const double *z, int label, int64_t samples, double *slope, double *sums) {
    double shifted[3], e[3], sum = 0.0;
    int best = 0;
    for (int c = 1; c < 3; c++) {
        if (z[c] > z[best])
            best = c;
    }
    for (int c = 0; c < 3; c++) {
        shifted[c] = z[c] == z[best] ? 0.0 : z[c] - z[best];
        e[c] = exp(shifted[c]);
        sum += e[c];
    }
    double loss = label < 3 ? log(sum) - shifted[label] : (double)NAN;
    for (int c = 0; c < 3; c++) {
        slope[c] = label < 3 ? (e[c] / sum - (c == label ? 1.0 : 0.0)) / (double)samples : (double)NAN;
        sums[c] += slope[c];
    }
    sums[3] += loss;
    sums[4] += label == best && !isnan(loss) ? 1.0 : 0.0;
}

#endif
