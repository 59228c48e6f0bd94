// Training on a GPU against training on the oracle, through the program.
#include "run.h"

#include <tlob/tlob.h>

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static void begin(void) {
    int count = 0;
    if (tlob_device_count(&count) || !count)
        cr_skip_test("no GPU");
    run_begin();
    run_good("$T synth --out d --rows 20000");
}

TestSuite(gpu_train, .init = begin, .timeout = 280);

#define TRAIN "$T train --message d_message.csv --orderbook d_orderbook.csv --steps 200 --compute fp32 "

// Both files have the losses of 200 steps; the largest difference of one step.
static double largest_difference(const char *a, const char *b) {
    char path[256];
    snprintf(path, sizeof path, "%s", run_path(a));
    FILE *first = fopen(path, "r"), *second = fopen(run_path(b), "r");
    cr_assert(first && second);
    cr_assert(fscanf(first, "step,loss\n") == 0 && fscanf(second, "step,loss\n") == 0);
    double largest = 0;
    for (int step = 1; step <= 200; step++) {
        int i, j;
        double x, y;
        cr_assert(fscanf(first, "%d,%lf\n", &i, &x) == 2 && fscanf(second, "%d,%lf\n", &j, &y) == 2 && i == step &&
                  j == step);
        largest = fmax(largest, fabs(x - y));
    }
    fclose(first);
    fclose(second);
    return largest;
}

static void compare(const char *options) {
    run_good(TRAIN "%s --device host --out host.model --losses host.csv", options);
    run_good(TRAIN "%s --device cuda --out gpu.model --losses gpu.csv", options);
    run_good(TRAIN "%s --device cuda --out again.model --losses again.csv", options);
    double largest = largest_difference("host.csv", "gpu.csv");
    cr_expect_leq(largest, 1e-3, "losses of GPU and oracle differ by up to %g", largest);
    run_good("cmp gpu.model again.model && cmp gpu.csv again.csv");
    run_good("$T eval --device host --model gpu.model --message d_message.csv --orderbook d_orderbook.csv");
    run_end();
}

Test(gpu_train, feature_axis) {
    compare("--batch 64");
}

Test(gpu_train, time_axis) {
    compare("--batch 64 --axis time --seq 8 --head-dim 8");
}

// Steps as one graph and steps call by call: the same bits in every file, with evaluations of other sizes in between,
// whose number of samples must not be taken for that of a step.
static void compare_graph(const char *options) {
    static const char *const names[] = {"calls", "graph"}, *const choices[] = {"--no-graph", ""};
    for (int i = 0; i < 2; i++)
        run_good("$T train --message d_message.csv --orderbook d_orderbook.csv --steps 120 --out %s.model "
                 "--losses %s.csv --validate-every 7 --validation %s-validation.csv --checkpoint %s.ckpt "
                 "--checkpoint-every 50 %s %s",
                 names[i], names[i], names[i], names[i], choices[i], options);
    run_good("cmp calls.csv graph.csv && cmp calls.model graph.model && cmp calls.ckpt graph.ckpt && "
             "cmp calls-validation.csv graph-validation.csv");
}

Test(gpu_train, a_step_as_a_graph_has_the_bits_of_its_calls) {
    static const char *const policies[] = {"fixed:cublas_classic", "fixed:cublaslt", "threshold:64"};
    for (int i = 0; i < 3; i++) {
        char options[128];
        snprintf(options, sizeof options, "--batch 256 --policy %s", policies[i]);
        compare_graph(options);
        snprintf(options, sizeof options, "--batch 37 --axis time --seq 8 --head-dim 8 --deterministic --policy %s",
                 policies[i]);
        compare_graph(options);
    }
    // Without a look at any step but the last of 50: launches follow each other as they do in earnest.
    run_good("$T train --message d_message.csv --orderbook d_orderbook.csv --steps 120 --out unseen.model "
             "--batch 37 --axis time --seq 8 --head-dim 8 --deterministic --policy %s",
             policies[2]);
    run_good("cmp calls.model unseen.model");
    run_end();
}

// Lines of the trace of a training run.
static int count_traced(int steps, const char *options) {
    const run_result *r = run_good("rm -f trace && TLOB_TRACE=trace $T train --message d_message.csv --orderbook d_orderbook.csv "
                                   "--train-share 1 --out m --steps %d %s && echo lines $(wc -l <trace)",
                                   steps, options);
    return (int)run_figure(r->out, "lines");
}

// The products of every step are in the trace of a run without graphs, and those of its first two steps in one with. A
// fused block has none.
Test(gpu_train, a_trace_shows_what_a_graph_hides) {
    int lines[2][2];
    for (int captured = 0; captured < 2; captured++)
        for (int i = 0; i < 2; i++)
            lines[captured][i] =
                count_traced(i ? 40 : 2, captured ? "--block-plan composed" : "--block-plan composed --no-graph");
    cr_expect_eq(count_traced(3, "--block-plan fused --no-graph"), 0);
    cr_expect(lines[0][0] > 0 && lines[0][1] == 20 * lines[0][0], "%d and %d", lines[0][0], lines[0][1]);
    cr_expect(lines[1][0] == lines[0][0] && lines[1][1] == lines[1][0], "%d and %d", lines[1][0], lines[1][1]);
    run_end();
}

// The bytes of a run that went through, after two stops, each in a process of its own.
static void stop_and_resume(const char *options) {
    run_good("$T train --message d_message.csv --orderbook d_orderbook.csv --steps 300 --out whole.model "
             "--checkpoint whole.ckpt %s",
             options);
    const int stops[] = {120, 131, 300};
    for (int i = 0; i < 3; i++)
        run_good("$T train --message d_message.csv --orderbook d_orderbook.csv --steps %d --out resumed.model "
                 "--checkpoint c %s %s",
                 stops[i], i ? "--resume c" : "", options);
    run_good("cmp whole.model resumed.model && cmp whole.ckpt c");
}

Test(gpu_train, resumes_bit_for_bit) {
    static const char *const policies[] = {"fixed:cublas_classic", "fixed:cublaslt", "threshold:64"};
    for (int i = 0; i < 3; i++) {
        char options[128];
        snprintf(options, sizeof options, "--deterministic --compute tf32 --policy %s --validate-every 50 --keep best",
                 policies[i]);
        stop_and_resume(options);
        snprintf(options, sizeof options, "--deterministic --compute fp32 --policy %s --axis time --seq 8 --head-dim 8",
                 policies[i]);
        stop_and_resume(options);
    }
    const run_result *r =
        run("$T train --message d_message.csv --orderbook d_orderbook.csv --steps 400 --out m "
            "--resume c --axis time --seq 8 --head-dim 8 --compute fp32 --deterministic --device host");
    cr_expect(r->status == 1 && strstr(r->err, "device cuda, and this one has device host"), "%s", r->err);
    run_end();
}

// What the bench of the step writes is what the report reads.
Test(gpu_train, bench_of_the_step) {
    const run_result *r = run_good("$T bench step --repeat 3 --samples 37 --json | tee b.json");
    cr_expect(strstr(r->out, "\"equal_losses\":\t50") && strstr(r->out, "\"byte_share\"") &&
                  strstr(r->out, "\"launch_share\"") && strstr(r->out, "\"kernel_us\""),
              "%s", r->out);
    int status = run("$T report --out r --bench b.json")->status;
    cr_expect(status == 0 || status == 3, "%d", status); // 3: no gnuplot
    run_good("test $(grep -c ,\\\"graph\\\", r/stages1.csv) = 4");
    r = run_good("$T bench step --repeat 3 --samples 37");
    cr_expect(strstr(r->out, "The losses of 50 steps as one graph are those of their calls, bit for bit."), "%s",
              r->out);
    run_end();
}
