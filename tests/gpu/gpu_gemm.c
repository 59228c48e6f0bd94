/* Products on a CUDA device: both GPU backends against the oracle, in both modes, and the traps of their libraries. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "parity/parity.h"
#include "tests/gpu/gpu.h"

static const char *const backends[] = {"cublas_classic", "cublaslt"};
static const tlob_compute modes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};

/* A sanitizer makes every call tens of times slower: fewer rounds show it the same code. */
static int rounds(int usual) {
    return getenv("TLOB_SANITIZED") ? usual / 20 + 2 : usual;
}

/** A stream of a CUDA context, and the oracle. */
typedef struct world {
    tlob_context *ctx, *host;
    tlob_stream *stream, *oracle;
} world;

static world open_world(size_t workspace_bytes) {
    world w;
    tlob_context_params params = tlob_context_params_default();
    params.workspace_bytes = workspace_bytes;
    OK(tlob_context_create(&w.ctx, &params));
    OK(tlob_stream_create(w.ctx, &w.stream));
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    OK(tlob_context_create(&w.host, &params));
    OK(tlob_stream_open(w.host, NULL, &w.oracle));
    return w;
}

static void close_world(world *w) {
    tlob_stream_close(&w->stream);
    tlob_stream_close(&w->oracle);
    tlob_context_destroy(&w->ctx);
    tlob_context_destroy(&w->host);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "an error was left behind");
}

/* A buffer of `count` floats, with the first `given` of them from `data`, or all of them NaN. */
static float *floats(tlob_stream *stream, int64_t count, const float *data, int64_t given, tlob_buffer **buffer) {
    size_t bytes = (size_t)count * sizeof(float);
    OK(tlob_buffer_create(tlob_stream_context(stream), bytes, buffer));
    OK(tlob_fill(stream, tlob_buffer_data(*buffer), 0xff, bytes));
    if (data)
        OK(tlob_upload(stream, tlob_buffer_data(*buffer), data, (size_t)given * sizeof(float)));
    return tlob_buffer_data(*buffer);
}

static void fill(float *x, int64_t count, parity_fill kind, uint32_t salt) {
    for (int64_t i = 0; i < count; i++)
        x[i] = parity_fill_value(kind, 1, salt, i, count);
}

/* --- parity ---------------------------------------------------------------------------------------------------- */

/** How a sweep went. */
typedef struct tally {
    int ran, failed;
    double worst, normalised; /**< the largest error, absolute and on the natural scale */
    char first[768];          /**< the message of the first failure */
} tally;

static void run_one(const world *w, const char *backend, tlob_compute mode, const parity_case *c, tally *t) {
    const char *text = getenv("TLOB_TEST_SEED");
    parity_result result;
    t->ran++;
    if (parity_run(w->stream, w->oracle, backend, c, mode, text ? strtoull(text, NULL, 10) : 1, &result)) {
        t->worst = fmax(t->worst, result.error);
        t->normalised = fmax(t->normalised, result.normalised);
        return;
    }
    cr_log_error("%s", result.message);
    if (!t->failed++)
        memcpy(t->first, result.message, sizeof(t->first));
}

static tally sweep(const world *w, const char *backend, tlob_compute mode, const char *filter) {
    tally t = {0};
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        if (parity_case_matches(filter, c.name))
            run_one(w, backend, mode, &c, &t);
    }
    cr_assert_gt(t.ran, 0, "no case matches '%s'", filter);
    return t;
}

#define PASSES(tally_)                                                                                                 \
    do {                                                                                                               \
        tally t_ = (tally_);                                                                                           \
        cr_assert_eq(t_.failed, 0, "%d of %d cases; the first: %s", t_.failed, t_.ran, t_.first);                      \
    } while (0)

static void whole_table(const char *backend, tlob_compute mode) {
    world w = open_world(0);
    int before, after;
    cr_assert_eq(cudaGetDevice(&before), cudaSuccess);
    PASSES(sweep(&w, backend, mode, getenv("TLOB_TEST_CASE")));
    cr_assert_eq(cudaGetDevice(&after), cudaSuccess);
    cr_assert_eq(before, after, "the caller's device is as it was");
    close_world(&w);
}

Test(gpu_gemm, the_table_on_classic_in_fp32) {
    NEED_GPU();
    whole_table("cublas_classic", TLOB_COMPUTE_FP32);
}

Test(gpu_gemm, the_table_on_classic_in_tf32) {
    NEED_GPU();
    whole_table("cublas_classic", TLOB_COMPUTE_TF32);
}

Test(gpu_gemm, the_table_on_lt_in_fp32) {
    NEED_GPU();
    whole_table("cublaslt", TLOB_COMPUTE_FP32);
}

Test(gpu_gemm, the_table_on_lt_in_tf32) {
    NEED_GPU();
    whole_table("cublaslt", TLOB_COMPUTE_TF32);
}

/* The products of TLOB on order flow at batch 64: 2e-3 absolute in TF32 (the cases bring that limit), 2e-5 in FP32. */
Test(gpu_gemm, the_kinds_of_tlob_at_batch_64) {
    NEED_GPU();
    world w = open_world(0);
    for (int b = 0; b < 2; b++) {
        tally tf32 = sweep(&w, backends[b], TLOB_COMPUTE_TF32, "*/n64");
        tally fp32 = sweep(&w, backends[b], TLOB_COMPUTE_FP32, "*/n64");
        cr_assert_geq(tf32.ran, 12);
        PASSES(tf32);
        PASSES(fp32);
        cr_assert_leq(tf32.worst, 2e-3);
        cr_assert_leq(fp32.normalised, 2e-5);
        cr_log_info("%s: TF32 within %.3g absolute, FP32 within %.3g relative", backends[b], tf32.worst,
                    fp32.normalised);
    }
    close_world(&w);
}

/* Known trap: the two libraries' paths differ with the workspace; the answer must not. */
Test(gpu_gemm, small_workspaces) {
    NEED_GPU();
    for (size_t mib = 1; mib <= 4; mib += 3) {
        world w = open_world(mib << 20);
        for (int b = 0; b < 2; b++)
            for (int m = 0; m < 2; m++)
                PASSES(sweep(&w, backends[b], modes[m], "deep/*"));
        close_world(&w);
    }
}

/* --- alignment ------------------------------------------------------------------------------------------------- */

/* Known trap: told nothing, cublasLt takes every operand to be aligned to 256 bytes. */
Test(gpu_gemm, every_combination_of_operand_offsets) {
    NEED_GPU();
    static const int offsets[] = {0, 1, 2, 4, 16}; /* 0, 4, 8, 16, 64 bytes */
    world w = open_world(0);
    for (int b = 0; b < 2; b++)
        for (int m = 0; m < 2; m++) {
            tally t = {0};
            for (int i = 0; i < 125; i++) {
                parity_case c = {.name = "offsets of a, b and c", .gemm = tlob_gemm_init(64, 96, 32)};
                c.gemm.beta = -0.5f;
                c.offset_a = offsets[i % 5];
                c.offset_b = offsets[i / 5 % 5];
                c.offset_c = c.offset_d = offsets[i / 25];
                c.apart = i % 2;
                run_one(&w, backends[b], modes[m], &c, &t);
            }
            PASSES(t);
        }
    close_world(&w);
}

/* Known trap: a bias that is a slice faults where the algorithm was chosen for an aligned one. */
Test(gpu_gemm, a_bias_at_every_offset_on_one_stream) {
    NEED_GPU();
    static const int offsets[] = {0, 1, 2, 3, 2, 1, 0};
    world w = open_world(0);
    for (int b = 0; b < 2; b++)
        for (int m = 0; m < 2; m++) {
            tally t = {0};
            for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
                parity_case c = {.name = "offset of the bias", .gemm = tlob_gemm_init(64, 64, 64), .c = PARITY_NAN};
                c.gemm.epilogue = TLOB_EPILOGUE_BIAS;
                c.offset_bias = offsets[i];
                run_one(&w, backends[b], modes[m], &c, &t);
            }
            PASSES(t);
        }
    close_world(&w);
}

/* --- size ------------------------------------------------------------------------------------------------------ */

/* Columns of D that are looked at: the first, the last, and some between. */
static bool looked_at(int64_t col, int64_t n) {
    return col < 8 || col >= n - 8 || col % 9973 == 0;
}

static void check_columns(const tlob_gemm *g, const tlob_gemm_operands *host, const float *d) {
    parity_expectation column[64];
    for (int64_t j = 0; j < g->n; j++) {
        if (!looked_at(j, g->n))
            continue;
        parity_expect(g, host, 0, j, column);
        for (int64_t i = 0; i < g->m; i++) {
            double error = (double)fabsl(d[j * g->m + i] - column[i].value);
            cr_assert_leq(error, parity_bound(g, TLOB_MEMORY_CUDA, column[i].scale),
                          "%lld x %lld x %lld: D[%lld, %lld]", (long long)g->m, (long long)g->n, (long long)g->k,
                          (long long)i, (long long)j);
        }
    }
}

/* Known trap: few rows, many columns and a bias: right when small, an execution failure at 655360 columns. */
Test(gpu_gemm, few_rows_and_a_million_columns_with_a_bias) {
    NEED_GPU();
    static const int sizes[] = {10, 16, 40, 10, 32, 40}; /* three m, three k */
    static const int ns[] = {65535, 65536, 655360, 1048576};
    const int64_t most = (int64_t)40 * 1048576;
    world w = open_world(0);
    float *b = malloc((size_t)most * sizeof(float)), *d = malloc((size_t)(most + 64) * sizeof(float)), a[1600],
          bias[64];
    const int64_t tile = 1000003; /* a prime: no column is like another near it */
    fill(b, tile, PARITY_UNIFORM, 1);
    for (int64_t i = tile; i < most; i++)
        b[i] = b[i - tile];
    fill(a, 1600, PARITY_UNIFORM, 0);
    fill(bias, 64, PARITY_UNIFORM, 4);

    tlob_buffer *buffers[4];
    tlob_gemm_operands host = {.a = a, .b = b, .bias = bias};
    tlob_gemm_operands x = {.a = floats(w.stream, 1600, a, 1600, &buffers[0]),
                            .b = floats(w.stream, most, b, most, &buffers[1]),
                            .bias = floats(w.stream, 64, bias, 64, &buffers[2]),
                            .d = floats(w.stream, most + 64, NULL, 0, &buffers[3])};
    int n_sizes = getenv("TLOB_SANITIZED") ? 2 : 4;
    for (int i = 0; i < 9 * n_sizes; i++)
        for (int run = 0; run < 4; run++) {
            tlob_gemm g = tlob_gemm_init(sizes[i % 3], ns[i / 9], sizes[3 + i / 3 % 3]);
            g.epilogue = TLOB_EPILOGUE_BIAS;
            g.compute = modes[run % 2];
            size_t bytes = (size_t)(g.m * g.n + 64) * sizeof(float);
            OK(tlob_fill(w.stream, x.d, 0xff, bytes));
            OK(tlob_gemm_run_on(w.stream, backends[run / 2], &g, &x));
            OK(tlob_download(w.stream, d, x.d, bytes));
            check_columns(&g, &host, d);
            for (int64_t p = g.m * g.n; p < g.m * g.n + 64; p++)
                cr_assert(isnan(d[p]), "%s wrote past the end of D", backends[run / 2]);
        }
    for (int i = 0; i < 4; i++)
        tlob_buffer_destroy(&buffers[i]);
    free(b);
    free(d);
    close_world(&w);
}

/* A batch larger than any limit of 2^16 or 2^17, with and without a bias. */
Test(gpu_gemm, batches_of_131073) {
    NEED_GPU();
    world w = open_world(0);
    for (int i = 0; i < 8; i++) {
        parity_case c = {.name = "131073 matrices", .gemm = tlob_gemm_init(3, 2, 2), .c = PARITY_NAN};
        c.gemm.batch = 131073;
        c.gemm.stride_a = c.gemm.stride_c = 6;
        c.gemm.stride_b = 4;
        c.gemm.epilogue = i / 4 ? TLOB_EPILOGUE_BIAS : TLOB_EPILOGUE_NONE;
        tally t = {0};
        run_one(&w, backends[i % 2], modes[i / 2 % 2], &c, &t);
        PASSES(t);
    }
    close_world(&w);
}

/* Known traps: offsets beyond 2^31 elements, in a matrix and in a column slice of one. Right, or an error that says so.
 */
Test(gpu_gemm, operands_that_span_more_than_two_to_the_31) {
    NEED_GPU();
    enum { M = 9, N = 5, K = 64 };
    const int64_t ld = (int64_t)1 << 28, span = (M - 1) * ld + K;
    tlob_device_info info;
    OK(tlob_device_get_info(0, &info));
    if (info.memory_bytes < (size_t)16 << 30)
        cr_skip_test("needs 16 GiB of device memory");
    world w = open_world(0);
    float columns[M * K], b[K * N], d[M * N];
    tlob_buffer *buffers[3];
    fill(columns, M * K, PARITY_UNIFORM, 0);
    fill(b, K * N, PARITY_UNIFORM, 1);
    OK(tlob_buffer_create(w.ctx, (size_t)span * sizeof(float), &buffers[0]));
    float *a = tlob_buffer_data(buffers[0]);
    for (int i = 0; i < M; i++)
        OK(tlob_upload(w.stream, a + i * ld, columns + i * K, K * sizeof(float)));
    tlob_gemm_operands host = {.a = columns, .b = b};
    tlob_gemm_operands x = {.a = a,
                            .b = floats(w.stream, K * N, b, K * N, &buffers[1]),
                            .d = floats(w.stream, M * N, NULL, 0, &buffers[2])};
    for (int run = 0; run < 8; run++) {
        tlob_gemm g = tlob_gemm_init(M, run < 4 ? N : 1, K), packed;
        g.transa = TLOB_OP_T;
        g.lda = K;
        g.compute = modes[run % 2];
        packed = g;
        g.lda = ld;
        OK(tlob_fill(w.stream, x.d, 0xff, sizeof(d)));
        tlob_status status = tlob_gemm_run_on(w.stream, backends[run / 2 % 2], &g, &x);
        OK(tlob_download(w.stream, d, x.d, sizeof(d)));
        if (status == TLOB_OK)
            check_columns(&packed, &host, d);
        else
            cr_assert(status == TLOB_ERR_UNSUPPORTED || status == TLOB_ERR_BACKEND, "%s", tlob_last_error()->message);
    }
    for (int i = 0; i < 3; i++)
        tlob_buffer_destroy(&buffers[i]);
    close_world(&w);
}

/* --- numbers --------------------------------------------------------------------------------------------------- */

/* Known trap: TF32 where FP32 was asked for: 1024.5 * 1 becomes 1024 or 1025. */
Test(gpu_gemm, fp32_does_not_round_its_inputs) {
    NEED_GPU();
    world w = open_world(0);
    tlob_buffer *buffers[2];
    enum { N = 64 };
    float a[N * N], b[N * N], d[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = 1024.5f;
        b[i] = i % (N + 1) == 0; /* identity */
    }
    float *in = floats(w.stream, 2 * N * N, a, N * N, &buffers[0]);
    OK(tlob_upload(w.stream, in + N * N, b, sizeof(b)));
    tlob_gemm_operands x = {.a = in, .b = in + N * N, .d = floats(w.stream, N * N, NULL, 0, &buffers[1])};
    for (int run = 0; run < 8; run++) {
        int64_t n = run < 4 ? 1 : N;
        tlob_gemm g = tlob_gemm_init(n, n, n);
        g.lda = g.ldb = g.ldc = N;
        g.compute = modes[run % 2];
        OK(tlob_gemm_run_on(w.stream, backends[run / 2 % 2], &g, &x));
        OK(tlob_download(w.stream, d, x.d, sizeof(d)));
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                float value = d[i + j * N];
                cr_assert(g.compute == TLOB_COMPUTE_FP32 ? value == 1024.5f : fabsf(value - 1024.5f) <= 1,
                          "%s, %s, size %d: %.9g", backends[run / 2 % 2], tlob_compute_name(g.compute), (int)n,
                          (double)value);
            }
    }
    tlob_buffer_destroy(&buffers[0]);
    tlob_buffer_destroy(&buffers[1]);
    close_world(&w);
}

/* Known trap: a long sum that is split over the device, and added up in the order in which the parts happen to end. */
Test(gpu_gemm, the_same_bits_every_time) {
    NEED_GPU();
    enum { M = 16, N = 32, K = 65536 };
    world w = open_world(0);
    tlob_buffer *buffers[3];
    float *data = malloc((size_t)N * K * sizeof(float)), first[M * N], again[M * N];
    fill(data, (int64_t)N * K, PARITY_UNIFORM, 0);
    tlob_gemm_operands x = {.a = floats(w.stream, (int64_t)M * K, data, (int64_t)M * K, &buffers[0]),
                            .b = floats(w.stream, (int64_t)N * K, data, (int64_t)N * K, &buffers[1]),
                            .d = floats(w.stream, M * N, NULL, 0, &buffers[2])};
    tlob_gemm g = tlob_gemm_init(M, N, K);
    g.transb = TLOB_OP_T;
    g.ldb = N;
    for (int run = 0; run < 4; run++) {
        g.compute = modes[run % 2];
        for (int i = 0; i < rounds(100); i++) {
            OK(tlob_fill(w.stream, x.d, 0xff, sizeof(first)));
            OK(tlob_gemm_run_on(w.stream, backends[run / 2], &g, &x));
            OK(tlob_download(w.stream, i ? again : first, x.d, sizeof(first)));
            cr_assert(i == 0 || memcmp(first, again, sizeof(first)) == 0, "%s in %s, run %d", backends[run / 2],
                      tlob_compute_name(g.compute), i);
        }
    }
    for (int i = 0; i < 3; i++)
        tlob_buffer_destroy(&buffers[i]);
    free(data);
    close_world(&w);
}

/* One strided-batched product for Q, K and V against the three products that it stands for. */
Test(gpu_gemm, fused_qkv_is_three_products) {
    NEED_GPU();
    enum { D_IN = 32, D_OUT = 16, MOST = 256, W = D_OUT * D_IN };
    static const int ns[] = {1, 64, MOST};
    world w = open_world(0);
    tlob_buffer *buffers[4];
    static float weights[3 * W], in[D_IN * MOST], one[3 * D_OUT * MOST], three[3 * D_OUT * MOST];
    fill(weights, 3 * W, PARITY_WEIGHT, 0);
    fill(in, D_IN * MOST, PARITY_ORDER_FLOW, 1);
    float *weight = floats(w.stream, 3 * W, weights, 3 * W, &buffers[0]);
    float *x = floats(w.stream, D_IN * MOST, in, D_IN * MOST, &buffers[1]);
    float *fused = floats(w.stream, 3 * D_OUT * MOST, NULL, 0, &buffers[2]);
    float *single = floats(w.stream, 3 * D_OUT * MOST, NULL, 0, &buffers[3]);
    for (int run = 0; run < 12; run++) {
        int n = ns[run / 4], size = D_OUT * n;
        const char *backend = backends[run % 2];
        tlob_gemm g = tlob_gemm_init(D_OUT, n, D_IN), batch;
        g.compute = modes[run / 2 % 2];
        batch = g;
        batch.batch = 3;
        batch.stride_a = W;
        batch.stride_c = size;
        OK(tlob_gemm_run_on(w.stream, backend, &batch, &(tlob_gemm_operands){.a = weight, .b = x, .d = fused}));
        for (int p = 0; p < 3; p++)
            OK(tlob_gemm_run_on(w.stream, backend, &g,
                                &(tlob_gemm_operands){.a = weight + p * W, .b = x, .d = single + p * size}));
        OK(tlob_download(w.stream, one, fused, (size_t)(3 * size) * sizeof(float)));
        OK(tlob_download(w.stream, three, single, (size_t)(3 * size) * sizeof(float)));
        double worst = 0;
        for (int i = 0; i < 3 * size; i++)
            worst = fmax(worst, isnan(one[i]) ? INFINITY : fabs((double)one[i] - three[i]));
        cr_assert_leq(worst, g.compute == TLOB_COMPUTE_TF32 ? 2e-3 : 2e-5, "%s in %s, N %d: %g", backend,
                      tlob_compute_name(g.compute), n, worst);
    }
    for (int i = 0; i < 4; i++)
        tlob_buffer_destroy(&buffers[i]);
    close_world(&w);
}

/* --- warm calls and graphs ------------------------------------------------------------------------------------- */

static int64_t plan_misses(tlob_stream *stream) {
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    return stats.plan_misses;
}

Test(gpu_gemm, a_warm_call_asks_no_heuristic) {
    NEED_GPU();
    world w = open_world(0);
    tlob_buffer *buffer;
    float *p = floats(w.stream, 1 << 16, NULL, 0, &buffer);
    tlob_gemm shapes[4] = {tlob_gemm_init(16, 256, 32), tlob_gemm_init(64, 64, 64), tlob_gemm_init(5, 7, 11),
                           tlob_gemm_init(16, 64, 32)};
    shapes[1].epilogue = TLOB_EPILOGUE_BIAS;
    shapes[3].batch = 3;
    shapes[3].stride_a = 512;
    shapes[3].stride_c = 1024;
    int64_t cold = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++) {
            /* new places of the same alignment are no reason to ask again */
            tlob_gemm_operands x = {
                .a = p + 64 * round, .b = p + 16384, .d = p + 32768, .bias = p + 49152 + 64 * round};
            shapes[i].alpha = 1 + (float)round;
            OK(tlob_gemm_run_on(w.stream, "cublaslt", &shapes[i], &x));
        }
        if (round == 0)
            cold = plan_misses(w.stream);
    }
    cr_assert_eq(cold, 4);
    cr_assert_eq(plan_misses(w.stream), cold);
    OK(tlob_stream_sync(w.stream));
    tlob_buffer_destroy(&buffer);
    close_world(&w);
}

static cudaGraph_t end_capture(tlob_stream *stream) {
    cudaGraph_t graph;
    cr_assert_eq(cudaStreamEndCapture(tlob_stream_cuda(stream), &graph), cudaSuccess, "the capture was spoiled");
    return graph;
}

static void begin_capture(tlob_stream *stream) {
    cr_assert_eq(cudaStreamBeginCapture(tlob_stream_cuda(stream), cudaStreamCaptureModeThreadLocal), cudaSuccess);
}

/* Known trap: cuBLAS that lost its workspace puts allocations into graphs. */
static size_t kernels_of(cudaGraph_t graph) {
    cudaGraphNode_t nodes[64];
    size_t count = 64, kernels = 0;
    cr_assert_eq(cudaGraphGetNodes(graph, nodes, &count), cudaSuccess);
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        cr_assert_eq(cudaGraphNodeGetType(nodes[i], &type), cudaSuccess);
        cr_assert(type != cudaGraphNodeTypeMemAlloc && type != cudaGraphNodeTypeMemFree, "a graph that allocates");
        kernels += type == cudaGraphNodeTypeKernel;
    }
    return kernels;
}

/* Known trap: a cold product in a capture asks the heuristic, which fails there or spoils the capture. */
Test(gpu_gemm, a_cold_call_in_a_capture_is_refused_and_the_capture_survives) {
    NEED_GPU();
    world w = open_world(0);
    tlob_buffer *buffer;
    float *p = floats(w.stream, 3 * 4096, NULL, 0, &buffer);
    tlob_gemm warm = tlob_gemm_init(64, 64, 64), cold = tlob_gemm_init(63, 64, 64);
    tlob_gemm_operands x = {.a = p, .b = p + 4096, .d = p + 8192};
    OK(tlob_gemm_run_on(w.stream, "cublaslt", &warm, &x));
    OK(tlob_stream_sync(w.stream));
    int64_t misses = plan_misses(w.stream);
    begin_capture(w.stream);
    OK(tlob_gemm_run_on(w.stream, "cublaslt", &warm, &x));
    cr_assert_eq(tlob_gemm_run_on(w.stream, "cublaslt", &cold, &x), TLOB_ERR_NOT_WARM);
    cr_assert(tlob_last_error()->has_gemm && tlob_last_error()->gemm.m == 63);
    OK(tlob_gemm_run_on(w.stream, "cublaslt", &warm, &x));
    cudaGraph_t graph = end_capture(w.stream);
    cr_assert_geq(kernels_of(graph), 2);
    cr_assert_eq(plan_misses(w.stream), misses);
    cr_assert_eq(cudaGraphDestroy(graph), cudaSuccess);
    OK(tlob_gemm_run_on(w.stream, "cublaslt", &cold, &x));
    OK(tlob_stream_sync(w.stream));
    tlob_buffer_destroy(&buffer);
    close_world(&w);
}

/* A captured product replays on data that came after the capture: scalars and bias pointers were captured by value. */
static void capture_and_replay(const world *w, const char *backend, tlob_gemm g) {
    const int64_t size = 4096 * g.batch;
    float *data = malloc((size_t)size * 3 * sizeof(float)), *d = malloc((size_t)size * sizeof(float));
    tlob_buffer *buffer;
    float *p = floats(w->stream, 4 * size, NULL, 0, &buffer);
    tlob_gemm_operands x = {.a = p, .b = p + size, .c = p + 2 * size, .d = p + 3 * size};
    x.bias = g.epilogue == TLOB_EPILOGUE_BIAS ? p + 2 * size : NULL;
    OK(tlob_gemm_run_on(w->stream, backend, &g, &x));
    OK(tlob_stream_sync(w->stream));

    begin_capture(w->stream);
    OK(tlob_gemm_run_on(w->stream, backend, &g, &x));
    cudaGraph_t graph = end_capture(w->stream);
    cudaGraphExec_t exec;
    cr_assert_geq(kernels_of(graph), 1);
    cr_assert_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);

    for (uint32_t round = 0; round < 3; round++) {
        fill(data, 3 * size, PARITY_UNIFORM, 100 + round);
        OK(tlob_upload(w->stream, p, data, (size_t)size * 3 * sizeof(float)));
        OK(tlob_fill(w->stream, x.d, 0xff, (size_t)size * sizeof(float)));
        cr_assert_eq(cudaGraphLaunch(exec, tlob_stream_cuda(w->stream)), cudaSuccess);
        OK(tlob_download(w->stream, d, x.d, (size_t)size * sizeof(float)));
        tlob_gemm_operands host = {.a = data, .b = data + size, .c = data + 2 * size, .bias = data + 2 * size};
        parity_expectation column[64];
        for (int64_t at = 0; at < g.batch * g.n; at++) {
            parity_expect(&g, &host, at / g.n, at % g.n, column);
            for (int64_t i = 0; i < g.m; i++) {
                long double value = d[at / g.n * g.stride_c + at % g.n * g.ldc + i];
                cr_assert(fabsl(value - column[i].value) <= parity_bound(&g, TLOB_MEMORY_CUDA, column[i].scale),
                          "%s, replay %u: %g instead of %g", backend, round, (double)value, (double)column[i].value);
            }
        }
    }
    cr_assert_eq(cudaGraphExecDestroy(exec), cudaSuccess);
    cr_assert_eq(cudaGraphDestroy(graph), cudaSuccess);
    tlob_buffer_destroy(&buffer);
    free(data);
    free(d);
}

Test(gpu_gemm, a_captured_product_replays_right) {
    NEED_GPU();
    world w = open_world(0);
    for (int run = 0; run < 16; run++) {
        tlob_gemm g = tlob_gemm_init(run & 8 ? 64 : 16, 64, 32);
        g.compute = modes[run / 2 % 2];
        g.alpha = 1.5f;
        g.beta = -0.5f;
        if (run & 4)
            g.epilogue = TLOB_EPILOGUE_BIAS;
        else if (run & 8)
            g.batch = 3;
        g.stride_a = g.stride_b = g.stride_c = 4096;
        capture_and_replay(&w, backends[run % 2], g);
    }
    close_world(&w);
}

static size_t free_memory(void) {
    size_t available, total;
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaMemGetInfo(&available, &total), cudaSuccess);
    return available;
}

/* Far below one leak a round, and above what the driver takes in pieces of 2 MiB for its own ends. */
static void assert_no_growth(size_t before, int count, size_t bytes_each) {
    size_t after = free_memory(), limit = (size_t)count * bytes_each / 2 + ((size_t)6 << 20);
    size_t grown = before > after ? before - after : 0;
    cr_assert_lt(grown, limit, "%zu bytes less after %d rounds", grown, count);
}

/* Known trap: memory grows with each capture. */
Test(gpu_gemm, captures_leave_no_memory_behind) {
    NEED_GPU();
    world w = open_world(0);
    tlob_buffer *buffer;
    float *p = floats(w.stream, 3 * 65536, NULL, 0, &buffer);
    tlob_gemm g = tlob_gemm_init(16, 32, 4096); /* of the kind that uses a workspace; B is [32, 4096] */
    g.transb = TLOB_OP_T;
    g.ldb = 32;
    tlob_gemm_operands x = {.a = p, .b = p, .d = p + 2 * 65536}; /* 16 * 4096 and 32 * 4096 floats, then D */
    size_t before = 0;
    int count = rounds(200);
    for (int i = -10; i < count; i++) {
        if (i == 0)
            before = free_memory();
        const char *backend = backends[i & 1];
        if (i < 0) /* warm */
            OK(tlob_gemm_run_on(w.stream, backend, &g, &x));
        OK(tlob_stream_sync(w.stream));
        begin_capture(w.stream);
        OK(tlob_gemm_run_on(w.stream, backend, &g, &x));
        cudaGraph_t graph = end_capture(w.stream);
        cudaGraphExec_t exec;
        cr_assert_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        cr_assert_eq(cudaGraphLaunch(exec, tlob_stream_cuda(w.stream)), cudaSuccess);
        OK(tlob_stream_sync(w.stream));
        kernels_of(graph);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    }
    assert_no_growth(before, count, 64 << 10);
    tlob_buffer_destroy(&buffer);
    close_world(&w);
}

/* Known trap: a handle or workspace that is not given back. */
Test(gpu_gemm, contexts_leave_no_memory_behind) {
    NEED_GPU();
    size_t before = 0;
    int count = rounds(30);
    for (int i = -2; i < count; i++) {
        if (i == 0)
            before = free_memory();
        world w = open_world(0);
        for (int b = 0; b < 2; b++)
            PASSES(sweep(&w, backends[b], TLOB_COMPUTE_TF32, "tlob/q/n64"));
        close_world(&w);
    }
    assert_no_growth(before, count, 1 << 20);
}

/* --- threads --------------------------------------------------------------------------------------------------- */

/** One thread: D accumulates A B + bias, all whole numbers, on a stream of its own. */
typedef struct worker {
    pthread_t thread;
    tlob_stream *stream;
    float *p; /**< A, B, bias, D on the device */
    int number, times;
    tlob_status status;
    char message[512];
} worker;

enum { SIDE = 16, SQUARE = SIDE * SIDE };

static void *work(void *argument) {
    worker *me = argument;
    tlob_gemm g = tlob_gemm_init(SIDE, SIDE, SIDE);
    g.beta = 1;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    float *d = me->p + 3 * SQUARE;
    tlob_gemm_operands x = {.a = me->p, .b = me->p + SQUARE, .c = d, .d = d, .bias = me->p + 2 * SQUARE};
    for (int i = 0; i < me->times && me->status == TLOB_OK; i++) {
        g.compute = modes[i / 2 % 2];
        me->status = tlob_gemm_run_on(me->stream, backends[i % 2], &g, &x);
    }
    if (me->status == TLOB_OK)
        me->status = tlob_stream_sync(me->stream);
    if (me->status != TLOB_OK)
        memcpy(me->message, tlob_last_error()->message, sizeof(me->message));
    return NULL;
}

/* Known traps: thread 2 sets the stream of a shared handle between thread 1's two calls; the bias of another thread in
 * a shared descriptor. */
Test(gpu_gemm, two_threads_on_two_streams) {
    NEED_GPU();
    world w = open_world(0);
    worker workers[2] = {{.number = 0}, {.number = 1}};
    tlob_buffer *buffers[2];
    float in[2][4 * SQUARE] = {{0}}, out[SQUARE];
    for (int t = 0; t < 2; t++) {
        worker *me = &workers[t];
        OK(tlob_stream_create(w.ctx, &me->stream));
        fill(in[t], 3 * SQUARE, PARITY_INTEGER, (uint32_t)(50 + t));
        me->times = rounds(4000);
        me->p = floats(me->stream, 4 * SQUARE, in[t], 4 * SQUARE, &buffers[t]);
    }
    for (int t = 0; t < 2; t++)
        cr_assert_eq(pthread_create(&workers[t].thread, NULL, work, &workers[t]), 0);
    for (int t = 0; t < 2; t++)
        pthread_join(workers[t].thread, NULL);
    for (int t = 0; t < 2; t++) {
        worker *me = &workers[t];
        tlob_gemm g = tlob_gemm_init(SIDE, SIDE, SIDE);
        g.epilogue = TLOB_EPILOGUE_BIAS;
        tlob_gemm_operands host = {.a = in[t], .b = in[t] + SQUARE, .bias = in[t] + 2 * SQUARE};
        parity_expectation column[SIDE];
        cr_assert_eq(me->status, TLOB_OK, "thread %d: %s", t, me->message);
        OK(tlob_download(me->stream, out, me->p + 3 * SQUARE, sizeof(out)));
        for (int j = 0; j < SIDE; j++) {
            parity_expect(&g, &host, 0, j, column);
            for (int i = 0; i < SIDE; i++)
                cr_assert_eq((double)out[i + j * SIDE], (double)column[i].value * me->times, "thread %d, D[%d, %d]", t,
                             i, j);
        }
        tlob_buffer_destroy(&buffers[t]);
        tlob_stream_close(&me->stream);
    }
    close_world(&w);
}
