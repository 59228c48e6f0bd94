// A checksum of bytes: whether two things are the same, or one is as it was. Not for secrets.
#ifndef IO_HASH_H
#define IO_HASH_H

#include <stddef.h>
#include <stdint.h>

// The hash of no bytes: what a chain of io_hash calls begins with.
#define IO_HASH_EMPTY UINT64_C(0xcbf29ce484222325)

// The hash of what `hash` is of, followed by `bytes` bytes: FNV-1a with 64 bits (Fowler, Noll, Vo). Each step
// is a bijection of the hash, so a single byte that differs always shows. `data` may be NULL where bytes is 0.
// Thread-safe.
uint64_t io_hash(uint64_t hash, const void *data, size_t bytes);

#endif
