// `tlob table verify`: whether every entry is sound, and on a device whether what it says gives right results there.
#include "cli/table.h"

#include "parity/parity.h"

#include <inttypes.h>
#include <string.h>

// Products with more multiplications than this are not checked: the oracle would take minutes for each.
#define MOST_WORK ((double)((int64_t)1 << 33))

// Where entries are run.
typedef struct bed {
    tlob_context *ctx, *host;
    tlob_stream *stream, *oracle;
    tlob_device_info device;
} bed;

typedef struct tally {
    const bed *bed;
    const tlob_table *table;
    int64_t right, wrong, foreign, large;
} tally;

static bool open_context(const tlob_context_params *params, tlob_context **ctx, tlob_stream **stream) {
    const cli_context_options options = {.params = *params};
    *ctx = cli_context_create(&options);
    if (!*ctx)
        return false;
    if (!tlob_stream_create(*ctx, stream))
        return true;
    cli_tlob_error(NULL);
    return false;
}

// The device of the options, and for a GPU the oracle beside it. The policy does not count: each entry says how.
static bool open_bed(const cli_table_options *options, bed *b) {
    tlob_context_params params = options->context.params, oracle = tlob_context_params_default();
    oracle.memory = TLOB_MEMORY_HOST;
    oracle.policy = (tlob_policy){.kind = TLOB_POLICY_FIXED, .backend = "cpu_ref"};
    if (params.memory == TLOB_MEMORY_HOST) {
        snprintf(b->device.name, sizeof b->device.name, "host");
        return open_context(&oracle, &b->ctx, &b->stream);
    }
    params.policy = (tlob_policy){.kind = TLOB_POLICY_THRESHOLD};
    if (!open_context(&params, &b->ctx, &b->stream) || !open_context(&oracle, &b->host, &b->oracle))
        return false;
    if (!tlob_device_get_info(params.device, &b->device))
        return true;
    cli_tlob_error(NULL);
    return false;
}

static void close_bed(bed *b) {
    tlob_stream_close(&b->oracle);
    tlob_stream_close(&b->stream);
    tlob_context_destroy(&b->host);
    tlob_context_destroy(&b->ctx);
}

// As the tuner lays operands out: C is D where it is read, all aligned to 256 bytes.
static parity_case case_of(const tlob_table_entry *entry) {
    parity_case c = {.gemm = entry->gemm,
                     .a = PARITY_UNIFORM,
                     .b = PARITY_UNIFORM,
                     .c = PARITY_UNIFORM,
                     .bias = PARITY_UNIFORM,
                     .aux = PARITY_UNIFORM,
                     .apart = entry->gemm.beta == 0};
    snprintf(c.name, sizeof c.name, "table");
    return c;
}

static void run_entry(void *user, const tlob_table_entry *entry) {
    tally *t = user;
    const tlob_gemm *g = &entry->gemm;
    if (entry->rejected)
        return;
    if (tlob_table_find(t->table, g, &t->bed->device) != entry) {
        t->foreign++;
        return;
    }
    if ((double)g->m * (double)g->n * (double)g->k * (double)g->batch > MOST_WORK) {
        t->large++;
        return;
    }
    const parity_case c = case_of(entry);
    parity_result result;
    if (parity_run_as(t->bed->stream, t->bed->oracle, &entry->method, 1, &c, g->compute, 1, &result)) {
        t->right++;
        return;
    }
    char words[512];
    cli_product_words(g, words, sizeof words);
    t->wrong++;
    printf("WRONG    %s: %s: %s\n", entry->source, words, result.message);
}

static void print_rejected(void *user, const tlob_table_entry *entry) {
    (void)user;
    if (entry->rejected)
        printf("REJECTED %s: %s\n", entry->source, entry->rejected);
}

static void print_rejected_block(void *user, const tlob_table_block *entry) {
    (void)user;
    if (entry->rejected)
        printf("REJECTED %s: %s\n", entry->source, entry->rejected);
}

static int verify(const char *path, const bed *b) {
    cli_table_file file = {NULL};
    if (!cli_table_read(path, &file))
        return CLI_FAILED;
    tally t = {.bed = b, .table = file.table};
    tlob_table_list(file.table, print_rejected, NULL);
    tlob_table_list_blocks(file.table, print_rejected_block, NULL);
    if (b)
        tlob_table_list(file.table, run_entry, &t);
    cli_table_print_report(&file);
    if (b)
        printf("%s: on %s %" PRId64 " right, %" PRId64 " wrong, %" PRId64 " of other devices or libraries, %" PRId64
               " too large to be checked\n", path, b->device.name, t.right, t.wrong, t.foreign, t.large);
    int status = file.report.rejected || t.wrong ? CLI_FAILED : CLI_OK;
    tlob_table_destroy(&file.table);
    return status;
}

int cli_table_verify(const cli_table_options *options) {
    bed b = {NULL};
    int status = CLI_OK;
    bool runs = options->context.device_given;
    if (runs && !open_bed(options, &b))
        status = CLI_FAILED;
    for (int i = 0; i < options->n_files && !(runs && !b.stream); i++)
        if (verify(options->files[i], runs ? &b : NULL))
            status = CLI_FAILED;
    close_bed(&b);
    return status;
}
