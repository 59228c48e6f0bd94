/** What the GPU suites share: a context on device 0, or a test that skips itself and says why. */
#ifndef TLOB_TESTS_GPU_H
#define TLOB_TESTS_GPU_H

#include <criterion/criterion.h>

#include <tlob/tlob.h>

/** Skips the running test where there is no usable CUDA device. */
#define NEED_GPU()                                                                                                     \
    do {                                                                                                               \
        int devices_ = 0;                                                                                              \
        if (tlob_device_count(&devices_) != TLOB_OK || devices_ == 0)                                                  \
            cr_skip_test("no CUDA device: %s", tlob_last_error()->message);                                            \
    } while (0)

/** Asserts TLOB_OK, and prints the message where it is not. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        cr_assert_eq(status_, TLOB_OK, "%s: %s", tlob_status_name(status_), tlob_last_error()->message);               \
    } while (0)

#endif
