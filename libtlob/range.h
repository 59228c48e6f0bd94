/** Ranges that a profiler shows: NVTX where its header is there, nothing elsewhere. No tool attached: one load each. */
#ifndef TLOB_RANGE_H
#define TLOB_RANGE_H

#if TLOB_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

static inline void tlob_range_push(const char *name) {
    nvtxRangePushA(name);
}

static inline void tlob_range_pop(void) {
    nvtxRangePop();
}
#else
static inline void tlob_range_push(const char *name) {
    (void)name;
}

static inline void tlob_range_pop(void) {}
#endif

#endif
