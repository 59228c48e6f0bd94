// What the subjects of `tlob bench` share: the options, how two works are measured against each other, and how it is
// told.
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/bench_cuda.h"

#include <cjson/cJSON.h>

typedef struct bench_options {
    cli_context_options context;
    int subject;
    int repeat; // 0: not given
    uint64_t seed;
    bool json;
    tlob_mha_shape trunk; // what `trunk` is timed on,
    int64_t samples;      // of `trunk` and of `step`; 0: not given
    const char *of_trunk; // the last option given for `trunk` alone, or NULL
    const char *filter, *table; // of `gemm`, or NULL
} bench_options;

// What bounds a work from below on the device at hand. bench_floor.c measures both.
typedef struct bench_floors {
    double bytes_us;  // bytes that a copy reads and writes in a microsecond
    double kernel_us; // what a kernel that does nothing adds to a graph
} bench_floors;

// Of one call: bytes of inputs and outputs, each touched once, and kernels.
typedef struct bench_needs {
    int64_t bytes;
    int kernels;
} bench_needs;

typedef struct bench {
    const bench_options *options;
    tlob_context *ctx;
    bench_cuda *cuda; // NULL on a host context
    tlob_stream *stream;
    bench_floors floors; // of the subjects that are held against them, on a GPU
    cJSON *json, *rows;  // what is printed, and its results; NULL with a table
} bench;

// Microseconds.
typedef struct bench_times {
    double median, low, high; // low and high: the quartiles, or what else is said
} bench_times;

// Samples of each time.
int bench_repeat(const bench *b);

// Fills samples[work * bench_repeat(b) + repetition] with microseconds a call, each the mean of `calls` (of one with
// BENCH_WALL). False after printing why.
bool bench_measure(const bench *b, bench_mode mode, const bench_work *works, int n_works, int calls, double *samples);

// Median and quartiles; sorts the samples.
bench_times bench_summarize(double *samples, int count);

// The median of differences, second minus first, between neighbours in time, and the interval that holds it with 95 %
// confidence: between two order statistics, whatever the distribution (David and Nagaraja 2003, section 7.1). What
// drifts touches both of a pair. NAN where there is no memory.
bench_times bench_median_difference(const double *first, const double *second, int count);

// One line of the table, or one object of the JSON, which is returned (NULL with a table): two works, named, and the
// second over the first.
cJSON *bench_report(const bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                    const bench_times result[2]);

// The same, each work held against what it needs: shares of the floors, 1 at the floor.
cJSON *bench_report_needs(const bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                          const bench_times result[2], const bench_needs needs[2]);

// Measures the floors. False after printing why.
bool bench_floors_measure(bench *b);

// Adds a number with the digits that mean something, or median, low and high as one object.
void bench_add_number(cJSON *row, const char *name, double us);
void bench_add_times(cJSON *row, const char *name, bench_times times);

// Measures two works against each other, and reports: in one mode, or in every mode that the device has.
bool bench_compare_in(const bench *b, const char *what, int64_t n, bench_mode mode, const bench_work works[2],
                      const char *const names[2], int calls);
bool bench_compare(const bench *b, const char *what, int64_t n, const bench_work works[2], const char *const names[2],
                   int calls);

// The same in every mode, and on a GPU each work, of which `bytes` has those of inputs and outputs (NULL: neither), is
// held against the floors.
bool bench_compare_floors(const bench *b, const char *what, int64_t n, const bench_work works[2],
                          const char *const names[2], int calls, const int64_t *bytes);

// A buffer of `count` values like normalised order flow, or NULL after printing why.
tlob_buffer *bench_data(const bench *b, int64_t count, uint32_t salt);

// The subjects, each in a file of its own: they measure and report. False after printing why.
bool bench_gemm(bench *b);
bool bench_qkv(bench *b);
bool bench_block(bench *b);
bool bench_call(bench *b);
bool bench_trunk(bench *b);
bool bench_bias(bench *b);
bool bench_determinism(bench *b);
bool bench_step(bench *b);
bool bench_latency(bench *b);

#endif
