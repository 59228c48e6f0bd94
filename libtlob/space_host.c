/* Host memory: everything happens at once on the calling thread, and streams and events are nothing. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

#define ALIGNMENT 256

static tlob_status host_probe(int device) {
    (void)device; /* the context has checked it */
    return TLOB_OK;
}

static tlob_status host_count(int *count) {
    *count = 1;
    return TLOB_OK;
}

static int host_describe(int device, tlob_device_info *info) {
    (void)device;
    memset(info, 0, sizeof(*info));
    return 0;
}

static void host_versions(int *driver, int *runtime) {
    *driver = *runtime = 0;
}

static int host_enter(int device, int *previous) {
    *previous = device;
    return 0;
}

static void host_leave(int device, int previous) {
    (void)device;
    (void)previous;
}

static int host_alloc(void **ptr, size_t bytes) {
    return posix_memalign(ptr, ALIGNMENT, bytes) ? TLOB_CUDA_OUT_OF_MEMORY : 0;
}

static int host_alloc_mapped(void **host, void **device, size_t bytes) {
    int code = host_alloc(host, bytes);
    *device = *host;
    return code;
}

static int host_stream_create(struct CUstream_st **stream) {
    *stream = NULL;
    return 0;
}

static void host_stream_destroy(struct CUstream_st *stream) {
    (void)stream;
}

static int host_stream_sync(struct CUstream_st *stream) {
    (void)stream;
    return 0;
}

static bool host_capturing(struct CUstream_st *stream) {
    (void)stream;
    return false;
}

static int host_event_create(void **event) {
    *event = NULL;
    return 0;
}

static void host_event_destroy(void *event) {
    (void)event;
}

static int host_event_record(void *event, struct CUstream_st *stream) {
    (void)event;
    (void)stream;
    return 0;
}

static int host_event_wait(void *event) {
    (void)event;
    return 0;
}

static int host_copy(void *dst, const void *src, size_t bytes, struct CUstream_st *stream) {
    (void)stream;
    memcpy(dst, src, bytes);
    return 0;
}

static int host_fill(void *dst, int value, size_t bytes, struct CUstream_st *stream) {
    (void)stream;
    memset(dst, value, bytes);
    return 0;
}

/*
 * A device pointer would crash the oracle. There can be one only if this process has loaded the driver, so ask the driver
 * if it is there already, and never load or start it for the question.
 */
static const char *host_misplaced(const void *ptr, int device) {
    (void)device;
    enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 }; /* CUpointer_attribute, CUmemorytype */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver)
        return NULL;
    int (*get)(void *, int, unsigned long long) = NULL;
    *(void **)&get = dlsym(driver, "cuPointerGetAttribute");
    unsigned type = 0, managed = 0;
    bool wrong = get && get(&type, MEMORY_TYPE, (uintptr_t)ptr) == 0 && type == TYPE_DEVICE &&
                 !(get(&managed, IS_MANAGED, (uintptr_t)ptr) == 0 && managed);
    dlclose(driver);
    return wrong ? "is memory of a CUDA device" : NULL;
}

static const char *host_error_name(int code) {
    return code == TLOB_CUDA_OUT_OF_MEMORY ? "out of memory" : "failure";
}

static const char *host_advice(int code) {
    (void)code;
    return NULL;
}

const tlob_space tlob_space_host = {
    .memory = TLOB_MEMORY_HOST,
    .kernels = &tlob_kernels_host,
    .probe = host_probe,
    .count = host_count,
    .describe = host_describe,
    .versions = host_versions,
    .enter = host_enter,
    .leave = host_leave,
    .alloc = host_alloc,
    .free = free,
    .alloc_mapped = host_alloc_mapped,
    .free_mapped = free,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_sync = host_stream_sync,
    .capturing = host_capturing,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .copy = host_copy,
    .fill = host_fill,
    .misplaced = host_misplaced,
    .error_name = host_error_name,
    .advice = host_advice,
};
