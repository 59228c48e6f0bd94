// Order-book files as the subcommands read them: the options, the books, and the samples of the model.
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include "cli/common.h"

#include "lobdata/dataset.h"

// Input of cli_data_argp, which adds --message and --orderbook (repeatable, paired in order) and how to read them.
// Zero-initialised; cli_data_free frees the lists of names.
typedef struct cli_data_options {
    const char **messages, **orderbooks; // point into argv
    int n_messages, n_orderbooks;
    lob_read_params read;
    bool odd_rows_given, drop_hidden_given;
    bool optional; // set before parsing: no file at all is allowed
} cli_data_options;

extern const char *const cli_odd_rows_names[]; // by lob_odd_rows

extern const struct argp cli_data_argp;

void cli_data_free(cli_data_options *options);

// False, after printing why, if writing to `path` (of the option `name`; may be NULL) would destroy one of the files.
bool cli_output_spares_input(const cli_data_options *options, const char *name, const char *path);

// The books of all pairs, in the order given.
typedef struct cli_books {
    lob_book **book;
    const char *const *names; // of their orderbook files, for messages
    int count;
} cli_books;

// Reads all pairs and prints what each held on `out`. Returns CLI_OK, or CLI_FAILED after printing why; cli_books_free
// is due in both cases.
int cli_books_read(const cli_data_options *options, cli_books *books, FILE *out);

void cli_books_free(cli_books *books);

// What samples are made of: the options --levels, --windows, --horizon, --smoothing, --theta, --axis, --seq, --stride,
// --train-share. A model keeps all of it, so that its evaluation makes the same samples.
typedef struct cli_recipe {
    lob_dataset_params dataset; // dataset.seq is the sequence length of the block as well
    tlob_axis axis;
} cli_recipe;

// Bits of cli_recipe_options.given.
enum {
    CLI_GIVEN_LEVELS = 1,
    CLI_GIVEN_WINDOWS = 2,
    CLI_GIVEN_HORIZON = 4,
    CLI_GIVEN_SMOOTHING = 8,
    CLI_GIVEN_THETA = 16,
    CLI_GIVEN_AXIS = 32,
    CLI_GIVEN_SEQ = 64,
    CLI_GIVEN_STRIDE = 128,
    CLI_GIVEN_SHARE = 256,
};

// Input of cli_recipe_argp and cli_samples_argp.
typedef struct cli_recipe_options {
    cli_recipe recipe;
    unsigned given; // which options stood on the command line
} cli_recipe_options;

extern const struct argp cli_recipe_argp;
extern const struct argp cli_samples_argp; // without --axis, for what has samples but no block

extern const char *const cli_axis_names[]; // by tlob_axis

// Prints a list of windows as "1,10,50,200".
void cli_windows_print(const lob_feature_params *features, char *text, size_t size);

// Parses such a list; false if it is none.
bool cli_windows_parse(const char *text, lob_feature_params *features);

// The samples of the books; NULL after printing why not. `norm`: of a model, or NULL to learn it from the training
// part.
lob_dataset *cli_dataset_build(const cli_recipe *recipe, const cli_books *books, const lob_norm *norm);

// Of all that training sees of the samples: inputs, labels, parts, and what they were normalised with.
uint64_t cli_dataset_hash(const lob_dataset *dataset);

#endif
