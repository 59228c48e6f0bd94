#include "backends/cublaslt/pick.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cublaslt/search.h"

static tlob_status out_of_memory(const tlob_gemm *gemm) {
    return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "configuration", 0, NULL, gemm,
                             "no host memory for configurations");
}

tlob_status tlob_pick_refuse(const char *why, const tlob_gemm *gemm) {
    return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, TLOB_CUBLASLT_NAME, "configuration", 0, NULL, gemm,
                             "the configuration cannot be used: %s; nothing else was tried", why);
}

/* --- adopting -------------------------------------------------------------------------------------------------- */

tlob_status tlob_pick_init(tlob_pick *pick, const tlob_algorithm_field *fields, int count, const tlob_gemm *gemm) {
    char why[160];
    pick->next = NULL;
    if (!tlob_algo_take_config(fields, count, &pick->config, why, sizeof(why)))
        return tlob_pick_refuse(why, gemm);
    pick->config.workspace_bytes = 0;
    return TLOB_OK;
}

const tlob_pick *tlob_pick_find(const tlob_lane *lane, const tlob_pick *pick) {
    const tlob_pick *at = lane->picks;
    while (at && tlob_algo_compare(&at->config, &pick->config))
        at = at->next;
    return at;
}

tlob_status tlob_pick_apply(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm) {
    tlob_algo_config config = plan->key.pick->config;
    tlob_status status = tlob_algo_try(lane, plan, gemm, &config, &plan->refusal);
    plan->workspace_bytes = (size_t)config.workspace_bytes;
    return status == TLOB_OK && plan->refusal ? tlob_pick_refuse(plan->refusal, gemm) : status;
}

tlob_status tlob_pick_adopt(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                            const tlob_algorithm_field *fields, int count, const tlob_pick **pick) {
    tlob_pick given;
    tlob_status status = tlob_pick_init(&given, fields, count, gemm);
    if (status != TLOB_OK)
        return status;
    const tlob_pick *found = tlob_pick_find(lane, &given);
    tlob_pick *made = found ? NULL : malloc(sizeof(*made));
    if (!found && !made)
        return out_of_memory(gemm);
    if (made) {
        *made = given;
        found = made;
    }
    status = tlob_plan_warm(lane, gemm, x, found);
    if (status != TLOB_OK && status != TLOB_ERR_UNSUPPORTED) { /* and no plan has its address */
        free(made);
        return status;
    }
    if (made) {
        made->next = lane->picks;
        lane->picks = made;
    }
    if (status == TLOB_OK)
        *pick = found;
    return status;
}

void tlob_pick_free_all(tlob_lane *lane) {
    while (lane->picks) {
        tlob_pick *next = lane->picks->next;
        free(lane->picks);
        lane->picks = next;
    }
}

/* --- proposing ------------------------------------------------------------------------------------------------- */

#define MOST_OF_HEURISTIC 64
#define MOST_OF_SEARCH    24

typedef struct configs {
    tlob_algo_config *list;
    size_t count, capacity;
} configs;

/** False: no memory. */
static bool add(configs *all, const tlob_algo_config *config) {
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 256;
        tlob_algo_config *grown = realloc(all->list, capacity * sizeof(*grown));
        if (!grown)
            return false;
        all->list = grown;
        all->capacity = capacity;
    }
    all->list[all->count] = *config;
    all->list[all->count++].workspace_bytes = 0;
    return true;
}

static int compare(const void *a, const void *b) {
    return tlob_algo_compare(a, b);
}

/** Sorts, and keeps one of those that are equal. */
static void sort(configs *all) {
    size_t kept = 0;
    if (all->count)
        qsort(all->list, all->count, sizeof(*all->list), compare);
    for (size_t i = 0; i < all->count; i++)
        if (!kept || compare(&all->list[kept - 1], &all->list[i]))
            all->list[kept++] = all->list[i];
    all->count = kept;
}

/** What the library's heuristic offers. That it knows nothing is no failure. */
static tlob_status add_heuristic(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, configs *all) {
    cublasLtMatmulHeuristicResult_t results[MOST_OF_HEURISTIC];
    int found = 0;
    tlob_status status = tlob_plan_query(lane, plan, gemm, MOST_OF_HEURISTIC, results, &found);
    if (status == TLOB_ERR_UNSUPPORTED)
        return TLOB_OK;
    for (int i = 0; i < found && status == TLOB_OK; i++) {
        tlob_algo_config config;
        if (results[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        tlob_algo_read(&results[i].algo, &config);
        if (!add(all, &config))
            status = out_of_memory(gemm);
    }
    return status;
}

/** Each of those, but for how it splits K, with every split and every scheme that sums the parts in a fixed order. */
static tlob_status add_splits(tlob_lane *lane, const tlob_plan *plan, const tlob_gemm *gemm, configs *all) {
    static const int splits[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64};
    const size_t count = all->count;
    bool enough = true;
    for (size_t i = 0; i < count && enough; i++) {
        tlob_algo_config config = all->list[i];
        uint32_t schemes = tlob_algo_stable_reductions(lane->handle, &plan->key, config.id);
        if (!schemes)
            continue;
        config.split_k = 1;
        config.reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
        enough = add(all, &config);
        for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]) && splits[s] <= plan->key.k; s++)
            for (uint32_t bit = 1; bit <= schemes && enough; bit *= 2) {
                config.split_k = splits[s];
                config.reduction = bit;
                enough = !(schemes & bit) || add(all, &config);
            }
    }
    return enough ? TLOB_OK : out_of_memory(gemm);
}

/** The first of the order in which a deterministic context tries them. */
static tlob_status add_search(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, configs *all) {
    tlob_algo_config first[MOST_OF_SEARCH];
    size_t count = 0;
    tlob_status status = tlob_algo_search_many(lane, plan, tlob_algo_multiprocessors(lane->params.shared), gemm, first,
                                               MOST_OF_SEARCH, &count);
    for (size_t i = 0; i < count && status == TLOB_OK; i++)
        if (!add(all, &first[i]))
            status = out_of_memory(gemm);
    return status;
}

/** Shows those that adopt would take. */
static tlob_status show(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, configs *all,
                        tlob_configuration_fn visit, void *user) {
    tlob_status status = TLOB_OK;
    for (size_t i = 0; i < all->count && status == TLOB_OK; i++) {
        tlob_algorithm_field fields[TLOB_ALGORITHM_FIELDS_MAX];
        tlob_algo_config config = all->list[i], again;
        char unused[160];
        const char *why;
        int count = tlob_algo_tell_config(&config, fields);
        if (!tlob_algo_take_config(fields, count, &again, unused, sizeof(unused))) /* some attribute has no range here */
            continue;
        status = tlob_algo_try(lane, plan, gemm, &config, &why);
        count = tlob_algo_tell_config(&config, fields);
        if (status == TLOB_OK && !why)
            visit(user, fields, count);
    }
    return status;
}

tlob_status tlob_pick_propose(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                              tlob_configuration_fn visit, void *user) {
    tlob_plan plan = {0};
    configs all = {0};
    tlob_status status = tlob_plan_frame(lane, &plan, gemm, x);
    if (status == TLOB_OK)
        status = add_heuristic(lane, &plan, gemm, &all);
    sort(&all);
    if (status == TLOB_OK)
        status = add_splits(lane, &plan, gemm, &all);
    if (status == TLOB_OK)
        status = add_search(lane, &plan, gemm, &all);
    sort(&all);
    if (status == TLOB_OK)
        status = show(lane, &plan, gemm, &all, visit, user);
    free(all.list);
    return status;
}
