/** The Adam optimizer over one flat array of parameters. */
#ifndef TLOB_ADAM_H
#define TLOB_ADAM_H

#include <tlob/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Hyperparameters, with the defaults of torch.optim.Adam. */
typedef struct tlob_adam_params {
    float lr;    /**< 1e-3; >= 0 and finite */
    float beta1; /**< 0.9; in [0, 1) */
    float beta2; /**< 0.999; in [0, 1) */
    float eps;   /**< 1e-8; > 0; added outside the bias-corrected square root */
} tlob_adam_params;

/** The defaults above. */
TLOB_API tlob_adam_params tlob_adam_params_default(void);

/** First and second moments, the step count and the learning rate, all in memory that the device sees. */
typedef struct tlob_adam tlob_adam;

/**
 * State for `count` (>= 1) parameters, moments 0, step 0. Blocking. Free with tlob_adam_destroy.
 * Errors: ARGUMENT, CLOSED, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_adam_create(tlob_context *ctx, int64_t count, const tlob_adam_params *params,
                                      tlob_adam **adam);

/** Frees and sets `*adam` to NULL; NULL is allowed. */
TLOB_API void tlob_adam_destroy(tlob_adam **adam);

/**
 * One step, t = 1, 2, ... (Kingma and Ba 2015, as torch.optim.Adam without weight decay):
 *
 *     m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  w -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
 *
 * weights and gradients: `count` floats each in the memory of the stream's context. Asynchronous. t and lr are read on
 * the device when the step runs, so a captured step does not freeze them. Errors: ARGUMENT, MEMORY_SPACE, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_adam_step(tlob_adam *adam, tlob_stream *stream, float *weights, const float *gradients);

/**
 * Sets the learning rate of the steps enqueued on `stream` from now on, those of captured graphs included: it lies in
 * memory of the device. Captured itself, it sets `lr` again at each launch. Errors: ARGUMENT, CLOSED, CUDA.
 */
TLOB_API tlob_status tlob_adam_set_lr(tlob_adam *adam, tlob_stream *stream, float lr);

/** The most steps that a state can be set to: as far as a double counts, in which the oracle takes powers. */
#define TLOB_ADAM_STEPS_MAX ((int64_t)1 << 53)

/**
 * Copies what the steps so far have made of the state to host memory: the moments [m | v], `count` floats = twice the
 * parameters, and the number of steps. With the weights and the hyperparameters, which are not part of it, that is all
 * that the next step depends on. Blocking, after the earlier work of `stream`.
 * Errors: ARGUMENT, CLOSED, NOT_WARM during a capture of the stream, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_adam_get_state(tlob_adam *adam, tlob_stream *stream, float *moments, int64_t count,
                                         int64_t *steps);

/**
 * Puts back what tlob_adam_get_state gave: the next step is number `steps` + 1, and bit for bit what it would have
 * been. steps: 0 to TLOB_ADAM_STEPS_MAX. Hyperparameters are left as they are. Values are not looked at: v below 0
 * makes weights NaN. Blocking, after the earlier work of `stream`. Errors: as tlob_adam_get_state.
 */
TLOB_API tlob_status tlob_adam_set_state(tlob_adam *adam, tlob_stream *stream, const float *moments, int64_t count,
                                         int64_t steps);

#ifdef __cplusplus
}
#endif
#endif
