// Rows of numbers from a CSV text, with the place of every fault. Internal to lobdata/.
#ifndef LOBDATA_ROWS_H
#define LOBDATA_ROWS_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

// Where text comes from: `size` bytes at `text`, or, where text is NULL, the file called `name`, plain or gzip (told
// by its content). `name` stands in every error. Nothing is owned.
typedef struct lob_source {
    const char *name;
    const char *text;
    size_t size;
} lob_source;

// One row as it is handed out. `cell` has `columns` values and is valid during the call only. `line` counts physical
// lines from 1, whatever ends them: LF, CR LF, CR CR LF or a lone CR.
typedef struct lob_row {
    const char *name;
    size_t line;
    int columns;
    const int64_t *cell;
} lob_row;

enum {
    LOB_COLUMN_NAME = 32, // bytes that the name of a column may take, with its 0
    LOB_CELL_MAX = 64,    // bytes that a cell may have in the file
    LOB_COLUMNS_MAX = 1 << 20
};

// What the cells of a file mean.
//
// time_first: nonzero if column 1 is a time in decimal seconds; its value is nanoseconds (see lob_parse_time). All
// other cells are integers. column_name: writes the name of a column, counted from 1. accept: takes one row; returns
// 0, or -1 with err set, which ends the reading.
typedef struct lob_row_format {
    int time_first;
    void (*column_name)(int column, char name[LOB_COLUMN_NAME]);
    int (*accept)(void *user, const lob_row *row, io_error *err);
} lob_row_format;

// What was passed over.
typedef struct lob_row_count {
    size_t header_rows; // 0 or 1: a first row in which every cell is a word (starts with an ASCII letter)
    size_t blank_lines;
} lob_row_count;

// Reads all rows of a source and hands them to format->accept one by one, with `user` passed through. A UTF-8 byte
// order mark and blanks around a cell are allowed. Memory does not depend on the length of a line that is faulty.
// Errors: file not readable, a directory, empty, gzip data cut short or damaged, a cell that is no number, out of
// range or too long (with line, column and column name), or what accept says. Blocking. Returns 0, or -1.
int lob_rows_read(const lob_source *source, const lob_row_format *format, void *user, lob_row_count *count,
                  io_error *err);

// Sets the error "NAME: line L, column C (column name): found VALUE, expected ..." for a cell of a row. Returns -1.
int lob_row_error(io_error *err, const lob_row_format *format, const lob_row *row, int column, const char *expected,
                  ...) __attribute__((format(printf, 5, 6)));

// Result of the two parsers below.
typedef enum lob_number {
    LOB_NUMBER_OK,
    LOB_NUMBER_TEXT,     // not of the accepted form
    LOB_NUMBER_RANGE,    // does not fit into int64
    LOB_NUMBER_DECIMALS, // a digit other than 0 after the ninth decimal
} lob_number;

// An integer: an optional sign and at least one digit, nothing else. No fraction, no exponent.
lob_number lob_parse_integer(const char *text, size_t length, int64_t *value);

// Decimal seconds as integer nanoseconds, exact: digits, then optionally a point and any number of decimals. Decimals
// after the ninth must be 0, so that no digit is ever lost silently. No sign but "+", no exponent.
lob_number lob_parse_time(const char *text, size_t length, int64_t *nanoseconds);

#endif
