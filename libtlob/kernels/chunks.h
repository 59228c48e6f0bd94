/**
 * How a range is cut into chunks that are summed apart, and whose sums are then added up in a fixed order: by its length
 * alone, so that no device and no grid sums differently.
 */
#ifndef TLOB_KERNELS_CHUNKS_H
#define TLOB_KERNELS_CHUNKS_H

#include <stdint.h>

/** The length of a chunk of a range of `count` >= 1: a multiple of `unit`, and such that there are `most` at most. */
static inline int64_t tlob_chunk_length(int64_t count, int64_t unit, int64_t most) {
    return ((count - 1) / (unit * most) + 1) * unit;
}

/** How many chunks a range has. */
static inline int64_t tlob_chunk_count(int64_t count, int64_t unit, int64_t most) {
    return (count - 1) / tlob_chunk_length(count, unit, most) + 1;
}

/** The most chunks that a range of `count` or fewer has. */
static inline int64_t tlob_chunk_count_most(int64_t count, int64_t unit, int64_t most) {
    const int64_t chunks = (count - 1) / unit + 1;
    return chunks < most ? chunks : most;
}

/** Those of the softmax cross-entropy, and of the head with its loss: samples. */
#define TLOB_XENT_UNIT 256
#define TLOB_XENT_MOST 512
#define TLOB_HEAD_UNIT 64
#define TLOB_HEAD_MOST 132

#endif
