// The file of a trained model: safetensors with the weights, what inputs are normalised with, and how it was made.
//
// Tensors, all F32, row-major as safetensors has it (the library's matrices are column-major: transposed on the way):
//
//     w_q, w_k, w_v [d_out, d_in]   w_o [d_out, d_out]   w_head [3, d_out * seq]   b_head [3]   mean, std [d_in]
//
// Metadata (text): format, version, d_in, d_out, head_dim, axis, seq, levels, windows, horizon, smoothing, stride,
// odd_rows, drop_hidden, train_share, theta_mode, theta, seed, batch, lr, steps.
#ifndef CLI_MODEL_FILE_H
#define CLI_MODEL_FILE_H

#include "cli/data.h"
#include "cli/meta.h"

typedef struct cli_model_file {
    tlob_block_shape shape;
    cli_recipe recipe;
    lob_read_params read; // which rows the model has seen: leaving some out changes every window
    lob_norm norm;
    uint64_t seed;
    int64_t steps, batch;
    float lr;
    float *weights; // flat, as tlob_model_get_weights gives them; tlob_model_weight_count of them
} cli_model_file;

// Adds what says how the inputs, the labels and the block were made, and trained: all from d_in to lr of the list
// above.
void cli_model_file_describe(const cli_model_file *file, cli_meta *meta);

// Writes the file aside and puts it in place. False after printing why.
bool cli_model_file_save(const char *path, const cli_model_file *file);

// Reads and checks everything: a missing, misshapen or non-finite tensor and a metadata value that is missing, no
// number or at odds with another is named. False after printing why; free file->weights after success.
bool cli_model_file_load(const char *path, cli_model_file *file);

// The samples that the model reads in the order-book files of `options`, normalised as it was trained: in its parts,
// or `all` of them in the validation part. Prints what the files held. Hidden orders are left out if they were then
// (--drop-hidden is refused if they were not), and so are odd rows, unless --odd-rows is given. NULL after printing
// why.
lob_dataset *cli_model_file_samples(const char *path, const cli_model_file *file, const cli_data_options *options,
                                    bool all);

#endif
