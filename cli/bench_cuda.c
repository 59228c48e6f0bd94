// Timing on a GPU: events around calls that are issued from the host or replayed from a graph.
#include "cli/bench_cuda.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdlib.h>

struct bench_cuda {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cudaEvent_t *events; // of bench_graph_time: begin and end of each graph
    int n_events;
    void *flush; // what is written to make the L2 cache cold
    size_t flush_bytes;
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
    for (int i = 0; i < (*cuda)->n_events; i++)
        cudaEventDestroy((*cuda)->events[i]);
    free((*cuda)->events);
    cudaFree((*cuda)->flush);
    if ((*cuda)->stream)
        cudaStreamDestroy((*cuda)->stream);
    free(*cuda);
    *cuda = NULL;
}

struct CUstream_st *bench_cuda_stream(const bench_cuda *cuda) {
    return cuda->stream;
}

bool bench_cuda_spin(bench_cuda *cuda) {
    if (!check(cudaEventRecord(cuda->end, cuda->stream), "cudaEventRecord"))
        return false;
    cudaError_t code;
    while ((code = cudaEventQuery(cuda->end)) == cudaErrorNotReady)
        ;
    return check(code, "cudaEventQuery");
}

bool bench_cuda_mapped(size_t bytes, void **host) {
    void *device = NULL;
    *host = NULL;
    if (!check(cudaHostAlloc(host, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc"))
        return false;
    bool good = check(cudaHostGetDevicePointer(&device, *host, 0), "cudaHostGetDevicePointer");
    if (good && device != *host)
        good = !cli_error("this device sees mapped memory at another address than the host");
    if (!good) {
        cudaFreeHost(*host);
        *host = NULL;
    }
    return good;
}

void bench_cuda_unmap(void *host) {
    if (host)
        cudaFreeHost(host);
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
static cudaGraph_t capture_graph(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls) {
    cudaGraph_t graph = NULL;
    if (!check(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"))
        return NULL;
    bool issued = issue(work, stream, calls);
    cudaError_t ended = cudaStreamEndCapture(cuda->stream, &graph);
    if (issued && check(ended, "cudaStreamEndCapture"))
        return graph;
    if (graph)
        cudaGraphDestroy(graph);
    return NULL;
}

// The same, to be launched.
static cudaGraphExec_t capture(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls) {
    cudaGraph_t graph = capture_graph(cuda, stream, work, calls);
    cudaGraphExec_t exec = NULL;
    if (graph && !check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate"))
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

// --- floors ---

static bool count_nodes(cudaGraph_t graph, int *kernels) {
    size_t count = 0;
    if (!check(cudaGraphGetNodes(graph, NULL, &count), "cudaGraphGetNodes"))
        return false;
    cudaGraphNode_t *nodes = calloc(count + 1, sizeof *nodes);
    if (!nodes)
        return !cli_error("out of memory");
    bool good = check(cudaGraphGetNodes(graph, nodes, &count), "cudaGraphGetNodes");
    *kernels = 0;
    for (size_t i = 0; good && i < count; i++) {
        enum cudaGraphNodeType type;
        good = check(cudaGraphNodeGetType(nodes[i], &type), "cudaGraphNodeGetType");
        *kernels +=
            type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset || type == cudaGraphNodeTypeMemcpy;
    }
    free(nodes);
    return good;
}

bool bench_cuda_count(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int *kernels) {
    cudaGraph_t graph = capture_graph(cuda, stream, work, 1);
    bool good = graph && count_nodes(graph, kernels);
    if (graph)
        cudaGraphDestroy(graph);
    return good;
}

// --- graphs that are kept ---

struct bench_graph {
    cudaGraphExec_t exec;
    int calls;
};

bool bench_graph_open(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, int calls, bench_graph **graph) {
    *graph = calloc(1, sizeof **graph);
    if (!*graph) {
        cli_error("out of memory");
        return false;
    }
    (*graph)->calls = calls;
    (*graph)->exec = capture(cuda, stream, work, calls);
    return (*graph)->exec != NULL;
}

void bench_graph_close(bench_graph **graph) {
    if (!*graph)
        return;
    if ((*graph)->exec)
        cudaGraphExecDestroy((*graph)->exec);
    free(*graph);
    *graph = NULL;
}

static bool reserve_events(bench_cuda *cuda, int count) {
    if (count <= cuda->n_events)
        return true;
    cudaEvent_t *events = realloc(cuda->events, (size_t)count * sizeof *events);
    if (!events) {
        cli_error("out of memory");
        return false;
    }
    cuda->events = events;
    for (; cuda->n_events < count; cuda->n_events++)
        if (!check(cudaEventCreate(&events[cuda->n_events]), "cudaEventCreate"))
            return false;
    return true;
}

static bool reserve_flush(bench_cuda *cuda) {
    int device, bytes = 0;
    if (cuda->flush)
        return true;
    if (!check(cudaGetDevice(&device), "cudaGetDevice") ||
        !check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute"))
        return false;
    cuda->flush_bytes = bytes > 0 ? 2 * (size_t)bytes : 1;
    return check(cudaMalloc(&cuda->flush, cuda->flush_bytes), "cudaMalloc");
}

// A first graph keeps the device busy while the host enqueues the ones that count; the write does where they are cold.
static bool enqueue_samples(bench_cuda *cuda, bench_graph *const *graphs, int count, bool cold) {
    if (!cold && !check(cudaGraphLaunch(graphs[0]->exec, cuda->stream), "cudaGraphLaunch"))
        return false;
    for (int i = 0; i < count; i++)
        if ((cold && !check(cudaMemsetAsync(cuda->flush, 0, cuda->flush_bytes, cuda->stream), "cudaMemsetAsync")) ||
            !check(cudaEventRecord(cuda->events[2 * i], cuda->stream), "cudaEventRecord") ||
            !check(cudaGraphLaunch(graphs[i]->exec, cuda->stream), "cudaGraphLaunch") ||
            !check(cudaEventRecord(cuda->events[2 * i + 1], cuda->stream), "cudaEventRecord"))
            return false;
    return check(cudaStreamSynchronize(cuda->stream), "cudaStreamSynchronize");
}

bool bench_graph_time(bench_cuda *cuda, bench_graph *const *graphs, int count, bool cold, double *us) {
    if (!count)
        return true;
    if (!reserve_events(cuda, 2 * count) || (cold && !reserve_flush(cuda)) ||
        !enqueue_samples(cuda, graphs, count, cold))
        return false;
    for (int i = 0; i < count; i++) {
        float ms = 0;
        if (!check(cudaEventElapsedTime(&ms, cuda->events[2 * i], cuda->events[2 * i + 1]), "cudaEventElapsedTime"))
            return false;
        us[i] = 1e3 * (double)ms / graphs[i]->calls;
    }
    return true;
}

// --- single calls, and copies ---

bool bench_cuda_time_call(bench_cuda *cuda, tlob_stream *stream, const bench_work *work, tlob_status *status,
                          double *us) {
    float ms = 0;
    *status = TLOB_OK;
    if (!check(cudaEventRecord(cuda->begin, cuda->stream), "cudaEventRecord"))
        return false;
    *status = work->enqueue(work->user, stream);
    if (!check(cudaEventRecord(cuda->end, cuda->stream), "cudaEventRecord") ||
        !check(cudaEventSynchronize(cuda->end), "cudaEventSynchronize") ||
        !check(cudaEventElapsedTime(&ms, cuda->begin, cuda->end), "cudaEventElapsedTime"))
        return false;
    *us = 1e3 * (double)ms;
    return true;
}

static bool time_copy(bench_cuda *cuda, char *from, char *to, size_t bytes, float *ms) {
    return check(cudaEventRecord(cuda->begin, cuda->stream), "cudaEventRecord") &&
           check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream), "cudaMemcpyAsync") &&
           check(cudaEventRecord(cuda->end, cuda->stream), "cudaEventRecord") &&
           check(cudaEventSynchronize(cuda->end), "cudaEventSynchronize") &&
           check(cudaEventElapsedTime(ms, cuda->begin, cuda->end), "cudaEventElapsedTime");
}

bool bench_cuda_copy_speed(bench_cuda *cuda, double *bytes_per_us) {
    const size_t bytes = (size_t)1 << 30; // far more than any cache holds
    char *buffer = NULL;
    float ms = 0, best = 0;
    bool good = check(cudaMalloc((void **)&buffer, 2 * bytes), "cudaMalloc");
    for (int i = 0; i < 6 && good; i++) {
        good = time_copy(cuda, buffer, buffer + bytes, bytes, &ms);
        if (i && (i == 1 || ms < best)) // the first one warms up
            best = ms;
    }
    cudaFree(buffer);
    *bytes_per_us = good ? 2 * (double)bytes / (1e3 * (double)best) : 0;
    return good;
}

// --- without libtlob ---

struct bench_bare {
    cudaStream_t stream;
    tlob_gemm gemm;
    const float *a, *b;
    float *d;
    void *workspace;
    cublasHandle_t classic;
    cublasLtHandle_t lt;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t layout_a, layout_b, layout_d;
    cublasLtMatmulAlgo_t algo;
    size_t algo_workspace;
};

static bool check_vendor(cublasStatus_t code, const char *call) {
    if (code)
        cli_error("%s: %s", call, cublasGetStatusName(code));
    return !code;
}

static cublasComputeType_t compute_type(const tlob_gemm *gemm) {
    return gemm->compute == TLOB_COMPUTE_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static bool open_classic(bench_bare *bare) {
    return check_vendor(cublasCreate(&bare->classic), "cublasCreate") &&
           check_vendor(cublasSetStream(bare->classic, bare->stream), "cublasSetStream") &&
           check_vendor(cublasSetWorkspace(bare->classic, bare->workspace, TLOB_WORKSPACE_BYTES_DEFAULT),
                        "cublasSetWorkspace");
}

static bool init_layout(cublasLtMatrixLayoutOpaque_t *layout, int64_t rows, int64_t cols, int64_t ld) {
    return check_vendor(cublasLtMatrixLayoutInit(layout, CUDA_R_32F, (uint64_t)rows, (uint64_t)cols, ld),
                        "cublasLtMatrixLayoutInit");
}

static bool open_lt(bench_bare *bare) {
    const tlob_gemm *g = &bare->gemm;
    size_t workspace = TLOB_WORKSPACE_BYTES_DEFAULT;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    if (!check_vendor(cublasLtCreate(&bare->lt), "cublasLtCreate") ||
        !check_vendor(cublasLtMatmulDescInit(&bare->desc, compute_type(g), CUDA_R_32F), "cublasLtMatmulDescInit") ||
        !init_layout(&bare->layout_a, g->m, g->k, g->lda) || !init_layout(&bare->layout_b, g->k, g->n, g->ldb) ||
        !init_layout(&bare->layout_d, g->m, g->n, g->ldc) ||
        !check_vendor(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit") ||
        !check_vendor(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                           &workspace, sizeof workspace),
                      "cublasLtMatmulPreferenceSetAttribute") ||
        !check_vendor(cublasLtMatmulAlgoGetHeuristic(bare->lt, &bare->desc, &bare->layout_a, &bare->layout_b,
                                                     &bare->layout_d, &bare->layout_d, &preference, 1, &result, &found),
                      "cublasLtMatmulAlgoGetHeuristic"))
        return false;
    bare->algo = result.algo;
    bare->algo_workspace = result.workspaceSize;
    return true;
}

bool bench_bare_open(bench_cuda *cuda, const tlob_gemm *gemm, const float *a, const float *b, float *d,
                     bench_bare **bare) {
    *bare = calloc(1, sizeof **bare);
    if (!*bare) {
        cli_error("out of memory");
        return false;
    }
    (*bare)->stream = cuda->stream;
    (*bare)->gemm = *gemm;
    (*bare)->a = a;
    (*bare)->b = b;
    (*bare)->d = d;
    return check(cudaMalloc(&(*bare)->workspace, TLOB_WORKSPACE_BYTES_DEFAULT), "cudaMalloc") && open_classic(*bare) &&
           open_lt(*bare);
}

void bench_bare_close(bench_bare **bare) {
    if (!*bare)
        return;
    if ((*bare)->lt)
        cublasLtDestroy((*bare)->lt);
    if ((*bare)->classic)
        cublasDestroy((*bare)->classic);
    cudaFree((*bare)->workspace);
    free(*bare);
    *bare = NULL;
}

tlob_status bench_bare_classic(const void *user, tlob_stream *stream) {
    (void)stream;
    const bench_bare *bare = user;
    const tlob_gemm *g = &bare->gemm;
    cublasStatus_t code =
        cublasGemmEx_64(bare->classic, CUBLAS_OP_N, CUBLAS_OP_N, g->m, g->n, g->k, &g->alpha, bare->a, CUDA_R_32F,
                        g->lda, bare->b, CUDA_R_32F, g->ldb, &g->beta, bare->d, CUDA_R_32F, g->ldc, compute_type(g),
                        CUBLAS_GEMM_DEFAULT);
    return code ? TLOB_ERR_BACKEND : TLOB_OK;
}

tlob_status bench_bare_lt(const void *user, tlob_stream *stream) {
    (void)stream;
    const bench_bare *bare = user;
    // The opaque structures are handles by their address, as the *Init functions document.
    cublasStatus_t code = cublasLtMatmul(
        bare->lt, (cublasLtMatmulDesc_t)(uintptr_t)&bare->desc, &bare->gemm.alpha, bare->a,
        (cublasLtMatrixLayout_t)(uintptr_t)&bare->layout_a, bare->b, (cublasLtMatrixLayout_t)(uintptr_t)&bare->layout_b,
        &bare->gemm.beta, bare->d, (cublasLtMatrixLayout_t)(uintptr_t)&bare->layout_d, bare->d,
        (cublasLtMatrixLayout_t)(uintptr_t)&bare->layout_d, &bare->algo, bare->workspace, bare->algo_workspace,
        bare->stream);
    return code ? TLOB_ERR_BACKEND : TLOB_OK;
}
