// The three projections of a TLOB block, as one strided-batched call and as three.
#include "cli/bench.h"

#define D_IN  32
#define D_OUT 16

typedef struct products {
    tlob_gemm gemm;
    const float *a, *b;
    float *d;
} products;

static tlob_status run_batched(const void *user, tlob_stream *stream) {
    const products *p = user;
    return tlob_gemm_run(stream, &p->gemm, &(tlob_gemm_operands){.a = p->a, .b = p->b, .d = p->d});
}

static tlob_status run_single(const void *user, tlob_stream *stream) {
    const products *p = user;
    tlob_gemm gemm = p->gemm;
    gemm.batch = 1;
    tlob_status status = TLOB_OK;
    for (int64_t i = 0; i < p->gemm.batch && !status; i++) {
        tlob_gemm_operands x = {
            .a = p->a + i * gemm.stride_a, .b = p->b + i * gemm.stride_b, .d = p->d + i * gemm.stride_c};
        status = tlob_gemm_run(stream, &gemm, &x);
    }
    return status;
}

static bool compare_products(const bench *b, const char *what, int64_t n, const products *p) {
    static const char *const names[] = {"one_call", "three_calls"};
    const bench_work works[] = {{run_batched, p}, {run_single, p}};
    return bench_compare(b, what, n, works, names, n > 4096 ? 5 : 20);
}

static bool bench_qkv_at(const bench *b, int64_t n) {
    tlob_buffer *x = bench_data(b, D_IN * n, 0), *w = bench_data(b, 3 * D_OUT * D_IN, 1),
                *q = bench_data(b, 3 * D_OUT * n, 2);
    bool good = x && w && q;
    if (good) {
        products forward = {tlob_gemm_init(D_OUT, n, D_IN), tlob_buffer_data(w), tlob_buffer_data(x),
                            tlob_buffer_data(q)};
        forward.gemm.batch = 3;
        forward.gemm.stride_a = D_OUT * D_IN;
        forward.gemm.stride_c = D_OUT * n;
        products backward = {tlob_gemm_init(D_OUT, D_IN, n), tlob_buffer_data(q), tlob_buffer_data(x),
                             tlob_buffer_data(w)};
        backward.gemm.transb = TLOB_OP_T;
        backward.gemm.ldb = D_IN;
        backward.gemm.batch = 3;
        backward.gemm.stride_a = D_OUT * n;
        backward.gemm.stride_c = D_OUT * D_IN;
        good = compare_products(b, "qkv_forward", n, &forward) && compare_products(b, "qkv_dw", n, &backward);
    }
    tlob_buffer_destroy(&q);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&x);
    return good;
}

bool bench_qkv(bench *b) {
    static const int64_t sizes[] = {64, 256, 1024, 4096, 65536};
    for (int i = 0; i < (b->cuda ? 5 : 4); i++)
        if (!bench_qkv_at(b, sizes[i]))
            return false;
    return true;
}
