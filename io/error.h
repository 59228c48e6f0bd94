// One error text for the rooms that read and write files (io/, lobdata/).
#ifndef IO_ERROR_H
#define IO_ERROR_H

// What went wrong, in one sentence that names the file and, where there is one, the line and the column.
// A value type: the caller owns it, nothing in it needs freeing. Empty text ("") means no error was set.
typedef struct io_error {
    char text[512];
} io_error;

// Formats the text as printf would, cut to fit. `err` may be NULL (the text is then dropped).
// Always returns -1, the failure value of these rooms, so that a check reads `return io_error_set(err, ...)`.
// Thread-safe as long as no two threads share one `err`.
int io_error_set(io_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The last 160 bytes of a path at most, for use in an error text: the end of the path, and what follows it in the
// sentence, matter more than its beginning. Returns a pointer into `path`, or "(an empty name)".
const char *io_error_path(const char *path);

#endif
