/**
 * The block, the head and the loss once more, in double and straight from the formulas, sharing no code with the
 * library: what its gradients, and their central differences, are compared with.
 */
#ifndef TLOB_TESTS_EXACT_H
#define TLOB_TESTS_EXACT_H

#include <tlob/tlob.h>

/** A problem: everything column-major, the parameters laid out as tlob_model's. */
typedef struct exact_problem {
    tlob_block_shape shape;
    int64_t samples;
    double *parameters, *x; /**< tlob_model_weight_count, d_in * N */
    const uint8_t *labels;
} exact_problem;

/** Attention of one group: [tokens][d] each, row-major. */
typedef struct exact_attention {
    int64_t tokens, d;
    double *q, *k, *v, *p, *o;  /**< p: [tokens][tokens]; forward fills p and o */
    double *d_o, *dq, *dk, *dv; /**< backward fills the last three */
} exact_attention;

exact_attention exact_attention_create(int64_t tokens, int64_t d);
void exact_attention_free(exact_attention *a);

void exact_attend_forward(exact_attention *a);
void exact_attend_backward(exact_attention *a);

/** Where element e of token t of group g lies in a packed [d_out, N] array. */
int64_t exact_place(const tlob_block_shape *shape, int64_t g, int64_t t, int64_t e);

/** Mean cross-entropy of the problem. */
double exact_loss(const exact_problem *problem);

/** The same, and its gradients: d_parameters laid out as the parameters, dx as x. Either may be NULL. */
double exact_gradients(const exact_problem *problem, double *d_parameters, double *dx);

#endif
