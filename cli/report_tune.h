// What the pictures of `tlob tune --measurements` share.
#ifndef CLI_REPORT_TUNE_H
#define CLI_REPORT_TUNE_H

#include "cli/measurements.h"
#include "cli/report.h"

enum { REPORT_CHOICES_MAX = 8 }; // as many as have a colour of their own; the last is then all others

// A way to do a product that won somewhere: backend, form, and who chose the algorithm.
typedef struct report_choice {
    char text[96];
    int problems;      // that it won
    double log_ratios; // the sum of log(default / chosen) over those where both were timed,
    int ratios;        // and how many they are
} report_choice;

typedef struct report_choices {
    int count;
    report_choice list[REPORT_CHOICES_MAX];
} report_choices;

// The number of the choice of a problem, from 0; -1 where the tuner found none.
int report_choice_of(const report_choices *choices, const cli_measured_problem *problem);

// Maps of m by n, one picture a compute mode. False after printing why.
bool report_write_maps(const report *r, const cli_measurements *measurements, const report_choices *choices);

#endif
