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

static void describe(const tlob_backend_ops *ops, tlob_backend_info *info) {
    memset(info, 0, sizeof(*info));
    info->name = ops->name;
    info->built = !ops->missing;
    info->missing = ops->missing;
    info->caps = ops->caps;
    if (ops->version)
        ops->version(info->version, sizeof(info->version));
}

tlob_status tlob_backend_get_info(int index, tlob_backend_info *info) {
    const char *where = "tlob_backend_get_info";
    if (!info)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "info is NULL");
    if (index < 0 || index >= tlob_backend_count())
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "index is %d, must be from 0 to %d", index,
                         tlob_backend_count() - 1);
    describe(tlob_backend_table[index], info);
    return TLOB_OK;
}

int tlob_context_backend_count(const tlob_context *ctx) {
    return ctx ? ctx->n_backends : 0;
}

tlob_status tlob_context_backend_get_info(const tlob_context *ctx, int index, tlob_backend_info *info) {
    const char *where = "tlob_context_backend_get_info";
    tlob_status status = tlob_context_check(ctx, where);
    if (status != TLOB_OK)
        return status;
    if (!info)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "info is NULL");
    if (index < 0 || index >= ctx->n_backends)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "index is %d, must be from 0 to %d", index, ctx->n_backends - 1);
    describe(ctx->backends[index], info);
    return TLOB_OK;
}

tlob_status tlob_context_supports(const tlob_context *ctx, const char *backend, const tlob_gemm *gemm) {
    const char *where = "tlob_context_supports";
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK && !backend)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "backend is NULL");
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status != TLOB_OK)
        return status;
    tlob_gemm g = *gemm;
    if (g.compute == TLOB_COMPUTE_DEFAULT)
        g.compute = ctx->settings.compute;
    tlob_method method;
    const tlob_table_entry *entry;
    int index = tlob_choose(ctx, backend, &g, true, &method, &entry, NULL, 0, &status);
    if (index < 0)
        return status;
    const char *why = tlob_unsupported(ctx->backends[index], ctx->settings.deterministic, &g, NULL);
    return why ? tlob_backend_fail(TLOB_ERR_UNSUPPORTED, backend, where, 0, NULL, &g, "%s", why) : TLOB_OK;
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
