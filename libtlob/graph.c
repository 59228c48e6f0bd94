/* Warm streams, and the graphs that are captured on them. */
#include <inttypes.h>
#include <stdlib.h>

#include "libtlob/internal.h"

/* Once a context: with lazy loading a kernel's first launch loads it, and that must not happen in a capture. */
static tlob_status load_kernels(tlob_context *ctx) {
    if (atomic_load(&ctx->kernels_loaded))
        return TLOB_OK;
    tlob_visit visit;
    tlob_status status = tlob_enter_cold(ctx, &visit);
    if (status != TLOB_OK)
        return status;
    status = tlob_fail_cuda(ctx->space, ctx->space->kernels->load(), "loading libtlob's kernels");
    tlob_leave_cold(ctx, &visit);
    atomic_store(&ctx->kernels_loaded, status == TLOB_OK);
    return status;
}

/* --- warming --------------------------------------------------------------------------------------------------- */

#define ALIGNMENT 256 /* of every operand, as of any allocation */

/* Bytes of a batch of matrices from its first element to its last, rounded up so that what follows is as aligned; false
 * where they are more than 2^63. */
static bool extent(int64_t rows, int64_t columns, int64_t ld, const tlob_gemm *g, int64_t stride, int64_t bits,
                   int64_t *bytes) {
    int64_t elements, matrices;
    *bytes = 0;
    if (rows == 0 || columns == 0 || g->batch == 0)
        return true;
    if (!tlob_mul(columns - 1, ld, &elements) || !tlob_mul(g->batch - 1, g->batch > 1 ? stride : 0, &matrices) ||
        __builtin_add_overflow(elements, matrices, &elements) || __builtin_add_overflow(elements, rows, &elements))
        return false;
    *bytes = elements / 8 * bits + (elements % 8 * bits + 7) / 8;
    if (__builtin_add_overflow(*bytes, ALIGNMENT - 1, bytes))
        return false;
    *bytes -= *bytes % ALIGNMENT;
    return true;
}

/* What a product is run on: inputs share their memory, outputs each have their own. */
typedef struct scratch {
    int64_t inputs, d, bgrad, aux, all; /* bytes */
} scratch;

static bool measure(const tlob_gemm *g, scratch *s) {
    enum { FLOAT = 32 };
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    const bool ta = g->transa == TLOB_OP_T, tb = g->transb == TLOB_OP_T;
    const int64_t length = g->epilogue == TLOB_EPILOGUE_BGRADB ? g->n : g->m;
    int64_t a, b, vector = 0;
    *s = (scratch){0};
    if (!extent(ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g, g->stride_a, FLOAT, &a) ||
        !extent(tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g, g->stride_b, FLOAT, &b) ||
        !extent(g->m, g->n, g->ldc, g, g->stride_c, FLOAT, &s->d))
        return false;
    if ((t->reads_bias || t->writes_bgrad) && !extent(length, 1, length, g, g->stride_bias, FLOAT, &vector))
        return false;
    if ((t->reads_aux || t->writes_aux) &&
        !extent(t->aux_is_mask ? g->ld_aux : g->m, g->n, g->ld_aux, g, g->stride_aux, t->aux_is_mask ? 1 : FLOAT,
                &s->aux))
        return false;
    s->bgrad = t->writes_bgrad ? vector : 0;
    s->inputs = a > b ? a : b;
    if (t->reads_bias && s->inputs < vector)
        s->inputs = vector;
    if (g->beta != 0.0f && s->inputs < s->d)
        s->inputs = s->d;
    return !__builtin_add_overflow(s->inputs, s->d, &s->all) && !__builtin_add_overflow(s->all, s->bgrad, &s->all) &&
           !__builtin_add_overflow(s->all, s->aux, &s->all);
}

/* C may be D or lie elsewhere, which are two plans. */
static tlob_status run_on(tlob_stream *stream, const tlob_gemm *g, const scratch *s, char *at) {
    tlob_gemm_operands x = {
        .a = (float *)at, .b = (float *)at, .c = (float *)at, .bias = (float *)at, .d = (float *)(at + s->inputs),
        .bgrad = (float *)(at + s->inputs + s->d), .aux = at + s->inputs + s->d + s->bgrad,
    };
    tlob_status status = tlob_gemm_run(stream, g, &x);
    x.c = x.d;
    if (status == TLOB_OK && g->beta != 0.0f)
        status = tlob_gemm_run(stream, g, &x);
    return status;
}

static tlob_status warm_one(tlob_stream *stream, const tlob_gemm *g) {
    scratch s;
    tlob_status status = tlob_gemm_check(g);
    if (status != TLOB_OK)
        return status;
    if (!measure(g, &s))
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "tlob_warm", "its operands have more than 2^63 bytes");
    const size_t bytes = s.all > 0 ? (size_t)s.all : 1;
    tlob_buffer *buffer = NULL;
    status = tlob_buffer_create(stream->ctx, bytes, &buffer);
    if (status == TLOB_OK)
        status = tlob_fill(stream, tlob_buffer_data(buffer), 0, bytes);
    if (status == TLOB_OK)
        status = run_on(stream, g, &s, tlob_buffer_data(buffer));
    if (status == TLOB_OK)
        status = tlob_stream_sync(stream);
    tlob_buffer_destroy(&buffer); /* waits for what a failure has left under way */
    return status;
}

tlob_status tlob_warm(tlob_stream *stream, const tlob_gemm *problems, int64_t count) {
    const char *where = "tlob_warm";
    tlob_status status = tlob_stream_check(stream, where);
    if (status != TLOB_OK)
        return status;
    if (count < 0 || (count > 0 && !problems))
        return count < 0 ? tlob_fail(TLOB_ERR_ARGUMENT, where, "count is %" PRId64 ", must be at least 0", count)
                         : tlob_fail(TLOB_ERR_ARGUMENT, where, "problems is NULL");
    status = tlob_refuse_capture(stream->ctx, stream->cuda_stream, where, "warm it before the capture begins");
    if (status == TLOB_OK)
        status = load_kernels(stream->ctx);
    for (int64_t i = 0; i < count && status == TLOB_OK; i++)
        if ((status = warm_one(stream, &problems[i])) != TLOB_OK)
            tlob_fail_in("problem %" PRId64 " of tlob_warm: ", i);
    return status;
}

/* --- graphs ---------------------------------------------------------------------------------------------------- */

struct tlob_graph {
    tlob_stream *stream; /* of the capture: a reference */
    void *exec;
    void *event; /* orders a launch on another stream with the work of this one */
};

static tlob_status check_capture(const tlob_stream *stream, const char *where) {
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK && !stream->ctx->space->capture_begin)
        return tlob_fail(TLOB_ERR_UNSUPPORTED, where,
                         "a host context has nothing to capture: its calls run at once; call them again instead");
    return status;
}

tlob_status tlob_graph_begin(tlob_stream *stream) {
    const char *where = "tlob_graph_begin";
    tlob_status status = check_capture(stream, where);
    if (status != TLOB_OK)
        return status;
    if (!stream->cuda_stream)
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "CUDA cannot capture the default stream; make one with tlob_stream_create");
    if ((status = load_kernels(stream->ctx)) != TLOB_OK)
        return status;
    void *previous;
    if ((status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    const tlob_space *space = stream->ctx->space;
    if (space->capturing(stream->cuda_stream))
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "the stream is being captured already; end that capture first");
    else
        status = tlob_fail_cuda(space, space->capture_begin(stream->cuda_stream), "cudaStreamBeginCapture");
    tlob_leave(stream->ctx, previous);
    if (status == TLOB_OK)
        stream->capturing = true;
    return status;
}

/* With the device current. What was made is in the graph, if only in part. */
static tlob_status end_capture(tlob_stream *stream, tlob_graph *graph) {
    const tlob_space *space = stream->ctx->space;
    const char *call = NULL;
    int code = space->capture_end(stream->cuda_stream, graph ? &graph->exec : NULL, &call);
    stream->capturing = code && space->capturing(stream->cuda_stream); /* it was begun on another thread, and goes on */
    if (!graph)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "tlob_graph_end", "%zu bytes for a graph", sizeof(*graph));
    tlob_status status = tlob_fail_cuda(space, code, call);
    return status == TLOB_OK ? tlob_fail_cuda(space, space->event_create(&graph->event), "cudaEventCreateWithFlags")
                             : status;
}

tlob_status tlob_graph_end(tlob_stream *stream, tlob_graph **out) {
    const char *where = "tlob_graph_end";
    if (!out)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "graph is NULL");
    *out = NULL;
    tlob_status status = check_capture(stream, where);
    if (status != TLOB_OK)
        return status;
    if (!stream->capturing)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "tlob_graph_begin has not begun a capture of the stream");
    tlob_visit visit;
    if ((status = tlob_enter_cold(stream->ctx, &visit)) != TLOB_OK)
        return status;
    tlob_graph *graph = calloc(1, sizeof(*graph));
    status = end_capture(stream, graph);
    tlob_leave_cold(stream->ctx, &visit);
    if (graph) {
        graph->stream = stream;
        tlob_stream_ref(stream);
    }
    if (status != TLOB_OK)
        tlob_graph_destroy(&graph);
    *out = graph;
    return status;
}

/* With the device current. Between streams that differ, each waits for what the other has to do with the workspace. */
static tlob_status launch(const tlob_graph *graph, tlob_stream *stream) {
    const tlob_space *space = stream->ctx->space;
    struct CUstream_st *home = graph->stream->cuda_stream, *cuda_stream = stream->cuda_stream;
    const bool elsewhere = stream != graph->stream;
    tlob_status status = TLOB_OK;
    if (space->capturing(cuda_stream) || (elsewhere && space->capturing(home)))
        return tlob_fail(TLOB_ERR_NOT_WARM, "tlob_graph_launch",
                         "the stream of the launch, or that of the graph, is being captured: launch after the capture");
    if (elsewhere)
        status = tlob_fail_cuda(space, space->event_record(graph->event, home), "cudaEventRecord");
    if (elsewhere && status == TLOB_OK)
        status = tlob_fail_cuda(space, space->stream_wait(cuda_stream, graph->event), "cudaStreamWaitEvent");
    if (status == TLOB_OK)
        status = tlob_fail_cuda(space, space->graph_launch(graph->exec, cuda_stream), "cudaGraphLaunch");
    if (elsewhere && status == TLOB_OK)
        status = tlob_fail_cuda(space, space->event_record(graph->event, cuda_stream), "cudaEventRecord");
    if (elsewhere && status == TLOB_OK)
        status = tlob_fail_cuda(space, space->stream_wait(home, graph->event), "cudaStreamWaitEvent");
    return status;
}

tlob_status tlob_graph_launch(tlob_graph *graph, tlob_stream *stream) {
    const char *where = "tlob_graph_launch";
    if (!graph)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "graph is NULL");
    tlob_status status = tlob_stream_check(graph->stream, where);
    if (status == TLOB_OK)
        status = tlob_stream_check_in(stream, graph->stream->ctx, where);
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    status = launch(graph, stream);
    tlob_leave(stream->ctx, previous);
    return status;
}

void tlob_graph_destroy(tlob_graph **ptr) {
    if (!ptr || !*ptr)
        return;
    tlob_graph *graph = *ptr;
    *ptr = NULL;
    const tlob_context *ctx = graph->stream->ctx;
    tlob_visit visit;
    if (tlob_enter_to_free(ctx, &visit)) {
        if (graph->exec)
            ctx->space->graph_destroy(graph->exec);
        if (graph->event)
            ctx->space->event_destroy(graph->event);
        tlob_leave_cold(ctx, &visit);
    }
    tlob_stream_close(&graph->stream);
    free(graph);
}
