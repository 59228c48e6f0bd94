/*
 * libFuzzer target for files of algorithms: whatever it is fed, a deterministic host context with a backend that chooses
 * algorithms takes or refuses it, and each entry that it refuses has a reason.
 *
 *     clang -g -O1 -D_GNU_SOURCE -I. -Ilibtlob/include -I/usr/include/cjson -DTLOB_VERSION='"fuzz"' \
 *         -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_algorithms.c libtlob/[a-z]*[a-z].c ... -lcjson -lm
 *
 * The sources are those of libtlob/meson.build and backends/meson.build for a build without CUDA.
 */
#include <stdlib.h>
#include <string.h>

#include "libtlob/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps sums, so that every field is read. */
struct tlob_shared {
    int64_t sum;
};

static tlob_status attach(tlob_shared **shared, const tlob_shared_params *params) {
    (void)params;
    *shared = calloc(1, sizeof(**shared));
    return *shared ? TLOB_OK : TLOB_ERR_OUT_OF_MEMORY;
}

static void detach(tlob_shared *shared) {
    free(shared);
}

static void list_none(tlob_shared *shared, tlob_algorithm_fn visit, void *user) {
    (void)shared;
    (void)visit;
    (void)user;
}

static bool offer(tlob_shared *shared, const tlob_algorithm *entry, char *why, size_t size) {
    if (entry->n_key > TLOB_ALGORITHM_FIELDS_MAX || entry->n_configuration > TLOB_ALGORITHM_FIELDS_MAX)
        __builtin_trap();
    for (int i = 0; i < entry->n_key; i++)
        shared->sum ^= entry->key[i].value + entry->key[i].name[0];
    for (int i = 0; i < entry->n_configuration; i++)
        shared->sum ^= entry->configuration[i].value + (int64_t)strlen(entry->configuration[i].name);
    if (entry->n_key % 2 == 0)
        return true;
    memset(why, 'x', size - 1);
    why[size - 1] = 0;
    return false;
}

static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
}

static TLOB_GEMM_FN(never_called) {
    (void)lane;
    (void)gemm;
    (void)x;
    return TLOB_OK;
}

static const tlob_backend_ops choosy = {
    .api = TLOB_BACKEND_API,
    .name = "c",
    .caps = {.memory = TLOB_MEMORY_HOST,
             .computes = 1u << TLOB_COMPUTE_FP32,
             .epilogues = 1u << TLOB_EPILOGUE_NONE,
             .max_batch = 1,
             .deterministic = true},
    .attach = attach,
    .detach = detach,
    .list_algorithms = list_none,
    .offer_algorithm = offer,
    .open = open_lane,
    .close = close_lane,
    .sgemm = never_called,
};

static void look(void *user, const tlob_algorithm *entry) {
    if (entry->state != TLOB_ALGORITHM_REJECTED || !*entry->reason)
        __builtin_trap();
    ++*(int *)user;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const tlob_backend_ops *const rows[] = {&choosy};
    tlob_context_params params = tlob_context_params_default();
    tlob_context *ctx;
    tlob_algorithms_report report;
    int rejected = 0;
    params.memory = TLOB_MEMORY_HOST;
    params.deterministic = TLOB_SWITCH_ON;
    params.backends = rows;
    params.n_backends = 1;
    if (tlob_context_create(&ctx, &params))
        return 0;
    tlob_status status = tlob_algorithms_parse(ctx, "fuzz", (const char *)data, size, &report);
    if (status != TLOB_OK && status != TLOB_ERR_FILE && status != TLOB_ERR_OUT_OF_MEMORY)
        __builtin_trap();
    if (status != TLOB_OK && !strstr(tlob_last_error()->message, "fuzz"))
        __builtin_trap();
    tlob_algorithms_list(ctx, look, &rejected);
    if (status == TLOB_OK && rejected != report.rejected)
        __builtin_trap();
    tlob_context_destroy(&ctx);
    return 0;
}
