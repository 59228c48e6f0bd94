/* Whether processes on the host agree bit for bit: the program and the comparison that the GPU suite uses, on the
 * oracle. */
#include <criterion/criterion.h>

#include "tests/determinism/children.h"

static const char *const policy = "fixed:cpu_ref";

Test(determinism, processes_on_the_host_agree, .timeout = 280) {
    child_result reference;
    run_children(policy, "quiet", NULL, 1, 1, &reference);
    cr_assert_eq(reference.status, 0, "%s", reference.output);
    expect_children_like(&reference, policy, "quiet", 2, 2);
    expect_children_like(&reference, policy, "busy", 1, 1);
    expect_faults_to_show(&reference, policy);
    free_results(&reference, 1);
}
