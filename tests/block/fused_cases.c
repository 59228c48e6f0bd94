#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/block_fused.h"
#include "tests/block/block_cases.h"

/* --- against the oracle ---------------------------------------------------------------------------------------- */

/* What a backward pass is asked for. */
enum { DW = 1, DX = 2 };

/* What both passes leave. dw, dx: NULL where they are not wanted. */
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

/* Every array `offset` floats past an alignment that any kernel could want, and room for as many samples besides. */
static result run(lab *l, const problem *p, tlob_block_plan plan, int64_t offset, int wanted) {
    tlob_block_params params = tlob_block_params_default();
    params.shape = p->shape;
    params.max_samples = p->samples + offset;
    params.plan = plan;
    tlob_block *block;
    LAB_OK(tlob_block_create_with(l->ctx, &params, &block));
    array w = lab_array(l, p->w, p->w_count, offset), x = lab_array(l, p->x, p->x_count, offset);
    array dy = lab_array(l, p->dy, p->y_count, offset), y = lab_array(l, NULL, p->y_count, offset);
    array dw = lab_array(l, NULL, p->w_count, offset), to_x = lab_array(l, NULL, p->x_count, offset);
    result r;
    LAB_OK(tlob_block_forward(block, l->stream, w.at, x.at, p->samples, y.at));
    LAB_OK(tlob_block_mean_max(block, l->stream, &r.mean_max));
    LAB_OK(tlob_block_backward(block, l->stream, w.at, x.at, dy.at, p->samples, wanted & DW ? dw.at : NULL,
                               wanted & DX ? to_x.at : NULL));
    r.y = lab_read(l, y);
    r.dw = wanted & DW ? lab_read(l, dw) : NULL;
    r.dx = wanted & DX ? lab_read(l, to_x) : NULL;
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

/* Each gradient has the same bits alone and with the other. */
static void try_alone(lab *l, const problem *p, tlob_block_plan plan, int64_t offset, const result *both) {
    result dw = run(l, p, plan, offset, DW), dx = run(l, p, plan, offset, DX);
    lab_same_bits("y, again", dw.y, both->y, p->y_count);
    lab_same_bits("dw, dx not wanted", dw.dw, both->dw, p->w_count);
    lab_same_bits("dx, dw not wanted", dx.dx, both->dx, p->x_count);
    free_result(&dw);
    free_result(&dx);
}

/* 3000 columns are chunks of several tiles also where tiles are not shared out among warps; 70001 are several tiles of
 * each of 16 warps. */
static void try_shape(lab *l, lab *oracle, const tlob_block_shape *s, double bar) {
    static const int64_t samples[] = {1, 7, 33, 1000, 3000, 20011, 70001};
    const int64_t most = tlob_block_fused_listed(s) ? 70001 : 10000; /* columns; the oracle takes its time */
    if (!tlob_block_fused_listed(s) && l->ctx->settings.compute == TLOB_COMPUTE_TF32)
        bar *= sqrt((double)(s->d_in > s->d_out ? s->d_in : s->d_out) / 16.0); /* longer sums of what was rounded */
    const int tried = getenv("TLOB_SANITIZED") ? 4 : 7;
    for (int i = 0; i < tried && samples[i] * s->seq <= most; i++) {
        problem p = make_problem(s, samples[i]);
        result want = run(oracle, &p, TLOB_PLAN_COMPOSED, 0, DW | DX);
        for (int64_t offset = 0; offset < 2; offset++) {
            result got = run(l, &p, TLOB_PLAN_FUSED, offset, DW | DX);
            compare(&p, &got, &want, bar);
            try_alone(l, &p, TLOB_PLAN_FUSED, offset, &got);
            free_result(&got);
        }
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
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 5, .axis = TLOB_AXIS_FEATURE}, /* of the list */
        {.d_in = 8, .d_out = 8, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 40, .d_out = 24, .head_dim = 8, .seq = 3, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 24, .d_out = 64, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 64, .d_out = 128, .head_dim = 32, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 8, .axis = TLOB_AXIS_TIME},
        {.d_in = 16, .d_out = 24, .head_dim = 4, .seq = 9, .axis = TLOB_AXIS_TIME}, /* 27 columns of a tile of 32 */
        {.d_in = 8, .d_out = 8, .head_dim = 4, .seq = 127, .axis = TLOB_AXIS_TIME},
        {.d_in = 16, .d_out = 24, .head_dim = 8, .seq = 1, .axis = TLOB_AXIS_TIME},
        {.d_in = 40, .d_out = 48, .head_dim = 16, .seq = 33, .axis = TLOB_AXIS_TIME},
        {.d_in = 24, .d_out = 32, .head_dim = 32, .seq = 17, .axis = TLOB_AXIS_TIME},
        {.d_in = 128, .d_out = 128, .head_dim = 32, .seq = 128, .axis = TLOB_AXIS_TIME},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        try_shape(l, &oracle, &others[i], bar);
    lab_close(&oracle);
}

/* Losses of `steps` steps on one batch. */
static void learn(lab *l, tlob_block_plan plan, const tlob_block_shape *s, int steps, float *losses) {
    enum { BATCH = 70 };
    tlob_model_params params = tlob_model_params_default();
    const tlob_block_plan kept = l->ctx->settings.block_plan;
    uint8_t labels[BATCH];
    const int64_t count = s->d_in * s->seq * BATCH;
    float *x = lab_random(count, 1.5f, 91);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (uint8_t)(i * 5 % 7 % 3);
    array at = lab_array(l, x, count, 0);
    const uint8_t *label_at = lab_bytes(l, labels, BATCH);
    params.shape = *s;
    params.max_samples = BATCH;
    params.adam.lr = 1e-2f;
    tlob_model *model;
    l->ctx->settings.block_plan = plan;
    LAB_OK(tlob_model_create(l->stream, &params, &model));
    l->ctx->settings.block_plan = kept;
    for (int i = 0; i < steps; i++) {
        tlob_model_figures figures;
        LAB_OK(tlob_model_step(model, l->stream, at.at, label_at, BATCH));
        LAB_OK(tlob_model_result(model, l->stream, &figures));
        losses[i] = figures.loss;
    }
    tlob_model_destroy(&model);
    free(x);
    lab_clear(l);
}

/* Every kernel once or twice, for tools that take their time. */
void case_fused_in_short(lab *l) {
    static const tlob_block_shape shapes[] = {
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 24, .d_out = 32, .head_dim = 8, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 16, .d_out = 24, .head_dim = 8, .seq = 21, .axis = TLOB_AXIS_TIME},
    };
    float losses[2];
    for (int i = 0; i < 3; i++) {
        problem p = make_problem(&shapes[i], 75);
        result both = run(l, &p, TLOB_PLAN_FUSED, 0, DW | DX);
        try_alone(l, &p, TLOB_PLAN_FUSED, 0, &both);
        free_result(&both);
        free_problem(&p);
    }
    learn(l, TLOB_PLAN_FUSED, &shapes[0], 2, losses);
    cr_assert(isfinite(losses[1]) && losses[1] != losses[0], "losses %g and %g", (double)losses[0], (double)losses[1]);
}

static void try_learning(lab *l, const tlob_block_shape *s) {
    enum { STEPS = 30 };
    float want[STEPS], got[STEPS], again[STEPS];
    lab oracle;
    lab_open_host(&oracle);
    learn(&oracle, TLOB_PLAN_COMPOSED, s, STEPS, want);
    lab_close(&oracle);
    learn(l, TLOB_PLAN_FUSED, s, STEPS, got);
    learn(l, TLOB_PLAN_FUSED, s, STEPS, again);
    lab_same_bits("losses", got, again, STEPS);
    for (int i = 0; i < STEPS; i++)
        cr_assert(fabsf(got[i] - want[i]) <= 1e-3f, "step %d: loss %g, the oracle's %g", i, (double)got[i],
                  (double)want[i]);
    cr_assert(got[STEPS - 1] < 0.9f * got[0], "the loss went from %g to %g", (double)got[0], (double)got[STEPS - 1]);
}

void case_fused_model(lab *l) {
    const tlob_block_shape shapes[] = {
        tlob_block_shape_default(),
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 3, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 24, .d_out = 32, .head_dim = 8, .seq = 6, .axis = TLOB_AXIS_TIME},
    };
    for (int i = 0; i < 3; i++)
        try_learning(l, &shapes[i]);
}

/* --- many samples ---------------------------------------------------------------------------------------------- */

/* The same samples again and again, in whole tiles: Y and dX come again and again too, and dW is as often that of one
 * time. */
void case_fused_many(lab *l, double bar) {
    enum { ONCE = 63 * 16 };
    const int times = getenv("TLOB_SANITIZED") ? 71 : 3971;
    const tlob_block_shape s = tlob_block_shape_default();
    problem once = make_problem(&s, ONCE), all = once;
    lab oracle;
    lab_open_host(&oracle);
    result want = run(&oracle, &once, TLOB_PLAN_COMPOSED, 0, DW | DX);
    lab_close(&oracle);
    all.samples = (int64_t)ONCE * times;
    all.x_count = once.x_count * times;
    all.y_count = once.y_count * times;
    all.x = malloc((size_t)all.x_count * sizeof(float));
    all.dy = malloc((size_t)all.y_count * sizeof(float));
    for (int t = 0; t < times; t++) {
        memcpy(all.x + t * once.x_count, once.x, (size_t)once.x_count * sizeof(float));
        memcpy(all.dy + t * once.y_count, once.dy, (size_t)once.y_count * sizeof(float));
    }
    result got = run(l, &all, TLOB_PLAN_FUSED, 0, DW | DX);
    for (int t = 1; t < times; t++) {
        lab_same_bits("y", got.y + t * once.y_count, got.y, once.y_count);
        lab_same_bits("dx", got.dx + t * once.x_count, got.dx, once.x_count);
    }
    for (int64_t i = 0; i < once.w_count; i++)
        got.dw[i] = (float)(got.dw[i] / (double)times);
    compare(&once, &got, &want, bar);
    free_result(&got);
    free_result(&want);
    free(all.x);
    free(all.dy);
    free_problem(&once);
}

/* --- one gradient alone ---------------------------------------------------------------------------------------- */

void case_alone(lab *l) {
    static const tlob_block_shape shapes[] = {
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 7, .d_out = 6, .head_dim = 2, .seq = 2, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 5, .d_out = 6, .head_dim = 3, .seq = 4, .axis = TLOB_AXIS_TIME},
    };
    for (int i = 0; i < 3; i++) {
        problem p = make_problem(&shapes[i], 150);
        result both = run(l, &p, TLOB_PLAN_COMPOSED, 0, DW | DX);
        try_alone(l, &p, TLOB_PLAN_COMPOSED, 0, &both);
        free_result(&both);
        free_problem(&p);
    }
}

/* --- NaN and infinity ------------------------------------------------------------------------------------------ */

/* Rows of `stride` floats from `first` to `last` are not finite, or NaN; the others have the bits of `clean`. */
static void stays_in(const char *name, const float *got, const float *clean, int64_t stride, int64_t count,
                     int64_t first, int64_t last, bool nan) {
    for (int64_t i = 0; i < count; i++) {
        if (i / stride < first || i / stride >= last)
            lab_same_bits(name, got + i, clean + i, 1);
        else
            cr_assert(nan ? isnan(got[i]) : !isfinite(got[i]), "%s[%ld] is %g", name, (long)i, (double)got[i]);
    }
}

static void all_nan(const char *name, const float *got, int64_t count) {
    stays_in(name, got, NULL, count, count, 0, 1, true);
}

/* NaN, with and without a sign, and infinity in one place of X, and NaN in one of dY: the sample's Y and dX, and no
 * other sample's; every gradient that the place has a part in. */
static void try_not_finite(lab *l, const problem *p, tlob_block_plan plan) {
    const tlob_block_shape *s = &p->shape;
    static const float values[] = {NAN, -NAN, INFINITY};
    const int64_t sample = p->samples / 2, column = sample * s->seq + s->seq / 2, outs = 3 * s->d_out * s->d_in;
    const int64_t from = s->axis == TLOB_AXIS_TIME ? sample * s->seq : column;
    const int64_t to = s->axis == TLOB_AXIS_TIME ? from + s->seq : column + 1;
    result clean = run(l, p, plan, 0, DW | DX), got;
    float *x = p->x + column * s->d_in + 5, *dy = p->dy + column * s->d_out + 2, kept = *x;
    for (int i = 0; i < 3; i++) {
        *x = values[i];
        got = run(l, p, plan, 0, DW | DX);
        stays_in("y", got.y, clean.y, s->d_out, p->y_count, from, to, isnan(*x));
        if (isnan(*x)) {
            stays_in("dx", got.dx, clean.dx, s->d_in, p->x_count, from, to, true);
            all_nan("dw", got.dw, p->w_count);
        }
        free_result(&got);
    }
    *x = kept;
    *dy = NAN;
    got = run(l, p, plan, 0, DW | DX);
    lab_same_bits("y", got.y, clean.y, p->y_count);
    stays_in("dx", got.dx, clean.dx, s->d_in, p->x_count, from, to, true);
    all_nan("dW_Q, dW_K, dW_V", got.dw, outs);
    for (int64_t i = outs; i < p->w_count; i++)
        if ((i - outs) % s->d_out == 2)
            all_nan("dW_O", got.dw + i, 1);
        else
            lab_same_bits("dW_O", got.dw + i, clean.dw + i, 1);
    free_result(&got);
    free_result(&clean);
}

/* An infinite weight of W_Q: in TF32 the scores are infinite, and all but dW_K and dX is finite, also where columns
 * that do not exist fill up a tile; in FP32 it is NaN. */
static void try_infinite_weight(lab *l, problem *p) {
    const int64_t matrix = p->shape.d_out * p->shape.d_in;
    p->w[2] = INFINITY;
    result got = run(l, p, TLOB_PLAN_FUSED, 0, DW | DX);
    if (l->ctx->settings.compute == TLOB_COMPUTE_FP32)
        all_nan("y", got.y, p->y_count);
    for (int64_t i = 0; i < p->y_count && l->ctx->settings.compute == TLOB_COMPUTE_TF32; i++)
        cr_assert(isfinite(got.y[i]), "y[%ld] is %g", (long)i, (double)got.y[i]);
    for (int64_t i = 0; i < p->w_count && l->ctx->settings.compute == TLOB_COMPUTE_TF32; i++)
        cr_assert(i / matrix == 1 || isfinite(got.dw[i]), "dw[%ld] is %g", (long)i, (double)got.dw[i]);
    free_result(&got);
}

void case_not_finite(lab *l, tlob_block_plan plan) {
    static const tlob_block_shape shapes[] = {
        {.d_in = 32, .d_out = 16, .head_dim = 4, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 24, .d_out = 64, .head_dim = 8, .seq = 1, .axis = TLOB_AXIS_FEATURE},
        {.d_in = 16, .d_out = 32, .head_dim = 4, .seq = 9, .axis = TLOB_AXIS_TIME},
    };
    for (int i = 0; i < 3; i++) {
        problem p = make_problem(&shapes[i], 37);
        try_not_finite(l, &p, plan);
        free_problem(&p);
        p = make_problem(&shapes[i], 37);
        if (plan == TLOB_PLAN_FUSED)
            try_infinite_weight(l, &p);
        free_problem(&p);
    }
}

/* --- which plan, and why --------------------------------------------------------------------------------------- */

static void explains(const lab *l, const tlob_block_params *params, tlob_block_plan plan, const char *word) {
    tlob_block_choice choice;
    LAB_OK(tlob_block_explain(l->ctx, params, &choice));
    cr_assert_eq(choice.plan, plan, "%s: %s", tlob_block_plan_name(choice.plan), choice.reason);
    cr_assert(strstr(choice.reason, word), "'%s' is not in: %s", word, choice.reason);
}

static void refuses(lab *l, const tlob_block_params *params, const char *word) {
    tlob_block_choice choice;
    tlob_block *block;
    lab_expect(tlob_block_explain(l->ctx, params, &choice), TLOB_ERR_UNSUPPORTED, word);
    lab_expect(tlob_block_create_with(l->ctx, params, &block), TLOB_ERR_UNSUPPORTED, word);
    cr_assert_null(block);
}

static void plan_by_shape(lab *l, const char *obstacle) {
    const bool fused = !obstacle;
    tlob_block_params params = tlob_block_params_default();
    explains(l, &params, fused ? TLOB_PLAN_FUSED : TLOB_PLAN_COMPOSED, fused ? "fused kernels of its own" : obstacle);
    params.plan = TLOB_PLAN_COMPOSED;
    explains(l, &params, TLOB_PLAN_COMPOSED, "the caller's choice");
    params.plan = TLOB_PLAN_FUSED;
    if (fused)
        explains(l, &params, TLOB_PLAN_FUSED, "the caller's choice");
    else
        refuses(l, &params, obstacle);
    params.shape.axis = TLOB_AXIS_TIME;
    if (fused)
        explains(l, &params, TLOB_PLAN_FUSED, "the caller's choice");
    params.plan = TLOB_PLAN_DEFAULT;
    explains(l, &params, TLOB_PLAN_COMPOSED, fused ? "no fused kernels of its own" : obstacle);
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
        refuses(l, &params, fused ? out_of_reach[i].word : obstacle);
    }
    params.plan = (tlob_block_plan)3;
    tlob_block_choice choice;
    lab_expect(tlob_block_explain(l->ctx, &params, &choice), TLOB_ERR_ARGUMENT, "plan is 3");
    lab_expect(tlob_block_explain(l->ctx, NULL, &choice), TLOB_ERR_ARGUMENT, "params");
    lab_expect(tlob_block_explain(l->ctx, &params, NULL), TLOB_ERR_ARGUMENT, "choice");
    lab_expect(tlob_block_explain(NULL, &params, &choice), TLOB_ERR_ARGUMENT, "context");
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
    lab_expect(tlob_block_backward(block[1], l->stream, w.at, x.at, dy.at, p.samples, w.at, NULL), TLOB_ERR_ARGUMENT,
           "inference");
    lab_expect(tlob_block_mean_max(block[1], l->stream, &value), TLOB_ERR_ARGUMENT, "inference");
    lab_expect(tlob_block_get_state(block[1], &state), TLOB_ERR_ARGUMENT, "inference");
    if (plan == TLOB_PLAN_FUSED)
        lab_expect(tlob_block_get_state(block[0], &state), TLOB_ERR_UNSUPPORTED, "plan composed");
    else
        LAB_OK(tlob_block_get_state(block[0], &state));
    for (int i = 0; i < 2; i++) {
        tlob_block_destroy(&block[i]);
        free(got[i]);
    }
    free_problem(&p);
    lab_clear(l);
}

void case_plans(lab *l, const char *obstacle) {
    plan_by_shape(l, obstacle);
    inference_alone(l, TLOB_PLAN_COMPOSED);
    if (!obstacle)
        inference_alone(l, TLOB_PLAN_FUSED);
}
