#include <math.h>
#include <stdlib.h>

#include "libtlob/kernels/block_fused.h"
#include "libtlob/kernels/chunks.h"
#include "libtlob/parts.h"
#include "libtlob/range.h"

struct tlob_block {
    tlob_context *ctx;
    tlob_block_shape shape;
    int64_t max_samples;
    tlob_block_plan plan;      /* COMPOSED or FUSED; each leaves the other's buffers NULL */
    bool inference;      /* forward passes alone, which keep nothing */
    int64_t samples;     /* of the last forward pass, or TLOB_NO_PASS */
    const float *weights; /* of the last forward pass: never read by the host */
    tlob_buffer *proj;   /* Q, K, V one after the other: [d_out, N] each, N of the last forward pass */
    tlob_buffer *o;      /* [d_out, N] */
    tlob_buffer *d_proj; /* gradients of the three, laid out likewise */
    tlob_buffer *d_o;
    tlob_buffer *rows;    /* row_max, row_inv_sum, and for training row_dot of each softmax row; fused: focus */
    tlob_buffer *gradients; /* fused: of the weights, one sum for each chunk */
    tlob_buffer *partial; /* of the sum behind mean_max */
    tlob_buffer *mean;    /* one float */
};

/* --- shapes ---------------------------------------------------------------------------------------------------- */

const char *tlob_axis_name(tlob_axis axis) {
    return axis == TLOB_AXIS_FEATURE ? "feature" : axis == TLOB_AXIS_TIME ? "time" : "?";
}

tlob_block_shape tlob_block_shape_default(void) {
    return (tlob_block_shape){.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE};
}

/* The largest products that the rest of this file forms without a check: 4*d_out*(d_in + d_out) and 4*(d_in +
 * d_out)*seq. */
static bool sizes_fit(const tlob_block_shape *s) {
    int64_t rows, product;
    return !__builtin_add_overflow(s->d_in, s->d_out, &rows) && tlob_mul(rows, 16, &rows) &&
           tlob_mul(rows, s->d_out, &product) && tlob_mul(rows, s->seq, &product);
}

tlob_status tlob_block_shape_check(const tlob_block_shape *shape) {
    const char *where = "tlob_block_shape_check";
    if (!shape)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "shape is NULL");
    tlob_status status = tlob_check_positive(shape->d_in, where, "d_in");
    if (status == TLOB_OK)
        status = tlob_check_positive(shape->d_out, where, "d_out");
    if (status == TLOB_OK)
        status = tlob_check_positive(shape->seq, where, "seq");
    if (status != TLOB_OK)
        return status;
    if (shape->head_dim < 1 || shape->head_dim > TLOB_HEAD_DIM_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "head_dim is %" PRId64 ", must be from 1 to %d", shape->head_dim,
                         TLOB_HEAD_DIM_MAX);
    if (shape->d_out % shape->head_dim)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "head_dim is %" PRId64 ", which does not divide d_out, %" PRId64,
                         shape->head_dim, shape->d_out);
    if (shape->axis != TLOB_AXIS_FEATURE && shape->axis != TLOB_AXIS_TIME)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "axis is %d, must be TLOB_AXIS_FEATURE or TLOB_AXIS_TIME",
                         (int)shape->axis);
    if (!sizes_fit(shape))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "d_in %" PRId64 ", d_out %" PRId64 " and seq %" PRId64 " make arrays of more than 2^63 bytes",
                         shape->d_in, shape->d_out, shape->seq);
    return TLOB_OK;
}

static int64_t projection_count(const tlob_block_shape *s) {
    return s->d_out * s->d_in;
}

int64_t tlob_block_weight_count(const tlob_block_shape *shape) {
    return 3 * projection_count(shape) + shape->d_out * shape->d_out;
}

/* --- weights --------------------------------------------------------------------------------------------------- */

tlob_status tlob_block_init_weights(tlob_stream *stream, const tlob_block_shape *shape, uint64_t seed, float *weights) {
    const char *where = "tlob_block_init_weights";
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK)
        status = tlob_block_shape_check(shape);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, where, "weights");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    for (uint32_t i = 0; i < 3 && status == TLOB_OK; i++)
        status = tlob_xavier(stream, shape->d_in, shape->d_out, seed, TLOB_SPACE_W_Q + i,
                             weights + i * projection_count(shape));
    if (status == TLOB_OK)
        status = tlob_xavier(stream, shape->d_out, shape->d_out, seed, TLOB_SPACE_W_O,
                             weights + 3 * projection_count(shape));
    tlob_leave(stream->ctx, previous);
    return status;
}

/* --- life ------------------------------------------------------------------------------------------------------ */

static int64_t columns_of(const tlob_block *block, int64_t samples) {
    return samples * block->shape.seq;
}

/* Softmax rows: one for each run of head_dim elements, on either axis. */
static int64_t rows_of(const tlob_block *block, int64_t samples) {
    return columns_of(block, samples) * (block->shape.d_out / block->shape.head_dim);
}

/* What the composed plan passes from step to step, and from forward to backward. */
static tlob_status create_composed(tlob_block *block, int64_t columns, int64_t rows, const char *where) {
    const tlob_block_shape *s = &block->shape;
    tlob_context *ctx = block->ctx;
    tlob_status status = tlob_create_floats(ctx, 3 * s->d_out, columns, where, &block->proj);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, s->d_out, columns, where, &block->o);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, block->inference ? 2 : 3, rows, where, &block->rows);
    if (status == TLOB_OK && !block->inference)
        status = tlob_create_floats(ctx, 3 * s->d_out, columns, where, &block->d_proj);
    if (status == TLOB_OK && !block->inference)
        status = tlob_create_floats(ctx, s->d_out, columns, where, &block->d_o);
    return status;
}

/* Of the fused plan: what mean_max needs, and the sums over chunks of the weights' gradients. */
static tlob_status create_fused(tlob_block *block, int64_t columns, const char *where) {
    if (block->inference)
        return TLOB_OK;
    const tlob_block_shape *s = &block->shape;
    const int64_t tiles = tlob_block_fused_tiles(s, columns);
    const int64_t chunks = tlob_chunk_count_most(tiles, tlob_block_fused_unit(s), TLOB_BLOCK_FUSED_MOST);
    tlob_status status = tlob_create_floats(block->ctx, 1, tlob_block_fused_focus(s, columns), where, &block->rows);
    if (status == TLOB_OK)
        status = tlob_create_floats(block->ctx, tlob_block_weight_count(s), chunks, where, &block->gradients);
    return status;
}

/* All scratch, each array of exactly its size, so that an overrun is one for a memory checker too. */
static tlob_status create_scratch(tlob_block *block, const char *where) {
    const tlob_block_shape *s = &block->shape;
    int64_t columns, elements, input;
    if (!tlob_mul(block->max_samples, s->seq, &columns) || !tlob_mul(columns, 16 * s->d_out, &elements) ||
        !tlob_mul(columns, 4 * s->d_in, &input))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "max_samples is %" PRId64 ": with seq %" PRId64 ", d_in %" PRId64 " and d_out %" PRId64
                         " an array would exceed 2^63 bytes",
                         block->max_samples, s->seq, s->d_in, s->d_out);
    const int64_t rows = rows_of(block, block->max_samples);
    tlob_status status = block->plan == TLOB_PLAN_FUSED ? create_fused(block, columns, where)
                                                        : create_composed(block, columns, rows, where);
    if (status == TLOB_OK && !block->inference)
        status = tlob_create_floats(block->ctx, 1, tlob_row_sum_scratch(1, rows), where, &block->partial);
    if (status == TLOB_OK && !block->inference)
        status = tlob_create_floats(block->ctx, 1, 1, where, &block->mean);
    return status;
}

tlob_status tlob_block_create_with(tlob_context *ctx, const tlob_block_params *params, tlob_block **out) {
    const char *where = "tlob_block_create";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "block is NULL");
    *out = NULL;
    tlob_block_choice choice;
    tlob_status status = tlob_block_explain(ctx, params, &choice);
    if (status != TLOB_OK)
        return status;
    tlob_block *block = calloc(1, sizeof(*block));
    if (!block)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a block", sizeof(*block));
    block->ctx = ctx;
    block->shape = params->shape;
    block->max_samples = params->max_samples;
    block->plan = choice.plan;
    block->inference = params->inference;
    block->samples = TLOB_NO_PASS;
    tlob_context_ref(ctx);
    status = create_scratch(block, where);
    if (status != TLOB_OK)
        tlob_block_destroy(&block);
    else
        tlob_log(ctx, choice.refused ? TLOB_LOG_WARN : TLOB_LOG_INFO,
                 "block of d_in %" PRId64 ", d_out %" PRId64 ", head_dim %" PRId64 ": plan %s: %s",
                 block->shape.d_in, block->shape.d_out, block->shape.head_dim, tlob_block_plan_name(choice.plan),
                 choice.reason);
    *out = block;
    return status;
}

tlob_status tlob_block_create(tlob_context *ctx, const tlob_block_shape *shape, int64_t max_samples, tlob_block **out) {
    if (out)
        *out = NULL;
    tlob_status status = tlob_context_check(ctx, "tlob_block_create");
    if (status == TLOB_OK)
        status = tlob_block_shape_check(shape);
    if (status != TLOB_OK)
        return status;
    tlob_block_params params = tlob_block_params_default();
    params.shape = *shape;
    params.max_samples = max_samples;
    return tlob_block_create_with(ctx, &params, out);
}

void tlob_block_destroy(tlob_block **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_block *block = *ptr;
    *ptr = NULL;
    tlob_buffer_destroy(&block->proj);
    tlob_buffer_destroy(&block->o);
    tlob_buffer_destroy(&block->d_proj);
    tlob_buffer_destroy(&block->d_o);
    tlob_buffer_destroy(&block->rows);
    tlob_buffer_destroy(&block->gradients);
    tlob_buffer_destroy(&block->partial);
    tlob_buffer_destroy(&block->mean);
    tlob_context_unref(block->ctx);
    free(block);
}

/* --- forward --------------------------------------------------------------------------------------------------- */

static tlob_status check_call(const tlob_block *block, const tlob_stream *stream, const char *where) {
    if (!block)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "block is NULL");
    return tlob_stream_check_in(stream, block->ctx, where);
}

/* The attention of `samples` samples, with every pointer that a pass of the block needs. Q, K and V lie N columns
 * apart, N being the columns in use and not the capacity: exactly where the strided-batched product puts them. */
static tlob_attend_args attend_args(const tlob_block *block, int64_t samples) {
    const tlob_block_shape *s = &block->shape;
    const int64_t chunk = s->d_out * columns_of(block, samples), heads = s->d_out / s->head_dim;
    const int64_t rows = rows_of(block, samples);
    const bool time = s->axis == TLOB_AXIS_TIME;
    const tlob_attend_layout layout = {
        .inner_stride = time ? s->head_dim : 0,
        .outer_stride = time ? s->seq * s->d_out : s->d_out,
        .token_stride = time ? s->d_out : s->head_dim,
    };
    float *proj = tlob_floats(block->proj), *stats = tlob_floats(block->rows);
    tlob_attend_args args = {
        .groups = time ? samples * heads : columns_of(block, samples),
        .tokens = time ? s->seq : heads,
        .head_dim = s->head_dim,
        .inner = time ? heads : 1,
        .in = layout,
        .out = layout,
        .compute = TLOB_COMPUTE_FP32,
        .q = proj,
        .k = proj + chunk,
        .v = proj + 2 * chunk,
        .o = tlob_floats(block->o),
        .row_max = stats,
        .row_inv_sum = stats + rows,
    };
    if (block->inference)
        return args;
    args.row_dot = stats + 2 * rows;
    args.d_o = tlob_floats(block->d_o);
    args.dq = tlob_floats(block->d_proj);
    args.dk = args.dq + chunk;
    args.dv = args.dk + chunk;
    return args;
}

/* [Q K V] = [W_Q W_K W_V] X: the weights follow each other, X is shared. */
static tlob_status project(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                           int64_t columns) {
    const tlob_block_shape *s = &block->shape;
    tlob_gemm g = tlob_gemm_init(s->d_out, columns, s->d_in);
    g.batch = 3;
    g.stride_a = projection_count(s);
    g.stride_b = 0;
    g.stride_c = s->d_out * columns;
    const tlob_gemm_operands operands = {.a = weights, .b = x, .d = tlob_floats(block->proj)};
    return tlob_gemm_run(stream, &g, &operands);
}

/* Y = W_O O. */
static tlob_status project_out(const tlob_block *block, tlob_stream *stream, const float *w_o, int64_t columns,
                               float *y) {
    tlob_gemm g = tlob_gemm_init(block->shape.d_out, columns, block->shape.d_out);
    const tlob_gemm_operands operands = {.a = w_o, .b = tlob_floats(block->o), .d = y};
    return tlob_gemm_run(stream, &g, &operands);
}

/* What both fused passes are given; the caller adds the pass's own. */
static tlob_block_fused_args fused_args(const tlob_block *block, const float *weights, const float *x,
                                        int64_t samples) {
    const tlob_context *ctx = block->ctx;
    return (tlob_block_fused_args){
        .shape = block->shape,
        .columns = columns_of(block, samples),
        .compute = ctx->settings.compute,
        .multiprocessors = ctx->device.multiprocessors,
        .overlaps = ctx->has_fused_code,
        .weights = weights,
        .x = x,
    };
}

static tlob_status forward_fused(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                 int64_t samples, float *y) {
    const tlob_space *space = block->ctx->space;
    tlob_block_fused_args args = fused_args(block, weights, x, samples);
    if (samples == 0)
        return TLOB_OK;
    args.y = y;
    args.focus = block->inference ? NULL : tlob_floats(block->rows);
    return tlob_fail_cuda(space, space->kernels->block_forward(stream->cuda_stream, &args), "kernel block_forward");
}

static tlob_status forward(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                           int64_t samples, float *y) {
    const int64_t columns = columns_of(block, samples);
    const tlob_attend_args args = attend_args(block, samples);
    tlob_status status = project(block, stream, weights, x, columns);
    if (status == TLOB_OK)
        status = tlob_attend_forward(stream, &args);
    if (status == TLOB_OK)
        status = project_out(block, stream, weights + 3 * projection_count(&block->shape), columns, y);
    return status;
}

tlob_status tlob_block_forward(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                               int64_t samples, float *y) {
    const char *where = "tlob_block_forward";
    tlob_status status = check_call(block, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_forward(stream, weights, x, samples, block->max_samples, y, where);
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(block->ctx, &previous)) != TLOB_OK)
        return status;
    block->samples = TLOB_NO_PASS; /* until all of it is there: a backward pass must not meet one half */
    tlob_range_push(where);
    status = block->plan == TLOB_PLAN_FUSED ? forward_fused(block, stream, weights, x, samples, y)
                                            : forward(block, stream, weights, x, samples, y);
    tlob_range_pop();
    if (status == TLOB_OK)
        block->samples = samples;
    block->weights = weights;
    tlob_leave(block->ctx, previous);
    return status;
}

/* --- backward -------------------------------------------------------------------------------------------------- */

/* dO = W_O^T dY and, unless dw_o is NULL, dW_O = dY O^T. */
static tlob_status backward_out(const tlob_block *block, tlob_stream *stream, const float *w_o, const float *dy,
                                int64_t columns, float *dw_o) {
    const int64_t d_out = block->shape.d_out;
    tlob_gemm g = tlob_gemm_init(d_out, columns, d_out);
    g.transa = TLOB_OP_T;
    const tlob_gemm_operands to_o = {.a = w_o, .b = dy, .d = tlob_floats(block->d_o)};
    tlob_status status = tlob_gemm_run(stream, &g, &to_o);
    if (status != TLOB_OK || !dw_o)
        return status;
    g = tlob_gemm_init(d_out, d_out, columns);
    g.transb = TLOB_OP_T;
    g.ldb = d_out;
    const tlob_gemm_operands to_w = {.a = dy, .b = tlob_floats(block->o), .d = dw_o};
    return tlob_gemm_run(stream, &g, &to_w);
}

/* dW_{Q,K,V} = d{Q,K,V} X^T: [d_out, d_in] each, as the weights lie. */
static tlob_status backward_weights(const tlob_block *block, tlob_stream *stream, const float *x, int64_t columns,
                                    float *dweights) {
    const tlob_block_shape *s = &block->shape;
    tlob_gemm g = tlob_gemm_init(s->d_out, s->d_in, columns);
    g.transb = TLOB_OP_T;
    g.ldb = s->d_in;
    g.batch = 3;
    g.stride_a = s->d_out * columns;
    g.stride_b = 0;
    g.stride_c = projection_count(s);
    const tlob_gemm_operands operands = {.a = tlob_floats(block->d_proj), .b = x, .d = dweights};
    return tlob_gemm_run(stream, &g, &operands);
}

/* dX = W_Q^T dQ + W_K^T dK + W_V^T dV: three products, the later two added to the first. One product would need the
 * weights, or their gradients, stacked by rows. */
static tlob_status backward_input(const tlob_block *block, tlob_stream *stream, const float *weights, int64_t columns,
                                  float *dx) {
    const tlob_block_shape *s = &block->shape;
    tlob_status status = TLOB_OK;
    for (int i = 0; i < 3 && status == TLOB_OK; i++) {
        tlob_gemm g = tlob_gemm_init(s->d_in, columns, s->d_out);
        g.transa = TLOB_OP_T;
        g.lda = s->d_out;
        g.beta = i == 0 ? 0.0f : 1.0f;
        const tlob_gemm_operands operands = {
            .a = weights + i * projection_count(s),
            .b = tlob_floats(block->d_proj) + i * s->d_out * columns,
            .c = dx,
            .d = dx,
        };
        status = tlob_gemm_run(stream, &g, &operands);
    }
    return status;
}

static tlob_status backward(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                            const float *dy, float *dweights, float *dx) {
    const int64_t columns = columns_of(block, block->samples), w_o = 3 * projection_count(&block->shape);
    const tlob_attend_args args = attend_args(block, block->samples);
    tlob_status status = backward_out(block, stream, weights + w_o, dy, columns, dweights ? dweights + w_o : NULL);
    if (status == TLOB_OK)
        status = tlob_attend_backward(stream, &args);
    if (status == TLOB_OK && dweights)
        status = backward_weights(block, stream, x, columns, dweights);
    if (status == TLOB_OK && dx)
        status = backward_input(block, stream, weights, columns, dx);
    return status;
}

/* The chunks' gradients of the weights to `partial`, or none where that is NULL. */
static tlob_status backward_chunks(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                   const float *dy, float *partial, float *dx) {
    const tlob_space *space = block->ctx->space;
    tlob_block_fused_args args = fused_args(block, weights, x, block->samples);
    args.settled = weights == block->weights;
    args.dy = dy;
    args.partial = partial;
    args.dx = dx;
    return tlob_fail_cuda(space, space->kernels->block_backward(stream->cuda_stream, &args), "kernel block_backward");
}

/* What backward_chunks leaves in the block's own memory. */
static tlob_chunked chunked_gradients(const tlob_block *block) {
    const tlob_block_shape *s = &block->shape;
    const int64_t tiles = tlob_block_fused_tiles(s, columns_of(block, block->samples));
    return (tlob_chunked){
        .count = tlob_block_weight_count(s),
        .chunks = tlob_chunk_count(tiles, tlob_block_fused_unit(s), TLOB_BLOCK_FUSED_MOST),
        .partial = tlob_floats(block->gradients),
    };
}

static tlob_status backward_fused(const tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                  const float *dy, float *dweights, float *dx) {
    const tlob_space *space = block->ctx->space;
    if (block->samples == 0 && dweights) {
        const size_t bytes = (size_t)tlob_block_weight_count(&block->shape) * sizeof(float);
        return tlob_fail_cuda(space, space->fill(dweights, 0, bytes, stream->cuda_stream), "cudaMemsetAsync");
    }
    if (block->samples == 0)
        return TLOB_OK;
    const tlob_chunked gradients = chunked_gradients(block);
    if (gradients.chunks == 1 || !dweights)
        return backward_chunks(block, stream, weights, x, dy, dweights, dx);
    const tlob_status status = backward_chunks(block, stream, weights, x, dy, tlob_floats(block->gradients), dx);
    return status == TLOB_OK ? tlob_sum_chunks(stream, gradients, gradients.count, dweights, NULL) : status;
}

tlob_status tlob_block_backward_chunked(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                        const float *dy, tlob_chunked *gradients) {
    *gradients = chunked_gradients(block);
    void *previous;
    tlob_status status = tlob_enter(block->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    tlob_range_push("tlob_block_backward");
    status = backward_chunks(block, stream, weights, x, dy, tlob_floats(block->gradients), NULL);
    tlob_range_pop();
    tlob_leave(block->ctx, previous);
    return status;
}

tlob_block_plan tlob_block_plan_of(const tlob_block *block) {
    return block->plan;
}

/* ARGUMENT for what only a block for training has. */
static tlob_status check_training(const tlob_block *block, const char *where) {
    if (!block->inference)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where,
                     "the block was made for inference, and keeps nothing of a forward pass: make one without");
}

tlob_status tlob_block_backward(tlob_block *block, tlob_stream *stream, const float *weights, const float *x,
                                const float *dy, int64_t samples, float *dweights, float *dx) {
    const char *where = "tlob_block_backward";
    tlob_status status = check_call(block, stream, where);
    if (status == TLOB_OK)
        status = check_training(block, where);
    if (status == TLOB_OK)
        status = tlob_check_backward(stream, weights, x, dy, samples, block->samples, dx, where);
    if (status == TLOB_OK && !dweights && !dx)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "dweights and dx are NULL: nothing is asked for");
    if (status == TLOB_OK && dweights)
        status = tlob_check_floats(stream, dweights, where, "dweights");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(block->ctx, &previous)) != TLOB_OK)
        return status;
    tlob_range_push(where);
    status = block->plan == TLOB_PLAN_FUSED ? backward_fused(block, stream, weights, x, dy, dweights, dx)
                                            : backward(block, stream, weights, x, dy, dweights, dx);
    tlob_range_pop();
    tlob_leave(block->ctx, previous);
    return status;
}

/* --- what is inside -------------------------------------------------------------------------------------------- */

tlob_status tlob_block_mean_max(tlob_block *block, tlob_stream *stream, float *value) {
    const char *where = "tlob_block_mean_max";
    tlob_status status = check_call(block, stream, where);
    if (status == TLOB_OK)
        status = check_training(block, where);
    if (status != TLOB_OK)
        return status;
    if (!value)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "value is NULL");
    *value = NAN; /* the mean of no rows */
    if (block->samples <= 0)
        return TLOB_OK;
    const int64_t rows = rows_of(block, block->samples);
    const bool fused = block->plan == TLOB_PLAN_FUSED;
    const float *inv_sum = fused ? tlob_floats(block->rows) : attend_args(block, block->samples).row_inv_sum;
    const int64_t count = fused ? tlob_block_fused_focus(&block->shape, columns_of(block, block->samples)) : rows;
    void *previous;
    if ((status = tlob_enter(block->ctx, &previous)) != TLOB_OK)
        return status;
    status = tlob_row_sum(stream, 1, count, inv_sum, (float)(1.0 / (double)rows), block->partial,
                          tlob_floats(block->mean));
    tlob_leave(block->ctx, previous);
    return status == TLOB_OK ? tlob_download(stream, value, tlob_buffer_data(block->mean), sizeof(*value)) : status;
}

tlob_status tlob_block_get_state(const tlob_block *block, tlob_block_state *state) {
    const char *where = "tlob_block_get_state";
    if (!block || !state)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", block ? "state" : "block");
    tlob_status status = tlob_context_check(block->ctx, where);
    if (status == TLOB_OK)
        status = check_training(block, where);
    if (status == TLOB_OK)
        status = tlob_check_passed(block->samples, where);
    if (status == TLOB_OK && block->plan == TLOB_PLAN_FUSED)
        status = tlob_fail(TLOB_ERR_UNSUPPORTED, where,
                           "a block with plan fused keeps no Q, K, V and O: make one with plan composed");
    if (status != TLOB_OK)
        return status;
    const tlob_attend_args args = attend_args(block, block->samples);
    *state = (tlob_block_state){.q = args.q, .k = args.k, .v = args.v, .o = args.o};
    return TLOB_OK;
}
