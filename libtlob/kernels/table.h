/** The kernels by name, for the two tables: one list of signatures declares both, so that they cannot drift apart. */
#ifndef TLOB_KERNELS_TABLE_H
#define TLOB_KERNELS_TABLE_H

#include "libtlob/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TLOB_KERNEL_LIST(space)                                                                                        \
    int tlob_##space##_affine(struct CUstream_st *stream, const tlob_affine_args *args);                               \
    int tlob_##space##_add_pieces(struct CUstream_st *stream, const tlob_add_pieces_args *args);                       \
    int tlob_##space##_finish(struct CUstream_st *stream, const tlob_finish_args *args);                               \
    bool tlob_##space##_attend_has_tiles(void);                                                                        \
    int tlob_##space##_attend_forward(struct CUstream_st *stream, const tlob_attend_args *args);                       \
    int tlob_##space##_attend_backward(struct CUstream_st *stream, const tlob_attend_args *args);                      \
    int tlob_##space##_cross_entropy(struct CUstream_st *stream, const tlob_xent_args *args);                          \
    int tlob_##space##_head(struct CUstream_st *stream, const tlob_head_args *args);                                   \
    int tlob_##space##_head_logits(struct CUstream_st *stream, const tlob_head_args *args);                            \
    int tlob_##space##_sum_chunks(struct CUstream_st *stream, const tlob_sum_args *args);                              \
    int tlob_##space##_row_sum(struct CUstream_st *stream, int64_t m, int64_t n, const float *x, float scale,          \
                               float *partial, float *out);                                                            \
    int tlob_##space##_adam(struct CUstream_st *stream, const tlob_adam_args *args);                                   \
    int tlob_##space##_adam_chunked(struct CUstream_st *stream, const tlob_adam_chunked_args *args);                   \
    int tlob_##space##_set_scalar(struct CUstream_st *stream, float *dst, float value);                                \
    int tlob_##space##_uniform(struct CUstream_st *stream, int64_t count, float bound, uint64_t seed,                  \
                               uint32_t counter, float *w);                                                            \
    int tlob_##space##_load(void)

TLOB_KERNEL_LIST(host);
TLOB_KERNEL_LIST(cuda);

/** With more slots after the name of the space, for what is not in every one. */
#define TLOB_KERNEL_TABLE(space, ...)                                                                                  \
    {                                                                                                                  \
        .affine = tlob_##space##_affine, .add_pieces = tlob_##space##_add_pieces,                                      \
        .finish = tlob_##space##_finish,                                                                               \
        .attend_has_tiles = tlob_##space##_attend_has_tiles,                                                           \
        .attend_forward = tlob_##space##_attend_forward, .attend_backward = tlob_##space##_attend_backward,            \
        .cross_entropy = tlob_##space##_cross_entropy, .head = tlob_##space##_head,                                    \
        .head_logits = tlob_##space##_head_logits,                                                                     \
        .sum_chunks = tlob_##space##_sum_chunks, .row_sum = tlob_##space##_row_sum, .adam = tlob_##space##_adam,       \
        .adam_chunked = tlob_##space##_adam_chunked,                                                                   \
        .set_scalar = tlob_##space##_set_scalar, .uniform = tlob_##space##_uniform, .load = tlob_##space##_load,       \
        __VA_ARGS__                                                                                                    \
    }

#ifdef __cplusplus
}
#endif
#endif
