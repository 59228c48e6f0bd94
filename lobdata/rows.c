#include "lobdata/rows.h"

#include <csv.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 16 };

// --- numbers --------------------------------------------------------------------------------------------------------

// Appends decimal digits to *value. Returns the number of digits used, or -1 if the value leaves int64.
static long append_digits(const char *text, size_t length, int64_t *value) {
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        int digit = text[i] - '0';
        if (*value > (INT64_MAX - digit) / 10)
            return -1;
        *value = *value * 10 + digit;
    }
    return (long)i;
}

static int only_digits(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return 0;
    return 1;
}

lob_number lob_parse_integer(const char *text, size_t length, int64_t *value) {
    int negative = length && text[0] == '-';
    size_t start = negative || (length && text[0] == '+');
    if (length == start || !only_digits(text + start, length - start))
        return LOB_NUMBER_TEXT;
    int64_t magnitude = 0;
    if (append_digits(text + start, length - start, &magnitude) < 0)
        return LOB_NUMBER_RANGE;
    *value = negative ? -magnitude : magnitude;
    return LOB_NUMBER_OK;
}

lob_number lob_parse_time(const char *text, size_t length, int64_t *nanoseconds) {
    size_t start = length && text[0] == '+';
    const char *point = length ? memchr(text, '.', length) : NULL;
    size_t whole_end = point ? (size_t)(point - text) : length;
    size_t decimals = point ? length - whole_end - 1 : 0;
    if (whole_end <= start || !only_digits(text + start, whole_end - start) ||
        (decimals && !only_digits(point + 1, decimals)))
        return LOB_NUMBER_TEXT;
    for (size_t i = 9; i < decimals; i++)
        if (point[1 + i] != '0')
            return LOB_NUMBER_DECIMALS;
    int64_t value = 0;
    if (append_digits(text + start, whole_end - start, &value) < 0)
        return LOB_NUMBER_RANGE;
    for (size_t i = 0; i < 9; i++)
        if (append_digits(i < decimals ? point + 1 + i : "0", 1, &value) < 0)
            return LOB_NUMBER_RANGE;
    *nanoseconds = value;
    return LOB_NUMBER_OK;
}

// --- the text, from memory or from a file ---------------------------------------------------------------------------

// zlib's gzread is not used: where the data happen to end on the border of a request it takes a file without its
// checksum for a whole one.
typedef struct text_stream {
    const lob_source *source;
    size_t used; // bytes of source->text handed out
    int fd;
    int is_gzip;
    int in_member; // a gzip member has begun and not ended
    z_stream inflater;
    unsigned char input[CHUNK];
} text_stream;

static int stream_fault(const text_stream *stream, io_error *err, const char *what, const char *why) {
    return io_error_set(err, "%s: %s: %s", io_error_path(stream->source->name), what, why);
}

// Refills the input. Returns 0, with no input left at the end of the file, or -1.
static int fill_input(text_stream *stream, io_error *err) {
    ssize_t bytes;
    do
        bytes = read(stream->fd, stream->input, sizeof stream->input);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0)
        return stream_fault(stream, err, "cannot read", strerror(errno));
    stream->inflater.next_in = stream->input;
    stream->inflater.avail_in = (unsigned)bytes;
    return 0;
}

static int stream_open(text_stream *stream, const lob_source *source, io_error *err) {
    memset(stream, 0, sizeof *stream);
    stream->source = source;
    stream->fd = -1;
    if (source->text)
        return 0;
    stream->fd = open(source->name, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (stream->fd < 0 || fstat(stream->fd, &info))
        return stream_fault(stream, err, "cannot read", strerror(errno));
    if (S_ISDIR(info.st_mode))
        return stream_fault(stream, err, "cannot read", "it is a directory");
    if (fill_input(stream, err))
        return -1;
    if (stream->inflater.avail_in < 2 || stream->input[0] != 0x1f || stream->input[1] != 0x8b)
        return 0;
    if (inflateInit2(&stream->inflater, 15 + 16) != Z_OK) // the largest window, gzip only
        return stream_fault(stream, err, "cannot read", "out of memory");
    stream->is_gzip = stream->in_member = 1;
    return 0;
}

static void stream_close(text_stream *stream) {
    if (stream->is_gzip)
        inflateEnd(&stream->inflater);
    if (stream->fd >= 0)
        close(stream->fd);
}

static long copy_text(text_stream *stream, char *chunk) {
    size_t left = stream->source->size - stream->used;
    size_t bytes = left < CHUNK ? left : CHUNK;
    memcpy(chunk, stream->source->text + stream->used, bytes);
    stream->used += bytes;
    return (long)bytes;
}

static long copy_input(text_stream *stream, char *chunk, io_error *err) {
    if (!stream->inflater.avail_in && fill_input(stream, err))
        return -1;
    long bytes = stream->inflater.avail_in;
    memcpy(chunk, stream->inflater.next_in, (size_t)bytes);
    stream->inflater.avail_in = 0;
    return bytes;
}

static long inflate_input(text_stream *stream, char *chunk, io_error *err) {
    z_stream *inflater = &stream->inflater;
    inflater->next_out = (unsigned char *)chunk;
    inflater->avail_out = CHUNK;
    while (inflater->avail_out) {
        if (!inflater->avail_in && fill_input(stream, err))
            return -1;
        if (!inflater->avail_in && stream->in_member)
            return stream_fault(stream, err, "the gzip data end too early", "the file is cut short");
        if (!inflater->avail_in)
            break;
        if (!stream->in_member) // one gzip file after another is one gzip file
            inflateReset(inflater);
        stream->in_member = 1;
        int code = inflate(inflater, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            stream->in_member = 0;
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return stream_fault(stream, err, "the gzip data are damaged", inflater->msg ? inflater->msg : zError(code));
    }
    return CHUNK - (long)inflater->avail_out;
}

// Fills `chunk`, of CHUNK bytes; 0 bytes mean the end. Returns the bytes, or -1.
static long stream_read(text_stream *stream, char *chunk, io_error *err) {
    if (stream->source->text)
        return copy_text(stream, chunk);
    return stream->is_gzip ? inflate_input(stream, chunk, err) : copy_input(stream, chunk, err);
}

// --- rows -----------------------------------------------------------------------------------------------------------

typedef struct row_reader {
    const lob_row_format *format;
    void *user;
    lob_row_count *count;
    io_error *err;
    int failed; // libcsv cannot be stopped from a callback: after a failure the rest of its chunk is ignored

    lob_row row;
    int64_t *cells;
    size_t capacity;
    int rows;  // 0 or 1: whether the first row is over
    int words; // cells of the first row that are words
    int bad;   // whether the first row has a cell that is no number; `fault` says which
    io_error fault;
    int line_has_row;  // something stood on the current line
    int line_ended_cr; // and a CR ended it, to which a LF may still belong
} row_reader;

static void next_line(row_reader *reader) {
    reader->count->blank_lines += !reader->line_has_row;
    reader->row.line++;
    reader->line_has_row = reader->line_ended_cr = 0;
}

// What a faulty cell contains, fit for a message: quoted, cut, unprintable bytes as "?".
static void quote_cell(const char *text, size_t length, char quoted[40]) {
    size_t shown = length < 24 ? length : 24;
    char *out = quoted;
    *out++ = '"';
    for (size_t i = 0; i < shown; i++)
        *out++ = isprint((unsigned char)text[i]) ? text[i] : '?';
    strcpy(out, shown < length ? "...\"" : "\"");
}

static void cell_fault(row_reader *reader, io_error *err, const char *text, size_t length, const char *expected) {
    char name[LOB_COLUMN_NAME], found[40];
    reader->format->column_name(reader->row.columns, name);
    quote_cell(text, length, found);
    io_error_set(err, "%s: line %zu, column %d (%s): found %s, expected %s", io_error_path(reader->row.name),
                 reader->row.line, reader->row.columns, name, found, expected);
}

static const char *expected_number(lob_number result, int is_time) {
    if (result == LOB_NUMBER_DECIMALS)
        return "at most 9 decimals (nanoseconds)";
    if (result == LOB_NUMBER_RANGE)
        return is_time ? "seconds that fit into 64 bits of nanoseconds" : "an integer that fits into 64 bits";
    return is_time ? "seconds as a decimal number (no sign, no exponent)" : "an integer (no fraction, no exponent)";
}

static int is_word(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)text[i]))
            return 0;
    return length && isalpha((unsigned char)text[0]);
}

static int store_cell(row_reader *reader, int64_t value) {
    size_t used = (size_t)reader->row.columns - 1;
    if (used == reader->capacity) {
        size_t capacity = reader->capacity ? 2 * reader->capacity : 64;
        int64_t *cells = capacity > SIZE_MAX / sizeof *cells ? NULL : realloc(reader->cells, capacity * sizeof *cells);
        if (!cells)
            return io_error_set(reader->err, "%s: line %zu: out of memory", io_error_path(reader->row.name),
                                reader->row.line);
        reader->cells = cells;
        reader->capacity = capacity;
    }
    reader->cells[used] = value;
    return 0;
}

static void on_cell(void *content, size_t length, void *data) {
    row_reader *reader = data;
    const char *text = content;
    if (reader->failed)
        return;
    if (reader->line_ended_cr)
        next_line(reader);
    reader->line_has_row = 1;
    reader->row.columns++;
    if (length > LOB_CELL_MAX || reader->row.columns > LOB_COLUMNS_MAX) {
        cell_fault(reader, reader->err, text, length,
                   length > LOB_CELL_MAX ? "at most 64 characters in a cell" : "at most 1048576 columns");
        reader->failed = 1;
        return;
    }
    int is_time = reader->format->time_first && reader->row.columns == 1;
    int64_t value = 0;
    lob_number result = is_time ? lob_parse_time(text, length, &value) : lob_parse_integer(text, length, &value);
    if (result != LOB_NUMBER_OK) {
        // The first row may be a header, which is known only at its end.
        io_error *err = reader->rows ? reader->err : &reader->fault;
        if (reader->rows || !reader->bad)
            cell_fault(reader, err, text, length, expected_number(result, is_time));
        reader->failed = reader->rows;
        reader->bad = 1;
        reader->words += is_word(text, length);
    }
    if (!reader->failed)
        reader->failed = store_cell(reader, value) != 0;
}

static void finish_row(row_reader *reader) {
    if (!reader->rows && reader->bad) {
        if (reader->words == reader->row.columns) {
            reader->count->header_rows++;
        } else {
            io_error_set(reader->err, "%s", reader->fault.text);
            reader->failed = 1;
        }
    } else {
        reader->row.cell = reader->cells;
        reader->failed = reader->format->accept(reader->user, &reader->row, reader->err) != 0;
    }
    reader->rows = 1;
    reader->row.columns = 0;
}

static void on_line_end(int terminator, void *data) {
    row_reader *reader = data;
    if (reader->failed)
        return;
    if (reader->row.columns)
        finish_row(reader);
    if (terminator == CSV_CR)
        reader->line_ended_cr = 1;
    else if (terminator == CSV_LF)
        next_line(reader);
}

static int feed(row_reader *reader, struct csv_parser *parser, const char *text, size_t length) {
    if (csv_parse(parser, text, length, on_cell, on_line_end, reader) != length && !reader->failed) {
        io_error_set(reader->err, "%s: line %zu: %s", io_error_path(reader->row.name), reader->row.line,
                     csv_strerror(csv_error(parser)));
        return -1;
    }
    // A cell that has not ended yet is checked here, so that the parser's buffer cannot grow with the file.
    if (!reader->failed && parser->entry_pos > CHUNK) {
        reader->row.columns++;
        cell_fault(reader, reader->err, (const char *)parser->entry_buf, parser->entry_pos,
                   "at most 64 characters in a cell");
        return -1;
    }
    return reader->failed ? -1 : 0;
}

static int read_all(row_reader *reader, text_stream *stream, struct csv_parser *parser, char *chunk) {
    size_t total = 0;
    long bytes;
    while ((bytes = stream_read(stream, chunk, reader->err)) > 0) {
        size_t mark = !total && bytes >= 3 && !memcmp(chunk, "\xEF\xBB\xBF", 3) ? 3 : 0;
        if (feed(reader, parser, chunk + mark, (size_t)bytes - mark))
            return -1;
        total += (size_t)bytes;
    }
    if (bytes < 0)
        return -1;
    if (!total)
        return io_error_set(reader->err, "%s: the file is empty", io_error_path(reader->row.name));
    csv_fini(parser, on_cell, on_line_end, reader);
    return reader->failed ? -1 : 0;
}

int lob_rows_read(const lob_source *source, const lob_row_format *format, void *user, lob_row_count *count,
                  io_error *err) {
    row_reader reader = {.format = format, .user = user, .count = count, .err = err, .row = {source->name, 1, 0, NULL}};
    struct csv_parser parser;
    text_stream *stream = malloc(sizeof *stream);
    char *chunk = malloc(CHUNK);
    int result = -1;
    *count = (lob_row_count){0};
    if (!stream || !chunk || csv_init(&parser, CSV_REPALL_NL)) {
        io_error_set(err, "%s: out of memory", io_error_path(source->name));
    } else {
        if (!stream_open(stream, source, err))
            result = read_all(&reader, stream, &parser, chunk);
        stream_close(stream);
        csv_free(&parser);
    }
    free(stream);
    free(chunk);
    free(reader.cells);
    return result;
}

int lob_row_error(io_error *err, const lob_row_format *format, const lob_row *row, int column, const char *expected,
                  ...) {
    char name[LOB_COLUMN_NAME], found[32], what[200];
    int64_t value = row->cell[column - 1];
    format->column_name(column, name);
    if (format->time_first && column == 1)
        snprintf(found, sizeof found, "%lld.%09lld", (long long)value / 1000000000, (long long)value % 1000000000);
    else
        snprintf(found, sizeof found, "%lld", (long long)value);
    va_list args;
    va_start(args, expected);
    vsnprintf(what, sizeof what, expected, args);
    va_end(args);
    return io_error_set(err, "%s: line %zu, column %d (%s): found %s, expected %s", io_error_path(row->name), row->line,
                        column, name, found, what);
}
