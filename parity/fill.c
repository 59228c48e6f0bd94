/* Test data: every value is a pure function of seed, operand and position, in arithmetic that is exact everywhere. */
#include <math.h>

#include "parity/parity.h"

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The top 24 bits as a number in [0, 1). */
static float unit(uint64_t bits) {
    return (float)(bits >> 40) * 0x1p-24f;
}

static float uniform(uint64_t bits) {
    return 2 * unit(bits) - 1;
}

/* 0 in 6 of 10 places; else (0.5 + U) * 2^L * 0.6475 of either sign, where L = 0, 1, 2 with odds 2:1:1. */
static float order_flow(uint64_t bits) {
    if (bits % 10 < 6)
        return 0;
    uint64_t more = mix(bits);
    int level = more & 1 ? 0 : more & 2 ? 1 : 2;
    float magnitude = (0.5f + unit(more)) * (float)(1 << level) * 0.6475f;
    return more & 8 ? magnitude : -magnitude;
}

float parity_fill_value(parity_fill fill, uint64_t seed, uint32_t salt, int64_t index, int64_t count) {
    uint64_t stream = mix(mix(seed) + salt);
    uint64_t bits = mix(stream ^ mix((uint64_t)index));
    bool chosen = count > 0 && (uint64_t)index == stream % (uint64_t)count;

    switch (fill) {
    case PARITY_UNIFORM:
        break;
    case PARITY_INTEGER:
        return (float)(int)((bits >> 32) % 17) - 8;
    case PARITY_ORDER_FLOW:
        return order_flow(bits);
    case PARITY_WEIGHT:
        return uniform(bits) * 0.35355339f;
    case PARITY_GRADIENT:
        return uniform(bits) * 0x1p-6f;
    case PARITY_RAMP:
        return (float)index;
    case PARITY_ZERO:
        return 0;
    case PARITY_SIGNED_ZERO:
        return bits & 1 ? 0.0f : -0.0f;
    case PARITY_MIXED:
        return ldexpf(uniform(bits), 40 * ((int)(bits % 3) - 1));
    case PARITY_ONE_NAN:
        return chosen ? NAN : uniform(bits);
    case PARITY_ONE_INF:
        return chosen ? INFINITY : uniform(bits);
    case PARITY_NAN:
        return NAN;
    }
    return uniform(bits);
}
