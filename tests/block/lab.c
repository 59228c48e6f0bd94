#include "tests/block/lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64 /* floats before each array, and after outputs; also what keeps `at` on a multiple of 256 bytes */

static void open_lab(lab *l, const tlob_context_params *params, double bar) {
    memset(l, 0, sizeof(*l));
    LAB_OK(tlob_context_create(&l->ctx, params));
    LAB_OK(tlob_stream_create(l->ctx, &l->stream));
    l->kernels = l->ctx->space->kernels;
    l->bar = bar;
}

void lab_open_host(lab *l) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    open_lab(l, &params, 1e-6);
}

void lab_open_cuda_plan(lab *l, const char *policy, tlob_block_plan plan) {
    tlob_context_params params = tlob_context_params_default();
    params.compute = TLOB_COMPUTE_FP32;
    params.block_plan = plan;
    cr_log_info("policy %s, plan %s", policy, tlob_block_plan_name(plan));
    LAB_OK(tlob_policy_parse(policy, &params.policy));
    open_lab(l, &params, 1e-5);
}

void lab_open_cuda_in(lab *l, const char *policy, tlob_compute compute) {
    tlob_context_params params = tlob_context_params_default();
    params.compute = compute;
    LAB_OK(tlob_policy_parse(policy, &params.policy));
    open_lab(l, &params, 1e-5);
}

void lab_open_cuda(lab *l, const char *policy) {
    lab_open_cuda_in(l, policy, TLOB_COMPUTE_FP32);
}

void lab_expect(tlob_status got, tlob_status want, const char *word) {
    const char *message = tlob_last_error()->message;
    cr_assert_eq(got, want, "%s, not %s: %s", tlob_status_name(got), tlob_status_name(want), message);
    cr_assert(strstr(message, word), "\"%s\" does not say \"%s\"", message, word);
}

void lab_clear(lab *l) {
    while (l->n_arrays > 0)
        tlob_buffer_destroy(&l->arrays[--l->n_arrays]);
}

void lab_close(lab *l) {
    lab_clear(l);
    tlob_stream_close(&l->stream);
    tlob_context_destroy(&l->ctx);
}

static tlob_buffer *keep(lab *l, size_t bytes) {
    cr_assert(l->n_arrays < LAB_ARRAYS, "a test keeps more than %d arrays", LAB_ARRAYS);
    tlob_buffer **buffer = &l->arrays[l->n_arrays++];
    LAB_OK(tlob_buffer_create(l->ctx, bytes, buffer));
    LAB_OK(tlob_fill(l->stream, tlob_buffer_data(*buffer), 0xff, bytes)); /* NaN in every float */
    return *buffer;
}

array lab_array(lab *l, const float *from, int64_t count, int64_t offset) {
    array a = {.count = count, .offset = offset, .tail = from ? 0 : GUARD};
    a.buffer = keep(l, (size_t)(GUARD + offset + count + a.tail) * sizeof(float));
    a.at = (float *)tlob_buffer_data(a.buffer) + GUARD + offset;
    if (from)
        LAB_OK(tlob_upload(l->stream, a.at, from, (size_t)count * sizeof(float)));
    return a;
}

float *lab_crooked(array a) {
    return (float *)((char *)a.at + 1);
}

float *lab_read_at(lab *l, const float *from, int64_t count) {
    float *to = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
    LAB_OK(tlob_download(l->stream, to, from, (size_t)count * sizeof(float)));
    return to;
}

float *lab_read(lab *l, array a) {
    int64_t before = GUARD + a.offset, all = before + a.count + a.tail;
    float *whole = lab_read_at(l, tlob_buffer_data(a.buffer), all);
    for (int64_t i = 0; i < all; i++) {
        uint32_t bits;
        memcpy(&bits, &whole[i], sizeof(bits));
        bool guard = i < before || i >= before + a.count;
        cr_assert(!guard || bits == 0xffffffffu, "element %ld of %ld was written: outside the array",
                  (long)(i - before), (long)a.count);
    }
    memmove(whole, whole + before, (size_t)a.count * sizeof(float));
    return whole;
}

uint8_t *lab_bytes(lab *l, const uint8_t *from, int64_t count) {
    uint8_t *at = tlob_buffer_data(keep(l, (size_t)count));
    LAB_OK(tlob_upload(l->stream, at, from, (size_t)count));
    return at;
}

float *lab_random(int64_t count, float bound, uint64_t seed) {
    float *w = malloc((size_t)count * sizeof(float));
    tlob_kernels_host.uniform(NULL, count, bound, seed, 77, w);
    return w;
}

void lab_close_to(const char *name, const float *got, const double *want, int64_t count, double bar) {
    double norm = 0.0, error = 0.0, largest = 0.0;
    for (int64_t i = 0; i < count; i++) {
        norm += want[i] * want[i];
        error += (got[i] - want[i]) * (got[i] - want[i]);
        largest = fmax(largest, fabs(want[i]));
    }
    /* Written so that NaN fails. */
    for (int64_t i = 0; i < count; i++)
        cr_assert(fabs(got[i] - want[i]) <= bar * largest, "%s[%ld] of %ld is %.9g, must be %.9g within %.1e of %.3g",
                  name, (long)i, (long)count, (double)got[i], want[i], bar, largest);
    cr_assert(sqrt(error) <= bar * sqrt(norm), "%s: relative error %.2e in the norm, allowed %.1e", name,
              sqrt(error / norm), bar);
}

double *lab_double(const float *from, int64_t count) {
    double *to = malloc((size_t)(count > 0 ? count : 1) * sizeof(double));
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
    return to;
}

double *lab_differences(double (*loss)(const void *problem), const void *problem, double *at, int64_t count,
                        double step) {
    double *d = malloc((size_t)count * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        const double kept = at[i];
        at[i] = kept + step;
        double up = loss(problem);
        at[i] = kept - step;
        d[i] = (up - loss(problem)) / (2.0 * step);
        at[i] = kept;
    }
    return d;
}

void lab_compare_gradients(const char *name, const double *exact, const double *difference, const float *library,
                           int64_t count, double bar) {
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(exact[i]));
    cr_assert(largest > 1e-4, "%s: all gradients are next to 0, which proves nothing", name);
    for (int64_t i = 0; i < count; i++)
        cr_assert(fabs(exact[i] - difference[i]) <= 1e-6 * largest, "%s[%ld]: the formula gives %.9g, differences %.9g",
                  name, (long)i, exact[i], difference[i]);
    lab_close_to(name, library, exact, count, bar);
    lab_close_to(name, library, difference, count, bar + 1e-6);
}

void lab_same_bits(const char *name, const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        cr_assert(memcmp(&a[i], &b[i], sizeof(float)) == 0, "%s[%ld] of %ld differs: %.9g and %.9g", name, (long)i,
                  (long)count, (double)a[i], (double)b[i]);
}
