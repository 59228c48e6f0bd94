/** Philox4x32-10, the counter-based generator of Salmon et al. 2011, and what `uniform` makes of it, for both spaces.
 */
#ifndef TLOB_KERNELS_PHILOX_H
#define TLOB_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#    define TLOB_BOTH static inline __host__ __device__
#else
#    define TLOB_BOTH static inline
#endif

typedef struct tlob_philox {
    uint32_t word[4];
} tlob_philox;

/** The block of random words of a counter under a key. */
TLOB_BOTH tlob_philox tlob_philox_block(tlob_philox counter, uint32_t key0, uint32_t key1) {
    tlob_philox x = counter;
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * x.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * x.word[2];
        tlob_philox y = {{(uint32_t)(product1 >> 32) ^ x.word[1] ^ key0, (uint32_t)product1,
                          (uint32_t)(product0 >> 32) ^ x.word[3] ^ key1, (uint32_t)product0}};
        x = y;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return x;
}

/** The block for elements 4*index to 4*index + 3 of counter space `space`. */
TLOB_BOTH tlob_philox tlob_philox_at(uint64_t seed, uint32_t space, int64_t index) {
    tlob_philox counter = {{(uint32_t)index, (uint32_t)((uint64_t)index >> 32), space, 0}};
    return tlob_philox_block(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/**
 * bound * u, u in [-1, 1) from the upper 24 bits of a word. u has 24 bits and is exact, so the product is the only
 * rounding and every machine gives the same bits, with or without fused multiply-add.
 */
TLOB_BOTH float tlob_philox_uniform(uint32_t word, float bound) {
    float u = (float)((int32_t)(word >> 8) - 8388608) * 1.1920928955078125e-7f; /* 2^-23 */
    return bound * u;
}

#endif
