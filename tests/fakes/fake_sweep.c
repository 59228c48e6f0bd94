#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity/parity.h"
#include "tests/fakes/fake.h"

/* `span` zeroed floats, `offset` past an aligned address. */
static float *room(int64_t span, int64_t offset, void **block) {
    size_t bytes = ((size_t)(span + offset) * sizeof(float) + 256) / 256 * 256;
    float *x = *block = aligned_alloc(256, bytes);
    memset(x, 0, bytes);
    return x + offset;
}

/* A matrix operand of `span` elements. */
static float *make(int64_t span, int64_t offset, parity_fill fill, uint32_t salt, void **block) {
    float *x = room(span, offset, block);
    for (int64_t i = 0; i < span; i++)
        x[i] = parity_fill_value(fill, 1, salt, i, span);
    return x;
}

static int64_t span(int64_t rows, int64_t cols, int64_t ld, const tlob_gemm *g, int64_t stride) {
    return rows + (cols - 1) * ld + (g->batch > 1 ? (g->batch - 1) * stride : 0);
}

/* A mask of `span` bits, in whole words, each bit with the sign of a value. */
static void *make_mask(int64_t bits, int64_t offset, parity_fill fill, void **block) {
    uint8_t *mask = (uint8_t *)room((bits + 31) / 32, offset, block);
    for (int64_t i = 0; i < bits; i++)
        mask[i / 8] |= (uint8_t)(!(parity_fill_value(fill, 1, 5, i, bits) < 0) << i % 8);
    return mask;
}

static bool close_enough(long double got, long double want, double bound) {
    return isfinite((double)want) ? fabsl(got - want) <= bound : isnan((double)want) ? isnan(got) : got == (double)want;
}

/* What an epilogue has written to aux next to D. */
static bool aux_as_expected(const tlob_gemm *g, const void *aux, int64_t at, int64_t row, const parity_expectation *e) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    double bound = parity_bound_z(g, TLOB_MEMORY_CUDA, e->z_scale);
    if (!traits->writes_aux)
        return true;
    if (!traits->aux_is_mask)
        return close_enough(((const float *)aux)[at + row], e->z, bound);
    bool bit = ((const uint8_t *)aux)[(at + row) / 8] >> (at + row) % 8 & 1;
    return fabsl(e->z) <= bound || bit == !(e->z < 0);
}

static bool matrix_as_expected(const tlob_gemm *g, const tlob_gemm_operands *in, const tlob_gemm_operands *out,
                               int64_t p, parity_expectation *all) {
    bool good = true;
    for (int64_t j = 0; j < g->n; j++) {
        parity_expectation *column = all + j * g->m;
        parity_expect(g, in, p, j, column);
        for (int64_t i = 0; i < g->m; i++)
            good = good &&
                   close_enough(out->d[p * g->stride_c + j * g->ldc + i], column[i].value,
                                parity_bound(g, TLOB_MEMORY_CUDA, column[i].scale)) &&
                   aux_as_expected(g, out->aux, p * g->stride_aux + j * g->ld_aux, i, &column[i]);
    }
    return good;
}

static bool bgrad_as_expected(const tlob_gemm *g, const tlob_gemm_operands *in, const float *bgrad, int64_t p,
                              const parity_expectation *all, parity_expectation *sums) {
    int64_t count = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m;
    bool good = true;
    parity_expect_bgrad(g, in, p, all, sums);
    for (int64_t i = 0; i < count; i++)
        good = good && close_enough(bgrad[p * g->stride_bias + i], sums[i].value,
                                    parity_bound_bgrad(g, TLOB_MEMORY_CUDA, sums[i].scale));
    return good;
}

static bool as_expected(const tlob_gemm *g, const tlob_gemm_operands *in, const tlob_gemm_operands *out) {
    parity_expectation *all = malloc((size_t)(g->m * g->n) * sizeof(*all));
    parity_expectation *sums = malloc((size_t)(g->m + g->n) * sizeof(*sums));
    bool good = true;
    for (int64_t p = 0; p < g->batch && good; p++) {
        good = matrix_as_expected(g, in, out, p, all);
        if (good && tlob_epilogue_get_traits(g->epilogue)->writes_bgrad)
            good = bgrad_as_expected(g, in, out->bgrad, p, all, sums);
    }
    free(all);
    free(sums);
    return good;
}

static tlob_status run_slot(const tlob_backend_ops *ops, tlob_lane *lane, const tlob_gemm *g,
                            const tlob_gemm_operands *x) {
    tlob_operation operation = tlob_gemm_operation(g);
    void *memo = NULL;
    return operation == TLOB_OPERATION_SGEMM                   ? ops->sgemm(lane, g, x, NULL, &memo)
           : operation == TLOB_OPERATION_SGEMM_STRIDED_BATCHED ? ops->sgemm_strided_batched(lane, g, x, NULL, &memo)
                                                               : ops->matmul_bias(lane, g, x, NULL, &memo);
}

static bool run_case(const tlob_backend_ops *ops, tlob_lane *lane, const parity_case *c, const tlob_gemm *g) {
    enum { BLOCKS = 7 };
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    int64_t span_c = span(g->m, g->n, g->ldc, g, g->stride_c);
    int64_t vector = span(g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m, 1, 0, g, g->stride_bias);
    int64_t span_aux = traits->reads_aux || traits->writes_aux ? span(g->m, g->n, g->ld_aux, g, g->stride_aux) : 0;
    void *blocks[BLOCKS];
    tlob_gemm_operands x = {0}, want;
    x.a = make(span(ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g, g->stride_a), c->offset_a, c->a, 0, &blocks[0]);
    x.b = make(span(tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g, g->stride_b), c->offset_b, c->b, 1, &blocks[1]);
    const float *in = make(span_c, c->offset_c, c->c, 2, &blocks[2]);
    x.d = make(span_c, c->offset_d, c->apart ? PARITY_NAN : c->c, 2, &blocks[3]);
    const float *bias = make(vector, c->offset_bias, c->bias, 4, &blocks[4]);
    float *bgrad = make(vector, c->offset_bgrad, PARITY_NAN, 4, &blocks[5]);
    void *aux = traits->aux_is_mask ? make_mask(span_aux, c->offset_aux, c->aux, &blocks[6])
                                    : make(span_aux, c->offset_aux, c->aux, 5, &blocks[6]);
    x.bias = traits->reads_bias ? bias : NULL;
    x.bgrad = traits->writes_bgrad ? bgrad : NULL;
    x.aux = span_aux ? aux : NULL;
    x.c = c->apart ? in : g->beta != 0 ? x.d : NULL;
    want = x;
    want.c = in; /* the same data as D had before */

    tlob_status status = run_slot(ops, lane, g, &x);
    bool good = status == TLOB_OK && fake.gemm.compute == g->compute && as_expected(g, &want, &x);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return good;
}

static bool aux_is_misaligned(const tlob_backend_ops *ops, const parity_case *c) {
    bool mask = tlob_epilogue_get_traits(c->gemm.epilogue)->aux_is_mask;
    return !mask && ops->caps.aux_alignment && 4 * c->offset_aux % ops->caps.aux_alignment;
}

int fake_sweep(const tlob_backend_ops *ops, tlob_lane *lane, tlob_compute compute, char failed[64]) {
    int ran = 0;
    failed[0] = 0;
    for (int i = 0; i < parity_case_count() && !failed[0]; i++) {
        parity_case c = parity_case_get(i);
        tlob_gemm g = c.gemm;
        const char *why;
        if (c.huge || g.m < 1 || g.n < 1 || g.k < 1 || g.k > 4096 || g.batch < 1 || g.batch > 64 || g.alpha == 0)
            continue; /* the core keeps these from a backend, and long sums and batches need no fake */
        g.compute = compute;
        if ((ops->supports && !ops->supports(&g, &why)) || aux_is_misaligned(ops, &c))
            continue;
        ran++;
        fake_forget_calls();
        if (!run_case(ops, lane, &c, &g))
            memcpy(failed, c.name, sizeof(c.name));
    }
    return ran;
}
