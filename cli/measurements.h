// What `tlob tune --measurements` wrote, read again: of each problem the default policy's method and the chosen one.
#ifndef CLI_MEASUREMENTS_H
#define CLI_MEASUREMENTS_H

#include "io/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_MEASUREMENTS_MAX = 65536, // problems, and methods of one
    CLI_MEASUREMENTS_TEXT = 1024, // bytes of a name or a method
};

// A method and its time. All NULL and NAN where the file names none, or none that was timed.
typedef struct cli_timed_method {
    const char *method, *backend, *form;
    bool algorithm; // whether one is given, or the backend chooses by itself
    double us;
} cli_timed_method;

typedef struct cli_measured_problem {
    const char *name, *epilogue, *compute;
    int64_t m, n, k, batch;
    bool plain;                      // neither matrix is transposed, and C is not read
    cli_timed_method normal, chosen; // of the default policy; of the tuner
} cli_measured_problem;

typedef struct cli_measurements {
    cJSON *json; // owns all texts
    const char *device, *library;
    bool cold; // times are with a cold L2 cache, as the choice was made
    int count;
    cli_measured_problem *problem; // [count]
} cli_measurements;

// Parses `text`. Returns 0; or -1, with `measurements` empty and err naming the file `name`, the line or key and what
// was expected. Free with cli_measurements_finish. Thread-safe, apart from cJSON's report of a syntax error.
int cli_measurements_parse(const char *name, const char *text, size_t length, cli_measurements *measurements,
                           io_error *err);
void cli_measurements_finish(cli_measurements *measurements);

#endif
