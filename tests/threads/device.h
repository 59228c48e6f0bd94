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

#endif
