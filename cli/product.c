#include "cli/product.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_TRANSA = CLI_KEY_PRODUCT,
    KEY_TRANSB,
    KEY_BATCH,
    KEY_EPILOGUE,
    KEY_ALPHA,
    KEY_BETA,
    KEY_LDA, // the layout, in the order of layout_fields
    KEY_LDB,
    KEY_LDC,
    KEY_LD_AUX,
    KEY_STRIDE_A,
    KEY_STRIDE_B,
    KEY_STRIDE_C,
    KEY_STRIDE_AUX,
    KEY_STRIDE_BIAS,
};

// What these options are called, the least that they take, where they go, and of which field of the problem they are.
static const struct {
    const char *option;
    int64_t least;
    size_t offset, field;
} layout_fields[] = {
#define FIELD(name, least, member)                                                                                     \
    {name, least, offsetof(cli_product_options, member), offsetof(tlob_gemm, member)}
    FIELD("--lda", 1, lda),           FIELD("--ldb", 1, ldb),
    FIELD("--ldc", 1, ldc),           FIELD("--ld-aux", 1, ld_aux),
    FIELD("--stride-a", 0, stride_a), FIELD("--stride-b", 0, stride_b),
    FIELD("--stride-c", 0, stride_c), FIELD("--stride-aux", 0, stride_aux),
    FIELD("--stride-bias", 0, stride_bias),
#undef FIELD
};
enum { FIELDS = sizeof layout_fields / sizeof *layout_fields };

static const struct argp_option product_options[] = {
    {NULL, 0, NULL, 0, "The product D = epilogue(alpha op(A) op(B) + beta C):", 2},
    {"transa", KEY_TRANSA, NULL, 0, "A lies transposed, as k x m", 2},
    {"transb", KEY_TRANSB, NULL, 0, "B lies transposed, as n x k", 2},
    {"batch", KEY_BATCH, "COUNT", 0, "A strided batch of COUNT products (default 1)", 2},
    {"epilogue", KEY_EPILOGUE, "NAME", 0,
     "none (the default), bias, relu, relu_bias, relu_aux_bias, drelu_bgrad, bgrada, bgradb, gelu_bias, gelu_aux_bias "
     "or dgelu_bgrad",
     2},
    {"alpha", KEY_ALPHA, "NUMBER", 0, "Default 1", 2},
    {"beta", KEY_BETA, "NUMBER", 0, "Default 0", 2},
    {"lda", KEY_LDA, "N", 0, "Leading dimensions (default: packed; that of aux: a multiple of 128)", 2},
    {"ldb", KEY_LDB, "N", 0, NULL, 2},
    {"ldc", KEY_LDC, "N", 0, NULL, 2},
    {"ld-aux", KEY_LD_AUX, "N", 0, NULL, 2},
    {"stride-a", KEY_STRIDE_A, "N", 0, "Strides of a batch (default: one matrix after the other)", 2},
    {"stride-b", KEY_STRIDE_B, "N", 0, NULL, 2},
    {"stride-c", KEY_STRIDE_C, "N", 0, NULL, 2},
    {"stride-aux", KEY_STRIDE_AUX, "N", 0, NULL, 2},
    {"stride-bias", KEY_STRIDE_BIAS, "N", 0, NULL, 2},
    {0},
};

// --- words ---

// The value of an option or of a size, and where it is said what is wrong with it.
typedef struct word {
    const char *option, *text;
    char *why;
    size_t size;
} word;

static bool take_integer(const word *w, int64_t least, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(w->text, &end, 10);
    if (errno || end == w->text || *end || isspace((unsigned char)*w->text) || number < least) {
        snprintf(w->why, w->size, "%s: '%.60s' is not a whole number from %" PRId64 " to %" PRId64, w->option, w->text,
                 least, INT64_MAX);
        return false;
    }
    *value = number;
    return true;
}

static bool take_float(const word *w, float *value) {
    const double limit = 1e30;
    char *end;
    errno = 0;
    double number = strtod(w->text, &end);
    if (errno || end == w->text || *end || isspace((unsigned char)*w->text) ||
        !(number >= -limit && number <= limit)) {
        snprintf(w->why, w->size, "%s: '%.60s' is not a number from %g to %g", w->option, w->text, -limit, limit);
        return false;
    }
    *value = (float)number;
    return true;
}

static bool take_epilogue(const word *w, tlob_epilogue *epilogue) {
    char list[256] = "";
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++) {
        const char *name = tlob_epilogue_get_traits((tlob_epilogue)i)->name;
        *epilogue = (tlob_epilogue)i;
        if (!strcmp(w->text, name))
            return true;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", name);
    }
    snprintf(w->why, w->size, "%s: '%.60s' is not one of: %s", w->option, w->text, list);
    return false;
}

bool cli_product_take(cli_product_options *options, int key, const char *option, const char *text, char *why,
                      size_t size) {
    const word w = {option, text, why, size};
    tlob_gemm *gemm = &options->gemm;
    options->given = true;
    switch (key) {
    case KEY_TRANSA:
        gemm->transa = TLOB_OP_T;
        return true;
    case KEY_TRANSB:
        gemm->transb = TLOB_OP_T;
        return true;
    case KEY_BATCH:
        return take_integer(&w, 0, &gemm->batch);
    case KEY_EPILOGUE:
        return take_epilogue(&w, &gemm->epilogue);
    case KEY_ALPHA:
        return take_float(&w, &gemm->alpha);
    case KEY_BETA:
        return take_float(&w, &gemm->beta);
    default:
        return take_integer(&w, layout_fields[key - KEY_LDA].least,
                            (int64_t *)(void *)((char *)options + layout_fields[key - KEY_LDA].offset));
    }
}

bool cli_product_take_size(cli_product_options *options, unsigned index, const char *text, char *why, size_t size) {
    static const char *const names[] = {"M", "N", "K"};
    int64_t *sizes[] = {&options->gemm.m, &options->gemm.n, &options->gemm.k};
    options->given = true;
    if (index < 3)
        return take_integer(&(word){names[index], text, why, size}, 0, sizes[index]);
    snprintf(why, size, "unexpected argument '%.60s': three sizes M N K are enough", text);
    return false;
}

// --- on the command line ---

cli_product_options cli_product_begin(void) {
    return (cli_product_options){.gemm = tlob_gemm_init(1, 1, 1),
                                 .stride_a = -1,
                                 .stride_b = -1,
                                 .stride_c = -1,
                                 .stride_aux = -1,
                                 .stride_bias = -1};
}

static error_t parse_product(int key, char *arg, struct argp_state *state) {
    cli_product_options *options = state->input;
    char option[32], why[512];
    if (key == ARGP_KEY_INIT)
        *options = cli_product_begin();
    for (const struct argp_option *o = product_options; o->name || o->doc; o++) {
        if (!o->name || o->key != key)
            continue;
        snprintf(option, sizeof option, "--%s", o->name);
        if (!cli_product_take(options, key, option, arg, why, sizeof why))
            argp_error(state, "%s", why);
        return 0;
    }
    return key == ARGP_KEY_INIT ? 0 : ARGP_ERR_UNKNOWN;
}

const struct argp cli_product_argp = {.options = product_options, .parser = parse_product};

void cli_product_size(struct argp_state *state, unsigned index, const char *arg, cli_product_options *options) {
    char why[512];
    if (!cli_product_take_size(options, index, arg, why, sizeof why))
        argp_error(state, "%s", why);
}

// --- the layout ---

// A stride that was not given: one matrix after the other. One that does not fit is left to the library's own check of
// the extents.
static int64_t default_stride(int64_t given, int64_t ld, int64_t columns) {
    int64_t stride;
    if (given >= 0)
        return given;
    return __builtin_mul_overflow(ld, columns, &stride) ? INT64_MAX : stride;
}

void cli_product_finish(cli_product_options *options) {
    tlob_gemm *gemm = &options->gemm, packed = tlob_gemm_init(gemm->m, gemm->n, gemm->k);
    bool ta = gemm->transa == TLOB_OP_T, tb = gemm->transb == TLOB_OP_T;
    gemm->lda = options->lda ? options->lda : ta ? packed.ldb : packed.lda;
    gemm->ldb = options->ldb ? options->ldb : tb ? (gemm->n > 1 ? gemm->n : 1) : packed.ldb;
    gemm->ldc = options->ldc ? options->ldc : packed.ldc;
    gemm->ld_aux = options->ld_aux ? options->ld_aux : packed.ld_aux;
    gemm->stride_a = default_stride(options->stride_a, gemm->lda, ta ? gemm->m : gemm->k);
    gemm->stride_b = default_stride(options->stride_b, gemm->ldb, tb ? gemm->k : gemm->n);
    gemm->stride_c = default_stride(options->stride_c, gemm->ldc, gemm->n);
    gemm->stride_aux = default_stride(options->stride_aux, gemm->ld_aux, gemm->n);
    int64_t vector = gemm->epilogue == TLOB_EPILOGUE_BGRADB ? gemm->n : gemm->m;
    gemm->stride_bias = default_stride(options->stride_bias, vector, 1);
}

// --- how it is shown ---

static const char *const operations[] = {"sgemm", "sgemm_strided_batched", "matmul_bias"};

void cli_product_print(const tlob_gemm *gemm) {
    const tlob_epilogue_traits *epilogue = tlob_epilogue_get_traits(gemm->epilogue);
    printf("operation  %s\n", operations[tlob_gemm_operation(gemm)]);
    printf("problem    m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", op %c%c, ld %" PRId64 " %" PRId64 " %" PRId64
           ", batch %" PRId64 ", alpha %g, beta %g, epilogue %s\n",
           gemm->m, gemm->n, gemm->k, gemm->transa ? 'T' : 'N', gemm->transb ? 'T' : 'N', gemm->lda, gemm->ldb,
           gemm->ldc, gemm->batch, (double)gemm->alpha, (double)gemm->beta, epilogue->name);
    if (gemm->batch > 1)
        printf("strides    %" PRId64 " %" PRId64 " %" PRId64 "\n", gemm->stride_a, gemm->stride_b, gemm->stride_c);
    if (epilogue->reads_aux || epilogue->writes_aux)
        printf("aux        ld %" PRId64 ", stride %" PRId64 ", %s\n", gemm->ld_aux, gemm->stride_aux,
               epilogue->aux_is_mask ? "bits" : "floats");
}

static void add_words(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_words(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

// Whether a field of the layout counts in a problem: strides of a batch, what an epilogue takes besides.
static bool counts(const tlob_gemm *gemm, int field) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(gemm->epilogue);
    bool aux = t->reads_aux || t->writes_aux, vector = t->reads_bias || t->writes_bgrad;
    switch (KEY_LDA + field) {
    case KEY_LDA:
    case KEY_LDB:
    case KEY_LDC:
        return true;
    case KEY_LD_AUX:
        return aux;
    case KEY_STRIDE_AUX:
        return aux && gemm->batch > 1;
    case KEY_STRIDE_BIAS:
        return vector && gemm->batch > 1;
    default:
        return gemm->batch > 1;
    }
}

// What the layout of a problem would be by default: its strides from the leading dimensions that it has.
static tlob_gemm usual_layout(const tlob_gemm *gemm) {
    cli_product_options packed = cli_product_begin(), strides;
    packed.gemm = *gemm;
    strides = packed;
    strides.lda = gemm->lda;
    strides.ldb = gemm->ldb;
    strides.ldc = gemm->ldc;
    strides.ld_aux = gemm->ld_aux;
    cli_product_finish(&packed);
    cli_product_finish(&strides);
    tlob_gemm usual = strides.gemm;
    usual.lda = packed.gemm.lda;
    usual.ldb = packed.gemm.ldb;
    usual.ldc = packed.gemm.ldc;
    usual.ld_aux = packed.gemm.ld_aux;
    return usual;
}

void cli_product_words(const tlob_gemm *gemm, char *text, size_t size) {
    const tlob_gemm packed = usual_layout(gemm);
    snprintf(text, size, "%" PRId64 " %" PRId64 " %" PRId64 "%s%s", gemm->m, gemm->n, gemm->k,
             gemm->transa ? " --transa" : "", gemm->transb ? " --transb" : "");
    if (gemm->batch != 1)
        add_words(text, size, " --batch %" PRId64, gemm->batch);
    for (int i = 0; i < FIELDS; i++) {
        int64_t value, usual;
        memcpy(&value, (const char *)gemm + layout_fields[i].field, sizeof value);
        memcpy(&usual, (const char *)&packed + layout_fields[i].field, sizeof usual);
        if (value != usual && counts(gemm, i))
            add_words(text, size, " %s %" PRId64, layout_fields[i].option, value);
    }
    if (gemm->alpha != 1)
        add_words(text, size, " --alpha %g", (double)gemm->alpha);
    if (gemm->beta != 0)
        add_words(text, size, " --beta %g", (double)gemm->beta);
    if (gemm->epilogue)
        add_words(text, size, " --epilogue %s", tlob_epilogue_get_traits(gemm->epilogue)->name);
    if (gemm->compute)
        add_words(text, size, " --compute %s", tlob_compute_name(gemm->compute));
}

void cli_product_add(cJSON *json, const tlob_gemm *gemm) {
    const struct {
        const char *key;
        int64_t value;
    } fields[] = {
        {"m", gemm->m}, {"n", gemm->n}, {"k", gemm->k}, {"lda", gemm->lda}, {"ldb", gemm->ldb}, {"ldc", gemm->ldc},
        {"batch", gemm->batch}, {"stride_a", gemm->stride_a}, {"stride_b", gemm->stride_b},
        {"stride_c", gemm->stride_c}, {"ld_aux", gemm->ld_aux}, {"stride_aux", gemm->stride_aux},
        {"stride_bias", gemm->stride_bias},
    };
    cJSON *problem = cJSON_AddObjectToObject(json, "problem");
    cJSON_AddStringToObject(problem, "operation", operations[tlob_gemm_operation(gemm)]);
    cJSON_AddStringToObject(problem, "transa", gemm->transa ? "T" : "N");
    cJSON_AddStringToObject(problem, "transb", gemm->transb ? "T" : "N");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char digits[32]; // as they are: a double holds no int64
        snprintf(digits, sizeof digits, "%" PRId64, fields[i].value);
        cJSON_AddRawToObject(problem, fields[i].key, digits);
    }
    cJSON_AddNumberToObject(problem, "alpha", (double)gemm->alpha);
    cJSON_AddNumberToObject(problem, "beta", (double)gemm->beta);
    cJSON_AddStringToObject(problem, "epilogue", tlob_epilogue_get_traits(gemm->epilogue)->name);
}
