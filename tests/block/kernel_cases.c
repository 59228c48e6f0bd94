#include "tests/block/block_cases.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/chunks.h"
#include "libtlob/kernels/philox.h"
#include "tests/block/exact.h"

/* --- attention ------------------------------------------------------------------------------------------------- */

enum { Q, K, V, D_O, O, DQ, DK, DV, TENSORS };
static const char *const tensor_names[] = {"q", "k", "v", "dO", "o", "dq", "dk", "dv"};

/* The arguments of an attention in the lab's memory, as the block would form them. */
typedef struct attention {
    tlob_block_shape shape;
    tlob_attend_args args;
    array tensors[TENSORS], row_max, row_inv_sum, row_dot;
} attention;

/* `in`: Q, K, V, D_O on the host. */
static attention attention_of(lab *l, const tlob_block_shape *s, int64_t samples, float *const in[4], int64_t offset) {
    const int64_t heads = s->d_out / s->head_dim, columns = samples * s->seq, rows = columns * heads;
    const bool time = s->axis == TLOB_AXIS_TIME;
    const tlob_attend_layout layout = {
        .inner_stride = time ? s->head_dim : 0,
        .outer_stride = time ? s->seq * s->d_out : s->d_out,
        .token_stride = time ? s->d_out : s->head_dim,
    };
    attention a = {.shape = *s};
    for (int i = 0; i < TENSORS; i++)
        a.tensors[i] = lab_array(l, i < 4 ? in[i] : NULL, s->d_out * columns, offset);
    a.row_max = lab_array(l, NULL, rows, offset);
    a.row_inv_sum = lab_array(l, NULL, rows, offset);
    a.row_dot = lab_array(l, NULL, rows, offset);
    a.args = (tlob_attend_args){
        .groups = time ? samples * heads : columns,
        .tokens = time ? s->seq : heads,
        .head_dim = s->head_dim,
        .inner = time ? heads : 1,
        .in = layout,
        .out = layout,
        .compute = TLOB_COMPUTE_FP32,
        .tiles = l->ctx->attend_has_tiles,
        .q = a.tensors[Q].at,
        .k = a.tensors[K].at,
        .v = a.tensors[V].at,
        .d_o = a.tensors[D_O].at,
        .o = a.tensors[O].at,
        .dq = a.tensors[DQ].at,
        .dk = a.tensors[DK].at,
        .dv = a.tensors[DV].at,
        .row_max = a.row_max.at,
        .row_inv_sum = a.row_inv_sum.at,
        .row_dot = a.row_dot.at,
    };
    return a;
}

static void run_attention(lab *l, const attention *a) {
    KERNEL_OK(l->kernels->attend_forward(tlob_stream_cuda(l->stream), &a->args));
    KERNEL_OK(l->kernels->attend_backward(tlob_stream_cuda(l->stream), &a->args));
}

/* What the kernels must give, packed as they pack it, and the statistics of the rows. */
typedef struct expected {
    double *tensors[TENSORS], *row_max, *row_inv_sum, *row_dot;
} expected;

static double *doubles(int64_t count) {
    return calloc((size_t)count, sizeof(double));
}

static void expect_group(const attention *a, float *const in[4], int64_t group, expected *want) {
    const int64_t tokens = a->args.tokens, d = a->args.head_dim;
    double *rows[TENSORS], *p = doubles(tokens * tokens);
    for (int i = 0; i < TENSORS; i++)
        rows[i] = doubles(tokens * d);
    for (int i = 0; i < 4; i++)
        for (int64_t at = 0; at < tokens * d; at++)
            rows[i][at] = in[i][exact_place(&a->shape, group, at / d, at % d)];
    exact_attention x = {tokens, d, rows[Q], rows[K], rows[V], p, rows[O], rows[D_O], rows[DQ], rows[DK], rows[DV]};
    exact_attend_forward(&x);
    exact_attend_backward(&x);
    for (int i = 0; i < TENSORS; i++)
        for (int64_t at = 0; at < tokens * d; at++)
            want->tensors[i][exact_place(&a->shape, group, at / d, at % d)] = rows[i][at];
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = group * tokens + t;
        want->row_max[row] = -HUGE_VAL;
        for (int64_t j = 0; j < tokens; j++) {
            double s = 0.0, p_ij = p[t * tokens + j];
            for (int64_t e = 0; e < d; e++)
                s += rows[Q][t * d + e] * rows[K][j * d + e] / sqrt((double)d);
            want->row_max[row] = fmax(want->row_max[row], s);
            want->row_inv_sum[row] = fmax(want->row_inv_sum[row], p_ij);
        }
        for (int64_t e = 0; e < d; e++)
            want->row_dot[row] += rows[D_O][t * d + e] * rows[O][t * d + e];
    }
    for (int i = 0; i < TENSORS; i++)
        free(rows[i]);
    free(p);
}

static void compare_array(lab *l, const char *what, const char *name, array got, const double *want) {
    char text[160];
    snprintf(text, sizeof(text), "%s of %s", name, what);
    float *host = lab_read(l, got);
    lab_close_to(text, host, want, got.count, l->bar);
    free(host);
}

static void try_attention(lab *l, const tlob_block_shape *s, int64_t samples, int64_t offset) {
    const int64_t count = s->d_out * s->seq * samples, rows = count / s->head_dim;
    char what[120];
    snprintf(what, sizeof(what), "%s axis, head_dim %ld, d_out %ld, seq %ld, %ld samples, offset %ld",
             s->axis == TLOB_AXIS_TIME ? "TIME" : "FEATURE", (long)s->head_dim, (long)s->d_out, (long)s->seq,
             (long)samples, (long)offset);
    float *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = lab_random(count, 1.7f, 61 + (uint64_t)i);
    attention a = attention_of(l, s, samples, in, offset);
    run_attention(l, &a);

    expected want = {.row_max = doubles(rows), .row_inv_sum = doubles(rows), .row_dot = doubles(rows)};
    for (int i = 0; i < TENSORS; i++)
        want.tensors[i] = doubles(count);
    for (int64_t g = 0; g < a.args.groups; g++)
        expect_group(&a, in, g, &want);
    for (int i = O; i < TENSORS; i++) {
        if (a.args.tokens == 1 && (i == DQ || i == DK))
            memset(want.tensors[i], 0, (size_t)count * sizeof(double)); /* P is 1: exactly no gradient */
    }
    if (a.args.tokens > 1) {
        compare_array(l, what, tensor_names[DQ], a.tensors[DQ], want.tensors[DQ]);
        compare_array(l, what, tensor_names[DK], a.tensors[DK], want.tensors[DK]);
    }
    compare_array(l, what, tensor_names[O], a.tensors[O], want.tensors[O]);
    compare_array(l, what, tensor_names[DV], a.tensors[DV], want.tensors[DV]);
    compare_array(l, what, "row_max", a.row_max, want.row_max);
    compare_array(l, what, "row_inv_sum", a.row_inv_sum, want.row_inv_sum);
    compare_array(l, what, "row_dot", a.row_dot, want.row_dot);

    for (int i = 0; i < TENSORS; i++)
        free(want.tensors[i]);
    free(want.row_max);
    free(want.row_inv_sum);
    free(want.row_dot);
    for (int i = 0; i < 4; i++)
        free(in[i]);
    lab_clear(l);
}

void case_attend_shapes(lab *l) {
    static const int64_t head_dims[] = {1, 2, 3, 4, 5, 8, 12, 16, 20, 32, 33, 60, 64}, tokens[] = {1, 2, 4, 7, 33, 128};
    for (size_t h = 0; h < sizeof(head_dims) / sizeof(head_dims[0]); h++) {
        for (size_t t = 0; t < sizeof(tokens) / sizeof(tokens[0]); t++) {
            const int64_t d = head_dims[h], n = tokens[t];
            const tlob_block_shape feature = {1, n * d, d, 1, TLOB_AXIS_FEATURE},
                                   time = {1, 3 * d, d, n, TLOB_AXIS_TIME};
            const int64_t few = n > 100 ? 1 : 3;
            for (int64_t offset = 0; offset < 2; offset++) {
                try_attention(l, &feature, few, offset);
                try_attention(l, &time, n > 100 ? 1 : 2, offset);
            }
        }
    }
}

/* One group of tokens of one element: the scores of a query of 1 are the keys themselves. */
static attention scores(lab *l, const float *query, const float *keys, const float *values, int64_t tokens) {
    const tlob_block_shape s = {1, tokens, 1, 1, TLOB_AXIS_FEATURE};
    float *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = malloc((size_t)tokens * sizeof(float));
    for (int64_t i = 0; i < tokens; i++) {
        in[Q][i] = query ? query[i] : 1.0f;
        in[K][i] = keys[i];
        in[V][i] = values ? values[i] : 1.0f;
        in[D_O][i] = 0.5f;
    }
    attention a = attention_of(l, &s, 1, in, 0);
    run_attention(l, &a);
    for (int i = 0; i < 4; i++)
        free(in[i]);
    return a;
}

static void expect_finite(lab *l, const attention *a) {
    for (int i = O; i < TENSORS; i++) {
        float *got = lab_read(l, a->tensors[i]);
        for (int64_t j = 0; j < a->tensors[i].count; j++)
            cr_assert(isfinite(got[j]), "%s[%ld] is %g", tensor_names[i], (long)j, (double)got[j]);
        free(got);
    }
}

void case_attend_pathological(lab *l) {
    const float wide[] = {0.0f, 89.0f, 1e4f, -1e4f, FLT_MAX}, values[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    attention a = scores(l, NULL, wide, values, 5);
    expect_finite(l, &a);
    float *o = lab_read(l, a.tensors[O]);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(o[i], 5.0f, "o[%d] is %g: the largest score takes all", i, (double)o[i]);
    free(o);

    a = scores(l, NULL, wide, NULL, 4); /* P sums to 1 */
    expect_finite(l, &a);
    o = lab_read(l, a.tensors[O]);
    for (int i = 0; i < 4; i++)
        cr_assert(fabsf(o[i] - 1.0f) < 1e-6f, "P sums to %g", (double)o[i]);
    free(o);

    const float beyond[] = {INFINITY, 3.0f, -INFINITY}; /* as when q k overflows: one-hot, not inf - inf */
    a = scores(l, NULL, beyond, values, 3);
    o = lab_read(l, a.tensors[O]);
    cr_assert_eq(o[0], 1.0f, "o is %g", (double)o[0]);
    free(o);

    const float query[] = {1.0f, NAN, 1.0f, 1.0f}, zero[] = {0.0f, 0.0f, 0.0f, 0.0f};
    a = scores(l, query, zero, values, 4); /* a NaN is not hidden, and stays in its row */
    o = lab_read(l, a.tensors[O]);
    cr_assert(isnan(o[1]), "o is %g where q is NaN", (double)o[1]);
    cr_assert_eq(o[0], 2.5f);
    cr_assert_eq(o[3], 2.5f);
    free(o);
    const float keys[] = {1.0f, NAN, 2.0f};
    a = scores(l, NULL, keys, values, 3);
    o = lab_read(l, a.tensors[O]);
    for (int i = 0; i < 3; i++)
        cr_assert(isnan(o[i]), "o[%d] is %g where a key is NaN", i, (double)o[i]);
    free(o);
}

/* --- affine, add_pieces, row_sum, cross_entropy, uniform ---------------------------------------------------------- */

static void try_affine(lab *l, tlob_affine_args x, bool in_place, bool with_bias) {
    const int64_t count = x.batch > 0 ? (x.batch - 1) * x.stride + x.n * x.ld : 1;
    const int64_t biases = x.batch > 0 ? (x.batch - 1) * x.stride_bias + x.m : 1;
    float *c = lab_random(count, 2.0f, 71), *bias = lab_random(biases, 2.0f, 72);
    array ac = lab_array(l, x.beta == 0.0f ? NULL : c, count, 1), ad = in_place ? ac : lab_array(l, NULL, count, 0);
    array ab = lab_array(l, bias, biases, 1);
    x.c = x.beta == 0.0f && !in_place ? NULL : ac.at;
    x.d = ad.at;
    x.bias = with_bias ? ab.at : NULL;
    float *before = lab_read(l, ad);
    KERNEL_OK(l->kernels->affine(tlob_stream_cuda(l->stream), &x));
    float *after = lab_read(l, ad);
    bool *written = calloc((size_t)count, sizeof(bool));
    for (int64_t b = 0; b < x.batch; b++) {
        for (int64_t j = 0; j < x.n; j++) {
            for (int64_t i = 0; i < x.m; i++) {
                int64_t at = b * x.stride + j * x.ld + i;
                double want = (x.beta == 0.0f ? 0.0 : (double)x.beta * c[at]) + (with_bias ? bias[b * x.stride_bias + i] : 0.0);
                cr_assert(fabs(after[at] - want) <= 1e-6, "affine %ld x %ld, beta %g: D[%ld, %ld] of %ld is %g, not %g",
                          (long)x.m, (long)x.n, (double)x.beta, (long)i, (long)j, (long)b, (double)after[at], want);
                written[at] = true;
            }
        }
    }
    for (int64_t at = 0; at < count; at++)
        if (!written[at])
            lab_same_bits("padding", after + at, before + at, 1);
    free(c);
    free(bias);
    free(before);
    free(after);
    free(written);
    lab_clear(l);
}

void case_affine(lab *l) {
    static const tlob_affine_args shapes[] = {
        {.m = 1, .n = 1, .ld = 1, .batch = 1},
        {.m = 3, .n = 300, .ld = 3, .batch = 1},
        {.m = 33, .n = 7, .ld = 40, .batch = 1},
        {.m = 5, .n = 11, .ld = 8, .batch = 4, .stride = 97},
        {.m = 257, .n = 3, .ld = 257, .batch = 3, .stride = 771},
        {.m = 6, .n = 3, .ld = 7, .batch = 3, .stride = 21, .stride_bias = 10},
        {.m = 4, .n = 0, .ld = 4, .batch = 2, .stride = 4},
    };
    static const float betas[] = {0.0f, 1.0f, -0.5f};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int b = 0; b < 3; b++) {
            for (int flags = 0; flags < 4; flags++) {
                tlob_affine_args x = shapes[s];
                x.beta = betas[b];
                try_affine(l, x, flags & 1, flags & 2);
            }
        }
    }
}

static void try_add_pieces(lab *l, int64_t m, int64_t n, int64_t pieces, float beta, bool in_place) {
    const int64_t ld = m + 3, count = m * n, all = n * ld;
    float *x = lab_random(pieces * count, 1.0f, 75), *c = lab_random(all, 2.0f, 76);
    array ax = lab_array(l, x, pieces * count, 0), ac = lab_array(l, beta == 0.0f ? NULL : c, all, 1);
    array ad = in_place ? ac : lab_array(l, NULL, all, 1), again = lab_array(l, NULL, all, 0);
    tlob_add_pieces_args args = {.m = m, .n = n, .ld = ld, .pieces = pieces, .beta = beta, .piece = ax.at,
                                 .c = beta == 0.0f && !in_place ? NULL : ac.at, .d = again.at};
    float *before = lab_read(l, ad);
    KERNEL_OK(l->kernels->add_pieces(tlob_stream_cuda(l->stream), &args));
    args.d = ad.at;
    KERNEL_OK(l->kernels->add_pieces(tlob_stream_cuda(l->stream), &args));
    float *after = lab_read(l, ad), *second = lab_read(l, again);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < ld; i++) {
            const int64_t at = i + j * ld;
            double sum = beta == 0.0f || i >= m ? 0.0 : (double)beta * c[at], size = fabs(sum);
            for (int64_t p = 0; i < m && p < pieces; p++) {
                sum += x[p * count + i + j * m];
                size += fabs(x[p * count + i + j * m]);
            }
            if (i >= m)
                lab_same_bits("padding", after + at, before + at, 1);
            else
                cr_assert(fabs(after[at] - sum) <= 0.1 * l->bar * size,
                          "%ld pieces of %ld x %ld: D[%ld, %ld] is %.9g, not %.9g", (long)pieces, (long)m, (long)n,
                          (long)i, (long)j, (double)after[at], sum);
        }
        lab_same_bits("add_pieces", after + j * ld, second + j * ld, m);
    }
    free(x);
    free(c);
    free(before);
    free(after);
    free(second);
    lab_clear(l);
}

/* From one lane for an element to 32, whole blocks and not, and more elements than threads. */
void case_add_pieces(lab *l) {
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {16, 16}, {33, 31}, {64, 64}, {257, 129}, {512, 300}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int64_t pieces = 2; pieces <= 256 && pieces * sizes[i][0] * sizes[i][1] <= 1 << 20; pieces *= 2)
            for (int way = 0; way < 4; way++)
                try_add_pieces(l, sizes[i][0], sizes[i][1], pieces, way & 1 ? -0.5f : 0.0f, way & 2);
}

static void try_row_sum(lab *l, int64_t m, int64_t n) {
    float *x = lab_random(m * n > 0 ? m * n : 1, 1.0f, 81);
    array ax = lab_array(l, x, m * n, 1), out = lab_array(l, NULL, m, 1), again = lab_array(l, NULL, m, 0);
    array partial = lab_array(l, NULL, tlob_row_sum_scratch(m, n), 0);
    KERNEL_OK(l->kernels->row_sum(tlob_stream_cuda(l->stream), m, n, ax.at, -0.75f, partial.at, out.at));
    KERNEL_OK(l->kernels->row_sum(tlob_stream_cuda(l->stream), m, n, ax.at, -0.75f, partial.at, again.at));
    float *first = lab_read(l, out), *second = lab_read(l, again);
    free(lab_read(l, partial));
    for (int64_t i = 0; i < m; i++) {
        double sum = 0.0, size = 0.0;
        for (int64_t j = 0; j < n; j++) {
            sum += x[i + j * m];
            size += fabs(x[i + j * m]);
        }
        cr_assert(fabs(first[i] + 0.75 * sum) <= 0.1 * l->bar * size, "row %ld of %ld x %ld sums to %.9g, must be %.9g",
                  (long)i, (long)m, (long)n, (double)first[i], -0.75 * sum);
    }
    lab_same_bits("row_sum", first, second, m);
    free(x);
    free(first);
    free(second);
    lab_clear(l);
}

void case_row_sum(lab *l) {
    static const int64_t ms[] = {1, 2, 3, 5, 100, 128, 256, 257, 600}, ns[] = {0, 1, 2, 31, 85, 1024, 1025, 3000};
    for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++)
        for (size_t j = 0; j < sizeof(ns) / sizeof(ns[0]); j++)
            try_row_sum(l, ms[i], ns[j]);
    try_row_sum(l, 1, 1000003);
    try_row_sum(l, 2, 524289);
    try_row_sum(l, 3, 1048576);
    for (int64_t m = 1; m < 70; m++) /* one scratch serves sums of fewer rows too */
        for (int64_t n = 0; n < 70000; n += n < 3000 ? 1 : 1009)
            cr_assert(tlob_row_sum_scratch(m + 1, n) >= tlob_row_sum_scratch(m, n) &&
                          tlob_row_sum_scratch(m, n + 1) >= tlob_row_sum_scratch(m, n),
                      "a sum of %ld x %ld needs more scratch than a larger one", (long)m, (long)n);
    cr_assert(tlob_row_sum_scratch(0, 0) >= 1);
}

/* Loss of one sample in double, and d loss / d logits; with the maximum taken out, since exp(1e4) is no double either.
 */
static double exact_xent(const float *z, int label, double *slope) {
    double max = fmax(fmax(z[0], z[1]), z[2]), sum = 0.0;
    for (int c = 0; c < 3; c++)
        sum += exp(z[c] - max);
    for (int c = 0; c < 3; c++)
        slope[c] = exp(z[c] - max) / sum - (c == label);
    return log(sum) - (z[label] - max);
}

/* The five sums of the loss, from chunks or from one. */
static float *run_xent(lab *l, const float *z, const uint8_t *labels, int64_t samples, float **slopes) {
    const int64_t chunks = tlob_chunk_count(samples, TLOB_XENT_UNIT, TLOB_XENT_MOST);
    array az = lab_array(l, z, 3 * samples, 1), dz = lab_array(l, NULL, 3 * samples, 0);
    array partial = lab_array(l, NULL, 5 * chunks, 0), sums = lab_array(l, NULL, 5, 1);
    tlob_xent_args args = {samples, az.at, lab_bytes(l, labels, samples), dz.at, partial.at, sums.at, sums.at + 3};
    const tlob_sum_args sum = {{5, chunks, partial.at}, 3, sums.at, sums.at + 3, false};
    KERNEL_OK(l->kernels->cross_entropy(tlob_stream_cuda(l->stream), &args));
    if (chunks > 1)
        KERNEL_OK(l->kernels->sum_chunks(tlob_stream_cuda(l->stream), &sum));
    float *result = lab_read(l, sums);
    *slopes = lab_read(l, dz);
    args.dlogits = NULL; /* the loss alone is the same */
    KERNEL_OK(l->kernels->cross_entropy(tlob_stream_cuda(l->stream), &args));
    if (chunks > 1)
        KERNEL_OK(l->kernels->sum_chunks(tlob_stream_cuda(l->stream), &sum));
    float *alone = lab_read(l, sums);
    lab_same_bits("sums without dlogits", alone, result, 5);
    free(alone);
    free(lab_read(l, partial));
    lab_clear(l);
    return result;
}

static void try_xent(lab *l, int64_t samples) {
    float *z = lab_random(3 * samples, 6.0f, 91), *slopes;
    uint8_t *labels = malloc((size_t)samples);
    for (int64_t i = 0; i < samples; i++)
        labels[i] = (uint8_t)(i * 5 % 7 % 3);
    float *got = run_xent(l, z, labels, samples, &slopes);
    double want[5] = {0}, size[5] = {0};
    for (int64_t i = 0; i < samples; i++) {
        double slope[4];
        const float *at = z + 3 * i;
        slope[3] = exact_xent(at, labels[i], slope);
        int best = at[1] > at[0] ? 1 : 0;
        best = at[2] > at[best] ? 2 : best;
        for (int c = 0; c < 3; c++)
            cr_assert(fabs(slopes[3 * i + c] * (double)samples - slope[c]) <= l->bar,
                      "dlogits[%d, %ld] of %ld is %.9g, must be %.9g", c, (long)i, (long)samples,
                      slopes[3 * i + c] * (double)samples, slope[c]);
        for (int c = 0; c < 4; c++) {
            want[c] += c < 3 ? slope[c] / (double)samples : slope[c];
            size[c] += fabs(c < 3 ? slope[c] / (double)samples : slope[c]);
        }
        want[4] += best == labels[i];
    }
    for (int c = 0; c < 5; c++)
        cr_assert(fabs(got[c] - want[c]) <= l->bar * size[c], "sum %d over %ld samples is %.9g, must be %.9g", c,
                  (long)samples, (double)got[c], want[c]);
    free(z);
    free(labels);
    free(got);
    free(slopes);
}

void case_cross_entropy(lab *l) {
    static const int64_t samples[] = {1, 2, 255, 256, 257, 1000, 131073, 300001};
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        try_xent(l, samples[i]);
    static const float special[][3] = {
        {0.0f, 89.0f, 1e4f}, {-1e4f, FLT_MAX / 4, 0.0f}, {0.0f, 0.0f, 0.0f}, {-1e4f, -1e4f, -2e4f},
        {1.0f, 2.0f, 3.0f},  {1.0f, 2.0f, 3.0f},         {NAN, 2.0f, 3.0f},
    };
    static const uint8_t labels[] = {2, 0, 1, 2, 3, 255, 0};
    static const float right[] = {1, 0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof(labels); i++) {
        float *slopes, *got = run_xent(l, special[i], &labels[i], 1, &slopes);
        double slope[3], loss = i < 4 ? exact_xent(special[i], labels[i], slope) : 0.0;
        cr_assert_eq(got[4], right[i], "sample %zu", i);
        cr_assert(i < 4 ? fabs(got[3] - loss) <= l->bar * fmax(1.0, loss) : isnan(got[3]), "loss %zu is %.9g, must be %.9g",
                  i, (double)got[3], i < 4 ? loss : (double)NAN);
        for (int c = 0; c < 3; c++)
            cr_assert(i < 4 ? fabs(slopes[c] - slope[c]) <= l->bar : isnan(slopes[c]), "dlogits[%d, %zu] is %.9g", c, i,
                      (double)slopes[c]);
        if (i < 4)
            lab_same_bits("dbias of one sample", got, slopes, 3);
        free(slopes);
        free(got);
    }
}

void case_uniform(lab *l) {
    static const int64_t counts[] = {1, 3, 4, 5, 1000, 100003};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const int64_t count = counts[i];
        const uint64_t seed = 0xfedcba9876543210ull + (uint64_t)i;
        const float bound = 0.35355338f;
        array w = lab_array(l, NULL, count, 1);
        KERNEL_OK(l->kernels->uniform(tlob_stream_cuda(l->stream), count, bound, seed, 3, w.at));
        float *got = lab_read(l, w);
        for (int64_t j = 0; j < count; j++) {
            tlob_philox counter = {{(uint32_t)(j / 4), 0, 3, 0}};
            uint32_t word = tlob_philox_block(counter, (uint32_t)seed, (uint32_t)(seed >> 32)).word[j % 4];
            /* 24 bits times 24 bits is exact in double: the cast is the one rounding. */
            float want = (float)((double)bound * ((double)(word >> 8) / 8388608.0 - 1.0));
            lab_same_bits("w", got + j, &want, 1);
        }
        free(got);
        lab_clear(l);
    }
}

/* --- optimizer ------------------------------------------------------------------------------------------------- */

void case_adam_table(lab *l) {
    /* lr 1/8, b1 7/8, b2 15/16, eps 1e-2, worked out in double. With eps inside the root, or before the correction, the
     * second column is off by far more than the bar. */
    static const float start[3] = {1.0f, -0.5f, 0.75f};
    static const float gradients[5][3] = {
        {1.0f, 0.001f, 0}, {-2.0f, 0.002f, 0}, {0.5f, -0.004f, 0}, {0.25f, 0, 0}, {0}};
    static const double table[5][3] = {
        {0.876237623735, -0.511363636595, 0.75}, {0.922926834451, -0.527891802093, 0.75},
        {0.940216405386, -0.522361807266, 0.75}, {0.945981128872, -0.518376294499, 0.75},
        {0.950848162385, -0.515345105454, 0.75},
    };
    const tlob_adam_params params = {.lr = 0.125f, .beta1 = 0.875f, .beta2 = 0.9375f, .eps = 1e-2f};
    tlob_adam *adam;
    LAB_OK(tlob_adam_create(l->ctx, 3, &params, &adam));
    array w = lab_array(l, start, 3, 1);
    for (int t = 0; t < 5; t++) {
        array g = lab_array(l, gradients[t], 3, 0);
        LAB_OK(tlob_adam_step(adam, l->stream, w.at, g.at));
        float *got = lab_read(l, w);
        for (int i = 0; i < 3; i++)
            cr_assert(fabs(got[i] - table[t][i]) <= l->bar, "step %d: w[%d] is %.9g, must be %.9g", t + 1, i,
                      (double)got[i], table[t][i]);
        free(got);
    }
    tlob_adam_destroy(&adam);
}

void case_adam_lr(lab *l) {
    enum { COUNT = 70001, STEPS = 4 };
    static const float rates[STEPS] = {1e-3f, 1e-3f, 0.0f, 0.25f};
    const tlob_adam_params params = tlob_adam_params_default();
    float *start = lab_random(COUNT, 1.0f, 101);
    double *w = doubles(COUNT), *m = doubles(COUNT), *v = doubles(COUNT);
    const double b1 = params.beta1, b2 = params.beta2;
    for (int i = 0; i < COUNT; i++)
        w[i] = start[i];
    tlob_adam *adam;
    LAB_OK(tlob_adam_create(l->ctx, COUNT, &params, &adam));
    array aw = lab_array(l, start, COUNT, 0);
    for (int t = 1; t <= STEPS; t++) {
        float *g = lab_random(COUNT, 3.0f, 101 + (uint64_t)t);
        array ag = lab_array(l, g, COUNT, 0);
        if (t > 1)
            LAB_OK(tlob_adam_set_lr(adam, l->stream, rates[t - 1]));
        LAB_OK(tlob_adam_step(adam, l->stream, aw.at, ag.at));
        for (int i = 0; i < COUNT; i++) {
            m[i] = b1 * m[i] + (1.0 - b1) * g[i];
            v[i] = b2 * v[i] + (1.0 - b2) * g[i] * g[i];
            w[i] -= rates[t - 1] * (m[i] / (1.0 - pow(b1, t))) / (sqrt(v[i] / (1.0 - pow(b2, t))) + params.eps);
        }
        float *got = lab_read(l, aw);
        lab_close_to("w", got, w, COUNT, l->bar);
        free(got);
        free(g);
    }
    tlob_adam_destroy(&adam);
    free(start);
    free(w);
    free(m);
    free(v);
}

/* One step with gradients that depend on its number alone. */
static void numbered_step(lab *l, tlob_adam *adam, array w, int t) {
    float *g = lab_random(w.count, 2.0f, 200 + (uint64_t)t);
    array ag = lab_array(l, g, w.count, 0);
    LAB_OK(tlob_adam_step(adam, l->stream, w.at, ag.at));
    free(g);
}

void case_adam_state(lab *l) {
    enum { COUNT = 777, STEPS = 12, STOP = 7 };
    const tlob_adam_params params = tlob_adam_params_default();
    float *start = lab_random(COUNT, 1.0f, 103), moments[2][2 * COUNT];
    int64_t steps[2];
    tlob_adam *adam, *other;
    LAB_OK(tlob_adam_create(l->ctx, COUNT, &params, &adam));
    LAB_OK(tlob_adam_create(l->ctx, COUNT, &params, &other));
    array w = lab_array(l, start, COUNT, 0), w2 = lab_array(l, start, COUNT, 0);
    LAB_OK(tlob_adam_get_state(adam, l->stream, moments[0], 2 * COUNT, &steps[0]));
    cr_assert_eq(steps[0], 0);
    for (int i = 0; i < 2 * COUNT; i++)
        cr_assert_eq(moments[0][i], 0.0f, "moment %d of a new optimizer is %g", i, (double)moments[0][i]);
    for (int t = 1; t <= STOP; t++)
        numbered_step(l, adam, w, t);
    LAB_OK(tlob_adam_get_state(adam, l->stream, moments[0], 2 * COUNT, &steps[0]));
    cr_assert_eq(steps[0], STOP);
    double m = 0, v = 0; /* which half is which */
    for (int t = 1; t <= STOP; t++) {
        float *g = lab_random(COUNT, 2.0f, 200 + (uint64_t)t);
        m = (double)params.beta1 * m + (1.0 - (double)params.beta1) * (double)g[COUNT - 1];
        v = (double)params.beta2 * v + (1.0 - (double)params.beta2) * (double)g[COUNT - 1] * (double)g[COUNT - 1];
        free(g);
    }
    lab_close_to("m", &moments[0][COUNT - 1], &m, 1, 1e-4);
    lab_close_to("v", &moments[0][2 * COUNT - 1], &v, 1, 1e-4);

    numbered_step(l, other, w2, 99); /* to be forgotten */
    float *halfway = lab_read(l, w);
    LAB_OK(tlob_upload(l->stream, w2.at, halfway, sizeof(float) * COUNT));
    LAB_OK(tlob_adam_set_state(other, l->stream, moments[0], 2 * COUNT, steps[0]));
    for (int t = STOP + 1; t <= STEPS; t++) {
        numbered_step(l, adam, w, t);
        numbered_step(l, other, w2, t);
    }
    LAB_OK(tlob_adam_get_state(adam, l->stream, moments[0], 2 * COUNT, &steps[0]));
    LAB_OK(tlob_adam_get_state(other, l->stream, moments[1], 2 * COUNT, &steps[1]));
    float *went_on = lab_read(l, w), *resumed = lab_read(l, w2);
    cr_assert_eq(steps[0], STEPS);
    cr_assert_eq(steps[1], STEPS);
    lab_same_bits("moments", moments[1], moments[0], 2 * COUNT);
    lab_same_bits("w", resumed, went_on, COUNT);
    tlob_adam_destroy(&adam);
    tlob_adam_destroy(&other);
    free(start);
    free(halfway);
    free(went_on);
    free(resumed);
}

void case_beyond_the_grid(lab *l) {
    const int64_t count = ((int64_t)9 << 20) + 5; /* 32768 blocks of 256 threads are 8 Mi */
    float *x = lab_random(count, 1.0f, 111);
    array c = lab_array(l, x, count, 0), d = lab_array(l, NULL, count, 0);
    const tlob_affine_args affine = {.m = 1, .n = count, .ld = 1, .batch = 1, .beta = 1.0f, .c = c.at, .d = d.at};
    KERNEL_OK(l->kernels->affine(tlob_stream_cuda(l->stream), &affine));
    float *got = lab_read(l, d);
    lab_same_bits("D", got, x, count);
    free(got);

    tlob_finish_args finish = {.gemm = tlob_gemm_init(1, count, 1), .x = {.d = d.at}};
    finish.gemm.epilogue = TLOB_EPILOGUE_RELU;
    KERNEL_OK(l->kernels->finish(tlob_stream_cuda(l->stream), &finish));
    got = lab_read(l, d);
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(got[i], x[i] > 0.0f ? x[i] : 0.0f, "D[%ld]", (long)i);
    free(got);

    const tlob_block_shape s = {1, 1, 1, 1, TLOB_AXIS_FEATURE}; /* one token: P is 1, and o is v */
    float *in[4] = {x, x, x, x};
    attention a = attention_of(l, &s, count, in, 0);
    run_attention(l, &a);
    got = lab_read(l, a.tensors[O]);
    lab_same_bits("o", got, x, count);
    free(got);
    got = lab_read(l, a.tensors[DV]);
    lab_same_bits("dv", got, x, count);
    free(got);
    free(x);
}
