#include "io/hash.h"

uint64_t io_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *next = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ next[i]) * UINT64_C(0x100000001b3);
    return hash;
}
