/** Files that are written aside and put in place whole: a reader sees what was there before, or all that is new. */
#ifndef TLOB_ASIDE_H
#define TLOB_ASIDE_H

#include <limits.h>
#include <stdio.h>

#include "libtlob/internal.h"

/** Such a file while it is written. */
typedef struct tlob_aside {
    FILE *file;
    const char *operation; /**< that failures name */
    char target[PATH_MAX]; /**< what the given name stands for: symbolic links are followed */
    char path[PATH_MAX];   /**< of the new file beside it, which no reader knows */
} tlob_aside;

/** Opens a file beside the one that `path` names or links to, with the permissions of the one that it replaces. FILE. */
tlob_status tlob_aside_open(tlob_aside *aside, const char *path, const char *operation);

/** Syncs the file, puts it in place, and syncs the directory. FILE. The file is closed in any case. */
tlob_status tlob_aside_commit(tlob_aside *aside);

/** Closes the file and removes it: what was there stays. */
void tlob_aside_drop(tlob_aside *aside);

#endif
