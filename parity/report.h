/** What the files of parity/ share: how a result is put into words, and gradient mode. */
#ifndef TLOB_PARITY_REPORT_H
#define TLOB_PARITY_REPORT_H

#include "parity/parity.h"

/** Who runs what: named by every message. */
typedef struct parity_who {
    const parity_case *c;
    const char *backend;
    const tlob_method *method; /**< that is insisted on; NULL: the backend's own choice, whole */
    tlob_compute compute; /**< resolved */
    uint64_t seed;
} parity_who;

/** Sets the verdict and "NAME on BACKEND: ..."; after FAIL and ERROR the line that replays it. Returns false. */
bool parity_report(const parity_who *who, parity_result *result, parity_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** The same for a libtlob call that failed: ERROR with tlob_last_error(). */
bool parity_report_call(const parity_who *who, parity_result *result, const char *what);

/**
 * The same for a product that a backend has just refused: UNSUPPORTED where tlob_gemm_explain says too that it cannot,
 * FAIL where its supports() promised otherwise, ERROR for any other status.
 */
bool parity_report_product(const parity_who *who, parity_result *result, tlob_stream *stream, const tlob_gemm *gemm,
                           const tlob_gemm_operands *x, tlob_status status);

/** Gradient mode: see parity.h. Returns whether the verdict is PASS. */
bool parity_run_gradient(const parity_who *who, tlob_stream *stream, parity_result *result);

#endif
