/* Configurations that a caller chooses, on a cublasLt that is none: which are proposed, and what adopting one does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "backends/cublaslt/pick.h"
#include "tests/fakes/fake.h"

static tlob_shared *shared;
static tlob_lane *lane;
static tlob_stream_stats stats;
static _Alignas(256) char workspace[256];
static _Alignas(256) float a[64], b[64], c[64], d[64], bias[64], bgrad[64], aux[1024];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = c, .d = d, .bias = bias, .bgrad = bgrad, .aux = aux};

static void drop_line(void *user, tlob_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
}

static void open_all(bool deterministic) {
    const tlob_shared_params share = {
        .deterministic = deterministic, .device = "fake", .multiprocessors = 132, .log = drop_line};
    cr_assert_eq(tlob_cublaslt_ops.attach(&shared, &share), TLOB_OK);
    const tlob_lane_params params = {.workspace = workspace,
                                     .workspace_bytes = 1 << 20,
                                     .deterministic = deterministic,
                                     .shared = shared,
                                     .stats = &stats};
    cr_assert_eq(tlob_cublaslt_ops.open(&lane, &params), TLOB_OK, "%s", fake.error.message);
    fake_forget_calls();
}

static void setup(void) {
    fake_reset();
    open_all(false);
}

static void teardown(void) {
    tlob_cublaslt_ops.close(lane);
    tlob_cublaslt_ops.detach(shared);
}

TestSuite(configurations, .init = setup, .fini = teardown);

static void become_deterministic(void) {
    teardown();
    open_all(true);
}

static tlob_gemm problem(void) {
    tlob_gemm g = tlob_gemm_init(4, 8, 4);
    g.compute = TLOB_COMPUTE_TF32;
    return g;
}

/* --- what is proposed ----------------------------------------------------------------------------------------------- */

enum { MOST = 512 };

typedef struct proposals {
    int count;
    tlob_algorithm_field fields[MOST][TLOB_ALGORITHM_FIELDS_MAX];
    int n[MOST];
} proposals;

static void note(void *user, const tlob_algorithm_field *fields, int count) {
    proposals *all = user;
    cr_assert_lt(all->count, MOST);
    memcpy(all->fields[all->count], fields, (size_t)count * sizeof(*fields));
    all->n[all->count++] = count;
}

static int64_t value_of(const proposals *all, int i, const char *name) {
    for (int f = 0; f < all->n[i]; f++)
        if (!strcmp(all->fields[i][f].name, name))
            return all->fields[i][f].value;
    cr_assert(false, "no field %s", name);
    return -1;
}

static proposals *propose(tlob_gemm g, tlob_gemm_operands x) {
    static proposals all[2];
    static int which;
    which = !which;
    all[which].count = 0;
    cr_assert_eq(tlob_cublaslt_ops.propose(lane, &g, &x, note, &all[which]), TLOB_OK, "%s", fake.error.message);
    return &all[which];
}

static tlob_status adopt(tlob_gemm g, tlob_gemm_operands x, const proposals *all, int i, const tlob_pick **pick) {
    return tlob_cublaslt_ops.adopt(lane, &g, &x, all->fields[i], all->n[i], pick);
}

static tlob_status run(tlob_gemm g, tlob_gemm_operands x, const tlob_pick *pick, void **memo) {
    return tlob_cublaslt_ops.matmul_bias(lane, &g, &x, pick, memo);
}

/* How many have this value in a field. */
static int count(const proposals *all, const char *name, int64_t value) {
    int found = 0;
    for (int i = 0; i < all->count; i++)
        found += value_of(all, i, name) == value;
    return found;
}

static int order(const proposals *all, int i, int j) {
    for (int f = 0; f < all->n[i]; f++)
        if (all->fields[i][f].value != all->fields[j][f].value)
            return all->fields[i][f].value < all->fields[j][f].value ? -1 : 1;
    return 0;
}

Test(configurations, are_sorted_and_all_different_whatever_the_order_of_the_list) {
    tlob_gemm g = problem();
    g.k = 64;
    const proposals first = *propose(g, operands);
    cr_assert_gt(first.count, 20);
    for (int i = 1; i < first.count; i++)
        cr_assert_lt(order(&first, i - 1, i), 0, "%d", i);
    for (int turn = -3; turn < 4; turn++) {
        fake.rotated = turn;
        const proposals *again = propose(g, operands);
        cr_assert_eq(again->count, first.count);
        cr_assert_eq(memcmp(again->fields, first.fields, sizeof(first.fields[0]) * (size_t)first.count), 0);
    }
    cr_assert_eq(stats.plan_hits + stats.plan_misses, 0, "nothing is kept");
    cr_assert_eq(lane->plans.count, 0);
    cr_assert_null(lane->picks);
    cr_assert_eq(fake_count("matmul"), 0);
}

Test(configurations, split_k_as_the_heuristic_does_and_in_round_numbers) {
    tlob_gemm g = problem();
    g.k = 64;
    const proposals *all = propose(g, operands);
    static const int splits[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64};
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++)
        cr_assert_gt(count(all, "split_k", splits[i]), 0, "%d", splits[i]);
    cr_assert_gt(count(all, "reduction", CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), 0);
    cr_assert_gt(count(all, "reduction", CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE), 0);
    cr_assert_eq(count(all, "reduction", CUBLASLT_REDUCTION_SCHEME_INPLACE), 1, "the heuristic's own");
    for (int i = 0; i < all->count; i++) {
        cr_assert_eq(value_of(all, i, "split_k") > 1, value_of(all, i, "reduction") > 0);
        int64_t bytes = value_of(all, i, "split_k") > 1 ? 128 * value_of(all, i, "split_k") : 0;
        cr_assert_eq(value_of(all, i, "workspace_bytes"), bytes, "as the check says");
    }
    g.k = 4;
    cr_assert_eq(count(propose(g, operands), "split_k", 5), 0, "more parts than products");
}

Test(configurations, of_a_deterministic_lane_have_a_fixed_order) {
    tlob_gemm g = problem();
    g.k = 64;
    become_deterministic();
    const proposals *all = propose(g, operands);
    cr_assert_gt(all->count, 20);
    cr_assert_eq(count(all, "reduction", CUBLASLT_REDUCTION_SCHEME_INPLACE), 0);
}

Test(configurations, leave_out_what_must_not_run) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    cr_assert_gt(count(all, "id", 21), 0);
    cr_assert_eq(count(all, "id", 99), 0, "rounds to 16 bits");
    fake.refused = 1u << 0;
    cr_assert_eq(count(propose(g, operands), "id", 21), 0, "the check refuses it");
    fake.refused = 0;
    tlob_gemm_operands x = operands;
    x.a = a + 1;
    cr_assert_eq(count(propose(g, x), "id", 21), 0, "wants 16 bytes");
    g.compute = TLOB_COMPUTE_FP32;
    cr_assert_eq(count(propose(g, operands), "id", 21), 0, "rounds to TF32");
    fake.more_workspace = 2 << 20;
    cr_assert_eq(propose(g, operands)->count, 0, "more workspace than there is");
}

Test(configurations, there_are_some_without_the_heuristic) {
    fake.listed = 0;
    cr_assert_gt(propose(problem(), operands)->count, 0);
    fake.failing_call = "heuristic";
    fake.failing_code = CUBLAS_STATUS_NOT_SUPPORTED;
    cr_assert_gt(propose(problem(), operands)->count, 0, "that it knows nothing is no failure");
    tlob_gemm g = problem();
    proposals *none = propose(g, operands);
    fake.failing_code = CUBLAS_STATUS_INTERNAL_ERROR;
    cr_assert_eq(tlob_cublaslt_ops.propose(lane, &g, &operands, note, none), TLOB_ERR_BACKEND);
    fake.failing_call = NULL;
    fake.capturing = true;
    cr_assert_eq(tlob_cublaslt_ops.propose(lane, &g, &operands, note, none), TLOB_ERR_NOT_WARM);
}

Test(configurations, of_operands_that_are_not_known_are_those_of_aligned_ones) {
    for (int e = 0; e < TLOB_EPILOGUE_COUNT; e++) {
        tlob_gemm g = problem();
        g.epilogue = (tlob_epilogue)e;
        g.transb = g.epilogue == TLOB_EPILOGUE_BGRADB ? TLOB_OP_T : TLOB_OP_N;
        g.ldb = 4;
        const int known = propose(g, operands)->count;
        cr_assert_eq(propose(g, (tlob_gemm_operands){0})->count, known);
    }
}

/* --- adopting one --------------------------------------------------------------------------------------------------- */

Test(configurations, each_proposal_runs_as_it_says) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    for (int i = 0; i < all->count; i++) {
        const tlob_pick *pick = NULL;
        void *memo = NULL;
        cr_assert_eq(adopt(g, operands, all, i, &pick), TLOB_OK, "%s", fake.error.message);
        cr_assert_not_null(pick);
        fake_forget_calls();
        cr_assert_eq(run(g, operands, pick, &memo), TLOB_OK, "%s", fake.error.message);
        cr_assert_str_eq(fake.calls, "matmul ", "the plan was there");
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], value_of(all, i, "id"));
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_TILE_ID], value_of(all, i, "tile"));
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_STAGES_ID], value_of(all, i, "stages"));
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_SPLITK_NUM], value_of(all, i, "split_k"));
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME], value_of(all, i, "reduction"));
        cr_assert_eq((int64_t)fake.workspace_bytes, value_of(all, i, "workspace_bytes"));
    }
    cr_assert_eq(lane->plans.count, (size_t)all->count);
}

Test(configurations, live_beside_the_own_choice_and_each_other) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    const tlob_pick *one = NULL, *two = NULL, *again = NULL;
    void *memo = NULL;
    cr_assert_eq(adopt(g, operands, all, 0, &one), TLOB_OK);
    cr_assert_eq(adopt(g, operands, all, all->count - 1, &two), TLOB_OK);
    fake_forget_calls();
    cr_assert_eq(adopt(g, operands, all, 0, &again), TLOB_OK);
    cr_assert_eq(again, one);
    cr_assert_neq(one, two);
    cr_assert_str_eq(fake.calls, "", "and nothing is asked again");
    cr_assert_eq(run(g, operands, NULL, &memo), TLOB_OK);
    for (int round = 0; round < 3; round++) { /* with the memo of another's plan, and with one's own */
        cr_assert_eq(run(g, operands, one, &memo), TLOB_OK);
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], value_of(all, 0, "id"));
        cr_assert_eq(run(g, operands, two, &memo), TLOB_OK);
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], value_of(all, all->count - 1, "id"));
        cr_assert_eq(run(g, operands, two, &memo), TLOB_OK);
        memset(fake.ran, 0, sizeof(fake.ran));
        cr_assert_eq(run(g, operands, NULL, &memo), TLOB_OK);
        cr_assert_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], 0, "the heuristic's own, which has no attributes here");
    }
    cr_assert_eq(lane->plans.count, 3);
    cr_assert_eq(fake_count("heuristic"), 1);
}

/* With a pick too a warm call looks nothing up. */
Test(configurations, a_warm_call_with_a_pick_is_one_call) {
    tlob_gemm g = problem();
    const tlob_pick *pick = NULL;
    void *memo = NULL;
    cr_assert_eq(adopt(g, operands, propose(g, operands), 0, &pick), TLOB_OK);
    cr_assert_eq(run(g, operands, pick, &memo), TLOB_OK);
    const tlob_product_table kept = lane->plans;
    memset(&lane->plans, 0, sizeof(lane->plans)); /* nor could it */
    for (int i = 0; i < 3; i++) {
        fake_forget_calls();
        cr_assert_eq(run(g, operands, pick, &memo), TLOB_OK);
        cr_assert_str_eq(fake.calls, "matmul ");
    }
    lane->plans = kept;
    cr_assert_eq(stats.plan_hits, 4);
    cr_assert_eq(stats.plan_misses, 1);
}

/* What a configuration needs of the workspace is for the check to say: a field from another problem does no harm. */
Test(configurations, the_workspace_is_what_the_check_says) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    const tlob_pick *one = NULL, *two = NULL;
    void *memo = NULL;
    int i = 0;
    while (value_of(all, i, "split_k") != 4)
        i++;
    tlob_algorithm_field f[TLOB_ALGORITHM_FIELDS_MAX];
    memcpy(f, all->fields[i], sizeof(f));
    f[all->n[i] - 1].value = 1;
    cr_assert_str_eq(f[all->n[i] - 1].name, "workspace_bytes");
    cr_assert_eq(tlob_cublaslt_ops.adopt(lane, &g, &operands, f, all->n[i], &one), TLOB_OK);
    cr_assert_eq(adopt(g, operands, all, i, &two), TLOB_OK);
    cr_assert_eq(one, two);
    cr_assert_eq(run(g, operands, one, &memo), TLOB_OK);
    cr_assert_eq(fake.workspace_bytes, 512);
}

Test(configurations, other_operands_are_checked_anew) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    const tlob_pick *pick = NULL;
    void *memo = NULL;
    tlob_gemm_operands x = operands;
    int last = all->count - 1;
    while (value_of(all, last, "id") != 21)
        last--;
    cr_assert_eq(adopt(g, operands, all, last, &pick), TLOB_OK);
    cr_assert_eq(run(g, operands, pick, &memo), TLOB_OK);
    x.b = b + 1;
    cr_assert_eq(run(g, x, pick, &memo), TLOB_ERR_UNSUPPORTED);
    cr_assert(strstr(fake.error.message, "more aligned"), "%s", fake.error.message);
    x.b = b + 16;
    fake.capturing = true;
    cr_assert_eq(run(g, x, pick, &memo), TLOB_ERR_NOT_WARM);
    const tlob_pick *other = NULL;
    cr_assert_eq(adopt(g, x, all, last, &other), TLOB_ERR_NOT_WARM);
    cr_assert_null(other);
    cr_assert_eq(adopt(g, operands, all, last, &other), TLOB_OK, "this one is warm");
    cr_assert_eq(run(g, operands, pick, &memo), TLOB_OK);
    fake.capturing = false;
    cr_assert_eq(run(g, x, pick, &memo), TLOB_OK);
    cr_assert_eq(lane->plans.count, 3, "with the one that was refused");
    cr_assert_eq(stats.plan_misses, 2);
}

/* --- refusals ------------------------------------------------------------------------------------------------------- */

static void refuses(const tlob_gemm *g, const tlob_algorithm_field *fields, int n, const char *words) {
    const tlob_pick *pick = NULL;
    const size_t plans = lane->plans.count;
    const int64_t misses = stats.plan_misses;
    for (int i = 0; i < 3; i++) { /* what was refused is kept, and is known in a capture */
        cr_assert_eq(tlob_cublaslt_ops.adopt(lane, g, &operands, fields, n, &pick), TLOB_ERR_UNSUPPORTED, "%s", words);
        cr_assert(strstr(fake.error.message, words), "no '%s' in: %s", words, fake.error.message);
        cr_assert(fake.error.has_gemm);
        cr_assert_null(pick);
        cr_assert_leq(lane->plans.count, plans + 1);
        fake_forget_calls();
        fake.capturing = true;
    }
    tlob_lane_plan plan;
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, g, &operands, fields, n, &plan), TLOB_ERR_UNSUPPORTED);
    cr_assert_str_eq(fake.calls, "");
    fake.capturing = false;
    cr_assert_eq(stats.plan_misses, misses);
}

static int64_t *at(tlob_algorithm_field *fields, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(fields[i].name, name))
            return &fields[i].value;
    cr_assert(false, "no field %s", name);
    return NULL;
}

Test(configurations, a_refusal_names_its_reason) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    const int n = all->n[0];
    tlob_algorithm_field f[TLOB_ALGORITHM_FIELDS_MAX];
    const size_t size = (size_t)n * sizeof(*f);
    const tlob_algorithm_field *good = all->fields[all->count - 1];
    memcpy(f, good, size);
    refuses(&g, f, n - 1, "is missing");
    f[0].name = "colour";
    refuses(&g, f, n, "\"colour\" is not known");
    memcpy(f, good, size);
    f[1] = f[0];
    refuses(&g, f, n, "twice");
    memcpy(f, good, size);
    *at(f, n, "tile") = -1;
    refuses(&g, f, n, "tile is -1");
    memcpy(f, good, size);
    *at(f, n, "id") = 12345;
    refuses(&g, f, n, "no algorithm of this id");
    memcpy(f, good, size);
    *at(f, n, "tile") = 600;
    refuses(&g, f, n, "own check refuses");
    memcpy(f, good, size);
    fake.more_workspace = 2 << 20;
    refuses(&g, f, n, "more workspace");
    fake.more_workspace = 0;
    g.beta = 1;
    fake.in_place_alone = true;
    refuses(&g, f, n, "C to be D");
    fake.in_place_alone = false;
    g.compute = TLOB_COMPUTE_FP32;
    *at(f, n, "id") = 99;
    refuses(&g, f, n, "round its inputs");
    const tlob_pick *pick;
    const tlob_pick *kept = lane->picks;
    fake.failing_call = "check";
    fake.failing_code = CUBLAS_STATUS_INTERNAL_ERROR;
    g = problem();
    cr_assert_eq(adopt(g, operands, all, 0, &pick), TLOB_ERR_BACKEND);
    cr_assert_eq(lane->picks, kept, "a failure is no refusal, and is not kept");
}

Test(configurations, an_order_that_is_not_fixed_is_refused_where_the_context_is_deterministic) {
    tlob_gemm g = problem();
    g.k = 64;
    const proposals all = *propose(g, operands);
    const tlob_pick *pick;
    int i = 0;
    while (value_of(&all, i, "reduction") != CUBLASLT_REDUCTION_SCHEME_INPLACE)
        i++;
    cr_assert_eq(adopt(g, operands, &all, i, &pick), TLOB_OK);
    become_deterministic();
    refuses(&g, all.fields[i], all.n[i], "deterministic");
    tlob_algorithm_field f[TLOB_ALGORITHM_FIELDS_MAX];
    memcpy(f, all.fields[i], sizeof(f));
    *at(f, all.n[i], "reduction") = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cr_assert_eq(tlob_cublaslt_ops.adopt(lane, &g, &operands, f, all.n[i], &pick), TLOB_OK, "%s", fake.error.message);
}

/* --- in words ------------------------------------------------------------------------------------------------------- */

Test(configurations, describe_tells_of_a_configuration_without_keeping_it) {
    tlob_gemm g = problem();
    const proposals *all = propose(g, operands);
    const tlob_pick *pick;
    tlob_lane_plan plan;
    char want[32];
    snprintf(want, sizeof(want), "algo %d ", (int)value_of(all, 0, "id"));
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, all->fields[0], all->n[0], &plan), TLOB_OK);
    cr_assert(strstr(plan.algorithm, want) == plan.algorithm, "%s", plan.algorithm);
    cr_assert_not(plan.cached);
    cr_assert_eq(lane->plans.count, 0);
    cr_assert_eq(adopt(g, operands, all, 0, &pick), TLOB_OK);
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, all->fields[0], all->n[0], &plan), TLOB_OK);
    cr_assert(plan.cached);
    cr_assert_eq(tlob_cublaslt_ops.describe(lane, &g, &operands, NULL, 0, &plan), TLOB_OK);
    cr_assert_not(plan.cached, "the own choice is another plan");
}
