#include "libtlob/kernels/block_fused.h"
#include "libtlob/kernels/table.h"

/* One in each file of kernels. */
int tlob_cuda_load_adam(void);
int tlob_cuda_load_add_pieces(void);
int tlob_cuda_load_affine(void);
int tlob_cuda_load_attend(void);
int tlob_cuda_load_block_fused_backward(void);
int tlob_cuda_load_block_fused_forward(void);
int tlob_cuda_load_cross_entropy(void);
int tlob_cuda_load_finish(void);
int tlob_cuda_load_head(void);
int tlob_cuda_load_row_sum(void);
int tlob_cuda_load_sum_chunks(void);
int tlob_cuda_load_uniform(void);

int tlob_cuda_load(void) {
    int (*const loads[])(void) = {tlob_cuda_load_adam,
                                  tlob_cuda_load_add_pieces,
                                  tlob_cuda_load_affine,
                                  tlob_cuda_load_attend,
                                  tlob_cuda_load_block_fused_backward,
                                  tlob_cuda_load_block_fused_forward,
                                  tlob_cuda_load_cross_entropy,
                                  tlob_cuda_load_finish,
                                  tlob_cuda_load_head,
                                  tlob_cuda_load_row_sum,
                                  tlob_cuda_load_sum_chunks,
                                  tlob_cuda_load_uniform};
    int code = 0;
    for (size_t i = 0; i < sizeof(loads) / sizeof(*loads) && code == 0; i++)
        code = loads[i]();
    return code;
}

const tlob_kernels tlob_kernels_cuda = TLOB_KERNEL_TABLE(cuda, .block_forward = tlob_cuda_block_fused_forward,
                                                         .block_backward = tlob_cuda_block_fused_backward,
                                                         .block_has_code = tlob_cuda_block_fused_has_code);
