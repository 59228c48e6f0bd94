/* The block, the head, the optimizer and the model on a device: the oracle's cases in FP32, then what only a device
 * has. */
#include <math.h>
#include <stdlib.h>

#include "tests/block/block_cases.h"
#include "tests/gpu/gpu_lab.h"

static lab gpu;

Test(gpu_block, against_pytorch) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        case_reference(&gpu, "block_feature");
        case_reference(&gpu, "block_time");
    }
}

Test(gpu_block, gradients_against_differences) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        case_gradients(&gpu, TLOB_AXIS_FEATURE);
        case_gradients(&gpu, TLOB_AXIS_TIME);
    }
}

Test(gpu_block, scratch_repeats_and_the_rest) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        case_capacity(&gpu);
        case_no_samples(&gpu);
        case_repeats(&gpu, TLOB_AXIS_FEATURE);
        case_repeats(&gpu, TLOB_AXIS_TIME);
        case_head(&gpu);
        case_model(&gpu);
        case_resume(&gpu);
    }
}

/* Why this device has no fused kernels; NULL where it has. */
static const char *fused_obstacle(void) {
    static tlob_block_choice choice;
    const tlob_block_params params = tlob_block_params_default();
    OK(tlob_block_explain(gpu.ctx, &params, &choice));
    return choice.plan == TLOB_PLAN_FUSED ? NULL : choice.reason;
}

/* Opens the lab in a compute mode, and skips the running test where there are no fused kernels. */
#define OPEN_FUSED(mode)                                                                                               \
    do {                                                                                                               \
        lab_open_cuda_in(&gpu, "threshold", mode);                                                                     \
        if (fused_obstacle())                                                                                          \
            cr_skip_test("no fused plan: %s", fused_obstacle());                                                       \
    } while (0)

Test(gpu_block, plans) {
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    case_plans(&gpu, fused_obstacle());
    lab_close(&gpu);
}

Test(gpu_block, fused_follows_the_oracle_in_fp32) {
    NEED_GPU();
    OPEN_FUSED(TLOB_COMPUTE_FP32);
    case_fused(&gpu, 1e-5);
    case_fused_model(&gpu);
    lab_close(&gpu);
}

Test(gpu_block, fused_follows_the_oracle_in_tf32) {
    NEED_GPU();
    OPEN_FUSED(TLOB_COMPUTE_TF32);
    case_fused(&gpu, 4e-3);
    lab_close(&gpu);
}

/* What racecheck is run on, which takes a hundred times as long. */
Test(gpu_block, fused_in_short) {
    NEED_GPU();
    OPEN_FUSED(TLOB_COMPUTE_TF32);
    case_fused_in_short(&gpu);
    lab_close(&gpu);
}

Test(gpu_block, fused_with_millions_of_samples) {
    NEED_GPU();
    OPEN_FUSED(TLOB_COMPUTE_FP32);
    case_fused_many(&gpu, 1e-5);
    lab_close(&gpu);
    OPEN_FUSED(TLOB_COMPUTE_TF32);
    case_fused_many(&gpu, 4e-3);
    lab_close(&gpu);
}

Test(gpu_block, one_gradient_alone) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        case_alone(&gpu);
    }
}

Test(gpu_block, not_a_number_stays_in_its_sample) {
    NEED_GPU();
    for (int mode = TLOB_COMPUTE_TF32; mode <= TLOB_COMPUTE_FP32; mode++) {
        lab_open_cuda_in(&gpu, "threshold", (tlob_compute)mode);
        case_not_finite(&gpu, TLOB_PLAN_COMPOSED);
        lab_close(&gpu);
    }
}

Test(gpu_block, not_a_number_stays_in_its_sample_of_a_fused_block) {
    NEED_GPU();
    for (int mode = TLOB_COMPUTE_TF32; mode <= TLOB_COMPUTE_FP32; mode++) {
        OPEN_FUSED((tlob_compute)mode);
        case_not_finite(&gpu, TLOB_PLAN_FUSED);
        lab_close(&gpu);
    }
}

Test(gpu_block, kernels) {
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    case_attend_shapes(&gpu);
    case_attend_pathological(&gpu);
    case_affine(&gpu);
    case_add_pieces(&gpu);
    case_finish(&gpu);
    case_finish_pathological(&gpu);
    case_row_sum(&gpu);
    case_cross_entropy(&gpu);
    case_adam_table(&gpu);
    case_adam_lr(&gpu);
    case_adam_state(&gpu);
    case_head_train(&gpu);
    case_sum_chunks(&gpu);
    case_adam_chunked(&gpu);
    case_beyond_the_grid(&gpu);
    lab_close(&gpu);
}

Test(gpu_block, attention) {
    static const attend_bars bars = {.fp32 = 2e-5, .tf32 = 2e-3};
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    case_attend_heads(&gpu, &bars);
    case_attend_long(&gpu, &bars);
    case_attend_extremes(&gpu);
    lab_close(&gpu);
}

Test(gpu_block, random_weights_have_the_bits_of_the_host) {
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    case_uniform(&gpu);
    case_init(&gpu);
    lab_close(&gpu);
}

Test(gpu_block, training_follows_the_oracle_and_repeats_bit_for_bit) {
    enum { STEPS = 200, WEIGHTS = 3 * 16 * 32 + 16 * 16 + 51 };
    static float oracle[STEPS], first[STEPS], second[STEPS], first_weights[WEIGHTS], second_weights[WEIGHTS];
    NEED_GPU();
    lab host;
    lab_open_host(&host);
    train(&host, STEPS, oracle, NULL);
    lab_close(&host);
    FOR_EACH_POLICY(&gpu) {
        train(&gpu, STEPS, first, first_weights);
        train(&gpu, STEPS, second, second_weights);
        for (int i = 0; i < STEPS; i++)
            cr_assert(fabsf(first[i] - oracle[i]) <= 1e-3f, "%s, step %d: loss %g, the oracle's %g", policies[p_], i,
                      (double)first[i], (double)oracle[i]);
        lab_same_bits("losses", first, second, STEPS);
        lab_same_bits("weights", first_weights, second_weights, WEIGHTS);
    }
}

/* --- captured steps -------------------------------------------------------------------------------------------- */

static cudaGraphExec_t end_capture(void) {
    cudaGraph_t graph = end_capture_on(&gpu);
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    return exec;
}

/* A captured step must not freeze the step count or the learning rate. */
Test(gpu_block, captured_adam_steps_count_on) {
    enum { COUNT = 1000, STEPS = 50 };
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    const tlob_adam_params params = tlob_adam_params_default();
    float *start = lab_random(COUNT, 1.0f, 1), *gradients = lab_random(COUNT, 2.0f, 2);
    array g = lab_array(&gpu, gradients, COUNT, 0), w[2];
    tlob_adam *adam[2];
    for (int i = 0; i < 2; i++) {
        w[i] = lab_array(&gpu, start, COUNT, 0);
        OK(tlob_adam_create(gpu.ctx, COUNT, &params, &adam[i]));
    }
    begin_capture_on(&gpu);
    OK(tlob_adam_step(adam[1], gpu.stream, w[1].at, g.at));
    cudaGraphExec_t exec = end_capture();
    for (int t = 0; t < STEPS; t++) {
        float lr = 1e-2f / (float)(t + 1);
        OK(tlob_adam_set_lr(adam[0], gpu.stream, lr));
        OK(tlob_adam_set_lr(adam[1], gpu.stream, lr));
        OK(tlob_adam_step(adam[0], gpu.stream, w[0].at, g.at));
        CUDA_OK(cudaGraphLaunch(exec, tlob_stream_cuda(gpu.stream)));
    }
    float *eager = lab_read(&gpu, w[0]), *replayed = lab_read(&gpu, w[1]);
    lab_same_bits("w", eager, replayed, COUNT);
    CUDA_OK(cudaGraphExecDestroy(exec));
    tlob_adam_destroy(&adam[0]);
    tlob_adam_destroy(&adam[1]);
    free(start);
    free(gradients);
    free(eager);
    free(replayed);
    lab_close(&gpu);
}

Test(gpu_block, a_captured_training_step) {
    enum { SAMPLES = 64, STEPS = 20, WEIGHTS = 3 * 16 * 32 + 16 * 16 + 51 };
    static float weights[2][WEIGHTS];
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        float *x = lab_random(32 * SAMPLES, 1.5f, 3);
        uint8_t labels[SAMPLES];
        for (int i = 0; i < SAMPLES; i++)
            labels[i] = (uint8_t)(i * 7 % 3);
        array ax = lab_array(&gpu, x, 32 * SAMPLES, 0);
        const uint8_t *label_at = lab_bytes(&gpu, labels, SAMPLES);
        const tlob_model_params params = tlob_model_params_default();
        for (int captured = 0; captured < 2; captured++) {
            tlob_model *model;
            OK(tlob_model_create(gpu.stream, &params, &model));
            OK(tlob_model_step(model, gpu.stream, ax.at, label_at, SAMPLES)); /* warm from here on */
            cudaGraphExec_t exec = NULL;
            if (captured) {
                begin_capture_on(&gpu);
                OK(tlob_model_step(model, gpu.stream, ax.at, label_at, SAMPLES));
                exec = end_capture();
            }
            for (int t = 0; t < STEPS; t++) {
                if (captured)
                    CUDA_OK(cudaGraphLaunch(exec, tlob_stream_cuda(gpu.stream)));
                else
                    OK(tlob_model_step(model, gpu.stream, ax.at, label_at, SAMPLES));
            }
            OK(tlob_model_get_weights(model, gpu.stream, weights[captured], WEIGHTS));
            if (captured)
                CUDA_OK(cudaGraphExecDestroy(exec));
            tlob_model_destroy(&model);
        }
        lab_same_bits("weights", weights[0], weights[1], WEIGHTS);
        free(x);
    }
}

enum { SYNCED, ENQUEUED, AS_GRAPH, WAYS };
enum { BATCHES = 5, ROUNDS = 10, ALL_WEIGHTS = 3 * 16 * 32 + 16 * 16 + 51 };

/* Steps on batches of one chunk and of many, in turn. */
static void step_in_turn(tlob_model *model, const float *x, const uint8_t *labels, bool sync) {
    static const int64_t batches[BATCHES] = {65, 20011, 64, 257, 4000};
    for (int i = 0; i < BATCHES; i++) {
        OK(tlob_model_step(model, gpu.stream, x + 32 * i, labels + i, batches[i]));
        if (sync)
            OK(tlob_stream_sync(gpu.stream));
    }
}

/* Kernels that start while others end read nothing too early: steps that wait for each other have the same bits. */
Test(gpu_block, steps_that_overlap_have_the_bits_of_steps_that_do_not) {
    enum { MOST = 20011 + BATCHES };
    static float weights[WAYS][ALL_WEIGHTS], moments[WAYS][2 * ALL_WEIGHTS];
    static uint8_t labels[MOST];
    NEED_GPU();
    OPEN_FUSED(TLOB_COMPUTE_TF32);
    float *x = lab_random(32 * MOST, 1.5f, 5);
    for (int i = 0; i < MOST; i++)
        labels[i] = (uint8_t)(i * 7 % 11 % 3);
    array ax = lab_array(&gpu, x, 32 * MOST, 0);
    const uint8_t *label_at = lab_bytes(&gpu, labels, MOST);
    tlob_model_params params = tlob_model_params_default();
    params.max_samples = MOST;
    params.adam.lr = 1e-2f;
    for (int way = 0; way < WAYS; way++) {
        tlob_model *model;
        cudaGraphExec_t exec = NULL;
        int64_t steps;
        OK(tlob_model_create(gpu.stream, &params, &model));
        if (way == AS_GRAPH) {
            begin_capture_on(&gpu);
            step_in_turn(model, ax.at, label_at, false);
            exec = end_capture();
        }
        for (int round = 0; round < ROUNDS; round++)
            if (way == AS_GRAPH)
                CUDA_OK(cudaGraphLaunch(exec, tlob_stream_cuda(gpu.stream)));
            else
                step_in_turn(model, ax.at, label_at, way == SYNCED);
        OK(tlob_model_get_weights(model, gpu.stream, weights[way], ALL_WEIGHTS));
        OK(tlob_model_get_optimizer(model, gpu.stream, moments[way], 2 * ALL_WEIGHTS, &steps));
        cr_assert_eq(steps, ROUNDS * BATCHES);
        if (exec)
            CUDA_OK(cudaGraphExecDestroy(exec));
        tlob_model_destroy(&model);
        lab_same_bits("weights", weights[way], weights[SYNCED], ALL_WEIGHTS);
        lab_same_bits("moments", moments[way], moments[SYNCED], 2 * ALL_WEIGHTS);
    }
    cr_assert(isfinite(weights[SYNCED][0]) && weights[SYNCED][0] != 0.0f);
    free(x);
    lab_close(&gpu);
}
