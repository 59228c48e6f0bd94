/** The linear classification head with softmax cross-entropy over three classes. */
#ifndef TLOB_HEAD_H
#define TLOB_HEAD_H

#include <tlob/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TLOB_CLASSES 3 /**< 0 up, 1 stationary, 2 down */

/** Floats in a head's flat parameters [W | b]: W is [3, features] column-major, b has 3. `features` >= 1. */
TLOB_API int64_t tlob_head_weight_count(int64_t features);

/** Xavier uniform W from `seed` (a counter space of its own), b = 0; otherwise as tlob_block_init_weights. */
TLOB_API tlob_status tlob_head_init_weights(tlob_stream *stream, int64_t features, uint64_t seed, float *weights);

/** Scratch of a head. One head serves one stream at a time. */
typedef struct tlob_head tlob_head;

/** Most samples of a head: as far as float32 counts, so that the number classified right is exact. */
#define TLOB_HEAD_SAMPLES_MAX ((int64_t)1 << 24)

/**
 * Scratch for up to `max_samples` (1 to TLOB_HEAD_SAMPLES_MAX) samples of `features` (>= 1) inputs: 3 floats for each
 * sample, and 3 * features + 5 for each 64 samples, but 132 times at most. Free with tlob_head_destroy. Errors: ARGUMENT,
 * CLOSED, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_head_create(tlob_context *ctx, int64_t features, int64_t max_samples, tlob_head **head);

/** Frees and sets `*head` to NULL; NULL is allowed. */
TLOB_API void tlob_head_destroy(tlob_head **head);

/**
 * logits = W y + b: y is [features, samples], logits [3, samples]; one product with the BIAS epilogue. Asynchronous.
 * Errors: as tlob_gemm_run.
 */
TLOB_API tlob_status tlob_head_forward(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                       int64_t samples, float *logits);

/** What tlob_head_loss reports. */
typedef struct tlob_loss {
    float loss;      /**< mean cross-entropy over the samples, in nats */
    int64_t correct; /**< samples whose largest logit is at the label; the lowest class wins a tie */
} tlob_loss;

/**
 * Cross-entropy of logits against `labels` (`samples` bytes, 0 to 2, in the memory of the context) and its gradients,
 * the mean over samples (>= 1): dlogits = (softmax - onehot) / samples, dW = dlogits y^T, db = rowsum(dlogits),
 * dy = W^T dlogits. dweights: flat as the weights, overwritten; dy: [features, samples], overwritten; both NULL: loss
 * alone, and weights and y may be NULL too. Asynchronous; no atomics, fixed order of summation. A label above 2 gives a
 * NaN loss, NaN gradients and never a wild read: check labels on the host with tlob_labels_check before they are
 * uploaded. Errors: as tlob_gemm_run.
 */
TLOB_API tlob_status tlob_head_loss(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                    const float *logits, const uint8_t *labels, int64_t samples, float *dweights,
                                    float *dy);

/**
 * tlob_head_forward and tlob_head_loss at once, in two kernels of libtlob's own instead of products: the logits are not
 * stored. Products of floats, whatever the compute mode. dweights and dy are not NULL. Otherwise as tlob_head_loss.
 * Errors: ARGUMENT, CLOSED, MEMORY_SPACE, CUDA.
 */
TLOB_API tlob_status tlob_head_train(tlob_head *head, tlob_stream *stream, const float *weights, const float *y,
                                     const uint8_t *labels, int64_t samples, float *dweights, float *dy);

/** The result of the last tlob_head_loss or tlob_head_train, or of the last launch of a graph with one: the sums
 *  divided by the samples of the last call. ARGUMENT before the first. Blocking. Errors: ARGUMENT, CLOSED, CUDA. */
TLOB_API tlob_status tlob_head_result(tlob_head *head, tlob_stream *stream, tlob_loss *loss);

/** Whether `count` labels in host memory are all 0, 1 or 2. Errors: TLOB_ERR_LABEL names index and value. */
TLOB_API tlob_status tlob_labels_check(const uint8_t *labels, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
