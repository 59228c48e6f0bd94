// What tune_data.c and tune_check.c share.
#ifndef CLI_TUNE_OPERANDS_H
#define CLI_TUNE_OPERANDS_H

#include "cli/tune_data.h"

#define TUNE_GUARD  64  // floats before and after an operand: 256 bytes
#define TUNE_POISON 255 // the byte that guards, gaps and outputs are filled with: as floats, NaN

enum { TUNE_A, TUNE_B, TUNE_D, TUNE_BIAS, TUNE_BGRAD, TUNE_AUX, TUNE_OPERANDS };

// An operand as it lies. A mask counts in words of 32 bits, of which each column has ld_aux / 32.
typedef struct tune_operand {
    const char *name;
    bool used, output;
    bool filled; // has elements before the run
    int64_t rows, cols, ld, batch, stride;
    int64_t total; // floats, with the guards
    float *image;  // before a run; NULL for an output that is poison alone
    float *after;  // of an output: room for what a run left
    tlob_buffer *buffer;
} tune_operand;

// A part of D that the oracle knows: rows and columns of one matrix.
typedef struct tune_block {
    int64_t matrix, row, col, rows, cols;
    float *want, *want_aux; // rows x cols, packed; want_aux where aux is an output of floats
} tune_block;

struct tune_data {
    tlob_stream *stream;
    tlob_gemm gemm;
    const tlob_epilogue_traits *traits;
    tune_operand x[TUNE_OPERANDS];
    tlob_gemm_operands operands;
    bool sampled; // the blocks are not all of D
    tune_block *blocks;
    int n_blocks;
    float *row_norm, *col_norm;       // of op(A), batch * m; of op(B), batch * n
    double *want_bgrad, *bgrad_scale; // of BGRADA and BGRADB
    float *first, *first_aux;         // sampled: D and aux of the first method that passed, packed; NULL until then
    double slope, least;              // the bound of D is slope * s + least
    double slope_z, least_z;          // that of z
};

// Element (row, col) of matrix p, as an index into the image.
static inline int64_t tune_place(const tune_operand *o, int64_t p, int64_t row, int64_t col) {
    return TUNE_GUARD + p * o->stride + row + col * o->ld;
}

// Asks the oracle for the blocks, and computes norms and sums. Prints why it fails.
tlob_status tune_data_expect(tune_data *data, tlob_stream *oracle);

#endif
