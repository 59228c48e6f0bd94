// `tlob bench`: microbenchmarks of the products of a TLOB block, and of the block.
#include "cli/bench.h"

#include "parity/parity.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define D_IN  32
#define D_OUT 16

typedef struct bench_options {
    cli_context_options context;
    int what;
    int repeat; // 0: not given
    uint64_t seed;
    bool json;
} bench_options;

enum { WHAT_NONE = -1, WHAT_QKV, WHAT_BLOCK, WHAT_CALL };
static const char *const what_names[] = {"qkv", "block", "call", NULL};

enum { KEY_REPEAT = CLI_KEY_OWN, KEY_SEED, KEY_JSON };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Measurement:", 2},
    {"repeat", KEY_REPEAT, "COUNT", 0, "Samples of each time (default 101 on a GPU, 11 on the host)", 2},
    {"seed", KEY_SEED, "NUMBER", 0, "Of the data (default 1)", 2},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of a table", 2},
    {0},
};

static const char doc[] =
    "Times matrix products and the block, in microseconds a call."
    "\vqkv: the three projections of a TLOB block (16 x N x 32 each), and their weight gradients (16 x 32 x N), as one "
    "strided-batched call and as three calls; N is 64, 256, 1024, 4096. The ratio is three calls over one.\n"
    "\n"
    "block: the block's forward pass alone, and forward and backward, on 256 and 65536 samples.\n"
    "\n"
    "call: what a warm call of tlob_gemm_run_on costs the host (a product of 16 x 256 x 32, read by the clock, without "
    "waiting for the device), against one bare call of cuBLAS or cuBLASLt with the same arguments. Needs a GPU.\n"
    "\n"
    "On a GPU each is timed with events, `stream' where calls are issued from the host one after the other, and "
    "`graph' "
    "where they are captured once and replayed. Each sample is the mean of several calls; those that are compared take "
    "turns. Shown are the median and, in brackets, the quartiles. With --device host the clock is read and there are "
    "no "
    "graphs.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    bench_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_REPEAT:
        options->repeat = (int)cli_integer(state, "--repeat", arg, 1, 1000000);
        return 0;
    case KEY_SEED:
        options->seed = (uint64_t)cli_integer(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->what != WHAT_NONE)
            argp_error(state, "unexpected argument '%s'", arg);
        options->what = cli_choice(state, "what to time", arg, what_names);
        return 0;
    case ARGP_KEY_END:
        if (options->what == WHAT_NONE)
            argp_error(state, "say what to time: qkv, block or call");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// --- measuring ---

typedef struct bench {
    const bench_options *options;
    tlob_context *ctx;
    bench_cuda *cuda; // NULL on a host context
    tlob_stream *stream;
    cJSON *rows;
} bench;

typedef struct times {
    double median, low, high; // low and high: the quartiles
} times;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static times summarize(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
    return (times){samples[count / 2], samples[count / 4], samples[count - 1 - count / 4]};
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

// Times two works against each other.
static bool measure(bench *b, bench_mode mode, const bench_work works[2], int calls, times result[2]) {
    bench_plan plan = {.repeat = b->options->repeat, .calls = calls, .warm_up = 5, .n_works = 2, .works = works};
    if (!plan.repeat)
        plan.repeat = b->cuda ? 101 : 11;
    if (!b->cuda)
        plan.warm_up = 1;
    double *samples = malloc(2 * (size_t)plan.repeat * sizeof *samples);
    if (!samples) {
        cli_error("out of memory");
        return false;
    }
    bool good = mode == BENCH_WALL ? measure_wall(b->stream, &plan, samples)
                                   : bench_cuda_measure(b->cuda, b->stream, mode, &plan, samples);
    for (int i = 0; good && i < 2; i++)
        result[i] = summarize(samples + i * plan.repeat, plan.repeat);
    free(samples);
    return good;
}

static const char *const mode_names[] = {"stream", "graph", "wall"};

static double thousandths(double value) { // so that JSON shows no digits that mean nothing
    return round(value * 1000) / 1000;
}

static void add_times(cJSON *row, const char *name, times t) {
    cJSON *object = cJSON_AddObjectToObject(row, name);
    cJSON_AddNumberToObject(object, "median_us", thousandths(t.median));
    cJSON_AddNumberToObject(object, "low_us", thousandths(t.low));
    cJSON_AddNumberToObject(object, "high_us", thousandths(t.high));
}

// One line of the table, or one object of the JSON: two works, named, and the second over the first.
static void report(bench *b, const char *what, int64_t n, bench_mode mode, const char *const names[2],
                   const times result[2]) {
    double ratio = result[1].median / result[0].median;
    if (b->options->json) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "what", what);
        cJSON_AddNumberToObject(row, "n", (double)n);
        cJSON_AddStringToObject(row, "mode", mode_names[mode]);
        add_times(row, names[0], result[0]);
        add_times(row, names[1], result[1]);
        cJSON_AddNumberToObject(row, "ratio", thousandths(ratio));
        cJSON_AddItemToArray(b->rows, row);
        return;
    }
    printf("%-12s %7" PRId64 "  %-6s", what, n, mode_names[mode]);
    for (int i = 0; i < 2; i++)
        printf("  %10.2f [%.2f %.2f]", result[i].median, result[i].low, result[i].high);
    printf("  %6.2f\n", ratio);
    fflush(stdout);
}

// Both works in every mode that the device has.
static bool compare(bench *b, const char *what, int64_t n, const bench_work works[2], const char *const names[2],
                    int calls) {
    bench_mode first = b->cuda ? BENCH_STREAM : BENCH_WALL, last = b->cuda ? BENCH_GRAPH : BENCH_WALL;
    for (bench_mode mode = first; mode <= last; mode++) {
        times result[2];
        if (!measure(b, mode, works, b->cuda ? calls : 1, result))
            return false;
        report(b, what, n, mode, names, result);
    }
    return true;
}

// A buffer of `count` values like normalised order flow, or NULL after printing why.
static tlob_buffer *make_data(bench *b, int64_t count, uint32_t salt) {
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

// --- qkv ---

typedef struct products {
    tlob_gemm gemm;
    const float *a, *b;
    float *d;
} products;

static tlob_status run_batched(const void *user, tlob_stream *stream) {
    const products *p = user;
    return tlob_gemm_run(stream, &p->gemm, &(tlob_gemm_operands){.a = p->a, .b = p->b, .d = p->d});
}

static tlob_status run_single(const void *user, tlob_stream *stream) {
    const products *p = user;
    tlob_gemm gemm = p->gemm;
    gemm.batch = 1;
    tlob_status status = TLOB_OK;
    for (int64_t i = 0; i < p->gemm.batch && !status; i++) {
        tlob_gemm_operands x = {
            .a = p->a + i * gemm.stride_a, .b = p->b + i * gemm.stride_b, .d = p->d + i * gemm.stride_c};
        status = tlob_gemm_run(stream, &gemm, &x);
    }
    return status;
}

static bool compare_products(bench *b, const char *what, int64_t n, const products *p) {
    static const char *const names[] = {"one_call", "three_calls"};
    const bench_work works[] = {{run_batched, p}, {run_single, p}};
    return compare(b, what, n, works, names, 20);
}

static bool bench_qkv_at(bench *b, int64_t n) {
    tlob_buffer *x = make_data(b, D_IN * n, 0), *w = make_data(b, 3 * D_OUT * D_IN, 1),
                *q = make_data(b, 3 * D_OUT * n, 2);
    bool good = x && w && q;
    if (good) {
        products forward = {tlob_gemm_init(D_OUT, n, D_IN), tlob_buffer_data(w), tlob_buffer_data(x),
                            tlob_buffer_data(q)};
        forward.gemm.batch = 3;
        forward.gemm.stride_a = D_OUT * D_IN;
        forward.gemm.stride_c = D_OUT * n;
        products backward = {tlob_gemm_init(D_OUT, D_IN, n), tlob_buffer_data(q), tlob_buffer_data(x),
                             tlob_buffer_data(w)};
        backward.gemm.transb = TLOB_OP_T;
        backward.gemm.ldb = D_IN;
        backward.gemm.batch = 3;
        backward.gemm.stride_a = D_OUT * n;
        backward.gemm.stride_c = D_OUT * D_IN;
        good = compare_products(b, "qkv_forward", n, &forward) && compare_products(b, "qkv_dw", n, &backward);
    }
    tlob_buffer_destroy(&q);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&x);
    return good;
}

static bool bench_qkv(bench *b) {
    static const int64_t sizes[] = {64, 256, 1024, 4096};
    for (int i = 0; i < 4; i++)
        if (!bench_qkv_at(b, sizes[i]))
            return false;
    return true;
}

// --- block ---

typedef struct passes {
    tlob_block *block;
    int64_t n;
    const float *weights, *x, *dy;
    float *y, *dweights;
} passes;

static tlob_status run_forward(const void *user, tlob_stream *stream) {
    const passes *p = user;
    return tlob_block_forward(p->block, stream, p->weights, p->x, p->n, p->y);
}

static tlob_status run_both(const void *user, tlob_stream *stream) {
    const passes *p = user;
    tlob_status status = run_forward(user, stream);
    return status ? status : tlob_block_backward(p->block, stream, p->weights, p->x, p->dy, p->n, p->dweights, NULL);
}

static bool bench_block_at(bench *b, int64_t n) {
    static const char *const names[] = {"forward", "forward_and_backward"};
    tlob_block_shape shape = tlob_block_shape_default();
    int64_t weights = tlob_block_weight_count(&shape);
    tlob_buffer *x = make_data(b, D_IN * n, 0), *y = make_data(b, D_OUT * n, 1), *dy = make_data(b, D_OUT * n, 2);
    tlob_buffer *w = make_data(b, weights, 3), *dw = make_data(b, weights, 4);
    tlob_block *block = NULL;
    bool good = x && y && dy && w && dw;
    if (good && (tlob_block_create(b->ctx, &shape, n, &block) ||
                 tlob_block_init_weights(b->stream, &shape, b->options->seed, tlob_buffer_data(w)))) {
        cli_tlob_error("bench");
        good = false;
    }
    if (good) {
        passes p = {block,
                    n,
                    tlob_buffer_data(w),
                    tlob_buffer_data(x),
                    tlob_buffer_data(dy),
                    tlob_buffer_data(y),
                    tlob_buffer_data(dw)};
        const bench_work works[] = {{run_forward, &p}, {run_both, &p}};
        good = compare(b, "block", n, works, names, n > 4096 ? 5 : 20);
    }
    tlob_block_destroy(&block);
    tlob_buffer_destroy(&dw);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&dy);
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    return good;
}

static bool bench_block(bench *b) {
    return bench_block_at(b, 256) && bench_block_at(b, 65536);
}

// --- call ---

typedef struct warm_call {
    const char *backend;
    tlob_gemm gemm;
    tlob_gemm_operands x;
} warm_call;

static tlob_status run_warm(const void *user, tlob_stream *stream) {
    const warm_call *call = user;
    return tlob_gemm_run_on(stream, call->backend, &call->gemm, &call->x);
}

// Microseconds of host time a call. The device is waited for between samples, so that its queue is never full.
static bool time_calls(bench *b, const bench_work *work, int calls, double *us) {
    tlob_status status = TLOB_OK;
    double start = cli_seconds();
    for (int i = 0; i < calls && !status; i++)
        status = work->enqueue(work->user, b->stream);
    *us = 1e6 * (cli_seconds() - start) / calls;
    if (!status && !(status = tlob_stream_sync(b->stream)))
        return true;
    cli_error("bench: a call failed: %s", tlob_status_name(status));
    return false;
}

// The median of differences between neighbours in time, and the interval that holds it with 95 % confidence: between two
// order statistics, whatever the distribution (David and Nagaraja 2003, section 7.1). What drifts touches both of a pair.
static times median_difference(const double *first, const double *second, int count) {
    double *differences = malloc((size_t)count * sizeof *differences);
    if (!differences)
        return (times){NAN, NAN, NAN};
    for (int i = 0; i < count; i++)
        differences[i] = second[i] - first[i];
    qsort(differences, (size_t)count, sizeof *differences, compare_doubles);
    int half_width = (int)ceil(0.98 * sqrt(count)), low = count / 2 - half_width, high = count / 2 + half_width;
    times t = {differences[count / 2], differences[low > 0 ? low : 0], differences[high < count ? high : count - 1]};
    free(differences);
    return t;
}

static bool compare_calls(bench *b, const char *what, const bench_work works[2]) {
    enum { CALLS = 20, WARM_UP = 20 };
    static const char *const names[] = {"bare", "libtlob"};
    int repeat = b->options->repeat ? b->options->repeat : 4001;
    double *samples = malloc(2 * (size_t)repeat * sizeof *samples);
    bool good = samples != NULL;
    size_t heap = 0;
    for (int r = -WARM_UP; good && r < repeat; r++) {
        if (r == 0)
            heap = mallinfo2().uordblks;
        for (int i = 0; good && i < 2; i++) {
            int work = r % 2 ? 1 - i : i;
            double us;
            good = time_calls(b, &works[work], CALLS, &us);
            if (r >= 0)
                samples[work * repeat + r] = us;
        }
    }
    size_t grown = mallinfo2().uordblks - heap;
    times result[2], more = {0};
    if (good)
        more = median_difference(samples, samples + repeat, repeat);
    for (int i = 0; good && i < 2; i++)
        result[i] = summarize(samples + i * repeat, repeat);
    free(samples);
    if (!good)
        return false;
    report(b, what, D_IN * 8, BENCH_WALL, names, result);
    if (b->options->json) {
        cJSON *row = cJSON_GetArrayItem(b->rows, cJSON_GetArraySize(b->rows) - 1);
        cJSON_AddNumberToObject(row, "heap_growth_bytes", (double)grown);
        cJSON_AddNumberToObject(row, "more_us", more.median);
    } else {
        printf("%-12s libtlob costs %.3f us more, 95 %% confidence [%.3f %.3f], %d pairs; the heap grew by %zu bytes\n", "",
               more.median, more.low, more.high, repeat, grown);
    }
    return true;
}

static bool bench_call(bench *b) {
    const int64_t n = D_IN * 8;
    if (!b->cuda) {
        cli_error("bench call compares with cuBLAS, and so needs a GPU");
        return false;
    }
    tlob_settings settings;
    tlob_context_settings(b->ctx, &settings);
    tlob_buffer *w = make_data(b, D_OUT * D_IN, 0), *x = make_data(b, D_IN * n, 1), *q = make_data(b, D_OUT * n, 2);
    bench_bare *bare = NULL;
    bool good = w && x && q;
    if (good) {
        tlob_gemm gemm = tlob_gemm_init(D_OUT, n, D_IN);
        gemm.compute = settings.compute;
        const tlob_gemm_operands operands = {.a = tlob_buffer_data(w), .b = tlob_buffer_data(x),
                                             .d = tlob_buffer_data(q)};
        const warm_call classic = {"cublas_classic", gemm, operands}, lt = {"cublaslt", gemm, operands};
        good = bench_bare_open(b->cuda, &gemm, operands.a, operands.b, operands.d, &bare) &&
               compare_calls(b, "classic", (bench_work[2]){{bench_bare_classic, bare}, {run_warm, &classic}}) &&
               compare_calls(b, "cublaslt", (bench_work[2]){{bench_bare_lt, bare}, {run_warm, &lt}});
    }
    bench_bare_close(&bare);
    tlob_buffer_destroy(&q);
    tlob_buffer_destroy(&x);
    tlob_buffer_destroy(&w);
    return good;
}

// --- around it ---

static bool bench_open(bench *b) {
    if (tlob_context_memory(b->ctx) == TLOB_MEMORY_CUDA && !bench_cuda_open(tlob_context_device(b->ctx), &b->cuda))
        return false;
    if (!tlob_stream_open(b->ctx, b->cuda ? bench_cuda_stream(b->cuda) : NULL, &b->stream))
        return true;
    cli_tlob_error("bench");
    return false;
}

// What the numbers depend on.
static void describe(bench *b, cJSON *json) {
    static const char *const first[] = {"one call", "forward", "bare"};
    static const char *const second[] = {"three calls", "forward and backward", "libtlob"};
    char device[192], policy[64], cublas[64] = "none";
    tlob_settings settings;
    int driver, runtime;
    cli_context_describe(b->ctx, device, sizeof device);
    tlob_cuda_versions(&driver, &runtime);
    tlob_context_settings(b->ctx, &settings);
    tlob_policy_print(&settings.policy, policy, sizeof policy);
    tlob_backend_info info;
    for (int i = 0; i < tlob_backend_count(); i++)
        if (!tlob_backend_get_info(i, &info) && *info.version)
            snprintf(cublas, sizeof cublas, "%s", info.version);
    const char *keys[] = {"version", "device", "compute", "policy", "vendor"};
    const char *values[] = {tlob_version(), device, tlob_compute_name(settings.compute), policy, cublas};
    for (int i = 0; i < 5; i++)
        if (json)
            cJSON_AddStringToObject(json, keys[i], values[i]);
        else
            printf("%-9s%s\n", keys[i], values[i]);
    if (json) {
        cJSON_AddNumberToObject(json, "driver", driver);
        cJSON_AddNumberToObject(json, "runtime", runtime);
        cJSON_AddNumberToObject(json, "seed", (double)b->options->seed);
        return;
    }
    printf("CUDA     driver %d, runtime %d\nseed     %" PRIu64 "\n", driver, runtime, b->options->seed);
    if (!b->cuda)
        printf("Timed on the host by the clock: this says nothing about a GPU.\n");
    printf("%-12s %7s  %-6s  %s, then %s: median [quartiles] in us  ratio\n", "what", "N", "mode",
           first[b->options->what], second[b->options->what]);
}

static int run_bench(bench *b) {
    cJSON *json = b->options->json ? cJSON_CreateObject() : NULL;
    describe(b, json);
    if (json)
        b->rows = cJSON_AddArrayToObject(json, "results");
    static bool (*const run[])(bench *) = {bench_qkv, bench_block, bench_call};
    bool good = run[b->options->what](b);
    char *text = good && json ? cJSON_Print(json) : NULL;
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return good ? CLI_OK : CLI_FAILED;
}

int cli_bench(int argc, char **argv) {
    bench_options options = {.what = WHAT_NONE, .seed = 1};
    const struct argp argp = {own_options, parse, "WHAT", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    bench b = {.options = &options, .ctx = cli_context_create(&options.context)};
    int status = b.ctx && bench_open(&b) ? run_bench(&b) : CLI_FAILED;
    tlob_stream_close(&b.stream);
    bench_cuda_close(&b.cuda);
    tlob_context_destroy(&b.ctx);
    return status;
}
