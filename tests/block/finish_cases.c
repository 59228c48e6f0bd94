/* The kernel `finish` of a memory space against the formulas of <tlob/gemm.h>, written down once more in double. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/block_cases.h"

/* A call: its operands on the host, and where they lie in the lab. */
typedef struct trial {
    tlob_gemm g;
    const tlob_epilogue_traits *traits;
    bool sums_operand;
    char what[160];
    float *d, *aux, *bias, *a, *b;
    int64_t n_d, n_aux, n_vector, n_a, n_b;
    array in_d, in_aux, in_bias, in_bgrad;
    tlob_finish_args args;
} trial;

static int64_t extent(const tlob_gemm *g, int64_t cols, int64_t ld, int64_t stride) {
    return (g->batch - 1) * stride + cols * ld;
}

/* Random bits, packed as floats. */
static float *random_bits(int64_t words, uint64_t seed) {
    float *bits = malloc((size_t)(words > 0 ? words : 1) * sizeof(float));
    uint32_t state = (uint32_t)seed;
    for (int64_t i = 0; i < words; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t word = state ^ state >> 16;
        memcpy(&bits[i], &word, sizeof(word));
    }
    return bits;
}

static trial trial_of(const tlob_gemm *gemm) {
    trial t = {.g = *gemm, .traits = tlob_epilogue_get_traits(gemm->epilogue)};
    const tlob_gemm *g = &t.g;
    t.sums_operand = g->epilogue == TLOB_EPILOGUE_BGRADA || g->epilogue == TLOB_EPILOGUE_BGRADB;
    snprintf(t.what, sizeof(t.what), "finish %s, %ld x %ld x %ld, trans %d %d, batch %ld", t.traits->name, (long)g->m,
             (long)g->n, (long)g->k, g->transa, g->transb, (long)g->batch);
    bool aux = t.traits->reads_aux || t.traits->writes_aux;
    t.n_d = extent(g, g->n, g->ldc, g->stride_c);
    t.n_aux = aux ? extent(g, g->n, g->ld_aux, g->stride_aux) / (t.traits->aux_is_mask ? 32 : 1) : 0;
    t.n_vector = (g->batch - 1) * g->stride_bias + (g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m);
    t.n_a = extent(g, g->transa == TLOB_OP_T ? g->m : g->k, g->lda, g->stride_a);
    t.n_b = extent(g, g->transb == TLOB_OP_T ? g->k : g->n, g->ldb, g->stride_b);
    t.d = lab_random(t.n_d, 3.0f, 11);
    t.aux = t.traits->aux_is_mask ? random_bits(t.n_aux, 12) : lab_random(t.n_aux + 1, 4.0f, 12);
    t.bias = lab_random(t.n_vector, 3.0f, 13);
    t.a = lab_random(t.n_a + 1, 2.0f, 14);
    t.b = lab_random(t.n_b + 1, 2.0f, 15);
    return t;
}

static void trial_free(trial *t) {
    free(t->d);
    free(t->aux);
    free(t->bias);
    free(t->a);
    free(t->b);
}

static void run_trial(lab *l, trial *t) {
    bool sums = t->traits->writes_bgrad, mask = t->traits->aux_is_mask;
    t->in_d = lab_array(l, t->d, t->n_d, 1);
    t->in_aux = lab_array(l, t->traits->reads_aux ? t->aux : NULL, t->n_aux, mask ? 0 : 3);
    t->in_bias = lab_array(l, t->bias, t->n_vector, 3);
    t->in_bgrad = lab_array(l, NULL, t->n_vector, 2);
    t->args = (tlob_finish_args){.gemm = t->g, .x = {.d = t->in_d.at}};
    if (t->sums_operand && t->g.k > 0) {
        t->args.x.a = lab_array(l, t->a, t->n_a, 1).at;
        t->args.x.b = lab_array(l, t->b, t->n_b, 1).at;
    }
    t->args.x.bias = t->traits->reads_bias ? t->in_bias.at : NULL;
    t->args.x.bgrad = sums ? t->in_bgrad.at : NULL;
    t->args.x.aux = t->n_aux ? t->in_aux.at : NULL;
    int code = l->kernels->finish(tlob_stream_cuda(l->stream), &t->args);
    cr_assert_eq(code, 0, "%s: error %d", t->what, code);
}

static bool bit_of(const float *mask, int64_t bit) {
    return ((const uint8_t *)mask)[bit / 8] >> bit % 8 & 1;
}

static double gelu(double z) {
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

static double gelu_slope(double z) {
    double t = tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z));
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * z * z);
}

/* D at `at` from z; aux counts bits or floats. */
static double expected_d(const trial *t, double z, int64_t aux) {
    switch (t->g.epilogue) {
    case TLOB_EPILOGUE_RELU:
    case TLOB_EPILOGUE_RELU_BIAS:
        return isnan(z) || z <= 0 ? 0 : z;
    case TLOB_EPILOGUE_RELU_AUX_BIAS:
        return z <= 0 ? 0 : z;
    case TLOB_EPILOGUE_DRELU_BGRAD:
        return bit_of(t->aux, aux) ? z : 0;
    case TLOB_EPILOGUE_GELU_BIAS:
    case TLOB_EPILOGUE_GELU_AUX_BIAS:
        return gelu(z);
    case TLOB_EPILOGUE_DGELU_BGRAD:
        return z * gelu_slope(t->aux[aux]);
    default:
        return z;
    }
}

static bool is_relu(tlob_epilogue epilogue) {
    return epilogue == TLOB_EPILOGUE_RELU || epilogue == TLOB_EPILOGUE_RELU_BIAS ||
           epilogue == TLOB_EPILOGUE_RELU_AUX_BIAS;
}

static void expect_value(const trial *t, const char *name, int64_t row, int64_t col, float got, double want,
                         double bound) {
    bool right = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= bound;
    cr_assert(right, "%s: %s[%ld, %ld] is %.9g, must be %.9g within %.1e", t->what, name, (long)row, (long)col,
              (double)got, want, bound);
}

/* Checks one matrix, and notes what has been written. */
static void check_matrix(const lab *l, const trial *t, int64_t p, const float *d, const float *aux, const float *bgrad,
                         bool *written) {
    const tlob_gemm *g = &t->g;
    for (int64_t i = 0; i < g->m; i++) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < g->n; j++) {
            int64_t at = p * g->stride_c + j * g->ldc + i, at_aux = p * g->stride_aux + j * g->ld_aux + i;
            double z = t->d[at] + (t->traits->reads_bias ? (double)t->bias[p * g->stride_bias + i] : 0);
            double want = expected_d(t, z, at_aux), bound = l->bar * (fabs(z) + FLT_MIN);
            expect_value(t, "D", i, j, d[at], want, bound);
            cr_assert(!is_relu(g->epilogue) || isnan(want) || !signbit(d[at]), "%s: D[%ld, %ld] is below +0", t->what,
                      (long)i, (long)j);
            if (t->traits->writes_aux && t->traits->aux_is_mask)
                cr_assert_eq(bit_of(aux, at_aux), !(z < 0), "%s: mask[%ld, %ld] of z = %g", t->what, (long)i, (long)j,
                             z);
            else if (t->traits->writes_aux)
                expect_value(t, "aux", i, j, aux[at_aux], z, bound);
            written[at] = true;
            sum += want;
            size += fabs(want) + fabs(z);
        }
        if (t->traits->writes_bgrad && !t->sums_operand)
            expect_value(t, "bgrad", i, p, bgrad[p * g->stride_bias + i], sum, l->bar * size);
    }
}

static void check_operand_sums(const lab *l, const trial *t, int64_t p, const float *bgrad) {
    const tlob_gemm *g = &t->g;
    bool of_a = g->epilogue == TLOB_EPILOGUE_BGRADA;
    for (int64_t i = 0; i < (of_a ? g->m : g->n); i++) {
        double sum = 0, size = 0;
        for (int64_t q = 0; q < g->k; q++) {
            float x = of_a ? t->a[p * g->stride_a + (g->transa == TLOB_OP_T ? q + i * g->lda : i + q * g->lda)]
                           : t->b[p * g->stride_b + (g->transb == TLOB_OP_T ? i + q * g->ldb : q + i * g->ldb)];
            sum += x;
            size += fabsf(x);
        }
        expect_value(t, "bgrad", i, p, bgrad[p * g->stride_bias + i], sum, l->bar * size);
    }
}

static void check_trial(lab *l, trial *t) {
    float *d = lab_read(l, t->in_d), *aux = lab_read(l, t->in_aux), *bgrad = lab_read(l, t->in_bgrad);
    float *bias = lab_read(l, t->in_bias);
    bool *written = calloc((size_t)t->n_d, sizeof(bool));
    for (int64_t p = 0; p < t->g.batch; p++) {
        check_matrix(l, t, p, d, aux, bgrad, written);
        if (t->sums_operand)
            check_operand_sums(l, t, p, bgrad);
    }
    for (int64_t i = 0; i < t->n_d; i++)
        if (!written[i] || t->sums_operand || t->g.epilogue == TLOB_EPILOGUE_NONE)
            lab_same_bits("D that is to be left", d + i, t->d + i, 1);
    lab_same_bits("bias", bias, t->bias, t->n_vector);
    if (t->traits->reads_aux)
        lab_same_bits("aux that is read", aux, t->aux, t->n_aux);

    run_trial(l, t); /* again, from the start */
    float *d2 = lab_read(l, t->in_d), *bgrad2 = lab_read(l, t->in_bgrad);
    lab_same_bits("D", d2, d, t->n_d);
    lab_same_bits("bgrad", bgrad2, bgrad, t->n_vector);
    free(d);
    free(aux);
    free(bgrad);
    free(bias);
    free(written);
    free(d2);
    free(bgrad2);
}

static void try_finish(lab *l, const tlob_gemm *g) {
    trial t = trial_of(g);
    run_trial(l, &t);
    check_trial(l, &t);
    trial_free(&t);
    lab_clear(l);
}

/* Transposes in bits 0 and 1, `pad` rows more than there must be, `batch` with gaps. */
static tlob_gemm problem(tlob_epilogue epilogue, int ops, int64_t m, int64_t n, int64_t k, int64_t batch, int64_t pad) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.epilogue = epilogue;
    g.transa = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
    g.transb = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
    g.lda = (ops & 1 ? k : m) + pad + (k == 0);
    g.ldb = (ops & 2 ? n : k) + pad + (k == 0);
    g.ldc = m + pad;
    g.ld_aux += 128 * (pad > 0);
    if (!tlob_epilogue_get_traits(epilogue)->aux_is_mask && pad == 0)
        g.ld_aux = m;
    g.batch = batch;
    g.stride_a = g.lda * (ops & 1 ? m : k) + pad;
    g.stride_b = g.ldb * (ops & 2 ? k : n) + pad;
    g.stride_c = g.ldc * n + pad;
    g.stride_aux = g.ld_aux * n + 128 * (pad > 0);
    g.stride_bias = (m > n ? m : n) + pad;
    return g;
}

void case_finish(lab *l) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {1, 5, 3},    {2, 33, 4},   {31, 2, 65},  {32, 32, 32},
                                        {33, 7, 129}, {127, 3, 1},  {128, 3, 2},  {129, 3, 40}, {144, 9, 5},
                                        {257, 2, 3},  {3, 1000, 2}, {40, 130, 0}, {5, 2, 700},  {600, 1, 33}};
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        bool operand = e == TLOB_EPILOGUE_BGRADA || e == TLOB_EPILOGUE_BGRADB;
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (int ops = 0; ops < (operand ? 4 : 1); ops++)
                for (int64_t pad = 0; pad < 4; pad += 3) {
                    tlob_gemm g = problem((tlob_epilogue)e, ops, shapes[s][0], shapes[s][1], shapes[s][2], 1, pad);
                    try_finish(l, &g);
                    g = problem((tlob_epilogue)e, ops, shapes[s][0], shapes[s][1], shapes[s][2], 3, pad);
                    try_finish(l, &g);
                    g.stride_bias *=
                        g.epilogue != TLOB_EPILOGUE_NONE && tlob_epilogue_get_traits(g.epilogue)->writes_bgrad;
                    if (!g.stride_bias) /* one bias for all */
                        try_finish(l, &g);
                }
        const tlob_gemm many = problem((tlob_epilogue)e, 0, 1, 1, 2, 40000, 0); /* more tiles than blocks */
        try_finish(l, &many);
    }
}

void case_finish_pathological(lab *l) {
    static const float values[] = {NAN,      INFINITY, -INFINITY, 0.0f,  -0.0f,  1.0f,   -1.0f,   FLT_MAX,
                                   -FLT_MAX, 1e15f,    -1e15f,    20.0f, -20.0f, 1e-30f, -1e-30f, 5.0f};
    enum { COUNT = sizeof(values) / sizeof(values[0]) };
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        if (e == TLOB_EPILOGUE_BGRADA || e == TLOB_EPILOGUE_BGRADB)
            continue;
        tlob_gemm g = problem((tlob_epilogue)e, 0, COUNT, 2, 1, 1, 0);
        trial t = trial_of(&g);
        for (int i = 0; i < COUNT; i++) {
            bool derivative = e == TLOB_EPILOGUE_DGELU_BGRAD;
            t.d[i] = derivative ? 0.5f : values[i];
            t.d[COUNT + i] = 1.0f;
            t.bias[i] = -0.0f; /* which leaves a -0 in D as it is */
            if (derivative)
                t.aux[i] = values[i];
        }
        run_trial(l, &t);
        check_trial(l, &t);
        trial_free(&t);
        lab_clear(l);
    }
}
