#include "libtlob/parts.h"

#include <math.h>

tlob_status tlob_check_forward(tlob_stream *stream, const float *weights, const float *x, int64_t samples,
                               int64_t max_samples, const float *y, const char *operation) {
    tlob_status status = tlob_check_samples(samples, 0, max_samples, operation);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, operation, "weights");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, x, operation, "x");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, y, operation, "y");
    return status;
}

tlob_status tlob_check_passed(int64_t last, const char *operation) {
    if (last != TLOB_NO_PASS)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, operation, "no forward pass has left anything here: run one first");
}

tlob_status tlob_check_backward(tlob_stream *stream, const float *weights, const float *x, const float *dy,
                                int64_t samples, int64_t last, const float *dx, const char *operation) {
    tlob_status status = tlob_check_passed(last, operation);
    if (status == TLOB_OK && samples != last)
        status = tlob_fail(TLOB_ERR_ARGUMENT, operation,
                           "samples is %" PRId64 ", and the last forward pass had %" PRId64, samples, last);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, operation, "weights");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, x, operation, "x");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, dy, operation, "dy");
    if (status == TLOB_OK && samples > 0 && dx)
        status = tlob_check_floats(stream, dx, operation, "dx");
    return status;
}

tlob_status tlob_uniform(tlob_stream *stream, int64_t count, double bound, uint64_t seed, uint32_t space, float *w) {
    const tlob_space *memory = stream->ctx->space;
    int code = memory->kernels->uniform(stream->cuda_stream, count, (float)bound, seed, space, w);
    return tlob_fail_cuda(memory, code, "kernel uniform");
}

tlob_status tlob_xavier(tlob_stream *stream, int64_t fan_in, int64_t fan_out, uint64_t seed, uint32_t space, float *w) {
    double bound = sqrt(6.0 / ((double)fan_in + (double)fan_out));
    return tlob_uniform(stream, fan_in * fan_out, bound, seed, space, w);
}

static tlob_attend_args on_device(const tlob_stream *stream, const tlob_attend_args *args) {
    tlob_attend_args own = *args;
    own.tiles = stream->ctx->attend_has_tiles;
    return own;
}

tlob_status tlob_attend_forward(tlob_stream *stream, const tlob_attend_args *args) {
    const tlob_space *space = stream->ctx->space;
    const tlob_attend_args own = on_device(stream, args);
    int code = space->kernels->attend_forward(stream->cuda_stream, &own);
    return tlob_fail_cuda(space, code, "kernel attend_forward");
}

tlob_status tlob_attend_backward(tlob_stream *stream, const tlob_attend_args *args) {
    const tlob_space *space = stream->ctx->space;
    const tlob_attend_args own = on_device(stream, args);
    int code = space->kernels->attend_backward(stream->cuda_stream, &own);
    return tlob_fail_cuda(space, code, "kernel attend_backward");
}

tlob_status tlob_row_sum(tlob_stream *stream, int64_t m, int64_t n, const float *x, float scale, tlob_buffer *partial,
                         float *out) {
    const tlob_space *space = stream->ctx->space;
    int code = space->kernels->row_sum(stream->cuda_stream, m, n, x, scale, tlob_floats(partial), out);
    return tlob_fail_cuda(space, code, "kernel row_sum");
}

tlob_status tlob_sum_chunks(tlob_stream *stream, tlob_chunked of, int64_t split, float *out, float *rest) {
    const tlob_space *space = stream->ctx->space;
    const tlob_sum_args args = {
        .of = of, .split = split, .out = out, .rest = rest, .overlaps = stream->ctx->has_fused_code};
    return tlob_fail_cuda(space, space->kernels->sum_chunks(stream->cuda_stream, &args), "kernel sum_chunks");
}
