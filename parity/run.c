/* Runs one case: operands between guards, the oracle, the backend, and the checks in the order of parity.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity/report.h"

#define GUARD      64 /* floats before and after an operand; a multiple of 256 bytes, so that alignment is the case's */
#define GUARD_BITS 0x7fc0deadu        /* a quiet NaN that no arithmetic makes; as a mask's poison, ones and zeros */
#define SPARSE     ((int64_t)1 << 26) /* floats from which on a huge case keeps the columns in use alone */

typedef enum role { UNUSED, INPUT, OUTPUT } role;

/** One operand: its image on the host, and the copy that the backend works on. A mask counts in words of 32 bits. */
typedef struct operand {
    const char *name;
    role role;
    int64_t rows, cols, ld, batch, stride;
    int64_t offset;
    int64_t at;    /**< where element 0 lies in the image */
    int64_t span;  /**< from element 0 to one past the last */
    int64_t total; /**< floats of the image */
    bool sparse;   /**< only the columns and the guards around each are filled, copied and checked */
    float *image;  /**< what the backend gets to see */
    float *after;  /**< what it left */
    tlob_buffer *buffer;
} operand;

enum { A, B, C, D, BIAS, BGRAD, AUX, OPERANDS };

typedef struct run {
    parity_who who;
    const parity_case *c;
    tlob_gemm gemm;
    const tlob_epilogue_traits *traits;
    operand x[OPERANDS];
    parity_expectation *want;       /**< of D and aux: m * n * batch */
    parity_expectation *want_bgrad; /**< rows * batch of bgrad */
    double ratio;                   /**< of the worst element: error / bound */
    parity_result *result;
} run;

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

static int64_t pieces(const operand *o) {
    return o->sparse ? o->cols * o->batch : o->role != UNUSED;
}

/* Piece i of an image: all of it, or where it is sparse, column i % cols of matrix i / cols between guards. */
static int64_t piece(const operand *o, int64_t i, int64_t *count) {
    *count = o->sparse ? o->rows + 2 * GUARD : o->total;
    return o->sparse ? place(o, i / o->cols, 0, i % o->cols) - GUARD : 0;
}

static unsigned char *mask_byte(const run *r, float *image, int64_t p, int64_t row, int64_t col) {
    return (unsigned char *)(image + place(&r->x[AUX], p, 0, col)) + row / 8;
}

static void fill_mask(run *r, parity_fill fill) {
    const operand *o = &r->x[AUX];
    int64_t m = r->gemm.m, count = m * o->cols * o->batch, i = 0;
    for (int64_t p = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++)
            for (int64_t row = 0; row < m; row++, i++) {
                unsigned char *byte = mask_byte(r, o->image, p, row, col), bit = (unsigned char)(1u << row % 8);
                bool one = !(parity_fill_value(fill, r->who.seed, AUX, i, count) < 0);
                *byte = (unsigned char)(one ? *byte | bit : *byte & ~bit);
            }
}

static void fill_floats(run *r, int which, parity_fill fill) {
    const operand *o = &r->x[which];
    for (int64_t p = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++)
            for (int64_t row = 0; row < o->rows; row++) {
                int64_t i = place(o, p, row, col);
                o->image[i] = parity_fill_value(fill, r->who.seed, (uint32_t)which, i - o->at, o->span);
            }
}

/* An image of guards, and in it the elements: those of `fill`, or none (NULL). */
static bool make_operand(run *r, int which, const parity_fill *fill) {
    operand *o = &r->x[which];
    if (o->role == UNUSED)
        return true;
    bool empty = o->rows == 0 || o->cols == 0 || o->batch == 0;
    o->span = empty ? 0 : (o->batch - 1) * o->stride + (o->cols - 1) * o->ld + o->rows;
    o->at = GUARD + o->offset;
    o->total = o->at + o->span + GUARD;
    o->sparse = r->c->huge && o->span >= SPARSE;
    o->image = malloc((size_t)o->total * sizeof(float));
    o->after = malloc((size_t)o->total * sizeof(float));
    if (!o->image || !o->after)
        return parity_report(&r->who, r->result, PARITY_ERROR, "no host memory for operand %s", o->name);

    float guard = guard_value();
    for (int64_t i = 0, count; i < pieces(o); i++)
        for (int64_t start = piece(o, i, &count), k = start; k < start + count; k++)
            o->image[k] = guard;
    if (fill && which == AUX && r->traits->aux_is_mask)
        fill_mask(r, *fill);
    else if (fill)
        fill_floats(r, which, *fill);
    return true;
}

/* Where the operands lie, and which of them count. */
static void lay_out(run *r) {
    const parity_case *c = r->c;
    const tlob_gemm *g = &r->gemm;
    const tlob_epilogue_traits *t = r->traits;
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T, batched = g->batch > 1;
    int64_t grads = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m, word = t->aux_is_mask ? 32 : 1;
    operand *x = r->x;
    x[A] = (operand){.name = "a", .rows = ta ? g->k : g->m, .cols = ta ? g->m : g->k, .ld = g->lda};
    x[B] = (operand){.name = "b", .rows = tb ? g->n : g->k, .cols = tb ? g->k : g->n, .ld = g->ldb};
    x[C] = (operand){.name = "c", .rows = g->m, .cols = g->n, .ld = g->ldc};
    x[D] = (operand){.name = "D", .rows = g->m, .cols = g->n, .ld = g->ldc};
    x[BIAS] = (operand){.name = "bias", .rows = g->m, .cols = 1, .ld = g->m};
    x[BGRAD] = (operand){.name = "bgrad", .rows = grads, .cols = 1, .ld = grads};
    /* all bits of a mask's column may be written, those past m too */
    x[AUX] = (operand){
        .name = "aux", .rows = t->aux_is_mask ? g->ld_aux / word : g->m, .cols = g->n, .ld = g->ld_aux / word};
    const int64_t strides[] = {g->stride_a,    g->stride_b,    g->stride_c,         g->stride_c,
                               g->stride_bias, g->stride_bias, g->stride_aux / word};
    const int64_t offsets[] = {c->offset_a,    c->offset_b,     c->offset_c,  c->offset_d,
                               c->offset_bias, c->offset_bgrad, c->offset_aux};
    const role roles[] = {INPUT,
                          INPUT,
                          c->apart ? INPUT : UNUSED,
                          OUTPUT,
                          t->reads_bias ? INPUT : UNUSED,
                          t->writes_bgrad ? OUTPUT : UNUSED,
                          t->writes_aux  ? OUTPUT
                          : t->reads_aux ? INPUT
                                         : UNUSED};
    for (int i = 0; i < OPERANDS; i++) {
        x[i].batch = g->batch;
        x[i].stride = batched ? strides[i] : 0;
        x[i].offset = offsets[i];
        x[i].role = roles[i];
        if (g->m == 0 || g->n == 0) /* nothing is written; A and B keep their elements, and nobody looks at them */
            x[i].rows = i == A || i == B ? x[i].rows : 0;
    }
}

static bool make_operands(run *r) {
    const parity_case *c = r->c;
    lay_out(r);
    return make_operand(r, A, &c->a) && make_operand(r, B, &c->b) && make_operand(r, C, &c->c) &&
           make_operand(r, D, c->apart ? NULL : &c->c) && make_operand(r, BIAS, &c->bias) &&
           make_operand(r, BGRAD, NULL) && make_operand(r, AUX, r->traits->reads_aux ? &c->aux : NULL);
}

static void free_operands(run *r) {
    for (int i = 0; i < OPERANDS; i++) {
        free(r->x[i].image);
        free(r->x[i].after);
        tlob_buffer_destroy(&r->x[i].buffer);
    }
    free(r->want);
    free(r->want_bgrad);
}

static float *start_of(const run *r, float *const base[OPERANDS], int which) {
    return r->x[which].role == UNUSED ? NULL : base[which] + r->x[which].at;
}

/* The operands of the call, given where each image starts. */
static tlob_gemm_operands point(const run *r, float *const base[OPERANDS]) {
    const tlob_gemm *g = &r->gemm;
    tlob_gemm_operands x = {
        .a = start_of(r, base, A),
        .b = start_of(r, base, B),
        .c = start_of(r, base, C),
        .d = start_of(r, base, D),
        .bias = start_of(r, base, BIAS),
        .bgrad = start_of(r, base, BGRAD),
        .aux = start_of(r, base, AUX),
    };
    if (!r->c->apart)
        x.c = g->beta != 0 ? x.d : NULL;
    if (r->c->null_inputs && !(g->epilogue == TLOB_EPILOGUE_BGRADA && g->k > 0))
        x.a = NULL;
    if (r->c->null_inputs && !(g->epilogue == TLOB_EPILOGUE_BGRADB && g->k > 0))
        x.b = NULL;
    return x;
}

/* --- checks ---------------------------------------------------------------------------------------------------- */

static bool check_input(run *r, const operand *o) {
    for (int64_t p = 0, count; p < pieces(o); p++)
        for (int64_t start = piece(o, p, &count), i = start; i < start + count; i++)
            if (!same_bits(o->image[i], o->after[i]))
                return parity_report(&r->who, r->result, PARITY_FAIL,
                                     "the product changed its input %s, %lld floats from its start", o->name,
                                     (long long)(i - o->at));
    return true;
}

/* Marks the elements of `o` in the piece that starts at `start`. */
static void mark_elements(const operand *o, int64_t start, unsigned char *inside) {
    if (o->sparse) {
        memset(inside + GUARD, 1, (size_t)o->rows);
        return;
    }
    for (int64_t matrix = 0; matrix < o->batch; matrix++)
        for (int64_t col = 0; col < o->cols && o->rows > 0; col++)
            memset(inside + place(o, matrix, 0, col) - start, 1, (size_t)o->rows);
}

/* Everything around and between the elements of an output is as it was. */
static bool check_guards(run *r, const operand *o) {
    for (int64_t p = 0, count; p < pieces(o); p++) {
        int64_t start = piece(o, p, &count), i = 0;
        unsigned char *inside = calloc((size_t)count, 1);
        if (!inside)
            return parity_report(&r->who, r->result, PARITY_ERROR, "no host memory to check guards");
        mark_elements(o, start, inside);
        while (i < count && (inside[i] || same_bits(o->after[start + i], o->image[start + i])))
            i++;
        free(inside);
        if (i < count)
            return parity_report(&r->who, r->result, PARITY_FAIL,
                                 "wrote outside %s: %lld floats from its start, of which it spans %lld", o->name,
                                 (long long)(start + i - o->at), (long long)o->span);
    }
    return true;
}

/* NaN where NaN is expected, the same infinity where one is, a finite number elsewhere. */
static bool same_kind(float value, double expected) {
    if (isnan(expected))
        return isnan(value);
    if (isinf(expected))
        return (double)value == expected;
    return isfinite(value);
}

/** An element as it came out, and what it should be. */
typedef struct element {
    const char *output;
    int64_t matrix, row, col;
    float value;
    long double expected;
    double scale, bound;
} element;

static void note_worst(run *r, const element *e, double ratio) {
    parity_result *result = r->result;
    r->ratio = ratio;
    result->output = e->output;
    result->matrix = e->matrix;
    result->row = e->row;
    result->col = e->col;
    result->value = e->value;
    result->expected = (double)e->expected;
    result->bound = e->bound;
    result->error = fabs((double)e->value - result->expected);
}

/* On the host, where a bound is no more than the roundings that there must be, a separate epilogue may add two. Those
 * of the pieces of a sum add up to one. */
static double slack(const run *r, tlob_memory memory) {
    if (memory != TLOB_MEMORY_HOST || !r->who.method)
        return 1;
    return r->who.method->form == TLOB_FORM_SEPARATE ? 3 : r->who.method->form == TLOB_FORM_SPLIT ? 2 : 1;
}

/* Keeps the worst element; false, and the verdict, where one is wrong beyond measure. */
static bool judge(run *r, element e) {
    if (r->c->exact)
        e.bound = 0;
    if (!same_kind(e.value, (double)e.expected)) {
        note_worst(r, &e, INFINITY);
        return parity_report(&r->who, r->result, PARITY_FAIL, "%s[%lld, %lld] of matrix %lld is %g, expected %g",
                             e.output, (long long)e.row, (long long)e.col, (long long)e.matrix, (double)e.value,
                             (double)e.expected);
    }
    if (!isfinite((double)e.expected))
        return true;
    double error = (double)fabsl(e.value - e.expected);
    double ratio = error == 0 ? 0 : error / e.bound; /* infinite where the data is exact */
    if (e.scale > 0)
        r->result->normalised = fmax(r->result->normalised, error / e.scale);
    if (ratio > r->ratio)
        note_worst(r, &e, ratio);
    return true;
}

/* What became of a NaN in z: ReLU without a mask may keep it on a device (<tlob/gemm.h>). */
static bool kept_nan(const run *r, tlob_memory memory, float value, const parity_expectation *want) {
    bool relu = r->gemm.epilogue == TLOB_EPILOGUE_RELU || r->gemm.epilogue == TLOB_EPILOGUE_RELU_BIAS;
    return relu && memory == TLOB_MEMORY_CUDA && isnan((double)want->z) && isnan(value);
}

static bool check_d(run *r, tlob_memory memory) {
    const operand *o = &r->x[D];
    bool limited = memory == TLOB_MEMORY_CUDA && r->gemm.compute == TLOB_COMPUTE_TF32 && r->c->tf32_limit > 0;
    for (int64_t p = 0, i = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++)
            for (int64_t row = 0; row < o->rows; row++, i++) {
                const parity_expectation *want = &r->want[i];
                double bound = slack(r, memory) * parity_bound(&r->gemm, memory, want->scale);
                float value = o->after[place(o, p, row, col)];
                if (kept_nan(r, memory, value, want))
                    continue;
                if (!judge(r, (element){.output = "D",
                                        .matrix = p,
                                        .row = row,
                                        .col = col,
                                        .value = value,
                                        .expected = want->value,
                                        .scale = want->scale,
                                        .bound = limited ? fmin(bound, r->c->tf32_limit) : bound}))
                    return false;
            }
    return true;
}

static bool check_bgrad(run *r, tlob_memory memory) {
    const operand *o = &r->x[BGRAD];
    for (int64_t p = 0, i = 0; p < o->batch; p++)
        for (int64_t row = 0; row < o->rows; row++, i++) {
            const parity_expectation *want = &r->want_bgrad[i];
            if (!judge(r, (element){.output = "bgrad",
                                    .matrix = p,
                                    .row = row,
                                    .value = o->after[place(o, p, row, 0)],
                                    .expected = want->value,
                                    .scale = want->scale,
                                    .bound = slack(r, memory) * parity_bound_bgrad(&r->gemm, memory, want->scale)}))
                return false;
        }
    return true;
}

/* A bit is 0 where z < 0; either where z is as near 0 as it may be off; and 1 where D says that z was positive. */
static bool check_bit(run *r, tlob_memory memory, int64_t p, int64_t row, int64_t col) {
    const parity_expectation *want = &r->want[(p * r->gemm.n + col) * r->gemm.m + row];
    bool one = *mask_byte(r, r->x[AUX].after, p, row, col) >> row % 8 & 1;
    float d = r->x[D].after[place(&r->x[D], p, row, col)];
    bool sure = r->c->exact || want->z_scale == 0 || !isfinite((double)want->z) ||
                fabsl(want->z) > parity_bound_z(&r->gemm, memory, want->z_scale);
    if (sure ? one == !(want->z < 0) : one || !(d > 0))
        return true;
    return parity_report(&r->who, r->result, PARITY_FAIL,
                         "bit [%lld, %lld] of the mask of matrix %lld is %d where z is %g", (long long)row,
                         (long long)col, (long long)p, one, (double)want->z);
}

static bool check_aux(run *r, tlob_memory memory) {
    const operand *o = &r->x[AUX];
    for (int64_t p = 0, i = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++)
            for (int64_t row = 0; row < r->gemm.m; row++, i++) {
                const parity_expectation *want = &r->want[i];
                if (r->traits->aux_is_mask
                        ? !check_bit(r, memory, p, row, col)
                        : !judge(r, (element){.output = "aux",
                                              .matrix = p,
                                              .row = row,
                                              .col = col,
                                              .value = o->after[place(o, p, row, col)],
                                              .expected = want->z,
                                              .scale = want->z_scale,
                                              .bound = parity_bound_z(&r->gemm, memory, want->z_scale)}))
                    return false;
            }
    return true;
}

static bool settle(run *r, tlob_memory memory) {
    const parity_result *w = r->result;
    if (r->ratio <= 0.5 || (r->ratio <= 1 && memory == TLOB_MEMORY_HOST))
        return true;
    parity_report(&r->who, r->result, r->ratio <= 1 ? PARITY_WARN : PARITY_FAIL,
                  "%s[%lld, %lld] of matrix %lld is %.9g, expected %.9g: error %.3g, bound %.3g (normalised %.3g)",
                  w->output, (long long)w->row, (long long)w->col, (long long)w->matrix, (double)w->value, w->expected,
                  w->error, w->bound, w->normalised);
    return r->ratio <= 1;
}

static bool check(run *r, tlob_memory memory) {
    *r->result = (parity_result){.verdict = PARITY_PASS, .output = "D"};
    r->ratio = -1;
    for (int i = 0; i < OPERANDS; i++)
        if (r->x[i].role == INPUT && !check_input(r, &r->x[i]))
            return false;
    for (int i = 0; i < OPERANDS; i++)
        if (r->x[i].role == OUTPUT && !check_guards(r, &r->x[i]))
            return false;
    return check_d(r, memory) && (!r->traits->writes_bgrad || check_bgrad(r, memory)) &&
           (!r->traits->writes_aux || check_aux(r, memory)) && settle(r, memory);
}

/* --- running --------------------------------------------------------------------------------------------------- */

static bool expect(run *r) {
    const tlob_gemm *g = &r->gemm;
    float *base[OPERANDS];
    for (int i = 0; i < OPERANDS; i++)
        base[i] = r->x[i].image;
    tlob_gemm_operands x = point(r, base);
    int64_t sums = r->x[BGRAD].rows;
    r->want = malloc((size_t)(g->m * g->n * g->batch + 1) * sizeof(*r->want));
    r->want_bgrad = malloc((size_t)(sums * g->batch + 1) * sizeof(*r->want));
    if (!r->want || !r->want_bgrad)
        return parity_report(&r->who, r->result, PARITY_ERROR, "no host memory for the expected values");
    for (int64_t p = 0; p < g->batch && g->m > 0; p++) {
        parity_expectation *matrix = r->want + p * g->n * g->m;
        for (int64_t col = 0; col < g->n; col++)
            parity_expect(g, &x, p, col, matrix + col * g->m);
        if (r->traits->writes_bgrad && g->n > 0)
            parity_expect_bgrad(g, &x, p, matrix, r->want_bgrad + p * sums);
    }
    return true;
}

static bool upload(run *r, tlob_stream *stream) {
    for (int i = 0; i < OPERANDS; i++) {
        operand *o = &r->x[i];
        size_t bytes = (size_t)o->total * sizeof(float);
        if (o->role != UNUSED && !o->buffer &&
            tlob_buffer_create(tlob_stream_context(stream), bytes, &o->buffer) != TLOB_OK)
            return parity_report_call(&r->who, r->result, "operand");
        for (int64_t p = 0, count; p < pieces(o); p++) {
            int64_t start = piece(o, p, &count);
            float *device = (float *)tlob_buffer_data(o->buffer) + start;
            if (tlob_upload(stream, device, o->image + start, (size_t)count * sizeof(float)) != TLOB_OK)
                return parity_report_call(&r->who, r->result, "upload");
        }
    }
    return true;
}

static bool download(run *r, tlob_stream *stream) {
    for (int i = 0; i < OPERANDS; i++) {
        operand *o = &r->x[i];
        for (int64_t p = 0, count; p < pieces(o); p++) {
            int64_t start = piece(o, p, &count);
            const float *device = (const float *)tlob_buffer_data(o->buffer) + start;
            if (tlob_download(stream, o->after + start, device, (size_t)count * sizeof(float)) != TLOB_OK)
                return parity_report_call(&r->who, r->result, "download");
        }
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
    tlob_status status = r->who.method ? tlob_gemm_run_as(stream, r->who.method, &r->gemm, &x)
                                       : tlob_gemm_run_on(stream, r->who.backend, &r->gemm, &x);
    if (status == TLOB_ERR_UNSUPPORTED && r->who.method)
        return parity_report(&r->who, r->result, PARITY_UNSUPPORTED, "%s", tlob_last_error()->message);
    if (status != TLOB_OK)
        return parity_report_product(&r->who, r->result, stream, &r->gemm, &x, status);
    if (tlob_stream_sync(stream) != TLOB_OK)
        return parity_report_call(&r->who, r->result, "sync");
    return download(r, stream);
}

/* What the oracle computed, and has been checked, is what a backend is compared with. */
static void adopt(run *r) {
    const operand *d = &r->x[D], *aux = &r->x[AUX], *bgrad = &r->x[BGRAD];
    bool floats = r->traits->writes_aux && !r->traits->aux_is_mask;
    for (int64_t p = 0, i = 0; p < d->batch; p++)
        for (int64_t col = 0; col < d->cols; col++)
            for (int64_t row = 0; row < d->rows; row++, i++) {
                r->want[i].value = d->after[place(d, p, row, col)];
                if (floats)
                    r->want[i].z = aux->after[place(aux, p, row, col)];
            }
    for (int64_t p = 0, i = 0; r->traits->writes_bgrad && p < bgrad->batch; p++)
        for (int64_t row = 0; row < bgrad->rows; row++)
            r->want_bgrad[i++].value = bgrad->after[place(bgrad, p, row, 0)];
}

/* Runs the oracle on copies of the images, checks it like any backend, and makes what it computed the reference. */
static bool consult_oracle(run *r, tlob_stream *oracle) {
    float *base[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        operand *o = &r->x[i];
        for (int64_t p = 0, count; p < pieces(o); p++) {
            int64_t start = piece(o, p, &count);
            memcpy(o->after + start, o->image + start, (size_t)count * sizeof(float));
        }
        base[i] = o->after;
    }
    tlob_gemm_operands x = point(r, base);
    if (tlob_gemm_run_on(oracle, "cpu_ref", &r->gemm, &x) != TLOB_OK)
        return parity_report_call(&r->who, r->result, "the oracle");
    if (!check(r, TLOB_MEMORY_HOST)) {
        r->result->verdict = PARITY_ERROR;
        return false;
    }
    adopt(r);
    return true;
}

/* By each method, on operands that are as they were; or, without one, by the backend. */
static bool run_case(run *r, tlob_stream *stream, tlob_stream *oracle, const tlob_method *methods, int count) {
    bool passed = true;
    if (!make_operands(r) || !expect(r))
        return false;
    if (oracle) {
        const parity_who who = r->who;
        r->who.backend = "cpu_ref"; /* what a failure of the oracle shall name */
        if (!consult_oracle(r, oracle))
            return false;
        r->who = who;
    }
    for (int i = 0; i < (methods ? count : 1) && passed; i++) {
        r->who.method = methods ? &methods[i] : NULL;
        passed = run_backend(r, stream) && check(r, tlob_context_memory(tlob_stream_context(stream)));
    }
    return passed;
}

static bool run_either(tlob_stream *stream, tlob_stream *oracle, const char *backend, const tlob_method *methods,
                       int count, const parity_case *c, tlob_compute compute, uint64_t seed, parity_result *result) {
    run r = {.who = {.c = c, .backend = backend, .compute = compute, .seed = seed}, .c = c, .gemm = c->gemm};
    tlob_settings settings;
    *result = (parity_result){.verdict = PARITY_PASS, .output = "D"};
    r.result = result;
    if (compute == TLOB_COMPUTE_DEFAULT) {
        if (tlob_context_settings(tlob_stream_context(stream), &settings) != TLOB_OK)
            return parity_report_call(&r.who, result, "context");
        r.who.compute = settings.compute;
    }
    r.gemm.compute = r.who.compute;
    r.traits = tlob_epilogue_get_traits(r.gemm.epilogue);
    bool passed = run_case(&r, stream, oracle, methods, count);
    free_operands(&r);
    return passed && (!c->gradient || methods || parity_run_gradient(&r.who, stream, result));
}

bool parity_run(tlob_stream *stream, tlob_stream *oracle, const char *backend, const parity_case *c,
                tlob_compute compute, uint64_t seed, parity_result *result) {
    return run_either(stream, oracle, backend, NULL, 0, c, compute, seed, result);
}

bool parity_run_as(tlob_stream *stream, tlob_stream *oracle, const tlob_method *methods, int count,
                   const parity_case *c, tlob_compute compute, uint64_t seed, parity_result *result) {
    return run_either(stream, oracle, methods->backend, methods, count, c, compute, seed, result);
}
