/* Cases drawn at random: a pure function of a seed and a number, so that a name is enough to replay one. */
#include <stdio.h>

#include "parity/cases.h"

/** Random bits: position `at` of a fill. */
typedef struct draw {
    uint64_t seed;
    uint32_t index;
    int64_t at;
} draw;

/* A whole number from 0 to n - 1. */
static int below(draw *d, int n) {
    float x = parity_fill_value(PARITY_UNIFORM, d->seed, 1000u + d->index, d->at++, 0);
    int value = (int)((x + 1) / 2 * (float)n);
    return value < n ? value : n - 1;
}

static bool one_in(draw *d, int n) {
    return below(d, n) == 0;
}

/* Small sizes as often as larger ones; now and then 1. */
static int64_t size(draw *d) {
    int most = 4 << below(d, 7);
    return one_in(d, 12) ? 1 : 1 + below(d, most);
}

static float scalar(draw *d) {
    static const float values[] = {0, 1, 1, 1, -0.5f, 2, -1, 0.37f};
    return values[below(d, LENGTH(values))];
}

static parity_fill input(draw *d) {
    static const parity_fill fills[] = {PARITY_UNIFORM,  PARITY_UNIFORM, PARITY_ORDER_FLOW,  PARITY_WEIGHT,
                                        PARITY_GRADIENT, PARITY_INTEGER, PARITY_SIGNED_ZERO, PARITY_MIXED};
    return one_in(d, 20) ? PARITY_ONE_NAN : fills[below(d, LENGTH(fills))];
}

static int64_t offset(draw *d) {
    return one_in(d, 3) ? below(d, 9) : 0;
}

static void draw_layout(draw *d, tlob_gemm *g) {
    g->lda += one_in(d, 3) ? below(d, 40) : 0;
    g->ldb += one_in(d, 3) ? below(d, 40) : 0;
    g->ldc += one_in(d, 3) ? below(d, 40) : 0;
    if (one_in(d, 2))
        return;
    bool tiny = g->m * g->n * g->k <= 64;
    parity_make_batch(g, 1 + below(d, tiny && one_in(d, 4) ? 3000 : 6), one_in(d, 2) ? below(d, 30) : 0);
    if (one_in(d, 5))
        g->stride_a = 0;
    if (one_in(d, 5))
        g->stride_b = 0;
}

parity_case parity_case_random(uint64_t seed, int index) {
    draw d = {.seed = seed, .index = (uint32_t)index};
    parity_case c = {0};
    int ops = below(&d, 4);
    int64_t m = size(&d), n = size(&d), k = size(&d);
    if (one_in(&d, 40))
        *(one_in(&d, 3) ? &m : one_in(&d, 2) ? &n : &k) = 0;
    c.gemm = parity_problem(ops, m, n, k, 0);
    draw_layout(&d, &c.gemm);
    c.gemm.alpha = scalar(&d);
    c.gemm.beta = scalar(&d);
    tlob_epilogue epilogue = (tlob_epilogue)below(&d, TLOB_EPILOGUE_COUNT);
    parity_set_epilogue(&c.gemm, epilogue, below(&d, 3), one_in(&d, 3) ? below(&d, 20) : 0, one_in(&d, 2));
    c.a = input(&d);
    c.b = input(&d);
    c.c = c.gemm.beta == 0 ? PARITY_NAN : input(&d);
    c.bias = input(&d);
    c.aux = input(&d);
    c.offset_a = offset(&d);
    c.offset_b = offset(&d);
    c.offset_c = offset(&d);
    c.offset_d = offset(&d);
    c.offset_bias = offset(&d);
    c.offset_bgrad = offset(&d);
    c.offset_aux = 4 * below(&d, 3);
    c.apart = one_in(&d, 2);
    snprintf(c.name, sizeof(c.name), "random/%llu/%d", (unsigned long long)seed, index);
    return c;
}
