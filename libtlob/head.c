#include <math.h>
#include <stdlib.h>

#include "libtlob/kernels/chunks.h"
#include "libtlob/parts.h"

struct tlob_head {
    tlob_context *ctx;
    int64_t features, max_samples;
    int64_t samples;      /* of the last loss; 0 before the first */
    tlob_buffer *dlogits; /* [3, samples] */
    tlob_buffer *partial; /* of the sums over samples: each chunk's */
    tlob_buffer *sums;    /* loss, how many are right, and room for a gradient of the bias that nobody wants */
};

int64_t tlob_head_weight_count(int64_t features) {
    return TLOB_CLASSES * features + TLOB_CLASSES;
}

static tlob_status check_features(int64_t features, const char *where) {
    if (features >= 1 && features <= INT64_MAX / 16 - TLOB_CLASSES)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where, "features is %" PRId64 ", must be from 1 to 2^59", features);
}

tlob_status tlob_head_init_weights(tlob_stream *stream, int64_t features, uint64_t seed, float *weights) {
    const char *where = "tlob_head_init_weights";
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK)
        status = check_features(features, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, where, "weights");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    status = tlob_xavier(stream, features, TLOB_CLASSES, seed, TLOB_SPACE_HEAD, weights);
    if (status == TLOB_OK)
        status = tlob_fill(stream, weights + TLOB_CLASSES * features, 0, TLOB_CLASSES * sizeof(float));
    tlob_leave(stream->ctx, previous);
    return status;
}

static tlob_status create_scratch(tlob_head *head, const char *where) {
    tlob_context *ctx = head->ctx;
    const int64_t most = head->max_samples, rows = tlob_head_weight_count(head->features) + 2;
    const int64_t losses = tlob_chunk_count_most(most, TLOB_XENT_UNIT, TLOB_XENT_MOST) * (TLOB_CLASSES + 2);
    const int64_t chunks = tlob_chunk_count_most(most, TLOB_HEAD_UNIT, TLOB_HEAD_MOST);
    tlob_status status = tlob_create_floats(ctx, TLOB_CLASSES, head->max_samples, where, &head->dlogits);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, rows > losses / chunks ? rows : losses / chunks + 1, chunks, where,
                                    &head->partial);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, 2 + TLOB_CLASSES, 1, where, &head->sums);
    return status;
}

tlob_status tlob_head_create(tlob_context *ctx, int64_t features, int64_t max_samples, tlob_head **out) {
    const char *where = "tlob_head_create";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "head is NULL");
    *out = NULL;
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK)
        status = check_features(features, where);
    if (status != TLOB_OK)
        return status;
    if (max_samples < 1 || max_samples > TLOB_HEAD_SAMPLES_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "max_samples is %" PRId64 ", must be from 1 to %" PRId64,
                         max_samples, TLOB_HEAD_SAMPLES_MAX);
    tlob_head *head = calloc(1, sizeof(*head));
    if (!head)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a head", sizeof(*head));
    head->ctx = ctx;
    head->features = features;
    head->max_samples = max_samples;
    tlob_context_ref(ctx);
    status = create_scratch(head, where);
    if (status != TLOB_OK)
        tlob_head_destroy(&head);
    *out = head;
    return status;
}

void tlob_head_destroy(tlob_head **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_head *head = *ptr;
    *ptr = NULL;
    tlob_buffer_destroy(&head->dlogits);
    tlob_buffer_destroy(&head->partial);
    tlob_buffer_destroy(&head->sums);
    tlob_context_unref(head->ctx);
    free(head);
}

static tlob_status check_call(const tlob_head *head, const tlob_stream *stream, const char *where) {
    if (!head)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "head is NULL");
    return tlob_stream_check_in(stream, head->ctx, where);
}

tlob_status tlob_head_forward(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                              int64_t samples, float *logits) {
    const char *where = "tlob_head_forward";
    tlob_status status = check_call(head, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_samples(samples, 0, head->max_samples, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weights, where, "weights");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, y, where, "y");
    if (status == TLOB_OK && samples > 0)
        status = tlob_check_floats(stream, logits, where, "logits");
    if (status != TLOB_OK)
        return status;
    tlob_gemm g = tlob_gemm_init(TLOB_CLASSES, samples, head->features);
    g.epilogue = TLOB_EPILOGUE_BIAS;
    const tlob_gemm_operands operands = {
        .a = weights,
        .b = y,
        .d = logits,
        .bias = weights + TLOB_CLASSES * head->features,
    };
    return tlob_gemm_run(stream, &g, &operands);
}

/* Loss and hits, summed over the samples, and the gradient of the bias to `dbias`, unless it is NULL. */
static tlob_status measure(const tlob_head *head, tlob_stream *stream, const float *logits, const uint8_t *labels,
                           int64_t samples, float *dbias) {
    const tlob_space *space = head->ctx->space;
    float *figures = tlob_head_figures(head);
    const tlob_xent_args args = {
        .samples = samples,
        .logits = logits,
        .labels = labels,
        .dlogits = dbias ? tlob_floats(head->dlogits) : NULL,
        .partial = tlob_floats(head->partial),
        .dbias = dbias ? dbias : figures + 2,
        .figures = figures,
    };
    const tlob_chunked sums = {
        .count = TLOB_CLASSES + 2,
        .chunks = tlob_chunk_count(samples, TLOB_XENT_UNIT, TLOB_XENT_MOST),
        .partial = args.partial,
    };
    const tlob_status status =
        tlob_fail_cuda(space, space->kernels->cross_entropy(stream->cuda_stream, &args), "kernel cross_entropy");
    if (status != TLOB_OK || sums.chunks == 1)
        return status;
    return tlob_sum_chunks(stream, sums, TLOB_CLASSES, args.dbias, figures);
}

/* dW = dlogits y^T, dy = W^T dlogits. */
static tlob_status backward(const tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                            int64_t samples, float *dweights, float *dy) {
    const float *dlogits = tlob_floats(head->dlogits);
    tlob_gemm g = tlob_gemm_init(TLOB_CLASSES, head->features, samples);
    g.transb = TLOB_OP_T;
    g.ldb = head->features;
    const tlob_gemm_operands to_w = {.a = dlogits, .b = y, .d = dweights};
    tlob_status status = tlob_gemm_run(stream, &g, &to_w);
    if (status != TLOB_OK)
        return status;
    g = tlob_gemm_init(head->features, samples, TLOB_CLASSES);
    g.transa = TLOB_OP_T;
    g.lda = TLOB_CLASSES;
    const tlob_gemm_operands to_y = {.a = weights, .b = dlogits, .d = dy};
    return tlob_gemm_run(stream, &g, &to_y);
}

static tlob_status check_labels(tlob_stream *stream, const uint8_t *labels, const char *where) {
    if (!labels)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "labels is NULL");
    return tlob_check_operand(stream, labels, where, "labels");
}

static tlob_status check_gradients(tlob_stream *stream, const float *weights, const float *y, const float *dweights,
                                   const float *dy, const char *where) {
    tlob_status status = tlob_check_floats(stream, weights, where, "weights");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, y, where, "y");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, dweights, where, "dweights");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, dy, where, "dy");
    return status;
}

static tlob_status check_loss(const tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                              const float *logits, const uint8_t *labels, int64_t samples, const float *dweights,
                              const float *dy) {
    const char *where = "tlob_head_loss";
    tlob_status status = tlob_check_samples(samples, 1, head->max_samples, where);
    if (status == TLOB_OK && !dweights != !dy)
        status =
            tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL and %s is not: give both, or neither for the loss alone",
                      dweights ? "dy" : "dweights", dweights ? "dweights" : "dy");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, logits, where, "logits");
    if (status == TLOB_OK)
        status = check_labels(stream, labels, where);
    return status == TLOB_OK && dweights ? check_gradients(stream, weights, y, dweights, dy, where) : status;
}

tlob_status tlob_head_loss(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                           const float *logits, const uint8_t *labels, int64_t samples, float *dweights, float *dy) {
    tlob_status status = check_call(head, stream, "tlob_head_loss");
    if (status == TLOB_OK)
        status = check_loss(head, stream, weights, y, logits, labels, samples, dweights, dy);
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(head->ctx, &previous)) != TLOB_OK)
        return status;
    head->samples = 0;
    status = measure(head, stream, logits, labels, samples,
                     dweights ? dweights + TLOB_CLASSES * head->features : NULL);
    if (status == TLOB_OK)
        head->samples = samples;
    if (status == TLOB_OK && dweights)
        status = backward(head, stream, weights, y, samples, dweights, dy);
    tlob_leave(head->ctx, previous);
    return status;
}

/* Loss, hits and all gradients in chunks, those of the weights as they lie and the two figures behind them. */
static tlob_status train_chunks(const tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                const uint8_t *labels, int64_t samples, tlob_adam_state *advance, float *dy,
                                tlob_chunked *gradients) {
    const tlob_space *space = head->ctx->space;
    const tlob_head_args args = {
        .samples = samples,
        .features = head->features,
        .weights = weights,
        .y = y,
        .labels = labels,
        .dlogits = tlob_floats(head->dlogits),
        .dy = dy,
        .partial = tlob_floats(head->partial),
        .advance = advance,
        .overlaps = head->ctx->has_fused_code,
    };
    *gradients = (tlob_chunked){
        .count = tlob_head_weight_count(head->features) + 2,
        .chunks = tlob_chunk_count(samples, TLOB_HEAD_UNIT, TLOB_HEAD_MOST),
        .partial = args.partial,
    };
    return tlob_fail_cuda(space, space->kernels->head(stream->cuda_stream, &args), "kernel head");
}

tlob_status tlob_head_train(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                            const uint8_t *labels, int64_t samples, float *dweights, float *dy) {
    const char *where = "tlob_head_train";
    tlob_status status = check_call(head, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_samples(samples, 1, head->max_samples, where);
    if (status == TLOB_OK)
        status = check_labels(stream, labels, where);
    if (status == TLOB_OK)
        status = check_gradients(stream, weights, y, dweights, dy, where);
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(head->ctx, &previous)) != TLOB_OK)
        return status;
    tlob_chunked gradients;
    head->samples = 0;
    status = train_chunks(head, stream, weights, y, labels, samples, NULL, dy, &gradients);
    if (status == TLOB_OK)
        status = tlob_sum_chunks(stream, gradients, gradients.count - 2, dweights, tlob_head_figures(head));
    if (status == TLOB_OK)
        head->samples = samples;
    tlob_leave(head->ctx, previous);
    return status;
}

tlob_status tlob_head_train_chunked(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                    const uint8_t *labels, int64_t samples, tlob_adam *adam, float *dy,
                                    tlob_chunked *gradients) {
    void *previous;
    tlob_status status = tlob_enter(head->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    head->samples = 0;
    status = train_chunks(head, stream, weights, y, labels, samples, tlob_adam_state_of(adam), dy, gradients);
    tlob_leave(head->ctx, previous);
    return status;
}

void tlob_head_set_samples(tlob_head *head, int64_t samples) {
    head->samples = samples;
}

tlob_status tlob_head_logits(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                             int64_t samples, float *logits) {
    const tlob_space *space = head->ctx->space;
    const tlob_head_args args = {
        .samples = samples,
        .features = head->features,
        .weights = weights,
        .y = y,
        .logits = logits,
        .overlaps = head->ctx->has_fused_code,
    };
    void *previous;
    tlob_status status = tlob_enter(head->ctx, &previous);
    if (status != TLOB_OK)
        return status;
    status = tlob_fail_cuda(space, space->kernels->head_logits(stream->cuda_stream, &args), "kernel head_logits");
    tlob_leave(head->ctx, previous);
    return status;
}

float *tlob_head_figures(const tlob_head *head) {
    return tlob_floats(head->sums);
}

tlob_status tlob_head_result(tlob_head *head, tlob_stream *stream, tlob_loss *loss) {
    const char *where = "tlob_head_result";
    tlob_status status = check_call(head, stream, where);
    if (status != TLOB_OK)
        return status;
    if (!loss)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "loss is NULL");
    if (head->samples == 0)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "the head holds no loss: call tlob_head_loss first");
    float sums[2];
    status = tlob_download(stream, sums, tlob_buffer_data(head->sums), sizeof(sums));
    if (status == TLOB_OK)
        *loss = (tlob_loss){.loss = (float)((double)sums[0] / (double)head->samples), .correct = (int64_t)sums[1]};
    return status;
}

tlob_status tlob_labels_check(const uint8_t *labels, int64_t count) {
    const char *where = "tlob_labels_check";
    if (count < 0)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "count is %" PRId64 ", must be at least 0", count);
    if (!labels && count > 0)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "labels is NULL");
    for (int64_t i = 0; i < count; i++) {
        if (labels[i] >= TLOB_CLASSES)
            return tlob_fail(TLOB_ERR_LABEL, where,
                             "label %" PRId64 " is %d, must be 0 (up), 1 (stationary) or 2 (down)", i, labels[i]);
    }
    return TLOB_OK;
}
