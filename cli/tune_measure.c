#include "cli/tune_measure.h"

#include "cli/tune_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_US    100 // what a sample takes, about,
#define SAMPLE_CALLS 64  // unless that were more calls
#define PRE_US       40  // the same of the pre-pass
#define PRE_CALLS    8
#define PRE_SAMPLES  3
#define SHORT_ROUNDS 4     // further short samples, after which who is
#define SHORT_MARGIN 0.20  // this far past the band is not timed in full
#define LONG_US      300.0 // what takes so long is disturbed little: one sample each will do
#define PRE_FACTOR   1.5   // what takes longer than that times the best is dropped,
#define FIRST_FACTOR 3.0   // already by its first call alone if it is behind by this
#define FIRST_US     20.0  // and this much, for a first call waits for the host
#define LOOP_FACTOR  10.0  // a loop that is this far behind is not tried with other algorithms
#define LOOP_US      200.0
#define EARLY_ROUNDS 5    // after so many rounds, who is
#define EARLY_MARGIN 0.13 // this far past the band goes;
#define LATE_ROUNDS  9
#define LATE_MARGIN  0.03
#define LEAST_SHARE  0.4   // the least band that chooses, of the largest
#define EDGE         0.003 // where so little more or less would choose another, more rounds are needed,
#define EDGE_ROUNDS  3     // at most so many times the rounds that all have

struct tune_session {
    const tune_lab *lab;
    tune_data *data;
    tune_method *methods;
    int count, room;
    bool out_of_memory, lacks_memory; // for the list; for the operands
    int standard, incumbent;          // -1: none
    int calls;                        // of a sample
    int *set;                         // indices of the methods that are timed at present; room for all
    double *us;
    bench_graph **graphs;
};

static bool interrupted(const tune_session *s) {
    return s->lab->interrupted && *s->lab->interrupted;
}

// --- methods ---

static void take_method(void *user, const tlob_method *method) {
    tune_session *s = user;
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 64;
        tune_method *methods = realloc(s->methods, (size_t)room * sizeof *methods);
        if (!methods) {
            s->out_of_memory = true;
            return;
        }
        s->methods = methods;
        s->room = room;
    }
    s->methods[s->count++] = (tune_method){.method = *method, .warm_us = NAN, .cold_us = NAN};
}

static void put_first(tune_session *s, int index) {
    tune_method first = s->methods[index];
    memmove(s->methods + 1, s->methods, (size_t)index * sizeof first);
    s->methods[0] = first;
    s->standard = 0;
}

static bool list_methods(tune_session *s, const tlob_method *standard, const tlob_method *incumbent) {
    if (tlob_gemm_methods(s->lab->stream, tune_data_gemm(s->data), tune_data_operands(s->data), take_method, s)) {
        cli_tlob_error("the methods of a product");
        return false;
    }
    for (int i = 0; i < s->count && s->standard < 0; i++)
        if (tlob_method_equal(&s->methods[i].method, standard))
            put_first(s, i);
    for (int i = 0; i < s->count && incumbent && s->incumbent < 0; i++)
        if (tlob_method_equal(&s->methods[i].method, incumbent))
            s->incumbent = i;
    size_t room = (size_t)s->count + 1;
    s->set = malloc(room * sizeof *s->set);
    s->us = malloc(room * sizeof *s->us);
    s->graphs = malloc(room * sizeof *s->graphs);
    if (!s->out_of_memory && s->set && s->us && s->graphs)
        return true;
    cli_error("out of memory");
    return false;
}

// --- one call ---

typedef struct call {
    const tlob_method *method;
    const tune_data *data;
} call;

static tlob_status run_call(const void *user, tlob_stream *stream) {
    const call *c = user;
    return tlob_gemm_run_as(stream, c->method, tune_data_gemm(c->data), tune_data_operands(c->data));
}

static bench_work work_of(const call *c) {
    return (bench_work){run_call, c};
}

// A device that has failed answers nothing any more: the session ends.
static bool is_fatal(tlob_status status) {
    return status == TLOB_ERR_CUDA || status == TLOB_ERR_CLOSED;
}

// Notes why a method is never chosen; false where nothing can be measured any more.
static bool note_status(tune_method *m, tlob_status status) {
    if (status)
        snprintf(m->why, sizeof m->why, "%.250s", tlob_last_error()->message);
    if (is_fatal(status))
        cli_tlob_error("tune");
    return !is_fatal(status);
}

static bool check_method(tune_session *s, tune_method *m, bool whole) {
    const call c = {&m->method, s->data};
    tlob_status status = tune_data_poison(s->data);
    if (!status)
        status = run_call(&c, s->lab->stream);
    if (!status)
        status = tune_data_check(s->data, whole, m->why, sizeof m->why);
    return note_status(m, status);
}

// What a call takes when it is made from the host: a first estimate, the least of those so far.
static bool estimate(tune_session *s, tune_method *m) {
    const call c = {&m->method, s->data};
    const bench_work work = work_of(&c);
    tlob_status status;
    double us = NAN;
    if (s->lab->cuda) {
        if (!bench_cuda_time_call(s->lab->cuda, s->lab->stream, &work, &status, &us))
            return false;
    } else {
        double start = s->lab->seconds();
        status = run_call(&c, s->lab->stream);
        us = 1e6 * (s->lab->seconds() - start);
    }
    m->warm_us = fmin(m->warm_us, us);
    return note_status(m, status);
}

static double best_of(const tune_session *s) {
    double best = INFINITY;
    for (int i = 0; i < s->count; i++)
        if (!*s->methods[i].why && s->methods[i].warm_us < best)
            best = s->methods[i].warm_us;
    return best;
}

// Loops of many products take long to try: where the backend's own choice is far behind, its others are not tried.
static bool is_hopeless(const tune_session *s, const tune_method *m, double best) {
    if (m->method.form != TLOB_FORM_LOOP || !m->method.n_configuration)
        return false;
    for (const tune_method *own = s->methods; own < s->methods + s->count; own++)
        if (own->method.form == TLOB_FORM_LOOP && !own->method.n_configuration &&
            !strcmp(own->method.backend, m->method.backend))
            return own->warm_us > LOOP_US && own->warm_us > LOOP_FACTOR * best;
    return false;
}

static bool try_methods(tune_session *s) {
    double best = INFINITY;
    for (int i = 0; i < s->count; i++) {
        tune_method *m = &s->methods[i];
        if (interrupted(s))
            return false;
        if (i != s->incumbent && is_hopeless(s, m, best)) {
            snprintf(m->why, sizeof m->why, "not tried: a loop by this backend's own choice is far behind");
            m->dropped = true;
            continue;
        }
        if (!check_method(s, m, !tune_data_is_large(s->data)) || (!*m->why && !estimate(s, m)))
            return false;
        if (!*m->why && m->warm_us < best)
            best = m->warm_us;
    }
    return true;
}

// --- samples ---

// The same calls of every method of the set, made ready to be timed.
static bool prepare(tune_session *s, int count, int calls) {
    s->calls = calls;
    for (int i = 0; s->lab->cuda && i < count; i++) {
        tune_method *m = &s->methods[s->set[i]];
        const call c = {&m->method, s->data};
        const bench_work work = work_of(&c);
        if (m->graph && m->graph_calls == calls)
            continue;
        bench_graph_close(&m->graph);
        m->graph_calls = calls;
        if (!bench_graph_open(s->lab->cuda, s->lab->stream, &work, calls, &m->graph))
            return false;
    }
    return true;
}

static bool time_by_clock(tune_session *s, int count, bool backwards) {
    for (int i = 0; i < count; i++) {
        const int at = backwards ? count - 1 - i : i;
        const call c = {&s->methods[s->set[at]].method, s->data};
        double start = s->lab->seconds();
        for (int j = 0; j < s->calls; j++)
            if (run_call(&c, s->lab->stream)) {
                cli_tlob_error("tune");
                return false;
            }
        s->us[at] = 1e6 * (s->lab->seconds() - start) / s->calls;
    }
    return true;
}

// One sample of each method of the set: s->us[i] of the one at set[i].
static bool take_samples(tune_session *s, int count, bool backwards, bool cold) {
    if (interrupted(s))
        return false;
    if (!s->lab->cuda)
        return time_by_clock(s, count, backwards);
    for (int i = 0; i < count; i++)
        s->graphs[i] = s->methods[s->set[backwards ? count - 1 - i : i]].graph;
    if (!bench_graph_time(s->lab->cuda, s->graphs, count, cold, s->us))
        return false;
    for (int i = 0; backwards && i < count / 2; i++) {
        double us = s->us[i];
        s->us[i] = s->us[count - 1 - i];
        s->us[count - 1 - i] = us;
    }
    return true;
}

static double *time_of(tune_method *m, bool cold) {
    return cold ? &m->cold_us : &m->warm_us;
}

// A round: keeps the least of the samples.
static bool run_round(tune_session *s, int count, int round, bool cold) {
    if (!take_samples(s, count, round % 2 != 0, cold))
        return false;
    for (int i = 0; i < count; i++) {
        double *us = time_of(&s->methods[s->set[i]], cold);
        *us = fmin(*us, s->us[i]); // of NAN and a number the number
    }
    return true;
}

static void forget_times(tune_session *s, int count, bool cold) {
    for (int i = 0; i < count; i++)
        *time_of(&s->methods[s->set[i]], cold) = NAN;
}

static int calls_for(double us, double sample_us, int most) {
    double calls = us > 0 ? sample_us / us : most;
    return calls < 1 ? 1 : calls > most ? most : (int)calls;
}

// --- the pre-pass ---

// Those that are right and not dropped yet.
static int survivors(tune_session *s) {
    int count = 0;
    for (int i = 0; i < s->count; i++)
        if (!*s->methods[i].why && !s->methods[i].dropped)
            s->set[count++] = i;
    return count;
}

// Who was dropped on the word of one that turned out to be wrong is looked at again.
static void drop_slow(tune_session *s, double factor, double us) {
    double limit = factor * best_of(s) + us;
    for (int i = 0; i < s->count; i++)
        if (!*s->methods[i].why)
            s->methods[i].dropped = i != s->standard && s->methods[i].warm_us > limit;
}

// Checks all that is left in full, where the first check was one of some blocks.
static bool check_whole(tune_session *s, bool *checked, bool *failed) {
    int count = survivors(s);
    *failed = false;
    for (int i = 0; i < count; i++) {
        int index = s->set[i];
        if (interrupted(s))
            return false;
        if (!checked[index] && !check_method(s, &s->methods[index], true))
            return false;
        checked[index] = true;
        *failed = *failed || *s->methods[index].why;
    }
    return true;
}

// The first in the order is what the others are held against: its own check comes first, slow or not.
static bool check_first(tune_session *s, bool *checked) {
    for (int i = 0; i < s->count; i++) {
        if (*s->methods[i].why)
            continue;
        if (interrupted(s) || !check_method(s, &s->methods[i], true))
            return false;
        checked[i] = true;
        if (!*s->methods[i].why)
            return true;
    }
    return true;
}

static bool settle_large(tune_session *s) {
    bool *checked = calloc((size_t)s->count + 1, sizeof *checked), failed = true, good = checked != NULL;
    if (!good)
        cli_error("out of memory");
    good = good && check_first(s, checked);
    drop_slow(s, PRE_FACTOR, 0);
    while (good && failed) {
        good = check_whole(s, checked, &failed);
        if (good && failed)
            drop_slow(s, PRE_FACTOR, 0);
    }
    free(checked);
    return good;
}

// Drops by the first calls alone: not by one, for the host may have been kept from making it.
static bool drop_hopeless(tune_session *s) {
    for (int again = 0; again < 2; again++) {
        drop_slow(s, FIRST_FACTOR, FIRST_US);
        for (int i = 0; i < s->count; i++)
            if (s->methods[i].dropped && !*s->methods[i].why && !estimate(s, &s->methods[i]))
                return false;
    }
    drop_slow(s, FIRST_FACTOR, FIRST_US);
    return !interrupted(s);
}

static bool run_pre_pass(tune_session *s) {
    double best = best_of(s);
    int count;
    if (!drop_hopeless(s))
        return false;
    count = survivors(s);
    if (!prepare(s, count, calls_for(best, PRE_US, PRE_CALLS)))
        return false;
    forget_times(s, count, false);
    for (int round = 0; round < (best < LONG_US ? PRE_SAMPLES : 1); round++)
        if (!run_round(s, count, round, false))
            return false;
    drop_slow(s, PRE_FACTOR, 0);
    return !tune_data_is_large(s->data) || settle_large(s);
}

// --- the choice ---

// The best time of those that are right and not dropped.
static double best_time(tune_session *s, bool cold) {
    double best = INFINITY;
    for (int i = 0; i < s->count; i++)
        if (!*s->methods[i].why && !s->methods[i].dropped)
            best = fmin(best, *time_of(&s->methods[i], cold));
    return best;
}

// How far a method is behind: 0.01 is 1 %. NAN where it is out of the running.
static double behind(tune_session *s, int index, bool cold, double best) {
    tune_method *m = &s->methods[index];
    return *m->why || m->dropped ? NAN : *time_of(m, cold) / best - 1;
}

// The method that the longest stretch of bands chooses, and by how much its stretch is longer than any other. Bands
// choose a method from where it is within them to where one that is earlier in the order is.
static tune_choice vote(tune_session *s, bool cold, double *lead) {
    const double best = best_time(s, cold), least = LEAST_SHARE * s->lab->band;
    double end = s->lab->band, longest = -INFINITY, second = -INFINITY;
    tune_choice choice = {.index = -1};
    for (int i = 0; i < s->count; i++) {
        const double at = behind(s, i, cold, best);
        if (!(choice.index < 0 ? at <= end : at < end))
            continue;
        const double from = fmax(at, least);
        second = fmax(second, fmin(longest, end - from));
        if (end - from > longest) {
            longest = end - from;
            choice = (tune_choice){.index = i, .from = from, .to = end};
        }
        end = at;
        if (end <= least)
            break;
    }
    *lead = longest - second;
    return choice;
}

// Doubtful is a choice that would be another if times were a little more or less.
static tune_choice choose(tune_session *s, bool cold, bool *doubtful) {
    const double past = s->incumbent < 0 ? NAN : behind(s, s->incumbent, cold, best_time(s, cold)) - s->lab->band;
    double lead;
    tune_choice choice = vote(s, cold, &lead);
    if (past <= 0)
        choice = (tune_choice){.index = s->incumbent, .kept = true};
    *doubtful = fabs(past) < EDGE || (!choice.kept && lead < 2 * EDGE);
    return choice;
}

// Leaves in the set who is within `limit` times the best.
static int keep_close(tune_session *s, int count, bool cold, double limit) {
    const double best = best_time(s, cold);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (*time_of(&s->methods[s->set[i]], cold) <= limit * best)
            s->set[kept++] = s->set[i];
    return kept;
}

// The standard's time is always told.
static void add_standard(tune_session *s, int *count) {
    if (s->standard < 0 || *s->methods[s->standard].why)
        return;
    for (int i = 0; i < *count; i++)
        if (s->set[i] == s->standard)
            return;
    s->set[(*count)++] = s->standard;
}

// Where the choice is doubtful, leaves in the set the incumbent and whom some band chooses, the best among them.
static bool keep_doubtful(tune_session *s, int *count, bool cold) {
    const double best = best_time(s, cold);
    double end = s->lab->band + EDGE;
    int kept = 0;
    bool doubtful;
    choose(s, cold, &doubtful);
    for (int i = 0; i < *count && doubtful; i++) {
        const int index = s->set[i];
        const double at = behind(s, index, cold, best);
        if (at < end || index == s->incumbent)
            s->set[kept++] = index;
        end = fmin(end, at);
    }
    *count = kept;
    return doubtful;
}

// More short samples, as those of the pre-pass: they are cheap, and few are left for the full ones. The standard stays.
static bool run_short_rounds(tune_session *s, int *count) {
    const double best = best_of(s);
    if (!prepare(s, *count, calls_for(best, PRE_US, PRE_CALLS)))
        return false;
    for (int round = 0; round < (best < LONG_US ? SHORT_ROUNDS : 1); round++)
        if (!run_round(s, *count, round, false))
            return false;
    *count = keep_close(s, *count, false, 1 + s->lab->band + SHORT_MARGIN);
    add_standard(s, count);
    return true;
}

// The rounds of the times that decide, for the methods of the set.
static bool run_rounds(tune_session *s, int count, bool cold) {
    if (cold)
        forget_times(s, count, false); // those of the pre-pass are estimates
    forget_times(s, count, cold);
    for (int round = 0; round < s->lab->repeat; round++) {
        if (!run_round(s, count, round, cold))
            return false;
        if (round + 1 == EARLY_ROUNDS)
            count = keep_close(s, count, cold, 1 + s->lab->band + EARLY_MARGIN);
        if (round + 1 == LATE_ROUNDS)
            count = keep_close(s, count, cold, 1 + s->lab->band + LATE_MARGIN);
    }
    for (int round = 0; round < EDGE_ROUNDS * s->lab->repeat && keep_doubtful(s, &count, cold); round++) {
        if (!run_round(s, count, round, cold))
            return false;
        count = keep_close(s, survivors(s), cold, 1 + s->lab->band + LATE_MARGIN);
    }
    return true;
}

// The other times, for the record: of those within the band, and of the standard.
static bool run_other_rounds(tune_session *s, bool cold) {
    int count = keep_close(s, survivors(s), s->lab->cold, 1 + s->lab->band);
    add_standard(s, &count);
    if (!prepare(s, count, cold ? 1 : s->calls))
        return false;
    forget_times(s, count, cold);
    for (int round = 0; round < (s->lab->repeat + 2) / 3; round++)
        if (!run_round(s, count, round, cold))
            return false;
    return true;
}

bool tune_session_compete(tune_session *s, tune_choice *choice) {
    int count = survivors(s), calls = calls_for(best_of(s), SAMPLE_US, SAMPLE_CALLS);
    bool doubtful;
    *choice = (tune_choice){.index = -1};
    if (!count)
        return true;
    if (!s->lab->cold && !run_short_rounds(s, &count))
        return false;
    if (!prepare(s, count, s->lab->cold ? 1 : calls) || !run_rounds(s, count, s->lab->cold))
        return false;
    *choice = choose(s, s->lab->cold, &doubtful);
    s->calls = calls;
    return !s->lab->cuda || run_other_rounds(s, !s->lab->cold);
}

bool tune_session_time(tune_session *s, const int *set, int count, int rounds, double *samples) {
    double best = INFINITY;
    for (int i = 0; i < count; i++) {
        s->set[i] = set[i];
        best = fmin(best, s->methods[set[i]].warm_us);
    }
    if (!prepare(s, count, calls_for(best, SAMPLE_US, SAMPLE_CALLS)))
        return false;
    forget_times(s, count, false);
    for (int round = 0; round < rounds; round++) {
        if (!run_round(s, count, round, false))
            return false;
        for (int i = 0; i < count; i++)
            samples[i * rounds + round] = s->us[i];
    }
    return true;
}

// --- life ---

bool tune_session_open(const tune_lab *lab, const tlob_gemm *gemm, const tlob_method *standard,
                       const tlob_method *incumbent, tune_session **out) {
    tune_session *s = *out = calloc(1, sizeof *s);
    if (!s) {
        cli_error("out of memory");
        return false;
    }
    s->lab = lab;
    s->standard = s->incumbent = -1;
    tlob_status status = tune_data_open(lab->stream, lab->oracle, gemm, lab->seed, &s->data);
    s->lacks_memory = status == TLOB_ERR_OUT_OF_MEMORY;
    return !status && list_methods(s, standard, incumbent) && try_methods(s) && run_pre_pass(s);
}

void tune_session_close(tune_session **ptr) {
    tune_session *s = *ptr;
    if (!s)
        return;
    for (int i = 0; i < s->count; i++)
        bench_graph_close(&s->methods[i].graph);
    tune_data_close(&s->data);
    free(s->methods);
    free(s->set);
    free(s->us);
    free(s->graphs);
    free(s);
    *ptr = NULL;
}

bool tune_session_lacks_memory(const tune_session *s) {
    return s && s->lacks_memory;
}

const tlob_gemm *tune_session_gemm(const tune_session *s) {
    return tune_data_gemm(s->data);
}

int tune_session_count(const tune_session *s) {
    return s->count;
}

const tune_method *tune_session_method(const tune_session *s, int index) {
    return &s->methods[index];
}

int tune_session_standard(const tune_session *s) {
    return s->standard;
}

int tune_session_incumbent(const tune_session *s) {
    return s->incumbent;
}

int tune_session_find(const tune_session *s, const tlob_method *method) {
    for (int i = 0; i < s->count; i++)
        if (!*s->methods[i].why && tlob_method_equal(&s->methods[i].method, method))
            return i;
    return -1;
}
