// The times of `tlob bench --json`: as CSV, as a picture, as a table.
#include "cli/gnuplot.h"
#include "cli/html.h"
#include "cli/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool write_csv(const report *r, const char *name, const cli_bench_file *bench) {
    io_atomic *file = report_open(r, name, "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "what,n,mode");
    for (int i = 0; i < 2; i++)
        fprintf(csv, ",\"%s median_us\",\"%s low_us\",\"%s high_us\"", bench->names[i], bench->names[i],
                bench->names[i]);
    fprintf(csv, ",ratio\n");
    for (const cli_bench_row *row = bench->row; row < bench->row + bench->rows; row++) {
        fprintf(csv, "\"%s\",%" PRId64 ",\"%s\"", row->what, row->n, row->mode);
        const double numbers[] = {row->times[0].median, row->times[0].low,  row->times[0].high, row->times[1].median,
                                  row->times[1].low,    row->times[1].high, row->ratio};
        for (int i = 0; i < 7; i++) {
            putc(',', csv);
            report_number(csv, numbers[i]);
        }
        putc('\n', csv);
    }
    return report_close(file, true);
}

static void describe_row(const cli_bench_row *row, char *text, size_t size) {
    snprintf(text, size, "%s, N %" PRId64 ", %s", row->what, row->n, row->mode);
}

typedef struct span {
    double low, high;
} span;

static span span_of_times(const cli_bench_file *bench) {
    span s = {INFINITY, 0};
    for (int i = 0; i < bench->rows; i++)
        for (int work = 0; work < 2; work++) {
            s.low = fmin(s.low, bench->row[i].times[work].low);
            s.high = fmax(s.high, bench->row[i].times[work].high);
        }
    return s;
}

static span span_of_ratios(const cli_bench_file *bench) {
    span s = {1, 1}; // the line that they are held against is shown as well
    for (int i = 0; i < bench->rows; i++)
        s = (span){fmin(s.low, bench->row[i].ratio), fmax(s.high, bench->row[i].ratio)};
    return s;
}

// 1, 2 or 5 times a power of ten, of which at most four are in `length`.
static double tic_step(double length) {
    double power = pow(10, floor(log10(length / 4))), steps[] = {1, 2, 5, 10};
    for (int i = 0; i < 4; i++)
        if (length / (steps[i] * power) <= 4)
            return steps[i] * power;
    return 10 * power;
}

typedef struct layout {
    int height;
    double left, middle; // where the panel of times begins and ends
} layout;

// The rows from top to bottom; their labels say how much room is left of them.
static layout write_layout(FILE *gp, const cli_bench_file *bench, int width, int height, const char *title) {
    char label[2 * CLI_BENCH_NAME_MAX + 32];
    size_t longest = 0;
    fprintf(gp, "set ytics (");
    for (int i = 0; i < bench->rows; i++) {
        describe_row(&bench->row[i], label, sizeof label);
        longest = strlen(label) > longest ? strlen(label) : longest;
        fprintf(gp, "%s", i ? ", " : "");
        gnuplot_text(gp, label);
        fprintf(gp, " %d", i);
    }
    const double left = fmin(0.6, (30 + 9 * (double)longest) / width), middle = left + 0.6 * (0.96 - left);
    fprintf(gp, ") scale 0\nset yrange [%d.5:-0.5]\nset grid x\nset border 3\nset xtics nomirror\n", bench->rows - 1);
    fprintf(gp, "set tmargin at screen %.4f\nset bmargin at screen %.4f\n", 1 - 75.0 / height, 62.0 / height);
    fprintf(gp, "set label 1 ");
    gnuplot_text(gp, title);
    fprintf(gp, " at screen 0.5,%.4f center font large\n", 1 - 20.0 / height);
    return (layout){height, left, middle};
}

// The first work a little above the second.
static void write_times_panel(FILE *gp, const char *name, const cli_bench_file *bench, layout l) {
    span times = span_of_times(bench);
    bool decades = times.high > 20 * times.low;
    fprintf(gp, "set lmargin at screen %.4f\nset rmargin at screen %.4f\n", l.left, l.middle);
    fprintf(gp, "set key at screen %.4f,%.4f center maxrows 1 Left reverse\n", (l.left + l.middle) / 2,
            1 - 50.0 / l.height);
    fprintf(gp, "set xlabel 'time of a call (us): median, quartiles%s'\n", decades ? "; logarithmic" : "");
    fprintf(gp, decades ? "set logscale x\n" : "set xrange [0:*]\n");
    for (int i = 0; i < 2; i++) {
        int column = 4 + 3 * i;
        fprintf(gp,
                "%s '%s.csv' skip 1 using %d:($0%+.2f):%d:%d with xerrorbars linewidth 2 pointtype %d pointsize 0.9 "
                "linecolor rgb '%s' title ",
                i ? ", \\\n    " : "plot", name, column, i ? 0.15 : -0.15, column + 1, column + 2, i ? 5 : 7,
                i ? REPORT_ORANGE : REPORT_BLUE);
        gnuplot_text(gp, bench->names[i]);
    }
    fprintf(gp, "\n");
}

static void write_ratio_panel(FILE *gp, const char *name, const cli_bench_file *bench, layout l) {
    span ratios = span_of_ratios(bench);
    double room = fmax(0.1 * (ratios.high - ratios.low), 0.01);
    fprintf(gp, "unset label 1\nunset key\nunset logscale x\nset lmargin at screen %.4f\nset rmargin at screen 0.96\n",
            l.middle + 0.035);
    fprintf(gp, "unset ytics\nset xrange [%.17g:%.17g]\nset xtics %.17g\nset xlabel 'ratio: second / first'\n",
            ratios.low - room, ratios.high + room, tic_step(ratios.high - ratios.low + 2 * room));
    fprintf(
        gp,
        "set arrow from first 1,graph 0 to first 1,graph 1 nohead dashtype 2 linecolor rgb '#222222'\n"
        "plot '%s.csv' skip 1 using 10:($0) with points pointtype 9 pointsize 1.1 linecolor rgb '%s' title 'ratio'\n",
        name, REPORT_GREEN);
}

static bool write_script(const report *r, const char *name, const cli_bench_file *bench, const char *title) {
    const int width = 1000, height = 150 + 34 * bench->rows;
    io_atomic *file = report_script(r, name, width, height);
    if (!file)
        return false;
    FILE *gp = io_atomic_stream(file);
    layout l = write_layout(gp, bench, width, height, title);
    fprintf(gp, "set multiplot\n");
    write_times_panel(gp, name, bench, l);
    write_ratio_panel(gp, name, bench, l);
    fprintf(gp, "unset multiplot\n");
    return report_close(file, true);
}

static void write_machine(FILE *page, const cli_bench_file *bench) {
    static const char *const heads[] = {"setting", "value"};
    html_table_begin(page, "What the times depend on", heads, 2);
    const cJSON *item;
    cJSON_ArrayForEach(item, bench->json) {
        if (!cJSON_IsString(item) && !cJSON_IsNumber(item))
            continue;
        html_row_begin(page);
        html_cell(page, "%s", item->string);
        if (cJSON_IsString(item))
            html_cell(page, "%s", item->valuestring);
        else
            html_cell(page, "%.15g", item->valuedouble);
    }
    html_table_end(page);
}

static void write_times(FILE *page, const cli_bench_file *bench) {
    const char *const heads[] = {"what",          "N",         "mode", bench->names[0], "quartiles",
                                 bench->names[1], "quartiles", "ratio"};
    html_table_begin(page, "Microseconds a call: median and quartiles; ratio: the second over the first", heads, 8);
    for (const cli_bench_row *row = bench->row; row < bench->row + bench->rows; row++) {
        html_row_begin(page);
        html_cell(page, "%s", row->what);
        html_number(page, "%" PRId64, row->n);
        html_cell(page, "%s", row->mode);
        for (int i = 0; i < 2; i++) {
            html_number(page, "%.15g", row->times[i].median);
            html_number(page, "%.15g to %.15g", row->times[i].low, row->times[i].high);
        }
        html_number(page, "%.15g", row->ratio);
    }
    html_table_end(page);
}

bool report_write_bench(const report *r, int number, const char *path, const cli_bench_file *bench) {
    char name[32], title[512];
    snprintf(name, sizeof name, "bench%d", number);
    snprintf(title, sizeof title, "%s and %s, on %.160s", bench->names[0], bench->names[1],
             cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(bench->json, "device")));
    fprintf(r->page, "<h2>Times: ");
    html_text(r->page, title);
    fprintf(r->page, "</h2>\n<p>From ");
    html_text(r->page, path);
    fprintf(r->page, "; as CSV in %s.csv.</p>\n", name);
    if (!write_csv(r, name, bench) || !write_script(r, name, bench, title) ||
        !report_draw(r, name, "Median times of a call with their quartiles, of both works, and their ratio"))
        return false;
    write_times(r->page, bench);
    write_machine(r->page, bench);
    return true;
}
