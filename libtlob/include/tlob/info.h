/** What this build and this machine have: backends, devices, versions. Nothing here creates a CUDA context. */
#ifndef TLOB_INFO_H
#define TLOB_INFO_H

#include <tlob/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the library at run time, such as "0.1.0". Static storage. */
TLOB_API const char *tlob_version(void);

/** A backend, built in or not. */
typedef struct tlob_backend_info {
    const char *name;       /**< as users type it; static storage */
    bool built;             /**< whether this build contains it */
    const char *missing;    /**< why not, or NULL; static storage */
    tlob_backend_caps caps; /**< what it can do, as data; all 0 but the memory space where it is not built */
    char version[64];       /**< of the vendor library at run time, such as "cuBLAS 13.1.0"; empty without one */
} tlob_backend_info;

/** How many backends libtlob has, built in or not. */
TLOB_API int tlob_backend_count(void);

/** Describes backend `index`. Errors: ARGUMENT. Thread-safe. */
TLOB_API tlob_status tlob_backend_get_info(int index, tlob_backend_info *info);

/** How many backends a context can run products on, the embedder's own included; 0 for NULL. Thread-safe. */
TLOB_API int tlob_context_backend_count(const tlob_context *ctx);

/** Describes backend `index` of a context, in the order of its list. Errors: ARGUMENT, CLOSED. Thread-safe. */
TLOB_API tlob_status tlob_context_backend_get_info(const tlob_context *ctx, int index, tlob_backend_info *info);

/**
 * Whether backend `backend` of a context can do `gemm`: TLOB_OK, or UNSUPPORTED with the reason in tlob_last_error(). A
 * pure function of the problem: it asks caps and the backend's supports(), no vendor library and no GPU.
 * Errors: ARGUMENT, CLOSED, UNKNOWN_NAME lists the context's backends. Thread-safe.
 */
TLOB_API tlob_status tlob_context_supports(const tlob_context *ctx, const char *backend, const tlob_gemm *gemm);

/** A CUDA device. */
typedef struct tlob_device_info {
    char name[128];         /**< as the driver gives it, such as "NVIDIA H200" */
    int sm;                 /**< compute capability, major * 10 + minor */
    int multiprocessors;    /**< how many the device has */
    size_t memory_bytes;    /**< of the whole device, in use or not */
} tlob_device_info;

/**
 * How many CUDA devices there are; 0 with TLOB_OK is a working driver without a device.
 * Errors: NOT_BUILT without CUDA; NO_DEVICE with the driver's own words.
 */
TLOB_API tlob_status tlob_device_count(int *count);

/** Describes CUDA device `device`. Errors: ARGUMENT, NOT_BUILT, NO_DEVICE. */
TLOB_API tlob_status tlob_device_get_info(int device, tlob_device_info *info);

/** The CUDA driver's and runtime's versions, such as 13000; 0 where there is none. */
TLOB_API void tlob_cuda_versions(int *driver, int *runtime);

#ifdef __cplusplus
}
#endif
#endif
