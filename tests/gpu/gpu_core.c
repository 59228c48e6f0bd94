/* The core on a CUDA device: contexts, the stream registry, memory, and what goes wrong with them. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtlob/internal.h"
#include "tests/gpu/gpu.h"

static tlob_context *cuda_context(void) {
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    OK(tlob_context_create(&ctx, &params));
    return ctx;
}

static tlob_context *host_context(void) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    tlob_context *ctx;
    OK(tlob_context_create(&ctx, &params));
    return ctx;
}

static void sleep_50_ms(void *unused) {
    (void)unused;
    usleep(50000);
}

Test(gpu_core, the_device_is_described) {
    NEED_GPU();
    tlob_device_info info;
    OK(tlob_device_get_info(0, &info));
    cr_assert(info.name[0] && info.sm >= 75 && info.multiprocessors > 0 && info.memory_bytes > (size_t)1 << 30);
    int driver, runtime;
    tlob_cuda_versions(&driver, &runtime);
    cr_assert(driver >= runtime && runtime >= 12000, "driver %d, runtime %d", driver, runtime);
}

Test(gpu_core, a_device_that_is_not_there) {
    NEED_GPU();
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    params.device = 99;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_NO_DEVICE);
    cr_assert_null(ctx);
    cr_assert(strstr(tlob_last_error()->message, "99"), "%s", tlob_last_error()->message);
    params.device = -1;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_NO_DEVICE);
}

/* Known trap: one handle a call is twenty times the price of a small product. */
Test(gpu_core, handles_are_made_once_a_stream) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 4096, &buffer));
    OK(tlob_fill(stream, tlob_buffer_data(buffer), 0, 4096));
    float *p = tlob_buffer_data(buffer);
    tlob_gemm gemm = tlob_gemm_init(8, 8, 8);
    tlob_gemm_operands x = {.a = p, .b = p + 64, .d = p + 128};
    for (int i = 0; i < 1000; i++) {
        OK(tlob_gemm_run_on(stream, "cublas_classic", &gemm, &x));
        OK(tlob_gemm_run_on(stream, "cublaslt", &gemm, &x));
    }
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    cr_assert_eq(stats.handles, ctx->n_backends);
    cr_assert_eq(stats.products, 2000);
    cr_assert_eq(stats.plan_misses, 1);
    cr_assert_eq(stats.plan_hits, 999);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

/* Known trap: two streams that share a workspace count on each other's counters. */
Test(gpu_core, every_stream_has_its_own_workspace) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *streams[4];
    for (int i = 0; i < 4; i++) {
        OK(i ? tlob_stream_create(ctx, &streams[i]) : tlob_stream_open(ctx, NULL, &streams[i]));
        struct cudaPointerAttributes at;
        cr_assert_eq(cudaPointerGetAttributes(&at, streams[i]->workspace), cudaSuccess);
        cr_assert_eq(at.device, 0);
        cr_assert_eq(at.type, cudaMemoryTypeDevice);
        for (int j = 0; j < i; j++)
            cr_assert_neq(streams[i]->workspace, streams[j]->workspace);
    }
    for (int i = 0; i < 4; i++)
        tlob_stream_close(&streams[i]);
    tlob_context_destroy(&ctx);
}

Test(gpu_core, a_cuda_stream_of_the_caller_has_one_entry) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    cudaStream_t mine;
    cr_assert_eq(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking), cudaSuccess);
    tlob_stream *a, *b, *legacy, *null;
    OK(tlob_stream_open(ctx, mine, &a));
    OK(tlob_stream_open(ctx, mine, &b));
    cr_assert_eq(a, b);
    cr_assert_eq(tlob_stream_cuda(a), mine);
    OK(tlob_stream_open(ctx, cudaStreamLegacy, &legacy));
    OK(tlob_stream_open(ctx, NULL, &null));
    cr_assert_eq(legacy, null, "two names of one stream");
    tlob_stream *per_thread;
    cr_assert_eq(tlob_stream_open(ctx, cudaStreamPerThread, &per_thread), TLOB_ERR_ARGUMENT);
    tlob_stream_close(&null);
    tlob_stream_close(&legacy);
    tlob_stream_close(&b);
    tlob_stream_close(&a);
    cudaStreamDestroy(mine);
    tlob_context_destroy(&ctx);
}

Test(gpu_core, a_stream_is_not_opened_during_its_capture) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    cudaStream_t mine;
    cudaGraph_t graph;
    tlob_stream *stream;
    cr_assert_eq(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking), cudaSuccess);
    cr_assert_eq(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    cr_assert_eq(tlob_stream_open(ctx, mine, &stream), TLOB_ERR_NOT_WARM);
    cr_assert_null(stream);
    cr_assert_eq(cudaStreamEndCapture(mine, &graph), cudaSuccess, "the capture survives");
    cudaGraphDestroy(graph);
    OK(tlob_stream_open(ctx, mine, &stream));
    tlob_stream_close(&stream);
    cudaStreamDestroy(mine);
    tlob_context_destroy(&ctx);
}

/* Makes all that a context can have, uses it, and frees it. */
static void *a_whole_life(void *unused) {
    (void)unused;
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    tlob_staging *staging;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 3 * 256 * sizeof(float), &buffer));
    OK(tlob_staging_create(ctx, 4096, &staging));
    float *a = tlob_buffer_data(buffer);
    OK(tlob_fill(stream, a, 0, tlob_buffer_bytes(buffer)));
    const tlob_gemm g = tlob_gemm_init(16, 16, 16);
    const tlob_gemm_operands x = {.a = a, .b = a + 256, .d = a + 512};
    OK(tlob_gemm_run_on(stream, "cublas_classic", &g, &x));
    OK(tlob_gemm_run_on(stream, "cublaslt", &g, &x));
    OK(tlob_stream_sync(stream));
    tlob_staging_destroy(&staging);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return NULL;
}

/* Known trap: handles made or destroyed while any thread captures, which fails or spoils the capture. */
Test(gpu_core, a_capture_survives_what_others_make_and_free) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    cudaStream_t mine;
    OK(tlob_buffer_create(ctx, sizeof(float), &buffer));
    cr_assert_eq((int)cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking), (int)cudaSuccess);
    OK(tlob_stream_open(ctx, mine, &stream));
    for (int same_thread = 0; same_thread < 2; same_thread++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cr_assert_eq((int)cudaStreamBeginCapture(mine, cudaStreamCaptureModeGlobal), (int)cudaSuccess);
        if (same_thread) {
            a_whole_life(NULL);
        } else {
            pthread_t other;
            cr_assert_eq(pthread_create(&other, NULL, a_whole_life, NULL), 0);
            pthread_join(other, NULL);
        }
        OK(tlob_fill(stream, tlob_buffer_data(buffer), 'a' + same_thread, sizeof(float)));
        cr_assert_eq((int)cudaStreamEndCapture(mine, &graph), (int)cudaSuccess, "the capture survives");
        cr_assert_eq((int)cudaGraphInstantiate(&exec, graph, 0), (int)cudaSuccess);
        cr_assert_eq((int)cudaGraphLaunch(exec, mine), (int)cudaSuccess);
        char bytes[sizeof(float)];
        OK(tlob_download(stream, bytes, tlob_buffer_data(buffer), sizeof(bytes)));
        cr_assert_eq(bytes[3], 'a' + same_thread);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    }
    tlob_stream_close(&stream);
    tlob_buffer_destroy(&buffer);
    cudaStreamDestroy(mine);
    tlob_context_destroy(&ctx);
}

/* What waits would spoil the capture; a staged copy becomes a node, and the stream's own staging still works after. */
Test(gpu_core, transfers_during_a_capture) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_staging *staging;
    tlob_buffer *buffer;
    void *host;
    uint32_t word = 1, back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_staging_create(ctx, 4, &staging));
    OK(tlob_buffer_create(ctx, 4, &buffer));
    uint32_t *there = tlob_buffer_data(buffer);
    for (int warm = 0; warm < 2; warm++) {
        cr_assert_eq(cudaStreamBeginCapture(tlob_stream_cuda(stream), cudaStreamCaptureModeGlobal), cudaSuccess);
        cr_assert_eq(tlob_upload(stream, there, &word, 4), TLOB_ERR_NOT_WARM);
        cr_assert_eq(tlob_download(stream, &back, there, 4), TLOB_ERR_NOT_WARM);
        cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_NOT_WARM);
        OK(tlob_staging_upload(staging, stream, there, 4));
        cr_assert_eq(cudaStreamEndCapture(tlob_stream_cuda(stream), &graph), cudaSuccess, "the capture survives");
        cr_assert_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        for (uint32_t round = 0; round < 2; round++) {
            OK(tlob_staging_acquire(staging, &host));
            *(uint32_t *)host = 7 + round;
            cr_assert_eq(cudaGraphLaunch(exec, tlob_stream_cuda(stream)), cudaSuccess);
            OK(tlob_download(stream, &back, there, 4));
            cr_assert_eq(back, 7 + round);
        }
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
        OK(tlob_upload(stream, there, &word, 4));
    }
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    tlob_staging_destroy(&staging);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

/* A failure is reported once: by the status, and not again by the program's own next check. The default stream waits
 * for streams that are not non-blocking, so it is closed to every call while one of them is captured. */
Test(gpu_core, a_reported_failure_leaves_no_error_behind) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    cudaStream_t blocking;
    cudaGraph_t graph;
    OK(tlob_stream_open(ctx, NULL, &stream));
    cr_assert_eq(cudaStreamCreate(&blocking), cudaSuccess);
    cr_assert_eq(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_NOT_WARM);
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    cr_assert_eq(cudaStreamEndCapture(blocking, &graph), cudaSuccess, "the capture survives");
    cudaGraphDestroy(graph);
    OK(tlob_stream_sync(stream));
    cudaStreamDestroy(blocking);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(gpu_core, a_build_without_code_for_the_device_is_told_what_to_do) {
    cr_assert_eq(tlob_fail_cuda(&tlob_space_cuda, cudaErrorNoKernelImageForDevice, "a kernel"), TLOB_ERR_CUDA);
    cr_assert(strstr(tlob_last_error()->message, "gpu_arch"), "%s", tlob_last_error()->message);
}

Test(gpu_core, pointers_of_the_other_memory_space_are_refused) {
    NEED_GPU();
    tlob_context *cuda = cuda_context(), *host = host_context();
    tlob_stream *on_cuda, *on_host;
    tlob_buffer *device;
    float ordinary[64] = {0};
    OK(tlob_stream_create(cuda, &on_cuda));
    OK(tlob_stream_create(host, &on_host));
    OK(tlob_buffer_create(cuda, 256 * 3, &device));
    float *d = tlob_buffer_data(device);
    tlob_gemm gemm = tlob_gemm_init(8, 8, 8);
    tlob_gemm_operands x = {.a = d, .b = ordinary, .d = d + 128};
    cr_assert_eq(tlob_gemm_run(on_cuda, &gemm, &x), TLOB_ERR_MEMORY_SPACE);
    cr_assert(strstr(tlob_last_error()->message, "b (0x"), "%s", tlob_last_error()->message);
    x = (tlob_gemm_operands){.a = ordinary, .b = d, .d = ordinary + 32};
    cr_assert_eq(tlob_gemm_run(on_host, &gemm, &x), TLOB_ERR_MEMORY_SPACE);
    cr_assert_eq(tlob_upload(on_cuda, ordinary, ordinary, 4), TLOB_ERR_MEMORY_SPACE);
    cr_assert_eq(tlob_download(on_host, ordinary, d, 4), TLOB_ERR_MEMORY_SPACE);
    cr_assert_eq(tlob_fill(on_cuda, ordinary, 0, 4), TLOB_ERR_MEMORY_SPACE);
    OK(tlob_stream_sync(on_cuda));
    tlob_buffer_destroy(&device);
    tlob_stream_close(&on_cuda);
    tlob_stream_close(&on_host);
    tlob_context_destroy(&cuda);
    tlob_context_destroy(&host);
}

Test(gpu_core, memory_that_is_not_to_be_had_leaves_no_error_behind) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_buffer *buffer;
    cr_assert_eq(tlob_buffer_create(ctx, (size_t)1 << 50, &buffer), TLOB_ERR_OUT_OF_MEMORY);
    cr_assert_null(buffer);
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    OK(tlob_buffer_create(ctx, 64, &buffer));
    tlob_buffer_destroy(&buffer);
    tlob_context_destroy(&ctx);
}

/* A fault on the device spoils every later call of the process: each must say so, and not that its pointers are of
 * another space or that the stream is being captured. Giving everything back must still not crash. */
Test(gpu_core, a_fault_on_the_device_is_called_one) {
    NEED_GPU();
    if (getenv("TLOB_SANITIZED"))
        cr_skip_test("the fault is meant, and a sanitizer would report it");
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    float word = 0;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 2 * sizeof(float), &buffer));
    float *p = tlob_buffer_data(buffer);
    const tlob_affine_args wild = {.m = 1, .n = 2, .ld = (int64_t)1 << 40, .batch = 1, .d = p};
    cr_assert_eq(tlob_kernels_cuda.affine(tlob_stream_cuda(stream), &wild), cudaSuccess);
    cr_assert_neq(cudaDeviceSynchronize(), cudaSuccess);

    cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_CUDA, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_upload(stream, p, &word, sizeof(word)), TLOB_ERR_CUDA, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_fill(stream, p, 0, sizeof(word)), TLOB_ERR_CUDA, "%s", tlob_last_error()->message);
    const tlob_gemm gemm = tlob_gemm_init(1, 1, 1);
    const tlob_gemm_operands x = {.a = p, .b = p, .d = p + 1};
    for (int i = 0; i < ctx->n_backends; i++) {
        tlob_status status = tlob_gemm_run_on(stream, ctx->backends[i]->name, &gemm, &x);
        cr_assert(status == TLOB_ERR_CUDA || status == TLOB_ERR_BACKEND, "%s", tlob_last_error()->message);
    }
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

/* Known trap: mapped memory read before the copy has landed, or freed while it is queued. */
Test(gpu_core, staging_waits_for_its_transfer) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_staging *staging;
    tlob_buffer *buffer;
    void *host;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_staging_create(ctx, 4096, &staging));
    OK(tlob_buffer_create(ctx, 4096, &buffer));
    OK(tlob_staging_acquire(staging, &host));
    memset(host, 1, 4096);
    OK(tlob_fill(stream, tlob_buffer_data(buffer), 0x5a, 4096));
    cr_assert_eq(cudaLaunchHostFunc(tlob_stream_cuda(stream), sleep_50_ms, NULL), cudaSuccess);
    OK(tlob_staging_download(staging, stream, tlob_buffer_data(buffer), 4096));
    OK(tlob_staging_acquire(staging, &host));
    cr_assert_eq(((unsigned char *)host)[0], 0x5a);
    cr_assert_eq(((unsigned char *)host)[4095], 0x5a);
    cr_assert_eq(cudaLaunchHostFunc(tlob_stream_cuda(stream), sleep_50_ms, NULL), cudaSuccess);
    OK(tlob_staging_upload(staging, stream, tlob_buffer_data(buffer), 4096));
    tlob_staging_destroy(&staging); /* still in flight */
    OK(tlob_stream_sync(stream));
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

/* Known trap: a pageable copy of more than a megabyte races a non-blocking stream. */
Test(gpu_core, large_uploads_are_ordered_before_what_follows) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *one, *two;
    size_t bytes = (size_t)3 << 20, words = bytes / 4;
    uint32_t *there = malloc(bytes), *back = malloc(bytes);
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, bytes, &one));
    OK(tlob_buffer_create(ctx, bytes, &two));
    for (uint32_t round = 0; round < 50; round++) {
        for (size_t i = 0; i < words; i++)
            there[i] = round * 2654435761u + (uint32_t)i;
        OK(tlob_upload(stream, tlob_buffer_data(one), there, bytes));
        memset(there, 0, bytes); /* the caller may reuse its memory at once */
        cr_assert_eq(cudaMemcpyAsync(tlob_buffer_data(two), tlob_buffer_data(one), bytes, cudaMemcpyDeviceToDevice,
                                     tlob_stream_cuda(stream)), cudaSuccess);
        OK(tlob_download(stream, back, tlob_buffer_data(two), bytes));
        for (size_t i = 0; i < words; i++)
            cr_assert_eq(back[i], round * 2654435761u + (uint32_t)i, "round %u, word %zu", round, i);
    }
    free(there);
    free(back);
    tlob_buffer_destroy(&one);
    tlob_buffer_destroy(&two);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(gpu_core, objects_outlive_their_context) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    tlob_staging *staging;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 256, &buffer));
    OK(tlob_staging_create(ctx, 256, &staging));
    OK(tlob_fill(stream, tlob_buffer_data(buffer), 0, 256));
    tlob_context_destroy(&ctx);
    cr_assert_eq(tlob_fill(stream, tlob_buffer_data(buffer), 0, 256), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_CLOSED);
    tlob_staging_destroy(&staging);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
}

/* Known trap: after a fork, CUDA in the child fails; it must be a status that says so. */
Test(gpu_core, a_forked_child_gets_a_clear_status) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    pid_t child = fork();
    if (child == 0) {
        tlob_context_params params = tlob_context_params_default();
        tlob_context *mine;
        tlob_status status = tlob_context_create(&mine, &params);
        fprintf(stderr, "in the child: %s\n", tlob_last_error()->message);
        _exit(status == TLOB_ERR_NO_DEVICE && strstr(tlob_last_error()->message, "fork") ? 0 : 10 + (int)status);
    }
    int how;
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how), "the child died of signal %d", WTERMSIG(how));
    cr_assert_eq(WEXITSTATUS(how), 0, "the child's status was %d", WEXITSTATUS(how) - 10);
    tlob_context_destroy(&ctx);
}

/*
 * Known trap: cudaDeviceReset leaves handles and streams behind that mean nothing any more. It resets the device only for a
 * thread that has used it through the runtime, so this one does.
 */
Test(gpu_core, a_device_reset_behind_our_back_is_called_one) {
    NEED_GPU();
    cr_assert_eq(cudaFree(NULL), cudaSuccess);
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    tlob_buffer *buffer;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_buffer_create(ctx, 4096, &buffer));
    float *p = tlob_buffer_data(buffer);
    tlob_gemm gemm = tlob_gemm_init(8, 8, 8);
    tlob_gemm_operands x = {.a = p, .b = p + 64, .d = p + 128};
    OK(tlob_fill(stream, p, 0, 4096));
    OK(tlob_gemm_run(stream, &gemm, &x));
    OK(tlob_stream_sync(stream));
    cr_assert_eq(cudaDeviceReset(), cudaSuccess);
    for (int again = 0; again < 2; again++) { /* while the device is down, and when somebody has started it again */
        cr_assert_eq(tlob_gemm_run(stream, &gemm, &x), TLOB_ERR_CUDA);
        cr_assert(strstr(tlob_last_error()->message, "reset"), "%s", tlob_last_error()->message);
        x.d = p + 256; /* a pointer that was not checked before */
        cr_assert_eq(tlob_gemm_run(stream, &gemm, &x), TLOB_ERR_CUDA);
        cr_assert(strstr(tlob_last_error()->message, "reset"), "%s", tlob_last_error()->message);
        cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_CUDA);
        cr_assert_eq(cudaFree(NULL), cudaSuccess);
    }
    void *theirs; /* of a program that goes on with the device: it is not ours to shut down */
    cr_assert_eq(cudaMalloc(&theirs, 256), cudaSuccess);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    cr_assert_eq(cudaMemset(theirs, 0, 256), cudaSuccess);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaFree(theirs), cudaSuccess);
    ctx = cuda_context();
    OK(tlob_buffer_create(ctx, 4096, &buffer));
    tlob_buffer_destroy(&buffer);
    tlob_context_destroy(&ctx);
}

/* Known trap: a thread that has used no device must not be left with one that was started for it. */
Test(gpu_core, a_thread_without_a_device_stays_without) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    OK(tlob_stream_create(ctx, &stream));
    OK(tlob_stream_sync(stream));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *current = &current;
    int (*get_current)(void **) = NULL;
    *(void **)&get_current = dlsym(driver, "cuCtxGetCurrent");
    cr_assert_eq(get_current(&current), 0);
    cr_assert_null(current);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    cr_assert_eq(get_current(&current), 0);
    cr_assert_null(current);
    dlclose(driver);
}

/* Known trap: destructors that call into an unloaded driver. This process ends without giving anything back. */
Test(gpu_core, a_process_may_end_without_cleaning_up) {
    NEED_GPU();
    tlob_context *ctx = cuda_context();
    tlob_stream *stream;
    OK(tlob_stream_create(ctx, &stream));
    cr_assert_eq(cudaLaunchHostFunc(tlob_stream_cuda(stream), sleep_50_ms, NULL), cudaSuccess);
}

/* --- the framework on a device --------------------------------------------------------------------------------- */

/* A product of ones on every backend of a context; d is 8 x 8. */
typedef struct workbench {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_buffer *buffer;
    tlob_gemm gemm;
    tlob_gemm_operands x;
} workbench;

static workbench open_workbench(tlob_context_params params) {
    workbench w = {.gemm = tlob_gemm_init(8, 8, 8)};
    OK(tlob_context_create(&w.ctx, &params));
    OK(tlob_stream_create(w.ctx, &w.stream));
    OK(tlob_buffer_create(w.ctx, 4096, &w.buffer));
    OK(tlob_fill(w.stream, tlob_buffer_data(w.buffer), 0, 4096));
    float *p = tlob_buffer_data(w.buffer);
    w.x = (tlob_gemm_operands){.a = p, .b = p + 64, .d = p + 128};
    return w;
}

static void close_workbench(workbench *w) {
    tlob_buffer_destroy(&w->buffer);
    tlob_stream_close(&w->stream);
    tlob_context_destroy(&w->ctx);
}

static void keep_algorithm(void *user, const tlob_trace *trace) {
    snprintf(user, 128, "%s", trace->algorithm);
}

Test(gpu_core, an_explanation_names_the_algorithm_that_runs) {
    NEED_GPU();
    static const char *const backends[] = {"cublas_classic", "cublaslt"};
    for (int i = 0; i < 2; i++) {
        char traced[128] = "";
        tlob_context_params params = tlob_context_params_default();
        params.policy.kind = TLOB_POLICY_FIXED;
        strcpy(params.policy.backend, backends[i]);
        params.trace = keep_algorithm;
        params.trace_user = traced;
        workbench w = open_workbench(params);
        tlob_explanation cold, warm;
        OK(tlob_gemm_explain(w.stream, &w.gemm, &w.x, &cold));
        OK(tlob_gemm_run(w.stream, &w.gemm, &w.x));
        OK(tlob_gemm_explain(w.stream, &w.gemm, &w.x, &warm));
        cr_assert_str_eq(cold.choice.backend, backends[i]);
        cr_assert_gt(strlen(cold.algorithm), 5);
        cr_assert_str_eq(cold.algorithm, warm.algorithm);
        cr_assert_str_eq(traced, warm.algorithm);
        cr_assert_not(cold.warm && i == 1, "nothing is cached by asking");
        cr_assert(warm.warm || i == 0);
        cr_assert_eq(warm.compute, TLOB_COMPUTE_TF32);
        close_workbench(&w);
    }
}

/* Known trap: the caller's device changes under a library that fails. There may be one device only: then it is that one
 * which must stay, and what the suite of threads does on two. */
Test(gpu_core, the_callers_device_and_errors_are_as_they_were) {
    NEED_GPU();
    int devices, device;
    cr_assert_eq(cudaGetDeviceCount(&devices), cudaSuccess);
    workbench w = open_workbench(tlob_context_params_default());
    float ordinary[64];
    tlob_gemm_operands misplaced = w.x;
    misplaced.a = ordinary;
    tlob_gemm wrong = w.gemm;
    wrong.lda = 1;
    for (int caller = 0; caller < devices; caller++) {
        cr_assert_eq(cudaSetDevice(caller), cudaSuccess);
        OK(tlob_gemm_run(w.stream, &w.gemm, &w.x));
        cr_assert_eq(tlob_gemm_run(w.stream, &wrong, &w.x), TLOB_ERR_ARGUMENT);
        cr_assert_eq(tlob_gemm_run(w.stream, &w.gemm, &misplaced), TLOB_ERR_MEMORY_SPACE);
        cr_assert_eq(cudaGetDevice(&device), cudaSuccess);
        cr_assert_eq(device, caller);
        cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    }
    cudaSetDevice(0);
    close_workbench(&w);
}

/* A pointer is looked at once a stream; one that was refused is refused again. */
Test(gpu_core, pointers_are_checked_the_first_time) {
    NEED_GPU();
    workbench w = open_workbench(tlob_context_params_default());
    static float ordinary[64];
    tlob_gemm_operands misplaced = w.x;
    misplaced.d = ordinary;
    for (int i = 0; i < 3; i++) {
        OK(tlob_gemm_run(w.stream, &w.gemm, &w.x));
        cr_assert_eq(tlob_gemm_run(w.stream, &w.gemm, &misplaced), TLOB_ERR_MEMORY_SPACE);
    }
    close_workbench(&w);
}

static int use_after_fork(workbench *w) {
    tlob_status status = tlob_gemm_run(w->stream, &w->gemm, &w->x);
    bool good = status == TLOB_ERR_NO_DEVICE && strstr(tlob_last_error()->message, "fork");
    good = good && tlob_stream_sync(w->stream) == TLOB_ERR_NO_DEVICE;
    close_workbench(w);
    return good ? 0 : 1;
}

Test(gpu_core, a_context_from_before_a_fork_says_so) {
    NEED_GPU();
    workbench w = open_workbench(tlob_context_params_default());
    pid_t child = fork();
    if (child == 0)
        _exit(use_after_fork(&w));
    int how;
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child's status is 0x%x", (unsigned)how);
    OK(tlob_gemm_run(w.stream, &w.gemm, &w.x));
    OK(tlob_stream_sync(w.stream));
    close_workbench(&w);
}

/* Not a test of libtlob: a float past the end of an allocation, for who wants to know whether a memory checker sees what
 * the tests do. */
Test(gpu_core, an_error_for_memory_checkers) {
    if (!getenv("TLOB_PLANTED"))
        cr_skip_test("TLOB_PLANTED is not set");
    NEED_GPU();
    float *seven;
    cr_assert_eq((int)cudaMalloc((void **)&seven, 7 * sizeof(float)), (int)cudaSuccess);
    const tlob_affine_args past = {.m = 8, .n = 1, .ld = 8, .batch = 1, .beta = 0, .d = seven};
    tlob_kernels_cuda.affine(NULL, &past);
    cudaDeviceSynchronize();
    cudaFree(seven);
}
