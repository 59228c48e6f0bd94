/* Tables of methods: what is put is found and written, what is written is read, and why the rest is not taken. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtlob/internal.h"

static char path[64];

static void setup(void) {
    strcpy(path, "/tmp/tlob-table-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void teardown(void) {
    unlink(path);
}

TestSuite(table, .init = setup, .fini = teardown);

static void write_file(const char *text) {
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

static char *read_file(void) {
    static char text[1 << 16];
    FILE *file = fopen(path, "rb");
    cr_assert(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return text;
}

static tlob_table *make_table(void) {
    tlob_table *table = NULL;
    cr_assert_eq(tlob_table_create(&table), TLOB_OK);
    return table;
}

static tlob_table *parse(const char *text, tlob_table_report *report) {
    tlob_table *table = NULL;
    cr_assert_eq(tlob_table_parse("t.json", text, strlen(text), &table, report), TLOB_OK, "%s",
                 tlob_last_error()->message);
    return table;
}

static tlob_gemm problem_of(int64_t m, int64_t n, int64_t k) {
    tlob_gemm g = tlob_gemm_init(m, n, k);
    g.compute = TLOB_COMPUTE_FP32;
    return g;
}

/* For backends that are not libtlob's own, so that any version is that of this process. */
static tlob_table_entry entry_of(tlob_gemm gemm, const char *device, int id) {
    tlob_table_entry entry = {
        .gemm = gemm,
        .method = {.backend = "own", .n_configuration = 2, .configuration = {{"tile", 7}, {"id", id}}},
        .origin = {.sm = 90, .multiprocessors = 132, .library = "own 1.2"},
    };
    snprintf(entry.origin.device, sizeof(entry.origin.device), "%s", device);
    return entry;
}

static tlob_device_info device_of(const char *name, int sm, int multiprocessors) {
    tlob_device_info info = {.sm = sm, .multiprocessors = multiprocessors};
    snprintf(info.name, sizeof(info.name), "%s", name);
    return info;
}

static void put(tlob_table *table, tlob_table_entry entry) {
    cr_assert_eq(tlob_table_put(table, &entry), TLOB_OK, "%s", tlob_last_error()->message);
}

/* --- problems ---------------------------------------------------------------------------------------------------- */

/* What does not change how a product is best done does not tell two problems apart; all else does. */
Test(table, a_problem_keeps_what_counts) {
    tlob_gemm g = problem_of(3, 5, 7), other = g;
    other.alpha = -2;
    other.stride_a = other.stride_b = other.stride_c = other.stride_bias = other.stride_aux = 99;
    other.ld_aux = 512;
    tlob_gemm a = tlob_table_problem(&g), b = tlob_table_problem(&other);
    cr_expect_eq(memcmp(&a, &b, sizeof(a)), 0);
    cr_expect(a.alpha == 1 && a.beta == 0 && a.ld_aux == 0);
    other.beta = -0.5f;
    b = tlob_table_problem(&other);
    cr_expect(b.beta == 1);
    other.beta = -0.0f;
    b = tlob_table_problem(&other);
    cr_expect_eq(memcmp(&a, &b, sizeof(a)), 0, "a zero with a sign reads no C either");
    other = g;
    other.batch = 2;
    other.stride_a = 21;
    other.stride_aux = other.stride_bias = 4;
    b = tlob_table_problem(&other);
    cr_expect(b.stride_a == 21 && b.stride_aux == 0 && b.stride_bias == 0);
    other.epilogue = TLOB_EPILOGUE_GELU_AUX_BIAS;
    other.ld_aux = 3;
    b = tlob_table_problem(&other);
    cr_expect(b.ld_aux == 3 && b.stride_aux == 4 && b.stride_bias == 4);
    other.epilogue = TLOB_EPILOGUE_RELU;
    b = tlob_table_problem(&other);
    cr_expect(b.ld_aux == 0 && b.stride_aux == 0 && b.stride_bias == 0);
}

/* --- put and find ------------------------------------------------------------------------------------------------- */

Test(table, what_is_put_is_found_and_nothing_else) {
    tlob_table *table = make_table();
    const tlob_device_info h200 = device_of("NVIDIA H200", 90, 132);
    for (int m = 1; m <= 40; m++)
        for (int n = 1; n <= 10; n++)
            put(table, entry_of(problem_of(m, n, 7), "NVIDIA H200", 100 * m + n));
    cr_assert_eq(tlob_table_count(table, NULL), 400);
    for (int m = 1; m <= 40; m++)
        for (int n = 1; n <= 10; n++) {
            tlob_gemm g = problem_of(m, n, 7);
            const tlob_table_entry *found = tlob_table_find(table, &g, &h200);
            cr_assert(found && found->gemm.m == m && found->gemm.n == n);
            cr_assert_str_eq(found->method.configuration[0].name, "id", "fields are sorted by name");
            cr_assert_eq(found->method.configuration[0].value, 100 * m + n);
            cr_assert(!found->rejected && !*found->source);
        }
    tlob_gemm g = problem_of(3, 5, 7);
    g.alpha = 4;
    cr_expect(tlob_table_find(table, &g, &h200), "alpha is no part of it");
    g.alpha = 0;
    cr_expect_null(tlob_table_find(table, &g, &h200), "nothing to multiply");
#define MISSES(field, value)                                                                                           \
    do {                                                                                                               \
        tlob_gemm changed = problem_of(3, 5, 7);                                                                       \
        changed.field = value;                                                                                         \
        cr_expect_null(tlob_table_find(table, &changed, &h200), #field);                                               \
    } while (0)
    MISSES(m, 41);
    MISSES(n, 11);
    MISSES(k, 8);
    MISSES(k, 0);
    MISSES(lda, 4);
    MISSES(ldb, 8);
    MISSES(ldc, 4);
    MISSES(batch, 2);
    MISSES(beta, 1);
    MISSES(transa, TLOB_OP_T);
    MISSES(transb, TLOB_OP_T);
    MISSES(compute, TLOB_COMPUTE_TF32);
    MISSES(compute, TLOB_COMPUTE_DEFAULT);
    MISSES(epilogue, TLOB_EPILOGUE_RELU);
    tlob_table_destroy(&table);
    cr_expect_null(table);
    tlob_table_destroy(&table);
    tlob_table_destroy(NULL);
}

Test(table, an_entry_of_another_device_is_not_found_there_and_the_reason_says_so) {
    tlob_table *table = make_table();
    tlob_gemm g = problem_of(3, 5, 7), none = problem_of(3, 5, 8), empty = problem_of(3, 5, 0);
    char text[300];
    put(table, entry_of(g, "NVIDIA H200", 1));
    const tlob_device_info others[] = {device_of("NVIDIA H100", 90, 132), device_of("NVIDIA H200", 89, 132),
                                       device_of("NVIDIA H200", 90, 131)};
    const tlob_device_info h200 = device_of("NVIDIA H200", 90, 132);
    for (int i = 0; i < 3; i++) {
        cr_expect_null(tlob_table_find(table, &g, &others[i]));
        tlob_table_miss(table, &g, &others[i], text, sizeof(text));
        cr_expect(strstr(text, "does not count here: it is of 'NVIDIA H200' (sm_90, 132 multiprocessors), and this device"), "%s", text);
        cr_expect_eq(tlob_table_count(table, &others[i]), 0);
    }
    cr_expect(tlob_table_find(table, &g, &h200) && tlob_table_find(table, &g, NULL));
    cr_expect_eq(tlob_table_count(table, &h200), 1);
    tlob_table_miss(table, &g, &h200, text, sizeof(text));
    cr_expect_str_eq(text, "");
    tlob_table_miss(table, &none, &h200, text, sizeof(text));
    cr_expect_str_eq(text, "no entry for this problem");
    tlob_table_miss(table, &empty, &h200, text, sizeof(text));
    cr_expect_str_eq(text, "there is nothing to multiply");
    tlob_table_miss(table, &none, &h200, text, 3);
    cr_expect_str_eq(text, "no");
    tlob_table_miss(NULL, NULL, NULL, NULL, 0);
    tlob_table_destroy(&table);
}

Test(table, the_library_of_a_backend_of_libtlob_must_be_the_one_at_hand) {
    tlob_table *table = make_table();
    const tlob_device_info host = device_of("host", 0, 0);
    tlob_table_entry entry = {.gemm = problem_of(3, 5, 7), .method = {.backend = "cpu_ref"}, .origin = {.device = "host"}};
    char text[300];
    put(table, entry);
    cr_expect(tlob_table_find(table, &entry.gemm, &host));
    strcpy(entry.origin.library, "cpu_ref 9");
    put(table, entry);
    cr_expect_eq(tlob_table_count(table, NULL), 2, "of another release: both are kept");
    const tlob_table_entry *found = tlob_table_find(table, &entry.gemm, &host);
    cr_expect(found && !*found->origin.library);
    tlob_table_destroy(&table);
    table = make_table();
    put(table, entry);
    cr_expect_null(tlob_table_find(table, &entry.gemm, &host));
    tlob_table_miss(table, &entry.gemm, &host, text, sizeof(text));
    cr_expect_str_eq(text, "the entry for this problem does not count here: it is of cpu_ref 'cpu_ref 9', and this "
                             "process has ''");
    strcpy(entry.method.backend, "own");
    put(table, entry);
    cr_expect(tlob_table_find(table, &entry.gemm, &host), "what is not libtlob's own is not asked");
    tlob_table_destroy(&table);
}

/* Both libraries come with one toolkit: yesterday's best of the one must not stand beside today's of the other. */
Test(table, a_put_replaces_what_was_best_before) {
    tlob_table *table = make_table();
    tlob_table_entry entry = entry_of(problem_of(3, 5, 7), "NVIDIA H200", 1);
    strcpy(entry.method.backend, "cublas_classic");
    strcpy(entry.origin.library, "cuBLAS 13.1.0");
    put(table, entry);
    strcpy(entry.method.backend, "cublaslt");
    strcpy(entry.origin.library, "cuBLASLt 13.1.0");
    put(table, entry);
    cr_assert_eq(tlob_table_count(table, NULL), 1);
    cr_expect_str_eq(tlob_table_find(table, &entry.gemm, NULL)->method.backend, "cublaslt");
    strcpy(entry.origin.library, "cuBLASLt 13.2.0");
    put(table, entry);
    cr_expect_eq(tlob_table_count(table, NULL), 2);
    put(table, *tlob_table_find(table, &entry.gemm, NULL)); /* what is put may be the table's own */
    cr_expect_eq(tlob_table_count(table, NULL), 2);
    tlob_table_destroy(&table);
}

/* Known trap: a name that an entry points to belongs to somebody else and is gone. */
Test(table, what_an_entry_points_to_is_copied) {
    tlob_table *table = make_table();
    char name[8] = "tile", source[8] = "x";
    tlob_table_entry entry = entry_of(problem_of(3, 5, 7), "NVIDIA H200", 1);
    entry.method.configuration[0].name = name;
    entry.source = source;
    entry.rejected = "no";
    put(table, entry);
    memset(name, 'x', 7);
    const tlob_table_entry *found = tlob_table_find(table, &entry.gemm, NULL);
    cr_assert(found && !found->rejected && !*found->source);
    cr_expect_str_eq(found->method.configuration[1].name, "tile");
    tlob_table_destroy(&table);
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

enum { KINDS = 24 };

/* Varied: batches, epilogues, transposes, two devices, values that no JSON number holds. */
static tlob_table_entry varied(int i) {
    tlob_gemm g = problem_of(3 + i % 5, 5 + i % 3, 7 + i);
    if (i % 2) {
        g.batch = 2 + i % 4;
        g.stride_a = g.lda * g.k;
        g.stride_b = i % 3 ? g.ldb * g.n : 0;
        g.stride_c = g.ldc * g.n;
    }
    g.epilogue = (tlob_epilogue)(i % TLOB_EPILOGUE_COUNT);
    g.ld_aux = 128;
    g.stride_aux = 128 * g.n;
    g.stride_bias = 16;
    g.compute = i % 4 < 2 ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32;
    g.beta = i % 6 == 1 ? 0.5f : 0;
    if (i == 23) { /* a matrix of A that ends far away */
        g.lda = ((int64_t)1 << 53) + 1;
        g.stride_a = 0;
        g.k = 1;
        g.ldb = 1;
    }
    const bool splits = i % 2 == 0 && g.epilogue == TLOB_EPILOGUE_NONE;
    if (splits)
        g.k = g.ldb = 256 + 8 * i;
    tlob_table_entry entry = entry_of(g, i % 7 ? "NVIDIA H200" : "a \"device\" \\ of \t its own", i);
    entry.method.form = splits ? TLOB_FORM_SPLIT : i % 2 ? TLOB_FORM_LOOP : TLOB_FORM_WHOLE;
    entry.method.configuration[0].value = i % 3 ? i : INT64_MIN + i;
    entry.method.n_configuration = i % 5 ? 2 : 0;
    return entry;
}

static void shuffle(int order[KINDS], unsigned seed) {
    for (int i = 0; i < KINDS; i++)
        order[i] = i;
    for (int i = KINDS - 1; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        int j = (int)(seed >> 8) % (i + 1), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

Test(table, the_same_choices_are_the_same_bytes_in_whatever_order_they_came) {
    static char first[1 << 16];
    for (unsigned seed = 0; seed < 10; seed++) {
        int order[KINDS];
        tlob_table *table = make_table();
        shuffle(order, seed);
        for (int i = 0; i < KINDS; i++) {
            tlob_table_entry entry = varied(order[i]), stale = entry;
            if (seed % 2) { /* which is replaced, and leaves nothing behind */
                stale.method.n_configuration = 1;
                put(table, stale);
            }
            if (seed % 3 && entry.method.n_configuration == 2) { /* in another order of fields */
                tlob_algorithm_field field = entry.method.configuration[0];
                entry.method.configuration[0] = entry.method.configuration[1];
                entry.method.configuration[1] = field;
            }
            put(table, entry);
        }
        cr_assert_eq(tlob_table_count(table, NULL), KINDS);
        cr_assert_eq(tlob_table_write(table, path), TLOB_OK, "%s", tlob_last_error()->message);
        tlob_table_destroy(&table);
        if (!seed)
            strcpy(first, read_file());
        cr_assert_str_eq(read_file(), first, "seed %u", seed);
    }
}

static void compare_to_varied(void *user, const tlob_table_entry *entry) {
    int *count = user;
    tlob_table_entry want = {0};
    bool found = false;
    for (int i = 0; i < KINDS && !found; i++) {
        want = varied(i);
        want.gemm = tlob_table_problem(&want.gemm);
        found = !memcmp(&want.gemm, &entry->gemm, sizeof(want.gemm)) &&
                !strcmp(want.origin.device, entry->origin.device);
    }
    cr_assert(found, "m %lld k %lld", (long long)entry->gemm.m, (long long)entry->gemm.k);
    cr_assert(tlob_method_equal(&want.method, &entry->method));
    cr_assert_str_eq(want.origin.library, entry->origin.library);
    cr_assert(entry->origin.sm == 90 && entry->origin.multiprocessors == 132 && !entry->rejected);
    cr_assert(strstr(entry->source, ", entry ") && !strncmp(entry->source, path, strlen(path)), "%s", entry->source);
    ++*count;
}

Test(table, what_is_written_is_read_and_written_again_byte_by_byte) {
    static char first[1 << 16];
    tlob_table *table = make_table();
    tlob_table_report report;
    int count = 0;
    for (int i = 0; i < KINDS; i++)
        put(table, varied(i));
    cr_assert_eq(tlob_table_write(table, path), TLOB_OK);
    strcpy(first, read_file());
    tlob_table_destroy(&table);
    cr_assert_eq(tlob_table_read(path, &table, &report), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert(report.accepted == KINDS && report.rejected == 0, "%s", report.reason);
    cr_assert_eq(tlob_table_list(table, compare_to_varied, &count), TLOB_OK);
    cr_assert_eq(count, KINDS);
    cr_assert_eq(tlob_table_write(table, path), TLOB_OK);
    cr_assert_str_eq(read_file(), first);
    tlob_table_destroy(&table);
}

Test(table, an_empty_table_is_a_file_too) {
    tlob_table *table = make_table();
    tlob_table_report report;
    tlob_gemm g = problem_of(3, 5, 7);
    cr_assert_eq(tlob_table_write(table, path), TLOB_OK);
    cr_assert_str_eq(read_file(), "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [\n]}\n");
    cr_assert_null(tlob_table_find(table, &g, NULL));
    tlob_table_destroy(&table);
    cr_assert_eq(tlob_table_read(path, &table, &report), TLOB_OK);
    cr_assert(report.accepted == 0 && report.rejected == 0 && !*report.reason);
    tlob_table_destroy(&table);
}

/* --- files that are wrong ----------------------------------------------------------------------------------------- */

#define FILE_OF(entries) "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [" entries "]}\n"
#define SIZES            "\"m\": 3, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3"
#define HEAD             "\"transa\": \"n\", \"transb\": \"n\", "
#define TAIL             ", \"batch\": 1, \"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"none\""
#define PROBLEM          "{" HEAD SIZES TAIL "}"
#define METHOD           "{\"backend\": \"own\", \"form\": \"whole\", \"configuration\": {\"id\": 1}}"
#define ORIGIN           "{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"l\"}"
#define ENTRY(p, m, o)   "{\"problem\": " p ", \"method\": " m ", \"origin\": " o "}"
#define GOOD             ENTRY(PROBLEM, METHOD, ORIGIN)
#define OF_PROBLEM(p)    ENTRY(p, METHOD, ORIGIN)
#define OF_METHOD(m)     ENTRY(PROBLEM, m, ORIGIN)
#define OF_ORIGIN(o)     ENTRY(PROBLEM, METHOD, o)
#define FORM(b, f, c)    "{\"backend\": " b ", \"form\": " f ", \"configuration\": " c "}"
#define BATCH2           ", \"batch\": 2, \"stride_a\": 21, \"stride_b\": 35, \"stride_c\": 15, "
#define F(name)          "\"" name "\": 0, "

static const struct {
    const char *entry, *words;
} wrong[] = {
    {"7", "the entry is no JSON object"},
    {"[]", "the entry is no JSON object"},
    {"null", "the entry is no JSON object"},
    {"{}", "the entry has no \"problem\""},
    {"{\"problem\": " PROBLEM ", \"method\": " METHOD "}", "the entry has no \"origin\""},
    {"{\"problem\": " PROBLEM ", \"problem\": " PROBLEM "}", "the entry has \"problem\" twice"},
    {"{\"times\": [1, 2], \"problem\": " PROBLEM "}", "the entry has \"times\", which is not known"},
    {OF_PROBLEM("[]"), "the problem is no JSON object"},
    {OF_PROBLEM("{}"), "the problem has no \"transa\""},
    {OF_PROBLEM("{" HEAD SIZES TAIL ", \"alpha\": 1}"), "the problem has \"alpha\", which is not known"},
    {OF_PROBLEM("{" HEAD SIZES TAIL ", \"m\": 3}"), "the problem has \"m\" twice"},
    {OF_PROBLEM("{" HEAD SIZES TAIL ", \"stride_a\": 0}"), "the problem has \"stride_a\", which does not count in it"},
    {OF_PROBLEM("{" HEAD SIZES TAIL ", \"ld_aux\": 128}"), "\"ld_aux\", which does not count"},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 2, \"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"none\"}"),
     "the problem has no \"stride_a\""},
    {OF_PROBLEM("{" HEAD SIZES BATCH2 "\"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"bias\"}"),
     "the problem has no \"stride_bias\""},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 1, \"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"relu_aux_bias\"}"),
     "the problem has no \"ld_aux\""},
    {OF_PROBLEM("{\"transa\": 0, \"transb\": \"n\", " SIZES TAIL "}"), "\"transa\" is no string"},
    {OF_PROBLEM("{\"transa\": \"N\", \"transb\": \"n\", " SIZES TAIL "}"), "\"transa\" is 'N', which is not known"},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 1, \"beta\": 0, \"compute\": \"default\", \"epilogue\": \"none\"}"),
     "\"compute\" is 'default', which is not known"},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 1, \"beta\": 0, \"compute\": \"fp32\", \"epilogue\": \"swish\"}"),
     "\"epilogue\" is 'swish', which is not known"},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 1, \"beta\": 2, \"compute\": \"fp32\", \"epilogue\": \"none\"}"),
     "\"beta\" is 2, must be 0 or 1"},
    {OF_PROBLEM("{" HEAD SIZES ", \"batch\": 1, \"beta\": 0.5, \"compute\": \"fp32\", \"epilogue\": \"none\"}"),
     "\"beta\" is not a whole number"},
    {OF_PROBLEM("{" HEAD "\"m\": 3.5, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL "}"),
     "\"m\" is not a whole number"},
    {OF_PROBLEM("{" HEAD "\"m\": true, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL "}"),
     "\"m\" is not a whole number"},
    {OF_PROBLEM("{" HEAD "\"m\": 9007199254740993, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL "}"),
     "\"m\" is not a whole number"},
    {OF_PROBLEM("{" HEAD "\"m\": \"99999999999999999999\", \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL
                "}"),
     "\"m\" is not a whole number"},
    {OF_PROBLEM("{" HEAD "\"m\": -3, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL "}"), "m is -3"},
    {OF_PROBLEM("{" HEAD "\"m\": 4, \"n\": 5, \"k\": 7, \"lda\": 3, \"ldb\": 7, \"ldc\": 4" TAIL "}"), "lda is 3"},
    {OF_PROBLEM("{" HEAD "\"m\": 3, \"n\": 5, \"k\": 0, \"lda\": 3, \"ldb\": 7, \"ldc\": 3" TAIL "}"),
     "nothing to multiply"},
    {OF_PROBLEM("{" HEAD "\"m\": \"4611686018427387904\", \"n\": 5, \"k\": 7, \"lda\": \"4611686018427387904\", "
                "\"ldb\": 7, \"ldc\": \"4611686018427387904\"" TAIL "}"),
     "2^63 bytes"},
    {OF_METHOD("7"), "the method is no JSON object"},
    {OF_METHOD("{\"backend\": \"own\", \"form\": \"whole\"}"), "the method has no \"configuration\""},
    {OF_METHOD(FORM("1", "\"whole\"", "{}")), "\"backend\" is no string"},
    {OF_METHOD(FORM("\"\"", "\"whole\"", "{}")), "no backend can be named ''"},
    {OF_METHOD(FORM("\"cuBLAS\"", "\"whole\"", "{}")), "no backend can be named 'cuBLAS'"},
    {OF_METHOD(FORM("\"aaaaaaaaaaaaaaaaaaaaaaaa\"", "\"whole\"", "{}")), "\"backend\" has more than 23 bytes"},
    {OF_METHOD(FORM("\"own\"", "\"half\"", "{}")), "\"form\" is 'half', which is not known"},
    {OF_METHOD(FORM("\"own\"", "\"loop\"", "{}")), "cannot be done in this form: loop: there is no "},
    {OF_METHOD(FORM("\"own\"", "\"wide\"", "{}")), "cannot be done in this form: wide: there is no "},
    {OF_METHOD(FORM("\"own\"", "\"separate\"", "{}")), "cannot be done in this form: separate: there is no "},
    {OF_METHOD(FORM("\"own\"", "\"split\"", "{}")), "cannot be done in this form: split: k is below 256"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "[]")), "\"configuration\" is no JSON object"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"id\": 1, \"id\": 1}")), "\"configuration\" has \"id\" twice"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"id\": \"x\"}")), "\"id\" is not a whole number"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"Id\": 1}")), "has a field 'Id'"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"\": 1}")), "has a field ''"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"a-b\": 1}")), "has a field 'a-b'"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": 1}")), "must be 1 to 39"},
    {OF_METHOD(FORM("\"own\"", "\"whole\"",
                    "{" F("a") F("b") F("c") F("d") F("e") F("f") F("g") F("h") F("i") F("j") F("k") F("l") F("m") F("n")
                    F("o") F("p") "\"q\": 0}")),
     "\"configuration\" has more than 16 fields"},
    {OF_ORIGIN("7"), "the origin is no JSON object"},
    {OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2}"), "the origin has no \"library\""},
    {OF_ORIGIN("{\"device\": \"\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"l\"}"), "the device's name must"},
    {OF_ORIGIN("{\"device\": 1, \"sm\": 90, \"multiprocessors\": 2, \"library\": \"l\"}"), "\"device\" is no string"},
    {OF_ORIGIN("{\"device\": \"d\", \"sm\": -1, \"multiprocessors\": 2, \"library\": \"l\"}"), "\"sm\" is -1, must be"},
    {OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 4294967296, \"library\": \"l\"}"),
     "\"multiprocessors\" is 4294967296"},
    {OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": null}"),
     "\"library\" is no string"},
    {OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": "
               "\"0123456789012345678901234567890123456789012345678901234567890123\"}"),
     "\"library\" has more than 63 bytes"},
    {"{\"problem\": [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]], \"method\": " METHOD ", \"origin\": " ORIGIN "}",
     "the problem is no JSON object"},
};

typedef struct listed {
    int count, rejected;
    char source[64], reason[300];
} listed;

static void look(void *user, const tlob_table_entry *entry) {
    listed *seen = user;
    seen->count++;
    if (!entry->rejected)
        return;
    seen->rejected++;
    snprintf(seen->source, sizeof(seen->source), "%s", entry->source);
    snprintf(seen->reason, sizeof(seen->reason), "%s", entry->rejected);
}

/* Each stands between two that are right, which are taken. */
Test(table, an_entry_that_is_wrong_is_rejected_alone) {
    static char text[1 << 14];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        tlob_table_report report;
        listed seen = {0};
        snprintf(text, sizeof(text), FILE_OF(GOOD ",\n%s,\n" ENTRY(PROBLEM, METHOD, "%s")), wrong[i].entry,
                 "{\"device\": \"e\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"l\"}");
        tlob_error before = *tlob_last_error();
        tlob_table *table = parse(text, &report);
        cr_expect_eq(memcmp(&before, tlob_last_error(), sizeof(before)), 0, "row %zu: it is no failure", i);
        cr_expect(report.accepted == 2 && report.rejected == 1, "row %zu: %s", i, wrong[i].entry);
        cr_expect(!strncmp(report.reason, "entry 2: ", 9) && strstr(report.reason, wrong[i].words),
                  "row %zu: no '%s' in: %s", i, wrong[i].words, report.reason);
        tlob_table_list(table, look, &seen);
        cr_expect(seen.count == 3 && seen.rejected == 1);
        cr_expect_str_eq(seen.source, "t.json, entry 2");
        cr_expect(strstr(seen.reason, wrong[i].words), "row %zu: %s", i, seen.reason);
        cr_expect_eq(tlob_table_count(table, NULL), 2);
        tlob_table_destroy(&table);
    }
}

Test(table, entries_that_contradict_an_earlier_one_are_rejected_and_repetitions_are_not) {
    tlob_table_report report;
    tlob_gemm g = problem_of(3, 5, 7);
    tlob_table *table = parse(FILE_OF(GOOD ", " GOOD ", " OF_METHOD(FORM("\"own\"", "\"whole\"", "{\"id\": 2}")) ", " GOOD),
                              &report);
    cr_expect(report.accepted == 3 && report.rejected == 1);
    cr_expect_str_eq(report.reason,
                     "entry 3: it contradicts 't.json, entry 1', which has for the same problem: own, whole, id 1");
    cr_expect_eq(tlob_table_count(table, NULL), 1);
    cr_expect_eq(tlob_table_find(table, &g, NULL)->method.configuration[0].value, 1);
    tlob_table_destroy(&table);
    /* of the same release, by another backend */
    table = parse(FILE_OF(OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"x 1\"}") ", "
                          OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"y 1\"}") ", "
                          OF_ORIGIN("{\"device\": \"d\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"y 2\"}")),
                  &report);
    cr_expect(report.accepted == 2 && report.rejected == 1, "%s", report.reason);
    tlob_table_destroy(&table);
}

Test(table, whitespace_and_the_order_of_members_are_free) {
    tlob_table_report report;
    tlob_table *table = parse("\r\n{\"entries\":[{\"origin\":" ORIGIN ",\r\n\t\"method\":" METHOD ",\"problem\":{"
                              "\"epilogue\":\"none\",\"compute\":\"fp32\",\"beta\":0,\"batch\":1," SIZES
                              ",\"transb\":\"n\",\"transa\":\"n\"}}],\r\n\"version\":1,\"format\":\"tlob-table\"} \n",
                              &report);
    cr_expect(report.accepted == 1 && report.rejected == 0, "%s", report.reason);
    tlob_table_destroy(&table);
}

Test(table, what_is_no_table_is_refused_whole) {
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "line 1, column 1: this is not JSON; it is empty"},
        {"{\"format\": \"tlob-table\",\n  \"version\" 1}", "line 2, column 13: this is not JSON"},
        {FILE_OF(GOOD) "x", "line 2, column 1: this is not JSON"},
        {"[]", "is not one JSON object, such as {\"format\": \"tlob-table\""},
        {"{}", "it has no \"format\""},
        {"{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": []}", "its format is not \"tlob-table\""},
        {"{\"format\": \"tlob-table\", \"version\": 2, \"entries\": []}", "version 2, and this libtlob reads version 1"},
        {"{\"format\": \"tlob-table\", \"version\": \"x\", \"entries\": []}", "\"version\" is not a whole number"},
        {"{\"format\": \"tlob-table\", \"version\": 1, \"entries\": {}}", "\"entries\" is no array"},
        {"{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [], \"band\": 2}", "\"band\", which is not known"},
        {FILE_OF("{\"problem\\u0000\": 1}"), "character 0"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tlob_table_report report;
        tlob_table *table = (tlob_table *)(void *)path; /* must be set to NULL */
        memset(&report, 0x55, sizeof(report));
        write_file(rows[i].text);
        cr_expect_eq(tlob_table_read(path, &table, &report), TLOB_ERR_FILE, "row %zu", i);
        cr_expect_null(table);
        cr_expect(report.accepted == 0 && report.rejected == 0 && !*report.reason);
        const char *message = tlob_last_error()->message;
        cr_expect(strstr(message, rows[i].words) && strstr(message, path), "row %zu: %s", i, message);
    }
    tlob_table *table;
    cr_expect_eq(tlob_table_parse("t", "{\"a\0\": 1}", 9, &table, NULL), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "character 0"));
    cr_expect_eq(tlob_table_read("/nowhere/at/all", &table, NULL), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "No such file"), "%s", tlob_last_error()->message);
    cr_expect_eq(tlob_table_read("/tmp", &table, NULL), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "directory"), "%s", tlob_last_error()->message);
}

/* A file that ends anywhere is none, or one without its last entries; it never does harm. */
Test(table, a_file_that_is_cut_off_is_refused) {
    static const char text[] = FILE_OF(GOOD ", " GOOD);
    for (size_t length = 0; length < sizeof(text) - 2; length++) {
        tlob_table *table;
        cr_assert_eq(tlob_table_parse("t", text, length, &table, NULL), TLOB_ERR_FILE, "%zu bytes", length);
    }
}

/* Deeper than any reader's stack: of an entry, or of the file where the parser gives up. */
Test(table, deep_nesting_is_refused) {
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 1);
    tlob_table *table;
    memset(text, '[', DEEP);
    cr_expect_eq(tlob_table_parse("t", text, DEEP, &table, NULL), TLOB_ERR_FILE);
    for (int i = 0; i < DEEP; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    cr_expect_eq(tlob_table_parse("t", text, DEEP, &table, NULL), TLOB_ERR_FILE);
    free(text);
}

Test(table, there_is_a_limit_to_entries, .timeout = 60) {
    enum { MOST = 65536 };
    char *text = malloc((size_t)MOST * 3 + 200), *end = text;
    cr_assert(text);
    for (int more = 0; more < 2; more++) {
        tlob_table *table = NULL;
        tlob_table_report report;
        end = text + sprintf(text, "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [{}");
        for (int i = 1; i < MOST + more; i++)
            end = stpcpy(end, ",{}");
        end = stpcpy(end, "]}");
        tlob_status status = tlob_table_parse("t", text, (size_t)(end - text), &table, &report);
        cr_expect_eq(status, more ? TLOB_ERR_FILE : TLOB_OK);
        cr_expect_eq(report.rejected, more ? 0 : MOST);
        tlob_table_destroy(&table);
    }
    cr_expect(strstr(tlob_last_error()->message, "more than 65536 entries"), "%s", tlob_last_error()->message);
    tlob_table *table = make_table();
    for (int i = 0; i <= MOST; i++)
        put(table, entry_of(problem_of(1 + i % 300, 1 + i / 300, 1), "d", 1));
    write_file("old");
    cr_expect_eq(tlob_table_write(table, path), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "could load again"), "%s", tlob_last_error()->message);
    cr_expect_str_eq(read_file(), "old");
    tlob_table_destroy(&table);
    free(text);
}

/* --- writing aside ------------------------------------------------------------------------------------------------ */

static mode_t permissions_of(const char *file) {
    struct stat info;
    cr_assert_eq(lstat(file, &info), 0);
    return S_ISLNK(info.st_mode) ? (mode_t)-1 : info.st_mode & 07777;
}

Test(table, a_file_is_replaced_whole_with_its_permissions_and_links) {
    char link[80];
    tlob_table *table = make_table();
    put(table, varied(1));
    snprintf(link, sizeof(link), "%s.link", path);
    write_file("old");
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(symlink(path, link), 0);
    cr_expect_eq(tlob_table_write(table, link), TLOB_OK, "%s", tlob_last_error()->message);
    cr_expect_eq(permissions_of(link), (mode_t)-1, "the link was replaced");
    cr_expect_eq(permissions_of(path), 0640);
    cr_expect(strstr(read_file(), "\"backend\": \"own\""));
    unlink(link);
    cr_expect_eq(tlob_table_write(table, "/dev/full"), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "not a regular file"));
    cr_expect_eq(tlob_table_write(table, "/tmp"), TLOB_ERR_FILE);
    cr_expect_eq(tlob_table_write(table, "/nowhere/at/all"), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "beside it"));
    cr_expect_str_eq(tlob_last_error()->operation, "tlob_table_write");
    tlob_table_destroy(&table);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static void expect_refused(tlob_table_entry entry, const char *words) {
    tlob_table *table = make_table();
    cr_expect_eq(tlob_table_put(table, &entry), TLOB_ERR_ARGUMENT, "%s", words);
    cr_expect(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);
    cr_expect_eq(tlob_table_count(table, NULL), 0);
    tlob_table_destroy(&table);
}

Test(table, a_put_checks_what_it_gets) {
    const tlob_table_entry good = entry_of(problem_of(3, 5, 7), "d", 1);
#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        tlob_table_entry e = good;                                                                                     \
        __VA_ARGS__;                                                                                                   \
        expect_refused(e, words);                                                                                      \
    } while (0)
    REFUSED("lda is 2", e.gemm.lda = 2);
    REFUSED("nothing to multiply", e.gemm.k = 0);
    REFUSED("nothing to multiply", e.gemm.alpha = 0);
    REFUSED("nothing to multiply", e.gemm.batch = 0);
    REFUSED("DEFAULT, must be TF32 or FP32", e.gemm.compute = TLOB_COMPUTE_DEFAULT);
    REFUSED("epilogue is 99", e.gemm.epilogue = (tlob_epilogue)99);
    REFUSED("no backend can be named", memset(e.method.backend, 'a', sizeof(e.method.backend)));
    REFUSED("no backend can be named", e.method.backend[0] = 0);
    REFUSED("form is 5", e.method.form = (tlob_form)TLOB_FORM_COUNT);
    REFUSED("form is -1", e.method.form = (tlob_form)-1);
    REFUSED("loop: there is no batch", e.method.form = TLOB_FORM_LOOP);
    REFUSED("n_configuration is -1", e.method.n_configuration = -1);
    REFUSED("n_configuration is 17", e.method.n_configuration = 17);
    REFUSED("has a field ''", e.method.configuration[1].name = NULL);
    REFUSED("has 'tile' twice", e.method.configuration[1].name = "tile");
    REFUSED("the device's name", e.origin.device[0] = 0);
    REFUSED("the device's name", memset(e.origin.device, 'a', sizeof(e.origin.device)));
    REFUSED("the library", memset(e.origin.library, 'a', sizeof(e.origin.library)));
    REFUSED("sm is -1", e.origin.sm = -1);
    REFUSED("multiprocessors -1", e.origin.multiprocessors = -1);
}

Test(table, arguments_are_checked) {
    tlob_table *table = make_table(), *other;
    const tlob_table_entry good = entry_of(problem_of(3, 5, 7), "d", 1);
    cr_expect_eq(tlob_table_create(NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_put(NULL, &good), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_put(table, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_list(NULL, look, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_list(table, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_write(NULL, path), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_write(table, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_read(NULL, &other, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_read(path, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_parse(NULL, "", 0, &other, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_parse("t", NULL, 0, &other, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_parse("t", "", 0, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_null(tlob_table_find(NULL, &good.gemm, NULL));
    cr_expect_null(tlob_table_find(table, NULL, NULL));
    cr_expect_eq(tlob_table_count(NULL, NULL), 0);
    tlob_table_destroy(&table);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static tlob_table_block block_of(int64_t samples, tlob_block_plan plan) {
    return (tlob_table_block){.shape = tlob_block_shape_default(), .samples = samples, .compute = TLOB_COMPUTE_TF32,
                              .plan = plan, .origin = {.device = "d", .sm = 90, .multiprocessors = 2, .library = "l"}};
}

static tlob_block_params params_of(const tlob_table_block *entry) {
    return (tlob_block_params){.shape = entry->shape, .max_samples = entry->samples, .inference = entry->inference};
}

static void put_block(tlob_table *table, tlob_table_block entry) {
    cr_assert_eq(tlob_table_put_block(table, &entry), TLOB_OK, "%s", tlob_last_error()->message);
}

/* Every field that counts, changed alone. */
enum { BLOCKS = 12 };

static tlob_table_block varied_block(int which) {
    tlob_table_block b = block_of(64, which % 2 ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED);
    switch (which) {
    case 1: b.samples = 65; break;
    case 2: b.inference = true; break;
    case 3: b.compute = TLOB_COMPUTE_FP32; break;
    case 4: b.shape.axis = TLOB_AXIS_TIME; break;
    case 5: b.shape.d_in = 16; break;
    case 6: b.shape.d_out = 32; break;
    case 7: b.shape.seq = 3; break;
    case 8: b.shape.head_dim = 2; break;
    case 9: b.origin.sm = 80; break;
    case 10: strcpy(b.origin.device, "a \"quoted\" \\ device"); break;
    case 11: strcpy(b.origin.library, "m"); break;
    default: break;
    }
    return b;
}

static bool same_block(const tlob_table_block *a, const tlob_table_block *b) {
    return a->shape.d_in == b->shape.d_in && a->shape.d_out == b->shape.d_out && a->shape.seq == b->shape.seq &&
           a->shape.head_dim == b->shape.head_dim && a->shape.axis == b->shape.axis && a->samples == b->samples &&
           a->inference == b->inference && a->compute == b->compute && a->plan == b->plan &&
           a->origin.sm == b->origin.sm && !strcmp(a->origin.device, b->origin.device) &&
           !strcmp(a->origin.library, b->origin.library);
}

static void look_at_block(void *user, const tlob_table_block *entry) {
    listed *seen = user;
    seen->count++;
    seen->rejected += entry->rejected != NULL;
    if (!entry->rejected)
        return;
    snprintf(seen->source, sizeof(seen->source), "%s", entry->source);
    snprintf(seen->reason, sizeof(seen->reason), "%s", entry->rejected);
}

Test(table, blocks_are_put_found_replaced_and_read_as_they_were_written) {
    static char first[1 << 14];
    tlob_table *table = make_table(), *again = make_table();
    tlob_table_report report;
    put(table, varied(1));
    put(again, varied(1));
    for (int i = 0; i < BLOCKS; i++) {
        put_block(table, varied_block(i));
        put_block(again, varied_block(BLOCKS - 1 - i));
    }
    cr_assert_eq(tlob_table_count_blocks(table, NULL), BLOCKS);
    cr_assert_eq(tlob_table_write(table, path), TLOB_OK, "%s", tlob_last_error()->message);
    snprintf(first, sizeof(first), "%s", read_file());
    cr_assert_eq(tlob_table_write(again, path), TLOB_OK);
    cr_assert_str_eq(first, read_file(), "the order of putting has a part in the file");
    tlob_table_destroy(&again);
    cr_assert_eq(tlob_table_read(path, &again, &report), TLOB_OK, "%s", tlob_last_error()->message);
    cr_expect(report.accepted == BLOCKS + 1 && !report.rejected, "%s", report.reason);
    for (int i = 0; i < BLOCKS; i++) {
        const tlob_table_block want = varied_block(i), *found = tlob_table_same_block(again, &want);
        const tlob_block_params params = params_of(&want);
        cr_assert(found && same_block(found, &want), "block %d", i);
        cr_assert(strstr(found->source, ", block "));
        cr_assert_not_null(tlob_table_find_block(again, &params, want.compute, NULL));
        cr_assert_null(tlob_table_find_block(again, &params, want.compute, &(tlob_device_info){.name = "d"}));
    }
    cr_assert_eq(tlob_table_write(again, path), TLOB_OK);
    cr_assert_str_eq(first, read_file());
    put_block(table, block_of(64, TLOB_PLAN_FUSED));
    cr_assert_eq(tlob_table_count_blocks(table, NULL), BLOCKS);
    const tlob_table_block asked = block_of(64, TLOB_PLAN_COMPOSED);
    cr_assert_eq(tlob_table_same_block(table, &asked)->plan, TLOB_PLAN_FUSED);
    put_block(table, *tlob_table_same_block(table, &asked)); /* itself */
    tlob_table_destroy(&again);
    tlob_table_destroy(&table);
}

Test(table, a_block_counts_on_its_device_with_its_libraries) {
    tlob_table *table = make_table();
    tlob_table_block entry = block_of(64, TLOB_PLAN_FUSED);
    const tlob_block_params params = params_of(&entry);
    const tlob_device_info here = device_of("d", 90, 2), others[] = {device_of("e", 90, 2), device_of("d", 80, 2),
                                                                     device_of("d", 90, 3)};
    put_block(table, entry);
    cr_expect_null(tlob_table_find_block(table, &params, TLOB_COMPUTE_TF32, &here), "of other libraries");
    tlob_table_block_library(entry.origin.library, sizeof(entry.origin.library));
    cr_expect(!strncmp(entry.origin.library, "libtlob ", 8), "%s", entry.origin.library);
    put_block(table, entry);
    cr_expect_not_null(tlob_table_find_block(table, &params, TLOB_COMPUTE_TF32, &here));
    cr_expect_null(tlob_table_find_block(table, &params, TLOB_COMPUTE_FP32, &here));
    cr_expect(tlob_table_count_blocks(table, NULL) == 2 && tlob_table_count_blocks(table, &here) == 1);
    for (int i = 0; i < 3; i++)
        cr_expect_null(tlob_table_find_block(table, &params, TLOB_COMPUTE_TF32, &others[i]));
    char small[8]; /* the library alone is longer */
    tlob_table_block_library(small, sizeof(small));
    cr_expect_eq(strlen(small), sizeof(small) - 1, "cut, and ended");
    tlob_table_destroy(&table);
}

#define BLOCK                                                                                                          \
    "{\"d_in\": 32, \"d_out\": 16, \"head_dim\": 4, \"seq\": 1, \"samples\": 9, \"axis\": \"feature\", \"inference\": false"  \
    ", \"compute\": \"fp32\"}"
#define AS(block, plan, origin) "{\"block\": " block ", \"plan\": " plan ", \"origin\": " origin "}"
#define BLOCKS_OF(blocks)                                                                                              \
    "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [" GOOD "], \"blocks\": [" blocks "]}"
#define OTHER       "{\"device\": \"e\", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"l\"}"

Test(table, a_block_that_is_wrong_is_rejected_alone) {
    static const struct {
        const char *entry, *words;
    } rows[] = {
        {"7", "the entry is no JSON object"},
        {"{\"block\": " BLOCK ", \"plan\": \"fused\"}", "the entry has no \"origin\""},
        {AS("[]", "\"fused\"", ORIGIN), "the block is no JSON object"},
        {AS("{\"d_in\": 32}", "\"fused\"", ORIGIN), "the block has no \"d_out\""},
        {AS(BLOCK, "\"best\"", ORIGIN), "\"plan\" is 'best', which is not known"},
        {AS(BLOCK, "\"default\"", ORIGIN), "\"plan\" is 'default', which is not known"},
        {AS(BLOCK, "2", ORIGIN), "\"plan\" is no string"},
        {AS(BLOCK, "\"fused\"", "{}"), "the origin has no \"device\""},
#define WITH(in, samples, axis, inference, compute)                                                                    \
    AS("{\"d_in\": " in ", \"d_out\": 16, \"head_dim\": 4, \"seq\": 1, \"samples\": " samples ", \"axis\": \"" axis    \
       "\", \"inference\": " inference ", \"compute\": \"" compute "\"}", "\"fused\"", ORIGIN)
        {WITH("0", "9", "feature", "true", "fp32"), "the block is not valid: "},
        {WITH("31", "9", "feature", "true", "fp32"), "the block cannot be fused: the fused kernels need d_in"},
        {WITH("136", "9", "time", "true", "fp32"), "d_in and d_out that are multiples of 8, and at most 128"},
        {WITH("32", "0", "feature", "true", "fp32"), "samples is 0, must be at least 1"},
        {WITH("32", "1.5", "feature", "true", "fp32"), "\"samples\" is not a whole number"},
        {WITH("32", "9", "both", "true", "fp32"), "\"axis\" is 'both'"},
        {WITH("32", "9", "feature", "1", "fp32"), "\"inference\" is not true or false"},
        {WITH("32", "9", "feature", "true", "default"), "\"compute\" is 'default'"},
        {AS(BLOCK, "\"composed\"", OTHER), "it contradicts 't.json, block 1', which has for the same block: fused"},
    };
    static char text[1 << 13];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tlob_table_report report;
        listed seen = {0};
        snprintf(text, sizeof(text),
                 BLOCKS_OF(AS(BLOCK, "\"fused\"", OTHER) ", %s, " AS(BLOCK, "\"fused\"", ORIGIN) ", " AS(BLOCK, "\"fused\"", ORIGIN)), rows[i].entry);
        const tlob_error before = *tlob_last_error();
        tlob_table *table = parse(text, &report);
        cr_expect_eq(memcmp(&before, tlob_last_error(), sizeof(before)), 0, "row %zu: it is no failure", i);
        cr_expect(report.accepted == 4 && report.rejected == 1, "row %zu: %s", i, report.reason);
        cr_expect(!strncmp(report.reason, "block 2: ", 9) && strstr(report.reason, rows[i].words),
                  "row %zu: no '%s' in: %s", i, rows[i].words, report.reason);
        tlob_table_list_blocks(table, look_at_block, &seen);
        cr_expect(seen.count == 3 && seen.rejected == 1 && strstr(seen.reason, rows[i].words));
        cr_expect_str_eq(seen.source, "t.json, block 2");
        cr_expect_eq(tlob_table_count_blocks(table, NULL), 2, "one that is there twice is there once");
        cr_expect_eq(tlob_table_count(table, NULL), 1);
        tlob_table_destroy(&table);
    }
    tlob_table *table;
    static const char none[] = "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [], \"blocks\": {}}";
    cr_expect_eq(tlob_table_parse("t", none, sizeof(none) - 1, &table, NULL), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "\"blocks\" is no array"), "%s", tlob_last_error()->message);
}

Test(table, a_put_of_a_block_checks_what_it_gets) {
    tlob_table *table = make_table();
    const tlob_table_block good = block_of(64, TLOB_PLAN_FUSED);
#define BLOCK_REFUSED(words, ...)                                                                                      \
    do {                                                                                                               \
        tlob_table_block e = good;                                                                                     \
        __VA_ARGS__;                                                                                                   \
        cr_expect_eq(tlob_table_put_block(table, &e), TLOB_ERR_ARGUMENT, "%s", words);                                 \
        cr_expect(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);     \
    } while (0)
    BLOCK_REFUSED("head_dim is 3", e.shape.head_dim = 3);
    BLOCK_REFUSED("cannot be fused", e.shape.d_in = 31);
    BLOCK_REFUSED("samples is 0", e.samples = 0);
    BLOCK_REFUSED("compute mode is 0", e.compute = TLOB_COMPUTE_DEFAULT);
    BLOCK_REFUSED("plan is 0", e.plan = TLOB_PLAN_DEFAULT);
    BLOCK_REFUSED("plan is 3", e.plan = (tlob_block_plan)3);
    BLOCK_REFUSED("the device's name", e.origin.device[0] = 0);
    BLOCK_REFUSED("the library", memset(e.origin.library, 'a', sizeof(e.origin.library)));
    cr_expect_eq(tlob_table_put_block(NULL, &good), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_put_block(table, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_list_blocks(NULL, look_at_block, NULL), TLOB_ERR_ARGUMENT);
    cr_expect_eq(tlob_table_list_blocks(table, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_expect(!tlob_table_same_block(NULL, &good) && !tlob_table_same_block(table, NULL));
    cr_expect(!tlob_table_find_block(NULL, NULL, TLOB_COMPUTE_TF32, NULL) && !tlob_table_count_blocks(NULL, NULL));
    cr_expect_eq(tlob_table_count_blocks(table, NULL), 0);
    tlob_table_destroy(&table);
}
