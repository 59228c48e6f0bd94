#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/philox.h"
#include "libtlob/kernels/table.h"

/** A thread for each block of four: the words of a block cost one computation. */
static __global__ void uniform(int64_t count, float bound, uint64_t seed, uint32_t space, float *w) {
    TLOB_GRID_LOOP(block, (count + 3) / 4) {
        tlob_philox random = tlob_philox_at(seed, space, block);
        for (int e = 0; e < 4; e++) {
            if (4 * block + e < count)
                w[4 * block + e] = tlob_philox_uniform(random.word[e], bound);
        }
    }
}

extern "C" int tlob_cuda_uniform(struct CUstream_st *stream, int64_t count, float bound, uint64_t seed, uint32_t space,
                                 float *w) {
    return launch(stream, (count + 3) / 4, TLOB_BLOCK, uniform, count, bound, seed, space, w);
}

extern "C" int tlob_cuda_load_uniform(void) {
    return load(uniform);
}
