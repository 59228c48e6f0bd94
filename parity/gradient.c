/*
 * Gradient mode: whether the epilogues of the forward and the backward pass belong together.
 *
 * The function is f(W, x, b) = sum G o (V act(W x + b)), with W [m, k], x [k, n], b [m], V and G [m, m] and [m, n]. On
 * the backend, each step on what the one before has left on the device:
 *
 *     y, aux = act(W x + b)              RELU_AUX_BIAS or GELU_AUX_BIAS
 *     dz, db = act'(aux) o (V^T G)       DRELU_BGRAD or DGELU_BGRAD
 *     dW, db = dz x^T                    BGRADA: the sum of dz over its columns once more
 *     dW^T, db = x dz^T                  BGRADB: and once more
 *     dx = W^T dz                        NONE
 *
 * A backend that cannot do BGRADA or BGRADB gets that product without; there is nothing else to compare then.
 *
 * W and x are multiples of 1/4 up to 1 and b odd multiples of 1/32, so every z is an odd multiple of 1/32, and a step
 * of 1/256 in one parameter moves no z across the corner of ReLU. V and G are multiples of 1/4 as well; everything is
 * exact in TF32 up to GELU itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity/report.h"

/* The two steps of the central differences; the error of each is O(h^2), that of (4 f(h/2) - f(h)) / 3 O(h^4). */
#define STEP 0x1p-8

enum { W, X, BIAS, V, G, INPUTS };
enum { DW, DWT, DX, DB, DB_A, DB_B, OUTPUTS };

typedef struct gradient {
    const parity_who *who;
    parity_result *result;
    tlob_stream *stream;
    int64_t m, n, k;
    bool relu;
    float *in[INPUTS], *out[OUTPUTS];
    int64_t in_count[INPUTS], out_count[OUTPUTS];
    double *parameters[3], *scratch; /**< W, x, b in double; one column of act(z) */
    tlob_buffer *in_buffer[INPUTS], *out_buffer[OUTPUTS], *y, *aux, *dz;
} gradient;

static double act(const gradient *g, double z) {
    if (g->relu)
        return z > 0 ? z : 0;
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

/* f in double, from g->parameters. */
static double evaluate(const gradient *g) {
    const double *w = g->parameters[W], *x = g->parameters[X], *b = g->parameters[BIAS];
    double f = 0;
    for (int64_t j = 0; j < g->n; j++) {
        for (int64_t i = 0; i < g->m; i++) {
            double z = b[i];
            for (int64_t l = 0; l < g->k; l++)
                z += w[i + l * g->m] * x[l + j * g->k];
            g->scratch[i] = act(g, z);
        }
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t r = 0; r < g->m; r++)
                f += (double)g->in[G][r + j * g->m] * g->in[V][r + i * g->m] * g->scratch[i];
    }
    return f;
}

static double central(const gradient *g, double *parameter, double h) {
    double kept = *parameter;
    *parameter = kept + h;
    double above = evaluate(g);
    *parameter = kept - h;
    double below = evaluate(g);
    *parameter = kept;
    return (above - below) / (2 * h);
}

/* --- on the backend -------------------------------------------------------------------------------------------- */

static bool product(gradient *g, tlob_gemm gemm, const tlob_gemm_operands *x) {
    gemm.compute = g->who->compute;
    tlob_status status = tlob_gemm_run_on(g->stream, g->who->backend, &gemm, x);
    return status == TLOB_OK || parity_report_product(g->who, g->result, g->stream, &gemm, x, status);
}

/* As `product`, but without its epilogue where the backend cannot do that; `*sums` then becomes NULL. */
static bool product_with_sums(gradient *g, tlob_gemm gemm, tlob_gemm_operands x, float **sums) {
    if (product(g, gemm, &x))
        return true;
    if (g->result->verdict != PARITY_UNSUPPORTED)
        return false;
    *g->result = (parity_result){.verdict = PARITY_PASS, .output = "D"};
    *sums = NULL;
    gemm.epilogue = TLOB_EPILOGUE_NONE;
    x.bgrad = NULL;
    return product(g, gemm, &x);
}

static float *data(tlob_buffer *buffer) {
    return tlob_buffer_data(buffer);
}

static bool differentiate(gradient *g, float *sums[2]) {
    float *w = data(g->in_buffer[W]), *x = data(g->in_buffer[X]), *y = data(g->y), *dz = data(g->dz);
    tlob_gemm forward = g->who->c->gemm;
    if (!product(g, forward,
                 &(tlob_gemm_operands){
                     .a = w, .b = x, .d = y, .bias = data(g->in_buffer[BIAS]), .aux = tlob_buffer_data(g->aux)}))
        return false;
    tlob_gemm backward = tlob_gemm_init(g->m, g->n, g->m);
    backward.transa = TLOB_OP_T;
    backward.epilogue = g->relu ? TLOB_EPILOGUE_DRELU_BGRAD : TLOB_EPILOGUE_DGELU_BGRAD;
    backward.ld_aux = forward.ld_aux;
    if (!product(g, backward,
                 &(tlob_gemm_operands){.a = data(g->in_buffer[V]),
                                       .b = data(g->in_buffer[G]),
                                       .d = dz,
                                       .bgrad = data(g->out_buffer[DB]),
                                       .aux = tlob_buffer_data(g->aux)}))
        return false;

    tlob_gemm dw = tlob_gemm_init(g->m, g->k, g->n), dwt = tlob_gemm_init(g->k, g->m, g->n);
    dw.transb = dwt.transb = TLOB_OP_T;
    dw.ldb = g->k;
    dwt.ldb = g->m;
    dw.epilogue = TLOB_EPILOGUE_BGRADA;
    dwt.epilogue = TLOB_EPILOGUE_BGRADB;
    tlob_gemm dx = tlob_gemm_init(g->k, g->n, g->m);
    dx.transa = TLOB_OP_T;
    dx.lda = g->m;
    return product_with_sums(g, dw,
                             (tlob_gemm_operands){.a = dz, .b = x, .d = data(g->out_buffer[DW]), .bgrad = sums[0]},
                             &sums[0]) &&
           product_with_sums(g, dwt,
                             (tlob_gemm_operands){.a = x, .b = dz, .d = data(g->out_buffer[DWT]), .bgrad = sums[1]},
                             &sums[1]) &&
           product(g, dx, &(tlob_gemm_operands){.a = w, .b = dz, .d = data(g->out_buffer[DX])});
}

/* --- the comparison -------------------------------------------------------------------------------------------- */

/*
 * How far a gradient may be off, as a share of the largest of its kind: sums of at most max(m, n, k) + 8 products, and
 * in TF32 inputs of 10 bits; for GELU what parity_bound grants GELU' besides.
 */
static double tolerance(const gradient *g) {
    double most = fmax(fmax((double)g->m, (double)g->n), (double)g->k);
    double relative = g->who->compute == TLOB_COMPUTE_TF32 ? 0x1p-9 : 0;
    return relative + 2 * (most + 8) * 0x1p-24 + (g->relu ? 0 : PARITY_DGELU);
}

/*
 * `count` gradients of the parameters from `first` on against `got`; transposed: the parameters are a matrix of `rows`
 * rows, and `got` is its transpose.
 */
static bool compare(gradient *g, const char *name, double *first, int64_t count, const float *got, int64_t rows,
                    bool transposed) {
    double largest = 0;
    double *want = malloc((size_t)count * sizeof(double));
    if (!want)
        return parity_report(g->who, g->result, PARITY_ERROR, "no host memory for differences");
    bool good = true;
    for (int64_t i = 0; i < count && good; i++) {
        double coarse = central(g, first + i, STEP), fine = central(g, first + i, STEP / 2);
        want[i] = (4 * fine - coarse) / 3;
        largest = fmax(largest, fabs(want[i]));
        /* h^2 times a third derivative: |GELU'''| < 1.6, times |V^T G| and the cube of a factor of at most 1 */
        if (fabs(coarse - fine) > 1e-3 * (1 + fabs(fine)))
            good =
                parity_report(g->who, g->result, PARITY_ERROR, "the differences of %s[%lld] have not converged: %g, %g",
                              name, (long long)i, coarse, fine);
    }
    double bound = tolerance(g) * largest + 1e-9;
    for (int64_t i = 0; i < count && good; i++) {
        int64_t at = transposed ? i / rows + i % rows * (count / rows) : i;
        double error = fabs(got[at] - want[i]);
        if (error > g->result->error) {
            g->result->error = error;
            g->result->bound = bound;
            g->result->value = got[at];
            g->result->expected = want[i];
            g->result->output = name;
            g->result->row = i;
            g->result->normalised = error / largest;
        }
        if (!(error <= bound))
            good = parity_report(g->who, g->result, PARITY_FAIL,
                                 "gradient %s[%lld] is %.9g, central differences say %.9g: error %.3g, bound %.3g",
                                 name, (long long)i, (double)got[at], want[i], error, bound);
    }
    free(want);
    return good;
}

static bool compare_all(gradient *g, float *const sums[2]) {
    *g->result = (parity_result){.verdict = PARITY_PASS, .output = "dW"};
    double *w = g->parameters[W], *x = g->parameters[X], *b = g->parameters[BIAS];
    return compare(g, "dW", w, g->m * g->k, g->out[DW], g->m, false) &&
           compare(g, "dW^T", w, g->m * g->k, g->out[DWT], g->m, true) &&
           compare(g, "dx", x, g->k * g->n, g->out[DX], g->k, false) &&
           compare(g, "db", b, g->m, g->out[DB], g->m, false) &&
           (!sums[0] || compare(g, "db by BGRADA", b, g->m, g->out[DB_A], g->m, false)) &&
           (!sums[1] || compare(g, "db by BGRADB", b, g->m, g->out[DB_B], g->m, false));
}

/* --- data ------------------------------------------------------------------------------------------------------ */

/* Multiples of 1/4 up to 1, or for the bias odd multiples of 1/32 up to 1/2. */
static float grid(const gradient *g, int which, int64_t i, int64_t count) {
    int whole = (int)parity_fill_value(PARITY_INTEGER, g->who->seed, 200u + (uint32_t)which, i, count);
    return which == BIAS ? (float)(2 * whole - 1) / 32 : (float)(whole / 2) / 4;
}

static bool buffer(gradient *g, int64_t count, tlob_buffer **made) {
    size_t bytes = (size_t)count * sizeof(float);
    tlob_context *ctx = tlob_stream_context(g->stream);
    if (tlob_buffer_create(ctx, bytes, made) || tlob_fill(g->stream, tlob_buffer_data(*made), 0xff, bytes))
        return parity_report_call(g->who, g->result, "gradient mode");
    return true;
}

static bool make_input(gradient *g, int which) {
    int64_t count = g->in_count[which];
    if (!buffer(g, count, &g->in_buffer[which]))
        return false;
    if (!(g->in[which] = malloc((size_t)count * sizeof(float))))
        return parity_report(g->who, g->result, PARITY_ERROR, "no host memory for gradient mode");
    for (int64_t i = 0; i < count; i++)
        g->in[which][i] = grid(g, which, i, count);
    if (which <= BIAS) {
        g->parameters[which] = malloc((size_t)count * sizeof(double));
        for (int64_t i = 0; g->parameters[which] && i < count; i++)
            g->parameters[which][i] = g->in[which][i];
    }
    if (tlob_upload(g->stream, data(g->in_buffer[which]), g->in[which], (size_t)count * sizeof(float)))
        return parity_report_call(g->who, g->result, "upload");
    return which > BIAS || g->parameters[which];
}

static bool prepare(gradient *g) {
    const int64_t in[] = {g->m * g->k, g->k * g->n, g->m, g->m * g->m, g->m * g->n};
    const int64_t out[] = {g->m * g->k, g->m * g->k, g->k * g->n, g->m, g->m, g->m};
    memcpy(g->in_count, in, sizeof(in));
    memcpy(g->out_count, out, sizeof(out));
    g->scratch = malloc((size_t)g->m * sizeof(double));
    for (int i = 0; i < INPUTS; i++)
        if (!make_input(g, i))
            return false;
    for (int i = 0; i < OUTPUTS; i++)
        if (!(g->out[i] = malloc((size_t)out[i] * sizeof(float))) || !buffer(g, out[i], &g->out_buffer[i]))
            return false;
    return g->scratch && buffer(g, g->m * g->n, &g->y) && buffer(g, g->m * g->n, &g->dz) &&
           buffer(g, g->who->c->gemm.ld_aux * g->n, &g->aux); /* floats; more than a mask needs */
}

static bool fetch(gradient *g) {
    for (int i = 0; i < OUTPUTS; i++)
        if (tlob_download(g->stream, g->out[i], data(g->out_buffer[i]), (size_t)g->out_count[i] * sizeof(float)))
            return parity_report_call(g->who, g->result, "download");
    return true;
}

static void clear(gradient *g) {
    for (int i = 0; i < INPUTS; i++) {
        free(g->in[i]);
        tlob_buffer_destroy(&g->in_buffer[i]);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        free(g->out[i]);
        tlob_buffer_destroy(&g->out_buffer[i]);
    }
    for (int i = 0; i <= BIAS; i++)
        free(g->parameters[i]);
    free(g->scratch);
    tlob_buffer_destroy(&g->y);
    tlob_buffer_destroy(&g->dz);
    tlob_buffer_destroy(&g->aux);
}

bool parity_run_gradient(const parity_who *who, tlob_stream *stream, parity_result *result) {
    const tlob_gemm *f = &who->c->gemm;
    gradient g = {.who = who, .result = result, .stream = stream, .m = f->m, .n = f->n, .k = f->k};
    g.relu = f->epilogue == TLOB_EPILOGUE_RELU_AUX_BIAS;
    *result = (parity_result){.verdict = PARITY_ERROR, .message = "no host memory for gradient mode"};
    bool passed = prepare(&g);
    if (passed) {
        float *sums[2] = {data(g.out_buffer[DB_A]), data(g.out_buffer[DB_B])};
        *result = (parity_result){.verdict = PARITY_PASS};
        passed = differentiate(&g, sums) && fetch(&g) && compare_all(&g, sums);
    }
    clear(&g);
    return passed;
}
