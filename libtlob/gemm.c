#include <inttypes.h>
#include <string.h>

#include "libtlob/internal.h"
#include "libtlob/range.h"

#define MASK_BITS  ((int64_t)128) /* what ld_aux and stride_aux of a mask are multiples of */
#define MASK_BYTES 16             /* what a mask is aligned to */

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

/* What a product reads and writes, from its problem alone. */
typedef struct needs {
    bool product; /* op(A) op(B) counts */
    bool a, b;    /* read, if only for the sums of BGRADA and BGRADB */
    const tlob_epilogue_traits *traits;
} needs;

static needs find_needs(const tlob_gemm *g) {
    bool product = g->k > 0 && g->alpha != 0.0f;
    return (needs){
        .product = product,
        .a = product || (g->epilogue == TLOB_EPILOGUE_BGRADA && g->k > 0),
        .b = product || (g->epilogue == TLOB_EPILOGUE_BGRADB && g->k > 0),
        .traits = tlob_epilogue_get_traits(g->epilogue),
    };
}

static tlob_status check_operand(tlob_stream *stream, const void *ptr, size_t alignment, const char *name,
                                 const char *when) {
    if (!ptr)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "operand %s is NULL; it is needed where %s", name, when);
    if ((uintptr_t)ptr % alignment)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "operand %s (%p) is not aligned to %s", name, ptr,
                         alignment == MASK_BYTES ? "16 bytes, as a mask must be" : "a float");
    return tlob_check_operand(stream, ptr, "tlob_gemm_run", name);
}

/* An output must not be another operand; only D may be C. Operands that overlap in part are the caller's to avoid. */
static tlob_status check_apart(const needs *n, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = n->traits;
    if (g->epilogue == TLOB_EPILOGUE_NONE && (!n->a || (x->d != x->a && x->d != x->b)))
        return TLOB_OK;
    const struct {
        const char *name;
        const void *ptr;
        bool output;
    } all[] = {
        {"d", x->d, true},
        {"bgrad", t->writes_bgrad ? x->bgrad : NULL, true},
        {"aux", t->writes_aux || t->reads_aux ? x->aux : NULL, t->writes_aux},
        {"a", n->a ? x->a : NULL, false},
        {"b", n->b ? x->b : NULL, false},
        {"bias", t->reads_bias ? x->bias : NULL, false},
        {"c", g->beta != 0.0f && x->c != x->d ? x->c : NULL, false},
    };
    enum { OUTPUTS = 3, ALL = sizeof(all) / sizeof(*all) };
    for (int i = 0; i < OUTPUTS; i++)
        for (int j = i + 1; all[i].output && all[i].ptr && j < ALL; j++)
            if (all[i].ptr == all[j].ptr)
                return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "%s is the same memory as %s; only c may be d",
                                 all[i].name, all[j].name);
    return TLOB_OK;
}

static tlob_status check_operands(tlob_stream *stream, const needs *n, const tlob_gemm *g,
                                  const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = n->traits;
    tlob_status status = TLOB_OK;
    if (n->a)
        status = check_operand(stream, x->a, sizeof(float), "a", "k > 0 and alpha != 0, or BGRADA sums it");
    if (status == TLOB_OK && n->b)
        status = check_operand(stream, x->b, sizeof(float), "b", "k > 0 and alpha != 0, or BGRADB sums it");
    if (status == TLOB_OK && g->beta != 0.0f)
        status = check_operand(stream, x->c, sizeof(float), "c", "beta != 0");
    if (status == TLOB_OK)
        status = check_operand(stream, x->d, sizeof(float), "d", "m, n and batch > 0");
    if (status == TLOB_OK && t->reads_bias)
        status = check_operand(stream, x->bias, sizeof(float), "bias", "the epilogue ends in BIAS");
    if (status == TLOB_OK && t->writes_bgrad)
        status = check_operand(stream, x->bgrad, sizeof(float), "bgrad", "the epilogue has a BGRAD");
    if (status == TLOB_OK && (t->reads_aux || t->writes_aux))
        status = check_operand(stream, x->aux, t->aux_is_mask ? MASK_BYTES : sizeof(float), "aux",
                               "the epilogue has an AUX or a derivative");
    return status == TLOB_OK ? check_apart(n, g, x) : status;
}

/* Of a mask the contract itself asks for as much as any backend. */
static bool aux_is_misaligned(const tlob_backend_ops *ops, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    return (t->reads_aux || t->writes_aux) && !t->aux_is_mask && ops->caps.aux_alignment &&
           (uintptr_t)x->aux % ops->caps.aux_alignment;
}

const char *tlob_unsupported(const tlob_backend_ops *ops, bool deterministic, const tlob_gemm *g,
                             const tlob_gemm_operands *x) {
    const char *why = NULL;
    if (deterministic && !ops->caps.deterministic)
        return "the context is deterministic, and the backend does not promise to be; see tlob_backend_caps";
    if (!(ops->caps.computes & 1u << g->compute))
        return "its compute mode is not among those of the backend";
    if (!(ops->caps.epilogues & 1u << g->epilogue))
        return "its epilogue is not among those of the backend";
    if (g->batch > 1 && g->batch > ops->caps.max_batch)
        return "its batch is larger than the backend's largest";
    if (x && aux_is_misaligned(ops, g, x))
        return "its aux is less aligned than the backend needs; see tlob_backend_caps.aux_alignment";
    if (!ops->supports || ops->supports(g, &why))
        return NULL;
    return why ? why : "no reason given";
}

static tlob_status check_supported(const tlob_context *ctx, int index, const tlob_gemm *g,
                                   const tlob_gemm_operands *x) {
    const tlob_backend_ops *ops = ctx->backends[index];
    const char *why = tlob_unsupported(ops, ctx->settings.deterministic, g, x);
    if (!why)
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, ops->name, "supports", 0, NULL, g,
                             "%s; choose another backend by the policy or tlob_gemm_run_on", why);
}

/* k = 0 or alpha = 0: no product, so no backend; what is left is z = beta C, and the epilogue on it. */
static tlob_status run_without_product(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_space *space = stream->ctx->space;
    bool bias_alone = g->epilogue == TLOB_EPILOGUE_BIAS;
    const tlob_affine_args affine = {
        .m = g->m, .n = g->n, .ld = g->ldc, .batch = g->batch, .stride = g->batch > 1 ? g->stride_c : 0,
        .stride_bias = g->batch > 1 ? g->stride_bias : 0, .beta = g->beta, .c = x->c, .d = x->d,
        .bias = bias_alone ? x->bias : NULL,
    };
    const tlob_finish_args finish = {.gemm = *g, .x = *x};
    bool more = !bias_alone && g->epilogue != TLOB_EPILOGUE_NONE;
    tlob_status status = tlob_fail_cuda(space, space->kernels->affine(stream->cuda_stream, &affine), "affine kernel");
    if (status == TLOB_OK && more)
        status = tlob_fail_cuda(space, space->kernels->finish(stream->cuda_stream, &finish), "epilogue kernel");
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

/* A product on its way: filled as far as it comes, which is what the trace tells. */
typedef struct call {
    tlob_gemm gemm;
    const char *backend; /* named by the caller, then chosen */
    char reason[200];
    tlob_lane_plan plan;
} call;

/* With the device current. The plan is asked for after the product, when it is the one that ran. */
static tlob_status compute(tlob_stream *stream, int index, const needs *n, const tlob_gemm_operands *x, call *c) {
    if (!n->product)
        return run_without_product(stream, &c->gemm, x);
    tlob_status status = run_slot(stream, index, &c->gemm, x);
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    if (stream->ctx->tracing && status == TLOB_OK && ops->describe)
        tlob_describe(ops, stream->lanes[index], &c->gemm, x, &c->plan);
    return status;
}

_Static_assert(sizeof(tlob_gemm) == 2 * sizeof(tlob_op) + 13 * sizeof(int64_t) + 2 * sizeof(float) +
                                        sizeof(tlob_compute) + sizeof(tlob_epilogue),
               "problems are compared byte by byte");

static tlob_known *known_entry(tlob_stream *stream, const tlob_gemm *g) {
    uint64_t hash = (uint64_t)g->m * 31 + (uint64_t)g->n;
    hash = hash * 31 + (uint64_t)g->k;
    hash = hash * 31 + (uint64_t)g->batch * 8 + (uint64_t)g->epilogue * 4;
    hash += (uint64_t)g->transa * 2 + (uint64_t)g->transb;
    return &stream->known[(hash ^ hash >> 7 ^ hash >> 17) % TLOB_KNOWN_PROBLEMS];
}

/* A policy that calls back is asked on every call; a trace tells reasons; and how an aux of floats lies counts too. */
static bool may_remember(const tlob_context *ctx, const char *name, const tlob_gemm *g) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    return !ctx->tracing && (name || ctx->settings.policy.kind != TLOB_POLICY_CALLBACK) &&
           (t->aux_is_mask || !(t->reads_aux || t->writes_aux));
}

/* Checks a problem and finds its backend, or remembers both. -1 after an error; else the call's backend is chosen. */
static int prepare(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x, call *c,
                   tlob_status *status) {
    tlob_context *ctx = stream->ctx;
    const char *name = c->backend;
    if (c->gemm.compute == TLOB_COMPUTE_DEFAULT)
        c->gemm.compute = ctx->settings.compute;
    tlob_known *known = known_entry(stream, gemm);
    if (known->index >= 0 && known->named == (name != NULL) && !memcmp(&known->gemm, gemm, sizeof(*gemm)) &&
        (!name || !strcmp(name, ctx->backends[known->index]->name)))
        return known->index;
    if ((*status = tlob_gemm_check(gemm)) != TLOB_OK)
        return -1;
    int index = tlob_choose(ctx, name, &c->gemm, ctx->tracing ? c->reason : NULL, sizeof(c->reason), status);
    if (index < 0) {
        tlob_fail_gemm(&c->gemm);
        return -1;
    }
    c->backend = ctx->backends[index]->name;
    if ((*status = check_supported(ctx, index, &c->gemm, x)) != TLOB_OK)
        return -1;
    if (may_remember(ctx, name, gemm))
        *known = (tlob_known){.gemm = *gemm, .named = name != NULL, .index = index};
    return index;
}

static tlob_status run_checked(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x, call *c) {
    tlob_context *ctx = stream->ctx;
    tlob_gemm *g = &c->gemm;
    tlob_status status = TLOB_OK;
    int index = prepare(stream, gemm, x, c, &status);
    if (index < 0)
        return status;
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return TLOB_OK;
    const needs n = find_needs(g);
    if ((status = check_operands(stream, &n, g, x)) != TLOB_OK) {
        tlob_fail_gemm(g);
        return status;
    }
    void *previous;
    if ((status = tlob_enter(ctx, &previous)) != TLOB_OK)
        return status;
    status = compute(stream, index, &n, x, c);
    tlob_leave(ctx, previous);
    stream->stats.products += status == TLOB_OK;
    return status;
}

static void trace(tlob_stream *stream, const call *c, tlob_status status) {
    const tlob_trace record = {
        .gemm = &c->gemm,
        .backend = c->backend ? c->backend : "",
        .algorithm = c->plan.algorithm,
        .workspace_bytes = c->plan.workspace_bytes,
        .deterministic = stream->ctx->settings.deterministic,
        .reason = c->reason,
        .status = status,
        .message = status == TLOB_OK ? "" : tlob_last_error()->message,
    };
    tlob_trace_write(stream, &record);
}

static tlob_status run(tlob_stream *stream, const char *backend, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    tlob_status status = tlob_stream_check(stream, "tlob_gemm_run");
    if (status != TLOB_OK)
        return status;
    tlob_range_push("tlob_gemm_run");
    call c;
    c.backend = backend;
    c.reason[0] = c.plan.algorithm[0] = 0;
    c.plan.workspace_bytes = 0;
    if (gemm)
        c.gemm = *gemm;
    if (!gemm || !x)
        status = tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "%s NULL",
                           gemm ? "the operands are" : "gemm is");
    else
        status = run_checked(stream, gemm, x, &c);
    stream->stats.rejected += status != TLOB_OK;
    if (stream->ctx->tracing && gemm)
        trace(stream, &c, status);
    tlob_range_pop();
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
