// Timing on a GPU: events around calls that are issued from the host or replayed from a graph.
#include "cli/bench.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

struct bench_cuda {
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static bool check(cudaError_t code, const char *call) {
    if (code)
        cli_error("%s: %s", call, cudaGetErrorString(code));
    return !code;
}

bool bench_cuda_open(int device, bench_cuda **cuda) {
    *cuda = calloc(1, sizeof **cuda);
    if (!*cuda) {
        cli_error("out of memory");
        return false;
    }
    return check(cudaSetDevice(device), "cudaSetDevice") &&
           check(cudaStreamCreateWithFlags(&(*cuda)->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") &&
           check(cudaEventCreate(&(*cuda)->begin), "cudaEventCreate") &&
           check(cudaEventCreate(&(*cuda)->end), "cudaEventCreate");
}

void bench_cuda_close(bench_cuda **cuda) {
    if (!*cuda)
        return;
    if ((*cuda)->begin)
        cudaEventDestroy((*cuda)->begin);
    if ((*cuda)->end)
        cudaEventDestroy((*cuda)->end);
    if ((*cuda)->stream)
        cudaStreamDestroy((*cuda)->stream);
    free(*cuda);
    *cuda = NULL;
}

struct CUstream_st *bench_cuda_stream(const bench_cuda *cuda) {
    return cuda->stream;
}

static bool issue(const bench_work *work, tlob_stream *stream, int calls) {
    for (int i = 0; i < calls; i++)
        if (work->enqueue(work->user, stream)) {
            cli_tlob_error("bench");
            return false;
        }
    return true;
}

// `calls` calls of a work as one graph; NULL after printing why. A capture that failed half-way is ended all the same.
static cudaGraphExec_t capture(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!check(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"))
        return NULL;
    bool issued = issue(work, stream, calls);
    cudaError_t ended = cudaStreamEndCapture(cuda->stream, &graph);
    if (issued && check(ended, "cudaStreamEndCapture") &&
        !check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate"))
        exec = NULL;
    if (graph)
        cudaGraphDestroy(graph);
    return exec;
}

// Microseconds a call of one sample.
static bool measure_once(bench_cuda *cuda, tlob_stream *stream, cudaGraphExec_t graph, const bench_work *work,
                         int calls, double *us) {
    float ms = 0;
    if (!check(cudaEventRecord(cuda->begin, cuda->stream), "cudaEventRecord") ||
        !(graph ? check(cudaGraphLaunch(graph, cuda->stream), "cudaGraphLaunch") : issue(work, stream, calls)) ||
        !check(cudaEventRecord(cuda->end, cuda->stream), "cudaEventRecord") ||
        !check(cudaEventSynchronize(cuda->end), "cudaEventSynchronize") ||
        !check(cudaEventElapsedTime(&ms, cuda->begin, cuda->end), "cudaEventElapsedTime"))
        return false;
    *us = 1e3 * (double)ms / calls;
    return true;
}

static bool measure_all(bench_cuda *cuda, tlob_stream *stream, cudaGraphExec_t *graphs, const bench_plan *plan,
                        double *samples) {
    for (int r = -plan->warm_up; r < plan->repeat; r++)
        for (int i = 0; i < plan->n_works; i++) {
            int work = r % 2 ? plan->n_works - 1 - i : i;
            double us;
            if (!measure_once(cuda, stream, graphs[work], &plan->works[work], plan->calls, &us))
                return false;
            if (r >= 0)
                samples[work * plan->repeat + r] = us;
        }
    return true;
}

bool bench_cuda_measure(bench_cuda *cuda, tlob_stream *stream, bench_mode mode, const bench_plan *plan,
                        double *samples) {
    cudaGraphExec_t *graphs = calloc((size_t)plan->n_works, sizeof(*graphs));
    bool good = graphs != NULL;
    for (int i = 0; good && i < plan->n_works; i++) {
        good = issue(&plan->works[i], stream, 1); // makes the calls warm, as a capture needs them
        if (good && mode == BENCH_GRAPH)
            good = (graphs[i] = capture(cuda, stream, &plan->works[i], plan->calls)) != NULL;
    }
    good = good && measure_all(cuda, stream, graphs, plan, samples);
    for (int i = 0; graphs && i < plan->n_works; i++)
        if (graphs[i])
            cudaGraphExecDestroy(graphs[i]);
    free(graphs);
    return good;
}
