/** The shape of the two-level sum, which depends on m and n alone: never on the device, so that no device sums
 *  differently. */
#ifndef TLOB_KERNELS_ROW_SUM_H
#define TLOB_KERNELS_ROW_SUM_H

#include <stdint.h>

/* A block sums at most 32 rows, which a warp reads at once. With fewer rows its threads are lanes enough for 1024
 * columns; with 32 there are 8 lanes, and 64 columns are few enough to wait for and many enough for a second launch. 512
 * chunks keep every multiprocessor of a large GPU busy, and the second level reads 512 columns at once. */
#define TLOB_ROW_SUM_ROWS         32
#define TLOB_ROW_SUM_CHUNKS       512
#define TLOB_ROW_SUM_COLUMNS      1024
#define TLOB_ROW_SUM_COLUMNS_WIDE 64

/** Into how many runs of consecutive columns n is cut; 1: no second level. */
static inline int64_t tlob_row_sum_chunks(int64_t m, int64_t n) {
    int64_t columns = m < TLOB_ROW_SUM_ROWS ? TLOB_ROW_SUM_COLUMNS : TLOB_ROW_SUM_COLUMNS_WIDE;
    int64_t chunks = (n + columns - 1) / columns;
    return chunks < 1 ? 1 : chunks > TLOB_ROW_SUM_CHUNKS ? TLOB_ROW_SUM_CHUNKS : chunks;
}

#endif
