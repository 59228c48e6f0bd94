// How the subjects of `tlob bench` are measured and reported.
#include "cli/bench.h"

#include "parity/parity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// --- measuring ---

int bench_repeat(const bench *b) {
    return b->options->repeat ? b->options->repeat : b->cuda ? 101 : 11;
}

static bool measure_wall(tlob_stream *stream, const bench_plan *plan, double *samples) {
    for (int r = -plan->warm_up; r < plan->repeat; r++)
        for (int i = 0; i < plan->n_works; i++) {
            const bench_work *work = &plan->works[i];
            double start = cli_seconds();
            for (int call = 0; call < plan->calls; call++)
                if (work->enqueue(work->user, stream)) {
                    cli_tlob_error("bench");
                    return false;
                }
            if (r >= 0)
                samples[i * plan->repeat + r] = 1e6 * (cli_seconds() - start) / plan->calls;
        }
    return true;
}

bool bench_measure(const bench *b, bench_mode mode, const bench_work *works, int n_works, int calls, double *samples) {
    const bench_plan plan = {.repeat = bench_repeat(b),
                             .calls = mode == BENCH_WALL ? 1 : calls,
                             .warm_up = mode == BENCH_WALL ? 1 : 5,
                             .n_works = n_works,
                             .works = works};
    return mode == BENCH_WALL ? measure_wall(b->stream, &plan, samples)
                              : bench_cuda_measure(b->cuda, b->stream, mode, &plan, samples);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_times bench_summarize(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
    return (bench_times){samples[count / 2], samples[count / 4], samples[count - 1 - count / 4]};
}

bench_times bench_median_difference(const double *first, const double *second, int count) {
    double *differences = malloc((size_t)count * sizeof *differences);
    if (!differences)
        return (bench_times){NAN, NAN, NAN};
    for (int i = 0; i < count; i++)
        differences[i] = second[i] - first[i];
    qsort(differences, (size_t)count, sizeof *differences, compare_doubles);
    int half_width = (int)ceil(0.98 * sqrt(count)), low = count / 2 - half_width, high = count / 2 + half_width;
    bench_times t = {differences[count / 2], differences[low > 0 ? low : 0],
                     differences[high < count ? high : count - 1]};
    free(differences);
    return t;
}

// --- reporting ---

static const char *const mode_names[] = {"stream", "graph", "wall"};

void bench_add_number(cJSON *row, const char *name, double us) {
    cJSON_AddNumberToObject(row, name, round(us * 1000) / 1000);
}

void bench_add_times(cJSON *row, const char *name, bench_times times) {
    cJSON *object = cJSON_AddObjectToObject(row, name);
    bench_add_number(object, "median_us", times.median);
    bench_add_number(object, "low_us", times.low);
    bench_add_number(object, "high_us", times.high);
}

static double byte_share(const bench *b, double us, bench_needs needs) {
    return (double)needs.bytes / b->floors.bytes_us / us;
}

static double launch_share(const bench *b, double us, bench_needs needs) {
    return needs.kernels * b->floors.kernel_us / us;
}

static void add_needs(const bench *b, cJSON *work, double us, bench_needs needs) {
    cJSON_AddNumberToObject(work, "bytes", (double)needs.bytes);
    cJSON_AddNumberToObject(work, "kernels", needs.kernels);
    cJSON_AddNumberToObject(work, "byte_share", round(1e6 * byte_share(b, us, needs)) / 1e6);
    cJSON_AddNumberToObject(work, "launch_share", round(1e6 * launch_share(b, us, needs)) / 1e6);
}

static cJSON *report_row(const bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                         const bench_times result[2], const bench_needs *needs, double ratio) {
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "what", what);
    cJSON_AddNumberToObject(row, "n", (double)n);
    cJSON_AddStringToObject(row, "mode", mode_names[mode]);
    for (int i = 0; i < 2; i++) {
        bench_add_times(row, names[i], result[i]);
        if (needs)
            add_needs(b, cJSON_GetObjectItemCaseSensitive(row, names[i]), result[i].median, needs[i]);
    }
    bench_add_number(row, "ratio", ratio);
    cJSON_AddItemToArray(b->rows, row);
    return row;
}

cJSON *bench_report_needs(const bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                          const bench_times result[2], const bench_needs needs[2]) {
    double ratio = result[1].median / result[0].median;
    if (b->options->json)
        return report_row(b, what, n, mode, names, result, needs, ratio);
    printf("%-12s %7" PRId64 "  %-6s", what, n, mode_names[mode]);
    for (int i = 0; i < 2; i++)
        printf("  %10.2f [%.2f %.2f]", result[i].median, result[i].low, result[i].high);
    printf("  %6.2f", ratio);
    if (needs)
        printf("  bytes %.2g%% %.2g%%  launches %.0f%% %.0f%% (%d, %d kernels)",
               100 * byte_share(b, result[0].median, needs[0]), 100 * byte_share(b, result[1].median, needs[1]),
               100 * launch_share(b, result[0].median, needs[0]), 100 * launch_share(b, result[1].median, needs[1]),
               needs[0].kernels, needs[1].kernels);
    printf("\n");
    fflush(stdout);
    return NULL;
}

cJSON *bench_report(const bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                    const bench_times result[2]) {
    return bench_report_needs(b, what, n, mode, names, result, NULL);
}

// `bytes` may be NULL: no floors then. Works are warm once they have been measured, as counting their kernels needs it.
static bool compare_in(const bench *b, const char *what, int64_t n, bench_mode mode, const bench_work works[2],
                       const char *const names[2], int calls, const int64_t *bytes) {
    const int repeat = bench_repeat(b);
    double *samples = malloc(2 * (size_t)repeat * sizeof *samples);
    bool good = samples != NULL;
    if (!good)
        cli_error("out of memory");
    good = good && bench_measure(b, mode, works, 2, calls, samples);
    bench_needs needs[2] = {{0}};
    for (int i = 0; good && bytes && i < 2; i++) {
        needs[i].bytes = bytes[i];
        good = bench_cuda_count(b->cuda, b->stream, &works[i], &needs[i].kernels);
    }
    if (good) {
        const bench_times result[] = {bench_summarize(samples, repeat), bench_summarize(samples + repeat, repeat)};
        bench_report_needs(b, what, n, mode, names, result, bytes ? needs : NULL);
    }
    free(samples);
    return good;
}

bool bench_compare_in(const bench *b, const char *what, int64_t n, bench_mode mode, const bench_work works[2],
                      const char *const names[2], int calls) {
    return compare_in(b, what, n, mode, works, names, calls, NULL);
}

bool bench_compare_floors(const bench *b, const char *what, int64_t n, const bench_work works[2],
                          const char *const names[2], int calls, const int64_t *bytes) {
    if (!b->cuda)
        return compare_in(b, what, n, BENCH_WALL, works, names, calls, NULL);
    return compare_in(b, what, n, BENCH_STREAM, works, names, calls, bytes) &&
           compare_in(b, what, n, BENCH_GRAPH, works, names, calls, bytes);
}

bool bench_compare(const bench *b, const char *what, int64_t n, const bench_work works[2], const char *const names[2],
                   int calls) {
    return bench_compare_floors(b, what, n, works, names, calls, NULL);
}

// --- for all subjects ---

tlob_buffer *bench_data(const bench *b, int64_t count, uint32_t salt) {
    tlob_buffer *buffer = NULL;
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = parity_fill_value(PARITY_ORDER_FLOW, b->options->seed, salt, i, count);
    if (!values)
        cli_error("out of memory");
    else if (tlob_buffer_create(b->ctx, (size_t)count * sizeof *values, &buffer) ||
             tlob_upload(b->stream, tlob_buffer_data(buffer), values, (size_t)count * sizeof *values)) {
        cli_tlob_error("bench");
        tlob_buffer_destroy(&buffer);
    }
    free(values);
    return buffer;
}
