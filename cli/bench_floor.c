// What bounds a work from below on the device at hand: how fast memory is copied, and what a kernel costs in a graph.
#include "cli/bench.h"

#include <stdlib.h>

// The smallest kernel that libtlob has: a product of 1 x 1 x 0 stores a zero.
static tlob_status run_nothing(const void *user, tlob_stream *stream) {
    float *const *at = user;
    const tlob_gemm gemm = tlob_gemm_init(1, 1, 0);
    const tlob_gemm_operands x = {.a = *at + 64, .b = *at + 128, .d = *at};
    return tlob_gemm_run(stream, &gemm, &x);
}

static bool measure_kernel(bench *b) {
    enum { KERNELS = 200 };
    const int repeat = bench_repeat(b);
    double *samples = malloc((size_t)repeat * sizeof *samples);
    tlob_buffer *buffer = samples ? bench_data(b, 192, 0) : NULL;
    float *at = tlob_buffer_data(buffer);
    if (!samples)
        cli_error("out of memory");
    bool good = buffer && bench_measure(b, BENCH_GRAPH, &(bench_work){run_nothing, &at}, 1, KERNELS, samples);
    if (good)
        b->floors.kernel_us = bench_summarize(samples, repeat).median;
    tlob_buffer_destroy(&buffer);
    free(samples);
    return good;
}

bool bench_floors_measure(bench *b) {
    return bench_cuda_copy_speed(b->cuda, &b->floors.bytes_us) && measure_kernel(b);
}
