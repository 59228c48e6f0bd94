/* Whether processes on a GPU agree bit for bit: many of them, beside other work, and with little memory. Each child has
 * a device context of its own; this process has none. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/determinism/children.h"

enum { QUIET = 20, STRAINED = 3, AT_ONCE = 4 };

static void expect_agreement(const char *policy) {
    child_result reference;
    run_children(policy, "probe", NULL, 1, 1, &reference);
    if (reference.status == CHILD_NO_DEVICE)
        cr_skip_test("no CUDA device: %s", reference.output);
    free_results(&reference, 1);
    run_children(policy, "quiet", NULL, 1, 1, &reference);
    cr_assert_eq(reference.status, 0, "%s", reference.output);
    if (getenv("TLOB_SANITIZED")) { /* which has seen all kernels then, and would need many minutes for the others */
        free_results(&reference, 1);
        return;
    }
    expect_children_like(&reference, policy, "quiet", QUIET - 1, AT_ONCE);
    expect_children_like(&reference, policy, "busy", STRAINED, AT_ONCE);
    expect_children_like(&reference, policy, "tight", STRAINED, 1); /* two would share the rest */
    expect_faults_to_show(&reference, policy);
    free_results(&reference, 1);
}

Test(gpu_determinism, cublas_classic, .timeout = 140) {
    expect_agreement("fixed:cublas_classic");
}

Test(gpu_determinism, cublaslt, .timeout = 140) {
    expect_agreement("fixed:cublaslt");
}
