/**
 * Parity: whether a backend computes what it should, on one table of named cases.
 *
 * A case is a problem, what its operands are filled with, and where they lie. Running one takes these steps:
 *
 * 1. Operands are made on the host from the seed. Each lies between guards; gaps (ld padding, between the matrices of
 *    a batch) hold NaN in inputs, so that a read outside a matrix shows; outputs are poisoned: NaN in D (unless it is C
 *    too), bgrad and an aux of floats, a pattern in a mask.
 * 2. parity_expect and parity_expect_bgrad compute the expected values in long double, in the plainest way, from the
 *    definitions in <tlob/gemm.h>.
 * 3. The backend runs through tlob_gemm_run_on on a stream of its context. For a CUDA context the oracle cpu_ref runs
 *    on a host context first, is itself compared with step 2, and becomes the reference.
 * 4. Checked in this order: inputs are unchanged, and guards and gaps of D, aux and bgrad are; NaN and Inf stand where
 *    the reference has them; every |value - reference| of D, aux and bgrad is within its bound; every bit of a mask is
 *    right.
 *
 * The bound of an element is on the natural scale of its sum, s = |alpha| sum |a||b| + |beta c| + |bias|. With
 * u = 2^-24, the relative error of one rounding to float32, and r(k) = min((k + 8) u, 2e-5):
 *
 *     host:  u s            one rounding, of a sum in double; 3u where an epilogue works on a z that was rounded itself
 *     FP32:  r(k) s         in a sum of k products, in whatever order and however blocked, each term passes at most
 *                           k + 8 roundings (Higham 2002, section 4.2); from k = 328 on 2e-5, for
 *                           roundings partly cancel
 *     TF32:  (2^-9 + 4r) s  an input keeps 10 mantissa bits, and where they are truncated its relative error is up to
 *                           2^-10, that of a product twice as much; tensor cores truncate their sums as well
 *     all:   + (k + 8) 2^-126, for a device may flush subnormals
 *
 * That is the bound of z. What an epilogue makes of it:
 *
 *     RELU*:        the same, for ReLU has Lipschitz constant 1; a mask's bit is free where |z| is within the bound
 *                   of z; on a device a NaN in z may be 0 or NaN in D, but for RELU_AUX_BIAS
 *     GELU*:        1.13 times as much, the largest slope of GELU (1.1290 at z = 1.41), and on a device PARITY_GELU s:
 *                   an approximate tanh that is off by e moves 0.5 z (1 + tanh) by |z| e / 2. cuBLASLt 13.1 was
 *                   measured to be off by 3.6e-6 at z = 1 and 5.8e-6 at -1.64; 2^-16 leaves room for others
 *     DRELU_BGRAD:  the same where the mask has a 1, else 0
 *     DGELU_BGRAD:  1.13 times as much, and on a device PARITY_DGELU s: the same e moves
 *                   GELU'(x) = (1 + t)/2 + x (1 - t^2) w(x)/2, w(x) = sqrt(2/pi) (1 + 0.134145 x^2), by
 *                   e |1/2 - x t w(x)|, at most 8 e up to |x| = 3.6, where 1 - |t| is itself below e
 *     aux, floats:  that of z
 *     bgrad:        a sum of n elements of D: the sum of their bounds, and r(n) (host: 3u) of the sum of their scales.
 *                   Of BGRADA and BGRADB, with s the sum of |a| or |b| over k: u s (host), r(k) s, (2^-10 + 4r) s
 *
 * A case of exact data (small integers) must be equal in every mode, bits and sums too. A case may bring an absolute
 * limit for TF32: the smaller of the two holds.
 *
 * Gradient mode: cases `grad/...` are the forward half of y = act(W x + b). Forward, backward (D*_BGRAD) and the two
 * products of the gradients (with BGRADA, BGRADB) run on the backend one after the other, each on what the one before
 * has left, and dW, dx and both sums db are compared with central differences in double.
 */
#ifndef TLOB_PARITY_H
#define TLOB_PARITY_H

#include <tlob/tlob.h>

#define PARITY_GELU  0x1p-17 /**< half of the tanh's error of 2^-16 */
#define PARITY_DGELU 0x1p-13 /**< eight times that error */

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
    parity_fill aux;    /**< of an aux that is read; a mask is that of pre-activations filled so */
    /** Floats past an address aligned to 256 bytes; a multiple of 4 for a mask. */
    int64_t offset_a, offset_b, offset_c, offset_d, offset_bias, offset_bgrad, offset_aux;
    bool apart;         /**< C and D are two matrices; else D is C */
    bool null_inputs;   /**< A and B are NULL where k = 0 or alpha = 0, unless BGRADA or BGRADB reads them */
    bool exact;         /**< equal, in every mode */
    bool gradient;      /**< gradient mode; gemm is the forward product, RELU_AUX_BIAS or GELU_AUX_BIAS */
    bool huge;          /**< past 2^31 elements, over 8 GiB for an operand: runs only where asked for */
    float tf32_limit;   /**< absolute bound in TF32 on top of the relative one; 0: none */
} parity_case;

/** How many cases the table has. */
int parity_case_count(void);

/** Case `index`, 0 <= index < parity_case_count(). Indexes are for loops; names are stable. */
parity_case parity_case_get(int index);

/** Case `index` of the endless sequence that `seed` draws, named "random/SEED/INDEX". A pure function. */
parity_case parity_case_random(uint64_t seed, int index);

/**
 * A small case of this epilogue, for a matrix of what is supported. ops: 0 to 3, the transposes nn, nt, tn, tt. batch:
 * 1 or 3. It is in the table too, as "support/EPILOGUE/OPS/xBATCH".
 */
parity_case parity_case_support(tlob_epilogue epilogue, int ops, int batch);

/** "nn", "nt", "tn" or "tt". Static storage. */
const char *parity_ops_name(int ops);

/** Whether `name` matches `filter`: a glob (fnmatch), or NULL or "" for everything. */
bool parity_case_matches(const char *filter, const char *name);

typedef enum parity_verdict {
    PARITY_PASS,
    PARITY_WARN,        /**< right, but the worst error is above half its bound; not on the host, where a bound is no
                             more than the roundings that there must be */
    PARITY_FAIL,        /**< the backend computed something else, or refused what its supports() promised */
    PARITY_ERROR,       /**< a call failed, or the oracle itself is wrong: nothing is known of the backend */
    PARITY_UNSUPPORTED, /**< the backend says that it cannot: caps or supports() */
} parity_verdict;

#define PARITY_VERDICTS (PARITY_UNSUPPORTED + 1)

/** "pass", "warn", "fail", "error" or "unsupported". Static storage. */
const char *parity_verdict_name(parity_verdict verdict);

/** What came out. The worst element is the one with the largest error / bound. */
typedef struct parity_result {
    parity_verdict verdict;
    const char *output;       /**< which output the worst element belongs to: "D", "aux", "bgrad"; static storage */
    int64_t row, col, matrix; /**< of the worst element, or of the first that is wrong beyond measure */
    float value;
    double expected, bound;
    double error;             /**< |value - expected| of the worst element */
    double normalised;        /**< the largest error / s of all elements */
    char message[768];        /**< empty after PASS; else the reason, and after FAIL and ERROR the line that replays */
} parity_result;

/**
 * Runs one case on `backend` of the context of `stream`, in mode `compute` (DEFAULT: the context's), and waits for it.
 *
 * Nothing depends on which backend it is: one that the embedder registered runs the same table. oracle: a stream of a
 * host context; NULL: compare with step 2 directly, as for cpu_ref itself. seed: the same seed gives the same data on
 * every machine. Returns whether the verdict is PASS or WARN. Thread-safety: as tlob_gemm_run.
 */
bool parity_run(tlob_stream *stream, tlob_stream *oracle, const char *backend, const parity_case *c,
                tlob_compute compute, uint64_t seed, parity_result *result);

/**
 * parity_run by `count` methods (at least 1), one after another, through tlob_gemm_run_as: the product alone, for cases
 * of gradient mode too. The first that does not pass ends it, and its result is told, else that of the last. UNSUPPORTED
 * is whatever refuses. On the host, SEPARATE has three times the bound: z is rounded before its epilogue; and SPLIT has
 * it twice: each piece is rounded before it is added.
 */
bool parity_run_as(tlob_stream *stream, tlob_stream *oracle, const tlob_method *methods, int count,
                   const parity_case *c, tlob_compute compute, uint64_t seed, parity_result *result);

/** Many cases on one backend in one mode. */
typedef struct parity_sweep {
    tlob_stream *stream, *oracle; /**< as for parity_run */
    const char *backend;
    tlob_compute compute;
    uint64_t seed;
    const char *filter;           /**< a glob; a whole name "random/SEED/INDEX" runs that one; NULL: all */
    bool huge;                    /**< also the huge cases */
    void (*each)(void *user, const parity_case *c, const parity_result *result); /**< NULL, or is shown each result */
    void *user;
    char fault[256];              /**< not empty: nothing runs, and the tally is one ERROR with this message */
} parity_sweep;

/** How many came out how. */
typedef struct parity_tally {
    int ran;                    /**< all of them, unsupported ones as well */
    int count[PARITY_VERDICTS];
    double worst, normalised;   /**< the largest error, absolute and on the natural scale */
    char first[768];            /**< the message of the first FAIL or ERROR */
} parity_tally;

/** How many failed: FAIL and ERROR. */
int parity_failed(const parity_tally *tally);

/** Adds `more` to `*sum`. */
void parity_add(parity_tally *sum, const parity_tally *more);

/** Runs one case, adds what came out to `*tally`, and shows it to sweep->each. The sweep's filter does not count. */
void parity_run_one(const parity_sweep *sweep, const parity_case *c, parity_tally *tally);

/** Runs every case of the table that the sweep asks for. A filter that matches nothing gives `ran` 0. */
parity_tally parity_run_table(const parity_sweep *sweep);

/** Draws cases random/SEED/0, 1, ... until `seconds` have passed; those that match the filter run. */
parity_tally parity_run_random(const parity_sweep *sweep, double seconds);

/**
 * What the suites are asked from outside: TLOB_TEST_CASE (the filter), TLOB_TEST_SEED (default 1) and TLOB_TEST_HUGE
 * (1: also the huge cases; 0). The rest is zero, but for `fault`, which names a variable, TLOB_TEST_RANDOM_SECONDS
 * included, with a value that is not valid, and the valid ones.
 */
parity_sweep parity_sweep_from_environment(void);

/** TLOB_TEST_RANDOM_SECONDS, or `usual` where it is not set; 0 where the sweep of the environment has it as a fault. */
double parity_random_seconds(double usual);

/* --- the parts, for tests that bring their own data ------------------------------------------------------------ */

/** Value `index` of a fill of `count` values: a pure function of its arguments. `salt` tells the operands apart. */
float parity_fill_value(parity_fill fill, uint64_t seed, uint32_t salt, int64_t index, int64_t count);

/** An element's expected value, and its scale: the s that its bound is taken from. */
typedef struct parity_expectation {
    long double value; /**< of D */
    double scale;      /**< s; 0 where the value is sure, as behind a mask's 0 */
    long double z;     /**< before the epilogue's function: what aux holds, or tells the sign of */
    double z_scale;
} parity_expectation;

/** The m expectations of column `col` of matrix `matrix`; operands in host memory. */
void parity_expect(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix, int64_t col,
                   parity_expectation *column);

/**
 * The expected bgrad of matrix `matrix`: m values (BGRADB: n) into `sums`, of which `value` and `scale` count. `d`: the
 * m*n expectations of the matrix, column by column; not looked at by BGRADA and BGRADB.
 */
void parity_expect_bgrad(const tlob_gemm *gemm, const tlob_gemm_operands *x, int64_t matrix,
                         const parity_expectation *d, parity_expectation *sums);

/** The bound on |D - expected| of an element with scale `scale`. `memory`: where the backend works. */
double parity_bound(const tlob_gemm *gemm, tlob_memory memory, double scale);

/** The same of z, which aux holds, with its z_scale. */
double parity_bound_z(const tlob_gemm *gemm, tlob_memory memory, double z_scale);

/** The same of an element of bgrad. */
double parity_bound_bgrad(const tlob_gemm *gemm, tlob_memory memory, double scale);

#endif
