// Problems by name: those that libtlob is tuned and timed on where the user brings none.
#ifndef CLI_PROBLEMS_H
#define CLI_PROBLEMS_H

#include "cli/common.h"

#include "io/error.h"

typedef struct cli_problem {
    char name[64];  // such as "block/qkv_256" or "square/64"; "trace/12" or "list/3" for one that a user brought
    tlob_gemm gemm; // as tlob_table_problem has it; a compute mode of DEFAULT is the context's
} cli_problem;

// Zero-initialised it is empty.
typedef struct cli_problems {
    cli_problem *list;
    int count, room;
} cli_problems;

// Adds one, as tlob_table_problem has it, with a name like printf's. False after printing why.
bool cli_problems_add(cli_problems *problems, const tlob_gemm *gemm, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The built-in table, in a fixed order: the block's products, skinny ones, squares of 8 to 4096, batches, epilogues, in
// both compute modes. False after printing why.
bool cli_problems_builtin(cli_problems *problems);

// Distinct problems of a trace that TLOB_TRACE wrote, in the order in which they first appear, each named after its
// line. Products that failed, and those with nothing to multiply, are left out.
bool cli_problems_from_trace(const char *path, cli_problems *problems);

// Problems of a list, one a line, in the words of `tlob explain`: "M N K [--batch 3 ...]"; '#' begins a comment. Each
// is named after its line.
bool cli_problems_from_list(const char *path, cli_problems *problems);

// Leaves those whose name matches a shell pattern.
void cli_problems_filter(cli_problems *problems, const char *pattern);

// The two above from text, which ends with a 0; `path` is what messages call it.
bool cli_problems_parse_trace(const char *path, const char *text, size_t length, cli_problems *problems, io_error *err);
bool cli_problems_parse_list(const char *path, const char *text, size_t length, cli_problems *problems, io_error *err);

void cli_problems_free(cli_problems *problems);

#endif
