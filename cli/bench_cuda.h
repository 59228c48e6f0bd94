// How a GPU is timed, and a product on it without libtlob.
#ifndef CLI_BENCH_CUDA_H
#define CLI_BENCH_CUDA_H

#include "cli/common.h"

// Something that enqueues work on a stream, as often as it is called.
typedef struct bench_work {
    tlob_status (*enqueue)(const void *user, tlob_stream *stream);
    const void *user;
} bench_work;

// How calls reach the device.
typedef enum bench_mode {
    BENCH_STREAM, // one after the other from the host, between two events
    BENCH_GRAPH,  // captured once and replayed, between two events
    BENCH_WALL,   // on the host, by the clock
} bench_mode;

// A plan of measurement: `repeat` samples of each of the `n_works` works, each the mean of `calls` calls, after
// `warm_up` samples that do not count. Works take turns within a repetition, in alternating order, so that a drift of
// clocks touches all alike.
typedef struct bench_plan {
    int repeat, calls, warm_up;
    int n_works;
    const bench_work *works;
} bench_plan;

// A CUDA stream to measure on, with its events. bench_cuda.c; in a build without CUDA these fail and say so.
typedef struct bench_cuda bench_cuda;

// False after printing why. bench_cuda_close is due in both cases.
bool bench_cuda_open(int device, bench_cuda **cuda);
void bench_cuda_close(bench_cuda **cuda);

struct CUstream_st *bench_cuda_stream(const bench_cuda *cuda);

// Fills samples[work * plan->repeat + repetition] with microseconds a call. `stream` is the entry of
// bench_cuda_stream. False after printing why.
bool bench_cuda_measure(bench_cuda *cuda, tlob_stream *stream, bench_mode mode, const bench_plan *plan,
                        double *samples);

// Waits, spinning, until all that is enqueued so far has finished. False after printing why.
bool bench_cuda_spin(bench_cuda *cuda);

// Page-locked host memory that the device sees at the same address; bench_cuda_unmap frees it (NULL is allowed). False
// after printing why.
bool bench_cuda_mapped(size_t bytes, void **host);
void bench_cuda_unmap(void *host);

// The kernels, copies and fills of a call that is warm, as a graph of it has them. False after printing why.
bool bench_cuda_count(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int *kernels);

// Calls of one work, captured once, to be timed as often as is wanted.
typedef struct bench_graph bench_graph;

// The work must be warm. False after printing why; bench_graph_close is due in both cases.
bool bench_graph_open(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls, bench_graph **graph);
void bench_graph_close(bench_graph **graph);

// One sample of each graph in us[], in microseconds a call, one right after the other, so that the device never waits
// for the host. Cold: each after twice the L2 cache's size was written elsewhere. False after printing why.
bool bench_graph_time(bench_cuda *cuda, bench_graph *const *graphs, int count, bool cold, double *us);

// Microseconds between the events around one call from the host; what the work returned. False after printing why the
// device did not answer.
bool bench_cuda_time_call(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, tlob_status *status,
                          double *us);

// Bytes a microsecond that a copy on the device reads and writes, together: the best of some. False after printing why.
bool bench_cuda_copy_speed(bench_cuda *cuda, double *bytes_per_us);

// A product m x n x k, packed, D = A B, as `tlob bench call` runs it without libtlob: on a vendor's handle of its own,
// in the compute mode of `gemm`, with everything that can be prepared prepared. bench_bare_close is due in both cases.
typedef struct bench_bare bench_bare;
bool bench_bare_open(bench_cuda *cuda, const tlob_gemm *gemm, const float *a, const float *b, float *d,
                     bench_bare **bare);
void bench_bare_close(bench_bare **bare);

// `enqueue` of a bench_work whose `user` is a bench_bare: one cublasGemmEx, one cublasLtMatmul. TLOB_ERR_BACKEND if it
// fails.
tlob_status bench_bare_classic(const void *bare, tlob_stream *stream);
tlob_status bench_bare_lt(const void *bare, tlob_stream *stream);

#endif
