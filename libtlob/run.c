/* Running products: checks, the decision and what a stream remembers of it, and the trace. */
#include <stdio.h>
#include <string.h>

#include "libtlob/internal.h"
#include "libtlob/range.h"

#define MASK_BYTES    16  /* what a mask is aligned to */
#define ALIGNED_BYTES 16  /* what operands are aligned to that count as aligned in a decision */
#define MOST_ALIGNED  256 /* bytes: no backend looks further */

/* What a product reads and writes, from its problem alone. */
typedef struct needs {
    bool a, b; /* read, if only for the sums of BGRADA and BGRADB */
    const tlob_epilogue_traits *traits;
} needs;

static needs find_needs(const tlob_gemm *g) {
    bool product = tlob_has_product(g);
    return (needs){
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

static tlob_status check_operands(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const needs n = find_needs(g);
    const tlob_epilogue_traits *t = n.traits;
    tlob_status status = TLOB_OK;
    if (n.a)
        status = check_operand(stream, x->a, sizeof(float), "a", "k > 0 and alpha != 0, or BGRADA sums it");
    if (status == TLOB_OK && n.b)
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
    return status == TLOB_OK ? check_apart(&n, g, x) : status;
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

/* k = 0 or alpha = 0: no product, so no backend; what is left is z = beta C, and the epilogue on it. */
static tlob_status run_without_product(tlob_stream *stream, const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_space *space = stream->ctx->space;
    bool bias_alone = g->epilogue == TLOB_EPILOGUE_BIAS;
    const tlob_affine_args affine = {
        .m = g->m, .n = g->n, .ld = g->ldc, .batch = g->batch, .stride = g->batch > 1 ? g->stride_c : 0,
        .stride_bias = g->batch > 1 ? g->stride_bias : 0, .beta = g->beta, .c = x->c, .d = x->d,
        .bias = bias_alone ? x->bias : NULL,
    };
    tlob_status status = tlob_fail_cuda(space, space->kernels->affine(stream->cuda_stream, &affine), "affine kernel");
    if (status != TLOB_OK)
        tlob_fail_gemm(g);
    return status == TLOB_OK && !bias_alone && g->epilogue != TLOB_EPILOGUE_NONE ? tlob_form_finish(stream, g, x)
                                                                                 : status;
}

/* Of the operands that an epilogue has besides. */
static uintptr_t bits_of_epilogue(const tlob_gemm *g, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    return (t->reads_bias ? (uintptr_t)x->bias : 0) | (t->writes_bgrad ? (uintptr_t)x->bgrad : 0) |
           (t->reads_aux || t->writes_aux ? (uintptr_t)x->aux : 0);
}

/* On every warm call. Without a product the form and the algorithm do not count, nor where A and B lie. */
static inline unsigned layout_of(const tlob_gemm *g, const tlob_gemm_operands *x) {
    uintptr_t bits = (uintptr_t)x->a | (uintptr_t)x->b | (uintptr_t)x->d;
    unsigned in_place = 0;
    if (g->beta != 0.0f) {
        bits |= (uintptr_t)x->c;
        in_place = x->c == x->d ? TLOB_LAYOUT_IN_PLACE : 0;
    }
    if (g->epilogue != TLOB_EPILOGUE_NONE)
        bits |= bits_of_epilogue(g, x);
    return (bits % ALIGNED_BYTES ? 0 : TLOB_LAYOUT_ALIGNED) | in_place;
}

unsigned tlob_operand_layout(const tlob_gemm *g, const tlob_gemm_operands *x) {
    return x ? layout_of(g, x) : TLOB_LAYOUT_ALIGNED;
}

/* A product on its way: filled as far as it comes, which is what the trace tells. */
typedef struct call {
    tlob_gemm gemm;
    const char *backend;         /* named by the caller, then chosen */
    const tlob_method *insisted; /* on by the caller, or NULL */
    int index;
    tlob_form form;
    const tlob_pick *pick;
    tlob_known *known;           /* the stream's memory of this problem, or NULL where it keeps none */
    bool undecided;              /* whether the backend has yet to take the configuration of `method` */
    uint8_t answer;              /* of the policy's table: a tlob_answer */
    const tlob_table_entry *entry; /* of that table, where it is what `method` follows */
    tlob_error before;           /* the last error, to be put back where an entry is refused and the product done */
    unsigned layout;             /* where this call decided, and did not remember */
    tlob_method method;          /* likewise */
    char reason[200];
    tlob_lane_plan plan;
} call;

/* With the device current. The plan is asked for after the product, when it is the one that ran. */
static tlob_status compute(tlob_stream *stream, const tlob_gemm_operands *x, call *c) {
    void *forgotten = NULL;
    if (!tlob_has_product(&c->gemm))
        return run_without_product(stream, &c->gemm, x);
    tlob_status status = tlob_form_run(stream, c->index, c->form, c->pick, &c->gemm, x,
                                       c->known ? &c->known->memo : &forgotten);
    const tlob_backend_ops *ops = stream->ctx->backends[c->index];
    if (stream->ctx->tracing && status == TLOB_OK && ops->describe) /* then nothing is remembered */
        tlob_describe(ops, stream->lanes[c->index], &c->method, &c->gemm, x, &c->plan);
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

/* A policy that calls back is asked on every call; a trace tells reasons; how an aux of floats lies counts too; and what
 * a caller insists on is no decision for others. */
static bool may_remember(const tlob_context *ctx, const call *c, bool named) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(c->gemm.epilogue);
    return !ctx->tracing && !c->insisted && (named || ctx->settings.policy.kind != TLOB_POLICY_CALLBACK) &&
           (t->aux_is_mask || !(t->reads_aux || t->writes_aux));
}

static inline bool aligned_alike(const tlob_gemm_operands *x, const tlob_gemm_operands *y) {
    const uintptr_t unlike = ((uintptr_t)x->a ^ (uintptr_t)y->a) | ((uintptr_t)x->b ^ (uintptr_t)y->b) |
                             ((uintptr_t)x->c ^ (uintptr_t)y->c) | ((uintptr_t)x->d ^ (uintptr_t)y->d) |
                             ((uintptr_t)x->bias ^ (uintptr_t)y->bias) | ((uintptr_t)x->bgrad ^ (uintptr_t)y->bgrad) |
                             ((uintptr_t)x->aux ^ (uintptr_t)y->aux);
    return unlike % MOST_ALIGNED == 0;
}

/* A configuration is adopted, or refused, for operands that lie in one way. */
static bool decided_alike(const tlob_known *known, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    return known->layout == layout_of(gemm, x) &&
           ((!known->pick && known->answer != TLOB_ANSWER_REJECTED) || aligned_alike(&known->x, x));
}

/* Whether the entry is for this problem, and for operands that lie as these do. */
static bool is_known(const tlob_stream *stream, const tlob_known *known, const char *name, const tlob_gemm *gemm,
                     const tlob_gemm_operands *x) {
    return known->index >= 0 && known->named == (name != NULL) && !memcmp(&known->gemm, gemm, sizeof(*gemm)) &&
           (name ? !strcmp(name, stream->ctx->backends[known->index]->name) : decided_alike(known, gemm, x));
}

/* Whether the chosen backend can do what the method asks of it. */
static tlob_status take_method(const tlob_context *ctx, int index, const tlob_gemm_operands *x, call *c) {
    const tlob_backend_ops *ops = ctx->backends[index];
    c->index = index;
    c->backend = ops->name;
    c->form = c->method.form;
    c->pick = NULL;
    c->undecided = c->method.n_configuration > 0 && tlob_has_product(&c->gemm);
    const char *why = tlob_form_unsupported(ops, ctx->settings.deterministic, c->form, &c->gemm, x);
    if (!why)
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, ops->name, "supports", 0, NULL, &c->gemm, "%s; choose another %s",
                             why, c->insisted ? "method" : "backend by the policy or tlob_gemm_run_on");
}

/* What the table says cannot be done here, as the last error tells. That is logged and counted, and then the policy's
 * rule for misses decides. */
static tlob_status miss(tlob_context *ctx, const tlob_gemm_operands *x, call *c) {
    const tlob_table_entry *entry = c->entry;
    int index;
    tlob_tuned_warn(ctx, entry);
    c->entry = NULL;
    c->answer = TLOB_ANSWER_REJECTED;
    tlob_status status =
        tlob_tuned_miss(ctx, &c->gemm, entry, &c->method, ctx->tracing ? c->reason : NULL, sizeof(c->reason));
    if (status != TLOB_OK)
        return status;
    if (!tlob_context_backend(ctx, c->method.backend, &index))
        return tlob_fail(TLOB_ERR_POLICY, "tlob_gemm_run", "the policy's rule for misses chose '%s', which this context "
                         "does not have", c->method.backend);
    tlob_error_restore(&c->before);
    return take_method(ctx, index, x, c);
}

/* What the policy's table has to do with a decision. */
static void note_answer(const tlob_context *ctx, call *c) {
    if (ctx->settings.policy.kind != TLOB_POLICY_TUNED || !tlob_has_product(&c->gemm))
        return;
    c->answer = c->entry ? TLOB_ANSWER_HIT : TLOB_ANSWER_MISS;
}

/* Which method, and whether its backend can do it. The configuration waits until the operands have been checked. */
static tlob_status decide(tlob_context *ctx, const tlob_gemm_operands *x, call *c) {
    tlob_status status = TLOB_OK;
    bool named = c->backend != NULL;
    if (!named && ctx->settings.policy.kind == TLOB_POLICY_TUNED)
        c->before = *tlob_last_error();
    c->layout = tlob_operand_layout(&c->gemm, x);
    int index = tlob_choose(ctx, c->backend, &c->gemm, c->layout & TLOB_LAYOUT_ALIGNED, &c->method, &c->entry,
                            ctx->tracing ? c->reason : NULL, sizeof(c->reason), &status);
    if (index < 0 && !c->entry) {
        tlob_fail_gemm(&c->gemm);
        return status;
    }
    if (!named)
        note_answer(ctx, c);
    if (c->insisted) {
        c->method = *c->insisted;
        snprintf(c->reason, sizeof(c->reason), "method: insisted on by the caller");
    }
    if (index >= 0)
        status = take_method(ctx, index, x, c);
    return status != TLOB_OK && c->entry ? miss(ctx, x, c) : status;
}

/* What is not yet decided is an empty entry until it is. */
static void remember(tlob_stream *stream, const tlob_gemm *gemm, bool named, call *c) {
    if (!may_remember(stream->ctx, c, named))
        return;
    c->known = known_entry(stream, gemm);
    *c->known = (tlob_known){.gemm = *gemm, .named = named, .layout = (uint8_t)c->layout,
                             .index = c->undecided ? -1 : c->index, .form = c->form, .answer = c->answer};
}

/* Checks a problem and decides on it, or remembers both. */
static tlob_status prepare(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x, call *c) {
    tlob_known *known = known_entry(stream, gemm);
    bool named = c->backend != NULL;
    if (c->gemm.compute == TLOB_COMPUTE_DEFAULT)
        c->gemm.compute = stream->ctx->settings.compute;
    if (!c->insisted && is_known(stream, known, c->backend, gemm, x)) {
        c->known = known;
        c->index = known->index;
        c->form = known->form;
        c->pick = known->pick;
        c->answer = known->answer;
        return TLOB_OK;
    }
    tlob_status status = tlob_gemm_check(gemm);
    if (status == TLOB_OK)
        status = decide(stream->ctx, x, c);
    if (status == TLOB_OK)
        remember(stream, gemm, named, c);
    return status;
}

/* With the device current: has the backend take the configuration. A caller who insists on it gets the refusal. */
static tlob_status adopt(tlob_stream *stream, const tlob_gemm_operands *x, call *c) {
    tlob_status status = tlob_form_adopt(stream, c->index, &c->method, &c->gemm, x, &c->pick);
    if (status == TLOB_ERR_UNSUPPORTED && c->entry)
        status = miss(stream->ctx, x, c);
    if (status == TLOB_OK && c->known) {
        c->known->index = c->index;
        c->known->form = c->form;
        c->known->pick = c->pick;
        c->known->answer = c->answer;
    }
    return status;
}

/* Operands that a remembered problem last ran with have been checked. They are remembered once they are. */
static tlob_status check_new_operands(tlob_stream *stream, const tlob_gemm_operands *x, call *c) {
    if (c->known && c->known->x.d && !memcmp(&c->known->x, x, sizeof(*x)))
        return TLOB_OK;
    tlob_status status = check_operands(stream, &c->gemm, x);
    if (status != TLOB_OK)
        tlob_fail_gemm(&c->gemm);
    else if (c->known)
        c->known->x = *x;
    return status;
}

static void count_answer(tlob_stream_stats *stats, uint8_t answer) {
    stats->table_hits += answer == TLOB_ANSWER_HIT;
    stats->table_misses += answer != TLOB_ANSWER_HIT;
    stats->table_rejected += answer == TLOB_ANSWER_REJECTED;
}

static tlob_status run_checked(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x, call *c) {
    tlob_context *ctx = stream->ctx;
    tlob_gemm *g = &c->gemm;
    tlob_status status = prepare(stream, gemm, x, c);
    if (status != TLOB_OK)
        return status;
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return TLOB_OK;
    if ((status = check_new_operands(stream, x, c)) != TLOB_OK)
        return status;
    void *previous;
    if ((status = tlob_enter(ctx, &previous)) != TLOB_OK)
        return status;
    if (c->undecided)
        status = adopt(stream, x, c);
    if (status == TLOB_OK)
        status = compute(stream, x, c);
    tlob_leave(ctx, previous);
    stream->stats.products += status == TLOB_OK;
    if (c->answer && status == TLOB_OK)
        count_answer(&stream->stats, c->answer);
    return status;
}

static void trace(tlob_stream *stream, const call *c, tlob_status status) {
    const tlob_trace record = {
        .gemm = &c->gemm,
        .backend = c->backend ? c->backend : "",
        .form = c->form,
        .algorithm = c->plan.algorithm,
        .workspace_bytes = c->plan.workspace_bytes,
        .deterministic = stream->ctx->settings.deterministic,
        .reason = c->reason,
        .status = status,
        .message = status == TLOB_OK ? "" : tlob_last_error()->message,
    };
    tlob_trace_write(stream, &record);
}

static tlob_status run(tlob_stream *stream, const char *backend, const tlob_method *insisted, const tlob_gemm *gemm,
                       const tlob_gemm_operands *x) {
    tlob_status status = tlob_stream_check(stream, "tlob_gemm_run");
    if (status != TLOB_OK)
        return status;
    tlob_range_push("tlob_gemm_run");
    call c;
    c.backend = backend;
    c.insisted = insisted;
    c.form = insisted ? insisted->form : TLOB_FORM_WHOLE;
    c.known = NULL;
    c.undecided = false;
    c.answer = TLOB_ANSWER_NONE;
    c.entry = NULL;
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
    return run(stream, NULL, NULL, gemm, x);
}

tlob_status tlob_gemm_run_on(tlob_stream *stream, const char *backend, const tlob_gemm *gemm,
                             const tlob_gemm_operands *x) {
    if (!backend)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_gemm_run_on", "backend is NULL");
    return run(stream, backend, NULL, gemm, x);
}

tlob_status tlob_gemm_run_as(tlob_stream *stream, const tlob_method *method, const tlob_gemm *gemm,
                             const tlob_gemm_operands *x) {
    tlob_status status = tlob_method_check(method, "tlob_gemm_run_as");
    return status == TLOB_OK ? run(stream, method->backend, method, gemm, x) : status;
}
