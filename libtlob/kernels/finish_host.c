#include "libtlob/kernels/epilogue.h"
#include "libtlob/kernels/table.h"

static void add_bias(const tlob_gemm *g, const float *bias, tlob_tile *t) {
    const float *from = bias + t->matrix * g->stride_bias + t->row;
    for (int64_t r = 0; r < t->rows; r++)
        t->z[r] += from[r];
}

/* Bytes of the mask that no row belongs to are not touched. */
static void write_mask(uint8_t *mask, const tlob_tile *t) {
    for (int64_t r0 = 0; r0 < t->rows; r0 += 8) {
        int byte = 0;
        for (int64_t r = r0; r < r0 + 8 && r < t->rows; r++)
            byte |= !(t->z[r] < 0) << (r - r0);
        mask[r0 / 8] = (uint8_t)byte;
    }
}

static uint8_t *mask_of(const tlob_gemm *g, void *aux, const tlob_tile *t) {
    return (uint8_t *)aux + (t->matrix * g->stride_aux + t->column * g->ld_aux + t->row) / 8;
}

static float *aux_of(const tlob_gemm *g, void *aux, const tlob_tile *t) {
    return (float *)aux + t->matrix * g->stride_aux + t->column * g->ld_aux + t->row;
}

static void activate(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile *t) {
    double *z = t->z;
    switch (g->epilogue) {
    case TLOB_EPILOGUE_NONE:
    case TLOB_EPILOGUE_BIAS:
    case TLOB_EPILOGUE_BGRADA:
    case TLOB_EPILOGUE_BGRADB:
        break;
    case TLOB_EPILOGUE_RELU:
    case TLOB_EPILOGUE_RELU_BIAS:
        for (int64_t r = 0; r < t->rows; r++)
            z[r] = tlob_relu(z[r]);
        break;
    case TLOB_EPILOGUE_RELU_AUX_BIAS:
        write_mask(mask_of(g, x->aux, t), t);
        for (int64_t r = 0; r < t->rows; r++)
            z[r] = tlob_relu_nan(z[r]);
        break;
    case TLOB_EPILOGUE_DRELU_BGRAD: {
        const uint8_t *mask = mask_of(g, x->aux, t);
        for (int64_t r = 0; r < t->rows; r++)
            z[r] = mask[r / 8] >> r % 8 & 1 ? z[r] : 0;
        break;
    }
    case TLOB_EPILOGUE_GELU_AUX_BIAS: {
        float *aux = aux_of(g, x->aux, t);
        for (int64_t r = 0; r < t->rows; r++)
            aux[r] = (float)z[r];
    } /* fall through */
    case TLOB_EPILOGUE_GELU_BIAS:
        for (int64_t r = 0; r < t->rows; r++)
            z[r] = tlob_gelu(z[r]);
        break;
    case TLOB_EPILOGUE_DGELU_BGRAD: {
        const float *aux = aux_of(g, x->aux, t);
        for (int64_t r = 0; r < t->rows; r++)
            z[r] *= tlob_gelu_slope(aux[r]);
        break;
    }
    }
}

static bool sums_an_operand(tlob_epilogue epilogue) {
    return epilogue == TLOB_EPILOGUE_BGRADA || epilogue == TLOB_EPILOGUE_BGRADB;
}

/* out[i] = sum over l < k of x[i * step + l * step_k], i < count */
static void sum_over_k(const float *x, int64_t count, int64_t step, int64_t k, int64_t step_k, float *out) {
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum += x[i * step + l * step_k];
        out[i] = (float)sum;
    }
}

static void sum_operand(const tlob_gemm *g, const tlob_gemm_operands *x, int64_t b) {
    float *bgrad = x->bgrad + b * g->stride_bias;
    if (g->epilogue == TLOB_EPILOGUE_BGRADA) {
        bool across = g->transa == TLOB_OP_N;
        sum_over_k(g->k ? x->a + b * g->stride_a : NULL, g->m, across ? 1 : g->lda, g->k, across ? g->lda : 1, bgrad);
    } else {
        bool across = g->transb == TLOB_OP_T;
        sum_over_k(g->k ? x->b + b * g->stride_b : NULL, g->n, across ? 1 : g->ldb, g->k, across ? g->ldb : 1, bgrad);
    }
}

static void finish_tile(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile *t) {
    float *d = x->d + t->matrix * g->stride_c + t->column * g->ldc + t->row;
    if (tlob_epilogue_get_traits(g->epilogue)->reads_bias)
        add_bias(g, x->bias, t);
    activate(g, x, t);
    for (int64_t r = 0; r < t->rows; r++) {
        d[r] = (float)t->z[r];
        t->sum[r] += t->z[r];
    }
}

static void walk_rows(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile_fill fill, tlob_tile *t) {
    bool sums = tlob_epilogue_get_traits(g->epilogue)->writes_bgrad && !sums_an_operand(g->epilogue);
    for (int64_t r = 0; r < t->rows; r++)
        t->sum[r] = 0;
    for (t->column = 0; t->column < g->n; t->column++) {
        fill(g, x, t);
        finish_tile(g, x, t);
    }
    for (int64_t r = 0; sums && r < t->rows; r++)
        x->bgrad[t->matrix * g->stride_bias + t->row + r] = (float)t->sum[r];
}

void tlob_host_epilogue(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile_fill fill) {
    tlob_tile t;
    for (t.matrix = 0; t.matrix < g->batch; t.matrix++) {
        for (t.row = 0; t.row < g->m; t.row += TLOB_TILE_ROWS) {
            t.rows = g->m - t.row < TLOB_TILE_ROWS ? g->m - t.row : TLOB_TILE_ROWS;
            walk_rows(g, x, fill, &t);
        }
        if (sums_an_operand(g->epilogue))
            sum_operand(g, x, t.matrix);
    }
}

/* z is what D holds. */
static void from_d(const tlob_gemm *g, const tlob_gemm_operands *x, tlob_tile *t) {
    const float *d = x->d + t->matrix * g->stride_c + t->column * g->ldc + t->row;
    for (int64_t r = 0; r < t->rows; r++)
        t->z[r] = d[r];
}

int tlob_host_finish(struct CUstream_st *stream, const tlob_finish_args *args) {
    (void)stream;
    tlob_host_epilogue(&args->gemm, &args->x, from_d); /* D keeps its bits where the epilogue leaves it */
    return 0;
}
