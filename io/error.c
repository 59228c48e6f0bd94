#include "io/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int io_error_set(io_error *err, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return -1;
}

const char *io_error_path(const char *path) {
    size_t length = strlen(path);
    if (!length)
        return "(an empty name)";
    return length > 160 ? path + length - 160 : path;
}
