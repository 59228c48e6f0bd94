#include "libtlob/kernels/chunks.h"
#include "libtlob/kernels/cross_entropy_host.h"
#include "libtlob/kernels/table.h"

int tlob_host_cross_entropy(struct CUstream_st *stream, const tlob_xent_args *args) {
    const int64_t length = tlob_chunk_length(args->samples, TLOB_XENT_UNIT, TLOB_XENT_MOST);
    float *to = args->partial;
    (void)stream;
    for (int64_t first = 0; first < args->samples; first += length, to += 5) {
        const int64_t end = first + length < args->samples ? first + length : args->samples;
        double sums[5] = {0};
        for (int64_t i = first; i < end; i++) {
            const float *at = args->logits + 3 * i;
            double slope[3];
            tlob_xent_sample((double[3]){at[0], at[1], at[2]}, args->labels[i], args->samples, slope, sums);
            for (int c = 0; c < 3 && args->dlogits; c++)
                args->dlogits[3 * i + c] = (float)slope[c];
        }
        for (int i = 0; i < 5; i++)
            *(length < args->samples ? &to[i] : i < 3 ? &args->dbias[i] : &args->figures[i - 3]) = (float)sums[i];
    }
    return 0;
}
