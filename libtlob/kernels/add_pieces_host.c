#include "libtlob/kernels/table.h"

int tlob_host_add_pieces(struct CUstream_st *stream, const tlob_add_pieces_args *args) {
    const tlob_add_pieces_args x = *args;
    (void)stream;
    for (int64_t j = 0; j < x.n; j++) {
        for (int64_t i = 0; i < x.m; i++) {
            double sum = x.beta == 0.0f ? 0.0 : (double)x.beta * x.c[j * x.ld + i];
            for (int64_t p = 0; p < x.pieces; p++)
                sum += x.piece[(p * x.n + j) * x.m + i];
            x.d[j * x.ld + i] = (float)sum;
        }
    }
    return 0;
}
