/*
 * libFuzzer target for tables: whatever text it is fed is taken or refused; each entry that is kept, for a product or
 * for a block, is valid and found, each that is not has a reason, and what is kept is the same after it was put into
 * another table.
 *
 *     clang -g -O1 -D_GNU_SOURCE -I. -Ilibtlob/include -I/usr/include/cjson -DTLOB_VERSION='"fuzz"' \
 *         -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_table.c libtlob/[a-z]*[a-z].c ... -lcjson -lm
 *
 * The sources are those of libtlob/meson.build and backends/meson.build for a build without CUDA.
 */
#include <string.h>

#include "libtlob/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds)
        __builtin_trap();
}

typedef struct seen {
    const tlob_table *from;
    tlob_table *copy;
    int64_t kept, blocks, rejected;
} seen;

static void look(void *user, const tlob_table_entry *entry) {
    seen *s = user;
    require(entry->source && *entry->source);
    if (entry->rejected) {
        s->rejected++;
        require(*entry->rejected);
        return;
    }
    s->kept++;
    require(tlob_gemm_check(&entry->gemm) == TLOB_OK);
    require(!tlob_form_obstacle(entry->method.form, &entry->gemm));
    require(entry->method.n_configuration >= 0 && entry->method.n_configuration <= TLOB_METHOD_FIELDS_MAX);
    require(strlen(entry->method.backend) < sizeof(entry->method.backend));
    require(tlob_table_find(s->from, &entry->gemm, NULL) != NULL);
    require(tlob_table_put(s->copy, entry) == TLOB_OK);
    const tlob_table_entry *first = tlob_table_find(s->copy, &entry->gemm, NULL);
    require(first && !memcmp(&first->gemm, &entry->gemm, sizeof(first->gemm)));
}

static void look_at_block(void *user, const tlob_table_block *entry) {
    seen *s = user;
    require(entry->source && *entry->source);
    if (entry->rejected) {
        s->rejected++;
        require(*entry->rejected);
        return;
    }
    const tlob_block_params params = {.shape = entry->shape, .max_samples = entry->samples,
                                      .inference = entry->inference};
    s->blocks++;
    require(tlob_block_shape_check(&entry->shape) == TLOB_OK && entry->samples > 0);
    require(entry->plan == TLOB_PLAN_COMPOSED || entry->plan == TLOB_PLAN_FUSED);
    require(tlob_table_find_block(s->from, &params, entry->compute, NULL) != NULL);
    require(tlob_table_same_block(s->from, entry) == entry);
    require(tlob_table_put_block(s->copy, entry) == TLOB_OK);
    require(tlob_table_same_block(s->copy, entry)->plan == entry->plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tlob_table *table;
    tlob_table_report report;
    seen s = {0};
    tlob_status status = tlob_table_parse("fuzz", (const char *)data, size, &table, &report);
    if (status != TLOB_OK) {
        require(status == TLOB_ERR_FILE || status == TLOB_ERR_OUT_OF_MEMORY);
        require(!table && !report.accepted && !report.rejected);
        require(strstr(tlob_last_error()->message, "fuzz") != NULL);
        return 0;
    }
    require(tlob_table_create(&s.copy) == TLOB_OK);
    s.from = table;
    require(tlob_table_list(table, look, &s) == TLOB_OK);
    require(tlob_table_list_blocks(table, look_at_block, &s) == TLOB_OK);
    require(s.rejected == report.rejected && s.kept + s.blocks <= report.accepted);
    require(!*report.reason == !report.rejected);
    require(s.blocks == tlob_table_count_blocks(table, NULL) && s.blocks == tlob_table_count_blocks(s.copy, NULL));
    require(s.kept == tlob_table_count(table, NULL) && s.kept == tlob_table_count(s.copy, NULL));
    tlob_table_destroy(&s.copy);
    tlob_table_destroy(&table);
    return 0;
}
