/* Backends of the embedder's own: which rows are taken, how they are chosen, and that the parity table runs on one. */
#include <criterion/criterion.h>
#include <string.h>

#include "parity/parity.h"

/* The example's own backend, and its main. */
int example_main(void);
#define main example_main
#include "examples/own_backend.c"
#undef main

static tlob_context_params params_with(const tlob_backend_ops *const *rows, int count) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.backends = rows;
    params.n_backends = count;
    return params;
}

Test(own_backend, the_example_runs) {
    cr_assert_eq(example_main(), 0);
}

Test(own_backend, the_parity_table_runs_on_it) {
    const tlob_backend_ops *const rows[] = {&naive};
    tlob_context_params params = params_with(rows, 1);
    tlob_context *ctx;
    tlob_stream *stream;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_open(ctx, NULL, &stream), TLOB_OK);
    int counts[PARITY_VERDICTS] = {0};
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        parity_result result;
        if (c.huge)
            continue;
        parity_run(stream, NULL, "naive", &c, TLOB_COMPUTE_FP32, 1, &result);
        counts[result.verdict]++;
        cr_assert(result.verdict != PARITY_FAIL && result.verdict != PARITY_ERROR, "%s", result.message);
    }
    cr_assert_gt(counts[PARITY_PASS], 300);
    cr_assert_gt(counts[PARITY_UNSUPPORTED], 10, "it has no epilogues");
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

static tlob_status share(tlob_shared **shared, const tlob_shared_params *params) {
    (void)shared;
    (void)params;
    return TLOB_OK;
}

static void unshare(tlob_shared *shared) {
    (void)shared;
}

static void list_none(tlob_shared *shared, tlob_algorithm_fn visit, void *user) {
    (void)shared;
    (void)visit;
    (void)user;
}

static bool take_none(tlob_shared *shared, const tlob_algorithm *entry, char *why, size_t size) {
    (void)shared;
    (void)entry;
    return snprintf(why, size, "no"), false;
}

static tlob_status propose_none(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                                tlob_configuration_fn visit, void *user) {
    (void)lane;
    (void)gemm;
    (void)x;
    (void)visit;
    (void)user;
    return TLOB_OK;
}

static tlob_status adopt_none(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                              const tlob_algorithm_field *fields, int count, const tlob_pick **pick) {
    (void)lane;
    (void)x;
    (void)fields;
    (void)count;
    (void)pick;
    return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, "naive", "adopt", 0, NULL, gemm, "none will do");
}

static const char *with_fault(tlob_backend_ops *row, int fault) {
    *row = naive;
    switch (fault) {
    case 0: row->api = TLOB_BACKEND_API - 1; row->name = (const char *)1; return "version 2 of the";
    case 1: row->name = NULL; return "lower case letters";
    case 2: row->name = ""; return "lower case letters";
    case 3: row->name = "Naive"; return "'Naive'";
    case 4: row->name = "twenty_four_letters_long"; return "1 to 23";
    case 5: row->name = "cublaslt"; return "another backend is named 'cublaslt'";
    case 6: row->caps.memory = TLOB_MEMORY_CUDA; return "works on cuda memory, and the context is for host";
    case 7: row->open = NULL; return "open, close and sgemm";
    case 8: row->close = NULL; return "open, close and sgemm";
    case 9: row->sgemm = NULL; return "open, close and sgemm";
    case 10: row->sgemm_strided_batched = NULL; return "sgemm_strided_batched";
    case 11: row->matmul_bias = NULL; return "matmul_bias";
    case 12: row->caps.epilogues &= ~1u; return "must have NONE";
    case 13: row->caps.epilogues |= 1u << TLOB_EPILOGUE_COUNT; return "no epilogue";
    case 14: row->caps.computes = 0; return "neither TF32 nor FP32";
    case 15: row->attach = share; return "attach and detach";
    case 16: row->detach = unshare; return "attach and detach";
    case 17: row->attach = share; row->detach = unshare; row->list_algorithms = list_none; return "go together";
    case 18: row->list_algorithms = list_none; row->offer_algorithm = take_none; return "need attach";
    case 19: row->propose = propose_none; return "propose and adopt";
    case 20: row->adopt = adopt_none; return "propose and adopt";
    case 21: row->api = TLOB_BACKEND_API + 1; row->name = (const char *)1; return "version 4 of the";
    default: return NULL;
    }
}

Test(own_backend, rows_with_a_fault_are_refused) {
    tlob_backend_ops row;
    const char *words;
    for (int fault = 0; (words = with_fault(&row, fault)); fault++) {
        const tlob_backend_ops *const rows[] = {&row};
        tlob_context_params params = params_with(rows, 1);
        tlob_context *ctx;
        cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT, "fault %d", fault);
        cr_assert(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);
        cr_assert_null(ctx);
    }
}

Test(own_backend, rows_that_are_none) {
    const tlob_backend_ops *rows[TLOB_BACKENDS_MAX + 1] = {&naive, &naive};
    tlob_context_params params = params_with(rows, 2);
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "row 1"), "%s", tlob_last_error()->message);
    params.n_backends = 3;
    rows[1] = NULL;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "row 1 is NULL"), "%s", tlob_last_error()->message);
    params.n_backends = TLOB_BACKENDS_MAX + 1;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    params.n_backends = -1;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
    params.n_backends = 1;
    params.backends = NULL;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_ARGUMENT);
}

Test(own_backend, as_many_as_there_may_be) {
    static const char *const names[] = {"own0", "own1", "own2", "own3", "own4", "own5", "own6", "own7"};
    tlob_backend_ops own[TLOB_BACKENDS_MAX];
    const tlob_backend_ops *rows[TLOB_BACKENDS_MAX];
    for (int i = 0; i < TLOB_BACKENDS_MAX; i++) {
        own[i] = naive;
        own[i].name = names[i];
        rows[i] = &own[i];
    }
    tlob_context_params params = params_with(rows, TLOB_BACKENDS_MAX);
    tlob_context *ctx;
    tlob_stream *stream;
    cr_assert_eq(tlob_policy_parse("fixed:own7", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
    float a = 3, b = 5, d = 0;
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    cr_assert_eq(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = &a, .b = &b, .d = &d}), TLOB_OK);
    cr_assert_eq(d, 15);
    tlob_explanation e;
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK);
    cr_assert_str_eq(e.choice.backend, "own7");
    cr_assert_eq(e.candidates, 3 + TLOB_BACKENDS_MAX);
    cr_assert(e.candidate[e.candidates - 1].picked && e.candidate[e.candidates - 1].able);
    cr_assert(strstr(e.algorithm, "not known"), "%s", e.algorithm);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

Test(own_backend, a_name_that_no_row_has_lists_those_that_there_are) {
    const tlob_backend_ops *const rows[] = {&naive};
    tlob_context_params params = params_with(rows, 1);
    tlob_settings s;
    cr_assert_eq(tlob_policy_parse("fixed:naiv", &params.policy), TLOB_OK, "a possible name");
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_UNKNOWN_NAME);
    cr_assert(strstr(tlob_last_error()->message, "cpu_ref, cublas_classic, cublaslt, naive"), "%s",
              tlob_last_error()->message);
    cr_assert_eq(tlob_policy_parse("fixed:naive", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_OK);
    params.n_backends = 0;
    cr_assert_eq(tlob_settings_resolve(&params, &s), TLOB_ERR_UNKNOWN_NAME, "it is there with its row alone");
}

Test(own_backend, one_that_was_left_out_says_so) {
    const tlob_backend_ops row = {.api = TLOB_BACKEND_API, .name = "absent", .missing = "built without it",
                                  .caps = {.memory = TLOB_MEMORY_HOST}};
    const tlob_backend_ops *const rows[] = {&row};
    tlob_context_params params = params_with(rows, 1);
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    tlob_context_destroy(&ctx);
    cr_assert_eq(tlob_policy_parse("fixed:absent", &params.policy), TLOB_OK);
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_ERR_NOT_BUILT);
    cr_assert(strstr(tlob_last_error()->message, "built without it"));
}

Test(own_backend, is_listed_and_asked_like_any_other) {
    const tlob_backend_ops *const rows[] = {&naive};
    tlob_context_params params = params_with(rows, 1);
    tlob_context *ctx;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_context_backend_count(ctx), 2);
    tlob_backend_info info;
    cr_assert_eq(tlob_context_backend_get_info(ctx, 1, &info), TLOB_OK);
    cr_assert_str_eq(info.name, "naive");
    cr_assert_eq(info.caps.epilogues, naive.caps.epilogues);
    cr_assert_eq(info.caps.max_batch, naive.caps.max_batch);
    cr_assert_eq(tlob_context_backend_get_info(ctx, 2, &info), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_backend_get_info(ctx, -1, &info), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_backend_get_info(ctx, 0, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_backend_get_info(NULL, 0, &info), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_backend_count(NULL), 0);

    tlob_gemm g = tlob_gemm_init(3, 3, 3);
    cr_assert_eq(tlob_context_supports(ctx, "naive", &g), TLOB_OK);
    g.epilogue = TLOB_EPILOGUE_GELU_BIAS;
    cr_assert_eq(tlob_context_supports(ctx, "cpu_ref", &g), TLOB_OK);
    cr_assert_eq(tlob_context_supports(ctx, "naive", &g), TLOB_ERR_UNSUPPORTED);
    cr_assert(strstr(tlob_last_error()->message, "epilogue"), "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_context_supports(ctx, "cublaslt", &g), TLOB_ERR_UNKNOWN_NAME);
    cr_assert_eq(tlob_context_supports(ctx, NULL, &g), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_supports(ctx, "naive", NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_context_supports(NULL, "naive", &g), TLOB_ERR_ARGUMENT);
    tlob_context_destroy(&ctx);
}

/* What is not promised is not run: neither is another backend in its place. */
Test(own_backend, one_that_is_not_deterministic_is_refused_where_that_is_asked_for) {
    tlob_backend_ops row = naive;
    const tlob_backend_ops *const rows[] = {&row};
    tlob_context_params params = params_with(rows, 1);
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "naive"};
    float a = 3, d = -1;
    tlob_gemm g = tlob_gemm_init(1, 1, 1);
    const tlob_gemm_operands x = {.a = &a, .b = &a, .d = &d};
    for (int on = 0; on < 2; on++)
        for (int promised = 0; promised < 2; promised++) {
            bool runs = !on || promised;
            tlob_context *ctx;
            tlob_stream *stream;
            tlob_explanation e;
            row.caps.deterministic = promised;
            params.deterministic = on ? TLOB_SWITCH_ON : TLOB_SWITCH_OFF;
            cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
            cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
            d = -1;
            cr_assert_eq(tlob_gemm_run(stream, &g, &x), runs ? TLOB_OK : TLOB_ERR_UNSUPPORTED);
            cr_assert_eq(d, runs ? 9 : -1);
            cr_assert_eq(tlob_context_supports(ctx, "naive", &g), runs ? TLOB_OK : TLOB_ERR_UNSUPPORTED);
            cr_assert_eq(tlob_context_supports(ctx, "cpu_ref", &g), TLOB_OK);
            cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK);
            const tlob_candidate *last = &e.candidate[e.candidates - 1];
            cr_assert_eq(last->able, runs);
            cr_assert_eq(strstr(last->why, "deterministic") == NULL, runs, "%s", last->why);
            tlob_stream_close(&stream);
            tlob_context_destroy(&ctx);
        }
}

static tlob_status tell_too_much(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                                 const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan) {
    (void)lane;
    (void)gemm;
    (void)x;
    (void)fields;
    (void)count;
    memset(plan->algorithm, 'x', sizeof(plan->algorithm));
    plan->workspace_bytes = 77;
    return TLOB_OK;
}

static tlob_status fail_to_tell(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                                const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan) {
    (void)lane;
    (void)x;
    (void)fields;
    (void)count;
    (void)plan;
    return tlob_backend_fail(TLOB_ERR_BACKEND, "naive", "describe", 7, "SEVEN", gemm, "no idea");
}

static void note_plan(void *user, const tlob_trace *trace) {
    snprintf(user, 256, "%zu bytes, %zu letters: %.100s", trace->workspace_bytes, strlen(trace->algorithm),
             trace->algorithm);
}

Test(own_backend, what_it_tells_is_cut_and_what_it_cannot_tell_is_no_failure) {
    tlob_backend_ops row = naive;
    const tlob_backend_ops *const rows[] = {&row};
    char words[256] = "";
    tlob_context_params params = params_with(rows, 1);
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "naive"};
    params.trace = note_plan;
    params.trace_user = words;
    tlob_context *ctx;
    tlob_stream *stream;
    row.describe = tell_too_much;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
    float a[4] = {1, 2, 3, 4}, d[4];
    tlob_gemm g = tlob_gemm_init(2, 2, 2);
    const tlob_gemm_operands x = {.a = a, .b = a, .d = d};
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
    cr_assert(strstr(words, "77 bytes, 127 letters"), "%s", words);

    row.describe = fail_to_tell;
    tlob_explanation e;
    cr_assert_eq(tlob_stream_sync(NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
    cr_assert(strstr(words, "not known") && strstr(words, "SEVEN"), "%s", words);
    cr_assert_eq(tlob_gemm_explain(stream, &g, &x, &e), TLOB_OK);
    cr_assert(strstr(e.algorithm, "SEVEN"), "%s", e.algorithm);
    cr_assert_eq(tlob_last_error()->status, TLOB_ERR_ARGUMENT, "the last call that failed is another");

    g.epilogue = TLOB_EPILOGUE_RELU;
    g.k = 0;
    cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &e), TLOB_OK);
    cr_assert(strstr(e.algorithm, "cannot"), "as tlob_gemm_run says: %s", e.algorithm);
    cr_assert_eq(tlob_gemm_run(stream, &g, &x), TLOB_ERR_UNSUPPORTED);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}
