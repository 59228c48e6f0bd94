#include "backends/handles.h"

#include <stdlib.h>

/** NULL where none is idle. */
static tlob_handle *take_idle(tlob_handle_pool *pool, unsigned long long device_context) {
    pthread_mutex_lock(&pool->lock);
    tlob_handle **link = &pool->idle;
    while (*link && (*link)->device_context != device_context)
        link = &(*link)->next;
    tlob_handle *taken = *link;
    if (taken)
        *link = taken->next;
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

tlob_status tlob_handle_take(tlob_handle_pool *pool, unsigned long long device_context, const char *backend,
                             tlob_status (*create)(void **vendor), tlob_handle **handle) {
    *handle = take_idle(pool, device_context);
    if (*handle)
        return TLOB_OK;
    tlob_handle *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, backend, "open", 0, NULL, NULL, "no host memory for a handle");
    made->device_context = device_context;
    tlob_status status = create(&made->vendor);
    if (status != TLOB_OK) {
        free(made);
        return status;
    }
    *handle = made;
    return TLOB_OK;
}

void tlob_handle_keep(tlob_handle_pool *pool, tlob_handle *handle) {
    pthread_mutex_lock(&pool->lock);
    handle->next = pool->idle;
    pool->idle = handle;
    pthread_mutex_unlock(&pool->lock);
}
