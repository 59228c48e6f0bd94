#include <string.h>

#include "libtlob/internal.h"

const char *tlob_version(void) {
    return TLOB_VERSION;
}

int tlob_backend_count(void) {
    int count = 0;
    while (tlob_backend_table[count])
        count++;
    return count;
}

tlob_status tlob_backend_get_info(int index, tlob_backend_info *info) {
    const char *where = "tlob_backend_get_info";
    if (!info)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "info is NULL");
    if (index < 0 || index >= tlob_backend_count())
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "index is %d, must be from 0 to %d", index,
                         tlob_backend_count() - 1);
    const tlob_backend_ops *ops = tlob_backend_table[index];
    memset(info, 0, sizeof(*info));
    info->name = ops->name;
    info->built = !ops->missing;
    info->missing = ops->missing;
    info->memory = ops->caps.memory;
    info->max_batch = ops->caps.max_batch;
    if (ops->version)
        ops->version(info->version, sizeof(info->version));
    return TLOB_OK;
}

static tlob_status need_cuda(const tlob_space **space, const char *where) {
    *space = tlob_space_of(TLOB_MEMORY_CUDA);
    if (*space)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_NOT_BUILT, where, "this build of libtlob has no CUDA: build it with a CUDA toolkit");
}

tlob_status tlob_device_count(int *count) {
    if (!count)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_device_count", "count is NULL");
    *count = 0;
    const tlob_space *space;
    tlob_status status = need_cuda(&space, "tlob_device_count");
    return status == TLOB_OK ? space->count(count) : status;
}

tlob_status tlob_device_get_info(int device, tlob_device_info *info) {
    const char *where = "tlob_device_get_info";
    if (!info)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "info is NULL");
    const tlob_space *space;
    tlob_status status = need_cuda(&space, where);
    if (status == TLOB_OK)
        status = space->probe(device);
    if (status != TLOB_OK)
        return status;
    memset(info, 0, sizeof(*info));
    return tlob_fail_cuda(space, space->describe(device, info), "cudaGetDeviceProperties");
}

void tlob_cuda_versions(int *driver, int *runtime) {
    if (driver)
        *driver = 0;
    if (runtime)
        *runtime = 0;
    const tlob_space *space = tlob_space_of(TLOB_MEMORY_CUDA);
    if (space && driver && runtime)
        space->versions(driver, runtime);
}
