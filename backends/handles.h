/** Vendor handles that are idle: a stream that is closed leaves its handle to the next one. */
#ifndef TLOB_BACKENDS_HANDLES_H
#define TLOB_BACKENDS_HANDLES_H

#include <pthread.h>

#include "backends/backend.h"

/**
 * A handle. It is made with the vendor's and lives as long as the process: cublasDestroy and cublasLtDestroy wait for
 * the device (measured with 13.1), which spoils every capture that is under way in the process, in whatever mode and on
 * whichever thread. To take one from the pool is faster than to make one, too.
 */
typedef struct tlob_handle {
    struct tlob_handle *next;
    unsigned long long device_context; /**< what it is for: see tlob_lane_params */
    void *vendor;
} tlob_handle;

/** The idle handles of one backend. Thread-safe. */
typedef struct tlob_handle_pool {
    pthread_mutex_t lock;
    tlob_handle *idle;
} tlob_handle_pool;

#define TLOB_HANDLE_POOL_INIT {PTHREAD_MUTEX_INITIALIZER, NULL}

/**
 * A handle for `device_context`: an idle one, bound to whatever stream and workspace it was last used with, or a new
 * one, which `create` makes. Errors: those of `create`; OUT_OF_MEMORY, in the name of `backend`.
 */
tlob_status tlob_handle_take(tlob_handle_pool *pool, unsigned long long device_context, const char *backend,
                             tlob_status (*create)(void **vendor), tlob_handle **handle);

/** Gives it back. One for a device that has been reset is never taken again. */
void tlob_handle_keep(tlob_handle_pool *pool, tlob_handle *handle);

#endif
