/* Linear layers and multi-head attention on the oracle. */
#include "tests/trunk/trunk_cases.h"

static lab host;

static void open_host(void) {
    lab_open_host(&host);
}

static void close_host(void) {
    lab_close(&host);
}

TestSuite(linear, .init = open_host, .fini = close_host);
TestSuite(mha, .init = open_host, .fini = close_host);

Test(linear, against_pytorch) {
    case_linear_reference(&host);
}

Test(linear, gradients_against_differences) {
    case_linear_gradients(&host);
}

Test(linear, many_shapes) {
    case_linear_shapes(&host);
}

Test(linear, no_columns_give_no_gradient) {
    case_linear_no_columns(&host);
}

Test(linear, products) {
    case_linear_products(&host);
}

Test(mha, stacked_against_pytorch) {
    case_mha_reference(&host, TLOB_MHA_STACKED);
}

Test(mha, separate_against_pytorch) {
    case_mha_reference(&host, TLOB_MHA_SEPARATE);
}

Test(mha, stacked_gradients_against_differences) {
    case_mha_gradients(&host, TLOB_MHA_STACKED);
}

Test(mha, separate_gradients_against_differences) {
    case_mha_gradients(&host, TLOB_MHA_SEPARATE);
}

Test(mha, many_shapes_stacked_and_separate) {
    case_mha_shapes(&host, TLOB_MHA_HEAD_DIM_MAX);
}

Test(mha, scratch_follows_the_columns_in_use) {
    case_mha_scratch(&host, TLOB_MHA_STACKED);
    case_mha_scratch(&host, TLOB_MHA_SEPARATE);
}

Test(mha, no_samples_give_no_gradient) {
    case_mha_no_samples(&host, TLOB_MHA_STACKED);
    case_mha_no_samples(&host, TLOB_MHA_SEPARATE);
}

Test(mha, products) {
    case_mha_products(&host);
}

Test(mha, initial_weights) {
    case_mha_init(&host);
}

/* What the oracle's kernel does not look at, or computes again. */
static tlob_attend_args seen[2];

static int see_forward(struct CUstream_st *stream, const tlob_attend_args *args) {
    seen[0] = *args;
    return tlob_kernels_host.attend_forward(stream, args);
}

static int see_backward(struct CUstream_st *stream, const tlob_attend_args *args) {
    seen[1] = *args;
    return tlob_kernels_host.attend_backward(stream, args);
}

Test(mha, attention_in_the_mode_of_the_context_with_room_for_its_statistics) {
    static const tlob_mha_shape shape = {.dim = 6, .heads = 2, .seq = 5};
    enum { SAMPLES = 3, ROWS = SAMPLES * 5 * 2 };
    const tlob_space *space = host.ctx->space;
    tlob_kernels kernels = *space->kernels;
    tlob_space spying = *space;
    kernels.attend_forward = see_forward;
    kernels.attend_backward = see_backward;
    spying.kernels = &kernels;
    host.ctx->space = &spying;
    array w = lab_array(&host, NULL, tlob_mha_weight_count(&shape), 0), x = lab_array(&host, NULL, 6 * 5 * SAMPLES, 0);
    tlob_mha *mha;
    LAB_OK(tlob_mha_create(host.ctx, &shape, TLOB_MHA_STACKED, SAMPLES + 1, &mha));
    for (tlob_compute compute = TLOB_COMPUTE_TF32; compute <= TLOB_COMPUTE_FP32; compute++) {
        host.ctx->settings.compute = compute;
        array y = lab_array(&host, NULL, 6 * 5 * SAMPLES, 0), dw = lab_array(&host, NULL, w.count, 0);
        LAB_OK(tlob_mha_forward(mha, host.stream, w.at, x.at, SAMPLES, y.at));
        LAB_OK(tlob_mha_backward(mha, host.stream, w.at, x.at, x.at, SAMPLES, dw.at, NULL));
        for (int pass = 0; pass < 2; pass++) {
            cr_assert_eq(seen[pass].compute, compute);
            cr_assert_eq(seen[pass].groups * seen[pass].tokens, ROWS);
            cr_assert_eq(seen[pass].row_inv_sum - seen[pass].row_max, ROWS);
            cr_assert_eq(seen[pass].row_dot - seen[pass].row_inv_sum, ROWS);
        }
    }
    cr_assert(!seen[0].tiles && !seen[1].tiles, "the host has no tiles");
    array y = lab_array(&host, NULL, x.count, 0), dw = lab_array(&host, NULL, w.count, 0);
    host.ctx->attend_has_tiles = true;
    LAB_OK(tlob_mha_forward(mha, host.stream, w.at, x.at, SAMPLES, y.at));
    LAB_OK(tlob_mha_backward(mha, host.stream, w.at, x.at, x.at, SAMPLES, dw.at, NULL));
    cr_assert(seen[0].tiles && seen[1].tiles, "what the context knows of its device does not reach the kernels");
    host.ctx->attend_has_tiles = false;
    tlob_mha_destroy(&mha);
    host.ctx->space = space;
}
