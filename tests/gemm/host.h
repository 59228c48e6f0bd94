/** What the host suites of the products share. */
#ifndef TLOB_TESTS_GEMM_HOST_H
#define TLOB_TESTS_GEMM_HOST_H

#include <criterion/criterion.h>
#include <string.h>

#include <tlob/tlob.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        cr_assert_eq(status_, TLOB_OK, "%s: %s", tlob_status_name(status_), tlob_last_error()->message);               \
    } while (0)

/** Asserts that `call` fails with `expected`, and that the message holds `words`. */
#define FAILS(call, expected, words)                                                                                   \
    do {                                                                                                               \
        tlob_status status_ = (call);                                                                                  \
        cr_assert_eq(status_, expected, "%s instead of %s", tlob_status_name(status_), tlob_status_name(expected));    \
        cr_assert_eq(tlob_last_error()->status, expected);                                                             \
        cr_assert(strstr(tlob_last_error()->message, words), "no '%s' in: %s", words, tlob_last_error()->message);     \
    } while (0)

/** A host context with a policy (zero: the default). */
static inline tlob_context *host_context(tlob_policy policy) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    params.policy = policy;
    tlob_context *ctx;
    OK(tlob_context_create(&ctx, &params));
    return ctx;
}

#endif
