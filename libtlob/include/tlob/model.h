/** A trainable classifier: TLOB block, linear head, cross-entropy, Adam. */
#ifndef TLOB_MODEL_H
#define TLOB_MODEL_H

#include <tlob/adam.h>
#include <tlob/block.h>
#include <tlob/head.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to make a model. */
typedef struct tlob_model_params {
    tlob_block_shape shape; /**< of the block: tlob_block_shape_default() */
    tlob_adam_params adam;  /**< of the optimizer: tlob_adam_params_default() */
    int64_t max_samples; /**< largest batch of a step or an evaluation, 1 to TLOB_HEAD_SAMPLES_MAX; 256 */
    uint64_t seed;       /**< of the initial weights; 1 */
} tlob_model_params;

/** The defaults above. */
TLOB_API tlob_model_params tlob_model_params_default(void);

/** Parameters, gradients, optimizer state and scratch of one model. One model serves one stream at a time. */
typedef struct tlob_model tlob_model;

/**
 * Makes a model and enqueues its initialisation on `stream`. Free with tlob_model_destroy.
 * Errors: ARGUMENT, CLOSED, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_model_create(tlob_stream *stream, const tlob_model_params *params, tlob_model **model);

/** Frees and sets `*model` to NULL; NULL is allowed. */
TLOB_API void tlob_model_destroy(tlob_model **model);

/** Floats in the flat parameters [W_Q | W_K | W_V | W_O | W_head | b_head]; the head sees d_out * seq inputs. */
TLOB_API int64_t tlob_model_weight_count(const tlob_block_shape *shape);

/**
 * One training step: forward, loss, backward, Adam. With a fused block four kernels of libtlob's own, of which the head
 * works in floats whatever the compute mode; else calls of the parts. x: [d_in, samples*seq]; labels: `samples` bytes;
 * both in the memory of the context. 1 <= samples <= max_samples. Asynchronous: read the figures with tlob_model_result.
 * May be captured after a step with as many samples on the same stream, and gives the same bits then: see
 * <tlob/graph.h>, and tlob_model_result for the figures. Errors: as tlob_gemm_run. After one of CUDA the optimizer may
 * have counted a step that was not made: put its state back.
 */
TLOB_API tlob_status tlob_model_step(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                                     int64_t samples);

/** Forward and loss alone, without gradients; logits: [3, samples] in the memory of the context. Otherwise as above. */
TLOB_API tlob_status tlob_model_evaluate(tlob_model *model, tlob_stream *stream, const float *x, const uint8_t *labels,
                                         int64_t samples, float *logits);

/**
 * Forward alone, for data without labels: logits: [3, samples]. x and logits may also lie in host memory that is mapped
 * into the device: a decision then needs no copy. The figures stay those of the last step or evaluation, but for mean_max.
 * Otherwise as tlob_model_evaluate.
 */
TLOB_API tlob_status tlob_model_predict(tlob_model *model, tlob_stream *stream, const float *x, int64_t samples,
                                        float *logits);

/** tlob_adam_set_lr of the model's optimizer: also of steps that a captured graph makes from now on. */
TLOB_API tlob_status tlob_model_set_lr(tlob_model *model, tlob_stream *stream, float lr);

/** Figures of the last step or evaluation. */
typedef struct tlob_model_figures {
    float loss;      /**< mean cross-entropy, nats */
    float mean_max;  /**< focus of the attention; see tlob_block_mean_max */
    int64_t correct; /**< samples classified right */
} tlob_model_figures;

/**
 * Of the last step or evaluation, or of the last launch of a graph with one. Sums are divided by the samples of the
 * last call, captured or not, and not by those of the launched graph: loss by those of a step or an evaluation,
 * mean_max by those of a prediction too. Launch only graphs of as many samples before asking. Blocking. Errors:
 * ARGUMENT, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_model_result(tlob_model *model, tlob_stream *stream, tlob_model_figures *figures);

/** Copies the flat parameters to host memory, `count` floats = tlob_model_weight_count. Blocking. */
TLOB_API tlob_status tlob_model_get_weights(tlob_model *model, tlob_stream *stream, float *weights, int64_t count);

/** Replaces the flat parameters from host memory; optimizer state is left as it is. Blocking. */
TLOB_API tlob_status tlob_model_set_weights(tlob_model *model, tlob_stream *stream, const float *weights,
                                            int64_t count);

/**
 * tlob_adam_get_state of the model's optimizer: moments [m | v], `count` floats = 2 * tlob_model_weight_count, each half
 * laid out as the parameters, and the training steps done. Blocking. With the weights it is all that the next step on a
 * batch depends on: set both in a model made with the same params, and training goes on bit for bit as it would have.
 * Errors: as tlob_adam_get_state.
 */
TLOB_API tlob_status tlob_model_get_optimizer(tlob_model *model, tlob_stream *stream, float *moments, int64_t count,
                                              int64_t *steps);

/** Puts it back: tlob_adam_set_state. Weights are left as they are. Blocking. Errors: as tlob_adam_set_state. */
TLOB_API tlob_status tlob_model_set_optimizer(tlob_model *model, tlob_stream *stream, const float *moments,
                                              int64_t count, int64_t steps);

#ifdef __cplusplus
}
#endif
#endif
