/*
 * A backend of one's own: three naive loops on host memory, without epilogues but a bias, chosen by a policy.
 *
 *     cc own_backend.c $(pkg-config --cflags --libs tlob)
 */
#include <stdio.h>

#include <tlob/backend.h>
#include <tlob/tlob.h>

/* D = alpha op(A) op(B) + beta C + bias, for every matrix of the batch. The core has checked the problem. */
static TLOB_GEMM_FN(multiply) {
    (void)lane;
    const tlob_gemm *g = gemm;
    for (int64_t p = 0; p < g->batch; p++) {
        const float *a = x->a + p * (g->batch > 1 ? g->stride_a : 0), *b = x->b + p * (g->batch > 1 ? g->stride_b : 0);
        int64_t at = p * (g->batch > 1 ? g->stride_c : 0), bias = p * (g->batch > 1 ? g->stride_bias : 0);
        for (int64_t j = 0; j < g->n; j++)
            for (int64_t i = 0; i < g->m; i++) {
                double sum = 0;
                for (int64_t l = 0; l < g->k; l++)
                    sum += (double)a[g->transa == TLOB_OP_N ? i + l * g->lda : l + i * g->lda] *
                           b[g->transb == TLOB_OP_N ? l + j * g->ldb : j + l * g->ldb];
                sum *= g->alpha;
                if (g->beta != 0) /* C may be absent, or hold NaN, where beta is 0 */
                    sum += (double)g->beta * x->c[at + i + j * g->ldc];
                if (g->epilogue == TLOB_EPILOGUE_BIAS)
                    sum += x->bias[bias + i];
                x->d[at + i + j * g->ldc] = (float)sum;
            }
    }
    return TLOB_OK;
}

/* These loops need no handle, so a lane is nothing. */
static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
}

static const tlob_backend_ops naive = {
    .api = TLOB_BACKEND_API,
    .name = "naive",
    .caps =
        {
            .memory = TLOB_MEMORY_HOST,
            .computes = 1u << TLOB_COMPUTE_FP32,
            .epilogues = 1u << TLOB_EPILOGUE_NONE | 1u << TLOB_EPILOGUE_BIAS,
            .max_batch = INT64_MAX,
        },
    .open = open_lane,
    .close = close_lane,
    .sgemm = multiply,
    .sgemm_strided_batched = multiply,
    .matmul_bias = multiply,
};

static int fail(void) {
    fprintf(stderr, "%s\n", tlob_last_error()->message);
    return 1;
}

static void print(const tlob_explanation *e) {
    printf("%s runs it (%s), numerics %s\n", e->choice.backend, e->choice.reason, tlob_compute_name(e->compute));
    for (int i = 0; i < e->candidates; i++)
        printf("  %-15s %-8s %s\n", e->candidate[i].backend, e->candidate[i].able ? "able" : "not able",
               e->candidate[i].why);
}

int main(void) {
    const tlob_backend_ops *const rows[] = {&naive};
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.backends = rows;
    params.n_backends = 1;
    tlob_context *ctx;
    if (tlob_policy_parse("fixed:naive", &params.policy) || tlob_context_create(&ctx, &params))
        return fail();
    tlob_stream *stream;
    if (tlob_stream_open(ctx, NULL, &stream))
        return fail();

    const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, bias[] = {10, 20}; /* column by column */
    float d[4];
    tlob_gemm gemm = tlob_gemm_init(2, 2, 2);
    gemm.epilogue = TLOB_EPILOGUE_BIAS;
    tlob_explanation explanation;
    if (tlob_gemm_explain(stream, &gemm, NULL, &explanation) ||
        tlob_gemm_run(stream, &gemm, &(tlob_gemm_operands){.a = a, .b = b, .d = d, .bias = bias}))
        return fail();
    print(&explanation);
    printf("%g %g\n%g %g\n", (double)d[0], (double)d[2], (double)d[1], (double)d[3]);

    gemm.epilogue = TLOB_EPILOGUE_GELU_BIAS; /* what it cannot do is a status with a reason, and no more */
    const tlob_gemm_operands x = {.a = a, .b = b, .d = d, .bias = bias};
    if (tlob_gemm_run(stream, &gemm, &x) != TLOB_ERR_UNSUPPORTED)
        return fail();
    printf("%s\n", tlob_last_error()->message);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return d[0] == 33 && d[3] == 66 ? 0 : 1; /* 1*5 + 3*6 + 10, and 2*7 + 4*8 + 20 */
}
