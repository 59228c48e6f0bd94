// Maps of m by n: which method is the best for products of these sizes, one panel for each k.
#include "cli/gnuplot.h"
#include "cli/html.h"
#include "cli/report_tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// In pixels of the SVG.
enum { PANEL = 300, LEFT = 75, RIGHT = 20, ABOVE = 40, BELOW = 62, TITLE = 46, LEGEND_LINE = 24, LEGEND_PAD = 18 };
enum { COLUMNS = 3, PANELS_MAX = 12, TICS_MAX = 8, NUMBERED_MAX = 8, RULE = 64 };
#define CELL_MAX 2.0 // a cell reaches at most so far from its size, as a factor

// Okabe and Ito 2008, and whether text on it is white.
static const struct {
    const char *rgb;
    bool dark;
} colours[REPORT_CHOICES_MAX] = {{"#56b4e9", false}, {"#e69f00", false}, {"#009e73", true},  {"#cc79a7", false},
                                 {"#0072b2", true},  {"#d55e00", true},  {"#f0e442", false}, {"#999999", false}};

// Distinct sizes, from low to high.
typedef struct axis {
    int count;
    int64_t *size;
} axis;

typedef struct panel {
    int64_t k;
    int first, last; // rows of the map
    axis m, n;
} panel;

typedef struct size_map {
    const char *compute;
    const report_choices *choices;
    int shown[REPORT_CHOICES_MAX], n_shown; // choices that are in it
    int rows, panels, left_out;
    const cli_measured_problem **row; // by k, m and n, each once
    panel *panel;
} size_map;

// --- what is in it ---

static bool is_for(const cli_measured_problem *p, const char *compute) {
    return p->plain && p->batch == 1 && !strcmp(p->epilogue, "none") && !strcmp(p->compute, compute) &&
           p->chosen.method && p->m > 0 && p->n > 0 && p->k > 0;
}

static int compare_sizes(const void *a, const void *b) {
    const cli_measured_problem *x = *(const cli_measured_problem *const *)a;
    const cli_measured_problem *y = *(const cli_measured_problem *const *)b;
    const int64_t xs[] = {x->k, x->m, x->n}, ys[] = {y->k, y->m, y->n};
    for (int i = 0; i < 3; i++)
        if (xs[i] != ys[i])
            return xs[i] < ys[i] ? -1 : 1;
    return (x > y) - (x < y); // of two of the same sizes the first counts
}

static bool same_sizes(const cli_measured_problem *a, const cli_measured_problem *b) {
    return a->k == b->k && a->m == b->m && a->n == b->n;
}

static void add_size(axis *a, int64_t size) {
    int at = a->count;
    while (at > 0 && a->size[at - 1] > size)
        at--;
    if (at > 0 && a->size[at - 1] == size)
        return;
    memmove(a->size + at + 1, a->size + at, (size_t)(a->count - at) * sizeof *a->size);
    a->size[at] = size;
    a->count++;
}

// The axes of a panel; false where there is no memory.
static bool find_axes(const size_map *map, panel *p) {
    const size_t rows = (size_t)(p->last - p->first + 1);
    p->m.size = malloc(rows * sizeof *p->m.size);
    p->n.size = malloc(rows * sizeof *p->n.size);
    for (int i = p->first; p->m.size && p->n.size && i <= p->last; i++) {
        add_size(&p->m, map->row[i]->m);
        add_size(&p->n, map->row[i]->n);
    }
    return p->m.size && p->n.size;
}

static void free_panel(panel *p) {
    free(p->m.size);
    free(p->n.size);
}

// Keeps what has two sizes of either kind and four cells, and moves its rows to the front.
static bool find_panels(size_map *map) {
    const int all = map->rows;
    map->rows = 0;
    for (int first = 0, last; first < all; first = last + 1) {
        for (last = first; last + 1 < all && map->row[last + 1]->k == map->row[first]->k; last++)
            ;
        panel p = {.k = map->row[first]->k, .first = first, .last = last};
        if (!find_axes(map, &p)) {
            free_panel(&p);
            return !cli_error("out of memory");
        }
        const bool shown = p.m.count >= 2 && p.n.count >= 2 && last - first >= 3;
        if (!shown || map->panels == PANELS_MAX) {
            map->left_out += shown;
            free_panel(&p);
            continue;
        }
        memmove(map->row + map->rows, map->row + first, (size_t)(last - first + 1) * sizeof *map->row);
        p.first = map->rows;
        map->rows += last - first + 1;
        p.last = map->rows - 1;
        map->panel[map->panels++] = p;
    }
    return true;
}

static bool find_map(const cli_measurements *m, size_map *map) {
    map->row = malloc((size_t)m->count * sizeof *map->row);
    map->panel = calloc(PANELS_MAX, sizeof *map->panel);
    if (!map->row || !map->panel)
        return !cli_error("out of memory");
    for (int i = 0; i < m->count; i++)
        if (is_for(&m->problem[i], map->compute))
            map->row[map->rows++] = &m->problem[i];
    qsort(map->row, (size_t)map->rows, sizeof *map->row, compare_sizes);
    int kept = 0;
    for (int i = 0; i < map->rows; i++)
        if (!kept || !same_sizes(map->row[kept - 1], map->row[i]))
            map->row[kept++] = map->row[i];
    map->rows = kept;
    if (!find_panels(map))
        return false;
    for (int choice = 0; choice < map->choices->count; choice++)
        for (int i = 0; i < map->rows; i++)
            if (report_choice_of(map->choices, map->row[i]) == choice) {
                map->shown[map->n_shown++] = choice;
                break;
            }
    return true;
}

static void free_map(size_map *map) {
    for (int i = 0; i < map->panels; i++)
        free_panel(&map->panel[i]);
    free(map->panel);
    free(map->row);
}

// --- cells ---

typedef struct span {
    double low, high;
} span;

// The cell of a size reaches half-way to its neighbours, on a logarithmic axis.
static span cell_of(const axis *a, int64_t size) {
    int at = 0;
    while (a->size[at] != size)
        at++;
    const double here = (double)size;
    double down = at > 0 ? sqrt(here / (double)a->size[at - 1]) : 0;
    double up = at + 1 < a->count ? sqrt((double)a->size[at + 1] / here) : down;
    down = at > 0 ? down : up;
    return (span){here / fmin(down, CELL_MAX), here * fmin(up, CELL_MAX)};
}

static span span_of(const axis *a) {
    return (span){cell_of(a, a->size[0]).low, cell_of(a, a->size[a->count - 1]).high};
}

// Between the largest size below the rule and the next one; where all are on one side, the end of the axis there.
static double border_of(const axis *a) {
    int at = 0;
    while (at < a->count && a->size[at] < RULE)
        at++;
    return at == 0          ? span_of(a).low
           : at == a->count ? span_of(a).high
                            : sqrt((double)a->size[at - 1] * (double)a->size[at]);
}

static bool write_csv(const report *r, const char *name, const size_map *map) {
    io_atomic *file = report_open(r, name, "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    fprintf(csv, "k,m,n,m_low,m_high,n_low,n_high,number,choice,chosen,chosen_us,default,default_us,ratio\n");
    for (const panel *p = map->panel; p < map->panel + map->panels; p++)
        for (int i = p->first; i <= p->last; i++) {
            const cli_measured_problem *q = map->row[i];
            const span m = cell_of(&p->m, q->m), n = cell_of(&p->n, q->n);
            const double edges[] = {m.low, m.high, n.low, n.high};
            const int choice = report_choice_of(map->choices, q);
            fprintf(csv, "%" PRId64 ",%" PRId64 ",%" PRId64, q->k, q->m, q->n);
            for (int j = 0; j < 4; j++) {
                putc(',', csv);
                report_number(csv, edges[j]);
            }
            fprintf(csv, ",%d,\"%s\",\"%s\",", choice + 1, map->choices->list[choice].text, q->chosen.method);
            report_number(csv, q->chosen.us);
            fprintf(csv, ",\"%s\",", q->normal.method ? q->normal.method : "");
            if (q->normal.us > 0) {
                report_number(csv, q->normal.us);
                putc(',', csv);
                report_number(csv, q->normal.us / q->chosen.us);
            } else {
                putc(',', csv);
            }
            putc('\n', csv);
        }
    return report_close(file, true);
}

// --- the picture ---

typedef struct layout {
    int width, height, columns;
} layout;

static layout lay_out(const size_map *map) {
    const int columns = map->panels < COLUMNS ? map->panels : COLUMNS, rows = (map->panels + columns - 1) / columns;
    const int width = columns * (LEFT + PANEL + RIGHT);
    return (layout){width < 620 ? 620 : width,
                    TITLE + rows * (ABOVE + PANEL + BELOW) + LEGEND_PAD + (map->n_shown + 2) * LEGEND_LINE, columns};
}

// What the colours mean, below the panels; drawn with the first of them.
static void write_legend(FILE *gp, const size_map *map, layout l, const char *title) {
    const double width = l.width, height = l.height;
    int line = map->n_shown + 1;
    fprintf(gp, "set label 1 ");
    gnuplot_text(gp, title);
    fprintf(gp, " at screen 0.5,%.5f center font large\n", 1 - 22 / height);
    for (int i = 0; i < map->n_shown; i++, line--) {
        const double y = (line * LEGEND_LINE) / height;
        fprintf(gp,
                "set object %d rectangle from screen %.5f,%.5f to screen %.5f,%.5f fillcolor rgb '%s' fillstyle solid "
                "noborder\nset label %d ",
                i + 1, LEFT / width, y - 7 / height, (LEFT + 26) / width, y + 7 / height, colours[map->shown[i]].rgb,
                i + 2);
        gnuplot_text(gp, map->choices->list[map->shown[i]].text);
        fprintf(gp, " at screen %.5f,%.5f left\n", (LEFT + 36) / width, y);
    }
    const double y = line * LEGEND_LINE / height;
    fprintf(gp,
            "set arrow 1 from screen %.5f,%.5f to screen %.5f,%.5f nohead linewidth 3 linecolor rgb '#000000'\n"
            "set label %d 'default rule: cublas_classic where min(m, n, k) < %d, else cublaslt' at screen "
            "%.5f,%.5f left\n",
            LEFT / width, y, (LEFT + 26) / width, y, map->n_shown + 2, RULE, (LEFT + 36) / width, y);
}

static void forget_legend(FILE *gp, const size_map *map) {
    for (int i = 0; i < map->n_shown; i++)
        fprintf(gp, "unset object %d\n", i + 1);
    for (int i = 0; i < map->n_shown + 2; i++)
        fprintf(gp, "unset label %d\n", i + 1);
    fprintf(gp, "unset arrow 1\n");
}

static void write_axis(FILE *gp, char name, const axis *a) {
    const span s = span_of(a);
    const int step = (a->count + TICS_MAX - 1) / TICS_MAX;
    fprintf(gp, "set %crange [%.17g:%.17g]\nset %ctics (", name, s.low, s.high, name);
    for (int i = 0; i < a->count; i += step)
        fprintf(gp, "%s%" PRId64, i ? ", " : "", a->size[i]);
    fprintf(gp, ")\n");
}

// Where products of this k change from one backend to the other under the default rule: a corner.
static void write_border(FILE *gp, const panel *p) {
    const double m = border_of(&p->m), n = border_of(&p->n), m_high = span_of(&p->m).high, n_high = span_of(&p->n).high;
    const double lines[2][4] = {{n, m, n_high, m}, {n, m, n, m_high}};
    const bool inside[] = {m > span_of(&p->m).low, n > span_of(&p->n).low}; // else it is the frame
    fprintf(gp, "unset arrow 2\nunset arrow 3\n");
    if (p->k < RULE || m >= m_high || n >= n_high)
        return;
    for (int i = 0; i < 2; i++)
        if (inside[i])
            fprintf(gp,
                    "set arrow %d from %.17g,%.17g to %.17g,%.17g nohead front linewidth 3 linecolor rgb '#000000'\n",
                    i + 2, lines[i][0], lines[i][1], lines[i][2], lines[i][3]);
}

static void write_panel(FILE *gp, const char *name, const panel *p, int number, layout l) {
    const int column = number % l.columns, row = number / l.columns;
    const double x = column * (LEFT + PANEL + RIGHT) + LEFT, y = TITLE + row * (ABOVE + PANEL + BELOW) + ABOVE;
    fprintf(gp, "set lmargin at screen %.5f\nset rmargin at screen %.5f\n", x / l.width, (x + PANEL) / l.width);
    fprintf(gp, "set tmargin at screen %.5f\nset bmargin at screen %.5f\n", 1 - y / l.height,
            1 - (y + PANEL) / l.height);
    fprintf(gp, "set title 'k = %" PRId64 "%s'\n", p->k, p->k < RULE ? ": below the border" : "");
    write_axis(gp, 'x', &p->n);
    write_axis(gp, 'y', &p->m);
    write_border(gp, p);
    fprintf(gp,
            "plot '%s.csv' skip 1 every ::%d::%d using 3:2:6:7:4:5:(colour($8)) with boxxyerror fillstyle solid border "
            "linecolor rgb '#ffffff' linecolor rgb variable notitle",
            name, p->first, p->last);
    if (p->m.count <= NUMBERED_MAX && p->n.count <= NUMBERED_MAX)
        fprintf(gp,
                ", \\\n    '' skip 1 every ::%d::%d using 3:2:(label($14)):(ink($8)) with labels font small textcolor "
                "rgb variable notitle",
                p->first, p->last);
    fprintf(gp, "\n");
}

static bool write_script(const report *r, const char *name, const size_map *map, const char *title) {
    const layout l = lay_out(map);
    io_atomic *file = report_script(r, name, l.width, l.height);
    if (!file)
        return false;
    FILE *gp = io_atomic_stream(file);
    fprintf(gp, "array rgb[%d]\narray dark[%d]\n", REPORT_CHOICES_MAX, REPORT_CHOICES_MAX);
    for (int i = 0; i < REPORT_CHOICES_MAX; i++)
        fprintf(gp, "rgb[%d] = 0x%s\ndark[%d] = %d\n", i + 1, colours[i].rgb + 1, i + 1, colours[i].dark);
    fprintf(gp, "colour(i) = rgb[int(i)]\nink(i) = dark[int(i)] ? 0xffffff : 0x000000\n"
                "label(ratio) = ratio == ratio ? sprintf('%%.2f', ratio) : ''\n"
                "small = format eq 'png' ? ',17' : ',11'\n"
                "set logscale xy 2\nset tics out nomirror scale 0.5 font small\nset xlabel 'n'\nset ylabel 'm'\nset "
                "multiplot\n");
    write_legend(gp, map, l, title);
    for (int i = 0; i < map->panels; i++) {
        write_panel(gp, name, &map->panel[i], i, l);
        if (i == 0)
            forget_legend(gp, map);
    }
    fprintf(gp, "unset multiplot\n");
    return report_close(file, true);
}

static bool write_map(const report *r, const cli_measurements *m, const size_map *map) {
    char name[48], title[320], shows[512];
    snprintf(name, sizeof name, "map_%.32s", map->compute);
    snprintf(title, sizeof title, "The fastest method by size, %.32s, on %.160s (%s L2 cache)", map->compute, m->device,
             m->cold ? "cold" : "warm");
    snprintf(
        shows, sizeof shows,
        "The fastest method for products m x n x k in %.32s, without batch and epilogue; in the cells, where there "
        "is room, how many times as long the default policy's method takes. As CSV in %s.csv",
        map->compute, name);
    if (!write_csv(r, name, map) || !write_script(r, name, map, title) || !report_draw(r, name, shows))
        return false;
    if (map->left_out) {
        snprintf(shows, sizeof shows, "The map of %.32s has the %d lowest k, and not %d more.", map->compute,
                 map->panels, map->left_out);
        html_element(r->page, "p", shows);
    }
    return true;
}

// Whether the mode has not come before.
static bool is_new_mode(const cli_measurements *m, int problem) {
    const char *compute = m->problem[problem].compute;
    for (int i = 0; i < problem; i++)
        if (!strcmp(m->problem[i].compute, compute))
            return false;
    return true;
}

bool report_write_maps(const report *r, const cli_measurements *m, const report_choices *choices) {
    int drawn = 0;
    bool good = true;
    for (int i = 0; good && i < m->count; i++) {
        if (!is_new_mode(m, i))
            continue;
        size_map map = {.compute = m->problem[i].compute, .choices = choices};
        good = find_map(m, &map) && (!map.panels || write_map(r, m, &map));
        drawn += map.panels > 0;
        free_map(&map);
    }
    if (good && !drawn)
        html_element(r->page, "p", "There is no map: of no k were there problems of two m by two n.");
    return good;
}
