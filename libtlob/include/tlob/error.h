/** The last error of the calling thread: what failed, on which problem, and what the vendor said. */
#ifndef TLOB_ERROR_H
#define TLOB_ERROR_H

#include <stdbool.h>

#include <tlob/gemm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A failure in full. Strings are always terminated and empty where they do not apply. */
typedef struct tlob_error {
    tlob_status status;  /**< what the call returned */
    char operation[48];  /**< the function or vendor call that failed, such as "cublasLtMatmul" */
    char backend[24];    /**< the backend at work, or empty */
    int vendor_code;     /**< cublasStatus_t or cudaError_t as a number; 0 where no vendor call failed */
    char vendor[64];     /**< the vendor's name for it, such as "CUBLAS_STATUS_NOT_SUPPORTED" */
    bool has_gemm;       /**< whether `gemm` holds the problem at hand */
    tlob_gemm gemm;      /**< the problem at hand */
    char message[512];   /**< one line for a person: what is wrong, and what to do */
} tlob_error;

/**
 * The last failure of a libtlob call on this thread; status TLOB_OK before the first. Successful calls do not clear it,
 * as with errno. Never NULL. The storage belongs to the thread: valid until its next libtlob call that fails.
 *
 * It is kept per thread, not per context, because a context may be shared by threads and because creating a context can
 * fail.
 */
TLOB_API const tlob_error *tlob_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
