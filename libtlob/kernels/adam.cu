#include "libtlob/kernels/launch.cuh"
#include "libtlob/kernels/table.h"

/** Powers in double: beta^t near 1 leaves a correction that float would round to a few digits. */
static __global__ void advance(tlob_adam_state *state) {
    state->t += 1;
    state->correction1 = (float)(1.0 - pow((double)state->beta1, (double)state->t));
    state->correction2 = (float)(1.0 - pow((double)state->beta2, (double)state->t));
}

static __global__ void adam(tlob_adam_args x) {
    const tlob_adam_state s = *x.state;
    TLOB_GRID_LOOP(i, x.count) {
        float g = x.g[i];
        float m = s.beta1 * x.m[i] + (1.0f - s.beta1) * g;
        float v = s.beta2 * x.v[i] + (1.0f - s.beta2) * g * g;
        x.m[i] = m;
        x.v[i] = v;
        x.w[i] -= s.lr * (m / s.correction1) / (sqrtf(v / s.correction2) + s.eps);
    }
}

static __global__ void set_scalar(float *dst, float value) {
    *dst = value;
}

extern "C" int tlob_cuda_adam(struct CUstream_st *stream, const tlob_adam_args *args) {
    int code = launch(stream, 1, 1, advance, args->state);
    return code ? code : launch(stream, args->count, TLOB_BLOCK, adam, *args);
}

extern "C" int tlob_cuda_set_scalar(struct CUstream_st *stream, float *dst, float value) {
    return launch(stream, 1, 1, set_scalar, dst, value);
}

extern "C" int tlob_cuda_load_adam(void) {
    return load(advance, adam, set_scalar);
}
