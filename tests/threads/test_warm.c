/* What a warm product may not do: allocate, read the environment, lock, open or load anything. Linked with --wrap. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include "tests/threads/device.h"

static atomic_int calls;

/* For each function that is wrapped, one that counts and goes on to the real one. */
#define COUNTED(type, name, parameters, arguments)                                                                     \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters {                                                                                    \
        atomic_fetch_add(&calls, 1);                                                                                   \
        return __real_##name arguments;                                                                                \
    }

COUNTED(void *, malloc, (size_t size), (size))
COUNTED(void *, calloc, (size_t count, size_t size), (count, size))
COUNTED(void *, realloc, (void *old, size_t size), (old, size))
COUNTED(int, posix_memalign, (void **out, size_t alignment, size_t size), (out, alignment, size))
COUNTED(char *, getenv, (const char *name), (name))
COUNTED(int, pthread_mutex_lock, (pthread_mutex_t *mutex), (mutex))
COUNTED(void *, dlopen, (const char *name, int flags), (name, flags))
COUNTED(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
COUNTED(int, open64, (const char *path, int flags, mode_t mode), (path, flags, mode))

#define OK(call) cr_assert_eq(call, TLOB_OK, "%s", tlob_last_error()->message)

static void run_all(tlob_context *ctx, tlob_stream *stream, int times) {
    static _Alignas(256) float a[64], b[64], d[64], bias[8], bgrad[8];
    static _Alignas(256) unsigned char mask[16 * 8];
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_RELU_AUX_BIAS,
                                              TLOB_EPILOGUE_DRELU_BGRAD, TLOB_EPILOGUE_BGRADA};
    const tlob_gemm_operands x = {.a = a, .b = b, .d = d, .bias = bias, .bgrad = bgrad, .aux = mask};
    tlob_gemm g = tlob_gemm_init(8, 8, 8);
    for (int t = 0; t < times; t++)
        for (int i = 0; i < ctx->n_backends; i++)
            for (size_t e = 0; e < sizeof(epilogues) / sizeof(*epilogues); e++) {
                g.epilogue = epilogues[e];
                OK(tlob_gemm_run_on(stream, ctx->backends[i]->name, &g, &x));
                OK(tlob_gemm_run(stream, &g, &x));
            }
}

static void expect_quiet(tlob_memory memory, tlob_switch deterministic) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = memory;
    params.deterministic = deterministic;
    tlob_context *ctx;
    tlob_stream *stream;
    atomic_store(&calls, 0);
    OK(tlob_context_create(&ctx, &params));
    OK(tlob_stream_create(ctx, &stream));
    cr_assert_gt(atomic_load(&calls), 5, "the wrapping works");
    run_all(ctx, stream, 2);
    atomic_store(&calls, 0);
    run_all(ctx, stream, 200);
    cr_assert_eq(atomic_load(&calls), 0);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(warm, the_oracle_is_quiet) {
    expect_quiet(TLOB_MEMORY_HOST, TLOB_SWITCH_OFF);
}

Test(warm, the_vendors_backends_are_quiet) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    expect_quiet(TLOB_MEMORY_CUDA, TLOB_SWITCH_OFF);
    expect_quiet(TLOB_MEMORY_CUDA, TLOB_SWITCH_ON);
}

/* Whatever lies between the operands, a warm product asks about none of them again. */
Test(warm, a_pointer_is_asked_about_once) {
    if (DEVICE_MEMORY == TLOB_MEMORY_HOST)
        cr_skip_test("this build has no vendor's headers to fake a device with");
    static _Alignas(4096) float memory[4 * 65536];
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    OK(tlob_context_create(&ctx, &params));
    for (size_t apart = 64; apart <= 65536; apart *= 2) {
        tlob_stream *stream;
        OK(tlob_stream_create(ctx, &stream));
        tlob_gemm g = tlob_gemm_init(8, 8, 8);
        g.epilogue = TLOB_EPILOGUE_BIAS;
        const tlob_gemm_operands x = {
            .a = memory, .b = memory + apart, .d = memory + 2 * apart, .bias = memory + 3 * apart};
        OK(tlob_gemm_run(stream, &g, &x));
        atomic_store(&device_asked, 0);
        OK(tlob_gemm_run(stream, &g, &x));
        cr_assert_eq(atomic_load(&device_asked), 0, "operands %zu bytes apart", apart * sizeof(float));
        tlob_stream_close(&stream);
    }
    tlob_context_destroy(&ctx);
}
