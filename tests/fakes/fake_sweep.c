#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity/parity.h"
#include "tests/fakes/fake.h"

/* A matrix operand of `span` elements, `offset` floats past an aligned address. */
static float *make(int64_t span, int64_t offset, parity_fill fill, uint32_t salt, void **block) {
    size_t bytes = ((size_t)(span + offset) * sizeof(float) + 256) / 256 * 256;
    float *x = *block = aligned_alloc(256, bytes);
    memset(x, 0, bytes);
    for (int64_t i = 0; i < span; i++)
        x[offset + i] = parity_fill_value(fill, 1, salt, i, span);
    return x + offset;
}

static int64_t span(int64_t rows, int64_t cols, int64_t ld, const tlob_gemm *g, int64_t stride) {
    return rows + (cols - 1) * ld + (g->batch > 1 ? (g->batch - 1) * stride : 0);
}

static bool as_expected(const tlob_gemm *g, const tlob_gemm_operands *x, const float *d) {
    parity_expectation *column = malloc((size_t)g->m * sizeof(*column));
    bool good = true;
    for (int64_t p = 0; p < g->batch; p++)
        for (int64_t j = 0; j < g->n; j++) {
            parity_expect(g, x, p, j, column);
            for (int64_t i = 0; i < g->m; i++) {
                double got = d[p * g->stride_c + j * g->ldc + i], want = (double)column[i].value;
                if (!isfinite(want))
                    good = good && (isnan(want) ? isnan(got) : got == want);
                else
                    good = good && fabs(got - want) <= parity_bound(g, TLOB_MEMORY_CUDA, column[i].scale);
            }
        }
    free(column);
    return good;
}

static bool run_case(const tlob_backend_ops *ops, tlob_lane *lane, const parity_case *c, const tlob_gemm *g) {
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    int64_t span_c = span(g->m, g->n, g->ldc, g, g->stride_c);
    void *blocks[5];
    tlob_gemm_operands x = {0}, want;
    x.a = make(span(ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g, g->stride_a), c->offset_a, c->a, 0, &blocks[0]);
    x.b = make(span(tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g, g->stride_b), c->offset_b, c->b, 1, &blocks[1]);
    const float *in = make(span_c, c->offset_c, c->c, 2, &blocks[2]);
    x.d = make(span_c, c->offset_d, c->apart ? PARITY_NAN : c->c, 2, &blocks[3]);
    const float *bias = make(g->m, c->offset_bias, c->bias, 4, &blocks[4]);
    x.bias = g->epilogue == TLOB_EPILOGUE_BIAS ? bias : NULL;
    x.c = c->apart ? in : g->beta != 0 ? x.d : NULL;
    want = x;
    want.c = in; /* the same data as D had before */

    tlob_operation operation = tlob_gemm_operation(g);
    tlob_status status = operation == TLOB_OPERATION_SGEMM                   ? ops->sgemm(lane, g, &x)
                         : operation == TLOB_OPERATION_SGEMM_STRIDED_BATCHED ? ops->sgemm_strided_batched(lane, g, &x)
                                                                             : ops->matmul_bias(lane, g, &x);
    bool good = status == TLOB_OK && fake.gemm.compute == g->compute && as_expected(g, &want, x.d);
    for (int i = 0; i < 5; i++)
        free(blocks[i]);
    return good;
}

int fake_sweep(const tlob_backend_ops *ops, tlob_lane *lane, tlob_compute compute, char failed[64]) {
    int ran = 0;
    failed[0] = 0;
    for (int i = 0; i < parity_case_count() && !failed[0]; i++) {
        parity_case c = parity_case_get(i);
        tlob_gemm g = c.gemm;
        if (g.m < 1 || g.n < 1 || g.k < 1 || g.k > 4096 || g.batch < 1 || g.alpha == 0)
            continue; /* the core keeps these from a backend, and long sums need no fake */
        g.compute = compute;
        ran++;
        fake_forget_calls();
        if (!run_case(ops, lane, &c, &g))
            memcpy(failed, c.name, sizeof(c.name));
    }
    return ran;
}
