/* A CUDA device that is none: host memory, a current device for each thread, and the fakes of the vendor's calls. */
#include "tests/threads/device.h"

_Thread_local int device_current;
atomic_int device_asked;
atomic_int device_entered;
atomic_int device_searches;

#if TLOB_HAVE_CUDA
#include <string.h>

#include "libtlob/kernels/table.h"
#include "tests/fakes/fake.h"

_Thread_local fake_state fake = {.cublas_version = 130100, .lt_version = 130100, .found = 1};

cublasStatus_t fake_call(const char *name) {
    if (!strcmp(name, "get_ids"))
        atomic_fetch_add(&device_searches, 1);
    return fake.failing_call && !strcmp(fake.failing_call, name) ? fake.failing_code : CUBLAS_STATUS_SUCCESS;
}

void fake_multiply(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    tlob_cpu_ref_ops.matmul_bias(NULL, gemm, x, &(void *){NULL});
}

/* --- services of backends --- */

bool tlob_backend_capturing(struct CUstream_st *cuda_stream) {
    (void)cuda_stream;
    return false;
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

/* internal.h says that the space is constant, and from main on it is. */
extern tlob_space device_space __asm__("tlob_space_cuda");
tlob_space device_space;

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
}
#endif
