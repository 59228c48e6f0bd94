// What bounds a work from below on the device at hand: how fast memory is copied, and what a kernel costs in a graph.
#include "cli/bench.h"

#include <stdlib.h>

static tlob_status run_nothing(const void *user, tlob_stream *stream) {
    // The smallest kernel that libtlob has: a product of 1 x 1 x 0 stores a zero.
    float *at = *(float *const *)user;
    const tlob_gemm gemm = tlob_gemm_init(1, 1, 0);
    const tlob_gemm_operands x = {.a = at + 64, .b = at + 128, .d = at};
    return tlob_gemm_run(stream, &gemm, &x);
}

static bool measure(const bench *b, bench_mode mode, const bench_work *work, int calls, double *us) {
    const int repeat = bench_repeat(b);
    double *samples = malloc((size_t)repeat * sizeof *samples);
    bool good = samples != NULL;
    if (!good)
        cli_error("out of memory");
    good = good && bench_measure(b, mode, work, 1, calls, samples);
    if (good)
        *us = bench_summarize(samples, repeat).median;
    free(samples);
    return good;
}

bool bench_floors_measure(bench *b) {
    enum { COPIES = 5, KERNELS = 200 };
    const size_t bytes = (size_t)1 << 30;
    tlob_buffer *from = NULL, *to = NULL;
    bool good = !tlob_buffer_create(b->ctx, bytes, &from) && !tlob_buffer_create(b->ctx, bytes, &to) &&
                !tlob_fill(b->stream, tlob_buffer_data(from), 1, bytes);
    if (!good)
        cli_tlob_error("measuring the floors, which takes 2 GiB");
    if (good) {
        float *at = tlob_buffer_data(to);
        const bench_copy copy = {at, tlob_buffer_data(from), bytes};
        double copy_us;
        good = measure(b, BENCH_STREAM, &(bench_work){bench_cuda_copy, &copy}, COPIES, &copy_us) &&
               measure(b, BENCH_GRAPH, &(bench_work){run_nothing, &at}, KERNELS, &b->floors.kernel_us);
        if (good)
            b->floors.bytes_us = 2 * (double)bytes / copy_us;
    }
    tlob_buffer_destroy(&to);
    tlob_buffer_destroy(&from);
    return good;
}
