#include "libtlob/kernels/table.h"

int tlob_host_load(void) {
    return 0;
}

const tlob_kernels tlob_kernels_host = TLOB_KERNEL_TABLE(host, .block_forward = NULL, .block_backward = NULL,
                                                         .block_has_code = NULL);
