// Ctrl-C and SIGTERM, for subcommands that must end in order: with what was done saved, or nothing left behind.
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

// From now on the first signal of each kind only sets the flag whose address this returns; the second ends the program
// as usual. Look at the flag often, and exit with CLI_INTERRUPTED.
const volatile sig_atomic_t *cli_catch_interrupts(void);

#endif
