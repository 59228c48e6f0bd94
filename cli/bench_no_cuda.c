// `tlob bench` in a build without CUDA: there is nothing to time on a GPU.
#include "cli/bench_cuda.h"

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

bool bench_cuda_spin(bench_cuda *cuda) {
    (void)cuda;
    return false;
}

bool bench_cuda_mapped(size_t bytes, void **host) {
    (void)bytes;
    *host = NULL;
    return false;
}

void bench_cuda_unmap(void *host) {
    (void)host;
}

bool bench_cuda_count(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int *kernels) {
    (void)cuda, (void)stream, (void)work, (void)kernels;
    return false;
}

bool bench_graph_open(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls, bench_graph **graph) {
    (void)cuda, (void)stream, (void)work, (void)calls;
    *graph = NULL;
    return false;
}

void bench_graph_close(bench_graph **graph) {
    (void)graph;
}

bool bench_graph_time(bench_cuda *cuda, bench_graph *const *graphs, int count, bool cold, double *us) {
    (void)cuda, (void)graphs, (void)count, (void)cold, (void)us;
    return false;
}

bool bench_cuda_time_call(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, tlob_status *status,
                          double *us) {
    (void)cuda, (void)stream, (void)work, (void)us;
    *status = TLOB_ERR_NOT_BUILT;
    return false;
}

bool bench_cuda_copy_speed(bench_cuda *cuda, double *bytes_per_us) {
    (void)cuda, (void)bytes_per_us;
    return false;
}

bool bench_bare_open(bench_cuda *cuda, const tlob_gemm *gemm, const float *a, const float *b, float *d,
                     bench_bare **bare) {
    (void)cuda, (void)gemm, (void)a, (void)b, (void)d;
    *bare = NULL;
    return false;
}

void bench_bare_close(bench_bare **bare) {
    (void)bare;
}

tlob_status bench_bare_classic(const void *bare, tlob_stream *stream) {
    (void)bare, (void)stream;
    return TLOB_ERR_NOT_BUILT;
}

tlob_status bench_bare_lt(const void *bare, tlob_stream *stream) {
    (void)bare, (void)stream;
    return TLOB_ERR_NOT_BUILT;
}
