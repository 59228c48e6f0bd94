// Tuning: problem after problem is measured, and what was chosen goes into a table.
#ifndef CLI_TUNE_RUN_H
#define CLI_TUNE_RUN_H

#include "cli/problems.h"
#include "cli/tune_measure.h"

typedef struct tune_job {
    const tune_lab *lab;
    const cli_problems *problems;
    tlob_table **table; // that gets the entries, and whose own stay where they are good enough; may become another
    FILE *measurements; // gets one JSON object, or NULL; write errors are the caller's to find
} tune_job;

// What came out. Ratios are the standard's time over that of the method chosen.
typedef struct tune_summary {
    int done, unsolved, no_memory;      // problems: with a method chosen, without one that is right, not measured
    int kept, replaced, added, removed; // entries
    int methods, wrong;                 // methods that were tried, and that failed their check
    double log_ratio, log_ratio_small;  // sums of logarithms, of all and of those with m and n below 128
    int ratios, ratios_small;
    bool interrupted;
} tune_summary;

// Prints a line for each problem, and what failed its check; the summary is left to the caller. False after printing
// why nothing more can be measured; an interrupt ends it too, and what was done until then is kept.
bool tune_run(const tune_job *job, tune_summary *summary);

// What a compute mode of DEFAULT is on this stream. False after printing why.
bool tune_resolve(const tlob_stream *stream, tlob_gemm *gemm);

// A host context's stream for the oracle, whatever the environment says. False after printing why; both are the
// caller's to close in any case.
bool tune_oracle_open(tlob_context **ctx, tlob_stream **stream);

// What the policy of the stream's context does with `gemm`: its backend's own choice, in the form that it decides for.
bool tune_standard(const tlob_stream *stream, const tlob_gemm *gemm, tlob_method *standard);

// The hardware of a context: that of a table's entries, and of the look-up in one. False after printing why.
bool tune_device(const tlob_context *ctx, tlob_device_info *device);

// The same into the origin of an entry, whose library stays as it is.
bool tune_origin(const tlob_context *ctx, tlob_table_origin *origin);

#endif
