/** The shape of the two-level sum, which depends on n alone: never on the device, so that no device sums differently.
 */
#ifndef TLOB_KERNELS_ROW_SUM_H
#define TLOB_KERNELS_ROW_SUM_H

#include <stdint.h>

/* 512 chunks keep every multiprocessor of a large GPU busy, and the second level reads 512 columns at once; a chunk
 * below 1024 columns is not worth a second launch. */
#define TLOB_ROW_SUM_CHUNKS  512
#define TLOB_ROW_SUM_COLUMNS 1024

/** Into how many runs of consecutive columns n is cut; 1: no second level. */
static inline int64_t tlob_row_sum_chunks(int64_t n) {
    int64_t chunks = (n + TLOB_ROW_SUM_COLUMNS - 1) / TLOB_ROW_SUM_COLUMNS;
    return chunks < 1 ? 1 : chunks > TLOB_ROW_SUM_CHUNKS ? TLOB_ROW_SUM_CHUNKS : chunks;
}

#endif
