/* The memory of one CUDA device. Also the services that GPU backends get from the core. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "libtlob/internal.h"

/* A failure on its way to a tlob_status: the program's own next cudaGetLastError must not meet it again. */
static int reported(cudaError_t code) {
    if (code != cudaSuccess)
        cudaGetLastError();
    return code;
}

static void cuda_versions(int *driver, int *runtime) {
    if (cudaDriverGetVersion(driver) != cudaSuccess)
        *driver = 0;
    if (cudaRuntimeGetVersion(runtime) != cudaSuccess)
        *runtime = 0;
}

/* What to do about the failures that users meet first. */
static const char *cuda_advice(int code) {
    switch (code) {
    case cudaErrorNoDevice:
        return "this machine has no CUDA device, or CUDA_VISIBLE_DEVICES hides it";
    case cudaErrorInsufficientDriver:
        return "there is no NVIDIA driver, or it is older than the CUDA runtime";
    case cudaErrorContextIsDestroyed:
        return "the device was reset after this context was made: destroy the context and make another";
    case cudaErrorInitializationError:
        return "CUDA was in use before this process was forked; create contexts after the fork";
    case cudaErrorStreamCaptureWrongThread:
        return "the capture goes on: end it on the thread that began it";
    case cudaErrorNoKernelImageForDevice:
        return "this build has no code for this device: configure with -Dgpu_arch=all, or with the device's sm_NN";
    default:
        return NULL;
    }
}

static tlob_status cuda_count(int *count) {
    *count = 0;
    int code = reported(cudaGetDeviceCount(count));
    if (code == cudaSuccess)
        return TLOB_OK;
    int driver, runtime;
    cuda_versions(&driver, &runtime);
    const char *advice = cuda_advice(code);
    return tlob_fail(TLOB_ERR_NO_DEVICE, "cudaGetDeviceCount",
                     "%s (%d): %s (driver supports CUDA %d.%d, runtime is %d.%d)", cudaGetErrorName(code), code,
                     advice ? advice : "the driver does not work", driver / 1000, driver % 1000 / 10, runtime / 1000,
                     runtime % 1000 / 10);
}

static tlob_status cuda_probe(int device) {
    int count;
    tlob_status status = cuda_count(&count);
    if (status != TLOB_OK)
        return status;
    if (device >= 0 && device < count)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_NO_DEVICE, "device", "there is no CUDA device %d; this machine has %d, numbered from 0",
                     device, count);
}

static int cuda_describe(int device, tlob_device_info *info) {
    struct cudaDeviceProp prop;
    int code = reported(cudaGetDeviceProperties(&prop, device));
    if (code != cudaSuccess)
        return code;
    snprintf(info->name, sizeof(info->name), "%.127s", prop.name);
    info->sm = prop.major * 10 + prop.minor;
    info->multiprocessors = prop.multiProcessorCount;
    info->memory_bytes = prop.totalGlobalMem;
    return cudaSuccess;
}

/* A driver call by name. The driver is there, for the devices have been counted. */
static void *driver_call(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *call = driver ? dlsym(driver, name) : NULL;
    if (driver)
        dlclose(driver); /* the reference just taken; the driver stays */
    return call;
}

/*
 * The primary context itself, and not cudaSetDevice: that would start the device which a thread is taken back to, although
 * nobody asked for it, and would not notice that the device was reset meanwhile.
 */
static tlob_status cuda_settle(int device, tlob_home *home) {
    int (*retain)(void **, int) = NULL;
    *(void **)&retain = driver_call("cuDevicePrimaryCtxRetain");
    *(void **)&home->release = driver_call("cuDevicePrimaryCtxRelease_v2");
    *(void **)&home->get_current = driver_call("cuCtxGetCurrent");
    *(void **)&home->set_current = driver_call("cuCtxSetCurrent");
    *(void **)&home->get_id = driver_call("cuCtxGetId");
    if (!retain || !home->release || !home->get_current || !home->set_current || !home->get_id)
        return tlob_fail(TLOB_ERR_NO_DEVICE, "libcuda.so.1", "the driver is older than CUDA 12; update it");
    tlob_status status =
        tlob_fail_cuda(&tlob_space_cuda, retain(&home->context, device), "cuDevicePrimaryCtxRetain");
    if (status != TLOB_OK)
        return status;
    home->device = device;
    return tlob_fail_cuda(&tlob_space_cuda, home->get_id(home->context, &home->id), "cuCtxGetId");
}

/* A reset takes every reference back: whoever holds the device since then has a reference that is not ours to give. */
static void cuda_abandon(tlob_home *home) {
    unsigned long long id = 0;
    if (home->context && home->get_id(home->context, &id) == 0 && id == home->id)
        home->release(home->device);
}

static int cuda_enter(const tlob_home *home, void **previous) {
    unsigned long long id = 0;
    int code = home->get_current(previous);
    if (code == 0 && (home->get_id(home->context, &id) != 0 || id != home->id))
        return cudaErrorContextIsDestroyed;
    if (code == 0 && *previous != home->context)
        code = home->set_current(home->context);
    return code;
}

static void cuda_leave(const tlob_home *home, void *previous) {
    if (previous != home->context)
        home->set_current(previous);
}

static int cuda_exchange_capture_mode(int mode) {
    enum cudaStreamCaptureMode exchanged = (enum cudaStreamCaptureMode)mode;
    reported(cudaThreadExchangeStreamCaptureMode(&exchanged));
    return exchanged;
}

static int cuda_alloc(void **ptr, size_t bytes) {
    return reported(cudaMalloc(ptr, bytes));
}

static void cuda_free(void *ptr) {
    cudaFree(ptr);
}

static int cuda_alloc_mapped(void **host, void **device, size_t bytes) {
    cudaError_t code = cudaHostAlloc(host, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
    if (code == cudaSuccess)
        code = cudaHostGetDevicePointer(device, *host, 0);
    return reported(code);
}

static void cuda_free_mapped(void *host) {
    if (host)
        cudaFreeHost(host);
}

static int cuda_stream_create(struct CUstream_st **stream) {
    return reported(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

static void cuda_stream_destroy(struct CUstream_st *stream) {
    cudaStreamDestroy(stream);
}

static int cuda_stream_sync(struct CUstream_st *stream) {
    return reported(cudaStreamSynchronize(stream));
}

/* The default stream cannot be captured, and cannot be used either while a stream that it waits for is. Any other
 * failure of the query comes from earlier work, and is reported by the call that the question is asked for. */
static bool cuda_capturing(struct CUstream_st *stream) {
    enum cudaStreamCaptureStatus status;
    int code = reported(cudaStreamIsCapturing(stream, &status));
    return code == cudaErrorStreamCaptureImplicit || (code == cudaSuccess && status != cudaStreamCaptureStatusNone);
}

static int cuda_capture_begin(struct CUstream_st *stream) {
    return reported(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static int cuda_capture_end(struct CUstream_st *stream, void **exec, const char **call) {
    cudaGraph_t graph = NULL;
    *call = "cudaStreamEndCapture";
    int code = reported(cudaStreamEndCapture(stream, &graph));
    if (code == cudaSuccess && exec) {
        *call = "cudaGraphInstantiate";
        code = reported(cudaGraphInstantiate((cudaGraphExec_t *)exec, graph, 0));
    }
    if (graph)
        cudaGraphDestroy(graph);
    return code;
}

static int cuda_graph_launch(void *exec, struct CUstream_st *stream) {
    return reported(cudaGraphLaunch(exec, stream));
}

static void cuda_graph_destroy(void *exec) {
    cudaGraphExecDestroy(exec);
}

static int cuda_event_create(void **event) {
    return reported(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

static void cuda_event_destroy(void *event) {
    cudaEventDestroy(event);
}

static int cuda_event_record(void *event, struct CUstream_st *stream) {
    return reported(cudaEventRecord(event, stream));
}

static int cuda_event_wait(void *event) {
    return reported(cudaEventSynchronize(event));
}

static int cuda_stream_wait(struct CUstream_st *stream, void *event) {
    return reported(cudaStreamWaitEvent(stream, event, 0));
}

static int cuda_copy(void *dst, const void *src, size_t bytes, struct CUstream_st *stream) {
    return reported(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

static int cuda_fill(void *dst, int value, size_t bytes, struct CUstream_st *stream) {
    return reported(cudaMemsetAsync(dst, value, bytes, stream));
}

/* A query that fails for another reason, such as a fault of earlier work, says nothing about the pointer: the call that
 * the pointer is for meets the same failure, and reports it. */
static const char *cuda_misplaced(const void *ptr, int device) {
    struct cudaPointerAttributes at;
    int code = reported(cudaPointerGetAttributes(&at, ptr));
    if (code != cudaSuccess && code != cudaErrorInvalidValue)
        return NULL;
    if (code == cudaErrorInvalidValue || at.type == cudaMemoryTypeUnregistered)
        return "is ordinary host memory";
    if (at.type == cudaMemoryTypeHost)
        return at.devicePointer ? NULL : "is pinned host memory that is not mapped into the device";
    if (at.type == cudaMemoryTypeDevice && at.device != device)
        return "is memory of another CUDA device";
    return NULL;
}

static const char *cuda_error_name(int code) {
    return cudaGetErrorName((cudaError_t)code);
}

bool tlob_backend_capturing(struct CUstream_st *cuda_stream) {
    return cuda_capturing(cuda_stream);
}

tlob_status tlob_backend_affine_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     float beta, const float *c, const float *bias, float *d) {
    tlob_affine_args args = {
        .m = gemm->m, .n = gemm->n, .ld = gemm->ldc, .batch = gemm->batch,
        .stride = gemm->stride_c, .stride_bias = gemm->stride_bias, .beta = beta, .c = c, .bias = bias, .d = d,
    };
    int code = tlob_kernels_cuda.affine(cuda_stream, &args);
    if (code == cudaSuccess)
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_CUDA, backend, "affine kernel", code, cuda_error_name(code), gemm,
                             "the kernel that applies beta and bias did not start");
}

tlob_status tlob_backend_finish_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     const tlob_gemm_operands *x) {
    tlob_finish_args args = {.gemm = *gemm, .x = *x};
    int code = tlob_kernels_cuda.finish(cuda_stream, &args);
    if (code == cudaSuccess)
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_CUDA, backend, "finish kernel", code, cuda_error_name(code), gemm,
                             "the kernel of the epilogue did not start");
}

const tlob_space tlob_space_cuda = {
    .memory = TLOB_MEMORY_CUDA,
    .kernels = &tlob_kernels_cuda,
    .probe = cuda_probe,
    .count = cuda_count,
    .describe = cuda_describe,
    .versions = cuda_versions,
    .settle = cuda_settle,
    .abandon = cuda_abandon,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .exchange_capture_mode = cuda_exchange_capture_mode,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_mapped = cuda_alloc_mapped,
    .free_mapped = cuda_free_mapped,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .capturing = cuda_capturing,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .stream_wait = cuda_stream_wait,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .misplaced = cuda_misplaced,
    .error_name = cuda_error_name,
    .advice = cuda_advice,
};
