// What the tuner measured: who wins where, and what that gains over the default policy.
#include "cli/report_tune.h"

#include "cli/gnuplot.h"
#include "cli/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 128, LINES_MAX = 40 };

static double ratio_of(const cli_measured_problem *p) {
    return p->normal.us / p->chosen.us; // NAN where one was not timed
}

static bool is_small(const cli_measured_problem *p) {
    return p->m < SMALL && p->n < SMALL;
}

// --- who wins ---

static void describe_choice(const cli_timed_method *method, char *text, size_t size) {
    snprintf(text, size, "%.30s, %.20s, %s", method->backend, method->form,
             method->algorithm ? "tuned algorithm" : "its own choice");
}

int report_choice_of(const report_choices *choices, const cli_measured_problem *problem) {
    char text[sizeof choices->list->text];
    if (!problem->chosen.method)
        return -1;
    describe_choice(&problem->chosen, text, sizeof text);
    for (int i = 0; i < choices->count; i++)
        if (!strcmp(choices->list[i].text, text))
            return i;
    return choices->count - 1;
}

static int compare_choices(const void *a, const void *b) {
    return strcmp(((const report_choice *)a)->text, ((const report_choice *)b)->text);
}

// By name, so that the colours of two reports are the same.
static void find_choices(const cli_measurements *m, report_choices *choices) {
    for (const cli_measured_problem *p = m->problem; p < m->problem + m->count; p++) {
        char text[sizeof choices->list->text];
        int at = 0;
        if (!p->chosen.method)
            continue;
        describe_choice(&p->chosen, text, sizeof text);
        while (at < choices->count && strcmp(choices->list[at].text, text))
            at++;
        if (at == choices->count && at < REPORT_CHOICES_MAX)
            strcpy(choices->list[choices->count++].text, text);
        else if (at == choices->count)
            strcpy(choices->list[REPORT_CHOICES_MAX - 1].text, "~ others"); // sorted last
    }
    qsort(choices->list, (size_t)choices->count, sizeof *choices->list, compare_choices);
    for (const cli_measured_problem *p = m->problem; p < m->problem + m->count; p++) {
        int at = report_choice_of(choices, p);
        if (at < 0)
            continue;
        choices->list[at].problems++;
        if (isfinite(ratio_of(p))) {
            choices->list[at].log_ratios += log(ratio_of(p));
            choices->list[at].ratios++;
        }
    }
}

static void write_choices(FILE *page, const report_choices *choices) {
    static const char *const heads[] = {"method", "problems", "default / chosen (geometric mean)"};
    html_table_begin(page, "Who wins", heads, 3);
    for (const report_choice *c = choices->list; c < choices->list + choices->count; c++) {
        html_row_begin(page);
        html_cell(page, "%s", c->text);
        html_number(page, "%d", c->problems);
        if (c->ratios)
            html_number(page, "%.4f", exp(c->log_ratios / c->ratios));
        else
            html_cell(page, "not timed");
    }
    html_table_end(page);
}

// --- what it gains ---

static int compare_ratios(const void *a, const void *b) {
    const cli_measured_problem *const *x = a, *const *y = b;
    double rx = ratio_of(*x), ry = ratio_of(*y);
    return rx != ry ? (rx < ry) - (rx > ry) : (*x > *y) - (*x < *y);
}

// Problems where both were timed, the largest gain first. NULL after printing why.
static const cli_measured_problem **sort_gains(const cli_measurements *m, int *count) {
    const cli_measured_problem **sorted = malloc((size_t)m->count * sizeof *sorted);
    *count = 0;
    if (!sorted) {
        cli_error("out of memory");
        return NULL;
    }
    for (int i = 0; i < m->count; i++)
        if (isfinite(ratio_of(&m->problem[i])))
            sorted[(*count)++] = &m->problem[i];
    qsort(sorted, (size_t)*count, sizeof *sorted, compare_ratios);
    return sorted;
}

typedef struct mean {
    double value; // geometric, NAN of none
    int count;
} mean;

static mean mean_of(const cli_measured_problem *const *sorted, int count, bool small_alone) {
    mean m = {0, 0};
    for (int i = 0; i < count; i++)
        if (!small_alone || is_small(sorted[i])) {
            m.value += log(ratio_of(sorted[i]));
            m.count++;
        }
    m.value = m.count ? exp(m.value / m.count) : NAN;
    return m;
}

static bool write_gains_csv(const report *r, const cli_measured_problem *const *sorted, int count) {
    io_atomic *file = report_open(r, "gains", "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "rank,name,m,n,k,batch,epilogue,compute,small,default,default_us,chosen,chosen_us,ratio\n");
    for (int i = 0; i < count; i++) {
        const cli_measured_problem *p = sorted[i];
        fprintf(csv, "%d,\"%s\",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",\"%s\",\"%s\",%d,\"%s\",", i + 1,
                p->name, p->m, p->n, p->k, p->batch, p->epilogue, p->compute, is_small(p), p->normal.method);
        report_number(csv, p->normal.us);
        fprintf(csv, ",\"%s\",", p->chosen.method);
        report_number(csv, p->chosen.us);
        putc(',', csv);
        report_number(csv, ratio_of(p));
        putc('\n', csv);
    }
    return report_close(file, true);
}

// Tics of a logarithmic axis that a reader expects: fine ones where the range is narrow.
static void write_ratio_axis(FILE *gp, double low, double high) {
    static const double steps[] = {1, 1.5, 2, 3, 5, 7};
    low = fmin(low, 1) / 1.03;
    high = fmax(high, 1) * 1.05;
    fprintf(gp, "set logscale y\nset yrange [%.17g:%.17g]\nset ytics (", low, high);
    const char *comma = "";
    if (high / low < 2) {
        const double step = high / low < 1.25 ? 0.02 : 0.1;
        for (int i = (int)ceil(low / step); i <= (int)(high / step); i++, comma = ", ")
            fprintf(gp, "%s'%.2f' %.2f", comma, step * i, step * i);
    } else {
        for (double power = pow(10, floor(log10(low))); power <= high; power *= 10)
            for (int i = 0; i < 6; i++)
                if (steps[i] * power >= low && steps[i] * power <= high) {
                    fprintf(gp, "%s'%g' %.17g", comma, steps[i] * power, steps[i] * power);
                    comma = ", ";
                }
    }
    fprintf(gp, ")\n");
}

static bool write_gains_script(const report *r, const cli_measured_problem *const *sorted, int count,
                               const char *title) {
    const mean all = mean_of(sorted, count, false), small = mean_of(sorted, count, true);
    io_atomic *file = report_script(r, "gains", 1000, 520);
    if (!file)
        return false;
    FILE *gp = io_atomic_stream(file);
    fprintf(gp, "set title ");
    gnuplot_text(gp, title);
    fprintf(gp,
            " font large\nset xlabel 'problems, the largest gain first'\n"
            "set ylabel 'time: default policy / chosen method'\n"
            "set grid\nset border 3\nset tics nomirror\nset bmargin at screen 0.23\nset key at screen 0.5,0.06 center "
            "maxrows 2 Left reverse\n"
            "set xrange [%.17g:%.17g]\n",
            -0.01 * count, 1.01 * count + 1);
    write_ratio_axis(gp, ratio_of(sorted[count - 1]), ratio_of(sorted[0]));
    fprintf(
        gp,
        "set arrow from graph 0,first 1 to graph 1,first 1 nohead linewidth 1.5 linecolor rgb '#222222'\n"
        "plot 'gains.csv' skip 1 using 1:($9 == 1 ? NaN : $14) with points pointtype 5 pointsize 0.55 linecolor rgb "
        "'%s' "
        "title 'm or n from %d', \\\n"
        "    %.17g with lines linewidth 2 dashtype 3 linecolor rgb '#444444' title 'geometric mean of all %d: %.3f'",
        REPORT_ORANGE, SMALL, all.value, all.count, all.value);
    if (small.count)
        fprintf(gp,
                ", \\\n    'gains.csv' skip 1 using 1:($9 == 1 ? $14 : NaN) with points pointtype 7 pointsize 0.6 "
                "linecolor "
                "rgb '%s' title 'm and n below %d', \\\n"
                "    %.17g with lines linewidth 2 dashtype 2 linecolor rgb '%s' title 'their geometric mean, of %d: "
                "%.3f'",
                REPORT_BLUE, SMALL, small.value, REPORT_BLUE, small.count, small.value);
    fprintf(gp, "\n");
    return report_close(file, true);
}

static void write_gains_table(FILE *page, const cli_measured_problem *const *sorted, int count) {
    static const char *const heads[] = {"problem", "m", "n", "k", "batch", "default", "us", "chosen", "us", "ratio"};
    char caption[96];
    snprintf(caption, sizeof caption, "The largest gains: %d of %d problems", count < LINES_MAX ? count : LINES_MAX,
             count);
    html_table_begin(page, caption, heads, 10);
    for (int i = 0; i < count && i < LINES_MAX; i++) {
        const cli_measured_problem *p = sorted[i];
        const int64_t sizes[] = {p->m, p->n, p->k, p->batch};
        html_row_begin(page);
        html_cell(page, "%s", p->name);
        for (int j = 0; j < 4; j++)
            html_number(page, "%" PRId64, sizes[j]);
        html_cell(page, "%s", p->normal.method);
        html_number(page, "%.3f", p->normal.us);
        html_cell(page, "%s", p->chosen.method);
        html_number(page, "%.3f", p->chosen.us);
        html_number(page, "%.3f", ratio_of(p));
    }
    html_table_end(page);
}

static bool write_gains(const report *r, const cli_measurements *m) {
    int count;
    const cli_measured_problem **sorted = sort_gains(m, &count);
    if (!sorted)
        return false;
    char title[320];
    snprintf(title, sizeof title, "What tuning gains over the default policy, on %.160s (%s L2 cache)", m->device,
             m->cold ? "cold" : "warm");
    bool good = true;
    if (!count) {
        html_element(r->page, "p", "Of no problem were both the default method and the chosen one timed.");
    } else {
        good = write_gains_csv(r, sorted, count) && write_gains_script(r, sorted, count, title) &&
               report_draw(r, "gains", "The ratio of the default policy's time to that of the chosen method, sorted");
        if (good)
            write_gains_table(r->page, sorted, count);
    }
    free(sorted);
    return good;
}

bool report_write_tune(const report *r, const char *path, const cli_measurements *m) {
    report_choices choices = {0};
    find_choices(m, &choices);
    fprintf(r->page, "<h2>Tuning: ");
    html_text(r->page, m->device);
    fputs(*m->library ? ", " : "", r->page);
    html_text(r->page, m->library);
    fprintf(r->page, "</h2>\n<p>From ");
    html_text(r->page, path);
    fprintf(r->page, ": %d problems, times with a %s L2 cache.</p>\n", m->count, m->cold ? "cold" : "warm");
    write_choices(r->page, &choices);
    return report_write_maps(r, m, &choices) && write_gains(r, m);
}
