/** What the suites share that run the oracle's cases on a device: a lab for each policy, and captures. */
#ifndef TLOB_TESTS_GPU_LAB_H
#define TLOB_TESTS_GPU_LAB_H

#include <cuda_runtime.h>

#include "tests/block/lab.h"
#include "tests/gpu/gpu.h"

/** Asserts success, and prints CUDA's text where there is none. */
#define CUDA_OK(call)                                                                                                  \
    do {                                                                                                               \
        cudaError_t code_ = (call);                                                                                    \
        cr_assert_eq(code_, cudaSuccess, "%s: %s", #call, cudaGetErrorString(code_));                                  \
    } while (0)

static const char *const policies[] = {"fixed:cublas_classic", "fixed:cublaslt", "threshold", "threshold"};

/** The plan of blocks under each: composed of products by the policy, and last what libtlob chooses, which is fused. */
static const tlob_block_plan plans[] = {TLOB_PLAN_COMPOSED, TLOB_PLAN_COMPOSED, TLOB_PLAN_COMPOSED,
                                        TLOB_PLAN_DEFAULT};

/** The statements that follow, once for each policy, in a context `l` of its own in FP32; policies[p_] is its name. */
#define FOR_EACH_POLICY(l)                                                                                             \
    for (int p_ = 0; p_ < 4 && (lab_open_cuda_plan(l, policies[p_], plans[p_]), true);                                 \
         lab_close(l), p_++)

static inline void begin_capture_on(const lab *l) {
    CUDA_OK(cudaStreamBeginCapture(tlob_stream_cuda(l->stream), cudaStreamCaptureModeThreadLocal));
}

/** The graph, to destroy. */
static inline cudaGraph_t end_capture_on(const lab *l) {
    cudaGraph_t graph;
    CUDA_OK(cudaStreamEndCapture(tlob_stream_cuda(l->stream), &graph));
    return graph;
}

#endif
