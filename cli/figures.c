#include "cli/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

const char *const cli_class_names[LOB_CLASSES] = {
    [LOB_UP] = "up", [LOB_STATIONARY] = "stationary", [LOB_DOWN] = "down"};

static int64_t true_count(const cli_figures *figures, int class_index) {
    int64_t count = 0;
    for (int j = 0; j < LOB_CLASSES; j++)
        count += figures->confusion[class_index][j];
    return count;
}

static int64_t predicted_count(const cli_figures *figures, int class_index) {
    int64_t count = 0;
    for (int i = 0; i < LOB_CLASSES; i++)
        count += figures->confusion[i][class_index];
    return count;
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

double cli_accuracy(const cli_figures *figures) {
    int64_t right = 0;
    for (int i = 0; i < LOB_CLASSES; i++)
        right += figures->confusion[i][i];
    return share((double)right, (double)figures->samples);
}

double cli_majority(const cli_figures *figures) {
    int64_t largest = 0;
    for (int i = 0; i < LOB_CLASSES; i++)
        largest = true_count(figures, i) > largest ? true_count(figures, i) : largest;
    return share((double)largest, (double)figures->samples);
}

cli_class_score cli_score(const cli_figures *figures, int class_index) {
    double right = (double)figures->confusion[class_index][class_index];
    double is = (double)true_count(figures, class_index), said = (double)predicted_count(figures, class_index);
    return (cli_class_score){share(right, said), share(right, is), share(2 * right, is + said)};
}

double cli_macro_f1(const cli_figures *figures) {
    double sum = 0, occurring = 0;
    for (int i = 0; i < LOB_CLASSES; i++) {
        sum += cli_score(figures, i).f1;
        occurring += true_count(figures, i) + predicted_count(figures, i) > 0;
    }
    return share(sum, occurring);
}

static int predicted_class(const float *logits) { // the lowest class wins a tie, as on the device
    int best = 0;
    for (int i = 1; i < LOB_CLASSES; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

// Evaluates one batch and adds what came out, weighted by its samples.
static bool add_batch(tlob_model *model, cli_feed *feed, const size_t *samples, int64_t count, float *device_logits,
                      float *logits, cli_figures *figures) {
    cli_batch batch;
    tlob_model_figures result;
    if (!cli_feed_upload(feed, samples, count, &batch))
        return false;
    if (tlob_model_evaluate(model, feed->stream, batch.x, batch.labels, count, device_logits) ||
        tlob_download(feed->stream, logits, device_logits, (size_t)count * LOB_CLASSES * sizeof(float)) ||
        tlob_model_result(model, feed->stream, &result)) {
        cli_tlob_error("evaluation");
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        figures->confusion[feed->data->label[samples[i]]][predicted_class(logits + LOB_CLASSES * i)]++;
    figures->samples += count;
    figures->loss += (double)count * (double)result.loss;
    figures->mean_max += (double)count * (double)result.mean_max;
    return true;
}

int64_t cli_evaluation_batch(int64_t seq) {
    int64_t samples = 65536 / seq;
    return samples < 1 ? 1 : samples > 1024 ? 1024 : samples;
}

bool cli_evaluate(tlob_model *model, cli_feed *feed, lob_range range, int64_t capacity, cli_figures *figures) {
    *figures = (cli_figures){0};
    size_t bytes = (size_t)capacity * LOB_CLASSES * sizeof(float);
    tlob_buffer *buffer = NULL;
    float *logits = malloc(bytes);
    size_t *samples = malloc((size_t)capacity * sizeof *samples);
    bool good = logits && samples && !tlob_buffer_create(tlob_stream_context(feed->stream), bytes, &buffer);
    if (!good)
        cli_error("out of memory for an evaluation of %" PRId64 " samples at a time", capacity);
    for (size_t begin = range.begin; good && begin < range.end;) {
        int64_t count = 0;
        while (count < capacity && begin < range.end)
            samples[count++] = begin++;
        good = add_batch(model, feed, samples, count, tlob_buffer_data(buffer), logits, figures);
    }
    figures->loss = share(figures->loss, (double)figures->samples);
    figures->mean_max = share(figures->mean_max, (double)figures->samples);
    tlob_buffer_destroy(&buffer);
    free(samples);
    free(logits);
    return good;
}

void cli_figures_print(const cli_figures *figures, FILE *out) {
    fprintf(out, "samples    %" PRId64 "\n", figures->samples);
    fprintf(out, "loss       %.6f\n", figures->loss);
    fprintf(out, "accuracy   %.4f\n", cli_accuracy(figures));
    fprintf(out, "macro_f1   %.4f\n", cli_macro_f1(figures));
    fprintf(out, "majority   %.4f\n", cli_majority(figures));
    fprintf(out, "mean_max   %.4f\n", figures->mean_max);
}

void cli_confusion_print(const cli_figures *figures, FILE *out) {
    fprintf(out, "class       precision  recall      f1\n");
    for (int i = 0; i < LOB_CLASSES; i++) {
        cli_class_score score = cli_score(figures, i);
        fprintf(out, "%-10s  %9.4f  %6.4f  %6.4f\n", cli_class_names[i], score.precision, score.recall, score.f1);
    }
    fprintf(out, "true \\ predicted%10s %10s %10s\n", cli_class_names[0], cli_class_names[1], cli_class_names[2]);
    for (int i = 0; i < LOB_CLASSES; i++)
        fprintf(out, "%-16s%10" PRId64 " %10" PRId64 " %10" PRId64 "\n", cli_class_names[i], figures->confusion[i][0],
                figures->confusion[i][1], figures->confusion[i][2]);
}
