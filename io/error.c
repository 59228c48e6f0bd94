#include "io/error.h"

#include <stdarg.h>
#include <stdio.h>

int io_error_set(io_error *err, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return -1;
}
