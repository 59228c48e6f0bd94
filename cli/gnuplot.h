// Running gnuplot, which draws the pictures of `tlob report`.
#ifndef CLI_GNUPLOT_H
#define CLI_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

// The absolute name of the program that PATH finds, which the caller frees; NULL if there is none.
char *gnuplot_find(void);

// A string of a script: in single quotes, in which gnuplot expands nothing; control characters become '?'.
void gnuplot_text(FILE *script, const char *text);

// Runs `script`, a file of the folder `folder`, there, with the variable `format` set to that text; what gnuplot writes
// goes to the descriptor `out`, and its messages to standard error. No shell is asked. False after printing why; a
// picture that was not drawn whole is such a failure.
bool gnuplot_run(const char *program, const char *folder, const char *script, const char *format, int out);

#endif
