// Operands between guards: how they are laid out, filled, and poisoned.
#include "cli/tune_operands.h"

#include "parity/parity.h"

#include <stdlib.h>
#include <string.h>

#define POOL  1048573 // values that operands are made of, again and again: a prime, so that no two columns are alike
#define LARGE ((int64_t)1 << 18) // floats of D from which a check takes longer than a run

// --- values ---

// U(-1, 1), made once a process.
static const float *pool(uint64_t seed) {
    static float *values;
    static uint64_t seed_of_values;
    if (values && seed_of_values == seed)
        return values;
    if (!values)
        values = malloc(POOL * sizeof *values);
    for (int64_t i = 0; values && i < POOL; i++)
        values[i] = parity_fill_value(PARITY_UNIFORM, seed, 0, i, POOL);
    seed_of_values = seed;
    return values;
}

static void fill_column(float *column, int64_t rows, const float *values, int64_t from) {
    from %= POOL;
    for (int64_t done = 0, part; done < rows; done += part, from = 0) {
        part = rows - done < POOL - from ? rows - done : POOL - from;
        memcpy(column + done, values + from, (size_t)part * sizeof *column);
    }
}

static void fill_bits(float *column, int64_t words, const float *values, int64_t from) {
    for (int64_t w = 0; w < words; w++) {
        uint32_t word = 0;
        for (int bit = 0; bit < 32; bit++)
            word |= (uint32_t)(values[(from + 32 * w + bit) % POOL] < 0) << bit;
        memcpy(column + w, &word, sizeof word);
    }
}

static void fill(const tune_data *data, int which, const float *values) {
    const tune_operand *o = &data->x[which];
    const bool bits = which == TUNE_AUX && data->traits->aux_is_mask;
    for (int64_t p = 0; p < o->batch; p++)
        for (int64_t col = 0; col < o->cols; col++) {
            int64_t at = tune_place(o, p, 0, col), from = at + which * (POOL / TUNE_OPERANDS);
            if (bits)
                fill_bits(o->image + at, o->rows, values, 32 * from);
            else
                fill_column(o->image + at, o->rows, values, from);
        }
}

// --- the layout ---

static void lay_out(tune_data *data) {
    const tlob_gemm *g = &data->gemm;
    const tlob_epilogue_traits *t = data->traits;
    const bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    const int64_t grads = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m, word = t->aux_is_mask ? 32 : 1;
    tune_operand *x = data->x;
    x[TUNE_A] = (tune_operand){.name = "A",
                               .used = true,
                               .rows = ta ? g->k : g->m,
                               .cols = ta ? g->m : g->k,
                               .ld = g->lda,
                               .stride = g->stride_a};
    x[TUNE_B] = (tune_operand){.name = "B",
                               .used = true,
                               .rows = tb ? g->n : g->k,
                               .cols = tb ? g->k : g->n,
                               .ld = g->ldb,
                               .stride = g->stride_b};
    x[TUNE_D] = (tune_operand){
        .name = "D", .used = true, .output = true, .rows = g->m, .cols = g->n, .ld = g->ldc, .stride = g->stride_c};
    x[TUNE_BIAS] = (tune_operand){
        .name = "bias", .used = t->reads_bias, .rows = g->m, .cols = 1, .ld = g->m, .stride = g->stride_bias};
    x[TUNE_BGRAD] = (tune_operand){.name = "bgrad",
                                   .used = t->writes_bgrad,
                                   .output = true,
                                   .rows = grads,
                                   .cols = 1,
                                   .ld = grads,
                                   .stride = g->stride_bias};
    x[TUNE_AUX] = (tune_operand){.name = "aux",
                                 .used = t->reads_aux || t->writes_aux,
                                 .output = t->writes_aux,
                                 .rows = t->aux_is_mask ? g->ld_aux / word : g->m,
                                 .cols = g->n,
                                 .ld = g->ld_aux / word,
                                 .stride = g->stride_aux / word};
    for (int i = 0; i < TUNE_OPERANDS; i++) {
        tune_operand *o = &x[i];
        o->batch = g->batch;
        o->stride = g->batch > 1 ? o->stride : 0;
        o->filled = o->used && (!o->output || (i == TUNE_D && g->beta != 0));
        o->total = 2 * TUNE_GUARD + (o->batch - 1) * o->stride + (o->cols - 1) * o->ld + o->rows;
    }
}

static tlob_status make_operand(tune_data *data, int which, const float *values) {
    tune_operand *o = &data->x[which];
    const size_t bytes = (size_t)o->total * sizeof(float);
    if (!o->used)
        return TLOB_OK;
    if ((o->filled && !(o->image = malloc(bytes))) || (o->output && !(o->after = malloc(bytes)))) {
        cli_error("out of memory: %zu bytes for operand %s", bytes, o->name);
        return TLOB_ERR_OUT_OF_MEMORY;
    }
    tlob_status status = tlob_buffer_create(tlob_stream_context(data->stream), bytes, &o->buffer);
    if (!status && o->filled) {
        memset(o->image, TUNE_POISON, bytes);
        fill(data, which, values);
        status = tlob_upload(data->stream, tlob_buffer_data(o->buffer), o->image, bytes);
    }
    if (status)
        cli_tlob_error(o->name);
    return status;
}

static float *start(const tune_data *data, int which) {
    const tune_operand *o = &data->x[which];
    return o->used ? (float *)tlob_buffer_data(o->buffer) + TUNE_GUARD : NULL;
}

static void point(tune_data *data) {
    data->operands = (tlob_gemm_operands){.a = start(data, TUNE_A),
                                          .b = start(data, TUNE_B),
                                          .c = data->gemm.beta != 0 ? start(data, TUNE_D) : NULL,
                                          .d = start(data, TUNE_D),
                                          .bias = start(data, TUNE_BIAS),
                                          .bgrad = start(data, TUNE_BGRAD),
                                          .aux = start(data, TUNE_AUX)};
}

// --- life ---

tlob_status tune_data_open(tlob_stream *stream, tlob_stream *oracle, const tlob_gemm *gemm, uint64_t seed,
                           tune_data **out) {
    const float *values = pool(seed);
    tune_data *data = *out = calloc(1, sizeof *data);
    if (!values || !data) {
        cli_error("out of memory");
        return TLOB_ERR_OUT_OF_MEMORY;
    }
    data->stream = stream;
    data->gemm = *gemm;
    data->traits = tlob_epilogue_get_traits(gemm->epilogue);
    lay_out(data);
    tlob_status status = TLOB_OK;
    for (int i = 0; i < TUNE_OPERANDS && !status; i++)
        status = make_operand(data, i, values);
    if (status)
        return status;
    point(data);
    return tune_data_expect(data, oracle);
}

void tune_data_close(tune_data **ptr) {
    tune_data *data = *ptr;
    if (!data)
        return;
    for (int i = 0; i < TUNE_OPERANDS; i++) {
        free(data->x[i].image);
        free(data->x[i].after);
        tlob_buffer_destroy(&data->x[i].buffer);
    }
    for (int i = 0; i < data->n_blocks; i++) {
        free(data->blocks[i].want);
        free(data->blocks[i].want_aux);
    }
    free(data->blocks);
    free(data->row_norm);
    free(data->col_norm);
    free(data->want_bgrad);
    free(data->bgrad_scale);
    free(data->first);
    free(data->first_aux);
    free(data);
    *ptr = NULL;
}

const tlob_gemm *tune_data_gemm(const tune_data *data) {
    return &data->gemm;
}

const tlob_gemm_operands *tune_data_operands(const tune_data *data) {
    return &data->operands;
}

bool tune_data_is_large(const tune_data *data) {
    return data->x[TUNE_D].total > LARGE;
}

tlob_status tune_data_poison(tune_data *data) {
    tlob_status status = TLOB_OK;
    for (int i = 0; i < TUNE_OPERANDS && !status; i++) {
        const tune_operand *o = &data->x[i];
        const size_t bytes = (size_t)o->total * sizeof(float);
        if (o->output && o->used)
            status = o->filled ? tlob_upload(data->stream, tlob_buffer_data(o->buffer), o->image, bytes)
                               : tlob_fill(data->stream, tlob_buffer_data(o->buffer), TUNE_POISON, bytes);
    }
    return status;
}
