#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/block_fused.h"
#include "tests/block/block_cases.h"

/* --- against the oracle ---------------------------------------------------------------------------------------- */

/* What both passes leave. dx: NULL where it is not wanted. */
typedef struct result {
    float *y, *dw, *dx, mean_max;
} result;

static void free_result(result *r) {
    free(r->y);
    free(r->dw);
    free(r->dx);
}

typedef struct problem {
    tlob_block_shape shape;
    int64_t samples;
    float *w, *x, *dy;
    int64_t w_count, x_count, y_count;
} problem;

static problem make_problem(const tlob_block_shape *s, int64_t samples) {
    problem p = {.shape = *s, .samples = samples, .w_count = tlob_block_weight_count(s)};
    p.x_count = s->d_in * s->seq * samples;
    p.y_count = s->d_out * s->seq * samples;
    p.w = lab_random(p.w_count, 0.5f, 81);
    p.x = lab_random(p.x_count, 1.7f, 82);
    p.dy = lab_random(p.y_count, 1.0f, 83);
    return p;
}

static void free_problem(problem *p) {
    free(p->w);
    free(p->x);
    free(p->dy);
}

/* Every array `offset` floats past an alignment that any kernel could want. */
static result run(lab *l, const problem *p, tlob_block_plan plan, int64_t offset, bool dx) {
    tlob_block_params params = tlob_block_params_default();
    params.shape = p->shape;
    params.max_samples = p->samples;
    params.plan = plan;
    tlob_block *block;
    LAB_OK(tlob_block_create_with(l->ctx, &params, &block));
    array w = lab_array(l, p->w, p->w_count, offset), x = lab_array(l, p->x, p->x_count, offset);
    array dy = lab_array(l, p->dy, p->y_count, offset), y = lab_array(l, NULL, p->y_count, offset);
    array dw = lab_array(l, NULL, p->w_count, offset), to_x = lab_array(l, NULL, p->x_count, offset);
    result r;
    LAB_OK(tlob_block_forward(block, l->stream, w.at, x.at, p->samples, y.at));
    LAB_OK(tlob_block_mean_max(block, l->stream, &r.mean_max));
    LAB_OK(tlob_block_backward(block, l->stream, w.at, x.at, dy.at, p->samples, dw.at, dx ? to_x.at : NULL));
    r.y = lab_read(l, y);
    r.dw = lab_read(l, dw);
    r.dx = dx ? lab_read(l, to_x) : NULL;
    tlob_block_destroy(&block);
    lab_clear(l);
    return r;
}

static void close_to(const char *name, const float *got, const float *want, int64_t count, double bar) {
    double *exact = lab_double(want, count);
    lab_close_to(name, got, exact, count, bar);
    free(exact);
}

static void compare(const problem *p, const result *got, const result *want, double bar) {
    static const char *const names[] = {"dW_Q", "dW_K", "dW_V", "dW_O"};
    const int64_t matrix = p->shape.d_out * p->shape.d_in;
    close_to("y", got->y, want->y, p->y_count, bar);
    for (int i = 0; i < 4; i++)
        close_to(names[i], got->dw + i * matrix, want->dw + i * matrix,
                 i < 3 ? matrix : p->shape.d_out * p->shape.d_out, bar);
    close_to("dx", got->dx, want->dx, p->x_count, bar);
    close_to("mean_max", &got->mean_max, &want->mean_max, 1, bar);
}

static void try_shape(lab *l, lab *oracle, const tlob_block_shape *s, double bar) {
    static const int64_t samples[] = {1, 7, 33, 1000, 20011};
    const int64_t most = tlob_block_fused_listed(s) ? INT64_MAX : 10000; /* columns; the oracle takes its time */
    for (int i = 0; i < 5 && samples[i] * s->seq <= most; i++) {
        problem p = make_problem(s, samples[i]);
        result want = run(oracle, &p, TLOB_PLAN_COMPOSED, 0, true);
        result got = run(l, &p, TLOB_PLAN_FUSED, 0, true), again = run(l, &p, TLOB_PLAN_FUSED, 0, false);
        compare(&p, &got, &want, bar);
        lab_same_bits("dw, dx not wanted", again.dw, got.dw, p.w_count);
        lab_same_bits("y, again", again.y, got.y, p.y_count);
        free_result(&again);
        again = run(l, &p, TLOB_PLAN_FUSED, 1, true);
        compare(&p, &again, &want, bar);
        free_result(&again);
        free_result(&got);
        free_result(&want);
        free_problem(&p);
    }
}

void case_fused(lab *l, double bar) {
    lab oracle;
    lab_open_host(&oracle);
#define TRY(in, out, head)                                                                                             \
    try_shape(l, &oracle,                                                                                              \
              &(tlob_block_shape){.d_in = in, .d_out = out, .head_dim = head, .seq = 1, .axis = TLOB_AXIS_FEATURE},    \
              bar);
    TLOB_BLOCK_FUSED_SHAPES(TRY)
#undef TRY
    static const tlob_block_shape others[] = {
        {.d_in = 8, .d_out = 8, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 40, .d_out = 24, .head_dim = 8, .seq = 3, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 24, .d_out = 64, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 64, .d_out = 128, .head_dim = 32, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 8, .axis = TLOB_AXIS_TIME},
        {.d_in = 16, .d_out = 24, .head_dim = 8, .seq = 1, .axis = TLOB_AXIS_TIME},
        {.d_in = 40, .d_out = 48, .head_dim = 16, .seq = 33, .axis = TLOB_AXIS_TIME},
        {.d_in = 128, .d_out = 128, .head_dim = 32, .seq = 128, .axis = TLOB_AXIS_TIME},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        try_shape(l, &oracle, &others[i], bar);
    lab_close(&oracle);
}

/* --- which plan, and why --------------------------------------------------------------------------------------- */

/* `status`, and a message with `word` in it. */
static void expect(tlob_status got, tlob_status status, const char *word) {
    cr_assert_eq(got, status, "%s: %s", tlob_status_name(got), tlob_last_error()->message);
    cr_assert(strstr(tlob_last_error()->message, word), "'%s' is not in: %s", word, tlob_last_error()->message);
}

static void explains(const lab *l, const tlob_block_params *params, tlob_block_plan plan, const char *word) {
    tlob_block_choice choice;
    LAB_OK(tlob_block_explain(l->ctx, params, &choice));
    cr_assert_eq(choice.plan, plan, "%s: %s", tlob_block_plan_name(choice.plan), choice.reason);
    cr_assert(strstr(choice.reason, word), "'%s' is not in: %s", word, choice.reason);
}

static void refuses(lab *l, const tlob_block_params *params, const char *word) {
    tlob_block_choice choice;
    tlob_block *block;
    expect(tlob_block_explain(l->ctx, params, &choice), TLOB_ERR_UNSUPPORTED, word);
    expect(tlob_block_create_with(l->ctx, params, &block), TLOB_ERR_UNSUPPORTED, word);
    cr_assert_null(block);
}

static void plan_by_shape(lab *l, bool fused) {
    const char *host = "the host has no fused kernels";
    tlob_block_params params = tlob_block_params_default();
    explains(l, &params, fused ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED, fused ? "fused kernels of its own" : host);
    params.plan = TLOB_PLAN_COMPOSED;
    explains(l, &params, TLOB_PLAN_COMPOSED, "the caller's choice");
    params.plan = TLOB_PLAN_FUSED;
    if (fused)
        explains(l, &params, TLOB_PLAN_FUSED, "the caller's choice");
    else
        refuses(l, &params, host);
    params.shape.axis = TLOB_AXIS_TIME;
    if (fused)
        explains(l, &params, TLOB_PLAN_FUSED, "the caller's choice");
    params.plan = TLOB_PLAN_DEFAULT;
    explains(l, &params, TLOB_PLAN_COMPOSED, fused ? "no fused kernels of its own" : host);
    params.plan = TLOB_PLAN_FUSED;
    static const struct {
        tlob_block_shape shape;
        const char *word;
    } out_of_reach[] = {
        {{.d_in = 31, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "multiples of 8"},
        {{.d_in = 32, .d_out = 136, .head_dim = 8, .seq = 1, .axis = TLOB_AXIS_TIME}, "at most 128"},
        {{.d_in = 32, .d_out = 16, .head_dim = 2, .seq = 1, .axis = TLOB_AXIS_TIME}, "4, 8, 16 or 32"},
        {{.d_in = 32, .d_out = 72, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE}, "16 tokens"},
        {{.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 129, .axis = TLOB_AXIS_TIME}, "at most 128"},
    };
    for (size_t i = 0; i < sizeof(out_of_reach) / sizeof(*out_of_reach); i++) {
        params.shape = out_of_reach[i].shape;
        refuses(l, &params, fused ? out_of_reach[i].word : host);
    }
    params.plan = (tlob_block_plan)3;
    tlob_block_choice choice;
    expect(tlob_block_explain(l->ctx, &params, &choice), TLOB_ERR_ARGUMENT, "plan is 3");
    expect(tlob_block_explain(l->ctx, NULL, &choice), TLOB_ERR_ARGUMENT, "params");
    expect(tlob_block_explain(l->ctx, &params, NULL), TLOB_ERR_ARGUMENT, "choice");
    expect(tlob_block_explain(NULL, &params, &choice), TLOB_ERR_ARGUMENT, "context");
}

/* A block for inference gives the same Y, and has nothing else. */
static void inference_alone(lab *l, tlob_block_plan plan) {
    tlob_block_params params = tlob_block_params_default();
    params.plan = plan;
    problem p = make_problem(&params.shape, 50);
    tlob_block *block[2];
    float *got[2], value;
    array w = lab_array(l, p.w, p.w_count, 0), x = lab_array(l, p.x, p.x_count, 0);
    array dy = lab_array(l, p.dy, p.y_count, 0);
    for (int i = 0; i < 2; i++) {
        array y = lab_array(l, NULL, p.y_count, 0);
        params.inference = i;
        LAB_OK(tlob_block_create_with(l->ctx, &params, &block[i]));
        LAB_OK(tlob_block_forward(block[i], l->stream, w.at, x.at, p.samples, y.at));
        got[i] = lab_read(l, y);
    }
    lab_same_bits("y", got[0], got[1], p.y_count);
    tlob_block_state state;
    expect(tlob_block_backward(block[1], l->stream, w.at, x.at, dy.at, p.samples, w.at, NULL), TLOB_ERR_ARGUMENT,
           "inference");
    expect(tlob_block_mean_max(block[1], l->stream, &value), TLOB_ERR_ARGUMENT, "inference");
    expect(tlob_block_get_state(block[1], &state), TLOB_ERR_ARGUMENT, "inference");
    if (plan == TLOB_PLAN_FUSED)
        expect(tlob_block_get_state(block[0], &state), TLOB_ERR_UNSUPPORTED, "plan composed");
    else
        LAB_OK(tlob_block_get_state(block[0], &state));
    for (int i = 0; i < 2; i++) {
        tlob_block_destroy(&block[i]);
        free(got[i]);
    }
    free_problem(&p);
    lab_clear(l);
}

void case_plans(lab *l, bool fused) {
    plan_by_shape(l, fused);
    inference_alone(l, TLOB_PLAN_COMPOSED);
    if (fused)
        inference_alone(l, TLOB_PLAN_FUSED);
}
