// An artificial order book in LOBSTER format, with a trend that order flow gives away.
//
// A zero-intelligence book (cf. E. Smith, J. D. Farmer et al., Quantitative Finance 3, 2003) of single limit orders in
// price and time priority, driven by a Hawkes process with exponential kernel (A. Hawkes, Biometrika 58, 1971) of two
// kinds of event, upward (a buy order arrives, an ask is taken or withdrawn) and downward (the mirror image). Each kind
// excites mostly itself, so pressure persists and past order flow tells something of the mid price to come.
#ifndef LOBDATA_SYNTH_H
#define LOBDATA_SYNTH_H

#include "io/error.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

// seed: any number. rows: events to write, 1 or more. levels: 1 to 50. events_per_second: mean rate of the process
// (of which events deep in the book give no row), above 0. hidden_share: part of the rows that are executions of hidden
// orders (type 5), from 0 to 0.5. stop: NULL, or what a signal handler sets to end the writing after the row at hand,
// which is an error then.
typedef struct lob_synth_params {
    uint64_t seed;
    size_t rows;
    int levels;
    double events_per_second;
    double hidden_share;
    const volatile sig_atomic_t *stop;
} lob_synth_params;

// Seed 1, 100000 rows, 10 levels, 50 events a second, no hidden executions.
lob_synth_params lob_synth_default(void);

// Writes a message file and an orderbook file. A path that ends in ".gz" is compressed. Both are written aside and put
// in place when both are complete (see io/atomic_file.h).
//
// Types are 1 to 4, and 5 where asked for. The first event is after 34200 s, times never fall, the book is never
// crossed or locked and no level is empty; every change of a book row is what its message says. The tick is 100 (one
// cent). Times go on past the close of 57600 s if rows / events_per_second asks for it.
//
// The same params give the same rows on every machine with IEEE 754 doubles: only + - * / are used, no function of
// libm, and floating-point contraction must be off. (The bytes of a .gz file also depend on the version of zlib.)
//
// params may be NULL (defaults). Errors: params out of range, stopped, one path for both files, a file that cannot be
// written. Memory does not depend on rows. Blocking; thread-safe. Returns 0, or -1 with both targets as they were,
// unless only the second could not be put in place.
int lob_synth_write(const lob_synth_params *params, const char *message_path, const char *orderbook_path,
                    io_error *err);

#endif
