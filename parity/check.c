/* The expected values, in the plainest way, and how far from them a backend may be. */
#include <math.h>

#include "parity/parity.h"

/* The largest slope of GELU, 1.1290 at z = sqrt(2), in its tanh form; that of GELU' is not needed: aux is given. */
#define GELU_SLOPE 1.13

/* One element of op(X), `row` and `col` counting in op(X). */
static float element(const float *x, tlob_op op, int64_t ld, int64_t row, int64_t col) {
    return op == TLOB_OP_N ? x[row + col * ld] : x[col + row * ld];
}

/* z, with its natural scale */
static parity_expectation expect_z(const tlob_gemm *g, const tlob_gemm_operands *x, bool bias, int64_t matrix,
                                   int64_t row, int64_t col) {
    long double sum = 0;
    double scale = 0;
    if (g->alpha != 0) { /* else A and B are not read */
        for (int64_t l = 0; l < g->k; l++) {
            long double a = element(x->a + matrix * g->stride_a, g->transa, g->lda, row, l);
            long double b = element(x->b + matrix * g->stride_b, g->transb, g->ldb, l, col);
            sum += a * b;
            scale += (double)fabsl(a * b);
        }
        sum *= g->alpha;
        scale *= fabs((double)g->alpha);
    }
    if (g->beta != 0) {
        long double c = (long double)g->beta * x->c[matrix * g->stride_c + row + col * g->ldc];
        sum += c;
        scale += (double)fabsl(c);
    }
    if (bias) {
        float value = x->bias[matrix * g->stride_bias + row];
        sum += value;
        scale += fabs((double)value);
    }
    return (parity_expectation){.value = sum, .scale = scale, .z = sum, .z_scale = scale};
}

static long double inner_tanh(long double z) {
    return tanhl(sqrtl(2 / acosl(-1)) * (z + 0.044715L * z * z * z));
}

static long double gelu(long double z) {
    return 0.5L * z * (1 + inner_tanh(z));
}

static long double gelu_slope(long double x) {
    long double t = inner_tanh(x), w = sqrtl(2 / acosl(-1)) * (1 + 3 * 0.044715L * x * x);
    return 0.5L * (1 + t) + 0.5L * x * (1 - t * t) * w;
}

static bool mask_bit(const tlob_gemm *g, const void *aux, int64_t matrix, int64_t row, int64_t col) {
    const unsigned char *column = (const unsigned char *)aux + (matrix * g->stride_aux + col * g->ld_aux) / 8;
    return column[row / 8] >> row % 8 & 1;
}

static long double activate(const tlob_gemm *g, const tlob_gemm_operands *x, int64_t matrix, int64_t row, int64_t col,
                            long double z) {
    switch (g->epilogue) {
    case TLOB_EPILOGUE_NONE:
    case TLOB_EPILOGUE_BIAS:
    case TLOB_EPILOGUE_BGRADA:
    case TLOB_EPILOGUE_BGRADB:
        break;
    case TLOB_EPILOGUE_RELU:
    case TLOB_EPILOGUE_RELU_BIAS:
        return z > 0 ? z : 0; /* also of NaN */
    case TLOB_EPILOGUE_RELU_AUX_BIAS:
        return z <= 0 ? 0 : z; /* NaN stays */
    case TLOB_EPILOGUE_DRELU_BGRAD:
        return mask_bit(g, x->aux, matrix, row, col) ? z : 0;
    case TLOB_EPILOGUE_GELU_BIAS:
    case TLOB_EPILOGUE_GELU_AUX_BIAS:
        return gelu(z);
    case TLOB_EPILOGUE_DGELU_BGRAD:
        return z * gelu_slope(((const float *)x->aux)[matrix * g->stride_aux + col * g->ld_aux + row]);
    }
    return z;
}

void parity_expect(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix, int64_t col,
                   parity_expectation *column) {
    bool bias = tlob_epilogue_get_traits(gemm->epilogue)->reads_bias;
    bool masked = gemm->epilogue == TLOB_EPILOGUE_DRELU_BGRAD;
    for (int64_t row = 0; row < gemm->m; row++) {
        parity_expectation *e = &column[row];
        *e = expect_z(gemm, x, bias, matrix, row, col);
        e->value = activate(gemm, x, matrix, row, col, e->z);
        bool sure = isfinite((double)e->value) && !isfinite(e->scale); /* what a function made of NaN or infinity */
        if (sure || (masked && !mask_bit(gemm, x->aux, matrix, row, col)))
            e->scale = 0;
    }
}

/* The sum of row `row` of op(X): k values, `step` apart from the first. */
static parity_expectation sum_input(const float *first, int64_t step, int64_t count) {
    parity_expectation sum = {0};
    for (int64_t l = 0; l < count; l++) {
        sum.value += first[l * step];
        sum.scale += fabs((double)first[l * step]);
    }
    return sum;
}

void parity_expect_bgrad(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix,
                         const parity_expectation *d, parity_expectation *sums) {
    const tlob_gemm *g = gemm;
    int64_t at_a = matrix * g->stride_a, at_b = matrix * g->stride_b;
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    if (g->epilogue == TLOB_EPILOGUE_BGRADB) {
        for (int64_t j = 0; j < g->n; j++)
            sums[j] =
                g->k ? sum_input(x->b + at_b + (tb ? j : j * g->ldb), tb ? g->ldb : 1, g->k) : (parity_expectation){0};
        return;
    }
    for (int64_t i = 0; i < g->m; i++) {
        sums[i] = (parity_expectation){0};
        if (g->epilogue == TLOB_EPILOGUE_BGRADA && g->k)
            sums[i] = sum_input(x->a + at_a + (ta ? i * g->lda : i), ta ? 1 : g->lda, g->k);
        for (int64_t j = 0; g->epilogue != TLOB_EPILOGUE_BGRADA && j < g->n; j++) {
            sums[i].value += d[i + j * g->m].value;
            sums[i].scale += d[i + j * g->m].scale;
        }
    }
}

static const double u = 0x1p-24;

static double rounding(int64_t terms) {
    return fmin(((double)terms + 8) * u, 2e-5);
}

/* On the host, by how many roundings to float32 a value may have passed. */
static double host_roundings(const tlob_gemm *g) {
    switch (g->epilogue) {
    case TLOB_EPILOGUE_NONE:
    case TLOB_EPILOGUE_BIAS:
    case TLOB_EPILOGUE_BGRADA:
    case TLOB_EPILOGUE_BGRADB:
        return 1;
    default:
        return 3;
    }
}

static double relative_of_z(const tlob_gemm *g, tlob_memory memory) {
    double r = rounding(g->k);
    return memory == TLOB_MEMORY_HOST        ? host_roundings(g) * u + ((double)g->k + 8) * 0x1p-52
           : g->compute == TLOB_COMPUTE_TF32 ? 0x1p-9 + 4 * r
                                             : r;
}

static double subnormals(const tlob_gemm *g) {
    return ((double)g->k + 8) * 0x1p-126;
}

double parity_bound_z(const tlob_gemm *gemm, tlob_memory memory, double z_scale) {
    return relative_of_z(gemm, memory) * z_scale + subnormals(gemm);
}

double parity_bound(const tlob_gemm *gemm, tlob_memory memory, double scale) {
    double relative = relative_of_z(gemm, memory), device = memory == TLOB_MEMORY_CUDA;
    if (gemm->epilogue == TLOB_EPILOGUE_GELU_BIAS || gemm->epilogue == TLOB_EPILOGUE_GELU_AUX_BIAS)
        relative = GELU_SLOPE * relative + device * PARITY_GELU;
    if (gemm->epilogue == TLOB_EPILOGUE_DGELU_BGRAD)
        relative = GELU_SLOPE * relative + device * PARITY_DGELU;
    return relative * scale + subnormals(gemm);
}

double parity_bound_bgrad(const tlob_gemm *gemm, tlob_memory memory, double scale) {
    bool host = memory == TLOB_MEMORY_HOST;
    if (gemm->epilogue == TLOB_EPILOGUE_BGRADA || gemm->epilogue == TLOB_EPILOGUE_BGRADB) {
        double r = rounding(gemm->k);
        double relative = host                                 ? u + (double)gemm->k * 0x1p-52
                          : gemm->compute == TLOB_COMPUTE_TF32 ? 0x1p-10 + 4 * r
                                                               : r;
        return relative * scale + subnormals(gemm);
    }
    double sum = host ? 3 * u + (double)gemm->n * 0x1p-52 : rounding(gemm->n);
    return parity_bound(gemm, memory, scale) + GELU_SLOPE * sum * scale + (double)gemm->n * subnormals(gemm);
}
