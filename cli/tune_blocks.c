// Each block is made twice, once with each plan, on the same weights, input and gradient. A result is checked before
// anything is timed: Y of the first samples against the oracle's, and the gradients of the weights, which are sums over
// all samples, of one plan against the other's. Then the plans take turns, each as a graph of some calls.
#include "cli/tune_blocks.h"
#include "cli/tune_run.h"

#include "parity/parity.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { X, DY, WEIGHTS, Y, DW = Y + 2, ARRAYS = DW + 2 }; // Y and DW: one for each plan
enum { CHECKED = 1024 };                                  // samples that the oracle computes, at most

static const tlob_block_plan plans[2] = {TLOB_PLAN_COMPOSED, TLOB_PLAN_FUSED};
static const int64_t numbers[] = {1, 64, 256, 1024, 4096, 16384, 65536, 1048576}; // of samples

typedef struct arena arena;

// One plan of the block.
typedef struct contender {
    const arena *in;
    int which;
    tlob_block *block;
    bench_graph *graph;
    double us; // of a call
} contender;

struct arena {
    const tune_lab *lab;
    tlob_block_params params;
    char name[64];
    int64_t floats[ARRAYS];
    tlob_buffer *array[ARRAYS];
    contender contender[2];
};

static float *at(const arena *a, int array) {
    return tlob_buffer_data(a->array[array]);
}

static tlob_status run(const void *user, tlob_stream *stream) {
    const contender *c = user;
    const arena *a = c->in;
    const int64_t n = a->params.max_samples;
    tlob_status status = tlob_block_forward(c->block, stream, at(a, WEIGHTS), at(a, X), n, at(a, Y + c->which));
    if (!status && !a->params.inference)
        status = tlob_block_backward(c->block, stream, at(a, WEIGHTS), at(a, X), at(a, DY), n, at(a, DW + c->which),
                                     NULL);
    return status;
}

// --- arrays and blocks ---

static bool fill(const arena *a, int array) {
    const int64_t count = a->floats[array];
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = parity_fill_value(PARITY_ORDER_FLOW, a->lab->seed, (uint32_t)array, i, count);
    bool good = values != NULL;
    if (!good)
        cli_error("%s: out of memory", a->name);
    else if (tlob_upload(a->lab->stream, at(a, array), values, (size_t)count * sizeof *values))
        good = !cli_tlob_error(a->name);
    free(values);
    return good;
}

static bool make_arrays(arena *a) {
    const tlob_block_shape *s = &a->params.shape;
    const int64_t n = a->params.max_samples * s->seq, weights = tlob_block_weight_count(s);
    const int64_t floats[ARRAYS] = {s->d_in * n, s->d_out * n, weights, s->d_out * n, s->d_out * n, weights, weights};
    memcpy(a->floats, floats, sizeof floats);
    for (int i = 0; i < ARRAYS; i++)
        if (tlob_buffer_create(tlob_stream_context(a->lab->stream), (size_t)floats[i] * sizeof(float), &a->array[i]))
            return !cli_tlob_error(a->name);
    if (tlob_block_init_weights(a->lab->stream, s, a->lab->seed, at(a, WEIGHTS)))
        return !cli_tlob_error(a->name);
    return fill(a, X) && fill(a, DY);
}

// Makes both, and runs each once, on outputs full of NaN.
static bool make_blocks(arena *a) {
    tlob_context *ctx = tlob_stream_context(a->lab->stream);
    for (int i = 0; i < 2; i++) {
        contender *c = &a->contender[i];
        tlob_block_params params = a->params;
        *c = (contender){.in = a, .which = i};
        params.plan = plans[i];
        if (tlob_block_create_with(ctx, &params, &c->block) ||
            tlob_fill(a->lab->stream, at(a, Y + i), 0xff, (size_t)a->floats[Y] * sizeof(float)) ||
            tlob_fill(a->lab->stream, at(a, DW + i), 0xff, (size_t)a->floats[DW] * sizeof(float)) ||
            run(c, a->lab->stream) || tlob_stream_sync(a->lab->stream))
            return !cli_tlob_error(a->name);
    }
    return true;
}

static void close_arena(arena *a) {
    for (int i = 0; i < 2; i++) {
        bench_graph_close(&a->contender[i].graph);
        tlob_block_destroy(&a->contender[i].block);
    }
    for (int i = 0; i < ARRAYS; i++)
        tlob_buffer_destroy(&a->array[i]);
}

// --- checks ---

// The difference of two arrays by the norm of the second; NAN where one has what is not finite.
static double distance(const float *have, const float *want, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)have[i] - want[i];
        difference += d * d;
        norm += (double)want[i] * want[i];
    }
    return sqrt(difference / norm);
}

// What the modes allow is far above what the kernels do, and far below what a wrong one would.
static bool is_near(const arena *a, tlob_block_plan plan, const char *of, double distance) {
    tlob_settings settings;
    tlob_context_settings(tlob_stream_context(a->lab->stream), &settings);
    if (distance <= (settings.compute == TLOB_COMPUTE_TF32 ? 1e-2 : 1e-4))
        return true;
    cli_error("%s: plan %s: %s is wrong by %.3g of its norm: neither plan is chosen", a->name,
              tlob_block_plan_name(plan), of, distance);
    return false;
}

static float *download(const arena *a, int array, int64_t count) {
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        cli_error("%s: out of memory", a->name);
    else if (tlob_download(a->lab->stream, values, at(a, array), (size_t)count * sizeof *values)) {
        cli_tlob_error(a->name);
        free(values);
        values = NULL;
    }
    return values;
}

// Y of the first `samples` by the oracle.
static bool expect(const arena *a, const float *weights, const float *x, int64_t samples, float *y) {
    tlob_context *host = tlob_stream_context(a->lab->oracle);
    tlob_block_params params = a->params;
    tlob_block *block = NULL;
    params.max_samples = samples;
    params.inference = true;
    params.plan = TLOB_PLAN_COMPOSED;
    bool good = !tlob_block_create_with(host, &params, &block) &&
                !tlob_block_forward(block, a->lab->oracle, weights, x, samples, y);
    if (!good)
        cli_tlob_error(a->name);
    tlob_block_destroy(&block);
    return good;
}

static bool is_finite(const arena *a, tlob_block_plan plan, const float *y) {
    for (int64_t i = 0; i < a->floats[Y]; i++)
        if (!isfinite(y[i]))
            return cli_error("%s: plan %s: Y[%" PRId64 "] is %g", a->name, tlob_block_plan_name(plan), i, (double)y[i]),
                   false;
    return true;
}

// False after printing why nothing more can be measured; right[i]: whether plans[i] is. All of Y is looked at, and what
// the oracle has time for is held against it; the rest of one plan against that of the other.
static bool check_forward(const arena *a, bool right[2]) {
    const tlob_block_shape *s = &a->params.shape;
    const int64_t samples = a->params.max_samples < CHECKED ? a->params.max_samples : CHECKED;
    const int64_t count = s->d_out * s->seq * samples;
    float *weights = download(a, WEIGHTS, a->floats[WEIGHTS]), *x = download(a, X, s->d_in * s->seq * samples);
    float *y[2] = {download(a, Y, a->floats[Y]), download(a, Y + 1, a->floats[Y])};
    float *want = malloc((size_t)count * sizeof *want);
    bool good = weights && x && y[0] && y[1] && want && expect(a, weights, x, samples, want);
    for (int i = 0; good && i < 2; i++)
        right[i] = is_finite(a, plans[i], y[i]) && is_near(a, plans[i], "Y", distance(y[i], want, count));
    if (good && right[0] && right[1])
        right[1] = is_near(a, TLOB_PLAN_FUSED, "all of Y, by composed's,", distance(y[1], y[0], a->floats[Y]));
    free(want);
    free(y[1]);
    free(y[0]);
    free(x);
    free(weights);
    return good;
}

// Composed is right by its Y: its gradients are what those of fused are held against.
static bool check_backward(const arena *a, bool right[2]) {
    float *dw[2] = {download(a, DW, a->floats[DW]), download(a, DW + 1, a->floats[DW])};
    bool good = dw[0] && dw[1];
    if (good)
        right[1] = is_near(a, TLOB_PLAN_FUSED, "the gradient of W, by composed's,",
                           distance(dw[1], dw[0], a->floats[DW])) && right[1];
    free(dw[1]);
    free(dw[0]);
    return good;
}

// --- times ---

static bool time_plans(arena *a) {
    const int calls = a->params.max_samples > 4096 ? 5 : 20;
    bench_graph *graphs[2];
    double us[2];
    for (int i = 0; i < 2; i++) {
        contender *c = &a->contender[i];
        c->us = INFINITY;
        if (!bench_graph_open(a->lab->cuda, a->lab->stream, &(bench_work){run, c}, calls, &c->graph))
            return false;
    }
    for (int round = 0; round < a->lab->repeat; round++) { // in alternating order
        graphs[round % 2] = a->contender[0].graph;
        graphs[1 - round % 2] = a->contender[1].graph;
        if (!bench_graph_time(a->lab->cuda, graphs, 2, false, us))
            return false;
        a->contender[0].us = fmin(a->contender[0].us, us[round % 2]);
        a->contender[1].us = fmin(a->contender[1].us, us[1 - round % 2]);
    }
    return true;
}

tlob_block_plan tune_blocks_choose(const double us[3], double band) {
    return us[TLOB_PLAN_FUSED] <= us[TLOB_PLAN_COMPOSED] * (1 + band) ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED;
}

// --- a block ---

static bool put_entry(const arena *a, tlob_block_plan plan, tlob_table *table) {
    tlob_context *ctx = tlob_stream_context(a->lab->stream);
    tlob_table_block entry = {.shape = a->params.shape, .samples = a->params.max_samples,
                              .inference = a->params.inference, .plan = plan};
    tlob_settings settings;
    if (!tune_origin(ctx, &entry.origin))
        return false;
    tlob_table_block_library(entry.origin.library, sizeof entry.origin.library);
    if (!tlob_context_settings(ctx, &settings)) {
        entry.compute = settings.compute;
        if (!tlob_table_put_block(table, &entry))
            return true;
    }
    return !cli_tlob_error(a->name);
}

static bool compete(arena *a, tlob_table *table, tune_blocks_summary *summary) {
    bool right[2] = {true, true};
    if (!make_arrays(a) || !make_blocks(a) || !check_forward(a, right))
        return false;
    if (!right[0]) // products are wrong, and nothing that would be measured of them counts
        return !cli_error("%s: the tuning of blocks ends here, and what the table has of this one stays", a->name);
    if (!a->params.inference && !check_backward(a, right))
        return false;
    if (!right[1]) { // what a table has been told before must not stay if it is fused
        cli_error("%s: not timed; its entry is composed", a->name);
        summary->unsolved++;
        return put_entry(a, TLOB_PLAN_COMPOSED, table);
    }
    if (!time_plans(a))
        return false;
    const double us[3] = {[TLOB_PLAN_COMPOSED] = a->contender[0].us, [TLOB_PLAN_FUSED] = a->contender[1].us};
    const tlob_block_plan plan = tune_blocks_choose(us, a->lab->band);
    printf("%-40s %10.2f %10.2f %7.2f  %s\n", a->name, us[TLOB_PLAN_COMPOSED], us[TLOB_PLAN_FUSED],
           us[TLOB_PLAN_COMPOSED] / us[TLOB_PLAN_FUSED], tlob_block_plan_name(plan));
    fflush(stdout);
    summary->done++;
    return put_entry(a, plan, table);
}

// Whether blocks have two plans here. False after printing why not.
static bool has_two(const tune_lab *lab) {
    tlob_block_params params = tlob_block_params_default();
    tlob_block_choice choice;
    params.plan = TLOB_PLAN_COMPOSED;
    if (tlob_block_explain(tlob_stream_context(lab->stream), &params, &choice))
        return !cli_tlob_error("tune");
    if (!*choice.obstacle)
        return true;
    cli_error("--blocks: there is nothing to choose: %s", choice.obstacle);
    return false;
}

bool tune_blocks_run(const tune_lab *lab, const char *filter, tlob_table *table, tune_blocks_summary *summary) {
    tlob_block_shape s;
    int found = 0;
    bool good = has_two(lab);
    *summary = (tune_blocks_summary){0};
    if (good)
        printf("%-40s %10s %10s %7s  %s\n", "block", "composed us", "fused us", "ratio", "plan");
    for (int i = 0; good && tlob_block_fused_shape(i, &s); i++)
        for (size_t n = 0; n < 2 * sizeof numbers / sizeof *numbers && good && !summary->interrupted; n++) {
            arena a = {.lab = lab,
                       .params = {.shape = s, .max_samples = numbers[n / 2], .inference = n % 2 == 0}};
            snprintf(a.name, sizeof a.name, "block/%" PRId64 "x%" PRId64 "x%" PRId64 "/n%" PRId64 "/%s", s.d_in,
                     s.d_out, s.head_dim, a.params.max_samples, a.params.inference ? "inference" : "training");
            if (filter && fnmatch(filter, a.name, 0))
                continue;
            found++;
            good = compete(&a, table, summary);
            close_arena(&a);
            summary->interrupted = lab->interrupted && *lab->interrupted;
        }
    if (good && !found)
        good = !cli_error("--filter %s: no block has such a name", filter);
    return good;
}
