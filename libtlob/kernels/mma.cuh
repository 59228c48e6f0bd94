/** Products of 16 x 8 x 8 on tensor cores, and copies into shared memory that a thread need not wait for. */
#ifndef TLOB_KERNELS_MMA_CUH
#define TLOB_KERNELS_MMA_CUH

#include <cstdint>

#include <cuda_runtime.h>

/** Where mma on TF32 and cp.async begin, as __CUDA_ARCH__ counts. */
#define TLOB_MMA_ARCH 800

#define ALL_LANES 0xffffffffu
#define TF32_BITS 0xffffe000u /* of a float's */

/**
 * What the mma, which cuts the bits that TF32 does not have, makes x rounded to nearest of. The largest numbers, which
 * would become infinite, are cut: 0 times them must stay 0. So are infinity and NaN, whose bits must not carry.
 */
static inline __device__ float rounded(float x) {
    unsigned bits = __float_as_uint(x);
    asm("{ .reg .pred small; setp.lt.f32 small, %1, 0f7F7FF000; @small add.u32 %0, %0, 0x1000; }"
        : "+r"(bits)
        : "f"(fabsf(x)));
    return __uint_as_float(bits);
}

template <int BYTES> static inline __device__ void copy_async(float *to, const float *from, bool there) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    int bytes = there ? BYTES : 0; /* the rest becomes 0 */
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes));
}

static inline __device__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

template <int N> struct operand {
    uint32_t high[N], low[N];
};

/**
 * In FP32 the small part of an infinity is NaN, as is that of NaN, which may have lost all its bits in the large part.
 * A small part of 0 would not save an infinity: it meets the other factor's small part, which may be 0.
 */
template <bool FP32, int N> static inline __device__ operand<N> split(const float (&x)[N]) {
    operand<N> s;
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.high[i] = __float_as_uint(x[i]);
        if (FP32) {
            s.high[i] &= TF32_BITS; /* cut: rounded, the largest numbers would become infinite */
            s.low[i] = __float_as_uint(x[i] - __uint_as_float(s.high[i]));
        }
    }
    return s;
}

/** The operands of a product, as the compute mode wants them: in two parts, or rounded. */
template <bool FP32, int N> static inline __device__ operand<N> factors(const float (&x)[N]) {
    float near[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        near[i] = FP32 ? x[i] : rounded(x[i]);
    return split<FP32>(near);
}

/**
 * factors() of what no NaN with a sign bit is among, such as the results of arithmetic: in TF32 an addition that
 * carries into the sign, which a NaN's does, is undone by taking the larger of both. One instruction on sm_90, where
 * rounded() is two. Numbers that would become infinite do.
 */
template <bool FP32, int N> static inline __device__ operand<N> plain_factors(const float (&x)[N]) {
    float near[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        near[i] = FP32 ? x[i] : __int_as_float(__viaddmax_s32(__float_as_int(x[i]), 0x1000, __float_as_int(x[i])));
    return split<FP32>(near);
}

static inline __device__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
