#include "run.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

void run_begin(void) {
    strcpy(dir, "/tmp/tlob-cli-XXXXXX");
    cr_assert(mkdtemp(dir));
    setenv("DIR", dir, 1);
    cr_assert_eq(symlink(TLOB_EXE, run_path("tlob")), 0); // a name without blanks, wherever the build folder is
    setenv("T", run_path("tlob"), 1);
    const char *const variables[] = {"TLOB_COMPUTE", "TLOB_POLICY", "TLOB_WORKSPACE_MIB", "TLOB_LOG",
                                     "TLOB_DETERMINISTIC", "TLOB_TABLE"};
    for (int i = 0; i < 6; i++)
        unsetenv(variables[i]);
}

void run_end(void) {
    cr_expect_eq(system("rm -rf \"$DIR\""), 0);
}

const char *run_path(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void slurp(const char *name, char *text, size_t size) {
    FILE *file = fopen(run_path(name), "r");
    cr_assert(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static const run_result *run_shell(const char *command) {
    static run_result result;
    setenv("COMMAND", command, 1);
    int status = system("cd \"$DIR\" && eval \"$COMMAND\" >stdout 2>stderr");
    cr_assert_neq(status, -1);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp("stdout", result.out, sizeof result.out);
    slurp("stderr", result.err, sizeof result.err);
    return &result;
}

const run_result *run(const char *format, ...) {
    char command[2048];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    cr_assert(length > 0 && (size_t)length < sizeof command);
    return run_shell(command);
}

const run_result *run_good(const char *format, ...) {
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    const run_result *r = run_shell(command);
    cr_assert_eq(r->status, 0, "%s\nexit status %d\n%s", command, r->status, r->err);
    return r;
}

double run_figure(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ' ')
            return strtod(line + length, NULL);
    }
    cr_assert(false, "no line '%s ...' in:\n%s", name, text);
    return 0;
}

const char *run_shared(void) {
    const char *path = getenv("TLOB_SHARED");
    struct stat info;
    path = path && *path ? path : TLOB_SOURCE_ROOT "/../shared";
    return stat(path, &info) ? NULL : path;
}
