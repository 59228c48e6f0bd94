#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtlob/internal.h"

static const char where[] = "tlob_context_create";

tlob_context_params tlob_context_params_default(void) {
    return (tlob_context_params){.memory = TLOB_MEMORY_CUDA};
}

const tlob_space *tlob_space_of(tlob_memory memory) {
    if (memory == TLOB_MEMORY_HOST)
        return &tlob_space_host;
#if TLOB_HAVE_CUDA
    if (memory == TLOB_MEMORY_CUDA)
        return &tlob_space_cuda;
#endif
    return NULL;
}

void tlob_log(const tlob_context *ctx, tlob_log_level level, const char *format, ...) {
    if (!ctx->log || level > ctx->settings.log_level)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

void tlob_context_ref(tlob_context *ctx) {
    atomic_fetch_add(&ctx->refs, 1);
}

void tlob_context_unref(tlob_context *ctx) {
    if (atomic_fetch_sub(&ctx->refs, 1) != 1)
        return;
    tlob_shared_detach(ctx);
    tlob_tuned_close(ctx);
    pthread_mutex_destroy(&ctx->refused_lock);
    pthread_mutex_destroy(&ctx->streams_lock);
    tlob_trace_close(ctx);
    if (!tlob_context_forked(ctx))
        ctx->space->abandon(&ctx->home);
    if (ctx->alive)
        munmap((void *)(uintptr_t)ctx->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(ctx);
}

const tlob_backend_ops *tlob_context_backend(const tlob_context *ctx, const char *name, int *index) {
    for (int i = 0; i < ctx->n_backends; i++) {
        if (strcmp(ctx->backends[i]->name, name))
            continue;
        if (index)
            *index = i;
        return ctx->backends[i];
    }
    return NULL;
}

void tlob_context_backend_names(const tlob_context *ctx, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < ctx->n_backends && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", ctx->backends[i]->name);
}

tlob_status tlob_context_check(const tlob_context *ctx, const char *operation) {
    if (!ctx)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the context is NULL");
    if (atomic_load(&ctx->closed))
        return tlob_fail(TLOB_ERR_CLOSED, operation, "the context of this object has been destroyed");
    if (tlob_context_forked(ctx))
        return tlob_fail(TLOB_ERR_NO_DEVICE, operation,
                         "this process was forked from the one that made the context, and CUDA does not work across a "
                         "fork: create contexts after it");
    return TLOB_OK;
}

enum { CAPTURE_MODE_RELAXED = 2 }; /* cudaStreamCaptureModeRelaxed */

bool tlob_enter_to_free(const tlob_context *ctx, tlob_visit *visit) {
    if (tlob_context_forked(ctx) || ctx->space->enter(&ctx->home, &visit->previous) != 0)
        return false;
    visit->capture_mode = ctx->space->exchange_capture_mode(CAPTURE_MODE_RELAXED);
    return true;
}

tlob_status tlob_enter_cold(const tlob_context *ctx, tlob_visit *visit) {
    tlob_status status = tlob_enter(ctx, &visit->previous);
    if (status == TLOB_OK)
        visit->capture_mode = ctx->space->exchange_capture_mode(CAPTURE_MODE_RELAXED);
    return status;
}

void tlob_leave_cold(const tlob_context *ctx, const tlob_visit *visit) {
    ctx->space->exchange_capture_mode(visit->capture_mode);
    tlob_leave(ctx, visit->previous);
}

tlob_status tlob_enter(const tlob_context *ctx, void **previous) {
    return tlob_fail_cuda(ctx->space, ctx->space->enter(&ctx->home, previous), "cuCtxSetCurrent");
}

void tlob_leave(const tlob_context *ctx, void *previous) {
    ctx->space->leave(&ctx->home, previous);
}

/* Keeps the embedder's rows, and picks from all those that work here. The settings have checked them. */
static void take_backends(tlob_context *ctx, const tlob_context_params *params) {
    for (int i = 0; i < params->n_backends; i++)
        ctx->rows[ctx->n_rows++] = params->backends[i];
    const tlob_backend_ops *ops;
    for (int i = 0; (ops = tlob_row_at(tlob_context_rows(ctx), i)) && ctx->n_backends < TLOB_MAX_BACKENDS; i++)
        if (ops->caps.memory == ctx->space->memory && !ops->missing)
            ctx->backends[ctx->n_backends++] = ops;
}

/* A page that a forked child finds wiped: to ask it costs a load, where getpid costs a system call. */
static tlob_status watch_forks(tlob_context *ctx) {
    if (ctx->space->memory == TLOB_MEMORY_HOST)
        return TLOB_OK;
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "no page to notice forks by");
    if (madvise(page, size, MADV_WIPEONFORK))
        tlob_log(ctx, TLOB_LOG_WARN,
                 "this kernel is older than Linux 4.14: a fork of this process will not be noticed");
    *page = 1;
    ctx->alive = page;
    return TLOB_OK;
}

static void log_settings(const tlob_context *ctx) {
    char policy[64], names[320];
    tlob_policy_print(&ctx->settings.policy, policy, sizeof(policy));
    tlob_context_backend_names(ctx, names, sizeof(names));
    tlob_log(ctx, TLOB_LOG_INFO,
             "%s context%s%d: backends %s; policy %s (%s); compute %s (%s); workspace %zu MiB a stream (%s); "
             "deterministic %s (%s); block plan %s (%s)",
             tlob_memory_name(ctx->space->memory), ctx->home.device < 0 ? " " : " on device ", ctx->home.device, names,
             policy,
             tlob_origin_name(ctx->settings.policy_origin), tlob_compute_name(ctx->settings.compute),
             tlob_origin_name(ctx->settings.compute_origin), ctx->settings.workspace_bytes >> 20,
             tlob_origin_name(ctx->settings.workspace_origin), ctx->settings.deterministic ? "on" : "off",
             tlob_origin_name(ctx->settings.deterministic_origin),
             ctx->settings.block_decide ? "callback" : tlob_block_plan_name(ctx->settings.block_plan),
             tlob_origin_name(ctx->settings.block_plan_origin));
}

static tlob_status check_params(const tlob_context_params *params, const tlob_space **space, tlob_settings *settings) {
    if (!params)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "params is NULL");
    *space = tlob_space_of(params->memory);
    if (params->memory == TLOB_MEMORY_CUDA && !*space)
        return tlob_fail(TLOB_ERR_NOT_BUILT, where,
                         "this build of libtlob has no CUDA: build it with a CUDA toolkit, or use a host context");
    tlob_status status = tlob_settings_resolve(params, settings);
    if (status != TLOB_OK)
        return status;
    if (params->memory == TLOB_MEMORY_HOST && params->device != 0)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "device is %d, must be 0 for a host context", params->device);
    return (*space)->probe(params->device);
}

tlob_status tlob_context_create(tlob_context **out, const tlob_context_params *params) {
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "ctx is NULL");
    *out = NULL;
    const tlob_space *space = NULL;
    tlob_settings settings;
    tlob_status status = check_params(params, &space, &settings);
    if (status != TLOB_OK)
        return status;

    tlob_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a context", sizeof(*ctx));
    atomic_init(&ctx->refs, 1);
    atomic_init(&ctx->closed, false);
    atomic_init(&ctx->trace_failed, false);
    atomic_init(&ctx->kernels_loaded, false);
    pthread_mutex_init(&ctx->streams_lock, NULL);
    pthread_mutex_init(&ctx->refused_lock, NULL);
    ctx->refused_end = &ctx->refused;
    ctx->space = space;
    ctx->settings = settings;
    ctx->log = params->log;
    ctx->log_user = params->log_user;
    ctx->trust_pointers = params->trust_pointers;
    ctx->trace = params->trace;
    ctx->trace_user = params->trace_user;
    take_backends(ctx, params);

    status = tlob_trace_open(ctx);
    if (status == TLOB_OK)
        status = watch_forks(ctx);
    if (status == TLOB_OK)
        status = space->settle(params->device, &ctx->home);
    if (status == TLOB_OK)
        status = tlob_shared_attach(ctx);
    if (status == TLOB_OK)
        status = tlob_tuned_open(ctx);
    if (status == TLOB_OK)
        status = tlob_stream_open(ctx, NULL, &ctx->default_stream);
    if (status != TLOB_OK) {
        tlob_context_unref(ctx);
        return status;
    }
    log_settings(ctx);
    *out = ctx;
    return TLOB_OK;
}

void tlob_context_destroy(tlob_context **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_context *ctx = *ptr;
    *ptr = NULL;
    bool forked = tlob_context_forked(ctx); /* then the lock may be held for ever, by a thread that is not here */
    if (!forked)
        pthread_mutex_lock(&ctx->streams_lock);
    for (tlob_stream *stream = ctx->streams; stream; stream = stream->next)
        tlob_stream_release(stream);
    atomic_store(&ctx->closed, true);
    if (!forked)
        pthread_mutex_unlock(&ctx->streams_lock);
    tlob_stream_close(&ctx->default_stream);
    tlob_context_unref(ctx);
}

tlob_status tlob_context_settings(const tlob_context *ctx, tlob_settings *settings) {
    if (!ctx || !settings)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_context_settings", "%s is NULL", ctx ? "settings" : "ctx");
    *settings = ctx->settings;
    return TLOB_OK;
}

tlob_memory tlob_context_memory(const tlob_context *ctx) {
    return ctx->space->memory;
}

int tlob_context_device(const tlob_context *ctx) {
    return ctx->home.device;
}
