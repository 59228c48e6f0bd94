#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct io_atomic {
    FILE *stream;
    char *target; // the path with symbolic links followed
    char *aside;  // the path that is written
};

static void io_atomic_free(io_atomic **file) {
    free((*file)->target);
    free((*file)->aside);
    free(*file);
    *file = NULL;
}

// Where the new content is to stand: `path`, or what it links to. *exists says whether there is a file already.
static char *resolve_target(const char *path, struct stat *info, int *exists, io_error *err) {
    *exists = stat(path, info) == 0;
    if (!*exists && errno != ENOENT) {
        io_error_set(err, "%s: cannot write: %s", io_error_path(path), strerror(errno));
        return NULL;
    }
    if (*exists && !S_ISREG(info->st_mode)) {
        io_error_set(err, "%s: cannot write: %s", io_error_path(path),
                     S_ISDIR(info->st_mode) ? "it is a directory" : "it is not a regular file");
        return NULL;
    }
    if (!*path || path[strlen(path) - 1] == '/') {
        io_error_set(err, "%s: cannot write: no file name", io_error_path(path));
        return NULL;
    }
    char *target = *exists ? realpath(path, NULL) : strdup(path);
    if (!target)
        io_error_set(err, "%s: cannot write: %s", io_error_path(path), strerror(errno));
    return target;
}

// Creates a new file beside `target` under a name that nobody has, and returns its descriptor, or -1 with errno set.
// The kernel applies the umask, which a program of several threads cannot read without changing it.
static int create_aside(const char *target, char **aside) {
    const char *slash = strrchr(target, '/');
    int directory = slash ? (int)(slash - target) + 1 : 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        uint32_t tag;
        if (getrandom(&tag, sizeof tag, 0) != sizeof tag)
            return -1;
        if (asprintf(aside, "%.*s.%s.%08" PRIx32 ".tmp", directory, target, target + directory, tag) < 0) {
            *aside = NULL;
            return -1;
        }
        int fd = open(*aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        int reason = errno;
        free(*aside);
        *aside = NULL;
        errno = reason;
        if (reason != EEXIST)
            return -1;
    }
    return -1;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int io_atomic_same(const char *a, const char *b) {
    struct stat info_a, info_b;
    int exists_a = !stat(a, &info_a), exists_b = !stat(b, &info_b);
    if (exists_a || exists_b)
        return exists_a && exists_b && same_file(&info_a, &info_b);
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    if (strcmp(slash_a ? slash_a + 1 : a, slash_b ? slash_b + 1 : b))
        return 0;
    char *folder_a = slash_a ? strndup(a, (size_t)(slash_a - a) + 1) : strdup(".");
    char *folder_b = slash_b ? strndup(b, (size_t)(slash_b - b) + 1) : strdup(".");
    int same =
        folder_a && folder_b && !stat(folder_a, &info_a) && !stat(folder_b, &info_b) && same_file(&info_a, &info_b);
    free(folder_a);
    free(folder_b);
    return same;
}

int io_atomic_open(const char *path, io_atomic **file, io_error *err) {
    *file = NULL;
    io_atomic *new = calloc(1, sizeof *new);
    if (!new)
        return io_error_set(err, "%s: cannot write: out of memory", io_error_path(path));
    struct stat info;
    int exists;
    new->target = resolve_target(path, &info, &exists, err);
    if (!new->target) {
        io_atomic_free(&new);
        return -1;
    }
    int fd = create_aside(new->target, &new->aside);
    if (fd < 0) {
        io_error_set(err, "%s: cannot create a file beside it: %s", io_error_path(path), strerror(errno));
        io_atomic_free(&new);
        return -1;
    }
    if ((exists && fchmod(fd, info.st_mode & 07777)) || !(new->stream = fdopen(fd, "w"))) {
        io_error_set(err, "%s: cannot write: %s", io_error_path(path), strerror(errno));
        close(fd);
        unlink(new->aside);
        io_atomic_free(&new);
        return -1;
    }
    *file = new;
    return 0;
}

FILE *io_atomic_stream(io_atomic *file) {
    return file->stream;
}

static int sync_directory(const char *target) {
    const char *slash = strrchr(target, '/');
    char *directory = !slash ? strdup(".") : strndup(target, slash == target ? 1 : (size_t)(slash - target));
    if (!directory)
        return -1;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0)
        return -1;
    int failed = fsync(fd) && errno != EINVAL; // EINVAL: this file system has no such thing
    int reason = errno;
    close(fd);
    errno = reason;
    return failed ? -1 : 0;
}

// Everything that can fail before the rename. Closes the stream in any case.
static int finish_stream(io_atomic *file) {
    errno = 0;
    int failed = fflush(file->stream) || ferror(file->stream) || fsync(fileno(file->stream));
    int reason = errno;
    if (fclose(file->stream) && !failed) {
        failed = 1;
        reason = errno;
    }
    file->stream = NULL;
    errno = reason ? reason : EIO; // an earlier write failed and its errno is gone
    return failed ? -1 : 0;
}

int io_atomic_commit(io_atomic **file, io_error *err) {
    const char *target = (*file)->target, *name = io_error_path(target);
    int result = 0;
    if (finish_stream(*file))
        result = io_error_set(err, "%s: write failed: %s", name, strerror(errno));
    else if (rename((*file)->aside, target))
        result = io_error_set(err, "%s: cannot put the new file in place: %s", name, strerror(errno));
    if (result)
        unlink((*file)->aside);
    else if (sync_directory(target))
        result = io_error_set(err, "%s: written, but its directory cannot be synced: %s", name, strerror(errno));
    io_atomic_free(file);
    return result;
}

void io_atomic_abort(io_atomic **file) {
    if (!file || !*file)
        return;
    fclose((*file)->stream);
    unlink((*file)->aside);
    io_atomic_free(file);
}
