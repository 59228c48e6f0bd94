#include "backends/handles.h"

#include <stddef.h>

tlob_handle *tlob_handle_take(tlob_handle_pool *pool, unsigned long long device_context) {
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

void tlob_handle_keep(tlob_handle_pool *pool, tlob_handle *handle) {
    pthread_mutex_lock(&pool->lock);
    handle->next = pool->idle;
    pool->idle = handle;
    pthread_mutex_unlock(&pool->lock);
}
