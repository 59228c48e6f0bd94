#include "cli/html.h"

#include <stdarg.h>
#include <string.h>

static const char style[] =
    "body{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "figure{margin:1em 0}figure svg{max-width:100%;height:auto}"
    "table{border-collapse:collapse;margin:1em 0;font-size:14px}caption{text-align:left;font-weight:bold}"
    "th,td{border-bottom:1px solid #ccc;padding:.2em .8em;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}";

void html_begin(FILE *page, const char *title) {
    fprintf(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    html_text(page, title);
    fprintf(page, "</title>\n<style>%s</style>\n</head>\n<body>\n", style);
    html_element(page, "h1", title);
}

void html_end(FILE *page) {
    fprintf(page, "</body>\n</html>\n");
}

void html_text(FILE *page, const char *text) {
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", page);
            break;
        case '<':
            fputs("&lt;", page);
            break;
        case '>':
            fputs("&gt;", page);
            break;
        case '"':
            fputs("&quot;", page);
            break;
        case '\'':
            fputs("&#39;", page);
            break;
        default:
            if ((unsigned char)*text < ' ' || *text == 0x7f)
                fputs("&#65533;", page);
            else
                putc(*text, page);
        }
}

void html_element(FILE *page, const char *tag, const char *text) {
    fprintf(page, "<%s>", tag);
    html_text(page, text);
    fprintf(page, "</%s>\n", tag);
}

// --- tables ---

void html_table_begin(FILE *page, const char *caption, const char *const *heads, int columns) {
    fprintf(page, "<table>\n");
    html_element(page, "caption", caption);
    fprintf(page, "<tr>");
    for (int i = 0; i < columns; i++) {
        fprintf(page, "<th>");
        html_text(page, heads[i]);
        fprintf(page, "</th>");
    }
}

void html_row_begin(FILE *page) {
    fprintf(page, "</tr>\n<tr>");
}

static void cell(FILE *page, const char *tag, const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    fprintf(page, "<%s>", tag);
    html_text(page, text);
    fprintf(page, "</td>");
}

void html_cell(FILE *page, const char *format, ...) {
    va_list args;
    va_start(args, format);
    cell(page, "td", format, args);
    va_end(args);
}

void html_number(FILE *page, const char *format, ...) {
    va_list args;
    va_start(args, format);
    cell(page, "td class=\"n\"", format, args);
    va_end(args);
}

void html_table_end(FILE *page) {
    fprintf(page, "</tr>\n</table>\n");
}

// --- pictures ---

// The attributes of the root element, without those that begin with xmlns; each is preceded by blanks.
static void copy_attributes(FILE *page, const char *from, const char *end) {
    while (from < end) {
        const char *quote = from;
        while (quote < end && *quote != '"' && *quote != '\'')
            quote++;
        const char *close = quote < end ? memchr(quote + 1, *quote, (size_t)(end - quote - 1)) : NULL;
        const char *after = close ? close + 1 : end, *name = from + strspn(from, " \t\r\n");
        if (strncmp(name, "xmlns", 5))
            fwrite(from, 1, (size_t)(after - from), page);
        from = after;
    }
}

bool html_picture(FILE *page, const char *svg, const char *shows) {
    const char *root = strstr(svg, "<svg"), *end = root ? strchr(root, '>') : NULL;
    const char *last = end ? strstr(end, "</svg>") : NULL;
    if (!last)
        return false;
    fprintf(page, "<figure>\n<svg role=\"img\" aria-label=\"");
    html_text(page, shows);
    fprintf(page, "\"");
    copy_attributes(page, root + 4, end);
    fwrite(end, 1, (size_t)(last - end), page);
    fprintf(page, "</svg>\n<figcaption>");
    html_text(page, shows);
    fprintf(page, "</figcaption>\n</figure>\n");
    return true;
}
