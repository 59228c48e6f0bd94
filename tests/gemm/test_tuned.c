/* Policy tuned on the host, with a backend that takes configurations: what a table says is done, and what is not is told. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libtlob/internal.h"
#include "tests/gemm/host.h"

/* --- a backend with ten ways to do a product, which are all the same but for what it notes ----------------------- */

enum { WAYS = 10, REFUSED_WAY = 7 };

struct tlob_pick {
    int way;
};

static const tlob_pick picks[WAYS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}};
static struct {
    int products, adoptions, way; /* of the last product; -1: its own choice */
    uintptr_t wanted;             /* alignment that way 8 wants of A */
    int64_t batch;                /* likewise */
    tlob_epilogue epilogue;       /* likewise */
} noted;

static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
}

static TLOB_GEMM_FN(multiply) {
    cr_assert(!pick || pick->way != 8 || (uintptr_t)x->a % noted.wanted == 0, "never adopted for such operands");
    noted.products++;
    noted.way = pick ? pick->way : -1;
    noted.batch = gemm->batch;
    noted.epilogue = gemm->epilogue;
    return tlob_cpu_ref_ops.matmul_bias(lane, gemm, x, NULL, memo);
}

static tlob_status find_way(const tlob_algorithm_field *fields, int count, const tlob_gemm *gemm, const tlob_pick **pick) {
    if (count != 1 || strcmp(fields[0].name, "way") || fields[0].value < 0 || fields[0].value >= WAYS)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, "picky", "adopt", 0, NULL, gemm, "there is no such way");
    if (fields[0].value == REFUSED_WAY)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, "picky", "adopt", 0, NULL, gemm, "not that way");
    *pick = &picks[fields[0].value];
    return TLOB_OK;
}

static tlob_status adopt(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                         const tlob_algorithm_field *fields, int count, const tlob_pick **pick) {
    (void)lane;
    noted.adoptions++;
    if (fields[0].value == 8 && (uintptr_t)x->a % noted.wanted)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, "picky", "adopt", 0, NULL, gemm, "not for such operands");
    return find_way(fields, count, gemm, pick);
}

static tlob_status propose(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           tlob_configuration_fn visit, void *user) {
    (void)lane, (void)gemm, (void)x, (void)visit, (void)user;
    return TLOB_OK;
}

static tlob_status describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, tlob_lane_plan *plan) {
    (void)lane, (void)x;
    const tlob_pick *pick = NULL;
    tlob_status status = count ? find_way(fields, count, gemm, &pick) : TLOB_OK;
    snprintf(plan->algorithm, sizeof(plan->algorithm), "way %d", pick ? pick->way : -1);
    return status;
}

static const tlob_backend_ops picky = {
    .api = TLOB_BACKEND_API,
    .name = "picky",
    .caps = {.memory = TLOB_MEMORY_HOST,
             .computes = 1u << TLOB_COMPUTE_FP32,
             .epilogues = 1u << TLOB_EPILOGUE_NONE | 1u << TLOB_EPILOGUE_BIAS,
             .max_batch = 4,
             .deterministic = true},
    .open = open_lane,
    .close = close_lane,
    .describe = describe,
    .propose = propose,
    .adopt = adopt,
    .sgemm = multiply,
    .sgemm_strided_batched = multiply,
    .matmul_bias = multiply,
};

/* --- a context, a table ------------------------------------------------------------------------------------------- */

static char logged[8192], reason[256], path[64];
static tlob_table *table;
static tlob_context *ctx;
static tlob_stream *stream;
static _Alignas(64) float a[512], b[512], d[512], want[512], bias[64];
static const tlob_gemm_operands operands = {.a = a, .b = b, .c = d, .d = d, .bias = bias};

static void note_line(void *user, tlob_log_level level, const char *line) {
    (void)user;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof(logged) - used, "%s: %s\n", level == TLOB_LOG_WARN ? "warn" : "info", line);
}

static int count_logged(const char *words) {
    int count = 0;
    for (const char *at = logged; (at = strstr(at, words)); at++)
        count++;
    return count;
}

static void note_reason(void *user, const tlob_trace *trace) {
    (void)user;
    snprintf(reason, sizeof(reason), "%s, %s: %s", trace->backend, tlob_form_name(trace->form), trace->reason);
}

static tlob_context_params tuned(bool strict) {
    static const tlob_backend_ops *const rows[] = {&picky};
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy = (tlob_policy){.kind = TLOB_POLICY_TUNED, .table = table, .strict = strict};
    params.log = note_line;
    params.log_level = TLOB_LOG_INFO;
    params.backends = rows;
    params.n_backends = 1;
    return params;
}

static void open_with(const tlob_context_params *params) {
    OK(tlob_context_create(&ctx, params));
    OK(tlob_stream_create(ctx, &stream));
    memset(&noted, 0, sizeof(noted));
}

static void open_tuned(bool strict) {
    const tlob_context_params params = tuned(strict);
    open_with(&params);
}

static void close_all(void) {
    tlob_stream_close(&stream);
    tlob_context_destroy(&ctx);
}

static void setup(void) {
    static const char *const variables[] = {"TLOB_POLICY", "TLOB_TABLE", "TLOB_CONFIG", "TLOB_LOG"};
    for (int i = 0; i < 4; i++)
        unsetenv(variables[i]);
    OK(tlob_table_create(&table));
    strcpy(path, "/tmp/tlob-tuned-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    for (int i = 0; i < 512; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = (float)(i % 5 - 2);
    }
}

static void teardown(void) {
    close_all();
    tlob_table_destroy(&table);
    unlink(path);
}

TestSuite(tuned, .init = setup, .fini = teardown);

static tlob_gemm problem_of(int64_t m, int64_t batch) {
    tlob_gemm g = tlob_gemm_init(m, 5, 7);
    g.batch = batch;
    g.stride_a = m * 7;
    g.stride_b = 35;
    g.stride_c = m * 5;
    g.compute = TLOB_COMPUTE_FP32;
    return g;
}

static tlob_method method_of(const char *backend, tlob_form form, int way) {
    tlob_method method = {.form = form, .n_configuration = way >= 0, .configuration = {{"way", way}}};
    snprintf(method.backend, sizeof(method.backend), "%s", backend);
    return method;
}

static void put(tlob_gemm gemm, tlob_method method) {
    const tlob_table_entry entry = {.gemm = gemm, .method = method, .origin = {.device = "host"}};
    OK(tlob_table_put(table, &entry));
}

/* Runs a product and compares it with the oracle's. */
static void run_right(tlob_gemm gemm) {
    memset(d, 0x7f, sizeof(d));
    OK(tlob_gemm_run_on(stream, "cpu_ref", &gemm, &operands));
    memcpy(want, d, sizeof(want));
    memset(d, 0x7f, sizeof(d));
    OK(tlob_gemm_run(stream, &gemm, &operands));
    cr_assert_eq(memcmp(d, want, sizeof(want)), 0);
}

static void expect_stats(int64_t hits, int64_t misses, int64_t rejected) {
    tlob_stream_stats stats;
    OK(tlob_stream_get_stats(stream, &stats));
    cr_expect(stats.table_hits == hits && stats.table_misses == misses && stats.table_rejected == rejected,
              "%lld hits, %lld misses, %lld rejected", (long long)stats.table_hits, (long long)stats.table_misses,
              (long long)stats.table_rejected);
}

/* --- hits --------------------------------------------------------------------------------------------------------- */

Test(tuned, what_the_table_says_is_done) {
    tlob_gemm plain = problem_of(3, 1), batch = problem_of(4, 3), biased = problem_of(5, 1), asked = plain;
    biased.epilogue = TLOB_EPILOGUE_BIAS;
    put(plain, method_of("picky", TLOB_FORM_WHOLE, 2));
    put(batch, method_of("picky", TLOB_FORM_LOOP, 3));
    put(biased, method_of("picky", TLOB_FORM_SEPARATE, -1));
    open_tuned(true);
    run_right(plain);
    cr_expect(noted.products == 1 && noted.way == 2);
    run_right(batch);
    cr_expect(noted.products == 4 && noted.way == 3 && noted.batch == 1);
    run_right(biased);
    cr_expect(noted.products == 5 && noted.way == -1 && noted.epilogue == TLOB_EPILOGUE_NONE);
    asked.alpha = -0.5f; /* which is no part of what was measured */
    asked.compute = TLOB_COMPUTE_DEFAULT;
    run_right(asked);
    cr_expect(noted.products == 6 && noted.way == 2);
    expect_stats(4, 0, 0);
}

Test(tuned, a_wide_product_is_one_call) {
    tlob_gemm g = problem_of(4, 3);
    g.stride_a = 0;
    put(g, method_of("cpu_ref", TLOB_FORM_WIDE, -1));
    open_tuned(true);
    run_right(g);
    tlob_explanation e;
    OK(tlob_gemm_explain(stream, &g, &operands, &e));
    cr_expect_eq(e.choice.form, TLOB_FORM_WIDE);
    cr_expect_str_eq(e.choice.backend, "cpu_ref");
    expect_stats(1, 0, 0);
}

static tlob_gemm long_sum(int64_t k) {
    tlob_gemm g = tlob_gemm_init(1, 1, k);
    g.compute = TLOB_COMPUTE_FP32;
    return g;
}

Test(tuned, a_product_in_pieces_is_a_batch) {
    const tlob_gemm two = long_sum(256), pieces = long_sum(512);
    put(two, method_of("picky", TLOB_FORM_SPLIT, 1));
    put(pieces, method_of("cpu_ref", TLOB_FORM_SPLIT, -1));
    open_tuned(true);
    run_right(two);
    cr_expect(noted.products == 1 && noted.way == 1 && noted.batch == 2);
    OK(tlob_gemm_run(stream, &two, &operands));
    cr_expect(noted.products == 2 && noted.adoptions == 1);
    run_right(pieces);
    tlob_explanation e;
    OK(tlob_gemm_explain(stream, &pieces, &operands, &e));
    cr_expect_eq(e.choice.form, TLOB_FORM_SPLIT);
    expect_stats(3, 0, 0);
}

/* As many pieces as `picky` takes products in a batch, and more. */
Test(tuned, pieces_are_no_more_than_the_largest_batch) {
    const tlob_gemm most = long_sum(512), more = long_sum(1024);
    const tlob_method method = method_of("picky", TLOB_FORM_SPLIT, -1);
    static _Alignas(64) float zeros[1024];
    const tlob_gemm_operands x = {.a = zeros, .b = zeros, .d = d};
    put(more, method);
    open_tuned(false);
    OK(tlob_gemm_run_as(stream, &method, &most, &x));
    cr_expect(noted.products == 1 && noted.batch == 4);
    const tlob_status status = tlob_gemm_run_as(stream, &method, &more, &x);
    cr_expect(status == TLOB_ERR_UNSUPPORTED && strstr(tlob_last_error()->message, "more than the backend's largest"),
              "%s", tlob_last_error()->message);
    OK(tlob_gemm_run(stream, &more, &x));
    cr_expect(noted.products == 1 && d[0] == 0);
    expect_stats(0, 1, 1);
}

/* What is warm is not looked up again, and is counted all the same. */
Test(tuned, a_warm_product_takes_its_configuration_once) {
    tlob_gemm g = problem_of(3, 1);
    put(g, method_of("picky", TLOB_FORM_WHOLE, 2));
    open_tuned(false);
    for (int i = 0; i < 5; i++)
        OK(tlob_gemm_run(stream, &g, &operands));
    cr_expect(noted.products == 5 && noted.adoptions == 1 && noted.way == 2);
    expect_stats(5, 0, 0);
}

/* --- misses ------------------------------------------------------------------------------------------------------- */

Test(tuned, a_miss_goes_by_the_default_rule_and_says_so) {
    tlob_gemm known = problem_of(3, 1), other = problem_of(3, 1), empty = problem_of(3, 1);
    tlob_context_params params;
    put(known, method_of("picky", TLOB_FORM_WHOLE, 2));
    params = tuned(false);
    params.trace = note_reason;
    open_with(&params);
    run_right(known);
    cr_expect_str_eq(reason, "picky, whole: tuned: an entry of the table (host)");
    other.lda = 4;
    run_right(other);
    cr_expect_str_eq(reason, "cpu_ref, whole: tuned: no entry for this problem; on the host, cpu_ref");
    OK(tlob_gemm_run(stream, &known, &(tlob_gemm_operands){.a = a, .b = b + 1, .d = d}));
    cr_expect_str_eq(reason, "cpu_ref, whole: tuned: an operand is not aligned to 16 bytes, and what was measured was; on "
                             "the host, cpu_ref");
    expect_stats(1, 2, 0);
    empty.k = 0;
    OK(tlob_gemm_run(stream, &empty, &operands));
    cr_expect_str_eq(reason, "cpu_ref, whole: on the host, cpu_ref");
    OK(tlob_gemm_run_on(stream, "picky", &other, &operands));
    const tlob_method insisted = method_of("picky", TLOB_FORM_WHOLE, 4);
    OK(tlob_gemm_run_as(stream, &insisted, &other, &operands));
    cr_expect_eq(noted.way, 4);
    expect_stats(1, 2, 0);
}

/* Known trap: a stream remembers a decision for operands that lie otherwise. */
Test(tuned, operands_that_are_less_aligned_are_a_miss_though_the_problem_is_warm) {
    tlob_gemm g = problem_of(3, 1);
    const tlob_gemm_operands off = {.a = a + 1, .b = b, .d = d};
    put(g, method_of("picky", TLOB_FORM_WHOLE, 2));
    open_tuned(false);
    OK(tlob_gemm_run(stream, &g, &operands));
    OK(tlob_gemm_run(stream, &g, &off));
    OK(tlob_gemm_run(stream, &g, &off));
    OK(tlob_gemm_run(stream, &g, &operands));
    cr_expect_eq(noted.products, 2);
    expect_stats(2, 2, 0);
}

/* Likewise where they are aligned to 16 bytes, and what was measured wants more: in whatever order they come. */
Test(tuned, operands_that_the_configuration_is_not_for_are_a_miss_and_the_others_a_hit) {
    static _Alignas(256) float aligned[64];
    const tlob_gemm g = problem_of(3, 1);
    const tlob_gemm_operands on = {.a = aligned, .b = b, .d = d}, off = {.a = aligned + 4, .b = b, .d = d};
    put(g, method_of("picky", TLOB_FORM_WHOLE, 8));
    for (int first = 0; first < 2; first++) {
        open_tuned(false);
        noted.wanted = 128;
        for (int i = first; i < first + 4; i++)
            OK(tlob_gemm_run(stream, &g, i % 2 ? &off : &on));
        cr_expect_eq(noted.products, 2);
        expect_stats(2, 2, 2);
        for (int i = 0; i < 3; i++)
            OK(tlob_gemm_run(stream, &g, &on));
        const int adoptions = noted.adoptions;
        OK(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = aligned, .b = b, .d = d + 64}));
        cr_expect_eq(noted.adoptions, adoptions, "they are aligned alike, and nobody is asked");
        close_all();
        logged[0] = 0;
    }
}

Test(tuned, a_strict_miss_is_an_error_that_names_problem_and_table) {
    tlob_gemm g = problem_of(3, 1), other = problem_of(8, 1), empty = problem_of(3, 1);
    put(g, method_of("picky", TLOB_FORM_WHOLE, 2));
    open_tuned(true);
    OK(tlob_gemm_run(stream, &g, &operands));
    FAILS(tlob_gemm_run(stream, &other, &operands), TLOB_ERR_POLICY,
          "a table of the program, on NN m=8 n=5 k=7 lda=8 ldb=7 ldc=8 batch=1");
    cr_expect(strstr(tlob_last_error()->message, "no entry for this problem; measure it"));
    cr_expect(tlob_last_error()->has_gemm && tlob_last_error()->gemm.m == 8);
    FAILS(tlob_gemm_run(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d + 1}), TLOB_ERR_POLICY, "not aligned to 16");
    empty.k = 0;
    OK(tlob_gemm_run(stream, &empty, &operands)); /* nothing to multiply, nothing to miss */
    cr_expect_eq(noted.products, 1, "nothing else is tried");
    expect_stats(1, 0, 0);
}

/* --- entries that are refused ------------------------------------------------------------------------------------- */

/* Known trap: one failure silently replaces what was measured for the rest of the process. */
Test(tuned, an_entry_that_is_refused_is_warned_of_once_counted_and_a_miss) {
    tlob_gemm g = problem_of(3, 1);
    tlob_stream *second;
    put(g, method_of("picky", TLOB_FORM_WHOLE, REFUSED_WAY));
    open_tuned(false);
    FAILS(tlob_gemm_run(stream, NULL, &operands), TLOB_ERR_ARGUMENT, "gemm is NULL");
    const tlob_error before = *tlob_last_error();
    for (int i = 0; i < 3; i++)
        run_right(g);
    cr_expect_eq(memcmp(&before, tlob_last_error(), sizeof(before)), 0, "%s", tlob_last_error()->message);
    expect_stats(0, 3, 3);
    OK(tlob_stream_create(ctx, &second));
    OK(tlob_gemm_run(second, &g, &operands));
    tlob_stream_close(&second);
    cr_expect_eq(noted.products, 0);
    cr_expect_eq(count_logged("warn: policy tuned: an entry of the table (picky, whole, way 7) is refused, and its product a "
                              "miss: picky: adopt on NN m=3"), 1, "%s", logged);
    cr_expect_eq(count_logged("refused"), 1, "%s", logged);
}

Test(tuned, whatever_an_entry_says_does_no_harm) {
    static const struct {
        const char *backend, *words;
        tlob_form form;
        int way;
    } rows[] = {
        {"picky", "there is no such way", TLOB_FORM_WHOLE, 99},
        {"cpu_ref", "the backend takes no configurations", TLOB_FORM_WHOLE, 1},
        {"gone", "the policy chose 'gone', and this host context has", TLOB_FORM_WHOLE, -1},
        {"picky", "its epilogue is not among those of the backend", TLOB_FORM_WHOLE, 1},
    };
    for (int i = 0; i < 4; i++) {
        char words[200];
        tlob_gemm g = problem_of(3, 1);
        g.epilogue = i == 3 ? TLOB_EPILOGUE_RELU : TLOB_EPILOGUE_NONE;
        put(g, method_of(rows[i].backend, rows[i].form, rows[i].way));
        tlob_context_params params = tuned(false);
        params.trace = note_reason;
        logged[0] = 0;
        open_with(&params);
        run_right(g);
        run_right(g);
        expect_stats(0, 2, 2);
        snprintf(words, sizeof(words), "cpu_ref, whole: tuned: an entry of the table is refused: %s", rows[i].words);
        cr_expect(!strncmp(reason, words, strlen(words)), "%s", reason);
        cr_expect_eq(count_logged("is refused"), 1, "%s", logged);
        tlob_explanation e;
        OK(tlob_gemm_explain(stream, &g, &operands, &e));
        snprintf(words, sizeof(words), "tuned: an entry of the table is refused: %s", rows[i].words);
        cr_expect(!strncmp(e.choice.reason, words, strlen(words)), "%s", e.choice.reason);
        cr_expect_str_eq(e.choice.backend, "cpu_ref");
        close_all();
        params.policy.strict = true;
        open_with(&params);
        FAILS(tlob_gemm_run(stream, &g, &operands), TLOB_ERR_POLICY, rows[i].words);
        FAILS(tlob_gemm_explain(stream, &g, &operands, &e), TLOB_ERR_POLICY, rows[i].words);
        close_all();
    }
}

/* --- where the table comes from ----------------------------------------------------------------------------------- */

#define ENTRY(m, backend, device, more)                                                                                \
    "{\"problem\": {\"transa\": \"n\", \"transb\": \"n\", \"m\": " m ", \"n\": 5, \"k\": 7, \"lda\": " m               \
    ", \"ldb\": 7, \"ldc\": " m ", \"batch\": 1, \"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"none\"" more      \
    "}, \"method\": {\"backend\": \"" backend "\", \"form\": \"whole\", \"configuration\": {}}, \"origin\": "         \
    "{\"device\": \"" device "\", \"sm\": 0, \"multiprocessors\": 0, \"library\": \"\"}}"
#define FILE_OF(entries) "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [" entries "]}\n"

static void write_file(const char *text) {
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

Test(tuned, a_context_reads_the_table_and_tells_what_it_is_good_for) {
    tlob_context_params params = tuned(false);
    tlob_gemm g = problem_of(3, 1), other = problem_of(4, 1);
    tlob_settings settings;
    char words[400];
    write_file(FILE_OF("7, " ENTRY("3", "picky", "host", "") ", " ENTRY("4", "picky", "abacus", "") ", " ENTRY("3", "picky",
                       "host", ", \"x\": 1")));
    params.policy.table = NULL;
    params.table_path = path;
    params.trace = note_reason;
    open_with(&params);
    OK(tlob_context_settings(ctx, &settings));
    cr_expect_str_eq(settings.table_path, path);
    cr_expect(settings.policy.table && settings.table_origin == TLOB_ORIGIN_ARGUMENT);
    snprintf(words, sizeof(words), "info: policy tuned: %s: 1 of 2 entries are for 'host' and its libraries\n", path);
    cr_expect_eq(count_logged(words), 1, "%s", logged);
    snprintf(words, sizeof(words), "warn: policy tuned: 2 entries are rejected, the first: %s, entry 1: the entry is no JSON "
             "object\n", path);
    cr_expect_eq(count_logged(words), 1, "%s", logged);
    snprintf(words, sizeof(words), "warn: policy tuned: 1 entries do not count here, the first: %s, entry 3: it is of "
             "'abacus' (sm_0, 0 multiprocessors), and this device is 'host' (sm_0, 0)\n", path);
    cr_expect_eq(count_logged(words), 1, "%s", logged);
    run_right(g);
    snprintf(words, sizeof(words), "picky, whole: tuned: %s, entry 2 (host)", path);
    cr_expect_str_eq(reason, words);
    run_right(other);
    cr_expect(strstr(reason, "the entry for this problem does not count here: it is of 'abacus'"), "%s", reason);
    expect_stats(1, 1, 0);
}

Test(tuned, a_table_that_cannot_be_read_makes_no_context) {
    tlob_context_params params = tuned(false);
    params.policy.table = NULL;
    params.table_path = path;
    write_file("{\n7}");
    FAILS(tlob_context_create(&ctx, &params), TLOB_ERR_FILE, "line 2, column 2: this is not JSON");
    cr_expect_null(ctx);
    params.table_path = "/nowhere/at/all";
    FAILS(tlob_context_create(&ctx, &params), TLOB_ERR_FILE, "/nowhere/at/all");
}

/* A table that nobody would read is an error, unless what goes before it says that the policy is another. */
Test(tuned, policy_and_table_go_together) {
    tlob_context_params params = tuned(false);
    tlob_settings s;
    params.policy.table = NULL;
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT, "tuned (argument) needs a table of what was measured");
    params.table_path = "";
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT, "must be the name of a table");
    params.table_path = path;
    OK(tlob_settings_resolve(&params, &s));
    params.policy.table = table;
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT, "has a table already");
    params.table_path = NULL;
    setenv("TLOB_TABLE", "/nowhere/at/all", 1);
    OK(tlob_settings_resolve(&params, &s)); /* the argument goes before it */
    cr_expect_str_eq(s.table_path, "");
    params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    OK(tlob_settings_resolve(&params, &s)); /* so does another policy */
    cr_expect_str_eq(s.table_path, "");
    params.table_path = path;
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT, "is for policy tuned, and the policy is fixed:cpu_ref");
    params.table_path = NULL;
    params.policy = (tlob_policy){0};
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_SETTING,
          "the table '/nowhere/at/all' is for policy tuned, and the policy is fixed:cpu_ref (default)");
    setenv("TLOB_POLICY", "tuned:strict", 1);
    OK(tlob_settings_resolve(&params, &s));
    cr_expect(s.policy.kind == TLOB_POLICY_TUNED && s.policy.strict && s.table_origin == TLOB_ORIGIN_ENVIRONMENT);
    setenv("TLOB_TABLE", "", 1);
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_SETTING, "TLOB_TABLE=''");
    unsetenv("TLOB_TABLE");
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_SETTING, "tuned:strict (environment) needs a table");
    params.config_path = path;
    write_file("{\"policy\": \"threshold\", \"table\": \"t.json\"}");
    OK(tlob_settings_resolve(&params, &s));
    cr_expect(!strcmp(s.table_path, "t.json") && s.table_origin == TLOB_ORIGIN_FILE);
    setenv("TLOB_POLICY", "fixed:cpu_ref", 1);
    OK(tlob_settings_resolve(&params, &s));
    cr_expect_str_eq(s.table_path, "", "the environment's policy goes before the file's table");
    params.policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD, .table = table};
    FAILS(tlob_settings_resolve(&params, &s), TLOB_ERR_ARGUMENT, "no other kind than TLOB_POLICY_TUNED reads");
}

Test(tuned, is_written_and_read_as_text) {
    tlob_policy policy;
    char text[64];
    OK(tlob_policy_parse("tuned", &policy));
    cr_expect(policy.kind == TLOB_POLICY_TUNED && !policy.strict && !policy.table);
    tlob_policy_print(&policy, text, sizeof(text));
    cr_expect_str_eq(text, "tuned");
    OK(tlob_policy_parse("tuned:strict", &policy));
    cr_expect(policy.strict);
    tlob_policy_print(&policy, text, sizeof(text));
    cr_expect_str_eq(text, "tuned:strict");
    static const char *const wrong[] = {"tuned:", "tuned:loose", "tuned ", "Tuned", "tuned:strict "};
    for (int i = 0; i < 5; i++)
        FAILS(tlob_policy_parse(wrong[i], &policy), TLOB_ERR_UNKNOWN_NAME, "tuned, tuned:strict");
}

/* --- asking --------------------------------------------------------------------------------------------------------- */

Test(tuned, all_three_questions_name_the_entry_and_the_method) {
    tlob_gemm g = problem_of(4, 3), other = problem_of(5, 1), tf32 = problem_of(6, 1);
    tlob_policy policy = {.kind = TLOB_POLICY_TUNED, .table = table};
    tlob_choice choice;
    tlob_explanation e;
    put(g, method_of("picky", TLOB_FORM_LOOP, 3));
    tf32.compute = TLOB_COMPUTE_TF32;
    put(tf32, method_of("cublaslt", TLOB_FORM_WHOLE, 3));
    OK(tlob_dispatch_explain(&policy, &g, &choice));
    cr_expect(choice.form == TLOB_FORM_LOOP && !choice.built);
    cr_expect_str_eq(choice.backend, "picky");
    cr_expect_str_eq(choice.configuration, "way 3");
    cr_expect_str_eq(choice.reason, "tuned: an entry of the table (host)");
    tf32.compute = TLOB_COMPUTE_DEFAULT;
    OK(tlob_dispatch_explain(&policy, &tf32, &choice));
    cr_expect_str_eq(choice.backend, "cublaslt");
    OK(tlob_dispatch_explain(&policy, &other, &choice));
    cr_expect_str_eq(choice.reason, "tuned: no entry for this problem; threshold: min(m, n, k) = 5 is below 64");
    g.compute = TLOB_COMPUTE_DEFAULT; /* FP32 on the host */
    OK(tlob_dispatch_candidates(&policy, TLOB_MEMORY_HOST, &g, &e));
    cr_expect_str_eq(e.choice.backend, "picky");
    OK(tlob_dispatch_candidates(&policy, TLOB_MEMORY_HOST, &other, &e));
    cr_expect_str_eq(e.choice.reason, "tuned: no entry for this problem; on the host, cpu_ref");
    open_tuned(false);
    OK(tlob_gemm_explain(stream, &g, NULL, &e));
    cr_expect(e.choice.form == TLOB_FORM_LOOP && e.choice.built);
    cr_expect_str_eq(e.choice.configuration, "way 3");
    cr_expect_str_eq(e.algorithm, "way 3");
    OK(tlob_gemm_explain(stream, &g, &(tlob_gemm_operands){.a = a, .b = b, .d = d + 1}, &e));
    cr_expect(strstr(e.choice.reason, "not aligned to 16 bytes"), "%s", e.choice.reason);
    cr_expect_eq(noted.products + noted.adoptions, 0, "nothing is run or kept");
    expect_stats(0, 0, 0);
    policy.table = NULL;
    FAILS(tlob_dispatch_explain(&policy, &g, &choice), TLOB_ERR_ARGUMENT, "needs a table in `table`");
    policy.table = table;
    policy.strict = true;
    FAILS(tlob_dispatch_explain(&policy, &other, &choice), TLOB_ERR_POLICY, "m=5 n=5 k=7");
}
