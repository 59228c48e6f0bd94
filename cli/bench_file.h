// The output of `tlob bench --json`, read again.
#ifndef CLI_BENCH_FILE_H
#define CLI_BENCH_FILE_H

#include "io/error.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_BENCH_ROWS_MAX = 200, // more than one picture can show
    CLI_BENCH_NAME_MAX = 64,  // bytes
};

// Microseconds.
typedef struct cli_bench_times {
    double median, low, high;
} cli_bench_times;

typedef struct cli_bench_row {
    const char *what, *mode;
    const char *part_of; // the row that it is a stage of, by its `what`, or NULL
    int64_t n;
    cli_bench_times times[2];
    double ratio; // the second over the first
} cli_bench_row;

typedef struct cli_bench_file {
    cJSON *json;          // owns all texts
    const char *names[2]; // of the two works that are compared
    int rows;
    cli_bench_row row[CLI_BENCH_ROWS_MAX];
} cli_bench_file;

// Parses `text`. Returns 0; or -1, with the bench empty and err naming the file `name`, the line or key and what was
// expected. Free with cli_bench_file_finish. Thread-safe, apart from cJSON's report of a syntax error.
int cli_bench_file_parse(const char *name, const char *text, size_t length, cli_bench_file *bench, io_error *err);
void cli_bench_file_finish(cli_bench_file *bench);

#endif
