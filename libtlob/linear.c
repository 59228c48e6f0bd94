#include "libtlob/parts.h"

#define AUX_BYTES 16 /* what aux is aligned to, whatever it holds: cublaslt wants as much for floats as for a mask */

/* What an activation makes of the products around it, and how its aux is padded: `padding` elements take `bytes`. */
static const struct {
    tlob_epilogue forward, forward_aux, backward;
    int64_t padding, bytes;
} activations[] = {
    [TLOB_ACTIVATION_NONE] = {TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_BIAS, TLOB_EPILOGUE_NONE, 1, 0},
    [TLOB_ACTIVATION_RELU] = {TLOB_EPILOGUE_RELU_BIAS, TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_DRELU_BGRAD, 128, 16},
    [TLOB_ACTIVATION_GELU] = {TLOB_EPILOGUE_GELU_BIAS, TLOB_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_DGELU_BGRAD, 8, 32},
};

/* --- the layer ------------------------------------------------------------------------------------------------- */

static tlob_status check_layer(const tlob_linear *layer, const char *name, const char *where) {
    int64_t elements, bytes;
    if (!layer)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", name);
    tlob_status status = tlob_check_positive(layer->in, where, "in");
    if (status == TLOB_OK)
        status = tlob_check_positive(layer->out, where, "out");
    if (status != TLOB_OK)
        return status;
    if ((unsigned)layer->activation > TLOB_ACTIVATION_GELU)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "activation is %d, which is no tlob_activation",
                         (int)layer->activation);
    if (!tlob_mul(layer->in, layer->out, &elements) || !tlob_mul(elements, (int64_t)sizeof(float), &bytes))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "in %" PRId64 " and out %" PRId64 " make a weight of more than 2^63 bytes", layer->in,
                         layer->out);
    return TLOB_OK;
}

tlob_status tlob_linear_check(const tlob_linear *layer) {
    return check_layer(layer, "layer", "tlob_linear_check");
}

static int64_t aux_units(const tlob_linear *layer) {
    return (layer->out - 1) / activations[layer->activation].padding + 1;
}

static int64_t ld_aux(const tlob_linear *layer) {
    return aux_units(layer) * activations[layer->activation].padding;
}

int64_t tlob_linear_aux_bytes(const tlob_linear *layer, int64_t n) {
    int64_t column, all;
    if (!tlob_mul(aux_units(layer), activations[layer->activation].bytes, &column) || !tlob_mul(column, n, &all))
        return -1;
    return all;
}

static tlob_status check_call(const tlob_stream *stream, const tlob_linear *layer, int64_t n, const char *where) {
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK)
        status = check_layer(layer, "layer", where);
    if (status == TLOB_OK && n < 0)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "n is %" PRId64 ", must be at least 0", n);
    return status;
}

static tlob_status check_aux(tlob_stream *stream, const void *aux, const char *where, const char *name) {
    if (!aux)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", name);
    if ((uintptr_t)aux % AUX_BYTES)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s (%p) is not aligned to %d bytes", name, aux, AUX_BYTES);
    return tlob_check_operand(stream, aux, where, name);
}

/* --- forward --------------------------------------------------------------------------------------------------- */

tlob_status tlob_linear_forward(tlob_stream *stream, const tlob_linear *layer, const float *weight, const float *bias,
                                const float *x, int64_t n, float *y, void *aux) {
    const char *where = "tlob_linear_forward";
    tlob_status status = check_call(stream, layer, n, where);
    if (status == TLOB_OK && aux && layer->activation == TLOB_ACTIVATION_NONE)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "aux is not NULL, and a layer without activation leaves nothing");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weight, where, "weight");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, bias, where, "bias");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, x, where, "x");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, y, where, "y");
    if (status == TLOB_OK && aux)
        status = check_aux(stream, aux, where, "aux");
    if (status != TLOB_OK)
        return status;
    tlob_gemm g = tlob_gemm_init(layer->out, n, layer->in);
    g.transa = TLOB_OP_T;
    g.lda = layer->in;
    g.epilogue = aux ? activations[layer->activation].forward_aux : activations[layer->activation].forward;
    g.ld_aux = ld_aux(layer);
    const tlob_gemm_operands operands = {.a = weight, .b = x, .d = y, .bias = bias, .aux = aux};
    return tlob_gemm_run(stream, &g, &operands);
}

/* --- backward -------------------------------------------------------------------------------------------------- */

/* n = 0 is a product with k = 0: zeros. */
tlob_status tlob_linear_backward_weight(tlob_stream *stream, const tlob_linear *layer, const float *x, const float *dz,
                                        int64_t n, float *dweight, float *dbias) {
    const char *where = "tlob_linear_backward_weight";
    tlob_status status = check_call(stream, layer, n, where);
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, x, where, "x");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, dz, where, "dz");
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, dweight, where, "dweight");
    if (status == TLOB_OK && dbias)
        status = tlob_check_floats(stream, dbias, where, "dbias");
    if (status != TLOB_OK)
        return status;
    tlob_gemm g = tlob_gemm_init(layer->in, layer->out, n);
    g.transb = TLOB_OP_T;
    g.ldb = layer->out;
    g.epilogue = dbias ? TLOB_EPILOGUE_BGRADB : TLOB_EPILOGUE_NONE;
    const tlob_gemm_operands operands = {.a = x, .b = dz, .d = dweight, .bgrad = dbias};
    return tlob_gemm_run(stream, &g, &operands);
}

/* Runs a product through the derivative of `layer`'s activation. Without columns nothing would be written, not even the
 * sum of none. */
static tlob_status run_derivative(tlob_stream *stream, const tlob_linear *layer, tlob_gemm g, tlob_gemm_operands x,
                                  const void *aux) {
    if (g.n == 0)
        return tlob_fill(stream, x.bgrad, 0, (size_t)layer->out * sizeof(float));
    g.epilogue = activations[layer->activation].backward;
    g.ld_aux = ld_aux(layer);
    x.aux = (void *)(uintptr_t)aux; /* read alone */
    return tlob_gemm_run(stream, &g, &x);
}

/* The derivative of an activation needs one, what its forward pass left, and a place for the bias gradient. */
static tlob_status check_derivative(tlob_stream *stream, const void *aux, const float *dbias, int64_t n,
                                    const char *where, const char *aux_name, const char *dbias_name) {
    tlob_status status = TLOB_OK;
    if (n > 0)
        status = check_aux(stream, aux, where, aux_name);
    return status == TLOB_OK ? tlob_check_floats(stream, dbias, where, dbias_name) : status;
}

static tlob_status check_below(tlob_stream *stream, const tlob_linear *layer, const tlob_linear *below,
                               const void *aux_below, const float *dbias_below, int64_t n, const char *where) {
    if (!below && (aux_below || dbias_below))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is not NULL, and below is",
                         aux_below ? "aux_below" : "dbias_below");
    if (!below)
        return TLOB_OK;
    tlob_status status = check_layer(below, "below", where);
    if (status != TLOB_OK)
        return status;
    if (below->activation == TLOB_ACTIVATION_NONE)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "below has no activation: give NULL, for its dz is dx");
    if (below->out != layer->in)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "below->out is %" PRId64 ", and layer->in %" PRId64, below->out,
                         layer->in);
    return check_derivative(stream, aux_below, dbias_below, n, where, "aux_below", "dbias_below");
}

tlob_status tlob_linear_backward_input(tlob_stream *stream, const tlob_linear *layer, const float *weight,
                                       const float *dz, int64_t n, const tlob_linear *below, const void *aux_below,
                                       float *dx, float *dbias_below) {
    const char *where = "tlob_linear_backward_input";
    tlob_status status = check_call(stream, layer, n, where);
    if (status == TLOB_OK)
        status = check_below(stream, layer, below, aux_below, dbias_below, n, where);
    if (status == TLOB_OK)
        status = tlob_check_floats(stream, weight, where, "weight");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, dz, where, "dz");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, dx, where, "dx");
    if (status != TLOB_OK)
        return status;
    const tlob_gemm g = tlob_gemm_init(layer->in, n, layer->out);
    const tlob_gemm_operands operands = {.a = weight, .b = dz, .d = dx, .bgrad = dbias_below};
    return below ? run_derivative(stream, below, g, operands, aux_below) : tlob_gemm_run(stream, &g, &operands);
}

/* z = 0 + 1 dy, through the derivative. */
tlob_status tlob_linear_backward_output(tlob_stream *stream, const tlob_linear *layer, const float *dy, const void *aux,
                                        int64_t n, float *dz, float *dbias) {
    const char *where = "tlob_linear_backward_output";
    tlob_status status = check_call(stream, layer, n, where);
    if (status == TLOB_OK && layer->activation == TLOB_ACTIVATION_NONE)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "the layer has no activation: its dz is dy");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, dy, where, "dy");
    if (status == TLOB_OK && n > 0)
        status = tlob_check_floats(stream, dz, where, "dz");
    if (status == TLOB_OK)
        status = check_derivative(stream, aux, dbias, n, where, "aux", "dbias");
    if (status != TLOB_OK)
        return status;
    tlob_gemm g = tlob_gemm_init(layer->out, n, 0);
    g.beta = 1.0f;
    return run_derivative(stream, layer, g, (tlob_gemm_operands){.c = dy, .d = dz, .bgrad = dbias}, aux);
}
