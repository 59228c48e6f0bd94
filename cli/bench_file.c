#include "cli/bench_file.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct reader {
    const char *file;
    int row; // of `results`
    io_error *err;
} reader;

static int refuse(const reader *r, const char *work, const char *key, const char *expected) {
    return io_error_set(r->err, "%s: results[%d].%s%s%s: %s expected", io_error_path(r->file), r->row, work ? work : "",
                        work ? "." : "", key, expected);
}

// Texts go into CSV and beside axes.
static bool is_name(const char *text) {
    size_t length = strlen(text);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c) || *c == '"')
            return false;
    return length > 0 && length <= CLI_BENCH_NAME_MAX;
}

static int read_name(const reader *r, const cJSON *row, const char *key, const char **value) {
    *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, key));
    return *value && is_name(*value) ? 0 : refuse(r, NULL, key, "a text of 1 to 64 bytes without quotes");
}

static int read_positive(const reader *r, const cJSON *object, const char *work, const char *key, double *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    return *value > 0 && isfinite(*value) ? 0 : refuse(r, work, key, "a finite number above 0");
}

static int read_times(const reader *r, const cJSON *work, cli_bench_times *times) {
    const char *name = work->string;
    if (read_positive(r, work, name, "median_us", &times->median) ||
        read_positive(r, work, name, "low_us", &times->low) || read_positive(r, work, name, "high_us", &times->high))
        return -1;
    return times->low <= times->median && times->median <= times->high
               ? 0
               : refuse(r, name, "median_us", "a number from low_us to high_us");
}

// The works that are compared are the first two objects of a row.
static int read_works(const reader *r, const cJSON *row, cli_bench_file *bench) {
    int found = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, row) {
        if (!cJSON_IsObject(item) || found == 2)
            continue;
        if (!is_name(item->string) || (r->row && strcmp(item->string, bench->names[found])))
            return io_error_set(r->err, "%s: results[%d]: the times of '%.64s' instead of those of %s",
                                io_error_path(r->file), r->row, item->string,
                                r->row ? bench->names[found] : "a work with a name of 1 to 64 bytes without quotes");
        if (read_times(r, item, &bench->row[r->row].times[found]))
            return -1;
        bench->names[found++] = item->string;
    }
    return found == 2 ? 0 : refuse(r, NULL, "(names of works)", "two objects of median_us, low_us and high_us");
}

// A stage belongs to a row before it, of the same n and mode, and the stages of a file to one.
static int read_part(const reader *r, const cJSON *row, const cli_bench_file *bench, cli_bench_row *to) {
    if (!cJSON_GetObjectItemCaseSensitive(row, "part_of"))
        return 0;
    if (read_name(r, row, "part_of", &to->part_of))
        return -1;
    for (int i = 0; i < r->row; i++) {
        const cli_bench_row *whole = &bench->row[i];
        if (whole->part_of && strcmp(whole->part_of, to->part_of))
            break;
        if (!whole->part_of && !strcmp(whole->what, to->part_of) && whole->n == to->n && !strcmp(whole->mode, to->mode))
            return 0;
    }
    return refuse(r, NULL, "part_of", "the name of one row before it, with the same n and mode,");
}

static int read_row(const reader *r, const cJSON *row, cli_bench_file *bench) {
    cli_bench_row *to = &bench->row[r->row];
    double n;
    if (read_name(r, row, "what", &to->what) || read_name(r, row, "mode", &to->mode) ||
        read_positive(r, row, NULL, "n", &n) || read_positive(r, row, NULL, "ratio", &to->ratio))
        return -1;
    if (n != floor(n) || n > 9007199254740992.0)
        return refuse(r, NULL, "n", "a whole number");
    to->n = (int64_t)n;
    return read_part(r, row, bench, to) ? -1 : read_works(r, row, bench);
}

static int read_rows(const char *name, cli_bench_file *bench, io_error *err) {
    static const char *const texts[] = {"version", "device", "compute", "policy", "vendor"};
    for (int i = 0; i < 5; i++)
        if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(bench->json, texts[i])))
            return io_error_set(err, "%s: %s: a text expected, as `tlob bench --json' writes it", io_error_path(name),
                                texts[i]);
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(bench->json, "results"), *row;
    int count = cJSON_IsArray(results) ? cJSON_GetArraySize(results) : 0;
    if (count < 1 || count > CLI_BENCH_ROWS_MAX)
        return io_error_set(err, "%s: results: an array of 1 to %d objects expected, as `tlob bench --json' writes it",
                            io_error_path(name), CLI_BENCH_ROWS_MAX);
    cJSON_ArrayForEach(row, results) {
        const reader r = {name, bench->rows, err};
        if (!cJSON_IsObject(row))
            return io_error_set(err, "%s: results[%d]: an object expected", io_error_path(name), bench->rows);
        if (read_row(&r, row, bench))
            return -1;
        bench->rows++;
    }
    return 0;
}

static int parse(const char *name, const char *text, size_t length, cli_bench_file *bench, io_error *err) {
    const char *end = text;
    // cJSON would take a byte 0 for a blank.
    bench->json = strlen(text) == length ? cJSON_ParseWithLengthOpts(text, length + 1, &end, 1) : NULL;
    if (!bench->json) {
        size_t line = 1;
        for (const char *c = text; c < end; c++)
            line += *c == '\n';
        return io_error_set(err, "%s: line %zu: this is no JSON; an object expected, as `tlob bench --json' writes it",
                            io_error_path(name), line);
    }
    if (!cJSON_IsObject(bench->json))
        return io_error_set(err, "%s: an object expected, as `tlob bench --json' writes it", io_error_path(name));
    return read_rows(name, bench, err);
}

int cli_bench_file_parse(const char *name, const char *text, size_t length, cli_bench_file *bench, io_error *err) {
    *bench = (cli_bench_file){0};
    int result = parse(name, text, length, bench, err);
    if (result)
        cli_bench_file_finish(bench);
    return result;
}

void cli_bench_file_finish(cli_bench_file *bench) {
    cJSON_Delete(bench->json);
    *bench = (cli_bench_file){0};
}
