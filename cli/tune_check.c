// What must be in the outputs of a measured problem, and whether it is.
#include "cli/tune_operands.h"

#include "parity/parity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_WORK     ((int64_t)1 << 27) // multiplications up to which the oracle computes all of D,
#define WHOLE_ELEMENTS ((int64_t)1 << 24) // and elements
#define BLOCK_WORK     ((int64_t)1 << 24) // multiplications of a block else
#define BLOCK_ROWS     128                // a multiple of what a mask's column is aligned to
#define BLOCK_COLS     16
#define MEAN_SHARE     0x1p-8 // see tune_data.h
#define MEAN_ELEMENTS  64     // from which a mean says something

static tlob_status no_memory(void) {
    cli_error("out of memory for the expected values");
    return TLOB_ERR_OUT_OF_MEMORY;
}

// --- norms and sums of the inputs ---

// Euclidean norms of `count` vectors of `length` elements; a batch that shares its matrix shares them.
static float *norms(const tune_operand *o, int64_t count, int64_t next, int64_t length, int64_t step) {
    float *all = malloc((size_t)(o->batch * count) * sizeof *all);
    for (int64_t p = 0; all && p < o->batch; p++)
        for (int64_t i = 0; i < count; i++) {
            const float *x = o->image + tune_place(o, p, 0, 0) + i * next;
            double sum = 0;
            if (p && !o->stride) {
                all[p * count + i] = all[i];
                continue;
            }
            for (int64_t l = 0; l < length; l++)
                sum += (double)x[l * step] * x[l * step];
            all[p * count + i] = (float)sqrt(sum);
        }
    return all;
}

static bool compute_norms(tune_data *data) {
    const tlob_gemm *g = &data->gemm;
    const bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    data->row_norm = norms(&data->x[TUNE_A], g->m, ta ? g->lda : 1, g->k, ta ? 1 : g->lda);
    data->col_norm = norms(&data->x[TUNE_B], g->n, tb ? 1 : g->ldb, g->k, tb ? g->ldb : 1);
    return data->row_norm && data->col_norm;
}

// BGRADA, BGRADB: sums over k of op(A) or op(B), and of their magnitudes.
static bool sum_inputs(tune_data *data) {
    const tlob_gemm *g = &data->gemm;
    const bool of_a = g->epilogue == TLOB_EPILOGUE_BGRADA;
    const tune_operand *o = &data->x[of_a ? TUNE_A : TUNE_B];
    const bool across = of_a ? g->transa == TLOB_OP_N : g->transb == TLOB_OP_T; // a sum runs across the columns
    const int64_t count = of_a ? g->m : g->n;
    if (!of_a && g->epilogue != TLOB_EPILOGUE_BGRADB)
        return true;
    data->want_bgrad = calloc((size_t)(g->batch * count), sizeof *data->want_bgrad);
    data->bgrad_scale = calloc((size_t)(g->batch * count), sizeof *data->bgrad_scale);
    if (!data->want_bgrad || !data->bgrad_scale)
        return false;
    for (int64_t p = 0; p < g->batch; p++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t l = 0; l < g->k; l++) {
                double value = o->image[tune_place(o, p, across ? i : l, across ? l : i)];
                data->want_bgrad[p * count + i] += value;
                data->bgrad_scale[p * count + i] += fabs(value);
            }
    return true;
}

// --- the oracle ---

static void find_bounds(tune_data *data) {
    const tlob_gemm *g = &data->gemm;
    tlob_memory memory = tlob_context_memory(tlob_stream_context(data->stream));
    data->least = parity_bound(g, memory, 0);
    data->slope = parity_bound(g, memory, 1) - data->least;
    if (memory == TLOB_MEMORY_HOST && g->epilogue == TLOB_EPILOGUE_BIAS)
        data->slope *= 3; // in the form SEPARATE z is rounded before the bias is added, as with the other epilogues
    if (memory == TLOB_MEMORY_HOST && !tlob_form_obstacle(TLOB_FORM_SPLIT, g))
        data->slope *= 2; // in the form SPLIT each piece is rounded before it is added
    data->least_z = parity_bound_z(g, memory, 0);
    data->slope_z = parity_bound_z(g, memory, 1) - data->least_z;
}

// The same D without what is not compared here: the oracle needs no room for it.
static tlob_epilogue epilogue_of_block(tlob_epilogue epilogue) {
    switch (epilogue) {
    case TLOB_EPILOGUE_BGRADA:
    case TLOB_EPILOGUE_BGRADB:
        return TLOB_EPILOGUE_NONE;
    case TLOB_EPILOGUE_RELU_AUX_BIAS:
        return TLOB_EPILOGUE_RELU_BIAS;
    default:
        return epilogue;
    }
}

// The block as a product of its own, packed.
static tlob_gemm problem_of_block(const tune_data *data, const tune_block *b) {
    tlob_gemm gemm = data->gemm;
    gemm.m = b->rows;
    gemm.n = b->cols;
    gemm.ldc = b->rows;
    gemm.batch = 1;
    gemm.epilogue = epilogue_of_block(gemm.epilogue);
    if (data->traits->writes_aux)
        gemm.ld_aux = b->rows;
    return gemm;
}

static tlob_gemm_operands operands_of_block(const tune_data *data, const tune_block *b, float *sums) {
    const tlob_gemm *g = &data->gemm;
    const tune_operand *x = data->x;
    const bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    tlob_gemm_operands o = {.d = b->want, .c = b->want};
    o.a = x[TUNE_A].image + tune_place(&x[TUNE_A], b->matrix, ta ? 0 : b->row, ta ? b->row : 0);
    o.b = x[TUNE_B].image + tune_place(&x[TUNE_B], b->matrix, tb ? b->col : 0, tb ? 0 : b->col);
    if (data->traits->reads_bias)
        o.bias = x[TUNE_BIAS].image + tune_place(&x[TUNE_BIAS], b->matrix, b->row, 0);
    if (data->traits->reads_aux)
        o.aux = x[TUNE_AUX].image +
                tune_place(&x[TUNE_AUX], b->matrix, b->row / (data->traits->aux_is_mask ? 32 : 1), b->col);
    else if (data->traits->writes_aux)
        o.aux = b->want_aux;
    o.bgrad = sums;
    return o;
}

static tlob_status ask_oracle(tune_data *data, tlob_stream *oracle, tune_block *b) {
    const tlob_gemm gemm = problem_of_block(data, b);
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(gemm.epilogue);
    const tune_operand *d = &data->x[TUNE_D];
    const size_t bytes = (size_t)(b->rows * b->cols) * sizeof(float);
    float *sums = traits->writes_bgrad ? malloc((size_t)b->rows * sizeof *sums) : NULL;
    b->want = malloc(bytes);
    b->want_aux = traits->writes_aux ? malloc(bytes) : NULL;
    if (!b->want || (traits->writes_aux && !b->want_aux) || (traits->writes_bgrad && !sums)) {
        free(sums);
        return no_memory();
    }
    for (int64_t col = 0; gemm.beta != 0 && col < b->cols; col++)
        memcpy(b->want + col * b->rows, d->image + tune_place(d, b->matrix, b->row, b->col + col),
               (size_t)b->rows * sizeof(float));
    const tlob_gemm_operands x = operands_of_block(data, b, sums);
    tlob_status status = tlob_gemm_run_on(oracle, "cpu_ref", &gemm, &x);
    free(sums);
    if (status)
        cli_tlob_error("the oracle");
    return status;
}

// All of D, matrix after matrix; or corners and the middle, of the first, the last and the middle matrix.
static bool choose_blocks(tune_data *data) {
    const tlob_gemm *g = &data->gemm;
    const double elements = (double)g->batch * (double)g->m * (double)g->n;
    data->sampled = elements > (double)WHOLE_ELEMENTS || elements * (double)g->k > (double)WHOLE_WORK;
    const int64_t count = data->sampled ? 4 : g->batch;
    data->blocks = calloc((size_t)count, sizeof *data->blocks);
    data->n_blocks = data->blocks ? (int)count : 0;
    const int64_t last = (g->m - 1) / BLOCK_ROWS * BLOCK_ROWS, middle = last / BLOCK_ROWS / 2 * BLOCK_ROWS;
    const int64_t rows = g->m < BLOCK_ROWS ? g->m : BLOCK_ROWS, room = BLOCK_WORK / (rows * g->k);
    const int64_t most = g->n < BLOCK_COLS ? g->n : BLOCK_COLS, cols = room < 1 ? 1 : room < most ? room : most;
    const tune_block samples[4] = {
        {.row = 0, .col = 0, .rows = rows, .cols = cols},
        {.row = 0, .col = g->n - cols, .rows = rows, .cols = cols},
        {.matrix = g->batch / 2, .row = middle, .col = (g->n - cols) / 2, .rows = rows, .cols = cols},
        {.matrix = g->batch - 1, .row = last, .col = g->n - cols, .rows = g->m - last, .cols = cols},
    };
    for (int i = 0; i < data->n_blocks; i++)
        data->blocks[i] = data->sampled ? samples[i] : (tune_block){.matrix = i, .rows = g->m, .cols = g->n};
    return data->blocks != NULL;
}

tlob_status tune_data_expect(tune_data *data, tlob_stream *oracle) {
    tlob_status status = TLOB_OK;
    find_bounds(data);
    if (!compute_norms(data) || !sum_inputs(data) || !choose_blocks(data))
        return no_memory();
    for (int i = 0; i < data->n_blocks && !status; i++)
        status = ask_oracle(data, oracle, &data->blocks[i]);
    return status;
}

// --- comparing ---

// One check: what is wrong first, and the squares that means are made of.
typedef struct check {
    tune_data *data;
    char *why;
    size_t size;
    int64_t elements;
    double error, natural; // sums of squares
} check;

// Columns [from, from + count) of a block's rows against `want`, packed with `want_rows`; `aux`: of z, else of D.
typedef struct comparison {
    const tune_block *block;
    int64_t from, count;
    const float *want;
    int64_t want_rows;
    bool aux;
    double slack; // how often the bound may be reached: 2 between two methods
} comparison;

static bool fail_element(check *c, const comparison *q, int64_t row, int64_t col, float value, float want,
                         float bound) {
    snprintf(c->why, c->size, "%s[%" PRId64 ", %" PRId64 "] of matrix %" PRId64 " is %g%s, expected %g within %.2g",
             q->aux ? "aux" : "D", row, col, q->block->matrix, (double)value,
             isnan(value) ? ", or was not written" : "", (double)want, (double)bound);
    return false;
}

// One column: true if all are within their bounds slope * s + least, s = norm * bias and C besides. Adds to *error.
static bool column_agrees(const float *d, const float *want, const float *row_norm, const float *bias, int64_t rows,
                          const float factor[3], double *error) {
    int wrong = 0;
    float sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        float off = fabsf(d[i] - want[i]);
        float bound = row_norm[i] * factor[0] + (bias ? fabsf(bias[i]) * factor[1] : 0) + factor[2];
        wrong |= !(off <= bound);
        sum += off * off;
    }
    *error += sum;
    return !wrong;
}

// Finds the element that column_agrees has found wrong.
static bool name_element(check *c, const comparison *q, int64_t col, const float *d, const float *want,
                         const float *row_norm, const float *bias, const float factor[3]) {
    for (int64_t i = 0; i < q->block->rows; i++) {
        float bound = row_norm[i] * factor[0] + (bias ? fabsf(bias[i]) * factor[1] : 0) + factor[2];
        if (!(fabsf(d[i] - want[i]) <= bound))
            return fail_element(c, q, q->block->row + i, col, d[i], want[i], bound);
    }
    return true;
}

// What the squares of sums of k independent terms would be.
static double natural_square(const tune_data *data, const float *row_norm, const float *bias, int64_t rows,
                             double col) {
    double norms_square = 0, others = 0;
    for (int64_t i = 0; i < rows; i++) {
        norms_square += (double)row_norm[i] * row_norm[i];
        others += bias ? (double)bias[i] * bias[i] : 0;
    }
    const double alpha = data->gemm.alpha, beta = data->gemm.beta;
    return alpha * alpha * col * col * norms_square / (double)data->gemm.k + others + beta * beta * (double)rows;
}

static bool compare(check *c, const comparison *q) {
    const tune_data *data = c->data;
    const tlob_gemm *g = &data->gemm;
    const tune_block *b = q->block;
    const tune_operand *o = &data->x[q->aux ? TUNE_AUX : TUNE_D], *biases = &data->x[TUNE_BIAS];
    const float *row_norm = data->row_norm + b->matrix * g->m + b->row;
    const float *bias = biases->used ? biases->image + tune_place(biases, b->matrix, b->row, 0) : NULL;
    const double slope = q->slack * (q->aux ? data->slope_z : data->slope);
    const double least = q->slack * (q->aux ? data->least_z : data->least);
    for (int64_t j = q->from; j < q->from + q->count; j++) {
        const float *d = o->after + tune_place(o, b->matrix, b->row, b->col + j), *want = q->want + j * q->want_rows;
        const double col = data->col_norm[b->matrix * g->n + b->col + j];
        const float factor[3] = {(float)(slope * fabs((double)g->alpha) * col), (float)slope,
                                 (float)(slope * fabs((double)g->beta) + least)};
        double error = 0;
        if (!column_agrees(d, want, row_norm, bias, b->rows, factor, &error))
            return name_element(c, q, b->col + j, d, want, row_norm, bias, factor);
        c->error += error;
        c->natural += natural_square(data, row_norm, bias, b->rows, col);
        c->elements += b->rows;
    }
    return true;
}

static bool judge_mean(check *c) {
    double share = c->elements < MEAN_ELEMENTS ? 0 : sqrt(c->error / c->natural);
    if (share <= MEAN_SHARE)
        return true;
    snprintf(c->why, c->size, "the root of the mean square error is %.2g of that of the sums, at most %.2g allowed",
             share, MEAN_SHARE);
    return false;
}

static bool compare_blocks(check *c, bool whole) {
    const tune_data *data = c->data;
    for (int i = 0; i < data->n_blocks; i++) {
        const tune_block *b = &data->blocks[i];
        comparison q = {.block = b, .count = b->cols, .want = b->want, .want_rows = b->rows, .slack = 1};
        if (!whole && !data->sampled) { // the first columns, and the last ones
            q.count = b->cols < BLOCK_COLS ? b->cols : BLOCK_COLS;
            q.from = i ? b->cols - q.count : 0;
            if (i && i < data->n_blocks - 1)
                continue;
        }
        if (!compare(c, &q))
            return false;
        q.aux = true;
        q.want = b->want_aux;
        if (whole && b->want_aux && !compare(c, &q))
            return false;
    }
    return judge_mean(c);
}

// --- all of D ---

static float *pack(const tune_data *data, int which) {
    const tlob_gemm *g = &data->gemm;
    const tune_operand *o = &data->x[which];
    float *packed = malloc((size_t)(g->batch * g->n * g->m) * sizeof *packed);
    for (int64_t p = 0; packed && p < g->batch; p++)
        for (int64_t col = 0; col < g->n; col++)
            memcpy(packed + (p * g->n + col) * g->m, o->after + tune_place(o, p, 0, col), (size_t)g->m * sizeof(float));
    return packed;
}

// Against the first method that passed; this may be it.
static bool compare_first(check *c) {
    tune_data *data = c->data;
    const tlob_gemm *g = &data->gemm;
    const bool aux = data->traits->writes_aux && !data->traits->aux_is_mask;
    for (int64_t p = 0; data->first && p < g->batch; p++) {
        const tune_block all = {.matrix = p, .rows = g->m, .cols = g->n};
        comparison q = {
            .block = &all, .count = g->n, .want = data->first + p * g->n * g->m, .want_rows = g->m, .slack = 2};
        if (!compare(c, &q))
            return false;
        q.aux = true;
        q.want = aux ? data->first_aux + p * g->n * g->m : NULL;
        if (aux && !compare(c, &q))
            return false;
    }
    return true;
}

static void forget_first(tune_data *data) {
    free(data->first);
    free(data->first_aux);
    data->first = data->first_aux = NULL;
}

static bool remember_first(check *c) {
    tune_data *data = c->data;
    const bool aux = data->traits->writes_aux && !data->traits->aux_is_mask;
    data->first = pack(data, TUNE_D);
    data->first_aux = aux ? pack(data, TUNE_AUX) : NULL;
    if (data->first && (!aux || data->first_aux))
        return true;
    snprintf(c->why, c->size, "out of memory for the check");
    return false;
}

// Every element must be a number: one that was not written is none.
static bool all_written(check *c) {
    const tune_data *data = c->data;
    const tlob_gemm *g = &data->gemm;
    const tune_operand *o = &data->x[TUNE_D];
    for (int64_t p = 0; p < g->batch; p++)
        for (int64_t col = 0; col < g->n; col++) {
            const float *d = o->after + tune_place(o, p, 0, col);
            int wrong = 0;
            for (int64_t i = 0; i < g->m; i++)
                wrong |= isnan(d[i]) != 0;
            if (wrong) {
                snprintf(c->why, c->size, "column %" PRId64 " of D of matrix %" PRId64 " has NaN, or was not written",
                         col, p);
                return false;
            }
        }
    return true;
}

// --- the other outputs ---

// Bit i is 0 where z < 0, so with data whose z are never 0 just where ReLU has made a 0 of it.
static bool check_mask(check *c) {
    const tune_data *data = c->data;
    const tlob_gemm *g = &data->gemm;
    const tune_operand *o = &data->x[TUNE_AUX], *of_d = &data->x[TUNE_D];
    for (int64_t p = 0; p < g->batch; p++)
        for (int64_t col = 0; col < g->n; col++) {
            const unsigned char *bits = (const unsigned char *)(o->after + tune_place(o, p, 0, col));
            const float *d = of_d->after + tune_place(of_d, p, 0, col);
            for (int64_t i = 0; i < g->m; i++)
                if ((bits[i / 8] >> i % 8 & 1) != (d[i] > 0)) {
                    snprintf(c->why, c->size,
                             "bit [%" PRId64 ", %" PRId64 "] of the mask of matrix %" PRId64 " is wrong where D is %g",
                             i, col, p, (double)d[i]);
                    return false;
                }
        }
    return true;
}

// The sums of the rows of D as it came out, and the scale of their bounds.
static void sum_row(const tune_data *data, int64_t p, int64_t row, double *sum, double *scale) {
    const tlob_gemm *g = &data->gemm;
    const tune_operand *o = &data->x[TUNE_D];
    double norm = fabs((double)g->alpha) * data->row_norm[p * g->m + row];
    *sum = *scale = 0;
    for (int64_t j = 0; j < g->n; j++) {
        *sum += o->after[tune_place(o, p, row, j)];
        *scale += norm * data->col_norm[p * g->n + j] + fabs((double)g->beta);
    }
}

static bool check_bgrad(check *c) {
    const tune_data *data = c->data;
    const tune_operand *o = &data->x[TUNE_BGRAD];
    tlob_memory memory = tlob_context_memory(tlob_stream_context(data->stream));
    for (int64_t p = 0; p < o->batch; p++)
        for (int64_t i = 0; i < o->rows; i++) {
            float value = o->after[tune_place(o, p, i, 0)];
            double want, scale;
            if (data->want_bgrad) {
                want = data->want_bgrad[p * o->rows + i];
                scale = data->bgrad_scale[p * o->rows + i];
            } else {
                sum_row(data, p, i, &want, &scale);
            }
            double bound = parity_bound_bgrad(&data->gemm, memory, scale);
            if (!(fabs(value - want) <= bound)) {
                snprintf(c->why, c->size, "bgrad[%" PRId64 "] of matrix %" PRId64 " is %g, expected %g within %.2g", i,
                         p, (double)value, want, bound);
                return false;
            }
        }
    return true;
}

// --- guards ---

static bool is_poison(const float *from, int64_t count, int64_t *at) {
    const unsigned char *bytes = (const unsigned char *)from;
    const size_t size = (size_t)count * sizeof(float);
    if (!size || (bytes[0] == TUNE_POISON && !memcmp(bytes, bytes + 1, size - 1)))
        return true;
    for (*at = 0; *at < count * (int64_t)sizeof(float) && bytes[*at] == TUNE_POISON; ++*at)
        ;
    *at /= (int64_t)sizeof(float);
    return false;
}

static bool fail_guard(check *c, const tune_operand *o, int64_t at) {
    snprintf(c->why, c->size, "wrote outside %s: %" PRId64 " floats from its start, of which it spans %" PRId64,
             o->name, at - TUNE_GUARD, o->total - 2 * TUNE_GUARD);
    return false;
}

// Erases what belongs there: what is left must be poison.
static bool check_around(check *c, tune_operand *o) {
    int64_t at;
    for (int64_t p = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++)
            memset(o->after + tune_place(o, p, 0, col), TUNE_POISON, (size_t)o->rows * sizeof(float));
    return is_poison(o->after, o->total, &at) || fail_guard(c, o, at);
}

static bool check_ends(check *c, const tune_operand *o) {
    int64_t at;
    if (!is_poison(o->after, TUNE_GUARD, &at))
        return fail_guard(c, o, at);
    return is_poison(o->after + o->total - TUNE_GUARD, TUNE_GUARD, &at) || fail_guard(c, o, o->total - TUNE_GUARD + at);
}

// --- the whole check ---

static tlob_status fetch(const tune_data *data, const tune_operand *o, int64_t from, int64_t count) {
    const float *base = tlob_buffer_data(o->buffer);
    return tlob_download(data->stream, o->after + from, base + from, (size_t)count * sizeof *base);
}

static tlob_status fetch_all(const tune_data *data) {
    tlob_status status = TLOB_OK;
    for (int i = 0; i < TUNE_OPERANDS && !status; i++)
        if (data->x[i].used && data->x[i].output)
            status = fetch(data, &data->x[i], 0, data->x[i].total);
    return status;
}

// The guards of D, and the columns that compare_blocks looks at.
static tlob_status fetch_blocks(const tune_data *data) {
    const tune_operand *o = &data->x[TUNE_D];
    tlob_status status = fetch(data, o, 0, TUNE_GUARD);
    if (!status)
        status = fetch(data, o, o->total - TUNE_GUARD, TUNE_GUARD);
    for (int i = 0; i < data->n_blocks && !status; i++) {
        const tune_block *b = &data->blocks[i];
        int64_t cols = b->cols < BLOCK_COLS ? b->cols : BLOCK_COLS, first = i || data->sampled ? b->cols - cols : 0;
        if (data->sampled || !i || i == data->n_blocks - 1)
            status = fetch(data, o, tune_place(o, b->matrix, b->row, b->col + first), (cols - 1) * o->ld + b->rows);
    }
    return status;
}

static bool check_elements(check *c) {
    const tune_data *data = c->data;
    return all_written(c) && compare_blocks(c, true) && (!data->sampled || compare_first(c)) &&
           (!data->traits->writes_bgrad || check_bgrad(c)) &&
           (!data->traits->writes_aux || !data->traits->aux_is_mask || check_mask(c));
}

// Guards last: to look at them erases the elements, of which a copy is kept where this is the first that passes.
static bool check_all(check *c) {
    tune_data *data = c->data;
    const bool first = data->sampled && !data->first;
    bool good = check_elements(c) && (!first || remember_first(c));
    for (int i = 0; i < TUNE_OPERANDS && good; i++)
        good = !data->x[i].used || !data->x[i].output || check_around(c, &data->x[i]);
    if (first && !good)
        forget_first(data);
    return good;
}

tlob_status tune_data_check(tune_data *data, bool whole, char *why, size_t size) {
    check c = {.data = data, .why = why, .size = size};
    *why = 0;
    tlob_status status = whole ? fetch_all(data) : fetch_blocks(data);
    if (!status && whole)
        check_all(&c);
    else if (!status && check_ends(&c, &data->x[TUNE_D]))
        compare_blocks(&c, false);
    return status;
}
