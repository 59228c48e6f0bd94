// The output of `tlob bench --json`, read again.
#ifndef CLI_REPORT_BENCH_H
#define CLI_REPORT_BENCH_H

#include "io/error.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

enum { REPORT_BENCH_ROWS_MAX = 200 }; // more than one picture can show

// Microseconds.
typedef struct report_times {
    double median, low, high;
} report_times;

typedef struct report_bench_row {
    const char *what, *mode;
    int64_t n;
    report_times times[2];
    double ratio; // the second over the first
} report_bench_row;

typedef struct report_bench {
    cJSON *json;          // owns all texts
    const char *names[2]; // of the two works that are compared
    int rows;
    report_bench_row row[REPORT_BENCH_ROWS_MAX];
} report_bench;

// Parses `text`. Returns 0; or -1, with the bench empty and err naming the file `name`, the line or key and what was
// expected. Free with report_bench_finish. Thread-safe, apart from cJSON's report of a syntax error.
int report_bench_parse(const char *name, const char *text, size_t length, report_bench *bench, io_error *err);
void report_bench_finish(report_bench *bench);

#endif
