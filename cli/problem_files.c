// Problems that a user brings: lists of words, and traces. What is wrong is told with file and line.
#include "cli/problems.h"

#include "cli/product.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Where a line is; and what becomes of it.
typedef struct reader {
    const char *file;
    int64_t line;
    cli_problems *problems;
    io_error *err;
} reader;

static bool refuse(const reader *r, const char *what) {
    io_error_set(r->err, "%s:%" PRId64 ": %s", io_error_path(r->file), r->line, what);
    return false;
}

static bool has_work(const tlob_gemm *g) {
    return g->m > 0 && g->n > 0 && g->k > 0 && g->batch > 0 && g->alpha != 0;
}

// --- lists ---

static bool take_list_line(reader *r, char *line) {
    tlob_gemm gemm;
    char why[400];
    line[strcspn(line, "#\r")] = 0;
    if (!line[strspn(line, " \t")])
        return true;
    if (!cli_product_parse(line, &gemm, why, sizeof why))
        return refuse(r, why);
    if (tlob_gemm_check(&gemm))
        return refuse(r, tlob_last_error()->message);
    if (!has_work(&gemm))
        return refuse(r, "a product with nothing to multiply: sizes, batch and alpha other than 0 expected");
    return cli_problems_add(r->problems, &gemm, "list/%" PRId64, r->line) || refuse(r, "out of memory");
}

// --- traces ---

static bool refuse_key(const reader *r, const char *key, const char *expected) {
    char what[160];
    snprintf(what, sizeof what, "\"%s\": %s expected, as TLOB_TRACE writes it", key, expected);
    return refuse(r, what);
}

static bool take_word(const reader *r, const cJSON *record, const char *key, const char *const *words, int count,
                      int *index) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, key));
    for (*index = 0; text && *index < count; ++*index)
        if (!strcmp(words[*index], text))
            return true;
    return refuse_key(r, key, "a word that libtlob knows");
}

static bool take_float(const reader *r, const cJSON *record, const char *key, float *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, key);
    *value = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN; // a text for what is not finite
    return cJSON_IsNumber(item) || cJSON_IsString(item) || refuse_key(r, key, "a number");
}

static const struct {
    const char *key;
    size_t offset;
} sizes[] = {
    {"m", offsetof(tlob_gemm, m)},
    {"n", offsetof(tlob_gemm, n)},
    {"k", offsetof(tlob_gemm, k)},
    {"lda", offsetof(tlob_gemm, lda)},
    {"ldb", offsetof(tlob_gemm, ldb)},
    {"ldc", offsetof(tlob_gemm, ldc)},
    {"batch", offsetof(tlob_gemm, batch)},
    {"stride_a", offsetof(tlob_gemm, stride_a)},
    {"stride_b", offsetof(tlob_gemm, stride_b)},
    {"stride_c", offsetof(tlob_gemm, stride_c)},
    {"ld_aux", offsetof(tlob_gemm, ld_aux)},
    {"stride_aux", offsetof(tlob_gemm, stride_aux)},
    {"stride_bias", offsetof(tlob_gemm, stride_bias)},
};

// cJSON keeps numbers as doubles, which hold whole ones up to 2^53.
static bool take_size(const reader *r, const cJSON *record, int which, tlob_gemm *gemm) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, sizes[which].key);
    double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(value >= 0 && value <= 0x1p53 && value == floor(value)))
        return refuse_key(r, sizes[which].key, "a whole number from 0 to 2^53");
    *(int64_t *)(void *)((char *)gemm + sizes[which].offset) = (int64_t)value;
    return true;
}

static bool take_problem(const reader *r, const cJSON *record, tlob_gemm *gemm) {
    static const char *const ops[] = {"NN", "NT", "TN", "TT"}, *const computes[] = {"tf32", "fp32"};
    const char *epilogues[TLOB_EPILOGUE_COUNT];
    int op, compute, epilogue;
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++)
        epilogues[i] = tlob_epilogue_get_traits((tlob_epilogue)i)->name;
    if (!take_word(r, record, "trans", ops, 4, &op) || !take_word(r, record, "compute", computes, 2, &compute) ||
        !take_word(r, record, "epilogue", epilogues, TLOB_EPILOGUE_COUNT, &epilogue) ||
        !take_float(r, record, "alpha", &gemm->alpha) || !take_float(r, record, "beta", &gemm->beta))
        return false;
    gemm->transa = op & 2 ? TLOB_OP_T : TLOB_OP_N;
    gemm->transb = op & 1 ? TLOB_OP_T : TLOB_OP_N;
    gemm->compute = compute ? TLOB_COMPUTE_FP32 : TLOB_COMPUTE_TF32;
    gemm->epilogue = (tlob_epilogue)epilogue;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!take_size(r, record, (int)i, gemm))
            return false;
    return true;
}

static bool same_problem(const tlob_gemm *a, const tlob_gemm *b) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (memcmp((const char *)a + sizes[i].offset, (const char *)b + sizes[i].offset, sizeof(int64_t)) != 0)
            return false;
    return a->transa == b->transa && a->transb == b->transb && a->compute == b->compute && a->epilogue == b->epilogue &&
           (a->beta != 0) == (b->beta != 0);
}

static bool take_record(reader *r, const cJSON *record) {
    tlob_gemm gemm = tlob_gemm_init(1, 1, 1);
    const char *status = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "status"));
    if (!status)
        return refuse_key(r, "status", "a text");
    if (strcmp(status, "TLOB_OK") != 0)
        return true;
    if (!take_problem(r, record, &gemm))
        return false;
    if (tlob_gemm_check(&gemm))
        return refuse(r, tlob_last_error()->message);
    if (!has_work(&gemm))
        return true;
    gemm = tlob_table_problem(&gemm);
    for (int i = 0; i < r->problems->count; i++)
        if (same_problem(&gemm, &r->problems->list[i].gemm))
            return true;
    return cli_problems_add(r->problems, &gemm, "trace/%" PRId64, r->line) || refuse(r, "out of memory");
}

static bool take_trace_line(reader *r, char *line) {
    const char *end = NULL;
    if (!*line)
        return true;
    cJSON *record = cJSON_ParseWithOpts(line, &end, 1);
    bool good = cJSON_IsObject(record) ? take_record(r, record)
                                       : refuse(r, "one JSON object expected, as TLOB_TRACE writes it");
    cJSON_Delete(record);
    return good;
}

// --- files ---

// Hands out the lines; a 0 among them would end one early.
static bool take_lines(reader *r, const char *text, size_t length, bool (*take)(reader *r, char *line)) {
    char *copy = strlen(text) == length ? strdup(text) : NULL;
    if (!copy) {
        io_error_set(r->err, "%s: %s", io_error_path(r->file),
                     strlen(text) == length ? "out of memory" : "a text expected, and it has a byte 0");
        return false;
    }
    bool good = true;
    for (char *line = copy; good && line; r->line++) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        good = take(r, line);
        line = next;
    }
    free(copy);
    return good;
}

static bool parse(reader *r, const char *text, size_t length, bool (*take)(reader *r, char *line)) {
    *r->problems = (cli_problems){0};
    bool good = take_lines(r, text, length, take);
    if (good && !r->problems->count) {
        io_error_set(r->err, "%s: not one product in it", io_error_path(r->file));
        good = false;
    }
    if (!good)
        cli_problems_free(r->problems);
    return good;
}

bool cli_problems_parse_trace(const char *path, const char *text, size_t length, cli_problems *problems,
                              io_error *err) {
    reader r = {path, 1, problems, err};
    return parse(&r, text, length, take_trace_line);
}

bool cli_problems_parse_list(const char *path, const char *text, size_t length, cli_problems *problems, io_error *err) {
    reader r = {path, 1, problems, err};
    return parse(&r, text, length, take_list_line);
}

static bool read_file(const char *path, cli_problems *problems,
                      bool (*parse_text)(const char *, const char *, size_t, cli_problems *, io_error *)) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t length = 0;
    io_error err = {""};
    *problems = (cli_problems){0};
    bool read = file && cli_read_all(file, &text, &length);
    bool good = read && parse_text(path, text, length, problems, &err);
    if (!read)
        cli_error("cannot read %s: %s", path, strerror(errno));
    else if (!good)
        cli_error("%s", err.text);
    free(text);
    if (file)
        fclose(file);
    return good;
}

bool cli_problems_from_trace(const char *path, cli_problems *problems) {
    return read_file(path, problems, cli_problems_parse_trace);
}

bool cli_problems_from_list(const char *path, cli_problems *problems) {
    return read_file(path, problems, cli_problems_parse_list);
}
