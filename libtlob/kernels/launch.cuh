/** How every kernel is launched: a one-dimensional grid over an index range, in 64 bits. */
#ifndef TLOB_KERNELS_LAUNCH_CUH
#define TLOB_KERNELS_LAUNCH_CUH

#include <cstdint>

#include <cuda_runtime.h>

/** A block for kernels that do little to each element: 8 of them fill a multiprocessor's 2048 threads. */
#define TLOB_BLOCK 256

/** More blocks than any device runs at once; the rest of a longer range is the kernel's grid-stride loop's. */
#define TLOB_MAX_BLOCKS 32768

/** The loop over [0, count) in every kernel that launch() starts. */
#define TLOB_GRID_LOOP(i, count)                                                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (int64_t)gridDim.x * blockDim.x)

/**
 * Enqueues `kernel` with a thread for each of `count` indices; nothing for none. Returns the launch's own error, not
 * cudaGetLastError: that may be one which some earlier call of the program left behind. A failed launch leaves nothing
 * behind itself.
 */
template <class... Params, class... Args>
static int launch(struct CUstream_st *stream, int64_t count, int block, void (*kernel)(Params...), Args... args) {
    if (count <= 0)
        return 0;
    int64_t blocks = (count - 1) / block + 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < TLOB_MAX_BLOCKS ? blocks : TLOB_MAX_BLOCKS));
    config.blockDim = dim3((unsigned)block);
    config.stream = stream;
    cudaError_t code = cudaLaunchKernelEx(&config, kernel, args...);
    if (code != cudaSuccess)
        cudaGetLastError();
    return (int)code;
}

#endif
