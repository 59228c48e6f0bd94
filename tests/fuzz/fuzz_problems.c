// Any text as what `tlob tune --problems` reads: a list of products in words, and a trace. Whatever is accepted must be
// a valid problem with something to multiply, in the form that tables have; whatever is refused must say why and leave
// nothing. Build with -fsanitize=fuzzer,address,undefined, the sources cli/common.c, cli/problems.c,
// cli/problem_files.c, cli/product.c, cli/product_line.c and io/error.c, and -ltlob -lcjson -lm.
//
// Input: one byte that says which, and the text.
#include "cli/problems.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds) {
    if (!holds)
        abort();
}

static void check(const cli_problem *problem) {
    const tlob_gemm *g = &problem->gemm, again = tlob_table_problem(g);
    require(!tlob_gemm_check(g) && g->m > 0 && g->n > 0 && g->k > 0 && g->batch > 0);
    require(g->alpha == 1 && (g->beta == 0 || g->beta == 1));
    require(!memcmp(&again, g, sizeof again));
    require(strchr(problem->name, '/') && strlen(problem->name) < sizeof problem->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    cli_problems problems;
    io_error err = {""};
    char *text = malloc(size); // ended by a 0, as the program reads it, and no longer than that
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    bool good = data[0] & 1 ? cli_problems_parse_trace("fuzz", text, size - 1, &problems, &err)
                            : cli_problems_parse_list("fuzz", text, size - 1, &problems, &err);
    require(good ? problems.count > 0 : *err.text && !problems.count && !problems.list);
    for (int i = 0; i < problems.count; i++)
        check(&problems.list[i]);
    cli_problems_free(&problems);
    free(text);
    return 0;
}
