#include "libtlob/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static tlob_status fail_file(const tlob_aside *aside, const char *path, const char *what) {
    int code = errno;
    return tlob_fail(TLOB_ERR_FILE, aside->operation, "'%s': %s: %s", path, what, strerror(code ? code : EIO));
}

tlob_status tlob_aside_open(tlob_aside *aside, const char *path, const char *operation) {
    struct stat info;
    uint32_t tag;
    bool replaces = stat(path, &info) == 0;
    aside->operation = operation;
    if (replaces && !S_ISREG(info.st_mode))
        return tlob_fail(TLOB_ERR_FILE, operation, "'%s' is %s", path,
                         S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    if (replaces && !realpath(path, aside->target))
        return fail_file(aside, path, "cannot be followed");
    if (!replaces)
        snprintf(aside->target, PATH_MAX, "%s", path);
    if (strlen(path) >= PATH_MAX || getrandom(&tag, sizeof(tag), 0) != sizeof(tag) ||
        snprintf(aside->path, PATH_MAX, "%s.%08" PRIx32 ".tmp", aside->target, tag) >= PATH_MAX)
        return tlob_fail(TLOB_ERR_FILE, operation, "'%.200s' is no name for a file that can be written aside", path);
    int fd = open(aside->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_file(aside, path, "cannot create a file beside it");
    if (replaces && fchmod(fd, info.st_mode & 07777)) {
        tlob_status status = fail_file(aside, path, "a file beside it cannot have its permissions");
        close(fd);
        unlink(aside->path);
        return status;
    }
    aside->file = fdopen(fd, "w");
    if (aside->file)
        return TLOB_OK;
    close(fd);
    unlink(aside->path);
    return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, operation, "no memory to write '%s' with", path);
}

static bool sync_directory(const char *path) {
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool synced = fsync(fd) == 0 || errno == EINVAL; /* EINVAL: this file system has no such thing */
    close(fd);
    return synced;
}

tlob_status tlob_aside_commit(tlob_aside *aside) {
    const char *path = aside->target;
    errno = 0;
    bool written = fflush(aside->file) == 0 && !ferror(aside->file) && fsync(fileno(aside->file)) == 0;
    int code = errno;
    written = fclose(aside->file) == 0 && written;
    errno = code ? code : errno;
    tlob_status status = TLOB_OK;
    if (!written)
        status = fail_file(aside, path, "cannot be written");
    else if (rename(aside->path, path))
        status = fail_file(aside, path, "the new file cannot be put in place");
    if (status != TLOB_OK)
        unlink(aside->path);
    else if (!sync_directory(path))
        status = fail_file(aside, path, "written, but its directory cannot be synced");
    return status;
}

void tlob_aside_drop(tlob_aside *aside) {
    fclose(aside->file);
    unlink(aside->path);
}
