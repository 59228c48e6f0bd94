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

/** The error of a call of the runtime, which is not left behind for others to find. */
static inline int taken(cudaError_t code) {
    if (code != cudaSuccess)
        cudaGetLastError();
    return (int)code;
}

/**
 * Enqueues `kernel` with a thread for each of `count` indices; nothing for none. Returns the launch's own error, not
 * cudaGetLastError: that may be one which some earlier call of the program left behind.
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
    return taken(cudaLaunchKernelEx(&config, kernel, args...));
}

/*
 * Kernels that overlap: one may start, up to its wait_for_kernel_before(), when all threads of the kernel before have
 * called let_next_start() or ended. Half a microsecond between two of them is saved that way.
 *
 * What kernels before write is read behind the wait, and not through the read-only cache (__ldg), for it may have been
 * written since this kernel was started. It may be read before the wait, from the L2 cache (__ldcg), where some kernel
 * since it was written waits before it lets the next one start: for all kernels behind that one it has been written. The
 * forward pass of the block is such a kernel.
 */

/** From here on the next kernel may be started. */
static inline __device__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/** Goes on when the kernel before has ended, and so all before it if it waited too, and what they wrote can be seen. */
static inline __device__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/**
 * Enqueues a kernel of `blocks` blocks of `threads`, with `bytes` of dynamic shared memory. overlaps: it may start while
 * the kernel before ends: only with code of compute capability 9.0 or later, where wait_for_kernel_before waits.
 */
template <class... Params, class... Args>
static int launch_overlapping(struct CUstream_st *stream, bool overlaps, int64_t blocks, int64_t threads, int bytes,
                              void (*kernel)(Params...), Args... args) {
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = overlaps ? 1 : 0;
    return taken(cudaLaunchKernelEx(&config, kernel, args...));
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
