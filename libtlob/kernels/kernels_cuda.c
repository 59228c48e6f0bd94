#include "libtlob/kernels/table.h"

const tlob_kernels tlob_kernels_cuda = TLOB_KERNEL_TABLE(cuda);
