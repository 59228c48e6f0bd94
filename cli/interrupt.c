#include "cli/interrupt.h"

#include <stddef.h>

static volatile sig_atomic_t interrupted; // all that a signal handler may touch

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

const volatile sig_atomic_t *cli_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &interrupted;
}
