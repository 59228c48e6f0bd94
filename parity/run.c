/* Runs one case: operands between guards, the oracle, the backend, and the checks in the order of parity.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parity/parity.h"

#define GUARD      64 /* floats before and after an operand; a multiple of 256 bytes, so that alignment is the case's */
#define GUARD_BITS 0x7fc0deadu /* a quiet NaN that no arithmetic makes */

/** One operand: its image on the host, and the copy that the backend works on. */
typedef struct operand {
    const char *name;
    int64_t rows, cols, ld, batch, stride;
    int64_t at;    /**< where element 0 lies in the image */
    int64_t span;  /**< from element 0 to one past the last */
    int64_t total; /**< floats of the image */
    float *image;  /**< what the backend gets to see */
    float *after;  /**< what it left */
    tlob_buffer *buffer;
} operand;

enum { A, B, C, D, BIAS, OPERANDS };

typedef struct run {
    const parity_case *c;
    tlob_gemm gemm;
    const char *backend;
    uint64_t seed;
    operand x[OPERANDS];
    parity_expectation *want; /**< m * n * batch */
    parity_result *result;
} run;

/* --- what came out --------------------------------------------------------------------------------------------- */

static bool report(run *r, parity_verdict verdict, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool report(run *r, parity_verdict verdict, const char *format, ...) {
    parity_result *result = r->result;
    size_t size = sizeof(result->message);
    result->verdict = verdict;
    int used = snprintf(result->message, size, "%s on %s: ", r->c->name, r->backend);
    va_list args;
    va_start(args, format);
    used += vsnprintf(result->message + used, size - (size_t)used, format, args);
    va_end(args);
    if ((size_t)used < size)
        snprintf(result->message + used, size - (size_t)used,
                 "\n  replay: tlob parity --backend %s --compute %s --filter '%s' --seed %llu", r->backend,
                 tlob_compute_name(r->gemm.compute), r->c->name, (unsigned long long)r->seed);
    return false;
}

static bool report_call(run *r, const char *what) {
    return report(r, PARITY_ERROR, "%s: %s", what, tlob_last_error()->message);
}

/* --- operands -------------------------------------------------------------------------------------------------- */

static bool same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static float guard_value(void) {
    const uint32_t bits = GUARD_BITS;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Element (row, col) of matrix p, as an index into the image. */
static int64_t place(const operand *o, int64_t p, int64_t row, int64_t col) {
    return o->at + p * o->stride + row + col * o->ld;
}

/* An image of guards, and in it the elements: those of `fill`, or none (NULL). */
static bool make_operand(run *r, int which, operand o, int64_t offset, const parity_fill *fill) {
    bool empty = o.rows == 0 || o.cols == 0 || o.batch == 0;
    o.span = empty ? 0 : (o.batch - 1) * o.stride + (o.cols - 1) * o.ld + o.rows;
    o.at = GUARD + offset;
    o.total = o.at + o.span + GUARD;
    o.image = malloc((size_t)o.total * sizeof(float));
    o.after = malloc((size_t)o.total * sizeof(float));
    r->x[which] = o;
    if (!o.image || !o.after)
        return report(r, PARITY_ERROR, "no host memory for operand %s", o.name);

    float guard = guard_value();
    for (int64_t i = 0; i < o.total; i++)
        o.image[i] = guard;
    for (int64_t p = 0; fill && p < o.batch; p++)
        for (int64_t col = 0; col < o.cols; col++)
            for (int64_t row = 0; row < o.rows; row++) {
                int64_t i = place(&o, p, row, col);
                o.image[i] = parity_fill_value(*fill, r->seed, (uint32_t)which, i - o.at, o.span);
            }
    return true;
}

static bool make_operands(run *r) {
    const parity_case *c = r->c;
    const tlob_gemm *g = &r->gemm;
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T, batched = g->batch > 1;
    operand a = {.name = "a", .rows = ta ? g->k : g->m, .cols = ta ? g->m : g->k, .ld = g->lda, .batch = g->batch};
    operand b = {.name = "b", .rows = tb ? g->n : g->k, .cols = tb ? g->k : g->n, .ld = g->ldb, .batch = g->batch};
    operand d = {.name = "d", .rows = g->m, .cols = g->n, .ld = g->ldc, .batch = g->batch};
    operand bias = {.name = "bias", .rows = g->m, .cols = 1, .ld = g->m, .batch = 1};
    a.stride = batched ? g->stride_a : 0;
    b.stride = batched ? g->stride_b : 0;
    d.stride = batched ? g->stride_c : 0;
    operand in = d;
    in.name = "c";

    return make_operand(r, A, a, c->offset_a, &c->a) && make_operand(r, B, b, c->offset_b, &c->b) &&
           make_operand(r, C, in, c->offset_c, &c->c) && make_operand(r, BIAS, bias, c->offset_bias, &c->bias) &&
           (c->apart ? make_operand(r, D, d, c->offset_d, NULL) : make_operand(r, D, d, c->offset_d, &c->c));
}

static void free_operands(run *r) {
    for (int i = 0; i < OPERANDS; i++) {
        free(r->x[i].image);
        free(r->x[i].after);
        tlob_buffer_destroy(&r->x[i].buffer);
    }
    free(r->want);
}

/* The operands of the call, given where each image starts. */
static tlob_gemm_operands point(const run *r, float *const base[OPERANDS]) {
    tlob_gemm_operands x = {.d = base[D] + r->x[D].at};
    if (!r->c->null_inputs) {
        x.a = base[A] + r->x[A].at;
        x.b = base[B] + r->x[B].at;
    }
    if (r->c->apart)
        x.c = base[C] + r->x[C].at;
    else
        x.c = r->gemm.beta != 0 ? x.d : NULL;
    if (r->gemm.epilogue == TLOB_EPILOGUE_BIAS)
        x.bias = base[BIAS] + r->x[BIAS].at;
    return x;
}

static tlob_gemm_operands point_to_images(const run *r) {
    float *base[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        base[i] = r->x[i].image;
    return point(r, base);
}

/* --- checks ---------------------------------------------------------------------------------------------------- */

static bool check_input(run *r, const operand *o) {
    for (int64_t i = 0; i < o->total; i++)
        if (!same_bits(o->image[i], o->after[i]))
            return report(r, PARITY_FAIL, "the product changed its input %s, %lld floats from its start", o->name,
                          (long long)(i - o->at));
    return true;
}

/* Everything around and between the elements of D is as it was. */
static bool check_guards(run *r) {
    const operand *d = &r->x[D];
    unsigned char *inside = calloc((size_t)d->total, 1);
    if (!inside)
        return report(r, PARITY_ERROR, "no host memory to check guards");
    for (int64_t p = 0; p < d->batch; p++)
        for (int64_t col = 0; col < d->cols && d->rows > 0; col++)
            memset(inside + place(d, p, 0, col), 1, (size_t)d->rows);
    int64_t i = 0;
    while (i < d->total && (inside[i] || same_bits(d->after[i], d->image[i])))
        i++;
    free(inside);
    if (i == d->total)
        return true;
    return report(r, PARITY_FAIL, "wrote outside D: %lld floats from its start, of which it spans %lld",
                  (long long)(i - d->at), (long long)d->span);
}

/* NaN where NaN is expected, the same infinity where one is, a finite number elsewhere. */
static bool same_kind(float value, double expected) {
    if (isnan(expected))
        return isnan(value);
    if (isinf(expected))
        return (double)value == expected;
    return isfinite(value);
}

static void note_worst(parity_result *result, int64_t p, int64_t row, int64_t col, float value, double expected,
                       double bound) {
    result->matrix = p;
    result->row = row;
    result->col = col;
    result->value = value;
    result->expected = expected;
    result->bound = bound;
    result->error = fabs((double)value - expected);
}

static double element_bound(const run *r, tlob_memory memory, double scale) {
    if (r->c->exact)
        return 0;
    double bound = parity_bound(&r->gemm, memory, scale);
    bool limited = memory == TLOB_MEMORY_CUDA && r->gemm.compute == TLOB_COMPUTE_TF32 && r->c->tf32_limit > 0;
    return limited ? fmin(bound, r->c->tf32_limit) : bound;
}

static bool check_values(run *r, tlob_memory memory) {
    const operand *d = &r->x[D];
    parity_result *result = r->result;
    double worst = -1;
    for (int64_t p = 0, i = 0; p < d->batch; p++)
        for (int64_t col = 0; col < d->cols; col++)
            for (int64_t row = 0; row < d->rows; row++, i++) {
                float value = d->after[place(d, p, row, col)];
                const parity_expectation *want = &r->want[i];
                double bound = element_bound(r, memory, want->scale);
                if (!same_kind(value, (double)want->value)) {
                    note_worst(result, p, row, col, value, (double)want->value, bound);
                    return report(r, PARITY_FAIL, "D[%lld, %lld] of matrix %lld is %g, expected %g", (long long)row,
                                  (long long)col, (long long)p, (double)value, (double)want->value);
                }
                if (!isfinite((double)want->value))
                    continue;
                double error = (double)fabsl(value - want->value);
                double ratio = error == 0 ? 0 : error / bound; /* infinite where the data is exact */
                if (want->scale > 0)
                    result->normalised = fmax(result->normalised, error / want->scale);
                if (ratio > worst) {
                    worst = ratio;
                    note_worst(result, p, row, col, value, (double)want->value, bound);
                }
            }
    if (worst <= 1)
        return true;
    return report(r, PARITY_FAIL,
                  "D[%lld, %lld] of matrix %lld is %.9g, expected %.9g: error %.3g, bound %.3g (normalised %.3g)",
                  (long long)result->row, (long long)result->col, (long long)result->matrix, (double)result->value,
                  result->expected, result->error, result->bound, result->normalised);
}

static bool check(run *r, tlob_memory memory) {
    *r->result = (parity_result){.verdict = PARITY_PASS};
    for (int i = 0; i < OPERANDS; i++)
        if (i != D && !check_input(r, &r->x[i]))
            return false;
    return check_guards(r) && check_values(r, memory);
}

/* --- running --------------------------------------------------------------------------------------------------- */

static bool expect(run *r) {
    const tlob_gemm *g = &r->gemm;
    tlob_gemm_operands x = point_to_images(r);
    r->want = malloc((size_t)(g->m * g->n * g->batch + 1) * sizeof(*r->want));
    if (!r->want)
        return report(r, PARITY_ERROR, "no host memory for the expected values");
    for (int64_t p = 0; p < g->batch; p++)
        for (int64_t col = 0; col < g->n; col++)
            parity_expect(g, &x, p, col, r->want + (p * g->n + col) * g->m);
    return true;
}

static bool upload(run *r, tlob_stream *stream) {
    for (int i = 0; i < OPERANDS; i++) {
        operand *o = &r->x[i];
        size_t bytes = (size_t)o->total * sizeof(float);
        if (!o->buffer && tlob_buffer_create(tlob_stream_context(stream), bytes, &o->buffer) != TLOB_OK)
            return report_call(r, "operand");
        if (tlob_upload(stream, tlob_buffer_data(o->buffer), o->image, bytes) != TLOB_OK)
            return report_call(r, "upload");
    }
    return true;
}

static bool download(run *r, tlob_stream *stream) {
    for (int i = 0; i < OPERANDS; i++) {
        operand *o = &r->x[i];
        if (tlob_download(stream, o->after, tlob_buffer_data(o->buffer), (size_t)o->total * sizeof(float)) != TLOB_OK)
            return report_call(r, "download");
    }
    return true;
}

static bool run_backend(run *r, tlob_stream *stream) {
    float *base[OPERANDS];
    if (!upload(r, stream))
        return false;
    for (int i = 0; i < OPERANDS; i++)
        base[i] = tlob_buffer_data(r->x[i].buffer);
    tlob_gemm_operands x = point(r, base);
    if (tlob_gemm_run_on(stream, r->backend, &r->gemm, &x) != TLOB_OK)
        return report_call(r, "product");
    if (tlob_stream_sync(stream) != TLOB_OK)
        return report_call(r, "sync");
    return download(r, stream);
}

/* Runs the oracle on copies of the images, checks it like any backend, and makes what it computed the reference. */
static bool consult_oracle(run *r, tlob_stream *oracle) {
    float *base[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        memcpy(r->x[i].after, r->x[i].image, (size_t)r->x[i].total * sizeof(float));
        base[i] = r->x[i].after;
    }
    tlob_gemm_operands x = point(r, base);
    if (tlob_gemm_run_on(oracle, "cpu_ref", &r->gemm, &x) != TLOB_OK)
        return report_call(r, "the oracle");
    if (!check(r, TLOB_MEMORY_HOST)) {
        r->result->verdict = PARITY_ERROR;
        return false;
    }
    const operand *d = &r->x[D];
    for (int64_t p = 0, i = 0; p < d->batch; p++)
        for (int64_t col = 0; col < d->cols; col++)
            for (int64_t row = 0; row < d->rows; row++)
                r->want[i++].value = d->after[place(d, p, row, col)];
    return true;
}

static bool run_case(run *r, tlob_stream *stream, tlob_stream *oracle) {
    if (!make_operands(r) || !expect(r))
        return false;
    if (oracle) {
        const char *backend = r->backend;
        r->backend = "cpu_ref"; /* what a failure of the oracle shall name */
        if (!consult_oracle(r, oracle))
            return false;
        r->backend = backend;
    }
    return run_backend(r, stream) && check(r, tlob_context_memory(tlob_stream_context(stream)));
}

bool parity_run(tlob_stream *stream, tlob_stream *oracle, const char *backend, const parity_case *c,
                tlob_compute compute, uint64_t seed, parity_result *result) {
    run r = {.c = c, .gemm = c->gemm, .backend = backend, .seed = seed, .result = result};
    tlob_settings settings;
    *result = (parity_result){.verdict = PARITY_PASS};
    r.gemm.compute = compute;
    if (compute == TLOB_COMPUTE_DEFAULT) {
        if (tlob_context_settings(tlob_stream_context(stream), &settings) != TLOB_OK)
            return report_call(&r, "context");
        r.gemm.compute = settings.compute;
    }
    bool passed = run_case(&r, stream, oracle);
    free_operands(&r);
    return passed;
}
