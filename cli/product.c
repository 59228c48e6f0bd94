#include "cli/product.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_TRANSA = CLI_KEY_PRODUCT,
    KEY_TRANSB,
    KEY_BATCH,
    KEY_EPILOGUE,
    KEY_ALPHA,
    KEY_BETA,
    KEY_COMPUTE, // in lines alone: on the command line it belongs to the context
    KEY_LDA,     // sizes, in the order of size_fields
    KEY_LDB,
    KEY_LDC,
    KEY_LD_AUX,
    KEY_STRIDE_A,
    KEY_STRIDE_B,
    KEY_STRIDE_C,
    KEY_STRIDE_AUX,
    KEY_STRIDE_BIAS,
};

// The least that these options take, and where they go.
static const struct {
    int64_t least;
    size_t offset;
} size_fields[] = {
    {1, offsetof(cli_product, lda)},        {1, offsetof(cli_product, ldb)},
    {1, offsetof(cli_product, ldc)},        {1, offsetof(cli_product, ld_aux)},
    {0, offsetof(cli_product, stride_a)},   {0, offsetof(cli_product, stride_b)},
    {0, offsetof(cli_product, stride_c)},   {0, offsetof(cli_product, stride_aux)},
    {0, offsetof(cli_product, stride_bias)},
};

static const struct argp_option options[] = {
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

static const struct argp_option compute_option = {"compute", KEY_COMPUTE, "MODE", 0, NULL, 2};

cli_product cli_product_init(void) {
    return (cli_product){.gemm = tlob_gemm_init(1, 1, 1),
                         .stride_a = -1,
                         .stride_b = -1,
                         .stride_c = -1,
                         .stride_aux = -1,
                         .stride_bias = -1};
}

// --- words ---

// Where a word is, and what is said of it if it is wrong.
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

static bool take_compute(const word *w, tlob_compute *compute) {
    *compute = strcmp(w->text, "fp32") ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32;
    if (!strcmp(w->text, tlob_compute_name(*compute)))
        return true;
    snprintf(w->why, w->size, "%s: '%.60s' is not one of: tf32, fp32", w->option, w->text);
    return false;
}

static bool take_option(cli_product *p, int key, const word *w) {
    switch (key) {
    case KEY_TRANSA:
        p->gemm.transa = TLOB_OP_T;
        return true;
    case KEY_TRANSB:
        p->gemm.transb = TLOB_OP_T;
        return true;
    case KEY_BATCH:
        return take_integer(w, 0, &p->gemm.batch);
    case KEY_EPILOGUE:
        return take_epilogue(w, &p->gemm.epilogue);
    case KEY_ALPHA:
        return take_float(w, &p->gemm.alpha);
    case KEY_BETA:
        return take_float(w, &p->gemm.beta);
    case KEY_COMPUTE:
        return take_compute(w, &p->gemm.compute);
    default:
        return take_integer(w, size_fields[key - KEY_LDA].least,
                            (int64_t *)((char *)p + size_fields[key - KEY_LDA].offset));
    }
}

static bool take_size(cli_product *p, word *w) {
    static const char *const names[] = {"M", "N", "K"};
    int64_t *sizes[] = {&p->gemm.m, &p->gemm.n, &p->gemm.k};
    w->option = names[p->sizes];
    return take_integer(w, 0, sizes[p->sizes++]);
}

// --- as options ---

static const struct argp_option *find_key(int key) {
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && o->key == key)
            return o;
    return NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    cli_product *p = state->input;
    char why[512], option[32];
    word w = {option, arg, why, sizeof why};
    const struct argp_option *found = find_key(key);
    if (found) {
        snprintf(option, sizeof option, "--%s", found->name);
        if (!take_option(p, key, &w))
            argp_error(state, "%s", why);
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        *p = cli_product_init();
        return 0;
    case ARGP_KEY_ARG:
        if (p->sizes == 3)
            return ARGP_ERR_UNKNOWN;
        if (!take_size(p, &w))
            argp_error(state, "%s", why);
        return 0;
    case ARGP_KEY_END:
        if (p->sizes < 3)
            argp_error(state, "three sizes are needed: M N K");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_product_argp = {.options = options, .parser = parse};

// --- as a line ---

static const struct argp_option *find_name(const char *name) {
    if (!strcmp(name, compute_option.name))
        return &compute_option;
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && !strcmp(name, o->name))
            return o;
    return NULL;
}

// An option, and its value: after '=', or the next word.
static bool parse_option(cli_product *p, word *w, char *text, char **rest) {
    char *value = strchr(text, '=');
    if (value)
        *value++ = 0;
    const struct argp_option *o = find_name(text + 2);
    if (!o) {
        snprintf(w->why, w->size, "'%.60s' is no option of a product", text);
        return false;
    }
    if (o->arg && !value)
        value = strtok_r(NULL, " \t", rest);
    if (!o->arg != !value) {
        snprintf(w->why, w->size, "%s %s", text, o->arg ? "needs a value" : "takes no value");
        return false;
    }
    w->option = text;
    w->text = value;
    return take_option(p, o->key, w);
}

bool cli_product_parse(char *text, cli_product *product, char *why, size_t size) {
    char *rest = NULL;
    *product = cli_product_init();
    for (char *next = strtok_r(text, " \t", &rest); next; next = strtok_r(NULL, " \t", &rest)) {
        word w = {.text = next, .why = why, .size = size};
        if (!strncmp(next, "--", 2)) {
            if (!parse_option(product, &w, next, &rest))
                return false;
        } else if (product->sizes == 3) {
            snprintf(why, size, "unexpected word '%.60s': three sizes M N K are enough", next);
            return false;
        } else if (!take_size(product, &w)) {
            return false;
        }
    }
    if (product->sizes < 3) {
        snprintf(why, size, "three sizes are needed: M N K");
        return false;
    }
    cli_product_finish(product);
    return true;
}

// --- the layout ---

static int64_t default_stride(int64_t given, int64_t ld, int64_t columns) {
    int64_t stride;
    if (given >= 0)
        return given;
    return __builtin_mul_overflow(ld, columns, &stride) ? INT64_MAX : stride;
}

void cli_product_finish(cli_product *product) {
    const cli_product *p = product;
    tlob_gemm *gemm = &product->gemm, packed = tlob_gemm_init(gemm->m, gemm->n, gemm->k);
    bool ta = gemm->transa == TLOB_OP_T, tb = gemm->transb == TLOB_OP_T;
    gemm->lda = p->lda ? p->lda : ta ? packed.ldb : packed.lda;
    gemm->ldb = p->ldb ? p->ldb : tb ? (gemm->n > 1 ? gemm->n : 1) : packed.ldb;
    gemm->ldc = p->ldc ? p->ldc : packed.ldc;
    gemm->ld_aux = p->ld_aux ? p->ld_aux : packed.ld_aux;
    gemm->stride_a = default_stride(p->stride_a, gemm->lda, ta ? gemm->m : gemm->k);
    gemm->stride_b = default_stride(p->stride_b, gemm->ldb, tb ? gemm->k : gemm->n);
    gemm->stride_c = default_stride(p->stride_c, gemm->ldc, gemm->n);
    gemm->stride_aux = default_stride(p->stride_aux, gemm->ld_aux, gemm->n);
    int64_t vector = gemm->epilogue == TLOB_EPILOGUE_BGRADB ? gemm->n : gemm->m;
    gemm->stride_bias = default_stride(p->stride_bias, vector, 1);
}
