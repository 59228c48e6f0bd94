#include "tests/block/block_cases.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/block/exact.h"

/* Multi-head attention along time, as the trunk calls it: packed, or with Q, K and V as row slices of one matrix. */

enum { Q, K, V, D_O, O, DQ, DK, DV, TENSORS };
static const char *const tensor_names[] = {"q", "k", "v", "dO", "o", "dq", "dk", "dv"};

enum { ROW_MAX, ROW_INV_SUM, ROW_DOT, STATISTICS };
static const char *const statistic_names[] = {"row_max", "row_inv_sum", "row_dot"};

typedef struct shape {
    int64_t samples, heads, tokens, head_dim;
} shape;

/* How tensors lie: Q, K and V apart or as slices, `pad` floats after each token's elements, `offset` floats past a
 * multiple of 256 bytes. */
typedef struct arrangement {
    bool slices;
    int64_t pad, offset;
} arrangement;

static int64_t groups_of(const shape *s) {
    return s->samples * s->heads;
}

static int64_t elements_of(const shape *s) {
    return groups_of(s) * s->tokens * s->head_dim;
}

/* Inputs and what must come of them: [group][token][head_dim], statistics [group][token]. */
typedef struct problem {
    shape shape;
    float *in[4];
    double *want[TENSORS], *statistics[STATISTICS];
} problem;

static double *doubles(int64_t count) {
    return calloc((size_t)count, sizeof(double));
}

static void solve_group(problem *p, int64_t group, double *probabilities) {
    const int64_t tokens = p->shape.tokens, d = p->shape.head_dim, at = group * tokens * d, rows = group * tokens;
    double **w = p->want;
    exact_attention x = {tokens,    d,           w[Q] + at,  w[K] + at,  w[V] + at, probabilities,
                         w[O] + at, w[D_O] + at, w[DQ] + at, w[DK] + at, w[DV] + at};
    exact_attend_forward(&x);
    exact_attend_backward(&x);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t top = 0;
        for (int64_t j = 1; j < tokens; j++)
            if (x.p[t * tokens + j] > x.p[t * tokens + top])
                top = j;
        double s = 0.0, dot = 0.0;
        for (int64_t e = 0; e < d; e++) {
            s += x.q[t * d + e] * x.k[top * d + e] / sqrt((double)d);
            dot += x.d_o[t * d + e] * x.o[t * d + e];
        }
        p->statistics[ROW_MAX][rows + t] = s;
        p->statistics[ROW_INV_SUM][rows + t] = x.p[t * tokens + top];
        p->statistics[ROW_DOT][rows + t] = dot;
    }
}

static problem problem_of(const shape *s) {
    const int64_t count = elements_of(s);
    problem p = {.shape = *s};
    for (int i = 0; i < TENSORS; i++)
        p.want[i] = doubles(count);
    for (int i = 0; i < STATISTICS; i++)
        p.statistics[i] = doubles(groups_of(s) * s->tokens);
    for (int i = 0; i < 4; i++) {
        p.in[i] = lab_random(count, 1.7f, 161 + (uint64_t)i);
        for (int64_t j = 0; j < count; j++)
            p.want[i][j] = p.in[i][j];
    }
    double *probabilities = doubles(s->tokens * s->tokens);
    for (int64_t g = 0; g < groups_of(s); g++)
        solve_group(&p, g, probabilities);
    free(probabilities);
    return p;
}

static void free_problem(problem *p) {
    for (int i = 0; i < 4; i++)
        free(p->in[i]);
    for (int i = 0; i < TENSORS; i++)
        free(p->want[i]);
    for (int i = 0; i < STATISTICS; i++)
        free(p->statistics[i]);
}

/* A tensor of the problem in the lab's memory: where token 0 starts, and how far apart tokens are. */
typedef struct place {
    array whole;
    int64_t start, stride;
} place;

static int64_t at_place(const place *p, const shape *s, int64_t group, int64_t token, int64_t e) {
    const int64_t column = group / s->heads * s->tokens + token;
    return p->start + column * p->stride + group % s->heads * s->head_dim + e;
}

typedef struct attention {
    shape shape;
    tlob_attend_args args;
    place tensors[TENSORS];
    array statistics[STATISTICS];
} attention;

/* `n` tensors side by side in one matrix, from `in` or, for NULL, NaN; between tokens NaN. */
static void place_tensors(lab *l, const shape *s, const arrangement *how, int n, float *const in[], place *places) {
    const int64_t dim = s->heads * s->head_dim, stride = n * dim + how->pad, columns = s->samples * s->tokens;
    float *host = in ? malloc((size_t)(columns * stride) * sizeof(float)) : NULL;
    for (int64_t i = 0; in && i < columns * stride; i++)
        host[i] = NAN;
    for (int i = 0; i < n; i++) {
        places[i] = (place){.start = i * dim, .stride = stride};
        for (int64_t j = 0; in && j < elements_of(s); j++)
            host[at_place(&places[i], s, j / (s->tokens * s->head_dim), j / s->head_dim % s->tokens, j % s->head_dim)] =
                in[i][j];
    }
    const array whole = lab_array(l, host, columns * stride, how->offset);
    for (int i = 0; i < n; i++)
        places[i].whole = whole;
    free(host);
}

static attention attention_of(lab *l, const shape *s, const arrangement *how, tlob_compute compute,
                              float *const in[4]) {
    const int64_t dim = s->heads * s->head_dim, rows = groups_of(s) * s->tokens;
    attention a = {.shape = *s};
    for (int i = 0; i < (how->slices ? 1 : 3); i++) {
        const int n = how->slices ? 3 : 1;
        place_tensors(l, s, how, n, in + Q + i, &a.tensors[Q + i]);
        place_tensors(l, s, how, n, NULL, &a.tensors[DQ + i]);
    }
    place_tensors(l, s, how, 1, in + D_O, &a.tensors[D_O]);
    place_tensors(l, s, how, 1, NULL, &a.tensors[O]);
    for (int i = 0; i < STATISTICS; i++)
        a.statistics[i] = lab_array(l, NULL, rows, how->offset);
    float *at[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        at[i] = a.tensors[i].whole.at + a.tensors[i].start;
    const int64_t in_stride = a.tensors[Q].stride, out_stride = a.tensors[O].stride;
    a.args = (tlob_attend_args){
        .groups = groups_of(s),
        .tokens = s->tokens,
        .head_dim = s->head_dim,
        .inner = s->heads,
        .in = {.inner_stride = s->head_dim, .outer_stride = s->tokens * in_stride, .token_stride = in_stride},
        .out = {.inner_stride = s->head_dim, .outer_stride = s->tokens * out_stride, .token_stride = out_stride},
        .compute = compute,
        .tiles = l->ctx->attend_has_tiles,
        .q = at[Q],
        .k = at[K],
        .v = at[V],
        .o = at[O],
        .row_max = a.statistics[ROW_MAX].at,
        .row_inv_sum = a.statistics[ROW_INV_SUM].at,
        .d_o = at[D_O],
        .row_dot = a.statistics[ROW_DOT].at,
        .dq = at[DQ],
        .dk = at[DK],
        .dv = at[DV],
    };
    cr_assert_eq(dim % s->head_dim, 0);
    return a;
}

static void run_attention(lab *l, const attention *a) {
    int code = l->kernels->attend_forward(tlob_stream_cuda(l->stream), &a->args);
    cr_assert_eq(code, 0, "forward: error %d", code);
    code = l->kernels->attend_backward(tlob_stream_cuda(l->stream), &a->args);
    cr_assert_eq(code, 0, "backward: error %d", code);
}

/* An output in the order of the problem, to free; asserts that what lies between its tokens is as it was. */
static float *read_tensor(lab *l, const attention *a, int tensor) {
    const shape *s = &a->shape;
    const place *p = &a->tensors[tensor];
    float *all = lab_read(l, p->whole), *own = malloc((size_t)elements_of(s) * sizeof(float));
    for (int64_t j = 0; j < elements_of(s); j++)
        own[j] = all[at_place(p, s, j / (s->tokens * s->head_dim), j / s->head_dim % s->tokens, j % s->head_dim)];
    const int64_t width = s->heads * s->head_dim * (tensor >= DQ && p->stride >= 3 * s->heads * s->head_dim ? 3 : 1);
    for (int64_t i = 0; i < p->whole.count; i++) {
        uint32_t bits;
        memcpy(&bits, &all[i], sizeof(bits));
        cr_assert(i % p->stride < width || bits == 0xffffffffu, "%s: element %ld was written, between tokens",
                  tensor_names[tensor], (long)i);
    }
    free(all);
    return own;
}

static void compare_with(lab *l, const problem *p, const attention *a, const char *what, double bar) {
    char name[200];
    for (int i = O; i < TENSORS; i++) {
        snprintf(name, sizeof(name), "%s of %s", tensor_names[i], what);
        float *got = read_tensor(l, a, i);
        lab_close_to(name, got, p->want[i], elements_of(&p->shape), bar);
        free(got);
    }
    for (int i = 0; i < STATISTICS; i++) {
        snprintf(name, sizeof(name), "%s of %s", statistic_names[i], what);
        float *got = lab_read(l, a->statistics[i]);
        lab_close_to(name, got, p->statistics[i], a->statistics[i].count, bar);
        free(got);
    }
}

static void compare_bits(lab *l, const attention *a, const attention *b) {
    for (int i = O; i < TENSORS; i++) {
        float *first = read_tensor(l, a, i), *second = read_tensor(l, b, i);
        lab_same_bits(tensor_names[i], first, second, elements_of(&a->shape));
        free(first);
        free(second);
    }
}

static const char *name_of(tlob_compute compute) {
    return compute == TLOB_COMPUTE_FP32 ? "FP32" : "TF32";
}

static void try_problem(lab *l, const problem *p, const arrangement *how, tlob_compute compute, double bar) {
    char what[160];
    const shape *s = &p->shape;
    snprintf(what, sizeof(what), "%ld x %ld groups, %ld tokens, head_dim %ld, %s, %s, pad %ld, offset %ld",
             (long)s->samples, (long)s->heads, (long)s->tokens, (long)s->head_dim, name_of(compute),
             how->slices ? "slices" : "apart", (long)how->pad, (long)how->offset);
    attention a = attention_of(l, s, how, compute, p->in), again = attention_of(l, s, how, compute, p->in);
    run_attention(l, &a);
    run_attention(l, &again);
    compare_with(l, p, &a, what, bar);
    compare_bits(l, &a, &again);
    lab_clear(l);
}

static void try_shapes(lab *l, const shape *shapes, size_t n, const attend_bars *bars) {
    static const arrangement arrangements[] = {{false, 0, 0}, {true, 0, 0}, {true, 4, 0}, {false, 2, 0}, {true, 3, 1}};
    for (size_t i = 0; i < n; i++) {
        problem p = problem_of(&shapes[i]);
        for (size_t how = 0; how < sizeof(arrangements) / sizeof(arrangements[0]); how++) {
            try_problem(l, &p, &arrangements[how], TLOB_COMPUTE_FP32, bars->fp32);
            if (bars->tf32 > 0.0)
                try_problem(l, &p, &arrangements[how], TLOB_COMPUTE_TF32, bars->tf32);
        }
        free_problem(&p);
    }
}

void case_attend_heads(lab *l, const attend_bars *bars) {
    static const shape shapes[] = {
        {3, 2, 6, 32},   {2, 3, 64, 32},  {2, 2, 65, 32}, {1, 3, 96, 24}, {1, 1, 128, 128},
        {1, 2, 33, 100}, {1, 1, 200, 64}, {2, 2, 16, 8},  {1, 2, 31, 13}, {2, 2, 5, 100},
        {2, 2, 3, 100},  {1, 2, 3, 97},   {1, 2, 1, 40},
    };
    try_shapes(l, shapes, sizeof(shapes) / sizeof(shapes[0]), bars);
}

void case_attend_long(lab *l, const attend_bars *bars) {
    static const shape shapes[] = {{1, 2, 1024, 64}, {1, 2, 520, 128}, {1, 1, 4096, 32}};
    try_shapes(l, shapes, sizeof(shapes) / sizeof(shapes[0]), bars);
}

/* --- extreme values --------------------------------------------------------------------------------------------- */

/* A group whose queries are 1 in element 0 alone, so that key j's scores are `score[j]`: head_dim must be 64, whose
 * scale is exact. Values are small whole numbers, which TF32 has. */
typedef struct pointed {
    shape shape;
    float *in[4];
} pointed;

enum { MOST_TOKENS = 70, HEAD_DIM = 64, SCALE = 8 };

static pointed pointed_of(int tokens, const float *score) {
    pointed p = {.shape = {1, 1, tokens, HEAD_DIM}};
    for (int i = 0; i < 4; i++)
        p.in[i] = calloc((size_t)(tokens * HEAD_DIM), sizeof(float));
    for (int t = 0; t < tokens; t++) {
        p.in[Q][t * HEAD_DIM] = 1.0f;
        p.in[K][t * HEAD_DIM] = score[t] * SCALE;
        for (int e = 0; e < HEAD_DIM; e++) {
            p.in[V][t * HEAD_DIM + e] = (float)((3 * t + e) % 17 - 8);
            p.in[D_O][t * HEAD_DIM + e] = (float)((t + 5 * e) % 7 - 3);
        }
    }
    return p;
}

static attention run_pointed(lab *l, pointed *p, tlob_compute compute) {
    static const arrangement slices = {true, 0, 0};
    attention a = attention_of(l, &p->shape, &slices, compute, p->in);
    run_attention(l, &a);
    for (int i = 0; i < 4; i++)
        free(p->in[i]);
    return a;
}

static void expect_finite(lab *l, const attention *a) {
    for (int i = O; i < TENSORS; i++) {
        float *got = read_tensor(l, a, i);
        for (int64_t j = 0; j < elements_of(&a->shape); j++)
            cr_assert(isfinite(got[j]), "%s[%ld] is %g", tensor_names[i], (long)j, (double)got[j]);
        free(got);
    }
}

/* Every row of o is row `of` of V. */
static void expect_rows_of(lab *l, const attention *a, int of, const char *what) {
    float *o = read_tensor(l, a, O);
    for (int64_t t = 0; t < a->shape.tokens; t++) {
        for (int e = 0; e < HEAD_DIM; e++) {
            const float want = (float)((3 * of + e) % 17 - 8);
            cr_assert_eq(o[t * HEAD_DIM + e], want, "%s: o[%d, %ld] is %g, not %g", what, e, (long)t,
                         (double)o[t * HEAD_DIM + e], (double)want);
        }
    }
    free(o);
}

static void expect_statistics(lab *l, const attention *a, float max, double inv_sum, const char *what) {
    float *got_max = lab_read(l, a->statistics[ROW_MAX]), *got = lab_read(l, a->statistics[ROW_INV_SUM]);
    for (int64_t t = 0; t < a->shape.tokens; t++) {
        cr_assert_eq(got_max[t], max, "%s: row_max is %g, not %g", what, (double)got_max[t], (double)max);
        cr_assert(fabs(got[t] - inv_sum) <= 1e-6 * inv_sum, "%s: row_inv_sum is %g, not %g", what, (double)got[t],
                  inv_sum);
    }
    free(got_max);
    free(got);
}

/* dv is the sum of dO for key `of`, which has all the weight, and 0 for the others. */
static void expect_dv_of(lab *l, const attention *a, int of, const char *what) {
    float *dv = read_tensor(l, a, DV);
    for (int64_t t = 0; t < a->shape.tokens; t++) {
        for (int e = 0; e < HEAD_DIM; e++) {
            float want = 0.0f;
            for (int64_t query = 0; t == of && query < a->shape.tokens; query++)
                want += (float)((query + 5 * e) % 7 - 3);
            cr_assert_eq(dv[t * HEAD_DIM + e], want, "%s: dv[%d, %ld] is %g, not %g", what, e, (long)t,
                         (double)dv[t * HEAD_DIM + e], (double)want);
        }
    }
    free(dv);
}

static void try_huge_scores(lab *l, int tokens, tlob_compute compute) {
    float score[MOST_TOKENS];
    const char *what = name_of(compute);
    const int odd = tokens - 4;
    for (int t = 0; t < tokens; t++)
        score[t] = t % 3 == 0 ? -1e4f : t % 3 == 1 ? 89.0f : 0.0f;
    score[3] = score[odd] = 1e4f; /* two share all: their values are averaged */
    score[4] = 9992.0f;
    pointed p = pointed_of(tokens, score);
    attention a = run_pointed(l, &p, compute);
    expect_finite(l, &a);
    expect_statistics(l, &a, 1e4f, 1.0 / (2.0 + exp(-8.0)), what);

    score[odd] = FLT_MAX / SCALE;
    p = pointed_of(tokens, score);
    a = run_pointed(l, &p, compute);
    expect_finite(l, &a);
    expect_rows_of(l, &a, odd, what);

    score[odd] = -FLT_MAX / SCALE;
    score[3] = 2e4f;
    p = pointed_of(tokens, score);
    a = run_pointed(l, &p, compute);
    expect_finite(l, &a);
    expect_rows_of(l, &a, 3, what);
    expect_statistics(l, &a, 2e4f, 1.0, what);
    lab_clear(l);
}

static void try_infinite_scores(lab *l, int tokens, tlob_compute compute) {
    float score[MOST_TOKENS];
    const char *what = name_of(compute);
    const int odd = tokens - 4;
    for (int t = 0; t < tokens; t++)
        score[t] = t % 2 ? -INFINITY : 2.0f;
    score[odd] = INFINITY; /* as when q k overflows: one-hot, not inf - inf */
    pointed p = pointed_of(tokens, score);
    attention a = run_pointed(l, &p, compute);
    expect_rows_of(l, &a, odd, what);
    expect_statistics(l, &a, INFINITY, 1.0, what);
    expect_dv_of(l, &a, odd, what);

    for (int t = 0; t < tokens; t++)
        score[t] = -INFINITY; /* all alike */
    p = pointed_of(tokens, score);
    a = run_pointed(l, &p, compute);
    expect_statistics(l, &a, -INFINITY, 1.0 / tokens, what);
    lab_clear(l);
}

static void try_nan(lab *l, int tokens, tlob_compute compute) {
    float score[MOST_TOKENS] = {0.0f};
    const int odd = tokens - 4;
    pointed p = pointed_of(tokens, score);
    p.in[Q][odd * HEAD_DIM + 9] = NAN; /* a NaN is not hidden, and stays in its row */
    attention a = run_pointed(l, &p, compute);
    float *o = read_tensor(l, &a, O);
    for (int i = 0; i < tokens * HEAD_DIM; i++)
        cr_assert_eq(isnan(o[i]), i / HEAD_DIM == odd, "%s: o[%d, %d] is %g where q is NaN", name_of(compute),
                     i % HEAD_DIM, i / HEAD_DIM, (double)o[i]);
    free(o);
    score[odd] = NAN;
    p = pointed_of(tokens, score);
    a = run_pointed(l, &p, compute);
    o = read_tensor(l, &a, O);
    for (int i = 0; i < tokens * HEAD_DIM; i++)
        cr_assert(isnan(o[i]), "%s: o[%d] is %g where a key is NaN", name_of(compute), i, (double)o[i]);
    free(o);
    lab_clear(l);
}

void case_attend_extremes(lab *l) {
    static const tlob_compute computes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    static const int tokens[] = {40, MOST_TOKENS}; /* less than a tile, and more */
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            try_huge_scores(l, tokens[j], computes[i]);
            try_infinite_scores(l, tokens[j], computes[i]);
            try_nan(l, tokens[j], computes[i]);
        }
    }
}
