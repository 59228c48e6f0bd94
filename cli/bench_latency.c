// How long a decision takes: one sample from host memory to its class in host memory, as a user who trades waits for
// it.
#include "cli/bench.h"

#include "parity/parity.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"flag", "event"};

// What `wait` waits for.
enum { FLAG, EVENT };

// The model, and what host and device both see.
typedef struct path {
    tlob_model *model;
    tlob_graph *graph;
    float *x, *logits;
    atomic_uint *flag; // the device sets it when the logits are there; the host clears it
    int64_t features;
} path;

static bool wait_for(const bench *b, const path *p, int what) {
    if (what == EVENT)
        return bench_cuda_spin(b->cuda);
    const double start = cli_seconds();
    while (!atomic_load_explicit(p->flag, memory_order_acquire))
        if (cli_seconds() - start > 10)
            return cli_error("bench: no result after 10 s"), false;
    return true;
}

// Microseconds from features in host memory to logits there.
static bool decide(const bench *b, path *p, int what, int64_t round, double *us) {
    atomic_store_explicit(p->flag, 0, memory_order_seq_cst);
    const double start = cli_seconds();
    for (int64_t i = 0; i < p->features; i++) // as a feed would write them
        p->x[i] = (float)((round + i) % 7) - 3.0f;
    if (tlob_graph_launch(p->graph, b->stream))
        return !cli_tlob_error("bench");
    bool good = wait_for(b, p, what);
    *us = 1e6 * (cli_seconds() - start);
    return good;
}

// The flag comes last, and its store after the end of all before it: the logits themselves may be stored in two steps.
static tlob_status enqueue(const bench *b, const path *p) {
    tlob_status status = tlob_model_predict(p->model, b->stream, p->x, 1, p->logits);
    return status ? status : tlob_fill(b->stream, p->flag, 1, sizeof *p->flag);
}

enum { LINE = 64 }; // floats between what host and device write, in cache lines of their own

static bool open_path(const bench *b, path *p) {
    tlob_model_params params = tlob_model_params_default();
    params.max_samples = 1;
    params.seed = b->options->seed;
    p->features = params.shape.d_in * params.shape.seq;
    void *host;
    if (!bench_cuda_mapped(((size_t)p->features + 3 * LINE) * sizeof(float), &host))
        return false;
    p->x = host;
    p->logits = p->x + (p->features + LINE - 1) / LINE * LINE;
    p->flag = (atomic_uint *)(void *)(p->logits + LINE);
    tlob_status status = tlob_model_create(b->stream, &params, &p->model);
    if (!status)
        status = enqueue(b, p); // makes it warm
    if (!status && !(status = tlob_graph_begin(b->stream))) {
        status = enqueue(b, p);
        tlob_status ended = tlob_graph_end(b->stream, &p->graph);
        status = status ? status : ended;
    }
    if (!status)
        status = tlob_stream_sync(b->stream);
    if (status)
        cli_tlob_error("bench");
    return !status;
}

static void close_path(path *p) {
    tlob_graph_destroy(&p->graph);
    tlob_model_destroy(&p->model);
    bench_cuda_unmap(p->x);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The smallest sample that is at least as large as this share of all: the nearest rank. The samples are sorted.
static double percentile(const double *samples, int count, double share) {
    int rank = (int)ceil(share * count);
    return samples[rank > 0 ? rank - 1 : 0];
}

static void report(const bench *b, double *samples, int count) {
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};
    bench_times times[2];
    for (int what = 0; what < 2; what++) {
        double *at = samples + (size_t)what * (size_t)count;
        times[what] = bench_summarize(at, count);
        qsort(at, (size_t)count, sizeof *at, compare_doubles);
    }
    cJSON *row = bench_report(b, "latency", 1, BENCH_WALL, names, times);
    for (int what = 0; what < 2; what++) {
        const char *name = what == FLAG ? "flag_percentiles" : "event_percentiles";
        cJSON *object = row ? cJSON_AddObjectToObject(row, name) : NULL;
        if (!row)
            printf("%-12s %s:", "", names[what]);
        for (int i = 0; i < 4; i++) {
            double us = percentile(samples + (size_t)what * (size_t)count, count, shares[i].share);
            if (object)
                bench_add_number(object, shares[i].name, us);
            else
                printf(" %s %.2f us%s", shares[i].name, us, i < 3 ? "," : "");
        }
        if (!row)
            printf(" (%d decisions)\n", count);
    }
}

bool bench_latency(bench *b) {
    enum { WARM_UP = 500 };
    const int repeat = b->options->repeat ? b->options->repeat : 20000;
    double *samples = malloc(2 * (size_t)repeat * sizeof *samples);
    path p = {0};
    bool good = samples != NULL || (cli_error("out of memory"), false);
    good = good && open_path(b, &p);
    for (int r = -WARM_UP; good && r < repeat; r++)
        for (int i = 0; good && i < 2; i++) {
            double us = 0;
            int what = r % 2 ? 1 - i : i;
            good = decide(b, &p, what, r, &us);
            if (r >= 0)
                samples[(size_t)what * (size_t)repeat + (size_t)r] = us;
        }
    if (good)
        report(b, samples, repeat);
    close_path(&p);
    free(samples);
    return good;
}
