/** Starts the program of child.c many times, and compares what the processes print. */
#ifndef TLOB_TESTS_DETERMINISM_CHILDREN_H
#define TLOB_TESTS_DETERMINISM_CHILDREN_H

/** What one process printed on both its outputs, to free, and its exit status (128 + signal where one ended it). */
typedef struct child_result {
    int status;
    char *output;
} child_result;

/** Exit status of a child that has no device to compute on; its output says why. */
#define CHILD_NO_DEVICE 77

/**
 * Runs `count` children with the same arguments (option may be NULL), `at_once` at a time. This process neither forks
 * by itself nor touches CUDA: what a driver would not survive.
 */
void run_children(const char *policy, const char *condition, const char *option, int count, int at_once,
                  child_result *results);

void free_results(child_result *results, int count);

/**
 * `count` children more, which must succeed and print what `reference` has, line by line: the test fails with the first
 * line that differs, as it is and as it should be.
 */
void expect_children_like(const child_result *reference, const char *policy, const char *condition, int count,
                          int at_once);

/** That a child with one bit perturbed prints no line of `reference`, and that one which forgets its state fails. */
void expect_faults_to_show(const child_result *reference, const char *policy);

#endif
