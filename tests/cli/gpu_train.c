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
