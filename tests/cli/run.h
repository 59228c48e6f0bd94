// Running the program `tlob` from a test: each test has a folder of its own, in which commands run.
#ifndef TESTS_CLI_RUN_H
#define TESTS_CLI_RUN_H

#include <stdbool.h>
#include <stddef.h>

// Makes and removes the folder: .init and .fini of a suite.
void run_begin(void);
void run_end(void);

typedef struct run_result {
    int status; // exit status, or 128 + signal
    char out[1 << 16], err[1 << 14];
} run_result;

// Runs a shell command in the folder. "$T" in it stands for the program under test. The result is static: valid until
// the next call.
const run_result *run(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same, and the test fails unless the exit status is 0.
const run_result *run_good(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The path of a file in the folder. Static: valid until the next call.
const char *run_path(const char *name);

// The number after "NAME " at the beginning of a line of `text`; the test fails where there is none.
double run_figure(const char *text, const char *name);

// The folder of order-book files that are not part of the repository, or NULL.
const char *run_shared(void);

#endif
