#include "lobdata/lobster.h"
#include "lobdata/rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_COLUMNS = 6, TIME = 1, TYPE, ORDER_ID, SIZE, PRICE, DIRECTION };

enum odd { CROSSED = 1, LOCKED = 2, GHOST = 4 };

// Both files are read into one book; rows of the second must not outnumber what the first allocated.
typedef struct pair_reader {
    lob_book *book;
    lob_report *report;
    size_t message_capacity, level_capacity, segment_capacity; // in rows, rows and segments
    size_t book_rows;
    size_t two_sided_rows;
    io_error first_odd; // text of the error for the first odd row
} pair_reader;

lob_read_params lob_read_default(void) {
    return (lob_read_params){.odd_rows = LOB_ODD_ERROR, .drop_hidden = 0};
}

void lob_book_destroy(lob_book **book) {
    if (!book || !*book)
        return;
    lob_book *old = *book;
    free(old->time_ns);
    free(old->type);
    free(old->order_id);
    free(old->size);
    free(old->price);
    free(old->direction);
    free(old->ask_price);
    free(old->ask_size);
    free(old->bid_price);
    free(old->bid_size);
    free(old->segments);
    free(old);
    *book = NULL;
}

int64_t lob_mid_doubled(const lob_book *book, size_t row) {
    int64_t ask = book->ask_price[row * (size_t)book->levels], bid = book->bid_price[row * (size_t)book->levels];
    return ask == LOB_EMPTY_ASK || bid == LOB_EMPTY_BID ? 0 : ask + bid;
}

// --- growing arrays -------------------------------------------------------------------------------------------------

// Resizes the array at `array` (a pointer to its pointer) to count * size bytes. Returns 0, or -1.
static int resize(void *array, size_t count, size_t size) {
    void *old, *new;
    memcpy(&old, array, sizeof old);
    if (count > SIZE_MAX / size || !(new = realloc(old, count * size)))
        return -1;
    memcpy(array, &new, sizeof new);
    return 0;
}

static size_t doubled(size_t capacity) {
    return capacity > SIZE_MAX / 2 ? SIZE_MAX : capacity ? 2 * capacity : 1024;
}

static int grow_messages(pair_reader *reader) {
    lob_book *book = reader->book;
    size_t capacity = doubled(reader->message_capacity);
    if (resize(&book->time_ns, capacity, sizeof *book->time_ns) || resize(&book->type, capacity, sizeof *book->type) ||
        resize(&book->order_id, capacity, sizeof *book->order_id) ||
        resize(&book->size, capacity, sizeof *book->size) || resize(&book->price, capacity, sizeof *book->price) ||
        resize(&book->direction, capacity, sizeof *book->direction))
        return -1;
    reader->message_capacity = capacity;
    return 0;
}

static int grow_levels(pair_reader *reader) {
    lob_book *book = reader->book;
    size_t capacity = doubled(reader->level_capacity);
    size_t row_bytes = (size_t)book->levels * sizeof(int64_t);
    if (resize(&book->ask_price, capacity, row_bytes) || resize(&book->ask_size, capacity, row_bytes) ||
        resize(&book->bid_price, capacity, row_bytes) || resize(&book->bid_size, capacity, row_bytes))
        return -1;
    reader->level_capacity = capacity;
    return 0;
}

static int out_of_memory(const lob_row *row, io_error *err) {
    return io_error_set(err, "%s: line %zu: out of memory", io_error_path(row->name), row->line);
}

// --- the message file -----------------------------------------------------------------------------------------------

static void message_column_name(int column, char name[LOB_COLUMN_NAME]) {
    static const char *const names[] = {"beyond the last", "time", "type", "order id", "size", "price", "direction"};
    strcpy(name, names[column <= MESSAGE_COLUMNS ? column : 0]);
}

static int accept_message(void *user, const lob_row *row, io_error *err);

static const lob_row_format message_format = {
    .time_first = 1, .column_name = message_column_name, .accept = accept_message};

static int check_message(const lob_row *row, int64_t time_before, io_error *err) {
    if (row->columns != MESSAGE_COLUMNS)
        return io_error_set(
            err, "%s: line %zu: found %d columns, expected 6 (time, type, order id, size, price, direction)%s",
            io_error_path(row->name), row->line, row->columns, row->columns % 4 ? "" : "; is it the orderbook file?");
    int64_t type = row->cell[TYPE - 1], size = row->cell[SIZE - 1];
    int64_t price = row->cell[PRICE - 1], direction = row->cell[DIRECTION - 1];
    if (row->cell[TIME - 1] < time_before)
        return lob_row_error(err, &message_format, row, TIME,
                             "no time before the row above (%" PRId64 ".%09" PRId64 ")", time_before / 1000000000,
                             time_before % 1000000000);
    if (type < LOB_SUBMISSION || type > LOB_HALT)
        return lob_row_error(err, &message_format, row, TYPE, "an event type from 1 to 7");
    if (size < 0 || size > LOB_SIZE_MAX)
        return lob_row_error(err, &message_format, row, SIZE, "a size from 0 to %" PRId64, LOB_SIZE_MAX);
    if (type == LOB_HALT && (price < -1 || price > 1))
        return lob_row_error(err, &message_format, row, PRICE,
                             "-1 (halt), 0 (quoting resumes) or 1 (trading resumes) in a row of type 7");
    if (type != LOB_HALT && (price < (type != LOB_CROSS_TRADE) || price >= LOB_EMPTY_ASK))
        return lob_row_error(err, &message_format, row, PRICE, "a price above 0 and below %" PRId64, LOB_EMPTY_ASK);
    if (direction != -1 && direction != 1)
        return lob_row_error(err, &message_format, row, DIRECTION, "-1 or 1");
    return 0;
}

static int accept_message(void *user, const lob_row *row, io_error *err) {
    pair_reader *reader = user;
    lob_book *book = reader->book;
    int64_t time_before = book->rows ? book->time_ns[book->rows - 1] : 0;
    if (check_message(row, time_before, err))
        return -1;
    if (book->rows == reader->message_capacity && grow_messages(reader))
        return out_of_memory(row, err);
    size_t r = book->rows++;
    book->time_ns[r] = row->cell[TIME - 1];
    book->type[r] = (int8_t)row->cell[TYPE - 1];
    book->order_id[r] = row->cell[ORDER_ID - 1];
    book->size[r] = row->cell[SIZE - 1];
    book->price[r] = row->cell[PRICE - 1];
    book->direction[r] = (int8_t)row->cell[DIRECTION - 1];
    reader->report->types[book->type[r]]++;
    reader->report->equal_times += r && book->time_ns[r] == time_before;
    return 0;
}

// --- the orderbook file ---------------------------------------------------------------------------------------------

static void book_column_name(int column, char name[LOB_COLUMN_NAME]) {
    static const char *const names[] = {"ask price", "ask size", "bid price", "bid size"};
    snprintf(name, LOB_COLUMN_NAME, "%s %d", names[(column - 1) % 4], (column - 1) / 4 + 1);
}

static int accept_book(void *user, const lob_row *row, io_error *err);

static const lob_row_format book_format = {.column_name = book_column_name, .accept = accept_book};

static int check_book_columns(lob_book *book, const lob_row *row, io_error *err) {
    if (!book->levels && (row->columns < 4 || row->columns % 4))
        return io_error_set(err, "%s: line %zu: found %d columns, expected 4 for each level", io_error_path(row->name),
                            row->line, row->columns);
    if (!book->levels)
        book->levels = row->columns / 4;
    if (row->columns != 4 * book->levels)
        return io_error_set(err, "%s: line %zu: found %d columns, expected %d as in the rows above",
                            io_error_path(row->name), row->line, row->columns, 4 * book->levels);
    return 0;
}

// One side of one level: `price` and `size` are its columns, `empty` the price that stands for an empty level.
static int check_level(const lob_row *row, int price, int64_t empty, io_error *err) {
    int size = price + 1;
    int64_t p = row->cell[price - 1], q = row->cell[size - 1];
    if (p == empty && q != 0)
        return lob_row_error(err, &book_format, row, size, "0 in an empty level");
    if (p != empty && (p <= 0 || p >= LOB_EMPTY_ASK))
        return lob_row_error(err, &book_format, row, price,
                             "a price above 0 and below %" PRId64 ", or %" PRId64 " for an empty level", LOB_EMPTY_ASK,
                             empty);
    if (q < 0 || q > LOB_SIZE_MAX)
        return lob_row_error(err, &book_format, row, size, "a size from 0 to %" PRId64, LOB_SIZE_MAX);
    return 0;
}

// The prices of one side against the level above. `outward` is 1 for asks, which rise, and -1 for bids, which fall.
static int check_order(const lob_row *row, int price, int64_t empty, int outward, io_error *err) {
    int64_t p = row->cell[price - 1], above = row->cell[price - 5];
    if (p == empty)
        return 0;
    if (above == empty)
        return lob_row_error(err, &book_format, row, price, "an empty level (%" PRId64 ") behind an empty one", empty);
    if (outward > 0 ? p > above : p < above)
        return 0;
    return lob_row_error(err, &book_format, row, price, "a price %s the level above (%" PRId64 ")%s",
                         outward > 0 ? "over" : "below", above,
                         row->cell[0] < row->cell[2] ? "; ask below bid: are the columns bid first?" : "");
}

static int check_levels(const lob_row *row, io_error *err) {
    for (int column = 1; column <= row->columns; column += 4) {
        if (check_level(row, column, LOB_EMPTY_ASK, err) || check_level(row, column + 2, LOB_EMPTY_BID, err))
            return -1;
        if (column > 1 &&
            (check_order(row, column, LOB_EMPTY_ASK, 1, err) || check_order(row, column + 2, LOB_EMPTY_BID, -1, err)))
            return -1;
    }
    return 0;
}

// Which oddities a stored row shows, as a set of `enum odd`.
static int odd_row(const lob_book *book, size_t row) {
    size_t first = row * (size_t)book->levels;
    int odd = 0;
    if (lob_mid_doubled(book, row)) {
        int64_t ask = book->ask_price[first], bid = book->bid_price[first];
        odd = bid > ask ? CROSSED : bid == ask ? LOCKED : 0;
    }
    for (size_t i = first; i < first + (size_t)book->levels; i++)
        if ((book->ask_price[i] != LOB_EMPTY_ASK && !book->ask_size[i]) ||
            (book->bid_price[i] != LOB_EMPTY_BID && !book->bid_size[i]))
            odd |= GHOST;
    return odd;
}

// The error for the first odd row is kept until the end of the file, where it is known whether all rows are crossed.
static void describe_odd(pair_reader *reader, const lob_row *row, int odd) {
    if (reader->first_odd.text[0])
        return;
    if (odd & (CROSSED | LOCKED)) {
        lob_row_error(&reader->first_odd, &book_format, row, 3, "a bid below the ask (%" PRId64 "): the row is %s",
                      row->cell[0], odd & CROSSED ? "crossed" : "locked");
        return;
    }
    int column = 2;
    while (row->cell[column - 1] || row->cell[column - 2] == LOB_EMPTY_ASK || row->cell[column - 2] == LOB_EMPTY_BID)
        column += 2;
    lob_row_error(&reader->first_odd, &book_format, row, column, "a size above 0 at a real price");
}

static void count_book_row(pair_reader *reader, const lob_row *row, size_t r) {
    const lob_book *book = reader->book;
    lob_report *report = reader->report;
    size_t empty = 0, first = r * (size_t)book->levels;
    for (size_t i = first; i < first + (size_t)book->levels; i++)
        empty += (size_t)(book->ask_price[i] == LOB_EMPTY_ASK) + (book->bid_price[i] == LOB_EMPTY_BID);
    report->empty_levels += empty;
    report->rows_with_empty_levels += empty > 0;
    int two_sided = lob_mid_doubled(book, r) != 0, odd = odd_row(book, r);
    reader->two_sided_rows += (size_t)two_sided;
    report->one_sided_rows += !two_sided;
    report->crossed_rows += (odd & CROSSED) != 0;
    report->locked_rows += (odd & LOCKED) != 0;
    report->ghost_rows += (odd & GHOST) != 0;
    if (odd)
        describe_odd(reader, row, odd);
}

static int accept_book(void *user, const lob_row *row, io_error *err) {
    pair_reader *reader = user;
    lob_book *book = reader->book;
    if (check_book_columns(book, row, err) || check_levels(row, err))
        return -1;
    if (reader->book_rows == reader->level_capacity && grow_levels(reader))
        return out_of_memory(row, err);
    size_t r = reader->book_rows++, levels = (size_t)book->levels;
    for (size_t m = 0; m < levels; m++) {
        book->ask_price[r * levels + m] = row->cell[4 * m];
        book->ask_size[r * levels + m] = row->cell[4 * m + 1];
        book->bid_price[r * levels + m] = row->cell[4 * m + 2];
        book->bid_size[r * levels + m] = row->cell[4 * m + 3];
    }
    count_book_row(reader, row, r);
    return 0;
}

// --- the pair -------------------------------------------------------------------------------------------------------

static int check_pair(const pair_reader *reader, lob_odd_rows odd_rows, const char *message, const char *orderbook,
                      io_error *err) {
    const lob_report *report = reader->report;
    if (reader->book->rows != reader->book_rows)
        return io_error_set(err, "%s has %zu rows and %s has %zu: expected as many", io_error_path(message),
                            reader->book->rows, io_error_path(orderbook), reader->book_rows);
    if (!reader->book_rows)
        return io_error_set(err, "%s: no rows of data", io_error_path(message));
    if (report->crossed_rows && report->crossed_rows == reader->two_sided_rows)
        return io_error_set(err, "%s: ask below bid at every row: are the columns bid first?",
                            io_error_path(orderbook));
    if (odd_rows == LOB_ODD_ERROR && reader->first_odd.text[0])
        return io_error_set(err, "%s", reader->first_odd.text);
    return 0;
}

static void move_row(lob_book *book, size_t to, size_t from) {
    if (to == from)
        return;
    size_t levels = (size_t)book->levels, bytes = levels * sizeof(int64_t);
    book->time_ns[to] = book->time_ns[from];
    book->type[to] = book->type[from];
    book->order_id[to] = book->order_id[from];
    book->size[to] = book->size[from];
    book->price[to] = book->price[from];
    book->direction[to] = book->direction[from];
    memcpy(book->ask_price + to * levels, book->ask_price + from * levels, bytes);
    memcpy(book->ask_size + to * levels, book->ask_size + from * levels, bytes);
    memcpy(book->bid_price + to * levels, book->bid_price + from * levels, bytes);
    memcpy(book->bid_size + to * levels, book->bid_size + from * levels, bytes);
}

// Lengthens the last segment by row r, or begins a new one with it.
static int add_to_segment(pair_reader *reader, size_t r, int begin) {
    lob_book *book = reader->book;
    if (!begin) {
        book->segments[book->n_segments - 1].end = r + 1;
        return 0;
    }
    if (book->n_segments == reader->segment_capacity) {
        size_t capacity = doubled(reader->segment_capacity);
        if (resize(&book->segments, capacity, sizeof *book->segments))
            return -1;
        reader->segment_capacity = capacity;
    }
    book->segments[book->n_segments++] = (lob_segment){r, r + 1};
    return 0;
}

// Leaves out the rows that the params do not want and finds the segments of the rest. Halts are seen before anything is
// dropped, since a crossed halt row ends a segment too.
static int sift_rows(pair_reader *reader, const lob_read_params *params) {
    lob_book *book = reader->book;
    lob_report *report = reader->report;
    size_t kept = 0;
    int halted = 0, begin = 1;
    for (size_t r = 0; r < book->rows; r++) {
        int is_halt = book->type[r] == LOB_HALT;
        if (is_halt) {
            halted = book->price[r] == -1 || (halted && book->price[r] == 0);
            begin = 1;
        }
        if (params->odd_rows == LOB_ODD_DROP && odd_row(book, r)) {
            report->odd_rows_dropped++;
            continue;
        }
        if (params->drop_hidden && book->type[r] == LOB_HIDDEN_EXECUTION) {
            report->hidden_rows_dropped++;
            continue;
        }
        move_row(book, kept, r);
        if (is_halt || halted) {
            report->rows_halted++;
        } else {
            if (add_to_segment(reader, kept, begin))
                return -1;
            begin = 0;
        }
        kept++;
    }
    book->rows = report->rows_kept = kept;
    report->segments = book->n_segments;
    return 0;
}

static int read_pair(pair_reader *reader, const lob_read_params *params, const lob_source *message,
                     const lob_source *orderbook, io_error *err) {
    lob_row_count message_count, book_count;
    if (lob_rows_read(message, &message_format, reader, &message_count, err) ||
        lob_rows_read(orderbook, &book_format, reader, &book_count, err))
        return -1;
    reader->report->rows = reader->book->rows;
    reader->report->header_rows = message_count.header_rows + book_count.header_rows;
    reader->report->blank_lines = message_count.blank_lines + book_count.blank_lines;
    if (check_pair(reader, params->odd_rows, message->name, orderbook->name, err))
        return -1;
    if (sift_rows(reader, params))
        return io_error_set(err, "%s: out of memory", io_error_path(message->name));
    if (!reader->book->rows)
        return io_error_set(err, "%s: no rows are left after dropping %zu odd and %zu hidden ones",
                            io_error_path(message->name), reader->report->odd_rows_dropped,
                            reader->report->hidden_rows_dropped);
    return 0;
}

static int read_sources(const lob_read_params *params, const lob_source *message, const lob_source *orderbook,
                        lob_book **book, lob_report *report, io_error *err) {
    lob_read_params defaults = lob_read_default();
    lob_report unused;
    pair_reader reader = {.book = calloc(1, sizeof *reader.book), .report = report ? report : &unused};
    *reader.report = (lob_report){0};
    *book = NULL;
    if (!reader.book)
        return io_error_set(err, "%s: out of memory", io_error_path(message->name));
    if (read_pair(&reader, params ? params : &defaults, message, orderbook, err)) {
        lob_book_destroy(&reader.book);
        return -1;
    }
    *book = reader.book;
    return 0;
}

int lob_book_read(const lob_read_params *params, const char *message_path, const char *orderbook_path, lob_book **book,
                  lob_report *report, io_error *err) {
    lob_source message = {.name = message_path}, orderbook = {.name = orderbook_path};
    return read_sources(params, &message, &orderbook, book, report, err);
}

int lob_book_parse(const lob_read_params *params, const lob_text *message, const lob_text *orderbook, lob_book **book,
                   lob_report *report, io_error *err) {
    lob_source message_source = {message->name, message->text ? message->text : "", message->size};
    lob_source book_source = {orderbook->name, orderbook->text ? orderbook->text : "", orderbook->size};
    return read_sources(params, &message_source, &book_source, book, report, err);
}

void lob_report_print(const lob_report *report, FILE *out) {
    static const char *const type_names[LOB_TYPES] = {NULL,           "submissions",  "cancellations",
                                                      "deletions",    "executions",   "hidden_executions",
                                                      "cross_trades", "halt_messages"};
    fprintf(out, "rows %zu\nrows_kept %zu\n", report->rows, report->rows_kept);
    for (int type = LOB_SUBMISSION; type < LOB_TYPES; type++)
        fprintf(out, "%s %zu\n", type_names[type], report->types[type]);
    fprintf(out, "header_rows %zu\nblank_lines %zu\nequal_times %zu\n", report->header_rows, report->blank_lines,
            report->equal_times);
    fprintf(out, "crossed_rows %zu\nlocked_rows %zu\nghost_rows %zu\nodd_rows_dropped %zu\nhidden_rows_dropped %zu\n",
            report->crossed_rows, report->locked_rows, report->ghost_rows, report->odd_rows_dropped,
            report->hidden_rows_dropped);
    fprintf(out, "one_sided_rows %zu\nrows_with_empty_levels %zu\nempty_levels %zu\n", report->one_sided_rows,
            report->rows_with_empty_levels, report->empty_levels);
    fprintf(out, "segments %zu\nrows_halted %zu\n", report->segments, report->rows_halted);
}
