/* What the documentation must agree with, one fact a line: "status NAME VALUE TEXT", "epilogue NAME", and
 * "message NAME TEXT" for each failure that can be provoked without a GPU. With an argument: whether that configuration
 * file is valid. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <tlob/tlob.h>

static void print_message(tlob_status expected, tlob_status status) {
    if (status != expected) {
        printf("got %s where %s was expected\n", tlob_status_name(status), tlob_status_name(expected));
        exit(1);
    }
    printf("message\t%s\t%s\n", tlob_status_name(status), tlob_last_error()->message);
}

static const char *choose_nothing(void *user, const tlob_gemm *gemm, const char **reason) {
    (void)user;
    (void)gemm;
    *reason = "the table has no such problem";
    return NULL;
}

static tlob_status open_lane(tlob_lane **lane, const tlob_lane_params *params) {
    (void)params;
    *lane = NULL;
    return TLOB_OK;
}

static void close_lane(tlob_lane *lane) {
    (void)lane;
}

static bool refuse(const tlob_gemm *gemm, const char **why) {
    (void)gemm;
    *why = "it multiplies matrices as they lie, without transposes";
    return false;
}

static TLOB_GEMM_FN(never_called) {
    (void)lane;
    (void)gemm;
    (void)x;
    return TLOB_OK;
}

static const tlob_backend_ops plain = {
    .api = TLOB_BACKEND_API,
    .name = "plain",
    .caps = {.memory = TLOB_MEMORY_HOST, .computes = 1u << TLOB_COMPUTE_FP32, .epilogues = 1u << TLOB_EPILOGUE_NONE,
             .max_batch = 1, .deterministic = true},
    .open = open_lane,
    .close = close_lane,
    .supports = refuse,
    .sgemm = never_called,
};

/* In an order that needs no second context. */
static void provoke(const tlob_context_params *params) {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_buffer *buffer;
    float a[4] = {0}, d[4];
    tlob_gemm gemm = tlob_gemm_init(2, 2, 2), wrong = gemm;
    const tlob_gemm_operands x = {.a = a, .b = a, .d = d};
    if (tlob_context_create(&ctx, params) || tlob_stream_create(ctx, &stream)) {
        puts(tlob_last_error()->message);
        exit(1);
    }
    wrong.lda = 1;
    print_message(TLOB_ERR_ARGUMENT, tlob_gemm_check(&wrong));
    print_message(TLOB_ERR_UNKNOWN_NAME, tlob_gemm_run_on(stream, "cublas", &gemm, &x));
    gemm.transa = TLOB_OP_T;
    print_message(TLOB_ERR_UNSUPPORTED, tlob_gemm_run_on(stream, "plain", &gemm, &x));
    print_message(TLOB_ERR_OUT_OF_MEMORY, tlob_buffer_create(ctx, (size_t)1 << 62, &buffer));
    print_message(TLOB_ERR_FILE, tlob_algorithms_load(ctx, "/nowhere/at/all", NULL));
    print_message(TLOB_ERR_LABEL, tlob_labels_check((const uint8_t[]){0, 1, 2, 3}, 4));
    tlob_policy policy = {.kind = TLOB_POLICY_CALLBACK, .decide = choose_nothing};
    print_message(TLOB_ERR_POLICY, tlob_dispatch_explain(&policy, &gemm, &(tlob_choice){0}));
    setenv("TLOB_COMPUTE", "bf16", 1);
    print_message(TLOB_ERR_SETTING, tlob_settings_resolve(params, &(tlob_settings){0}));
    tlob_context_destroy(&ctx);
    print_message(TLOB_ERR_CLOSED, tlob_stream_sync(stream));
    tlob_stream_close(&stream);
}

int main(int argc, char **argv) {
    tlob_context_params params = tlob_context_params_default();
    params.memory = TLOB_MEMORY_HOST;
    if (argc == 2) {
        tlob_settings settings;
        params.config_path = argv[1];
        params.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"}; /* needs no GPU backends */
        tlob_status status = tlob_settings_resolve(&params, &settings);
        puts(status ? tlob_last_error()->message : tlob_origin_name(settings.compute_origin));
        return status != TLOB_OK;
    }
#define PRINT_STATUS(name, value, text) printf("status\tTLOB_%s\t%d\t%s\n", #name, value, text);
    TLOB_STATUS_LIST(PRINT_STATUS)
#undef PRINT_STATUS
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++)
        printf("epilogue\t%s\n", tlob_epilogue_get_traits((tlob_epilogue)i)->name);
    const tlob_backend_ops *rows[] = {&plain};
    params.backends = rows;
    params.n_backends = 1;
    params.deterministic = TLOB_SWITCH_ON;
    provoke(&params);
    return 0;
}
