// The curves of `tlob train`: the loss of each step, and the figures of the validation part.
#include "cli/html.h"
#include "cli/report.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS_MAX = 2000, LINES_MAX = 40, WINDOWS = 50, WINDOW_MAX = 1000 };

// To show `most` of `rows` rows at most, each of so many.
static size_t every(size_t rows, size_t most) {
    return (rows + most - 1) / most;
}

static const double *row_of(const report_table *table, size_t row) {
    return table->cell + row * (size_t)table->columns;
}

// The row with the lowest value in the column, the first of several.
static size_t lowest(const report_table *table, int column) {
    size_t best = 0;
    for (size_t i = 1; i < table->rows; i++)
        if (row_of(table, i)[column] < row_of(table, best)[column])
            best = i;
    return best;
}

// An axis on which all values are one has no range of its own: gnuplot would say so each time.
static void open_range(FILE *gp, const char *axis, const report_table *table, int first_column, int last_column) {
    double low = row_of(table, 0)[first_column], high = low;
    for (size_t i = 0; i < table->rows; i++)
        for (int c = first_column; c <= last_column; c++) {
            low = fmin(low, row_of(table, i)[c]);
            high = fmax(high, row_of(table, i)[c]);
        }
    if (low < high)
        fprintf(gp, "set %srange [*:*]\n", axis);
    else
        fprintf(gp, "set %srange [%.17g:%.17g]\n", axis, low - 1, high + 1);
}

static void begin_section(const report *r, const char *heading, const char *path, const char *name) {
    html_element(r->page, "h2", heading);
    fprintf(r->page, "<p>From ");
    html_text(r->page, path);
    fprintf(r->page, "; as CSV in %s.csv.</p>\n", name);
}

// Every so many rows, and the last. `means` may be NULL.
static void write_numbers(const report *r, const char *caption, const report_table *table, const char *const *heads,
                          int columns, const double *means) {
    size_t step = every(table->rows, LINES_MAX);
    char text[160];
    snprintf(text, sizeof text, "%s: %zu of %zu rows", caption,
             (table->rows - 1) / step + 1 + ((table->rows - 1) % step > 0), table->rows);
    html_table_begin(r->page, text, heads, columns);
    for (size_t i = 0; i < table->rows;
         i = i + step < table->rows || i == table->rows - 1 ? i + step : table->rows - 1) {
        html_row_begin(r->page);
        for (int c = 0; c < table->columns; c++)
            html_number(r->page, c ? "%.6f" : "%.0f", row_of(table, i)[c]);
        if (means)
            html_number(r->page, "%.6f", means[i]);
    }
    html_table_end(r->page);
}

// --- the loss of each step ---

// The mean of the last `window` losses, of fewer at the beginning.
static void trailing_means(const report_table *losses, size_t window, double *means) {
    for (size_t i = 0; i < losses->rows; i++) {
        size_t count = i + 1 < window ? i + 1 : window;
        double sum = 0; // anew each time: one that is kept would gather errors of rounding
        for (size_t j = i + 1 - count; j <= i; j++)
            sum += row_of(losses, j)[1] / (double)count; // divided first: a sum of large losses must not overflow
        means[i] = sum;
    }
}

static bool write_losses_csv(const report *r, const report_table *losses, const double *means) {
    io_atomic *file = report_open(r, "loss", "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "step,loss,mean\n");
    for (size_t i = 0; i < losses->rows; i++) {
        fprintf(csv, "%.0f,", row_of(losses, i)[0]);
        report_number(csv, row_of(losses, i)[1]);
        putc(',', csv);
        report_number(csv, means[i]);
        putc('\n', csv);
    }
    return report_close(file, true);
}

static bool write_losses_script(const report *r, const report_table *losses, size_t window) {
    io_atomic *file = report_script(r, "loss", 900, 480);
    if (!file)
        return false;
    size_t step = every(losses->rows, POINTS_MAX);
    FILE *gp = io_atomic_stream(file);
    open_range(gp, "x", losses, 0, 0);
    open_range(gp, "y", losses, 1, 1);
    fprintf(
        gp,
        "set title 'Training loss by step' font large\n"
        "set xlabel 'step of the optimizer'\nset ylabel 'loss: mean cross-entropy of the batch (nats)'\n"
        "set grid\nset border 3\nset tics nomirror\nset key above right\n"
        "plot 'loss.csv' skip 1 every %zu using 1:2 with points pointtype 7 pointsize 0.35 linecolor rgb '%s' title ",
        step, REPORT_GREY);
    if (step == 1)
        fprintf(gp, "'loss of each step'");
    else
        fprintf(gp, "'loss of one step in %zu'", step);
    fprintf(
        gp,
        ", \\\n    '' skip 1 every %zu using 1:3 with lines linewidth 2 linecolor rgb '%s' title 'mean of the last %zu "
        "steps'\n",
        step, REPORT_BLUE, window);
    return report_close(file, true);
}

bool report_write_losses(const report *r, const char *path, const report_table *losses) {
    static const char *const heads[] = {"step", "loss (nats)", "mean (nats)"};
    size_t window = every(losses->rows, WINDOWS);
    window = window > WINDOW_MAX ? WINDOW_MAX : window;
    double *means = malloc(losses->rows * sizeof *means);
    char text[160];
    if (!means)
        return !cli_error("out of memory");
    trailing_means(losses, window, means);
    begin_section(r, "Training loss", path, "loss");
    bool good = write_losses_csv(r, losses, means) && write_losses_script(r, losses, window) &&
                report_draw(r, "loss", "The loss of each training step, and the mean of the last steps");
    if (good) {
        size_t best = lowest(losses, 1);
        snprintf(text, sizeof text,
                 "%zu steps; the lowest loss of one is %.6f, of step %.0f. Means are of the last %zu steps.",
                 losses->rows, row_of(losses, best)[1], row_of(losses, best)[0], window);
        html_element(r->page, "p", text);
        write_numbers(r, "Loss of a training step", losses, heads, 3, means);
    }
    free(means);
    return good;
}

// --- validation ---

static bool write_validation_csv(const report *r, const report_table *validation) {
    io_atomic *file = report_open(r, "validation", "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "step,loss,accuracy,macro_f1\n");
    for (size_t i = 0; i < validation->rows; i++)
        for (int c = 0; c < validation->columns; c++) {
            report_number(csv, row_of(validation, i)[c]);
            putc(c + 1 < validation->columns ? ',' : '\n', csv);
        }
    return report_close(file, true);
}

static bool write_validation_script(const report *r, const report_table *validation) {
    io_atomic *file = report_script(r, "validation", 900, 640);
    if (!file)
        return false;
    size_t best = lowest(validation, 1), step = every(validation->rows, POINTS_MAX);
    const char *with = validation->rows > 100 ? "lines" : "linespoints";
    FILE *gp = io_atomic_stream(file);
    fprintf(gp, "set multiplot layout 2,1\nset grid\nset border 3\nset tics nomirror\nset lmargin 11\nset rmargin 4\n"
                "set key above right\n");
    open_range(gp, "x", validation, 0, 0);
    open_range(gp, "y", validation, 1, 1);
    fprintf(gp,
            "set title 'Validation loss by step' font large\nset ylabel 'loss (nats)'\n"
            "plot 'validation.csv' skip 1 every %zu using 1:2 with %s linewidth 2 pointtype 7 pointsize 0.5 "
            "linecolor rgb '%s' title 'mean cross-entropy', \\\n"
            "    '' skip 1 every ::%zu::%zu using 1:2 with points pointtype 6 pointsize 1.6 linewidth 2 "
            "linecolor rgb '%s' title 'lowest: %.4f, step %.0f'\n",
            step, with, REPORT_BLUE, best, best, REPORT_ORANGE, row_of(validation, best)[1],
            row_of(validation, best)[0]);
    open_range(gp, "y", validation, 2, 3);
    fprintf(gp,
            "set title 'Macro-F1 and accuracy of the validation part by step' font large\n"
            "set xlabel 'step of the optimizer'\nset ylabel 'share (0 to 1)'\n"
            "plot 'validation.csv' skip 1 every %zu using 1:4 with %s linewidth 2 pointtype 7 pointsize 0.5 "
            "linecolor rgb '%s' title 'macro-F1', \\\n"
            "    '' skip 1 every %zu using 1:3 with %s linewidth 2 dashtype 2 pointtype 9 pointsize 0.6 "
            "linecolor rgb '%s' title 'accuracy'\n"
            "unset multiplot\n",
            step, with, REPORT_GREEN, step, with, REPORT_ORANGE);
    return report_close(file, true);
}

bool report_write_validation(const report *r, const char *path, const report_table *validation) {
    static const char *const heads[] = {"step", "loss (nats)", "accuracy", "macro-F1"};
    begin_section(r, "Validation", path, "validation");
    if (!write_validation_csv(r, validation) || !write_validation_script(r, validation) ||
        !report_draw(r, "validation", "Loss, macro-F1 and accuracy of the validation part as training goes on"))
        return false;
    const double *best = row_of(validation, lowest(validation, 1));
    char text[160];
    snprintf(text, sizeof text, "The lowest loss is %.6f, after step %.0f, with accuracy %.4f and macro-F1 %.4f.",
             best[1], best[0], best[2], best[3]);
    html_element(r->page, "p", text);
    write_numbers(r, "Figures of the validation part", validation, heads, 4, NULL);
    return true;
}
