// How the files of a report are read and written, and how its pictures are drawn.
#include "cli/gnuplot.h"
#include "cli/html.h"
#include "cli/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// --- files ---

char *report_read(const char *path, size_t *length) {
    char *text = NULL;
    *length = 0;
    FILE *file = fopen(path, "r");
    bool good = file && cli_read_all(file, &text, length);
    if (!good) {
        cli_error("%s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

static char *path_of(const report *r, const char *name, const char *ending) {
    char *path;
    if (asprintf(&path, "%s/%s.%s", r->folder, name, ending) >= 0)
        return path;
    cli_error("out of memory");
    return NULL;
}

static bool spares_inputs(const report *r, const char *path) {
    for (int i = 0; i < r->n_inputs; i++)
        if (io_atomic_same(path, r->inputs[i])) {
            cli_error("%s would overwrite the input %s: name another folder by --out", path, r->inputs[i]);
            return false;
        }
    return true;
}

io_atomic *report_open(const report *r, const char *name, const char *ending) {
    char *path = path_of(r, name, ending);
    io_atomic *file = NULL;
    io_error err;
    if (path && spares_inputs(r, path) && io_atomic_open(path, &file, &err))
        cli_error("%s", err.text);
    free(path);
    return file;
}

bool report_close(io_atomic *file, bool good) {
    io_error err;
    if (!good)
        io_atomic_abort(&file);
    else if (io_atomic_commit(&file, &err))
        good = cli_error("%s", err.text) == CLI_OK;
    return good;
}

void report_number(FILE *file, double value) {
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, file);
}

// --- pictures ---

io_atomic *report_script(const report *r, const char *name, int width, int height) {
    io_atomic *file = report_open(r, name, "gp");
    if (!file)
        return NULL;
    fprintf(io_atomic_stream(file),
            "# Draws %s.csv, in its folder, by: gnuplot -e \"format='svg'\" %s.gp >%s.svg (or with png for svg)\n"
            "if (!exists('format')) format = 'svg'\n"
            "if (format eq 'png') {\n"
            "    set terminal pngcairo noenhanced size %d,%d font 'sans,22' linewidth 2 background rgb 'white'\n"
            "    large = ',26'\n"
            "} else {\n"
            "    set terminal svg noenhanced size %d,%d font 'sans-serif,14' background rgb 'white' name '%s'\n"
            "    large = ',16'\n"
            "}\n"
            "set encoding utf8\nset datafile separator comma\n",
            name, name, name, 2 * width, 2 * height, width, height, name);
    return file;
}

// gnuplot ends with status 0 whatever became of its output: the end of the picture must be there.
static bool is_whole(const char *format, const char *picture, size_t length) {
    enum { TAIL = 16 };
    const char *mark = strcmp(format, "svg") ? "IEND" : "</svg>";
    return length >= TAIL && memmem(picture + length - TAIL, TAIL, mark, strlen(mark));
}

static bool write_picture(io_atomic *file, const char *picture, size_t length) {
    fwrite(picture, 1, length, io_atomic_stream(file)); // report_close finds what fails
    return report_close(file, true);
}

// Writes NAME.FORMAT; the picture, which the caller frees, or NULL after printing why.
static char *draw(const report *r, const char *name, const char *format) {
    char script[64];
    size_t length;
    snprintf(script, sizeof script, "%s.gp", name);
    char *picture = gnuplot_run(r->gnuplot, r->folder, script, format, &length);
    bool good = picture && !*r->interrupted;
    if (good && !is_whole(format, picture, length))
        good = cli_error("%s: what %s drew of %s is no whole %s", r->folder, r->gnuplot, script, format) == CLI_OK;
    io_atomic *file = good ? report_open(r, name, format) : NULL;
    good = file && write_picture(file, picture, length);
    if (good)
        return picture;
    free(picture);
    return NULL;
}

bool report_draw(const report *r, const char *name, const char *shows) {
    if (!r->gnuplot) {
        html_element(r->page, "p", "No picture is here, for gnuplot was not found.");
        return true;
    }
    char *svg = draw(r, name, "svg"), *png = svg ? draw(r, name, "png") : NULL;
    bool good = svg && png && html_picture(r->page, svg, shows);
    if (svg && png && !good)
        cli_error("%s: what %s drew of %s.gp is no SVG", r->folder, r->gnuplot, name);
    free(png);
    free(svg);
    return good;
}
