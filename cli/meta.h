// The metadata of the safetensors files that `tlob train` writes: text, added when one is written, checked when one is
// read.
#ifndef CLI_META_H
#define CLI_META_H

#include "cli/common.h"

#include "io/safetensors.h"

enum { CLI_META_MAX = 48, CLI_META_TEXT = 256 };

// Keys (static storage) with their values, in the order in which they were added; zero-initialised it is empty. `entry`
// points into `text`: not to be copied.
typedef struct cli_meta {
    io_metadata entry[CLI_META_MAX];
    char text[CLI_META_MAX][CLI_META_TEXT];
    int count;
} cli_meta;

void cli_meta_add(cli_meta *meta, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

// A file that is being read and believed nothing.
typedef struct cli_reader {
    const char *path, *kind; // kind: what the file should be, as "model"
    const io_safetensors *file;
    bool good; // false once something was refused; the first reason is the one that is printed
} cli_reader;

// Refuses the file: prints "PATH: " and why, unless it has been refused already.
void cli_refuse(cli_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The value of a key; where it is missing or not as asked for the file is refused, and the answer means nothing.
const char *cli_read_text(cli_reader *r, const char *key);
int64_t cli_read_integer(cli_reader *r, const char *key, int64_t low, int64_t high);
double cli_read_number(cli_reader *r, const char *key, double low, double high);
int cli_read_choice(cli_reader *r, const char *key, const char *const *names); // names: NULL-terminated

// The data of an F32 tensor [rows, cols] (cols 0: [rows]) without NaN and Inf, or NULL after refusing the file.
const float *cli_read_floats(cli_reader *r, const char *name, int64_t rows, int64_t cols);

#endif
