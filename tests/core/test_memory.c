/* Buffers, staging and transfers on the host. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <tlob/tlob.h>

static tlob_context *ctx;
static tlob_stream *stream;

static void open_host(void) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK);
    cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
}

static void close_host(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

TestSuite(memory, .init = open_host, .fini = close_host);

Test(memory, a_buffer_is_aligned_and_knows_its_size) {
    tlob_buffer *buffer;
    cr_assert_eq(tlob_buffer_create(ctx, 1000, &buffer), TLOB_OK);
    cr_assert_eq((uintptr_t)tlob_buffer_data(buffer) % 256, 0u);
    cr_assert_eq(tlob_buffer_bytes(buffer), 1000u);
    tlob_buffer_destroy(&buffer);
    cr_assert_null(buffer);
    cr_assert_null(tlob_buffer_data(NULL));
    cr_assert_eq(tlob_buffer_bytes(NULL), 0u);
    tlob_buffer_destroy(NULL);
}

Test(memory, sizes_that_cannot_be) {
    tlob_buffer *buffer;
    tlob_staging *staging;
    cr_assert_eq(tlob_buffer_create(ctx, 0, &buffer), TLOB_ERR_ARGUMENT);
    cr_assert_null(buffer);
    cr_assert_eq(tlob_buffer_create(ctx, SIZE_MAX, &buffer), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_buffer_create(ctx, (size_t)1 << 60, &buffer), TLOB_ERR_OUT_OF_MEMORY);
    cr_assert(strstr(tlob_last_error()->message, "1152921504606846976"), "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_buffer_create(NULL, 8, &buffer), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_buffer_create(ctx, 8, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_create(ctx, 0, &staging), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_create(ctx, (size_t)1 << 60, &staging), TLOB_ERR_OUT_OF_MEMORY);
    cr_assert_null(staging);
}

Test(memory, transfers_of_several_stagings_length_arrive_whole) {
    size_t bytes = ((size_t)5 << 19) + 13; /* 2.5 MiB and a bit: three parts */
    unsigned char *there = malloc(bytes), *back = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++)
        there[i] = (unsigned char)(i * 2654435761u >> 13);
    tlob_buffer *buffer;
    cr_assert_eq(tlob_buffer_create(ctx, bytes, &buffer), TLOB_OK);
    cr_assert_eq(tlob_upload(stream, tlob_buffer_data(buffer), there, bytes), TLOB_OK);
    cr_assert_eq(tlob_download(stream, back, tlob_buffer_data(buffer), bytes), TLOB_OK);
    cr_assert_eq(memcmp(there, back, bytes), 0);
    cr_assert_eq(tlob_fill(stream, tlob_buffer_data(buffer), 0xab, bytes), TLOB_OK);
    cr_assert_eq(tlob_download(stream, back, tlob_buffer_data(buffer), bytes), TLOB_OK);
    cr_assert(back[0] == 0xab && back[bytes - 1] == 0xab);
    tlob_buffer_destroy(&buffer);
    free(there);
    free(back);
}

Test(memory, staging_is_acquired_between_transfers) {
    tlob_staging *staging;
    tlob_buffer *buffer;
    void *host;
    cr_assert_eq(tlob_staging_create(ctx, 16, &staging), TLOB_OK);
    cr_assert_eq(tlob_buffer_create(ctx, 16, &buffer), TLOB_OK);
    cr_assert_eq(tlob_staging_acquire(staging, &host), TLOB_OK);
    memcpy(host, "0123456789abcdef", 16);
    cr_assert_eq(tlob_staging_upload(staging, stream, tlob_buffer_data(buffer), 16), TLOB_OK);
    cr_assert_eq(tlob_staging_upload(staging, stream, tlob_buffer_data(buffer), 16), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "tlob_staging_acquire"));
    cr_assert_eq(tlob_staging_acquire(staging, &host), TLOB_OK);
    memset(host, 0, 16);
    cr_assert_eq(tlob_staging_download(staging, stream, tlob_buffer_data(buffer), 16), TLOB_OK);
    cr_assert_eq(tlob_staging_acquire(staging, &host), TLOB_OK);
    cr_assert_eq(memcmp(host, "0123456789abcdef", 16), 0);
    cr_assert_eq(tlob_staging_upload(staging, stream, tlob_buffer_data(buffer), 17), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_upload(staging, stream, NULL, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_upload(staging, NULL, host, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_download(NULL, stream, host, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_acquire(NULL, &host), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_staging_acquire(staging, NULL), TLOB_ERR_ARGUMENT);
    tlob_staging_destroy(&staging);
    tlob_staging_destroy(NULL);
    tlob_buffer_destroy(&buffer);
}

Test(memory, a_stream_of_another_context_is_refused) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    tlob_context *other;
    tlob_staging *staging;
    char word[4];
    cr_assert_eq(tlob_context_create(&other, &params), TLOB_OK);
    cr_assert_eq(tlob_staging_create(other, 4, &staging), TLOB_OK);
    cr_assert_eq(tlob_staging_upload(staging, stream, word, 4), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "another context"));
    tlob_staging_destroy(&staging);
    tlob_context_destroy(&other);
}

Test(memory, transfer_arguments) {
    char word[4] = {0};
    cr_assert_eq(tlob_upload(NULL, word, word, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_upload(stream, NULL, word, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_upload(stream, word, NULL, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_upload(stream, NULL, NULL, 0), TLOB_OK);
    cr_assert_eq(tlob_download(stream, NULL, word, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_fill(stream, NULL, 0, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_fill(stream, word, 256, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_fill(stream, word, -1, 4), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_fill(NULL, word, 0, 4), TLOB_ERR_ARGUMENT);
}
