#include "backends/cublaslt/search.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ALGORITHMS 512 /* that the library may list: 21 in version 13.1 */
#define MOST_IDS        1024 /* of tiles, and of stages */
#define MOST_CUSTOM     255 /* options that are tried one by one: 115 in version 13.1 */

/** A configuration and its place in the order. */
typedef struct candidate {
    double estimate;
    tlob_algo_config config;
} candidate;

typedef struct candidates {
    candidate *list;
    size_t count, capacity;
    bool out_of_memory;
} candidates;

/** What the library says that an algorithm can. */
typedef struct caps {
    uint32_t tiles[MOST_IDS], stages[MOST_IDS];
    size_t n_tiles, n_stages;
    int32_t split_k, out_of_place, custom_max;
    uint32_t reductions;
    uint32_t align[4]; /* of A, B, C, D */
    uint64_t numerics;
} caps;

/* --- an algorithm from its attributes -------------------------------------------------------------------------- */

static cublasComputeType_t compute_type(const tlob_product_key *key) {
    return key->compute == TLOB_COMPUTE_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static cublasStatus_t init(cublasLtHandle_t handle, const tlob_product_key *key, int id, cublasLtMatmulAlgo_t *algo) {
    return cublasLtMatmulAlgoInit(handle, compute_type(key), CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                  CUDA_R_32F, id, algo);
}

/** All attributes of a configuration but its number, which makes it, and what they are in a tlob_algo_config. */
static const struct {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t member;
    size_t size;
} attributes[] = {
    {CUBLASLT_ALGO_CONFIG_TILE_ID, offsetof(tlob_algo_config, tile), 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, offsetof(tlob_algo_config, stages), 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, offsetof(tlob_algo_config, split_k), 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, offsetof(tlob_algo_config, reduction), 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, offsetof(tlob_algo_config, swizzle), 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, offsetof(tlob_algo_config, custom), 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, offsetof(tlob_algo_config, inner_shape), 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, offsetof(tlob_algo_config, cluster_shape), 2},
};

enum { ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]) };

static cublasStatus_t configure(cublasLtMatmulAlgo_t *algo, const tlob_algo_config *c) {
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < ATTRIBUTES && code == CUBLAS_STATUS_SUCCESS; i++) {
        int64_t member;
        memcpy(&member, (const char *)c + attributes[i].member, sizeof(member));
        uint32_t wide = (uint32_t)member;
        uint16_t narrow = (uint16_t)member;
        const void *value = attributes[i].size == 4 ? (const void *)&wide : (const void *)&narrow;
        code = cublasLtMatmulAlgoConfigSetAttribute(algo, attributes[i].attribute, value, attributes[i].size);
    }
    return code;
}

static int64_t read_attribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
                              size_t size) {
    uint32_t wide = 0;
    uint16_t narrow = 0;
    size_t written;
    void *value = size == 4 ? (void *)&wide : (void *)&narrow;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, value, size, &written) != CUBLAS_STATUS_SUCCESS)
        return 0;
    return size == 4 ? (int64_t)wide : (int64_t)narrow;
}

void tlob_algo_read(const cublasLtMatmulAlgo_t *algo, tlob_algo_config *config) {
    memset(config, 0, sizeof(*config));
    config->id = read_attribute(algo, CUBLASLT_ALGO_CONFIG_ID, 4);
    for (int i = 0; i < ATTRIBUTES; i++) {
        int64_t value = read_attribute(algo, attributes[i].attribute, attributes[i].size);
        memcpy((char *)config + attributes[i].member, &value, sizeof(value));
    }
}

tlob_status tlob_algo_make(cublasLtHandle_t handle, tlob_plan *plan, const tlob_algo_config *config,
                           const tlob_gemm *gemm) {
    cublasStatus_t code = init(handle, &plan->key, (int)config->id, &plan->algo);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoInit", gemm, NULL);
    code = configure(&plan->algo, config);
    return code == CUBLAS_STATUS_SUCCESS
               ? TLOB_OK
               : tlob_cublaslt_fail(code, "cublasLtMatmulAlgoConfigSetAttribute", gemm, NULL);
}

/* --- the configurations of one algorithm ----------------------------------------------------------------------- */

static void read_cap(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t cap, void *to, size_t size) {
    size_t written; /* what cannot be read stays 0: the algorithm cannot do it */
    if (cublasLtMatmulAlgoCapGetAttribute(algo, cap, to, size, &written) != CUBLAS_STATUS_SUCCESS)
        memset(to, 0, size);
}

/** One id of 0, "undefined", where the library lists none. */
static size_t read_ids(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t cap, uint32_t *to) {
    size_t bytes = 0, written = 0;
    to[0] = 0;
    if (cublasLtMatmulAlgoCapGetAttribute(algo, cap, NULL, 0, &bytes) != CUBLAS_STATUS_SUCCESS || bytes < sizeof(*to) ||
        bytes > MOST_IDS * sizeof(*to) ||
        cublasLtMatmulAlgoCapGetAttribute(algo, cap, to, bytes, &written) != CUBLAS_STATUS_SUCCESS)
        return 1;
    return written / sizeof(*to);
}

static void read_caps(const cublasLtMatmulAlgo_t *algo, caps *c) {
    static const cublasLtMatmulAlgoCapAttributes_t alignments[] = {
        CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES};
    c->n_tiles = read_ids(algo, CUBLASLT_ALGO_CAP_TILE_IDS, c->tiles);
    c->n_stages = read_ids(algo, CUBLASLT_ALGO_CAP_STAGES_IDS, c->stages);
    read_cap(algo, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT, &c->split_k, sizeof(c->split_k));
    read_cap(algo, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT, &c->out_of_place, sizeof(c->out_of_place));
    read_cap(algo, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &c->custom_max, sizeof(c->custom_max));
    read_cap(algo, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK, &c->reductions, sizeof(c->reductions));
    read_cap(algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &c->numerics, sizeof(c->numerics));
    for (int i = 0; i < 4; i++)
        read_cap(algo, alignments[i], &c->align[i], sizeof(c->align[i]));
}

/** Whether pointer, leading dimension and stride are multiples of what an algorithm needs: its check sees no pointer. */
static bool aligned(uint32_t needed, int32_t pointer, int64_t ld, int64_t stride) {
    const int64_t size = sizeof(float);
    return needed <= 1 || ((uint32_t)pointer % needed == 0 && ld % (needed / size ? needed / size : 1) == 0 &&
                           stride % (needed / size ? needed / size : 1) == 0);
}

/** Why an algorithm must not compute this product, or not with the roundings that its mode allows; NULL: it may. */
static const char *find_obstacle(const caps *c, const tlob_product_key *key) {
    const uint64_t inputs = c->numerics & CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK;
    const uint64_t allowed = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F |
                             (key->compute == TLOB_COMPUTE_TF32 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 : 0);
    if (!inputs || inputs & ~allowed)
        return "the algorithm may round its inputs more than the compute mode allows";
    if (!c->out_of_place && !key->in_place && key->reads_c)
        return "the algorithm wants C to be D";
    if (!aligned(c->align[0], key->align_a, key->lda, key->stride_a) ||
        !aligned(c->align[1], key->align_b, key->ldb, key->stride_b) ||
        !aligned(c->align[2], key->align_c, key->ldc, key->stride_c) ||
        !aligned(c->align[3], key->align_d, key->ldc, key->stride_c))
        return "the algorithm wants operands, leading dimensions or strides that are more aligned";
    return NULL;
}

static void add(candidates *all, const tlob_product_key *key, const tlob_algo_config *config, int multiprocessors) {
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 1024;
        candidate *grown = realloc(all->list, capacity * sizeof(*grown));
        if (!grown) {
            all->out_of_memory = true;
            return;
        }
        all->list = grown;
        all->capacity = capacity;
    }
    all->list[all->count++] = (candidate){tlob_algo_estimate(key, config, multiprocessors), *config};
}

enum { STABLE_REDUCTIONS = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE };

/**
 * The scheme of a split K. The parts are summed in a step of its own, in the order of the parts: in the type of the
 * computation, or in that of the output, here both FP32. In place they are summed in the order in which they finish.
 */
static int64_t stable_reduction(uint32_t schemes) {
    return schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE  ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
           : schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                                             : CUBLASLT_REDUCTION_SCHEME_NONE;
}

/** Splits of K: where the tiles do not fill the device, into some round numbers, and into what just fills it. */
static void add_splits(candidates *all, const tlob_product_key *key, const caps *c, tlob_algo_config config,
                       int multiprocessors, int64_t workspace_bytes) {
    static const int some[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
    enum { SOME = sizeof(some) / sizeof(some[0]) };
    int rows = 1, columns = 1, depth = 32, steps; /* of kernels for vectors, which have no tiles */
    bool vector = !config.tile && (key->m == 1 || key->n == 1);
    config.reduction = c->split_k ? stable_reduction(c->reductions) : CUBLASLT_REDUCTION_SCHEME_NONE;
    if (config.reduction == CUBLASLT_REDUCTION_SCHEME_NONE ||
        (!vector && (!tlob_algo_tile(config.tile, &rows, &columns) ||
                     !tlob_algo_stages(config.stages, &depth, &steps))))
        return;
    double tiles = (double)((key->m - 1) / rows + 1) * (double)((key->n - 1) / columns + 1) * (double)key->batch;
    double part = (double)key->m * (double)key->n * (double)key->batch * sizeof(float);
    int64_t filling = tiles < multiprocessors ? multiprocessors / (int64_t)tiles : 0;
    int64_t last = 1;
    for (int i = 0; i < SOME + 2 && tiles < 2.0 * multiprocessors; i++) {
        int64_t split = i < SOME ? some[i] : filling * (i - SOME + 1);
        bool twice = split < 2;
        for (int j = 0; j < SOME && i >= SOME; j++)
            twice = twice || some[j] == split;
        if (twice || split == last || split > key->k / depth || part * (double)split > (double)workspace_bytes)
            continue;
        config.split_k = last = split;
        add(all, key, &config, multiprocessors);
    }
}

/** Clusters of two tiles that share an operand, where there is an even number of tiles that way; else of one. */
static int64_t cluster_shape(const tlob_product_key *key, int64_t tile) {
    int rows = 1, columns = 1;
    tlob_algo_tile(tile, &rows, &columns);
    bool down = (key->m - 1) / rows % 2, across = (key->n - 1) / columns % 2;
    return down     ? CUBLASLT_CLUSTER_SHAPE_2x1x1
           : across ? CUBLASLT_CLUSTER_SHAPE_1x2x1
                    : CUBLASLT_CLUSTER_SHAPE_1x1x1;
}

static void add_configurations(candidates *all, const tlob_product_key *key, int id, const caps *c, int multiprocessors,
                               int64_t workspace_bytes) {
    for (size_t t = 0; t < c->n_tiles; t++)
        for (size_t s = 0; s < c->n_stages; s++) {
            tlob_algo_config config = {.id = id, .tile = c->tiles[t], .stages = c->stages[s], .split_k = 1};
            if (config.stages >= CUBLASLT_MATMUL_STAGES_8xAUTO) /* kernels of Hopper and later, which know clusters */
                config.cluster_shape = cluster_shape(key, config.tile);
            add(all, key, &config, multiprocessors);
            add_splits(all, key, c, config, multiprocessors, workspace_bytes);
            for (int custom = 1; custom <= c->custom_max && c->custom_max <= MOST_CUSTOM; custom++) {
                config.custom = custom; /* kernels for vectors differ in this alone */
                add(all, key, &config, multiprocessors);
            }
        }
}

/* --- the order, and the first that passes ---------------------------------------------------------------------- */

/** By the estimate, then by the attributes that differ between candidates: no two are equal. */
static int compare_candidates(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->estimate != y->estimate)
        return x->estimate < y->estimate ? -1 : 1;
    const int64_t p[] = {x->config.id, x->config.tile, x->config.stages, x->config.split_k, x->config.custom};
    const int64_t q[] = {y->config.id, y->config.tile, y->config.stages, y->config.split_k, y->config.custom};
    for (int i = 0; i < 5; i++)
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    return 0;
}

static tlob_status collect(tlob_lane *lane, const tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                           candidates *all) {
    int ids[MOST_ALGORITHMS], count = 0;
    cublasStatus_t code = cublasLtMatmulAlgoGetIds(lane->handle, compute_type(&plan->key), CUDA_R_32F, CUDA_R_32F,
                                                   CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, MOST_ALGORITHMS, ids, &count);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoGetIds", gemm, NULL);
    if (count >= MOST_ALGORITHMS) /* and which of them are here would depend on the order of the list */
        return tlob_cublaslt_fail(CUBLAS_STATUS_INTERNAL_ERROR, "cublasLtMatmulAlgoGetIds", gemm,
                                  "the library lists more algorithms than this libtlob looks at");
    caps *c = malloc(sizeof(*c));
    all->out_of_memory = !c;
    for (int i = 0; i < count && !all->out_of_memory; i++) {
        cublasLtMatmulAlgo_t algo;
        code = init(lane->handle, &plan->key, ids[i], &algo);
        if (code != CUBLAS_STATUS_SUCCESS && code != CUBLAS_STATUS_NOT_SUPPORTED) {
            free(c);
            return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoInit", gemm, NULL);
        }
        if (code != CUBLAS_STATUS_SUCCESS)
            continue;
        read_caps(&algo, c);
        if (!find_obstacle(c, &plan->key))
            add_configurations(all, &plan->key, ids[i], c, multiprocessors, (int64_t)lane->params.workspace_bytes);
    }
    free(c);
    if (all->out_of_memory)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "plan", 0, NULL, gemm,
                                 "no host memory to order the algorithms in");
    qsort(all->list, all->count, sizeof(*all->list), compare_candidates);
    return TLOB_OK;
}

/** What the library answers of attributes that it does not take, as against a failure. */
static bool is_refusal(cublasStatus_t code) {
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE ||
           code == CUBLAS_STATUS_ARCH_MISMATCH;
}

/** Whether plan->algo runs here, as far as the library can tell; `*why` is NULL then. */
static tlob_status check(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, tlob_algo_config *config,
                         const char **why) {
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof(result));
    cublasStatus_t code = cublasLtMatmulAlgoCheck(lane->handle, &plan->desc, &plan->a, &plan->b, &plan->c, &plan->c,
                                                  &plan->algo, &result);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = result.state;
    if (code != CUBLAS_STATUS_SUCCESS && !is_refusal(code))
        return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoCheck", gemm, NULL);
    config->workspace_bytes = (int64_t)result.workspaceSize;
    *why = code != CUBLAS_STATUS_SUCCESS ? "the library's own check refuses it for this problem and these operands"
           : result.workspaceSize > lane->params.workspace_bytes ? "it needs more workspace than the stream has"
                                                                 : tlob_plan_why_denied(plan);
    return TLOB_OK;
}

/** Whether a candidate passes. Sets plan->algo. A failure is none of its own: the next would be another answer. */
static tlob_status try(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, tlob_algo_config *config,
                       bool *passed) {
    const char *why = NULL;
    tlob_status status = tlob_algo_make(lane->handle, plan, config, gemm);
    if (status == TLOB_OK)
        status = check(lane, plan, gemm, config, &why);
    *passed = status == TLOB_OK && !why;
    return status;
}

/** The first `most` that pass, of `*tried` in their order. */
static tlob_status search(tlob_lane *lane, tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                          tlob_algo_config *configs, size_t most, size_t *count, size_t *tried) {
    candidates all = {0};
    bool passed;
    tlob_status status = collect(lane, plan, multiprocessors, gemm, &all);
    *count = 0;
    for (size_t i = 0; i < all.count && status == TLOB_OK && *count < most; i++) {
        configs[*count] = all.list[i].config;
        status = try(lane, plan, gemm, &configs[*count], &passed);
        *count += status == TLOB_OK && passed;
    }
    *tried = all.count;
    free(all.list);
    return status;
}

tlob_status tlob_algo_search_many(tlob_lane *lane, tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                                  tlob_algo_config *configs, size_t most, size_t *count) {
    size_t tried;
    return search(lane, plan, multiprocessors, gemm, configs, most, count, &tried);
}

tlob_status tlob_algo_search(tlob_lane *lane, tlob_plan *plan, int multiprocessors, const tlob_gemm *gemm,
                             tlob_algo_config *config) {
    size_t count, tried;
    tlob_status status = search(lane, plan, multiprocessors, gemm, config, 1, &count, &tried);
    if (status == TLOB_OK && !count)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, TLOB_CUBLASLT_NAME, "cublasLtMatmulAlgoCheck", 0, NULL, gemm,
                                 "none of %zu configurations with a fixed order of sums passes for this problem; "
                                 "choose another backend by the policy or tlob_gemm_run_on", tried);
    return status;
}

/* --- one that was given ---------------------------------------------------------------------------------------- */

static bool is_stable(const tlob_algo_config *config) {
    return config->split_k <= 1 || config->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
           config->reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
}

tlob_status tlob_algo_try(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, tlob_algo_config *config,
                          const char **why) {
    caps c;
    *why = NULL;
    cublasStatus_t code = init(lane->handle, &plan->key, (int)config->id, &plan->algo);
    if (code != CUBLAS_STATUS_SUCCESS && !is_refusal(code))
        return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoInit", gemm, NULL);
    if (code != CUBLAS_STATUS_SUCCESS)
        *why = "the library has no algorithm of this id for the compute mode";
    else
        read_caps(&plan->algo, &c);
    if (!*why)
        *why = find_obstacle(&c, &plan->key);
    if (!*why && lane->params.deterministic && !is_stable(config))
        *why = "the parts of a split K are summed in the order in which they finish, and the context is deterministic";
    if (*why)
        return TLOB_OK;
    code = configure(&plan->algo, config);
    if (is_refusal(code))
        *why = "the library does not take one of its attributes";
    else if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulAlgoConfigSetAttribute", gemm, NULL);
    return *why ? TLOB_OK : check(lane, plan, gemm, config, why);
}

uint32_t tlob_algo_stable_reductions(cublasLtHandle_t handle, const tlob_product_key *key, int64_t id) {
    cublasLtMatmulAlgo_t algo;
    caps c;
    if (init(handle, key, (int)id, &algo) != CUBLAS_STATUS_SUCCESS)
        return 0;
    read_caps(&algo, &c);
    return c.split_k ? c.reductions & STABLE_REDUCTIONS : 0;
}
