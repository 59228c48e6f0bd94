/** What a run computes to be compared with other runs: each result is printed as a line with the hash of its bytes. */
#ifndef TLOB_TESTS_DETERMINISM_WORK_H
#define TLOB_TESTS_DETERMINISM_WORK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <tlob/tlob.h>

/** Ends the program with one line where a call fails. */
#define WORK_OK(call)                                                                                                  \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        if (status_ != TLOB_OK) {                                                                                      \
            fprintf(stderr, "%s: %s\n", tlob_status_name(status_), tlob_last_error()->message);                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define WORK_BUFFERS 64

typedef struct work {
    tlob_context *ctx;
    tlob_stream *stream;
    const char *mode; /**< the compute mode, as it is printed */
    bool perturb;     /**< one bit of the first weight is flipped */
    bool forget;      /**< a training that goes on does so without the optimizer's state */
    int n_buffers;
    tlob_buffer *buffers[WORK_BUFFERS]; /**< freed after each piece of work */
} work;

/**
 * Everything in the mode of `w`: block, multi-head attention, chains of linear layers, each forward and backward, and
 * 300 steps of two trainings, in one go and with a stop halfway. Sizes are smaller on a host context. A result that is
 * not finite, or 0 everywhere, and a training whose stop shows end the program: it would agree with itself and mean
 * nothing.
 */
void work_run(work *w);

#endif
