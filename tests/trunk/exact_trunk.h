/** Linear layers and multi-head attention once more, in double and straight from the formulas, in torch's layouts. */
#ifndef TLOB_TESTS_EXACT_TRUNK_H
#define TLOB_TESTS_EXACT_TRUNK_H

#include <tlob/tlob.h>

/** z = W x + b and y = act(z), [n][out] row-major each; w: [out][in], x: [n][in]. */
void exact_linear_forward(const tlob_linear *l, int64_t n, const double *w, const double *b, const double *x, double *z,
                          double *y);

/** dz = dy act'(z), with 1 for ReLU at 0; dz may be dy. */
void exact_linear_derivative(const tlob_linear *l, int64_t n, const double *z, const double *dy, double *dz);

/** dw, db and dx from dz; dx may be NULL. */
void exact_linear_backward(const tlob_linear *l, int64_t n, const double *w, const double *x, const double *dz,
                           double *dw, double *db, double *dx);

#define EXACT_LAYERS 2

/** Two layers, the loss being the sum of c * y. */
typedef struct exact_chain {
    tlob_linear layer[EXACT_LAYERS];
    int64_t n;
    double *parameters; /**< W and b of each layer in turn */
    double *x;          /**< [n][in] */
    const double *c;    /**< [n][out] */
} exact_chain;

/** How many parameters the chain has. */
int64_t exact_chain_count(const exact_chain *chain);

/** The loss of an exact_chain; the smallest |z| before a ReLU goes to *nearest, where it is not NULL. */
double exact_chain_loss(const exact_chain *chain, double *nearest);

/** Gradients, laid out as the parameters and as x. */
void exact_chain_gradients(const exact_chain *chain, double *d, double *dx);

/** Multi-head attention, the loss being the sum of c * y. */
typedef struct exact_mha {
    tlob_mha_shape shape;
    int64_t samples;
    double *weights; /**< as tlob_mha_weight_count says */
    double *x;       /**< [N][dim] */
    const double *c; /**< [N][dim] */
} exact_mha;

/** The loss. y: [N][dim], or NULL. d_weights and dx: both, or NULL. */
double exact_mha_run(const exact_mha *mha, double *y, double *d_weights, double *dx);

/** P of one head of a sample, [seq][seq], from its Q and K: element e of token t lies at t*ld + e. */
void exact_mha_p(int64_t seq, int64_t head_dim, const float *q, const float *k, int64_t ld, double *p);

#endif
