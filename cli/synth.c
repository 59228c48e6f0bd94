// `tlob synth`: LOBSTER-format files of a simulated market.
#include "cli/common.h"
#include "cli/interrupt.h"

#include "lobdata/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct synth_options {
    lob_synth_params params;
    const char *prefix, *message, *orderbook;
} synth_options;

enum { KEY_OUT = CLI_KEY_OWN, KEY_MESSAGE, KEY_ORDERBOOK, KEY_ROWS, KEY_SEED, KEY_LEVELS, KEY_RATE, KEY_HIDDEN };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Where to:", 1},
    {"out", KEY_OUT, "PREFIX", 0, "Write PREFIX_message.csv and PREFIX_orderbook.csv", 1},
    {"message", KEY_MESSAGE, "FILE", 0, "Or name both files yourself; a name that ends in .gz is compressed", 1},
    {"orderbook", KEY_ORDERBOOK, "FILE", 0, NULL, 1},
    {NULL, 0, NULL, 0, "What:", 2},
    {"rows", KEY_ROWS, "COUNT", 0, "Events to write (default 100000)", 2},
    {"seed", KEY_SEED, "NUMBER", 0, "The same seed and options give the same rows (default 1)", 2},
    {"levels", KEY_LEVELS, "COUNT", 0, "Price levels on each side, 1 to 50 (default 10)", 2},
    {"rate", KEY_RATE, "NUMBER", 0, "Mean events a second, 0.001 to 1000000 (default 50)", 2},
    {"hidden", KEY_HIDDEN, "SHARE", 0, "Share of executions of hidden orders, 0 to 0.5 (default 0)", 2},
    {0},
};

static const char doc[] =
    "Writes a message and an orderbook file, in LOBSTER's format, of a simulated market."
    "\vThe book is of the zero-intelligence kind: orders arrive, are withdrawn and are executed at random, in price "
    "and "
    "time priority. The order flow excites itself (a Hawkes process), so pressure on one side persists and past order "
    "flow tells something of the price to come: a model can learn to do better than always guessing the commonest "
    "class. The rows are valid input for every other command.";

static error_t parse(int key, char *arg, struct argp_state *state) {
    synth_options *options = state->input;
    switch (key) {
    case KEY_OUT:
        options->prefix = arg;
        return 0;
    case KEY_MESSAGE:
        options->message = arg;
        return 0;
    case KEY_ORDERBOOK:
        options->orderbook = arg;
        return 0;
    case KEY_ROWS:
        options->params.rows = (size_t)cli_integer(state, "--rows", arg, 1, INT64_MAX);
        return 0;
    case KEY_SEED:
        options->params.seed = (uint64_t)cli_integer(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_LEVELS:
        options->params.levels = (int)cli_integer(state, "--levels", arg, 1, 50);
        return 0;
    case KEY_RATE:
        options->params.events_per_second = cli_number(state, "--rate", arg, 1e-3, 1e6);
        return 0;
    case KEY_HIDDEN:
        options->params.hidden_share = cli_number(state, "--hidden", arg, 0, 0.5);
        return 0;
    case ARGP_KEY_END:
        if (!options->prefix == !(options->message || options->orderbook))
            argp_error(state, "say where to write: --out PREFIX, or --message FILE and --orderbook FILE");
        if (!options->message != !options->orderbook)
            argp_error(state, "--message and --orderbook go together");
        return 0;
    default:
        return cli_no_arguments(key, arg, state);
    }
}

int cli_synth(int argc, char **argv) {
    synth_options options = {.params = lob_synth_default()};
    const struct argp argp = {.options = own_options, .parser = parse, .doc = doc};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    char *message = NULL, *orderbook = NULL;
    int status = CLI_OK;
    io_error err;
    if (options.prefix && (asprintf(&message, "%s_message.csv", options.prefix) < 0 ||
                           asprintf(&orderbook, "%s_orderbook.csv", options.prefix) < 0))
        return cli_error("out of memory");
    options.params.stop = cli_catch_interrupts();
    if (lob_synth_write(&options.params, message ? message : options.message, orderbook ? orderbook : options.orderbook,
                        &err)) {
        cli_error("%s", err.text);
        status = *options.params.stop ? CLI_INTERRUPTED : CLI_FAILED;
    } else
        printf("%s\n%s\n", message ? message : options.message, orderbook ? orderbook : options.orderbook);
    free(message);
    free(orderbook);
    return status;
}
