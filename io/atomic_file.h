// Writing a file so that a reader sees either the old content or the new, never a part.
#ifndef IO_ATOMIC_FILE_H
#define IO_ATOMIC_FILE_H

#include "io/error.h"

#include <stdio.h>

// A file being written aside. Opaque; made by io_atomic_open, ended by io_atomic_commit or io_atomic_abort.
// Not thread-safe: one thread at a time per object. Different objects, even for one path, are independent.
typedef struct io_atomic io_atomic;

// Starts to write `path` aside, in a new file of the same directory (".NAME.XXXXXXXX.tmp"). The target is not touched.
//
// A symbolic link is followed, so that the link stays (one that leads nowhere is replaced). A target that exists must
// be a regular file; the new file takes over its permissions. Otherwise the permissions are 0666 less the umask.
//
// On success *file is the new object, which the caller ends. On failure *file is NULL and err names the path and why
// (no directory, no permission, not a regular file, out of memory). Blocking. Returns 0, or -1.
int io_atomic_open(const char *path, io_atomic **file, io_error *err);

// The stream to write to, owned by `file`: never fclose it. Buffered; its write errors may be left unchecked, since
// commit finds them.
FILE *io_atomic_stream(io_atomic *file);

// Flushes, syncs to the disk, renames over the target and syncs the directory. Whatever happens, *file is freed and
// set to NULL.
//
// If anything up to the rename fails, the target stays as it was, the file aside is removed, and err names the path
// and the system's reason. If only the last step fails, the new content is in place but may not survive a power
// failure; that is an error too. Blocking. Returns 0, or -1.
int io_atomic_commit(io_atomic **file, io_error *err);

// Removes the file aside, leaves the target as it was, frees *file and sets it to NULL. NULL and a pointer to NULL are
// allowed, so that one clean-up path serves every exit.
void io_atomic_abort(io_atomic **file);

// Whether two paths lead to one file, or would if it were written: nonzero if so. For a program that must not write
// over what it reads, or twice to one place.
int io_atomic_same(const char *a, const char *b);

#endif
