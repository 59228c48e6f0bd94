// The operands of one problem that is measured, and the check of what a method leaves in them.
//
// Each operand lies between guards; gaps in inputs hold NaN. Outputs are poisoned with NaN before a run, but D where it
// is C too. Then the oracle, or where that would take too long the oracle on a few blocks of D and the first method
// that agreed with it there, tells what must be in them, within the bounds of parity/parity.h, whose s is taken as the
// product of the Euclidean norms of a row of op(A) and a column of op(B), which is no less (Cauchy and Schwarz).
//
// Those bounds leave room for what a large k may do to one element. What would pass them everywhere, such as a result
// that is 1 % too large, does not pass the one on the root of the mean square of all errors: 2^-8 of that of the sums
// themselves, if their terms are independent.
#ifndef CLI_TUNE_DATA_H
#define CLI_TUNE_DATA_H

#include "cli/common.h"

typedef struct tune_data tune_data;

// Operands for `gemm`, whose compute mode is resolved, in the memory of the stream's context, aligned to 256 bytes; and
// what a right result is, by `oracle`, a stream of a host context, which runs now. C is D. Prints why it fails:
// OUT_OF_MEMORY where there is none for this problem, else what the calls report; tune_data_close is due in all cases.
tlob_status tune_data_open(tlob_stream *stream, tlob_stream *oracle, const tlob_gemm *gemm, uint64_t seed,
                           tune_data **data);
void tune_data_close(tune_data **data);

const tlob_gemm *tune_data_gemm(const tune_data *data);
const tlob_gemm_operands *tune_data_operands(const tune_data *data);

// Whether a check of all elements costs so much that it is better done for a few methods alone.
bool tune_data_is_large(const tune_data *data);

// Poisons the outputs: before each run that is checked. What it reports is of tlob_fill and tlob_upload.
tlob_status tune_data_poison(tune_data *data);

// Waits for the run, and checks it: guards and some blocks of D, or with `whole` all elements of all outputs. `why` is
// empty if all is right. What it reports is of tlob_stream_sync and tlob_download.
tlob_status tune_data_check(tune_data *data, bool whole, char *why, size_t size);

#endif
