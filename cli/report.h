// What the parts of `tlob report` share: where files go and how a picture is drawn. Each part reads its input first,
// all of it, and then writes its files and its section of the page.
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli/bench_file.h"
#include "cli/data.h"
#include "cli/measurements.h"
#include "cli/report_table.h"

#include "io/atomic_file.h"

#include <signal.h>
#include <stdio.h>

typedef struct report {
    const char *folder;
    const char *gnuplot;       // the program, or NULL: no picture is drawn
    const char *const *inputs; // files that are read, and must not be written over
    int n_inputs;
    const volatile sig_atomic_t *interrupted; // set: no further picture is drawn
    FILE *page;
} report;

// --- files ---

// The text of a file, 0-terminated, which the caller frees; NULL after printing why.
char *report_read(const char *path, size_t *length);

// Opens FOLDER/NAME.ENDING to be written aside; NULL after printing why. report_close puts it in place, or, unless
// `good`, throws it away. False after printing why, and if not good.
io_atomic *report_open(const report *r, const char *name, const char *ending);
bool report_close(io_atomic *file, bool good);

// A number with as few digits as give the same again.
void report_number(FILE *file, double value);

// --- pictures: NAME.csv, which is written first, NAME.gp, NAME.svg, NAME.png ---

// Begins the script: terminals of width by height, and `large`, the font of titles. Draw from NAME.csv, of which the
// first line is skipped.
io_atomic *report_script(const report *r, const char *name, int width, int height);

// Draws NAME.svg and NAME.png by NAME.gp, and puts the picture into the page; without gnuplot it says there that there
// is none. False after printing why.
bool report_draw(const report *r, const char *name, const char *shows);

// Colours that colour-blind people tell apart (Okabe and Ito 2008).
#define REPORT_BLUE   "#0072B2"
#define REPORT_ORANGE "#D55E00"
#define REPORT_GREEN  "#009E73"
#define REPORT_GREY   "#999999"

// --- the parts: false after printing why ---

bool report_write_bench(const report *r, int number, const char *path, const cli_bench_file *bench);
bool report_write_stages(const report *r, int number, const cli_bench_file *bench); // of a bench that has parts
bool report_write_tune(const report *r, const char *path, const cli_measurements *measurements);
bool report_write_losses(const report *r, const char *path, const report_table *losses);
bool report_write_validation(const report *r, const char *path, const report_table *validation);

// What the heads of a trained block attend to, over a part of the samples.
typedef struct report_attention {
    const char *path; // of the model
    tlob_block_shape shape;
    int64_t samples, tokens, heads;
    double *p;        // [heads][query][key]: the mean of P
    double *mean_max; // [heads]: the mean of the largest P of a row
} report_attention;

// Runs the block of a model over the validation part. report_attention_finish is due in both cases.
bool report_attention_compute(const cli_context_options *context, const cli_data_options *data, const char *path,
                              report_attention *attention);
void report_attention_finish(report_attention *attention);
bool report_write_attention(const report *r, const report_attention *attention);

#endif
