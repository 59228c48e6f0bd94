#include <stdlib.h>

#include "libtlob/parts.h"

struct tlob_model {
    tlob_context *ctx;
    tlob_block_shape shape;
    int64_t max_samples;
    tlob_block *block;
    tlob_head *head;
    tlob_adam *adam;
    tlob_buffer *weights;   /* [W_Q | W_K | W_V | W_O | W_head | b_head] */
    tlob_buffer *gradients; /* likewise, of composed steps */
    tlob_buffer *y, *dy;    /* between block and head: [d_out * seq, samples] */
    tlob_buffer *logits;    /* of composed steps */
};

tlob_model_params tlob_model_params_default(void) {
    return (tlob_model_params){
        .shape = tlob_block_shape_default(),
        .adam = tlob_adam_params_default(),
        .max_samples = 256,
        .seed = 1,
    };
}

/* What the head sees: the columns of one sample, one below the other. */
static int64_t features_of(const tlob_block_shape *shape) {
    return shape->d_out * shape->seq;
}

int64_t tlob_model_weight_count(const tlob_block_shape *shape) {
    return tlob_block_weight_count(shape) + tlob_head_weight_count(features_of(shape));
}

/* Whether steps take few kernels, which leave neither gradients nor logits in memory. */
static bool is_fused(const tlob_model *model) {
    return tlob_block_plan_of(model->block) == TLOB_PLAN_FUSED;
}

static tlob_status create_composed(tlob_model *model, int64_t weights, const char *where) {
    tlob_status status = tlob_create_floats(model->ctx, weights, 1, where, &model->gradients);
    return status == TLOB_OK
               ? tlob_create_floats(model->ctx, TLOB_CLASSES, model->max_samples, where, &model->logits)
               : status;
}

static tlob_status create_parts(tlob_model *model, const tlob_model_params *params, const char *where) {
    tlob_context *ctx = model->ctx;
    const tlob_block_shape *shape = &model->shape;
    const int64_t count = tlob_model_weight_count(shape), features = features_of(shape);
    tlob_status status = tlob_block_create(ctx, shape, model->max_samples, &model->block);
    if (status == TLOB_OK)
        status = tlob_head_create(ctx, features, model->max_samples, &model->head);
    if (status == TLOB_OK)
        status = tlob_adam_create(ctx, count, &params->adam, &model->adam);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, count, 1, where, &model->weights);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, features, model->max_samples, where, &model->y);
    if (status == TLOB_OK)
        status = tlob_create_floats(ctx, features, model->max_samples, where, &model->dy);
    return status == TLOB_OK && !is_fused(model) ? create_composed(model, count, where) : status;
}

/* The head's part of an array laid out as the parameters are. */
static float *head_part(const tlob_model *model, const tlob_buffer *parameters) {
    return tlob_floats(parameters) + tlob_block_weight_count(&model->shape);
}

static tlob_status init_weights(tlob_model *model, tlob_stream *stream, uint64_t seed) {
    tlob_status status = tlob_block_init_weights(stream, &model->shape, seed, tlob_floats(model->weights));
    if (status == TLOB_OK)
        status = tlob_head_init_weights(stream, features_of(&model->shape), seed, head_part(model, model->weights));
    return status;
}

tlob_status tlob_model_create(tlob_stream *stream, const tlob_model_params *params, tlob_model **out) {
    const char *where = "tlob_model_create";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "model is NULL");
    *out = NULL;
    tlob_status status = tlob_stream_check(stream, where);
    if (status != TLOB_OK)
        return status;
    if (!params)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "params is NULL");
    if ((status = tlob_block_shape_check(&params->shape)) != TLOB_OK)
        return status;
    tlob_model *model = calloc(1, sizeof(*model));
    if (!model)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%zu bytes for a model", sizeof(*model));
    model->ctx = stream->ctx;
    model->shape = params->shape;
    model->max_samples = params->max_samples;
    tlob_context_ref(model->ctx);
    status = create_parts(model, params, where);
    if (status == TLOB_OK)
        status = init_weights(model, stream, params->seed);
    if (status != TLOB_OK)
        tlob_model_destroy(&model);
    *out = model;
    return status;
}

void tlob_model_destroy(tlob_model **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_model *model = *ptr;
    *ptr = NULL;
    tlob_block_destroy(&model->block);
    tlob_head_destroy(&model->head);
    tlob_adam_destroy(&model->adam);
    tlob_buffer_destroy(&model->weights);
    tlob_buffer_destroy(&model->gradients);
    tlob_buffer_destroy(&model->y);
    tlob_buffer_destroy(&model->dy);
    tlob_buffer_destroy(&model->logits);
    tlob_context_unref(model->ctx);
    free(model);
}

static tlob_status check_call(const tlob_model *model, const tlob_stream *stream, const char *where) {
    if (!model)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "model is NULL");
    return tlob_stream_check_in(stream, model->ctx, where);
}

static tlob_status check_x(const tlob_model *model, tlob_stream *stream, const float *x, int64_t samples,
                           const char *where) {
    tlob_status status = check_call(model, stream, where);
    if (status == TLOB_OK)
        status = tlob_check_samples(samples, 1, model->max_samples, where);
    return status == TLOB_OK ? tlob_check_floats(stream, x, where, "x") : status;
}

/* All that a step or an evaluation is given, before anything is enqueued. */
static tlob_status check_batch(const tlob_model *model, tlob_stream *stream, const float *x,
                               const uint8_t *labels, int64_t samples, const char *where) {
    tlob_status status = check_x(model, stream, x, samples, where);
    if (status == TLOB_OK && !labels)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "labels is NULL");
    if (status == TLOB_OK)
        status = tlob_check_operand(stream, labels, where, "labels");
    return status;
}

static tlob_status forward(tlob_model *model, tlob_stream *stream, const float *x, int64_t samples, float *logits) {
    float *y = tlob_floats(model->y);
    tlob_status status = tlob_block_forward(model->block, stream, tlob_floats(model->weights), x, samples, y);
    if (status != TLOB_OK)
        return status;
    const float *weights = head_part(model, model->weights);
    return is_fused(model) ? tlob_head_logits(model->head, stream, weights, y, samples, logits)
                           : tlob_head_forward(model->head, stream, weights, y, samples, logits);
}

/* A step of calls that are there for everybody. */
static tlob_status step_composed(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                                 int64_t samples) {
    float *weights = tlob_floats(model->weights), *gradients = tlob_floats(model->gradients);
    float *logits = tlob_floats(model->logits), *y = tlob_floats(model->y), *dy = tlob_floats(model->dy);
    tlob_status status = forward(model, stream, x, samples, logits);
    if (status == TLOB_OK)
        status = tlob_head_loss(model->head, stream, head_part(model, model->weights), y, logits, labels, samples,
                                head_part(model, model->gradients), dy);
    if (status == TLOB_OK)
        status = tlob_block_backward(model->block, stream, weights, x, dy, samples, gradients, NULL);
    if (status == TLOB_OK)
        status = tlob_adam_step(model->adam, stream, weights, gradients);
    return status;
}

/* A step of four kernels: the block's passes, the head with its loss, and the optimizer, which adds gradients up. */
static tlob_status step_fused(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                              int64_t samples) {
    float *weights = tlob_floats(model->weights), *y = tlob_floats(model->y), *dy = tlob_floats(model->dy);
    tlob_chunked gradients[2];
    tlob_status status = tlob_block_forward(model->block, stream, weights, x, samples, y);
    if (status == TLOB_OK)
        status = tlob_head_train_chunked(model->head, stream, head_part(model, model->weights), y, labels, samples,
                                         model->adam, dy, &gradients[1]);
    if (status == TLOB_OK)
        status = tlob_block_backward_chunked(model->block, stream, weights, x, dy, &gradients[0]);
    if (status == TLOB_OK)
        status = tlob_adam_step_chunked(model->adam, stream, weights, gradients, tlob_head_figures(model->head));
    if (status == TLOB_OK)
        tlob_head_set_samples(model->head, samples);
    return status;
}

tlob_status tlob_model_step(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                            int64_t samples) {
    tlob_status status = check_batch(model, stream, x, labels, samples, "tlob_model_step");
    if (status != TLOB_OK)
        return status;
    return is_fused(model) ? step_fused(model, stream, x, labels, samples)
                           : step_composed(model, stream, x, labels, samples);
}

tlob_status tlob_model_set_lr(tlob_model *model, tlob_stream *stream, float lr) {
    tlob_status status = check_call(model, stream, "tlob_model_set_lr");
    return status == TLOB_OK ? tlob_adam_set_lr(model->adam, stream, lr) : status;
}

tlob_status tlob_model_evaluate(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                                int64_t samples, float *logits) {
    const char *where = "tlob_model_evaluate";
    tlob_status status = check_batch(model, stream, x, labels, samples, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, logits, where, "logits");
    if (status == TLOB_OK)
        status = forward(model, stream, x, samples, logits);
    if (status == TLOB_OK)
        status = tlob_head_loss(model->head, stream, NULL, NULL, logits, labels, samples, NULL, NULL);
    return status;
}

tlob_status tlob_model_predict(tlob_model *model, tlob_stream *stream, const float *x, int64_t samples, float *logits) {
    const char *where = "tlob_model_predict";
    tlob_status status = check_x(model, stream, x, samples, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, logits, where, "logits");
    return status == TLOB_OK ? forward(model, stream, x, samples, logits) : status;
}

tlob_status tlob_model_result(tlob_model *model, tlob_stream *stream, tlob_model_figures *figures) {
    const char *where = "tlob_model_result";
    tlob_status status = check_call(model, stream, where);
    if (status != TLOB_OK)
        return status;
    if (!figures)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "figures is NULL");
    tlob_loss loss;
    float mean_max;
    status = tlob_head_result(model->head, stream, &loss);
    if (status == TLOB_OK)
        status = tlob_block_mean_max(model->block, stream, &mean_max);
    if (status == TLOB_OK)
        *figures = (tlob_model_figures){.loss = loss.loss, .mean_max = mean_max, .correct = loss.correct};
    return status;
}

/* Ready for a copy of all parameters from or to `host`. */
static tlob_status check_copy(const tlob_model *model, const tlob_stream *stream, const float *host, int64_t count,
                              const char *where) {
    tlob_status status = check_call(model, stream, where);
    if (status != TLOB_OK)
        return status;
    if (!host)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "weights is NULL");
    if (count != tlob_model_weight_count(&model->shape))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "count is %" PRId64 ", and the model has %" PRId64 " parameters",
                         count, tlob_model_weight_count(&model->shape));
    return TLOB_OK;
}

tlob_status tlob_model_get_weights(tlob_model *model, tlob_stream *stream, float *weights, int64_t count) {
    tlob_status status = check_copy(model, stream, weights, count, "tlob_model_get_weights");
    if (status != TLOB_OK)
        return status;
    return tlob_download(stream, weights, tlob_buffer_data(model->weights), tlob_buffer_bytes(model->weights));
}

tlob_status tlob_model_set_weights(tlob_model *model, tlob_stream *stream, const float *weights, int64_t count) {
    tlob_status status = check_copy(model, stream, weights, count, "tlob_model_set_weights");
    if (status != TLOB_OK)
        return status;
    return tlob_upload(stream, tlob_buffer_data(model->weights), weights, tlob_buffer_bytes(model->weights));
}

tlob_status tlob_model_get_optimizer(tlob_model *model, tlob_stream *stream, float *moments, int64_t count,
                                     int64_t *steps) {
    tlob_status status = check_call(model, stream, "tlob_model_get_optimizer");
    return status == TLOB_OK ? tlob_adam_get_state(model->adam, stream, moments, count, steps) : status;
}

tlob_status tlob_model_set_optimizer(tlob_model *model, tlob_stream *stream, const float *moments, int64_t count,
                                     int64_t steps) {
    tlob_status status = check_call(model, stream, "tlob_model_set_optimizer");
    return status == TLOB_OK ? tlob_adam_set_state(model->adam, stream, moments, count, steps) : status;
}
