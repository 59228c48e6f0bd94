#include "tests/determinism/children.h"

#include <criterion/criterion.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE_MAX = 8 };

extern char **environ;

/* A child that runs, and the file that its output goes to. */
typedef struct running {
    pid_t pid;
    FILE *file;
} running;

static running start(const char *policy, const char *condition, const char *option) {
    const char *args[] = {DETERMINISM_CHILD, policy, condition, option, NULL};
    running r = {.file = tmpfile()};
    cr_assert(r.file, "no temporary file");
    posix_spawn_file_actions_t actions;
    cr_assert_eq(posix_spawn_file_actions_init(&actions), 0);
    cr_assert_eq(posix_spawn_file_actions_adddup2(&actions, fileno(r.file), STDOUT_FILENO), 0);
    cr_assert_eq(posix_spawn_file_actions_adddup2(&actions, fileno(r.file), STDERR_FILENO), 0);
    int code = posix_spawn(&r.pid, DETERMINISM_CHILD, &actions, NULL, (char *const *)(uintptr_t)args, environ);
    cr_assert_eq(code, 0, "%s: %s", DETERMINISM_CHILD, strerror(code));
    posix_spawn_file_actions_destroy(&actions);
    return r;
}

static child_result finish(running r) {
    int status;
    cr_assert_eq(waitpid(r.pid, &status, 0), r.pid);
    long size = fseek(r.file, 0, SEEK_END) ? -1 : ftell(r.file);
    cr_assert_geq(size, 0);
    rewind(r.file);
    child_result result = {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                           calloc(1, (size_t)size + 1)};
    cr_assert(result.output && fread(result.output, 1, (size_t)size, r.file) == (size_t)size);
    fclose(r.file);
    return result;
}

/* The next starts when the oldest ends: they all take as long. */
void run_children(const char *policy, const char *condition, const char *option, int count, int at_once,
                  child_result *results) {
    running alive[AT_ONCE_MAX];
    cr_assert(at_once >= 1 && at_once <= AT_ONCE_MAX);
    for (int i = 0; i < count + at_once; i++) {
        if (i >= at_once)
            results[i - at_once] = finish(alive[i % at_once]);
        if (i < count)
            alive[i % at_once] = start(policy, condition, option);
    }
}

void free_results(child_result *results, int count) {
    for (int i = 0; i < count; i++)
        free(results[i].output);
}

/* Whether two outputs differ; then the first line that does, of both, in `text`. */
static bool find_difference(const char *want, const char *got, char *text, size_t size) {
    while (*want || *got) {
        size_t i = strcspn(want, "\n"), j = strcspn(got, "\n");
        if (i != j || memcmp(want, got, i)) {
            snprintf(text, size, "  first  %.*s\n  here   %.*s", (int)i, want, (int)j, got);
            return true;
        }
        want += i + (want[i] == '\n');
        got += j + (got[j] == '\n');
    }
    return false;
}

void expect_children_like(const child_result *reference, const char *policy, const char *condition, int count,
                          int at_once) {
    child_result results[32];
    char what[64];
    cr_assert(count <= 32);
    snprintf(what, sizeof(what), "%s %s", policy, condition);
    run_children(policy, condition, NULL, count, at_once, results);
    for (int i = 0; i < count; i++) {
        char text[256];
        cr_assert_eq(results[i].status, 0, "%s, process %d: exit status %d\n%s", what, i + 1, results[i].status,
                     results[i].output);
        cr_assert(!find_difference(reference->output, results[i].output, text, sizeof(text)),
                  "%s, process %d differs from the first of all:\n%s", what, i + 1, text);
    }
    free_results(results, count);
}

/* How many lines of two outputs are at the same place and the same. */
static int count_same_lines(const char *a, const char *b, int *lines) {
    int same = 0;
    for (*lines = 0; *a && *b; ++*lines) {
        size_t i = strcspn(a, "\n"), j = strcspn(b, "\n");
        same += i == j && !memcmp(a, b, i);
        a += i + (a[i] == '\n');
        b += j + (b[j] == '\n');
    }
    return same;
}

void expect_faults_to_show(const child_result *reference, const char *policy) {
    child_result result;
    int lines;
    char text[256];
    run_children(policy, "quiet", "--perturb", 1, 1, &result);
    cr_assert_eq(result.status, 0, "%s", result.output);
    cr_assert(find_difference(reference->output, result.output, text, sizeof(text)), "the comparison sees no fault");
    int same = count_same_lines(reference->output, result.output, &lines);
    cr_assert(lines > 40 && same == 0, "%d of %d results do not depend on a bit of the first weight:\n%s\n%s", same,
              lines, reference->output, result.output);
    free_results(&result, 1);
    run_children(policy, "quiet", "--forget", 1, 1, &result);
    cr_assert(result.status == 1 && strstr(result.output, "of a training that stopped and went on differ"), "%s",
              result.output);
    free_results(&result, 1);
}
