/* The fixed search for an algorithm, and the table of its answers, on a cublasLt that is none. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cublaslt/search.h"
#include "tests/fakes/fake.h"

static tlob_shared *shared;
static tlob_lane *lane;
static tlob_stream_stats stats;
static char logged[1024];
static _Alignas(256) char workspace[256];
static _Alignas(256) float a[64], b[64], c[64], d[64], bias[64], bgrad[64], aux[1024];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

static int list(void);

/* As an embedder might, it looks at the table when it is told of it. */
static void note_line(void *user, tlob_log_level level, const char *line) {
    (void)user;
    cr_assert_eq(level, TLOB_LOG_WARN);
    snprintf(logged, sizeof(logged), "%s", line);
    cr_assert_gt(list(), 0);
}

static tlob_shared *attach(int multiprocessors) {
    const tlob_shared_params params = {
        .deterministic = true, .device = "fake", .multiprocessors = multiprocessors, .log = note_line};
    tlob_shared *made = NULL;
    cr_assert_eq(tlob_cublaslt_ops.attach(&made, &params), TLOB_OK);
    cr_assert_not_null(made);
    return made;
}

static tlob_lane *open_lane(tlob_shared *of, size_t workspace_bytes) {
    const tlob_lane_params params = {.workspace = workspace,
                                     .workspace_bytes = workspace_bytes,
                                     .deterministic = true,
                                     .shared = of,
                                     .stats = &stats};
    tlob_lane *made = NULL;
    cr_assert_eq(tlob_cublaslt_ops.open(&made, &params), TLOB_OK, "%s", fake.error.message);
    return made;
}

static void setup(void) {
    fake_reset();
    shared = attach(132);
    lane = open_lane(shared, 32 << 20);
    fake_forget_calls();
}

static void teardown(void) {
    tlob_cublaslt_ops.close(lane);
    tlob_cublaslt_ops.detach(shared);
}

TestSuite(algorithms, .init = setup, .fini = teardown);

/* Another process, as far as the backend can tell. */
static void begin_anew(int multiprocessors) {
    teardown();
    shared = attach(multiprocessors);
    lane = open_lane(shared, 32 << 20);
    fake_forget_calls();
}

static tlob_gemm problem(tlob_compute compute) {
    tlob_gemm g = tlob_gemm_init(3, 2, 4);
    g.compute = compute;
    return g;
}

/* As large as a product can be whose operands need no memory: described, not run. */
static tlob_gemm large(int i) {
    static const struct {
        int64_t m, n, k, batch;
    } shapes[] = {{16, 32, 65536, 1},    {64, 64, 64, 1},     {256, 4096, 256, 1}, {1024, 1024, 1024, 1},
                  {768, 256, 4096, 3},   {1, 1, 1, 1},        {4096, 4096, 16, 1}, {100, 300, 7, 50}};
    tlob_gemm g = tlob_gemm_init(shapes[i / 2].m, shapes[i / 2].n, shapes[i / 2].k);
    g.compute = i % 2 ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32;
    g.batch = shapes[i / 2].batch;
    g.stride_a = g.m * g.k;
    g.stride_b = g.n * g.k;
    g.stride_c = g.m * g.n;
    return g;
}
enum { LARGE = 16 };

static const char *describe(const tlob_gemm *g, const tlob_gemm_operands *x) {
    static tlob_lane_plan plan;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, g, x, NULL, 0, &plan), TLOB_OK, "%s", fake.error.message);
    cr_assert(strstr(plan.algorithm, ", deterministic"), "%s", plan.algorithm);
    return plan.algorithm;
}

static tlob_status run(tlob_gemm g, tlob_gemm_operands x) {
    return tlob_cublaslt_ops.matmul_bias(lane, &g, &x, NULL, &(void *){NULL});
}

static void refuse_all_but(int id) {
    fake.refused = 0;
    for (int i = 0; i < FAKE_ALGORITHMS; i++)
        if (fake_algorithms[i].id != id)
            fake.refused |= 1u << i;
}

/* --- the list, for the tests ----------------------------------------------------------------------------------- */

static struct {
    int count, states[4];
    tlob_algorithm last;
    char reason[480];
} seen;

static void look(void *user, const tlob_algorithm *entry) {
    (void)user;
    seen.count++;
    seen.states[entry->state]++;
    seen.last = *entry;
    if (entry->state == TLOB_ALGORITHM_REJECTED)
        snprintf(seen.reason, sizeof(seen.reason), "%s", entry->reason);
}

static int list(void) {
    memset(&seen, 0, sizeof(seen));
    tlob_cublaslt_ops.list_algorithms(shared, look, NULL);
    return seen.count;
}

static int64_t *field_of(tlob_algorithm *entry, const char *name) {
    for (int i = 0; i < entry->n_key; i++)
        if (!strcmp(entry->key[i].name, name))
            return &entry->key[i].value;
    for (int i = 0; i < entry->n_configuration; i++)
        if (!strcmp(entry->configuration[i].name, name))
            return &entry->configuration[i].value;
    cr_assert(false, "no field '%s'", name);
    return NULL;
}

/* --- what is chosen -------------------------------------------------------------------------------------------- */

/* Known trap: the order of the list differs between processes, and an ordinal names another kernel. */
Test(algorithms, the_order_in_which_the_library_lists_has_no_part_in_it) {
    char first[LARGE][128];
    for (int turn = -FAKE_ALGORITHMS; turn < FAKE_ALGORITHMS; turn++) {
        begin_anew(132);
        fake.rotated = turn;
        for (int i = 0; i < LARGE; i++) {
            tlob_gemm g = large(i);
            const char *told = describe(&g, &operands);
            if (turn == -FAKE_ALGORITHMS)
                strcpy(first[i], told);
            cr_assert_str_eq(told, first[i], "problem %d, turn %d", i, turn);
        }
        tlob_gemm g = problem(TLOB_COMPUTE_FP32);
        fake.refused = UINT32_MAX; /* of two whose time cannot be estimated, the lower number */
        for (int i = 0; i < FAKE_ALGORITHMS; i++)
            if (fake_algorithms[i].id == 13 || fake_algorithms[i].id == 98)
                fake.refused &= ~(1u << i);
        const char *told = describe(&g, &operands);
        cr_assert(strstr(told, "algo 13 "), "turn %d: %s", turn, told);
        fake.refused = 0;
    }
}

Test(algorithms, the_first_that_passes_wins) {
    tlob_gemm g = problem(TLOB_COMPUTE_TF32);
    int chosen[FAKE_ALGORITHMS], n = 0;
    for (; n < 3; n++) { /* each time without those that have won before */
        begin_anew(132);
        cr_assert_eq(run(g, operands), TLOB_OK, "%s", fake.error.message);
        chosen[n] = (int)fake.ran[CUBLASLT_ALGO_CONFIG_ID];
        for (int i = 0; i < n; i++)
            cr_assert_neq(chosen[n], chosen[i]);
        for (int i = 0; i < FAKE_ALGORITHMS; i++)
            if (fake_algorithms[i].id == chosen[n])
                fake.refused |= 1u << i;
    }
    begin_anew(132);
    fake.refused = 0;
    cr_assert_eq(run(g, operands), TLOB_OK);
    cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], (uint32_t)chosen[0]);
    cr_assert_eq(fake_count("check"), 1, "no more were looked at: %s", fake.calls);
    cr_assert_eq(fake_count("heuristic"), 0);
}

Test(algorithms, a_split_k_is_summed_in_a_step_of_its_own) {
    bool split = false;
    for (int i = 0; i < LARGE; i++) {
        tlob_gemm g = large(i);
        split = split || !strstr(describe(&g, &operands), "split-k 1 ");
    }
    cr_assert(split, "the test has a case");
    cr_assert_gt(fake.checked_split_most, 1);
    cr_assert_not(fake.checked_in_place);
    refuse_all_but(70); /* which can in place alone */
    begin_anew(132);
    tlob_gemm g = large(1);
    cr_assert(strstr(describe(&g, &operands), "algo 70 tile 64x64 stages id 6 split-k 1 reduction 0 "));
    refuse_all_but(43); /* which has the scheme of the output's type alone */
    fake.checked_split_most = 0;
    begin_anew(132);
    const char *told = describe(&g, &operands);
    cr_assert(strstr(told, "algo 43 ") && (strstr(told, "reduction 4 ") || strstr(told, "split-k 1 ")), "%s", told);
    cr_assert_not(fake.checked_in_place);
}

Test(algorithms, an_algorithm_that_rounds_more_than_the_mode_allows_is_none) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    g.compute = TLOB_COMPUTE_TF32;
    refuse_all_but(99);
    cr_assert_eq(run(g, operands), TLOB_ERR_UNSUPPORTED);
    refuse_all_but(21);
    cr_assert_eq(run(g, operands), TLOB_OK);
    g.compute = TLOB_COMPUTE_FP32;
    cr_assert_eq(run(g, operands), TLOB_ERR_UNSUPPORTED);
}

Test(algorithms, the_workspace_is_a_limit) {
    tlob_gemm g = large(0);
    tlob_lane_plan plan;
    for (size_t bytes = 0; bytes <= 1 << 20; bytes = bytes ? 4 * bytes : 256) {
        tlob_lane *kept = lane;
        lane = open_lane(shared, bytes);
        cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK, "%s", fake.error.message);
        cr_assert_leq(plan.workspace_bytes, bytes);
        tlob_cublaslt_ops.close(lane);
        lane = kept;
    }
    begin_anew(132);
    fake.more_workspace = (32 << 20) + 1;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_ERR_UNSUPPORTED);
    fake.more_workspace = 32 << 20;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
    cr_assert_eq(plan.workspace_bytes, 32 << 20);
}

/* Known trap: the check passes, and the kernel faults on operands that are less aligned than it needs. */
Test(algorithms, an_algorithm_that_needs_more_alignment_than_there_is_is_none) {
    tlob_gemm g = tlob_gemm_init(4, 4, 4);
    g.compute = TLOB_COMPUTE_TF32;
    g.beta = 1;
    refuse_all_but(21);
    cr_assert_eq(run(g, operands), TLOB_OK, "%s", fake.error.message);
    for (int i = 0; i < 4; i++) {
        tlob_gemm_operands x = operands;
        const float **moved[] = {&x.a, &x.b, &x.c};
        if (i < 3)
            *moved[i] += 2;
        else
            x.d += 2;
        cr_assert_eq(run(g, x), TLOB_ERR_UNSUPPORTED, "operand %d", i);
    }
    int64_t *lds[] = {&g.lda, &g.ldb, &g.ldc};
    for (int i = 0; i < 3; i++) {
        *lds[i] = 5;
        cr_assert_eq(run(g, operands), TLOB_ERR_UNSUPPORTED, "ld %d", i);
        *lds[i] = 8;
        cr_assert_eq(run(g, operands), TLOB_OK, "ld %d", i);
    }
    g.batch = 2;
    int64_t *strides[] = {&g.stride_a, &g.stride_b, &g.stride_c};
    g.stride_a = g.stride_b = g.stride_c = 32;
    for (int i = 0; i < 3; i++) {
        *strides[i] = 30;
        cr_assert_eq(run(g, operands), TLOB_ERR_UNSUPPORTED, "stride %d", i);
        *strides[i] = 32;
    }
    cr_assert_eq(run(g, operands), TLOB_OK);
}

/* Known trap: an algorithm that one version gets wrong past 2^31 elements. */
Test(algorithms, one_that_is_known_to_be_wrong_is_passed_over) {
    tlob_gemm g = problem(TLOB_COMPUTE_FP32);
    tlob_lane_plan plan;
    g.lda = (int64_t)1 << 31;
    fake.lt_version = 130600;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
    cr_assert_not(strstr(plan.algorithm, "algo 68 "));
    begin_anew(132);
    refuse_all_but(68);
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_ERR_UNSUPPORTED);
    fake.lt_version = 130601;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
}

Test(algorithms, kernels_without_tiles_and_with_unknown_ones_come_last) {
    tlob_gemm g = problem(TLOB_COMPUTE_FP32);
    refuse_all_but(98);
    cr_assert(strstr(describe(&g, &operands), "algo 98 tile id 600 "));
    begin_anew(132);
    refuse_all_but(13);
    cr_assert(strstr(describe(&g, &operands), "algo 13 tile ? "));
    begin_anew(132);
    for (int i = 0; i < FAKE_ALGORITHMS; i++) /* with any other left, that one */
        if (fake_algorithms[i].id != 13 && fake_algorithms[i].id != 98 && fake_algorithms[i].id != 55)
            fake.refused |= 1u << i;
        else
            fake.refused &= ~(1u << i);
    cr_assert(strstr(describe(&g, &operands), "algo 55 "));
}

Test(algorithms, where_nothing_passes_the_problem_is_unsupported) {
    fake.refused = ~0u;
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_ERR_UNSUPPORTED);
    cr_assert(strstr(fake.error.message, "configurations"), "%s", fake.error.message);
    cr_assert(fake.error.has_gemm && fake.error.gemm.k == 4);
    cr_assert_eq(list(), 0, "and nothing is kept");
    fake.refused = 0;
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
}

/* A failure is no answer: to go on to the next configuration would be another one. */
Test(algorithms, whatever_vendor_call_fails_is_reported) {
    static const struct {
        const char *call;
        cublasStatus_t code;
    } rows[] = {{"get_ids", CUBLAS_STATUS_NOT_INITIALIZED},
                {"algo_init", CUBLAS_STATUS_INVALID_VALUE},
                {"config_set", CUBLAS_STATUS_INVALID_VALUE},
                {"check", CUBLAS_STATUS_INTERNAL_ERROR}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fake.failing_call = rows[i].call;
        fake.failing_code = rows[i].code;
        fake_forget_calls();
        cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_ERR_BACKEND, "%s", rows[i].call);
        cr_assert_eq(fake.error.vendor_code, (int)rows[i].code);
        cr_assert_eq(fake_count("matmul"), 0);
        cr_assert_eq(list(), 0, "%s", rows[i].call);
    }
    fake.failing_call = NULL;
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
}

Test(algorithms, the_whole_table) {
    static const tlob_compute modes[] = {TLOB_COMPUTE_FP32, TLOB_COMPUTE_TF32};
    for (int i = 0; i < 2; i++) {
        char failed[64];
        int ran = fake_sweep(&tlob_cublaslt_ops, lane, modes[i], failed);
        cr_assert_gt(ran, 300);
        cr_assert_str_empty(failed, "%s: %s", failed, fake.error.message);
    }
}

/* Known trap: the heuristic fails, or spoils the capture, while a stream is captured. The search is no better. */
Test(algorithms, a_cold_call_in_a_capture_is_refused_before_any_vendor_call) {
    tlob_gemm g = problem(TLOB_COMPUTE_TF32);
    tlob_lane *other = open_lane(shared, 32 << 20);
    cr_assert_eq(tlob_cublaslt_ops.sgemm(other, &g, &operands, NULL, &(void *){NULL}), TLOB_OK, "%s", fake.error.message);
    fake_forget_calls();
    fake.capturing = true;
    cr_assert_eq(run(g, operands), TLOB_ERR_NOT_WARM, "another stream's call has made no plan of this one");
    cr_assert_str_eq(fake.calls, "");
    tlob_cublaslt_ops.close(other);
}

Test(algorithms, one_that_works_in_place_alone_is_none_for_a_c_of_its_own) {
    tlob_gemm g = problem(TLOB_COMPUTE_TF32);
    tlob_gemm_operands x = operands;
    fake.in_place_alone = true;
    cr_assert_eq(run(g, x), TLOB_OK, "C is not read: %s", fake.error.message);
    g.beta = 1;
    cr_assert_eq(run(g, x), TLOB_ERR_UNSUPPORTED);
    x.c = x.d;
    cr_assert_eq(run(g, x), TLOB_OK, "%s", fake.error.message);
}

/* The ids of cublasLtClusterShape_t: 1x1 is 2, 2x1 is 3, 1x2 is 5. */
Test(algorithms, clusters_go_where_there_is_an_even_number_of_tiles) {
    static const struct {
        int64_t m, n;
        const char *words;
    } rows[] = {{128, 192, "tile 64x64 stages id 34 split-k 1 reduction 0 swizzle 0 cluster id 3,"},
                {64, 128, "tile 64x64 stages id 34 split-k 1 reduction 0 swizzle 0 cluster id 5,"},
                {64, 64, "tile 64x64 stages id 34 split-k 1 reduction 0 swizzle 0 cluster id 2,"}};
    refuse_all_but(43);
    for (int i = 0; i < 3; i++) {
        tlob_gemm g = tlob_gemm_init(rows[i].m, rows[i].n, 32);
        g.compute = TLOB_COMPUTE_TF32;
        const char *told = describe(&g, &operands);
        cr_expect(strstr(told, rows[i].words), "%s", told);
    }
}

/* --- the table ------------------------------------------------------------------------------------------------- */

Test(algorithms, a_second_call_and_a_second_stream_search_no_more) {
    tlob_gemm g = problem(TLOB_COMPUTE_TF32);
    cr_assert_eq(run(g, operands), TLOB_OK);
    uint32_t ran[9];
    memcpy(ran, fake.ran, sizeof(ran));
    fake_forget_calls();
    cr_assert_eq(run(g, operands), TLOB_OK);
    cr_assert_str_eq(fake.calls, "matmul ");
    tlob_lane *first = lane;
    lane = open_lane(shared, 32 << 20);
    fake_forget_calls();
    cr_assert_eq(run(g, operands), TLOB_OK);
    cr_assert_eq(fake_count("get_ids") + fake_count("check"), 0, "%s", fake.calls);
    cr_assert_eq(fake_count("algo_init"), 1, "made from its attributes");
    cr_assert_eq(memcmp(ran, fake.ran, sizeof(ran)), 0);
    cr_assert_eq(list(), 1);
    tlob_cublaslt_ops.close(lane);
    lane = first;
}

/* Known trap: a key without type, layout, epilogue or versions takes one problem for another. */
Test(algorithms, whatever_a_choice_may_depend_on_is_in_the_key) {
    tlob_gemm g = problem(TLOB_COMPUTE_TF32), h;
    tlob_gemm_operands y;
    g.batch = 2;
    g.stride_a = 12;
    g.stride_b = 16;
    g.stride_c = 6;
    g.epilogue = TLOB_EPILOGUE_RELU_AUX_BIAS;
    g.ld_aux = 256;
    g.stride_aux = 512;
    g.stride_bias = 8;
    g.beta = 1;
    int entries = 1;
    describe(&g, &operands);
    cr_assert_eq(list(), entries);
#define DIFFERS(change)                                                                                                \
    do {                                                                                                               \
        h = g;                                                                                                         \
        y = operands;                                                                                                  \
        change;                                                                                                        \
        describe(&h, &y);                                                                                              \
        cr_assert_eq(list(), ++entries, #change);                                                                      \
        describe(&h, &y);                                                                                              \
        cr_assert_eq(list(), entries, #change);                                                                        \
    } while (0)
    DIFFERS(h.m++);
    DIFFERS(h.n++);
    DIFFERS(h.k++);
    DIFFERS(h.lda++);
    DIFFERS(h.ldb++);
    DIFFERS(h.ldc++);
    DIFFERS(h.batch++);
    DIFFERS(h.stride_a++);
    DIFFERS(h.stride_b++);
    DIFFERS(h.stride_c++);
    DIFFERS(h.stride_bias++);
    DIFFERS(h.ld_aux += 128);
    DIFFERS(h.stride_aux += 128);
    DIFFERS(h.transa = TLOB_OP_T);
    DIFFERS(h.transb = TLOB_OP_T);
    DIFFERS(h.compute = TLOB_COMPUTE_FP32);
    DIFFERS(h.epilogue = TLOB_EPILOGUE_RELU_BIAS);
    DIFFERS(h.beta = 0);
    DIFFERS(y.a++);
    DIFFERS(y.b++);
    DIFFERS(y.c++);
    DIFFERS(y.d++);
    DIFFERS(y.bias++);
    DIFFERS(y.aux = aux + 4);
    DIFFERS(y.c = y.d);
#undef DIFFERS
    h = g;
    h.alpha = 7;
    h.beta = -2;
    describe(&h, &operands);
    cr_assert_eq(list(), entries, "scalars are none of it");
    tlob_lane *kept = lane;
    lane = open_lane(shared, 1 << 20);
    describe(&g, &operands);
    cr_assert_eq(list(), entries + 1, "the workspace is");
    tlob_cublaslt_ops.close(lane);
    lane = kept;
}

/* The device is the table's: the same problem on another is ordered by another estimate. */
Test(algorithms, the_number_of_multiprocessors_counts) {
    tlob_product_key key = {.m = 256, .n = 256, .k = 4096, .batch = 1};
    tlob_algo_config config = {.id = 21, .tile = 15, .stages = 12, .split_k = 8};
    cr_assert_lt(tlob_algo_estimate(&key, &config, 132), tlob_algo_estimate(&key, &config, 16));
}

/* Kernels for vectors have no tiles, and would come last but for an estimate of their own. */
Test(algorithms, products_with_a_vector_have_kernels_of_their_own) {
    tlob_product_key key = {.m = 1, .n = 256, .k = 4096, .batch = 1}, dot = {.m = 1, .n = 1, .k = 65536, .batch = 1};
    const tlob_algo_config tile = {.id = 21, .tile = 15, .stages = 12, .split_k = 16};
    const tlob_algo_config vector = {.id = 13, .custom = 75, .split_k = 1};
    const tlob_algo_config split = {.id = 14, .split_k = 128}, whole = {.id = 14, .split_k = 1};
    cr_assert_lt(tlob_algo_estimate(&key, &vector, 132), tlob_algo_estimate(&key, &tile, 132));
    cr_assert_lt(tlob_algo_estimate(&dot, &split, 132), tlob_algo_estimate(&dot, &vector, 132));
    cr_assert_lt(tlob_algo_estimate(&dot, &split, 132), tlob_algo_estimate(&dot, &whole, 132));
    key.m = 2;
    cr_assert_gt(tlob_algo_estimate(&key, &vector, 132), tlob_algo_estimate(&key, &tile, 132));
}

/* --- entries from files ---------------------------------------------------------------------------------------- */

static bool offer(const tlob_algorithm *entry, char why[256]) {
    why[0] = 0;
    return tlob_cublaslt_ops.offer_algorithm(shared, entry, why, 256);
}

/* What a context has chosen for the problem, as a file would have it. */
static tlob_algorithm saved(void) {
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
    cr_assert_eq(list(), 1);
    tlob_algorithm entry = seen.last;
    cr_assert_eq(entry.state, TLOB_ALGORITHM_CHOSEN);
    cr_assert_eq(entry.library, 130100);
    cr_assert_eq(entry.order, TLOB_ALGO_ORDER);
    entry.source = "file, entry 1";
    begin_anew(132);
    return entry;
}

Test(algorithms, a_promise_that_is_kept_is_confirmed) {
    char why[256];
    tlob_algorithm entry = saved();
    cr_assert(offer(&entry, why), "%s", why);
    list();
    cr_assert_eq(seen.states[TLOB_ALGORITHM_LOADED], 1);
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
    cr_assert_eq(list(), 1);
    cr_assert_eq(seen.states[TLOB_ALGORITHM_CONFIRMED], 1);
    cr_assert_str_eq(seen.last.source, "file, entry 1");
    cr_assert_str_empty(logged);
    cr_assert(offer(&entry, why), "and again: %s", why);
}

/* Known trap: a file decides in deterministic mode, and most outputs change. */
Test(algorithms, an_entry_never_decides) {
    static const char *const fields[] = {"id",     "tile",    "stages",      "split_k",      "reduction",
                                         "custom", "swizzle", "inner_shape", "cluster_shape"};
    char why[256], far[320] = "";
    memset(far, '/', 300);
    strcat(far, "f, entry 1");
    tlob_algorithm entry = saved();
    cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
    uint32_t ran[9];
    memcpy(ran, fake.ran, sizeof(ran));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        begin_anew(132);
        logged[0] = 0;
        tlob_algorithm hostile = entry;
        *field_of(&hostile, fields[i]) += 1;
        hostile.source = far;
        cr_assert(offer(&hostile, why), "it could be right: %s", why);
        cr_assert_eq(run(problem(TLOB_COMPUTE_TF32), operands), TLOB_OK);
        cr_assert_eq(memcmp(ran, fake.ran, sizeof(ran)), 0, "%s", fields[i]);
        list();
        cr_assert_eq(seen.states[TLOB_ALGORITHM_CHOSEN], 1);
        cr_assert_eq(seen.states[TLOB_ALGORITHM_REJECTED], 1);
        cr_assert(strstr(seen.reason, "it says id ") && strstr(seen.reason, "chooses id "), "%s", seen.reason);
        cr_assert(strstr(seen.reason, fields[i]), "what differs, %s, is not told: %s", fields[i], seen.reason);
        cr_assert(strstr(logged, "f, entry 1 is rejected"), "%s", logged);
        cr_assert(strstr(logged, seen.reason) && strlen(logged) < 512, "a line of the log has 511: %s", logged);
    }
    tlob_algorithm late = entry; /* after the choice it is refused at once */
    *field_of(&late, "tile") += 1;
    cr_assert_not(offer(&late, why));
    cr_assert(strstr(why, "it says id "), "%s", why);
}

Test(algorithms, an_entry_for_something_else_is_refused_with_its_reason) {
    char why[256];
    const tlob_algorithm good = saved();
    tlob_algorithm entry = good;
    entry.library = 130101;
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "version 130101 of cuBLASLt, and this is 130100"), "%s", why);
    entry = good;
    entry.order = TLOB_ALGO_ORDER + 1;
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "order 2"), "%s", why);
    entry = good;
    entry.key[3].name = "humidity";
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "\"humidity\" is not known"), "%s", why);
    entry = good;
    entry.n_key--;
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "is missing"), "%s", why);
    entry = good;
    entry.configuration[1] = entry.configuration[0];
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "\"id\" is there twice"), "%s", why);
    entry = good;
    *field_of(&entry, "m") = 0;
    cr_assert_not(offer(&entry, why));
    cr_assert(strstr(why, "m is 0, must be from 1"), "%s", why);
    entry = good;
    *field_of(&entry, "cluster_shape") = 65536;
    cr_assert_not(offer(&entry, why));
    entry = good;
    *field_of(&entry, "transa") = (int64_t)1 << 32; /* which is 0 in 32 bits */
    cr_assert_not(offer(&entry, why));
    entry = good;
    entry.n_key = entry.n_configuration = 0;
    cr_assert_not(offer(&entry, why));
    cr_assert_eq(list(), 0);
    cr_assert(offer(&good, why));
    entry = good;
    *field_of(&entry, "tile") += 1;
    cr_assert_not(offer(&entry, why), "two promises for one key");
    cr_assert(strstr(why, "file, entry 1 has promised another"), "%s", why);
}

/* --- without the setting --------------------------------------------------------------------------------------- */

Test(algorithms, without_the_setting_the_heuristic_is_asked_and_no_table_kept) {
    const tlob_shared_params params = {.device = "fake", .multiprocessors = 132, .log = note_line};
    tlob_shared *none = NULL;
    char why[256] = "";
    cr_assert_eq(tlob_cublaslt_ops.attach(&none, &params), TLOB_OK);
    tlob_cublaslt_ops.list_algorithms(none, look, NULL);
    cr_assert_eq(seen.count, 0);
    cr_assert_not(tlob_cublaslt_ops.offer_algorithm(none, &(tlob_algorithm){.source = ""}, why, sizeof(why)));
    cr_assert(strstr(why, "not deterministic"), "%s", why);
    tlob_cublaslt_ops.detach(none);
}
