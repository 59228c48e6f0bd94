/** Forms: the ways in which a matrix product can be put to a backend. */
#ifndef TLOB_FORM_H
#define TLOB_FORM_H

#include <tlob/gemm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a problem is put to a backend. */
typedef enum tlob_form {
    TLOB_FORM_WHOLE,    /**< as it is: one call */
    TLOB_FORM_LOOP,     /**< a batch as that many single products, one after another on the stream */
    TLOB_FORM_WIDE,     /**< a batch as one product: one of A and B is shared, the other and D lie stacked */
    TLOB_FORM_SEPARATE, /**< the product without its epilogue, then the epilogue by a kernel of libtlob's own */
    TLOB_FORM_SPLIT,    /**< k in pieces: a batch, whose results a kernel of libtlob's own adds up in a fixed order */
} tlob_form;

/** How many forms there are; their values are 0 to one below. */
#define TLOB_FORM_COUNT (TLOB_FORM_SPLIT + 1)

/** "whole", "loop", "wide", "separate" or "split"; "?" for a value that is none. Static storage. Thread-safe. */
TLOB_API const char *tlob_form_name(tlob_form form);

/**
 * NULL if `gemm`, a valid problem, can be done in this form, else why not. A pure function of the problem. WHOLE always
 * can; LOOP needs batch > 1; WIDE batch > 1, an epilogue of NONE, BIAS, RELU or RELU_BIAS, and either stride_b = 0 with
 * the A of the batch stacked so that they are the rows of one matrix and D likewise, or stride_a = 0 with the B stacked
 * as columns and D likewise (a bias: its stride m, or 0 respectively); SEPARATE an epilogue; SPLIT batch 1, no epilogue
 * and two pieces. Their number is the largest power of two, up to 256, that gives each the same share of k, which is at
 * least 128 and a multiple of 4, and for which the m*n sums of all of them are at most 2^20 floats. Static storage.
 * Thread-safe.
 */
TLOB_API const char *tlob_form_obstacle(tlob_form form, const tlob_gemm *gemm);

#ifdef __cplusplus
}
#endif
#endif
