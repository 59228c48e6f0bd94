/*
 * The table: groups of cases, each made by a function from its index. Names say what differs within a group.
 *
 * Sizes are mixed and non-square throughout, for a swapped m and n, or a leading dimension taken for another, hides in
 * square matrices.
 */
#include <fnmatch.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "parity/cases.h"

const char *parity_ops_name(int ops) {
    static const char *const names[] = {"nn", "nt", "tn", "tt"};
    return names[ops & 3];
}

void parity_name(parity_case *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof(c->name), format, args);
    va_end(args);
}

tlob_gemm parity_problem(int ops, int64_t m, int64_t n, int64_t k, int64_t pad) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.transa = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
    int64_t rows_a = ops & 2 ? k : m, rows_b = ops & 1 ? n : k;
    g.lda = (rows_a > 1 ? rows_a : 1) + pad;
    g.ldb = (rows_b > 1 ? rows_b : 1) + (pad ? pad + 1 : 0);
    g.ldc = (m > 1 ? m : 1) + (pad ? pad + 2 : 0);
    return g;
}

void parity_make_batch(tlob_gemm *g, int64_t count, int64_t gap) {
    g->batch = count;
    g->stride_a = g->lda * (g->transa == TLOB_OP_T ? g->m : g->k) + gap;
    g->stride_b = g->ldb * (g->transb == TLOB_OP_T ? g->k : g->n) + gap;
    g->stride_c = g->ldc * g->n + gap;
}

void parity_set_epilogue(tlob_gemm *g, tlob_epilogue epilogue, int spare, int64_t gap, bool shared) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(epilogue);
    int64_t unit = t->aux_is_mask ? 128 : 8, vector = epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m;
    g->epilogue = epilogue;
    g->ld_aux = ((g->m > 1 ? g->m : 1) + unit - 1) / unit * unit + spare * unit;
    g->stride_aux = g->ld_aux * g->n + spare * unit;
    g->stride_bias = shared && !t->writes_bgrad ? 0 : vector + gap;
}

/* --- the products of TLOB -------------------------------------------------------------------------------------- */

/* The kinds of products in the block 32 -> 16; N takes the place of a 0. dx adds to what another product has left. */
static const struct {
    const char *name;
    int ops;
    int64_t m, n, k;
    parity_fill a, b;
    float beta;
} kinds[] = {
    {"q", 0, 16, 0, 32, PARITY_WEIGHT, PARITY_ORDER_FLOW, 0},
    {"k", 0, 16, 0, 32, PARITY_WEIGHT, PARITY_ORDER_FLOW, 0},
    {"v", 0, 16, 0, 32, PARITY_WEIGHT, PARITY_ORDER_FLOW, 0},
    {"o", 0, 16, 0, 16, PARITY_WEIGHT, PARITY_UNIFORM, 0},
    {"dx_o", 2, 16, 0, 16, PARITY_WEIGHT, PARITY_GRADIENT, 0},
    {"dw_o", 1, 16, 16, 0, PARITY_GRADIENT, PARITY_UNIFORM, 0},
    {"dw_q", 1, 16, 32, 0, PARITY_GRADIENT, PARITY_ORDER_FLOW, 0},
    {"dw_k", 1, 16, 32, 0, PARITY_GRADIENT, PARITY_ORDER_FLOW, 0},
    {"dw_v", 1, 16, 32, 0, PARITY_GRADIENT, PARITY_ORDER_FLOW, 0},
    {"dx", 2, 32, 0, 16, PARITY_WEIGHT, PARITY_GRADIENT, 1},
};
static const int samples[] = {64, 1, 256, 4096};

static void make_tlob(int i, parity_case *c) {
    int64_t n = samples[i % LENGTH(samples)];
    int kind = i / LENGTH(samples);
    c->gemm = parity_problem(kinds[kind].ops, kinds[kind].m, kinds[kind].n ? kinds[kind].n : n,
                             kinds[kind].k ? kinds[kind].k : n, 0);
    c->gemm.beta = kinds[kind].beta;
    c->a = kinds[kind].a;
    c->b = kinds[kind].b;
    c->c = PARITY_GRADIENT;
    c->tf32_limit = n == 64 ? 2e-3f : 0;
    parity_name(c, "%s/n%d", kinds[kind].name, (int)n);
}

/* Q, K and V as one batch that shares X; their weight gradients likewise. */
static void make_fused(int i, parity_case *c) {
    int64_t n = samples[i / 2];
    bool backward = i % 2;
    c->gemm = backward ? parity_problem(1, 16, 32, n, 0) : parity_problem(0, 16, n, 32, 0);
    parity_make_batch(&c->gemm, 3, 0);
    c->gemm.stride_b = 0;
    c->a = backward ? PARITY_GRADIENT : PARITY_WEIGHT;
    c->b = PARITY_ORDER_FLOW;
    c->tf32_limit = n == 64 ? 2e-3f : 0;
    parity_name(c, "%s/n%d", backward ? "dw_qkv" : "qkv", (int)n);
}

/* Long sums: weight gradients of large batches. */
static void make_deep(int i, parity_case *c) {
    static const int ks[] = {1000, 4097, 65536};
    int k = ks[i / 4];
    c->gemm = parity_problem(i % 4, i % 2 ? 16 : 15, i % 2 ? 32 : 7, k, 0);
    parity_name(c, "%s/k%d", parity_ops_name(i % 4), k);
}

/* Few rows and many columns, with a bias: projections of large batches. */
static void make_tall(int i, parity_case *c) {
    static const int ms[] = {10, 16, 40};
    c->gemm = parity_problem(0, ms[i], 20011, i == 1 ? 32 : 10, 0);
    c->gemm.epilogue = TLOB_EPILOGUE_BIAS;
    parity_name(c, "m%d", ms[i]);
}

/* --- layouts --------------------------------------------------------------------------------------------------- */

static void make_transpose(int i, parity_case *c) {
    c->gemm = parity_problem(i % 4, 5, 7, 11, i / 4 ? 3 : 0);
    c->gemm.alpha = 2;
    c->gemm.beta = i / 4 ? -1 : 0;
    c->a = c->b = c->c = PARITY_INTEGER;
    c->exact = true;
    parity_name(c, "%s%s", parity_ops_name(i % 4), i / 4 ? "-padded" : "");
}

static const int sizes[] = {1, 2, 3, 31, 33, 64, 65, 127, 129};

static void make_size(int i, parity_case *c) {
    int a = i % LENGTH(sizes), b = i / LENGTH(sizes);
    c->gemm = parity_problem((a + b) % 4, sizes[a], sizes[b], sizes[(2 * a + 3 * b + 1) % LENGTH(sizes)], 0);
    parity_name(c, "%s/%dx%dx%d", parity_ops_name((a + b) % 4), (int)c->gemm.m, (int)c->gemm.n, (int)c->gemm.k);
}

/* C holds NaN and beta is 0: sizes that are no whole tile, where kernels take their special ways. */
static void make_poison(int i, parity_case *c) {
    static const char *const ways[] = {"plain", "batch", "bias"};
    int m = i % 9 + 1, n = i / 9 + 1, way = (m + n) % 3;
    c->gemm = parity_problem(i % 4, m, n, m * n % 11 + 1, 0);
    if (way == 1)
        parity_make_batch(&c->gemm, 2, 0);
    if (way == 2)
        c->gemm.epilogue = TLOB_EPILOGUE_BIAS;
    c->apart = i % 2;
    parity_name(c, "%s/%dx%d", ways[way], m, n);
}

static void make_padded(int i, parity_case *c) {
    static const struct {
        int m, n, k, pad;
    } rows[] = {{1, 5, 3, 1}, {31, 65, 17, 3}, {64, 33, 96, 4}, {129, 2, 66, 61}};
    int r = i / 4;
    c->gemm = parity_problem(i % 4, rows[r].m, rows[r].n, rows[r].k, rows[r].pad);
    c->gemm.beta = r % 2 ? -0.5f : 0;
    c->apart = r > 1;
    parity_name(c, "%s/%dx%dx%d+%d", parity_ops_name(i % 4), rows[r].m, rows[r].n, rows[r].k, rows[r].pad);
}

/* Strides: without gaps, with gaps of an odd number of floats, and with A, B or both shared by the batch. */
static void make_stride(int i, parity_case *c) {
    static const char *const ways[] = {"packed", "gaps", "shared-a", "shared-b", "shared-ab", "padded-gaps"};
    int way = i / 4;
    c->gemm = parity_problem(i % 4, 5, 3, 7, way == 5 ? 2 : 0);
    parity_make_batch(&c->gemm, 9, way == 1 || way == 5 ? 13 : 0);
    if (way == 2 || way == 4)
        c->gemm.stride_a = 0;
    if (way == 3 || way == 4)
        c->gemm.stride_b = 0;
    c->gemm.beta = i % 2 ? 2 : 0;
    c->apart = way % 2;
    parity_name(c, "%s/%s", ways[way], parity_ops_name(i % 4));
}

/* The outputs of a batch are row slices of one parent matrix: they interleave. */
static void make_slices(int i, parity_case *c) {
    c->gemm = parity_problem(i, 8, 37, 24, 0);
    parity_make_batch(&c->gemm, 4, 0);
    c->gemm.ldc = 4 * 8 + 3;
    c->gemm.stride_c = 8;
    c->gemm.beta = i % 2 ? 1 : 0;
    parity_name(c, "%s", parity_ops_name(i));
}

static void make_batches(int i, parity_case *c) {
    static const int counts[] = {2, 10, 100, 1000};
    bool cube = i % 2;
    c->gemm = cube ? parity_problem(0, 4, 4, 4, 0) : parity_problem(i / 2 % 4, 3, 5, 7, 0);
    parity_make_batch(&c->gemm, counts[i / 2], 0);
    if (i / 2 % 2)
        c->gemm.epilogue = TLOB_EPILOGUE_BIAS;
    parity_name(c, "%s/x%d", cube ? "4x4x4" : "3x5x7", counts[i / 2]);
}

/* --- scalars, emptiness ---------------------------------------------------------------------------------------- */

static void make_scalars(int i, parity_case *c) {
    static const float values[] = {0, 1, -0.5f, 2};
    c->gemm = parity_problem(i % 3, 33, 31, 65, 0);
    c->gemm.alpha = values[i % 4];
    c->gemm.beta = values[i / 4 % 4];
    c->apart = i / 16;
    c->null_inputs = c->gemm.alpha == 0 && c->apart;
    parity_name(c, "alpha%g-beta%g%s", (double)c->gemm.alpha, (double)c->gemm.beta, c->apart ? "-apart" : "");
}

/* Every one of m, n, k, batch is 0 or 3. */
static void make_empty(int i, parity_case *c) {
    int m = i & 1 ? 3 : 0, n = i & 2 ? 3 : 0, k = i & 4 ? 3 : 0, batch = i & 8 ? 3 : 0;
    c->gemm = parity_problem(i % 4, m, n, k, 0);
    parity_make_batch(&c->gemm, batch, 1);
    c->gemm.beta = i & 16 ? 2 : 0;
    c->gemm.epilogue = i & 32 ? TLOB_EPILOGUE_BIAS : TLOB_EPILOGUE_NONE;
    c->null_inputs = k == 0;
    parity_name(c, "%dx%dx%dx%d-beta%g%s", m, n, k, batch, (double)c->gemm.beta, i & 32 ? "-bias" : "");
}

/* --- biases and alignment -------------------------------------------------------------------------------------- */

/* The bias may be a slice: 0 to 3 floats past an aligned address. */
static void make_bias(int i, parity_case *c) {
    static const int ms[] = {1, 2, 3, 4, 5, 7, 8, 16, 31, 40, 64, 65, 257, 300, 515};
    int m = ms[i / 4], way = i / 4 % 4;
    c->gemm = parity_problem(way, m, m % 2 ? 64 : 9, 64, 0);
    c->gemm.epilogue = TLOB_EPILOGUE_BIAS;
    c->gemm.alpha = way == 1 ? -0.5f : 1;
    c->gemm.beta = way == 3 ? 0.5f : 0;
    if (way == 2)
        parity_make_batch(&c->gemm, 3, 0);
    c->apart = i % 2;
    c->offset_bias = i % 4;
    parity_name(c, "m%d+%d", m, i % 4);
}

/* A is 0 and the bias counts, so that D shows along which axis it was added; some D are square on purpose. */
static void make_axis(int i, parity_case *c) {
    static const struct { int m, n, batch; } rows[] = {{8, 8, 1}, {8, 9, 1}, {9, 8, 1}, {64, 64, 1}, {8, 8, 8}};
    c->gemm = parity_problem(0, rows[i].m, rows[i].n, 8, 0);
    if (rows[i].batch > 1)
        parity_make_batch(&c->gemm, rows[i].batch, 0);
    c->gemm.epilogue = TLOB_EPILOGUE_BIAS;
    c->a = PARITY_ZERO;
    c->b = PARITY_INTEGER;
    c->bias = PARITY_RAMP;
    c->exact = true;
    parity_name(c, "%dx%dx%d", rows[i].m, rows[i].n, rows[i].batch);
}

/* Operands 4, 8 and 16 bytes past an aligned address: each alone, then all. */
static void make_offset(int i, parity_case *c) {
    static const char *const which[] = {"a", "b", "c", "d", "all"};
    static const int floats[] = {1, 2, 4};
    int w = i / 3, f = floats[i % 3];
    c->gemm = parity_problem(i % 4, 64, 96, 32, 0);
    c->gemm.beta = -0.5f;
    c->apart = w != 4;
    c->offset_a = w == 0 || w == 4 ? f : 0;
    c->offset_b = w == 1 || w == 4 ? f : 0;
    c->offset_c = w == 2 ? f : 0;
    c->offset_d = w == 3 || w == 4 ? f : 0;
    parity_name(c, "%s+%d", which[w], 4 * f);
}

/* --- data ------------------------------------------------------------------------------------------------------ */

static void make_data(int i, parity_case *c) {
    static const struct {
        const char *name;
        parity_fill fill;
    } rows[] = {{"order-flow", PARITY_ORDER_FLOW}, {"zero", PARITY_ZERO},   {"signed-zero", PARITY_SIGNED_ZERO},
                {"mixed", PARITY_MIXED},           {"nan", PARITY_ONE_NAN}, {"inf", PARITY_ONE_INF}};
    parity_fill fill = rows[i / 4].fill;
    c->gemm = parity_problem(i % 4, 33, 20, 70, 0);
    c->a = fill;
    c->b = fill == PARITY_ONE_NAN || fill == PARITY_ONE_INF ? PARITY_UNIFORM : fill;
    c->exact = fill == PARITY_ZERO || fill == PARITY_SIGNED_ZERO;
    parity_name(c, "%s/%s", rows[i / 4].name, parity_ops_name(i % 4));
}

/* --- past 2^31 elements ---------------------------------------------------------------------------------------- */

/* One operand spans more than 2^31 elements, of which few columns are used. */
static void make_huge(int i, parity_case *c) {
    static const struct {
        const char *name;
        tlob_epilogue epilogue;
        size_t field; /* of tlob_gemm: what lies apart */
        int log2;     /* by how many elements; eight steps of it */
    } rows[] = {
        {"a", TLOB_EPILOGUE_NONE, offsetof(tlob_gemm, lda), 28},
        {"b", TLOB_EPILOGUE_NONE, offsetof(tlob_gemm, ldb), 28},
        {"batch", TLOB_EPILOGUE_NONE, offsetof(tlob_gemm, stride_b), 28},
        {"c", TLOB_EPILOGUE_NONE, offsetof(tlob_gemm, ldc), 28},
        {"c-bias-2gib", TLOB_EPILOGUE_BIAS, offsetof(tlob_gemm, ldc), 26},
        {"c-bias-4gib", TLOB_EPILOGUE_BIAS, offsetof(tlob_gemm, ldc), 27},
        {"c-bias-8gib", TLOB_EPILOGUE_BIAS, offsetof(tlob_gemm, ldc), 28},
        {"c-relu_bias", TLOB_EPILOGUE_RELU_BIAS, offsetof(tlob_gemm, ldc), 28},
        {"c-bgrada", TLOB_EPILOGUE_BGRADA, offsetof(tlob_gemm, ldc), 28},
        {"c-drelu", TLOB_EPILOGUE_DRELU_BGRAD, offsetof(tlob_gemm, ldc), 28},
        {"c-gelu", TLOB_EPILOGUE_GELU_AUX_BIAS, offsetof(tlob_gemm, ldc), 28},
        {"aux-gelu", TLOB_EPILOGUE_GELU_AUX_BIAS, offsetof(tlob_gemm, ld_aux), 28},
        {"aux-dgelu", TLOB_EPILOGUE_DGELU_BGRAD, offsetof(tlob_gemm, ld_aux), 28},
    };
    c->huge = true;
    c->gemm = parity_problem(i == 0 ? 2 : 0, 9, 9, 64, 0);
    if (i == 2)
        parity_make_batch(&c->gemm, 9, 0);
    parity_set_epilogue(&c->gemm, rows[i].epilogue, 0, 0, false);
    const int64_t apart = (int64_t)1 << rows[i].log2;
    memcpy((char *)&c->gemm + rows[i].field, &apart, sizeof(apart));
    c->gemm.beta = c->gemm.ldc == apart ? -0.5f : 0;
    parity_name(c, "%s", rows[i].name);
}

/* --- the table ------------------------------------------------------------------------------------------------- */

static const parity_group own_groups[] = {
    {"tlob", LENGTH(kinds) * LENGTH(samples), make_tlob},
    {"fused", 2 * LENGTH(samples), make_fused},
    {"deep", 12, make_deep},
    {"tall", 3, make_tall},
    {"transpose", 8, make_transpose},
    {"size", LENGTH(sizes) * LENGTH(sizes), make_size},
    {"poison", 81, make_poison},
    {"padded", 16, make_padded},
    {"stride", 24, make_stride},
    {"slices", 4, make_slices},
    {"batch", 8, make_batches},
    {"scalars", 32, make_scalars},
    {"empty", 64, make_empty},
    {"bias", 60, make_bias},
    {"axis", 5, make_axis},
    {"offset", 15, make_offset},
    {"data", 24, make_data},
    {"huge", 13, make_huge},
    {0},
};

static const parity_group *const tables[] = {own_groups, parity_epilogue_groups};

int parity_case_count(void) {
    int count = 0;
    for (int t = 0; t < LENGTH(tables); t++)
        for (const parity_group *g = tables[t]; g->name; g++)
            count += g->count;
    return count;
}

/* The group of case `*index`, which becomes the index within it. */
static const parity_group *find_group(int *index) {
    for (int t = 0; t < LENGTH(tables); t++)
        for (const parity_group *g = tables[t]; g->name; g++) {
            if (*index < g->count)
                return g;
            *index -= g->count;
        }
    return own_groups;
}

parity_case parity_case_get(int index) {
    parity_case c = {0};
    const parity_group *g = find_group(&index);
    g->make(index, &c);
    if (c.gemm.beta == 0)
        c.c = PARITY_NAN;

    char within[sizeof(c.name)];
    memcpy(within, c.name, sizeof(within));
    snprintf(c.name, sizeof(c.name), "%s/%.52s", g->name, within);
    return c;
}

bool parity_case_matches(const char *filter, const char *name) {
    return !filter || !*filter || fnmatch(filter, name, 0) == 0;
}
