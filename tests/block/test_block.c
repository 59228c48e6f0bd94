/* The block, the head, the optimizer and the model on the oracle. */
#include <math.h>

#include "libtlob/kernels/philox.h"
#include "tests/block/block_cases.h"

static lab host;

static void open_host(void) {
    lab_open_host(&host);
}

static void close_host(void) {
    lab_close(&host);
}

TestSuite(block, .init = open_host, .fini = close_host);
TestSuite(kernels, .init = open_host, .fini = close_host);

Test(block, feature_axis_against_pytorch) {
    case_reference(&host, "block_feature");
}

Test(block, time_axis_against_pytorch) {
    case_reference(&host, "block_time");
}

Test(block, feature_axis_gradients_against_differences) {
    case_gradients(&host, TLOB_AXIS_FEATURE);
}

Test(block, time_axis_gradients_against_differences) {
    case_gradients(&host, TLOB_AXIS_TIME);
}

Test(block, strides_follow_the_columns_in_use) {
    case_capacity(&host);
}

Test(block, no_samples_give_no_gradient) {
    case_no_samples(&host);
}

Test(block, repeats_bit_for_bit) {
    case_repeats(&host, TLOB_AXIS_FEATURE);
    case_repeats(&host, TLOB_AXIS_TIME);
}

Test(block, plans) {
    case_plans(&host, "the host has no fused kernels");
}

Test(block, one_gradient_alone) {
    case_alone(&host);
}

Test(block, not_a_number_stays_in_its_sample) {
    case_not_finite(&host, TLOB_PLAN_COMPOSED);
}

Test(block, initial_weights) {
    case_init(&host);
}

Test(block, head_and_labels_out_of_range) {
    case_head(&host);
}

Test(block, model_evaluates_and_keeps_its_weights) {
    case_model(&host);
}

Test(block, model_resumes_bit_for_bit) {
    case_resume(&host);
}

Test(block, training_learns_and_repeats_bit_for_bit) {
    enum { STEPS = 120 };
    static float first[STEPS], second[STEPS];
    train(&host, STEPS, first, NULL);
    train(&host, STEPS, second, NULL);
    lab_same_bits("losses", first, second, STEPS);
    float before = 0.0f, after = 0.0f;
    for (int i = 0; i < 8; i++) { /* a walk through the data each */
        before += first[i] / 8.0f;
        after += first[STEPS - 8 + i] / 8.0f;
    }
    cr_assert(after < 0.6f * before, "the loss went from %g to %g", (double)before, (double)after);
}

Test(kernels, attention_of_many_shapes) {
    case_attend_shapes(&host);
}

Test(kernels, attention_of_extreme_scores) {
    case_attend_pathological(&host);
}

Test(kernels, attention_of_wide_heads) {
    case_attend_heads(&host, &(attend_bars){.fp32 = host.bar}); /* one arithmetic: double */
    case_attend_extremes(&host);
}

Test(kernels, affine) {
    case_affine(&host);
}

Test(kernels, add_pieces) {
    case_add_pieces(&host);
}

Test(kernels, finish) {
    case_finish(&host);
}

Test(kernels, finish_of_extreme_values) {
    case_finish_pathological(&host);
}

Test(kernels, row_sum) {
    case_row_sum(&host);
}

Test(kernels, cross_entropy) {
    case_cross_entropy(&host);
}

Test(kernels, uniform) {
    case_uniform(&host);
}

Test(kernels, adam_against_a_table) {
    case_adam_table(&host);
}

Test(kernels, adam_follows_its_learning_rate) {
    case_adam_lr(&host);
}

Test(kernels, adam_goes_on_from_a_state) {
    case_adam_state(&host);
}

Test(kernels, chunks) {
    case_chunks();
}

Test(kernels, head_with_its_loss) {
    case_head_train(&host);
}

Test(kernels, sum_chunks) {
    case_sum_chunks(&host);
}

Test(kernels, adam_of_chunks) {
    case_adam_chunked(&host);
}

/* The known answers for philox4x32-10 of the Random123 distribution. */
Test(kernels, philox_known_answers) {
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        tlob_philox counter;
        for (int j = 0; j < 4; j++)
            counter.word[j] = known[i].counter[j];
        tlob_philox got = tlob_philox_block(counter, known[i].key[0], known[i].key[1]);
        for (int j = 0; j < 4; j++)
            cr_assert_eq(got.word[j], known[i].answer[j], "vector %d, word %d is %08x", i, j, got.word[j]);
    }
    cr_assert_eq(tlob_philox_uniform(0, 0.5f), -0.5f);
    cr_assert_eq(tlob_philox_uniform(0xffffffffu, 1.0f), 1.0f - ldexpf(1.0f, -23));
    cr_assert_eq(tlob_philox_uniform(0x80000000u, 1.0f), 0.0f);
}
