/* Host memory: everything happens at once on the calling thread, and streams and events are nothing. */
#include <dlfcn.h>
#include <link.h>
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

static tlob_status host_settle(int device, tlob_home *home) {
    (void)device;
    home->device = -1;
    return TLOB_OK;
}

static void host_abandon(tlob_home *home) {
    (void)home;
}

static int host_enter(const tlob_home *home, void **previous) {
    (void)home;
    *previous = NULL;
    return 0;
}

static void host_leave(const tlob_home *home, void *previous) {
    (void)home;
    (void)previous;
}

static int host_exchange_capture_mode(int mode) {
    return mode;
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

typedef int (*pointer_query)(void *value, int attribute, unsigned long long ptr); /* cuPointerGetAttribute */

static int first_object(struct dl_phdr_info *info, size_t size, void *loads) {
    (void)size;
    *(unsigned long long *)loads = info->dlpi_adds;
    return 1;
}

/*
 * The driver's own answer about pointers, or NULL where the driver is not loaded: it is never loaded or started for the
 * question. Searched for again only after the process has loaded another library.
 */
static pointer_query find_query(void) {
    static _Thread_local unsigned long long searched_at;
    static _Thread_local pointer_query query;
    unsigned long long loads = 0;
    dl_iterate_phdr(first_object, &loads);
    if (loads == searched_at)
        return query;
    searched_at = loads;
    query = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver) {
        *(void **)&query = dlsym(driver, "cuPointerGetAttribute");
        dlclose(driver); /* gives back the reference just taken; the driver never unloads itself */
    }
    return query;
}

/* A device pointer would crash the oracle. There can be one only if this process has loaded the driver. */
static const char *host_misplaced(const void *ptr, int device) {
    (void)device;
    enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 }; /* CUpointer_attribute, CUmemorytype */
    pointer_query query = find_query();
    unsigned type = 0, managed = 0;
    if (!query || query(&type, MEMORY_TYPE, (uintptr_t)ptr) != 0 || type != TYPE_DEVICE)
        return NULL;
    return query(&managed, IS_MANAGED, (uintptr_t)ptr) == 0 && managed ? NULL : "is memory of a CUDA device";
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
    .settle = host_settle,
    .abandon = host_abandon,
    .enter = host_enter,
    .leave = host_leave,
    .exchange_capture_mode = host_exchange_capture_mode,
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
