// A matrix product in the words of `tlob explain`: as options of a subcommand, and as a line of a file.
#ifndef CLI_PRODUCT_H
#define CLI_PRODUCT_H

#include "cli/common.h"

typedef struct cli_product {
    tlob_gemm gemm;                                                // complete after cli_product_finish
    int sizes;                                                     // how many of M, N, K were given
    int64_t lda, ldb, ldc, ld_aux;                                 // 0: packed
    int64_t stride_a, stride_b, stride_c, stride_aux, stride_bias; // -1: one after the other
} cli_product;

// Nothing given yet.
cli_product cli_product_init(void);

// Parses the options and the arguments M N K, as a child of a subcommand's parser. Input: a cli_product, which is
// initialised here. Arguments after K are left to the other parsers.
extern const struct argp cli_product_argp;

// Parses "M N K [--batch 3 ...]", words between blanks, `--compute tf32|fp32` among them; changes `text`. False: `why`
// says what is wrong. The product is finished, and not checked.
bool cli_product_parse(char *text, cli_product *product, char *why, size_t size);

// Fills in what was not given: packed leading dimensions, matrices one after the other. What does not fit an int64 is
// left to the library's own check of the extents.
void cli_product_finish(cli_product *product);

#endif
