#include "cli/gnuplot.h"

#include "cli/common.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// The program runs in another folder: a name that is relative to this one must not reach it.
char *gnuplot_find(void) {
    const char *path = getenv("PATH");
    char *found = NULL;
    while (path && *path && !found) {
        size_t length = strcspn(path, ":");
        char *name = NULL;
        struct stat info;
        if (asprintf(&name, "%.*s/gnuplot", length ? (int)length : 1, length ? path : ".") < 0)
            return NULL;
        if (!stat(name, &info) && S_ISREG(info.st_mode) && !access(name, X_OK))
            found = realpath(name, NULL);
        free(name);
        path += length + (path[length] == ':');
    }
    return found;
}

void gnuplot_text(FILE *script, const char *text) {
    putc('\'', script);
    for (; *text; text++) {
        if (*text == '\'')
            putc('\'', script);
        putc(iscntrl((unsigned char)*text) ? '?' : *text, script);
    }
    putc('\'', script);
}

// Returns 0 or an error number.
static int spawn(const char *program, const char *folder, char *const *arguments, int out, pid_t *child) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (!error)
        error = posix_spawn(child, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static bool ended_well(pid_t child, const char *program, const char *folder, const char *script) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) {
            cli_error("waiting for %s: %s", program, strerror(errno));
            return false;
        }
    if (WIFSIGNALED(status))
        cli_error("%s: %s was ended by signal %d while it drew %s", folder, program, WTERMSIG(status), script);
    else if (WEXITSTATUS(status))
        cli_error("%s: %s failed on %s with exit status %d; its own message is above", folder, program, script,
                  WEXITSTATUS(status));
    return !status;
}

// Starts the program; the stream is what it writes, NULL after printing why.
static FILE *start(const char *program, const char *folder, char *const *arguments, pid_t *child) {
    int ends[2], error = pipe2(ends, O_CLOEXEC) ? errno : 0;
    FILE *output = error ? NULL : fdopen(ends[0], "r");
    if (!error && !output)
        error = errno;
    if (output) {
        error = spawn(program, folder, arguments, ends[1], child);
        close(ends[1]);
    }
    if (!error)
        return output;
    cli_error("cannot run %s: %s", program, strerror(error));
    if (output)
        fclose(output);
    return NULL;
}

char *gnuplot_run(const char *program, const char *folder, const char *script, const char *format, size_t *length) {
    char name[] = "gnuplot", defaults[] = "--default-settings", option[] = "-e", setting[64], file[64];
    char *const arguments[] = {name, defaults, option, setting, file, NULL};
    char *picture = NULL;
    pid_t child;
    *length = 0;
    snprintf(setting, sizeof setting, "format='%s'", format);
    snprintf(file, sizeof file, "%s", script);
    FILE *output = start(program, folder, arguments, &child);
    if (!output)
        return NULL;
    bool good = cli_read_all(output, &picture, length);
    if (!good)
        cli_error("reading from %s: %s", program, strerror(errno));
    fclose(output); // before waiting: who still writes must not wait for a reader
    good = ended_well(child, program, folder, script) && good;
    if (good)
        return picture;
    free(picture);
    return NULL;
}
