#include "libtlob/kernels/table.h"

const tlob_kernels tlob_kernels_host = TLOB_KERNEL_TABLE(host);
