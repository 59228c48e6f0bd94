// Multi-head attention, its input projections stacked and separate, against each other.
#include "cli/bench.h"

typedef struct trunk {
    tlob_mha *mha;
    int64_t samples;
    const float *weights, *x, *dy;
    float *y, *dweights, *dx;
} trunk;

static tlob_status run_forward(const void *user, tlob_stream *stream) {
    const trunk *t = user;
    return tlob_mha_forward(t->mha, stream, t->weights, t->x, t->samples, t->y);
}

static tlob_status run_both(const void *user, tlob_stream *stream) {
    const trunk *t = user;
    tlob_status status = run_forward(user, stream);
    return status ? status : tlob_mha_backward(t->mha, stream, t->weights, t->x, t->dy, t->samples, t->dweights, t->dx);
}

static bool compare_trunks(const bench *b, const trunk *stacked, const trunk *separate) {
    static const char *const names[] = {"stacked", "separate"};
    const int64_t tokens = b->options->samples * b->options->trunk.seq;
    const int calls = tokens > 4096 ? 5 : 20;
    const int64_t weights = tlob_mha_weight_count(&b->options->trunk), count = b->options->trunk.dim * tokens;
    const int64_t once = (int64_t)sizeof(float) * (weights + 2 * count); // and as much again for the gradients of all
    const bench_work forward[] = {{run_forward, stacked}, {run_forward, separate}};
    const bench_work both[] = {{run_both, stacked}, {run_both, separate}};
    return bench_compare_floors(b, "trunk", tokens, forward, names, calls, (const int64_t[]){once, once}) &&
           bench_compare_floors(b, "trunk_both", tokens, both, names, calls, (const int64_t[]){2 * once, 2 * once});
}

// Both attentions have been made, so that every array here has fewer than 2^63 bytes.
static bool time_trunks(const bench *b, tlob_mha *stacked, tlob_mha *separate) {
    const tlob_mha_shape *shape = &b->options->trunk;
    const int64_t samples = b->options->samples, count = shape->dim * shape->seq * samples;
    const int64_t weights = tlob_mha_weight_count(shape);
    tlob_buffer *x = bench_data(b, count, 0), *y = bench_data(b, count, 1), *dy = bench_data(b, count, 2);
    tlob_buffer *dx = bench_data(b, count, 3), *w = bench_data(b, weights, 4), *dw = bench_data(b, weights, 5);
    bool good = x && y && dy && dx && w && dw;
    if (good && tlob_mha_init_weights(b->stream, shape, b->options->seed, tlob_buffer_data(w))) {
        cli_tlob_error("bench");
        good = false;
    }
    if (good) {
        trunk t = {.mha = stacked,
                   .samples = samples,
                   .weights = tlob_buffer_data(w),
                   .x = tlob_buffer_data(x),
                   .dy = tlob_buffer_data(dy),
                   .y = tlob_buffer_data(y),
                   .dweights = tlob_buffer_data(dw),
                   .dx = tlob_buffer_data(dx)};
        trunk u = t;
        u.mha = separate;
        good = compare_trunks(b, &t, &u);
    }
    tlob_buffer_destroy(&dw);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&dx);
    tlob_buffer_destroy(&dy);
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    return good;
}

bool bench_trunk(bench *b) {
    const tlob_mha_shape *shape = &b->options->trunk;
    const int64_t samples = b->options->samples;
    tlob_mha *stacked = NULL, *separate = NULL;
    bool good = !tlob_mha_create(b->ctx, shape, TLOB_MHA_STACKED, samples, &stacked) &&
                !tlob_mha_create(b->ctx, shape, TLOB_MHA_SEPARATE, samples, &separate);
    if (!good)
        cli_tlob_error("bench");
    good = good && time_trunks(b, stacked, separate);
    tlob_mha_destroy(&separate);
    tlob_mha_destroy(&stacked);
    return good;
}
