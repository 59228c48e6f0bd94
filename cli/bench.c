// `tlob bench`: microbenchmarks. Each subject is a file of its own.
#include "cli/bench.h"

#include <inttypes.h>
#include <stdio.h>

// What can be timed.
typedef struct subject {
    bool (*run)(bench *b);
    const char *first, *second; // the two columns
    bool needs_gpu, has_floors;
} subject;

static const char *const subject_names[] = {"qkv", "block", "call", "trunk", "bias", "determinism", "step",
                                            "latency", "gemm", NULL};
static const subject subjects[] = {
    {bench_qkv, "one call", "three calls", false, false},
    {bench_block, "forward", "forward and backward", false, true},
    {bench_call, "bare", "libtlob", true, false},
    {bench_trunk, "stacked", "separate", false, true},
    {bench_bias, "fused", "cublas_classic", true, false},
    {bench_determinism, "off", "on", true, false},
    {bench_step, "one graph", "its calls", true, true},
    {bench_latency, "by flag", "by event", true, false},
    {bench_gemm, NULL, NULL, false, false}, // prints columns of its own
};
enum { SUBJECT_NONE = -1, SUBJECT_TRUNK = 3, SUBJECT_STEP = 6, SUBJECT_GEMM = 8 };

enum { KEY_REPEAT = CLI_KEY_OWN, KEY_SEED, KEY_JSON, KEY_DIM, KEY_HEADS, KEY_SEQ, KEY_SAMPLES, KEY_FILTER };

static const struct argp_option own_options[] = {
    {NULL, 0, NULL, 0, "Measurement:", 2},
    {"repeat", KEY_REPEAT, "COUNT", 0, "Samples of each time (default 101 on a GPU, 11 on the host; of gemm 21)", 2},
    {"seed", KEY_SEED, "NUMBER", 0, "Of the data (default 1)", 2},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of a table", 2},
    {NULL, 0, NULL, 0, "What trunk and step are timed on:", 3},
    {"dim", KEY_DIM, "NUMBER", 0, "Features of a token of trunk (default 256)", 3},
    {"heads", KEY_HEADS, "NUMBER", 0, "Heads of trunk; divides --dim (default 8)", 3},
    {"seq", KEY_SEQ, "NUMBER", 0, "Tokens of a sample of trunk (default 64)", 3},
    {"samples", KEY_SAMPLES, "NUMBER", 0, "Samples of a call (default 64 for trunk, 256 for step)", 3},
    {NULL, 0, NULL, 0, "What gemm is timed on:", 4},
    {"filter", KEY_FILTER, "GLOB", 0, "Only problems with such names, such as 'block/*'", 4},
    {0},
};

static const char doc[] =
    "Times matrix products, the block and multi-head attention, in microseconds a call."
    "\vqkv: the three projections of a TLOB block (16 x N x 32 each), and their weight gradients (16 x 32 x N), as one "
    "strided-batched call and as three calls; N is 64, 256, 1024, 4096, and 65536 on a GPU. The ratio is three calls over one.\n"
    "\n"
    "block: the block's forward pass alone, and forward and backward, on 64 to 65536 samples (1048576 on a GPU); on a GPU then the plans "
    "composed and fused against each other, forward for inference and both passes for training, on 64 to 1048576 "
    "samples.\n"
    "\n"
    "call: what a warm call of tlob_gemm_run_on costs the host (a product of 16 x 256 x 32, read by the clock, without "
    "waiting for the device), against one bare call of cuBLAS or cuBLASLt with the same arguments. Needs a GPU.\n"
    "\n"
    "trunk: multi-head attention with biases, forward, and forward and backward (also to its input), its three input "
    "projections stacked into one product and as three. N is the number of tokens.\n"
    "\n"
    "bias: four projections with biases (N x D by D x D; N is 256, 4096, and D 128 to 1024), fused as epilogues of "
    "cublaslt, and without epilogues: with a kernel of its own for each bias, by cublas_classic and after cublaslt's "
    "plain product. The second line of each has what fusing saves, which is to be held against the time of launching "
    "four kernels that do nothing (products of 1 x 1 x 0, each one kernel that stores one number), and what it costs "
    "above no bias at all. Needs a GPU.\n"
    "\n"
    "determinism: products by cublaslt in a graph, in a context that is not deterministic and in one that is, whatever "
    "--deterministic says: those of the block on 256 and 65536 samples, of multi-head attention of dim 256 on 4096 "
    "tokens, and squares. Needs a GPU.\n"
    "\n"
    "step: the training step of the block 32 -> 16 with its head (forward, loss, backward, Adam), as one CUDA graph "
    "that is launched for each step, and call by call; the ratio is the calls over the graph. Then its stages, each as "
    "a graph of 20 calls. Before that the losses of 50 steps, as a graph and call by call, must be equal bit for bit. "
    "Needs a GPU.\n"
    "\n"
    "latency: one decision of the block 32 -> 16 with its head: features that the host writes into mapped memory, one "
    "launch of a graph, logits and then a flag in mapped memory; by the clock, until the host sees the flag, or the event "
    "after it. The lines below have p50, p99, p99.9 and the longest of 20000 (or --repeat). Needs "
    "a GPU.\n"
    "\n"
    "Of block, trunk and step a GPU's lines also have shares of two floors, of the first and of the second time: "
    "`bytes', of the inputs and outputs, each touched once, as fast as a copy of 1 GiB reads and writes; and "
    "`launches', of as many kernels that do nothing in one graph. Both are measured in the same run; 100 % is at the "
    "floor.\n"
    "\n"
    "gemm: the problems of `tlob tune', each in one run by what cublas_classic and cublaslt choose by themselves, by "
    "the policy, by the method that --table has for it (where it has none, or without --table, by the policy), and by "
    "the best of all methods that a pre-pass has found. Shown are the least times (where the tuned one seems 2 % behind the "
    "best or more, of two measurements with operands that lie elsewhere), and what share of the tuned time it "
    "would take to touch every byte once at the speed of a copy, and to launch a kernel that does nothing.\n"
    "\n"
    "On a GPU each is timed with events, `stream' where calls are issued from the host one after the other, and "
    "`graph' where they are captured once and replayed. Each sample is the mean of several calls; those that are "
    "compared take turns. Shown are the median and, in brackets, the quartiles. With --device host the clock is read "
    "and there are no graphs.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static error_t parse_trunk(struct argp_state *state, const char *option, const char *arg, int64_t *value) {
    bench_options *options = state->input;
    *value = cli_integer(state, option, arg, 1, INT32_MAX);
    options->of_trunk = option;
    return 0;
}

// Options of some subjects alone.
static void check_subject(const struct argp_state *state, const bench_options *options) {
    if (options->samples && options->subject != SUBJECT_TRUNK && options->subject != SUBJECT_STEP)
        argp_error(state, "--samples is for `trunk' and `step', and not for `%s'", subject_names[options->subject]);
    if (options->of_trunk && options->subject != SUBJECT_TRUNK)
        argp_error(state, "%s is for `trunk', and not for `%s'", options->of_trunk, subject_names[options->subject]);
    if (options->filter && options->subject != SUBJECT_GEMM)
        argp_error(state, "--filter is for `gemm', and not for `%s'", subject_names[options->subject]);
}

// `gemm` holds the table against the policy: the context has the one without the other.
static void take_table(const struct argp_state *state, bench_options *options) {
    tlob_context_params *params = &options->context.params;
    if (params->policy.kind == TLOB_POLICY_TUNED)
        argp_error(state, "--policy tuned: `gemm' holds the methods of --table against another policy");
    options->table = params->table_path;
    params->table_path = NULL;
    if (!params->policy.kind)
        params->policy = cli_default_policy(params->memory);
}

static void check_options(const struct argp_state *state, bench_options *options) {
    if (options->subject == SUBJECT_NONE)
        argp_error(state, "say what to time: qkv, block, call, trunk, bias, determinism, step, latency or gemm");
    check_subject(state, options);
    if (options->subject == SUBJECT_GEMM)
        take_table(state, options);
    if (tlob_mha_shape_check(&options->trunk))
        argp_error(state, "%s", tlob_last_error()->message);
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    bench_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->context;
        return 0;
    case KEY_REPEAT:
        options->repeat = (int)cli_integer(state, "--repeat", arg, 1, 1000000);
        return 0;
    case KEY_SEED:
        options->seed = (uint64_t)cli_integer(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_DIM:
        return parse_trunk(state, "--dim", arg, &options->trunk.dim);
    case KEY_HEADS:
        return parse_trunk(state, "--heads", arg, &options->trunk.heads);
    case KEY_SEQ:
        return parse_trunk(state, "--seq", arg, &options->trunk.seq);
    case KEY_SAMPLES:
        options->samples = cli_integer(state, "--samples", arg, 1, INT32_MAX);
        return 0;
    case KEY_FILTER:
        options->filter = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (options->subject != SUBJECT_NONE)
            argp_error(state, "unexpected argument '%s'", arg);
        options->subject = cli_choice(state, "what to time", arg, subject_names);
        return 0;
    case ARGP_KEY_END:
        check_options(state, options);
        if (!options->samples)
            options->samples = options->subject == SUBJECT_STEP ? 256 : 64;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// --- around it ---

static bool bench_open(bench *b) {
    if (tlob_context_memory(b->ctx) == TLOB_MEMORY_CUDA && !bench_cuda_open(tlob_context_device(b->ctx), &b->cuda))
        return false;
    if (!tlob_stream_open(b->ctx, b->cuda ? bench_cuda_stream(b->cuda) : NULL, &b->stream))
        return true;
    cli_tlob_error("bench");
    return false;
}

// What the numbers depend on.
static void describe(bench *b, cJSON *json) {
    const tlob_mha_shape *shape = &b->options->trunk;
    char device[192], policy[64], cublas[64] = "none";
    tlob_settings settings;
    int driver, runtime;
    cli_context_describe(b->ctx, device, sizeof device);
    tlob_cuda_versions(&driver, &runtime);
    tlob_context_settings(b->ctx, &settings);
    tlob_policy_print(&settings.policy, policy, sizeof policy);
    tlob_backend_info info;
    for (int i = 0; i < tlob_backend_count(); i++)
        if (!tlob_backend_get_info(i, &info) && *info.version)
            snprintf(cublas, sizeof cublas, "%s", info.version);
    const char *keys[] = {"version", "device", "compute", "policy", "vendor"};
    const char *values[] = {tlob_version(), device, tlob_compute_name(settings.compute), policy, cublas};
    for (int i = 0; i < 5; i++)
        if (json)
            cJSON_AddStringToObject(json, keys[i], values[i]);
        else
            printf("%-9s%s\n", keys[i], values[i]);
    if (json) {
        cJSON_AddNumberToObject(json, "driver", driver);
        cJSON_AddNumberToObject(json, "runtime", runtime);
        cJSON_AddNumberToObject(json, "seed", (double)b->options->seed);
        if (b->options->subject == SUBJECT_TRUNK) {
            cJSON_AddNumberToObject(json, "dim", (double)shape->dim);
            cJSON_AddNumberToObject(json, "heads", (double)shape->heads);
            cJSON_AddNumberToObject(json, "seq", (double)shape->seq);
            cJSON_AddNumberToObject(json, "samples", (double)b->options->samples);
        }
        if (b->floors.bytes_us > 0) {
            bench_add_number(json, "copy_gb_per_s", b->floors.bytes_us / 1e3);
            bench_add_number(json, "kernel_us", b->floors.kernel_us);
        }
        return;
    }
    printf("CUDA     driver %d, runtime %d\nseed     %" PRIu64 "\n", driver, runtime, b->options->seed);
    if (b->options->subject == SUBJECT_TRUNK)
        printf("shape    dim %" PRId64 ", heads %" PRId64 ", seq %" PRId64 ", samples %" PRId64 "\n", shape->dim,
               shape->heads, shape->seq, b->options->samples);
    if (b->floors.bytes_us > 0)
        printf("floors   a copy reads and writes %.0f GB/s, a kernel that does nothing takes %.3f us of a graph\n",
               b->floors.bytes_us / 1e3, b->floors.kernel_us);
    if (!b->cuda)
        printf("Timed on the host by the clock: this says nothing about a GPU.\n");
    if (subjects[b->options->subject].first)
        printf("%-12s %7s  %-6s  %s, then %s: median [quartiles] in us  ratio%s\n", "what", "N", "mode",
               subjects[b->options->subject].first, subjects[b->options->subject].second,
               b->floors.bytes_us > 0 ? "  shares of the floors" : "");
}

static int run_bench(bench *b) {
    const subject *what = &subjects[b->options->subject];
    if (what->needs_gpu && !b->cuda)
        return cli_error("bench %s times the GPU's backends, and so needs a GPU", subject_names[b->options->subject]);
    if (what->has_floors && b->cuda && !bench_floors_measure(b))
        return CLI_FAILED;
    cJSON *json = b->options->json ? cJSON_CreateObject() : NULL;
    describe(b, json);
    b->json = json;
    if (json)
        b->rows = cJSON_AddArrayToObject(json, "results");
    bool good = what->run(b);
    char *text = good && json ? cJSON_Print(json) : NULL;
    if (text)
        printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return good ? CLI_OK : CLI_FAILED;
}

int cli_bench(int argc, char **argv) {
    bench_options options = {
        .subject = SUBJECT_NONE, .seed = 1, .trunk = {.dim = 256, .heads = 8, .seq = 64}};
    const struct argp argp = {own_options, parse, "WHAT", doc, children, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    bench b = {.options = &options, .ctx = cli_context_create(&options.context)};
    int status = b.ctx && bench_open(&b) ? run_bench(&b) : CLI_FAILED;
    tlob_stream_close(&b.stream);
    bench_cuda_close(&b.cuda);
    tlob_context_destroy(&b.ctx);
    return status;
}
