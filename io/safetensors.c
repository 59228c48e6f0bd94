#include "io/safetensors.h"

#include "io/atomic_file.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data of a safetensors file is little-endian");

#define PREFIX_BYTES 8                  // the header's length
#define ALIGNMENT    16                 // of a loaded tensor's data
#define EXACT_MAX    9007199254740992.0 // 2^53: up to here the doubles of a JSON parser are exact integers

struct io_safetensors {
    cJSON *header;         // owns names and metadata
    const cJSON *metadata; // in header, or NULL
    int count;
    io_tensor *tensors;       // in the order of the data
    const io_tensor **sorted; // by name
    void *data;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [IO_U8] = {"U8", 1},   [IO_I8] = {"I8", 1},   [IO_BOOL] = {"BOOL", 1}, [IO_I16] = {"I16", 2},
    [IO_U16] = {"U16", 2}, [IO_I32] = {"I32", 4}, [IO_U32] = {"U32", 4},   [IO_I64] = {"I64", 8},
    [IO_U64] = {"U64", 8}, [IO_F32] = {"F32", 4}, [IO_F64] = {"F64", 8},
};
#define N_DTYPES ((int)(sizeof dtypes / sizeof *dtypes))

size_t io_dtype_size(io_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < N_DTYPES ? dtypes[dtype].size : 0;
}

const char *io_dtype_name(io_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < N_DTYPES ? dtypes[dtype].name : "?";
}

// --- checks that loading and saving share ---

// What a message needs to say where it is. Names come from the file, so messages show at most 64 bytes of them.
typedef struct place {
    const char *path, *tensor;
    io_error *err;
} place;

#define FAIL(at, format, ...)                                                                                          \
    (io_error_set((at)->err, "%s: tensor \"%.64s\": " format, io_error_path((at)->path), (at)->tensor, __VA_ARGS__),   \
     false)

static bool __attribute__((format(printf, 3, 4))) fail_file(const char *path, io_error *err, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    io_error_set(err, "%s: %s", io_error_path(path), text);
    return false;
}

// Length of the UTF-8 sequence at `s` (RFC 3629: shortest form, no surrogates, up to U+10FFFF), 0 if there is none.
static size_t utf8_sequence(const unsigned char *s, size_t left) {
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
                    : s[0] >= 0xe0 && s[0] <= 0xef ? 3
                    : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                                   : 0;
    if (!length || left < length)
        return 0;
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return length;
}

static bool is_utf8(const char *text, size_t bytes) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0, step; i < bytes; i += step)
        if (!(step = utf8_sequence(s + i, bytes - i)))
            return false;
    return true;
}

// The bytes that rank, shape and dtype of `tensor` ask for.
static bool shape_bytes(const io_tensor *tensor, size_t *bytes, const place *at) {
    *bytes = io_dtype_size(tensor->dtype);
    bool empty = false; // a size of 0 must not hide that the others overflow
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return FAIL(at, "size %d of its shape is %" PRId64 ", must be 0 or more", i, tensor->shape[i]);
        empty |= tensor->shape[i] == 0;
        if (tensor->shape[i] > 0 && __builtin_mul_overflow(*bytes, (size_t)tensor->shape[i], bytes))
            return FAIL(at, "its shape overflows at size %d, %" PRId64, i, tensor->shape[i]);
    }
    if (empty)
        *bytes = 0;
    return true;
}

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Sorts `names`; the first that stands there twice, or NULL.
static const char *find_repeat(const char **names, int count) {
    if (count > 1)
        qsort(names, (size_t)count, sizeof *names, compare_text);
    for (int i = 1; i < count; i++)
        if (!strcmp(names[i - 1], names[i]))
            return names[i];
    return NULL;
}

// --- loading ---

static bool json_size(const cJSON *item, int64_t *value) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= EXACT_MAX))
        return false;
    *value = (int64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static bool read_dtype(const cJSON *item, io_tensor *tensor, const place *at) {
    if (!cJSON_IsString(item))
        return FAIL(at, "%s", "\"dtype\" is missing or is no text");
    for (int i = 0; i < N_DTYPES; i++)
        if (!strcmp(item->valuestring, dtypes[i].name)) {
            tensor->dtype = (io_dtype)i;
            return true;
        }
    return FAIL(at, "dtype \"%.32s\" is not supported (BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F32, F64 are)",
                item->valuestring);
}

static bool read_shape(const cJSON *item, io_tensor *tensor, const place *at) {
    if (!cJSON_IsArray(item))
        return FAIL(at, "%s", "\"shape\" is missing or is no list");
    const cJSON *size;
    cJSON_ArrayForEach(size, item) {
        if (tensor->rank == IO_SAFETENSORS_RANK_MAX)
            return FAIL(at, "its shape has more than %d sizes", IO_SAFETENSORS_RANK_MAX);
        if (!json_size(size, &tensor->shape[tensor->rank]))
            return FAIL(at, "size %d of its shape is no whole number from 0 to 2^53", tensor->rank);
        tensor->rank++;
    }
    return true;
}

// One entry of the header. Until the data is placed, `data` holds the offset from the start of the data, as a pointer
// into `content`.
static bool read_tensor(const cJSON *item, const char *data, size_t data_bytes, io_tensor *tensor, const place *at) {
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3)
        return FAIL(at, "%s", "must have exactly dtype, shape and data_offsets");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    if (!read_dtype(cJSON_GetObjectItemCaseSensitive(item, "dtype"), tensor, at) ||
        !read_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), tensor, at))
        return false;
    int64_t begin, end;
    if (cJSON_GetArraySize(offsets) != 2 || !cJSON_IsArray(offsets) ||
        !json_size(cJSON_GetArrayItem(offsets, 0), &begin) || !json_size(cJSON_GetArrayItem(offsets, 1), &end))
        return FAIL(at, "%s", "\"data_offsets\" is no list of two whole numbers from 0 to 2^53");
    if (begin > end || (uint64_t)end > data_bytes)
        return FAIL(at, "data_offsets [%" PRId64 ", %" PRId64 "] do not lie in the %zu bytes of data", begin, end,
                    data_bytes);
    if (!shape_bytes(tensor, &tensor->bytes, at))
        return false;
    if (tensor->bytes != (size_t)(end - begin))
        return FAIL(at, "shape and dtype ask for %zu bytes, data_offsets [%" PRId64 ", %" PRId64 "] hold %" PRId64,
                    tensor->bytes, begin, end, end - begin);
    tensor->data = data + begin;
    return true;
}

static int compare_data(const void *a, const void *b) {
    const io_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b) {
    return strcmp((*(const io_tensor *const *)a)->name, (*(const io_tensor *const *)b)->name);
}

// Copies the data to where its types are aligned. Offsets must tile it: a gap could hide content, an overlap alias it.
static bool place_data(io_safetensors *file, const char *path, const char *data, size_t data_bytes, io_error *err) {
    size_t total = 0;
    const char *next = data;
    for (int i = 0; i < file->count; i++) {
        const io_tensor *tensor = &file->tensors[i];
        const place at = {path, tensor->name, err};
        if (tensor->data != next)
            return FAIL(&at, "its data starts at byte %td, %s byte %td where the tensor before it ends",
                        (const char *)tensor->data - data,
                        (const char *)tensor->data < next ? "overlapping" : "leaving a gap after", next - data);
        next += tensor->bytes;
        total += (tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if ((size_t)(next - data) != data_bytes)
        return fail_file(path, err, "%zu bytes of data after the last tensor", data_bytes - (size_t)(next - data));
    char *to = file->data = aligned_alloc(ALIGNMENT, total ? total : ALIGNMENT);
    if (!to)
        return fail_file(path, err, "out of memory for %zu bytes of data", total);
    for (int i = 0; i < file->count; i++) {
        io_tensor *tensor = &file->tensors[i];
        memcpy(to, tensor->data, tensor->bytes);
        tensor->data = to;
        to += (tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return true;
}

static bool check_metadata(const cJSON *metadata, const char *path, io_error *err) {
    if (!metadata)
        return true;
    if (!cJSON_IsObject(metadata))
        return fail_file(path, err, "__metadata__ is no object");
    int count = 0;
    const char **keys = calloc((size_t)cJSON_GetArraySize(metadata) + 1, sizeof *keys);
    if (!keys)
        return fail_file(path, err, "out of memory");
    bool good = true;
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata) {
        keys[count++] = item->string;
        if (!cJSON_IsString(item) && good)
            good = fail_file(path, err, "metadata \"%.64s\" is no text", item->string);
    }
    const char *twice = good ? find_repeat(keys, count) : NULL;
    free(keys);
    return twice ? fail_file(path, err, "metadata \"%.64s\" stands there twice", twice) : good;
}

// Reads every entry of the header into file->tensors, in the header's order.
static bool read_entries(io_safetensors *file, const char *path, const char *data, size_t data_bytes, io_error *err) {
    int entries = cJSON_GetArraySize(file->header);
    file->tensors = calloc((size_t)entries + 1, sizeof *file->tensors);
    file->sorted = calloc((size_t)entries + 1, sizeof *file->sorted);
    if (!file->tensors || !file->sorted)
        return fail_file(path, err, "out of memory for %d tensors", entries);
    const cJSON *item;
    cJSON_ArrayForEach(item, file->header) {
        if (!strcmp(item->string, IO_SAFETENSORS_METADATA)) {
            if (file->metadata)
                return fail_file(path, err, "__metadata__ stands there twice");
            file->metadata = item;
            continue;
        }
        io_tensor *tensor = &file->tensors[file->count];
        const place at = {path, item->string, err};
        tensor->name = item->string;
        if (!read_tensor(item, data, data_bytes, tensor, &at))
            return false;
        file->count++;
    }
    return true;
}

static bool index_names(io_safetensors *file, const char *path, io_error *err) {
    for (int i = 0; i < file->count; i++)
        file->sorted[i] = &file->tensors[i];
    qsort(file->sorted, (size_t)file->count, sizeof *file->sorted, compare_name);
    for (int i = 1; i < file->count; i++)
        if (!strcmp(file->sorted[i - 1]->name, file->sorted[i]->name)) {
            const place at = {path, file->sorted[i]->name, err};
            return FAIL(&at, "%s", "stands there twice");
        }
    return true;
}

// The JSON of the header, or NULL. The parser gets a copy that ends in a NUL, because some versions of it read one byte
// past the end of text that breaks off.
static cJSON *parse_header(const char *path, const char *json, size_t bytes, io_error *err) {
    if (memchr(json, 0, bytes) || !is_utf8(json, bytes)) {
        fail_file(path, err, "its header is not UTF-8 text");
        return NULL;
    }
    char *copy = malloc(bytes + 1);
    if (!copy) {
        fail_file(path, err, "out of memory for a header of %zu bytes", bytes);
        return NULL;
    }
    memcpy(copy, json, bytes);
    copy[bytes] = 0;
    const char *end = copy;
    cJSON *header = cJSON_ParseWithLengthOpts(copy, bytes + 1, &end, false);
    if (!header || !cJSON_IsObject(header))
        fail_file(path, err, "its header is no valid JSON object (near byte %td)", end - copy + PREFIX_BYTES);
    else if (end[strspn(end, " \t\r\n")])
        fail_file(path, err, "text after the end of its JSON header, at byte %td", end - copy + PREFIX_BYTES);
    else {
        free(copy);
        return header;
    }
    free(copy);
    cJSON_Delete(header);
    return NULL;
}

static bool read_file(io_safetensors *file, const char *path, const char *content, size_t bytes, io_error *err) {
    uint64_t length;
    if (bytes < PREFIX_BYTES)
        return fail_file(path, err, "no safetensors file: it has %zu bytes, at least %d are needed", bytes,
                         PREFIX_BYTES);
    memcpy(&length, content, sizeof length);
    if (length > IO_SAFETENSORS_HEADER_MAX)
        return fail_file(path, err, "no safetensors file: its header would have %" PRIu64 " bytes, more than %zu",
                         length, IO_SAFETENSORS_HEADER_MAX);
    if (length > bytes - PREFIX_BYTES)
        return fail_file(path, err, "cut off: its header should have %" PRIu64 " bytes, %zu are there", length,
                         bytes - PREFIX_BYTES);
    const char *data = content + PREFIX_BYTES + length;
    size_t data_bytes = bytes - PREFIX_BYTES - (size_t)length;
    file->header = parse_header(path, content + PREFIX_BYTES, (size_t)length, err);
    if (!file->header || !read_entries(file, path, data, data_bytes, err) || !check_metadata(file->metadata, path, err))
        return false;
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_data);
    return index_names(file, path, err) && place_data(file, path, data, data_bytes, err);
}

bool io_safetensors_parse(const char *name, const void *content, size_t bytes, io_safetensors **file, io_error *err) {
    *file = calloc(1, sizeof **file);
    if (!*file)
        return fail_file(name, err, "out of memory");
    if (read_file(*file, name, content, bytes, err))
        return true;
    io_safetensors_free(file);
    return false;
}

// The whole of a regular file, or NULL.
static void *read_all(const char *path, size_t *bytes, io_error *err) {
    char *content = NULL;
    struct stat info;
    size_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info))
        fail_file(path, err, "cannot read: %s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        fail_file(path, err, "cannot read: not a regular file");
    else if (!(content = malloc((size_t)info.st_size + 1)))
        fail_file(path, err, "out of memory for its %jd bytes", (intmax_t)info.st_size);
    else {
        ssize_t n;
        while (got < (size_t)info.st_size &&
               ((n = read(fd, content + got, (size_t)info.st_size - got)) > 0 || (n < 0 && errno == EINTR)))
            got += n > 0 ? (size_t)n : 0;
        if (got < (size_t)info.st_size) {
            fail_file(path, err, "cannot read: %s", n < 0 ? strerror(errno) : "the file shrank while it was read");
            free(content);
            content = NULL;
        }
    }
    if (fd >= 0)
        close(fd);
    *bytes = got;
    return content;
}

bool io_safetensors_load(const char *path, io_safetensors **file, io_error *err) {
    size_t bytes;
    *file = NULL;
    void *content = read_all(path, &bytes, err);
    bool good = content && io_safetensors_parse(path, content, bytes, file, err);
    free(content);
    return good;
}

int io_safetensors_count(const io_safetensors *file) {
    return file->count;
}

const io_tensor *io_safetensors_at(const io_safetensors *file, int index) {
    return index >= 0 && index < file->count ? &file->tensors[index] : NULL;
}

const io_tensor *io_safetensors_find(const io_safetensors *file, const char *name) {
    const io_tensor key = {.name = name}, *wanted = &key;
    const io_tensor **found = bsearch(&wanted, file->sorted, (size_t)file->count, sizeof *file->sorted, compare_name);
    return found ? *found : NULL;
}

const char *io_safetensors_metadata(const io_safetensors *file, const char *key) {
    return file->metadata ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file->metadata, key)) : NULL;
}

void io_safetensors_free(io_safetensors **file) {
    if (!file || !*file)
        return;
    cJSON_Delete((*file)->header);
    free((*file)->tensors);
    free((*file)->sorted);
    free((*file)->data);
    free(*file);
    *file = NULL;
}

// --- saving ---

static bool check_tensor(const io_tensor *tensor, const char *path, io_error *err) {
    if (!tensor->name || !*tensor->name || !is_utf8(tensor->name, strlen(tensor->name)))
        return fail_file(path, err, "cannot write: the name of a tensor must be UTF-8 and not empty");
    const place at = {path, tensor->name, err};
    if (!strcmp(tensor->name, IO_SAFETENSORS_METADATA))
        return FAIL(&at, "%s", "the format reserves this name");
    if (!io_dtype_size(tensor->dtype))
        return FAIL(&at, "dtype %d does not exist", (int)tensor->dtype);
    if (tensor->rank < 0 || tensor->rank > IO_SAFETENSORS_RANK_MAX)
        return FAIL(&at, "rank %d is not in 0 to %d", tensor->rank, IO_SAFETENSORS_RANK_MAX);
    size_t bytes;
    if (!shape_bytes(tensor, &bytes, &at))
        return false;
    if (tensor->bytes != bytes || (bytes && !tensor->data))
        return FAIL(&at, "shape and dtype ask for %zu bytes, %zu are given", bytes, tensor->data ? tensor->bytes : 0);
    return true;
}

// Order in the file: the widest elements first, so that all stay aligned to their own size; otherwise as given.
static const io_tensor **arrange(const char *path, const io_tensor *tensors, int count, io_error *err) {
    const io_tensor **order = calloc((size_t)count + 1, sizeof *order);
    const char **names = calloc((size_t)count + 1, sizeof *names);
    bool good = order && names;
    if (!good)
        fail_file(path, err, "out of memory");
    int n = 0;
    for (size_t size = 8; good && size; size /= 2)
        for (int i = 0; i < count; i++)
            if (io_dtype_size(tensors[i].dtype) == size) {
                names[n] = tensors[i].name;
                order[n++] = &tensors[i];
            }
    const char *twice = good ? find_repeat(names, n) : NULL;
    if (twice)
        good = fail_file(path, err, "cannot write: tensor \"%.64s\" is given twice", twice);
    free(names);
    if (good)
        return order;
    free(order);
    return NULL;
}

static bool add_tensor(cJSON *header, const io_tensor *tensor, size_t offset) {
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    bool good = entry && cJSON_AddStringToObject(entry, "dtype", io_dtype_name(tensor->dtype));
    cJSON *shape = good ? cJSON_AddArrayToObject(entry, "shape") : NULL;
    good = shape;
    for (int i = 0; i < tensor->rank && good; i++)
        good = cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
    cJSON *offsets = good ? cJSON_AddArrayToObject(entry, "data_offsets") : NULL;
    return offsets && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)offset)) &&
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(offset + tensor->bytes)));
}

static bool add_metadata(cJSON *header, const char *path, const io_metadata *meta, int n_meta, io_error *err) {
    if (!n_meta)
        return true;
    cJSON *object = cJSON_AddObjectToObject(header, IO_SAFETENSORS_METADATA);
    for (int i = 0; object && i < n_meta; i++) {
        const char *key = meta[i].key, *value = meta[i].value;
        if (!key || !value || !is_utf8(key, strlen(key)) || !is_utf8(value, strlen(value)))
            return fail_file(path, err, "cannot write: metadata \"%.64s\" is not UTF-8", key ? key : "");
        if (cJSON_GetObjectItemCaseSensitive(object, key))
            return fail_file(path, err, "cannot write: metadata \"%.64s\" is given twice", key);
        if (!cJSON_AddStringToObject(object, key, value))
            object = NULL;
    }
    return object ? true : fail_file(path, err, "out of memory");
}

// The header as text, or NULL.
static char *print_header(const char *path, const io_tensor **order, int count, const io_metadata *meta, int n_meta,
                          io_error *err) {
    cJSON *header = cJSON_CreateObject();
    bool good = header ? add_metadata(header, path, meta, n_meta, err) : fail_file(path, err, "out of memory");
    char *json = NULL;
    if (good) {
        size_t offset = 0;
        for (int i = 0; i < count && good; offset += order[i++]->bytes)
            good = add_tensor(header, order[i], offset);
        json = good ? cJSON_PrintUnformatted(header) : NULL;
        if (!json)
            fail_file(path, err, "out of memory");
    }
    cJSON_Delete(header);
    return json;
}

static bool write_file(const char *path, const char *json, const io_tensor **order, int count, io_error *err) {
    size_t length = strlen(json);
    uint64_t padded = (length + 7) / 8 * 8;
    if (padded > IO_SAFETENSORS_HEADER_MAX)
        return fail_file(path, err, "cannot write: the header would have %zu bytes, more than %zu", length,
                         IO_SAFETENSORS_HEADER_MAX);
    io_atomic *file;
    if (io_atomic_open(path, &file, err))
        return false;
    FILE *stream = io_atomic_stream(file);
    fwrite(&padded, sizeof padded, 1, stream);
    fprintf(stream, "%s%*s", json, (int)(padded - length), "");
    for (int i = 0; i < count; i++)
        if (order[i]->bytes)
            fwrite(order[i]->data, 1, order[i]->bytes, stream);
    return !io_atomic_commit(&file, err); // finds what the writes above met
}

bool io_safetensors_save(const char *path, const io_tensor *tensors, int count, const io_metadata *meta, int n_meta,
                         io_error *err) {
    for (int i = 0; i < count; i++)
        if (!check_tensor(&tensors[i], path, err))
            return false;
    const io_tensor **order = arrange(path, tensors, count, err);
    char *json = order ? print_header(path, order, count, meta, n_meta, err) : NULL;
    bool good = json && write_file(path, json, order, count, err);
    cJSON_free(json);
    free(order);
    return good;
}
