/**
 * What an epilogue does to one element, once for both memory spaces: in float in CUDA kernels, in double on the host.
 * The formulas are taken literally, so that NaN and infinities come out as <tlob/gemm.h> says. And what the oracle and
 * the host's `finish` share above that.
 */
#ifndef TLOB_KERNELS_EPILOGUE_H
#define TLOB_KERNELS_EPILOGUE_H

#include <math.h>

#include <tlob/gemm.h>

#ifdef __CUDACC__
#    define TLOB_ELEMENT static inline __device__
typedef float tlob_real;
#else
#    define TLOB_ELEMENT static inline
typedef double tlob_real;
#endif

/** A NaN gives 0, and so does -0: +0. */
TLOB_ELEMENT tlob_real tlob_relu(tlob_real z) {
    return z > 0 ? z : 0;
}

/** A NaN stays one: what goes with a mask, whose bit it sets. */
TLOB_ELEMENT tlob_real tlob_relu_nan(tlob_real z) {
    return z <= 0 ? 0 : z;
}

/** tanh(sqrt(2/pi) (z + 0.044715 z^3)) */
TLOB_ELEMENT tlob_real tlob_gelu_tanh(tlob_real z) {
    const tlob_real root = (tlob_real)0.79788456080286535588, cubic = (tlob_real)0.044715;
    return tanh(root * (z + cubic * z * z * z));
}

TLOB_ELEMENT tlob_real tlob_gelu(tlob_real z) {
    return (tlob_real)0.5 * z * (1 + tlob_gelu_tanh(z));
}

/**
 * With t the tanh: 0.5 (1 + t) + 0.5 z (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 z^2). The second term has vanished long
 * before z^2 overflows, but 0 * inf would be NaN; z = +-inf and NaN do give NaN.
 */
TLOB_ELEMENT tlob_real tlob_gelu_slope(tlob_real z) {
    const tlob_real root = (tlob_real)0.79788456080286535588, cubic = (tlob_real)(3 * 0.044715);
    tlob_real t = tlob_gelu_tanh(z), decay = z * (1 - t * t);
    return (tlob_real)0.5 * (1 + t) + (decay == 0 ? 0 : (tlob_real)0.5 * decay * root * (1 + cubic * z * z));
}

#ifndef __CUDACC__

/** Rows of a column that the host computes at a time: they stay in the first-level cache. A multiple of 8: whole bytes
 *  of a mask. */
#    define TLOB_TILE_ROWS 256

/** `rows` rows from `row` of column `column` of one matrix of the batch. */
typedef struct tlob_tile {
    int64_t matrix, column, row, rows;
    double z[TLOB_TILE_ROWS];   /**< the product and beta C, without the bias; then D before it is rounded */
    double sum[TLOB_TILE_ROWS]; /**< of z over the columns so far */
} tlob_tile;

/** Puts z into a tile. */
typedef void (*tlob_tile_fill)(const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_tile *tile);

/**
 * All that an epilogue writes from the z that `fill` gives: D, aux and bgrad, each rounded to float once. A mask, an
 * activation and the sums of bgrad are of the unrounded values. Columns are summed in ascending order.
 */
void tlob_host_epilogue(const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_tile_fill fill);

#endif
#endif
