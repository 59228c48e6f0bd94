// `tlob report`, from outside: its files hold the numbers of its inputs, its pictures show all of them, its page needs
// nothing else, and it refuses what it cannot draw.
#include "run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(report, .init = run_begin, .fini = run_end, .timeout = 240);

#define FILES "--message d_message.csv --orderbook d_orderbook.csv --device host "
#define NEEDS_GNUPLOT                                                                                                  \
    do                                                                                                                 \
        if (run("command -v gnuplot")->status)                                                                         \
            cr_skip_test("gnuplot is not installed");                                                                  \
    while (0)

static void expect_failure(const run_result *r, int status, const char *text, const char *what) {
    cr_expect_eq(r->status, status, "%s: exit status %d, expected %d\n%s", what, r->status, status, r->err);
    cr_expect(strstr(r->err, text), "%s: '%s' is not in: %s", what, text, r->err);
}

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(run_path(name), "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file));
}

// The text of a file, to be freed.
static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    cr_assert(file, "there is no %s", path);
    char *text = calloc(1, 1 << 22);
    cr_assert(text && fread(text, 1, (1 << 22) - 1, file) < (1 << 22) - 1);
    fclose(file);
    return text;
}

static int count(const char *text, const char *what) {
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        found++;
    return found;
}

static int count_in(const char *name, const char *what) {
    char *text = read_text(run_path(name));
    int found = count(text, what);
    free(text);
    return found;
}

// Marks that gnuplot's SVG places, each by a <use> with a transform: one a point, and one in the key a series.
static int count_marks(const char *name) {
    char *text = read_text(run_path(name));
    int marks = 0;
    const char *drawn = strstr(text, "</defs>");
    for (const char *at = drawn ? drawn : text; (at = strstr(at, "<use ")); at++) {
        const char *end = strchr(at, '>'), *transform = strstr(at, "transform=");
        marks += transform && transform < end;
    }
    free(text);
    return marks;
}

static void expect_whole_pictures(const char *folder, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s.png", folder, name);
    FILE *file = fopen(run_path(path), "rb");
    char head[8] = "";
    cr_assert(file && fread(head, 1, 8, file) == 8);
    fclose(file);
    cr_expect(!memcmp(head, "\x89PNG\r\n\x1a\n", 8), "%s", path);
    snprintf(path, sizeof path, "%s/%s.svg", folder, name);
    cr_expect_eq(count_in(path, "</svg>"), 1, "%s", path);
}

// Nothing but what is in the page itself.
static void expect_self_contained(const char *name, int pictures) {
    cr_expect_eq(count_in(name, "<svg "), pictures, "%s: %d pictures", name, count_in(name, "<svg "));
    cr_expect_eq(count_in(name, "</svg>"), pictures);
    const char *const banned[] = {"http", "<script", "<link", "@import", "url(h", "<iframe", "<img"};
    for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
        cr_expect_eq(count_in(name, banned[i]), 0, "%s: %s", name, banned[i]);
    cr_expect_eq(count_in(name, "src="), count_in(name, "src=\"data:"));
    cr_expect_eq(count_in(name, "href="), count_in(name, "href='#") + count_in(name, "href='data:"));
    cr_expect_eq(count_in(name, "</html>"), 1);
}

static void make_training(const char *options) {
    run_good("$T synth --out d --rows 3000 && $T train " FILES
             "--steps 30 --out m --losses l.csv --validate-every 4 --validation v.csv %s",
             options);
}

// --- usage ---

Test(report, misuse_is_named) {
    static const struct {
        const char *arguments, *expected;
    } misuses[] = {
        {"report", "--out FOLDER"},
        {"report --out r", "say what to draw: --bench, --measurements,"},
        {"report --out r --losses l extra", "unexpected argument 'extra'"},
        {"report --out r --model m", "--model needs order-book files"},
        {"report --out r --losses l --message a --orderbook b", "for --model FILE"},
        {"report --out r --model m --message a", "do not make pairs"},
        {"train --message a --orderbook b --out c --validation v", "--validation needs --validate-every STEPS"},
    };
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++)
        expect_failure(run("$T %s", misuses[i].arguments), 2, misuses[i].expected, misuses[i].arguments);
}

// --- training ---

// The file has the lines that are printed, and neither changes the model.
Test(report, train_writes_its_validations) {
    char printed[1 << 16];
    make_training("");
    strcpy(printed, run_good("$T train " FILES "--steps 30 --out m2 --validate-every 4 && cmp m m2")->out);
    FILE *file = fopen(run_path("v.csv"), "r");
    char line[256], expected[256];
    double loss, accuracy, f1;
    int step, lines = 0;
    cr_assert(file && fgets(line, sizeof line, file));
    cr_expect_str_eq(line, "step,loss,accuracy,macro_f1\n");
    for (; fgets(line, sizeof line, file); lines++) {
        cr_assert_eq(sscanf(line, "%d,%lf,%lf,%lf", &step, &loss, &accuracy, &f1), 4, "%s", line);
        cr_expect_eq(step, lines < 7 ? 4 * (lines + 1) : 30);
        snprintf(expected, sizeof expected, "step %d: validation loss %.6f, accuracy %.4f, macro_f1 %.4f\n", step, loss,
                 accuracy, f1);
        cr_expect(strstr(printed, expected), "%s is not in\n%s", expected, printed);
    }
    cr_expect_eq(lines, 8);
    fclose(file);
    expect_failure(run("$T train " FILES "--steps 1 --out m --losses a --validate-every 1 --validation a"), 1,
                   "are one file", "losses and validation");
    expect_failure(run("$T train " FILES "--steps 1 --out m --validate-every 1 --validation no/v"), 1, "no/v",
                   "no folder");
}

// Stopped and gone on, the two files are the one of a run that was not.
Test(report, validations_of_a_resumed_run) {
    make_training("");
    run_good("$T train " FILES "--steps 12 --out m2 --validate-every 4 --validation 1.csv --checkpoint c && "
             "$T train " FILES "--steps 30 --out m2 --validate-every 4 --validation 2.csv --resume c");
    run_good("(cat 1.csv; tail -n +2 2.csv) | cmp - v.csv");
}

Test(report, training_numbers_and_pictures) {
    NEEDS_GNUPLOT;
    make_training("");
    const run_result *r = run_good("$T report --out r --losses l.csv --validation v.csv");
    cr_expect_str_empty(r->err);
    run_good("cut -d, -f1,2 r/loss.csv | cmp - l.csv"); // digit for digit
    FILE *in = fopen(run_path("v.csv"), "r"), *out = fopen(run_path("r/validation.csv"), "r");
    char a[256], b[256];
    cr_assert(in && out && fgets(a, sizeof a, in) && fgets(b, sizeof b, out));
    cr_expect_str_eq(a, b);
    double x[4], y[4];
    while (fgets(a, sizeof a, in)) {
        cr_assert(fgets(b, sizeof b, out));
        cr_assert_eq(sscanf(a, "%lf,%lf,%lf,%lf", &x[0], &x[1], &x[2], &x[3]), 4);
        cr_assert_eq(sscanf(b, "%lf,%lf,%lf,%lf", &y[0], &y[1], &y[2], &y[3]), 4);
        cr_expect(!memcmp(x, y, sizeof x), "%s%s", a, b);
    }
    cr_expect(!fgets(b, sizeof b, out));
    fclose(in);
    fclose(out);
    cr_expect_eq(count_marks("r/loss.svg"), 30 + 1, "%d marks", count_marks("r/loss.svg"));
    cr_expect_eq(count_in("r/loss.svg", "<title>loss_plot_"), 2);
    cr_expect_eq(count_marks("r/validation.svg"), 3 * (8 + 1) + 2, "%d", count_marks("r/validation.svg"));
    cr_expect_eq(count_in("r/validation.svg", "<title>validation_plot_"), 4);
    expect_whole_pictures("r", "loss");
    expect_whole_pictures("r", "validation");
    expect_self_contained("r/index.html", 2);
    run_good("cd r && test \"$(ls -A | wc -l)\" = 9 && gnuplot -e \"format='svg'\" loss.gp | cmp - loss.svg");
}

// The mean is of the last rows, fewer at the beginning; 101 steps make windows of 3.
Test(report, means_of_losses) {
    FILE *file = fopen(run_path("l.csv"), "w");
    double loss[101];
    fprintf(file, "step,loss\n");
    for (int i = 0; i < 101; i++)
        fprintf(file, "%d,%.9g\n", 1000000 + 7 * i, loss[i] = (float)(1 + sin(i)));
    fclose(file);
    run("PATH=/nowhere $T report --out r --losses l.csv");
    file = fopen(run_path("r/loss.csv"), "r");
    char line[128];
    cr_assert(file && fgets(line, sizeof line, file));
    for (int i = 0; i < 101; i++) {
        double got[3], expected = loss[i];
        cr_assert(fgets(line, sizeof line, file) && sscanf(line, "%lf,%lf,%lf", &got[0], &got[1], &got[2]) == 3);
        if (i >= 2)
            expected = (loss[i] + loss[i - 1] + loss[i - 2]) / 3;
        else if (i == 1)
            expected = (loss[0] + loss[1]) / 2;
        cr_expect(fabs(got[2] - expected) < 1e-7, "row %d: %g, expected %g", i, got[2], expected);
        cr_expect_eq(got[0], 1000000 + 7 * i);
    }
    fclose(file);
}

// --- bench ---

static const char head[] =
    "{\"version\": \"1\", \"device\": \"<b>'x' & `touch pwned` $(touch pwned)\\n</b>\", \"compute\": "
    "\"fp32\", \"policy\": \"p\", \"vendor\": \"v\", \"seed\": 1, \"results\": [";
static const char good_row[] =
    "{\"what\": \"it's {a}_b `touch pwned`\", \"n\": 64, \"mode\": \"wall\", \"a<b\": {\"median_us\": 2.125, "
    "\"low_us\": "
    "2, \"high_us\": 3}, \"it's\": {\"median_us\": 4.25, \"low_us\": 4, \"high_us\": 5}, \"ratio\": 2}";

Test(report, bench_of_any_names) {
    NEEDS_GNUPLOT;
    char text[4096];
    snprintf(text, sizeof text, "%s%s, %s, %s]}", head, good_row, good_row, good_row);
    write_text("b.json", text);
    run_good("$T bench trunk --device host --dim 12 --heads 3 --seq 5 --samples 7 --repeat 3 --json >c.json");
    cr_expect_str_empty(run_good("$T report --out r --bench b.json --bench c.json")->err);
    cr_expect(run("ls pwned r/pwned")->status, "a name was run");
    char *csv = read_text(run_path("r/bench1.csv"));
    cr_expect(strstr(csv, "\n\"it's {a}_b `touch pwned`\",64,\"wall\",2.125,2,3,4.25,4,5,2\n"), "%s", csv);
    free(csv);
    cr_expect_eq(count_marks("r/bench1.svg"), 2 * (3 + 1) + 3, "%d marks", count_marks("r/bench1.svg"));
    cr_expect_eq(count_marks("r/bench2.svg"), 2 * (2 + 1) + 2, "%d marks", count_marks("r/bench2.svg"));
    cr_expect_eq(count_in("r/bench1.svg", "it's {a}_b `touch pwned`, N 64, wall"), 3);
    expect_self_contained("r/index.html", 2);
    cr_expect_eq(count_in("r/index.html", "<b>"), 0);
    cr_expect(count_in("r/index.html", "&lt;b&gt;&#39;x&#39; &amp; `touch pwned`") > 0);
    cr_expect(count_in("r/index.html", "<th>a&lt;b</th>") == 1);
    expect_whole_pictures("r", "bench1");
    expect_whole_pictures("r", "bench2");
}

// Two bars of stages, and a line for the whole of each.
#define TIMES(us) "{\"median_us\": " #us ", \"low_us\": " #us ", \"high_us\": " #us "}"
static const char step_rows[] =
    "{\"what\": \"step\", \"n\": 64, \"mode\": \"stream\", \"graph\": " TIMES(10) ", \"calls\": " TIMES(30) ", "
    "\"ratio\": 3}, "
    "{\"what\": \"it's\", \"n\": 64, \"mode\": \"stream\", \"graph\": " TIMES(6.5) ", \"calls\": " TIMES(16) ", "
    "\"ratio\": 3, \"part_of\": \"step\"}, "
    "{\"what\": \"b\", \"n\": 64, \"mode\": \"stream\", \"graph\": " TIMES(3.25) ", \"calls\": " TIMES(12) ", "
    "\"ratio\": 3, \"part_of\": \"step\"}, "
    "{\"what\": \"c\", \"n\": 64, \"mode\": \"stream\", \"graph\": " TIMES(0.25) ", \"calls\": " TIMES(1) ", "
    "\"ratio\": 3, \"part_of\": \"step\"}";

Test(report, stages_of_a_bench) {
    NEEDS_GNUPLOT;
    char text[4096];
    snprintf(text, sizeof text, "%s%s]}", head, step_rows);
    write_text("b.json", text);
    cr_expect_str_empty(run_good("$T report --out r --bench b.json")->err);
    char *csv = read_text(run_path("r/stages1.csv"));
    cr_expect_str_eq(csv, "stage,work,bar,begin_us,end_us,median_us,whole_us\n"
                          "\"it's\",\"graph\",0,0,6.5,6.5,10\n\"b\",\"graph\",0,6.5,9.75,3.25,10\n"
                          "\"c\",\"graph\",0,9.75,10,0.25,10\n"
                          "\"it's\",\"calls\",1,0,16,16,30\n\"b\",\"calls\",1,16,28,12,30\n"
                          "\"c\",\"calls\",1,28,29,1,30\n");
    free(csv);
    cr_expect_eq(count_in("r/stages1.svg", "<title>stages1_plot_"), 2 * 3 + 2);
    const char *const times[] = {">6.5<", ">3.2<", ">16.0<", ">12.0<", ">it's<"};
    for (int i = 0; i < 5; i++)
        cr_expect_eq(count_in("r/stages1.svg", times[i]), 1, "%s", times[i]);
    expect_whole_pictures("r", "stages1");
    expect_self_contained("r/index.html", 2);
}

// --- tuning ---

// A problem, of which `usual` and `best` are timed: the second by an algorithm. The tuner chose `chosen` of them.
static void put_problem(FILE *file, const char *name, int m, int n, int k, const char *more, double usual, double best,
                        int chosen) {
    static const char *const methods[] = {"classic, whole", "lt, whole, id 7"};
    fprintf(
        file,
        "{\"name\": \"%s\", \"gemm\": {\"m\": %d, \"n\": %d, \"k\": %d, %s}, \"default\": \"%s\", \"chosen\": \"%s\", "
        "\"methods\": [{\"method\": \"%s\", \"backend\": \"classic\", \"form\": \"whole\", \"configuration\": {}, "
        "\"warm_us\": %.17g, \"cold_us\": %.17g, \"check\": \"ok\"}, "
        "{\"method\": \"bad\", \"backend\": \"b\", \"form\": \"whole\", \"configuration\": {}, \"warm_us\": 0.5, "
        "\"check\": \"wrong\"}, "
        "{\"method\": \"%s\", \"backend\": \"lt\", \"form\": \"whole\", \"configuration\": {\"id\": 7}, "
        "\"warm_us\": %.17g, \"cold_us\": %.17g, \"check\": \"ok\"}]}",
        name, m, n, k, more, methods[0], methods[chosen], methods[0], usual, 2 * usual, methods[1], best, 3 * best);
}

#define PLAIN "\"batch\": 1, \"epilogue\": \"none\", \"compute\": \"tf32\", \"transa\": \"n\", \"beta\": 0"

static void write_measurements(const char *cache) {
    static const char *const others[] = {"\"batch\": 2, \"epilogue\": \"none\", \"compute\": \"tf32\"",
                                         "\"batch\": 1, \"epilogue\": \"bias\", \"compute\": \"tf32\"",
                                         "\"batch\": 1, \"epilogue\": \"none\", \"compute\": \"fp32\"",
                                         PLAIN ", \"transb\": \"t\"", PLAIN};
    FILE *file = fopen(run_path("t.json"), "w");
    cr_assert(file);
    fprintf(file,
            "{\"format\": \"tlob-tune\", \"version\": 1, \"device\": \"<b>'x' `touch pwned`\", \"library\": \"l\", "
            "\"cache\": \"%s\", \"problems\": [",
            cache);
    for (int m = 32; m <= 128; m *= 2)
        for (int n = 32; n <= 256; n *= 2)
            for (int k = 32; k <= 64; k += 32) {
                put_problem(file, "it's {a}_b `touch pwned`", m, n, k, PLAIN, 4, n >= 128 ? 2 : 8, n >= 128);
                fprintf(file, ", ");
            }
    for (int i = 0; i < 5; i++) { // none belongs on the map: the last is there twice
        put_problem(file, "other", i < 4 ? 48 : 32, 32, 64, others[i], 6, 2, 1);
        fprintf(file, i < 4 ? ", " : "]}\n");
    }
    cr_assert(!fclose(file));
}

Test(report, maps_and_gains) {
    NEEDS_GNUPLOT;
    write_measurements("warm");
    const run_result *r = run_good("$T report --out r --measurements t.json");
    cr_expect_str_empty(r->err);
    cr_expect(run("ls pwned r/pwned r/map_fp32.csv")->status, "a name was run, or one problem is a map");
    char *csv = read_text(run_path("r/map_tf32.csv"));
    cr_expect_eq(count(csv, "\n"), 1 + 2 * 12, "%s", csv);
    cr_expect_eq(count(csv, ",1,\"classic, whole, its own choice\",\"classic, whole\",4,\"classic, whole\",4,1\n"), 12);
    cr_expect_eq(count(csv, ",2,\"lt, whole, tuned algorithm\",\"lt, whole, id 7\",2,\"classic, whole\",4,2\n"), 12);
    const char *row = strstr(csv, "\n64,32,64,"); // half-way to the next, and from 32 as far down
    double m[2], n[2];
    cr_assert(row && sscanf(row, "\n64,32,64,%lf,%lf,%lf,%lf", &m[0], &m[1], &n[0], &n[1]) == 4, "%s", csv);
    cr_expect(fabs(m[0] - 32 / sqrt(2)) < 1e-9 && fabs(m[1] - 32 * sqrt(2)) < 1e-9, "%s", row);
    cr_expect(fabs(n[0] - 32 * sqrt(2)) < 1e-9 && fabs(n[1] - 64 * sqrt(2)) < 1e-9, "%s", row);
    free(csv);
    cr_expect_eq(count_in("r/map_tf32.gp", "front linewidth 3"), 2, "the border is of k = 64 alone");
    cr_expect_eq(count_in("r/map_tf32.svg", "k = 32: below the border"), 1);
    cr_expect_eq(count_in("r/map_tf32.svg", ">2.00<"), 12);
    csv = read_text(run_path("r/gains.csv"));
    cr_expect_eq(count(csv, "\n"), 1 + 24 + 5, "%s", csv);
    cr_expect(
        strstr(csv, "\n1,\"other\",48,32,64,2,\"none\",\"tf32\",1,\"classic, whole\",6,\"lt, whole, id 7\",2,3\n"),
        "%s", csv);
    cr_expect(strstr(csv, "\n6,\"it's {a}_b `touch pwned`\",32,128,32,1,"), "%s", csv);
    free(csv);
    char expected[96]; // 5 gains of 3, 12 of 2, 12 of 1; those of m and n below 128: the 5, and 8 of 1
    snprintf(expected, sizeof expected, "geometric mean of all 29: %.3f", exp((5 * log(3) + 12 * log(2)) / 29));
    cr_expect_eq(count_in("r/gains.svg", expected), 1, "%s", expected);
    snprintf(expected, sizeof expected, "their geometric mean, of 13: %.3f", exp(5 * log(3) / 13));
    cr_expect_eq(count_in("r/gains.svg", expected), 1, "%s", expected);
    cr_expect_eq(count_marks("r/gains.svg"), 29 + 2, "%d marks", count_marks("r/gains.svg"));
    expect_whole_pictures("r", "map_tf32");
    expect_whole_pictures("r", "gains");
    expect_self_contained("r/index.html", 2);
    cr_expect_eq(count_in("r/index.html", "<b>"), 0);
    write_measurements("cold"); // by the other time: 8 and 6
    run_good("$T report --out r --measurements t.json");
    cr_expect_eq(count_in("r/gains.csv", ",8,\"lt, whole, id 7\",6,"), 12);
    cr_expect_eq(count_in("r/map_tf32.svg", "cold L2 cache"), 1);
}

Test(report, measurements_that_make_no_picture) {
    FILE *file = fopen(run_path("t.json"), "w");
    fprintf(file,
            "{\"format\": \"tlob-tune\", \"version\": 1, \"device\": \"d\", \"library\": \"\", \"cache\": \"warm\", "
            "\"problems\": [{\"name\": \"p\", \"gemm\": {\"m\": 1, \"n\": 1, \"k\": 1, " PLAIN "}, \"default\": null, "
            "\"chosen\": null, \"methods\": [{\"method\": \"a\", \"backend\": \"b\", \"form\": \"c\", \"check\": "
            "\"wrong\", \"configuration\": {}, \"warm_us\": null}]}]}");
    fclose(file);
    run("PATH=/nowhere $T report --out r --measurements t.json");
    cr_expect_eq(count_in("r/index.html", "There is no map"), 1);
    cr_expect_eq(count_in("r/index.html", "Of no problem were both"), 1);
    run_good("test \"$(ls -A r)\" = index.html");
}

// --- attention ---

// Rows of P are distributions over the keys, and its focus is what the library computes on the way.
static void check_attention(const char *options, int heads, int tokens) {
    run_good("$T train " FILES "--steps 20 --lr 0.05 --out m %s", options);
    double mean_max = run_figure(run_good("$T eval " FILES "--model m --part validation")->out, "mean_max");
    run_good("$T report --out r --model m " FILES);
    FILE *file = fopen(run_path("r/attention.csv"), "r");
    char line[128], expected[64];
    double over_queries = 0;
    cr_assert(file && fgets(line, sizeof line, file));
    cr_expect_str_eq(line, "head,query,key,p\n");
    for (int h = 1; h <= heads; h++)
        for (int i = 1; i <= tokens; i++) {
            double sum = 0, p;
            int at[3];
            for (int j = 1; j <= tokens; j++) {
                cr_assert(fgets(line, sizeof line, file) &&
                          sscanf(line, "%d,%d,%d,%lf", &at[0], &at[1], &at[2], &p) == 4);
                cr_expect(at[0] == h && at[1] == i && at[2] == j, "%s", line);
                sum += p;
                over_queries += j == 1 ? p / heads : 0;
            }
            cr_expect(fabs(sum - 1) < 1e-12, "head %d, query %d: %.17g", h, i, sum);
        }
    cr_expect(!fgets(line, sizeof line, file));
    cr_expect(fabs(over_queries - 1) > 1e-3, "queries and keys look the same: this test can tell nothing");
    fclose(file);
    snprintf(expected, sizeof expected, "<td>all</td><td class=\"n\">%.4f</td>", mean_max);
    cr_expect_eq(count_in("r/index.html", expected), 1, "%s", expected);
}

Test(report, attention_on_both_axes) {
    NEEDS_GNUPLOT;
    run_good("$T synth --out d --rows 3000");
    check_attention("--d-out 15 --head-dim 5", 1, 3);
    cr_expect_eq(count_in("r/attention.svg", "<title>attention_plot_"), 2);
    check_attention("--seq 3 --d-out 12 --head-dim 2", 1, 6);
    expect_self_contained("r/index.html", 1);
    expect_whole_pictures("r", "attention");
    check_attention("--axis time --seq 9 --d-out 6 --head-dim 2", 3, 9);
    cr_expect_eq(count_in("r/attention.svg", ">head "), 3);
    expect_self_contained("r/index.html", 1);
    check_attention("--axis time --seq 40 --stride 20 --d-out 8 --head-dim 4", 2, 40);
    expect_self_contained("r/index.html", 1);
}

Test(report, attention_that_cannot_be_drawn) {
    run_good("$T synth --out d --rows 3000 && $T train " FILES "--steps 1 --out m --train-share 1");
    expect_failure(run("$T report --out r --model m " FILES), 1, "no sample in the validation part", "no validation");
    expect_failure(run("$T report --out r --model m --drop-hidden " FILES), 1, "made without it", "hidden orders");
    run_good("$T train " FILES "--steps 1 --out m --axis time --seq 2 --d-out 65 --head-dim 1");
    expect_failure(run("$T report --out r --model m " FILES), 1, "65 heads of 2 x 2 tokens are too many", "heads");
    expect_failure(run("$T report --out r --model d_message.csv " FILES), 1, "d_message.csv", "no model");
    cr_expect(run("ls r")->status);
}

// --- gnuplot ---

Test(report, without_gnuplot_the_numbers_are_written) {
    make_training("");
    const run_result *r = run("PATH=/nowhere:: $T report --out r --losses l.csv --model m " FILES);
    expect_failure(r, 3, "gnuplot was not found", "no gnuplot");
    cr_expect(strstr(r->err, "apt install gnuplot-nox"), "%s", r->err);
    run_good("cut -d, -f1,2 r/loss.csv | cmp - l.csv && test \"$(ls -A r | wc -l)\" = 5");
    expect_self_contained("r/index.html", 0);
    cr_expect_eq(count_in("r/index.html", "No picture is here"), 2);
    cr_expect(count_in("r/index.html", "<td class=\"n\">30</td>") == 1, "the table has no last step");
}

// bin/gnuplot, and a report of before in r.
static void make_fake(const char *commands) {
    char script[128];
    snprintf(script, sizeof script, "#!/bin/sh\n%s\n", commands);
    run_good("rm -rf bin r && mkdir bin r && echo old >r/index.html && touch bin/gnuplot && chmod +x bin/gnuplot");
    write_text("bin/gnuplot", script);
}

// A picture that was not drawn whole is no report: what was there before stays.
Test(report, a_gnuplot_that_fails) {
    write_text("l.csv", "step,loss\n1,2\n2,1\n");
    static const struct {
        const char *script, *expected;
    } fakes[] = {{"echo it broke >&2; exit 7", "it broke"},
                 {"echo it broke >&2; exit 7", "failed on loss.gp with exit status 7"},
                 {"kill -9 $$", "was ended by signal 9"},
                 {"exit 0", "is no whole svg"},
                 {"echo '<svg>'; seq 9", "is no whole svg"},
                 {"echo 'gnuplot says </svg>, and no more'", "is no whole svg"},
                 {"echo 'text, and at its end </svg>'", "is no whole png"}};
    for (size_t i = 0; i < sizeof fakes / sizeof *fakes; i++) {
        make_fake(fakes[i].script);
        expect_failure(run("PATH=bin:$PATH $T report --out r --losses l.csv"), 1, fakes[i].expected, fakes[i].script);
        run_good("test \"$(cat r/index.html)\" = old && test -z \"$(find r -name '.*.tmp')\"");
    }
    run_good("printf 'no program' >bin/gnuplot"); // found, but the system cannot run it
    expect_failure(run("PATH=bin:$PATH $T report --out r --losses l.csv"), 1, "cannot run", "no program");
}

// Whether the terminal tells both, or somebody tlob alone.
Test(report, an_interrupt_leaves_nothing_unfinished) {
    static const char *const fakes[] = {"kill -INT $PPID; kill -INT $$", "kill -TERM $PPID; echo '<svg></svg>'"};
    write_text("l.csv", "step,loss\n1,2\n2,1\n");
    for (size_t i = 0; i < 2; i++) {
        make_fake(fakes[i]);
        expect_failure(run("PATH=bin:$PATH $T report --out r --losses l.csv"), 130, "interrupted: r/index.html",
                       fakes[i]);
        run_good("test \"$(cat r/index.html)\" = old && test -z \"$(find r -name '.*.tmp')\"");
    }
}

// gnuplot itself ends well when it could not write.
Test(report, a_file_that_cannot_be_written) {
    NEEDS_GNUPLOT;
    make_training("");
    for (int blocks = 1; blocks < 120; blocks += 11) {
        int status = run("rm -rf r; ulimit -f %d; $T report --out r --losses l.csv", blocks)->status;
        cr_expect(status == 1 || blocks > 50, "%d blocks: %d", blocks, status);
        run_good("test -z \"$(find r -name '.*.tmp')\"");
        run_good("! test -e r/loss.svg || tail -c 10 r/loss.svg | grep -q '</svg>'");
        run_good("! test -e r/loss.png || tail -c 10 r/loss.png | grep -aq IEND");
        cr_expect_eq(status == 0, run("test -e r/index.html")->status == 0, "%d blocks", blocks);
    }
}

// --- files ---

Test(report, folders_of_any_name) {
    NEEDS_GNUPLOT;
    static const char *const names[] = {"a b", "'q' \"w\"", "-e", "$(touch pwned)", "`touch pwned`;#", "n\nl"};
    write_text("l.csv", "step,loss\n1,2\n2,1\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        setenv("NAME", names[i], 1);
        run_good("cp l.csv \"$DIR/$NAME.csv\" && $T report --out=\"$NAME\" --losses=\"$NAME.csv\"");
        snprintf(path, sizeof path, "%s/index.html", names[i]);
        expect_self_contained(path, 1);
    }
    cr_expect(run("ls pwned */pwned")->status, "a name was run");
}

Test(report, inputs_are_spared) {
    run_good("mkdir r && printf 'step,loss\\n1,2\\n' >r/loss.csv && cp r/loss.csv before");
    expect_failure(run("$T report --out r --losses r/loss.csv"), 1, "would overwrite the input r/loss.csv",
                   "same file");
    run_good("cmp before r/loss.csv && test ! -e r/index.html");
    run_good("mkdir s && mv r/loss.csv s/index.html");
    expect_failure(run("$T report --out s --losses s/index.html"), 1, "would overwrite", "the page");
    run_good("cmp before s/index.html");
    expect_failure(run("$T report --out before --losses before"), 1, "before", "a file for a folder");
    expect_failure(run("$T report --out no/r --losses before"), 1, "no/r", "no folder");
}

Test(report, bad_tables_are_refused) {
    static const struct {
        const char *text, *expected; // the text as printf of the shell takes it
    } tables[] = {
        {"", "the file is empty"},
        {"x", "line 1: 'x' instead of the header step,loss"},
        {"step,loss\\n", "no row of numbers"},
        {"step\\n1\\n", "line 1: "},
        {"loss,step\\n1,2\\n", "'loss' instead of the header step,loss"},
        {"step,loss,accuracy,macro_f1\\n1,1,1,1\\n", "'accuracy' instead of the header step,loss"},
        {"step,loss\\n1,nan\\n", "line 2: 'nan' instead of a finite number, column loss"},
        {"step,loss\\n1,inf\\n", "line 2: 'inf'"},
        {"step,loss\\n1,1e999\\n", "line 2: '1e999'"},
        {"step,loss\\n1,0x1p3\\n", "line 2: '0x1p3'"},
        {"step,loss\\n1,\\n", "line 2: '' instead of a finite number, column loss"},
        {"step,loss\\n1,1\\n2\\n", "line 3: 'the end of the line' instead of a number, column loss"},
        {"step,loss\\n1,2,3\\n", "line 2: '3' instead of the end of the line"},
        {"step,loss\\n1,1\\n1,1\\n", "line 3: '1' instead of a whole number above"},
        {"step,loss\\n1.5,1\\n", "line 2: '1.5' instead of a whole number"},
        {"step,loss\\n0,1\\n", "line 2: '0' instead of a number from 1"},
        {"step,loss\\r\\n1,1\\r\\n2,x\\r\\n", "line 3: 'x'"},
        {"step,loss\\n\\n\\n1,x\\n", "line 4: 'x'"},
        {"step,loss\\n1,\\\"2\\n", "line 2: quotes that do not match"},
        {"step,loss\\n1,2\\0003\\n", "line 2: '2'"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        run_good("printf \"%s\" >bad.csv", tables[i].text);
        expect_failure(run("$T report --out r --losses bad.csv"), 1, tables[i].expected, tables[i].text);
    }
    write_text("bad.csv", "step,loss,accuracy,macro_f1\n1,1,1.01,1\n");
    expect_failure(run("$T report --out r --validation bad.csv"), 1,
                   "'1.01' instead of a number from 0 to 1, column accuracy", "accuracy");
    expect_failure(run("$T report --out r --losses ."), 1, "Is a directory", "a folder");
    expect_failure(run("$T report --out r --losses missing"), 1, "missing: No such file", "missing");
    expect_failure(run("head -c 5000 /dev/urandom >bad.csv; $T report --out r --losses bad.csv"), 1, "bad.csv: line",
                   "junk");
    cr_expect(run("ls r")->status, "something was written");
}

// A good file with one part of its row replaced.
static void expect_bad_row(const char *part, const char *other, const char *expected) {
    char text[4096], row[1024];
    const char *at = strstr(good_row, part);
    cr_assert(at, "%s", part);
    snprintf(row, sizeof row, "%.*s%s%s", (int)(at - good_row), good_row, other, at + strlen(part));
    snprintf(text, sizeof text, "%s%s, %s]}", head, good_row, row);
    write_text("bad.json", text);
    expect_failure(run("$T report --out r --bench bad.json"), 1, expected, other);
}

Test(report, bad_benches_are_refused) {
    static const struct {
        const char *text, *expected;
    } benches[] = {
        {"", "line 1: this is no JSON"},
        {"qkv 64", "line 1: this is no JSON"},
        {"{\n\"version\": \"1\",\n nan}", "line 3: this is no JSON"},
        {"{} {}", "this is no JSON"},
        {"[]", "an object expected"},
        {"{}", "version: a text expected"},
        {"{\"version\": 1}", "version: a text expected"},
        {"{\"version\": \"\", \"device\": \"\", \"compute\": \"\", \"policy\": \"\", \"vendor\": \"\"}",
         "results: an array"},
        {"{\"version\": \"\", \"device\": \"\", \"compute\": \"\", \"policy\": \"\", \"vendor\": \"\", \"results\": "
         "[]}",
         "results: an array of 1 to 200"},
        {"{\"version\": \"\", \"device\": \"\", \"compute\": \"\", \"policy\": \"\", \"vendor\": \"\", \"results\": "
         "[1]}",
         "results[0]: an object expected"},
    };
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        write_text("bad.json", benches[i].text);
        expect_failure(run("$T report --out r --bench bad.json"), 1, benches[i].expected, benches[i].text);
    }
    expect_bad_row("\"n\": 64", "\"n\": 64.5", "results[1].n: a whole number expected");
    expect_bad_row("\"n\": 64", "\"m\": 64", "results[1].n: a finite number above 0 expected");
    expect_bad_row("\"wall\"", "null", "results[1].mode: a text");
    expect_bad_row("it's {a}", "a\\n", "results[1].what: a text");
    expect_bad_row("\"median_us\": 2.125", "\"median_us\": null", "results[1].a<b.median_us: a finite number");
    expect_bad_row("\"median_us\": 2.125", "\"median_us\": 1e999", "results[1].a<b.median_us: a finite number");
    expect_bad_row("\"median_us\": 2.125", "\"median_us\": 9",
                   "results[1].a<b.median_us: a number from low_us to high_us");
    expect_bad_row("\"low_us\": 4, ", "", "results[1].it's.low_us: a finite number");
    expect_bad_row("\"ratio\": 2", "\"ratio\": -2", "results[1].ratio: a finite number");
    expect_bad_row("\"it's\": {", "\"other\": {", "results[1]: the times of 'other' instead of those of it's");
    expect_bad_row("\"it's\": {\"median_us\": 4.25, \"low_us\": 4, \"high_us\": 5}, ", "", "two objects");
    char text[4096];
    snprintf(text, sizeof text, "%s%s]}", head, good_row);
    write_text("good.json", text);
    run_good("(cat good.json; printf '\\000') >bad.json");
    expect_failure(run("$T report --out r --bench bad.json"), 1, "this is no JSON", "a byte 0");
    expect_failure(run("$T report --out r --bench ."), 1, "Is a directory", "a folder");
    cr_expect(run("ls r")->status, "something was written");
}

// The good file with the first place where a part stands replaced.
static void expect_bad_measurements(const char *part, const char *other, const char *expected) {
    write_measurements("warm");
    char *text = read_text(run_path("t.json")), *at = strstr(text, part);
    cr_assert(at, "%s", part);
    FILE *file = fopen(run_path("bad.json"), "w");
    fprintf(file, "%.*s%s%s", (int)(at - text), text, other, at + strlen(part));
    fclose(file);
    free(text);
    expect_failure(run("$T report --out r --measurements bad.json"), 1, expected, other);
}

Test(report, bad_measurements_are_refused) {
    static const struct {
        const char *part, *other, *expected;
    } faults[] = {
        {"{", "", "bad.json: line 1: this is no JSON"},
        {"{\"format\"", "[{\"format\"", "this is no JSON"},
        {"tlob-tune", "tlob-table", "format: 'tlob-tune'"},
        {"\"format\"", "\"f\"", "format: 'tlob-tune'"},
        {"\"version\": 1", "\"version\": 2", "version: 1 expected"},
        {"\"device\": ", "\"d\": ", "device: a text"},
        {"\"library\": \"l\"", "\"library\": 1", "library: a text"},
        {"\"warm\"", "\"hot\"", "cache: 'warm' or 'cold' expected"},
        {"\"problems\"", "\"p\"", "problems: an array"},
        {"[{\"name\"", "[1, {\"name\"", "problems[0]: an object"},
        {"\"name\": \"it's", "\"name\": \"\\n", "problems[0].name: a text"},
        {"\"gemm\"", "\"g\"", "problems[0].gemm: an object"},
        {"\"m\": 32", "\"m\": 32.5", "problems[0].gemm.m: a whole number"},
        {"\"k\": 64", "\"k\": -1", "problems[1].gemm.k: a whole number"},
        {"\"batch\": 1", "\"batch\": \"1\"", "problems[0].gemm.batch: a whole number"},
        {"\"none\"", "\"no ne\"", "problems[0].gemm.epilogue: 1 to 32 of a to z"},
        {"\"tf32\"", "\"../tf32\"", "problems[0].gemm.compute: 1 to 32 of a to z"},
        {"\"default\": \"classic", "\"default\": \"clasic", "problems[0].default: the name of one of the methods"},
        {"\"chosen\": \"classic, whole\"", "\"chosen\": \"bad\"",
         "problems[0].chosen: the name of one of the methods that was timed and whose check is ok"},
        {"\"chosen\": \"classic, whole\"", "\"chosen\": 1", "problems[0].chosen: a text"},
        {"\"methods\": [", "\"methods\": [0, ", "problems[0].methods[0]: an object"},
        {"\"methods\"", "\"m\"", "problems[0].methods: an array"},
        {"\"form\": ", "\"f\": ", "problems[0].methods[0].form: a text"},
        {"\"configuration\": {\"id\": 7}", "\"configuration\": 7", "problems[0].methods[2].configuration: an object"},
        {"\"warm_us\": 0.5", "\"warm_us\": 1e999", "problems[0].methods[1].warm_us: a finite number above 0, or null"},
        {"\"cold_us\": 8", "\"cold_us\": -8", "problems[0].methods[0].cold_us: a finite number"},
        {"\"check\": \"ok\"", "\"check\": true", "problems[0].methods[0].check: a text"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_bad_measurements(faults[i].part, faults[i].other, faults[i].expected);
    write_measurements("warm");
    run_good("(cat t.json; printf '\\000') >bad.json");
    expect_failure(run("$T report --out r --measurements bad.json"), 1, "this is no JSON", "a byte 0");
    expect_failure(run("$T report --out r --measurements missing"), 1, "missing: No such file", "missing");
    cr_expect(run("ls r")->status, "something was written");
    run_good("mkdir r && mv t.json r/gains.csv");
    expect_failure(run("PATH=/nowhere $T report --out r --measurements r/gains.csv"), 1, "would overwrite the input",
                   "an input");
}

Test(report, stages_of_nothing_are_refused) {
    static const char *const faults[][2] = {{"\"part_of\": \"step\"", "\"part_of\": \"b\""},
                                            {"\"part_of\": \"step\"}, ", "\"part_of\": \"it's\"}, "},
                                            {"\"n\": 64", "\"n\": 65"},
                                            {"\"mode\": \"stream\"", "\"mode\": \"wall\""}};
    char text[4096];
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const char *at = strstr(step_rows, faults[i][0]);
        cr_assert(at);
        snprintf(text, sizeof text, "%s%.*s%s%s]}", head, (int)(at - step_rows), step_rows, faults[i][1],
                 at + strlen(faults[i][0]));
        write_text("bad.json", text);
        expect_failure(run("$T report --out r --bench bad.json"), 1,
                       "results[1].part_of: the name of one row before it, with the same n and mode", faults[i][1]);
    }
}

// --- the guide ---

// The commands that docs/reports.md shows.
Test(report, example_of_the_guide) {
    NEEDS_GNUPLOT;
    char *guide = read_text(TLOB_SOURCE_ROOT "/docs/reports.md");
    char *begin = strstr(guide, "```sh\n"), *end = begin ? strstr(begin, "\n```\n") : NULL;
    cr_assert(end);
    *end = 0;
    write_text("example", begin + 6);
    free(guide);
    run_good("PATH=$DIR:$PATH sh -e ./example");
    expect_self_contained("day-report/index.html", 4);
}
