/** What the parts of a model share: block.c, mha.c, linear.c, head.c, adam.c, model.c. */
#ifndef TLOB_PARTS_H
#define TLOB_PARTS_H

#include <inttypes.h>

#include "libtlob/internal.h"

/** ARGUMENT for NULL or a pointer that no float lies at, MEMORY_SPACE for one of another space; `name` is the
 * argument's. */
static inline tlob_status tlob_check_floats(tlob_stream *stream, const float *ptr, const char *operation,
                                            const char *name) {
    if (!ptr)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "%s is NULL", name);
    if ((uintptr_t)ptr % sizeof(float))
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "%s (%p) is not aligned to a float", name, (const void *)ptr);
    return tlob_check_operand(stream, ptr, operation, name);
}

/** ARGUMENT unless value >= 1. */
static inline tlob_status tlob_check_positive(int64_t value, const char *operation, const char *name) {
    if (value >= 1)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, operation, "%s is %" PRId64 ", must be at least 1", name, value);
}

/** ARGUMENT unless least <= samples <= most. */
static inline tlob_status tlob_check_samples(int64_t samples, int64_t least, int64_t most, const char *operation) {
    if (samples >= least && samples <= most)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, operation, "samples is %" PRId64 ", must be from %" PRId64 " to %" PRId64,
                     samples, least, most);
}

/** A buffer of exactly a*b floats; ARGUMENT where that is more than an address space holds. */
static inline tlob_status tlob_create_floats(tlob_context *ctx, int64_t a, int64_t b, const char *operation,
                                             tlob_buffer **buffer) {
    int64_t count = 0, bytes;
    if (!tlob_mul(a, b, &count) || !tlob_mul(count, (int64_t)sizeof(float), &bytes))
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "%" PRId64 " x %" PRId64 " floats are more than 2^63 bytes", a,
                         b);
    return tlob_buffer_create(ctx, (size_t)bytes, buffer);
}

/** The floats of a buffer. */
static inline float *tlob_floats(const tlob_buffer *buffer) {
    return tlob_buffer_data(buffer);
}

/* --- the passes of an attention with its projections (block.c, mha.c) ------------------------------------------ */

#define TLOB_NO_PASS ((int64_t)-1) /* in place of a number of samples: no forward pass has left anything */

/** The arguments of a forward pass. */
tlob_status tlob_check_forward(tlob_stream *stream, const float *weights, const float *x, int64_t samples,
                               int64_t max_samples, const float *y, const char *operation);

/** ARGUMENT where `last`, the samples of the last forward pass, is TLOB_NO_PASS. */
tlob_status tlob_check_passed(int64_t last, const char *operation);

/** The arguments of a backward pass but for dweights, and that `last` are its samples. dx may be NULL. */
tlob_status tlob_check_backward(tlob_stream *stream, const float *weights, const float *x, const float *dy,
                                int64_t samples, int64_t last, const float *dx, const char *operation);

/* --- kernels, with the device current and arguments checked ---------------------------------------------------- */

/** w ~ U(-bound, bound), `count` of them. */
tlob_status tlob_uniform(tlob_stream *stream, int64_t count, double bound, uint64_t seed, uint32_t space, float *w);

/** W ~ U(-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010). */
tlob_status tlob_xavier(tlob_stream *stream, int64_t fan_in, int64_t fan_out, uint64_t seed, uint32_t space, float *w);

/** `tiles` of the arguments is filled in from the context. */
tlob_status tlob_attend_forward(tlob_stream *stream, const tlob_attend_args *args);
tlob_status tlob_attend_backward(tlob_stream *stream, const tlob_attend_args *args);

/** The sums to `out`, but those from `split` on to `rest`. */
tlob_status tlob_sum_chunks(tlob_stream *stream, tlob_chunked of, int64_t split, float *out, float *rest);

/** out[i] = scale * sum over j of x[i + j*m]; partial: tlob_row_sum_scratch(m, n) floats or more. */
tlob_status tlob_row_sum(tlob_stream *stream, int64_t m, int64_t n, const float *x, float scale, tlob_buffer *partial,
                         float *out);

/* --- a training step of few kernels (model.c), with arguments checked ------------------------------------------- */

/** The plan that a block has: COMPOSED or FUSED. */
tlob_block_plan tlob_block_plan_of(const tlob_block *block);

/** tlob_block_backward without dx, of a block that has plan FUSED and seen samples, whose gradients stay in chunks. They
 * lie in the block's memory until its next backward pass. */
tlob_status tlob_block_backward_chunked(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                        const float *dy, tlob_chunked *gradients);

/** tlob_head_train whose gradients stay in chunks, with loss and hits behind them, in the head's memory until its next
 * loss. The optimizer's t is advanced besides. */
tlob_status tlob_head_train_chunked(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                    const uint8_t *labels, int64_t samples, tlob_adam *adam, float *dy,
                                    tlob_chunked *gradients);

/** tlob_head_forward in a kernel of its own instead of a product: floats, whatever the compute mode. */
tlob_status tlob_head_logits(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                             int64_t samples, float *logits);

/** Where loss and hits, summed, are to go; and that they are those of so many samples now, as tlob_head_result needs. */
float *tlob_head_figures(const tlob_head *head);
void tlob_head_set_samples(tlob_head *head, int64_t samples);

/** Where kernels that advance an optimizer find its state. */
tlob_adam_state *tlob_adam_state_of(const tlob_adam *adam);

/** tlob_adam_step of an optimizer that has been advanced, with gradients in two parts, and figures behind the second. */
tlob_status tlob_adam_step_chunked(tlob_adam *adam, tlob_stream *stream, float *weights, const tlob_chunked part[2],
                                   float *figures);

#endif
