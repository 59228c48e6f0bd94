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

// An argument of the command line as size `index` of M, N, K; a usage error where it is none.
void cli_product_size(struct argp_state *state, unsigned index, const char *arg, cli_product_options *options);

// Takes the option with this key of cli_product_argp, which messages call `option`; `text` is its value. False: `why`
// says what is wrong with it.
bool cli_product_take(cli_product_options *options, int key, const char *option, const char *text, char *why,
                      size_t size);

// The same of size `index` of M, N, K.
bool cli_product_take_size(cli_product_options *options, unsigned index, const char *text, char *why, size_t size);

// A problem, with its layout, from "M N K [--batch 3 ...]", words between blanks as on the command line, also
// `--compute MODE`; changes `text`. False: `why` says what is wrong.
bool cli_product_parse(char *text, tlob_gemm *gemm, char *why, size_t size);

// Nothing is given yet.
cli_product_options cli_product_begin(void);

// Fills in what was not given of the layout of options->gemm.
void cli_product_finish(cli_product_options *options);

// Lines of a table: operation, problem, strides, aux.
void cli_product_print(const tlob_gemm *gemm);

// As options of `tlob explain`: "16 256 32 --batch 3 --compute tf32"; what they default to is left out.
void cli_product_words(const tlob_gemm *gemm, char *text, size_t size);

// Adds the object "problem" to `json`.
void cli_product_add(cJSON *json, const tlob_gemm *gemm);

#endif
