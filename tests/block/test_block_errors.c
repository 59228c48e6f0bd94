/* Arguments that cannot be, and contexts that are gone, at every entry of the block, the head, Adam and the model. */
#include <math.h>

#include "tests/block/lab.h"

static lab host;

static void open_host(void) {
    lab_open_host(&host);
}

static void close_host(void) {
    lab_close(&host);
}

TestSuite(block_errors, .init = open_host, .fini = close_host);

Test(block_errors, shapes) {
    const tlob_block_shape good = tlob_block_shape_default();
    const struct {
        const char *word;
        tlob_block_shape shape;
    } bad[] = {
        {"d_in", {0, 16, 4, 1, TLOB_AXIS_FEATURE}},
        {"d_out", {32, -1, 4, 1, TLOB_AXIS_FEATURE}},
        {"seq", {32, 16, 4, 0, TLOB_AXIS_TIME}},
        {"head_dim", {32, 16, 0, 1, TLOB_AXIS_FEATURE}},
        {"head_dim", {32, 128, 65, 1, TLOB_AXIS_FEATURE}},
        {"divide", {32, 16, 5, 1, TLOB_AXIS_FEATURE}},
        {"axis", {32, 16, 4, 1, (tlob_axis)2}},
        {"2^63", {HUGE_SIZE, 16, 4, 1, TLOB_AXIS_FEATURE}},
        {"2^63", {32, HUGE_SIZE, 4, 1, TLOB_AXIS_FEATURE}},
        {"2^63", {32, 16, 4, HUGE_SIZE, TLOB_AXIS_FEATURE}},
        {"2^63", {INT64_MAX, 16, 4, 1, TLOB_AXIS_FEATURE}},
    };
    cr_assert_eq(tlob_block_shape_check(&good), TLOB_OK);
    BAD("shape", tlob_block_shape_check(NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tlob_block *block;
        tlob_model *model;
        tlob_model_params params = tlob_model_params_default();
        params.shape = bad[i].shape;
        BAD(bad[i].word, tlob_block_shape_check(&bad[i].shape));
        BAD(bad[i].word, tlob_block_create(host.ctx, &bad[i].shape, 1, &block));
        cr_assert_null(block);
        BAD(bad[i].word, tlob_model_create(host.stream, &params, &model));
        cr_assert_null(model);
    }
    cr_assert_eq(tlob_block_weight_count(&good), 3 * 16 * 32 + 16 * 16);
    cr_assert_eq(tlob_head_weight_count(16), 51);
    cr_assert_eq(tlob_model_weight_count(&good), 3 * 16 * 32 + 16 * 16 + 51);
}

Test(block_errors, block) {
    const tlob_block_shape s = tlob_block_shape_default();
    tlob_block *block;
    tlob_block_state state;
    float value;
    BAD("context", tlob_block_create(NULL, &s, 1, &block));
    BAD("shape", tlob_block_create(host.ctx, NULL, 1, &block));
    BAD("max_samples", tlob_block_create(host.ctx, &s, 0, &block));
    BAD("max_samples", tlob_block_create(host.ctx, &s, HUGE_SIZE, &block));
    lab_expect(tlob_block_create(host.ctx, &s, (int64_t)1 << 50, &block), TLOB_ERR_OUT_OF_MEMORY, "");
    cr_assert_null(block);
    BAD("block", tlob_block_create(host.ctx, &s, 1, NULL));
    LAB_OK(tlob_block_create(host.ctx, &s, 4, &block));

    array w = lab_array(&host, NULL, tlob_block_weight_count(&s), 0), x = lab_array(&host, NULL, 128, 0);
    array y = lab_array(&host, NULL, 64, 0);
    BAD("stream", tlob_block_init_weights(NULL, &s, 1, w.at));
    BAD("shape", tlob_block_init_weights(host.stream, NULL, 1, w.at));
    BAD("weights", tlob_block_init_weights(host.stream, &s, 1, NULL));
    BAD("weights", tlob_block_init_weights(host.stream, &s, 1, lab_crooked(w)));

    BAD("forward", tlob_block_get_state(block, &state));
    BAD("forward", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, w.at, NULL));
    BAD("block", tlob_block_forward(NULL, host.stream, w.at, x.at, 4, y.at));
    BAD("stream", tlob_block_forward(block, NULL, w.at, x.at, 4, y.at));
    BAD("samples", tlob_block_forward(block, host.stream, w.at, x.at, -1, y.at));
    BAD("samples", tlob_block_forward(block, host.stream, w.at, x.at, 5, y.at));
    BAD("weights", tlob_block_forward(block, host.stream, NULL, x.at, 4, y.at));
    BAD("x is", tlob_block_forward(block, host.stream, w.at, NULL, 4, y.at));
    BAD("y is", tlob_block_forward(block, host.stream, w.at, x.at, 4, NULL));
    BAD("aligned", tlob_block_forward(block, host.stream, w.at, lab_crooked(x), 4, y.at));

    LAB_OK(tlob_block_forward(block, host.stream, w.at, x.at, 4, y.at));
    BAD("block", tlob_block_backward(NULL, host.stream, w.at, x.at, y.at, 4, w.at, NULL));
    BAD("stream", tlob_block_backward(block, NULL, w.at, x.at, y.at, 4, w.at, NULL));
    BAD("samples", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 3, w.at, NULL));
    BAD("weights", tlob_block_backward(block, host.stream, NULL, x.at, y.at, 4, w.at, NULL));
    BAD("x is", tlob_block_backward(block, host.stream, w.at, NULL, y.at, 4, w.at, NULL));
    BAD("dy is", tlob_block_backward(block, host.stream, w.at, x.at, NULL, 4, w.at, NULL));
    BAD("dweights and dx", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, NULL, NULL));
    BAD("dweights", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, lab_crooked(w), x.at));
    BAD("dx", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, NULL, lab_crooked(x)));
    BAD("dx", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, w.at, lab_crooked(x)));
    BAD("block", tlob_block_mean_max(NULL, host.stream, &value));
    BAD("value", tlob_block_mean_max(block, host.stream, NULL));
    BAD("block", tlob_block_get_state(NULL, &state));
    BAD("state", tlob_block_get_state(block, NULL));
    tlob_block_destroy(&block);
    cr_assert_null(block);
    tlob_block_destroy(&block);
    tlob_block_destroy(NULL);
}

Test(block_errors, a_failed_forward_pass_leaves_none) {
    const tlob_block_shape s = tlob_block_shape_default();
    tlob_block *block;
    LAB_OK(tlob_block_create(host.ctx, &s, 4, &block));
    array w = lab_array(&host, NULL, tlob_block_weight_count(&s), 0), x = lab_array(&host, NULL, 128, 0);
    array y = lab_array(&host, NULL, 64, 0);
    LAB_OK(tlob_block_forward(block, host.stream, w.at, x.at, 4, y.at));
    host.ctx->settings.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    tlob_stream *fresh; /* that remembers no problem */
    LAB_OK(tlob_stream_create(host.ctx, &fresh));
    cr_assert_neq(tlob_block_forward(block, fresh, w.at, x.at, 4, y.at), TLOB_OK);
    BAD("forward", tlob_block_backward(block, host.stream, w.at, x.at, y.at, 4, w.at, NULL));
    tlob_stream_close(&fresh);
    tlob_block_destroy(&block);
}

static int fail_to_start(struct CUstream_st *stream, const tlob_xent_args *args) {
    (void)stream;
    (void)args;
    return 1;
}

static int fail_to_sum(struct CUstream_st *stream, const tlob_sum_args *args) {
    (void)stream;
    (void)args;
    return 1;
}

Test(block_errors, a_failed_loss_leaves_no_result) {
    tlob_head *head;
    LAB_OK(tlob_head_create(host.ctx, 5, 4, &head));
    array logits = lab_array(&host, NULL, 12, 0);
    const uint8_t labels[4] = {0, 1, 2, 0}, *at = lab_bytes(&host, labels, 4);
    tlob_loss loss;
    LAB_OK(tlob_head_loss(head, host.stream, NULL, NULL, logits.at, at, 4, NULL, NULL));
    LAB_OK(tlob_head_result(head, host.stream, &loss));
    const tlob_space *space = host.ctx->space;
    tlob_kernels kernels = *space->kernels;
    tlob_space failing = *space;
    kernels.cross_entropy = fail_to_start;
    failing.kernels = &kernels;
    host.ctx->space = &failing;
    cr_assert_eq(tlob_head_loss(head, host.stream, NULL, NULL, logits.at, at, 4, NULL, NULL), TLOB_ERR_CUDA);
    host.ctx->space = space;
    BAD("no loss", tlob_head_result(head, host.stream, &loss));
    LAB_OK(tlob_head_loss(head, host.stream, NULL, NULL, logits.at, at, 4, NULL, NULL));
    kernels.sum_chunks = fail_to_sum;
    host.ctx->space = &failing;
    array w = lab_array(&host, NULL, tlob_head_weight_count(5), 0), y = lab_array(&host, NULL, 5, 0);
    cr_assert_eq(tlob_head_train(head, host.stream, w.at, y.at, at, 1, w.at, y.at), TLOB_ERR_CUDA);
    host.ctx->space = space;
    BAD("no loss", tlob_head_result(head, host.stream, &loss));
    tlob_head_destroy(&head);
}

Test(block_errors, head) {
    tlob_head *head;
    tlob_loss loss;
    BAD("context", tlob_head_create(NULL, 16, 4, &head));
    BAD("features", tlob_head_create(host.ctx, 0, 4, &head));
    BAD("features", tlob_head_create(host.ctx, HUGE_SIZE, 4, &head));
    BAD("max_samples", tlob_head_create(host.ctx, 16, 0, &head));
    BAD("max_samples", tlob_head_create(host.ctx, 16, TLOB_HEAD_SAMPLES_MAX + 1, &head));
    cr_assert_null(head);
    BAD("head", tlob_head_create(host.ctx, 16, 4, NULL));
    LAB_OK(tlob_head_create(host.ctx, 16, 4, &head));

    array w = lab_array(&host, NULL, 51, 0), y = lab_array(&host, NULL, 64, 0), z = lab_array(&host, NULL, 12, 0);
    array dw = lab_array(&host, NULL, 51, 0), dy = lab_array(&host, NULL, 64, 0);
    const uint8_t bytes[] = {0, 1, 2, 3}, *labels = lab_bytes(&host, bytes, 4);
    BAD("stream", tlob_head_init_weights(NULL, 16, 1, w.at));
    BAD("features", tlob_head_init_weights(host.stream, 0, 1, w.at));
    BAD("weights", tlob_head_init_weights(host.stream, 16, 1, NULL));
    BAD("loss", tlob_head_result(head, host.stream, &loss));
    BAD("head", tlob_head_forward(NULL, host.stream, w.at, y.at, 4, z.at));
    BAD("stream", tlob_head_forward(head, NULL, w.at, y.at, 4, z.at));
    BAD("samples", tlob_head_forward(head, host.stream, w.at, y.at, 5, z.at));
    BAD("samples", tlob_head_forward(head, host.stream, w.at, y.at, -1, z.at));
    BAD("weights", tlob_head_forward(head, host.stream, NULL, y.at, 4, z.at));
    BAD("y is", tlob_head_forward(head, host.stream, w.at, NULL, 4, z.at));
    BAD("logits", tlob_head_forward(head, host.stream, w.at, y.at, 4, NULL));
    LAB_OK(tlob_head_forward(head, host.stream, w.at, NULL, 0, NULL));
    BAD("head", tlob_head_loss(NULL, host.stream, w.at, y.at, z.at, labels, 4, dw.at, dy.at));
    BAD("stream", tlob_head_loss(head, NULL, w.at, y.at, z.at, labels, 4, dw.at, dy.at));
    BAD("samples", tlob_head_loss(head, host.stream, w.at, y.at, z.at, labels, 0, dw.at, dy.at));
    BAD("samples", tlob_head_loss(head, host.stream, w.at, y.at, z.at, labels, 5, dw.at, dy.at));
    BAD("weights", tlob_head_loss(head, host.stream, NULL, y.at, z.at, labels, 4, dw.at, dy.at));
    BAD("y is", tlob_head_loss(head, host.stream, w.at, NULL, z.at, labels, 4, dw.at, dy.at));
    BAD("logits", tlob_head_loss(head, host.stream, w.at, y.at, NULL, labels, 4, dw.at, dy.at));
    BAD("labels", tlob_head_loss(head, host.stream, w.at, y.at, z.at, NULL, 4, dw.at, dy.at));
    BAD("dy is NULL", tlob_head_loss(head, host.stream, w.at, y.at, z.at, labels, 4, dw.at, NULL));
    BAD("dweights is NULL", tlob_head_loss(head, host.stream, w.at, y.at, z.at, labels, 4, NULL, dy.at));
    BAD("head", tlob_head_train(NULL, host.stream, w.at, y.at, labels, 4, dw.at, dy.at));
    BAD("stream", tlob_head_train(head, NULL, w.at, y.at, labels, 4, dw.at, dy.at));
    BAD("samples", tlob_head_train(head, host.stream, w.at, y.at, labels, 0, dw.at, dy.at));
    BAD("samples", tlob_head_train(head, host.stream, w.at, y.at, labels, 5, dw.at, dy.at));
    BAD("weights", tlob_head_train(head, host.stream, NULL, y.at, labels, 4, dw.at, dy.at));
    BAD("y is", tlob_head_train(head, host.stream, w.at, NULL, labels, 4, dw.at, dy.at));
    BAD("labels", tlob_head_train(head, host.stream, w.at, y.at, NULL, 4, dw.at, dy.at));
    BAD("dweights", tlob_head_train(head, host.stream, w.at, y.at, labels, 4, NULL, dy.at));
    BAD("dy", tlob_head_train(head, host.stream, w.at, y.at, labels, 4, dw.at, NULL));
    BAD("no loss", tlob_head_result(head, host.stream, &loss));
    LAB_OK(tlob_head_train(head, host.stream, w.at, y.at, labels, 4, dw.at, dy.at));
    LAB_OK(tlob_head_result(head, host.stream, &loss));
    LAB_OK(tlob_head_loss(head, host.stream, w.at, y.at, z.at, labels, 4, dw.at, dy.at));
    BAD("head", tlob_head_result(NULL, host.stream, &loss));
    BAD("stream", tlob_head_result(head, NULL, &loss));
    BAD("loss", tlob_head_result(head, host.stream, NULL));
    tlob_head_destroy(&head);
    cr_assert_null(head);
    tlob_head_destroy(NULL);
}

Test(block_errors, labels) {
    const uint8_t good[] = {0, 1, 2, 2, 0}, one_based[] = {1, 2, 3}, minus_one[] = {0, 255};
    LAB_OK(tlob_labels_check(good, 5));
    LAB_OK(tlob_labels_check(NULL, 0));
    lab_expect(tlob_labels_check(one_based, 3), TLOB_ERR_LABEL, "label 2 is 3");
    lab_expect(tlob_labels_check(minus_one, 2), TLOB_ERR_LABEL, "label 1 is 255");
    BAD("labels", tlob_labels_check(NULL, 1));
    BAD("count", tlob_labels_check(good, -1));
}

Test(block_errors, adam) {
    const tlob_adam_params good = tlob_adam_params_default();
    const struct {
        const char *word;
        tlob_adam_params params;
    } bad[] = {
        {"lr", {-1.0f, 0.9f, 0.999f, 1e-8f}},     {"lr", {NAN, 0.9f, 0.999f, 1e-8f}},
        {"lr", {INFINITY, 0.9f, 0.999f, 1e-8f}},  {"beta1", {1e-3f, 1.0f, 0.999f, 1e-8f}},
        {"beta1", {1e-3f, NAN, 0.999f, 1e-8f}},   {"beta2", {1e-3f, 0.9f, -0.1f, 1e-8f}},
        {"beta2", {1e-3f, 0.9f, 1.0f, 1e-8f}},    {"eps", {1e-3f, 0.9f, 0.999f, 0.0f}},
        {"eps", {1e-3f, 0.9f, 0.999f, INFINITY}},
    };
    tlob_adam *adam;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        BAD(bad[i].word, tlob_adam_create(host.ctx, 3, &bad[i].params, &adam));
        cr_assert_null(adam);
    }
    BAD("context", tlob_adam_create(NULL, 3, &good, &adam));
    BAD("params", tlob_adam_create(host.ctx, 3, NULL, &adam));
    BAD("count", tlob_adam_create(host.ctx, 0, &good, &adam));
    BAD("2^63", tlob_adam_create(host.ctx, HUGE_SIZE, &good, &adam));
    cr_assert_null(adam);
    BAD("adam", tlob_adam_create(host.ctx, 3, &good, NULL));
    LAB_OK(tlob_adam_create(host.ctx, 3, &good, &adam));
    array w = lab_array(&host, NULL, 3, 0);
    BAD("adam", tlob_adam_step(NULL, host.stream, w.at, w.at));
    BAD("stream", tlob_adam_step(adam, NULL, w.at, w.at));
    BAD("weights", tlob_adam_step(adam, host.stream, NULL, w.at));
    BAD("gradients", tlob_adam_step(adam, host.stream, w.at, NULL));
    BAD("adam", tlob_adam_set_lr(NULL, host.stream, 0.1f));
    BAD("stream", tlob_adam_set_lr(adam, NULL, 0.1f));
    BAD("model", tlob_model_set_lr(NULL, host.stream, 0.1f));
    BAD("lr", tlob_adam_set_lr(adam, host.stream, NAN));
    BAD("lr", tlob_adam_set_lr(adam, host.stream, -0.1f));
    float moments[6] = {0};
    int64_t steps;
    BAD("adam", tlob_adam_get_state(NULL, host.stream, moments, 6, &steps));
    BAD("stream", tlob_adam_get_state(adam, NULL, moments, 6, &steps));
    BAD("moments is NULL", tlob_adam_get_state(adam, host.stream, NULL, 6, &steps));
    BAD("steps is NULL", tlob_adam_get_state(adam, host.stream, moments, 6, NULL));
    BAD("count is 3, and the moments of 3 parameters are 6", tlob_adam_get_state(adam, host.stream, moments, 3, &steps));
    BAD("adam", tlob_adam_set_state(NULL, host.stream, moments, 6, 0));
    BAD("stream", tlob_adam_set_state(adam, NULL, moments, 6, 0));
    BAD("moments is NULL", tlob_adam_set_state(adam, host.stream, NULL, 6, 0));
    BAD("count", tlob_adam_set_state(adam, host.stream, moments, 7, 0));
    BAD("steps is -1", tlob_adam_set_state(adam, host.stream, moments, 6, -1));
    BAD("steps is 9007199254740993", tlob_adam_set_state(adam, host.stream, moments, 6, TLOB_ADAM_STEPS_MAX + 1));
    tlob_adam_destroy(&adam);
    cr_assert_null(adam);
    tlob_adam_destroy(NULL);
}

Test(block_errors, model) {
    tlob_model_params params = tlob_model_params_default();
    tlob_model *model;
    tlob_model_figures figures;
    float host_weights[4];
    BAD("stream", tlob_model_create(NULL, &params, &model));
    BAD("params", tlob_model_create(host.stream, NULL, &model));
    BAD("model", tlob_model_create(host.stream, &params, NULL));
    params.max_samples = 0;
    BAD("max_samples", tlob_model_create(host.stream, &params, &model));
    params.max_samples = TLOB_HEAD_SAMPLES_MAX + 1;
    params.shape.d_in = params.shape.d_out = params.shape.head_dim = 1;
    BAD("max_samples", tlob_model_create(host.stream, &params, &model));
    params = tlob_model_params_default();
    params.adam.eps = 0.0f;
    BAD("eps", tlob_model_create(host.stream, &params, &model));
    cr_assert_null(model);
    params = tlob_model_params_default();
    params.max_samples = 4;
    LAB_OK(tlob_model_create(host.stream, &params, &model));

    array x = lab_array(&host, NULL, 128, 0), z = lab_array(&host, NULL, 12, 0);
    const uint8_t bytes[] = {0, 1, 2, 0}, *labels = lab_bytes(&host, bytes, 4);
    BAD("loss", tlob_model_result(model, host.stream, &figures));
    BAD("model", tlob_model_step(NULL, host.stream, x.at, labels, 4));
    BAD("stream", tlob_model_step(model, NULL, x.at, labels, 4));
    BAD("samples", tlob_model_step(model, host.stream, x.at, labels, 0));
    BAD("samples", tlob_model_step(model, host.stream, x.at, labels, 5));
    BAD("x is", tlob_model_step(model, host.stream, NULL, labels, 4));
    BAD("labels", tlob_model_step(model, host.stream, x.at, NULL, 4));
    BAD("model", tlob_model_predict(NULL, host.stream, x.at, 4, z.at));
    BAD("samples", tlob_model_predict(model, host.stream, x.at, 0, z.at));
    BAD("samples", tlob_model_predict(model, host.stream, x.at, 5, z.at));
    BAD("x is", tlob_model_predict(model, host.stream, NULL, 4, z.at));
    BAD("logits is", tlob_model_predict(model, host.stream, x.at, 4, NULL));
    BAD("model", tlob_model_evaluate(NULL, host.stream, x.at, labels, 4, z.at));
    BAD("samples", tlob_model_evaluate(model, host.stream, x.at, labels, 5, z.at));
    BAD("x is", tlob_model_evaluate(model, host.stream, NULL, labels, 4, z.at));
    BAD("labels", tlob_model_evaluate(model, host.stream, x.at, NULL, 4, z.at));
    BAD("logits", tlob_model_evaluate(model, host.stream, x.at, labels, 4, NULL));
    BAD("model", tlob_model_result(NULL, host.stream, &figures));
    BAD("figures", tlob_model_result(model, host.stream, NULL));
    BAD("count", tlob_model_get_weights(model, host.stream, host_weights, 4));
    BAD("weights", tlob_model_get_weights(model, host.stream, NULL, 4));
    BAD("model", tlob_model_get_weights(NULL, host.stream, host_weights, 4));
    BAD("count", tlob_model_set_weights(model, host.stream, host_weights, 4));
    BAD("weights", tlob_model_set_weights(model, host.stream, NULL, 4));
    BAD("model", tlob_model_set_weights(NULL, host.stream, host_weights, 4));
    int64_t steps;
    BAD("model", tlob_model_get_optimizer(NULL, host.stream, host_weights, 4, &steps));
    BAD("count is 4", tlob_model_get_optimizer(model, host.stream, host_weights, 4, &steps));
    BAD("model", tlob_model_set_optimizer(NULL, host.stream, host_weights, 4, 1));
    BAD("count is 4", tlob_model_set_optimizer(model, host.stream, host_weights, 4, 1));
    tlob_model_destroy(&model);
    cr_assert_null(model);
    tlob_model_destroy(NULL);
}

/* One of each, made in the lab's context. */
typedef struct objects {
    tlob_block *block;
    tlob_head *head;
    tlob_adam *adam;
    tlob_model *model;
} objects;

static objects make_objects(void) {
    const tlob_block_shape s = tlob_block_shape_default();
    const tlob_adam_params adam = tlob_adam_params_default();
    tlob_model_params params = tlob_model_params_default();
    params.max_samples = 4;
    objects o;
    LAB_OK(tlob_block_create(host.ctx, &s, 4, &o.block));
    LAB_OK(tlob_head_create(host.ctx, 16, 4, &o.head));
    LAB_OK(tlob_adam_create(host.ctx, 3, &adam, &o.adam));
    LAB_OK(tlob_model_create(host.stream, &params, &o.model));
    return o;
}

static void destroy_objects(objects *o) {
    tlob_block_destroy(&o->block);
    tlob_head_destroy(&o->head);
    tlob_adam_destroy(&o->adam);
    tlob_model_destroy(&o->model);
}

/* Every call on one of the objects with `stream`. */
static void call_all(const objects *o, tlob_stream *stream, tlob_status want, const char *word) {
    static float a[4096];
    static uint8_t labels[4];
    tlob_loss loss;
    tlob_model_figures figures;
    const int64_t count = 1843;
    int64_t steps;
    lab_expect(tlob_block_forward(o->block, stream, a, a, 4, a), want, word);
    lab_expect(tlob_block_backward(o->block, stream, a, a, a, 4, a, NULL), want, word);
    lab_expect(tlob_block_mean_max(o->block, stream, a), want, word);
    lab_expect(tlob_head_forward(o->head, stream, a, a, 4, a), want, word);
    lab_expect(tlob_head_loss(o->head, stream, a, a, a, labels, 4, a, a), want, word);
    lab_expect(tlob_head_train(o->head, stream, a, a, labels, 4, a, a), want, word);
    lab_expect(tlob_head_result(o->head, stream, &loss), want, word);
    lab_expect(tlob_adam_step(o->adam, stream, a, a), want, word);
    lab_expect(tlob_adam_set_lr(o->adam, stream, 0.1f), want, word);
    lab_expect(tlob_adam_get_state(o->adam, stream, a, 6, &steps), want, word);
    lab_expect(tlob_adam_set_state(o->adam, stream, a, 6, 1), want, word);
    lab_expect(tlob_model_step(o->model, stream, a, labels, 4), want, word);
    lab_expect(tlob_model_set_lr(o->model, stream, 0.1f), want, word);
    lab_expect(tlob_model_evaluate(o->model, stream, a, labels, 4, a), want, word);
    lab_expect(tlob_model_result(o->model, stream, &figures), want, word);
    lab_expect(tlob_model_get_weights(o->model, stream, a, count), want, word);
    lab_expect(tlob_model_set_weights(o->model, stream, a, count), want, word);
    lab_expect(tlob_model_get_optimizer(o->model, stream, a, 2 * count, &steps), want, word);
    lab_expect(tlob_model_set_optimizer(o->model, stream, a, 2 * count, 1), want, word);
}

Test(block_errors, streams_of_another_context) {
    lab other;
    lab_open_host(&other);
    objects o = make_objects();
    call_all(&o, other.stream, TLOB_ERR_ARGUMENT, "another context");
    destroy_objects(&o);
    lab_close(&other);
}

Test(block_errors, a_closed_context) {
    const tlob_block_shape s = tlob_block_shape_default();
    const tlob_adam_params adam = tlob_adam_params_default();
    const tlob_model_params params = tlob_model_params_default();
    static float a[4096];
    tlob_block_state state;
    objects o = make_objects(), none;
    lab_clear(&host);
    tlob_context *gone = host.ctx; /* kept alive by the objects made from it */
    tlob_context_destroy(&host.ctx);
    call_all(&o, host.stream, TLOB_ERR_CLOSED, "");
    CLOSED(tlob_block_get_state(o.block, &state));
    CLOSED(tlob_block_create(gone, &s, 4, &none.block));
    CLOSED(tlob_head_create(gone, 16, 4, &none.head));
    CLOSED(tlob_adam_create(gone, 3, &adam, &none.adam));
    CLOSED(tlob_model_create(host.stream, &params, &none.model));
    CLOSED(tlob_block_init_weights(host.stream, &s, 1, a));
    CLOSED(tlob_head_init_weights(host.stream, 16, 1, a));
    destroy_objects(&o);
}
