/* Arguments that cannot be, and contexts that are gone, at every entry of the linear layer and of the attention. */

#include "tests/block/lab.h"

static lab host;

static void open_host(void) {
    lab_open_host(&host);
}

static void close_host(void) {
    lab_close(&host);
}

TestSuite(trunk_errors, .init = open_host, .fini = close_host);

/* --- linear layers --------------------------------------------------------------------------------------------- */

Test(trunk_errors, layers) {
    const tlob_linear good = {3, 5, TLOB_ACTIVATION_RELU};
    const struct {
        const char *word;
        tlob_linear layer;
    } bad[] = {
        {"in is 0", {0, 5, TLOB_ACTIVATION_NONE}},       {"out is -1", {3, -1, TLOB_ACTIVATION_NONE}},
        {"activation is 3", {3, 5, (tlob_activation)3}}, {"activation is -1", {3, 5, (tlob_activation)-1}},
        {"2^63", {HUGE_SIZE, 5, TLOB_ACTIVATION_NONE}},  {"2^63", {(int64_t)1 << 31, 1 << 30, TLOB_ACTIVATION_NONE}},
    };
    LAB_OK(tlob_linear_check(&good));
    BAD("layer is NULL", tlob_linear_check(NULL));
    array a = lab_array(&host, NULL, 64, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const tlob_linear *l = &bad[i].layer;
        BAD(bad[i].word, tlob_linear_check(l));
        BAD(bad[i].word, tlob_linear_forward(host.stream, l, a.at, a.at, a.at, 1, a.at, NULL));
        BAD(bad[i].word, tlob_linear_backward_weight(host.stream, l, a.at, a.at, 1, a.at, NULL));
        BAD(bad[i].word, tlob_linear_backward_input(host.stream, l, a.at, a.at, 1, NULL, NULL, a.at, NULL));
        BAD(bad[i].word, tlob_linear_backward_input(host.stream, &good, a.at, a.at, 1, l, a.at, a.at, a.at));
        BAD(bad[i].word, tlob_linear_backward_output(host.stream, l, a.at, a.at, 1, a.at, a.at));
    }
}

Test(trunk_errors, aux_bytes) {
    const struct {
        int64_t out, n, relu, gelu;
    } sizes[] = {
        {1, 1, 16, 32}, {8, 3, 48, 96}, {9, 3, 48, 192}, {128, 2, 32, 1024}, {129, 2, 64, 1088}, {256, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tlob_linear l = {3, sizes[i].out, TLOB_ACTIVATION_RELU};
        cr_assert_eq(tlob_linear_aux_bytes(&l, sizes[i].n), sizes[i].relu);
        l.activation = TLOB_ACTIVATION_GELU;
        cr_assert_eq(tlob_linear_aux_bytes(&l, sizes[i].n), sizes[i].gelu);
        l.activation = TLOB_ACTIVATION_NONE;
        cr_assert_eq(tlob_linear_aux_bytes(&l, sizes[i].n), 0);
    }
    const tlob_linear wide = {1, (int64_t)1 << 60, TLOB_ACTIVATION_GELU}, mask = {1, 256, TLOB_ACTIVATION_RELU};
    cr_assert_eq(tlob_linear_aux_bytes(&wide, 1), HUGE_SIZE);
    cr_assert_eq(tlob_linear_aux_bytes(&wide, 2), -1);
    cr_assert_eq(tlob_linear_aux_bytes(&mask, INT64_MAX / 32), INT64_MAX / 32 * 32);
    cr_assert_eq(tlob_linear_aux_bytes(&mask, HUGE_SIZE), -1);
}

Test(trunk_errors, linear) {
    const tlob_linear l = {3, 5, TLOB_ACTIVATION_RELU}, above = {5, 2, TLOB_ACTIVATION_NONE};
    tlob_stream *s = host.stream;
    array w = lab_array(&host, NULL, 15, 0), b = lab_array(&host, NULL, 5, 0), x = lab_array(&host, NULL, 6, 0);
    array y = lab_array(&host, NULL, 10, 0), aux = lab_array(&host, NULL, 8, 0), dz = lab_array(&host, NULL, 10, 0);
    array shifted = lab_array(&host, NULL, 8, 2); /* aligned to a float and to no more */

    BAD("stream", tlob_linear_forward(NULL, &l, w.at, b.at, x.at, 2, y.at, aux.at));
    BAD("layer", tlob_linear_forward(s, NULL, w.at, b.at, x.at, 2, y.at, aux.at));
    BAD("n is -1", tlob_linear_forward(s, &l, w.at, b.at, x.at, -1, y.at, aux.at));
    BAD("weight is NULL", tlob_linear_forward(s, &l, NULL, b.at, x.at, 2, y.at, aux.at));
    BAD("bias is NULL", tlob_linear_forward(s, &l, w.at, NULL, x.at, 2, y.at, aux.at));
    BAD("x is NULL", tlob_linear_forward(s, &l, w.at, b.at, NULL, 2, y.at, aux.at));
    BAD("y is NULL", tlob_linear_forward(s, &l, w.at, b.at, x.at, 2, NULL, aux.at));
    BAD("x (", tlob_linear_forward(s, &l, w.at, b.at, lab_crooked(x), 2, y.at, aux.at));
    BAD("aux (", tlob_linear_forward(s, &l, w.at, b.at, x.at, 2, y.at, shifted.at));
    BAD("aux is not NULL", tlob_linear_forward(s, &above, w.at, b.at, y.at, 2, x.at, aux.at));
    BAD("same memory", tlob_linear_forward(s, &l, w.at, b.at, x.at, 2, x.at, NULL));
    BAD("2^63", tlob_linear_forward(s, &l, w.at, b.at, x.at, HUGE_SIZE, y.at, NULL));

    BAD("stream", tlob_linear_backward_weight(NULL, &l, x.at, dz.at, 2, w.at, b.at));
    BAD("layer", tlob_linear_backward_weight(s, NULL, x.at, dz.at, 2, w.at, b.at));
    BAD("n is -1", tlob_linear_backward_weight(s, &l, x.at, dz.at, -1, w.at, b.at));
    BAD("x is NULL", tlob_linear_backward_weight(s, &l, NULL, dz.at, 2, w.at, b.at));
    BAD("dz is NULL", tlob_linear_backward_weight(s, &l, x.at, NULL, 2, w.at, b.at));
    BAD("dweight is NULL", tlob_linear_backward_weight(s, &l, x.at, dz.at, 2, NULL, b.at));
    BAD("dweight is NULL", tlob_linear_backward_weight(s, &l, NULL, NULL, 0, NULL, NULL));
    BAD("dbias (", tlob_linear_backward_weight(s, &l, x.at, dz.at, 2, w.at, lab_crooked(b)));

    BAD("stream", tlob_linear_backward_input(NULL, &above, w.at, x.at, 2, NULL, NULL, y.at, NULL));
    BAD("layer", tlob_linear_backward_input(s, NULL, w.at, x.at, 2, NULL, NULL, y.at, NULL));
    BAD("n is -1", tlob_linear_backward_input(s, &above, w.at, x.at, -1, NULL, NULL, y.at, NULL));
    BAD("weight is NULL", tlob_linear_backward_input(s, &above, NULL, x.at, 2, NULL, NULL, y.at, NULL));
    BAD("dz is NULL", tlob_linear_backward_input(s, &above, w.at, NULL, 2, NULL, NULL, y.at, NULL));
    BAD("dx is NULL", tlob_linear_backward_input(s, &above, w.at, x.at, 2, NULL, NULL, NULL, NULL));
    BAD("aux_below", tlob_linear_backward_input(s, &above, w.at, x.at, 2, NULL, aux.at, y.at, NULL));
    BAD("dbias_below", tlob_linear_backward_input(s, &above, w.at, x.at, 2, NULL, NULL, y.at, b.at));
    BAD("no activation", tlob_linear_backward_input(s, &l, w.at, y.at, 2, &above, aux.at, x.at, b.at));
    BAD("below->out is 5, and layer->in 3", tlob_linear_backward_input(s, &l, w.at, y.at, 2, &l, aux.at, x.at, b.at));
    BAD("aux_below is NULL", tlob_linear_backward_input(s, &above, w.at, x.at, 2, &l, NULL, y.at, b.at));
    BAD("aux_below (", tlob_linear_backward_input(s, &above, w.at, x.at, 2, &l, shifted.at, y.at, b.at));
    BAD("dbias_below is NULL", tlob_linear_backward_input(s, &above, w.at, x.at, 2, &l, aux.at, y.at, NULL));

    BAD("stream", tlob_linear_backward_output(NULL, &l, y.at, aux.at, 2, dz.at, b.at));
    BAD("layer", tlob_linear_backward_output(s, NULL, y.at, aux.at, 2, dz.at, b.at));
    BAD("n is -1", tlob_linear_backward_output(s, &l, y.at, aux.at, -1, dz.at, b.at));
    BAD("dy is NULL", tlob_linear_backward_output(s, &l, NULL, aux.at, 2, dz.at, b.at));
    BAD("aux is NULL", tlob_linear_backward_output(s, &l, y.at, NULL, 2, dz.at, b.at));
    BAD("aux (", tlob_linear_backward_output(s, &l, y.at, shifted.at, 2, dz.at, b.at));
    BAD("dz is NULL", tlob_linear_backward_output(s, &l, y.at, aux.at, 2, NULL, b.at));
    BAD("dbias is NULL", tlob_linear_backward_output(s, &l, y.at, aux.at, 2, dz.at, NULL));
    BAD("no activation", tlob_linear_backward_output(s, &above, y.at, aux.at, 2, dz.at, b.at));
}

/* --- attention ------------------------------------------------------------------------------------------------- */

Test(trunk_errors, shapes) {
    const tlob_mha_shape good = {128, 4, 6};
    const struct {
        const char *word;
        tlob_mha_shape shape;
    } bad[] = {
        {"dim is 0", {0, 4, 6}},
        {"heads is 0", {128, 0, 6}},
        {"seq is -1", {128, 4, -1}},
        {"divide", {128, 3, 6}},
        {"at most 128", {129, 1, 6}},
        {"divide", {4, 8, 6}},
        {"2^63", {HUGE_SIZE, HUGE_SIZE, 6}},
        {"2^63", {128, 4, HUGE_SIZE}},
    };
    LAB_OK(tlob_mha_shape_check(&good));
    cr_assert_eq(tlob_mha_weight_count(&good), 4 * 128 * 128 + 4 * 128);
    BAD("shape is NULL", tlob_mha_shape_check(NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tlob_mha *mha;
        BAD(bad[i].word, tlob_mha_shape_check(&bad[i].shape));
        BAD(bad[i].word, tlob_mha_create(host.ctx, &bad[i].shape, TLOB_MHA_STACKED, 1, &mha));
        cr_assert_null(mha);
    }
}

static const tlob_mha_shape small = {6, 2, 3};
enum { COUNT = 4 * 6 * 6 + 4 * 6, ELEMENTS = 6 * 3 * 4 };

Test(trunk_errors, mha) {
    tlob_mha *mha;
    tlob_mha_state state;
    tlob_stream *s = host.stream;
    BAD("context", tlob_mha_create(NULL, &small, TLOB_MHA_STACKED, 1, &mha));
    BAD("shape", tlob_mha_create(host.ctx, NULL, TLOB_MHA_STACKED, 1, &mha));
    BAD("projection is 2", tlob_mha_create(host.ctx, &small, (tlob_mha_projection)2, 1, &mha));
    BAD("max_samples is 0", tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, 0, &mha));
    BAD("max_samples", tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, HUGE_SIZE, &mha));
    lab_expect(tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, (int64_t)1 << 50, &mha), TLOB_ERR_OUT_OF_MEMORY, "");
    cr_assert_null(mha);
    BAD("mha is NULL", tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, 1, NULL));
    LAB_OK(tlob_mha_create(host.ctx, &small, TLOB_MHA_SEPARATE, 4, &mha));

    array w = lab_array(&host, NULL, COUNT, 0), x = lab_array(&host, NULL, ELEMENTS, 0);
    array y = lab_array(&host, NULL, ELEMENTS, 0), dw = lab_array(&host, NULL, COUNT, 0);
    BAD("stream", tlob_mha_init_weights(NULL, &small, 1, w.at));
    BAD("shape", tlob_mha_init_weights(s, NULL, 1, w.at));
    BAD("weights is NULL", tlob_mha_init_weights(s, &small, 1, NULL));
    BAD("weights (", tlob_mha_init_weights(s, &small, 1, lab_crooked(w)));

    BAD("forward", tlob_mha_get_state(mha, &state));
    BAD("forward", tlob_mha_backward(mha, s, w.at, x.at, y.at, 4, dw.at, NULL));
    BAD("mha is NULL", tlob_mha_forward(NULL, s, w.at, x.at, 4, y.at));
    BAD("stream", tlob_mha_forward(mha, NULL, w.at, x.at, 4, y.at));
    BAD("samples is -1", tlob_mha_forward(mha, s, w.at, x.at, -1, y.at));
    BAD("samples is 5", tlob_mha_forward(mha, s, w.at, x.at, 5, y.at));
    BAD("weights is NULL", tlob_mha_forward(mha, s, NULL, x.at, 4, y.at));
    BAD("x is NULL", tlob_mha_forward(mha, s, w.at, NULL, 4, y.at));
    BAD("y is NULL", tlob_mha_forward(mha, s, w.at, x.at, 4, NULL));
    BAD("x (", tlob_mha_forward(mha, s, w.at, lab_crooked(x), 4, y.at));

    LAB_OK(tlob_mha_forward(mha, s, w.at, x.at, 4, y.at));
    BAD("mha is NULL", tlob_mha_backward(NULL, s, w.at, x.at, y.at, 4, dw.at, NULL));
    BAD("stream", tlob_mha_backward(mha, NULL, w.at, x.at, y.at, 4, dw.at, NULL));
    BAD("samples is 3", tlob_mha_backward(mha, s, w.at, x.at, y.at, 3, dw.at, NULL));
    BAD("weights is NULL", tlob_mha_backward(mha, s, NULL, x.at, y.at, 4, dw.at, NULL));
    BAD("x is NULL", tlob_mha_backward(mha, s, w.at, NULL, y.at, 4, dw.at, NULL));
    BAD("dy is NULL", tlob_mha_backward(mha, s, w.at, x.at, NULL, 4, dw.at, NULL));
    BAD("dweights is NULL", tlob_mha_backward(mha, s, w.at, x.at, y.at, 4, NULL, NULL));
    BAD("dweights is NULL", tlob_mha_backward(mha, s, w.at, x.at, y.at, 4, NULL, x.at));
    BAD("dx (", tlob_mha_backward(mha, s, w.at, x.at, y.at, 4, dw.at, lab_crooked(x)));
    BAD("mha is NULL", tlob_mha_get_state(NULL, &state));
    BAD("state is NULL", tlob_mha_get_state(mha, NULL));
    tlob_mha_destroy(&mha);
    cr_assert_null(mha);
    tlob_mha_destroy(&mha);
    tlob_mha_destroy(NULL);
}

Test(trunk_errors, a_failed_forward_pass_leaves_none) {
    tlob_mha *mha;
    LAB_OK(tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, 4, &mha));
    array w = lab_array(&host, NULL, COUNT, 0), x = lab_array(&host, NULL, ELEMENTS, 0);
    array y = lab_array(&host, NULL, ELEMENTS, 0);
    LAB_OK(tlob_mha_forward(mha, host.stream, w.at, x.at, 4, y.at));
    host.ctx->settings.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cublaslt"};
    tlob_stream *fresh; /* that remembers no problem */
    LAB_OK(tlob_stream_create(host.ctx, &fresh));
    cr_assert_neq(tlob_mha_forward(mha, fresh, w.at, x.at, 4, y.at), TLOB_OK);
    BAD("forward", tlob_mha_backward(mha, host.stream, w.at, x.at, y.at, 4, w.at, NULL));
    tlob_stream_close(&fresh);
    tlob_mha_destroy(&mha);
}

Test(trunk_errors, a_stream_of_another_context) {
    lab other;
    tlob_mha *mha;
    lab_open_host(&other);
    LAB_OK(tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, 4, &mha));
    array w = lab_array(&host, NULL, COUNT, 0), x = lab_array(&host, NULL, ELEMENTS, 0);
    BAD("another context", tlob_mha_forward(mha, other.stream, w.at, x.at, 4, x.at));
    BAD("another context", tlob_mha_backward(mha, other.stream, w.at, x.at, x.at, 4, w.at, NULL));
    tlob_mha_destroy(&mha);
    lab_close(&other);
}

Test(trunk_errors, a_closed_context) {
    static float a[COUNT];
    const tlob_linear l = {3, 5, TLOB_ACTIVATION_RELU};
    tlob_mha *mha, *none;
    tlob_mha_state state;
    LAB_OK(tlob_mha_create(host.ctx, &small, TLOB_MHA_STACKED, 4, &mha));
    tlob_context *gone = host.ctx; /* kept alive by what was made from it */
    tlob_context_destroy(&host.ctx);
    CLOSED(tlob_mha_create(gone, &small, TLOB_MHA_STACKED, 4, &none));
    CLOSED(tlob_mha_init_weights(host.stream, &small, 1, a));
    CLOSED(tlob_mha_forward(mha, host.stream, a, a, 1, a));
    CLOSED(tlob_mha_backward(mha, host.stream, a, a, a, 1, a, NULL));
    CLOSED(tlob_mha_get_state(mha, &state));
    CLOSED(tlob_linear_forward(host.stream, &l, a, a, a, 1, a, NULL));
    CLOSED(tlob_linear_backward_weight(host.stream, &l, a, a, 1, a, NULL));
    CLOSED(tlob_linear_backward_input(host.stream, &l, a, a, 1, NULL, NULL, a, NULL));
    CLOSED(tlob_linear_backward_output(host.stream, &l, a, a, 1, a, a));
    tlob_mha_destroy(&mha);
}
