#include "tests/trunk/trunk_cases.h"

static void note(void *user, const tlob_trace *trace) {
    seen_products *seen = user;
    cr_assert(seen->count < PRODUCTS_SEEN, "more than %d products", PRODUCTS_SEEN);
    cr_assert_eq(trace->status, TLOB_OK, "%s", trace->message);
    const tlob_gemm *g = trace->gemm;
    seen->at[seen->count++] = (seen_product){g->epilogue, g->m, g->n, g->k};
}

void products_watch(lab *l, seen_products *seen) {
    seen->count = 0;
    l->ctx->trace = note;
    l->ctx->trace_user = seen;
    l->ctx->tracing = true;
}

void products_unwatch(lab *l) {
    l->ctx->trace = NULL;
    l->ctx->tracing = false;
}

void products_expect(seen_products *seen, const char *what, const tlob_epilogue *epilogues, int count) {
    cr_assert_eq(seen->count, count, "%s: %d products, not %d", what, seen->count, count);
    for (int i = 0; i < count; i++)
        cr_assert_eq(seen->at[i].epilogue, epilogues[i], "%s: product %d has %s, not %s", what, i,
                     tlob_epilogue_get_traits(seen->at[i].epilogue)->name,
                     tlob_epilogue_get_traits(epilogues[i])->name);
    seen->count = 0;
}
