/* Policy tuned with cublaslt itself, on a cublasLt that is none, as a backend of a host context. */
#include <criterion/criterion.h>
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/fake.h"

static tlob_table *table;
static tlob_context *ctx;
static tlob_stream *stream;
static tlob_backend_ops row;
static _Alignas(256) float a[64], b[64], d[64];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = d, .d = d};
static int warnings;

static void count_warning(void *user, tlob_log_level level, const char *line) {
    (void)user, (void)line;
    warnings += level == TLOB_LOG_WARN;
}

static void setup(void) {
    fake_reset();
    cr_assert_eq(tlob_table_create(&table), TLOB_OK);
    row = tlob_cublaslt_ops;
    row.name = "lt";
    row.caps.memory = TLOB_MEMORY_HOST;
}

static void teardown(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    tlob_table_destroy(&table);
}

TestSuite(lt_tuned, .init = setup, .fini = teardown);

static tlob_trace_fn trace;

static void ignore_trace(void *user, const tlob_trace *record) {
    (void)user, (void)record;
}

static void open_tuned(bool strict, tlob_switch deterministic) {
    static const tlob_backend_ops *const rows[] = {&row};
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table, .strict = strict};
    params.deterministic = deterministic;
    params.log = count_warning;
    params.log_level = TLOB_LOG_WARN;
    params.trace = trace;
    params.backends = rows;
    params.n_backends = 1;
    cr_assert_eq(tlob_context_create(&ctx, &params), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_stream_create(ctx, &stream), TLOB_OK);
    fake_forget_calls();
    warnings = 0;
}

static tlob_gemm problem(void) {
    tlob_gemm g = tlob_gemm_init(4, 8, 4);
    g.compute = TLOB_COMPUTE_FP32;
    return g;
}

typedef struct found {
    int count, wanted;
    tlob_method method;
} found;

static void keep(void *user, const tlob_method *method) {
    found *f = user;
    if (!strcmp(method->backend, "lt") && method->n_configuration && f->count++ == f->wanted)
        f->method = *method;
}

/* Proposal number `wanted` of the backend. */
static tlob_method proposal(int wanted) {
    found f = {.wanted = wanted};
    tlob_gemm g = problem();
    open_tuned(false, TLOB_SWITCH_OFF);
    cr_assert_eq(tlob_gemm_methods(stream, &g, &operands, keep, &f), TLOB_OK);
    cr_assert_gt(f.count, wanted);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    return f.method;
}

static void put(tlob_method method) {
    const tlob_table_entry entry = {.gemm = problem(), .method = method, .origin = {.device = "host"}};
    cr_assert_eq(tlob_table_put(table, &entry), TLOB_OK, "%s", tlob_last_error()->message);
}

static tlob_stream_stats stats_of(void) {
    tlob_stream_stats stats;
    cr_assert_eq(tlob_stream_get_stats(stream, &stats), TLOB_OK);
    return stats;
}

static uint32_t value_of(const tlob_method *method, const char *name) {
    for (int i = 0; i < method->n_configuration; i++)
        if (!strcmp(method->configuration[i].name, name))
            return (uint32_t)method->configuration[i].value;
    cr_assert(false, "no field %s", name);
    return 0;
}

static void set_value(tlob_method *method, const char *name, int64_t value) {
    for (int i = 0; i < method->n_configuration; i++)
        if (!strcmp(method->configuration[i].name, name))
            method->configuration[i].value = value;
}

/* From a proposal through a file and back to the algorithm that runs, without a query of the heuristic. */
Test(lt_tuned, a_proposal_that_was_written_is_the_algorithm_that_runs) {
    char path[] = "/tmp/tlob-lt-tuned-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    for (int wanted = 0; wanted < 12; wanted += 3) {
        const tlob_method method = proposal(wanted);
        const tlob_gemm g = problem();
        put(method);
        cr_assert_eq(tlob_table_write(table, path), TLOB_OK);
        tlob_table_destroy(&table);
        cr_assert_eq(tlob_table_read(path, &table, NULL), TLOB_OK);
        open_tuned(true, TLOB_SWITCH_OFF);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(tlob_gemm_run(stream, &g, &operands), TLOB_OK, "%s", tlob_last_error()->message);
        cr_expect_eq(fake.ran[CUBLASLT_ALGO_CONFIG_ID], value_of(&method, "id"), "proposal %d", wanted);
        cr_expect_eq(fake.ran[CUBLASLT_ALGO_CONFIG_TILE_ID], value_of(&method, "tile"), "proposal %d", wanted);
        cr_expect_eq(fake.ran[CUBLASLT_ALGO_CONFIG_STAGES_ID], value_of(&method, "stages"), "proposal %d", wanted);
        cr_expect_eq(fake_count("heuristic"), 0);
        cr_expect_eq(stats_of().table_hits, 3);
        tlob_explanation e;
        cr_assert_eq(tlob_gemm_explain(stream, &g, &operands, &e), TLOB_OK);
        cr_expect(e.warm && *e.choice.configuration);
        tlob_stream_close(&stream);
        tlob_context_destroy(&ctx);
    }
    unlink(path);
}

/* Whatever number a table has in whatever field, the product is done right or by the rule for misses. */
Test(lt_tuned, fields_of_any_value_do_no_harm) {
    static const int64_t values[] = {-1, 1, 2, 7, 255, 65536, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MIN, INT64_MAX};
    const tlob_method method = proposal(2);
    int64_t hits = 0, rejected = 0;
    for (int field = 0; field < method.n_configuration; field++)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            tlob_method changed = method;
            const tlob_gemm g = problem();
            changed.configuration[field].value = values[v];
            put(changed);
            open_tuned(false, TLOB_SWITCH_OFF);
            for (int i = 0; i < 64; i++)
                a[i] = (float)(i % 5 - 2), b[i] = (float)(i % 7 - 3), d[i] = -1;
            cr_assert_eq(tlob_gemm_run(stream, &g, &operands), TLOB_OK, "%s = %lld: %s", method.configuration[field].name,
                         (long long)values[v], tlob_last_error()->message);
            for (int i = 0; i < 32; i++) {
                float sum = 0;
                for (int k = 0; k < 4; k++)
                    sum += a[i % 4 + 4 * k] * b[k + i / 4 * 4];
                cr_assert_eq(d[i], sum);
            }
            hits += stats_of().table_hits;
            rejected += stats_of().table_rejected;
            cr_assert_eq(warnings, (int)stats_of().table_rejected);
            tlob_stream_close(&stream);
            tlob_context_destroy(&ctx);
        }
    cr_expect(hits > 0 && rejected > hits, "%lld hits, %lld rejected", (long long)hits, (long long)rejected);
}

/* Known trap: the library's check has changed its mind since the table was made. */
Test(lt_tuned, what_the_library_refuses_today_is_a_miss_or_an_error) {
    const tlob_gemm g = problem();
    put(proposal(0));
    open_tuned(false, TLOB_SWITCH_OFF);
    fake.refused = ~0u;
    cr_assert_eq(tlob_gemm_run(stream, &g, &operands), TLOB_OK);
    cr_expect(stats_of().table_rejected == 1 && warnings == 1);
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
    open_tuned(true, TLOB_SWITCH_OFF);
    cr_expect_eq(tlob_gemm_run(stream, &g, &operands), TLOB_ERR_POLICY);
}

static tlob_gemm problem_with_c(void) {
    tlob_gemm g = problem();
    g.beta = 1;
    return g;
}

/* Once with C apart from D, and once in place. */
static void run_both(tlob_status expected) {
    static _Alignas(256) float c[64];
    const tlob_gemm g = problem_with_c();
    const tlob_gemm_operands apart = {.a = a, .b = b, .c = c, .d = d};
    cr_assert_eq(tlob_gemm_run(stream, &g, &apart), expected, "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_gemm_run(stream, &g, &operands), expected, "%s", tlob_last_error()->message);
}

/* Known trap: what failed once is asked again at every call, and in a capture, where nothing may be asked. */
Test(lt_tuned, what_was_refused_is_not_asked_again_and_is_known_in_a_capture) {
    for (int strict = 0; strict < 2; strict++)
        for (int traced = 0; traced < 2; traced++) {
            tlob_table_entry entry = {.gemm = problem_with_c(), .method = proposal(0), .origin = {.device = "host"}};
            cr_assert_eq(tlob_table_put(table, &entry), TLOB_OK);
            trace = traced ? ignore_trace : NULL; /* then a stream remembers no decision */
            open_tuned(strict, TLOB_SWITCH_OFF);
            fake.refused = ~0u;
            cr_assert_eq(tlob_warm(stream, &entry.gemm, 1), strict ? TLOB_ERR_POLICY : TLOB_OK);
            run_both(strict ? TLOB_ERR_POLICY : TLOB_OK);
            cr_expect_eq(fake_count("check"), 2, "%d checks: for C in place, and apart", fake_count("check"));
            fake.capturing = true;
            for (int i = 0; i < 3; i++)
                run_both(strict ? TLOB_ERR_POLICY : TLOB_OK);
            tlob_explanation e;
            cr_expect_eq(tlob_gemm_explain(stream, &entry.gemm, &operands, &e), strict ? TLOB_ERR_POLICY : TLOB_OK);
            fake.capturing = false;
            fake.refused = 0; /* the library would take it now: the answer stays what it was */
            run_both(strict ? TLOB_ERR_POLICY : TLOB_OK);
            cr_expect_eq(fake_count("check"), 2, "%d checks", fake_count("check"));
            cr_expect(warnings == 1 && stats_of().table_rejected == (strict ? 0 : 12), "%d, %lld", warnings,
                      (long long)stats_of().table_rejected);
            cr_expect_eq(fake_count("matmul"), 0);
            tlob_stream_close(&stream);
            tlob_context_destroy(&ctx);
        }
}

/* Known trap: the first product of a loop is aligned, and the others are not. */
Test(lt_tuned, explain_looks_at_every_product_of_a_loop) {
    static _Alignas(256) float many[3][64];
    const tlob_gemm_operands x = {.a = many[0], .b = many[1], .c = many[2], .d = many[2]};
    tlob_gemm g = problem();
    g.compute = TLOB_COMPUTE_TF32; /* algorithm 21 wants 16 bytes */
    g.batch = 2;
    g.stride_b = 0;
    g.stride_c = 32;
    for (int odd = 0; odd < 2; odd++) {
        tlob_table_entry entry = {.method = proposal(0), .origin = {.device = "host"}};
        tlob_explanation cold, warm;
        entry.method.form = TLOB_FORM_LOOP;
        set_value(&entry.method, "id", 21);
        set_value(&entry.method, "tile", 15);
        set_value(&entry.method, "stages", 6);
        g.stride_a = odd ? 17 : 16;
        entry.gemm = g;
        cr_assert_eq(tlob_table_put(table, &entry), TLOB_OK, "%s", tlob_last_error()->message);
        open_tuned(false, TLOB_SWITCH_OFF);
        cr_assert_eq(tlob_gemm_explain(stream, &g, &x, &cold), TLOB_OK);
        cr_expect_str_eq(cold.choice.backend, odd ? "cpu_ref" : "lt", "%s", cold.choice.reason);
        cr_assert_eq(tlob_gemm_explain(stream, &g, NULL, &warm), TLOB_OK);
        cr_expect_str_eq(warm.choice.backend, cold.choice.backend, "%s", warm.choice.reason);
        cr_expect_eq(tlob_gemm_run(stream, &g, &x), TLOB_OK);
        cr_expect_eq(fake_count("matmul"), odd ? 0 : 2);
        cr_assert_eq(tlob_gemm_explain(stream, &g, &x, &warm), TLOB_OK);
        cr_expect_str_eq(warm.choice.reason, cold.choice.reason);
        cr_expect(!cold.warm && warm.warm == !odd);
        tlob_stream_close(&stream);
        tlob_context_destroy(&ctx);
    }
}

/* Known trap: a measured table decides in a context that is deterministic. It may, where the order of sums is fixed. */
Test(lt_tuned, a_deterministic_context_takes_what_has_a_fixed_order_alone) {
    tlob_method method = proposal(0);
    const tlob_gemm g = problem();
    for (int i = 0; i < method.n_configuration; i++) {
        if (!strcmp(method.configuration[i].name, "split_k"))
            method.configuration[i].value = 2;
        if (!strcmp(method.configuration[i].name, "reduction"))
            method.configuration[i].value = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    }
    put(method);
    open_tuned(true, TLOB_SWITCH_ON);
    cr_expect_eq(tlob_gemm_run(stream, &g, &operands), TLOB_ERR_POLICY);
    cr_expect_eq(fake_count("matmul"), 0);
}
