/* What the backend cublaslt asks of cublasLt, and what it keeps, seen by a cublasLt that is none. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cublaslt/plan.h"
#include "tests/fakes/fake.h"

static tlob_lane *lane;
static tlob_stream_stats stats;
static char workspace[256];
static struct CUstream_st *const stream = (struct CUstream_st *)(void *)&stats;
static _Alignas(256) float a[64], b[64], c[64], d[64], bias[64], bgrad[64], aux[1024];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

static tlob_status open_lane(void) {
    tlob_lane_params params = {
        .cuda_stream = stream, .workspace = workspace, .workspace_bytes = 1 << 20, .stats = &stats};
    return tlob_cublaslt_ops.open(&lane, &params);
}

static void setup(void) {
    fake_reset();
    cr_assert_eq(open_lane(), TLOB_OK, "%s", fake.error.message);
    fake_forget_calls();
}

static void teardown(void) {
    tlob_cublaslt_ops.close(lane);
}

TestSuite(lt, .init = setup, .fini = teardown);

static tlob_gemm problem(void) {
    tlob_gemm g = tlob_gemm_init(3, 2, 4);
    g.compute = TLOB_COMPUTE_TF32;
    return g;
}

/* A batch of two with an epilogue, its strides all different. */
static tlob_gemm problem_with(tlob_epilogue epilogue) {
    tlob_gemm g = problem();
    g.epilogue = epilogue;
    g.transb = epilogue == TLOB_EPILOGUE_BGRADB ? TLOB_OP_T : TLOB_OP_N;
    g.ldb = 4; /* enough for either */
    g.batch = 2;
    g.stride_a = 12;
    g.stride_b = 16;
    g.stride_c = 6;
    g.ld_aux = 256;
    g.stride_aux = 512;
    g.stride_bias = 8;
    return g;
}

static tlob_status run_with(tlob_gemm g, tlob_gemm_operands x, void **memo) {
    return tlob_cublaslt_ops.matmul_bias(lane, &g, &x, NULL, memo); /* the three slots are one function */
}

static tlob_status run(tlob_gemm g, tlob_gemm_operands x) {
    void *memo = NULL;
    return run_with(g, x, &memo);
}

Test(lt, the_whole_table) {
    static const tlob_compute modes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    for (int i = 0; i < 2; i++) {
        char failed[64];
        int ran = fake_sweep(&tlob_cublaslt_ops, lane, modes[i], failed);
        cr_assert_gt(ran, 300);
        cr_assert_str_empty(failed, "%s: %s", failed, fake.error.message);
        cr_assert_eq(fake_count("matmul"), 1, "one call a product: %s", fake.calls);
    }
    cr_assert_eq(fake_count("affine"), 0);
}

Test(lt, a_lane_is_one_handle) {
    cr_assert_eq(stats.handles_created, 1);
    cr_assert_eq(tlob_cublaslt_ops.caps.max_batch, INT32_MAX);
    char text[64];
    tlob_cublaslt_ops.version(text, sizeof(text));
    cr_assert_str_eq(text, "cuBLASLt 13.1.0");
}

Test(lt, a_product_runs_on_the_stream_within_the_workspace) {
    cr_assert_eq(run(problem(), operands), TLOB_OK);
    cr_assert_eq(fake.stream, stream);
    cr_assert_eq(fake.workspace, workspace);
    cr_assert_eq(fake.workspace_bytes, 4096, "what the algorithm asked for");
    cr_assert_eq(fake.workspace_limit, 1 << 20, "what it was offered");
}

/* --- warm and cold --------------------------------------------------------------------------------------------- */

Test(lt, a_warm_call_is_one_call) {
    cr_assert_eq(run(problem(), operands), TLOB_OK);
    for (int i = 0; i < 10; i++) {
        fake_forget_calls();
        cr_assert_eq(run(problem(), operands), TLOB_OK);
        cr_assert_str_eq(fake.calls, "matmul ");
    }
    cr_assert_eq(fake.algorithm, 1);
    cr_assert_eq(stats.plan_misses, 1);
    cr_assert_eq(stats.plan_hits, 10);
}

Test(lt, a_bias_is_set_again_only_where_it_changed) {
    tlob_gemm g = problem();
    tlob_gemm_operands x = operands;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    cr_assert_eq(run(g, x), TLOB_OK);
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_str_eq(fake.calls, "matmul ");
    _Alignas(256) static const float other[64] = {7, 7, 7};
    x.bias = other;
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_eq(fake_count("heuristic"), 0);
    cr_assert_eq(fake.x.bias, other);
    cr_assert_eq(d[0], 7);
    x.bias = bias;
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_eq(d[0], 0, "and back");
}

/* A plan that is remembered is run where it fits, and only there: operands of another alignment get their own. */
Test(lt, a_remembered_plan_is_kept_where_it_fits) {
    for (tlob_epilogue e = TLOB_EPILOGUE_NONE; e < TLOB_EPILOGUE_COUNT; e++) {
        tlob_gemm g = problem_with(e);
        g.beta = 1;
        void *memo = NULL;
        cr_assert_eq(run_with(g, operands, &memo), TLOB_OK);
        void *first = memo;
        uint64_t algorithm = fake.algorithm;
        cr_assert_not_null(first);
        cr_assert_eq(run_with(g, operands, &memo), TLOB_OK);
        cr_assert_eq(memo, first);
        for (int operand = 0; operand < 7; operand++) {
            tlob_gemm_operands x = operands;
            switch (operand) {
            case 0: x.a += 1; break;
            case 1: x.b += 1; break;
            case 2: x.c += 1; break;
            case 3: x.d += 1; break;
            case 4: x.c = x.d; break;
            case 5: x.bias += 1, x.bgrad += 1; break;
            case 6: x.aux = aux + 4; break;
            }
            const tlob_epilogue_traits *t = tlob_epilogue_get_traits(e);
            bool used = operand < 5 || (operand == 5 ? t->reads_bias || t->writes_bgrad : t->reads_aux || t->writes_aux);
            cr_assert_eq(run_with(g, x, &memo), TLOB_OK);
            cr_assert_eq(memo == first, !used, "epilogue %d, operand %d", (int)e, operand);
            cr_assert_eq(fake.algorithm == algorithm, !used, "epilogue %d, operand %d", (int)e, operand);
            cr_assert_eq(run_with(g, operands, &memo), TLOB_OK);
            cr_assert_eq(memo, first, "and back");
        }
    }
}

/* --- epilogues ------------------------------------------------------------------------------------------------- */

Test(lt, an_epilogue_is_one_call_with_its_attributes) {
    static const struct {
        tlob_epilogue epilogue;
        cublasLtEpilogue_t vendor;
        bool bias, bgrad, aux;
    } rows[] = {
        {TLOB_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT, false, false, false},
        {TLOB_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS, true, false, false},
        {TLOB_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU, false, false, false},
        {TLOB_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, true, false, false},
        {TLOB_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true, false, true},
        {TLOB_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_DRELU_BGRAD, false, true, true},
        {TLOB_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADA, false, true, false},
        {TLOB_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB, false, true, false},
        {TLOB_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, true, false, false},
        {TLOB_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, false, true},
        {TLOB_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_DGELU_BGRAD, false, true, true},
    };
    cr_assert_eq(sizeof(rows) / sizeof(rows[0]), TLOB_EPILOGUE_COUNT);
    for (size_t i = 0; i < TLOB_EPILOGUE_COUNT; i++) {
        tlob_gemm g = problem_with(rows[i].epilogue);
        cr_assert(tlob_cublaslt_ops.caps.epilogues & 1u << rows[i].epilogue);
        cr_assert_eq(run(g, operands), TLOB_OK, "row %zu: %s", i, fake.error.message);
        cr_assert_eq(fake.epilogue, (uint32_t)rows[i].vendor, "row %zu", i);
        cr_assert_eq(fake.x.bias, rows[i].bias ? bias : NULL, "row %zu", i);
        cr_assert_eq(fake.x.bgrad, rows[i].bgrad ? bgrad : NULL, "row %zu: through the pointer of the bias", i);
        cr_assert_eq(fake.x.aux, rows[i].aux ? aux : NULL, "row %zu", i);
        cr_assert_eq(fake.gemm.stride_bias, rows[i].bias || rows[i].bgrad ? 8 : 0, "row %zu", i);
        cr_assert_eq(fake.gemm.ld_aux, rows[i].aux ? 256 : 0, "row %zu", i);
        cr_assert_eq(fake.gemm.stride_aux, rows[i].aux ? 512 : 0, "row %zu", i);
        cr_assert_eq(fake.bias_at_query, rows[i].bias ? bias : rows[i].bgrad ? bgrad : NULL, "row %zu", i);
        cr_assert_eq(fake.aux_at_query, rows[i].aux ? aux : NULL, "row %zu: the heuristic reads the alignment", i);
        fake_forget_calls();
        cr_assert_eq(run(g, operands), TLOB_OK);
        cr_assert_str_eq(fake.calls, "matmul ", "row %zu is warm", i);
    }
}

Test(lt, pointers_of_an_epilogue_are_set_again_only_where_they_changed) {
    tlob_gemm g = problem_with(TLOB_EPILOGUE_DGELU_BGRAD);
    tlob_gemm_operands x = operands;
    static _Alignas(256) float other_bgrad[64], other_aux[1024];
    cr_assert_eq(run(g, x), TLOB_OK);
    x.bgrad = other_bgrad;
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_str_eq(fake.calls, "set_bias matmul ");
    cr_assert_eq(fake.x.bgrad, other_bgrad);
    x.aux = other_aux;
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_str_eq(fake.calls, "set_aux matmul ");
    cr_assert_eq(fake.x.aux, other_aux);
    x.bias = NULL; /* not of this epilogue */
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_str_eq(fake.calls, "matmul ");
}

static const char *why_not(tlob_gemm g) {
    const char *why = NULL;
    cr_assert_eq(tlob_cublaslt_ops.supports(&g, &why), why == NULL);
    return why ? why : "";
}

Test(lt, what_cublaslt_refuses_is_told_beforehand) {
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        for (int ops = 0; ops < 4; ops++) {
            tlob_gemm g = problem_with((tlob_epilogue)e);
            g.transa = ops & 1 ? TLOB_OP_T : TLOB_OP_N;
            g.transb = ops & 2 ? TLOB_OP_T : TLOB_OP_N;
            const char *why = why_not(g), *word = "";
            if (e == TLOB_EPILOGUE_BGRADA && g.transa == TLOB_OP_T)
                word = "BGRADA";
            if (e == TLOB_EPILOGUE_BGRADB && g.transb == TLOB_OP_N)
                word = "BGRADB";
            cr_assert(*word ? strstr(why, word) != NULL : !*why, "epilogue %d, ops %d: %s", e, ops, why);
        }
        bool floats = e == TLOB_EPILOGUE_GELU_AUX_BIAS || e == TLOB_EPILOGUE_DGELU_BGRAD;
        tlob_gemm g = problem_with((tlob_epilogue)e);
        g.ld_aux = 260;
        cr_assert(floats ? strstr(why_not(g), "ld_aux") != NULL : !*why_not(g), "epilogue %d", e);
        g.ld_aux = 264;
        g.stride_aux = 1020;
        cr_assert(floats ? strstr(why_not(g), "stride_aux") != NULL : !*why_not(g), "epilogue %d", e);
        g.batch = 1;
        cr_assert_str_empty(why_not(g), "a stride does not count");
    }
}

/* Known trap: an algorithm that one version gets wrong past 2^31 elements. */
Test(lt, an_algorithm_that_is_known_to_be_wrong_is_not_run) {
    tlob_gemm g = problem();
    g.compute = TLOB_COMPUTE_FP32;
    g.lda = (int64_t)1 << 31;
    fake.config[CUBLASLT_ALGO_CONFIG_ID] = 68;
    fake.lt_version = 130600;
    tlob_lane_plan plan;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_ERR_UNSUPPORTED);
    cr_assert_eq(run(g, operands), TLOB_ERR_UNSUPPORTED);
    cr_assert_eq(fake_count("matmul"), 0);
    cr_assert_eq(lane->plans.count, 0);
    const struct {
        uint32_t id;
        int version;
        tlob_compute compute;
        int64_t lda;
    } fine[] = {{67, 130600, TLOB_COMPUTE_FP32, g.lda},
                {68, 130601, TLOB_COMPUTE_FP32, g.lda},
                {68, 130600, TLOB_COMPUTE_TF32, g.lda},
                {68, 130600, TLOB_COMPUTE_FP32, 64}};
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        fake.config[CUBLASLT_ALGO_CONFIG_ID] = fine[i].id;
        fake.lt_version = fine[i].version;
        g.compute = fine[i].compute;
        g.lda = fine[i].lda;
        cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK, "row %zu", i);
    }
}

/* Measured on cuBLASLt 13.1: wrong values, and no status that says so. */
Test(lt, a_bias_in_fp32_is_refused_where_d_spans_4_gib) {
    tlob_gemm g = tlob_gemm_init(1 << 10, 1 << 20, 8);
    g.compute = TLOB_COMPUTE_FP32;
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        g.epilogue = (tlob_epilogue)e;
        g.transb = TLOB_OP_T;
        g.ldb = g.n;
        bool biased = tlob_epilogue_get_traits(g.epilogue)->reads_bias;
        cr_assert(biased ? strstr(why_not(g), "4 GiB") != NULL : !*why_not(g), "epilogue %d: %s", e, why_not(g));
    }
    g.epilogue = TLOB_EPILOGUE_BIAS;
    g.compute = TLOB_COMPUTE_TF32;
    cr_assert_str_empty(why_not(g));
    g.compute = TLOB_COMPUTE_FP32;
    g.n -= 1;
    cr_assert_str_empty(why_not(g), "a column less");
    g.n = 2;
    g.batch = 3;
    g.stride_c = 1 << 29;
    cr_assert(strstr(why_not(g), "4 GiB"), "a batch counts");
    g.stride_c = INT64_MAX / 2; /* where there is no D, nothing bounds its strides */
    g.ldc = INT64_MAX;
    g.m = 0;
    cr_assert_str_empty(why_not(g));
    g.m = 1;
    g.n = 0;
    cr_assert_str_empty(why_not(g));
}

/* A property of the call, not of the problem: the core compares it with the caps. */
Test(lt, floats_of_aux_must_be_aligned_to_16_bytes) {
    cr_assert_eq(tlob_cublaslt_ops.caps.aux_alignment, 16);
}

/* --- telling --------------------------------------------------------------------------------------------------- */

Test(lt, an_algorithm_is_told_and_no_plan_kept) {
    tlob_gemm g = problem();
    tlob_lane_plan plan;
    fake.config[CUBLASLT_ALGO_CONFIG_ID] = 21;
    fake.config[CUBLASLT_ALGO_CONFIG_TILE_ID] = CUBLASLT_MATMUL_TILE_128x64;
    fake.config[CUBLASLT_ALGO_CONFIG_STAGES_ID] = 12;
    fake.config[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 3;
    fake.config[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = 2;
    fake.config[CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING] = 1;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
    cr_assert_str_eq(plan.algorithm, "algo 21 tile 128x64 stages id 12 split-k 3 reduction 2 swizzle 1");
    cr_assert_eq(plan.workspace_bytes, 4096);
    cr_assert_not(plan.cached);
    cr_assert_eq(lane->plans.count, 0);
    cr_assert_eq(stats.plan_misses + stats.plan_hits, 0, "nothing is counted");
    cr_assert_eq(fake_count("matmul"), 0);

    cr_assert_eq(run(g, operands), TLOB_OK);
    fake.config[CUBLASLT_ALGO_CONFIG_TILE_ID] = 600;
    fake.capturing = true; /* a cached plan is only read */
    fake_forget_calls();
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
    cr_assert(plan.cached);
    cr_assert(strstr(plan.algorithm, "tile id 600 "), "%s", plan.algorithm);
    cr_assert_str_empty(fake.calls);
    cr_assert_eq(stats.plan_hits, 0);
    g.m++;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_ERR_NOT_WARM);
}

/* What is not known yet is as an allocation of its own would be. */
Test(lt, operands_that_are_not_known_are_aligned_and_apart) {
    static const tlob_epilogue epilogues[] = {TLOB_EPILOGUE_NONE, TLOB_EPILOGUE_RELU_AUX_BIAS,
                                              TLOB_EPILOGUE_DGELU_BGRAD};
    for (int i = 0; i < 6; i++) {
        tlob_gemm g = problem_with(epilogues[i / 2]);
        tlob_lane_plan plan;
        g.beta = i % 2;
        cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &(tlob_gemm_operands){0}, NULL, 0, &plan), TLOB_OK);
        cr_assert_not(plan.cached);
        cr_assert_eq(run(g, operands), TLOB_OK);
        cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &(tlob_gemm_operands){0}, NULL, 0, &plan), TLOB_OK);
        cr_assert(plan.cached, "case %d", i);
    }
}

Test(lt, a_description_that_fails_says_why) {
    tlob_lane_plan plan;
    tlob_gemm g = problem();
    fake.found = 0;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_ERR_UNSUPPORTED);
    cr_assert(strstr(fake.error.message, "no algorithm"), "%s", fake.error.message);
}

/* --- captures -------------------------------------------------------------------------------------------------- */

/* Known trap: the heuristic fails, or spoils the capture, while a stream is captured. */
Test(lt, a_cold_call_in_a_capture_is_refused_before_any_vendor_call) {
    fake.capturing = true;
    cr_assert_eq(run(problem(), operands), TLOB_ERR_NOT_WARM);
    cr_assert_str_eq(fake.calls, "");
    cr_assert_str_eq(fake.error.backend, "cublaslt");
    cr_assert(fake.error.has_gemm);
    cr_assert_eq(stats.plan_misses, 0);
    fake.capturing = false;
    cr_assert_eq(run(problem(), operands), TLOB_OK);
    fake.capturing = true;
    fake_forget_calls();
    cr_assert_eq(run(problem(), operands), TLOB_OK);
    cr_assert_str_eq(fake.calls, "matmul ");
    tlob_gemm_operands x = operands;
    x.a = a + 1;
    cr_assert_eq(run(problem(), x), TLOB_ERR_NOT_WARM, "another alignment is another plan");
}

/* --- the key --------------------------------------------------------------------------------------------------- */

static bool same_key(tlob_gemm g, tlob_gemm_operands x, tlob_gemm h, tlob_gemm_operands y) {
    tlob_product_key one, two;
    memset(&one, 0x11, sizeof(one));
    memset(&two, 0x22, sizeof(two)); /* bytes that the key leaves undefined would differ */
    tlob_product_key_init(&one, &g, &x, NULL);
    tlob_product_key_init(&two, &h, &y, NULL);
    return memcmp(&one, &two, sizeof(one)) == 0;
}

Test(lt, any_field_that_matters_makes_another_key) {
    tlob_gemm g = problem(), h;
    tlob_gemm_operands x = operands, y;
    g.batch = 2;
    g.beta = 1;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    cr_assert(same_key(g, x, g, x));
#define DIFFERS(change)                                                                                                \
    do {                                                                                                               \
        h = g;                                                                                                         \
        y = x;                                                                                                         \
        change;                                                                                                        \
        cr_assert_not(same_key(g, x, h, y), #change);                                                                  \
    } while (0)
    DIFFERS(h.m++);
    DIFFERS(h.n++);
    DIFFERS(h.k++);
    DIFFERS(h.lda++);
    DIFFERS(h.ldb++);
    DIFFERS(h.ldc++);
    DIFFERS(h.batch++);
    DIFFERS(h.batch = 1);
    DIFFERS(h.stride_a++);
    DIFFERS(h.stride_b++);
    DIFFERS(h.stride_c++);
    DIFFERS(h.stride_c += (int64_t)1 << 32);
    DIFFERS(h.transa = TLOB_OP_T);
    DIFFERS(h.transb = TLOB_OP_T);
    DIFFERS(h.compute = TLOB_COMPUTE_FP32);
    DIFFERS(h.epilogue = TLOB_EPILOGUE_NONE);
    DIFFERS(h.beta = 0);
    DIFFERS(y.a++);
    DIFFERS(y.b++);
    DIFFERS(y.c++);
    DIFFERS(y.d++);
    DIFFERS(y.bias++);
    DIFFERS(y.a += 4);
    DIFFERS(y.c = y.d);
    DIFFERS(h.stride_bias++);
    DIFFERS(h.epilogue = TLOB_EPILOGUE_RELU_BIAS);
    g.epilogue = TLOB_EPILOGUE_GELU_AUX_BIAS;
    DIFFERS(h.epilogue = TLOB_EPILOGUE_RELU_AUX_BIAS);
    DIFFERS(h.ld_aux += 8);
    DIFFERS(h.ld_aux += (int64_t)1 << 32);
    DIFFERS(h.stride_aux += 8);
    DIFFERS(y.aux = aux + 4);
    DIFFERS(y.bias++);
    g.epilogue = TLOB_EPILOGUE_DGELU_BGRAD;
    DIFFERS(h.stride_bias++);
    DIFFERS(h.stride_aux += 8);
    DIFFERS(y.aux = aux + 4);
    DIFFERS(y.bgrad++);
    g.epilogue = TLOB_EPILOGUE_BGRADA;
    DIFFERS(h.stride_bias++);
    DIFFERS(y.bgrad++);
    g.epilogue = TLOB_EPILOGUE_NONE;
    x.c = x.d; /* in place: whether C is read at all is then the only difference */
    DIFFERS(h.beta = 0);
#undef DIFFERS
}

Test(lt, what_does_not_matter_makes_no_other_key) {
    tlob_gemm g = problem(), h = g;
    tlob_gemm_operands x = operands, y = x;
    h.stride_a = h.stride_b = h.stride_c = 99; /* batch is 1 */
    h.alpha = 3;
    h.stride_bias = h.stride_aux = h.ld_aux = 99;
    y.bias++; /* no epilogue */
    y.bgrad++;
    y.aux = aux + 1;
    y.c = NULL; /* beta is 0 */
    cr_assert(same_key(g, x, h, y));
    g.beta = 1;
    h = g;
    h.beta = -0.5f;
    cr_assert(same_key(g, x, h, x));
    y = x;
    x.a = (const float *)(uintptr_t)0x1000; /* more than 256 bytes of alignment are no other class */
    y.a = (const float *)(uintptr_t)0x1100;
    cr_assert(same_key(g, x, g, y));

    g = h = problem_with(TLOB_EPILOGUE_RELU_AUX_BIAS);
    x = y = operands;
    g.batch = h.batch = 1;
    h.stride_bias = h.stride_aux = 99;
    y.bgrad++;
    cr_assert(same_key(g, x, h, y), "a bgrad that is not written, strides that do not count");
    g.epilogue = h.epilogue = TLOB_EPILOGUE_DRELU_BGRAD;
    y = x;
    y.bias++;
    cr_assert(same_key(g, x, h, y), "a bias that is not read");
}

/* Known trap: a plan made for an aligned operand run on one that is not. The bias has no preference of its own. */
Test(lt, every_alignment_is_asked_for_as_it_is) {
    static const int offsets[] = {0, 1, 2, 4, 16};
    tlob_gemm g = problem();
    g.beta = 1;
    g.epilogue = TLOB_EPILOGUE_BIAS;
    uint64_t last = 0;
    for (int i = 0; i < 5; i++) {
        tlob_gemm_operands x = {.a = a + offsets[i],
                                .b = b + offsets[(i + 1) % 5],
                                .c = c + offsets[(i + 2) % 5],
                                .d = d + offsets[(i + 3) % 5],
                                .bias = bias + offsets[(i + 4) % 5]};
        static const uint32_t bytes[] = {256, 4, 8, 16, 64};
        cr_assert_eq(run(g, x), TLOB_OK);
        for (int operand = 0; operand < 4; operand++)
            cr_assert_eq(fake.alignment[operand], bytes[(i + operand) % 5], "operand %d: %u", operand,
                         fake.alignment[operand]);
        cr_assert_eq(fake.bias_at_query, x.bias, "the heuristic reads the bias's alignment from the pointer");
        cr_assert_neq(fake.algorithm, last);
        last = fake.algorithm;
    }
    for (int i = 0; i < 4; i++) {
        tlob_gemm_operands x = operands;
        x.bias = bias + i;
        cr_assert_eq(run(g, x), TLOB_OK);
        cr_assert_eq(fake.x.bias, x.bias, "offset %d", i);
        if (i < 3) /* 3 floats are of the class of 1 */
            cr_assert_eq(fake.bias_at_query, x.bias, "offset %d", i);
    }
}

/* C may be NULL where it is not read; cublasLt wants a pointer all the same. */
Test(lt, d_stands_for_c_where_beta_is_0) {
    tlob_gemm_operands x = operands;
    x.c = NULL;
    cr_assert_eq(run(problem(), x), TLOB_OK);
    cr_assert_eq(fake.x.c, d);
    tlob_gemm g = problem();
    g.beta = 2;
    cr_assert_eq(run(g, operands), TLOB_OK);
    cr_assert_eq(fake.x.c, c);
}

/* The table grows past its first size, and every plan is found again with the algorithm that was chosen for it. */
Test(lt, thousands_of_plans) {
    float *room = calloc(3000, sizeof(float));
    for (int round = 0; round < 2; round++)
        for (int m = 1; m <= 2500; m++) {
            tlob_gemm g = tlob_gemm_init(m, 1, 1);
            g.compute = TLOB_COMPUTE_FP32;
            tlob_gemm_operands x = {.a = room, .b = b, .d = room};
            fake_forget_calls();
            cr_assert_eq(run(g, x), TLOB_OK);
            cr_assert_eq(fake.algorithm, (uint64_t)m);
        }
    cr_assert_eq(stats.plan_misses, 2500);
    cr_assert_eq(stats.plan_hits, 2500);
    free(room);
}

/* --- failures -------------------------------------------------------------------------------------------------- */

/* Known trap: the heuristic reports success and returns nothing, or something that cannot run. */
Test(lt, success_without_an_algorithm_is_a_clear_error) {
    static const struct {
        cublasStatus_t code;
        int found;
        cublasStatus_t state;
        tlob_status status;
    } rows[] = {
        {CUBLAS_STATUS_SUCCESS, 0, CUBLAS_STATUS_SUCCESS, TLOB_ERR_UNSUPPORTED},
        {CUBLAS_STATUS_NOT_SUPPORTED, 0, CUBLAS_STATUS_SUCCESS, TLOB_ERR_UNSUPPORTED},
        {CUBLAS_STATUS_SUCCESS, 1, CUBLAS_STATUS_NOT_SUPPORTED, TLOB_ERR_UNSUPPORTED},
        {CUBLAS_STATUS_SUCCESS, 1, CUBLAS_STATUS_ARCH_MISMATCH, TLOB_ERR_BACKEND},
        {CUBLAS_STATUS_INTERNAL_ERROR, 0, CUBLAS_STATUS_SUCCESS, TLOB_ERR_BACKEND},
        {CUBLAS_STATUS_INTERNAL_ERROR, 1, CUBLAS_STATUS_SUCCESS, TLOB_ERR_BACKEND},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fake_forget_calls();
        fake.failing_call = "heuristic";
        fake.failing_code = rows[i].code;
        fake.found = rows[i].found;
        fake.found_state = rows[i].state;
        cr_assert_eq(run(problem(), operands), rows[i].status, "row %zu", i);
        cr_assert_eq(fake_count("matmul"), 0);
        cr_assert_str_eq(fake.error.operation, "cublasLtMatmulAlgoGetHeuristic");
        cr_assert(fake.error.has_gemm && fake.error.gemm.k == 4);
        cr_assert_gt(strlen(fake.error.message), 10);
        cr_assert_eq(lane->plans.count, 0, "a failure is not kept");
    }
    fake.failing_call = NULL;
    fake.found = 1;
    fake.found_state = CUBLAS_STATUS_SUCCESS;
    cr_assert_eq(run(problem(), operands), TLOB_OK, "and nothing stands in the way of the next call");
}

Test(lt, whatever_vendor_call_fails_is_reported) {
    static const char *const calls[] = {"desc_init",   "desc_set",   "desc_set_layout", "set_bias",       "set_aux",
                                        "layout_init", "layout_set", "preference_init", "preference_set", "matmul"};
    tlob_gemm g = problem_with(TLOB_EPILOGUE_GELU_AUX_BIAS);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        fake.failing_call = calls[i];
        fake.failing_code = CUBLAS_STATUS_INVALID_VALUE;
        fake_forget_calls();
        cr_assert_eq(run(g, operands), TLOB_ERR_BACKEND, "%s", calls[i]);
        cr_assert_eq(fake_count(calls[i]), 1, "%s is not tried again", calls[i]);
        cr_assert_eq(fake.error.vendor_code, CUBLAS_STATUS_INVALID_VALUE);
    }
    tlob_gemm_operands x = operands;
    _Alignas(256) static const float other[64];
    x.bias = other; /* of the same alignment class, so that the plan is warm */
    fake.failing_call = NULL;
    cr_assert_eq(run(g, operands), TLOB_OK);
    fake.failing_call = "set_bias";
    fake_forget_calls();
    cr_assert_eq(run(g, x), TLOB_ERR_BACKEND);
    cr_assert_eq(fake_count("matmul"), 0, "never with the bias of an earlier call");
    fake.failing_call = NULL;
    cr_assert_eq(run(g, x), TLOB_OK);
    cr_assert_eq(fake.x.bias, other);
}

Test(lt, a_handle_that_cannot_be_made) {
    tlob_lane *kept = lane;
    fake.failing_call = "create";
    fake.failing_code = CUBLAS_STATUS_NOT_INITIALIZED;
    cr_assert_eq(open_lane(), TLOB_ERR_BACKEND);
    cr_assert(strstr(fake.error.message, "driver"), "%s", fake.error.message);
    cr_assert_eq(fake_count("destroy"), 0);
    fake.failing_code = CUBLAS_STATUS_ALLOC_FAILED;
    cr_assert_eq(open_lane(), TLOB_ERR_OUT_OF_MEMORY);
    lane = kept;
    tlob_cublaslt_ops.close(NULL);
}
