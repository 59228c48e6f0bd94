// The reader: what it accepts, the exact place of what it refuses, and what it counts.
#include "helper.h"
#include "lobdata/rows.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

TestSuite(lobster, .init = make_dir, .fini = remove_dir);

static int parse_with(lob_read_params params, const char *message, const char *orderbook, lob_book **book,
                      lob_report *report, io_error *err) {
    lob_text texts[2] = {{"m.csv", message, strlen(message)}, {"b.csv", orderbook, strlen(orderbook)}};
    err->text[0] = 0;
    return lob_book_parse(&params, &texts[0], &texts[1], book, report, err);
}

static int parse(const char *message, const char *orderbook, lob_book **book, lob_report *report, io_error *err) {
    return parse_with(lob_read_default(), message, orderbook, book, report, err);
}

#define M1  "34200.1,1,11,100,5853300,1\n"
#define M2  "34200.2,3,11,100,5853300,1\n"
#define B1  "5859400,200,5853300,18\n"
#define B2  "5859400,200,5853200,7\n"
#define TWO "5859400,200,5853300,18,5859800,10,5853000,150\n"

static const struct {
    const char *message, *orderbook, *error;
} faults[] = {
    // columns
    {"34200.1,1,11,100,5853300\n", B1,
     "m.csv: line 1: found 5 columns, expected 6 (time, type, order id, size, price, direction)"},
    {M1 "34200.1,1,11,100,5853300,1,0\n", B1 B2,
     "m.csv: line 2: found 7 columns, expected 6 (time, type, order id, size, price, direction)"},
    {B1, M1,
     "m.csv: line 1: found 4 columns, expected 6 (time, type, order id, size, price, direction); is it the orderbook "
     "file?"},
    {M1, "5859400,200,5853300\n", "b.csv: line 1: found 3 columns, expected 4 for each level"},
    {M1, "5859400,200,5853300,18,1\n", "b.csv: line 1: found 5 columns, expected 4 for each level"},
    {M1 M2, B1 TWO, "b.csv: line 2: found 8 columns, expected 4 as in the rows above"},
    {M1 M2, TWO B1, "b.csv: line 2: found 4 columns, expected 8 as in the rows above"},
    // rows
    {M1 M2, B1, "m.csv has 2 rows and b.csv has 1: expected as many"},
    {M1, B1 B2, "m.csv has 1 rows and b.csv has 2: expected as many"},
    {"", B1, "m.csv: the file is empty"},
    {M1, "", "b.csv: the file is empty"},
    {"\n\n", "\n", "m.csv: no rows of data"},
    {"time,type,id,size,price,direction\n", "a,b,c,d\n", "m.csv: no rows of data"},
    // times
    {M2 M1, B1 B2,
     "m.csv: line 2, column 1 (time): found 34200.100000000, expected no time before the row above (34200.200000000)"},
    {"34200.1234567891,1,11,100,5853300,1\n", B1,
     "m.csv: line 1, column 1 (time): found \"34200.1234567891\", expected at most 9 decimals (nanoseconds)"},
    {M1 "3.42e4,1,11,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 1 (time): found \"3.42e4\", expected seconds as a decimal number (no sign, no exponent)"},
    {"-1.5,1,11,100,5853300,1\n", B1,
     "m.csv: line 1, column 1 (time): found \"-1.5\", expected seconds as a decimal number (no sign, no exponent)"},
    {".5,1,11,100,5853300,1\n", B1,
     "m.csv: line 1, column 1 (time): found \".5\", expected seconds as a decimal number (no sign, no exponent)"},
    {"9223372037,1,11,100,5853300,1\n", B1,
     "m.csv: line 1, column 1 (time): found \"9223372037\", expected seconds that fit into 64 bits of nanoseconds"},
    // types
    {M1 "34200.2,0,11,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 2 (type): found 0, expected an event type from 1 to 7"},
    {M1 "34200.2,8,11,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 2 (type): found 8, expected an event type from 1 to 7"},
    {M1 "34200.2,257,11,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 2 (type): found 257, expected an event type from 1 to 7"},
    {M1 "34200.2,buy,11,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 2 (type): found \"buy\", expected an integer (no fraction, no exponent)"},
    // integers
    {M1 "34200.2,1,,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 3 (order id): found \"\", expected an integer (no fraction, no exponent)"},
    {M1 "34200.2,1,11,1e-05,5853300,1\n", B1 B2,
     "m.csv: line 2, column 4 (size): found \"1e-05\", expected an integer (no fraction, no exponent)"},
    {M1 "34200.2,1,11,-6.716E-05,5853300,1\n", B1 B2,
     "m.csv: line 2, column 4 (size): found \"-6.716E-05\", expected an integer (no fraction, no exponent)"},
    {M1 "34200.2,1,11,100,585.33,1\n", B1 B2,
     "m.csv: line 2, column 5 (price): found \"585.33\", expected an integer (no fraction, no exponent)"},
    {M1 "34200.2,1,9223372036854775808,100,5853300,1\n", B1 B2,
     "m.csv: line 2, column 3 (order id): found \"9223372036854775808\", expected an integer that fits into 64 bits"},
    {M1 "34200.2,1,11,100,5853300,\n", B1 B2,
     "m.csv: line 2, column 6 (direction): found \"\", expected an integer (no fraction, no exponent)"},
    {M1, "5859400,200,5853300,+-1\n",
     "b.csv: line 1, column 4 (bid size 1): found \"+-1\", expected an integer (no fraction, no exponent)"},
    {M1, "nan,200,5853300,1\n",
     "b.csv: line 1, column 1 (ask price 1): found \"nan\", expected an integer (no fraction, no exponent)"},
    // sizes, prices, directions
    {"34200.1,1,11,-1,5853300,1\n", B1,
     "m.csv: line 1, column 4 (size): found -1, expected a size from 0 to 1000000000000"},
    {"34200.1,1,11,100,0,1\n", B1,
     "m.csv: line 1, column 5 (price): found 0, expected a price above 0 and below 9999999999"},
    {"34200.1,4,11,100,-1,1\n", B1,
     "m.csv: line 1, column 5 (price): found -1, expected a price above 0 and below 9999999999"},
    {"34200.1,7,0,0,2,-1\n", B1,
     "m.csv: line 1, column 5 (price): found 2, expected -1 (halt), 0 (quoting resumes) or 1 (trading resumes) in a "
     "row "
     "of type 7"},
    {"34200.1,1,11,100,5853300,0\n", B1, "m.csv: line 1, column 6 (direction): found 0, expected -1 or 1"},
    {M1, "5859400,-200,5853300,18\n",
     "b.csv: line 1, column 2 (ask size 1): found -200, expected a size from 0 to 1000000000000"},
    {M1, "5859400,200,5853300,1000000000001\n",
     "b.csv: line 1, column 4 (bid size 1): found 1000000000001, expected a size from 0 to 1000000000000"},
    {M1, "0,200,5853300,18\n",
     "b.csv: line 1, column 1 (ask price 1): found 0, expected a price above 0 and below 9999999999, or 9999999999 for "
     "an "
     "empty level"},
    {M1, "5859400,200,9999999999,0\n",
     "b.csv: line 1, column 3 (bid price 1): found 9999999999, expected a price above 0 and below 9999999999, or "
     "-9999999999 for an empty level"},
    {M1, "9999999999,1,5853300,18\n", "b.csv: line 1, column 2 (ask size 1): found 1, expected 0 in an empty level"},
    {M1, "5859400,200,-9999999999,3\n", "b.csv: line 1, column 4 (bid size 1): found 3, expected 0 in an empty level"},
    // levels
    {M1, "5859400,200,5853300,18,5859400,10,5853000,150\n",
     "b.csv: line 1, column 5 (ask price 2): found 5859400, expected a price over the level above (5859400)"},
    {M1, "5859400,200,5853300,18,5859500,10,5853400,150\n",
     "b.csv: line 1, column 7 (bid price 2): found 5853400, expected a price below the level above (5853300)"},
    {M1, "9999999999,0,5853300,18,5859800,10,5853000,150\n",
     "b.csv: line 1, column 5 (ask price 2): found 5859800, expected an empty level (9999999999) behind an empty one"},
    {M1, "5859400,10,-9999999999,0,5859800,10,5853000,150\n",
     "b.csv: line 1, column 7 (bid price 2): found 5853000, expected an empty level (-9999999999) behind an empty one"},
    {M1, "5853300,18,5859400,200,5853000,150,5859800,10\n",
     "b.csv: line 1, column 5 (ask price 2): found 5853000, expected a price over the level above (5853300); ask below "
     "bid: are the columns bid first?"},
    // sides
    {M1 M2, "5853300,18,5859400,200\n5853300,18,5859400,200\n",
     "b.csv: ask below bid at every row: are the columns bid first?"},
    {M1 M2, B1 "5853300,18,5859400,200\n",
     "b.csv: line 2, column 3 (bid price 1): found 5859400, expected a bid below the ask (5853300): the row is "
     "crossed"},
    {M1 M2, B1 "5853300,18,5853300,200\n",
     "b.csv: line 2, column 3 (bid price 1): found 5853300, expected a bid below the ask (5853300): the row is locked"},
    {M1 M2, B1 "5859400,200,5853300,0\n",
     "b.csv: line 2, column 4 (bid size 1): found 0, expected a size above 0 at a real price"},
    // a first row that is half a header, and line counting through everything that is passed over
    {"time,1,11,100,5853300,1\n", B1,
     "m.csv: line 1, column 1 (time): found \"time\", expected seconds as a decimal number (no sign, no exponent)"},
    {"time,type,id,size,price,direction\n\n\xEF\xBB\xBF", B1,
     "m.csv: line 3, column 1 (time): found \"???\", expected seconds as a decimal number (no sign, no exponent)"},
    {"\xEF\xBB\xBF" M1 "\n\r\n34200.2,9,11,100,5853300,1", B1,
     "m.csv: line 4, column 2 (type): found 9, expected an event type from 1 to 7"},
    {"34200.1,1,11,100,5853300,1\r\r\n34200.2,9,11,100,5853300,1\r\r\n", B1,
     "m.csv: line 2, column 2 (type): found 9, expected an event type from 1 to 7"},
    {"34200.1,1,11,100,5853300,1\r34200.2,9,11,100,5853300,1\r", B1,
     "m.csv: line 2, column 2 (type): found 9, expected an event type from 1 to 7"},
    {M1 "34200.2,1,\"1\n2\",100,5853300,1\n", B1,
     "m.csv: line 2, column 3 (order id): found \"1?2\", expected an integer (no fraction, no exponent)"},
};

Test(lobster, every_fault_has_its_place) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        lob_book *book = (lob_book *)1;
        io_error err;
        int result = parse(faults[i].message, faults[i].orderbook, &book, NULL, &err);
        cr_expect(result == -1 && !book, "case %zu was accepted: %s", i, faults[i].error);
        cr_expect_str_eq(err.text, faults[i].error, "case %zu:\n  is       %s\n  expected %s", i, err.text,
                         faults[i].error);
        lob_book_destroy(&book);
    }
}

Test(lobster, no_error_struct_is_fine) {
    lob_book *book;
    lob_text message = {"m", "x", 1}, orderbook = {"b", NULL, 0};
    cr_expect_eq(lob_book_parse(NULL, &message, &orderbook, &book, NULL, NULL), -1);
    lob_book_destroy(&book);
    lob_book_destroy(NULL);
}

// --- what is accepted -----------------------------------------------------------------------------------------------

static void expect_two_rows(const char *message, const char *orderbook, size_t headers, size_t blanks) {
    lob_book *book;
    lob_report report;
    io_error err;
    cr_assert_eq(parse(message, orderbook, &book, &report, &err), 0, "%s", err.text);
    cr_expect_eq(book->rows, 2);
    cr_expect_eq(book->levels, 1);
    cr_expect_eq(book->time_ns[0], INT64_C(34200100000000));
    cr_expect_eq(book->time_ns[1], INT64_C(34200200000000));
    cr_expect_eq(book->type[1], LOB_DELETION);
    cr_expect_eq(book->order_id[0], 11);
    cr_expect_eq(book->size[0], 100);
    cr_expect_eq(book->price[1], 5853300);
    cr_expect_eq(book->direction[1], 1);
    cr_expect_eq(book->ask_price[1], 5859400);
    cr_expect_eq(book->ask_size[1], 200);
    cr_expect_eq(book->bid_price[1], 5853200);
    cr_expect_eq(book->bid_size[1], 7);
    cr_expect_eq(report.header_rows, headers);
    cr_expect_eq(report.blank_lines, blanks, "%zu blank lines", report.blank_lines);
    lob_book_destroy(&book);
    cr_expect_null(book);
}

// Copies `text` with every LF replaced by `end`, the last one dropped if `cut`.
static char *with_line_end(const char *text, const char *end, int cut) {
    char *copy;
    size_t size;
    FILE *out = open_memstream(&copy, &size);
    for (const char *c = text; *c; c++)
        if (*c != '\n')
            fputc(*c, out);
        else if (!cut || c[1])
            fputs(end, out);
    fclose(out);
    return copy;
}

Test(lobster, line_ends) {
    const char *ends[] = {"\n", "\r\n", "\r\r\n", "\r"};
    for (int i = 0; i < 8; i++) {
        char *message = with_line_end(M1 M2, ends[i / 2], i % 2), *orderbook = with_line_end(B1 B2, ends[i / 2], i % 2);
        expect_two_rows(message, orderbook, 0, 0);
        free(message);
        free(orderbook);
    }
    expect_two_rows(M1 M2 "\n\n", B1 "\n" B2 "\r\n", 0, 4);
    expect_two_rows("\xEF\xBB\xBF" M1 M2, "\xEF\xBB\xBF" B1 B2, 0, 0);
    expect_two_rows("Time,Type,Order ID,Size,Price,Direction\n" M1 M2, B1 B2, 1, 0);
    expect_two_rows("Time,Type,Order ID,Size,Price,Direction\n" M1 M2, "a,b,c,d\n" B1 B2, 2, 0);
}

Test(lobster, number_forms) {
    expect_two_rows("34200.10,+1,+11, 100 ,5853300,+1\n34200.200000000000,3,11,0100,5853300,1\n",
                    "\"5859400\",200,5853300,18\n" B2, 0, 0);
    expect_two_rows("34200.1,1,11,100,5853300,1\n+34200.2,3,11,100,5853300,1\n", B1 B2, 0, 0);
}

Test(lobster, times_are_exact) {
    static const struct {
        const char *text;
        int64_t ns;
    } times[] = {
        {"0", 0},
        {"34200", INT64_C(34200000000000)},
        {"34200.", INT64_C(34200000000000)},
        {"34200.77", INT64_C(34200770000000)},
        {"34200.077", INT64_C(34200077000000)},
        {"34713.685155243", INT64_C(34713685155243)},
        {"34713.685155244", INT64_C(34713685155244)},
        {"34713.6851552440000", INT64_C(34713685155244)},
        {"9223372036.854775807", INT64_MAX},
    };
    int64_t ns;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        cr_expect_eq(lob_parse_time(times[i].text, strlen(times[i].text), &ns), LOB_NUMBER_OK);
        cr_expect_eq(ns, times[i].ns, "%s", times[i].text);
    }
    cr_expect_eq(lob_parse_time("9223372036.854775808", 20, &ns), LOB_NUMBER_RANGE);
    cr_expect_eq(lob_parse_time("1.2.3", 5, &ns), LOB_NUMBER_TEXT);
    cr_expect_eq(lob_parse_time("", 0, &ns), LOB_NUMBER_TEXT);
    cr_expect_eq(lob_parse_integer("9223372036854775807", 19, &ns), LOB_NUMBER_OK);
    cr_expect_eq(ns, INT64_MAX);
    cr_expect_eq(lob_parse_integer("-", 1, &ns), LOB_NUMBER_TEXT);
    cr_expect_eq(lob_parse_integer("-9223372036854775807", 20, &ns), LOB_NUMBER_OK);
    cr_expect_eq(ns, -INT64_MAX);
}

Test(lobster, all_types) {
    lob_book *book;
    lob_report report;
    io_error err;
    const char *message = "1,1,5,1,100,1\n1,2,5,1,100,-1\n2,3,5,1,100,1\n3,4,5,1,100,1\n4,5,0,1,100,1\n4,5,0,9,100,1\n"
                          "5,6,-1,900,0,-1\n6,7,0,0,-1,-1\n";
    cr_assert_eq(parse(message, B1 B1 B1 B1 B1 B1 B1 B1, &book, &report, &err), 0, "%s", err.text);
    for (int type = 1; type <= 7; type++)
        cr_expect_eq(report.types[type], 1u + (type == 5));
    cr_expect_eq(report.equal_times, 2);
    cr_expect_eq(book->order_id[5], 0, "two hidden executions with id 0 are two rows");
    cr_expect_eq(book->size[5], 9);
    lob_book_destroy(&book);
    lob_read_params params = {.drop_hidden = 1};
    cr_assert_eq(parse_with(params, message, B1 B1 B1 B1 B1 B1 B1 B1, &book, &report, &err), 0, "%s", err.text);
    cr_expect_eq(book->rows, 6);
    cr_expect_eq(book->type[4], LOB_CROSS_TRADE);
    cr_expect_eq(report.hidden_rows_dropped, 2);
    lob_book_destroy(&book);
}

Test(lobster, empty_levels) {
    lob_book *book;
    lob_report report;
    io_error err;
    const char *orderbook = "5859400,200,5853300,18,9999999999,0,5853000,150,9999999999,0,-9999999999,0\n"
                            "9999999999,0,5853300,18,9999999999,0,5853000,150,9999999999,0,-9999999999,0\n";
    cr_assert_eq(parse(M1 M2, orderbook, &book, &report, &err), 0, "%s", err.text);
    cr_expect_eq(book->levels, 3);
    cr_expect_eq(book->ask_price[1], INT64_C(9999999999));
    cr_expect_eq(book->bid_price[2], INT64_C(-9999999999));
    cr_expect_eq(report.rows_with_empty_levels, 2);
    cr_expect_eq(report.empty_levels, 7);
    cr_expect_eq(report.one_sided_rows, 1);
    cr_expect_eq(lob_mid_doubled(book, 0), 5859400 + 5853300);
    cr_expect_eq(lob_mid_doubled(book, 1), 0);
    lob_book_destroy(&book);
}

#define CROSSED "5853200,1,5853300,2\n"
#define LOCKED  "5853300,1,5853300,2\n"
#define GHOST   "1920000000,0,5853300,2\n"

Test(lobster, odd_rows) {
    lob_book *book;
    lob_report report;
    io_error err;
    const char *message = M1 M1 M1 M1 M1, *orderbook = B1 CROSSED LOCKED GHOST B2;
    lob_read_params keep = {.odd_rows = LOB_ODD_KEEP}, drop = {.odd_rows = LOB_ODD_DROP};
    cr_assert_eq(parse_with(keep, message, orderbook, &book, &report, &err), 0, "%s", err.text);
    cr_expect_eq(book->rows, 5);
    cr_expect_eq(report.crossed_rows, 1);
    cr_expect_eq(report.locked_rows, 1);
    cr_expect_eq(report.ghost_rows, 1);
    cr_expect_eq(report.odd_rows_dropped, 0);
    lob_book_destroy(&book);
    cr_assert_eq(parse_with(drop, message, orderbook, &book, &report, &err), 0, "%s", err.text);
    cr_expect_eq(book->rows, 2);
    cr_expect_eq(report.rows, 5);
    cr_expect_eq(report.rows_kept, 2);
    cr_expect_eq(report.odd_rows_dropped, 3);
    cr_expect_eq(book->bid_size[1], 7);
    cr_expect_eq(book->n_segments, 1);
    cr_expect_eq(book->segments[0].end, 2);
    lob_book_destroy(&book);
    cr_expect_eq(parse_with(drop, M1 M1, LOCKED GHOST, &book, &report, &err), -1);
    cr_expect_str_eq(err.text, "m.csv: no rows are left after dropping 2 odd and 0 hidden ones");
}

static void expect_segments(const char *message, const char *orderbook, lob_read_params params, size_t n,
                            const lob_segment *expected, size_t halted) {
    lob_book *book;
    lob_report report;
    io_error err;
    cr_assert_eq(parse_with(params, message, orderbook, &book, &report, &err), 0, "%s", err.text);
    cr_assert_eq(book->n_segments, n, "%zu segments", book->n_segments);
    for (size_t i = 0; i < n; i++)
        cr_expect(book->segments[i].begin == expected[i].begin && book->segments[i].end == expected[i].end,
                  "segment %zu is %zu..%zu", i, book->segments[i].begin, book->segments[i].end);
    cr_expect_eq(report.segments, n);
    cr_expect_eq(report.rows_halted, halted, "%zu halted", report.rows_halted);
    lob_book_destroy(&book);
}

#define M3     "34200.3,1,12,100,5853300,1\n"
#define STOP   "34200.3,7,0,0,-1,-1\n"
#define QUOTE  "34200.3,7,0,0,0,-1\n"
#define RESUME "34200.3,7,0,0,1,-1\n"

Test(lobster, halts_end_segments) {
    lob_read_params standard = lob_read_default(), drop = {.odd_rows = LOB_ODD_DROP};
    const lob_segment all[] = {{0, 2}}, around[] = {{0, 2}, {6, 7}}, after[] = {{0, 1}, {2, 4}};
    expect_segments(M1 M2, B1 B2, standard, 1, all, 0);
    expect_segments(M1 M2 STOP M3 QUOTE M3, B1 B2 B2 B2 B2 B2, standard, 1, all, 4);
    expect_segments(M1 M2 STOP M3 QUOTE RESUME M3, B1 B2 B2 B2 B2 B2 B2, standard, 2, around, 4);
    expect_segments(M1 RESUME M3 M3, B1 B2 B2 B2, standard, 2, after, 1);
    expect_segments(M1 QUOTE M3 M3, B1 B2 B2 B2, standard, 2, after, 1);
    // A halt row that is dropped for being crossed still ends its segment.
    const lob_segment joined[] = {{0, 1}, {1, 3}};
    expect_segments(M1 RESUME M3 M3, B1 CROSSED B2 B2, drop, 2, joined, 0);
}

Test(lobster, long_cells_are_cut_off) {
    static const size_t lengths[] = {64, 65, 70000, 200000};
    for (int i = 0; i < 4; i++) {
        size_t size = lengths[i] + 64;
        char *message = malloc(size);
        int start = snprintf(message, size, M1 "34200.2,1,");
        memset(message + start, '0', lengths[i]);
        strcpy(message + start + lengths[i], ",100,5853300,1\n");
        lob_book *book;
        io_error err;
        int result = parse(message, B1 B2, &book, NULL, &err);
        cr_expect_eq(result, lengths[i] <= 64 ? 0 : -1);
        if (result)
            cr_expect_str_eq(err.text, "m.csv: line 2, column 3 (order id): found \"000000000000000000000000...\", "
                                       "expected at most 64 characters in a cell");
        lob_book_destroy(&book);
        free(message);
    }
}

Test(lobster, unclosed_quote_does_not_swallow_the_file) {
    size_t size = 1 << 20;
    char *message = malloc(size + 1);
    memset(message, 'x', size);
    memcpy(message, "34200.1,\"", 9);
    message[size] = 0;
    lob_book *book;
    io_error err;
    cr_expect_eq(parse(message, B1, &book, NULL, &err), -1);
    cr_expect_str_eq(err.text,
                     "m.csv: line 1, column 2 (type): found \"xxxxxxxxxxxxxxxxxxxxxxxx...\", expected at most 64 "
                     "characters in a cell");
    free(message);
}

// --- files ----------------------------------------------------------------------------------------------------------

static void gzip_file(const char *path, const char *text) {
    gzFile out = gzopen(path, "wb");
    cr_assert(gzwrite(out, text, (unsigned)strlen(text)) == (int)strlen(text));
    cr_assert_eq(gzclose(out), Z_OK);
}

static int read_pair(const char *message, const char *orderbook, io_error *err) {
    lob_book *book;
    err->text[0] = 0;
    int result = lob_book_read(NULL, message, orderbook, &book, NULL, err);
    cr_expect_eq(result == 0, book != NULL);
    lob_book_destroy(&book);
    return result;
}

static void expect_unreadable(const char *path, const char *reason) {
    io_error err;
    char expected[512];
    write_file(in_dir("good"), B1, strlen(B1));
    cr_expect_eq(read_pair(path, in_dir("good"), &err), -1);
    snprintf(expected, sizeof expected, "%s: %s", path, reason);
    cr_expect_str_eq(err.text, expected, "%s", err.text);
}

Test(lobster, files_plain_and_gzip) {
    io_error err;
    write_file(in_dir("m.csv"), M1 M2, strlen(M1 M2));
    gzip_file(in_dir("named_plainly.csv"), B1 B2);
    cr_expect_eq(read_pair(in_dir("m.csv"), in_dir("named_plainly.csv"), &err), 0, "%s", err.text);
}

Test(lobster, files_that_cannot_be_read) {
    expect_unreadable(in_dir("missing"), "cannot read: No such file or directory");
    mkdir(in_dir("folder"), 0777);
    expect_unreadable(in_dir("folder"), "cannot read: it is a directory");
    write_file(in_dir("empty"), "", 0);
    expect_unreadable(in_dir("empty"), "the file is empty");
    gzip_file(in_dir("empty.gz"), "");
    expect_unreadable(in_dir("empty.gz"), "the file is empty");
}

Test(lobster, damaged_gzip) {
    size_t size;
    gzip_file(in_dir("m.gz"), M1 M2);
    char *bytes = read_file(in_dir("m.gz"), &size);
    for (size_t cut = 3; cut < size; cut++) {
        write_file(in_dir("cut.gz"), bytes, cut);
        expect_unreadable(in_dir("cut.gz"), "the gzip data end too early: the file is cut short");
    }
    bytes[size - 8] ^= 1; // the checksum
    write_file(in_dir("crc.gz"), bytes, size);
    expect_unreadable(in_dir("crc.gz"), "the gzip data are damaged: incorrect data check");
    free(bytes);
}

// Text whose size is a multiple of every buffer, and each cut of the checksum behind it; zlib's own reader misses
// these.
Test(lobster, gzip_cut_at_a_border) {
    enum { SIZE = 1 << 18, ROW = 32 };
    char *text = malloc(SIZE + 1);
    for (int i = 0; i < SIZE; i += ROW)
        memcpy(text + i, "34200.000000,1,0000001,10,1000,1\n" + 1, ROW);
    text[SIZE] = 0;
    gzip_file(in_dir("m.gz"), text);
    size_t size;
    char *bytes = read_file(in_dir("m.gz"), &size);
    for (size_t cut = 1; cut <= 12; cut++) {
        write_file(in_dir("cut.gz"), bytes, size - cut);
        expect_unreadable(in_dir("cut.gz"), "the gzip data end too early: the file is cut short");
    }
    free(bytes);
    free(text);
}

Test(lobster, gzip_members_follow_each_other) {
    io_error err;
    size_t size[2];
    gzip_file(in_dir("a"), M1);
    gzip_file(in_dir("b"), M2);
    char *a = read_file(in_dir("a"), &size[0]), *b = read_file(in_dir("b"), &size[1]);
    a = realloc(a, size[0] + size[1]);
    memcpy(a + size[0], b, size[1]);
    write_file(in_dir("both"), a, size[0] + size[1]);
    write_file(in_dir("b.csv"), B1 B2, strlen(B1 B2));
    cr_expect_eq(read_pair(in_dir("both"), in_dir("b.csv"), &err), 0, "%s", err.text);
    write_file(in_dir("both"), a, size[0] + size[1] - 1);
    expect_unreadable(in_dir("both"), "the gzip data end too early: the file is cut short");
    memcpy(a + size[0], "garbage", 7);
    write_file(in_dir("both"), a, size[0] + 7);
    expect_unreadable(in_dir("both"), "the gzip data are damaged: incorrect header check");
    free(a);
    free(b);
}

// A cell without an end is refused while it is read, not after the whole file was kept: here the file's end is missing,
// and is not reached.
Test(lobster, endless_cells_are_cut_off_early) {
    size_t size = 1 << 20;
    char *text = malloc(size + 1), expected[512];
    memset(text, 'x', size);
    memcpy(text, "34200.1,\"", 9);
    text[size] = 0;
    gzip_file(in_dir("m.gz"), text);
    free(text);
    char *bytes = read_file(in_dir("m.gz"), &size);
    write_file(in_dir("m.gz"), bytes, size - 8);
    free(bytes);
    io_error err;
    write_file(in_dir("b.csv"), B1, strlen(B1));
    cr_expect_eq(read_pair(in_dir("m.gz"), in_dir("b.csv"), &err), -1);
    snprintf(expected, sizeof expected,
             "%s: line 1, column 2 (type): found \"xxxxxxxxxxxxxxxxxxxxxxxx...\", expected at most "
             "64 characters in a cell",
             in_dir("m.gz"));
    cr_expect_str_eq(err.text, expected, "%s", err.text);
}

Test(lobster, report_is_printed_whole) {
    lob_report report = {0};
    char *text;
    size_t size, lines = 0;
    FILE *out = open_memstream(&text, &size);
    lob_report_print(&report, out);
    fclose(out);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    cr_expect_eq(lines, sizeof report / sizeof(size_t) - 1, "types[0] is the only field without a line");
    free(text);
}

// --- real files -----------------------------------------------------------------------------------------------------

typedef struct facts {
    const char *prefix, *gz;
    int levels;
    size_t rows, types[LOB_TYPES], equal_times, mid_changes, empty_rows, one_sided;
    int64_t spread_min, spread_max, first_time, last_time, first_mid, last_mid; // mids doubled
    double spread_mean;                                                         // -1: not known
    int64_t ofi, ofi_abs;
} facts;

static const facts real_sets[] = {
    {"lobster_aapl_l10_999/AAPL_2012-06-21_34200000_57600000",
     "",
     10,
     999,
     {0, 471, 0, 369, 98, 61},
     109,
     350,
     0,
     0,
     100,
     6100,
     INT64_C(34200004241176),
     INT64_C(34249086375027),
     11712700,
     11710600,
     2374.975,
     -4858,
     23790},
    {"lobster_aapl_l1_45min/AAPL_2012-06-21_34200000_36900000",
     ".gz",
     1,
     21312,
     {0, 10392, 40, 5665, 3358, 1857},
     2030,
     13528,
     0,
     0,
     100,
     9200,
     INT64_C(34200004241176),
     INT64_C(36899427532520),
     11712700,
     11722100,
     2246.978,
     -62265,
     1639995},
    {"lobster_aapl_l10_45min/AAPL_2012-06-21_34200000_36900000",
     ".gz",
     10,
     59316,
     {0, 28289, 354, 25458, 3358, 1857},
     3092,
     13528,
     0,
     0,
     100,
     9200,
     INT64_C(34200004241176),
     INT64_C(36899673026331),
     11712700,
     11722100,
     2136.850,
     -62265,
     1639995},
    {"lobster_arl_l10_dummy/ARL_2025-07-17_14400000_72000000",
     ".gz",
     10,
     3698,
     {0, 1886, 0, 1766, 11, 35},
     455,
     0,
     225,
     5,
     0,
     21380300,
     INT64_C(14703360677248),
     INT64_C(60479252055411),
     0,
     0,
     -1,
     2694,
     37558},
};

static int same_book_row(const lob_book *book, size_t row) {
    size_t levels = (size_t)book->levels, bytes = levels * sizeof(int64_t);
    const int64_t *arrays[] = {book->ask_price, book->ask_size, book->bid_price, book->bid_size};
    for (int i = 0; i < 4; i++)
        if (memcmp(arrays[i] + row * levels, arrays[i] + (row - 1) * levels, bytes))
            return 0;
    return 1;
}

static void check_mids(const lob_book *book, const facts *f) {
    int64_t least = INT64_MAX, most = 0, sum = 0;
    size_t changes = 0;
    for (size_t r = 0; r < book->rows; r++) {
        int64_t mid = lob_mid_doubled(book, r);
        if (!mid)
            continue;
        size_t first = r * (size_t)book->levels;
        int64_t spread = book->ask_price[first] - book->bid_price[first];
        least = spread < least ? spread : least;
        most = spread > most ? spread : most;
        sum += spread;
        changes += r && mid != lob_mid_doubled(book, r - 1);
    }
    cr_expect_eq(most, f->spread_max, "%s: largest spread %lld", f->prefix, (long long)most);
    if (f->spread_mean < 0)
        return;
    cr_expect_eq(least, f->spread_min);
    cr_expect_float_eq((double)sum / (double)book->rows, f->spread_mean, 5e-4);
    cr_expect_eq(changes, f->mid_changes);
    cr_expect_eq(lob_mid_doubled(book, 0), f->first_mid);
    cr_expect_eq(lob_mid_doubled(book, book->rows - 1), f->last_mid);
}

// In LOBSTER data level-1 order flow imbalance is what the message says: + (type 1) or - (2, 3, 4) direction * size at
// or inside the touch, else 0.
static int64_t ofi_of_message(const lob_book *book, size_t r) {
    size_t now = r * (size_t)book->levels, before = now - (size_t)book->levels;
    int64_t price = book->price[r], direction = book->direction[r];
    int adds = book->type[r] == LOB_SUBMISSION;
    size_t touch = adds ? now : before; // where the order stands, or stood
    int at_touch = direction > 0 ? price >= book->bid_price[touch] : price <= book->ask_price[touch];
    return at_touch && book->type[r] <= LOB_EXECUTION ? (adds ? 1 : -1) * direction * book->size[r] : 0;
}

static void check_flow(const lob_book *book, const facts *f) {
    int64_t sum = 0, absolute = 0;
    size_t broken = 0, repeats = 0;
    for (size_t r = 1; r < book->rows; r++) {
        int64_t e = lob_ofi(book, r, 0);
        sum += e;
        absolute += llabs(e);
        broken += e != ofi_of_message(book, r);
        repeats += same_book_row(book, r) != (book->type[r] == LOB_HIDDEN_EXECUTION);
    }
    cr_expect_eq(sum, f->ofi, "%s: sum %lld", f->prefix, (long long)sum);
    cr_expect_eq(absolute, f->ofi_abs, "%s: sum of absolute values %lld", f->prefix, (long long)absolute);
    cr_expect_eq(broken, 0, "%s: %zu rows differ from their message", f->prefix, broken);
    cr_expect_eq(repeats, 0, "%s: %zu rows", f->prefix, repeats);
}

static void check_real(const facts *f) {
    lob_report report;
    lob_book *book = read_shared(f->prefix, f->levels, f->gz, &report);
    cr_expect_eq(book->rows, f->rows);
    cr_expect_eq(book->levels, f->levels);
    for (int type = 1; type < LOB_TYPES; type++)
        cr_expect_eq(report.types[type], f->types[type], "%s: type %d", f->prefix, type);
    cr_expect_eq(report.equal_times, f->equal_times);
    cr_expect_eq(report.rows_with_empty_levels, f->empty_rows);
    cr_expect_eq(report.one_sided_rows, f->one_sided);
    cr_expect_eq(report.crossed_rows + report.locked_rows + report.ghost_rows, 0);
    cr_expect_eq(book->time_ns[0], f->first_time);
    cr_expect_eq(book->time_ns[book->rows - 1], f->last_time);
    check_mids(book, f);
    check_flow(book, f);
    lob_book_destroy(&book);
}

Test(lobster, real_aapl_999) {
    check_real(&real_sets[0]);
}

Test(lobster, real_aapl_l1) {
    check_real(&real_sets[1]);
}

Test(lobster, real_aapl_l10) {
    check_real(&real_sets[2]);
}

Test(lobster, real_arl) {
    check_real(&real_sets[3]);
}

Test(lobster, real_arl_thin_rows) {
    static const size_t one_sided[] = {0, 3690, 3691, 3692, 3693};
    lob_book *book = read_shared(real_sets[3].prefix, 10, ".gz", NULL);
    size_t thin = 0, found = 0;
    for (size_t r = 0; r < book->rows; r++) {
        thin += book->ask_price[r * 10 + 1] == LOB_EMPTY_ASK || book->bid_price[r * 10 + 1] == LOB_EMPTY_BID;
        if (!lob_mid_doubled(book, r)) {
            cr_assert_lt(found, 5);
            cr_expect_eq(r, one_sided[found++]);
        }
    }
    cr_expect_eq(thin, 56, "%zu", thin);
    cr_expect_eq(found, 5);
    lob_book_destroy(&book);
}

Test(lobster, real_aapl_999_begins_aapl_l10) {
    lob_book *part = read_shared(real_sets[0].prefix, 10, "", NULL),
             *whole = read_shared(real_sets[2].prefix, 10, ".gz", NULL);
    cr_expect_arr_eq(part->time_ns, whole->time_ns, 999 * sizeof(int64_t));
    cr_expect_arr_eq(part->order_id, whole->order_id, 999 * sizeof(int64_t));
    cr_expect_arr_eq(part->ask_size, whole->ask_size, 9990 * sizeof(int64_t));
    cr_expect_arr_eq(part->bid_price, whole->bid_price, 9990 * sizeof(int64_t));
    lob_book_destroy(&part);
    lob_book_destroy(&whole);
}
