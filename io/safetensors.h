// Named arrays in one file: the safetensors format (8 bytes of header length, a JSON header, raw little-endian data).
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "io/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IO_SAFETENSORS_RANK_MAX 8
#define IO_SAFETENSORS_HEADER_MAX ((size_t)16 << 20) // bytes of JSON that load accepts
#define IO_SAFETENSORS_METADATA "__metadata__"       // the one name that no tensor can have

typedef enum io_dtype {
    IO_U8,
    IO_I8,
    IO_BOOL,
    IO_I16,
    IO_U16,
    IO_I32,
    IO_U32,
    IO_I64,
    IO_U64,
    IO_F32,
    IO_F64
} io_dtype;

// Bytes of one element; 0 for a value that is none.
size_t io_dtype_size(io_dtype dtype);

// The format's own name, such as "F32"; "?" for a value that is none. Static storage.
const char *io_dtype_name(io_dtype dtype);

// One array, row-major and packed: the last index runs fastest. Rank 0 is one element. A row-major [n, f] is the
// column-major [f, n] as it lies.
typedef struct io_tensor {
    const char *name;
    io_dtype dtype;
    int rank;
    int64_t shape[IO_SAFETENSORS_RANK_MAX];
    const void *data;
    size_t bytes; // product of shape times the element's size; checked on load and on save
} io_tensor;

// One string of the file's metadata.
typedef struct io_metadata {
    const char *key, *value;
} io_metadata;

// A file in memory. Opaque and never changed once loaded, so threads may share it.
typedef struct io_safetensors io_safetensors;

// Reads the whole of `path` and checks all of it, believing nothing: header length, JSON, names, dtypes, shapes
// (overflow, rank), offsets (inside the file, matching the shape, leaving no gap and no overlap), metadata (strings
// alone), no name twice. Blocking.
//
// On success *file is a new object; free it with io_safetensors_free. On failure *file is NULL and err (may be NULL)
// names the path, the tensor and what is wrong with it.
bool io_safetensors_load(const char *path, io_safetensors **file, io_error *err);

// As io_safetensors_load, from memory that stays the caller's; `name` stands for the path in messages.
bool io_safetensors_parse(const char *name, const void *content, size_t bytes, io_safetensors **file, io_error *err);

// How many tensors there are, and the one at `index` in the order of the data (NULL if out of range).
int io_safetensors_count(const io_safetensors *file);
const io_tensor *io_safetensors_at(const io_safetensors *file, int index);

// The tensor with this name, or NULL. Its data is aligned to 16 bytes and lives as long as `file`.
const io_tensor *io_safetensors_find(const io_safetensors *file, const char *name);

// The metadata string with this key, or NULL. Lives as long as `file`.
const char *io_safetensors_metadata(const io_safetensors *file, const char *key);

// Frees and sets *file to NULL; NULL and a pointer to NULL are allowed.
void io_safetensors_free(io_safetensors **file);

// Writes tensors and metadata to `path` aside, syncs and renames (io/atomic_file.h): a failure leaves an old file as it
// was. Data starts at a multiple of 8 bytes, as the format asks. The same arguments give the same bytes. `meta` may be
// NULL where n_meta is 0. Blocking.
//
// Errors name the path and the tensor: an empty or repeated name, "__metadata__", text that is not UTF-8, a rank, a
// negative size, `bytes` that do not match the shape; and what the system says of the writing.
bool io_safetensors_save(const char *path, const io_tensor *tensors, int count, const io_metadata *meta, int n_meta,
                         io_error *err);

#endif
