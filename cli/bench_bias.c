// Four projections with biases, fused as epilogues, against a kernel of its own for each bias.
#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>

#define PROJECTIONS 4 // Q, K, V, O

enum { FUSED, CLASSIC, SPLIT, PLAIN, LAUNCHES, WORKS };
static const char *const work_names[] = {"fused", "cublas_classic", "split", "plain", "four_launches"};

typedef struct projections {
    int64_t dim, rows;
    const float *weights, *biases, *x; // W [dim, dim] each, as torch keeps them; b [dim] each; x [dim, rows]
    float *y;                          // [dim, rows] each
} projections;

static tlob_status run_project(const projections *p, tlob_stream *stream, const char *backend, bool bias) {
    tlob_gemm gemm = tlob_gemm_init(p->dim, p->rows, p->dim);
    gemm.transa = TLOB_OP_T;
    if (bias)
        gemm.epilogue = TLOB_EPILOGUE_BIAS;
    tlob_status status = TLOB_OK;
    for (int64_t i = 0; i < PROJECTIONS && !status; i++) {
        const tlob_gemm_operands x = {.a = p->weights + i * p->dim * p->dim,
                                      .b = p->x,
                                      .d = p->y + i * p->dim * p->rows,
                                      .bias = bias ? p->biases + i * p->dim : NULL};
        status = tlob_gemm_run_on(stream, backend, &gemm, &x);
    }
    return status;
}

static tlob_status run_fused(const void *user, tlob_stream *stream) {
    return run_project(user, stream, "cublaslt", true);
}

// Each bias, and then the product added to it.
static tlob_status run_classic(const void *user, tlob_stream *stream) {
    return run_project(user, stream, "cublas_classic", true);
}

static tlob_status run_plain(const void *user, tlob_stream *stream) {
    return run_project(user, stream, "cublaslt", false);
}

// Each bias after its plain product: without an inner dimension, a product is the kernel y = y + b alone.
static tlob_status run_split(const void *user, tlob_stream *stream) {
    const projections *p = user;
    tlob_gemm product = tlob_gemm_init(p->dim, p->rows, p->dim), bias = tlob_gemm_init(p->dim, p->rows, 0);
    product.transa = TLOB_OP_T;
    bias.beta = 1;
    bias.epilogue = TLOB_EPILOGUE_BIAS;
    tlob_status status = TLOB_OK;
    for (int64_t i = 0; i < PROJECTIONS && !status; i++) {
        float *y = p->y + i * p->dim * p->rows;
        const tlob_gemm_operands x = {.a = p->weights + i * p->dim * p->dim, .b = p->x, .d = y};
        const tlob_gemm_operands b = {.a = x.a, .b = x.b, .c = y, .d = y, .bias = p->biases + i * p->dim};
        status = tlob_gemm_run_on(stream, "cublaslt", &product, &x);
        if (!status)
            status = tlob_gemm_run_on(stream, "cublaslt", &bias, &b);
    }
    return status;
}

// The smallest kernel that libtlob has: a product of 1 x 1 x 0 stores a zero.
static tlob_status run_launches(const void *user, tlob_stream *stream) {
    const projections *p = user;
    const tlob_gemm gemm = tlob_gemm_init(1, 1, 0);
    const tlob_gemm_operands x = {.a = p->weights, .b = p->x, .d = p->y};
    tlob_status status = TLOB_OK;
    for (int i = 0; i < PROJECTIONS && !status; i++)
        status = tlob_gemm_run_on(stream, "cublaslt", &gemm, &x);
    return status;
}

static void report_saved(cJSON *row, const bench_times times[WORKS], bench_times classic, bench_times split,
                         bench_times epilogue) {
    if (!row) {
        printf("%-12s fusing saves %.2f [%.2f %.2f] of cublas_classic, %.2f [%.2f %.2f] of plain products and kernels; "
               "four launches take %.2f; the epilogues cost %.2f [%.2f %.2f]\n",
               "", classic.median, classic.low, classic.high, split.median, split.low, split.high,
               times[LAUNCHES].median, epilogue.median, epilogue.low, epilogue.high);
        fflush(stdout);
        return;
    }
    for (int i = SPLIT; i < WORKS; i++)
        bench_add_times(row, work_names[i], times[i]);
    bench_add_times(row, "saved_of_cublas_classic", classic);
    bench_add_times(row, "saved_of_split", split);
    bench_add_times(row, "epilogues_cost", epilogue);
}

static bool time_projections(const bench *b, const projections *p, bench_mode mode) {
    const bench_work works[WORKS] = {[FUSED] = {run_fused, p},
                                     [CLASSIC] = {run_classic, p},
                                     [SPLIT] = {run_split, p},
                                     [PLAIN] = {run_plain, p},
                                     [LAUNCHES] = {run_launches, p}};
    const int repeat = bench_repeat(b);
    double *samples = malloc(WORKS * (size_t)repeat * sizeof *samples);
    bool good = samples != NULL;
    if (!good)
        cli_error("out of memory");
    good = good && bench_measure(b, mode, works, WORKS, 20, samples);
    if (good) {
        const double *fused = samples, *classic = samples + CLASSIC * repeat, *split = samples + SPLIT * repeat;
        const bench_times saved = bench_median_difference(fused, classic, repeat);
        const bench_times saved_of_split = bench_median_difference(fused, split, repeat);
        const bench_times epilogue = bench_median_difference(samples + PLAIN * repeat, fused, repeat);
        char what[32];
        bench_times times[WORKS];
        for (int i = 0; i < WORKS; i++)
            times[i] = bench_summarize(samples + i * repeat, repeat);
        snprintf(what, sizeof what, "bias_%d", (int)p->dim);
        report_saved(bench_report(b, what, p->rows, mode, work_names, times), times, saved, saved_of_split, epilogue);
    }
    free(samples);
    return good;
}

static bool bench_bias_at(const bench *b, int64_t dim, int64_t rows) {
    tlob_buffer *w = bench_data(b, PROJECTIONS * dim * dim, 0), *bias = bench_data(b, PROJECTIONS * dim, 1);
    tlob_buffer *x = bench_data(b, dim * rows, 2), *y = bench_data(b, PROJECTIONS * dim * rows, 3);
    bool good = w && bias && x && y;
    if (good) {
        const projections p = {
            dim, rows, tlob_buffer_data(w), tlob_buffer_data(bias), tlob_buffer_data(x), tlob_buffer_data(y)};
        good = time_projections(b, &p, BENCH_STREAM) && time_projections(b, &p, BENCH_GRAPH);
    }
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    tlob_buffer_destroy(&bias);
    tlob_buffer_destroy(&w);
    return good;
}

bool bench_bias(bench *b) {
    static const int64_t rows[] = {256, 4096};
    for (int i = 0; i < 2; i++)
        for (int64_t dim = 128; dim <= 1024; dim *= 2)
            if (!bench_bias_at(b, dim, rows[i]))
                return false;
    return true;
}
