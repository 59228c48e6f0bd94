// `tlob bench` in a build without CUDA: there is nothing to time on a GPU.
#include "cli/bench.h"

bool bench_cuda_open(int device, bench_cuda **cuda) {
    *cuda = NULL;
    cli_error("--device cuda:%d: tlob was built without CUDA (to time the CPU, use --device host)", device);
    return false;
}

void bench_cuda_close(bench_cuda **cuda) {
    (void)cuda;
}

struct CUstream_st *bench_cuda_stream(const bench_cuda *cuda) {
    (void)cuda;
    return NULL;
}

bool bench_cuda_measure(bench_cuda *cuda, tlob_stream *stream, bench_mode mode, const bench_plan *plan,
                        double *samples) {
    (void)cuda, (void)stream, (void)mode, (void)plan, (void)samples;
    return false;
}
