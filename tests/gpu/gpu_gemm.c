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

/* What cuBLASLt has no kernel for, and says so. Anything else that is refused is a failure of the suite. */
static bool may_be_refused(const char *backend, const parity_case *c) {
    const tlob_gemm *g = &c->gemm;
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    bool floats = (traits->reads_aux || traits->writes_aux) && !traits->aux_is_mask;
    return strcmp(backend, "cublaslt") == 0 &&
           ((g->epilogue == TLOB_EPILOGUE_BGRADA && g->transa == TLOB_OP_T) ||
            (g->epilogue == TLOB_EPILOGUE_BGRADB && g->transb == TLOB_OP_N) ||
            (floats && (g->ld_aux % 8 || c->offset_aux % 4 || (g->batch > 1 && g->stride_aux % 8))) ||
            (c->huge && traits->reads_bias)); /* measured wrong in FP32 where D spans 2^32 bytes */
}

static void look_at(void *user, const parity_case *c, const parity_result *result) {
    if (result->verdict == PARITY_FAIL || result->verdict == PARITY_ERROR)
        cr_log_error("%s", result->message);
    if (result->verdict == PARITY_UNSUPPORTED)
        cr_expect(may_be_refused(user, c), "%s", result->message);
}

static parity_sweep ask(const world *w, const char *backend, tlob_compute mode, const char *filter) {
    parity_sweep asked = parity_sweep_from_environment();
    asked.stream = w->stream;
    asked.oracle = w->oracle;
    asked.backend = backend;
    asked.compute = mode;
    asked.filter = filter;
    asked.each = look_at;
    asked.user = (void *)(uintptr_t)backend;
    return asked;
}

static void run_one(const world *w, const char *backend, tlob_compute mode, const parity_case *c, parity_tally *t) {
    parity_sweep asked = ask(w, backend, mode, NULL);
    parity_run_one(&asked, c, t);
}

static parity_tally sweep(const world *w, const char *backend, tlob_compute mode, const char *filter) {
    parity_sweep asked = ask(w, backend, mode, filter);
    parity_tally t = parity_run_table(&asked);
    cr_assert_gt(t.ran, 0, "no case matches '%s'", filter);
    return t;
}

#define PASSES(tally_)                                                                                                 \
    do {                                                                                                               \
        parity_tally t_ = (tally_);                                                                                    \
        cr_assert_eq(parity_failed(&t_), 0, "%d of %d cases; the first: %s", parity_failed(&t_), t_.ran, t_.first);    \
    } while (0)

static void whole_table(const char *backend, tlob_compute mode) {
    world w = open_world(0);
    int before, after;
    cr_assert_eq(cudaGetDevice(&before), cudaSuccess);
    parity_tally t = sweep(&w, backend, mode, getenv("TLOB_TEST_CASE"));
    PASSES(t);
    cr_log_info("%s in %s: %d passed, %d close to their bound, %d not supported", backend, tlob_compute_name(mode),
                t.count[PARITY_PASS], t.count[PARITY_WARN], t.count[PARITY_UNSUPPORTED]);
    parity_sweep asked = ask(&w, backend, mode, NULL);
    PASSES(parity_run_random(&asked, parity_random_seconds(1)));
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
        parity_tally tf32 = sweep(&w, backends[b], TLOB_COMPUTE_TF32, "*/n64");
        parity_tally fp32 = sweep(&w, backends[b], TLOB_COMPUTE_FP32, "*/n64");
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
            parity_tally t = {0};
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
            parity_tally t = {0};
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

/* --- epilogues ------------------------------------------------------------------------------------------------- */

/** The operands of a product with an epilogue, on the device and as they were on the host. */
typedef struct stage {
    tlob_buffer *buffers[7];
    float *a, *b, *c, *bias, *aux_in; /**< host */
    float *d, *bgrad, *aux;           /**< host: what came out */
    int64_t count_a, count_b, count_d, count_v, count_aux;
    tlob_gemm_operands x; /**< device */
} stage;

/* Numbers that repeat after a prime: no column is like another near it. */
static float *filled(int64_t count, uint32_t salt) {
    const int64_t tile = count < 100003 ? count : 100003;
    float *x = malloc((size_t)count * sizeof(float));
    fill(x, tile, PARITY_UNIFORM, salt);
    for (int64_t i = tile; i < count; i++)
        x[i] = x[i - tile];
    return x;
}

/* Room for a single product `g`, of uniform numbers, whatever its epilogue; aux is input and output. */
static stage set_stage(const world *w, const tlob_gemm *g) {
    stage s = {.count_a = g->m * g->k, .count_b = g->k * g->n, .count_d = g->m * g->n, .count_aux = g->ld_aux * g->n};
    s.count_v = g->m > g->n ? g->m : g->n;
    s.a = filled(s.count_a, 0);
    s.b = filled(s.count_b, 1);
    s.c = filled(s.count_d, 2);
    s.bias = filled(s.count_v, 4);
    s.aux_in = filled(s.count_aux, 5);
    s.d = filled(s.count_d, 0);
    s.bgrad = filled(s.count_v, 0);
    s.aux = filled(s.count_aux, 0);
    s.x.a = floats(w->stream, s.count_a, s.a, s.count_a, &s.buffers[0]);
    s.x.b = floats(w->stream, s.count_b, s.b, s.count_b, &s.buffers[1]);
    s.x.c = floats(w->stream, s.count_d, s.c, s.count_d, &s.buffers[2]);
    s.x.d = floats(w->stream, s.count_d, NULL, 0, &s.buffers[3]);
    s.x.bias = floats(w->stream, s.count_v, s.bias, s.count_v, &s.buffers[4]);
    s.x.bgrad = floats(w->stream, s.count_v, NULL, 0, &s.buffers[5]);
    s.x.aux = floats(w->stream, s.count_aux, NULL, 0, &s.buffers[6]);
    return s;
}

static void clear_stage(stage *s) {
    for (int i = 0; i < 7; i++)
        tlob_buffer_destroy(&s->buffers[i]);
    float *const host[] = {s->a, s->b, s->c, s->bias, s->aux_in, s->d, s->bgrad, s->aux};
    for (int i = 0; i < 8; i++)
        free(host[i]);
}

/* Runs `g` and fetches D, bgrad and aux. */
static void perform(const world *w, const char *backend, const tlob_gemm *g, stage *s) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    tlob_gemm_operands x = s->x;
    if (!traits->reads_bias)
        x.bias = NULL;
    if (!traits->writes_bgrad)
        x.bgrad = NULL;
    if (!traits->reads_aux && !traits->writes_aux)
        x.aux = NULL;
    OK(tlob_upload(w->stream, s->x.aux, s->aux_in, (size_t)s->count_aux * sizeof(float)));
    OK(tlob_gemm_run_on(w->stream, backend, g, &x));
    OK(tlob_download(w->stream, s->d, s->x.d, (size_t)s->count_d * sizeof(float)));
    OK(tlob_download(w->stream, s->bgrad, s->x.bgrad, (size_t)s->count_v * sizeof(float)));
    OK(tlob_download(w->stream, s->aux, s->x.aux, (size_t)s->count_aux * sizeof(float)));
}

#define NEAR(got, want, bound, ...)                                                                                    \
    do {                                                                                                               \
        double got_ = (double)(got), want_ = (double)(want);                                                           \
        cr_assert(fabs(got_ - want_) <= (bound), __VA_ARGS__);                                                         \
    } while (0)

/* The epilogue in one call, and the plain product followed by the same on the host: alpha 0, beta 1 and C = z. */
static void fused_against_unfused(const world *w, const char *backend, tlob_compute mode, tlob_epilogue epilogue,
                                  stage *s) {
    tlob_gemm g = tlob_gemm_init(48, 40, 32), after;
    g.compute = mode;
    g.beta = -0.5f;
    perform(w, backend, &g, s);
    float *z = malloc((size_t)s->count_d * sizeof(float));
    memcpy(z, s->d, (size_t)s->count_d * sizeof(float));

    after = g;
    after.alpha = 0;
    after.beta = 1;
    g.epilogue = after.epilogue = epilogue;
    tlob_gemm_operands host = {.a = s->a, .b = s->b, .c = z, .bias = s->bias, .aux = s->aux_in};
    parity_expectation *all = malloc((size_t)s->count_d * sizeof(*all));
    for (int64_t j = 0; j < g.n; j++)
        parity_expect(&after, &host, 0, j, all + j * g.m);
    perform(w, backend, &g, s);
    const char *name = tlob_epilogue_get_traits(epilogue)->name;
    double s_most = (double)g.k + 2; /* every |a|, |b|, |c| and |bias| is at most 1 */
    for (int64_t i = 0; i < s->count_d; i++)
        NEAR(s->d[i], all[i].value, 2 * parity_bound(&g, TLOB_MEMORY_CUDA, s_most), "%s on %s: D %lld: %g, unfused %g",
             name, backend, (long long)i, (double)s->d[i], (double)all[i].value);
    free(all);
    free(z);
}

Test(gpu_gemm, fused_and_unfused_agree) {
    NEED_GPU();
    world w = open_world(0);
    tlob_gemm g = tlob_gemm_init(48, 40, 32);
    stage s = set_stage(&w, &g);
    for (int run = 0; run < 4; run++)
        for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++)
            if (e != TLOB_EPILOGUE_BGRADB) /* cublaslt has it for a transposed B alone; its sums are compared below */
                fused_against_unfused(&w, backends[run % 2], modes[run / 2], (tlob_epilogue)e, &s);
    clear_stage(&s);
    close_world(&w);
}

/* Known trap: the fused sums of gradients; here against a sum of what came out, or went in, on the host. */
static void compare_sums(const world *w, const char *backend, tlob_compute mode, tlob_epilogue epilogue, int64_t n) {
    bool of_b = epilogue == TLOB_EPILOGUE_BGRADB; /* sums run over n: k of BGRADB is the batch of a gradient */
    tlob_gemm g = of_b ? tlob_gemm_init(16, 32, n) : tlob_gemm_init(16, n, 16);
    g.transb = of_b ? TLOB_OP_T : TLOB_OP_N;
    g.ldb = of_b ? 32 : g.ldb;
    g.compute = mode;
    g.epilogue = epilogue;
    stage s = set_stage(w, &g);
    perform(w, backend, &g, &s);
    int64_t rows = of_b ? g.n : g.m;
    double relative = fmin(((double)n + 8) * 0x1p-24, 2e-5) + (of_b && mode == TLOB_COMPUTE_TF32 ? 0x1p-10 : 0);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0, scale = 0;
        for (int64_t j = 0; j < n; j++) {
            double value = of_b ? s.b[i + j * rows] : s.d[i + j * rows];
            sum += value;
            scale += fabs(value);
        }
        NEAR(s.bgrad[i], sum, 4 * relative * scale, "%s on %s, n %lld: sum %lld is %.9g, separately %.9g",
             tlob_epilogue_get_traits(epilogue)->name, backend, (long long)n, (long long)i, (double)s.bgrad[i], sum);
    }
    clear_stage(&s);
}

Test(gpu_gemm, fused_sums_of_gradients_are_those_of_a_separate_sum) {
    NEED_GPU();
    static const int ns[] = {64, 4096, 1048576};
    world w = open_world(0);
    int most = getenv("TLOB_SANITIZED") ? 2 : 3;
    for (int run = 0; run < 4; run++)
        for (int i = 0; i < most; i++) {
            compare_sums(&w, backends[run % 2], modes[run / 2], TLOB_EPILOGUE_DRELU_BGRAD, ns[i]);
            compare_sums(&w, backends[run % 2], modes[run / 2], TLOB_EPILOGUE_BGRADB, ns[i]);
        }
    close_world(&w);
}

/* Known trap: ReLU as max(z, 0) turns NaN into 0. Which epilogue does is written in <tlob/gemm.h>, for all backends. */
Test(gpu_gemm, what_becomes_of_nan_in_every_activation) {
    NEED_GPU();
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_RELU, TLOB_EPILOGUE_RELU_BIAS, TLOB_EPILOGUE_RELU_AUX_BIAS,
                                              TLOB_EPILOGUE_GELU_BIAS, TLOB_EPILOGUE_GELU_AUX_BIAS};
    world w = open_world(0);
    tlob_gemm g = tlob_gemm_init(16, 8, 16);
    stage s = set_stage(&w, &g);
    const float nan_value = NAN;
    OK(tlob_upload(w.stream, (float *)(uintptr_t)s.x.a + 3, &nan_value, sizeof(float))); /* row 3 of D */
    for (int run = 0; run < 20; run++) {
        g.epilogue = epilogues[run / 4];
        g.compute = modes[run / 2 % 2];
        perform(&w, backends[run % 2], &g, &s);
        for (int64_t i = 0; i < s.count_d; i++)
            cr_assert(i % 16 != 3                            ? isfinite(s.d[i])
                      : run / 4 < 2 && run % 2 == 0          ? s.d[i] == 0
                      : run / 4 < 2 /* either on cublaslt */ ? s.d[i] == 0 || isnan(s.d[i])
                                                             : isnan(s.d[i]),
                      "%s on %s: D[%d] is %g", tlob_epilogue_get_traits(g.epilogue)->name, backends[run % 2], (int)i,
                      (double)s.d[i]);
    }
    clear_stage(&s);
    close_world(&w);
}

/* GELU and its derivative over all of their range: exact in z (k = 1), so what is off is the tanh of the library. */
Test(gpu_gemm, gelu_is_the_tanh_form) {
    NEED_GPU();
    enum { ROWS = 4096 };
    world w = open_world(0);
    tlob_gemm g = tlob_gemm_init(ROWS, 1, 1);
    stage s = set_stage(&w, &g);
    const float one = 1;
    for (int i = 0; i < ROWS; i++)
        s.a[i] = s.aux_in[i] = (float)(i - ROWS / 2) / 256;
    g.compute = TLOB_COMPUTE_FP32;
    memset(s.bias, 0, ROWS * sizeof(float));
    OK(tlob_upload(w.stream, (void *)(uintptr_t)s.x.bias, s.bias, ROWS * sizeof(float)));
    OK(tlob_upload(w.stream, (void *)(uintptr_t)s.x.b, &one, sizeof(one)));
    s.b[0] = 1;
    tlob_gemm_operands host = {.a = s.a, .b = s.b, .bias = s.bias, .aux = s.aux_in};
    parity_expectation *want = malloc(ROWS * sizeof(*want));
    for (int run = 0; run < 4; run++) {
        g.epilogue = run / 2 ? TLOB_EPILOGUE_DGELU_BGRAD : TLOB_EPILOGUE_GELU_BIAS;
        for (int i = 0; i < ROWS; i++) /* the derivative is what multiplies z = 1 */
            s.a[i] = run / 2 ? 1 : s.aux_in[i];
        OK(tlob_upload(w.stream, (void *)(uintptr_t)s.x.a, s.a, ROWS * sizeof(float)));
        perform(&w, backends[run % 2], &g, &s);
        parity_expect(&g, &host, 0, 0, want);
        double worst = 0;
        for (int i = 0; i < ROWS; i++) {
            double error = fabs((double)(s.d[i] - want[i].value)), scale = fmax(want[i].scale, 0x1p-8);
            worst = fmax(worst, error / scale);
            NEAR(s.d[i], want[i].value, ((run / 2 ? PARITY_DGELU : PARITY_GELU) + 0x1p-20) * scale,
                 "%s on %s at %g: %.9g instead of %.9g", tlob_epilogue_get_traits(g.epilogue)->name, backends[run % 2],
                 (double)s.aux_in[i], (double)s.d[i], (double)want[i].value);
        }
        cr_log_info("%s on %s: off by at most %.3g of |z|", tlob_epilogue_get_traits(g.epilogue)->name,
                    backends[run % 2], worst);
    }
    free(want);
    clear_stage(&s);
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
        parity_tally t = {0};
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

/* Known traps: a cold product in a capture asks the heuristic, which fails there or spoils the capture, or its kernel
 * has not been loaded. */
Test(gpu_gemm, a_cold_call_in_a_capture_is_refused_and_the_capture_survives) {
    NEED_GPU();
    world w = open_world(0);
    tlob_buffer *buffer;
    float *p = floats(w.stream, 3 * 4096, NULL, 0, &buffer);
    tlob_gemm warm = tlob_gemm_init(64, 64, 64), cold = tlob_gemm_init(63, 64, 64);
    tlob_gemm_operands x = {.a = p, .b = p + 4096, .d = p + 8192};
    for (int b = 0; b < 2; b++) {
        OK(tlob_gemm_run_on(w.stream, backends[b], &warm, &x));
        OK(tlob_stream_sync(w.stream));
        int64_t misses = plan_misses(w.stream);
        begin_capture(w.stream);
        OK(tlob_gemm_run_on(w.stream, backends[b], &warm, &x));
        cr_assert_eq(tlob_gemm_run_on(w.stream, backends[b], &cold, &x), TLOB_ERR_NOT_WARM);
        cr_assert(tlob_last_error()->has_gemm && tlob_last_error()->gemm.m == 63);
        OK(tlob_gemm_run_on(w.stream, backends[b], &warm, &x));
        cudaGraph_t graph = end_capture(w.stream);
        cr_assert_geq(kernels_of(graph), 2);
        cr_assert_eq(plan_misses(w.stream), misses);
        cr_assert_eq(cudaGraphDestroy(graph), cudaSuccess);
        OK(tlob_gemm_run_on(w.stream, backends[b], &cold, &x));
        OK(tlob_stream_sync(w.stream));
    }
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
    int times;
    tlob_status status;
    char message[512];
} worker;

enum { SIDE = 16, SQUARE = SIDE * SIDE, MOST_THREADS = 8 };

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
static void run_threads(int count, int times) {
    world w = open_world(0);
    worker workers[MOST_THREADS] = {{0}};
    tlob_buffer *buffers[MOST_THREADS];
    static float in[MOST_THREADS][4 * SQUARE];
    float out[SQUARE];
    for (int t = 0; t < count; t++) {
        worker *me = &workers[t];
        OK(tlob_stream_create(w.ctx, &me->stream));
        fill(in[t], 3 * SQUARE, PARITY_INTEGER, (uint32_t)(50 + t));
        me->times = rounds(times);
        me->p = floats(me->stream, 4 * SQUARE, in[t], 4 * SQUARE, &buffers[t]);
    }
    for (int t = 0; t < count; t++)
        cr_assert_eq(pthread_create(&workers[t].thread, NULL, work, &workers[t]), 0);
    for (int t = 0; t < count; t++)
        pthread_join(workers[t].thread, NULL);
    for (int t = 0; t < count; t++) {
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

Test(gpu_gemm, two_threads_on_two_streams) {
    NEED_GPU();
    run_threads(2, 4000);
}

/* Known trap: a descriptor that threads share, with the bias of whoever came last: 10000 products of one shape. */
Test(gpu_gemm, eight_threads_with_biases_of_their_own) {
    NEED_GPU();
    run_threads(8, 1250);
}
