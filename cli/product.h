// The matrix product that a command is asked about: its options, and how it is shown.
#ifndef CLI_PRODUCT_H
#define CLI_PRODUCT_H

#include "cli/common.h"

#include <cjson/cJSON.h>

// Filled by cli_product_argp, whose input it is; sizes by cli_product_size. Then cli_product_finish.
typedef struct cli_product_options {
    tlob_gemm gemm;                                                // without its layout until it is finished
    int64_t lda, ldb, ldc, ld_aux;                                 // 0: packed
    int64_t stride_a, stride_b, stride_c, stride_aux, stride_bias; // -1: one after the other
    bool given;                                                    // whether any option or size was
} cli_product_options;

// --transa to --stride-bias: option keys from CLI_KEY_PRODUCT on.
extern const struct argp cli_product_argp;

// Takes an argument as size `index` of M, N, K; a usage error where it is none.
void cli_product_size(struct argp_state *state, unsigned index, const char *arg, cli_product_options *options);

// Fills in what was not given of the layout of options->gemm.
void cli_product_finish(cli_product_options *options);

// Lines of a table: operation, problem, strides, aux.
void cli_product_print(const tlob_gemm *gemm);

// As options of `tlob explain`: "16 256 32 --batch 3 --compute tf32"; what they default to is left out.
void cli_product_words(const tlob_gemm *gemm, char *text, size_t size);

// Adds the object "problem" to `json`.
void cli_product_add(cJSON *json, const tlob_gemm *gemm);

#endif
