/* Sums in chunks: the head with its loss, what adds chunks up, and the optimizer that does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/chunks.h"
#include "tests/block/block_cases.h"

/* --- cutting ----------------------------------------------------------------------------------------------------- */

static void try_cut(int64_t unit, int64_t most, int64_t count) {
    const int64_t length = tlob_chunk_length(count, unit, most), chunks = tlob_chunk_count(count, unit, most);
    cr_assert(length % unit == 0 && chunks >= 1 && chunks <= most && (chunks - 1) * length < count &&
                  chunks * length >= count,
              "%ld in chunks of %ld: %ld of %ld", (long)count, (long)unit, (long)chunks, (long)length);
    for (int64_t fewer = count; fewer > 0; fewer -= 1 + count / 50)
        cr_assert(tlob_chunk_count(fewer, unit, most) <= tlob_chunk_count_most(count, unit, most),
                  "%ld have more chunks than %ld may have", (long)fewer, (long)count);
}

void case_chunks(void) {
    static const int64_t units[] = {1, 4, 64, 256}, mosts[] = {1, 132, 512};
    for (int u = 0; u < 4; u++)
        for (int m = 0; m < 3; m++)
            for (int64_t count = 1; count < 300000; count += 1 + count / 7)
                try_cut(units[u], mosts[m], count);
    try_cut(4, 132, (int64_t)1 << 50);
}

/* --- head -------------------------------------------------------------------------------------------------------- */

typedef struct head_problem {
    int64_t features, samples, count;
    float *w, *y;
    uint8_t *labels;
} head_problem;

/* [dW | db | loss, hits] and dy, in double. */
static void exact_head(const head_problem *p, double *sums, double *dy) {
    const int64_t f = p->features;
    memset(sums, 0, (size_t)(p->count + 2) * sizeof(double));
    for (int64_t s = 0; s < p->samples; s++) {
        const float *y = p->y + s * f;
        double z[3], max, all = 0.0;
        for (int c = 0; c < 3; c++) {
            z[c] = p->w[3 * f + c];
            for (int64_t i = 0; i < f; i++)
                z[c] += (double)p->w[3 * i + c] * y[i];
        }
        max = fmax(fmax(z[0], z[1]), z[2]);
        for (int c = 0; c < 3; c++)
            all += exp(z[c] - max);
        sums[p->count] += log(all) - (z[p->labels[s]] - max);
        sums[p->count + 1] += z[p->labels[s]] == max;
        for (int c = 0; c < 3; c++) {
            const double slope = (exp(z[c] - max) / all - (c == p->labels[s])) / (double)p->samples;
            sums[3 * f + c] += slope;
            for (int64_t i = 0; i < f; i++) {
                sums[3 * i + c] += slope * y[i];
                dy[s * f + i] += slope * p->w[3 * i + c];
            }
        }
    }
}

static void try_logits(lab *l, const head_problem *p, const float *w, const float *y) {
    array z = lab_array(l, NULL, 3 * p->samples, 1);
    const tlob_head_args args = {.samples = p->samples, .features = p->features, .weights = w, .y = y, .logits = z.at};
    KERNEL_OK(l->kernels->head_logits(tlob_stream_cuda(l->stream), &args));
    float *got = lab_read(l, z);
    double *want = calloc((size_t)(3 * p->samples), sizeof(double));
    for (int64_t i = 0; i < 3 * p->samples; i++) {
        want[i] = p->w[3 * p->features + i % 3];
        for (int64_t f = 0; f < p->features; f++)
            want[i] += (double)p->w[3 * f + i % 3] * p->y[i / 3 * p->features + f];
    }
    lab_close_to("logits", got, want, 3 * p->samples, l->bar);
    free(got);
    free(want);
}

static void try_head(lab *l, int64_t features, int64_t samples, int64_t offset) {
    head_problem p = {features, samples, tlob_head_weight_count(features), NULL, NULL, malloc((size_t)samples)};
    p.w = lab_random(p.count, 1.0f, 121);
    p.y = lab_random(features * samples, 1.5f, 122);
    for (int64_t s = 0; s < samples; s++)
        p.labels[s] = (uint8_t)(s * 5 % 7 % 3);
    double *sums = calloc((size_t)p.count + 2, sizeof(double)), *dy = calloc((size_t)(features * samples), sizeof(double));
    exact_head(&p, sums, dy);
    char name[2][80];
    snprintf(name[0], sizeof(name[0]), "dW, %ld features, %ld samples", (long)features, (long)samples);
    snprintf(name[1], sizeof(name[1]), "dy, %ld features, %ld samples", (long)features, (long)samples);

    tlob_head *head;
    LAB_OK(tlob_head_create(l->ctx, features, samples + 70, &head)); /* scratch for more chunks than there are */
    array w = lab_array(l, p.w, p.count, offset), y = lab_array(l, p.y, features * samples, offset);
    try_logits(l, &p, w.at, y.at);
    const uint8_t *labels = lab_bytes(l, p.labels, samples);
    float *first = NULL;
    for (int again = 0; again < 2; again++) {
        array dw = lab_array(l, NULL, p.count, offset), to_y = lab_array(l, NULL, features * samples, offset);
        tlob_loss loss;
        LAB_OK(tlob_head_train(head, l->stream, w.at, y.at, labels, samples, dw.at, to_y.at));
        LAB_OK(tlob_head_result(head, l->stream, &loss));
        float *got = lab_read(l, dw), *got_dy = lab_read(l, to_y);
        const double mean = sums[p.count] / (double)samples;
        lab_close_to(name[0], got, sums, p.count, l->bar);
        lab_close_to(name[1], got_dy, dy, features * samples, l->bar);
        lab_close_to("loss", &loss.loss, &mean, 1, l->bar);
        cr_assert_eq(loss.correct, (int64_t)sums[p.count + 1], "%s: %ld right, must be %g", name[0], (long)loss.correct,
                     sums[p.count + 1]);
        if (again)
            lab_same_bits(name[0], got, first, p.count);
        free(first);
        free(got_dy);
        first = got;
    }
    free(first);
    tlob_head_destroy(&head);
    lab_clear(l);
    free(p.w);
    free(p.y);
    free(p.labels);
    free(sums);
    free(dy);
}

/* A label above 2: NaN where it has a part, and no hit. */
static void bad_label(lab *l) {
    enum { FEATURES = 5, SAMPLES = 130, COUNT = 3 * FEATURES + 3 };
    float *w = lab_random(COUNT, 1.0f, 123), *y = lab_random(FEATURES * SAMPLES, 1.0f, 124);
    uint8_t labels[SAMPLES] = {0};
    labels[77] = 3;
    tlob_head *head;
    tlob_loss loss;
    LAB_OK(tlob_head_create(l->ctx, FEATURES, SAMPLES, &head));
    array dw = lab_array(l, NULL, COUNT, 0), dy = lab_array(l, NULL, FEATURES * SAMPLES, 0);
    LAB_OK(tlob_head_train(head, l->stream, lab_array(l, w, COUNT, 0).at, lab_array(l, y, FEATURES * SAMPLES, 0).at,
                           lab_bytes(l, labels, SAMPLES), SAMPLES, dw.at, dy.at));
    LAB_OK(tlob_head_result(head, l->stream, &loss));
    float *got = lab_read(l, dw), *got_dy = lab_read(l, dy);
    int64_t right = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double z[3];
        for (int c = 0; c < 3; c++) {
            z[c] = w[3 * FEATURES + c];
            for (int f = 0; f < FEATURES; f++)
                z[c] += (double)w[3 * f + c] * y[s * FEATURES + f];
        }
        right += s != 77 && z[0] >= z[1] && z[0] >= z[2];
    }
    cr_assert(isnan(loss.loss), "loss %g", (double)loss.loss);
    cr_assert_eq(loss.correct, right, "%ld right, must be %ld", (long)loss.correct, (long)right);
    for (int i = 0; i < COUNT; i++)
        cr_assert(isnan(got[i]), "gradient %d is %g", i, (double)got[i]);
    for (int i = 0; i < FEATURES * SAMPLES; i++)
        cr_assert_eq((bool)isnan(got_dy[i]), i / FEATURES == 77, "dy of sample %d is %g", i / FEATURES, (double)got_dy[i]);
    free(got);
    free(got_dy);
    free(w);
    free(y);
    tlob_head_destroy(&head);
    lab_clear(l);
}

void case_head_train(lab *l) {
    static const struct {
        int64_t features, samples;
    } of[] = {{1, 1},   {16, 1},   {16, 63},    {16, 64},   {16, 65},   {16, 256}, {3, 1000},
              {24, 77}, {37, 300}, {64, 65},    {65, 130},  {255, 9},   {256, 66}, {257, 70},
              {600, 3}, {16, 8449}, {16, 20011}, {1600, 130}, {16, 100003}};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        try_head(l, of[i].features, of[i].samples, (int64_t)i % 2);
    bad_label(l);
}

/* --- sums and the optimizer -------------------------------------------------------------------------------------- */

static double exact_sum(const float *partial, int64_t count, int64_t chunks, int64_t i) {
    double sum = 0.0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        sum += partial[i + count * chunk];
    return sum;
}

void case_sum_chunks(lab *l) {
    static const int64_t counts[] = {1, 5, 31, 32, 33, 1792, 2051}, chunks[] = {1, 2, 15, 16, 17, 132, 512};
    for (int c = 0; c < 7; c++) {
        for (int k = 0; k < 7; k++) {
            const int64_t count = counts[c], split = count * 2 / 3;
            float *from = lab_random(count * chunks[k], 1.0f, 131);
            array partial = lab_array(l, from, count * chunks[k], 1), out = lab_array(l, NULL, split, 1);
            array rest = lab_array(l, NULL, count - split, 0);
            const tlob_sum_args args = {{count, chunks[k], partial.at}, split, out.at, rest.at, false};
            KERNEL_OK(l->kernels->sum_chunks(tlob_stream_cuda(l->stream), &args));
            float *got = lab_read(l, out), *got_rest = lab_read(l, rest);
            for (int64_t i = 0; i < count; i++) {
                const double want = exact_sum(from, count, chunks[k], i);
                const float is = i < split ? got[i] : got_rest[i - split];
                cr_assert(fabs(is - want) <= l->bar * (double)chunks[k], "sum %ld of %ld over %ld is %g, must be %g",
                          (long)i, (long)count, (long)chunks[k], (double)is, want);
            }
            free(from);
            free(got);
            free(got_rest);
            lab_clear(l);
        }
    }
}

/* Steps with gradients in chunks, from step t0 on, against double; the figures behind them are summed too. */
static void try_adam(lab *l, int64_t first, int64_t second, int64_t chunks, int64_t t0, const tlob_adam_params *params) {
    enum { STEPS = 3, FIGURES = 2 };
    const int64_t count = first + second;
    const double b1 = params->beta1, b2 = params->beta2;
    float *start = lab_random(count, 1.0f, 141), *zero = calloc((size_t)count, sizeof(float));
    double *w = lab_double(start, count), *m = lab_double(zero, count), *v = lab_double(zero, count);
    array aw = lab_array(l, start, count, 1), am = lab_array(l, NULL, count, 0), av = lab_array(l, NULL, count, 1);
    array figures = lab_array(l, NULL, FIGURES, 0);
    array state = lab_array(l, NULL, sizeof(tlob_adam_state) / sizeof(float), 0);
    LAB_OK(tlob_upload(l->stream, am.at, zero, (size_t)count * sizeof(float)));
    LAB_OK(tlob_upload(l->stream, av.at, zero, (size_t)count * sizeof(float)));
    for (int64_t t = t0; t < t0 + STEPS; t++) {
        float *part[2] = {lab_random(first * (chunks + 1), 1.0f, 150 + (uint64_t)t),
                          lab_random((second + FIGURES) * chunks, 1.0f, 160 + (uint64_t)t)};
        const tlob_adam_state now = {.t = t, .lr = params->lr, .beta1 = params->beta1, .beta2 = params->beta2,
                                     .eps = params->eps, .ln_beta1 = (float)log(b1), .ln_beta2 = (float)log(b2)};
        LAB_OK(tlob_upload(l->stream, state.at, &now, sizeof(now)));
        const tlob_adam_chunked_args args = {
            .adam = {.count = count, .state = (tlob_adam_state *)state.at, .w = aw.at, .m = am.at, .v = av.at},
            .part = {{first, chunks + 1, lab_array(l, part[0], first * (chunks + 1), 0).at},
                     {second + FIGURES, chunks, lab_array(l, part[1], (second + FIGURES) * chunks, 0).at}},
            .figures = figures.at,
        };
        KERNEL_OK(l->kernels->adam_chunked(tlob_stream_cuda(l->stream), &args));
        for (int64_t i = 0; i < count; i++) {
            const double g = i < first ? exact_sum(part[0], first, chunks + 1, i)
                                       : exact_sum(part[1], second + FIGURES, chunks, i - first);
            m[i] = b1 * m[i] + (1.0 - b1) * g;
            v[i] = b2 * v[i] + (1.0 - b2) * g * g;
            w[i] -= params->lr * (m[i] / (1.0 - pow(b1, (double)t))) /
                    (sqrt(v[i] / (1.0 - pow(b2, (double)t))) + params->eps);
        }
        float *got = lab_read(l, figures);
        for (int i = 0; i < FIGURES; i++) {
            const double want = exact_sum(part[1], second + FIGURES, chunks, second + i);
            cr_assert(fabs(got[i] - want) <= l->bar * (double)chunks, "figure %d is %g, must be %g", i, (double)got[i], want);
        }
        free(got);
        free(part[0]);
        free(part[1]);
    }
    float *got = lab_read(l, aw), *got_m = lab_read(l, am), *got_v = lab_read(l, av);
    lab_close_to("w", got, w, count, l->bar);
    lab_close_to("m", got_m, m, count, l->bar);
    lab_close_to("v", got_v, v, count, l->bar);
    free(got);
    free(got_m);
    free(got_v);
    free(start);
    free(zero);
    free(w);
    free(m);
    free(v);
    lab_clear(l);
}

void case_adam_chunked(lab *l) {
    const tlob_adam_params usual = {.lr = 0.125f, .beta1 = 0.875f, .beta2 = 0.9375f, .eps = 1e-2f};
    const tlob_adam_params none = {.lr = 0.125f, .beta1 = 0.0f, .beta2 = 0.0f, .eps = 1e-2f};
    const tlob_adam_params slow = {.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.99999994f, .eps = 1e-3f};
    try_adam(l, 1792, 51, 4, 1, &usual);
    try_adam(l, 1792, 51, 132, 1, &usual);
    try_adam(l, 1, 1, 1, 1, &usual);
    try_adam(l, 77, 300, 33, 1, &none);
    try_adam(l, 5000, 99, 2, 1, &slow);
    try_adam(l, 96, 32, 3, 1000, &slow);
    try_adam(l, 96, 32, 3, (int64_t)1 << 40, &slow);
}
