#include <math.h>
#include <stdlib.h>

#include "libtlob/parts.h"
#include "libtlob/range.h"

struct tlob_mha {
    tlob_context *ctx;
    tlob_mha_shape shape;
    tlob_mha_projection projection;
    int64_t max_samples;
    int64_t samples;    /* of the last forward pass, or TLOB_NO_PASS */
    tlob_buffer *qkv;   /* [3 dim, N]: Q, K and V are row slices */
    tlob_buffer *o;     /* [dim, N] */
    tlob_buffer *d_qkv; /* gradients, laid out likewise */
    tlob_buffer *d_o;
    tlob_buffer *rows;    /* row_max, row_inv_sum, row_dot: one float for each softmax row */
    tlob_buffer *partial; /* of the sums behind the bias gradients */
};

/* --- shapes ---------------------------------------------------------------------------------------------------- */

/* The largest products that the rest of this file forms without a check: the bytes of the parameters, 16*dim*(dim + 1),
 * and those of [3 dim, seq]. */
static bool sizes_fit(const tlob_mha_shape *s) {
    int64_t bytes, product;
    return tlob_mul(s->dim, 16, &bytes) && tlob_mul(bytes, s->dim + 1, &product) && tlob_mul(bytes, s->seq, &product);
}

tlob_status tlob_mha_shape_check(const tlob_mha_shape *shape) {
    const char *where = "tlob_mha_shape_check";
    if (!shape)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "shape is NULL");
    tlob_status status = tlob_check_positive(shape->dim, where, "dim");
    if (status == TLOB_OK)
        status = tlob_check_positive(shape->heads, where, "heads");
    if (status == TLOB_OK)
        status = tlob_check_positive(shape->seq, where, "seq");
    if (status != TLOB_OK)
        return status;
    if (shape->dim % shape->heads)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "heads is %" PRId64 ", which does not divide dim, %" PRId64,
                         shape->heads, shape->dim);
    if (shape->dim / shape->heads > TLOB_MHA_HEAD_DIM_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "heads is %" PRId64 ", which leaves %" PRId64 " of dim %" PRId64 " to each head: at most %d",
                         shape->heads, shape->dim / shape->heads, shape->dim, TLOB_MHA_HEAD_DIM_MAX);
    if (!sizes_fit(shape))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "dim %" PRId64 " and seq %" PRId64 " make arrays of more than 2^63 bytes", shape->dim,
                         shape->seq);
    return TLOB_OK;
}

/* Where the parameters, and their gradients, begin in a flat array; W_in does at 0. */
typedef struct places {
    int64_t b_in, w_out, b_out, end;
} places;

static places places_of(const tlob_mha_shape *s) {
    places p = {.b_in = 3 * s->dim * s->dim};
    p.w_out = p.b_in + 3 * s->dim;
    p.b_out = p.w_out + s->dim * s->dim;
    p.end = p.b_out + s->dim;
    return p;
}

int64_t tlob_mha_weight_count(const tlob_mha_shape *shape) {
    return places_of(shape).end;
}

/* --- weights --------------------------------------------------------------------------------------------------- */

static tlob_status init_weights(tlob_stream *stream, const tlob_mha_shape *s, uint64_t seed, float *weights) {
    const places at = places_of(s);
    tlob_status status = tlob_xavier(stream, s->dim, 3 * s->dim, seed, TLOB_SPACE_MHA_IN, weights);
    if (status == TLOB_OK)
        status = tlob_fill(stream, weights + at.b_in, 0, (size_t)(3 * s->dim) * sizeof(float));
    if (status == TLOB_OK)
        status = tlob_uniform(stream, s->dim * s->dim, 1.0 / sqrt((double)s->dim), seed, TLOB_SPACE_MHA_OUT,
                              weights + at.w_out);
    if (status == TLOB_OK)
        status = tlob_fill(stream, weights + at.b_out, 0, (size_t)s->dim * sizeof(float));
    return status;
}

tlob_status tlob_mha_init_weights(tlob_stream *stream, const tlob_mha_shape *shape, uint64_t seed, float *weights) {
    const char *where = "tlob_mha_init_weights";
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK)
        status = tlob_mha_shape_check(shape);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, where, "weights");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    status = init_weights(stream, shape, seed, weights);
    tlob_leave(stream->ctx, previous);
    return status;
}

/* --- life ------------------------------------------------------------------------------------------------------ */

/* All scratch, each array of exactly its size, so that an overrun is one for a memory checker too. */
static tlob_status create_scratch(tlob_mha *mha, const char *where) {
    const tlob_mha_shape *s = &mha->shape;
    tlob_context *ctx = mha->ctx;
    int64_t columns, bytes;
    if (!tlob_mul(mha->max_samples, s->seq, &columns) || !tlob_mul(columns, 16 * s->dim, &bytes))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "max_samples is %" PRId64 ": with seq %" PRId64 " and dim %" PRId64
                         " an array would exceed 2^63 bytes",
                         mha->max_samples, s->seq, s->dim);
    tlob_status status = tlob_create_floats(ctx, 3 * s->dim, columns, where, &mha->qkv);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, s->dim, columns, where, &mha->o);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, 3 * s->dim, columns, where, &mha->d_qkv);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, s->dim, columns, where, &mha->d_o);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, 3, s->heads * columns, where, &mha->rows);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, 1, tlob_row_sum_scratch(3 * s->dim, columns), where, &mha->partial);
    return status;
}

tlob_status tlob_mha_create(tlob_context *ctx, const tlob_mha_shape *shape, tlob_mha_projection projection,
                            int64_t max_samples, tlob_mha **out) {
    const char *where = "tlob_mha_create";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "mha is NULL");
    *out = NULL;
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK)
        status = tlob_mha_shape_check(shape);
    if (status == TLOB_OK && (unsigned)projection > TLOB_MHA_SEPARATE)
        status =
            tlob_fail(TLOB_ERR_ARGUMENT, where, "projection is %d, which is no tlob_mha_projection", (int)projection);
    if (status == TLOB_OK)
        status = tlob_check_positive(max_samples, where, "max_samples");
    if (status != TLOB_OK)
        return status;
    tlob_mha *mha = calloc(1, sizeof(*mha));
    if (!mha)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for an attention", sizeof(*mha));
    mha->ctx = ctx;
    mha->shape = *shape;
    mha->projection = projection;
    mha->max_samples = max_samples;
    mha->samples = TLOB_NO_PASS;
    tlob_context_ref(ctx);
    status = create_scratch(mha, where);
    if (status != TLOB_OK)
        tlob_mha_destroy(&mha);
    *out = mha;
    return status;
}

void tlob_mha_destroy(tlob_mha **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_mha *mha = *ptr;
    *ptr = NULL;
    tlob_buffer_destroy(&mha->qkv);
    tlob_buffer_destroy(&mha->o);
    tlob_buffer_destroy(&mha->d_qkv);
    tlob_buffer_destroy(&mha->d_o);
    tlob_buffer_destroy(&mha->rows);
    tlob_buffer_destroy(&mha->partial);
    tlob_context_unref(mha->ctx);
    free(mha);
}

static tlob_status check_call(const tlob_mha *mha, const tlob_stream *stream, const char *where) {
    if (!mha)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "mha is NULL");
    return tlob_stream_check_in(stream, mha->ctx, where);
}

/* --- products -------------------------------------------------------------------------------------------------- */

/* One product with its operands. */
typedef struct product {
    tlob_gemm gemm;
    tlob_gemm_operands x;
} product;

/* y = W x + b, W [out, in] as torch keeps it. */
static product affine(int64_t out, int64_t in, int64_t n, const float *w, const float *b, const float *x, float *y) {
    product p = {tlob_gemm_init(out, n, in), {.a = w, .b = x, .d = y, .bias = b}};
    p.gemm.transa = TLOB_OP_T;
    p.gemm.lda = in;
    p.gemm.epilogue = TLOB_EPILOGUE_BIAS;
    return p;
}

/* dW = dy x^T, as W. */
static product to_weight(int64_t out, int64_t in, int64_t n, const float *x, const float *dy, float *dw) {
    product p = {tlob_gemm_init(in, out, n), {.a = x, .b = dy, .d = dw}};
    p.gemm.transb = TLOB_OP_T;
    p.gemm.ldb = out;
    return p;
}

/* dx = W^T dy. */
static product to_input(int64_t out, int64_t in, int64_t n, const float *w, const float *dy, float *dx) {
    return (product){tlob_gemm_init(in, n, out), {.a = w, .b = dy, .c = dx, .d = dx}};
}

/* W_in, and with it [3 dim, N], in one piece or in three slices of rows. */
static int64_t slices_of(const tlob_mha *mha) {
    return mha->projection == TLOB_MHA_SEPARATE ? 3 : 1;
}

/* [Q; K; V] = W_in X + b_in. */
static tlob_status project_in(const tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x,
                              int64_t columns) {
    const int64_t dim = mha->shape.dim, rows = 3 * dim / slices_of(mha);
    const float *b_in = weights + places_of(&mha->shape).b_in;
    tlob_status status = TLOB_OK;
    for (int64_t row = 0; row < 3 * dim && status == TLOB_OK; row += rows) {
        product p = affine(rows, dim, columns, weights + row * dim, b_in + row, x, tlob_floats(mha->qkv) + row);
        p.gemm.ldc = 3 * dim;
        status = tlob_gemm_run(stream, &p.gemm, &p.x);
    }
    return status;
}

/* dW_in = d[Q; K; V] X^T. */
static tlob_status backward_in(const tlob_mha *mha, tlob_stream *stream, const float *x, int64_t columns,
                               float *dweights) {
    const int64_t dim = mha->shape.dim, rows = 3 * dim / slices_of(mha);
    tlob_status status = TLOB_OK;
    for (int64_t row = 0; row < 3 * dim && status == TLOB_OK; row += rows) {
        product p = to_weight(rows, dim, columns, x, tlob_floats(mha->d_qkv) + row, dweights + row * dim);
        p.gemm.ldb = 3 * dim;
        status = tlob_gemm_run(stream, &p.gemm, &p.x);
    }
    return status;
}

/* dX = W_in^T d[Q; K; V]: of three slices the later two are added to the first. */
static tlob_status backward_input(const tlob_mha *mha, tlob_stream *stream, const float *weights, int64_t columns,
                                  float *dx) {
    const int64_t dim = mha->shape.dim, rows = 3 * dim / slices_of(mha);
    tlob_status status = TLOB_OK;
    for (int64_t row = 0; row < 3 * dim && status == TLOB_OK; row += rows) {
        product p = to_input(rows, dim, columns, weights + row * dim, tlob_floats(mha->d_qkv) + row, dx);
        p.gemm.ldb = 3 * dim;
        p.gemm.beta = row == 0 ? 0.0f : 1.0f;
        status = tlob_gemm_run(stream, &p.gemm, &p.x);
    }
    return status;
}

/* --- forward --------------------------------------------------------------------------------------------------- */

static int64_t columns_of(const tlob_mha *mha, int64_t samples) {
    return samples * mha->shape.seq;
}

/* The attention of `samples` samples, with every pointer that either pass needs: a group is a head of a sample. */
static tlob_attend_args attend_args(const tlob_mha *mha, int64_t samples) {
    const tlob_mha_shape *s = &mha->shape;
    const int64_t dim = s->dim, head_dim = dim / s->heads, rows = columns_of(mha, samples) * s->heads;
    float *qkv = tlob_floats(mha->qkv), *d_qkv = tlob_floats(mha->d_qkv), *stats = tlob_floats(mha->rows);
    return (tlob_attend_args){
        .groups = samples * s->heads,
        .tokens = s->seq,
        .head_dim = head_dim,
        .inner = s->heads,
        .in = {.inner_stride = head_dim, .outer_stride = 3 * dim * s->seq, .token_stride = 3 * dim},
        .out = {.inner_stride = head_dim, .outer_stride = dim * s->seq, .token_stride = dim},
        .compute = mha->ctx->settings.compute,
        .q = qkv,
        .k = qkv + dim,
        .v = qkv + 2 * dim,
        .o = tlob_floats(mha->o),
        .row_max = stats,
        .row_inv_sum = stats + rows,
        .row_dot = stats + 2 * rows,
        .d_o = tlob_floats(mha->d_o),
        .dq = d_qkv,
        .dk = d_qkv + dim,
        .dv = d_qkv + 2 * dim,
    };
}

static tlob_status forward(const tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x,
                           int64_t samples, float *y) {
    const int64_t dim = mha->shape.dim, columns = columns_of(mha, samples);
    const places at = places_of(&mha->shape);
    const tlob_attend_args args = attend_args(mha, samples);
    tlob_status status = project_in(mha, stream, weights, x, columns);
    if (status == TLOB_OK)
        status = tlob_attend_forward(stream, &args);
    if (status != TLOB_OK)
        return status;
    const product p = affine(dim, dim, columns, weights + at.w_out, weights + at.b_out, args.o, y);
    return tlob_gemm_run(stream, &p.gemm, &p.x);
}

tlob_status tlob_mha_forward(tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x, int64_t samples,
                             float *y) {
    const char *where = "tlob_mha_forward";
    tlob_status status = check_call(mha, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_forward(stream, weights, x, samples, mha->max_samples, y, where);
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(mha->ctx, &previous)) != TLOB_OK)
        return status;
    mha->samples = TLOB_NO_PASS; /* until all of it is there: a backward pass must not meet one half */
    tlob_range_push(where);
    status = forward(mha, stream, weights, x, samples, y);
    tlob_range_pop();
    if (status == TLOB_OK)
        mha->samples = samples;
    tlob_leave(mha->ctx, previous);
    return status;
}

/* --- backward -------------------------------------------------------------------------------------------------- */

/* dO = W_out^T dY, dW_out = dY O^T and db_out = rowsum(dY). */
static tlob_status backward_out(const tlob_mha *mha, tlob_stream *stream, const float *weights, const float *dy,
                                int64_t columns, float *dweights) {
    const int64_t dim = mha->shape.dim;
    const places at = places_of(&mha->shape);
    const product to_o = to_input(dim, dim, columns, weights + at.w_out, dy, tlob_floats(mha->d_o));
    const product to_w = to_weight(dim, dim, columns, tlob_floats(mha->o), dy, dweights + at.w_out);
    tlob_status status = tlob_gemm_run(stream, &to_o.gemm, &to_o.x);
    if (status == TLOB_OK)
        status = tlob_gemm_run(stream, &to_w.gemm, &to_w.x);
    if (status == TLOB_OK)
        status = tlob_row_sum(stream, dim, columns, dy, 1.0f, mha->partial, dweights + at.b_out);
    return status;
}

static tlob_status backward(const tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x,
                            const float *dy, float *dweights, float *dx) {
    const int64_t columns = columns_of(mha, mha->samples);
    const tlob_attend_args args = attend_args(mha, mha->samples);
    tlob_status status = backward_out(mha, stream, weights, dy, columns, dweights);
    if (status == TLOB_OK)
        status = tlob_attend_backward(stream, &args);
    if (status == TLOB_OK)
        status = backward_in(mha, stream, x, columns, dweights);
    if (status == TLOB_OK)
        status = tlob_row_sum(stream, 3 * mha->shape.dim, columns, tlob_floats(mha->d_qkv), 1.0f, mha->partial,
                              dweights + places_of(&mha->shape).b_in);
    if (status == TLOB_OK && dx)
        status = backward_input(mha, stream, weights, columns, dx);
    return status;
}

tlob_status tlob_mha_backward(tlob_mha *mha, tlob_stream *stream, const float *weights, const float *x, const float *dy,
                              int64_t samples, float *dweights, float *dx) {
    const char *where = "tlob_mha_backward";
    tlob_status status = check_call(mha, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_backward(stream, weights, x, dy, samples, mha->samples, dx, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, dweights, where, "dweights");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(mha->ctx, &previous)) != TLOB_OK)
        return status;
    tlob_range_push(where);
    status = backward(mha, stream, weights, x, dy, dweights, dx);
    tlob_range_pop();
    tlob_leave(mha->ctx, previous);
    return status;
}

/* --- what is inside -------------------------------------------------------------------------------------------- */

tlob_status tlob_mha_get_state(const tlob_mha *mha, tlob_mha_state *state) {
    const char *where = "tlob_mha_get_state";
    if (!mha || !state)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", mha ? "state" : "mha");
    tlob_status status = tlob_context_check(mha->ctx, where);
    if (status == TLOB_OK)
        status = tlob_check_passed(mha->samples, where);
    if (status != TLOB_OK)
        return status;
    const tlob_attend_args args = attend_args(mha, mha->samples);
    *state = (tlob_mha_state){.q = args.q, .k = args.k, .v = args.v, .ld = args.in.token_stride, .o = args.o};
    return TLOB_OK;
}
