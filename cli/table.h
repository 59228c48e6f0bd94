// What the subcommands of `tlob table` share: a file each.
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli/product.h"

enum { CLI_PREFER_NONE = -1, CLI_PREFER_FIRST, CLI_PREFER_LAST };

typedef struct cli_table_options {
    int what;            // index of the subcommand, -1 until it is given
    const char **files;  // as given, behind the subcommand
    int n_files;
    cli_context_options context; // --device alone
    tlob_compute compute;
    cli_product_options product;
    int prefer;
    bool json, rejected;
} cli_table_options;

// A table that was read.
typedef struct cli_table_file {
    const char *path;
    tlob_table *table;
    tlob_table_report report;
} cli_table_file;

// Reads a file; false after printing why not.
bool cli_table_read(const char *path, cli_table_file *file);

// "16 256 32 --compute tf32: cublaslt, whole, id 21 (NVIDIA H200, sm_90, 132 multiprocessors; cuBLASLt 13.1.0)"
void cli_table_words(const tlob_table_entry *entry, char *text, size_t size);

// "--block --d-in 32 --d-out 16 --head-dim 4 --samples 256 --compute tf32: fused (NVIDIA H200, ...; libtlob 0.1.0)"
void cli_table_block_words(const tlob_table_block *entry, char *text, size_t size);

// "t.json: 12 entries, 3 blocks, 1 rejected, the first: entry 3: ..."
void cli_table_print_report(const cli_table_file *file);

int cli_table_diff(const cli_table_options *options);
int cli_table_merge(const cli_table_options *options);
int cli_table_verify(const cli_table_options *options);

#endif
