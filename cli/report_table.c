#include "cli/report_table.h"

#include <csv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *name;
    const report_column *columns;
    int n_columns, column; // cells of the line so far
    size_t line;
    bool has_header, after_cr, failed;
    report_table *table;
    size_t room; // rows
    io_error *err;
} reader;

// --- cells ---

static void refuse(reader *r, const char *what, const char *expected, const char *column) {
    io_error_set(r->err, "%s: line %zu: '%.40s' instead of %s%s%s", io_error_path(r->name), r->line, what, expected,
                 column ? ", column " : "", column ? column : "");
    r->failed = true;
}

static void refuse_header(reader *r, const char *text) {
    char header[128] = "";
    for (int i = 0; i < r->n_columns; i++)
        snprintf(header + strlen(header), sizeof header - strlen(header), "%s%s", i ? "," : "", r->columns[i].name);
    io_error_set(r->err, "%s: line %zu: '%.40s' instead of the header %s", io_error_path(r->name), r->line, text,
                 header);
    r->failed = true;
}

static bool grow(reader *r) {
    if (r->table->rows < r->room)
        return true;
    size_t room = r->room ? 2 * r->room : 256;
    double *longer = realloc(r->table->cell, room * (size_t)r->n_columns * sizeof *longer);
    if (!longer) {
        io_error_set(r->err, "%s: out of memory", io_error_path(r->name));
        r->failed = true;
        return false;
    }
    r->table->cell = longer;
    r->room = room;
    return true;
}

static void read_number(reader *r, const char *text, size_t length) {
    const report_column *column = &r->columns[r->column];
    double *row = r->table->cell + r->table->rows * (size_t)r->n_columns;
    char *end;
    double value = strtod(text, &end);
    char expected[96];
    if (!length || end != text + length || strspn(text, "0123456789+-.eE") != length || !isfinite(value)) {
        refuse(r, text, "a finite number", column->name);
    } else if (value < column->low || value > column->high) {
        snprintf(expected, sizeof expected, "a number from %g to %g", column->low, column->high);
        refuse(r, text, expected, column->name);
    } else if (!r->column && (value != floor(value) || (r->table->rows && value <= row[-r->n_columns]))) {
        refuse(r, text, "a whole number above that of the line before", column->name);
    } else {
        row[r->column] = value;
    }
}

static void next_line(reader *r) {
    r->line++;
    r->after_cr = false;
}

static void on_cell(void *cell, size_t length, void *user) {
    reader *r = user;
    const char *text = cell;
    if (r->failed)
        return;
    if (r->after_cr)
        next_line(r);
    if (!r->has_header && (r->column >= r->n_columns || strcmp(text, r->columns[r->column].name)))
        refuse_header(r, text);
    else if (r->column >= r->n_columns)
        refuse(r, text, "the end of the line", NULL);
    else if (r->has_header && grow(r))
        read_number(r, text, length);
    r->column++;
}

static void on_line_end(int terminator, void *user) {
    reader *r = user;
    if (r->failed)
        return;
    if (r->column && r->column < r->n_columns && !r->has_header)
        refuse_header(r, "too few names");
    else if (r->column && r->column < r->n_columns)
        refuse(r, "the end of the line", "a number", r->columns[r->column].name);
    else if (r->column && r->has_header)
        r->table->rows++;
    else if (r->column)
        r->has_header = true;
    r->column = 0;
    if (terminator == CSV_CR)
        r->after_cr = true;
    else if (terminator == CSV_LF && !r->failed)
        next_line(r);
}

// --- the whole ---

static int parse(reader *r, const char *text, size_t length) {
    struct csv_parser parser;
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL | CSV_APPEND_NULL))
        return io_error_set(r->err, "%s: out of memory", io_error_path(r->name));
    bool whole = csv_parse(&parser, text, length, on_cell, on_line_end, r) == length &&
                 (r->failed || !csv_fini(&parser, on_cell, on_line_end, r));
    if (!whole && !r->failed)
        io_error_set(r->err, "%s: line %zu: %s", io_error_path(r->name), r->line,
                     csv_error(&parser) == CSV_EPARSE ? "quotes that do not match" : csv_strerror(csv_error(&parser)));
    csv_free(&parser);
    if (!whole || r->failed)
        return -1;
    if (!r->table->rows)
        return io_error_set(r->err, "%s: %s, and no row of numbers is in it", io_error_path(r->name),
                            r->has_header ? "a header" : "the file is empty");
    return 0;
}

int report_table_parse(const char *name, const char *text, size_t length, const report_column *columns, int n_columns,
                       report_table *table, io_error *err) {
    reader r = {.name = name, .columns = columns, .n_columns = n_columns, .line = 1, .table = table, .err = err};
    *table = (report_table){.columns = n_columns};
    int result = parse(&r, text, length);
    if (result)
        report_table_finish(table);
    return result;
}

void report_table_finish(report_table *table) {
    free(table->cell);
    *table = (report_table){0};
}
