/* Many cases: the table, or random ones for a time. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parity/parity.h"

int parity_failed(const parity_tally *tally) {
    return tally->count[PARITY_FAIL] + tally->count[PARITY_ERROR];
}

void parity_add(parity_tally *sum, const parity_tally *more) {
    if (!parity_failed(sum))
        memcpy(sum->first, more->first, sizeof(sum->first));
    sum->ran += more->ran;
    for (int v = 0; v < PARITY_VERDICTS; v++)
        sum->count[v] += more->count[v];
    sum->worst = fmax(sum->worst, more->worst);
    sum->normalised = fmax(sum->normalised, more->normalised);
}

/* A sweep that was asked for wrongly fails instead of running something else. */
static bool is_faulty(const parity_sweep *sweep, parity_tally *tally) {
    parity_tally one = {.ran = 1, .count[PARITY_ERROR] = 1};
    if (!*sweep->fault)
        return false;
    memcpy(one.first, sweep->fault, sizeof(sweep->fault));
    parity_add(tally, &one);
    return true;
}

void parity_run_one(const parity_sweep *sweep, const parity_case *c, parity_tally *tally) {
    parity_result result;
    parity_tally one = {.ran = 1};
    if (is_faulty(sweep, tally))
        return;
    if (parity_run(sweep->stream, sweep->oracle, sweep->backend, c, sweep->compute, sweep->seed, &result)) {
        one.worst = result.error;
        one.normalised = result.normalised;
    }
    one.count[result.verdict] = 1;
    if (parity_failed(&one))
        memcpy(one.first, result.message, sizeof(one.first));
    parity_add(tally, &one);
    if (sweep->each)
        sweep->each(sweep->user, c, &result);
}

/* A filter that is the whole name of a random case. */
static bool names_random(const char *filter, uint64_t *seed, int *index) {
    unsigned long long number;
    int end = 0;
    if (!filter || sscanf(filter, "random/%llu/%d%n", &number, index, &end) != 2 || filter[end] || *index < 0)
        return false;
    *seed = number;
    return true;
}

parity_tally parity_run_table(const parity_sweep *sweep) {
    parity_tally tally = {0};
    uint64_t seed;
    int index;
    if (is_faulty(sweep, &tally))
        return tally;
    if (names_random(sweep->filter, &seed, &index)) {
        parity_case c = parity_case_random(seed, index);
        parity_run_one(sweep, &c, &tally);
        return tally;
    }
    for (int i = 0; i < parity_case_count(); i++) {
        parity_case c = parity_case_get(i);
        if ((sweep->huge || !c.huge) && parity_case_matches(sweep->filter, c.name))
            parity_run_one(sweep, &c, &tally);
    }
    return tally;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

parity_tally parity_run_random(const parity_sweep *sweep, double seconds) {
    parity_tally tally = {0};
    double end = seconds_now() + seconds;
    if (is_faulty(sweep, &tally))
        return tally;
    for (int i = 0; i < INT32_MAX && seconds_now() < end; i++) {
        parity_case c = parity_case_random(sweep->seed, i);
        if (parity_case_matches(sweep->filter, c.name))
            parity_run_one(sweep, &c, &tally);
    }
    return tally;
}

static void report(parity_sweep *sweep, const char *name, const char *valid) {
    snprintf(sweep->fault, sizeof(sweep->fault), "the environment has %s='%.60s'; valid are: %s", name, getenv(name),
             valid);
}

static bool read_seed(const char *text, uint64_t *seed) {
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno;
}

static bool read_seconds(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    return isdigit((unsigned char)*text) && !*end && *seconds <= 1e6;
}

parity_sweep parity_sweep_from_environment(void) {
    const char *seed = getenv("TLOB_TEST_SEED"), *huge = getenv("TLOB_TEST_HUGE");
    const char *seconds = getenv("TLOB_TEST_RANDOM_SECONDS");
    parity_sweep sweep = {
        .filter = getenv("TLOB_TEST_CASE"),
        .seed = 1,
        .huge = huge && strcmp(huge, "1") == 0,
    };
    double ignored;
    if (seed && !read_seed(seed, &sweep.seed))
        report(&sweep, "TLOB_TEST_SEED", "whole numbers from 0 to 2^64 - 1");
    if (huge && !sweep.huge && strcmp(huge, "0") != 0)
        report(&sweep, "TLOB_TEST_HUGE", "0, 1");
    if (seconds && !read_seconds(seconds, &ignored))
        report(&sweep, "TLOB_TEST_RANDOM_SECONDS", "numbers from 0 to 1000000");
    return sweep;
}

double parity_random_seconds(double usual) {
    const char *text = getenv("TLOB_TEST_RANDOM_SECONDS");
    double seconds;
    if (!text)
        return usual;
    return read_seconds(text, &seconds) ? seconds : 0;
}
