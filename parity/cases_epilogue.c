/* The groups around epilogues: what each reads and writes besides D, in every layout. */
#include <stddef.h>

#include "parity/cases.h"

#define EPILOGUES TLOB_EPILOGUE_COUNT

static const tlob_epilogue aux_epilogues[] = {TLOB_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_DRELU_BGRAD,
                                              TLOB_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_DGELU_BGRAD};
static const tlob_epilogue bgrad_epilogues[] = {TLOB_EPILOGUE_DRELU_BGRAD, TLOB_EPILOGUE_DGELU_BGRAD,
                                                TLOB_EPILOGUE_BGRADA, TLOB_EPILOGUE_BGRADB};

static const char *name_of(int epilogue) {
    return tlob_epilogue_get_traits((tlob_epilogue)epilogue)->name;
}

/* No function but the identity, max and a mask: what is exact before them is exact after. */
static bool keeps_exact(int epilogue) {
    return epilogue != TLOB_EPILOGUE_GELU_BIAS && epilogue != TLOB_EPILOGUE_GELU_AUX_BIAS &&
           epilogue != TLOB_EPILOGUE_DGELU_BGRAD;
}

parity_case parity_case_support(tlob_epilogue epilogue, int ops, int batch) {
    parity_case c = {.gemm = parity_problem(ops, 16, 24, 32, 0), .c = PARITY_NAN};
    if (batch > 1)
        parity_make_batch(&c.gemm, batch, 0);
    parity_set_epilogue(&c.gemm, epilogue, 0, 0, false);
    parity_name(&c, "support/%s/%s/x%d", name_of((int)epilogue), parity_ops_name(ops), batch);
    return c;
}

static void make_support(int i, parity_case *c) {
    int batch = i % 2 ? 3 : 1;
    *c = parity_case_support((tlob_epilogue)(i / 8), i / 2 % 4, batch);
    parity_name(c, "%s/%s/x%d", name_of(i / 8), parity_ops_name(i / 2 % 4), batch);
}

/* Every epilogue, all transposes, one and three, packed and padded, and alpha and beta in every way. */
static void make_epilogue(int i, parity_case *c) {
    static const struct {
        float alpha, beta;
    } scalars[] = {{1, 0}, {1, 1}, {1, -0.5f}, {-0.5f, 0}, {2, 1}, {-0.5f, -0.5f}, {0, 1}, {0, 0}};
    static const int shapes[][3] = {{5, 7, 11},   {31, 17, 13}, {1, 37, 3}, {67, 2, 29},
                                    {19, 131, 1}, {40, 9, 24},  {3, 1, 97}};
    int e = i % EPILOGUES, ops = i / EPILOGUES % 4, way = i / EPILOGUES / 4, s = way / 4;
    bool padded = way % 2, three = way / 2 % 2;
    const int *shape = shapes[(e + 3 * ops + 5 * way) % LENGTH(shapes)];
    c->gemm = parity_problem(ops, shape[0], shape[1], shape[2], padded ? 3 : 0);
    c->gemm.alpha = scalars[s].alpha;
    c->gemm.beta = scalars[s].beta;
    if (three)
        parity_make_batch(&c->gemm, 3, padded ? 5 : 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, padded, padded ? 3 : 0, ops % 2);
    c->apart = (i / EPILOGUES + e) % 2;
    c->null_inputs = c->gemm.alpha == 0 && c->apart;
    parity_name(c, "%s/%s/x%d%s/alpha%g-beta%g", name_of(e), parity_ops_name(ops), three ? 3 : 1,
                padded ? "-padded" : "", (double)c->gemm.alpha, (double)c->gemm.beta);
}

/* Small integers: D, masks and sums are exact, and many z are exactly 0, the corner of ReLU. */
static void make_exact(int i, parity_case *c) {
    int e = i / 4;
    c->gemm = parity_problem(i % 4, i % 2 ? 130 : 9, 33, 2, i % 3);
    c->gemm.alpha = i % 4 == 3 ? -2 : 1;
    c->gemm.beta = i % 4 == 2 ? -1 : 0;
    if (i % 4 == 1)
        parity_make_batch(&c->gemm, 2, 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, 0, 0, false);
    c->a = c->b = c->c = c->bias = c->aux = PARITY_INTEGER;
    c->exact = keeps_exact(e);
    parity_name(c, "%s/%s", name_of(e), parity_ops_name(i % 4));
}

/* Known trap: a mask is allocated by whole groups of 128 bits; and so on for floats that are not. */
static void make_aux(int i, parity_case *c) {
    static const int ms[] = {1, 16, 40, 127, 128, 129, 144, 257};
    static const char *const ways[] = {"least", "spare", "offset", "batch"};
    int m = ms[i % 8], e = i / 8 % 4, way = i / 32;
    c->gemm = parity_problem(i % 4, m, 7, 5, 0);
    if (way == 3)
        parity_make_batch(&c->gemm, 3, 0);
    parity_set_epilogue(&c->gemm, aux_epilogues[e], way == 1 ? 3 : 0, 0, false);
    if (way == 0 && e > 1) /* floats: no spare row at all */
        c->gemm.ld_aux = m;
    c->offset_aux = way == 2 ? 4 : 0;
    c->gemm.beta = way == 1 ? 1 : 0;
    c->apart = i % 2;
    parity_name(c, "%s/m%d-%s", name_of((int)aux_epilogues[e]), m, ways[way]);
}

/* Sums over few and many columns, or of A and B over a short and a long k. */
static void make_bgrad(int i, parity_case *c) {
    static const int lengths[] = {1, 7, 64, 300, 4099};
    static const int others[] = {1, 5, 33, 130};
    int e = i % 4, length = lengths[i / 4 % 5], other = others[i / 20], ops = (i / 4 + i / 20) % 4;
    bool of_input = e > 1;
    c->gemm =
        of_input ? parity_problem(ops, other, e == 2 ? 3 : other, length, 0) : parity_problem(ops, other, length, 5, 0);
    parity_set_epilogue(&c->gemm, bgrad_epilogues[e], 0, 0, false);
    parity_name(c, "%s/%s/%d-of-%d", name_of((int)bgrad_epilogues[e]), parity_ops_name(ops), other, length);
}

/* Everything 4, 8 and 16 bytes past an aligned address; masks stay aligned to 16 bytes. */
static void make_shift(int i, parity_case *c) {
    int e = i % EPILOGUES, f = 1 << i / EPILOGUES % 3;
    bool vectors_only = i / (3 * EPILOGUES); /* else the matrices as well */
    c->gemm = parity_problem(i % 4, 64, 24, 32, 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, 0, 0, false);
    c->offset_bias = c->offset_bgrad = f;
    c->offset_aux = tlob_epilogue_get_traits((tlob_epilogue)e)->aux_is_mask ? 4 : f;
    if (!vectors_only)
        c->offset_a = c->offset_b = c->offset_c = c->offset_d = f;
    c->apart = i % 2;
    c->gemm.beta = i % 4 == 2 ? 0.5f : 0;
    parity_name(c, "%s/%s+%d", name_of(e), vectors_only ? "vectors" : "all", 4 * f);
}

/* Batches: one bias for all or one each, bgrads and aux with and without gaps. */
static void make_spread(int i, parity_case *c) {
    static const char *const ways[] = {"shared", "own", "gaps"};
    int e = i % EPILOGUES, way = i / EPILOGUES;
    c->gemm = parity_problem(i % 4, 24, 10, 9, way == 2 ? 2 : 0);
    parity_make_batch(&c->gemm, 4 + i % 2, way == 2 ? 11 : 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, way == 2 ? 2 : 0, way == 2 ? 5 : 0, way == 0);
    c->gemm.beta = i % 3 ? 0 : -0.5f;
    c->apart = way == 1;
    parity_name(c, "%s/%s", name_of(e), ways[way]);
}

/* What is no ordinary number, through every epilogue, in A, in C, in the bias and in what a backward one reads. */
static void make_fill(int i, parity_case *c) {
    static const struct {
        const char *name;
        parity_fill a, b, c, bias, aux;
        bool exact;
    } rows[] = {
        {"nan-a", PARITY_ONE_NAN, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, false},
        {"nan-c", PARITY_UNIFORM, PARITY_UNIFORM, PARITY_ONE_NAN, PARITY_UNIFORM, PARITY_UNIFORM, false},
        {"nan-bias", PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_ONE_NAN, PARITY_ONE_NAN, false},
        {"inf-a", PARITY_ONE_INF, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, false},
        {"inf-bias", PARITY_UNIFORM, PARITY_UNIFORM, PARITY_UNIFORM, PARITY_ONE_INF, PARITY_UNIFORM, false},
        {"zero", PARITY_ZERO, PARITY_ZERO, PARITY_ZERO, PARITY_ZERO, PARITY_ZERO, true},
        {"signed-zero", PARITY_SIGNED_ZERO, PARITY_SIGNED_ZERO, PARITY_SIGNED_ZERO, PARITY_SIGNED_ZERO,
         PARITY_SIGNED_ZERO, true},
        {"mixed", PARITY_MIXED, PARITY_MIXED, PARITY_MIXED, PARITY_MIXED, PARITY_MIXED, false},
        {"sparse", PARITY_ORDER_FLOW, PARITY_ORDER_FLOW, PARITY_ORDER_FLOW, PARITY_ORDER_FLOW, PARITY_ORDER_FLOW,
         false},
    };
    int e = i % EPILOGUES, row = i / EPILOGUES;
    c->gemm = parity_problem(i % 4, 33, 20, 12, 0);
    c->gemm.beta = 1;
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, 0, 0, false);
    c->a = rows[row].a;
    c->b = rows[row].b;
    c->c = rows[row].c;
    c->bias = rows[row].bias;
    c->aux = rows[row].aux;
    c->exact = rows[row].exact;
    parity_name(c, "%s/%s", rows[row].name, name_of(e));
}

/* Every one of m, n, k, batch is 0 or 1. */
static void make_unit(int i, parity_case *c) {
    int e = i % EPILOGUES, way = i / EPILOGUES;
    c->gemm = parity_problem(i % 4, way & 1, way >> 1 & 1, way >> 2 & 1, 0);
    parity_make_batch(&c->gemm, way >> 3 & 1, 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)e, 0, 0, false);
    c->gemm.beta = i % 3 ? 0 : 2;
    c->null_inputs = c->gemm.k == 0;
    parity_name(c, "%s/%dx%dx%dx%d", name_of(e), way & 1, way >> 1 & 1, way >> 2 & 1, way >> 3 & 1);
}

/* Sums of a million terms. */
static void make_long(int i, parity_case *c) {
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_NONE,        TLOB_EPILOGUE_RELU_AUX_BIAS,
                                              TLOB_EPILOGUE_BGRADA,      TLOB_EPILOGUE_GELU_BIAS,
                                              TLOB_EPILOGUE_DGELU_BGRAD, TLOB_EPILOGUE_BGRADB};
    int e = (int)epilogues[i];
    int ops = e == TLOB_EPILOGUE_BGRADA ? 0 : e == TLOB_EPILOGUE_BGRADB ? 3 : i % 4;
    c->gemm = parity_problem(ops, i % 2 ? 3 : 1, i % 2 ? 1 : 2, i % 2 ? 1000003 : 1000000, 0);
    parity_set_epilogue(&c->gemm, epilogues[i], 0, 0, false);
    parity_name(c, "%s/%s/k%d", name_of(e), parity_ops_name(ops), (int)c->gemm.k);
}

/* A batch larger than any limit of 2^16 or 2^17. */
static void make_many(int i, parity_case *c) {
    c->gemm = parity_problem(i % 4, 1 + i % 2, 1, 2, 0);
    parity_make_batch(&c->gemm, 131073, 0);
    parity_set_epilogue(&c->gemm, (tlob_epilogue)i, 0, 0, i % 4 == 1);
    parity_name(c, "%s", name_of(i));
}

/* Gradient mode: the forward half; data on a grid where no z is near the corner of ReLU, see gradient.c. */
static void make_grad(int i, parity_case *c) {
    static const int shapes[][3] = {{6, 5, 4}, {17, 33, 9}, {40, 16, 24}};
    const int *shape = shapes[i / 2];
    c->gemm = parity_problem(0, shape[0], shape[1], shape[2], 0);
    c->gradient = true;
    parity_set_epilogue(&c->gemm, i % 2 ? TLOB_EPILOGUE_GELU_AUX_BIAS : TLOB_EPILOGUE_RELU_AUX_BIAS, 0, 0, false);
    parity_name(c, "%s/%dx%dx%d", i % 2 ? "gelu" : "relu", shape[0], shape[1], shape[2]);
}

const parity_group parity_epilogue_groups[] = {
    {"support", EPILOGUES * 8, make_support},
    {"epilogue", EPILOGUES * 4 * 32, make_epilogue},
    {"exact", EPILOGUES * 4, make_exact},
    {"aux", 128, make_aux},
    {"bgrad", 80, make_bgrad},
    {"shift", EPILOGUES * 6, make_shift},
    {"spread", EPILOGUES * 3, make_spread},
    {"fill", EPILOGUES * 9, make_fill},
    {"unit", EPILOGUES * 16, make_unit},
    {"long", 6, make_long},
    {"many", EPILOGUES, make_many},
    {"grad", 6, make_grad},
    {0},
};
