// A page of HTML that needs nothing else: no link, no script, no file beside it.
#ifndef CLI_HTML_H
#define CLI_HTML_H

#include <stdbool.h>
#include <stdio.h>

// Begins and ends the page. Errors of writing are the stream's.
void html_begin(FILE *page, const char *title);
void html_end(FILE *page);

// Text as it is to be read: what means something in HTML, between tags or in an attribute in quotes, is escaped, and
// control characters, which no page may hold, become U+FFFD.
void html_text(FILE *page, const char *text);

// <tag>text</tag>.
void html_element(FILE *page, const char *tag, const char *text);

// A table: its caption and the heads of its columns; then rows, each by html_row_begin and one html_cell for each
// column.
void html_table_begin(FILE *page, const char *caption, const char *const *heads, int columns);
void html_row_begin(FILE *page);
void html_cell(FILE *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
void html_number(FILE *page, const char *format, ...) __attribute__((format(printf, 2, 3))); // to the right
void html_table_end(FILE *page);

// A picture inside the page, and what it shows, for who cannot see it. `svg` is the text of an SVG file: what comes
// before its <svg> and the attributes that name XML's namespaces, which HTML does not need, are left out. False, with
// nothing written, if it is none.
bool html_picture(FILE *page, const char *svg, const char *shows);

#endif
