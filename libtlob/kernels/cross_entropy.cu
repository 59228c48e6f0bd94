#include "libtlob/kernels/chunks.cuh"
#include "libtlob/kernels/chunks.h"
#include "libtlob/kernels/cross_entropy.cuh"
#include "libtlob/kernels/table.h"

/** One block of threads for each chunk. */
static __global__ void __launch_bounds__(TLOB_XENT_UNIT) cross_entropy(tlob_xent_args x, int64_t chunk) {
    const int64_t first = blockIdx.x * chunk, end = first + chunk < x.samples ? first + chunk : x.samples;
    float sums[5] = {};
    for (int64_t i = first + threadIdx.x; i < end; i += TLOB_XENT_UNIT) {
        const float z[3] = {x.logits[3 * i], x.logits[3 * i + 1], x.logits[3 * i + 2]};
        const xent one(z, x.labels[i], x.samples);
        one.add_to(sums);
        for (int c = 0; x.dlogits && c < 3; c++)
            x.dlogits[3 * i + c] = one.slope[c];
    }
    const float sum = sum_over_block(sums);
    if (threadIdx.x < 5 && gridDim.x > 1)
        x.partial[5 * blockIdx.x + threadIdx.x] = sum;
    else if (threadIdx.x < 5)
        *(threadIdx.x < 3 ? &x.dbias[threadIdx.x] : &x.figures[threadIdx.x - 3]) = sum;
}

extern "C" int tlob_cuda_cross_entropy(struct CUstream_st *stream, const tlob_xent_args *args) {
    const int64_t chunks = tlob_chunk_count(args->samples, TLOB_XENT_UNIT, TLOB_XENT_MOST);
    return launch(stream, chunks * TLOB_XENT_UNIT, TLOB_XENT_UNIT, cross_entropy, *args,
                  tlob_chunk_length(args->samples, TLOB_XENT_UNIT, TLOB_XENT_MOST));
}

extern "C" int tlob_cuda_load_cross_entropy(void) {
    return load(cross_entropy);
}
