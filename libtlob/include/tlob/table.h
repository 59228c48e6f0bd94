/**
 * Tables: for problems that were measured on a device, the methods that were best there, and for blocks the plans.
 * Policy `tuned` reads them.
 */
#ifndef TLOB_TABLE_H
#define TLOB_TABLE_H

#include <tlob/block.h>
#include <tlob/info.h>
#include <tlob/method.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A table in host memory. Needs no GPU. Thread-safety: reading from many threads at once is safe while none changes it;
 * one that belongs to a context, or to the policy of one, must not be changed.
 */
typedef struct tlob_table tlob_table;

/** The hardware and library that an entry was measured with. Entries of others are foreign. */
typedef struct tlob_table_origin {
    char device[128];    /**< name of the device, such as "NVIDIA H200"; "host" for one measured on a host context */
    int sm;              /**< its compute capability, major * 10 + minor; 0 on the host */
    int multiprocessors; /**< how many it has; 0 on the host */
    char library[64];    /**< version of the method's backend, as tlob_backend_info tells it; "" where it has none */
} tlob_table_origin;

/** An entry. Pointers belong to the table. */
typedef struct tlob_table_entry {
    /** The problem: compute mode resolved, alpha 1, beta 0 or 1 (whether C is read), and 0 in every field that is not
     * looked at. Entries are for operands that are aligned to 16 bytes. */
    tlob_gemm gemm;
    tlob_method method;        /**< what was best */
    tlob_table_origin origin;  /**< where */
    const char *source;        /**< "FILE, entry N", counted from 1; "" for one that was added */
    const char *rejected;      /**< NULL, or why it is not used; then the fields above hold what could be read */
} tlob_table_entry;

/** The problem that an entry for `gemm` has: see tlob_table_entry. Compute DEFAULT stays as it is. */
TLOB_API tlob_gemm tlob_table_problem(const tlob_gemm *gemm);

/** An empty table. Ownership: free with tlob_table_destroy. Errors: ARGUMENT, OUT_OF_MEMORY. */
TLOB_API tlob_status tlob_table_create(tlob_table **table);

/** Frees a table and sets `*table` to NULL; NULL is allowed. */
TLOB_API void tlob_table_destroy(tlob_table **table);

/** What became of the entries of a file, for products and for blocks. */
typedef struct tlob_table_report {
    int64_t accepted; /**< entries that can be used, on the hardware that they were measured on */
    int64_t rejected; /**< entries that are kept only to be listed: see `rejected` of each */
    char reason[256]; /**< of the first that was rejected, with its number ("entry 2", "block 3"); empty without one */
} tlob_table_report;

/**
 * Reads a file that tlob_table_write wrote. An entry that is malformed, not valid as a problem, whose form has an
 * obstacle, or that contradicts an earlier one is rejected alone; the others are taken, one that is there twice once.
 * So it is with the entries for blocks, which may be missing.
 * `report` may be NULL; it is all 0 where no entry was looked at.
 *
 * Ownership: free with tlob_table_destroy. Errors: ARGUMENT; OUT_OF_MEMORY; FILE, with line and column where the file
 * is no JSON, is none of this kind, of a later version, has more than 65536 entries of a kind or is larger than 64 MiB.
 * `*table` is NULL after a failure. Thread-safe.
 */
TLOB_API tlob_status tlob_table_read(const char *path, tlob_table **table, tlob_table_report *report);

/** tlob_table_read from `length` bytes of text; `path` is what messages call it. */
TLOB_API tlob_status tlob_table_parse(const char *path, const char *text, size_t length, tlob_table **table,
                                      tlob_table_report *report);

/**
 * Adds an entry, or replaces the one for the same problem and device, of the same release: of libraries that are the
 * same from their last blank on, such as "cuBLAS 13.1.0" and "cuBLASLt 13.1.0". The problem is kept as tlob_table_problem
 * gives it, fields of the configuration sorted by name; what the entry points to is copied. `source` and `rejected` are
 * ignored. Errors: ARGUMENT where problem (compute mode DEFAULT too, or nothing to multiply), method or origin are not
 * valid; OUT_OF_MEMORY.
 */
TLOB_API tlob_status tlob_table_put(tlob_table *table, const tlob_table_entry *entry);

/**
 * Writes the entries that are not rejected, sorted by origin and problem, so that equal tables are equal bytes. The file
 * is written aside, synced and renamed, as tlob_algorithms_save does it. Errors: ARGUMENT; OUT_OF_MEMORY; FILE, also for
 * more than 65536 entries or 64 MiB, which could not be read again.
 */
TLOB_API tlob_status tlob_table_write(const tlob_table *table, const char *path);

/** Receives one entry. */
typedef void (*tlob_table_fn)(void *user, const tlob_table_entry *entry);

/**
 * Visits every entry: sorted as tlob_table_write sorts them, then those that were rejected, in the order of the file.
 * `visit` must not change the table. Errors: ARGUMENT.
 */
TLOB_API tlob_status tlob_table_list(const tlob_table *table, tlob_table_fn visit, void *user);

/**
 * The entry for `gemm` (whose compute mode is resolved) on a device, or NULL. With device NULL the first one in order,
 * whatever device and library it is for. Else name, sm and multiprocessors must be those of `device` (name "host" for the
 * host), and where the method's backend is one of libtlob's own, the library must be the version that this process uses.
 * Allocates nothing; the result is valid until the table changes. Thread-safe while nobody changes the table.
 */
TLOB_API const tlob_table_entry *tlob_table_find(const tlob_table *table, const tlob_gemm *gemm,
                                                 const tlob_device_info *device);

/** The entry that tlob_table_put would replace by `entry`, or NULL: also for NULL. Likewise. */
TLOB_API const tlob_table_entry *tlob_table_same(const tlob_table *table, const tlob_table_entry *entry);

/** Writes in words why tlob_table_find gives NULL, or nothing where it does not; at most `size` bytes. Likewise. */
TLOB_API void tlob_table_miss(const tlob_table *table, const tlob_gemm *gemm, const tlob_device_info *device,
                              char *text, size_t size);

/** How many entries tlob_table_find could give for `device`, or for any (NULL); 0 for NULL. Likewise. */
TLOB_API int64_t tlob_table_count(const tlob_table *table, const tlob_device_info *device);

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/** An entry for a block: which plan was best for it. Pointers belong to the table. */
typedef struct tlob_table_block {
    tlob_block_shape shape; /**< its sizes, and the axis */
    int64_t samples;        /**< of a pass; looked up by max_samples */
    bool inference;         /**< true: forward passes were measured; false: forward and backward together */
    tlob_compute compute;   /**< TF32 or FP32 */
    tlob_block_plan plan;   /**< what was best: COMPOSED or FUSED */
    tlob_table_origin origin; /**< where; library: what tlob_table_block_library told there */
    const char *source;     /**< "FILE, block N", counted from 1; "" for one that was added */
    const char *rejected;   /**< NULL, or why it is not used; then the fields above hold what could be read */
} tlob_table_block;

/**
 * What the times of blocks depend on besides the device: "libtlob 0.1.0, cuBLAS 13.1.0, cuBLASLt 13.1.0", as far as
 * this build has them. At most `size` bytes. Thread-safe.
 */
TLOB_API void tlob_table_block_library(char *text, size_t size);

/**
 * Adds an entry for a block, or replaces that for the same block, device and library. `source` and `rejected` are
 * ignored; the rest is copied. Errors: ARGUMENT where shape, samples, compute mode, plan (DEFAULT, or fused for a shape
 * without fused kernels) or origin are not valid; OUT_OF_MEMORY.
 */
TLOB_API tlob_status tlob_table_put_block(tlob_table *table, const tlob_table_block *entry);

/** Receives one entry. */
typedef void (*tlob_table_block_fn)(void *user, const tlob_table_block *entry);

/** Visits every entry for a block, as tlob_table_list does those for products. Errors: ARGUMENT. */
TLOB_API tlob_status tlob_table_list_blocks(const tlob_table *table, tlob_table_block_fn visit, void *user);

/**
 * The entry for a block made from `params` in a context of mode `compute`, on a device, or NULL; params->plan does not
 * count. With device NULL the first one in order, whatever it is for. Else name, sm and multiprocessors must be those
 * of `device`, and the library what tlob_table_block_library tells in this process. Allocates nothing; valid until the
 * table changes. Thread-safe while nobody changes the table.
 */
TLOB_API const tlob_table_block *tlob_table_find_block(const tlob_table *table, const tlob_block_params *params,
                                                       tlob_compute compute, const tlob_device_info *device);

/** The entry that tlob_table_put_block would replace by `entry`, or NULL: also for NULL. Likewise. */
TLOB_API const tlob_table_block *tlob_table_same_block(const tlob_table *table, const tlob_table_block *entry);

/** How many entries tlob_table_find_block could give for `device`, or for any (NULL); 0 for NULL. Likewise. */
TLOB_API int64_t tlob_table_count_blocks(const tlob_table *table, const tlob_device_info *device);

#ifdef __cplusplus
}
#endif
#endif
