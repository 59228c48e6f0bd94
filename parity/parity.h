/**
 * Parity: whether a backend computes what it should, on one table of named cases.
 *
 * A case is a problem, what its operands are filled with, and where they lie. Running one takes these steps:
 *
 * 1. Operands are made on the host from the seed. Each lies between guards; gaps (ld padding, between the matrices of
 *    a batch) hold NaN in inputs, so that a read outside a matrix shows; D holds NaN unless it is C too.
 * 2. parity_expect computes the expected values in long double, in the plainest way, from the definition of tlob_gemm.
 * 3. The backend runs through tlob_gemm_run_on on a stream of its context. For a CUDA context the oracle cpu_ref runs
 *    on a host context first, is itself compared with step 2, and becomes the reference.
 * 4. Checked in this order: inputs are unchanged, and guards and gaps of D are; NaN and Inf stand where the reference
 *    has them; every |D - reference| is within its bound.
 *
 * The bound of an element is on the natural scale of its sum, s = |alpha| sum |a||b| + |beta c| + |bias|. With
 * u = 2^-24, the relative error of one rounding to float32, and r = min((k + 8) u, 2e-5):
 *
 *     host:  u s            one rounding, of a sum in double
 *     FP32:  r s            in a sum of k products, in whatever order and however blocked, each term passes at most
 *                           k + 8 roundings (Higham 2002, section 4.2); from k = 328 on 2e-5, for
 *                           roundings partly cancel
 *     TF32:  (2^-9 + 4r) s  an input keeps 10 mantissa bits, and where they are truncated its relative error is up to
 *                           2^-10, that of a product twice as much; tensor cores truncate their sums as well
 *     all:   + (k + 8) 2^-126, for a device may flush subnormals
 *
 * A case of exact data (small integers) must be equal in every mode. A case may bring an absolute limit for TF32: the
 * smaller of the two holds.
 */
#ifndef TLOB_PARITY_H
#define TLOB_PARITY_H

#include <tlob/tlob.h>

/** What a matrix is filled with. */
typedef enum parity_fill {
    PARITY_UNIFORM,     /**< U(-1, 1) */
    PARITY_INTEGER,     /**< whole numbers from -8 to 8: sums and products are exact in TF32 and FP32 */
    PARITY_ORDER_FLOW,  /**< like order flow imbalances, z-scored: mostly 0, heavy tails up to 3.9, variance 1 */
    PARITY_WEIGHT,      /**< U(-b, b) with the Xavier bound of a 32 -> 16 layer, sqrt(6 / 48) */
    PARITY_GRADIENT,    /**< U(-1, 1) / 64, as of a loss that is a mean over 64 samples */
    PARITY_RAMP,        /**< 0, 1, 2, ...: the element's number, so that a misplaced one shows */
    PARITY_ZERO,
    PARITY_SIGNED_ZERO, /**< 0 and -0 */
    PARITY_MIXED,       /**< U(-1, 1) times 2^-40, 1 or 2^40 */
    PARITY_ONE_NAN,     /**< uniform with one NaN */
    PARITY_ONE_INF,     /**< uniform with one infinity */
    PARITY_NAN,         /**< all NaN: must not be read */
} parity_fill;

/** One case. A plain value: take it from the table, or fill in one's own. */
typedef struct parity_case {
    char name[64];      /**< as printed and filtered: "tlob/q/n64" */
    tlob_gemm gemm;     /**< compute is set by parity_run */
    parity_fill a, b, c, bias;
    int64_t offset_a, offset_b, offset_c, offset_d, offset_bias; /**< floats past an address aligned to 256 bytes */
    bool apart;         /**< C and D are two matrices; else D is C */
    bool null_inputs;   /**< A and B are NULL: for k = 0 or alpha = 0, where they are not read */
    bool exact;         /**< equal, in every mode */
    float tf32_limit;   /**< absolute bound in TF32 on top of the relative one; 0: none */
} parity_case;

/** How many cases the table has. */
int parity_case_count(void);

/** Case `index`, 0 <= index < parity_case_count(). Indexes are for loops; names are stable. */
parity_case parity_case_get(int index);

/** Whether `name` matches `filter`: a glob (fnmatch), or NULL or "" for everything. */
bool parity_case_matches(const char *filter, const char *name);

typedef enum parity_verdict {
    PARITY_PASS,
    PARITY_FAIL,        /**< the backend computed something else */
    PARITY_ERROR,       /**< a call failed, or the oracle itself is wrong: nothing is known of the backend */
} parity_verdict;

/** What came out. The worst element is the one with the largest error / bound. */
typedef struct parity_result {
    parity_verdict verdict;
    int64_t row, col, matrix; /**< of the worst element, or of the first that is wrong beyond measure */
    float value;
    double expected, bound;
    double error;             /**< |value - expected| of the worst element */
    double normalised;        /**< the largest error / s of all elements */
    char message[768];        /**< empty after PARITY_PASS; else what is wrong, and the command line that replays it */
} parity_result;

/**
 * Runs one case on `backend` of the context of `stream`, in mode `compute` (DEFAULT: the context's), and waits for it.
 *
 * oracle: a stream of a host context; NULL: compare with step 2 directly, as for cpu_ref itself. seed: the same seed
 * gives the same data on every machine. Returns whether the verdict is PARITY_PASS. Thread-safety: as tlob_gemm_run.
 */
bool parity_run(tlob_stream *stream, tlob_stream *oracle, const char *backend, const parity_case *c,
                tlob_compute compute, uint64_t seed, parity_result *result);

/* --- the parts, for tests that bring their own data ------------------------------------------------------------ */

/** Value `index` of a fill of `count` values: a pure function of its arguments. `salt` tells the operands apart. */
float parity_fill_value(parity_fill fill, uint64_t seed, uint32_t salt, int64_t index, int64_t count);

/** An element's expected value, and its natural scale s as above. */
typedef struct parity_expectation {
    long double value;
    double scale;
} parity_expectation;

/** The m expectations of column `col` of matrix `matrix`; operands in host memory. */
void parity_expect(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix, int64_t col,
                   parity_expectation *column);

/** The bound on |D - expected| of an element with scale `scale`. `memory`: where the backend works. */
double parity_bound(const tlob_gemm *gemm, tlob_memory memory, double scale);

#endif
