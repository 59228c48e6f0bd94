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
static _Alignas(256) float a[64], b[64], c[64], d[64], bias[64];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias};

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

static tlob_status run(tlob_gemm g, tlob_gemm_operands x) {
    return tlob_cublaslt_ops.matmul_bias(lane, &g, &x); /* the three slots are one function */
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
    tlob_plan_key one, two;
    memset(&one, 0x11, sizeof(one));
    memset(&two, 0x22, sizeof(two)); /* bytes that the key leaves undefined would differ */
    tlob_plan_key_init(&one, &g, &x);
    tlob_plan_key_init(&two, &h, &y);
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
    x.c = x.d; /* in place: whether C is read at all is then the only difference */
    DIFFERS(h.beta = 0);
#undef DIFFERS
}

Test(lt, what_does_not_matter_makes_no_other_key) {
    tlob_gemm g = problem(), h = g;
    tlob_gemm_operands x = operands, y = x;
    h.stride_a = h.stride_b = h.stride_c = 99; /* batch is 1 */
    h.alpha = 3;
    y.bias++;   /* no epilogue */
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
            cr_assert_eq(tlob_cublaslt_ops.sgemm(lane, &g, &x), TLOB_OK);
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
    static const char *const calls[] = {"desc_init",  "desc_set",        "set_bias",       "layout_init",
                                        "layout_set", "preference_init", "preference_set", "matmul"};
    tlob_gemm g = problem();
    g.batch = 2;
    g.stride_a = g.stride_b = g.stride_c = 12;
    g.epilogue = TLOB_EPILOGUE_BIAS;
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
