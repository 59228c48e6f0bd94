/* What the backend cublas_classic asks of cuBLAS, seen by a cuBLAS that is none. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/fakes/fake.h"

static tlob_lane *lane;
static tlob_stream_stats stats;
static char workspace[256];
static struct CUstream_st *const stream = (struct CUstream_st *)(void *)&stats;
static float a[16], b[16], c[16], d[16], bias[4], bgrad[4];
static _Alignas(16) float aux[512];
static const tlob_gemm_operands operands = {.a = a, .b = b, .d = d};

static tlob_status open_lane(void) {
    tlob_lane_params params = {
        .cuda_stream = stream, .workspace = workspace, .workspace_bytes = sizeof(workspace), .stats = &stats};
    return tlob_cublas_classic_ops.open(&lane, &params);
}

static void setup(void) {
    fake_reset();
    cr_assert_eq(open_lane(), TLOB_OK, "%s", fake.error.message);
}

static void teardown(void) {
    tlob_cublas_classic_ops.close(lane);
}

TestSuite(classic, .init = setup, .fini = teardown);

/* Known trap: cublasSetStream drops the workspace, so the workspace must be set after it. */
Test(classic, the_workspace_is_bound_after_the_stream) {
    cr_assert_str_eq(fake.calls, "create set_stream set_workspace set_pointer_mode ");
    cr_assert_eq(fake.stream, stream);
    cr_assert_eq(fake.workspace, workspace);
    cr_assert_eq(fake.workspace_bytes, sizeof(workspace));
    cr_assert_eq(stats.handles_created, 1);
}

Test(classic, the_whole_table) {
    static const tlob_compute modes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    for (int i = 0; i < 2; i++) {
        char failed[64];
        int ran = fake_sweep(&tlob_cublas_classic_ops, lane, modes[i], failed);
        cr_assert_gt(ran, 300);
        cr_assert_str_empty(failed, "%s", failed);
    }
}

static tlob_status run_with(tlob_gemm gemm, const tlob_gemm_operands *x, void **memo) {
    tlob_operation operation = tlob_gemm_operation(&gemm);
    return operation == TLOB_OPERATION_SGEMM ? tlob_cublas_classic_ops.sgemm(lane, &gemm, x, NULL, memo)
           : operation == TLOB_OPERATION_SGEMM_STRIDED_BATCHED
               ? tlob_cublas_classic_ops.sgemm_strided_batched(lane, &gemm, x, NULL, memo)
               : tlob_cublas_classic_ops.matmul_bias(lane, &gemm, x, NULL, memo);
}

static tlob_status run(tlob_gemm gemm, const tlob_gemm_operands *x) {
    void *memo = NULL;
    return run_with(gemm, x, &memo);
}

static const char *calls_of(tlob_gemm gemm, const tlob_gemm_operands *x) {
    fake_forget_calls();
    cr_assert_eq(run(gemm, x), TLOB_OK, "%s", fake.error.message);
    return fake.calls;
}

/* Known trap: a batch of one is sent to a slow kernel. */
Test(classic, as_few_calls_as_can_be) {
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    g.compute = TLOB_COMPUTE_FP32;
    tlob_gemm_operands x = operands;
    cr_assert_str_eq(calls_of(g, &x), "gemm ");
    g.batch = 2;
    g.stride_a = g.stride_b = g.stride_c = 4;
    cr_assert_str_eq(calls_of(g, &x), "gemm_batched ");
    g.epilogue = TLOB_EPILOGUE_BIAS;
    x.bias = bias;
    cr_assert_str_eq(calls_of(g, &x), "affine gemm_batched ");
    g.batch = 1;
    cr_assert_str_eq(calls_of(g, &x), "affine gemm ");
    g.epilogue = TLOB_EPILOGUE_NONE;
    g.beta = 1;
    x.c = d;
    cr_assert_str_eq(calls_of(g, &x), "gemm ", "in place");
    x.c = c;
    cr_assert_str_eq(calls_of(g, &x), "affine gemm ", "C from elsewhere");
    g.beta = 0;
    cr_assert_str_eq(calls_of(g, &x), "gemm ", "C is not read");
}

Test(classic, a_bias_without_the_epilogue_is_not_added) {
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    tlob_gemm_operands x = operands;
    x.bias = bias;
    cr_assert_str_eq(calls_of(g, &x), "gemm ");
}

Test(classic, every_other_epilogue_is_one_kernel_after_the_product) {
    tlob_gemm_operands x = operands;
    x.bias = bias;
    x.bgrad = bgrad;
    x.aux = aux;
    for (int e = TLOB_EPILOGUE_BIAS + 1; e < TLOB_EPILOGUE_COUNT; e++) {
        cr_assert(tlob_cublas_classic_ops.caps.epilogues & 1u << e);
        tlob_gemm g = tlob_gemm_init(2, 2, 2);
        g.epilogue = (tlob_epilogue)e;
        x.c = NULL;
        cr_assert_str_eq(calls_of(g, &x), "gemm finish ", "epilogue %d", e);
        cr_assert_eq(fake.gemm.beta, 0);
        cr_assert_eq(fake.stream, stream);
        g.beta = -0.5f;
        x.c = d;
        cr_assert_str_eq(calls_of(g, &x), "gemm finish ", "epilogue %d in place", e);
        cr_assert_eq(fake.gemm.beta, -0.5f);
        x.c = c;
        cr_assert_str_eq(calls_of(g, &x), "affine gemm finish ", "epilogue %d, C from elsewhere", e);
        g.batch = 2;
        g.stride_a = g.stride_b = g.stride_c = 4;
        g.stride_bias = 2;
        g.stride_aux = 256;
        x.c = d;
        cr_assert_str_eq(calls_of(g, &x), "gemm_batched finish ", "a batch with epilogue %d", e);
    }
}

Test(classic, how_is_told_as_far_as_it_is_known) {
    tlob_lane_plan plan;
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    fake_forget_calls();
    cr_assert_eq(tlob_cublas_classic_ops.describe(lane, &g, &(tlob_gemm_operands){0}, NULL, 0, &plan), TLOB_OK);
    cr_assert(strstr(plan.algorithm, "cuBLAS"), "%s", plan.algorithm);
    cr_assert_eq(plan.workspace_bytes, 0);
    cr_assert_not(plan.cached);
    cr_assert_str_empty(fake.calls);
    cr_assert_eq(tlob_cublas_classic_ops.api, TLOB_BACKEND_API);
}

/* Known trap: a copy of one of the two libraries from another toolkit. */
Test(classic, libraries_of_two_versions_are_one_clear_error) {
    tlob_lane *kept = lane;
    fake.lt_version = 130201;
    fake_forget_calls();
    cr_assert_eq(open_lane(), TLOB_ERR_BACKEND);
    cr_assert(strstr(fake.error.message, "130100") && strstr(fake.error.message, "130201"), "%s", fake.error.message);
    cr_assert_eq(fake_count("create"), 0);
    lane = kept;
}

Test(classic, the_version_is_that_of_the_library_at_run_time) {
    char text[64];
    fake.cublas_version = 121305;
    tlob_cublas_classic_ops.version(text, sizeof(text));
    cr_assert_str_eq(text, "cuBLAS 12.13.5");
}

/* Whatever fails while a lane is opened, nothing is left of it. */
Test(classic, a_lane_that_cannot_be_opened_leaves_nothing) {
    static const char *const calls[] = {"create", "set_stream", "set_workspace", "set_pointer_mode"};
    tlob_lane *kept = lane;
    for (int i = 0; i < 4; i++) {
        fake_reset();
        fake.failing_call = calls[i];
        fake.failing_code = CUBLAS_STATUS_NOT_INITIALIZED;
        cr_assert_eq(open_lane(), TLOB_ERR_BACKEND);
        cr_assert_eq(fake.error.vendor_code, CUBLAS_STATUS_NOT_INITIALIZED);
        cr_assert_eq(fake_count("destroy"), i > 0, "after %s", calls[i]);
    }
    fake.failing_code = CUBLAS_STATUS_ALLOC_FAILED;
    cr_assert_eq(open_lane(), TLOB_ERR_OUT_OF_MEMORY);
    lane = kept;
    fake_reset();
}

Test(classic, a_failing_product_names_problem_and_status_and_nothing_else_is_tried) {
    static const struct {
        cublasStatus_t code;
        tlob_status status;
    } rows[] = {{CUBLAS_STATUS_NOT_SUPPORTED, TLOB_ERR_UNSUPPORTED},
                {CUBLAS_STATUS_EXECUTION_FAILED, TLOB_ERR_BACKEND},
                {CUBLAS_STATUS_ALLOC_FAILED, TLOB_ERR_OUT_OF_MEMORY}};
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    for (int i = 0; i < 3; i++) {
        fake_forget_calls();
        fake.failing_call = "gemm";
        fake.failing_code = rows[i].code;
        cr_assert_eq(run(g, &operands), rows[i].status);
        cr_assert_str_eq(fake.calls, "gemm ");
        cr_assert_str_eq(fake.error.backend, "cublas_classic");
        cr_assert_str_eq(fake.error.operation, "cublasGemmEx");
        cr_assert_eq(fake.error.vendor_code, (int)rows[i].code);
        cr_assert(fake.error.has_gemm && fake.error.gemm.m == 2);
    }
    g.epilogue = TLOB_EPILOGUE_BIAS;
    tlob_gemm_operands x = operands;
    x.bias = bias;
    fake.failing_call = "affine";
    fake_forget_calls();
    cr_assert_eq(run(g, &x), TLOB_ERR_CUDA);
    cr_assert_str_eq(fake.calls, "affine ");
    g.epilogue = TLOB_EPILOGUE_RELU;
    fake.failing_call = "gemm";
    fake.failing_code = CUBLAS_STATUS_EXECUTION_FAILED;
    fake_forget_calls();
    cr_assert_eq(run(g, &operands), TLOB_ERR_BACKEND);
    cr_assert_str_eq(fake.calls, "gemm ", "no epilogue after a product that failed");
    fake.failing_call = "finish";
    cr_assert_eq(run(g, &operands), TLOB_ERR_CUDA);
    fake_reset();
}

/* --- captures -------------------------------------------------------------------------------------------------- */

/* Known trap: with lazy loading, the first launch of a kernel inside a capture has to load it. */
Test(classic, a_cold_call_in_a_capture_is_refused_before_any_vendor_call) {
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    tlob_gemm_operands x = operands;
    fake_forget_calls();
    fake.capturing = true;
    cr_assert_eq(run(g, &x), TLOB_ERR_NOT_WARM);
    cr_assert_str_empty(fake.calls);
    cr_assert_str_eq(fake.error.backend, "cublas_classic");
    cr_assert(strstr(fake.error.message, "tlob_warm"), "%s", fake.error.message);
    cr_assert(fake.error.has_gemm);
    fake.capturing = false;
    cr_assert_eq(run(g, &x), TLOB_OK);
    fake.capturing = true;
    cr_assert_str_eq(calls_of(g, &x), "gemm ");
    x.a = a + 1;
    cr_assert_eq(run(g, &x), TLOB_ERR_NOT_WARM, "another alignment may be another kernel");
}

/* Each change of the problem may be another kernel of cuBLAS, or one that libtlob adds. */
Test(classic, what_makes_a_call_cold) {
    enum { OTHERS = 11 };
    static float big[64];
    tlob_gemm g = tlob_gemm_init(2, 2, 2), other[OTHERS];
    tlob_gemm_operands x = {.a = a, .b = b, .c = big, .d = big, .bias = bias};
    cr_assert_eq(run(g, &x), TLOB_OK);
    for (int i = 0; i < OTHERS; i++)
        other[i] = g;
    other[0].m = 1;
    other[1].n = 1;
    other[2].k = 1;
    other[3].lda = 3;
    other[4].ldc = 3;
    other[5].transb = TLOB_OP_T;
    other[6].compute = TLOB_COMPUTE_TF32;
    other[7].batch = 2, other[7].stride_c = 4;
    other[8].beta = 1;
    other[9].epilogue = TLOB_EPILOGUE_BIAS;
    other[10].epilogue = TLOB_EPILOGUE_RELU;
    for (int i = 0; i < OTHERS; i++) {
        fake.capturing = true;
        cr_assert_eq(run(other[i], &x), TLOB_ERR_NOT_WARM, "problem %d", i);
        fake.capturing = false;
        cr_assert_eq(run(other[i], &x), TLOB_OK, "problem %d", i);
        fake.capturing = true;
        cr_assert_eq(run(other[i], &x), TLOB_OK, "problem %d", i);
        cr_assert_eq(run(g, &x), TLOB_OK, "the first one after problem %d", i);
    }
    g.alpha = 3; /* a value, wherever it comes from */
    cr_assert_eq(run(g, &x), TLOB_OK);
    x.c = c;
    cr_assert_eq(run(g, &x), TLOB_OK, "C is not read");
    g.beta = 1;
    cr_assert_eq(run(g, &x), TLOB_ERR_NOT_WARM, "C from elsewhere is another kernel");
}

/* The memo is of the problem, and operands are not part of it. */
Test(classic, a_memo_tells_nothing_of_other_operands) {
    static _Alignas(256) float there[64];
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    const tlob_gemm_operands x = {.a = there, .b = there + 32, .c = there + 16, .d = there + 48};
    tlob_gemm_operands y[5] = {x, x, x, x, x};
    void *memo = NULL, *first;
    g.beta = 1;
    y[0].a++;
    y[1].b++;
    y[2].c++;
    y[3].d++;
    y[4].c = y[4].d; /* as aligned as the other, and no affine kernel */
    cr_assert_eq(run_with(g, &x, &memo), TLOB_OK);
    first = memo;
    for (int i = 0; i < 5; i++) {
        fake.capturing = true;
        cr_assert_eq(run_with(g, &y[i], &memo), TLOB_ERR_NOT_WARM, "operand %d", i);
        cr_assert_eq(memo, first);
        cr_assert_eq(run_with(g, &x, &memo), TLOB_OK);
        fake.capturing = false;
        cr_assert_eq(run_with(g, &y[i], &memo), TLOB_OK);
        cr_assert_neq(memo, first);
        memo = first;
    }
}

Test(classic, a_product_that_failed_has_not_run) {
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    void *memo = NULL;
    g.epilogue = TLOB_EPILOGUE_RELU;
    fake.failing_code = CUBLAS_STATUS_EXECUTION_FAILED;
    static const char *const failing[] = {"gemm", "finish"};
    for (int i = 0; i < 2; i++) {
        fake.failing_call = failing[i];
        fake.capturing = false;
        cr_assert_neq(run_with(g, &operands, &memo), TLOB_OK);
        cr_assert_null(memo);
        fake.failing_call = NULL;
        fake.capturing = true;
        cr_assert_eq(run_with(g, &operands, &memo), TLOB_ERR_NOT_WARM, "after a failing %s", failing[i]);
    }
}

/* What is left for the core is found again without it, and of all that have run none is forgotten. */
Test(classic, nothing_that_has_run_is_forgotten) {
    static float big[512];
    tlob_gemm_operands x = {.a = big, .b = big, .d = big};
    void *memo = NULL, *first = NULL;
    for (int round = 0; round < 2; round++) {
        fake.capturing = round == 1;
        for (int64_t k = 1; k <= 300; k++) {
            memo = NULL;
            fake_forget_calls();
            cr_assert_eq(run_with(tlob_gemm_init(1, 1, k), &x, &memo), TLOB_OK, "k %d", (int)k);
            cr_assert_not_null(memo);
            if (k == 1 && round == 0)
                first = memo;
            if (k == 1)
                cr_assert_eq(memo, first);
        }
    }
    memo = first;
    cr_assert_eq(run_with(tlob_gemm_init(1, 1, 1), &x, &memo), TLOB_OK);
    cr_assert_eq(memo, first);
}
