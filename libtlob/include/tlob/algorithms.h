/**
 * The algorithms that a deterministic context has chosen: to list, to save, and to check on another day.
 *
 * With the setting `deterministic` on, a backend whose library leaves a choice (cublaslt) makes it by a pure function of
 * the problem, the device and the library's version, and keeps one table of the answers for all streams of the context.
 * The table holds attributes of algorithms, never their place in a list, which changes from process to process.
 */
#ifndef TLOB_ALGORITHMS_H
#define TLOB_ALGORITHMS_H

#include <tlob/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most fields of a key, and of a configuration. */
#define TLOB_ALGORITHM_FIELDS_MAX 40

/** One whole number with its name. */
typedef struct tlob_algorithm_field {
    const char *name; /**< lower case letters, digits and '_' */
    int64_t value;    /**< in the backend's own terms */
} tlob_algorithm_field;

/** What is known of an entry. */
typedef enum tlob_algorithm_state {
    TLOB_ALGORITHM_CHOSEN,    /**< by this context */
    TLOB_ALGORITHM_LOADED,    /**< from a file: a promise that is checked when the problem is first needed */
    TLOB_ALGORITHM_CONFIRMED, /**< from a file, and this context has chosen the same */
    TLOB_ALGORITHM_REJECTED,  /**< from a file, and not used; see `reason` */
} tlob_algorithm_state;

/** "chosen", "loaded", "confirmed" or "rejected". Static storage. */
TLOB_API const char *tlob_algorithm_state_name(tlob_algorithm_state state);

/** One entry. Pointers are valid during the callback only. */
typedef struct tlob_algorithm {
    const char *backend;        /**< that it belongs to; "" where a file does not say */
    tlob_algorithm_state state; /**< what is known of it */
    const char *reason;         /**< why it was rejected; "" else */
    const char *source;         /**< "FILE, entry N", counted from 1; "" for one that this context chose */
    int64_t library;            /**< version of the vendor library, as that library counts */
    int64_t order;              /**< version of the order in which configurations were tried */
    int n_key;                  /**< fields of `key`; 0 for an entry that was rejected before it was understood */
    int n_configuration;        /**< fields of `configuration`; likewise */
    tlob_algorithm_field key[TLOB_ALGORITHM_FIELDS_MAX];           /**< all that the choice depends on */
    tlob_algorithm_field configuration[TLOB_ALGORITHM_FIELDS_MAX]; /**< the algorithm, by its attributes */
} tlob_algorithm;

/** Receives one entry. Must not call into the context. */
typedef void (*tlob_algorithm_fn)(void *user, const tlob_algorithm *entry);

/**
 * Visits every entry: those of the tables, sorted by their keys, then those of loaded files that were rejected. A context
 * that is not deterministic has none. Errors: ARGUMENT, CLOSED, NO_DEVICE. Thread-safe.
 */
TLOB_API tlob_status tlob_algorithms_list(tlob_context *ctx, tlob_algorithm_fn visit, void *user);

/**
 * Writes what this context has chosen or confirmed to `path`, as JSON. The file is written aside and put in place whole,
 * with the directory synced; a symbolic link is followed, and a file that is replaced hands on its permissions. What
 * was loaded and not needed yet is no choice of this context, and is left out.
 *
 * Errors: ARGUMENT, also for a context that is not deterministic; CLOSED; NO_DEVICE; OUT_OF_MEMORY; FILE, also for more
 * than 65536 entries or 16 MiB, which could not be loaded again. Thread-safe.
 */
TLOB_API tlob_status tlob_algorithms_save(tlob_context *ctx, const char *path);

/** What became of the entries of a file. */
typedef struct tlob_algorithms_report {
    int accepted;     /**< entries for this device and library */
    int rejected;     /**< others: each was logged, and is listed with its reason */
    char reason[256]; /**< of the first that was rejected; empty without one */
} tlob_algorithms_report;

/**
 * Reads a file that tlob_algorithms_save wrote. An entry for another device model, library version or order, or with a
 * field that is unknown, missing, given twice or out of range, is rejected alone, with its reason.
 *
 * An entry never decides: when its problem is first needed, the context chooses as it would without it. If both agree
 * the entry is confirmed; if not, the context's choice runs, and the entry is rejected, with a warning in the log that
 * names both. So a file shows that nothing has changed since it was written, and a wrong one does no harm.
 *
 * `report` may be NULL; it is all 0 where no entry was looked at.
 *
 * Errors: ARGUMENT, also for a context that is not deterministic, for it would not look at the entries; CLOSED;
 * NO_DEVICE; OUT_OF_MEMORY; FILE where the file cannot be read, or is none of this kind: then no entry of it is taken.
 * Thread-safe.
 */
TLOB_API tlob_status tlob_algorithms_load(tlob_context *ctx, const char *path, tlob_algorithms_report *report);

#ifdef __cplusplus
}
#endif
#endif
