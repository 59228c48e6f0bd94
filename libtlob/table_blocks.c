/* Blocks in tables: for each the plan that was best. They are few, so that a list in order will do. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/kernels/block_fused.h"
#include "libtlob/table.h"

/* --- blocks and where they were measured -------------------------------------------------------------------------- */

void tlob_table_block_words(const tlob_block_params *params, tlob_compute compute, char *text, size_t size) {
    const tlob_block_shape *s = &params->shape;
    snprintf(text, size,
             "d_in %" PRId64 ", d_out %" PRId64 ", head_dim %" PRId64 ", seq %" PRId64 ", %s axis, %" PRId64
             " samples, %s, %s", s->d_in, s->d_out, s->head_dim, s->seq, tlob_axis_name(s->axis), params->max_samples,
             params->inference ? "inference" : "training", tlob_compute_name(compute));
}

void tlob_table_block_library(char *text, size_t size) {
    const tlob_backend_ops *ops;
    size_t used = (size_t)snprintf(text, size, "libtlob %s", tlob_version());
    for (int i = 0; (ops = tlob_row_at((tlob_rows){0}, i)) && used < size; i++) {
        char version[64] = "";
        if (ops->version && !ops->missing)
            ops->version(version, sizeof(version));
        if (*version)
            used += (size_t)snprintf(text + used, size - used, ", %s", version);
    }
}

static int compare_int64(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static int compare_blocks(const tlob_table_block *a, const tlob_table_block *b) {
    const int64_t pairs[][2] = {
        {a->shape.axis, b->shape.axis}, {a->shape.d_in, b->shape.d_in}, {a->shape.d_out, b->shape.d_out},
        {a->shape.head_dim, b->shape.head_dim}, {a->shape.seq, b->shape.seq}, {a->compute, b->compute},
        {a->inference, b->inference}, {a->samples, b->samples},
    };
    int order = 0;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs) && !order; i++)
        order = compare_int64(pairs[i][0], pairs[i][1]);
    return order;
}

static int compare_entries(const tlob_table_block *a, const tlob_table_block *b) {
    int order = tlob_table_compare_origins(&a->origin, &b->origin);
    return order ? order : compare_blocks(a, b);
}

static bool is_library_here(const tlob_table_block *entry) {
    char library[sizeof(entry->origin.library)];
    tlob_table_block_library(library, sizeof(library));
    return !strcmp(library, entry->origin.library);
}

static bool is_here(const tlob_table_block *entry, const tlob_device_info *device) {
    return tlob_table_is_device(&entry->origin, device) && is_library_here(entry);
}

bool tlob_table_foreign_block(const tlob_table_block *entry, const tlob_device_info *device, char *text, size_t size) {
    char library[sizeof(entry->origin.library)];
    if (is_here(entry, device))
        return false;
    tlob_table_block_library(library, sizeof(library));
    if (!tlob_table_is_device(&entry->origin, device))
        tlob_table_tell_device(&entry->origin, device, text, size);
    else
        snprintf(text, size, "it is of '%s', and this process has '%s'", entry->origin.library, library);
    return true;
}

/* --- what an entry must be ---------------------------------------------------------------------------------------- */

/* What is wrong with a shape is no failure of the caller's: his last error stays. */
static bool check_shape(const tlob_block_shape *shape, tlob_fault *why) {
    const tlob_error before = *tlob_last_error();
    if (tlob_block_shape_check(shape) == TLOB_OK)
        return true;
    tlob_reject(why, "the block is not valid: %.200s", tlob_last_error()->message);
    tlob_error_restore(&before);
    return false;
}

bool tlob_table_check_block(const tlob_table_block *entry, tlob_fault *why) {
    if (!check_shape(&entry->shape, why))
        return false;
    if (entry->samples < 1)
        return tlob_reject(why, "samples is %" PRId64 ", must be at least 1", entry->samples);
    if (entry->compute != TLOB_COMPUTE_TF32 && entry->compute != TLOB_COMPUTE_FP32)
        return tlob_reject(why, "the block's compute mode is %d, must be TF32 or FP32", (int)entry->compute);
    if (entry->plan != TLOB_PLAN_COMPOSED && entry->plan != TLOB_PLAN_FUSED)
        return tlob_reject(why, "plan is %d, must be COMPOSED or FUSED", (int)entry->plan);
    const char *obstacle = entry->plan == TLOB_PLAN_FUSED ? tlob_block_fused_obstacle(&entry->shape) : NULL;
    if (obstacle)
        return tlob_reject(why, "the block cannot be fused: %.200s", obstacle);
    return tlob_table_check_origin(&entry->origin, why);
}

/* --- keeping them ------------------------------------------------------------------------------------------------- */

static tlob_table_block *make_record(const tlob_table_block *entry) {
    const char *source = entry->source ? entry->source : "", *rejected = entry->rejected ? entry->rejected : "";
    const size_t source_size = strlen(source) + 1, rejected_size = strlen(rejected) + 1;
    tlob_table_block *made = malloc(sizeof(*made) + source_size + rejected_size);
    if (!made)
        return NULL;
    char *room = (char *)(made + 1);
    *made = *entry;
    made->source = memcpy(room, source, source_size);
    made->rejected = entry->rejected ? memcpy(room + source_size, rejected, rejected_size) : NULL;
    return made;
}

static bool reserve(tlob_block_records *records) {
    if (records->count < records->room)
        return true;
    size_t room = records->room ? 2 * records->room : 16;
    tlob_table_block **list = realloc(records->list, room * sizeof(*list));
    if (!list)
        return false;
    records->list = list;
    records->room = room;
    return true;
}

/* Where in the sorted list an entry is, or belongs. */
static size_t rank_of(const tlob_block_records *records, const tlob_table_block *entry) {
    size_t low = 0, high = records->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entries(records->list[middle], entry) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

tlob_status tlob_table_add_block(tlob_table *table, const tlob_table_block *entry) {
    tlob_block_records *records = entry->rejected ? &table->rejected_blocks : &table->blocks;
    tlob_table_block *record = reserve(records) ? make_record(entry) : NULL;
    if (!record)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "table", "no memory for an entry of a table");
    const size_t rank = entry->rejected ? records->count : rank_of(records, record);
    tlob_table_block **at = records->list + rank;
    memmove(at + 1, at, (records->count++ - rank) * sizeof(*at));
    *at = record;
    return TLOB_OK;
}

static void free_records(tlob_block_records *records) {
    for (size_t i = 0; i < records->count; i++)
        free(records->list[i]);
    free(records->list);
}

void tlob_table_free_blocks(tlob_table *table) {
    free_records(&table->blocks);
    free_records(&table->rejected_blocks);
}

/* --- the public face ---------------------------------------------------------------------------------------------- */

static tlob_table_block **find_same(const tlob_table *table, const tlob_table_block *entry) {
    const size_t rank = rank_of(&table->blocks, entry);
    bool same = rank < table->blocks.count && !compare_entries(table->blocks.list[rank], entry);
    return same ? &table->blocks.list[rank] : NULL;
}

tlob_status tlob_table_put_block(tlob_table *table, const tlob_table_block *entry) {
    const char *where = "tlob_table_put_block";
    tlob_fault why;
    if (!table || !entry)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", table ? "entry" : "table");
    tlob_table_block added = *entry;
    added.source = "";
    added.rejected = NULL;
    if (!tlob_table_check_block(&added, &why))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s", why.text);
    tlob_table_block **before = find_same(table, &added);
    if (!before)
        return tlob_table_add_block(table, &added);
    tlob_table_block *record = make_record(&added); /* `entry` may be the one before */
    if (!record)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "no memory for an entry of a table");
    free(*before);
    *before = record;
    return TLOB_OK;
}

tlob_status tlob_table_list_blocks(const tlob_table *table, tlob_table_block_fn visit, void *user) {
    if (!table || !visit)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_table_list_blocks", "%s is NULL", table ? "visit" : "table");
    for (size_t i = 0; i < table->blocks.count; i++)
        visit(user, table->blocks.list[i]);
    for (size_t i = 0; i < table->rejected_blocks.count; i++)
        visit(user, table->rejected_blocks.list[i]);
    return TLOB_OK;
}

const tlob_table_block *tlob_table_same_block(const tlob_table *table, const tlob_table_block *entry) {
    tlob_table_block **found = table && entry ? find_same(table, entry) : NULL;
    return found ? *found : NULL;
}

const tlob_table_block *tlob_table_find_block(const tlob_table *table, const tlob_block_params *params,
                                              tlob_compute compute, const tlob_device_info *device) {
    if (!table || !params)
        return NULL;
    const tlob_table_block wanted = {.shape = params->shape, .samples = params->max_samples,
                                     .inference = params->inference, .compute = compute};
    for (size_t i = 0; i < table->blocks.count; i++) {
        const tlob_table_block *entry = table->blocks.list[i];
        if (!compare_blocks(entry, &wanted) && (!device || is_here(entry, device)))
            return entry;
    }
    return NULL;
}

void tlob_table_miss_block(const tlob_table *table, const tlob_block_params *params, tlob_compute compute,
                           const tlob_device_info *device, char *text, size_t size) {
    static const char before[] = "the entry for this block does not count here: ";
    const tlob_table_block *any = tlob_table_find_block(table, params, compute, NULL);
    snprintf(text, size, "%s", any ? before : "no entry for this block");
    if (any && device && size > sizeof(before))
        tlob_table_foreign_block(any, device, text + sizeof(before) - 1, size - sizeof(before) + 1);
}

int64_t tlob_table_count_blocks(const tlob_table *table, const tlob_device_info *device) {
    int64_t count = 0;
    for (size_t i = 0; table && i < table->blocks.count; i++)
        count += !device || is_here(table->blocks.list[i], device);
    return count;
}
