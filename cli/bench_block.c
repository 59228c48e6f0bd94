// A TLOB block: its forward pass alone, and both passes; each plan against the other.
#include "cli/bench.h"

#define D_IN  32
#define D_OUT 16

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

static bool bench_block_at(const bench *b, int64_t n) {
    static const char *const names[] = {"forward", "forward_and_backward"};
    tlob_block_shape shape = tlob_block_shape_default();
    int64_t weights = tlob_block_weight_count(&shape);
    tlob_buffer *x = bench_data(b, D_IN * n, 0), *y = bench_data(b, D_OUT * n, 1), *dy = bench_data(b, D_OUT * n, 2);
    tlob_buffer *w = bench_data(b, weights, 3), *dw = bench_data(b, weights, 4);
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
        const int64_t size = sizeof(float), bytes[] = {size * (weights + (D_IN + D_OUT) * n),
                                                       size * (2 * weights + (D_IN + 2 * D_OUT) * n)};
        good = bench_compare_floors(b, "block", n, works, names, n > 4096 ? 5 : 20, bytes);
    }
    tlob_block_destroy(&block);
    tlob_buffer_destroy(&dw);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&dy);
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    return good;
}

// The two plans on the same arrays: forward for inference, and forward and backward for training.
static bool bench_plans_at(const bench *b, int64_t n) {
    static const char *const names[] = {"composed", "fused"}, *const whats[] = {"block forward", "block both"};
    const tlob_block_plan plans[] = {TLOB_PLAN_COMPOSED, TLOB_PLAN_FUSED};
    tlob_block_params params = tlob_block_params_default();
    int64_t weights = tlob_block_weight_count(&params.shape);
    tlob_buffer *x = bench_data(b, D_IN * n, 0), *y = bench_data(b, D_OUT * n, 1), *dy = bench_data(b, D_OUT * n, 2);
    tlob_buffer *w = bench_data(b, weights, 3), *dw = bench_data(b, weights, 4);
    bool good = x && y && dy && w && dw;
    if (good && tlob_block_init_weights(b->stream, &params.shape, b->options->seed, tlob_buffer_data(w))) {
        cli_tlob_error("bench");
        good = false;
    }
    params.max_samples = n;
    for (int both = 0; both < 2 && good; both++) {
        passes p[2];
        bench_work works[2];
        params.inference = !both;
        for (int i = 0; i < 2; i++) {
            params.plan = plans[i];
            p[i] = (passes){NULL,
                            n,
                            tlob_buffer_data(w),
                            tlob_buffer_data(x),
                            tlob_buffer_data(dy),
                            tlob_buffer_data(y),
                            tlob_buffer_data(dw)};
            works[i] = (bench_work){both ? run_both : run_forward, &p[i]};
            if (good && tlob_block_create_with(b->ctx, &params, &p[i].block)) {
                cli_tlob_error("bench");
                good = false;
            }
        }
        good = good && bench_compare(b, whats[both], n, works, names, n > 4096 ? 5 : 20);
        for (int i = 0; i < 2; i++)
            tlob_block_destroy(&p[i].block);
    }
    tlob_buffer_destroy(&dw);
    tlob_buffer_destroy(&w);
    tlob_buffer_destroy(&dy);
    tlob_buffer_destroy(&y);
    tlob_buffer_destroy(&x);
    return good;
}

// Whether this device has both plans; where it has not, says so on standard error.
static bool has_plans(const bench *b) {
    tlob_block_params params = tlob_block_params_default();
    tlob_block_choice choice;
    params.plan = TLOB_PLAN_FUSED;
    if (!tlob_block_explain(b->ctx, &params, &choice))
        return true;
    fprintf(stderr, "tlob: bench block: there are no two plans to compare: %s\n", tlob_last_error()->message);
    return false;
}

bool bench_block(bench *b) {
    static const int64_t samples[] = {64, 256, 1024, 65536, 1048576};
    bool good = true, plans = b->cuda && has_plans(b);
    for (size_t i = 0; good && i < sizeof samples / sizeof *samples; i++)
        good = (!b->cuda && samples[i] > 65536) || bench_block_at(b, samples[i]);
    for (size_t i = 0; plans && good && i < sizeof samples / sizeof *samples; i++)
        good = bench_plans_at(b, samples[i]);
    return good;
}
