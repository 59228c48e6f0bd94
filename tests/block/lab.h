/** A context to try the block in, arrays in its memory with guards around them, and comparisons that say what is off.
 */
#ifndef TLOB_TESTS_LAB_H
#define TLOB_TESTS_LAB_H

#include <criterion/criterion.h>

#include "libtlob/internal.h"

/** Asserts TLOB_OK, and prints the message where it is not. */
#define LAB_OK(call)                                                                                                   \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        cr_assert_eq(status_, TLOB_OK, "%s: %s", tlob_status_name(status_), tlob_last_error()->message);               \
    } while (0)

/** The same of a kernel launcher, which returns a cudaError_t. */
#define KERNEL_OK(call)                                                                                                \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        cr_assert_eq(code_, 0, "%s: error %d", #call, code_);                                                          \
    } while (0)

/** Asserts a status, and that the message says `word`, which names what is wrong. */
void lab_expect(tlob_status got, tlob_status want, const char *word);

#define BAD(word, call) lab_expect((call), TLOB_ERR_ARGUMENT, word)
#define CLOSED(call)    lab_expect((call), TLOB_ERR_CLOSED, "")

#define HUGE_SIZE ((int64_t)1 << 62) /**< of what a size in bytes has no room for */

#define LAB_ARRAYS 256

typedef struct lab {
    tlob_context *ctx;
    tlob_stream *stream;
    const tlob_kernels *kernels;
    double bar; /**< relative error allowed against float64 */
    int n_arrays;
    tlob_buffer *arrays[LAB_ARRAYS];
} lab;

/** A host context, or one of device 0 in FP32 with `policy` ("threshold", "fixed:cublaslt"). */
void lab_open_host(lab *l);
void lab_open_cuda(lab *l, const char *policy);

/** The same with a plan for blocks. */
void lab_open_cuda_plan(lab *l, const char *policy, tlob_block_plan plan);

/** The same in another compute mode; the caller sets the bar. */
void lab_open_cuda_in(lab *l, const char *policy, tlob_compute compute);

/** Frees every array, the stream and the context. */
void lab_close(lab *l);

/** Frees every array. */
void lab_clear(lab *l);

/**
 * `count` floats in the lab's memory, `offset` floats past a multiple of 256 bytes. An output lies between guards; an
 * input ends where its memory ends, so that a memory checker sees a read past it.
 */
typedef struct array {
    tlob_buffer *buffer;
    int64_t count, offset, tail;
    float *at;
} array;

/** A copy of host floats, or, for NULL, NaN everywhere: what a call must overwrite. */
array lab_array(lab *l, const float *from, int64_t count, int64_t offset);

/** Where no float can lie: a byte past an array's first. */
float *lab_crooked(array a);

/** A copy of an array, to free; asserts that its guards are as they were. */
float *lab_read(lab *l, array a);

/** A copy of floats that lie anywhere in the lab's memory, to free. */
float *lab_read_at(lab *l, const float *from, int64_t count);

/** Bytes in the lab's memory. */
uint8_t *lab_bytes(lab *l, const uint8_t *from, int64_t count);

/** Random floats in [-bound, bound), the same for the same seed; to free. */
float *lab_random(int64_t count, float bound, uint64_t seed);

/**
 * Asserts that `got` is `want` up to `bar`: |got - want| <= bar * |want| in the 2-norm, and for each element with the
 * largest |want| in place of the norm. NaN is never right.
 */
void lab_close_to(const char *name, const float *got, const double *want, int64_t count, double bar);

/** The floats as doubles, to free. */
double *lab_double(const float *from, int64_t count);

/** d of loss(problem) by each of the `count` values at `at`, which are part of it, by central differences; to free. */
double *lab_differences(double (*loss)(const void *problem), const void *problem, double *at, int64_t count,
                        double step);

/**
 * Asserts that a gradient by the formulas is next to that by central differences, that the library's is both up to
 * `bar`, and that it is not 0.
 */
void lab_compare_gradients(const char *name, const double *exact, const double *difference, const float *library,
                           int64_t count, double bar);

/** Asserts that two arrays of floats have the same bits. */
void lab_same_bits(const char *name, const float *a, const float *b, int64_t count);

#endif
