/* Forms: what a backend is given of a problem, and how its calls make up the whole. */
#include "libtlob/internal.h"

const char *tlob_form_name(tlob_form form) {
    static const char *const names[TLOB_FORM_COUNT] = {
        [TLOB_FORM_WHOLE] = "whole",
        [TLOB_FORM_LOOP] = "loop",
        [TLOB_FORM_WIDE] = "wide",
        [TLOB_FORM_SEPARATE] = "separate",
        [TLOB_FORM_SPLIT] = "split",
    };
    return (unsigned)form < TLOB_FORM_COUNT ? names[form] : "?";
}

/* --- a batch as one product -------------------------------------------------------------------------------------- */

/* Whether `batch` matrices of rows x columns are the rows of one matrix, one below the other; its ld into *ld. */
static bool stacked_down(int64_t rows, int64_t columns, int64_t batch, int64_t stride, int64_t *ld) {
    int64_t all;
    if (stride != rows || !tlob_mul(batch, rows, &all))
        return false;
    if (columns <= 1 && *ld < all) /* a single column has no use for it */
        *ld = all;
    return *ld >= all;
}

/* Whether they are the columns of one matrix, one beside the other. */
static bool stacked_across(int64_t rows, int64_t columns, int64_t batch, int64_t stride, int64_t *ld) {
    int64_t one, all;
    if (columns == 1 && stride >= rows && stride > 0)
        *ld = stride;
    return tlob_mul(columns, *ld, &one) && stride == one && tlob_mul(batch, columns, &all);
}

/* B is shared: the A, and the D, one below the other. */
static const char *widen_down(const tlob_gemm *g, tlob_gemm *wide) {
    bool ta = g->transa == TLOB_OP_T;
    if (ta ? !stacked_across(g->k, g->m, g->batch, g->stride_a, &wide->lda)
           : !stacked_down(g->m, g->k, g->batch, g->stride_a, &wide->lda))
        return "wide: the A of the batch are not the rows of one matrix";
    if (!stacked_down(g->m, g->n, g->batch, g->stride_c, &wide->ldc))
        return "wide: the D of the batch are not the rows of one matrix";
    if (tlob_epilogue_get_traits(g->epilogue)->reads_bias && g->stride_bias != g->m)
        return "wide: the biases of the batch do not follow each other";
    wide->m = g->batch * g->m;
    return NULL;
}

/* A is shared: the B, and the D, side by side. */
static const char *widen_across(const tlob_gemm *g, tlob_gemm *wide) {
    bool tb = g->transb == TLOB_OP_T;
    if (tb ? !stacked_down(g->n, g->k, g->batch, g->stride_b, &wide->ldb)
           : !stacked_across(g->k, g->n, g->batch, g->stride_b, &wide->ldb))
        return "wide: the B of the batch are not the columns of one matrix";
    if (!stacked_across(g->m, g->n, g->batch, g->stride_c, &wide->ldc))
        return "wide: the D of the batch are not the columns of one matrix";
    if (tlob_epilogue_get_traits(g->epilogue)->reads_bias && g->stride_bias != 0)
        return "wide: the batch does not share its bias";
    wide->n = g->batch * g->n;
    return NULL;
}

/* One product, without the strides, which a single one does not look at. */
static tlob_gemm single(const tlob_gemm *g) {
    tlob_gemm one = *g;
    one.batch = 1;
    one.stride_a = one.stride_b = one.stride_c = one.stride_aux = one.stride_bias = 0;
    return one;
}

/* NULL, and the problem in *wide, or the obstacle. */
static const char *widen(const tlob_gemm *g, tlob_gemm *wide) {
    *wide = single(g);
    if (g->batch <= 1)
        return "wide: there is no batch";
    if (g->epilogue > TLOB_EPILOGUE_RELU_BIAS)
        return "wide: its epilogue has sums or an aux, which each product of the batch has to itself";
    if (g->stride_b == 0)
        return widen_down(g, wide);
    if (g->stride_a == 0)
        return widen_across(g, wide);
    return "wide: the batch shares neither A nor B";
}

/* --- a product in pieces ------------------------------------------------------------------------------------------ */

#define PIECES_MAX  256
#define PIECE_K_MIN 128
#define PIECE_STEP  4 /* of k: then each piece of A and B is as aligned as its matrix, to 16 bytes */

/* Into how many pieces k is cut, on every warm call: a power of two, 1 where there are no two. */
static int64_t count_pieces(const tlob_gemm *g) {
    int64_t sums, pieces = 1;
    if (!tlob_mul(g->m, g->n, &sums) || sums > TLOB_SCRATCH_FLOATS)
        return 1;
    while (pieces < PIECES_MAX && g->k >= 2 * pieces * PIECE_K_MIN && (g->k & (2 * pieces * PIECE_STEP - 1)) == 0 &&
           2 * pieces * sums <= TLOB_SCRATCH_FLOATS)
        pieces *= 2;
    return pieces;
}

/* The products of the pieces, which lie packed. */
static tlob_gemm split(const tlob_gemm *g) {
    tlob_gemm part = *g;
    part.batch = count_pieces(g);
    part.k = g->k / part.batch;
    part.stride_a = g->transa == TLOB_OP_T ? part.k : part.k * g->lda;
    part.stride_b = g->transb == TLOB_OP_T ? part.k * g->ldb : part.k;
    part.stride_c = g->m * g->n;
    part.ldc = g->m > 1 ? g->m : 1;
    part.beta = 0.0f;
    return part;
}

static const char *find_split_obstacle(const tlob_gemm *g) {
    if (g->batch != 1)
        return "split: only a single product is, not a batch";
    if (g->epilogue != TLOB_EPILOGUE_NONE)
        return "split: there is an epilogue";
    if (count_pieces(g) > 1)
        return NULL;
    if (g->k < 2 * PIECE_K_MIN || g->k % (2 * PIECE_STEP))
        return "split: k is below 256, or no multiple of 8";
    return "split: the results of two pieces are more than 4 MiB";
}

/* --- obstacles ---------------------------------------------------------------------------------------------------- */

_Static_assert(TLOB_EPILOGUE_RELU_BIAS == 3, "the epilogues that work element by element come first");

const char *tlob_form_obstacle(tlob_form form, const tlob_gemm *gemm) {
    tlob_gemm wide;
    switch (form) {
    case TLOB_FORM_WHOLE:
        return NULL;
    case TLOB_FORM_LOOP:
        return gemm->batch > 1 ? NULL : "loop: there is no batch";
    case TLOB_FORM_WIDE:
        return widen(gemm, &wide);
    case TLOB_FORM_SEPARATE:
        return gemm->epilogue != TLOB_EPILOGUE_NONE ? NULL : "separate: there is no epilogue";
    case TLOB_FORM_SPLIT:
        return find_split_obstacle(gemm);
    }
    return "there is no such form";
}

tlob_gemm tlob_form_part(tlob_form form, const tlob_gemm *gemm) {
    tlob_gemm part = *gemm;
    if (form == TLOB_FORM_LOOP)
        part = single(gemm);
    else if (form == TLOB_FORM_WIDE)
        widen(gemm, &part);
    else if (form == TLOB_FORM_SEPARATE)
        part.epilogue = TLOB_EPILOGUE_NONE;
    else if (form == TLOB_FORM_SPLIT)
        part = split(gemm);
    return part;
}

tlob_gemm_operands tlob_form_operands(tlob_form form, const tlob_gemm_operands *x, float *scratch) {
    tlob_gemm_operands part = *x;
    if (form == TLOB_FORM_SPLIT)
        part.c = part.d = scratch;
    return part;
}

const char *tlob_form_unsupported(const tlob_backend_ops *ops, bool deterministic, tlob_form form,
                                  const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(gemm->epilogue);
    const char *why = tlob_form_obstacle(form, gemm);
    if (why)
        return why;
    const tlob_gemm part = tlob_form_part(form, gemm);
    if (form == TLOB_FORM_SPLIT && part.batch > ops->caps.max_batch)
        return "split: its pieces are more than the backend's largest batch";
    why = tlob_unsupported(ops, deterministic, &part, x);
    bool floats = (t->reads_aux || t->writes_aux) && !t->aux_is_mask;
    if (!why && form == TLOB_FORM_LOOP && floats && ops->caps.aux_alignment > sizeof(float) &&
        gemm->stride_aux % (ops->caps.aux_alignment / (int64_t)sizeof(float)))
        why = "in a loop its aux would be less aligned than the backend needs; see tlob_backend_caps.aux_alignment";
    return why;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* The operands of product `b` of a batch. Those that do not count stay as they are, and so do their strides. */
static tlob_gemm_operands member(const tlob_gemm *g, const tlob_gemm_operands *x, int64_t b) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    tlob_gemm_operands one = *x;
    one.a += b * g->stride_a;
    one.b += b * g->stride_b;
    one.d += b * g->stride_c;
    if (g->beta != 0.0f)
        one.c += b * g->stride_c;
    if (t->reads_bias)
        one.bias += b * g->stride_bias;
    if (t->writes_bgrad)
        one.bgrad += b * g->stride_bias;
    if (t->reads_aux || t->writes_aux)
        one.aux = t->aux_is_mask ? (char *)x->aux + b * g->stride_aux / 8 : (char *)((float *)x->aux + b * g->stride_aux);
    return one;
}

static tlob_status run_slot(tlob_stream *stream, int index, const tlob_pick *pick, const tlob_gemm *g,
                            const tlob_gemm_operands *x, void **memo) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    tlob_lane *lane = stream->lanes[index];
    switch (tlob_gemm_operation(g)) {
    case TLOB_OPERATION_SGEMM:
        return ops->sgemm(lane, g, x, pick, memo);
    case TLOB_OPERATION_SGEMM_STRIDED_BATCHED:
        return ops->sgemm_strided_batched(lane, g, x, pick, memo);
    case TLOB_OPERATION_MATMUL_BIAS:
        return ops->matmul_bias(lane, g, x, pick, memo);
    }
    return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run", "no such operation");
}

static tlob_status run_loop(tlob_stream *stream, int index, const tlob_pick *pick, const tlob_gemm *g,
                            const tlob_gemm_operands *x, void **memo) {
    const tlob_gemm part = single(g);
    tlob_status status = TLOB_OK;
    for (int64_t b = 0; b < g->batch && status == TLOB_OK; b++) {
        const tlob_gemm_operands one = member(g, x, b);
        status = run_slot(stream, index, pick, &part, &one, memo);
    }
    return status;
}

tlob_status tlob_form_finish(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_space *space = stream->ctx->space;
    const tlob_finish_args finish = {.gemm = *g, .x = *x};
    tlob_status status = tlob_fail_cuda(space, space->kernels->finish(stream->cuda_stream, &finish), "epilogue kernel");
    if (status != TLOB_OK)
        tlob_fail_gemm(g);
    return status;
}

static tlob_status need_scratch(tlob_stream *stream, const tlob_gemm *g) {
    tlob_status status = tlob_stream_need_scratch(stream);
    if (status != TLOB_OK)
        tlob_fail_gemm(g);
    return status;
}

static tlob_status run_split(tlob_stream *stream, int index, const tlob_pick *pick, const tlob_gemm *g,
                             const tlob_gemm_operands *x, void **memo) {
    const tlob_space *space = stream->ctx->space;
    tlob_status status = need_scratch(stream, g);
    if (status != TLOB_OK)
        return status;
    const tlob_gemm part = split(g);
    const tlob_gemm_operands pieces = tlob_form_operands(TLOB_FORM_SPLIT, x, stream->scratch);
    if ((status = run_slot(stream, index, pick, &part, &pieces, memo)) != TLOB_OK)
        return status;
    const tlob_add_pieces_args sum = {.m = g->m, .n = g->n, .ld = g->ldc, .pieces = part.batch, .beta = g->beta,
                                      .piece = stream->scratch, .c = x->c, .d = x->d};
    status = tlob_fail_cuda(space, space->kernels->add_pieces(stream->cuda_stream, &sum), "kernel that adds up pieces");
    if (status != TLOB_OK)
        tlob_fail_gemm(g);
    return status;
}

tlob_status tlob_form_run(tlob_stream *stream, int index, tlob_form form, const tlob_pick *pick, const tlob_gemm *gemm,
                          const tlob_gemm_operands *x, void **memo) {
    if (form == TLOB_FORM_WHOLE)
        return run_slot(stream, index, pick, gemm, x, memo);
    if (form == TLOB_FORM_LOOP)
        return run_loop(stream, index, pick, gemm, x, memo);
    if (form == TLOB_FORM_SPLIT)
        return run_split(stream, index, pick, gemm, x, memo);
    const tlob_gemm part = tlob_form_part(form, gemm);
    tlob_status status = run_slot(stream, index, pick, &part, x, memo);
    return status == TLOB_OK && form == TLOB_FORM_SEPARATE ? tlob_form_finish(stream, gemm, x) : status;
}

/* --- how operands lie ------------------------------------------------------------------------------------------- */

/*
 * Of the addresses first + b * stride, one with the least alignment: the first or the second, for the lowest bits of a
 * sum are those of its parts.
 */
static uintptr_t least(uintptr_t first, int64_t stride) {
    uintptr_t second = first + (uintptr_t)stride * sizeof(float);
    uintptr_t lowest = (first | second) & -(first | second);
    return first & lowest || !lowest ? first : second;
}

enum { APART = 4096 }; /* aligned to more than anyone asks for */

tlob_gemm_operands tlob_form_least_aligned(tlob_form form, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    tlob_gemm_operands worst = tlob_form_operands(form, x, NULL);
    if (form != TLOB_FORM_LOOP)
        return worst;
    worst.a = (const float *)least((uintptr_t)x->a, g->stride_a);
    worst.b = (const float *)least((uintptr_t)x->b, g->stride_b);
    worst.d = (float *)least((uintptr_t)x->d, g->stride_c);
    worst.c = (const float *)least((uintptr_t)x->c + (x->c ? 0 : APART), g->stride_c);
    if (t->reads_bias)
        worst.bias = (const float *)least((uintptr_t)x->bias, g->stride_bias);
    if (t->writes_bgrad)
        worst.bgrad = (float *)least((uintptr_t)x->bgrad, g->stride_bias);
    if ((t->reads_aux || t->writes_aux) && !t->aux_is_mask)
        worst.aux = (void *)least((uintptr_t)x->aux, g->stride_aux);
    return worst;
}

/* --- configurations ------------------------------------------------------------------------------------------------ */

#define ALIGNMENTS 64 /* of 4 to 256 bytes: after so many products of a batch they come again */

/* How many products of a batch can lie each in its own way. */
static int64_t count_members(tlob_form form, const tlob_gemm *gemm) {
    return form != TLOB_FORM_LOOP ? 1 : gemm->batch < ALIGNMENTS ? gemm->batch : ALIGNMENTS;
}

/* With addresses in place of NULL, so that those of a loop can be told. */
static tlob_gemm_operands complete(const tlob_gemm_operands *x) {
    tlob_gemm_operands some = *x;
    some.a = x->a ? x->a : (const float *)(uintptr_t)APART;
    some.b = x->b ? x->b : (const float *)(uintptr_t)APART;
    some.c = x->c ? x->c : (const float *)(uintptr_t)APART;
    some.d = x->d ? x->d : (float *)(uintptr_t)(2 * APART);
    some.bias = x->bias ? x->bias : (const float *)(uintptr_t)APART;
    some.bgrad = x->bgrad ? x->bgrad : (float *)(uintptr_t)APART;
    some.aux = x->aux ? x->aux : (void *)(uintptr_t)APART;
    return some;
}

tlob_status tlob_form_describe(const tlob_backend_ops *ops, tlob_lane *lane, const tlob_method *method,
                               const tlob_gemm *gemm, const tlob_gemm_operands *x, tlob_lane_plan *plan) {
    const bool loop = method->form == TLOB_FORM_LOOP;
    const tlob_gemm part = tlob_form_part(method->form, gemm);
    const tlob_gemm_operands all = loop ? complete(x) : tlob_form_operands(method->form, x, NULL); /* as any scratch */
    const int64_t members = count_members(method->form, gemm);
    tlob_status status = TLOB_OK;
    for (int64_t b = 0; b < members && status == TLOB_OK; b++) {
        const tlob_gemm_operands one = loop ? member(gemm, &all, b) : all;
        tlob_lane_plan of_one = {0};
        status = ops->describe(lane, &part, &one, method->configuration, method->n_configuration, &of_one);
        if (b == 0)
            *plan = of_one;
        plan->cached = plan->cached && of_one.cached;
        if (plan->workspace_bytes < of_one.workspace_bytes)
            plan->workspace_bytes = of_one.workspace_bytes;
    }
    return status;
}

tlob_status tlob_form_adopt(tlob_stream *stream, int index, const tlob_method *method, const tlob_gemm *gemm,
                            const tlob_gemm_operands *x, const tlob_pick **pick) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    const tlob_gemm part = tlob_form_part(method->form, gemm);
    const int64_t members = count_members(method->form, gemm);
    tlob_status status = TLOB_OK;
    if (!ops->adopt)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, ops->name, "adopt", 0, NULL, gemm,
                                 "the backend takes no configurations; leave them out of the method");
    if (method->form == TLOB_FORM_SPLIT)
        status = need_scratch(stream, gemm);
    for (int64_t b = 0; b < members && status == TLOB_OK; b++) {
        const tlob_gemm_operands one =
            method->form == TLOB_FORM_LOOP ? member(gemm, x, b) : tlob_form_operands(method->form, x, stream->scratch);
        status = ops->adopt(stream->lanes[index], &part, &one, method->configuration, method->n_configuration, pick);
    }
    return status;
}
