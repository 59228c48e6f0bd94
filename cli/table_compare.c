// `tlob table diff` and `merge`: two tables, entry by entry, and one from several.
#include "cli/table.h"

#include "io/atomic_file.h"

#include <stdlib.h>
#include <string.h>

static bool agree(const tlob_table_entry *a, const tlob_table_entry *b) {
    return tlob_method_equal(&a->method, &b->method) && !strcmp(a->origin.library, b->origin.library);
}

// --- diff ---

typedef struct comparison {
    const cli_table_file *here, *other;
    bool backwards; // here is B: what both have has been looked at
    int64_t differences;
} comparison;

static void compare_entry(void *user, const tlob_table_entry *entry) {
    comparison *c = user;
    char words[1280], others[256];
    if (entry->rejected)
        return;
    const tlob_table_entry *other = tlob_table_same(c->other->table, entry);
    if (other && (c->backwards || agree(entry, other)))
        return;
    c->differences++;
    cli_table_words(entry, words, sizeof words);
    if (!other) {
        printf("only in %s: %s\n", c->here->path, words);
        return;
    }
    tlob_method_print(&other->method, others, sizeof others);
    printf("differs: %s; in %s: %s\n", words, c->other->path, others);
}

static void compare_block(void *user, const tlob_table_block *entry) {
    comparison *c = user;
    char words[640];
    if (entry->rejected)
        return;
    const tlob_table_block *other = tlob_table_same_block(c->other->table, entry);
    if (other && (c->backwards || other->plan == entry->plan))
        return;
    c->differences++;
    cli_table_block_words(entry, words, sizeof words);
    if (other)
        printf("differs: %s; in %s: %s\n", words, c->other->path, tlob_block_plan_name(other->plan));
    else
        printf("only in %s: %s\n", c->here->path, words);
}

// What no table has taken is not compared: that must not look like agreement.
static void warn_of_rejected(const cli_table_file *file, const char *consequence) {
    if (file->report.rejected)
        cli_error("%s: %lld entries are rejected and %s, the first: %s", file->path, (long long)file->report.rejected,
                  consequence, file->report.reason);
}

// As diff(1) has it: 0 the same, 1 different, 2 trouble.
int cli_table_diff(const cli_table_options *options) {
    enum { SAME, DIFFERENT, TROUBLE };
    cli_table_file a = {NULL}, b = {NULL};
    comparison c = {.here = &a, .other = &b};
    int status = TROUBLE;
    if (cli_table_read(options->files[0], &a) && cli_table_read(options->files[1], &b)) {
        warn_of_rejected(&a, "not compared");
        warn_of_rejected(&b, "not compared");
        tlob_table_list(a.table, compare_entry, &c);
        tlob_table_list_blocks(a.table, compare_block, &c);
        c = (comparison){.here = &b, .other = &a, .backwards = true, .differences = c.differences};
        tlob_table_list(b.table, compare_entry, &c);
        tlob_table_list_blocks(b.table, compare_block, &c);
        bool whole = !a.report.rejected && !b.report.rejected;
        status = c.differences ? DIFFERENT : whole ? SAME : TROUBLE;
    }
    tlob_table_destroy(&a.table);
    tlob_table_destroy(&b.table);
    return status;
}

// --- merge ---

typedef struct merger {
    const cli_table_options *options;
    tlob_table *out;
    cli_table_file *in;
    int at;     // the file that is being added
    int status; // of the whole
} merger;

static int contradict(const merger *m, const tlob_table_entry *entry) {
    char words[1280], others[256];
    const tlob_table_entry *before = NULL;
    for (int i = 0; i < m->at && !before; i++)
        before = tlob_table_same(m->in[i].table, entry);
    cli_table_words(entry, words, sizeof words);
    if (before)
        tlob_method_print(&before->method, others, sizeof others);
    return cli_error("%s and %s contradict each other: %s, and %s; say which is right with --prefer first or last",
                     before ? before->source : "?", entry->source, words, before ? others : "?");
}

static void add_entry(void *user, const tlob_table_entry *entry) {
    merger *m = user;
    if (entry->rejected || m->status)
        return;
    const tlob_table_entry *before = tlob_table_same(m->out, entry);
    if (before && !agree(before, entry)) {
        if (m->options->prefer == CLI_PREFER_NONE) {
            m->status = contradict(m, entry);
            return;
        }
        if (m->options->prefer == CLI_PREFER_FIRST)
            return;
    }
    if (tlob_table_put(m->out, entry))
        m->status = cli_tlob_error(entry->source);
}

static void add_block(void *user, const tlob_table_block *entry) {
    merger *m = user;
    if (entry->rejected || m->status)
        return;
    const tlob_table_block *before = tlob_table_same_block(m->out, entry);
    if (before && before->plan != entry->plan) {
        char words[640];
        cli_table_block_words(entry, words, sizeof words);
        if (m->options->prefer == CLI_PREFER_NONE)
            m->status = cli_error(
                "%s contradicts a table before it: %s, and %s; say which is right with --prefer first or last",
                entry->source, words, tlob_block_plan_name(before->plan));
        if (m->options->prefer != CLI_PREFER_LAST)
            return;
    }
    if (tlob_table_put_block(m->out, entry))
        m->status = cli_tlob_error(entry->source);
}

static void merge_all(merger *m) {
    int count = m->options->n_files - 1;
    for (; m->at < count && !m->status; m->at++) {
        const char *path = m->options->files[m->at + 1];
        if (io_atomic_same(m->options->files[0], path))
            m->status = cli_error("%s would overwrite the input %s: name another file", m->options->files[0], path);
        else if (!cli_table_read(path, &m->in[m->at]))
            m->status = CLI_FAILED;
        else {
            warn_of_rejected(&m->in[m->at], "left out");
            tlob_table_list(m->in[m->at].table, add_entry, m);
            tlob_table_list_blocks(m->in[m->at].table, add_block, m);
        }
    }
}

int cli_table_merge(const cli_table_options *options) {
    int count = options->n_files - 1;
    merger m = {.options = options, .in = calloc((size_t)count, sizeof *m.in)};
    if (!m.in)
        return cli_error("out of memory");
    if (tlob_table_create(&m.out))
        m.status = cli_tlob_error(NULL);
    else
        merge_all(&m);
    if (!m.status && tlob_table_write(m.out, options->files[0]))
        m.status = cli_tlob_error(NULL);
    if (!m.status)
        cli_table_print_report(&(cli_table_file){.path = options->files[0], .table = m.out});
    for (int i = 0; i < count; i++)
        tlob_table_destroy(&m.in[i].table);
    tlob_table_destroy(&m.out);
    free(m.in);
    return m.status;
}
