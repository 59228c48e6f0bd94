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
    *found = wanted < fake.found ? wanted : fake.found;
    if (*found > 0) {
        memset(results, 0, sizeof(*results));
        results->algo.data[0] = fake.queries;
        results->workspaceSize = 4096;
        results->state = fake.found_state;
    }
    return fake_call("heuristic");
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t size, size_t *written) {
    (void)algo;
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
