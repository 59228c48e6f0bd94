/** The fused block for shapes that have no kernels of their own: see block_fused_any.cu. */
#ifndef TLOB_KERNELS_BLOCK_FUSED_ANY_CUH
#define TLOB_KERNELS_BLOCK_FUSED_ANY_CUH

#include "libtlob/kernels/block_fused.h"

int tlob_block_fused_any_forward(struct CUstream_st *stream, const tlob_block_fused_args *args);
int tlob_block_fused_any_backward(struct CUstream_st *stream, const tlob_block_fused_args *args);
int tlob_block_fused_any_load();

#endif
