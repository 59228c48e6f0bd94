// The built-in problems: what the libraries choose by themselves, what the policy does, what a table says, and the best
// of all methods.
#include "cli/bench.h"

#include "cli/tune_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP    5    // of the pre-pass: those that are measured fully
#define SMALL  128
#define BEHIND 0.02 // what seems that far behind the best is measured once more

enum { CLASSIC, LT, POLICY, TUNED, BEST, COLUMNS };
static const char *const column_names[COLUMNS] = {"cublas_classic", "cublaslt", "policy", "tuned", "best"};

// What all problems share.
typedef struct sweep {
    const bench *b;
    tune_lab lab;
    tlob_table *table; // NULL: tuned is what the policy does
    tlob_device_info device;
    double bytes_per_us, launch_us; // of a copy, and of the least node of a graph; NAN on the host
    int problems, hits, small;
    double worst, log_better, log_classic; // tuned over best; sums of logarithms of small problems
    char worst_name[64];
} sweep;

// --- floors ---

static tlob_status run_nothing(const void *user, tlob_stream *stream) {
    const tlob_gemm gemm = tlob_gemm_init(1, 1, 0);
    tlob_gemm_operands x = {.d = tlob_buffer_data(user)};
    return tlob_gemm_run(stream, &gemm, &x);
}

// A kernel that stores one number, as a node of a graph.
static bool measure_launch(sweep *s) {
    tlob_buffer *buffer = NULL;
    bench_graph *graph = NULL;
    double us;
    bool good = !tlob_buffer_create(s->b->ctx, 256, &buffer);
    const bench_work work = {run_nothing, buffer};
    if (!good || work.enqueue(work.user, s->lab.stream)) {
        cli_tlob_error("bench");
        good = false;
    }
    good = good && bench_graph_open(s->b->cuda, s->lab.stream, &work, 64, &graph);
    for (int i = 0; i < 21 && good; i++) {
        good = bench_graph_time(s->b->cuda, &graph, 1, false, &us);
        s->launch_us = fmin(s->launch_us, us);
    }
    bench_graph_close(&graph);
    tlob_buffer_destroy(&buffer);
    return good;
}

// Every matrix once: a shared one once for all.
static double bytes_of(const tlob_gemm *g) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k, batch = (double)g->batch;
    const bool one_a = g->batch > 1 && !g->stride_a, one_b = g->batch > 1 && !g->stride_b;
    double bytes =
        4 * ((one_a ? 1 : batch) * m * k + (one_b ? 1 : batch) * k * n + (g->beta != 0 ? 2 : 1) * batch * m * n);
    if (t->reads_bias || t->writes_bgrad)
        bytes += 4 * batch * (g->epilogue == TLOB_EPILOGUE_BGRADB ? n : m);
    if (t->reads_aux || t->writes_aux)
        bytes += batch * m * n * (t->aux_is_mask ? 0.125 : 4);
    return bytes;
}

// --- one problem ---

// What is compared of a problem: for each column the place in `set` of its method, -1 where there is none.
typedef struct lineup {
    int set[TOP + COLUMNS], count;
    int column[COLUMNS];
} lineup;

static int enlist(lineup *l, int index) {
    for (int i = 0; i < l->count; i++)
        if (l->set[i] == index)
            return i;
    l->set[l->count] = index;
    return index < 0 ? -1 : l->count++;
}

static int find_own(const tune_session *session, const char *backend) {
    tlob_method own = {.form = TLOB_FORM_WHOLE};
    snprintf(own.backend, sizeof own.backend, "%s", backend);
    return tune_session_find(session, &own);
}

// The fastest of the pre-pass.
static void enlist_top(lineup *l, const tune_session *session) {
    int top[TOP], count = 0;
    for (int i = 0; i < tune_session_count(session); i++) {
        const tune_method *m = tune_session_method(session, i);
        if (*m->why || m->dropped)
            continue;
        int at = count < TOP ? count++ : TOP;
        while (at > 0 && (at == TOP || tune_session_method(session, top[at - 1])->warm_us > m->warm_us)) {
            if (at < TOP)
                top[at] = top[at - 1];
            else if (tune_session_method(session, top[TOP - 1])->warm_us <= m->warm_us)
                break;
            at--;
        }
        if (at < TOP)
            top[at] = i;
    }
    for (int i = 0; i < count; i++)
        enlist(l, top[i]);
}

// The method of the table's entry, which must be one that is right here; or what the policy does.
static bool find_tuned(sweep *s, const cli_problem *problem, const tlob_table_entry *entry, const tune_session *session,
                       int *index) {
    char text[256];
    *index = entry ? tune_session_incumbent(session) : tune_session_standard(session);
    if (!entry)
        return true;
    s->hits++;
    const char *why = *index < 0 ? "no method of this problem here" : tune_session_method(session, *index)->why;
    if (!*why)
        return true;
    tlob_method_print(&entry->method, text, sizeof text);
    cli_error("%s: %s: %s: %s", entry->source, problem->name, text, why);
    return false;
}

static bool line_up(sweep *s, const cli_problem *problem, const tlob_table_entry *entry, const tune_session *session,
                    lineup *l) {
    int tuned;
    *l = (lineup){.count = 0};
    if (!find_tuned(s, problem, entry, session, &tuned))
        return false;
    l->column[CLASSIC] = enlist(l, find_own(session, "cublas_classic"));
    l->column[LT] = enlist(l, find_own(session, "cublaslt"));
    l->column[POLICY] = enlist(l, tune_session_standard(session));
    l->column[TUNED] = enlist(l, tuned);
    enlist_top(l, session);
    if (l->count && l->column[TUNED] >= 0)
        return true;
    cli_error("%s: the policy's own method cannot do it", problem->name);
    return false;
}

// --- telling ---

static void print_head(const sweep *s) {
    if (isfinite(s->bytes_per_us))
        printf("copy     %.2f TB/s, read and written\nlaunch   %.2f us, the least node of a graph\n",
               s->bytes_per_us / 1e6, s->launch_us);
    printf("%-34s", "problem, us");
    for (int i = 0; i < COLUMNS; i++)
        printf(" %*s", i ? 9 : 14, column_names[i]);
    printf("  tuned/best  default/tuned  bytes  launch\n");
}

static void print_us(double us, int width) {
    if (isfinite(us))
        printf(" %*.2f", width, us);
    else
        printf(" %*s", width, "-");
}

static void print_share(double floor_us, double us) {
    if (isfinite(floor_us))
        printf("  %4.0f%%", 100 * floor_us / us);
    else
        printf("  %5s", "-");
}

static void print_row(const sweep *s, const cli_problem *problem, const double us[COLUMNS], double better) {
    printf("%-34s", problem->name);
    for (int i = 0; i < COLUMNS; i++)
        print_us(us[i], i ? 9 : 14);
    printf("  %10.3f ", us[TUNED] / us[BEST]);
    print_us(better / us[TUNED], 13);
    print_share(bytes_of(&problem->gemm) / s->bytes_per_us, us[TUNED]);
    print_share(s->launch_us, us[TUNED]);
    printf("\n");
    fflush(stdout);
}

static void add_row(const sweep *s, const cli_problem *problem, const tune_session *session, const lineup *l,
                    const double us[COLUMNS], double *samples) {
    const int rounds = s->lab.repeat;
    const tlob_gemm *g = tune_session_gemm(session);
    char text[256];
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "what", problem->name);
    cJSON_AddNumberToObject(row, "n", (double)g->n);
    cJSON_AddStringToObject(row, "mode", s->b->cuda ? "graph" : "wall");
    bench_times best = {0};
    for (int i = TUNED; i < COLUMNS; i++) { // the same method twice has the same times: sorting them does no harm
        best = bench_summarize(samples + l->column[i] * rounds, rounds);
        bench_add_times(row, column_names[i], best);
    }
    bench_add_number(row, "ratio", us[BEST] / us[TUNED]);
    cJSON_AddNumberToObject(row, "m", (double)g->m);
    cJSON_AddNumberToObject(row, "k", (double)g->k);
    cJSON_AddNumberToObject(row, "batch", (double)g->batch);
    cJSON *least = cJSON_AddObjectToObject(row, "least_us"), *methods = cJSON_AddObjectToObject(row, "methods");
    for (int i = 0; i < COLUMNS; i++) {
        if (l->column[i] < 0)
            continue;
        tlob_method_print(&tune_session_method(session, l->set[l->column[i]])->method, text, sizeof text);
        bench_add_number(least, column_names[i], us[i]);
        cJSON_AddStringToObject(methods, column_names[i], text);
    }
    if (isfinite(s->bytes_per_us)) {
        bench_add_number(row, "bytes_share", bytes_of(g) / s->bytes_per_us / us[TUNED]);
        bench_add_number(row, "launch_share", s->launch_us / us[TUNED]);
    }
    cJSON_AddItemToArray(s->b->rows, row);
}

static void account(sweep *s, const cli_problem *problem, const double us[COLUMNS], double better) {
    const double behind = us[TUNED] / us[BEST];
    s->problems++;
    if (behind > s->worst) {
        s->worst = behind;
        memcpy(s->worst_name, problem->name, sizeof s->worst_name);
    }
    if (problem->gemm.m < SMALL && problem->gemm.n < SMALL && isfinite(us[CLASSIC])) {
        s->small++;
        s->log_better += log(better / us[TUNED]);
        s->log_classic += log(us[CLASSIC] / us[TUNED]);
    }
}

// The least times of the set into least[], beside what is there. `samples`: room for all rounds of all.
static bool time_lineup(const sweep *s, tune_session *session, const lineup *l, double *least, double *samples) {
    if (!tune_session_time(session, l->set, l->count, s->lab.repeat, samples))
        return false;
    for (int i = 0; i < l->count; i++)
        least[i] = fmin(least[i], tune_session_method(session, l->set[i])->warm_us);
    return true;
}

static void find_best(lineup *l, const double *least) {
    l->column[BEST] = 0;
    for (int i = 1; i < l->count; i++)
        if (least[i] < least[l->column[BEST]])
            l->column[BEST] = i;
}

static bool has_same_methods(const tune_session *session, const tune_session *again, const lineup *l) {
    for (int i = 0; i < l->count; i++)
        if (l->set[i] >= tune_session_count(again) || *tune_session_method(again, l->set[i])->why ||
            !tlob_method_equal(&tune_session_method(again, l->set[i])->method,
                               &tune_session_method(session, l->set[i])->method))
            return cli_error("bench gemm: a second measurement has other methods, or one of them is wrong there"), false;
    return true;
}

// Where operands lie in memory makes a difference of some per cent for some methods. What seems behind is measured once
// more with others beside the first, and the least of both counts, for all. The order of methods is the same there.
static bool measure_again(sweep *s, const tune_session *session, const tlob_method *standard, lineup *l, double *least,
                          double *samples) {
    tune_session *again = NULL;
    find_best(l, least);
    if (least[l->column[TUNED]] <= (1 + BEHIND) * least[l->column[BEST]])
        return true;
    bool good =
        tune_session_open(&s->lab, tune_session_gemm(session), standard,
                          &tune_session_method(session, l->set[l->column[TUNED]])->method, &again) &&
        has_same_methods(session, again, l) && time_lineup(s, again, l, least, samples);
    if (good)
        find_best(l, least);
    if (tune_session_lacks_memory(again)) {
        cli_error("bench gemm: no memory to measure it once more: one measurement decides");
        good = true;
    }
    tune_session_close(&again);
    return good;
}

static bool measure_lineup(sweep *s, const cli_problem *problem, const tlob_method *standard, tune_session *session,
                           lineup *l) {
    const size_t count = (size_t)l->count * (size_t)s->lab.repeat;
    double us[COLUMNS], least[TOP + COLUMNS], *samples = malloc(2 * count * sizeof *samples);
    for (int i = 0; i < l->count; i++)
        least[i] = INFINITY;
    if (!samples)
        cli_error("out of memory");
    if (!samples || !time_lineup(s, session, l, least, samples) ||
        !measure_again(s, session, standard, l, least, samples + count)) {
        free(samples);
        return false;
    }
    for (int i = 0; i < COLUMNS; i++)
        us[i] = l->column[i] < 0 ? NAN : least[l->column[i]];
    const double better = fmin(us[CLASSIC], us[LT]);
    account(s, problem, us, better);
    if (s->b->options->json)
        add_row(s, problem, session, l, us, samples);
    else
        print_row(s, problem, us, better);
    free(samples);
    return true;
}

static bool measure_problem(sweep *s, const cli_problem *problem) {
    tune_session *session = NULL;
    tlob_gemm gemm = problem->gemm;
    tlob_method standard;
    lineup l;
    if (!tune_resolve(s->lab.stream, &gemm) || !tune_standard(s->lab.stream, &gemm, &standard))
        return false;
    const tlob_table_entry *entry = tlob_table_find(s->table, &gemm, &s->device);
    bool good = tune_session_open(&s->lab, &gemm, &standard, entry ? &entry->method : NULL, &session) &&
                line_up(s, problem, entry, session, &l) && measure_lineup(s, problem, &standard, session, &l);
    tune_session_close(&session);
    return good;
}

// --- the sweep ---

static void tell_summary(const sweep *s) {
    const double better = s->small ? exp(s->log_better / s->small) : NAN;
    const double classic = s->small ? exp(s->log_classic / s->small) : NAN;
    if (!s->b->options->json) {
        printf("%d problems, %d of them in the table\nworst tuned/best: %.3f, %s\n", s->problems, s->hits, s->worst,
               s->worst_name);
        if (s->small)
            printf("geometric means over the %d problems with m and n below %d: better default/tuned %.3f, "
                   "cublas_classic/tuned %.3f\n",
                   s->small, SMALL, better, classic);
        return;
    }
    cJSON *summary = cJSON_AddObjectToObject(s->b->json, "summary");
    cJSON_AddNumberToObject(summary, "problems", s->problems);
    cJSON_AddNumberToObject(summary, "in_table", s->hits);
    bench_add_number(summary, "worst_tuned_over_best", s->worst);
    cJSON_AddStringToObject(summary, "worst_problem", s->worst_name);
    cJSON_AddNumberToObject(summary, "small_problems", s->small);
    if (s->small) {
        bench_add_number(summary, "small_better_default_over_tuned", better);
        bench_add_number(summary, "small_classic_over_tuned", classic);
    }
    if (isfinite(s->bytes_per_us)) {
        bench_add_number(summary, "copy_bytes_per_us", s->bytes_per_us);
        bench_add_number(summary, "launch_us", s->launch_us);
    }
}

static bool prepare(sweep *s, cli_problems *problems, tlob_context **host) {
    const bench_options *options = s->b->options;
    tlob_table_report report = {0};
    if (options->table && tlob_table_read(options->table, &s->table, &report)) {
        cli_tlob_error(NULL);
        return false;
    }
    if (report.rejected)
        cli_error("%s: %lld entries are rejected and so not timed, the first: %s", options->table,
                  (long long)report.rejected, report.reason);
    if (!cli_problems_builtin(problems))
        return false;
    if (options->filter)
        cli_problems_filter(problems, options->filter);
    if (!problems->count) {
        cli_error("--filter %s: no problem has such a name", options->filter);
        return false;
    }
    return tune_device(s->b->ctx, &s->device) && tune_oracle_open(host, &s->lab.oracle) &&
           (!s->b->cuda || (bench_cuda_copy_speed(s->b->cuda, &s->bytes_per_us) && measure_launch(s)));
}

bool bench_gemm(bench *b) {
    sweep s = {.b = b,
               .lab = {.stream = b->stream,
                       .cuda = b->cuda,
                       .seconds = cli_seconds,
                       .seed = b->options->seed,
                       .repeat = b->options->repeat ? b->options->repeat : 21},
               .bytes_per_us = NAN,
               .launch_us = NAN};
    cli_problems problems = {0};
    tlob_context *host = NULL;
    bool good = prepare(&s, &problems, &host);
    if (good && !b->options->json)
        print_head(&s);
    for (int i = 0; i < problems.count && good; i++)
        good = measure_problem(&s, &problems.list[i]);
    if (good)
        tell_summary(&s);
    tlob_stream_close(&s.lab.oracle);
    tlob_context_destroy(&host);
    tlob_table_destroy(&s.table);
    cli_problems_free(&problems);
    return good;
}
