/**
 * Files of entries, {"format": ..., "version": 1, "entries": [...]}: what those of algorithms and of methods share. A
 * kind may have a second array, which stands in a file where it is not empty.
 */
#ifndef TLOB_ENTRIES_H
#define TLOB_ENTRIES_H

#include "libtlob/aside.h"
#include "libtlob/json.h"

/** A kind of such files. */
typedef struct tlob_entries_kind {
    tlob_json_kind json;
    const char *format; /**< "tlob-algorithms" */
    int most;           /**< entries of a file, in each array */
    const char *second; /**< name of the second array, or NULL */
} tlob_entries_kind;

/* --- reading ------------------------------------------------------------------------------------------------------ */

/** Why an entry is rejected. */
typedef struct tlob_fault {
    char text[256];
} tlob_fault;

/** Notes why. False, always. */
bool tlob_reject(tlob_fault *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** A member of an object, which must be there once, or if it is optional at most once: else `item` stays NULL. */
typedef struct tlob_member {
    const char *name;
    const cJSON *item;
    bool optional;
} tlob_member;

/** Finds the members of an object, which must have no others; `what` is what messages call it. */
bool tlob_take_members(const cJSON *object, const char *what, tlob_member *members, int count, tlob_fault *why);

/** A whole number, or a string of one where it has more digits than a number of JSON. */
bool tlob_take_integer(const cJSON *item, int64_t *value, tlob_fault *why);

/** An object of whole numbers, `most` of them at most. Names belong to the object. */
bool tlob_take_fields(const cJSON *object, tlob_algorithm_field *fields, int most, int *count, tlob_fault *why);

/**
 * The arrays in an object that has been read: entries[0], and where the kind has a second one entries[1], NULL where
 * the file has none. kind->json.status for a file of another kind.
 */
tlob_status tlob_entries_of(const tlob_entries_kind *kind, const char *path, const cJSON *object,
                            const cJSON *entries[2]);

/* --- writing ------------------------------------------------------------------------------------------------------ */

/** A file of entries while it is written. */
typedef struct tlob_entries_writer {
    const tlob_entries_kind *kind;
    const char *path; /**< as the caller named it */
    tlob_aside aside;
    int64_t count; /**< of the array at hand */
    int64_t most;  /**< of the arrays before */
} tlob_entries_writer;

/** Opens the file aside, and begins it. */
tlob_status tlob_entries_begin(tlob_entries_writer *w, const tlob_entries_kind *kind, const char *path,
                               const char *operation);

/** What stands before an entry: the caller writes it to the file that is given back. */
FILE *tlob_entries_next(tlob_entries_writer *w);

/** Ends the first array, and begins the second. */
void tlob_entries_second(tlob_entries_writer *w);

/** Ends the file and puts it in place; FILE also for one that could not be read again. */
tlob_status tlob_entries_end(tlob_entries_writer *w);

/** A string of JSON. */
void tlob_put_string(FILE *file, const char *text);

/** A whole number as tlob_take_integer reads it. */
void tlob_put_integer(FILE *file, int64_t value);

/** An object as tlob_take_fields reads it. */
void tlob_put_fields(FILE *file, const tlob_algorithm_field *fields, int count);

#endif
