#include "backends/cublaslt/pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char query[] = "cublasLtMatmulAlgoGetHeuristic";
static const char advice_other[] = "nothing else was tried; choose another backend by the policy or tlob_gemm_run_on";

tlob_status tlob_cublaslt_fail(cublasStatus_t code, const char *call, const tlob_gemm *gemm, const char *advice) {
    tlob_status status = code == CUBLAS_STATUS_ALLOC_FAILED    ? TLOB_ERR_OUT_OF_MEMORY
                         : code == CUBLAS_STATUS_NOT_SUPPORTED ? TLOB_ERR_UNSUPPORTED
                                                               : TLOB_ERR_BACKEND;
    return tlob_backend_fail(status, TLOB_CUBLASLT_NAME, call, code, cublasLtGetStatusName(code), gemm, "%s",
                             advice ? advice : advice_other);
}

/* --- building a plan ------------------------------------------------------------------------------------------- */

static cublasStatus_t set(tlob_plan *plan, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size) {
    return cublasLtMatmulDescSetAttribute(&plan->desc, attribute, value, size);
}

/** Sets a pointer of the epilogue, where it is not `*held` already. */
static cublasStatus_t set_pointer(tlob_plan *plan, cublasLtMatmulDescAttributes_t attribute, const void **held,
                                  const void *ptr) {
    if (*held == ptr)
        return CUBLAS_STATUS_SUCCESS;
    cublasStatus_t code = set(plan, attribute, &ptr, sizeof(ptr));
    if (code == CUBLAS_STATUS_SUCCESS)
        *held = ptr;
    return code;
}

/** What may differ from one call to the next. Set before the heuristic, too: it reads alignments from the pointers. */
static cublasStatus_t set_pointers(tlob_plan *plan, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (plan->key.align_bias)
        code = set_pointer(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &plan->bias, tlob_product_bias(gemm, x));
    if (code == CUBLAS_STATUS_SUCCESS && plan->key.align_aux)
        code = set_pointer(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &plan->aux, x->aux);
    return code;
}

static cublasLtEpilogue_t epilogue_of(int32_t epilogue) {
    static const cublasLtEpilogue_t vendor[TLOB_EPILOGUE_COUNT] = {
        [TLOB_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [TLOB_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [TLOB_EPILOGUE_RELU] = CUBLASLT_EPILOGUE_RELU,
        [TLOB_EPILOGUE_RELU_BIAS] = CUBLASLT_EPILOGUE_RELU_BIAS,
        [TLOB_EPILOGUE_RELU_AUX_BIAS] = CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        [TLOB_EPILOGUE_DRELU_BGRAD] = CUBLASLT_EPILOGUE_DRELU_BGRAD,
        [TLOB_EPILOGUE_BGRADA] = CUBLASLT_EPILOGUE_BGRADA,
        [TLOB_EPILOGUE_BGRADB] = CUBLASLT_EPILOGUE_BGRADB,
        [TLOB_EPILOGUE_GELU_BIAS] = CUBLASLT_EPILOGUE_GELU_BIAS,
        [TLOB_EPILOGUE_GELU_AUX_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [TLOB_EPILOGUE_DGELU_BGRAD] = CUBLASLT_EPILOGUE_DGELU_BGRAD,
    };
    return vendor[epilogue];
}

/** What the epilogue needs besides pointers. Attributes that are 0 are so by default. */
static cublasStatus_t describe_epilogue(tlob_plan *plan) {
    const tlob_product_key *key = &plan->key;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        int64_t value;
    } layout[] = {
        {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, key->stride_bias},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key->ld_aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, key->stride_aux},
    };
    cublasLtEpilogue_t epilogue = epilogue_of(key->epilogue);
    cublasStatus_t code = set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    for (size_t i = 0; i < sizeof(layout) / sizeof(layout[0]) && code == CUBLAS_STATUS_SUCCESS; i++)
        if (layout[i].value)
            code = set(plan, layout[i].attribute, &layout[i].value, sizeof(layout[i].value));
    return code;
}

static cublasStatus_t describe_product(tlob_plan *plan) {
    const tlob_product_key *key = &plan->key;
    bool tf32 = key->compute == TLOB_COMPUTE_TF32;
    cublasOperation_t transa = key->transa == TLOB_OP_T ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t transb = key->transb == TLOB_OP_T ? CUBLAS_OP_T : CUBLAS_OP_N;

    cublasStatus_t code =
        cublasLtMatmulDescInit(&plan->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &transa, sizeof(transa));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &transb, sizeof(transb));
    if (code == CUBLAS_STATUS_SUCCESS && key->epilogue != TLOB_EPILOGUE_NONE)
        code = describe_epilogue(plan);
    return code;
}

static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t layout, int64_t rows, int64_t cols, int64_t ld,
                                      int64_t batch, int64_t stride) {
    int32_t count = (int32_t)batch; /* caps.max_batch is INT32_MAX */
    cublasStatus_t code = cublasLtMatrixLayoutInit(layout, CUDA_R_32F, (uint64_t)rows, (uint64_t)cols, ld);
    if (code == CUBLAS_STATUS_SUCCESS && batch > 1)
        code = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    if (code == CUBLAS_STATUS_SUCCESS && batch > 1)
        code = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                sizeof(stride));
    return code;
}

static cublasStatus_t describe_matrices(tlob_plan *plan) {
    const tlob_product_key *key = &plan->key;
    bool ta = key->transa == TLOB_OP_T, tb = key->transb == TLOB_OP_T;
    cublasStatus_t code =
        describe_matrix(&plan->a, ta ? key->k : key->m, ta ? key->m : key->k, key->lda, key->batch, key->stride_a);
    if (code == CUBLAS_STATUS_SUCCESS)
        code =
            describe_matrix(&plan->b, tb ? key->n : key->k, tb ? key->k : key->n, key->ldb, key->batch, key->stride_b);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = describe_matrix(&plan->c, key->m, key->n, key->ldc, key->batch, key->stride_c);
    return code;
}

/** Without these the library takes every pointer to be aligned to 256 bytes. */
static cublasStatus_t prefer(cublasLtMatmulPreferenceOpaque_t *preference, const tlob_product_key *key,
                             size_t workspace) {
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int32_t bytes;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->align_c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_d},
    };
    uint64_t limit = workspace;
    cublasStatus_t code = cublasLtMatmulPreferenceInit(preference);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                                    sizeof(limit));
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]) && code == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t bytes = (uint32_t)alignments[i].bytes;
        code = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i].attribute, &bytes, sizeof(bytes));
    }
    return code;
}

/** Elements from the first of A to one past its last. */
static int64_t span_of_a(const tlob_product_key *key) {
    bool t = key->transa == TLOB_OP_T;
    return ((t ? key->m : key->k) - 1) * key->lda + (t ? key->k : key->m) +
           (key->batch > 1 ? (key->batch - 1) * key->stride_a : 0);
}

/** Algorithms that NVIDIA has said to be wrong in some versions of the library, and where. */
static const struct {
    size_t first_version, last_version; /* as cublasLtGetVersion tells */
    int32_t algorithm;
    int32_t compute;
    int64_t least_span_of_a;
    const char *why;
} denied[] = {
    {130600, 130600, 68, TLOB_COMPUTE_FP32, (int64_t)1 << 31,
     "algorithm 68 of cuBLASLt 13.6.0 fails in FP32 where A spans 2^31 elements; 13.6.1 has it right"},
};

const char *tlob_plan_why_denied(const tlob_plan *plan) {
    int32_t id = 0;
    size_t written = 0, version = cublasLtGetVersion();
    cublasStatus_t code =
        cublasLtMatmulAlgoConfigGetAttribute(&plan->algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), &written);
    bool known = code == CUBLAS_STATUS_SUCCESS; /* one that cannot be told may be the wrong one */
    for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
        if (version >= denied[i].first_version && version <= denied[i].last_version &&
            (!known || id == denied[i].algorithm) && plan->key.compute == denied[i].compute &&
            span_of_a(&plan->key) >= denied[i].least_span_of_a)
            return denied[i].why;
    return NULL;
}

tlob_status tlob_plan_query(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, int wanted,
                            cublasLtMatmulHeuristicResult_t *results, int *found) {
    cublasLtMatmulPreferenceOpaque_t preference;
    *found = 0;
    cublasStatus_t code = prefer(&preference, &plan->key, lane->params.workspace_bytes);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulPreferenceSetAttribute", gemm, NULL);
    memset(results, 0, (size_t)wanted * sizeof(*results));
    code = cublasLtMatmulAlgoGetHeuristic(lane->handle, &plan->desc, &plan->a, &plan->b, &plan->c, &plan->c,
                                          &preference, wanted, results, found);
    return code == CUBLAS_STATUS_SUCCESS ? TLOB_OK : tlob_cublaslt_fail(code, query, gemm, NULL);
}

/** Asks the heuristic for one algorithm. Success is believed only with a result whose own state is success too. */
static tlob_status choose_algorithm(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm) {
    cublasLtMatmulHeuristicResult_t result;
    int found;
    tlob_status status = tlob_plan_query(lane, plan, gemm, 1, &result, &found);
    if (status != TLOB_OK)
        return status;
    if (found < 1)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, TLOB_CUBLASLT_NAME, query, 0, NULL, gemm,
                                 "the library knows no algorithm for this problem; %s", advice_other);
    if (result.state != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(
            result.state, query, gemm,
            "this is the state of the algorithm that the library proposed; nothing else was tried");
    plan->algo = result.algo;
    plan->workspace_bytes = result.workspaceSize;
    const char *why = tlob_plan_why_denied(plan);
    if (why)
        return tlob_backend_fail(TLOB_ERR_UNSUPPORTED, TLOB_CUBLASLT_NAME, query, 0, NULL, gemm, "%s; %s", why,
                                 advice_other);
    return TLOB_OK;
}

/** All but the algorithm. */
static tlob_status build_frame(tlob_lane *lane, tlob_plan *plan, const tlob_product_key *key, const tlob_gemm *gemm,
                               const tlob_gemm_operands *x) {
    plan->key = *key;
    tlob_status cold = tlob_product_refuse_capture(lane->params.cuda_stream, TLOB_CUBLASLT_NAME, gemm);
    if (cold != TLOB_OK)
        return cold;
    cublasStatus_t code = describe_product(plan);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_pointers(plan, gemm, x);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulDescSetAttribute", gemm, NULL);
    code = describe_matrices(plan);
    return code == CUBLAS_STATUS_SUCCESS ? TLOB_OK
                                         : tlob_cublaslt_fail(code, "cublasLtMatrixLayoutSetAttribute", gemm, NULL);
}

/** Builds a plan in zeroed memory that stays where it is. Not in a capture: a query would fail, or spoil it. */
static tlob_status build(tlob_lane *lane, tlob_plan *plan, const tlob_product_key *key, const tlob_gemm *gemm,
                         const tlob_gemm_operands *x) {
    tlob_status status = build_frame(lane, plan, key, gemm, x);
    if (status != TLOB_OK)
        return status;
    return key->pick                    ? tlob_pick_apply(lane, plan, gemm)
           : lane->params.deterministic ? tlob_algo_choose(lane, plan, gemm)
                                        : choose_algorithm(lane, plan, gemm);
}

/**
 * With what is not known of the operands put in place: the workspace is as aligned as any allocation, is neither NULL
 * nor D, and nothing is written to it.
 */
static tlob_gemm_operands complete(const tlob_lane *lane, const tlob_gemm_operands *x) {
    tlob_gemm_operands some = *x;
    some.c = x->c ? x->c : lane->params.workspace;
    some.bias = x->bias ? x->bias : lane->params.workspace;
    some.bgrad = x->bgrad ? x->bgrad : lane->params.workspace;
    some.aux = x->aux ? x->aux : lane->params.workspace;
    return some;
}

tlob_status tlob_plan_frame(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm, const tlob_gemm_operands *x) {
    const tlob_gemm_operands some = complete(lane, x);
    tlob_product_key key;
    tlob_product_key_init(&key, gemm, &some, NULL);
    return build_frame(lane, plan, &key, gemm, &some);
}

/* --- looking one up -------------------------------------------------------------------------------------------- */

static tlob_plan *cached(const tlob_lane *lane, const tlob_product_key *key) {
    return (tlob_plan *)tlob_product_table_get(&lane->plans, key);
}

static tlob_status check(const tlob_plan *plan, const tlob_gemm *gemm) {
    return plan->refusal ? tlob_pick_refuse(plan->refusal, gemm) : TLOB_OK;
}

static tlob_status out_of_memory(const tlob_gemm *gemm) {
    return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "plan", 0, NULL, gemm,
                             "no host memory for a plan");
}

static tlob_status make(tlob_lane *lane, const tlob_product_key *key, const tlob_gemm *gemm,
                        const tlob_gemm_operands *x, tlob_plan **plan) {
    if (!tlob_product_table_reserve(&lane->plans))
        return out_of_memory(gemm);
    tlob_plan *made = calloc(1, sizeof(*made));
    if (!made)
        return out_of_memory(gemm);
    tlob_status status = build(lane, made, key, gemm, x);
    if (status != TLOB_OK && !made->refusal) {
        free(made);
        return status;
    }
    tlob_product_table_add(&lane->plans, &made->key);
    if (made->refusal)
        return status;
    lane->params.stats->plan_misses++;
    *plan = made;
    return TLOB_OK;
}

tlob_status tlob_plan_warm(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x, const tlob_pick *pick) {
    tlob_product_key key;
    tlob_plan *plan;
    tlob_product_key_init(&key, gemm, x, pick);
    const tlob_plan *found = cached(lane, &key);
    return found ? check(found, gemm) : make(lane, &key, gemm, x, &plan);
}

tlob_status tlob_plan_get(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x, const tlob_pick *pick,
                          tlob_plan **plan) {
    tlob_plan *found = *plan;
    if (!found || !tlob_product_key_fits(&found->key, gemm, x, pick)) {
        tlob_product_key key;
        tlob_product_key_init(&key, gemm, x, pick);
        found = cached(lane, &key);
        if (!found)
            return make(lane, &key, gemm, x, plan);
        tlob_status status = check(found, gemm);
        if (status != TLOB_OK)
            return status;
    }
    cublasStatus_t code = set_pointers(found, gemm, x);
    if (code != CUBLAS_STATUS_SUCCESS)
        return tlob_cublaslt_fail(code, "cublasLtMatmulDescSetAttribute", gemm, NULL);
    lane->params.stats->plan_hits++;
    *plan = found;
    return TLOB_OK;
}

/* --- telling --------------------------------------------------------------------------------------------------- */

/** The rows and columns that a tile id of cublasLtMatmulTile_t is named after; newer ids stay numbers. */
static void print_tile(uint32_t id, char *text, size_t size) {
    static const char *const names[] = {
        "?",      "8x8",    "8x16",    "16x8",    "8x32",    "16x16",   "32x8",    "8x64",   "16x32",
        "32x16",  "64x8",   "32x32",   "32x64",   "64x32",   "32x128",  "64x64",   "128x32", "64x128",
        "128x64", "64x256", "128x128", "256x64",  "64x512",  "128x256", "256x128", "512x64", "64x96",
        "96x64",  "96x128", "128x160", "160x128", "192x128", "128x192", "128x96",  "32x256", "256x32",
    };
    _Static_assert(sizeof(names) / sizeof(names[0]) == CUBLASLT_MATMUL_TILE_256x32 + 1, "one name an id");
    if (id < sizeof(names) / sizeof(names[0]))
        snprintf(text, size, "%s", names[id]);
    else
        snprintf(text, size, "id %u", (unsigned)id);
}

/** 0 where the library does not tell. All that are asked for here have 32 bits. */
static uint32_t config_of(const tlob_plan *plan, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value = 0;
    size_t written;
    if (cublasLtMatmulAlgoConfigGetAttribute(&plan->algo, attribute, &value, sizeof(value), &written) !=
        CUBLAS_STATUS_SUCCESS)
        return 0;
    return value;
}

/** The same of an attribute that has 16 bits. */
static unsigned narrow_config_of(const tlob_plan *plan, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint16_t value = 0;
    size_t written;
    if (cublasLtMatmulAlgoConfigGetAttribute(&plan->algo, attribute, &value, sizeof(value), &written) !=
        CUBLAS_STATUS_SUCCESS)
        return 0;
    return value;
}

/** Appends an attribute that few algorithms have, where it is not 0. */
static void tell_more(const char *name, unsigned value, tlob_lane_plan *told) {
    size_t used = strlen(told->algorithm);
    if (value)
        snprintf(told->algorithm + used, sizeof(told->algorithm) - used, " %s %u", name, value);
}

static void tell(const tlob_plan *plan, bool deterministic, tlob_lane_plan *told) {
    char tile[24];
    print_tile(config_of(plan, CUBLASLT_ALGO_CONFIG_TILE_ID), tile, sizeof(tile));
    snprintf(told->algorithm, sizeof(told->algorithm),
             "algo %u tile %s stages id %u split-k %d reduction %u swizzle %u",
             (unsigned)config_of(plan, CUBLASLT_ALGO_CONFIG_ID), tile,
             (unsigned)config_of(plan, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             (int)config_of(plan, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
             (unsigned)config_of(plan, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
             (unsigned)config_of(plan, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING));
    tell_more("custom", config_of(plan, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), told);
    tell_more("inner id", narrow_config_of(plan, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID), told);
    tell_more("cluster id", narrow_config_of(plan, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), told);
    size_t used = strlen(told->algorithm);
    if (deterministic)
        snprintf(told->algorithm + used, sizeof(told->algorithm) - used, ", deterministic");
    told->workspace_bytes = plan->workspace_bytes;
}

tlob_status tlob_plan_describe(tlob_lane *lane, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                               const tlob_algorithm_field *fields, int count, tlob_lane_plan *told) {
    const tlob_gemm_operands some = complete(lane, x);
    const tlob_pick *pick = NULL;
    tlob_pick given;
    tlob_status status = count ? tlob_pick_init(&given, fields, count, gemm) : TLOB_OK;
    if (status != TLOB_OK)
        return status;
    if (count && !(pick = tlob_pick_find(lane, &given)))
        pick = &given;

    tlob_product_key key;
    tlob_product_key_init(&key, gemm, &some, pick);
    const tlob_plan *found = cached(lane, &key);
    tlob_plan made = {0};
    status = found ? check(found, gemm) : build(lane, &made, &key, gemm, &some);
    if (status != TLOB_OK)
        return status;
    tell(found ? found : &made, lane->params.deterministic, told);
    told->cached = found != NULL;
    return TLOB_OK;
}
