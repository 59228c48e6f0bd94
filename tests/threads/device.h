/** A core whose CUDA device is none: what its suites set and see. */
#ifndef TLOB_TESTS_THREADS_DEVICE_H
#define TLOB_TESTS_THREADS_DEVICE_H

#include "libtlob/internal.h"

#if TLOB_HAVE_CUBLAS_CLASSIC && TLOB_HAVE_CUBLASLT
#define DEVICE_MEMORY TLOB_MEMORY_CUDA
#else
#define DEVICE_MEMORY TLOB_MEMORY_HOST /* without the vendor's headers there is nothing to fake: the oracle alone */
#endif

extern _Thread_local int device_current; /**< of the two devices, the one that is current on this thread */
extern atomic_int device_asked;          /**< how often the core has asked where a pointer lies */
extern atomic_int device_entered;        /**< how often the core has made a device current */
extern atomic_int device_searches;       /**< how often the backend cublaslt has listed algorithms */

/** Captures, graphs and memory: what a test makes fail, and what the core has done. Each thread has its own. */
typedef struct device_graphs {
    int load_code, begin_code, end_code, instantiate_code, event_code, launch_code; /**< what these calls return */
    int alloc_code;                /**< what an allocation on the device returns */
    int blocks;                    /**< of device memory that have been allocated and not freed */
    struct CUstream_st *capturing; /**< the stream that this thread captures, or NULL */
    struct CUstream_st *elsewhere; /**< one that another thread captures, and alone can end */
    int loads;                     /**< how often the kernels were loaded */
    int alive;                     /**< graphs that can be launched */
    int events;                    /**< that have been made and not destroyed */
    int streams;                   /**< likewise */
    int launches;
    char order[256];               /**< "r1 w2 l2": event recorded on, wait of, launch on a stream, by its number */
} device_graphs;

extern _Thread_local device_graphs device_graph;

/** The number of a stream that the core has made: 1 for the first. */
int device_stream_number(const struct CUstream_st *stream);

#endif
