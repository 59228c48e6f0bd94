#include "cli/measurements.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 9007199254740992.0 // doubles hold each whole number up to it

// Where in the file: "problems[3].methods[1]." and the like comes before a key.
typedef struct reader {
    const char *file;
    char place[64];
    io_error *err;
} reader;

static int refuse(const reader *r, const char *key, const char *expected) {
    return io_error_set(r->err, "%s: %s%s: %s expected", io_error_path(r->file), r->place, key, expected);
}

// Texts go into CSV and beside axes.
static bool is_text(const char *text) {
    size_t length = text ? strlen(text) : 0;
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)text[i]) || text[i] == '"')
            return false;
    return length > 0 && length <= CLI_MEASUREMENTS_TEXT;
}

static int read_text(const reader *r, const cJSON *object, const char *key, const char **value) {
    *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return is_text(*value) ? 0 : refuse(r, key, "a text of 1 to 1024 bytes without quotes");
}

// Part of a file's name.
static int read_word(const reader *r, const cJSON *object, const char *key, const char **value) {
    *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    const size_t length = *value ? strlen(*value) : 0;
    return length > 0 && length <= 32 && strspn(*value, "abcdefghijklmnopqrstuvwxyz0123456789_") == length
               ? 0
               : refuse(r, key, "1 to 32 of a to z, 0 to 9 and _");
}

// A text, or NULL where the file has null.
static int read_choice(const reader *r, const cJSON *object, const char *key, const char **value) {
    *value = NULL;
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, key)) ? 0 : read_text(r, object, key, value);
}

static int read_whole(const reader *r, const cJSON *object, const char *key, int64_t *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(number >= 0 && number <= WHOLE_MAX) || number != floor(number))
        return refuse(r, key, "a whole number");
    *value = (int64_t)number;
    return 0;
}

// NAN where there is none: the method was not timed.
static int read_us(const reader *r, const cJSON *object, const char *key, double *us) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *us = NAN;
    if (!item || cJSON_IsNull(item))
        return 0;
    *us = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    return *us > 0 && isfinite(*us) ? 0 : refuse(r, key, "a finite number above 0, or null");
}

static bool is_word(const cJSON *object, const char *key, const char *word) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return !item || (cJSON_IsString(item) && !strcmp(item->valuestring, word));
}

static int read_gemm(reader *r, const cJSON *gemm, cli_measured_problem *p) {
    const size_t length = strlen(r->place);
    if (!cJSON_IsObject(gemm))
        return refuse(r, "gemm", "an object");
    snprintf(r->place + length, sizeof r->place - length, "gemm.");
    if (read_whole(r, gemm, "m", &p->m) || read_whole(r, gemm, "n", &p->n) || read_whole(r, gemm, "k", &p->k) ||
        read_whole(r, gemm, "batch", &p->batch) || read_word(r, gemm, "epilogue", &p->epilogue) ||
        read_word(r, gemm, "compute", &p->compute))
        return -1;
    r->place[length] = 0;
    const cJSON *beta = cJSON_GetObjectItemCaseSensitive(gemm, "beta");
    p->plain = is_word(gemm, "transa", "n") && is_word(gemm, "transb", "n") &&
               (!beta || (cJSON_IsNumber(beta) && beta->valuedouble == 0));
    return 0;
}

static int read_method(const reader *r, const cJSON *item, bool cold, cli_timed_method *to) {
    const char *check = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "check")); // not shown: any text
    double warm, with_cold;
    if (!cJSON_IsObject(item))
        return io_error_set(r->err, "%s: %.*s: an object expected", io_error_path(r->file), (int)strlen(r->place) - 1,
                            r->place);
    if (read_text(r, item, "method", &to->method) || read_text(r, item, "backend", &to->backend) ||
        read_text(r, item, "form", &to->form) || (!check && refuse(r, "check", "a text")) ||
        read_us(r, item, "warm_us", &warm) || read_us(r, item, "cold_us", &with_cold))
        return -1;
    const cJSON *configuration = cJSON_GetObjectItemCaseSensitive(item, "configuration");
    if (!cJSON_IsObject(configuration))
        return refuse(r, "configuration", "an object");
    to->algorithm = configuration->child != NULL;
    to->us = strcmp(check, "ok") ? NAN : cold ? with_cold : warm;
    return 0;
}

// Of the methods that were timed, those that the problem names.
static int read_methods(reader *r, const cJSON *methods, bool cold, const char *normal, const char *chosen,
                        cli_measured_problem *p) {
    const size_t length = strlen(r->place);
    const int count = cJSON_IsArray(methods) ? cJSON_GetArraySize(methods) : 0;
    const cJSON *item;
    int i = 0;
    if (count < 1 || count > CLI_MEASUREMENTS_MAX)
        return refuse(r, "methods", "an array of 1 to 65536 objects");
    cJSON_ArrayForEach(item, methods) {
        cli_timed_method method;
        snprintf(r->place + length, sizeof r->place - length, "methods[%d].", i++);
        if (read_method(r, item, cold, &method))
            return -1;
        if (normal && !p->normal.method && !strcmp(method.method, normal))
            p->normal = method;
        if (chosen && !p->chosen.method && !strcmp(method.method, chosen))
            p->chosen = method;
    }
    r->place[length] = 0;
    if (normal && !p->normal.method)
        return refuse(r, "default", "the name of one of the methods, or null");
    if (chosen && !(p->chosen.us > 0))
        return refuse(r, "chosen", "the name of one of the methods that was timed and whose check is ok, or null");
    return 0;
}

static int read_problem(reader *r, const cJSON *item, bool cold, cli_measured_problem *p) {
    const char *normal, *chosen;
    *p = (cli_measured_problem){.normal.us = NAN, .chosen.us = NAN};
    if (read_text(r, item, "name", &p->name) || read_gemm(r, cJSON_GetObjectItemCaseSensitive(item, "gemm"), p) ||
        read_choice(r, item, "default", &normal) || read_choice(r, item, "chosen", &chosen))
        return -1;
    return read_methods(r, cJSON_GetObjectItemCaseSensitive(item, "methods"), cold, normal, chosen, p);
}

static int read_head(const reader *r, cli_measurements *m) {
    const char *cache;
    int64_t version = 0;
    if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(m->json, "format")) ||
        !is_word(m->json, "format", "tlob-tune"))
        return refuse(r, "format", "'tlob-tune', as `tlob tune --measurements' writes it,");
    if (read_whole(r, m->json, "version", &version) || version != 1)
        return refuse(r, "version", "1");
    if (read_text(r, m->json, "device", &m->device) || read_text(r, m->json, "cache", &cache))
        return -1;
    // On the host it has no version: an empty text.
    m->library = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m->json, "library"));
    if (!m->library || (*m->library && !is_text(m->library)))
        return refuse(r, "library", "a text of at most 1024 bytes without quotes");
    m->cold = !strcmp(cache, "cold");
    return m->cold || !strcmp(cache, "warm") ? 0 : refuse(r, "cache", "'warm' or 'cold'");
}

static int read_problems(reader *r, cli_measurements *m) {
    const cJSON *problems = cJSON_GetObjectItemCaseSensitive(m->json, "problems"), *item;
    const int count = cJSON_IsArray(problems) ? cJSON_GetArraySize(problems) : 0;
    if (count < 1 || count > CLI_MEASUREMENTS_MAX)
        return refuse(r, "problems", "an array of 1 to 65536 objects");
    if (!(m->problem = calloc((size_t)count, sizeof *m->problem)))
        return io_error_set(r->err, "%s: out of memory", io_error_path(r->file));
    cJSON_ArrayForEach(item, problems) {
        snprintf(r->place, sizeof r->place, "problems[%d].", m->count);
        if (!cJSON_IsObject(item))
            return io_error_set(r->err, "%s: problems[%d]: an object expected", io_error_path(r->file), m->count);
        if (read_problem(r, item, m->cold, &m->problem[m->count]))
            return -1;
        m->count++;
    }
    return 0;
}

static int parse(reader *r, const char *text, size_t length, cli_measurements *m) {
    const char *end = text;
    // cJSON would take a byte 0 for a blank.
    m->json = strlen(text) == length ? cJSON_ParseWithLengthOpts(text, length + 1, &end, 1) : NULL;
    if (!m->json) {
        size_t line = 1;
        for (const char *c = text; c < end; c++)
            line += *c == '\n';
        return io_error_set(
            r->err, "%s: line %zu: this is no JSON; an object expected, as `tlob tune --measurements' writes it",
            io_error_path(r->file), line);
    }
    if (!cJSON_IsObject(m->json))
        return io_error_set(r->err, "%s: an object expected, as `tlob tune --measurements' writes it",
                            io_error_path(r->file));
    return read_head(r, m) ? -1 : read_problems(r, m);
}

int cli_measurements_parse(const char *name, const char *text, size_t length, cli_measurements *measurements,
                           io_error *err) {
    reader r = {.file = name, .err = err};
    *measurements = (cli_measurements){0};
    int result = parse(&r, text, length, measurements);
    if (result)
        cli_measurements_finish(measurements);
    return result;
}

void cli_measurements_finish(cli_measurements *measurements) {
    free(measurements->problem);
    cJSON_Delete(measurements->json);
    *measurements = (cli_measurements){0};
}
