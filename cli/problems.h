// Problems by name: those that libtlob is tuned and timed on where the user brings none.
#ifndef CLI_PROBLEMS_H
#define CLI_PROBLEMS_H

#include "cli/common.h"

typedef struct cli_problem {
    char name[64]; // such as "block/qkv_256" or "square/64"; "trace/12" or "list/3" for one that a user brought
    tlob_gemm gemm;
} cli_problem;

typedef struct cli_problems {
    cli_problem *list;
    int count;
} cli_problems;

// The built-in table, in a fixed order: the block's products, skinny ones, squares of 8 to 4096, batches, epilogues, in
// both compute modes. False after printing why.
bool cli_problems_builtin(cli_problems *problems);

// Distinct problems of a trace that TLOB_TRACE wrote, in the order in which they first appear.
bool cli_problems_from_trace(const char *path, cli_problems *problems);

// Problems of a list, one a line, in the words of `tlob explain`: "M N K [--batch 3 ...]"; '#' begins a comment.
bool cli_problems_from_list(const char *path, cli_problems *problems);

// Leaves those whose name matches a shell pattern.
void cli_problems_filter(cli_problems *problems, const char *pattern);

void cli_problems_free(cli_problems *problems);

#endif
