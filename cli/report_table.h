// A table of numbers in CSV, as `tlob train` writes them.
#ifndef CLI_REPORT_TABLE_H
#define CLI_REPORT_TABLE_H

#include "io/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct report_column {
    const char *name;
    double low, high; // what is allowed
} report_column;

// The first column is the step: whole numbers from 1 that rise. The others are finite numbers.
typedef struct report_table {
    int columns;
    size_t rows;
    double *cell; // [rows][columns]
} report_table;

// Parses `text`, whose first line names the columns. Returns 0; or -1, with the table empty and err naming the file
// `name`, the line and what was expected. Free with report_table_finish. Thread-safe.
int report_table_parse(const char *name, const char *text, size_t length, const report_column *columns, int n_columns,
                       report_table *table, io_error *err);
void report_table_finish(report_table *table);

#endif
