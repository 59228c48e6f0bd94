/* The problem as a value, and whether it is one. */
#include <inttypes.h>
#include <string.h>

#include "libtlob/internal.h"

#define MASK_BITS ((int64_t)128) /* what ld_aux and stride_aux of a mask are multiples of */

tlob_gemm tlob_gemm_init(int64_t m, int64_t n, int64_t k) {
    return (tlob_gemm){
        .m = m,
        .n = n,
        .k = k,
        .lda = m > 1 ? m : 1,
        .ldb = k > 1 ? k : 1,
        .ldc = m > 1 ? m : 1,
        .batch = 1,
        .alpha = 1.0f,
        .ld_aux = m < 1 ? MASK_BITS : m > INT64_MAX - MASK_BITS ? m : (m + MASK_BITS - 1) / MASK_BITS * MASK_BITS,
    };
}

tlob_operation tlob_gemm_operation(const tlob_gemm *gemm) {
    if (gemm->epilogue != TLOB_EPILOGUE_NONE)
        return TLOB_OPERATION_MATMUL_BIAS;
    return gemm->batch > 1 ? TLOB_OPERATION_SGEMM_STRIDED_BATCHED : TLOB_OPERATION_SGEMM;
}

static const char where[] = "tlob_gemm_check";

static tlob_status check_enums(const tlob_gemm *g) {
    if ((unsigned)g->transa > TLOB_OP_T || (unsigned)g->transb > TLOB_OP_T)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "trans%c is %d, must be TLOB_OP_N or TLOB_OP_T",
                         (unsigned)g->transa > TLOB_OP_T ? 'a' : 'b',
                         (unsigned)g->transa > TLOB_OP_T ? (int)g->transa : (int)g->transb);
    if ((unsigned)g->compute > TLOB_COMPUTE_FP32)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "compute is %d, which is no tlob_compute", (int)g->compute);
    if ((unsigned)g->epilogue >= TLOB_EPILOGUE_COUNT)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "epilogue is %d, which is no tlob_epilogue", (int)g->epilogue);
    return TLOB_OK;
}

static tlob_status check_size(const char *name, int64_t value) {
    if (value >= 0)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is %" PRId64 ", must be at least 0", name, value);
}

static tlob_status check_ld(const char *name, int64_t ld, int64_t rows, const char *rows_name) {
    int64_t least = rows > 1 ? rows : 1;
    if (ld >= least)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is %" PRId64 ", must be at least max(1, %s) = %" PRId64, name, ld,
                     rows_name, least);
}

/* Whether a batch of matrices, from its first element to its last, has fewer than 2^63 bytes. */
static bool extent_fits(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride, int64_t bytes_each) {
    if (rows == 0 || cols == 0 || batch == 0)
        return true;
    int64_t columns, matrices, elements, bytes;
    return tlob_mul(cols - 1, ld, &columns) && tlob_mul(batch - 1, stride, &matrices) &&
           !__builtin_add_overflow(columns, matrices, &elements) &&
           !__builtin_add_overflow(elements, rows, &elements) &&
           tlob_mul(elements, bytes_each, &bytes);
}

static tlob_status check_stride(const char *name, int64_t stride, int64_t batch) {
    if (batch <= 1 || stride >= 0)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is %" PRId64 ", must be at least 0", name, stride);
}

static tlob_status check_matrix(char name, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    const char text[] = {'s', 't', 'r', 'i', 'd', 'e', '_', name, 0};
    tlob_status status = check_stride(text, stride, batch);
    if (status == TLOB_OK && !extent_fits(rows, cols, ld, batch, batch > 1 ? stride : 0, sizeof(float)))
        status = tlob_fail(TLOB_ERR_ARGUMENT, where,
                           "matrix %c spans more than 2^63 bytes: %" PRId64 " x %" PRId64 ", ld %" PRId64
                           ", batch %" PRId64 ", stride %" PRId64, name, rows, cols, ld, batch, stride);
    return status;
}

/* Outputs of a batch are apart where they follow each other, or where they interleave as row slices of one parent. */
static tlob_status check_outputs_apart(const tlob_gemm *g, const char *stride_name, int64_t stride, int64_t ld,
                                       const char *ld_name) {
    if (g->batch <= 1 || g->m == 0 || g->n == 0)
        return TLOB_OK;
    int64_t one = (g->n - 1) * ld + g->m;
    bool in_a_row = stride >= one;
    bool as_slices = stride >= g->m && (g->batch - 1) * stride + g->m <= ld;
    if (in_a_row || as_slices)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where,
                     "the %" PRId64 " outputs of the batch overlap: %s is %" PRId64 ", one output spans %" PRId64
                     " elements (m %" PRId64 ", n %" PRId64 ", %s %" PRId64 ")", g->batch, stride_name, stride, one,
                     g->m, g->n, ld_name, ld);
}

/* A mask counts bits, and so is smaller than its extent, not larger. */
static tlob_status check_aux(const tlob_gemm *g, const tlob_epilogue_traits *traits) {
    int64_t stride = g->batch > 1 ? g->stride_aux : 0;
    tlob_status status = check_ld("ld_aux", g->ld_aux, g->m, "m");
    if (status == TLOB_OK && traits->aux_is_mask && g->ld_aux % MASK_BITS)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "ld_aux is %" PRId64 ", must be a multiple of %d bits for a mask",
                           g->ld_aux, (int)MASK_BITS);
    if (status == TLOB_OK)
        status = check_stride("stride_aux", stride, g->batch);
    if (status == TLOB_OK && traits->aux_is_mask && stride % MASK_BITS)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where,
                           "stride_aux is %" PRId64 ", must be a multiple of %d bits for a mask", stride,
                           (int)MASK_BITS);
    if (status == TLOB_OK &&
        !extent_fits(g->m, g->n, g->ld_aux, g->batch, stride, traits->aux_is_mask ? 1 : (int64_t)sizeof(float)))
        status = tlob_fail(TLOB_ERR_ARGUMENT, where,
                           "aux spans more than 2^63 %s: %" PRId64 " x %" PRId64 ", ld_aux %" PRId64 ", batch %" PRId64
                           ", stride_aux %" PRId64, traits->aux_is_mask ? "bits" : "bytes", g->m, g->n, g->ld_aux,
                           g->batch, stride);
    if (status == TLOB_OK && traits->writes_aux)
        status = check_outputs_apart(g, "stride_aux", stride, g->ld_aux, "ld_aux");
    return status;
}

/* The bias, or the bgrad: one vector for each product of the batch. */
static tlob_status check_vector(const tlob_gemm *g, bool output) {
    int64_t length = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m;
    tlob_status status = check_stride("stride_bias", g->stride_bias, g->batch);
    if (status != TLOB_OK || g->batch <= 1)
        return status;
    if (!extent_fits(length, 1, 1, g->batch, g->stride_bias, sizeof(float)))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "%s spans more than 2^63 bytes: batch %" PRId64 ", stride_bias %" PRId64,
                         output ? "bgrad" : "bias", g->batch, g->stride_bias);
    if (output && g->stride_bias < length)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "the bgrads of the batch overlap: stride_bias is %" PRId64 ", and each has %" PRId64
                         " elements", g->stride_bias, length);
    return TLOB_OK;
}

static tlob_status check_epilogue(const tlob_gemm *g) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    tlob_status status = TLOB_OK;
    if (traits->reads_aux || traits->writes_aux)
        status = check_aux(g, traits);
    if (status == TLOB_OK && (traits->reads_bias || traits->writes_bgrad))
        status = check_vector(g, traits->writes_bgrad);
    return status;
}

static tlob_status check_layout(const tlob_gemm *g) {
    bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    int64_t rows_a = ta ? g->k : g->m, cols_a = ta ? g->m : g->k;
    int64_t rows_b = tb ? g->n : g->k, cols_b = tb ? g->k : g->n;
    tlob_status status = check_ld("lda", g->lda, rows_a, ta ? "k" : "m");
    if (status == TLOB_OK)
        status = check_ld("ldb", g->ldb, rows_b, tb ? "n" : "k");
    if (status == TLOB_OK)
        status = check_ld("ldc", g->ldc, g->m, "m");
    if (status == TLOB_OK)
        status = check_matrix('a', rows_a, cols_a, g->lda, g->batch, g->stride_a);
    if (status == TLOB_OK)
        status = check_matrix('b', rows_b, cols_b, g->ldb, g->batch, g->stride_b);
    if (status == TLOB_OK)
        status = check_matrix('c', g->m, g->n, g->ldc, g->batch, g->stride_c);
    if (status == TLOB_OK)
        status = check_outputs_apart(g, "stride_c", g->stride_c, g->ldc, "ldc");
    if (status == TLOB_OK && g->epilogue != TLOB_EPILOGUE_NONE)
        status = check_epilogue(g);
    return status;
}

static tlob_status check_gemm(const tlob_gemm *g) {
    tlob_status status = check_enums(g);
    if (status == TLOB_OK)
        status = check_size("m", g->m);
    if (status == TLOB_OK)
        status = check_size("n", g->n);
    if (status == TLOB_OK)
        status = check_size("k", g->k);
    if (status == TLOB_OK)
        status = check_size("batch", g->batch);
    return status == TLOB_OK ? check_layout(g) : status;
}

tlob_status tlob_gemm_check(const tlob_gemm *gemm) {
    if (!gemm)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "gemm is NULL");
    tlob_status status = check_gemm(gemm);
    if (status != TLOB_OK)
        tlob_fail_gemm(gemm);
    return status;
}
