/** What the files of cases share: how problems are made, and the makers of each group. */
#ifndef TLOB_PARITY_CASES_H
#define TLOB_PARITY_CASES_H

#include "parity/parity.h"

#define LENGTH(array) ((int)(sizeof(array) / sizeof((array)[0])))

/** Gives a case its name within its group. */
void parity_name(parity_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * A problem with the transposes of parity_ops_name(ops), `pad` spare rows in A, pad + 1 in B and pad + 2 in C unless
 * pad is 0.
 */
tlob_gemm parity_problem(int ops, int64_t m, int64_t n, int64_t k, int64_t pad);

/** A batch of `count`, with `gap` elements after each matrix; biases are shared. */
void parity_make_batch(tlob_gemm *g, int64_t count, int64_t gap);

/**
 * Sets the epilogue of a problem whose sizes and batch are made, and lays out what it takes besides: `spare` times 128
 * bits or 8 floats more than aux needs in ld_aux and stride_aux; `gap` floats between biases or bgrads. shared: one
 * bias.
 */
void parity_set_epilogue(tlob_gemm *g, tlob_epilogue epilogue, int spare, int64_t gap, bool shared);

/** A group of cases. */
typedef struct parity_group {
    const char *name;
    int count;
    void (*make)(int i, parity_case *c);
} parity_group;

/** The groups around epilogues (cases_epilogue.c). Ends with a NULL name. */
extern const parity_group parity_epilogue_groups[];

#endif
