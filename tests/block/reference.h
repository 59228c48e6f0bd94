/** Reference values from PyTorch in float64, which lie outside the sources. */
#ifndef TLOB_TESTS_REFERENCE_H
#define TLOB_TESTS_REFERENCE_H

#include "io/safetensors.h"

/** Opens "<name>.safetensors", to free; skips the running test, saying so, where there is none. */
io_safetensors *reference_open(const char *name);

/** A float64 tensor, which must be there. */
const io_tensor *reference_tensor(const io_safetensors *file, const char *name);

/** How many elements it has. */
int64_t reference_count(const io_tensor *t);

/** As floats, to free; a row-major [samples, features] is the column-major [features, samples] as it lies. */
float *reference_floats(const io_safetensors *file, const char *name);

/** A whole number in the metadata. */
int64_t reference_number(const io_safetensors *file, const char *key);

#endif
