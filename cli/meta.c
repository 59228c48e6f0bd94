#include "cli/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_meta_add(cli_meta *meta, const char *key, const char *format, ...) {
    char *text = meta->text[meta->count];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof meta->text[0], format, args);
    va_end(args);
    meta->entry[meta->count++] = (io_metadata){key, text};
}

void cli_refuse(cli_reader *r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->good)
        cli_error("%s: %s", r->path, text);
    r->good = false;
}

const char *cli_read_text(cli_reader *r, const char *key) {
    const char *text = io_safetensors_metadata(r->file, key);
    if (!text)
        cli_refuse(r, "metadata \"%s\" is missing: not a %s of `tlob train'", key, r->kind);
    return text ? text : "";
}

int64_t cli_read_integer(cli_reader *r, const char *key, int64_t low, int64_t high) {
    const char *text = cli_read_text(r, key);
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        cli_refuse(r, "metadata \"%s\" is '%.32s', not a whole number from %" PRId64 " to %" PRId64, key, text, low,
                   high);
    return r->good ? value : low;
}

double cli_read_number(cli_reader *r, const char *key, double low, double high) {
    const char *text = cli_read_text(r, key);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high))
        cli_refuse(r, "metadata \"%s\" is '%.32s', not a number from %g to %g", key, text, low, high);
    return value;
}

int cli_read_choice(cli_reader *r, const char *key, const char *const *names) {
    const char *text = cli_read_text(r, key);
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i]))
            return i;
    cli_refuse(r, "metadata \"%s\" is '%.32s', which this version does not know", key, text);
    return 0;
}

const float *cli_read_floats(cli_reader *r, const char *name, int64_t rows, int64_t cols) {
    const io_tensor *tensor = io_safetensors_find(r->file, name);
    int rank = cols ? 2 : 1;
    if (!tensor)
        cli_refuse(r, "tensor \"%s\" is missing: not a %s of `tlob train'", name, r->kind);
    else if (tensor->dtype != IO_F32)
        cli_refuse(r, "tensor \"%s\" has type %s, must be F32", name, io_dtype_name(tensor->dtype));
    else if (tensor->rank != rank || tensor->shape[0] != rows || (cols && tensor->shape[1] != cols))
        cli_refuse(r,
                   "tensor \"%s\" has rank %d and first sizes %" PRId64 ", %" PRId64
                   "; the metadata asks for rank %d and %" PRId64 ", %" PRId64,
                   name, tensor->rank, tensor->shape[0], tensor->shape[1], rank, rows, cols);
    for (int64_t i = 0; r->good && i < rows * (cols ? cols : 1); i++)
        if (!isfinite(((const float *)tensor->data)[i]))
            cli_refuse(r, "tensor \"%s\" is not finite at element %" PRId64, name, i);
    return r->good ? tensor->data : NULL;
}
