// The program `tlob`, from outside: what it prints, what it writes, how it fails.
#include "run.h"

#include "io/hash.h"
#include "io/safetensors.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(cli, .init = run_begin, .fini = run_end, .timeout = 240);

#define NO_GPU "CUDA_VISIBLE_DEVICES= "

static int count_lines(const char *text) {
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void expect_failure(const run_result *r, int status, const char *text, const char *what) {
    cr_expect_eq(r->status, status, "%s: exit status %d, expected %d\n%s", what, r->status, status, r->err);
    cr_expect(strstr(r->err, text), "%s: '%s' is not in: %s", what, text, r->err);
}

// --- usage ---

static const char *const commands[] = {"info", "explain", "synth", "features", "train", "eval", "parity", "bench",
                                       "algorithms", "report", "table", "tune"};
#define N_COMMANDS (sizeof commands / sizeof *commands)

Test(cli, every_command_has_a_manual) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const run_result *r = run_good("$T %s --help", commands[i]);
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: tlob %s", commands[i]);
        cr_expect(strstr(r->out, usage), "%s", r->out);
        cr_expect_str_empty(r->err);
        cr_expect(strstr(run_good("$T --help")->out, commands[i]));
    }
    cr_expect(strstr(run_good("$T eval --help")->out, " Evaluation:\n      --model"),
              "options of two groups are mixed");
    cr_expect(strstr(run_good("$T --version")->out, "tlob "));
    cr_expect(strstr(run_good("$T help")->out, "Usage"));
}

typedef struct misuse {
    const char *arguments, *expected;
} misuse;

static const misuse misuses[] = {
    {"", "Usage"},
    {"nonsense", "there is no command 'nonsense'"},
    {"info --nonsense", "unrecognized option '--nonsense'"},
    {"info extra", "unexpected argument 'extra'"},
    {"info --device gpu", "not one of: cuda, cuda:N, host"},
    {"info --device cuda:", "--device cuda:N: ''"},
    {"info --device cuda:-1", "'-1' is not a whole number"},
    {"info --device cuda:1x", "'1x' is not a whole number"},
    {"info --device host:1", "not one of"},
    {"info --compute fp64", "not one of: tf32, fp32"},
    {"info --policy fastest", "--policy:"},
    {"info --policy threshold:0", "--policy:"},
    {"info --policy fixed:blas", "cublas_classic"},
    {"explain", "three sizes"},
    {"explain 1 2", "three sizes"},
    {"explain 1 2 3 4", "unexpected argument '4'"},
    {"explain 1 2 x", "K: 'x' is not a whole number"},
    {"explain -- -1 2 3", "M: '-1'"},
    {"explain 1 2 99999999999999999999", "K: '99999999999999999999'"},
    {"explain 1 2 3 --batch -1", "--batch: '-1'"},
    {"explain 1 2 3 --threshold 0", "--threshold: '0'"},
    {"explain 1 2 3 --threshold 8 --policy threshold", "exclude each other"},
    {"explain 1 2 3 --beta nan", "--beta: 'nan'"},
    {"explain 1 2 3 --epilogue biass", "drelu_bgrad"},
    {"explain --block 1 2 3", "--block is of no product"},
    {"explain --block --batch 3", "--block is of no product"},
    {"explain --block --threshold 8", "--block is of no product"},
    {"explain 1 2 3 --d-in 8", "--d-in is of a block, and needs --block"},
    {"explain --samples 8", "--samples is of a block, and needs --block"},
    {"explain --block --samples 0", "--samples: '0'"},
    {"explain --block --axis both", "not one of: feature, time"},
    {"synth", "say where to write"},
    {"synth --out a --message b --orderbook c", "say where to write"},
    {"synth --message a", "go together"},
    {"synth --out a --rows 0", "--rows: '0'"},
    {"synth --out a --levels 51", "--levels: '51'"},
    {"synth --out a --seed ' 1'", "--seed: ' 1'"},
    {"synth --out a --rate 0", "--rate: '0'"},
    {"synth --out a --rate 1e9", "--rate: '1e9'"},
    {"features", "order-book files are needed"},
    {"features --message a", "1 --message and 0 --orderbook"},
    {"features --message a --orderbook b --out c.txt", "ends neither"},
    {"features --message a --orderbook b --axis time", "unrecognized option '--axis"},
    {"features --message a --orderbook b --odd-rows fix", "not one of: error, keep, drop"},
    {"train --message a --orderbook b", "--out FILE"},
    {"train --message a --orderbook b --out c --steps 0", "--steps: '0'"},
    {"train --message a --orderbook b --out c --batch 0", "--batch: '0'"},
    {"train --message a --orderbook b --out c --batch 1048577", "'1048577' is not a whole number from 1 to 1048576"},
    {"train --message a --orderbook b --out c --keep first", "not one of: last, best"},
    {"train --message a --orderbook b --out c --keep best", "--keep best needs --validate-every STEPS"},
    {"train --message a --orderbook b --out c --validate-every -1", "--validate-every: '-1'"},
    {"train --message a --orderbook b --out c --checkpoint-every 5", "--checkpoint-every needs --checkpoint FILE"},
    {"train --message a --orderbook b --out c --checkpoint d --checkpoint-every -1", "--checkpoint-every: '-1'"},
    {"train --message a --orderbook b --out c --lr -1", "--lr: '-1'"},
    {"train --message a --orderbook b --out c --lr inf", "--lr: 'inf'"},
    {"train --message a --orderbook b --out c --axis depth", "not one of: feature, time"},
    {"train --message a --orderbook b --out c --windows 1,,2", "--windows: '1,,2'"},
    {"train --message a --orderbook b --out c --windows 1,2,3,4,5,6,7,8,9", "--windows:"},
    {"train --message a --orderbook b --out c --theta never", "--theta: 'never'"},
    {"train --message a --orderbook b --out c --theta ' 0.1'", "--theta: ' 0.1'"},
    {"train --message a --orderbook b --out c --theta 1e-400", "--theta: '1e-400'"},
    {"train --message a --orderbook b --out c --train-share 1.5", "--train-share: '1.5'"},
    {"train --message a --orderbook b --out c --head-dim 65", "--head-dim: '65'"},
    {"eval --message a --orderbook b", "--model FILE"},
    {"eval --message a --orderbook b --model c --part none", "not one of: all, training, validation"},
    {"parity --seed x", "--seed: 'x'"},
    {"info --deterministic=maybe", "not one of: on, off"},
    {"algorithms", "a FILE is needed"},
    {"algorithms a b", "unexpected argument 'b'"},
    {"algorithms a --problems 'tlob/*'", "--problems chooses what --make looks at"},
    {"algorithms a --deterministic=off", "no table is kept"},
    {"algorithms a --make --policy threshold", "--policy: what --make chooses is for cublaslt"},
    {"algorithms a --make --policy fixed:cublas_classic", "--policy: what --make chooses is for cublaslt"},
    {"bench", "say what to time"},
    {"bench gem", "not one of: qkv, block, call, trunk, bias, determinism, step, latency, gemm"},
    {"bench qkv block", "unexpected argument 'block'"},
    {"bench qkv --repeat 0", "--repeat: '0'"},
    {"bench trunk --seq 0", "--seq: '0'"},
    {"bench trunk --samples many", "--samples: 'many'"},
    {"bench trunk --dim 255", "heads is 8, which does not divide dim, 255"},
    {"bench trunk --dim 256 --heads 1", "leaves 256 of dim 256 to each head"},
    {"bench block --samples 8", "--samples is for `trunk' and `step', and not for `block'"},
    {"bench step --seq 8", "--seq is for `trunk', and not for `step'"},
    {"bench step --samples 0", "--samples: '0'"},
};

Test(cli, wrong_usage_is_named_and_exits_2) {
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++)
        expect_failure(run("$T %s", misuses[i].arguments), 2, misuses[i].expected, misuses[i].arguments);
}

Test(cli, a_full_disk_behind_standard_output_is_a_failure) {
    const char *const all[] = {"info", "--help", "--version", "train --help", "explain 1 2 3 --device host"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        expect_failure(run("$T %s >/dev/full", all[i]), 1, "cannot write to standard output", all[i]);
        expect_failure(run("$T %s >&-", all[i]), 1, "cannot write to standard output", all[i]);
    }
}

Test(cli, what_is_printed_never_ends_up_in_a_file) {
    run_good("$T synth --out d --rows 1500 && $T synth --out e --rows 1500 2>&- && cmp d_message.csv e_message.csv");
    run("$T synth --out f --rows 1500 >&-");
    run_good("cmp d_message.csv f_message.csv && cmp d_orderbook.csv f_orderbook.csv");
}

Test(cli, an_output_never_replaces_an_input_or_the_other_output) {
    run_good("$T synth --out d --rows 1500 && cp d_message.csv old && ln -s d_message.csv link && mkdir folder");
    const char *const train[] = {"--out d_message.csv",
                                 "--out ./d_orderbook.csv",
                                 "--out link",
                                 "--out m --losses $DIR/d_message.csv",
                                 "--out m --checkpoint d_message.csv",
                                 "--out m --losses folder/../m",
                                 "--out m --checkpoint ./m",
                                 "--out m --losses n --checkpoint n",
                                 "--out m --resume m",
                                 "--out m --losses n --resume n"};
    for (size_t i = 0; i < sizeof train / sizeof *train; i++)
        expect_failure(
            run("$T train --message d_message.csv --orderbook d_orderbook.csv --device host --steps 1 %s", train[i]), 1,
            i < 5 ? "would overwrite the input" : "are one file", train[i]);
    expect_failure(run("$T features --message d_message.csv --orderbook d_orderbook.csv --out d_message.csv"), 1,
                   "--out d_message.csv would overwrite the input d_message.csv", "features");
    expect_failure(run("$T synth --message new --orderbook ./new"), 1, "cannot be one file", "synth");
    run_good("cmp d_message.csv old && test ! -e new && test ! -e m");
}

// --- without a GPU ---

Test(cli, without_a_gpu_one_line_names_device_host) {
    run_good("$T synth --out d --rows 1200");
    const char *const needs_gpu[] = {
        "train --message d_message.csv --orderbook d_orderbook.csv --out m",
        "eval --message d_message.csv --orderbook d_orderbook.csv --model m --device cuda",
        "parity --device cuda:0",
        "bench qkv",
        "bench block",
        "bench trunk",
        "bench gemm",
        "tune",
        "bench bias",
        "bench determinism",
        "bench step",
        "bench latency",
        "algorithms --make f",
    };
    for (size_t i = 0; i < sizeof needs_gpu / sizeof *needs_gpu; i++) {
        const run_result *r = run(NO_GPU "$T %s", needs_gpu[i]);
        expect_failure(r, 1, "--device host", needs_gpu[i]);
        cr_expect(!strncmp(r->err, "tlob: ", 6) && count_lines(r->err) == 1, "not one line: %s", r->err);
        cr_expect_str_empty(r->out);
    }
    cr_expect(access(run_path("m"), F_OK) != 0, "a model was written without a GPU");
}

Test(cli, info_works_without_a_gpu) {
    const run_result *r = run_good(NO_GPU "$T info");
    const char *const parts[] = {"cpu_ref         host  built in",
                                 "cublas_classic",
                                 "cublaslt",
                                 "devices         none: ",
                                 "settings of a host context",
                                 "policy          fixed:cpu_ref     default"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cr_expect(strstr(r->out, parts[i]), "'%s' is not in:\n%s", parts[i], r->out);
}

Test(cli, info_shows_where_settings_come_from) {
    const run_result *r =
        run_good(NO_GPU "TLOB_WORKSPACE_MIB=8 NVIDIA_TF32_OVERRIDE=0 $T info --device host --compute fp32");
    cr_expect(strstr(r->out, "compute         fp32              argument"), "%s", r->out);
    cr_expect(strstr(r->out, "workspace       8 MiB             environment (TLOB_WORKSPACE_MIB)"), "%s", r->out);
    cr_expect(strstr(r->out, "NVIDIA_TF32_OVERRIDE=0"), "%s", r->out);
    cr_expect(strstr(r->out, "deterministic   off               default"), "%s", r->out);
    r = run_good(NO_GPU "TLOB_DETERMINISTIC=off $T info --device host --deterministic");
    cr_expect(strstr(r->out, "deterministic   on                argument"), "%s", r->out);
    expect_failure(run(NO_GPU "TLOB_LOG=loud $T info"), 1, "TLOB_LOG='loud'", "info");
    expect_failure(run("TLOB_POLICY=best $T parity --device host"), 1, "TLOB_POLICY", "parity");
}

// --- algorithms ---

Test(cli, algorithms_tells_of_each_entry_whether_it_holds_here) {
    run_good("echo '{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": []}' > f");
    cr_expect_str_eq(run_good("$T algorithms f --device host")->out, "0 accepted, 0 rejected\n");
    run_good("echo '{\"format\": \"tlob-algorithms\", \"version\": 1, \"entries\": [{\"backend\": \"cublaslt\", "
             "\"library\": 1, \"order\": 1, \"device\": {}, \"key\": {}, \"configuration\": {}}]}' > f");
    const run_result *r = run("$T algorithms f --device host");
    expect_failure(r, 1, "f, entry 1 is rejected: this context has no backend 'cublaslt'", "algorithms");
    cr_expect(strstr(r->out, "rejected  cublaslt, f, entry 1: this context has no"), "%s", r->out);
    cr_expect(strstr(r->out, "0 accepted, 1 rejected"), "%s", r->out);
    expect_failure(run("$T algorithms none --device host"), 1, "cannot read 'none'", "algorithms");
    expect_failure(run("$T algorithms --make g --device host"), 1, "needs cublaslt", "algorithms --make");
}

// --- explain ---

typedef struct explained {
    const char *arguments, *expected;
} explained;

static const explained explanations[] = {
    {"16 256 32 --batch 3 --policy threshold", "backend    cublas_classic"},
    {"16 256 32 --batch 3 --policy threshold", "operation  sgemm_strided_batched"},
    {"64 64 64 --threshold 64", "backend    cublaslt"},
    {"64 64 63 --threshold 64", "backend    cublas_classic"},
    {"64 64 63 --threshold 63", "backend    cublaslt"},
    {"64 64 63 --threshold 63", "policy     threshold:63 (argument)"},
    {"1000 1000 1000 --policy fixed:cublas_classic", "backend    cublas_classic"},
    {"8 8 8 --policy fixed:cublaslt --epilogue relu_aux_bias", "operation  matmul_bias"},
    {"8 8 8 --policy fixed:cublaslt --epilogue gelu_aux_bias", "epilogue gelu_aux_bias"},
    {"8 8 8 --policy fixed:cublaslt --compute fp32", "numerics   fp32"},
    {"8 8 8 --policy fixed:cublaslt", "algorithm  not known"},
    {"8 8 8 --policy fixed:cublaslt", "considered cpu_ref         not able, works on host memory"},
    {"8 8 8 --device host --json", "\"numerics\":\t\"fp32\""},
    {"8 8 8 --device host --json", "\"form\":\t\"whole\""},
    {"8 8 8 --device host --json", "\"configuration\":\t\"\""},
    {"8 9 10 --device host --transa --transb", "op TT, ld 10 9 8"},
    {"8 9 10 --device host --lda 12 --ldb 13 --ldc 14", "ld 12 13 14"},
    {"8 9 10 --device host", "backend    cpu_ref"},
    {"8 9 10 --device host", "policy     fixed:cpu_ref (default)"},
    {"8 9 10 --device host", "reason     "},
    {"8 9 10 --device host", "form       whole"},
    {"16 32 65536 --transb --batch 3 --threshold 64 --device cuda", "form       loop"},
    {"16 32 65536 --transb --batch 3 --threshold 64 --device cuda", "by rule dw_batch: k = 65536 of a batch of 3"},
};

Test(cli, explain_tells_backend_policy_and_reason) {
    for (size_t i = 0; i < sizeof explanations / sizeof *explanations; i++) {
        const run_result *r = run_good(NO_GPU "$T explain %s", explanations[i].arguments);
        cr_expect(strstr(r->out, explanations[i].expected), "%s: '%s' is not in:\n%s", explanations[i].arguments,
                  explanations[i].expected, r->out);
    }
    expect_failure(run("$T explain 8 9 10 --lda 7 --policy threshold"), 1, "lda", "explain");
    expect_failure(run("$T explain 9223372036854775807 9223372036854775807 3 --policy threshold"), 1,
                   "tlob: ", "explain");
    cr_expect(strstr(run_good("TLOB_POLICY=fixed:cpu_ref $T explain 8 8 8 --device host")->out, "(environment)"));
}

// Makes `shim.so` of C source: what it defines takes the place of a library's. False where there is no compiler, or
// where the program cannot be run with it.
static bool make_shim(const char *source) {
    FILE *file = fopen(run_path("shim.c"), "w");
    cr_assert(file && fputs(source, file) >= 0 && fclose(file) == 0);
    return run("cc -shared -fPIC -fno-builtin -o shim.so shim.c && LD_PRELOAD=$PWD/shim.so $T --version")->status == 0;
}

#define NEED_SHIM(source_)                                                                                             \
    do {                                                                                                               \
        if (!make_shim(source_))                                                                                       \
            cr_skip_test("no C compiler, or a program that takes no LD_PRELOAD");                                      \
    } while (0)
#define SHIM "LD_PRELOAD=$PWD/shim.so "

Test(cli, explain_without_memory_for_its_json_fails) {
    NEED_SHIM("char *cJSON_Print(const void *json) { (void)json; return 0; }");
    expect_failure(run(SHIM "$T explain 3 3 3 --device host --json"), 1, "no memory for the JSON text", "explain");
}

// A driver's word is passed on, and a GPU that is not among those that are there is an error.
Test(cli, explain_tells_which_device_there_is_not) {
    const run_result *r = run_good(NO_GPU "$T explain 8 8 8");
    if (strstr(r->out, "which this build does not contain"))
        cr_skip_test("a build without CUDA looks for no device");
    cr_expect(strstr(r->out, "not known without a device: cudaGetDeviceCount"), "%s", r->out);
    NEED_SHIM("int cudaGetDeviceCount(int *count) { *count = 2; return 0; }");
    if (!strstr(run(SHIM "$T explain 8 8 8 --device cuda:9")->err, "machine has 2"))
        cr_skip_test("the CUDA runtime is linked into the library, and nothing can take its place");
    expect_failure(run(SHIM "$T explain 8 8 8 --device cuda:9"), 1,
                   "there is no CUDA device 9; this machine has 2, numbered from 0", "explain");
    expect_failure(run(SHIM "$T explain 8 8 8 --device cuda:2 --policy fixed:cpu_ref"), 1, "there is no CUDA device 2",
                   "explain");
}

// What a context would refuse, explain still tells: whatever the build contains, and whatever the policy comes from.
Test(cli, explain_needs_neither_a_gpu_nor_a_build_for_one) {
    const run_result *r = run_good(NO_GPU "$T explain 16 256 32");
    cr_expect(strstr(r->out, "backend    cublas_classic"), "%s", r->out);
    cr_expect(strstr(r->out, "policy     threshold:64 (default)"), "%s", r->out);
    cr_expect(strstr(r->out, "numerics   tf32"), "%s", r->out);
    r = run_good(NO_GPU "TLOB_COMPUTE=fp32 $T explain 3 3 3 --threshold 64");
    cr_expect(strstr(r->out, "numerics   fp32"), "%s", r->out);
    if (strstr(r->out, "which this build does not contain"))
        cr_expect(strstr(r->out, "picked, but not able, built without cublas_classic"), "%s", r->out);
    r = run_good("TLOB_POLICY=threshold $T explain 3 3 3 --device host");
    cr_expect(strstr(r->out, "policy     threshold:64 (environment)"), "%s", r->out);
    cr_expect(strstr(r->out, "not known: policy: threshold:64 needs cublas_classic, which works on cuda"), "%s",
              r->out);
    cr_expect(strstr(r->out, "picked, but not able, works on cuda memory"), "%s", r->out);
    expect_failure(run(NO_GPU "TLOB_POLICY=best $T explain 3 3 3"), 1, "TLOB_POLICY='best'", "explain");
    expect_failure(run(NO_GPU "TLOB_TRACE= $T explain 3 3 3"), 1, "TLOB_TRACE", "explain");
}

// Which plan, whose, and what keeps a block from being fused.
Test(cli, explain_tells_the_plan_of_a_block) {
    static const explained blocks[] = {
        {"--device host", "plan       composed"},
        {"--device host", "reason     the host has no fused kernels"},
        {"--device host", "fused      not here: the host has no fused kernels"},
        {"--device host", "block      d_in 32, d_out 16, head_dim 4, seq 1, feature axis"},
        {"--device host --block-plan composed", "reason     the context's choice"},
        {"--device host --samples 9 --inference", "samples    9, for inference"},
        {"", "plan       fused"},
        {"", "reason     the shape has fused kernels of its own"},
        {"", "taken to be one that the fused kernels are for"},
        {"--d-in 31", "plan       composed"},
        {"--d-in 31", "fused      not here: the fused kernels need d_in and d_out that are multiples of 8"},
        {"--axis time --seq 8", "reason     the shape has no fused kernels of its own"},
        {"--axis time --seq 8 --block-plan fused", "plan       fused"},
        {"--axis time --seq 129", "a seq of at most 128"},
        {"--d-in 16 --json", "\"plan\":\t\"fused\""},
        {"--d-in 31 --json", "\"obstacle\":\t\"the fused kernels need d_in"},
        {"--policy tuned --table t.json", "reason     tuned: t.json, block 1 (an H200; "},
        {"--policy tuned --table t.json --samples 2", "tuned: no entry for this block; the shape has fused"},
        {"--policy tuned:strict --table t.json --d-in 31", "plan       composed"},
    };
    run_good("printf '%%s' '{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [], \"blocks\": [{\"block\": "
             "{\"d_in\": 32, \"d_out\": 16, \"head_dim\": 4, \"seq\": 1, \"samples\": 256, \"axis\": \"feature\", "
             "\"inference\": false, \"compute\": \"tf32\"}, \"plan\": \"composed\", \"origin\": {\"device\": \"an "
             "H200\", \"sm\": 90, \"multiprocessors\": 132, \"library\": \"l\"}}]}' > t.json");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        const run_result *r = run_good(NO_GPU "$T explain --block %s", blocks[i].arguments);
        cr_expect(strstr(r->out, blocks[i].expected), "%s: '%s' is not in:\n%s", blocks[i].arguments,
                  blocks[i].expected, r->out);
    }
    expect_failure(run(NO_GPU "$T explain --block --block-plan fused --d-in 31"), 1,
                   "plan fused (the context's choice): the fused kernels need d_in", "explain");
    expect_failure(run(NO_GPU "TLOB_BLOCK_PLAN=fused $T explain --block --device host"), 1,
                   "(TLOB_BLOCK_PLAN's choice): the host has no fused kernels", "explain");
    expect_failure(run(NO_GPU "$T explain --block --policy tuned:strict --table t.json --samples 2"), 1,
                   "no entry for this block", "explain");
    expect_failure(run(NO_GPU "$T explain --block --head-dim 3"), 1, "does not divide", "explain");
}

// --- parity ---

// A backend that does nothing is wrong in as many ways as the matrix has cells.
Test(cli, each_reason_in_the_matrix_has_a_note_of_its_own) {
    NEED_SHIM("int tlob_gemm_run_on(void) { return 0; }");
    const run_result *r = run(SHIM "$T parity --device host --matrix --compute fp32");
    cr_expect_eq(r->status, 1, "%s", r->out);
    for (int i = 1; i <= 9; i++) {
        char cell[24], line[24];
        snprintf(cell, sizeof cell, "WRONG[%d]", i);
        snprintf(line, sizeof line, "\n[%d] ", i);
        cr_expect(strstr(r->out, cell) && strstr(r->out, line), "no note %d:\n%s", i, r->out);
    }
}

// --- data ---

Test(cli, synth_depends_on_its_seed_alone) {
    run_good("$T synth --out a --rows 3000 --seed 7 && $T synth --out b --rows 3000 --seed 7 && cmp a_message.csv "
             "b_message.csv && cmp a_orderbook.csv b_orderbook.csv");
    run_good("$T synth --message c.csv --orderbook d.csv.gz --rows 3000 --seed 8 --levels 3");
    cr_expect_neq(run("cmp -s a_message.csv c.csv")->status, 0);
    run_good("test $(wc -l <c.csv) = 3000 && gzip -t d.csv.gz");
    expect_failure(run("$T synth --out missing/a"), 1, "missing/a", "synth");
}

Test(cli, features_writes_both_formats) {
    run_good("$T synth --out d --rows 3000");
    const run_result *r = run_good("$T features --message d_message.csv --orderbook d_orderbook.csv --out f.csv");
    cr_expect_eq(run_figure(r->out, "rows"), 3000);
    cr_expect_eq(run_figure(r->out, "inputs"), 32);
    int samples = (int)run_figure(r->out, "samples");
    cr_expect_gt(samples, 2000);
    r = run_good("wc -l <f.csv");
    cr_expect_eq(atoi(r->out), samples + 1);
    run_good("$T features --message d_message.csv --orderbook d_orderbook.csv --seq 4 --levels 2 --windows 5,7 "
             "--out f.safetensors");
    io_error err;
    io_safetensors *file;
    cr_assert(io_safetensors_load(run_path("f.safetensors"), &file, &err), "%s", err.text);
    const io_tensor *x = io_safetensors_find(file, "x"), *label = io_safetensors_find(file, "label");
    cr_assert(x && label);
    cr_expect_eq(x->shape[1], 4);
    cr_expect_str_eq(io_safetensors_metadata(file, "windows"), "5,7");
    cr_expect_str_eq(io_safetensors_metadata(file, "seq"), "4");
    io_safetensors_free(&file);
}

Test(cli, a_fault_in_a_data_file_is_shown_with_its_line) {
    run_good("$T synth --out d --rows 1500 && sed '700s/,[0-9]*,/,9,/' d_message.csv >bad.csv && "
             "head -1400 d_message.csv >short.csv");
    const char *const command = "$T train --device host --steps 1 --out m --orderbook d_orderbook.csv --message";
    expect_failure(run("%s bad.csv", command), 1, "bad.csv: line 700, column 2", "bad type");
    expect_failure(run("%s short.csv", command), 1, "short.csv", "row counts");
    expect_failure(run("%s absent.csv", command), 1, "absent.csv", "no file");
    expect_failure(run("%s d_message.csv --levels 11", command), 1,
                   "d_orderbook.csv: the book has 10 levels and 11 were asked for: set --levels to 10 or fewer",
                   "too many levels");
    run_good("$T synth --out e --rows 1500 --levels 4");
    expect_failure(run("%s d_message.csv --message e_message.csv --orderbook e_orderbook.csv", command), 1,
                   "e_orderbook.csv: the book has 4 levels", "too few levels in the second file");
    expect_failure(run("%s d_message.csv --horizon 10000", command), 1, "tlob: ", "no label");
    expect_failure(run("%s d_message.csv --smoothing 101", command), 1, "moothing", "smoothing above horizon");
    expect_failure(run("%s d_message.csv --train-share 0", command), 1, "train", "nothing to train on");
    expect_failure(run("%s d_message.csv --head-dim 5", command), 1, "head_dim", "head_dim does not divide");
    cr_expect(access(run_path("m"), F_OK) != 0);
}

// --- train and eval ---

#define FILES "--message d_message.csv --orderbook d_orderbook.csv --device host "

// A model `m` of a few steps on 3000 rows.
static void make_model(const char *options) {
    run_good("$T synth --out d --rows 3000 && $T train " FILES "--steps 20 --out m %s", options);
}

static void expect_same_figures(const char *a, const char *b) {
    const char *const names[] = {"samples", "loss", "accuracy", "macro_f1", "majority", "mean_max"};
    for (int i = 0; i < 6; i++)
        cr_expect_eq(run_figure(a, names[i]), run_figure(b, names[i]), "%s", names[i]);
}

Test(cli, a_trained_model_beats_the_majority_and_eval_agrees_with_train) {
    static char trained[1 << 16];
    run_good("$T synth --out d --rows 20000");
    strcpy(trained, run_good("$T train " FILES "--steps 1500 --out m")->out);
    cr_expect_gt(run_figure(trained, "accuracy"), run_figure(trained, "majority") + 0.03, "%s", trained);
    cr_expect_lt(run_figure(trained, "loss"), log(3));
    cr_expect(strstr(trained, "crossed_rows"), "the reader's counters are missing:\n%s", trained);
    const run_result *r = run_good("$T eval " FILES "--model m --part validation");
    expect_same_figures(strstr(trained, "\nvalidation\n"), strstr(r->out, "\npart"));
    cr_expect(strstr(r->out, "precision") && strstr(r->out, "true \\ predicted"), "%s", r->out);
    r = run_good("$T synth --out e --rows 5000 --seed 9 && $T eval --device host --message e_message.csv --orderbook "
                 "e_orderbook.csv --model m");
    cr_expect_gt(run_figure(strstr(r->out, "\npart"), "samples"), 4000);
}

Test(cli, a_class_that_never_occurs_is_no_part_of_macro_f1) {
    run_good("$T synth --out d --rows 1500");
    const run_result *r = run_good("$T train " FILES "--theta 1 --lr 0.05 --steps 300 --out m");
    cr_expect(strstr(r->err, "tlob: warning: class up has 0 training samples"), "%s", r->err);
    cr_expect(strstr(r->err, "class down has 0 ") && count_lines(r->err) == 2, "%s", r->err);
    cr_expect_str_empty(run_good("$T train " FILES "--steps 1 --out few")->err);
    r = run_good("$T eval " FILES "--model m --part training");
    cr_expect_eq(run_figure(r->out, "majority"), 1);
    cr_expect_eq(run_figure(r->out, "accuracy"), 1);
    cr_expect_eq(run_figure(r->out, "macro_f1"), 1);
}

Test(cli, training_without_a_validation_part_says_so) {
    run_good("$T synth --out d --rows 1500");
    const run_result *r = run_good("$T train " FILES "--steps 1 --train-share 1 --out m");
    cr_expect(strstr(r->out, "\nno validation part\n"), "%s", r->out);
    cr_expect_null(strstr(r->out, "\nvalidation\n"));
}

// Neither the model nor the losses of steps depend on how often it is looked at.
Test(cli, validation_on_the_way_changes_nothing) {
    run_good("$T synth --out d --rows 3000 && $T train " FILES "--steps 25 --out m --losses a.csv");
    const run_result *r = run_good(
        "$T train " FILES "--steps 25 --out m2 --losses b.csv --validate-every 10 && cmp m m2 && cmp a.csv b.csv");
    cr_expect(strstr(r->out, "\nstep 10: validation loss ") && strstr(r->out, "\nstep 20: validation loss ") &&
                  strstr(r->out, "\nstep 25: validation loss "),
              "%s", r->out);
    cr_expect_eq(run_figure(strstr(r->out, "\nvalidation\n"), "step"), 25);
    expect_failure(run("$T train " FILES "--steps 1 --out m --validate-every 1 --train-share 1"), 1,
                   "there is no validation part", "nothing to validate");
}

// A learning rate and a few rows that overfit: the lowest loss is not that of the last step.
Test(cli, keep_best_writes_the_model_of_the_lowest_validation_loss) {
    static char trained[1 << 16];
    run_good("$T synth --out d --rows 2000");
    strcpy(trained, run_good("$T train " FILES "--steps 400 --lr 0.02 --validate-every 20 --keep best --out m")->out);
    const char *final = strstr(trained, "\nvalidation\n");
    cr_assert(final);
    int best = 0, lines = 0, step;
    double lowest = INFINITY, loss;
    for (const char *line = trained; line && line < final; line = strchr(line + 1, '\n'))
        if (sscanf(line, "\nstep %d: validation loss %lf", &step, &loss) == 2) {
            lines++;
            best = loss < lowest ? step : best;
            lowest = fmin(lowest, loss);
        }
    cr_expect_eq(lines, 20);
    cr_expect_lt(best, 400, "the training did not overfit: choose another\n%s", trained);
    cr_expect_eq(run_figure(final, "step"), best);
    cr_expect_eq(run_figure(final, "loss"), lowest);
    expect_same_figures(final, strstr(run_good("$T eval " FILES "--model m --part validation")->out, "\npart"));
    run_good("$T train " FILES "--steps %d --lr 0.02 --out m2 && cmp m m2", best);
}

Test(cli, sequences_attend_along_time) {
    static char trained[1 << 16];
    run_good("$T synth --out d --rows 3000");
    strcpy(trained, run_good("$T train " FILES "--steps 30 --axis time --seq 8 --head-dim 8 --stride 3 --out m")->out);
    const run_result *r = run_good("$T eval " FILES "--model m --part validation --axis time --seq 8");
    expect_same_figures(strstr(trained, "\nvalidation\n"), strstr(r->out, "\npart"));
    run_good("$T train " FILES "--steps 30 --seq 3 --out m2");
}

// All at a time, the attention of 250 samples would take 250 MiB for each of its matrices.
Test(cli, long_sequences_do_not_exhaust_memory) {
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the sanitizer needs more addresses than the limit leaves");
#endif
    if (strstr(run_good("$T info")->out, "cublaslt        cuda  built in"))
        cr_skip_test("the vendor's libraries need more addresses than the limit leaves");
    run_good("$T synth --out d --rows 3000");
    run_good("ulimit -v 200000; $T train " FILES "--steps 1 --batch 1 --axis time --seq 512 --stride 5 --horizon 20 "
             "--train-share 0.4 --d-out 4 --out m");
    run_good("ulimit -v 200000; $T eval " FILES "--model m");
}

Test(cli, the_same_seed_gives_the_same_model) {
    make_model("--losses a.csv");
    run_good("$T train " FILES "--steps 20 --out m2 --losses b.csv && cmp m m2 && cmp a.csv b.csv");
    cr_expect_eq(atoi(run_good("wc -l <a.csv")->out), 21);
    run_good("$T train " FILES "--steps 20 --out m3 --seed 2");
    cr_expect_neq(run("cmp -s m m3")->status, 0);
}

Test(cli, two_pairs_are_two_books) {
    run_good("$T synth --out d --rows 1500 && $T synth --out e --rows 1500 --seed 2");
    const run_result *r = run_good("$T train --device host --steps 5 --out m --message d_message.csv --orderbook "
                                   "d_orderbook.csv --message e_message.csv --orderbook e_orderbook.csv");
    cr_expect(strstr(r->out, "e_orderbook.csv"), "%s", r->out);
}

Test(cli, a_loss_that_is_not_finite_ends_the_training) {
    make_model("");
    run_good("cp m old");
    expect_failure(run("$T train " FILES "--steps 200 --lr 1e30 --out m --losses l.csv"), 1, "diverged", "lr 1e30");
    run_good("cmp m old && test -s l.csv");
}

Test(cli, out_is_tried_before_the_training) {
    run_good("$T synth --out d --rows 1500 && mkdir folder");
    expect_failure(run("$T train " FILES "--steps 1000000 --out missing/m"), 1, "missing/m", "no folder");
    expect_failure(run("$T train " FILES "--steps 1000000 --out folder"), 1, "folder", "a folder");
    expect_failure(run("$T train " FILES "--steps 1000000 --out m --losses missing/l"), 1, "missing/l", "losses");
    expect_failure(run("$T train " FILES "--steps 1000000 --out m --checkpoint missing/c"), 1, "missing/c",
                   "checkpoint");
}

Test(cli, ctrl_c_writes_the_model_so_far) {
    run_good("$T synth --out d --rows 1500");
    const run_result *r = run("$T train " FILES "--steps 100000000 --out m & sleep 2; kill -INT $!; wait $!");
    expect_failure(r, 130, "interrupted after step", "SIGINT");
    run_good("$T eval " FILES "--model m");
}

// Waits until the file aside is there and signals then.
static void expect_clean_interrupt(const char *command, const char *signal) {
    const run_result *r = run("%s & i=0; until ls -A | grep -q 'tmp$' || test $i = 2000; do i=$((i+1)); sleep 0.005; "
                              "done; kill -%s $!; wait $!",
                              command, signal);
    expect_failure(r, 130, "interrupted", command);
    run_good("test -z \"$(ls -A | grep tmp)\"");
}

Test(cli, an_interrupt_leaves_no_file_aside) {
    expect_clean_interrupt("$T synth --out big --rows 1000000000", "INT");
    expect_clean_interrupt("$T synth --message m.csv --orderbook o.csv.gz --rows 1000000000", "TERM");
    run_good("test ! -e big_message.csv && test ! -e m.csv && test ! -e o.csv.gz");
    run_good("$T synth --out d --rows 60000 && echo old >f.csv");
    expect_clean_interrupt("$T features --message d_message.csv --orderbook d_orderbook.csv --out f.csv", "INT");
    run_good("test $(cat f.csv) = old");
    expect_clean_interrupt("$T features --message d_message.csv --orderbook d_orderbook.csv --out f.csv", "TERM");
}

Test(cli, a_write_that_fails_leaves_the_old_file) {
    make_model("");
    run_good("cp m old");
    const run_result *r = run("(ulimit -f 1; $T train " FILES "--steps 20 --seed 3 --out m >/dev/null)");
    expect_failure(r, 1, "m: write failed", "ulimit -f 1");
    run_good("cmp m old && test -z \"$(ls -A | grep tmp)\"");
    run("$T train " FILES "--steps 100000000 --out m & sleep 1; kill -KILL $!; wait $!");
    run_good("cmp m old");
}

// --- checkpoints ---

// Whatever a run looks like, stopped and resumed it writes the bytes of one that went through.
static const char *const resumed_runs[] = {
    "",
    "--axis time --seq 4 --head-dim 8 --stride 3 --batch 17 --lr 0.01",
    "--lr 0.02 --validate-every 50 --keep best",
    "--lr 0.02 --validate-every 7 --keep best --horizon 50 --theta half-spread --train-share 0.7 --seed 9",
};

Test(cli, a_run_that_stops_and_resumes_writes_the_bytes_of_one_that_did_not) {
    run_good("$T synth --out d --rows 2000");
    for (size_t i = 0; i < sizeof resumed_runs / sizeof *resumed_runs; i++) {
        const char *options = resumed_runs[i];
        run_good("$T train " FILES "--steps 300 --out whole --losses whole.csv --checkpoint whole.ckpt %s", options);
        run_good("$T train " FILES "--steps 120 --out part --losses 1.csv --checkpoint c %s", options);
        cr_expect(strstr(options, "best") || run("cmp -s whole part")->status != 0, "%s: 120 steps are as good as 300",
                  options);
        run_good("$T train " FILES "--steps 131 --out part --losses 2.csv --resume c --checkpoint c %s", options);
        const run_result *r = run_good("$T train " FILES "--steps 300 --out resumed --losses 3.csv --resume c "
                                       "--checkpoint c2 --checkpoint-every 60 %s",
                                       options);
        cr_expect(strstr(r->out, "\nresumed    step 131 of c\n") && strstr(r->out, "\ntrained    169 steps"), "%s",
                  r->out);
        run_good("cmp whole resumed && cmp whole.ckpt c2");
        run_good("cat 1.csv 2.csv 3.csv | grep -v step >parts.csv; grep -v step whole.csv | cmp - parts.csv");
    }
}

// The best so far is of before the stop: it and its figures must come from the checkpoint.
Test(cli, the_best_model_of_before_the_stop_is_kept) {
    static char whole[1 << 16];
    const char *const options = "--lr 0.02 --validate-every 20 --keep best";
    run_good("$T synth --out d --rows 2000");
    strcpy(whole, run_good("$T train " FILES "--steps 400 --out whole %s", options)->out);
    const char *final = strstr(whole, "\nvalidation\n");
    cr_assert(final);
    int kept = (int)run_figure(final, "step");
    cr_assert(kept < 380, "nothing overfits: the best is of step %d", kept);
    run_good("$T train " FILES "--steps %d --out part --checkpoint c %s", kept + 10, options);
    const run_result *r = run_good("$T train " FILES "--steps 400 --out resumed --resume c %s", options);
    cr_expect(strstr(r->out, final), "the figures at the end are not those of one run:\n%s", r->out);
    run_good("cmp whole resumed");
    // A run looks at its last step too, but one that goes on must not keep what the unbroken one never saw.
    const char *const rarely = "--lr 0.02 --validate-every 400 --keep best";
    run_good("$T train " FILES "--steps 400 --out whole %s", rarely);
    run_good("$T train " FILES "--steps %d --out part --checkpoint c %s", kept, rarely);
    run_good("$T train " FILES "--steps 400 --out resumed --resume c %s && cmp whole resumed", rarely);
}

Test(cli, ctrl_c_writes_a_checkpoint_that_resumes) {
    run_good("$T synth --out d --rows 1500");
    const run_result *r = run("$T train " FILES "--steps 100000000 --out m --checkpoint c & sleep 1; kill -INT $!; "
                              "wait $!");
    expect_failure(r, 130, "--resume goes on from c", "SIGINT");
    int done = 0;
    cr_assert(sscanf(strstr(r->err, "interrupted after step "), "interrupted after step %d", &done) == 1);
    run_good("$T train " FILES "--steps %d --out resumed --resume c", done + 5);
    run_good("$T train " FILES "--steps %d --out whole && cmp whole resumed", done + 5);
}

// What a power failure leaves: the checkpoint of the last time.
Test(cli, a_run_that_is_killed_resumes_from_its_last_checkpoint) {
    run_good("$T synth --out d --rows 1500");
    run("$T train " FILES "--steps 100000000 --out m --checkpoint c --checkpoint-every 25 & i=0; until test -e c || "
        "test $i = 2000; do i=$((i+1)); sleep 0.005; done; sleep 0.2; kill -KILL $!; wait $!");
    const run_result *r = run("$T train " FILES "--steps 1 --out m --resume c");
    int done = 0;
    expect_failure(r, 1, "to go on, give more --steps than 1", "nothing is left to do");
    cr_assert(sscanf(r->err, "tlob: c: of step %d", &done) == 1 && done % 25 == 0, "%s", r->err);
    run_good("$T train " FILES "--steps %d --out resumed --resume c", done + 5);
    run_good("$T train " FILES "--steps %d --out whole && cmp whole resumed", done + 5);
}

// Between the last checkpoint and the model a run may be killed too, or the disk full: the model is all that is left to
// do.
Test(cli, a_run_whose_model_alone_is_missing_resumes_to_write_it) {
    run_good("$T synth --out d --rows 2000");
    for (size_t i = 0; i < sizeof resumed_runs / sizeof *resumed_runs; i++) {
        const char *options = resumed_runs[i];
        run_good("$T train " FILES "--steps 52 --out whole --checkpoint c %s && cp c before", options);
        const run_result *r =
            run_good("$T train " FILES "--steps 52 --out resumed --checkpoint c --resume c --losses l.csv %s", options);
        cr_expect(strstr(r->out, "\ntrained    0 steps"), "%s", r->out);
        run_good("cmp whole resumed && cmp before c && echo step,loss | cmp - l.csv");
    }
}

Test(cli, a_checkpoint_of_another_run_is_refused_by_what_differs) {
    static const misuse others[] = {
        {"--batch 32", "c: of a run with batch 64, and this one has batch 32: give the options"},
        {"--seed 2", "seed 1, and this one has seed 2"},
        {"--lr 0.01", "lr 0.00100000005, and this one has lr 0.00999999978"},
        {"--d-out 8", "d-out 16, and"},
        {"--head-dim 8", "head-dim 4, and"},
        {"--axis time", "axis feature, and"},
        {"--seq 2", "seq 1, and"},
        {"--stride 2", "stride 1, and"},
        {"--levels 4", "levels 8, and"},
        {"--windows 1,10,50,100", "windows 1,10,50,200, and"},
        {"--horizon 50", "horizon 100, and"},
        {"--smoothing 10", "smoothing 20, and"},
        {"--theta half-spread", "theta-mode mean, and"},
        {"--train-share 0.7", "train-share 0.80000000000000004, and"},
        {"--odd-rows keep", "odd-rows error, and"},
        {"--drop-hidden", "drop-hidden 0, and"},
        {"--validate-every 5 --keep best", "keep last, and"},
    };
    run_good("$T synth --out d --rows 2000 && $T train " FILES "--steps 5 --out m --checkpoint c && cp m old");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_failure(run("$T train " FILES "--steps 10 --out m --resume c %s", others[i].arguments), 1,
                       others[i].expected, others[i].arguments);
    expect_failure(run("TLOB_WORKSPACE_MIB=8 $T train " FILES "--steps 10 --out m --resume c"), 1,
                   "workspace-mib 32, and this one has workspace-mib 8", "another workspace");
    expect_failure(run("$T train " FILES "--steps 10 --out m --resume c --deterministic"), 1,
                   "deterministic off, and this one has deterministic on", "another way to choose algorithms");
    run_good("cmp m old && grep -aq block_plan c"); // of which a host has but one
    run_good("$T train " FILES "--steps 10 --out m --resume c --validate-every 5"); // changes nothing of the run
    run_good("$T train " FILES "--steps 5 --out b --checkpoint c --validate-every 5 --keep best");
    expect_failure(run("$T train " FILES "--steps 10 --out b --resume c --validate-every 4 --keep best"), 1,
                   "validate-every 5, and this one has validate-every 4", "another grid");
}

Test(cli, a_checkpoint_of_other_data_is_refused) {
    const char *const train = "$T train --device host --steps 10 --out m --resume c --orderbook d_orderbook.csv "
                              "--message d_message.csv";
    run_good("$T synth --out d --rows 2000 && $T synth --out e --rows 2000 --seed 2 && $T train " FILES
             "--theta 1e-4 --steps 5 --out m --checkpoint c");
    expect_failure(run("$T train --device host --steps 10 --out m --resume c --theta 1e-4 --message e_message.csv "
                       "--orderbook e_orderbook.csv"),
                   1, "c: of a run on other samples, though there are as many", "another day");
    expect_failure(run("%s --theta 1e-4 --message e_message.csv --orderbook e_orderbook.csv", train), 1,
                   "training-samples ", "another day more");
    expect_failure(run("%s --theta 2e-4", train), 1, "theta 0.0001", "another theta");
    // One size in one row: nothing but the hash can see it.
    run_good("awk -F, -v OFS=, 'NR == 1500 { $2 += 1 } 1' d_orderbook.csv >f.csv && ! cmp -s f.csv d_orderbook.csv");
    expect_failure(run("$T train --device host --steps 10 --out m --resume c --theta 1e-4 --message d_message.csv "
                       "--orderbook f.csv --odd-rows error"),
                   1, "c: of a run on other samples", "another row");
    run_good("%s --theta 1e-4", train);
}

Test(cli, a_checkpoint_of_another_version_is_a_warning) {
    run_good("$T synth --out d --rows 1500 && $T train " FILES "--steps 5 --out m --checkpoint c");
    cr_expect_str_empty(run_good("$T train " FILES "--steps 6 --out m --resume c")->err);
    NEED_SHIM("const char *tlob_version(void) { return \"77.7\"; }");
    const run_result *r = run_good(SHIM "$T train " FILES "--steps 6 --out m --resume c");
    cr_expect(strstr(r->err, "tlob: warning: c: of a run on tlob ") &&
                  strstr(r->err, "this is tlob 77.7, host, cpu_ref"),
              "%s", r->err);
    cr_expect_eq(count_lines(r->err), 1, "%s", r->err);
}

// Every byte is covered: one that is changed is found, wherever it is.
Test(cli, a_checkpoint_that_is_cut_off_foreign_or_damaged_is_one_clear_error) {
    static const char *const command = "$T train " FILES "--steps 10 --out x --validate-every 5 --keep best --resume";
    static const misuse files[] = {{"cut", "cut"},
                                   {"tiny", "no safetensors file"},
                                   {"empty", "no safetensors file"},
                                   {"longer", "1 byte"},
                                   {"m", "its format is 'tlob-model 1'"},
                                   {"d_message.csv", "d_message.csv"},
                                   {"absent", "absent"},
                                   {".", "regular file"}};
    run_good("$T synth --out d --rows 2000 && $T train " FILES "--steps 5 --out m --validate-every 5 --keep best "
             "--checkpoint c");
    run_good("head -c -100 c >cut; head -c 4 c >tiny; : >empty; (cat c; echo) >longer");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const run_result *r = run("%s %s", command, files[i].arguments);
        expect_failure(r, 1, files[i].expected, files[i].arguments);
        cr_expect_eq(count_lines(r->err), 1, "%s: not one line: %s", files[i].arguments, r->err);
    }
    long size = atol(run_good("wc -c <c")->out);
    for (long at = 3; at < size; at += size / 25) {
        FILE *file = fopen(run_path("c"), "r+b");
        cr_assert(file && fseek(file, at, SEEK_SET) == 0);
        int byte = fgetc(file);
        cr_assert(fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 4, file) != EOF && fclose(file) == 0);
        const run_result *r = run("%s c", command);
        expect_failure(r, 1, "tlob: c: ", "a byte that is changed");
        cr_expect_eq(count_lines(r->err), 1, "byte %ld: not one line: %s", at, r->err);
        file = fopen(run_path("c"), "r+b");
        cr_assert(file && fseek(file, at, SEEK_SET) == 0 && fputc(byte, file) != EOF && fclose(file) == 0);
    }
    run_good("test ! -e x");
    run_good("%s c", command);
}

Test(cli, a_checkpoint_that_cannot_be_written_ends_the_run_and_stays_as_it_was) {
    run_good("$T synth --out d --rows 1500 && $T train " FILES "--steps 5 --out m --checkpoint c && cp c old");
    const run_result *r = run("(ulimit -f 1; $T train " FILES "--steps 20 --out m --resume c --checkpoint c "
                              "--checkpoint-every 10 >/dev/null)");
    expect_failure(r, 1, "c: write failed", "ulimit -f 1");
    run_good("cmp c old && test -z \"$(ls -A | grep tmp)\"");
}

/* The work of a long run is not lost with the disk of its checkpoints. */
Test(cli, a_checkpoint_that_cannot_be_written_leaves_the_model_so_far) {
    run_good("$T synth --out d --rows 1500 && $T train " FILES "--steps 10 --out want");
    for (int at_the_end = 0; at_the_end < 2; at_the_end++) {
        const run_result *r = run("mkdir full && ulimit -f 30; $T train " FILES "--steps %d --out m "
                                  "--checkpoint full/c %s >/dev/null", at_the_end ? 10 : 50,
                                  at_the_end ? "" : "--checkpoint-every 10");
        expect_failure(r, 1, "full/c: write failed", "the checkpoint");
        cr_expect(strstr(r->err, "ended after step 10 of"), "%s", r->err);
        run_good("cmp m want && rm -r m full");
    }
}

Test(cli, what_has_diverged_is_no_checkpoint) {
    static const char *const command = "$T train " FILES "--batch 4 --out m --checkpoint c";
    run_good("$T synth --out d --rows 1500");
    expect_failure(run("%s --steps 5 --lr 1e30", command), 1, "training has diverged", "a loss that is not finite");
    expect_failure(run("%s --steps 2 --lr 1e10", command), 1, "not written, for \"adam_v\" is not finite",
                   "a finite loss, and moments that are not");
    run_good("test ! -e c && test ! -e m");
}

// --- models that are not what they should be ---

typedef struct tampering {
    const char *tensor; // to change: drop it, or give it another shape or a NaN
    enum { DROP, RESHAPE, MAKE_NAN, MAKE_NEGATIVE, RETYPE } how;
    const char *key, *value; // or the metadata to set (value NULL: to drop)
    const char *expected;
} tampering;

static const tampering tamperings[] = {
    {"w_k", DROP, NULL, NULL, "\"w_k\" is missing"},
    {"b_head", DROP, NULL, NULL, "\"b_head\" is missing"},
    {"std", DROP, NULL, NULL, "\"std\" is missing"},
    {"w_q", RESHAPE, NULL, NULL, "\"w_q\" has rank 2 and first sizes 32, 16"},
    {"mean", RESHAPE, NULL, NULL, "\"mean\" has rank 2"},
    {"w_o", RETYPE, NULL, NULL, "\"w_o\" has type I32"},
    {"w_head", MAKE_NAN, NULL, NULL, "\"w_head\" is not finite at element 1"},
    {"mean", MAKE_NAN, NULL, NULL, "\"mean\" is not finite at element 1"},
    {"std", MAKE_NEGATIVE, NULL, NULL, "\"std\" is negative at element 1"},
    {NULL, DROP, "format", NULL, "\"format\" is missing"},
    {NULL, DROP, "format", "tlob-model 2", "tlob-model 2"},
    {NULL, DROP, "seq", NULL, "\"seq\" is missing"},
    {NULL, DROP, "seq", "two", "\"seq\" is 'two'"},
    {NULL, DROP, "seq", "0", "\"seq\" is '0'"},
    {NULL, DROP, "seq", "2", "\"w_head\""},
    {NULL, DROP, "d_in", "31", "levels times windows is 32 inputs, d_in is 31"},
    {NULL, DROP, "d_out", "1000000", "\"w_q\""},
    {NULL, DROP, "head_dim", "5", "head_dim"},
    {NULL, DROP, "axis", "sideways", "\"axis\" is 'sideways'"},
    {NULL, DROP, "levels", "4", "levels times windows"},
    {NULL, DROP, "windows", "1,x", "\"windows\" is '1,x'"},
    {NULL, DROP, "smoothing", "500", "smoothing 500 is more than horizon 100"},
    {NULL, DROP, "theta", "nan", "\"theta\" is 'nan'"},
    {NULL, DROP, "theta_mode", "", "\"theta_mode\" is ''"},
    {NULL, DROP, "odd_rows", "mend", "\"odd_rows\" is 'mend'"},
    {NULL, DROP, "drop_hidden", "2", "\"drop_hidden\" is '2'"},
    {NULL, DROP, "train_share", "2", "\"train_share\" is '2'"},
    {NULL, DROP, "lr", "", "\"lr\" is ''"},
};

static const char *const meta_keys[] = {"format",   "version",     "d_in",        "d_out",      "head_dim",  "axis",
                                        "seq",      "levels",      "windows",     "horizon",    "smoothing", "stride",
                                        "odd_rows", "drop_hidden", "train_share", "theta_mode", "theta",     "seed",
                                        "steps",    "batch",       "lr"};
#define N_META (sizeof meta_keys / sizeof *meta_keys)

static void change(io_tensor *tensor, const tampering *t) {
    if (t->how == RESHAPE && tensor->rank == 2) {
        int64_t rows = tensor->shape[0];
        tensor->shape[0] = tensor->shape[1];
        tensor->shape[1] = rows;
    } else if (t->how == RESHAPE) {
        tensor->rank = 2;
        tensor->shape[1] = 1;
    } else if (t->how == RETYPE) {
        tensor->dtype = io_dtype_size(tensor->dtype) == 8 ? IO_U64 : IO_I32;
    } else {
        float *copy = malloc(tensor->bytes);
        memcpy(copy, tensor->data, tensor->bytes);
        copy[1] = t->how == MAKE_NAN ? NAN : -1; // of an I64: the sign of element 0
        tensor->data = copy;                     // lives as long as the test's process
    }
}

// What a checkpoint's checksum is of: every key but its own, in the order of the file, and every tensor that it has.
static uint64_t checksum_of(const io_metadata *meta, int n_meta, const io_tensor *tensors, int n_tensors) {
    static const char *const order[] = {"weights",      "adam_m",       "adam_v",
                                        "best_weights", "best_figures", "best_confusion"};
    uint64_t hash = IO_HASH_EMPTY;
    for (int i = 0; i < n_meta; i++) {
        hash = io_hash(hash, meta[i].key, strlen(meta[i].key) + 1);
        hash = io_hash(hash, meta[i].value, strlen(meta[i].value) + 1);
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int j = 0; j < n_tensors; j++)
            if (!strcmp(order[i], tensors[j].name)) {
                hash = io_hash(hash, order[i], strlen(order[i]) + 1);
                hash = io_hash(hash, tensors[j].data, tensors[j].bytes);
            }
    return hash;
}

// Writes `file`, which has these keys, as `t`, changed; a checkpoint is sealed with the checksum of what it has then.
static void tamper(const io_safetensors *file, const tampering *t, const char *const *keys, size_t n_keys, bool seal) {
    io_tensor tensors[16];
    io_metadata meta[64];
    char checksum[32];
    int n_tensors = 0, n_meta = 0;
    for (int i = 0; i < io_safetensors_count(file); i++) {
        io_tensor tensor = *io_safetensors_at(file, i);
        bool hit = t->tensor && !strcmp(t->tensor, tensor.name);
        if (hit && t->how == DROP)
            continue;
        if (hit)
            change(&tensor, t);
        tensors[n_tensors++] = tensor;
    }
    for (size_t i = 0; i < n_keys; i++) {
        bool hit = t->key && !strcmp(t->key, keys[i]);
        const char *value = hit ? t->value : io_safetensors_metadata(file, keys[i]);
        if (value)
            meta[n_meta++] = (io_metadata){keys[i], value};
        else
            cr_assert(hit, "a file has no metadata \"%s\"", keys[i]);
    }
    if (seal) {
        snprintf(checksum, sizeof checksum, "%016" PRIx64, checksum_of(meta, n_meta, tensors, n_tensors));
        meta[n_meta++] = (io_metadata){"checksum", checksum};
    }
    cr_assert(io_safetensors_save(run_path("t"), tensors, n_tensors, meta, n_meta, NULL));
}

Test(cli, a_model_that_was_tampered_with_is_refused_by_name) {
    make_model("");
    io_safetensors *file;
    cr_assert(io_safetensors_load(run_path("m"), &file, NULL));
    for (size_t i = 0; i < sizeof tamperings / sizeof *tamperings; i++) {
        tamper(file, &tamperings[i], meta_keys, N_META, false);
        expect_failure(run("$T eval " FILES "--model t"), 1, tamperings[i].expected, tamperings[i].expected);
    }
    io_safetensors_free(&file);
}

static const tampering forgeries[] = {
    {"weights", DROP, NULL, NULL, "\"weights\" is missing: not a checkpoint"},
    {"weights", RESHAPE, NULL, NULL, "\"weights\" has rank 2"},
    {"weights", MAKE_NAN, NULL, NULL, "\"weights\" is not finite at element 1"},
    {"adam_m", RETYPE, NULL, NULL, "\"adam_m\" has type I32"},
    {"adam_v", MAKE_NEGATIVE, NULL, NULL, "\"adam_v\" is negative at element 1"},
    {"best_weights", DROP, NULL, NULL, "\"best_weights\" is missing"},
    {"best_figures", DROP, NULL, NULL, "\"best_figures\" is missing"},
    {"best_confusion", DROP, NULL, NULL, "\"best_confusion\" is missing"},
    {"best_confusion", RETYPE, NULL, NULL, "\"best_confusion\""},
    {"best_confusion", MAKE_NEGATIVE, NULL, NULL, "\"best_confusion\" counts -"},
    {NULL, DROP, "format", "tlob-checkpoint 2", "its format is 'tlob-checkpoint 2'"},
    {NULL, DROP, "horizon", NULL, "\"horizon\" is missing: not a checkpoint"},
    {NULL, DROP, "horizon", "50", "horizon 50, and this one has horizon 100"},
    {NULL, DROP, "device", "cuda", "device cuda, and this one has device host"},
    {NULL, DROP, "compute", "tf32", "compute tf32, and this one has compute fp32"},
    {NULL, DROP, "policy", "threshold:64", "policy threshold:64, and this one has policy fixed:cpu_ref"},
    {NULL, DROP, "steps", "-1", "\"steps\" is '-1'"},
    {NULL, DROP, "steps", "9007199254740993", "\"steps\" is '9007199254740993'"},
    {NULL, DROP, "draw", "x", "\"draw\" is 'x'"},
    {NULL, DROP, "best_step", "6", "\"best_step\" is '6', not a whole number from 0 to 5"},
};

static const char *const checkpoint_keys[] = {"format",
                                              "version",
                                              "device",
                                              "compute",
                                              "policy",
                                              "deterministic",
                                              "block_plan",
                                              "workspace_mib",
                                              "keep",
                                              "validate_every",
                                              "levels",
                                              "windows",
                                              "d_in",
                                              "d_out",
                                              "head_dim",
                                              "axis",
                                              "seq",
                                              "horizon",
                                              "smoothing",
                                              "stride",
                                              "odd_rows",
                                              "drop_hidden",
                                              "train_share",
                                              "theta_mode",
                                              "theta",
                                              "seed",
                                              "batch",
                                              "lr",
                                              "training_samples",
                                              "validation_samples",
                                              "data",
                                              "machine",
                                              "steps",
                                              "draw",
                                              "best_step"};

// With a checksum that is right: what a program that is not `tlob train' may write.
Test(cli, a_forged_checkpoint_is_refused_by_name) {
    static const char *const command = "$T train " FILES "--steps 10 --out x --validate-every 5 --keep best --resume t";
    const size_t n_keys = sizeof checkpoint_keys / sizeof *checkpoint_keys;
    run_good("$T synth --out d --rows 2000 && $T train " FILES "--steps 5 --out m --validate-every 5 --keep best "
             "--checkpoint c");
    io_safetensors *file;
    cr_assert(io_safetensors_load(run_path("c"), &file, NULL));
    tamper(file, &(tampering){0}, checkpoint_keys, n_keys, true);
    run_good("%s && cmp c t", command);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        tamper(file, &forgeries[i], checkpoint_keys, n_keys, true);
        expect_failure(run("%s", command), 1, forgeries[i].expected, forgeries[i].expected);
    }
    io_safetensors_free(&file);
}

Test(cli, a_damaged_model_is_refused) {
    make_model("");
    run_good("head -c 1000 m >cut; head -c 4 m >tiny; : >empty; tail -c +2 m >shifted; (cat m; echo) >longer");
    const char *const names[] = {"cut", "tiny", "empty", "shifted", "longer", "d_message.csv", "absent", "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_failure(run("$T eval " FILES "--model %s", names[i]), 1, names[i], names[i]);
}

// Left out or not, hidden executions change every window of events.
Test(cli, eval_reads_files_as_the_model_was_trained) {
    static char trained[1 << 16];
    run_good("$T synth --out d --rows 3000 --hidden 0.3");
    strcpy(trained, run_good("$T train " FILES "--steps 5 --drop-hidden --out m")->out);
    cr_expect_gt(run_figure(trained, "hidden_rows_dropped"), 0);
    expect_same_figures(strstr(trained, "\nvalidation\n"),
                        strstr(run_good("$T eval " FILES "--model m --part validation")->out, "\npart"));
    run_good("$T eval " FILES "--model m --drop-hidden --odd-rows keep");
    run_good("$T train " FILES "--steps 5 --out m");
    expect_failure(run("$T eval " FILES "--model m --drop-hidden"), 1, "--drop-hidden was asked for", "eval");
}

Test(cli, eval_refuses_options_that_differ_from_the_model) {
    make_model("--horizon 50");
    run_good("$T eval " FILES "--model m --horizon 50 --seq 1 --axis feature --windows 1,10,50,200 --theta mean");
    const misuse differs[] = {
        {"--horizon 100", "--horizon 100 was asked for, but m was made with horizon 50"},
        {"--seq 4", "--seq 4 was asked for, but m was made with seq 1"},
        {"--axis time", "--axis time was asked for, but m was made with axis feature"},
        {"--levels 4", "levels 8"},
        {"--windows 1,2", "windows 1,10,50,200"},
        {"--smoothing 10", "smoothing 20"},
        {"--theta half-spread", "theta mean"},
        {"--theta 0.5", "theta mean"},
        {"--stride 2", "stride 1"},
        {"--train-share 0.5", "train-share 0.8"},
    };
    for (size_t i = 0; i < sizeof differs / sizeof *differs; i++)
        expect_failure(run("$T eval " FILES "--model m %s", differs[i].arguments), 1, differs[i].expected,
                       differs[i].arguments);
    run_good("$T synth --out e --rows 1500 --levels 5");
    expect_failure(run("$T eval --device host --message e_message.csv --orderbook e_orderbook.csv --model m"), 1,
                   "e_orderbook.csv: the book has 5 levels and the model reads 8", "too few levels");
}

// --- parity and bench ---

Test(cli, parity_on_the_host) {
    const run_result *r = run_good("$T parity --device host --filter 'tlob/*'");
    cr_expect(strstr(r->out, "cpu_ref") && strstr(r->out, " 0 failed"), "%s", r->out);
    run_good("$T parity --device host --backend cpu_ref --compute fp32 --filter 'tlob/q*' --verbose | grep -q '^ok'");
    run_good("test $($T parity --list | wc -l) -gt 100");
    expect_failure(run("$T parity --device host --filter 'no such case'"), 1, "no such case", "filter");
    expect_failure(run("$T parity --device host --backend cublaslt"), 1, "cublaslt", "a GPU's backend");
}

Test(cli, bench_on_the_host_says_what_it_is) {
    const run_result *r = run_good("$T bench qkv --device host --repeat 1");
    cr_expect(strstr(r->out, "says nothing about a GPU"), "%s", r->out);
    cr_expect(strstr(r->out, "qkv_dw          4096  wall"), "%s", r->out);
    r = run_good("$T bench qkv --device host --repeat 3 --json");
    cr_expect(strstr(r->out, "\"ratio\"") && strstr(r->out, "\"seed\":"), "%s", r->out);
}

Test(cli, bench_trunk_on_the_host) {
    const char small[] = "$T bench trunk --device host --repeat 1 --dim 12 --heads 3 --seq 5 --samples 7";
    const run_result *r = run_good("%s", small);
    cr_expect(strstr(r->out, "dim 12, heads 3, seq 5, samples 7"), "%s", r->out);
    cr_expect(strstr(r->out, "trunk             35  wall") && strstr(r->out, "trunk_both        35  wall"), "%s", r->out);
    r = run_good("%s --json", small);
    cr_expect(strstr(r->out, "\"stacked\":") && strstr(r->out, "\"separate\":"), "%s", r->out);
    cr_expect(strstr(r->out, "\"samples\":\t7"), "%s", r->out);
    r = run("$T bench trunk --device host --seq 1073741824 --samples 16777216"); // 2^64 bytes of x, and more of Q, K, V
    expect_failure(r, 1, "an array would exceed 2^63 bytes", "a size that overflows");
}

Test(cli, bench_of_what_the_gpu_alone_has_is_refused_on_the_host) {
    const char *const all[] = {"bench call", "bench bias", "bench determinism", "bench step"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const run_result *r = run("$T %s --device host --json", all[i]);
        expect_failure(r, 1, "needs a GPU", all[i]);
        cr_expect_str_empty(r->out);
    }
}

// --- real order books ---

static void train_on(const char *folder, const char *message, const char *orderbook, const char *options) {
    const char *shared = run_shared();
    if (!shared)
        cr_skip_test("the folder with real order books is not here: set TLOB_SHARED");
    run_good("$T train --device host --steps 10 --out m --message %s/data/%s/%s --orderbook %s/data/%s/%s %s", shared,
             folder, message, shared, folder, orderbook, options);
}

Test(cli, trains_on_999_real_rows) {
    train_on("lobster_aapl_l10_999", "AAPL_2012-06-21_34200000_57600000_message_10.csv",
             "AAPL_2012-06-21_34200000_57600000_orderbook_10.csv", "--horizon 20 --smoothing 5");
}

Test(cli, trains_on_45_minutes_of_real_rows) {
    train_on("lobster_aapl_l10_45min", "AAPL_2012-06-21_34200000_36900000_message_10.csv.gz",
             "AAPL_2012-06-21_34200000_36900000_orderbook_10.csv.gz", "");
}
