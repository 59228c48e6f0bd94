// What the subcommands of `tlob` share: how they fail, how they read options, how they make a context.
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tlob/tlob.h>

// Exit statuses of the program.
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NO_GNUPLOT = 3, CLI_INTERRUPTED = 130 };

// Prints "tlob: ..." on standard error as one line (control characters of file contents become '?'). Returns
// CLI_FAILED.
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same for a libtlob call that failed: the library's message, after `what` and a colon where `what` is not NULL.
int cli_tlob_error(const char *what);

// Parse a whole argument as a number in [low, high]; anything else ends the program with a usage error that names the
// option, what was given and what is accepted.
int64_t cli_integer(const struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high);
double cli_number(const struct argp_state *state, const char *option, const char *text, double low, double high);

// The index of `text` in the NULL-terminated `names`; a usage error that lists them otherwise.
int cli_choice(const struct argp_state *state, const char *option, const char *text, const char *const *names);

// An argp parser for a subcommand without positional arguments: the common cases of `key`, ARGP_ERR_UNKNOWN otherwise.
error_t cli_no_arguments(int key, char *arg, struct argp_state *state);

// Short option keys must not collide between the parents and children of one parser: options without a short form take
// theirs from here.
enum {
    CLI_KEY_CONTEXT = 0x100,
    CLI_KEY_DATA = 0x200,
    CLI_KEY_OWN = 0x300,
    CLI_KEY_PRODUCT = 0x400,
    CLI_KEY_BLOCK = 0x500,
};

// --- the context: --device, --compute, --policy, --table, --deterministic, --block-plan, --config ---

// Filled by cli_context_argp. Input of that parser: a cli_context_options, zero-initialised.
typedef struct cli_context_options {
    tlob_context_params params;
    bool device_given;
} cli_context_options;

extern const struct argp cli_context_argp;

// Sets memory and device to what --device says; a usage error where it is none.
void cli_device(const struct argp_state *state, const char *text, tlob_context_params *params);

// The policy of a context of `memory` where nothing says otherwise: for commands that compare with it, whatever the
// environment has.
tlob_policy cli_default_policy(tlob_memory memory);

// Makes the context that the options ask for; NULL after printing why not. Without a GPU the one line names
// `--device host`. Lines of the library's log go to standard error.
tlob_context *cli_context_create(const cli_context_options *options);

// "host", or "cuda:0 (NVIDIA H200)".
void cli_context_describe(const tlob_context *ctx, char *text, size_t size);

// --- others ---

// Seconds of a clock that never jumps.
double cli_seconds(void);

// Reads a stream to its end, up to 1 GiB: the bytes and a 0 after them, in memory that the caller frees in both cases.
// False with errno.
bool cli_read_all(FILE *file, char **bytes, size_t *length);

// What each subcommand is called with: argv[0] is the name to show in messages ("tlob train").
int cli_algorithms(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_features(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_parity(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_synth(int argc, char **argv);
int cli_table(int argc, char **argv);
int cli_train(int argc, char **argv);
int cli_tune(int argc, char **argv);

#endif
