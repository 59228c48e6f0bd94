#include <math.h>
#include <stdlib.h>

#include "libtlob/parts.h"

struct tlob_adam {
    tlob_context *ctx;
    int64_t count;
    tlob_buffer *state;   /* one tlob_adam_state */
    tlob_buffer *moments; /* m, then v: `count` floats each */
};

tlob_adam_params tlob_adam_params_default(void) {
    return (tlob_adam_params){.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

/* Written so that NaN fails. */
static tlob_status check_lr(float lr, const char *where) {
    if (lr >= 0.0f && isfinite(lr))
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where, "lr is %g, must be finite and at least 0", (double)lr);
}

static tlob_status check_beta(float beta, const char *name) {
    if (beta >= 0.0f && beta < 1.0f)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_adam_create", "%s is %g, must be at least 0 and below 1", name,
                     (double)beta);
}

static tlob_status check_params(const tlob_adam_params *params) {
    const char *where = "tlob_adam_create";
    if (!params)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "params is NULL");
    tlob_status status = check_lr(params->lr, where);
    if (status == TLOB_OK)
        status = check_beta(params->beta1, "beta1");
    if (status == TLOB_OK)
        status = check_beta(params->beta2, "beta2");
    if (status == TLOB_OK && !(params->eps > 0.0f && isfinite(params->eps)))
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "eps is %g, must be finite and above 0", (double)params->eps);
    return status;
}

static tlob_status set_scalar(tlob_stream *stream, float *dst, float value) {
    const tlob_space *space = stream->ctx->space;
    void *previous;
    tlob_status status = tlob_enter(stream->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    status = tlob_fail_cuda(space, space->kernels->set_scalar(stream->cuda_stream, dst, value), "kernel set_scalar");
    tlob_leave(stream->ctx, previous);
    return status;
}

/* The state before the first step. On the default stream, and waited for: the stream of the steps is not known yet, and
 * it may be one that the default stream is not ordered with. */
static tlob_status reset(tlob_adam *adam, const tlob_adam_params *params) {
    tlob_stream *stream = adam->ctx->default_stream;
    tlob_adam_state *state = tlob_buffer_data(adam->state);
    tlob_status status = tlob_fill(stream, state, 0, tlob_buffer_bytes(adam->state));
    if (status == TLOB_OK)
        status = tlob_fill(stream, tlob_buffer_data(adam->moments), 0, tlob_buffer_bytes(adam->moments));
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->lr, params->lr);
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->beta1, params->beta1);
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->beta2, params->beta2);
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->eps, params->eps);
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->ln_beta1, (float)log((double)params->beta1));
    if (status == TLOB_OK)
        status = set_scalar(stream, &state->ln_beta2, (float)log((double)params->beta2));
    return status == TLOB_OK ? tlob_stream_sync(stream) : status;
}

tlob_status tlob_adam_create(tlob_context *ctx, int64_t count, const tlob_adam_params *params, tlob_adam **out) {
    const char *where = "tlob_adam_create";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "adam is NULL");
    *out = NULL;
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK)
        status = check_params(params);
    if (status != TLOB_OK)
        return status;
    if (count < 1)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "count is %" PRId64 ", must be at least 1", count);
    tlob_adam *adam = calloc(1, sizeof(*adam));
    if (!adam)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for an optimizer", sizeof(*adam));
    adam->ctx = ctx;
    adam->count = count;
    tlob_context_ref(ctx);
    status = tlob_buffer_create(ctx, sizeof(tlob_adam_state), &adam->state);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, 2, count, where, &adam->moments);
    if (status == TLOB_OK)
        status = reset(adam, params);
    if (status != TLOB_OK)
        tlob_adam_destroy(&adam);
    *out = adam;
    return status;
}

void tlob_adam_destroy(tlob_adam **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_adam *adam = *ptr;
    *ptr = NULL;
    tlob_buffer_destroy(&adam->state);
    tlob_buffer_destroy(&adam->moments);
    tlob_context_unref(adam->ctx);
    free(adam);
}

static tlob_status check_call(const tlob_adam *adam, const tlob_stream *stream, const char *where) {
    if (!adam)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "adam is NULL");
    return tlob_stream_check_in(stream, adam->ctx, where);
}

tlob_adam_state *tlob_adam_state_of(const tlob_adam *adam) {
    return tlob_buffer_data(adam->state);
}

static tlob_adam_args step_args(const tlob_adam *adam, float *weights, const float *gradients) {
    return (tlob_adam_args){
        .count = adam->count,
        .state = tlob_adam_state_of(adam),
        .g = gradients,
        .w = weights,
        .m = tlob_floats(adam->moments),
        .v = tlob_floats(adam->moments) + adam->count,
    };
}

tlob_status tlob_adam_step(tlob_adam *adam, tlob_stream *stream, float *weights, const float *gradients) {
    const char *where = "tlob_adam_step";
    tlob_status status = check_call(adam, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, where, "weights");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, gradients, where, "gradients");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(adam->ctx, &previous)) != TLOB_OK)
        return status;
    const tlob_adam_args args = step_args(adam, weights, gradients);
    const tlob_space *space = adam->ctx->space;
    status = tlob_fail_cuda(space, space->kernels->adam(stream->cuda_stream, &args), "kernel adam");
    tlob_leave(adam->ctx, previous);
    return status;
}

tlob_status tlob_adam_step_chunked(tlob_adam *adam, tlob_stream *stream, float *weights, const tlob_chunked part[2],
                                   float *figures) {
    const tlob_space *space = adam->ctx->space;
    const tlob_adam_chunked_args args = {
        .adam = step_args(adam, weights, NULL),
        .part = {part[0], part[1]},
        .figures = figures,
        .overlaps = adam->ctx->has_fused_code,
    };
    void *previous;
    tlob_status status = tlob_enter(adam->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    status = tlob_fail_cuda(space, space->kernels->adam_chunked(stream->cuda_stream, &args), "kernel adam_chunked");
    tlob_leave(adam->ctx, previous);
    return status;
}

tlob_status tlob_adam_set_lr(tlob_adam *adam, tlob_stream *stream, float lr) {
    const char *where = "tlob_adam_set_lr";
    tlob_status status = check_call(adam, stream, where);
    if (status == TLOB_OK)
        status = check_lr(lr, where);
    if (status != TLOB_OK)
        return status;
    tlob_adam_state *state = tlob_buffer_data(adam->state);
    return set_scalar(stream, &state->lr, lr);
}

/* Ready for a copy of the state from or to the host. */
static tlob_status check_copy(const tlob_adam *adam, const tlob_stream *stream, const float *moments, int64_t count,
                              const int64_t *steps, const char *where) {
    tlob_status status = check_call(adam, stream, where);
    if (status != TLOB_OK)
        return status;
    if (!moments || !steps)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", moments ? "steps" : "moments");
    if (count != 2 * adam->count)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "count is %" PRId64 ", and the moments of %" PRId64 " parameters are %" PRId64, count,
                         adam->count, 2 * adam->count);
    return TLOB_OK;
}

tlob_status tlob_adam_get_state(tlob_adam *adam, tlob_stream *stream, float *moments, int64_t count, int64_t *steps) {
    tlob_status status = check_copy(adam, stream, moments, count, steps, "tlob_adam_get_state");
    if (status != TLOB_OK)
        return status;
    const tlob_adam_state *state = tlob_buffer_data(adam->state);
    status = tlob_download(stream, moments, tlob_buffer_data(adam->moments), tlob_buffer_bytes(adam->moments));
    return status == TLOB_OK ? tlob_download(stream, steps, &state->t, sizeof(*steps)) : status;
}

tlob_status tlob_adam_set_state(tlob_adam *adam, tlob_stream *stream, const float *moments, int64_t count,
                                int64_t steps) {
    const char *where = "tlob_adam_set_state";
    tlob_status status = check_copy(adam, stream, moments, count, &steps, where);
    if (status != TLOB_OK)
        return status;
    if (steps < 0 || steps > TLOB_ADAM_STEPS_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "steps is %" PRId64 ", must be from 0 to 2^53", steps);
    tlob_adam_state *state = tlob_buffer_data(adam->state);
    status = tlob_upload(stream, tlob_buffer_data(adam->moments), moments, tlob_buffer_bytes(adam->moments));
    if (status == TLOB_OK)
        status = tlob_upload(stream, &state->t, &steps, sizeof(steps));
    return status == TLOB_OK ? tlob_stream_sync(stream) : status;
}
