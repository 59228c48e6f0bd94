/* Contexts and streams on the host: life, death, and use after death. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include <tlob/tlob.h>

static tlob_context *host_context(void) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    return ctx;
}

Test(context, every_status_has_a_name_and_a_text) {
    for (int i = 0; i <= TLOB_ERR_LABEL; i++) {
        cr_assert(strncmp(tlob_status_name((tlob_status)i), "TLOB_", 5) == 0);
        cr_assert(strlen(tlob_status_text((tlob_status)i)) > 3);
    }
    cr_assert_str_eq(tlob_status_name(TLOB_ERR_CLOSED), "TLOB_ERR_CLOSED");
    cr_assert_str_eq(tlob_status_name((tlob_status)99), "TLOB_ERR_?");
    cr_assert_not_null(tlob_status_text((tlob_status)-1));
}

Test(context, bad_arguments) {
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx = (tlob_context *)&params;
    cr_assert_eq(tlob_context_create(NULL, &params), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_create(&ctx, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_null(ctx, "a failed create leaves NULL");
    params.memory = (tlob_memory)0;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    params.memory = TLOB_MEMORY_HOST;
    params.device = 1;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "device"));
    tlob_context_destroy(NULL);
    ctx = NULL;
    tlob_context_destroy(&ctx);
}

Test(context, a_cuda_context_without_a_device_says_why) {
    int count;
    if (tlob_device_count(&count) == TLOB_OK && count > 0)
        cr_skip_test("this machine has a CUDA device");
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    tlob_status status = tlob_context_create(&ctx, &params);
    cr_assert(status == TLOB_ERR_NO_DEVICE || status == TLOB_ERR_NOT_BUILT, "%s", tlob_status_name(status));
    cr_assert_null(ctx);
    cr_assert(strlen(tlob_last_error()->message) > 20);
}

Test(context, the_default_stream_exists_and_is_one) {
    tlob_context *ctx = host_context();
    tlob_stream *a, *b, *side;
    cr_assert_eq(tlob_stream_open(ctx, NULL, &a), TLOB_OK);
    cr_assert_eq(tlob_stream_open(ctx, NULL, &b), TLOB_OK);
    cr_assert_eq(a, b);
    cr_assert_eq(tlob_stream_create(ctx, &side), TLOB_OK);
    cr_assert_neq(a, side);
    tlob_stream *again;
    cr_assert_eq(tlob_stream_open(ctx, NULL, &again), TLOB_OK);
    cr_assert_eq(again, a, "a side stream made since is not taken for the default stream");
    tlob_stream_close(&again);
    cr_assert_eq(tlob_stream_context(a), ctx);
    cr_assert_eq(tlob_stream_sync(side), TLOB_OK);
    tlob_stream_close(&a);
    cr_assert_null(a);
    cr_assert_eq(tlob_stream_sync(b), TLOB_OK, "the other reference still holds");
    tlob_stream_close(&b);
    tlob_stream_close(&side);
    tlob_context_destroy(&ctx);
    cr_assert_null(ctx);
}

Test(context, stream_arguments) {
    tlob_context *ctx = host_context();
    tlob_stream *stream;
    int nothing;
    cr_assert_eq(tlob_stream_open(NULL, NULL, &stream), TLOB_ERR_ARGUMENT);
    cr_assert_null(stream);
    cr_assert_eq(tlob_stream_open(ctx, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_stream_open(ctx, (struct CUstream_st *)&nothing, &stream), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_stream_create(ctx, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_stream_create(NULL, &stream), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_stream_sync(NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_stream_get_stats(NULL, NULL), TLOB_ERR_ARGUMENT);
    tlob_stream_close(NULL);
    tlob_context_destroy(&ctx);
}

Test(context, everything_made_from_a_closed_context_says_so) {
    tlob_context *ctx = host_context();
    tlob_stream *stream, *other;
    tlob_buffer *buffer;
    tlob_staging *staging;
    cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
    cr_assert_eq(tlob_stream_open(ctx, NULL, &other), TLOB_OK);
    cr_assert_eq(tlob_buffer_create(ctx, 64, &buffer), TLOB_OK);
    cr_assert_eq(tlob_staging_create(ctx, 64, &staging), TLOB_OK);
    float word = 1;
    cr_assert_eq(tlob_upload(stream, tlob_buffer_data(buffer), &word, 4), TLOB_OK);
    tlob_context_destroy(&ctx);

    tlob_gemm gemm = tlob_gemm_init(1, 1, 1);
    tlob_gemm_operands x = {.a = &word, .b = &word, .d = tlob_buffer_data(buffer)};
    void *host;
    cr_assert_eq(tlob_gemm_run(stream, &gemm, &x), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_gemm_run(other, &gemm, &x), TLOB_ERR_CLOSED);
    cr_assert(strstr(tlob_last_error()->message, "destroyed"));
    cr_assert_eq(tlob_stream_sync(stream), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_upload(stream, tlob_buffer_data(buffer), &word, 4), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_download(stream, &word, tlob_buffer_data(buffer), 4), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_fill(stream, tlob_buffer_data(buffer), 0, 4), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_staging_acquire(staging, &host), TLOB_ERR_CLOSED);
    cr_assert_eq(tlob_staging_upload(staging, stream, tlob_buffer_data(buffer), 4), TLOB_ERR_CLOSED);
    cr_assert_null(tlob_stream_context(stream));
    tlob_staging_destroy(&staging);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_stream_close(&other);
}

static void *fail_elsewhere(void *unused) {
    (void)unused;
    tlob_stream_sync(NULL);
    return (void *)(uintptr_t)tlob_last_error()->status;
}

Test(context, the_last_error_belongs_to_its_thread) {
    cr_assert_eq(tlob_last_error()->status, TLOB_OK);
    pthread_t thread;
    void *status;
    cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, &status);
    cr_assert_eq((uintptr_t)status, TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_last_error()->status, TLOB_OK, "another thread's failure is not ours");
}

static void collect(void *user, tlob_log_level level, const char *line) {
    cr_assert(level >= TLOB_LOG_ERROR && level <= TLOB_LOG_DEBUG);
    cr_assert_neq(line[strlen(line) - 1], '\n');
    strncat(user, line, 400);
}

Test(context, one_line_says_what_was_chosen_and_why) {
    char lines[1024] = "";
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.log = collect;
    params.log_user = lines;
    params.log_level = TLOB_LOG_INFO;
    params.compute = TLOB_COMPUTE_TF32;
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK);
    cr_assert(strstr(lines, "cpu_ref") && strstr(lines, "tf32 (argument)") && strstr(lines, "fixed:cpu_ref (default)"),
              "%s", lines);
    tlob_context_destroy(&ctx);
}

static void *open_and_close(void *ctx) {
    for (int i = 0; i < 200; i++) {
        tlob_stream *own, *shared;
        if (tlob_stream_create(ctx, &own) != TLOB_OK || tlob_stream_open(ctx, NULL, &shared) != TLOB_OK)
            return "failed";
        tlob_stream_close(&shared);
        tlob_stream_close(&own);
    }
    return NULL;
}

Test(context, streams_may_be_opened_from_many_threads) {
    tlob_context *ctx = host_context();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, open_and_close, ctx), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        cr_assert_null(failed);
    }
    tlob_context_destroy(&ctx);
}

Test(context, backends_are_listed_built_or_not) {
    bool oracle = false;
    for (int i = 0; i < tlob_backend_count(); i++) {
        tlob_backend_info info;
        cr_assert_eq(tlob_backend_get_info(i, &info), TLOB_OK);
        cr_assert_eq(info.built, info.missing == NULL);
        oracle |= !strcmp(info.name, "cpu_ref") && info.built && info.caps.memory == TLOB_MEMORY_HOST;
    }
    cr_assert(oracle);
    tlob_backend_info info;
    cr_assert_eq(tlob_backend_get_info(-1, &info), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_backend_get_info(tlob_backend_count(), &info), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_backend_get_info(0, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_device_count(NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_device_get_info(0, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_settings(NULL, NULL), TLOB_ERR_ARGUMENT);
}
