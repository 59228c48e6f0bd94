// Tuning on a GPU, through the program.
#include "run.h"

#include <tlob/tlob.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void begin(void) {
    int count = 0;
    if (tlob_device_count(&count) || !count)
        cr_skip_test("no GPU");
    run_begin();
}

TestSuite(gpu_tune, .init = begin, .timeout = 280);

Test(gpu_tune, a_table_is_written_and_every_method_is_right) {
    const run_result *r = run_good("$T tune --filter 'block/*_256' --output t --measurements m");
    cr_expect(strstr(r->out, "block/dw_qkv_256 "), "%s", r->out);
    cr_expect(strstr(r->out, ", 0 of them wrong"), "%s%s", r->out, r->err);
    cr_expect_str_eq(run_good("grep -c origin t")->out, "7\n");
    cr_expect(strstr(run_good("$T explain 16 256 32 --batch 3 --stride-b 0 --policy tuned:strict --table t")->out,
                     "backend "));
    run_good("$T table verify t --device cuda");
    run_good("cp t old");
    r = run_good("$T tune --filter 'block/*_256' --merge-into t");
    cr_expect(strstr(r->out, "entries: 7 kept, "), "%s", r->out);
    run_good("cmp t old");
    run_end();
}

Test(gpu_tune, epilogues_and_batches_have_methods_that_are_right) {
    const run_result *r = run_good("$T tune --filter 'epilogue/*/64x*' --repeat 5 --output t");
    cr_expect(strstr(r->out, "10 problems, "), "%s", r->out);
    r = run_good("$T tune --filter 'batch/one_*' --repeat 5 --merge-into t");
    cr_expect(strstr(r->out, "8 problems, "), "%s", r->out);
    cr_expect_str_eq(run_good("grep -c origin t")->out, "18\n");
    run_end();
}

Test(gpu_tune, cold_times_decide_where_they_are_asked_for) {
    run_good(
        "$T tune --filter 'square/1024*' --cache cold --repeat 5 --measurements m && grep -q '\"cache\":\"cold\"' m");
    run_end();
}

Test(gpu_tune, what_a_table_says_is_near_the_best) {
    run_good("$T tune --filter 'square/[1-6]*' --output t");
    const run_result *r = run_good("$T bench gemm --filter 'square/[1-6]*' --table t");
    const char *worst = strstr(r->out, "worst tuned/best: ");
    double ratio = 0;
    cr_assert(worst && sscanf(worst, "worst tuned/best: %lf", &ratio) == 1, "%s", r->out);
    cr_expect_lt(ratio, 1.15, "%s", r->out);
    run_end();
}

// Where the device has fused kernels both plans are right, and what was chosen is what a block then gets.
Test(gpu_tune, plans_of_blocks_are_timed_and_looked_up) {
    if (strstr(run_good("$T explain --block --block-plan composed")->out, "not here: "))
        cr_skip_test("no fused kernels for this device");
    run_good("$T tune --filter 'square/64*' --repeat 1 --output t");
    const run_result *r = run_good("$T tune --blocks --filter '*/n256/*' --repeat 5 --merge-into t");
    cr_expect(strstr(r->out, "4 blocks, 0 of them with a plan that is wrong"), "%s%s", r->out, r->err);
    cr_expect(strstr(r->out, "block/32x16x4/n256/training "), "%s", r->out);
    cr_expect(strstr(run_good("$T table list t")->out, " entries, 4 blocks"));
    r = run_good("$T explain --block --samples 256 --policy tuned:strict --table t");
    cr_expect(strstr(r->out, "reason     tuned: t, block "), "%s", r->out);
    r = run("$T explain --block --samples 257 --policy tuned:strict --table t");
    cr_expect(r->status == 1 && strstr(r->err, "no entry for this block"), "%s%s", r->out, r->err);
    r = run_good("$T tune --blocks --compute fp32 --filter 'block/16x16x4/n64/*' --repeat 5");
    cr_expect(strstr(r->out, "2 blocks, 0 of them with a plan that is wrong"), "%s%s", r->out, r->err);
    run_end();
}
