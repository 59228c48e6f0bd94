/** What the files of tables share: table.c and table_blocks.c keep and find entries, table_file.c reads and writes. */
#ifndef TLOB_LIBTLOB_TABLE_H
#define TLOB_LIBTLOB_TABLE_H

#include "libtlob/entries.h"

/** An entry as it is kept: one piece of memory with all that it points to. */
typedef struct tlob_record {
    tlob_table_entry entry;
    uint64_t hash;            /**< of its problem */
    struct tlob_record *next; /**< in its bucket */
} tlob_record;

/** A list of them. */
typedef struct tlob_records {
    tlob_record **list;
    size_t count, room;
} tlob_records;

/** A list of entries for blocks, each one piece of memory with all that it points to. There are few. */
typedef struct tlob_block_records {
    tlob_table_block **list;
    size_t count, room;
} tlob_block_records;

struct tlob_table {
    char name[256];        /**< of the file that it was read from; empty for one that was made */
    tlob_records kept;     /**< those that can be used, sorted; in a file being read, as they came */
    tlob_records rejected; /**< as they came */
    tlob_record **buckets; /**< of `kept`, by problem; a power of two, at least as many as entries */
    size_t n_buckets;
    tlob_block_records blocks, rejected_blocks; /**< sorted; as they came */
};

/** What messages call a table: its file, or "a table of the program". */
const char *tlob_table_name(const tlob_table *table);

/* --- origins (table.c) -------------------------------------------------------------------------------------------- */

/** Whether an origin is sound. */
bool tlob_table_check_origin(const tlob_table_origin *origin, tlob_fault *why);

/** Whether it is of this device model. */
bool tlob_table_is_device(const tlob_table_origin *origin, const tlob_device_info *device);

/** As strcmp: the order of entries. */
int tlob_table_compare_origins(const tlob_table_origin *a, const tlob_table_origin *b);

/** In words, that an origin is not this device. */
void tlob_table_tell_device(const tlob_table_origin *origin, const tlob_device_info *device, char *text, size_t size);

/* --- products (table.c) ------------------------------------------------------------------------------------------- */

/** Whether an entry can be kept: method, problem and origin are sound. Looks at the problem as it is put. */
bool tlob_table_check(const tlob_table_entry *entry, tlob_fault *why);

/** Adds a copy of a checked entry behind the others. OUT_OF_MEMORY. */
tlob_status tlob_table_append(tlob_table *table, const tlob_table_entry *entry);

/** Adds a copy of an entry with a reason to those that were rejected. OUT_OF_MEMORY. */
tlob_status tlob_table_append_rejected(tlob_table *table, const tlob_table_entry *entry);

/** The place of an entry of the table among those that are kept, in order from 0. */
size_t tlob_table_rank(const tlob_table *table, const tlob_table_entry *entry);

/** Whether an entry does not count on a device, and why. */
bool tlob_table_foreign(const tlob_table_entry *entry, const tlob_device_info *device, char *text, size_t size);

/** Puts what was appended in order. */
void tlob_table_sort(tlob_table *table);

/* --- blocks (table_blocks.c) -------------------------------------------------------------------------------------- */

/** Whether an entry can be kept. */
bool tlob_table_check_block(const tlob_table_block *entry, tlob_fault *why);

/** Adds a copy of a checked entry in its place, or of one with a reason to those that were rejected. OUT_OF_MEMORY. */
tlob_status tlob_table_add_block(tlob_table *table, const tlob_table_block *entry);

/** Frees those of a table. */
void tlob_table_free_blocks(tlob_table *table);

/** Whether an entry does not count on a device, and why. */
bool tlob_table_foreign_block(const tlob_table_block *entry, const tlob_device_info *device, char *text, size_t size);

/** Why tlob_table_find_block gives NULL, as it does. */
void tlob_table_miss_block(const tlob_table *table, const tlob_block_params *params, tlob_compute compute,
                           const tlob_device_info *device, char *text, size_t size);

/** A block in words: "d_in 32, d_out 16, head_dim 4, seq 1, feature axis, 256 samples, training, tf32". */
void tlob_table_block_words(const tlob_block_params *params, tlob_compute compute, char *text, size_t size);

#endif
