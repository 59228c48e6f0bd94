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
