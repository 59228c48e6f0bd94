/* Of cublasLt what the backend cublaslt calls. Like the real one it refuses what its descriptors do not agree on. */
#include <cublasLt.h>
#include <string.h>

#include "tests/fakes/fake.h"

/* What the opaque structs hold here. */
typedef struct desc {
    cublasComputeType_t compute;
    int32_t transa, transb;
    uint32_t epilogue;
    float *bias; /**< or bgrad */
    void *aux;
    int64_t stride_bias, ld_aux, stride_aux;
} desc;

typedef struct layout {
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batch;
} layout;

typedef struct preference {
    uint64_t workspace;
    uint32_t alignment[4];
} preference;

_Static_assert(sizeof(desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");

size_t cublasLtGetVersion(void) {
    return (size_t)fake.lt_version;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_FAKE";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = (cublasLtHandle_t)(void *)&fake;
    return fake_call("create");
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return fake_call("destroy");
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    memset(opaque, 0, size);
    ((desc *)(void *)opaque)->compute = compute;
    ((desc *)(void *)opaque)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return scale == CUDA_R_32F ? fake_call("desc_init") : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size) {
    desc *d = (desc *)(void *)opaque;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *field;
        size_t size;
        const char *call;
    } fields[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &d->transa, sizeof(d->transa), "desc_set"},
        {CUBLASLT_MATMUL_DESC_TRANSB, &d->transb, sizeof(d->transb), "desc_set"},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof(d->epilogue), "desc_set"},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof(d->bias), "set_bias"},
        {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &d->stride_bias, sizeof(d->stride_bias), "desc_set_layout"},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, sizeof(d->aux), "set_aux"},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->ld_aux, sizeof(d->ld_aux), "desc_set_layout"},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &d->stride_aux, sizeof(d->stride_aux), "desc_set_layout"},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].attribute == attribute && fields[i].size == size) {
            memcpy(fields[i].field, value, size);
            return fake_call(fields[i].call);
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
    memset(opaque, 0, size);
    *(layout *)(void *)opaque = (layout){.rows = rows, .cols = cols, .ld = ld, .batch = 1};
    return type == CUDA_R_32F ? fake_call("layout_init") : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t size) {
    layout *l = (layout *)(void *)opaque;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == sizeof(l->batch))
        memcpy(&l->batch, value, size);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == sizeof(l->stride))
        memcpy(&l->stride, value, size);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return fake_call("layout_set");
}

/* The documented default: what is not said to be less is taken to be aligned to 256 bytes. */
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t opaque, size_t size) {
    memset(opaque, 0, size);
    *(preference *)(void *)opaque = (preference){.alignment = {256, 256, 256, 256}};
    return fake_call("preference_init");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size) {
    preference *p = (preference *)(void *)opaque;
    int which = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(p->workspace))
        memcpy(&p->workspace, value, size);
    else if (which >= 0 && which < 4 && size == sizeof(p->alignment[0]))
        memcpy(&p->alignment[which], value, size);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return fake_call("preference_set");
}

static int list_configured(cublasComputeType_t compute, int wanted, cublasLtMatmulHeuristicResult_t *results);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preferred, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    const preference *p = (const preference *)(const void *)preferred;
    memcpy(fake.alignment, p->alignment, sizeof(fake.alignment));
    fake.workspace_limit = p->workspace;
    fake.bias_at_query = ((const desc *)(const void *)opaque)->bias;
    fake.aux_at_query = ((const desc *)(const void *)opaque)->aux;
    fake.queries++;
    if (wanted > 1) {
        *found = list_configured(((const desc *)(const void *)opaque)->compute, wanted, results);
        return fake_call("heuristic");
    }
    *found = wanted < fake.found ? wanted : fake.found;
    if (*found > 0) {
        memset(results, 0, sizeof(*results));
        results->algo.data[0] = fake.queries;
        results->workspaceSize = 4096;
        results->state = fake.found_state;
    }
    return fake_call("heuristic");
}

/* --- algorithms by their attributes ---------------------------------------------------------------------------- */

#define INPUT_32F  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F
#define INPUT_TF32 CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32
#define INPUT_16F  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F

const fake_algorithm fake_algorithms[FAKE_ALGORITHMS] = {
    {21, {15, 17, 18}, {6, 12}, 1, 7, 0, 16, INPUT_TF32},
    {20, {15, 20}, {26, 28}, 1, 7, 0, 4, INPUT_32F},
    {13, {0}, {0}, 0, 0, 3, 4, INPUT_32F},
    {55, {11, 15}, {31}, 1, 2, 2, 4, INPUT_32F},
    {99, {15}, {6}, 1, 2, 0, 4, INPUT_16F}, /* rounds more than any mode allows */
    {70, {15}, {6}, 1, 1, 0, 4, INPUT_TF32}, /* splits K in place alone */
    {68, {20}, {31}, 0, 0, 0, 4, INPUT_32F}, /* known to be wrong in one version */
    {43, {15, 18}, {34}, 1, 4, 0, 16, INPUT_TF32},
    {98, {600}, {6}, 0, 0, 0, 4, INPUT_32F}, /* a tile that nobody knows */
};

enum { CONFIGURED = 0x12345678 };

/* What an algorithm holds that was made from its number, where one of the heuristic holds a count. */
typedef struct configured {
    uint64_t count;
    uint32_t is, attribute[9]; /* by cublasLtMatmulAlgoConfigAttributes_t */
} configured;

_Static_assert(sizeof(configured) <= sizeof(cublasLtMatmulAlgo_t), "fits");

static int place_of(uint32_t id) {
    for (int i = 0; i < FAKE_ALGORITHMS; i++)
        if (fake_algorithms[i].id == (int)id)
            return i;
    return -1;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                        int wanted, int ids[], int *found) {
    (void)handle, (void)compute;
    if (scale != CUDA_R_32F || a != CUDA_R_32F || b != CUDA_R_32F || c != CUDA_R_32F || d != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    *found = wanted < FAKE_ALGORITHMS ? wanted : FAKE_ALGORITHMS;
    for (int i = 0; i < *found; i++) {
        int at = fake.rotated < 0 ? FAKE_ALGORITHMS - 1 - i - fake.rotated : i + fake.rotated;
        ids[i] = fake_algorithms[at % FAKE_ALGORITHMS].id;
    }
    return fake_call("get_ids");
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo) {
    (void)handle, (void)scale, (void)a, (void)b, (void)c, (void)d;
    configured *to = (configured *)(void *)algo;
    if (place_of((uint32_t)id) < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(algo, 0, sizeof(*algo));
    to->is = CONFIGURED;
    to->attribute[CUBLASLT_ALGO_CONFIG_ID] = (uint32_t)id;
    to->attribute[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
    if (compute == CUBLAS_COMPUTE_32F && fake_algorithms[place_of((uint32_t)id)].inputs == INPUT_TF32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return fake_call("algo_init");
}

static cublasStatus_t give(const void *from, size_t have, void *to, size_t size, size_t *written) {
    *written = have;
    if (size == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (size != have)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t bytes_of(const uint32_t ids[4]) {
    size_t count = 0;
    while (count < 4 && ids[count])
        count++;
    return count * sizeof(*ids);
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute, void *value, size_t size,
                                                 size_t *written) {
    const configured *from = (const configured *)(const void *)algo;
    const fake_algorithm *f = &fake_algorithms[place_of(from->attribute[CUBLASLT_ALGO_CONFIG_ID])];
    const int32_t out_of_place = !fake.in_place_alone;
    switch (attribute) {
    case CUBLASLT_ALGO_CAP_TILE_IDS: return give(f->tiles, bytes_of(f->tiles), value, size, written);
    case CUBLASLT_ALGO_CAP_STAGES_IDS: return give(f->stages, bytes_of(f->stages), value, size, written);
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT: return give(&f->split_k, 4, value, size, written);
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK: return give(&f->reductions, 4, value, size, written);
    case CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX: return give(&f->custom_max, 4, value, size, written);
    case CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS: return give(&f->inputs, 8, value, size, written);
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT: return give(&out_of_place, 4, value, size, written);
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES: return give(&f->alignment, 4, value, size, written);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, const void *value,
                                                    size_t size) {
    configured *to = (configured *)(void *)algo;
    bool narrow = attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID;
    uint16_t half = 0;
    if (attribute == CUBLASLT_ALGO_CONFIG_ID || size != (narrow ? 2 : 4))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(narrow ? (void *)&half : (void *)&to->attribute[attribute], value, size);
    if (narrow)
        to->attribute[attribute] = half;
    /* eight a configuration: noted only where one is to fail */
    return fake.failing_call && !strcmp(fake.failing_call, "config_set") ? fake_call("config_set")
                                                                         : CUBLAS_STATUS_SUCCESS;
}

/* Each with its first tile and stages, and then again; the first one with a split K that is summed in place. */
static int list_configured(cublasComputeType_t compute, int wanted, cublasLtMatmulHeuristicResult_t *results) {
    int count = 0;
    for (int i = 0; i < 2 * fake.listed && count < wanted; i++) {
        const fake_algorithm *f = &fake_algorithms[i % fake.listed];
        if (compute == CUBLAS_COMPUTE_32F && f->inputs == INPUT_TF32)
            continue;
        configured *to = (configured *)(void *)&results[count].algo;
        memset(&results[count], 0, sizeof(results[count]));
        to->is = CONFIGURED;
        to->attribute[CUBLASLT_ALGO_CONFIG_ID] = (uint32_t)f->id;
        to->attribute[CUBLASLT_ALGO_CONFIG_TILE_ID] = f->tiles[0];
        to->attribute[CUBLASLT_ALGO_CONFIG_STAGES_ID] = f->stages[0];
        to->attribute[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
        results[count++].state = fake.found_state;
    }
    if (count && results[0].state == CUBLAS_STATUS_SUCCESS) {
        configured *first = (configured *)(void *)&results[0].algo;
        first->attribute[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 2;
        first->attribute[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    }
    return count;
}

static bool listed(const uint32_t ids[4], uint32_t id) {
    bool found = !ids[0] && !id;
    for (int i = 0; i < 4 && ids[i]; i++)
        found = found || ids[i] == id;
    return found;
}

/* The real one looks at no pointers of A to D either. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
    (void)handle, (void)opaque, (void)a, (void)b, (void)d;
    const configured *from = (const configured *)(const void *)algo;
    const layout *l = (const layout *)(const void *)c;
    const uint32_t *attribute = from->attribute;
    int place = place_of(attribute[CUBLASLT_ALGO_CONFIG_ID]);
    uint32_t split = attribute[CUBLASLT_ALGO_CONFIG_SPLITK_NUM];
    cublasStatus_t code = fake_call("check");
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    if (from->is != CONFIGURED || place < 0 || fake.refused >> place & 1 ||
        !listed(fake_algorithms[place].tiles, attribute[CUBLASLT_ALGO_CONFIG_TILE_ID]) ||
        !listed(fake_algorithms[place].stages, attribute[CUBLASLT_ALGO_CONFIG_STAGES_ID]))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fake.checked_split_most = split > fake.checked_split_most ? split : fake.checked_split_most;
    fake.checked_in_place = fake.checked_in_place || attribute[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] ==
                                                         CUBLASLT_REDUCTION_SCHEME_INPLACE;
    result->workspaceSize = fake.more_workspace;
    if (split > 1)
        result->workspaceSize += l->rows * l->cols * (uint64_t)l->batch * split * sizeof(float);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t size, size_t *written) {
    const configured *from = (const configured *)(const void *)algo;
    if (from->is == CONFIGURED || attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID) {
        uint16_t half = from->is == CONFIGURED ? (uint16_t)from->attribute[attribute] : 0;
        return attribute >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID
                   ? give(&half, sizeof(half), value, size, written)
                   : give(&from->attribute[attribute], sizeof(from->attribute[attribute]), value, size, written);
    }
    *written = sizeof(fake.config[attribute]);
    if (size != *written)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &fake.config[attribute], size);
    return CUBLAS_STATUS_SUCCESS;
}

/* The vendor's epilogues by their numbers. */
static bool epilogue(uint32_t number, tlob_epilogue *to) {
    static const struct {
        cublasLtEpilogue_t number;
        tlob_epilogue epilogue;
    } rows[] = {
        {CUBLASLT_EPILOGUE_DEFAULT, TLOB_EPILOGUE_NONE},
        {CUBLASLT_EPILOGUE_BIAS, TLOB_EPILOGUE_BIAS},
        {CUBLASLT_EPILOGUE_RELU, TLOB_EPILOGUE_RELU},
        {CUBLASLT_EPILOGUE_RELU_BIAS, TLOB_EPILOGUE_RELU_BIAS},
        {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, TLOB_EPILOGUE_RELU_AUX_BIAS},
        {CUBLASLT_EPILOGUE_DRELU_BGRAD, TLOB_EPILOGUE_DRELU_BGRAD},
        {CUBLASLT_EPILOGUE_BGRADA, TLOB_EPILOGUE_BGRADA},
        {CUBLASLT_EPILOGUE_BGRADB, TLOB_EPILOGUE_BGRADB},
        {CUBLASLT_EPILOGUE_GELU_BIAS, TLOB_EPILOGUE_GELU_BIAS},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, TLOB_EPILOGUE_GELU_AUX_BIAS},
        {CUBLASLT_EPILOGUE_DGELU_BGRAD, TLOB_EPILOGUE_DGELU_BGRAD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].number == number) {
            *to = rows[i].epilogue;
            return true;
        }
    return false;
}

/* What the library was measured, or is documented, to refuse of an epilogue, and attributes that no epilogue needs. */
static bool takes(const desc *d, const tlob_gemm *g) {
    const tlob_epilogue_traits *traits = tlob_epilogue_get_traits(g->epilogue);
    bool aux = traits->reads_aux || traits->writes_aux, bias = traits->reads_bias || traits->writes_bgrad;
    int64_t unit = traits->aux_is_mask ? 128 : 8;
    if ((g->epilogue == TLOB_EPILOGUE_BGRADA && g->transa == TLOB_OP_T) ||
        (g->epilogue == TLOB_EPILOGUE_BGRADB && g->transb == TLOB_OP_N))
        return false;
    if (bias != (d->bias != NULL) || aux != (d->aux != NULL) || (!bias && d->stride_bias))
        return false;
    if (!aux)
        return !d->ld_aux && !d->stride_aux;
    return (uintptr_t)d->aux % 16 == 0 && d->ld_aux >= g->m && d->ld_aux % unit == 0 && d->stride_aux % unit == 0;
}

/* The problem that descriptor and layouts amount to; false where they do not agree. */
static bool translate(const desc *d, const layout *a, const layout *b, const layout *c, tlob_gemm *g) {
    bool ta = d->transa == CUBLAS_OP_T, tb = d->transb == CUBLAS_OP_T;
    *g = (tlob_gemm){.transa = ta ? TLOB_OP_T : TLOB_OP_N,
                     .transb = tb ? TLOB_OP_T : TLOB_OP_N,
                     .m = (int64_t)c->rows,
                     .n = (int64_t)c->cols,
                     .k = (int64_t)(ta ? a->rows : a->cols),
                     .lda = a->ld,
                     .ldb = b->ld,
                     .ldc = c->ld,
                     .batch = c->batch,
                     .stride_a = a->stride,
                     .stride_b = b->stride,
                     .stride_c = c->stride,
                     .ld_aux = d->ld_aux,
                     .stride_aux = d->stride_aux,
                     .stride_bias = d->stride_bias};
    g->compute = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32;
    return epilogue(d->epilogue, &g->epilogue) && takes(d, g) && (int64_t)(ta ? a->cols : a->rows) == g->m &&
           (int64_t)(tb ? b->cols : b->rows) == g->k && (int64_t)(tb ? b->rows : b->cols) == g->n &&
           a->batch == c->batch && b->batch == c->batch;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream) {
    (void)handle;
    const desc *description = (const desc *)(const void *)opaque;
    const layout *la = (const layout *)(const void *)al, *lb = (const layout *)(const void *)bl,
                 *lc = (const layout *)(const void *)cl;
    tlob_gemm gemm;
    cublasStatus_t code = fake_call("matmul");
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    if (!c || !algo || memcmp(cl, dl, sizeof(*cl)) != 0 || !translate(description, la, lb, lc, &gemm))
        return CUBLAS_STATUS_INVALID_VALUE;
    fake.stream = stream;
    fake.workspace = workspace;
    fake.workspace_bytes = bytes;
    fake.algorithm = algo->data[0];
    if (((const configured *)(const void *)algo)->is == CONFIGURED)
        memcpy(fake.ran, ((const configured *)(const void *)algo)->attribute, sizeof(fake.ran));
    gemm.alpha = *(const float *)alpha;
    gemm.beta = *(const float *)beta;
    fake.epilogue = description->epilogue;
    tlob_gemm_operands x = {.a = a, .b = b, .c = c, .d = d, .aux = description->aux};
    if (tlob_epilogue_get_traits(gemm.epilogue)->writes_bgrad)
        x.bgrad = description->bias;
    else
        x.bias = description->bias;
    fake_multiply(&gemm, &x);
    return code;
}
