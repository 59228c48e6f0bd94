/** What must hold of linear layers and of multi-head attention in any memory space. */
#ifndef TLOB_TESTS_TRUNK_CASES_H
#define TLOB_TESTS_TRUNK_CASES_H

#include "tests/block/lab.h"

/* Linear layers (linear_cases.c). */

/** relu(Linear(128, 256)) and its backward pass against PyTorch in float64. Skips where the values are missing. */
void case_linear_reference(lab *l);

/** Every gradient of two layers against central differences of a loss in double, for every pair of activations. */
void case_linear_gradients(lab *l);

/** Odd sizes and every activation against double, with aux and without, and dz in place of dy. */
void case_linear_shapes(lab *l);

/** No columns: gradients of nothing are 0. */
void case_linear_no_columns(lab *l);

/** Which products, with which epilogues, the passes of two layers are made of. */
void case_linear_products(lab *l);

/* Multi-head attention (mha_cases.c). */

/** torch.nn.MultiheadAttention(128, 4) and its backward pass in float64. Skips where the values are missing. */
void case_mha_reference(lab *l, tlob_mha_projection projection);

/** Every gradient against central differences of a loss in double. */
void case_mha_gradients(lab *l, tlob_mha_projection projection);

/** Odd sizes against double, in both projections. head_dim up to `widest`. */
void case_mha_shapes(lab *l, int64_t widest);

/** Fewer samples than there is room for, after NaN has filled all of it; twice: the same bits; without dx: likewise. */
void case_mha_scratch(lab *l, tlob_mha_projection projection);

void case_mha_no_samples(lab *l, tlob_mha_projection projection);

/** How many products, with which epilogues, the passes are made of. */
void case_mha_products(lab *l);

/** Weights within their bounds, biases 0, the same bits as on the host. */
void case_mha_init(lab *l);

/* Products as they are run (products.c). */

/** One product, or the rest of one with k = 0. */
typedef struct seen_product {
    tlob_epilogue epilogue;
    int64_t m, n, k;
} seen_product;

#define PRODUCTS_SEEN 32

/** What a context's trace has told. */
typedef struct seen_products {
    int count;
    seen_product at[PRODUCTS_SEEN];
} seen_products;

/** From now on every product of the lab is noted in `seen`, which begins empty; until products_unwatch. */
void products_watch(lab *l, seen_products *seen);
void products_unwatch(lab *l);

/** Asserts that the products seen have these epilogues in this order, and forgets them. */
void products_expect(seen_products *seen, const char *what, const tlob_epilogue *epilogues, int count);

#endif
