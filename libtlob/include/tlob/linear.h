/** A linear layer with an activation, y = act(W x + b), forward and backward by the epilogues of one product each. */
#ifndef TLOB_LINEAR_H
#define TLOB_LINEAR_H

#include <tlob/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What follows W x + b. */
typedef enum tlob_activation {
    TLOB_ACTIVATION_NONE, /**< z itself */
    TLOB_ACTIVATION_RELU, /**< max(z, 0); its gradient at z = 0 is 1 (torch: 0); of NaN see tlob_epilogue */
    TLOB_ACTIVATION_GELU, /**< the tanh form: see tlob_epilogue */
} tlob_activation;

/**
 * The sizes of a layer: a plain value. x is [in, n], y is [out, n], float32, column-major and packed; a column is one
 * sample. The weight lies as torch.nn.Linear keeps it, [out, in] row-major, which is W^T, [in, out], column-major; the
 * bias has `out` elements. Gradients lie as what they are the gradients of.
 *
 * In all calls below n >= 0 is the number of columns; pointers to [in, n] or [out, n], and aux, may be NULL where it is
 * 0, and gradients of a weight and a bias are then 0. Everything lies in the memory of the stream's context; outputs
 * are overwritten. The calls are asynchronous, keep nothing, and may be captured as tlob_gemm_run may. Thread-safety
 * and errors: as tlob_gemm_run; ARGUMENT also names what is NULL, misaligned or not valid.
 */
typedef struct tlob_linear {
    int64_t in;                 /**< rows of x, >= 1 */
    int64_t out;                /**< rows of y, >= 1 */
    tlob_activation activation; /**< what follows */
} tlob_linear;

/** Whether the sizes are valid, with a weight below 2^63 bytes. Errors: ARGUMENT names the field. Thread-safe. */
TLOB_API tlob_status tlob_linear_check(const tlob_linear *layer);

/**
 * Bytes of `aux`, what the forward pass of n samples leaves for the backward pass: with RELU a bit for each element of
 * y, padded to 128 bits a column; with GELU z itself, a float for each, padded to 8 a column; 0 with NONE. -1 where
 * that is more than 2^63 bytes. `layer` must be valid and n >= 0. Thread-safe.
 */
TLOB_API int64_t tlob_linear_aux_bytes(const tlob_linear *layer, int64_t n);

/**
 * y = act(W x + b): one product with the epilogue BIAS, RELU_AUX_BIAS or GELU_AUX_BIAS; without `aux`, which only the
 * backward pass needs, RELU_BIAS or GELU_BIAS. aux: tlob_linear_aux_bytes, aligned to 16 bytes; NULL with NONE.
 */
TLOB_API tlob_status tlob_linear_forward(tlob_stream *stream, const tlob_linear *layer, const float *weight,
                                         const float *bias, const float *x, int64_t n, float *y, void *aux);

/**
 * From dz, the gradient of z = W x + b: dweight = dz x^T, and dbias = rowsum(dz), one product with the epilogue BGRADB;
 * dbias NULL, where tlob_linear_backward_input of the layer above or tlob_linear_backward_output of this one has given
 * it already: without epilogue.
 */
TLOB_API tlob_status tlob_linear_backward_weight(tlob_stream *stream, const tlob_linear *layer, const float *x,
                                                 const float *dz, int64_t n, float *dweight, float *dbias);

/**
 * From dz of this layer: dx = W^T dz where `below` is NULL, and aux_below and dbias_below with it. Else x is the output
 * of the layer `below`, and dx is that layer's dz, through the derivative of its activation (aux_below: as its forward
 * pass left it), and dbias_below its bias gradient (below->out elements): one product with the epilogue DRELU_BGRAD or
 * DGELU_BGRAD. A layer below without activation: give NULL, for its dz is dx. Errors: also ARGUMENT where below->out is
 * not layer->in.
 */
TLOB_API tlob_status tlob_linear_backward_input(tlob_stream *stream, const tlob_linear *layer, const float *weight,
                                                const float *dz, int64_t n, const tlob_linear *below,
                                                const void *aux_below, float *dx, float *dbias_below);

/**
 * From dy, the gradient of y, where it comes from something else than a linear layer: dz = dy through the derivative of
 * the activation, dbias = rowsum(dz); libtlob's own kernels, no product. dz may be dy. Errors: also ARGUMENT for a
 * layer without activation, whose dz is dy. It is a call of tlob_gemm_run with k = 0: the policy must choose a backend
 * that has the epilogue, although that backend has nothing to do.
 */
TLOB_API tlob_status tlob_linear_backward_output(tlob_stream *stream, const tlob_linear *layer, const float *dy,
                                                 const void *aux, int64_t n, float *dz, float *dbias);

#ifdef __cplusplus
}
#endif
#endif
