// What the setting `deterministic` costs cublaslt: the same products in two contexts, without it and with it.
#include "cli/bench.h"

// A product, packed; a batch shares B.
typedef struct shape {
    const char *name;
    tlob_op transa, transb;
    int64_t m, n, k, batch;
    bool bias;
} shape;

static const shape shapes[] = {
    // a block, 32 -> 16, on 256 samples
    {"qkv", TLOB_OP_N, TLOB_OP_N, 16, 256, 32, 3, false},
    {"o", TLOB_OP_N, TLOB_OP_N, 16, 256, 16, 1, false},
    {"do", TLOB_OP_T, TLOB_OP_N, 16, 256, 16, 1, false},
    {"dw_o", TLOB_OP_N, TLOB_OP_T, 16, 16, 256, 1, false},
    {"dw_qkv", TLOB_OP_N, TLOB_OP_T, 16, 32, 256, 3, false},
    {"dx", TLOB_OP_T, TLOB_OP_N, 32, 256, 16, 1, false},
    // and on 65536
    {"qkv", TLOB_OP_N, TLOB_OP_N, 16, 65536, 32, 3, false},
    {"o", TLOB_OP_N, TLOB_OP_N, 16, 65536, 16, 1, false},
    {"do", TLOB_OP_T, TLOB_OP_N, 16, 65536, 16, 1, false},
    {"dw_o", TLOB_OP_N, TLOB_OP_T, 16, 16, 65536, 1, false},
    {"dw_qkv", TLOB_OP_N, TLOB_OP_T, 16, 32, 65536, 3, false},
    {"dx", TLOB_OP_T, TLOB_OP_N, 32, 65536, 16, 1, false},
    // multi-head attention of dim 256, on 4096 tokens
    {"mha_in", TLOB_OP_T, TLOB_OP_N, 768, 4096, 256, 1, true},
    {"mha_out", TLOB_OP_T, TLOB_OP_N, 256, 4096, 256, 1, true},
    {"mha_do", TLOB_OP_N, TLOB_OP_N, 256, 4096, 256, 1, false},
    {"mha_dw_out", TLOB_OP_N, TLOB_OP_T, 256, 256, 4096, 1, false},
    {"mha_dw_in", TLOB_OP_N, TLOB_OP_T, 256, 768, 4096, 1, false},
    {"mha_dx", TLOB_OP_N, TLOB_OP_N, 256, 4096, 768, 1, false},
    {"square", TLOB_OP_N, TLOB_OP_N, 128, 128, 128, 1, false},
    {"square", TLOB_OP_N, TLOB_OP_N, 512, 512, 512, 1, false},
    {"square", TLOB_OP_N, TLOB_OP_N, 1024, 1024, 1024, 1, false},
    {"square", TLOB_OP_N, TLOB_OP_N, 2048, 2048, 2048, 1, false},
};

// A context with the setting, and its stream: the one that is measured on.
typedef struct side {
    tlob_context *ctx;
    tlob_stream *stream;
} side;

typedef struct product {
    tlob_stream *stream;
    tlob_gemm gemm;
    tlob_gemm_operands x;
} product;

static tlob_status run_product(const void *user, tlob_stream *stream) {
    (void)stream; // the same CUDA stream, in the context of `bench`
    const product *p = user;
    return tlob_gemm_run_on(p->stream, "cublaslt", &p->gemm, &p->x);
}

static bool open_side(const bench *b, tlob_switch deterministic, side *s) {
    cli_context_options options = b->options->context;
    options.params.deterministic = deterministic;
    s->ctx = cli_context_create(&options);
    if (!s->ctx)
        return false;
    if (!tlob_stream_open(s->ctx, bench_cuda_stream(b->cuda), &s->stream))
        return true;
    cli_tlob_error("bench");
    return false;
}

static void close_side(side *s) {
    tlob_stream_close(&s->stream);
    tlob_context_destroy(&s->ctx);
}

static tlob_gemm gemm_of(const shape *s) {
    tlob_gemm gemm = tlob_gemm_init(s->m, s->n, s->k);
    gemm.transa = s->transa;
    gemm.transb = s->transb;
    gemm.lda = s->transa == TLOB_OP_T ? s->k : s->m;
    gemm.ldb = s->transb == TLOB_OP_T ? s->n : s->k;
    gemm.batch = s->batch;
    gemm.stride_a = s->m * s->k;
    gemm.stride_c = s->m * s->n;
    gemm.epilogue = s->bias ? TLOB_EPILOGUE_BIAS : TLOB_EPILOGUE_NONE;
    return gemm;
}

// Samples of the block, tokens, or the size of a square.
static int64_t largest(const shape *s) {
    int64_t size = s->m > s->n ? s->m : s->n;
    return size > s->k ? size : s->k;
}

static bool compare_sides(const bench *b, const shape *s, const side sides[2]) {
    static const char *const names[] = {"off", "on"};
    tlob_buffer *x = bench_data(b, s->batch * s->m * s->k, 0), *y = bench_data(b, s->k * s->n, 1);
    tlob_buffer *d = bench_data(b, s->batch * s->m * s->n, 2), *bias = bench_data(b, s->m, 3);
    bool good = x && y && d && bias;
    if (good) {
        product products[2];
        for (int i = 0; i < 2; i++)
            products[i] = (product){sides[i].stream,
                                    gemm_of(s),
                                    {.a = tlob_buffer_data(x),
                                     .b = tlob_buffer_data(y),
                                     .d = tlob_buffer_data(d),
                                     .bias = s->bias ? tlob_buffer_data(bias) : NULL}};
        const bench_work works[] = {{run_product, &products[0]}, {run_product, &products[1]}};
        const int64_t n = largest(s);
        good = bench_compare_in(b, s->name, n, BENCH_GRAPH, works, names, n > 4096 ? 5 : 20);
    }
    tlob_buffer_destroy(&bias);
    tlob_buffer_destroy(&d);
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    return good;
}

bool bench_determinism(bench *b) {
    side sides[2] = {0};
    bool good = open_side(b, TLOB_SWITCH_OFF, &sides[0]) && open_side(b, TLOB_SWITCH_ON, &sides[1]);
    for (size_t i = 0; good && i < sizeof shapes / sizeof *shapes; i++)
        good = compare_sides(b, &shapes[i], sides);
    close_side(&sides[1]);
    close_side(&sides[0]);
    return good;
}
