// How the methods of one problem are checked, timed against each other, and chosen from: for `tlob tune` and
// `tlob bench gemm`.
//
// Every method runs once on operands of its own and is checked (cli/tune_data.h); one that fails is told of and never
// chosen. Then a pre-pass of few short samples drops what takes more than 1.5 times the best. The rest takes turns in
// rounds, in alternating order, so that what drifts touches all alike; what is clearly behind leaves early. A time is
// the least of its samples: whatever disturbs a kernel makes it slower. On a GPU a sample is a graph of calls that
// takes about 100 us, at most 64 of them; cold, one call after the L2 cache was written over. On the host the clock is
// read.
//
// What is behind the best by less than a tie band is as good, and the first of those in the order of tlob_gemm_methods,
// the standard put first, is chosen: what differs by noise alone does not decide. No one band would do, for methods lie
// at its edge, and noise then decides what is within. So all bands from 0.4 of the largest up to it choose, and the
// method that is chosen by the longest stretch of them wins. Where two stretches are nearly as long, there are further
// rounds. An incumbent, which a table has already, stays as long as it is within the largest band.
#ifndef CLI_TUNE_MEASURE_H
#define CLI_TUNE_MEASURE_H

#include "cli/bench_cuda.h"

#include <signal.h>

// Where and how to measure.
typedef struct tune_lab {
    tlob_stream *stream;     // of the context that is measured
    bench_cuda *cuda;        // whose stream that is; NULL on a host context
    tlob_stream *oracle;     // of a host context
    double (*seconds)(void); // the clock of a host context
    uint64_t seed;           // of the operands
    int repeat;              // rounds
    double band;             // the largest tie band: 0.02 means up to 2 % slower than the best
    bool cold;               // which times decide; false on a host context, where there are no cold ones
    const volatile sig_atomic_t *interrupted; // looked at between measurements; may be NULL
} tune_lab;

typedef struct tune_method {
    tlob_method method;
    char why[256];           // empty: right; else why it is never chosen
    bool dropped;            // by the pre-pass or before: warm_us is a first estimate
    double warm_us, cold_us; // of a call; NAN where not measured
    bench_graph *graph;      // that is timed at present,
    int graph_calls;         // of so many calls
} tune_method;

// One problem. Methods are in the order in which they are chosen from.
typedef struct tune_session tune_session;

// Makes operands for `gemm`, whose compute mode is resolved, lists and checks the methods, and runs the pre-pass.
// `standard` comes first in the order; `incumbent` is what a table has, or NULL: tried, slow or not. False after
// printing why, or where lab->interrupted is set; tune_session_close is due in both cases. The lab must outlive the
// session.
bool tune_session_open(const tune_lab *lab, const tlob_gemm *gemm, const tlob_method *standard,
                       const tlob_method *incumbent, tune_session **session);
void tune_session_close(tune_session **session);

// After an open that failed: whether there was no memory for the operands of this problem, so that others may do. False
// for NULL.
bool tune_session_lacks_memory(const tune_session *session);

const tlob_gemm *tune_session_gemm(const tune_session *session);
int tune_session_count(const tune_session *session);
const tune_method *tune_session_method(const tune_session *session, int index);

// The standard's index: 0, or -1 where it cannot do the problem.
int tune_session_standard(const tune_session *session);

// The index of the incumbent, right or not; -1 where there is none, or it is no method of the problem here.
int tune_session_incumbent(const tune_session *session);

// The index of a method that is right, or -1.
int tune_session_find(const tune_session *session, const tlob_method *method);

// What is chosen.
typedef struct tune_choice {
    int index;       // of the method; -1 where none is right
    bool kept;       // it is the incumbent, and within the largest band; else
    double from, to; // all tie bands between these choose it
} tune_choice;

// The rounds. False as above.
bool tune_session_compete(tune_session *session, tune_choice *choice);

// Times the methods `set` against each other, warm: samples[i * rounds + round]. Their warm_us is then the least of
// these. False as above.
bool tune_session_time(tune_session *session, const int *set, int count, int rounds, double *samples);

#endif
