#include "backends/product.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY    64
#define LARGEST_ALIGNMENT 256 /* what device allocations have, and more than any algorithm asks for */

/* --- the key --------------------------------------------------------------------------------------------------- */

/** The largest power of two up to LARGEST_ALIGNMENT that divides the address. */
static int32_t alignment(const void *ptr) {
    uintptr_t bits = (uintptr_t)ptr | LARGEST_ALIGNMENT;
    return (int32_t)(bits & -bits);
}

const void *tlob_product_bias(const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(gemm->epilogue);
    return traits->reads_bias ? x->bias : traits->writes_bgrad ? x->bgrad : NULL;
}

static bool has_aux(tlob_epilogue epilogue) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(epilogue);
    return traits->reads_aux || traits->writes_aux;
}

static bool has_bias(tlob_epilogue epilogue) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(epilogue);
    return traits->reads_bias || traits->writes_bgrad;
}

void tlob_product_key_init(tlob_product_key *key, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           const tlob_pick *pick) {
    bool batched = gemm->batch > 1, biased = has_bias(gemm->epilogue), aux = has_aux(gemm->epilogue);
    const float *c = tlob_product_c(gemm, x);

    memset(key, 0, sizeof(*key));
    key->m = gemm->m;
    key->n = gemm->n;
    key->k = gemm->k;
    key->lda = gemm->lda;
    key->ldb = gemm->ldb;
    key->ldc = gemm->ldc;
    key->batch = gemm->batch;
    key->stride_a = batched ? gemm->stride_a : 0;
    key->stride_b = batched ? gemm->stride_b : 0;
    key->stride_c = batched ? gemm->stride_c : 0;
    key->stride_bias = batched && biased ? gemm->stride_bias : 0;
    key->ld_aux = aux ? gemm->ld_aux : 0;
    key->stride_aux = batched && aux ? gemm->stride_aux : 0;
    key->transa = gemm->transa;
    key->transb = gemm->transb;
    key->compute = gemm->compute;
    key->epilogue = gemm->epilogue;
    key->align_a = alignment(x->a);
    key->align_b = alignment(x->b);
    key->align_c = alignment(c);
    key->align_d = alignment(x->d);
    key->align_bias = biased ? alignment(tlob_product_bias(gemm, x)) : 0;
    key->align_aux = aux ? alignment(x->aux) : 0;
    key->reads_c = gemm->beta != 0;
    key->in_place = c == x->d;
    key->pick = pick;
}

bool tlob_product_key_fits(const tlob_product_key *key, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                           const tlob_pick *pick) {
    const float *c = tlob_product_c(gemm, x);
    return key->pick == pick && key->align_a == alignment(x->a) && key->align_b == alignment(x->b) &&
           key->align_c == alignment(c) && key->align_d == alignment(x->d) && key->in_place == (c == x->d) &&
           (!key->align_bias || key->align_bias == alignment(tlob_product_bias(gemm, x))) &&
           (!key->align_aux || key->align_aux == alignment(x->aux));
}

/* --- the table ------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(tlob_product_key) % sizeof(uint64_t) == 0, "the key is hashed by words");

/** Multilinear over the words of the key: products that do not wait for each other, mixed once at the end. */
static uint64_t hash(const tlob_product_key *key) {
    uint64_t words[sizeof(*key) / sizeof(uint64_t)], h = 0;
    memcpy(words, key, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        h += words[i] * (0x9e3779b97f4a7c15u * (2 * i + 1));
    h = (h ^ h >> 32) * 0xc6a4a7935bd1e995u;
    return h ^ h >> 29;
}

/** The slot that holds `key`, or the free one where it belongs. There always is a free one. */
static tlob_product_key **find(const tlob_product_table *table, const tlob_product_key *key) {
    size_t mask = table->capacity - 1;
    size_t at = (size_t)hash(key) & mask;
    while (table->slots[at] && memcmp(table->slots[at], key, sizeof(*key)) != 0)
        at = (at + 1) & mask;
    return &table->slots[at];
}

tlob_product_key *tlob_product_table_get(const tlob_product_table *table, const tlob_product_key *key) {
    return table->capacity ? *find(table, key) : NULL;
}

bool tlob_product_table_reserve(tlob_product_table *table) {
    if (2 * (table->count + 1) <= table->capacity)
        return true;
    tlob_product_table grown = {.capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY,
                                .count = table->count};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i])
            *find(&grown, table->slots[i]) = table->slots[i];
    free(table->slots);
    *table = grown;
    return true;
}

void tlob_product_table_add(tlob_product_table *table, tlob_product_key *entry) {
    *find(table, entry) = entry;
    table->count++;
}

void tlob_product_table_free(tlob_product_table *table) {
    for (size_t i = 0; i < table->capacity; i++)
        free(table->slots[i]);
    free(table->slots);
    *table = (tlob_product_table){0};
}

/* --- captures -------------------------------------------------------------------------------------------------- */

tlob_status tlob_product_refuse_capture(struct CUstream_st *cuda_stream, const char *backend, const tlob_gemm *gemm) {
    if (!tlob_backend_capturing(cuda_stream))
        return TLOB_OK;
    return tlob_backend_fail(TLOB_ERR_NOT_WARM, backend, "capture", 0, NULL, gemm,
                             "this problem has not run on this stream yet; run it once before the capture, with "
                             "operands of the same alignment, or give it to tlob_warm");
}
