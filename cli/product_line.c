// A product as a line of a file.
#include "cli/product.h"

#include <stdio.h>
#include <string.h>

// The option of this name, without its dashes.
static const struct argp_option *find_option(const char *name) {
    for (const struct argp_option *o = cli_product_argp.options; o->name || o->doc; o++)
        if (o->name && !strcmp(name, o->name))
            return o;
    return NULL;
}

static bool take_compute(const char *text, tlob_compute *compute, char *why, size_t size) {
    *compute = strcmp(text, "fp32") ? TLOB_COMPUTE_TF32 : TLOB_COMPUTE_FP32;
    if (!strcmp(text, tlob_compute_name(*compute)))
        return true;
    snprintf(why, size, "--compute: '%.60s' is not one of: tf32, fp32", text);
    return false;
}

// An option, and its value: after '=', or the next word. --compute belongs to the context on a command line, and so is
// none of cli_product_argp.
static bool take_option(cli_product_options *options, char *text, char **rest, char *why, size_t size) {
    char *value = strchr(text, '=');
    if (value)
        *value++ = 0;
    const bool compute = !strcmp(text, "--compute");
    const struct argp_option *o = find_option(text + 2);
    if (!o && !compute) {
        snprintf(why, size, "'%.60s' is no option of a product", text);
        return false;
    }
    const bool needed = compute || o->arg;
    if (needed && !value)
        value = strtok_r(NULL, " \t", rest);
    if (needed != (value != NULL)) {
        snprintf(why, size, "%s %s", text, needed ? "needs a value" : "takes no value");
        return false;
    }
    return compute ? take_compute(value, &options->gemm.compute, why, size)
                   : cli_product_take(options, o->key, text, value, why, size);
}

bool cli_product_parse(char *text, tlob_gemm *gemm, char *why, size_t size) {
    cli_product_options options = cli_product_begin();
    char *rest = NULL;
    unsigned sizes = 0;
    for (char *next = strtok_r(text, " \t", &rest); next; next = strtok_r(NULL, " \t", &rest))
        if (!(!strncmp(next, "--", 2) ? take_option(&options, next, &rest, why, size)
                                      : cli_product_take_size(&options, sizes++, next, why, size)))
            return false;
    if (sizes < 3) {
        snprintf(why, size, "three sizes are needed: M N K");
        return false;
    }
    cli_product_finish(&options);
    *gemm = options.gemm;
    return true;
}
