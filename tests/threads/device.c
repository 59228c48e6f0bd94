/* A CUDA device that is none: host memory, a current device for each thread, and the fakes of the vendor's calls. */
#include "tests/threads/device.h"

_Thread_local int device_current;
atomic_int device_asked;
atomic_int device_entered;
atomic_int device_searches;
_Thread_local device_graphs device_graph;

int device_stream_number(const struct CUstream_st *stream) {
    return stream ? *(const int *)(const void *)stream : 0;
}

#if TLOB_HAVE_CUDA
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/table.h"
#include "tests/fakes/fake.h"

_Thread_local fake_state fake = {.cublas_version = 130100, .lt_version = 130100, .found = 1, .listed = 3};

cublasStatus_t fake_call(const char *name) {
    if (!strcmp(name, "get_ids"))
        atomic_fetch_add(&device_searches, 1);
    return fake.failing_call && !strcmp(fake.failing_call, name) ? fake.failing_code : CUBLAS_STATUS_SUCCESS;
}

void fake_multiply(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    tlob_cpu_ref_ops.matmul_bias(NULL, gemm, x, NULL, &(void *){NULL});
}

/* --- services of backends --- */

bool tlob_backend_capturing(struct CUstream_st *cuda_stream) {
    return cuda_stream && (cuda_stream == device_graph.capturing || cuda_stream == device_graph.elsewhere);
}

tlob_status tlob_backend_affine_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     float beta, const float *c, const float *bias, float *d) {
    (void)backend;
    const tlob_affine_args args = {.m = gemm->m, .n = gemm->n, .ld = gemm->ldc, .batch = gemm->batch,
                                   .stride = gemm->batch > 1 ? gemm->stride_c : 0,
                                   .stride_bias = gemm->batch > 1 ? gemm->stride_bias : 0,
                                   .beta = beta, .c = c, .bias = bias, .d = d};
    tlob_host_affine(cuda_stream, &args);
    return TLOB_OK;
}

tlob_status tlob_backend_finish_cuda(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm,
                                     const tlob_gemm_operands *x) {
    (void)backend;
    const tlob_finish_args args = {.gemm = *gemm, .x = *x};
    tlob_host_finish(cuda_stream, &args);
    return TLOB_OK;
}

/* --- the memory space: the host's, but for what has to do with devices --- */

static tlob_status fake_probe(int device) {
    return device < 2 ? TLOB_OK : tlob_fail(TLOB_ERR_NO_DEVICE, "device", "there is no CUDA device %d", device);
}

static tlob_status fake_count_devices(int *count) {
    *count = 2;
    return TLOB_OK;
}

static tlob_status fake_settle(int device, tlob_home *home) {
    home->device = device;
    return TLOB_OK;
}

static int fake_enter(const tlob_home *home, void **previous) {
    atomic_fetch_add(&device_entered, 1);
    *previous = (void *)(intptr_t)device_current;
    device_current = home->device;
    return 0;
}

static void fake_leave(const tlob_home *home, void *previous) {
    (void)home;
    device_current = (int)(intptr_t)previous;
}

static int fake_describe(int device, tlob_device_info *info) {
    *info = (tlob_device_info){.name = "fake", .sm = 90, .multiprocessors = 132 + device};
    return 0;
}

static const char *fake_misplaced(const void *ptr, int device) {
    (void)ptr;
    (void)device;
    atomic_fetch_add(&device_asked, 1);
    return NULL;
}

static int fake_alloc(void **ptr, size_t bytes) {
    int code = device_graph.alloc_code ? device_graph.alloc_code : tlob_space_host.alloc(ptr, bytes);
    device_graph.blocks += code == 0;
    return code;
}

static void fake_free(void *ptr) {
    device_graph.blocks -= ptr != NULL;
    tlob_space_host.free(ptr);
}

/* --- streams, captures and graphs --- */

static int fake_stream_create(struct CUstream_st **stream) {
    static atomic_int made;
    int *number = malloc(sizeof(*number));
    *number = atomic_fetch_add(&made, 1) + 1;
    *stream = (struct CUstream_st *)(void *)number;
    device_graph.streams++;
    return 0;
}

static void fake_stream_destroy(struct CUstream_st *stream) {
    device_graph.streams--;
    free(stream);
}

static void note(char what, const struct CUstream_st *stream) {
    size_t used = strlen(device_graph.order);
    snprintf(device_graph.order + used, sizeof(device_graph.order) - used, "%c%d ", what, device_stream_number(stream));
}

static int fake_load(void) {
    device_graph.loads++;
    return device_graph.load_code;
}

static int fake_capture_begin(struct CUstream_st *stream) {
    if (!device_graph.begin_code)
        device_graph.capturing = stream;
    return device_graph.begin_code;
}

static int fake_capture_end(struct CUstream_st *stream, void **exec, const char **call) {
    int code = stream == device_graph.capturing ? device_graph.end_code : 901;
    *call = "end";
    if (stream == device_graph.elsewhere)
        return 908; /* cudaErrorStreamCaptureWrongThread */
    device_graph.capturing = NULL;
    if (code || !exec)
        return code;
    *call = "instantiate";
    if (device_graph.instantiate_code)
        return device_graph.instantiate_code;
    *exec = malloc(1);
    device_graph.alive++;
    return 0;
}

static int fake_graph_launch(void *exec, struct CUstream_st *stream) {
    (void)exec;
    note('l', stream);
    device_graph.launches++;
    return device_graph.launch_code;
}

static void fake_graph_destroy(void *exec) {
    device_graph.alive--;
    free(exec);
}

static int fake_event_create(void **event) {
    if (device_graph.event_code)
        return device_graph.event_code;
    *event = malloc(1);
    device_graph.events++;
    return 0;
}

static void fake_event_destroy(void *event) {
    device_graph.events--;
    free(event);
}

static int fake_event_record(void *event, struct CUstream_st *stream) {
    (void)event;
    note('r', stream);
    return 0;
}

static int fake_stream_wait(struct CUstream_st *stream, void *event) {
    (void)event;
    note('w', stream);
    return 0;
}

/* internal.h says that the space is constant, and from main on it is. */
extern tlob_space device_space __asm__("tlob_space_cuda");
tlob_space device_space;
static tlob_kernels device_kernels;

__attribute__((constructor)) static void make_space(void) {
    device_space = tlob_space_host;
    device_space.memory = TLOB_MEMORY_CUDA;
    device_space.probe = fake_probe;
    device_space.count = fake_count_devices;
    device_space.settle = fake_settle;
    device_space.describe = fake_describe;
    device_space.enter = fake_enter;
    device_space.leave = fake_leave;
    device_space.misplaced = fake_misplaced;
    device_space.alloc = fake_alloc;
    device_space.free = fake_free;
    device_space.stream_create = fake_stream_create;
    device_space.stream_destroy = fake_stream_destroy;
    device_space.capturing = tlob_backend_capturing;
    device_space.capture_begin = fake_capture_begin;
    device_space.capture_end = fake_capture_end;
    device_space.graph_launch = fake_graph_launch;
    device_space.graph_destroy = fake_graph_destroy;
    device_space.event_create = fake_event_create;
    device_space.event_destroy = fake_event_destroy;
    device_space.event_record = fake_event_record;
    device_space.stream_wait = fake_stream_wait;
    device_kernels = tlob_kernels_host;
    device_kernels.load = fake_load;
    device_space.kernels = &device_kernels;
}
#endif
