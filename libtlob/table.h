/** What the files of a table share: table.c keeps and finds entries, table_file.c reads and writes them. */
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

struct tlob_table {
    char name[256];        /**< of the file that it was read from; empty for one that was made */
    tlob_records kept;     /**< those that can be used, sorted; in a file being read, as they came */
    tlob_records rejected; /**< as they came */
    tlob_record **buckets; /**< of `kept`, by problem; a power of two, at least as many as entries */
    size_t n_buckets;
};

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

#endif
