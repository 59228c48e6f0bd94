// What the tests of lobdata/ share: a directory of their own, books from literals, and the real files.
#ifndef TESTS_LOBDATA_HELPER_H
#define TESTS_LOBDATA_HELPER_H

#include "lobdata/dataset.h"

#include <stddef.h>

// Makes and removes the directory that in_dir names files in; for .init and .fini of a suite. Each test has its own.
void make_dir(void);
void remove_dir(void);

// DIRECTORY/name, in one of four buffers used in turn.
const char *in_dir(const char *name);

// A whole file, followed by a 0 that does not count; the caller frees it. write_file replaces a file.
char *read_file(const char *path, size_t *size);
void write_file(const char *path, const void *bytes, size_t size);

// The path of a file below the shared directory's data/, or a skip of the running test where it is not there.
const char *shared_file(const char *name);

// Reads a pair below data/, whose names end in "message_N.csv" and "orderbook_N.csv" plus `gz`; skips like shared_file.
lob_book *read_shared(const char *prefix, int levels, const char *gz, lob_report *report);

// A book of `rows` events of one segment, one level, all of type 1 at the touch, sizes 10 and 10, with the given bids
// and asks; made through the reader. The caller destroys it.
lob_book *book_of_quotes(size_t rows, const int64_t *bid, const int64_t *ask);

// A pseudo-random walk of quotes, and a book of it. Every row has a new size too.
lob_book *random_book(unsigned seed, size_t rows, int levels);

#endif
