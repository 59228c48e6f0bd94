/* Files of algorithms, with a backend that chooses its own: what is written, what is taken, and why the rest is not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtlob/internal.h"

/* --- a backend with a table of two numbers an entry ------------------------------------------------------------- */

enum { MOST = 8 };

struct tlob_shared {
    int count;
    int64_t size[MOST], way[MOST];
    bool offered[MOST];
};

static tlob_shared *table; /* of the context that was made last */
static bool detached;
static int times = 1; /* that each entry is listed */

static tlob_status attach(tlob_shared **shared, const tlob_shared_params *params) {
    if (!params->deterministic)
        return TLOB_OK;
    cr_assert_str_eq(params->device, "");
    *shared = table = calloc(1, sizeof(*table));
    return TLOB_OK;
}

static void detach(tlob_shared *shared) {
    detached = true;
    free(shared);
}

static void list_table(tlob_shared *shared, tlob_algorithm_fn visit, void *user) {
    for (int i = 0; shared && i < shared->count; i++) {
        const tlob_algorithm entry = {
            .backend = "choosy",
            .state = shared->offered[i] ? TLOB_ALGORITHM_LOADED : TLOB_ALGORITHM_CHOSEN,
            .reason = "",
            .source = "",
            .library = 7,
            .order = 3,
            .n_key = 1,
            .n_configuration = 1,
            .key = {{"size", shared->size[i]}},
            .configuration = {{"way", shared->way[i]}},
        };
        for (int j = 0; j < times; j++)
            visit(user, &entry);
    }
}

static bool offer(tlob_shared *shared, const tlob_algorithm *entry, char *why, size_t size) {
    if (entry->library != 7)
        return snprintf(why, size, "another library"), false;
    if (entry->n_key != 1 || entry->n_configuration != 1 || strcmp(entry->key[0].name, "size") ||
        strcmp(entry->configuration[0].name, "way") || shared->count == MOST)
        return snprintf(why, size, "a field is not known"), false;
    shared->size[shared->count] = entry->key[0].value;
    shared->way[shared->count] = entry->configuration[0].value;
    shared->offered[shared->count++] = true;
    return true;
}

static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    cr_assert_eq(params->shared, params->deterministic ? table : NULL);
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
    cr_assert_not(detached, "lanes are closed first");
}

static TLOB_GEMM_FN(never_called) {
    (void)lane, (void)gemm, (void)x;
    return TLOB_OK;
}

static const tlob_backend_ops choosy = {
    .api = TLOB_BACKEND_API,
    .name = "choosy",
    .caps = {.memory = TLOB_MEMORY_HOST,
             .computes = 1u << TLOB_COMPUTE_FP32,
             .epilogues = 1u << TLOB_EPILOGUE_NONE,
             .max_batch = 1,
             .deterministic = true},
    .attach = attach,
    .detach = detach,
    .list_algorithms = list_table,
    .offer_algorithm = offer,
    .open = open_lane,
    .close = close_lane,
    .sgemm = never_called,
};

/* --- a context, a file ------------------------------------------------------------------------------------------ */

static char path[64], logged[4096];
static tlob_context *ctx;

static void note_line(void *user, tlob_log_level level, const char *line) {
    (void)user;
    size_t used = strlen(logged);
    if (level == TLOB_LOG_WARN)
        snprintf(logged + used, sizeof(logged) - used, "%s\n", line);
}

static tlob_context *open_context(tlob_switch deterministic) {
    static const tlob_backend_ops *const rows[] = {&choosy};
    tlob_context_params params = tlob_context_params_default();
    tlob_context *made;
    params.memory = TLOB_MEMORY_HOST;
    params.deterministic = deterministic;
    params.log = note_line;
    params.log_level = TLOB_LOG_WARN;
    params.backends = rows;
    params.n_backends = 1;
    cr_assert_eq(tlob_context_create(&made, &params), TLOB_OK, "%s", tlob_last_error()->message);
    return made;
}

static void setup(void) {
    strcpy(path, "/tmp/tlob-algorithms-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    ctx = open_context(TLOB_SWITCH_ON);
}

static void teardown(void) {
    tlob_context_destroy(&ctx);
    unlink(path);
}

TestSuite(files, .init = setup, .fini = teardown);

static void write_file(const char *text) {
    FILE *file = fopen(path, "wb");
    fputs(text, file);
    fclose(file);
}

static void read_file(char text[8192]) {
    FILE *file = fopen(path, "rb");
    text[fread(text, 1, 8191, file)] = 0;
    fclose(file);
}

#define DEVICE "\"device\": {\"name\": \"\", \"sm\": 0, \"multiprocessors\": 0}"
#define ENTRY(size, way)                                                                                               \
    "{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, " DEVICE ", \"key\": {\"size\": " size                   \
    "}, \"configuration\": {\"way\": " way "}}"
#define FOR_DEVICE(name, sm, multiprocessors)                                                                          \
    "{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, \"device\": {\"name\": " name ", \"sm\": " sm                 \
    ", \"multiprocessors\": " multiprocessors "}, \"key\": {\"size\": 1}, \"configuration\": {\"way\": 1}}"
#define FILE_OF(entries) "{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": [" entries "]}\n"

static tlob_status load(const char *text, tlob_algorithms_report *report) {
    write_file(text);
    return tlob_algorithms_load(ctx, path, report);
}

static struct {
    int count;
    tlob_algorithm_state state[16];
    char source[16][320], reason[16][256];
} seen;

static void look(void *user, const tlob_algorithm *entry) {
    (void)user;
    seen.state[seen.count] = entry->state;
    snprintf(seen.source[seen.count], sizeof(seen.source[0]), "%s", entry->source);
    snprintf(seen.reason[seen.count++], sizeof(seen.reason[0]), "%s", entry->reason);
}

Test(files, what_is_saved_is_loaded_again) {
    static const int64_t values[] = {0, -5, 123456789012, INT64_MAX, INT64_MIN, ((int64_t)1 << 53) + 1};
    tlob_algorithms_report report;
    table->count = 6;
    for (int i = 0; i < 6; i++) {
        table->size[i] = values[i];
        table->way[i] = values[5 - i];
    }
    cr_assert_eq(tlob_algorithms_save(ctx, path), TLOB_OK, "%s", tlob_last_error()->message);
    tlob_context_destroy(&ctx);
    ctx = open_context(TLOB_SWITCH_ON);
    cr_assert_eq(tlob_algorithms_load(ctx, path, &report), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(report.accepted, 6);
    cr_assert_eq(report.rejected, 0, "%s", report.reason);
    for (int i = 0; i < 6; i++)
        cr_assert(table->size[i] == values[i] && table->way[i] == values[5 - i], "value %d", i);
    cr_assert_eq(tlob_algorithms_save(ctx, path), TLOB_OK);
    char text[8192];
    read_file(text);
    cr_assert_str_eq(text, "{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": [\n]}\n",
                     "what was loaded and not needed is no choice of this context");
}

Test(files, whitespace_and_the_order_of_members_are_free) {
    tlob_algorithms_report report;
    cr_assert_eq(load("{\"entries\": [\r\n{\"configuration\": {\"way\": 2}, \"key\": {\"size\": 1},\r\n" DEVICE
                      ", \"order\": 3, \"library\": 7, \"backend\": \"choosy\"}\r\n], \"version\": 1,\r\n"
                      "\"format\": \"tlob-algorithms\"}\r\n", &report), TLOB_OK, "%s", tlob_last_error()->message);
    cr_assert_eq(report.accepted, 1);
    cr_assert(table->size[0] == 1 && table->way[0] == 2);
}

Test(files, an_entry_that_is_wrong_is_rejected_alone) {
    static const struct {
        const char *entry, *words;
    } rows[] = {
        {"7", "the entry is no JSON object"},
        {"{}", "the entry has no \"backend\""},
        {"{\"backend\": 1, \"library\": 7, \"order\": 3, " DEVICE ", \"key\": {}, \"configuration\": {}}",
         "\"backend\" is no string"},
        {"{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, " DEVICE
         ", \"key\": {\"size\": 1}, \"configuration\": {\"way\": 1}, \"colour\": 3}", "\"colour\", which is not known"},
        {"{\"backend\": \"choosy\", \"backend\": \"choosy\"}", "\"backend\" twice"},
        {"{\"backend\": \"cublas\", \"library\": 7, \"order\": 3, " DEVICE ", \"key\": {}, \"configuration\": {}}",
         "no backend 'cublas'"},
        {"{\"backend\": \"cpu_ref\", \"library\": 7, \"order\": 3, " DEVICE ", \"key\": {}, \"configuration\": {}}",
         "cpu_ref chooses no algorithms"},
        {"{\"backend\": \"choosy\", \"library\": 7.5, \"order\": 3, " DEVICE ", \"key\": {}, \"configuration\": {}}",
         "\"library\" is not a whole number"},
        {"{\"backend\": \"choosy\", \"library\": 8, \"order\": 3, " DEVICE
         ", \"key\": {\"size\": 1}, \"configuration\": {\"way\": 1}}", "another library"},
        {"{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, \"device\": {\"name\": \"NVIDIA H100\", \"sm\": 90, "
         "\"multiprocessors\": 114}, \"key\": {\"size\": 1}, \"configuration\": {\"way\": 1}}",
         "it is for 'NVIDIA H100' (sm_90, 114 multiprocessors)"},
        {FOR_DEVICE("\"x\"", "0", "0"), "it is for 'x' (sm_0, 0 multiprocessors), and this device is ''"},
        {FOR_DEVICE("\"\"", "1", "0"), "sm_1"},
        {FOR_DEVICE("\"\"", "0", "1"), "1 multiprocessors"},
        {FOR_DEVICE("0", "0", "0"), "the device's name is no string"},
        {"{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, \"device\": {\"name\": \"\", \"sm\": 0}, "
         "\"key\": {\"size\": 1}, \"configuration\": {\"way\": 1}}", "\"device\" has no \"multiprocessors\""},
        {"{\"backend\": \"choosy\", \"library\": 7, \"order\": 3, " DEVICE ", \"key\": [], \"configuration\": {}}",
         "\"key\" is no JSON object"},
        {ENTRY("1e300", "1"), "\"size\" is not a whole number of 64 bits"},
        {ENTRY("9007199254740993", "1"), "\"size\" is not a whole number of 64 bits"},
        {ENTRY("\"9223372036854775808\"", "1"), "\"size\" is not a whole number of 64 bits"},
        {ENTRY("\" 1\"", "1"), "\"size\" is not a whole number of 64 bits"},
        {ENTRY("null", "1"), "\"size\" is not a whole number of 64 bits"},
        {ENTRY("1, \"size\": 1", "1"), "\"size\" twice"},
        {ENTRY("1, \"weight\": 1", "1"), "a field is not known"},
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    for (size_t i = 0; i < ROWS; i++) {
        char text[2048];
        tlob_algorithms_report report;
        tlob_context_destroy(&ctx);
        detached = false;
        ctx = open_context(TLOB_SWITCH_ON);
        logged[0] = 0;
        memset(&seen, 0, sizeof(seen));
        snprintf(text, sizeof(text), FILE_OF(ENTRY("1", "1") ", %s, " ENTRY("3", "3")), rows[i].entry);
        cr_assert_eq(load(text, &report), TLOB_OK, "row %zu: %s", i, tlob_last_error()->message);
        cr_assert_eq(report.accepted, 2, "row %zu", i);
        cr_assert_eq(report.rejected, 1, "row %zu", i);
        cr_assert(strstr(report.reason, rows[i].words), "row %zu, no '%s' in: %s", i, rows[i].words, report.reason);
        cr_assert(strstr(logged, "entry 2 is rejected: ") && strstr(logged, rows[i].words), "row %zu: %s", i, logged);
        cr_assert_eq(tlob_algorithms_list(ctx, look, NULL), TLOB_OK);
        cr_assert_eq(seen.count, 3, "row %zu", i);
        cr_assert_eq(seen.state[2], TLOB_ALGORITHM_REJECTED);
        cr_assert(strstr(seen.source[2], ", entry 2"), "%s", seen.source[2]);
        cr_assert_str_eq(seen.reason[2], report.reason);
    }
}

Test(files, the_report_has_the_reason_of_the_first) {
    tlob_algorithms_report report;
    cr_assert_eq(load(FILE_OF("7, {}, " ENTRY("1", "1")), &report), TLOB_OK);
    cr_assert(report.accepted == 1 && report.rejected == 2);
    cr_assert_str_eq(report.reason, "the entry is no JSON object");
}

Test(files, what_is_no_file_of_this_kind_is_refused_whole) {
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "line 1, column 1: this is not JSON; it is empty"},
        {"{\"format\": \"tlob-algorithms\", \"version\": 1,\n \"entries\": [\n" ENTRY("1", "1") ",", "this is not JSON"},
        {"[]", "is not one JSON object"},
        {"{}", "it has no \"format\""},
        {"{\"format\": \"tlob-model\", \"version\": 1, \"entries\": []}", "its format is not \"tlob-algorithms\""},
        {"{\"format\": \"tlob-algorithms\", \"version\": 2, \"entries\": []}", "version 2, and this libtlob reads"},
        {"{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": {}}", "\"entries\" is no array"},
        {"{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": [], \"more\": 1}", "\"more\", which is not"},
        {FILE_OF(ENTRY("1", "1")) "x", "line 2, column 1: this is not JSON"},
        {FILE_OF("{\"backend\\u0000\": 1}"), "character 0"},
    };
    tlob_algorithms_report report;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert_eq(load(rows[i].text, &report), TLOB_ERR_FILE, "row %zu", i);
        const char *message = tlob_last_error()->message;
        cr_assert(strstr(message, rows[i].words) && strstr(message, path), "row %zu: %s", i, message);
    }
    cr_assert_eq(table->count, 0);
    unlink(path);
    memset(&report, 0x55, sizeof(report));
    cr_assert_eq(tlob_algorithms_load(ctx, path, &report), TLOB_ERR_FILE);
    cr_assert(report.accepted == 0 && report.rejected == 0 && !*report.reason, "a report of nothing");
    cr_assert(strstr(tlob_last_error()->message, "No such file"), "%s", tlob_last_error()->message);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(tlob_algorithms_load(ctx, path, NULL), TLOB_ERR_FILE);
    cr_assert(strstr(tlob_last_error()->message, "directory"), "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_algorithms_save(ctx, path), TLOB_ERR_FILE);
    cr_assert(strstr(tlob_last_error()->message, "a directory"), "%s", tlob_last_error()->message);
    rmdir(path);
    cr_assert_eq(tlob_algorithms_save(ctx, "/nowhere/at/all"), TLOB_ERR_FILE);
    cr_assert(strstr(tlob_last_error()->message, "beside it"), "%s", tlob_last_error()->message);
}

/* A reader never sees half a file, and a failure leaves the old one and nothing beside it. */
Test(files, a_file_that_cannot_be_written_leaves_the_old_one) {
    char text[8192];
    write_file("old");
    table->count = 1;
    cr_assert_eq(tlob_algorithms_save(ctx, "/dev/full"), TLOB_ERR_FILE);
    cr_assert(strstr(tlob_last_error()->message, "not a regular file"), "%s", tlob_last_error()->message);
    read_file(text);
    cr_assert_str_eq(text, "old");
    cr_assert_eq(tlob_algorithms_save(ctx, path), TLOB_OK);
    read_file(text);
    cr_assert(strstr(text, "\"size\": 0"), "%s", text);
}

static mode_t permissions_of(const char *file) {
    struct stat info;
    cr_assert_eq(lstat(file, &info), 0);
    return S_ISLNK(info.st_mode) ? (mode_t)-1 : info.st_mode & 07777;
}

/* As any other file that libtlob's program replaces: what is private stays so, and a link stays one. */
Test(files, permissions_and_links_stay_as_they_were) {
    char link[80], text[8192];
    snprintf(link, sizeof(link), "%s.link", path);
    write_file("old");
    table->count = 1;
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(symlink(path, link), 0);
    cr_expect_eq(tlob_algorithms_save(ctx, link), TLOB_OK);
    cr_expect_eq(permissions_of(link), (mode_t)-1, "the link was replaced");
    cr_expect_eq(permissions_of(path), 0640);
    read_file(text);
    cr_expect(strstr(text, "\"size\": 0"), "%s", text);
    unlink(link);
}

/* What could not be read again is not written, and what is read does not take for ever. */
Test(files, there_is_a_limit_to_their_size, .timeout = 20) {
    enum { FEW = 65536, MANY };
    char text[8192], *many = malloc(MANY * 3 + 1);
    tlob_algorithms_report report;
    write_file("old");
    table->count = 1;
    times = 65537;
    cr_expect_eq(tlob_algorithms_save(ctx, path), TLOB_ERR_FILE);
    cr_expect(strstr(tlob_last_error()->message, "more than it could load again"), "%s", tlob_last_error()->message);
    read_file(text);
    cr_expect_str_eq(text, "old");
    times = 1;
    for (int i = 0; i < MANY; i++)
        memcpy(many + 3 * i, "{},", 4);
    for (int i = FEW; i <= MANY; i++) {
        FILE *file = fopen(path, "wb");
        fprintf(file, FILE_OF("%.*s"), 3 * i - 1, many);
        fclose(file);
        tlob_status status = tlob_algorithms_load(ctx, path, &report);
        cr_expect_eq(status, i == FEW ? TLOB_OK : TLOB_ERR_FILE, "%d entries", i);
        cr_expect_eq(report.rejected, i == FEW ? FEW : 0, "%d entries", i);
    }
    cr_expect(strstr(tlob_last_error()->message, "more than 65536 entries"), "%s", tlob_last_error()->message);
    free(many);
}

/* Known trap: a table is rejected or ignored, and nobody is told. */
Test(files, a_context_that_would_not_look_at_a_table_says_so) {
    tlob_context *off = open_context(TLOB_SWITCH_OFF);
    write_file(FILE_OF(ENTRY("1", "1")));
    cr_assert_eq(tlob_algorithms_load(off, path, NULL), TLOB_ERR_ARGUMENT);
    cr_assert(strstr(tlob_last_error()->message, "not deterministic (argument)"), "%s", tlob_last_error()->message);
    cr_assert_eq(tlob_algorithms_save(off, path), TLOB_ERR_ARGUMENT);
    memset(&seen, 0, sizeof(seen));
    cr_assert_eq(tlob_algorithms_list(off, look, NULL), TLOB_OK);
    cr_assert_eq(seen.count, 0);
    tlob_context_destroy(&off);
}

Test(files, arguments_are_checked) {
    cr_assert_eq(tlob_algorithms_load(ctx, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_algorithms_save(ctx, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_algorithms_list(ctx, NULL, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_algorithms_list(NULL, look, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_algorithms_load(NULL, path, NULL), TLOB_ERR_ARGUMENT);
    cr_assert_str_eq(tlob_algorithm_state_name(TLOB_ALGORITHM_CONFIRMED), "confirmed");
    cr_assert_str_eq(tlob_algorithm_state_name((tlob_algorithm_state)9), "?");
}
