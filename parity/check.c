/* The expected values, in the plainest way, and how far from them a backend may be. */
#include <math.h>

#include "parity/parity.h"

/* One element of op(X), `row` and `col` counting in op(X). */
static float element(const float *x, tlob_op op, int64_t ld, int64_t row, int64_t col) {
    return op == TLOB_OP_N ? x[row + col * ld] : x[col + row * ld];
}

static parity_expectation expect_one(const tlob_gemm *g, const tlob_gemm_operands *x, int64_t matrix, int64_t row,
                                     int64_t col) {
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
    if (g->epilogue == TLOB_EPILOGUE_BIAS) {
        sum += x->bias[row];
        scale += fabs((double)x->bias[row]);
    }
    return (parity_expectation){.value = sum, .scale = scale};
}

void parity_expect(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix, int64_t col,
                   parity_expectation *column) {
    for (int64_t row = 0; row < gemm->m; row++)
        column[row] = expect_one(gemm, x, matrix, row, col);
}

double parity_bound(const tlob_gemm *gemm, tlob_memory memory, double scale) {
    const double u = ldexp(1, -24);
    double terms = (double)gemm->k + 8;
    double rounding = fmin(terms * u, 2e-5);
    double relative = memory == TLOB_MEMORY_HOST           ? u + terms * ldexp(1, -52)
                      : gemm->compute == TLOB_COMPUTE_TF32 ? ldexp(1, -9) + 4 * rounding
                                                           : rounding;
    return relative * scale + terms * ldexp(1, -126);
}
