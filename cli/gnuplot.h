// Running gnuplot, which draws the pictures of `tlob report`.
#ifndef CLI_GNUPLOT_H
#define CLI_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

// The absolute name of the program that PATH finds, which the caller frees; NULL if there is none.
char *gnuplot_find(void);

// A string of a script: in single quotes, in which gnuplot expands nothing; control characters become '?'.
void gnuplot_text(FILE *script, const char *text);

// Runs `script`, a file of the folder `folder`, there, with the variable `format` set to that text. Its messages go to
// standard error. No shell is asked. The picture that it writes to standard output, 0-terminated, which the caller
// frees; NULL after printing why.
char *gnuplot_run(const char *program, const char *folder, const char *script, const char *format, size_t *length);

#endif
