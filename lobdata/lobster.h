// Reading LOBSTER files: a message file and an orderbook file of one stock and one day, row by row the same events.
//
// Format: https://lobsterdata.com/info/DataStructure.php. A message row is time, type, order id, size, price,
// direction; an orderbook row is ask price, ask size, bid price, bid size for each level, the state after the event.
// Prices are integers in 1/10000 dollar: 911400 is $91.14.
#ifndef LOBDATA_LOBSTER_H
#define LOBDATA_LOBSTER_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Prices that LOBSTER writes, with size 0, for a level that is empty. They are below and above every real price, which
// is what the comparisons of order flow imbalance need of an absent level.
#define LOB_EMPTY_ASK INT64_C(9999999999)
#define LOB_EMPTY_BID (-INT64_C(9999999999))

// The largest size that is accepted, in messages and levels: sums over a million events stay within int64.
#define LOB_SIZE_MAX INT64_C(1000000000000)

// Event types.
enum {
    LOB_SUBMISSION = 1,       // a new limit order
    LOB_CANCELLATION = 2,     // partial
    LOB_DELETION = 3,         // total
    LOB_EXECUTION = 4,        // of a visible limit order
    LOB_HIDDEN_EXECUTION = 5, // of a hidden one: the orderbook row repeats the row before it
    LOB_CROSS_TRADE = 6,      // an auction
    LOB_HALT = 7,             // price -1: trading halts, 0: quoting resumes, 1: trading resumes
    LOB_TYPES = 8             // one more than the largest type
};

// Rows [begin, end) of a book between which there is no gap in trading. No window and no label crosses its ends.
typedef struct lob_segment {
    size_t begin, end;
} lob_segment;

// The events of one message and orderbook pair, in file order.
//
// Message arrays have `rows` elements. direction is 1 (buy order) or -1 (sell order); of an execution it is that of
// the resting order. An order id of 0 is no key: hidden executions all carry it.
// Level arrays have rows * levels elements: level m (0 is the best) of row r stands at [r * levels + m]. An empty ask
// is LOB_EMPTY_ASK with size 0, an empty bid LOB_EMPTY_BID with size 0; empty levels stand behind the real ones.
// Segments are in rising order and disjoint. Halt rows, and the rows between a halt and the resumption of trading, are
// in none of them.
//
// Made by lob_book_read or lob_book_parse and freed by lob_book_destroy; reading it from several threads is safe.
typedef struct lob_book {
    size_t rows;
    int levels;
    int64_t *time_ns; // since midnight, never falling
    int8_t *type;
    int64_t *order_id;
    int64_t *size;
    int64_t *price;
    int8_t *direction;
    int64_t *ask_price, *ask_size, *bid_price, *bid_size;
    lob_segment *segments;
    size_t n_segments;
} lob_book;

// What to do with an orderbook row that no market in continuous trading shows: crossed (best bid above best ask),
// locked (equal), or a ghost (a real price with size 0).
typedef enum lob_odd_rows {
    LOB_ODD_ERROR, // refuse the file, naming the first such row
    LOB_ODD_KEEP,  // use it as it is: mid price and labels stay finite
    LOB_ODD_DROP   // leave the event out, message and orderbook row; a halt still ends its segment
} lob_odd_rows;

typedef struct lob_read_params {
    lob_odd_rows odd_rows; // default LOB_ODD_ERROR
    int drop_hidden;       // nonzero: leave hidden executions out. Default 0
} lob_read_params;

lob_read_params lob_read_default(void);

// Everything that was counted while reading. All counts are over the rows as they stand in the files, before any are
// dropped, except rows_kept and segments.
typedef struct lob_report {
    size_t rows, rows_kept;
    size_t types[LOB_TYPES];                      // events by type; [0] is unused
    size_t header_rows;                           // first rows of words, of both files; skipped
    size_t blank_lines;                           // of both files; skipped
    size_t equal_times;                           // rows with the time of the row before
    size_t crossed_rows, locked_rows, ghost_rows; // see lob_odd_rows; a ghost that is crossed counts as both
    size_t odd_rows_dropped, hidden_rows_dropped; // a row that is both counts as odd
    size_t one_sided_rows;                        // best bid, best ask or both empty: mid price undefined
    size_t rows_with_empty_levels, empty_levels;  // empty_levels counts each side of each level
    size_t segments, rows_halted;                 // rows_halted: kept rows in no segment
} lob_report;

// Reads a pair of files, each plain or gzip (told by content, not by name). The number of levels follows from the
// orderbook's first row. Line ends may be LF, CR LF or CR CR LF, the last may be missing; a UTF-8 byte order mark and
// blank lines are passed over; a first row of words is taken for a header. Times of up to 9 decimals are exact.
//
// params may be NULL (defaults). On success *book is the new book, which the caller destroys; on failure NULL.
// *report is written in both cases (on failure: what was counted up to there) and may be NULL.
//
// Errors name the file and, for a row, its physical line, the column, what was found and what was expected: cannot be
// opened, a directory, empty, gzip data cut short or damaged; not 6 message columns, orderbook columns no multiple of
// 4 or not constant, different row counts; a cell that is no integer, too large or longer than 64 characters; falling
// time, type not in 1..7, negative size, price not positive, direction not -1 or 1, a halt with a price not in
// -1, 0, 1; asks not rising or bids not falling by level, a real level behind an empty one; odd rows where the params
// say so; best ask below best bid in every row, which means swapped columns. Memory grows with the rows that were
// really read. Blocking; thread-safe. Returns 0, or -1.
int lob_book_read(const lob_read_params *params, const char *message_path, const char *orderbook_path, lob_book **book,
                  lob_report *report, io_error *err);

// A text in memory: `size` bytes, not 0-terminated. `name` stands for the file name in errors.
typedef struct lob_text {
    const char *name;
    const char *text;
    size_t size;
} lob_text;

// The same from memory (never gzip). The texts are not kept.
int lob_book_parse(const lob_read_params *params, const lob_text *message, const lob_text *orderbook, lob_book **book,
                   lob_report *report, io_error *err);

// Frees *book and sets it to NULL. NULL and a pointer to NULL are allowed.
void lob_book_destroy(lob_book **book);

// Best ask plus best bid of a row, that is twice the mid price, in 1/10000 dollar; 0 where a side is empty.
int64_t lob_mid_doubled(const lob_book *book, size_t row);

// Prints a report, one "name value" pair a line, to `out`.
void lob_report_print(const lob_report *report, FILE *out);

#endif
