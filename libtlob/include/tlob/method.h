/** Methods: the ways in which one matrix product can be done, to choose from, to compare, and to insist on. */
#ifndef TLOB_METHOD_H
#define TLOB_METHOD_H

#include <tlob/algorithms.h>
#include <tlob/form.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most fields of a configuration. */
#define TLOB_METHOD_FIELDS_MAX 16

/** A way to do a product: who, in which form, with which algorithm. */
typedef struct tlob_method {
    char backend[24];    /**< name of the backend */
    tlob_form form;      /**< how the problem is put to it */
    int n_configuration; /**< fields of `configuration`; 0: the backend chooses the algorithm by itself */
    /** The algorithm by its attributes. The names belong to whoever gave the method: a backend (static), or a table. */
    tlob_algorithm_field configuration[TLOB_METHOD_FIELDS_MAX];
} tlob_method;

/** Whether two methods are the same: fields are compared by name and value, whatever their order. */
TLOB_API bool tlob_method_equal(const tlob_method *a, const tlob_method *b);

/** Writes "cublaslt, loop, id 21 tile 15 split_k 4": fields that are 0 are left out; at most `size` bytes. */
TLOB_API void tlob_method_print(const tlob_method *method, char *text, size_t size);

/**
 * As tlob_gemm_run, but by `method`, whatever the policy says. Nothing else is tried.
 *
 * Errors: those of tlob_gemm_run_on, and: ARGUMENT for a method that is not well formed; UNSUPPORTED where the form has
 * an obstacle, the backend takes no configurations, does not know a field, or its library's check refuses the
 * configuration for this problem and these operands; NOT_WARM for a configuration, or the first product in form SPLIT,
 * that is new to the stream during a capture; OUT_OF_MEMORY, of the scratch that SPLIT needs. Thread-safety: as the
 * stream.
 */
TLOB_API tlob_status tlob_gemm_run_as(struct tlob_stream *stream, const tlob_method *method, const tlob_gemm *gemm,
                                      const tlob_gemm_operands *x);

/** Receives one method. Must not call into the stream. */
typedef void (*tlob_method_fn)(void *user, const tlob_method *method);

/**
 * Visits the methods by which this stream's context could do `gemm` with operands like `x`, in an order that depends on
 * nothing but problem, device and library: backends in the order of the list, forms in that of the enum, the backend's
 * own choice before the algorithms that it proposes, and these sorted by their attributes. On a deterministic context
 * only what has a fixed order of sums. Runs nothing. `x` may be NULL: operands are then taken to be aligned to 256 bytes
 * and apart.
 *
 * Errors: ARGUMENT, CLOSED, NOT_WARM during a capture of the stream, BACKEND, OUT_OF_MEMORY. Thread-safety: as the
 * stream.
 */
TLOB_API tlob_status tlob_gemm_methods(struct tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                                       tlob_method_fn visit, void *user);

#ifdef __cplusplus
}
#endif
#endif
