#include "libtlob/kernels/philox.h"
#include "libtlob/kernels/table.h"

int tlob_host_uniform(struct CUstream_st *stream, int64_t count, float bound, uint64_t seed, uint32_t space, float *w) {
    (void)stream;
    for (int64_t i = 0; i < count; i++)
        w[i] = tlob_philox_uniform(tlob_philox_at(seed, space, i / 4).word[i % 4], bound);
    return 0;
}
