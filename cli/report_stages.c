// Where the time of a bench that has stages goes: both works as a bar of stages, with the time of the whole.
#include "cli/gnuplot.h"
#include "cli/report.h"

#include <math.h>
#include <string.h>

enum { COLOURS = 7 };

// Okabe and Ito 2008, and whether text on it is white.
static const struct {
    const char *rgb;
    bool dark;
} colours[COLOURS] = {{"#0072b2", true},  {"#e69f00", false}, {"#009e73", true}, {"#cc79a7", false},
                      {"#56b4e9", false}, {"#d55e00", true},  {"#f0e442", false}};

// The first row that another is a part of; NULL in a bench without stages.
static const cli_bench_row *find_whole(const cli_bench_file *bench) {
    for (const cli_bench_row *part = bench->row; part < bench->row + bench->rows; part++)
        for (const cli_bench_row *row = bench->row; part->part_of && row < part; row++)
            if (!row->part_of && !strcmp(row->what, part->part_of) && row->n == part->n &&
                !strcmp(row->mode, part->mode))
                return row;
    return NULL;
}

static bool is_part(const cli_bench_row *row, const cli_bench_row *whole) {
    return row->part_of && row->n == whole->n && !strcmp(row->mode, whole->mode);
}

// A line for each stage of each work: from where to where it reaches when one follows the other.
static bool write_csv(const report *r, const char *name, const cli_bench_file *bench, const cli_bench_row *whole) {
    io_atomic *file = report_open(r, name, "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "stage,work,bar,begin_us,end_us,median_us,whole_us\n");
    for (int work = 0; work < 2; work++) {
        double begin = 0;
        for (const cli_bench_row *row = bench->row; row < bench->row + bench->rows; row++) {
            if (!is_part(row, whole))
                continue;
            const double us = row->times[work].median, numbers[] = {begin, begin + us, us, whole->times[work].median};
            fprintf(csv, "\"%s\",\"%s\",%d", row->what, bench->names[work], work);
            for (int i = 0; i < 4; i++) {
                putc(',', csv);
                report_number(csv, numbers[i]);
            }
            putc('\n', csv);
            begin += us;
        }
    }
    return report_close(file, true);
}

static double longest_of(const cli_bench_file *bench, const cli_bench_row *whole) {
    double longest = 0;
    for (int work = 0; work < 2; work++) {
        double sum = 0;
        for (int i = 0; i < bench->rows; i++)
            sum += is_part(&bench->row[i], whole) ? bench->row[i].times[work].median : 0;
        longest = fmax(longest, fmax(sum, whole->times[work].median));
    }
    return longest;
}

// Stage `number` of `stages`: its piece of both bars, and in it, where there is room, its time.
static void write_stage(FILE *gp, const char *name, const char *what, int number, int stages, double longest) {
    const int first = number, last = number + stages;
    const int colour = number % COLOURS;
    fprintf(gp,
            "%s '%s.csv' skip 1 every %d::%d::%d using (($4+$5)/2):3:4:5:($3-0.3):($3+0.3) with boxxyerror "
            "fillstyle solid border linecolor rgb '#ffffff' linecolor rgb '%s' title ",
            number ? ", \\\n    " : "plot", name, stages, first, last, colours[colour].rgb);
    gnuplot_text(gp, what);
    fprintf(gp,
            ", \\\n    '' skip 1 every %d::%d::%d using (($4+$5)/2):3:($6 > %.17g ? sprintf('%%.1f', $6) : '') "
            "with labels textcolor rgb '%s' notitle",
            stages, first, last, 0.045 * longest, colours[colour].dark ? "#ffffff" : "#000000");
}

static bool write_script(const report *r, const char *name, const cli_bench_file *bench, const cli_bench_row *whole,
                         const char *title) {
    io_atomic *file = report_script(r, name, 1000, 340);
    if (!file)
        return false;
    FILE *gp = io_atomic_stream(file);
    const double longest = longest_of(bench, whole);
    int stages = 0, number = 0;
    for (int i = 0; i < bench->rows; i++)
        stages += is_part(&bench->row[i], whole);
    fprintf(gp, "set title ");
    gnuplot_text(gp, title);
    fprintf(gp, " font large\nset ytics (");
    gnuplot_text(gp, bench->names[0]);
    fprintf(gp, " 0, ");
    gnuplot_text(gp, bench->names[1]);
    fprintf(
        gp,
        " 1) scale 0\nset yrange [1.55:-0.55]\nset xrange [0:%.17g]\nset xlabel 'median time (us), one stage after the "
        "other'\nset grid x\nset border 3\nset xtics nomirror\n"
        "set bmargin at screen 0.36\nset key at screen 0.5,0.1 center maxrows %d Left reverse\n",
        1.04 * longest, (stages + 1 + 3) / 4);
    for (const cli_bench_row *row = bench->row; row < bench->row + bench->rows; row++)
        if (is_part(row, whole))
            write_stage(gp, name, row->what, number++, stages, longest);
    fprintf(gp,
            ", \\\n    '%s.csv' skip 1 every %d using 7:3:(0):(0.4) with vectors nohead linewidth 3 linecolor rgb "
            "'#000000' title 'the whole, by itself', \\\n"
            "    '' skip 1 every %d using 7:3:(0):(-0.4) with vectors nohead linewidth 3 linecolor rgb '#000000' "
            "notitle\n",
            name, stages, stages);
    return report_close(file, true);
}

bool report_write_stages(const report *r, int number, const cli_bench_file *bench) {
    const cli_bench_row *whole = find_whole(bench);
    char name[32], title[256];
    if (!whole)
        return true;
    snprintf(name, sizeof name, "stages%d", number);
    snprintf(title, sizeof title, "Stages of %s, N %lld", whole->what, (long long)whole->n);
    return write_csv(r, name, bench, whole) && write_script(r, name, bench, whole, title) &&
           report_draw(r, name, "Median times of the stages, one after the other, and of the whole; as CSV beside it");
}
