// `tlob table`, from outside: what it prints of tables, how it compares and merges them, how it fails.
#include "run.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(table, .init = run_begin, .fini = run_end, .timeout = 240);

// An entry as `tlob` writes it: for m x 5 x 7, a method, a device, a library.
#define ENTRY(m, backend, id, device, sm, library)                                                                     \
    "{\"problem\": {\"transa\": \"n\", \"transb\": \"n\", \"m\": " m ", \"n\": 5, \"k\": 7, \"lda\": " m               \
    ", \"ldb\": 7, \"ldc\": " m ", \"batch\": 1, \"beta\": 0, \"compute\": \"tf32\", \"epilogue\": \"none\"},\n"       \
    "     \"method\": {\"backend\": \"" backend "\", \"form\": \"whole\", \"configuration\": {" id "}},\n"             \
    "     \"origin\": {\"device\": \"" device "\", \"sm\": " sm ", \"multiprocessors\": 2, \"library\": \"" library    \
    "\"}}"
#define OWN(m, id)     ENTRY(m, "own", "\"id\": " id, "d", "90", "own 1")
#define FILE_OF(text)  "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [\n    " text "\n]}\n"
#define THEN           ",\n    "
#define LOOP_OF_ONE    "{\"problem\": {}, \"method\": {}, \"origin\": {}}"

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(run_path(name), "wb");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

static void expect_failure(const run_result *r, int status, const char *text, const char *what) {
    cr_expect_eq(r->status, status, "%s: exit status %d, expected %d\n%s%s", what, r->status, status, r->out, r->err);
    cr_expect(strstr(r->err, text), "%s: '%s' is not in: %s", what, text, r->err);
}

static void expect_out(const run_result *r, const char *text) {
    cr_expect(strstr(r->out, text), "'%s' is not in: %s%s", text, r->out, r->err);
}

Test(table, wrong_usage_is_named_and_exits_2) {
    static const char *const rows[][2] = {
        {"", "say what to do: list, explain, diff, verify or merge"},
        {"show a", "what to do: 'show' is not one of: list, explain, diff, verify, merge"},
        {"list", "list: a FILE is needed"},
        {"verify", "verify: a FILE is needed"},
        {"diff a", "diff: two FILEs are needed"},
        {"diff a b c", "unexpected argument 'c'"},
        {"merge out", "merge: OUT and at least one IN are needed"},
        {"explain a", "explain: a FILE and three sizes are needed"},
        {"explain a 1 2", "explain: a FILE and three sizes are needed"},
        {"explain a 1 2 3 4", "unexpected argument '4'"},
        {"explain a 1 2 x", "K: 'x' is not a whole number"},
        {"explain a 1 2 3 --epilogue swish", "--epilogue: 'swish' is not one of"},
        {"diff a b --json", "--json is for list"},
        {"verify a --rejected", "--rejected is for list"},
        {"list a --batch 3", "options of a product are for explain"},
        {"list a --compute tf32", "options of a product are for explain"},
        {"list a --device host", "--device is for explain and verify"},
        {"list a --prefer first", "--prefer is for merge"},
        {"merge a b --prefer best", "--prefer: 'best' is not one of: first, last"},
        {"verify a --device gpu", "--device: 'gpu' is not one of: cuda, cuda:N, host"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_failure(run("$T table %s", rows[i][0]), 2, rows[i][1], rows[i][0]);
}

Test(table, a_file_that_is_none_is_named_with_its_place) {
    write_file("none.json", "{\"format\": \"tlob-table\",\n  \"version\" 1}");
    write_file("good.json", FILE_OF(OWN("3", "1")));
    const char *const all[] = {"list none.json", "list good.json none.json", "verify none.json", "explain none.json 1 2 3",
                               "merge out.json good.json none.json"};
    for (int i = 0; i < 5; i++)
        expect_failure(run("$T table %s", all[i]), 1, "'none.json', line 2, column 13: this is not JSON", all[i]);
    expect_failure(run("$T table diff good.json none.json"), 2, "line 2, column 13", "diff");
    expect_failure(run("$T table diff missing.json good.json"), 2, "No such file", "diff");
    cr_expect_eq(run("ls out.json")->status, 2, "nothing is written");
}

Test(table, list_shows_what_can_be_used_and_counts_the_rest) {
    write_file("a.json", FILE_OF(OWN("4", "21") THEN LOOP_OF_ONE THEN OWN("3", "9")));
    const run_result *r = run_good("$T table list a.json");
    cr_expect_str_eq(r->out, "3 5 7 --compute tf32: own, whole, id 9 (d, sm_90, 2 multiprocessors; own 1)\n"
                             "4 5 7 --compute tf32: own, whole, id 21 (d, sm_90, 2 multiprocessors; own 1)\n"
                             "a.json: 2 entries, 1 rejected, the first: entry 2: the problem has no \"transa\"\n");
    r = run_good("$T table list --rejected a.json");
    cr_expect(!strncmp(r->out, "a.json, entry 2: the problem has no \"transa\"\na.json: 2 entries", 60), "%s", r->out);
    r = run_good("$T table list --json a.json a.json | python3 -c 'import json, sys\n"
                 "for f in json.load(sys.stdin)[\"files\"]:\n"
                 "    print(f[\"file\"], f[\"accepted\"], f[\"rejected\"], [(e[\"source\"], e[\"problem\"][\"m\"], "
                 "e[\"compute\"], e[\"method\"], e[\"origin\"][\"library\"]) for e in f[\"entries\"]])'");
    const char *line = "a.json 2 1 [('a.json, entry 3', 3, 'tf32', {'backend': 'own', 'form': 'whole', 'configuration': "
                       "{'id': 9}}, 'own 1'), ('a.json, entry 1', 4, 'tf32', {'backend': 'own', 'form': 'whole', "
                       "'configuration': {'id': 21}}, 'own 1')]\n";
    cr_expect(!strncmp(r->out, line, strlen(line)) && !strcmp(r->out + strlen(line), line), "%s", r->out);
    expect_out(run_good("$T table list --json --rejected a.json"), "\"rejected\":\t\"the problem has no");
}

// Entries of the host, for 3 x 5 x 7: one that is right, one that is none of the backend's, one of a GPU.
Test(table, verify_runs_what_is_for_the_device) {
    write_file("a.json", FILE_OF("{\"problem\": {\"transa\": \"t\", \"transb\": \"n\", \"m\": 3, \"n\": 5, \"k\": 7, \"lda\": 9, "
                                 "\"ldb\": 7, \"ldc\": 3, \"batch\": 4, \"stride_a\": 27, \"stride_b\": 0, \"stride_c\": 15, "
                                 "\"stride_bias\": 3, \"beta\": 1, \"compute\": \"fp32\", \"epilogue\": \"relu_bias\"}, \"method\": "
                                 "{\"backend\": \"cpu_ref\", \"form\": \"wide\", \"configuration\": {}}, \"origin\": {\"device\": "
                                 "\"host\", \"sm\": 0, \"multiprocessors\": 0, \"library\": \"\"}}" THEN OWN("3", "9")));
    const run_result *r = run("$T table verify a.json --device host");
    cr_expect_eq(r->status, 1, "the A are not stacked");
    expect_out(r, "a.json, entry 1: the problem cannot be done in this form: wide: ");
    run_good("sed -e 's/wide/loop/' a.json > b.json && sed -e 's/wide/separate/' a.json > c.json");
    cr_expect_str_eq(run_good("$T table verify b.json c.json --device host")->out,
                     "b.json: 2 entries\n"
                     "b.json: on host 1 right, 0 wrong, 1 of other devices or libraries, 0 too large to be checked\n"
                     "c.json: 2 entries\n"
                     "c.json: on host 1 right, 0 wrong, 1 of other devices or libraries, 0 too large to be checked\n");
    write_file("e.json", FILE_OF("{\"problem\": {\"transa\": \"t\", \"transb\": \"n\", \"m\": 9, \"n\": 5, \"k\": "
                                 "4096, \"lda\": 4096, \"ldb\": 4099, \"ldc\": 10, \"batch\": 1, \"beta\": 1, "
                                 "\"compute\": \"fp32\", \"epilogue\": \"none\"}, \"method\": "
                                 "{\"backend\": \"cpu_ref\", \"form\": "
                                 "\"split\", \"configuration\": {}}, \"origin\": {\"device\": \"host\", \"sm\": 0, "
                                 "\"multiprocessors\": 0, \"library\": \"\"}}"));
    expect_out(run_good("$T table verify e.json --device host"), "e.json: on host 1 right, 0 wrong");
    expect_out(run_good("$T explain 9 5 4096 --transa --ldb 4099 --ldc 10 --beta 1 --compute fp32 --device host "
                        "--policy tuned:strict --table e.json"), "form       split\n");
    run_good("sed -e 's/\"configuration\": {}/\"configuration\": {\"id\": 1}/' b.json > d.json");
    r = run("$T table verify d.json --device host");
    cr_expect_eq(r->status, 1);
    expect_out(r, "WRONG    d.json, entry 1: 3 5 7 --transa --batch 4 --lda 9 --stride-b 0 --beta 1 --epilogue relu_bias "
                  "--compute fp32: table on cpu_ref, loop, id 1: ");
    expect_out(r, "takes no configurations");
    expect_out(r, "0 right, 1 wrong");
    expect_failure(run("CUDA_VISIBLE_DEVICES= $T table verify b.json --device cuda"), 1, "--device cuda:0: ", "no device");
    run_good("TLOB_POLICY=tuned TLOB_TABLE=b.json $T table verify b.json --device host");
}

// The policy reads a table: with a device, without one, and not without a table.
Test(table, explain_and_info_read_the_table_of_the_policy) {
    write_file("a.json", FILE_OF(ENTRY("3", "cublaslt", "\"id\": 7", "d", "90", "cuBLASLt 1.0") THEN ENTRY(
                             "4", "cpu_ref", "", "host", "0", "")));
    const run_result *r = run_good("CUDA_VISIBLE_DEVICES= $T explain 3 5 7 --policy tuned --table a.json --compute tf32");
    expect_out(r, "policy     tuned (argument)\nbackend    cublaslt");
    expect_out(r, "form       whole\nby         id 7\nreason     tuned: a.json, entry 1 (d; cuBLASLt 1.0)\n");
    r = run_good("$T explain 4 5 7 --device host --policy tuned --table a.json --json");
    expect_out(r, "\"reason\":\t\"tuned: no entry for this problem; on the host, cpu_ref\"");
    expect_failure(run("$T explain 4 5 7 --device host --policy tuned:strict --table a.json"), 1,
                   "a.json, on NN m=4 n=5 k=7", "strict");
    r = run("$T explain 4 5 7 --device host --policy tuned");
    expect_failure(r, 1, "tuned (argument) needs a table of what was measured", "no table");
    r = run("$T explain 4 5 7 --device host --table a.json");
    expect_failure(r, 1, "the table 'a.json' is for policy tuned", "no policy");
    r = run("TLOB_TABLE=a.json $T explain 4 5 7 --device host");
    expect_failure(r, 1, "TLOB_TABLE", "no policy");
    run_good("TLOB_TABLE=a.json $T explain 4 5 7 --device host --policy fixed:cpu_ref");
    r = run_good("$T info --device host --policy tuned --table a.json");
    expect_out(r, "  table           a.json            argument\n");
    expect_out(r, "table a.json\n  entries         2 accepted, 0 rejected\n  host            0 entries are for it");
    expect_failure(run("$T info --device host --policy tuned --table none.json"), 1, "none.json", "no file");
}

// What a line says of a product is what `tlob explain` and `tlob table explain` take.
Test(table, a_product_is_shown_in_the_words_in_which_it_is_asked_for) {
    write_file("a.json",
               FILE_OF("{\"problem\": {\"transa\": \"t\", \"transb\": \"n\", \"m\": 3, \"n\": 5, \"k\": 7, \"lda\": 9, \"ldb\": 7, "
                       "\"ldc\": 3, \"batch\": 4, \"stride_a\": 27, \"stride_b\": 0, \"stride_c\": 15, \"stride_bias\": 0, "
                       "\"beta\": 1, \"compute\": \"fp32\", \"epilogue\": \"relu_bias\"}, \"method\": {\"backend\": \"own\", "
                       "\"form\": \"separate\", \"configuration\": {}}, \"origin\": {\"device\": \"host\", \"sm\": 0, "
                       "\"multiprocessors\": 0, \"library\": \"\"}}"));
    const char *words =
        "3 5 7 --transa --batch 4 --lda 9 --stride-b 0 --stride-bias 0 --beta 1 --epilogue relu_bias --compute fp32: own, separate (host)\n";
    expect_out(run_good("$T table list a.json"), words);
    const run_result *r = run_good("$T table explain a.json $($T table list a.json | head -1 | cut -d: -f1)");
    expect_out(r, "entry      a.json, entry 1\nbackend    own\nform       separate\nalgorithm  as the backend chooses by "
                  "itself\nmeasured   host\n");
    run_good("$T explain --device host $($T table list a.json | head -1 | cut -d: -f1)");
}

Test(table, explain_tells_which_entry_answers_or_why_none_does) {
    write_file("a.json", FILE_OF(OWN("3", "9") THEN ENTRY("3", "own", "", "host", "0", "") THEN OWN("3", "8")));
    const run_result *r = run_good("$T table explain a.json 3 5 7");
    expect_out(r, "numerics   tf32\ndevice     any\nentry      a.json, entry 1\nbackend    own\nform       whole\n"
                  "algorithm  id 9\nmeasured   d, sm_90, 2 multiprocessors; own 1\n");
    expect_out(r, "also       a.json, entry 2, of host, sm_0, 2 multiprocessors\n");
    expect_out(r, "also       a.json, entry 3, rejected: it contradicts 'a.json, entry 1'");
    r = run_good("$T table explain a.json 3 5 7 --device host --compute tf32");
    expect_out(r, "entry      none: the entry for this problem does not count here: it is of 'd' (sm_90, 2 "
                  "multiprocessors), and this device is 'host' (sm_0, 0)\n");
    expect_out(run_good("$T table explain a.json 3 5 8"), "entry      none: no entry for this problem\n");
    expect_out(run_good("$T table explain a.json 3 5 0"), "entry      none: there is nothing to multiply\n");
    expect_out(run_good("$T table explain a.json 3 5 7 --device host"), "numerics   fp32\ndevice     host\n");
    expect_failure(run("$T table explain a.json 3 5 7 --lda 2"), 1, "lda is 2", "lda");
    expect_failure(run("CUDA_VISIBLE_DEVICES= $T table explain a.json 3 5 7 --device cuda:0"), 1, "tlob: ", "no device");
}

Test(table, diff_is_silent_about_equal_tables_and_names_what_differs) {
    write_file("a.json", FILE_OF(OWN("3", "9") THEN OWN("4", "1") THEN ENTRY("5", "cublas_classic", "", "d", "90", "cuBLAS 1.0")));
    write_file("b.json", FILE_OF(OWN("4", "2") THEN OWN("6", "1") THEN ENTRY("5", "cublaslt", "", "d", "90", "cuBLASLt 1.0")));
    const run_result *r = run("$T table diff a.json b.json");
    cr_expect_eq(r->status, 1);
    cr_expect_str_eq(r->out,
                     "differs: 5 5 7 --compute tf32: cublas_classic, whole (d, sm_90, 2 multiprocessors; cuBLAS 1.0); in "
                     "b.json: cublaslt, whole\n"
                     "only in a.json: 3 5 7 --compute tf32: own, whole, id 9 (d, sm_90, 2 multiprocessors; own 1)\n"
                     "differs: 4 5 7 --compute tf32: own, whole, id 1 (d, sm_90, 2 multiprocessors; own 1); in b.json: "
                     "own, whole, id 2\n"
                     "only in b.json: 6 5 7 --compute tf32: own, whole, id 1 (d, sm_90, 2 multiprocessors; own 1)\n");
    cr_expect_str_eq(run_good("$T table diff a.json a.json")->out, "");
    write_file("c.json", FILE_OF(OWN("4", "1") THEN ENTRY("5", "cublas_classic", "", "d", "90", "cuBLAS 1.0") THEN OWN("3", "9")));
    cr_expect_str_eq(run_good("$T table diff a.json c.json")->out, "", "the order of a file is nothing");
    write_file("c.json", FILE_OF(OWN("3", "9") THEN LOOP_OF_ONE));
    write_file("d.json", FILE_OF(OWN("3", "9")));
    expect_failure(run("$T table diff c.json d.json"), 2, "c.json: 1 entries are rejected and not compared", "rejected");
}

Test(table, merge_makes_one_of_several_and_asks_where_they_contradict) {
    write_file("a.json", FILE_OF(OWN("3", "9") THEN OWN("4", "1")));
    write_file("b.json", FILE_OF(OWN("6", "1") THEN OWN("4", "1")));
    write_file("c.json", FILE_OF(LOOP_OF_ONE THEN OWN("4", "2")));
    cr_expect_str_eq(run_good("$T table merge ab.json a.json b.json")->out, "ab.json: 3 entries\n");
    run_good("$T table merge ba.json b.json a.json && cmp ab.json ba.json");
    run_good("$T table merge abab.json ab.json ba.json a.json && cmp ab.json abab.json");
    const run_result *r = run("$T table merge x.json a.json b.json c.json");
    expect_failure(r, 1,
                   "a.json, entry 2 and c.json, entry 2 contradict each other: 4 5 7 --compute tf32: own, whole, id 2 (d, "
                   "sm_90, 2 multiprocessors; own 1), and own, whole, id 1; say which is right with --prefer",
                   "contradiction");
    cr_expect_eq(run("ls x.json")->status, 2, "nothing is written");
    r = run_good("$T table merge first.json a.json b.json c.json --prefer first");
    cr_expect(strstr(r->err, "c.json: 1 entries are rejected and left out, the first: entry 1"), "%s", r->err);
    run_good("cmp first.json ab.json");
    run_good("$T table merge last.json a.json b.json c.json --prefer=last");
    expect_out(run_good("$T table list last.json"), "4 5 7 --compute tf32: own, whole, id 2 ");
    run_good("cp a.json old && ln -s a.json link");
    const char *const outputs[] = {"a.json", "./a.json", "link", "$DIR/a.json"};
    for (int i = 0; i < 4; i++)
        expect_failure(run("$T table merge %s a.json b.json", outputs[i]), 1, "would overwrite the input a.json",
                       outputs[i]);
    run_good("cmp a.json old");
    expect_failure(run("$T table merge folder/x a.json"), 1, "folder/x", "no such folder");
}

Test(table, verify_looks_at_every_entry) {
    write_file("a.json", FILE_OF(OWN("3", "9") THEN OWN("4", "1")));
    cr_expect_str_eq(run_good("$T table verify a.json")->out, "a.json: 2 entries\n");
    write_file("b.json", FILE_OF(OWN("3", "9") THEN LOOP_OF_ONE THEN OWN("3", "8")));
    const run_result *r = run("$T table verify a.json b.json");
    cr_expect_eq(r->status, 1);
    cr_expect(!strncmp(r->out,
                       "a.json: 2 entries\n"
                       "REJECTED b.json, entry 2: the problem has no \"transa\"\n"
                       "REJECTED b.json, entry 3: it contradicts 'b.json, entry 1'", 130), "%s", r->out);
}

// --- blocks ---

#define BLOCK(samples, plan)                                                                                           \
    "{\"block\": {\"d_in\": 32, \"d_out\": 16, \"head_dim\": 4, \"seq\": 1, \"samples\": " samples ", \"axis\": \"feature\""  \
    ", \"inference\": false, \"compute\": \"tf32\"},\n     \"plan\": \"" plan "\",\n     \"origin\": {\"device\": \"d\""  \
    ", \"sm\": 90, \"multiprocessors\": 2, \"library\": \"libtlob 0.0.1\"}}"
#define WITH_BLOCKS(text, blocks)                                                                                      \
    "{\"format\": \"tlob-table\", \"version\": 1, \"entries\": [\n    " text "\n],\n\"blocks\": [\n    " blocks "\n]}\n"
#define WORDS(samples, plan)                                                                                           \
    "--block --d-in 32 --d-out 16 --head-dim 4 --samples " samples " --compute tf32: " plan                            \
    " (d, sm_90, 2 multiprocessors; libtlob 0.0.1)"

// What is done to entries for products is done to those for blocks: none is lost on the way.
Test(table, blocks_are_listed_compared_merged_and_verified) {
    write_file("a.json", WITH_BLOCKS(OWN("3", "1"), BLOCK("64", "fused") THEN BLOCK("256", "fused")));
    write_file("b.json", WITH_BLOCKS(OWN("3", "1"), BLOCK("64", "composed") THEN BLOCK("9", "fused")));
    write_file("bad.json", WITH_BLOCKS(OWN("3", "1"), BLOCK("64", "best") THEN BLOCK("256", "fused")));
    const run_result *r = run_good("$T table list a.json");
    expect_out(r, WORDS("64", "fused") "\n" WORDS("256", "fused") "\na.json: 1 entries, 2 blocks\n");
    expect_out(run_good("$T table list --json a.json"), "\"samples\":\t256");
    expect_out(run_good("$T table list --rejected bad.json"), "bad.json, block 1: \"plan\" is 'best', which is not");
    expect_failure(run("$T table verify bad.json"), 1, "", "verify");
    expect_out(run("$T table verify bad.json"), "REJECTED bad.json, block 1: \"plan\" is 'best'");
    r = run("$T table diff a.json b.json");
    cr_expect_eq(r->status, 1);
    expect_out(r, "differs: " WORDS("64", "fused") "; in b.json: composed\n");
    expect_out(r, "only in a.json: " WORDS("256", "fused") "\n");
    expect_out(r, "only in b.json: " WORDS("9", "fused") "\n");
    cr_expect_str_eq(run_good("$T table diff a.json a.json")->out, "");
    expect_failure(run("$T table merge ab.json a.json b.json"), 1, "b.json, block 1 contradicts a table", "merge");
    expect_out(run_good("$T table merge first.json a.json b.json --prefer first"), "first.json: 1 entries, 3 blocks\n");
    expect_out(run_good("$T table list first.json"), WORDS("64", "fused"));
    run_good("$T table merge last.json a.json b.json --prefer last");
    expect_out(run_good("$T table list last.json"), WORDS("64", "composed"));
    run_good("$T table merge same.json a.json && cmp a.json same.json");
    expect_out(run_good("TLOB_POLICY=tuned $T info --device host --table a.json"), "libraries at hand, and 0 blocks");
}
