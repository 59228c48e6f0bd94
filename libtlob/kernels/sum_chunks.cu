#include "libtlob/kernels/chunks.cuh"
#include "libtlob/kernels/table.h"

static __global__ void __launch_bounds__(TLOB_SUM_BLOCK) sum_chunks(tlob_sum_args x) {
    let_next_start();
    wait_for_kernel_before();
    const int64_t i = sum_of_thread();
    const float sum = sum_over_chunks(x.of, i);
    if (lane_of_sum() == 0 && i < x.of.count)
        *(i < x.split ? &x.out[i] : &x.rest[i - x.split]) = sum;
}

extern "C" int tlob_cuda_sum_chunks(struct CUstream_st *stream, const tlob_sum_args *args) {
    return launch_sums(stream, args->overlaps, args->of.count, sum_chunks, *args);
}

extern "C" int tlob_cuda_load_sum_chunks(void) {
    return load(sum_chunks);
}
