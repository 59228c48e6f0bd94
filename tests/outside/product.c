/* A program of someone else's: the one product below, on a host context. Compiles as C11 and as C++17. */
#include <stdio.h>
#include <string.h>

#include <tlob/tlob.h>

static int fail(void) {
    fprintf(stderr, "%s\n", tlob_last_error()->message);
    return 1;
}

int main(void) {
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 1, 1};
    float d[2] = {0, 0};
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    tlob_context *ctx = NULL;
    tlob_stream *stream = NULL;
    tlob_buffer *buffer = NULL;
    if (tlob_context_create(&ctx, &params) || tlob_stream_create(ctx, &stream) ||
        tlob_buffer_create(ctx, 11 * sizeof(float), &buffer))
        return fail();
    float *x = (float *)tlob_buffer_data(buffer);
    tlob_gemm gemm = tlob_gemm_init(2, 1, 3);
    tlob_gemm_operands operands;
    memset(&operands, 0, sizeof operands);
    operands.a = x;
    operands.b = x + 6;
    operands.d = x + 9;
    if (tlob_upload(stream, x, a, sizeof a) || tlob_upload(stream, x + 6, b, sizeof b) ||
        tlob_gemm_run(stream, &gemm, &operands) || tlob_download(stream, d, x + 9, sizeof d))
        return fail();
    printf("tlob %s: %g %g\n", tlob_version(), (double)d[0], (double)d[1]);
    tlob_buffer_destroy(&buffer);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return 0;
}
