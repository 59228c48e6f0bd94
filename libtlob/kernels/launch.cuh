/** How every kernel is launched: a one-dimensional grid over an index range, in 64 bits. */
#ifndef TLOB_KERNELS_LAUNCH_CUH
#define TLOB_KERNELS_LAUNCH_CUH

#include <cstdint>

#include <cuda_runtime.h>

/** A block for kernels that do little to each element: 8 of them fill a multiprocessor's 2048 threads. */
#define TLOB_BLOCK 256

/** More blocks than any device runs at once; the rest of a longer range is the kernel's grid-stride loop's. */
#define TLOB_MAX_BLOCKS 32768

/** The loop over [0, count) in every kernel that launch() starts, with an index of type `Index`. */
#define TLOB_GRID_LOOP_OF(Index, i, count)                                                                             \
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (Index)gridDim.x * blockDim.x)

#define TLOB_GRID_LOOP(i, count) TLOB_GRID_LOOP_OF(int64_t, i, count)

/**
 * Whether uint32_t will do as the index of a loop over [0, count): a division in 64 bits costs what dozens of floats cost
 * to copy. A step of the loop is below 2^24, so that no index passes 2^32.
 */
static inline bool tlob_index_fits(int64_t count) {
    return count <= (int64_t)1 << 31;
}

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

/**
 * Has CUDA load kernels: asking for the attributes of one does, where otherwise its first launch would. Returns the
 * error of the first that cannot be had, which leaves nothing behind.
 */
static inline int load() {
    return 0;
}

template <class Kernel, class... More> static int load(Kernel *kernel, More *...more) {
    cudaFuncAttributes attributes;
    cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code == cudaSuccess)
        return load(more...);
    cudaGetLastError();
    return (int)code;
}

#endif
