#include "libtlob/kernels/table.h"

int tlob_host_sum_chunks(struct CUstream_st *stream, const tlob_sum_args *args) {
    const tlob_chunked *of = &args->of;
    (void)stream;
    for (int64_t i = 0; i < of->count; i++) {
        double sum = 0.0;
        for (int64_t chunk = 0; chunk < of->chunks; chunk++)
            sum += of->partial[i + of->count * chunk];
        *(i < args->split ? &args->out[i] : &args->rest[i - args->split]) = (float)sum;
    }
    return 0;
}
