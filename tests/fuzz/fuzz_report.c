// Any text as what `tlob report` reads: the CSV of `tlob train`, the JSON of `tlob bench` and `tlob tune`. Whatever is
// accepted must be finite, in order and in range; whatever is refused must say why and leave nothing. Build with
// -fsanitize=fuzzer,address,undefined, the sources cli/report_table.c, cli/bench_file.c, cli/measurements.c and
// io/error.c, and -lcsv -lcjson.
//
// Input: one byte that says which, and the text.
#include "cli/bench_file.h"
#include "cli/measurements.h"
#include "cli/report_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds) {
    if (!holds)
        abort();
}

static void check_table(const char *text, size_t length) {
    static const report_column columns[] = {{"step", 1, 1e15}, {"loss", -1e300, 1e300}, {"accuracy", 0, 1}};
    report_table table;
    io_error err = {""};
    if (report_table_parse("table", text, length, columns, 3, &table, &err)) {
        require(err.text[0] && !table.cell && !table.rows);
        return;
    }
    require(table.rows > 0 && table.columns == 3);
    for (size_t i = 0; i < table.rows; i++) {
        const double *row = table.cell + 3 * i;
        require(row[0] >= 1 && row[0] == floor(row[0]) && (!i || row[0] > row[-3]));
        require(isfinite(row[1]) && row[2] >= 0 && row[2] <= 1);
    }
    report_table_finish(&table);
}

static void check_bench(const char *text, size_t length) {
    static cli_bench_file bench;
    io_error err = {""};
    if (cli_bench_file_parse("bench", text, length, &bench, &err)) {
        require(err.text[0] && !bench.json && !bench.rows);
        return;
    }
    require(bench.rows > 0 && bench.rows <= CLI_BENCH_ROWS_MAX && bench.names[0] && bench.names[1]);
    require(!bench.row[0].part_of);
    for (int i = 0; i < bench.rows; i++)
        for (int work = 0; work < 2; work++) {
            const cli_bench_times *t = &bench.row[i].times[work];
            require(t->low > 0 && t->low <= t->median && t->median <= t->high && isfinite(t->high));
            require(isfinite(bench.row[i].ratio) && strlen(bench.row[i].what) <= CLI_BENCH_NAME_MAX);
        }
    cli_bench_file_finish(&bench);
}

static void check_measurements(const char *text, size_t length) {
    cli_measurements m;
    io_error err = {""};
    if (cli_measurements_parse("measurements", text, length, &m, &err)) {
        require(err.text[0] && !m.json && !m.problem && !m.count);
        return;
    }
    require(m.count > 0 && m.count <= CLI_MEASUREMENTS_MAX && m.device && m.library);
    for (const cli_measured_problem *p = m.problem; p < m.problem + m.count; p++) {
        require(strlen(p->name) <= CLI_MEASUREMENTS_TEXT && !strpbrk(p->compute, "/.\"") && p->epilogue[0]);
        require(p->m >= 0 && p->n >= 0 && p->k >= 0 && p->batch >= 0);
        require(p->chosen.method ? p->chosen.us > 0 && isfinite(p->chosen.us) : isnan(p->chosen.us));
        require(isnan(p->normal.us) || (p->normal.method && p->normal.us > 0 && isfinite(p->normal.us)));
    }
    cli_measurements_finish(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    char *text = malloc(size); // ended by a 0, as the program reads it, and no longer than that
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] & 2)
        check_measurements(text, size - 1);
    else if (data[0] & 1)
        check_bench(text, size - 1);
    else
        check_table(text, size - 1);
    free(text);
    return 0;
}
