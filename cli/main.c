// The program `tlob`: finds the subcommand and hands over.
#include "cli/common.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", cli_info, "what this build and this machine have, and the settings in force"},
    {"explain", cli_explain, "which backend would run a matrix product, and why"},
    {"algorithms", cli_algorithms, "list, check or make a file of a deterministic context's algorithms"},
    {"table", cli_table, "list, explain, compare, verify or merge tables of measured methods"},
    {"synth", cli_synth, "write order-book files of a simulated market"},
    {"features", cli_features, "check order-book files and write inputs and labels"},
    {"train", cli_train, "train a TLOB attention block on order-book files"},
    {"eval", cli_eval, "evaluate a trained block"},
    {"parity", cli_parity, "compare every backend with the oracle"},
    {"bench", cli_bench, "time matrix products and the block"},
    {"tune", cli_tune, "measure the methods of products, and write a table of the best"},
    {"report", cli_report, "draw what bench, train and a model say, into one HTML file"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *out) {
    fprintf(out, "Usage: tlob COMMAND [OPTION...]\n"
                 "From order-book files to a trained TLOB attention block, on GEMM backends chosen at run time.\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    fprintf(out,
            "\n`tlob COMMAND --help' is the manual of a command; `tlob --version' prints the version.\n"
            "A first run, without a GPU:\n\n"
            "  tlob synth --out day --rows 20000\n"
            "  tlob train --message day_message.csv --orderbook day_orderbook.csv --device host --out day.model\n"
            "  tlob eval --message day_message.csv --orderbook day_orderbook.csv --device host --model day.model\n\n"
            "Exit status: 0 done, 1 failed, 2 wrong usage, 3 a report without pictures for want of "
            "gnuplot,\n130 interrupted (a model so far is saved).\n");
}

// argp shows argv[0] in its messages: make it "tlob COMMAND".
static int run_command(size_t index, int argc, char **argv) {
    char name[32];
    snprintf(name, sizeof name, "tlob %s", commands[index].name);
    argv[0] = name;
    return commands[index].run(argc, argv);
}

// A file that is opened gets the lowest free descriptor: were standard output or error closed, what is printed would
// end up in it. Opened for reading, so that writing to them still fails.
static bool occupy_standard_descriptors(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    return fd >= 0 && !close(fd);
}

// At exit, since --help ends the program inside argp.
static void check_output(void) {
    if (fflush(stdout) || ferror(stdout))
        _exit(cli_error("cannot write to standard output"));
}

int main(int argc, char **argv) {
    argp_err_exit_status = CLI_USAGE;
    signal(SIGXFSZ, SIG_IGN); // a file above the limit is a write that fails, with a message and nothing left behind
    if (!occupy_standard_descriptors() || atexit(check_output))
        return cli_error("cannot open /dev/null, or out of memory");
    const char *command = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(command, commands[i].name))
            return run_command(i, argc - 1, argv + 1);
    if (!strcmp(command, "--help") || !strcmp(command, "help")) {
        print_help(stdout);
        return CLI_OK;
    }
    if (!strcmp(command, "--version")) {
        printf("tlob %s\n", tlob_version());
        return CLI_OK;
    }
    if (*command)
        cli_error("there is no command '%s'", command);
    print_help(stderr);
    return CLI_USAGE;
}
