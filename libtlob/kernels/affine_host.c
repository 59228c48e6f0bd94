#include "libtlob/kernels/table.h"

int tlob_host_affine(struct CUstream_st *stream, const tlob_affine_args *args) {
    const tlob_affine_args x = *args;
    (void)stream;
    for (int64_t b = 0; b < x.batch; b++) {
        for (int64_t j = 0; j < x.n; j++) {
            for (int64_t i = 0; i < x.m; i++) {
                int64_t at = b * x.stride + j * x.ld + i;
                double sum = x.beta == 0.0f ? 0.0 : (double)x.beta * x.c[at];
                x.d[at] = (float)(x.bias ? sum + x.bias[b * x.stride_bias + i] : sum);
            }
        }
    }
    return 0;
}
