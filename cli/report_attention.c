// What the heads of a trained block attend to: computed over the validation part, and drawn.
#include "cli/figures.h"
#include "cli/html.h"
#include "cli/model_file.h"
#include "cli/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    HEADS_MAX = 64,      // more panels than can be told apart
    CELLS_MAX = 1 << 20, // of all heads
    PIXELS_MAX = 32,     // tokens up to which each cell of the SVG is a shape of its own, and not a pixel
    NUMBERED_MAX = 8,    // up to which its number is drawn in it,
    TABULATED_MAX = 16,  // and up to which it is in the page
};

// --- computing ---

// Adds P = softmax(q k^T / sqrt(head_dim)) of one head (Vaswani et al. 2017, section 3.2.1), in double; token t begins
// at t * stride.
static void add_attention(const float *q, const float *k, int64_t head_dim, int64_t stride, int64_t tokens, double *row,
                          double *p, double *mean_max) {
    for (int64_t i = 0; i < tokens; i++) {
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < tokens; j++) {
            row[j] = 0;
            for (int64_t d = 0; d < head_dim; d++)
                row[j] += (double)q[i * stride + d] * (double)k[j * stride + d];
            row[j] /= sqrt((double)head_dim);
            largest = row[j] > largest ? row[j] : largest;
        }
        for (int64_t j = 0; j < tokens; j++)
            sum += row[j] = exp(row[j] - largest);
        for (int64_t j = 0; j < tokens; j++)
            p[i * tokens + j] += row[j] / sum;
        *mean_max += 1 / sum;
    }
}

// Feature axis: each column is a set of tokens, head_dim rows each. Time axis: the seq columns of a sample are the
// tokens, and each group of head_dim rows is a head.
static void add_batch(report_attention *a, const float *q, const float *k, int64_t samples, double *row) {
    const tlob_block_shape *s = &a->shape;
    const int64_t cells = a->tokens * a->tokens;
    if (s->axis == TLOB_AXIS_FEATURE)
        for (int64_t c = 0; c < samples * s->seq; c++)
            add_attention(q + c * s->d_out, k + c * s->d_out, s->head_dim, s->head_dim, a->tokens, row, a->p,
                          a->mean_max);
    else
        for (int64_t i = 0; i < samples * a->heads; i++) {
            int64_t head = i % a->heads, at = i / a->heads * s->seq * s->d_out + head * s->head_dim;
            add_attention(q + at, k + at, s->head_dim, s->d_out, a->tokens, row, a->p + head * cells,
                          a->mean_max + head);
        }
    a->samples += samples;
}

typedef struct walk {
    tlob_stream *stream;
    tlob_block *block;
    tlob_buffer *weights, *y;
    cli_feed feed;
    int64_t capacity;
    size_t *samples;
    float *q, *k;
    double *row;
} walk;

static bool open_walk(walk *w, tlob_context *ctx, const cli_model_file *file, const lob_dataset *data,
                      const report_attention *a) {
    const tlob_block_shape *s = &file->shape;
    w->capacity = cli_evaluation_batch(s->seq);
    size_t bytes = (size_t)(w->capacity * s->seq * s->d_out) * sizeof(float);
    size_t weights = (size_t)tlob_block_weight_count(s) * sizeof(float);
    w->samples = malloc((size_t)w->capacity * sizeof *w->samples);
    w->q = malloc(bytes);
    w->k = malloc(bytes);
    w->row = malloc((size_t)a->tokens * sizeof *w->row);
    if (!w->samples || !w->q || !w->k || !w->row) {
        cli_error("out of memory");
        return false;
    }
    tlob_block_params params = {.shape = *s, .max_samples = w->capacity, .plan = TLOB_PLAN_COMPOSED}; // which keeps Q, K
    // The block's weights come first among those of a model.
    if (tlob_stream_create(ctx, &w->stream) || tlob_block_create_with(ctx, &params, &w->block) ||
        tlob_buffer_create(ctx, weights, &w->weights) || tlob_buffer_create(ctx, bytes, &w->y) ||
        tlob_upload(w->stream, tlob_buffer_data(w->weights), file->weights, weights)) {
        cli_tlob_error("making the block");
        return false;
    }
    return cli_feed_init(&w->feed, w->stream, data, w->capacity);
}

static void close_walk(walk *w) {
    cli_feed_finish(&w->feed);
    tlob_buffer_destroy(&w->y);
    tlob_buffer_destroy(&w->weights);
    tlob_block_destroy(&w->block);
    tlob_stream_close(&w->stream);
    free(w->row);
    free(w->k);
    free(w->q);
    free(w->samples);
}

static bool walk_batch(walk *w, int64_t count, report_attention *a) {
    cli_batch batch;
    tlob_block_state state;
    size_t bytes = (size_t)(count * a->shape.seq * a->shape.d_out) * sizeof(float);
    if (!cli_feed_upload(&w->feed, w->samples, count, &batch))
        return false;
    if (tlob_block_forward(w->block, w->stream, tlob_buffer_data(w->weights), batch.x, count, tlob_buffer_data(w->y)) ||
        tlob_block_get_state(w->block, &state) || tlob_download(w->stream, w->q, state.q, bytes) ||
        tlob_download(w->stream, w->k, state.k, bytes)) {
        cli_tlob_error("attention");
        return false;
    }
    add_batch(a, w->q, w->k, count, w->row);
    return true;
}

// Sums to means: over the samples, and on the feature axis over the events of each.
static bool finish_means(report_attention *a) {
    const int64_t cells = a->tokens * a->tokens;
    double sets = (double)a->samples * (a->shape.axis == TLOB_AXIS_FEATURE ? (double)a->shape.seq : 1);
    for (int64_t i = 0; i < a->heads * cells; i++) {
        a->p[i] /= sets;
        if (!isfinite(a->p[i])) {
            cli_error("%s: its attention is not finite on these files", a->path);
            return false;
        }
    }
    for (int64_t h = 0; h < a->heads; h++)
        a->mean_max[h] /= sets * (double)a->tokens;
    return true;
}

static bool compute(tlob_context *ctx, const cli_model_file *file, const lob_dataset *data, report_attention *a) {
    walk w = {0};
    bool good = open_walk(&w, ctx, file, data, a);
    for (size_t next = data->validation.begin; good && next < data->validation.end;) {
        int64_t count = 0;
        while (count < w.capacity && next < data->validation.end)
            w.samples[count++] = next++;
        good = walk_batch(&w, count, a);
    }
    close_walk(&w);
    return good && finish_means(a);
}

static bool measure_out(const cli_model_file *file, report_attention *a) {
    int64_t groups = file->shape.d_out / file->shape.head_dim;
    bool on_features = file->shape.axis == TLOB_AXIS_FEATURE;
    a->shape = file->shape;
    a->tokens = on_features ? groups : file->shape.seq;
    a->heads = on_features ? 1 : groups;
    if (a->heads > HEADS_MAX || a->tokens > CELLS_MAX || a->heads * a->tokens * a->tokens > CELLS_MAX) {
        cli_error("%s: %" PRId64 " heads of %" PRId64 " x %" PRId64
                  " tokens are too many to draw: at most %d heads, and "
                  "%d cells of all heads",
                  a->path, a->heads, a->tokens, a->tokens, HEADS_MAX, CELLS_MAX);
        return false;
    }
    a->p = calloc((size_t)(a->heads * a->tokens * a->tokens), sizeof *a->p);
    a->mean_max = calloc((size_t)a->heads, sizeof *a->mean_max);
    if (!a->p || !a->mean_max)
        cli_error("out of memory");
    return a->p && a->mean_max;
}

bool report_attention_compute(const cli_context_options *context, const cli_data_options *options, const char *path,
                              report_attention *attention) {
    cli_model_file file = {0};
    lob_dataset *data = NULL;
    *attention = (report_attention){.path = path};
    tlob_context *ctx = cli_context_create(context);
    bool good = ctx && cli_model_file_load(path, &file) && measure_out(&file, attention) &&
                (data = cli_model_file_samples(path, &file, options, false));
    if (good && data->validation.begin == data->validation.end)
        good = cli_error("there is no sample in the validation part: more rows are needed, or a model with a smaller "
                         "--train-share") == CLI_OK;
    good = good && compute(ctx, &file, data, attention);
    lob_dataset_destroy(&data);
    free(file.weights);
    tlob_context_destroy(&ctx);
    return good;
}

void report_attention_finish(report_attention *attention) {
    free(attention->mean_max);
    free(attention->p);
    *attention = (report_attention){0};
}

// --- writing ---

static bool write_csv(const report *r, const report_attention *a) {
    io_atomic *file = report_open(r, "attention", "csv");
    if (!file)
        return false;
    FILE *csv = io_atomic_stream(file);
    const double *p = a->p;
    fprintf(csv, "head,query,key,p\n");
    for (int64_t h = 1; h <= a->heads; h++)
        for (int64_t i = 1; i <= a->tokens; i++)
            for (int64_t j = 1; j <= a->tokens; j++) {
                fprintf(csv, "%" PRId64 ",%" PRId64 ",%" PRId64 ",", h, i, j);
                report_number(csv, *p++);
                putc('\n', csv);
            }
    return report_close(file, true);
}

static void write_panel(FILE *gp, const report_attention *a, int64_t head, double largest) {
    const int64_t cells = a->tokens * a->tokens, first = head * cells, last = first + cells - 1;
    if (a->heads > 1)
        fprintf(gp, "set title 'head %" PRId64 "'\n", head + 1);
    fprintf(gp, "plot 'attention.csv' skip 1 every ::%" PRId64 "::%" PRId64 " using 3:2:4 with image%s notitle", first,
            last, a->tokens <= PIXELS_MAX ? " pixels" : "");
    if (a->tokens <= NUMBERED_MAX)
        fprintf(gp,
                ", \\\n    '' skip 1 every ::%" PRId64 "::%" PRId64 " using 3:2:(sprintf('%%.2f', $4)):"
                "($4 > %.17g ? 0x000000 : 0xffffff) with labels textcolor rgb variable notitle",
                first, last, 0.6 * largest);
    fprintf(gp, "\n");
}

static double largest_of(const report_attention *a) {
    double largest = 0;
    for (int64_t i = 0; i < a->heads * a->tokens * a->tokens; i++)
        largest = fmax(largest, a->p[i]);
    return largest;
}

// One panel a head, with one scale of colours: viridis, which is even in lightness (van der Walt and Smith 2015).
static bool write_script(const report *r, const report_attention *a, const char *title) {
    int columns = (int)ceil(sqrt((double)a->heads)), rows = ((int)a->heads + columns - 1) / columns;
    int width = 120 + (columns < 2 ? 620 : 420 * columns), height = 80 + (rows < 2 ? 520 : 380 * rows);
    double largest = largest_of(a);
    io_atomic *file = report_script(r, "attention", width, height);
    if (!file)
        return false;
    FILE *gp = io_atomic_stream(file);
    fprintf(gp,
            "set palette defined (0 '#440154', 1 '#472d7b', 2 '#3b528b', 3 '#2c728e', 4 '#21918c', 5 '#28ae80', "
            "6 '#5ec962', 7 '#addc30', 8 '#fde725')\n"
            "set cbrange [0:%.17g]\nset size ratio 1\n"
            "set xrange [0.5:%" PRId64 ".5]\nset yrange [%" PRId64 ".5:0.5]\nset tics out nomirror\n"
            "set xlabel 'key token (attended to)'\nset ylabel 'query token'\n"
            "set multiplot layout %d,%d title '%s' font large\n",
            largest, a->tokens, a->tokens, rows, columns, title);
    if (a->heads == 1)
        fprintf(gp, "set cblabel 'mean attention P'\n"); // beside more than one there is no room for it
    if (a->tokens <= NUMBERED_MAX)
        fprintf(gp, "set xtics 1\nset ytics 1\n");
    for (int64_t h = 0; h < a->heads; h++)
        write_panel(gp, a, h, largest);
    fprintf(gp, "unset multiplot\n");
    return report_close(file, true);
}

static void write_focus(FILE *page, const report_attention *a) {
    static const char *const heads[] = {"head", "mean_max"};
    double mean = 0;
    html_table_begin(
        page, "Focus: the mean over all queries of the largest P (one over the tokens: uniform; 1: one-hot)", heads, 2);
    for (int64_t h = 0; h < a->heads; h++) {
        html_row_begin(page);
        html_number(page, "%" PRId64, h + 1);
        html_number(page, "%.4f", a->mean_max[h]);
        mean += a->mean_max[h] / (double)a->heads;
    }
    html_row_begin(page);
    html_cell(page, "all");
    html_number(page, "%.4f", mean);
    html_table_end(page);
}

static void write_matrix(FILE *page, const report_attention *a, int64_t head) {
    char caption[96], names[TABULATED_MAX + 1][24] = {"query"};
    const char *heads[TABULATED_MAX + 1] = {names[0]};
    const double *p = a->p + head * a->tokens * a->tokens;
    for (int64_t j = 1; j <= a->tokens; j++) {
        snprintf(names[j], sizeof names[j], "key %" PRId64, j);
        heads[j] = names[j];
    }
    snprintf(caption, sizeof caption, "Mean attention P of head %" PRId64, head + 1);
    html_table_begin(page, caption, heads, (int)a->tokens + 1);
    for (int64_t i = 0; i < a->tokens; i++) {
        html_row_begin(page);
        html_number(page, "%" PRId64, i + 1);
        for (int64_t j = 0; j < a->tokens; j++)
            html_number(page, "%.4f", p[i * a->tokens + j]);
    }
    html_table_end(page);
}

bool report_write_attention(const report *r, const report_attention *a) {
    const bool on_features = a->shape.axis == TLOB_AXIS_FEATURE;
    char text[512], title[160];
    snprintf(title, sizeof title, "Mean attention P over %" PRId64 " validation samples; tokens: %s", a->samples,
             on_features ? "groups of features" : "events");
    html_element(r->page, "h2", "Attention");
    fprintf(r->page, "<p>Of ");
    html_text(r->page, a->path);
    snprintf(text, sizeof text,
             "; as CSV in attention.csv. %" PRId64 " heads of %" PRId64 " x %" PRId64 " tokens, P = softmax(q k^T / "
             "sqrt(%" PRId64 ")), its mean over %" PRId64 " samples of the validation part. %s",
             a->heads, a->tokens, a->tokens, a->shape.head_dim, a->samples,
             on_features ? "A token is a group of rows of the projected features, in their order."
                         : "A token is an event of the sample, the oldest first.");
    html_text(r->page, text);
    fprintf(r->page, "</p>\n");
    if (!write_csv(r, a) || !write_script(r, a, title) ||
        !report_draw(r, "attention", "The mean attention from each query token to each key token, one panel a head"))
        return false;
    write_focus(r->page, a);
    for (int64_t h = 0; h < a->heads && a->tokens <= TABULATED_MAX; h++)
        write_matrix(r->page, a, h);
    return true;
}
