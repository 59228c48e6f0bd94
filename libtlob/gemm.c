#include <inttypes.h>
#include <string.h>

#include "libtlob/internal.h"

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
    if ((unsigned)g->epilogue > TLOB_EPILOGUE_BIAS)
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

/* Elements from the first to one past the last of a batch of matrices; false where it or its bytes overflow. */
static bool extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride, int64_t *elements) {
    if (rows == 0 || cols == 0 || batch == 0) {
        *elements = 0;
        return true;
    }
    int64_t columns, matrices, bytes;
    return tlob_mul(cols - 1, ld, &columns) && tlob_mul(batch - 1, stride, &matrices) &&
           !__builtin_add_overflow(columns, matrices, elements) && !__builtin_add_overflow(*elements, rows, elements) &&
           tlob_mul(*elements, (int64_t)sizeof(float), &bytes);
}

static tlob_status check_matrix(char name, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
    int64_t elements;
    if (batch > 1 && stride < 0)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "stride_%c is %" PRId64 ", must be at least 0", name, stride);
    if (!extent(rows, cols, ld, batch, batch > 1 ? stride : 0, &elements))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "matrix %c spans more than 2^63 bytes: %" PRId64 " x %" PRId64 ", ld %" PRId64
                         ", batch %" PRId64 ", stride %" PRId64, name, rows, cols, ld, batch, stride);
    return TLOB_OK;
}

/* Outputs of a batch are disjoint where they follow each other, or where they interleave as row slices of one parent. */
static tlob_status check_outputs_apart(const tlob_gemm *g) {
    int64_t one = (g->n - 1) * g->ldc + g->m;
    bool in_a_row = g->stride_c >= one;
    bool as_slices = g->stride_c >= g->m && (g->batch - 1) * g->stride_c + g->m <= g->ldc;
    if (in_a_row || as_slices)
        return TLOB_OK;
    return tlob_fail(TLOB_ERR_ARGUMENT, where,
                     "the %" PRId64 " outputs of the batch overlap: stride_c is %" PRId64 ", one output spans %" PRId64
                     " elements (m %" PRId64 ", n %" PRId64 ", ldc %" PRId64 ")", g->batch, g->stride_c, one, g->m,
                     g->n, g->ldc);
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
    if (status == TLOB_OK && g->batch > 1 && g->m > 0 && g->n > 0)
        status = check_outputs_apart(g);
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

static tlob_status check_operand(const tlob_context *ctx, const void *ptr, bool needed, const char *name,
                                 const char *when) {
    if (!needed)
        return TLOB_OK;
    if (!ptr)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "operand %s is NULL; it is needed where %s", name, when);
    if ((uintptr_t)ptr % sizeof(float))
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "operand %s (%p) is not aligned to a float", name, ptr);
    return tlob_check_pointer(ctx, ptr, "tlob_gemm_run", name);
}

/* `product`: whether A and B are read at all. */
static tlob_status check_operands(const tlob_context *ctx, const tlob_gemm *g, const tlob_gemm_operands *x,
                                  bool product) {
    bool bias = g->epilogue == TLOB_EPILOGUE_BIAS;
    tlob_status status = check_operand(ctx, x->a, product, "a", "k > 0 and alpha != 0");
    if (status == TLOB_OK)
        status = check_operand(ctx, x->b, product, "b", "k > 0 and alpha != 0");
    if (status == TLOB_OK)
        status = check_operand(ctx, x->c, g->beta != 0.0f, "c", "beta != 0");
    if (status == TLOB_OK)
        status = check_operand(ctx, x->d, true, "d", "m, n and batch > 0");
    if (status == TLOB_OK)
        status = check_operand(ctx, x->bias, bias, "bias", "the epilogue is BIAS");
    if (status == TLOB_OK && product && (x->d == x->a || x->d == x->b))
        status = tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "d is the same memory as %s; only c may be d",
                           x->d == x->a ? "a" : "b");
    return status;
}

static tlob_status check_supported(const tlob_backend_ops *ops, const tlob_gemm *g) {
    const char *why = NULL;
    if (!(ops->caps.computes & 1u << g->compute))
        why = "its compute mode is not among those of the backend";
    else if (g->epilogue != TLOB_EPILOGUE_NONE && !(ops->caps.epilogues & 1u << g->epilogue))
        why = "its epilogue is not among those of the backend";
    else if (g->batch > 1 && g->batch > ops->caps.max_batch)
        why = "its batch is larger than the backend's largest";
    else if (!ops->supports || ops->supports(g, &why))
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, ops->name, "supports", 0, NULL, g,
                             "%s; choose another backend by the policy or tlob_gemm_run_on", why ? why : "no reason given");
}

/* k = 0 or alpha = 0: no product, so no backend; what is left is D = beta C + bias. */
static tlob_status run_affine(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    tlob_affine_args args = {
        .m = g->m, .n = g->n, .ld = g->ldc, .batch = g->batch, .stride = g->batch > 1 ? g->stride_c : 0,
        .beta = g->beta, .c = x->c, .d = x->d, .bias = g->epilogue == TLOB_EPILOGUE_BIAS ? x->bias : NULL,
    };
    const tlob_space *space = stream->ctx->space;
    tlob_status status = tlob_fail_cuda(space, space->kernels->affine(stream->cuda_stream, &args), "affine kernel");
    if (status != TLOB_OK)
        tlob_fail_gemm(g);
    return status;
}

static tlob_status run_slot(tlob_stream *stream, int index, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    tlob_lane *lane = stream->lanes[index];
    switch (tlob_gemm_operation(g)) {
    case TLOB_OPERATION_SGEMM:
        return ops->sgemm(lane, g, x);
    case TLOB_OPERATION_SGEMM_STRIDED_BATCHED:
        return ops->sgemm_strided_batched(lane, g, x);
    case TLOB_OPERATION_MATMUL_BIAS:
        return ops->matmul_bias(lane, g, x);
    }
    return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "no such operation");
}

/* The backend that `name` or the policy chooses; -1 after recording an error. */
static int choose(const tlob_context *ctx, const char *name, const tlob_gemm *g, tlob_status *status) {
    int index;
    bool explicitly = name != NULL;
    if (!explicitly && !(name = tlob_policy_decide(&ctx->settings.policy, g, NULL, 0))) {
        *status = TLOB_ERR_POLICY;
        return -1;
    }
    if (tlob_context_backend(ctx, name, &index))
        return index;
    char names[128];
    tlob_context_backend_names(ctx, names, sizeof(names));
    *status = tlob_fail(explicitly ? TLOB_ERR_UNKNOWN_NAME : TLOB_ERR_POLICY, "tlob_gemm_run",
                        "%s '%s', and this %s context has: %s", explicitly ? "the caller named backend" : "the policy chose",
                        name, tlob_memory_name(ctx->space->memory), names);
    return -1;
}

static tlob_status run(tlob_stream *stream, const char *backend, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    tlob_status status = tlob_stream_check(stream, "tlob_gemm_run");
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status == TLOB_OK && !x)
        status = tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "the operands are NULL");
    if (status != TLOB_OK)
        return status;

    tlob_gemm g = *gemm;
    tlob_context *ctx = stream->ctx;
    if (g.compute == TLOB_COMPUTE_DEFAULT)
        g.compute = ctx->settings.compute;
    int index = choose(ctx, backend, &g, &status);
    if (index < 0) {
        tlob_fail_gemm(&g);
        return status;
    }
    if ((status = check_supported(ctx->backends[index], &g)) != TLOB_OK)
        return status;
    if (g.m == 0 || g.n == 0 || g.batch == 0)
        return TLOB_OK;
    bool product = g.k > 0 && g.alpha != 0.0f;
    status = check_operands(ctx, &g, x, product);
    if (status != TLOB_OK) {
        tlob_fail_gemm(&g);
        return status;
    }

    int previous;
    if ((status = tlob_enter(ctx, &previous)) != TLOB_OK)
        return status;
    status = product ? run_slot(stream, index, &g, x) : run_affine(stream, &g, x);
    tlob_leave(ctx, previous);
    stream->stats.products += status == TLOB_OK;
    return status;
}

tlob_status tlob_gemm_run(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    return run(stream, NULL, gemm, x);
}

tlob_status tlob_gemm_run_on(tlob_stream *stream, const char *backend, const tlob_gemm *gemm,
                             const tlob_gemm_operands *x) {
    if (!backend)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run_on", "backend is NULL");
    return run(stream, backend, gemm, x);
}
