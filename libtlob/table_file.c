/* Files of tables. What is wrong with an entry rejects that entry alone. */
#include "libtlob/table.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define FORMAT "tlob-table"

static const tlob_entries_kind kind = {
    .json = {.name = "table",
             .example = "{\"format\": \"" FORMAT "\", \"version\": 1, \"entries\": []}",
             .status = TLOB_ERR_FILE,
             .most_bytes = (size_t)64 << 20},
    .format = FORMAT,
    .most = 65536,
    .second = "blocks",
};

static const char *const op_words[] = {"n", "t"};
static const char *const compute_words[] = {NULL, "tf32", "fp32"}; /* DEFAULT is none that a file has */

/* --- the members of a problem ------------------------------------------------------------------------------------ */

enum {
    TRANSA, TRANSB, BETA, COMPUTE, EPILOGUE, WORDS, /* from here on: whole numbers, in the order of `sizes` */
    STRIDES = WORDS + 7, LD_AUX = STRIDES + 3, STRIDE_AUX, STRIDE_BIAS, MEMBERS
};

static const struct {
    const char *name;
    size_t offset;
} sizes[] = {
    {"m", offsetof(tlob_gemm, m)},
    {"n", offsetof(tlob_gemm, n)},
    {"k", offsetof(tlob_gemm, k)},
    {"lda", offsetof(tlob_gemm, lda)},
    {"ldb", offsetof(tlob_gemm, ldb)},
    {"ldc", offsetof(tlob_gemm, ldc)},
    {"batch", offsetof(tlob_gemm, batch)},
    {"stride_a", offsetof(tlob_gemm, stride_a)},
    {"stride_b", offsetof(tlob_gemm, stride_b)},
    {"stride_c", offsetof(tlob_gemm, stride_c)},
    {"ld_aux", offsetof(tlob_gemm, ld_aux)},
    {"stride_aux", offsetof(tlob_gemm, stride_aux)},
    {"stride_bias", offsetof(tlob_gemm, stride_bias)},
};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

_Static_assert(WORDS + SIZES == MEMBERS, "each size is a member");

/* Whether a size counts in a problem whose batch and epilogue are known. */
static bool counts(const tlob_gemm *g, int member) {
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g->epilogue);
    bool batched = g->batch > 1, aux = t->reads_aux || t->writes_aux;
    if (member < STRIDES)
        return true;
    if (member < LD_AUX)
        return batched;
    if (member == STRIDE_BIAS)
        return batched && (t->reads_bias || t->writes_bgrad);
    return aux && (batched || member == LD_AUX);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

static bool take_word(const cJSON *item, const char *const *words, int count, int *index, tlob_fault *why) {
    if (!cJSON_IsString(item))
        return tlob_reject(why, "\"%s\" is no string", item->string);
    for (*index = 0; *index < count; ++*index)
        if (words[*index] && !strcmp(words[*index], item->valuestring))
            return true;
    return tlob_reject(why, "\"%s\" is '%.40s', which is not known", item->string, item->valuestring);
}

static bool take_epilogue(const cJSON *item, tlob_epilogue *epilogue, tlob_fault *why) {
    const char *words[TLOB_EPILOGUE_COUNT];
    int index;
    for (int i = 0; i < TLOB_EPILOGUE_COUNT; i++)
        words[i] = tlob_epilogue_get_traits((tlob_epilogue)i)->name;
    if (!take_word(item, words, TLOB_EPILOGUE_COUNT, &index, why))
        return false;
    *epilogue = (tlob_epilogue)index;
    return true;
}

static bool take_words(const tlob_member *m, tlob_gemm *g, tlob_fault *why) {
    int transa, transb, compute;
    int64_t beta;
    if (!take_word(m[TRANSA].item, op_words, 2, &transa, why) || !take_word(m[TRANSB].item, op_words, 2, &transb, why) ||
        !take_word(m[COMPUTE].item, compute_words, 3, &compute, why) ||
        !take_epilogue(m[EPILOGUE].item, &g->epilogue, why) || !tlob_take_integer(m[BETA].item, &beta, why))
        return false;
    if (beta != 0 && beta != 1)
        return tlob_reject(why, "\"beta\" is %" PRId64 ", must be 0 or 1: whether C is read", beta);
    g->transa = (tlob_op)transa;
    g->transb = (tlob_op)transb;
    g->compute = (tlob_compute)compute;
    g->beta = (float)beta;
    return true;
}

static bool take_sizes(const tlob_member *m, tlob_gemm *g, tlob_fault *why) {
    for (int i = WORDS; i < MEMBERS; i++) /* the batch stands before what depends on it */
        if (m[i].item && !counts(g, i))
            return tlob_reject(why, "the problem has \"%s\", which does not count in it", m[i].name);
        else if (!m[i].item && counts(g, i))
            return tlob_reject(why, "the problem has no \"%s\"", m[i].name);
        else if (m[i].item &&
                 !tlob_take_integer(m[i].item, (int64_t *)(void *)((char *)g + sizes[i - WORDS].offset), why))
            return false;
    return true;
}

static bool take_problem(const cJSON *object, tlob_gemm *g, tlob_fault *why) {
    tlob_member m[MEMBERS] = {[TRANSA] = {.name = "transa"},
                              [TRANSB] = {.name = "transb"},
                              [BETA] = {.name = "beta"},
                              [COMPUTE] = {.name = "compute"},
                              [EPILOGUE] = {.name = "epilogue"}};
    for (int i = WORDS; i < MEMBERS; i++)
        m[i] = (tlob_member){.name = sizes[i - WORDS].name, .optional = i >= STRIDES};
    g->alpha = 1.0f;
    return tlob_take_members(object, "the problem", m, MEMBERS, why) && take_words(m, g, why) &&
           take_sizes(m, g, why);
}

static bool take_string(const cJSON *item, char *text, size_t size, tlob_fault *why) {
    if (!cJSON_IsString(item))
        return tlob_reject(why, "\"%s\" is no string", item->string);
    size_t length = strlen(item->valuestring);
    if (length >= size)
        return tlob_reject(why, "\"%s\" has more than %zu bytes", item->string, size - 1);
    memcpy(text, item->valuestring, length + 1);
    return true;
}

static bool take_count(const cJSON *item, int *value, tlob_fault *why) {
    int64_t wide;
    if (!tlob_take_integer(item, &wide, why))
        return false;
    if (wide < 0 || wide > INT32_MAX)
        return tlob_reject(why, "\"%s\" is %" PRId64 ", must be from 0 to 2^31 - 1", item->string, wide);
    *value = (int)wide;
    return true;
}

static bool take_method(const cJSON *object, tlob_method *method, tlob_fault *why) {
    tlob_member m[] = {{.name = "backend"}, {.name = "form"}, {.name = "configuration"}};
    const char *forms[TLOB_FORM_COUNT];
    int form, count = 0;
    for (int i = 0; i < TLOB_FORM_COUNT; i++)
        forms[i] = tlob_form_name((tlob_form)i);
    if (!tlob_take_members(object, "the method", m, 3, why) ||
        !take_string(m[0].item, method->backend, sizeof(method->backend), why) ||
        !take_word(m[1].item, forms, TLOB_FORM_COUNT, &form, why) ||
        !tlob_take_fields(m[2].item, method->configuration, TLOB_METHOD_FIELDS_MAX, &count, why))
        return false;
    method->form = (tlob_form)form;
    method->n_configuration = count;
    return true;
}

static bool take_origin(const cJSON *object, tlob_table_origin *origin, tlob_fault *why) {
    tlob_member m[] = {{.name = "device"}, {.name = "sm"}, {.name = "multiprocessors"}, {.name = "library"}};
    return tlob_take_members(object, "the origin", m, 4, why) &&
           take_string(m[0].item, origin->device, sizeof(origin->device), why) &&
           take_count(m[1].item, &origin->sm, why) && take_count(m[2].item, &origin->multiprocessors, why) &&
           take_string(m[3].item, origin->library, sizeof(origin->library), why);
}

/* Fills `entry` as far as it comes. */
static bool take_entry(const cJSON *object, tlob_table_entry *entry, tlob_fault *why) {
    tlob_member m[] = {{.name = "problem"}, {.name = "method"}, {.name = "origin"}};
    return tlob_take_members(object, "the entry", m, 3, why) && take_problem(m[0].item, &entry->gemm, why) &&
           take_method(m[1].item, &entry->method, why) && take_origin(m[2].item, &entry->origin, why) &&
           tlob_table_check(entry, why);
}

/* --- the members of a block --------------------------------------------------------------------------------------- */

enum { D_IN, D_OUT, HEAD_DIM, SEQ, SAMPLES, AXIS, INFERENCE, BLOCK_COMPUTE, BLOCK_MEMBERS };
static const char *const block_names[BLOCK_MEMBERS] = {"d_in", "d_out", "head_dim", "seq", "samples", "axis",
                                                       "inference", "compute"};

static bool take_plan(const cJSON *item, tlob_block_plan *plan, tlob_fault *why) {
    const char *const words[] = {NULL, tlob_block_plan_name(TLOB_PLAN_COMPOSED),
                                 tlob_block_plan_name(TLOB_PLAN_FUSED)};
    int index;
    if (!take_word(item, words, 3, &index, why))
        return false;
    *plan = (tlob_block_plan)index;
    return true;
}

static bool take_shape(const cJSON *object, tlob_table_block *entry, tlob_fault *why) {
    const char *const axes[] = {tlob_axis_name(TLOB_AXIS_FEATURE), tlob_axis_name(TLOB_AXIS_TIME)};
    int64_t *const values[] = {&entry->shape.d_in, &entry->shape.d_out, &entry->shape.head_dim, &entry->shape.seq,
                               &entry->samples};
    tlob_member m[BLOCK_MEMBERS] = {{NULL}};
    int axis, compute;
    for (int i = 0; i < BLOCK_MEMBERS; i++)
        m[i].name = block_names[i];
    if (!tlob_take_members(object, "the block", m, BLOCK_MEMBERS, why))
        return false;
    for (int i = D_IN; i <= SAMPLES; i++)
        if (!tlob_take_integer(m[i].item, values[i], why))
            return false;
    if (!take_word(m[AXIS].item, axes, 2, &axis, why) ||
        !take_word(m[BLOCK_COMPUTE].item, compute_words, 3, &compute, why))
        return false;
    if (!cJSON_IsBool(m[INFERENCE].item))
        return tlob_reject(why, "\"inference\" is not true or false");
    entry->shape.axis = (tlob_axis)axis;
    entry->compute = (tlob_compute)compute;
    entry->inference = cJSON_IsTrue(m[INFERENCE].item);
    return true;
}

/* Fills `entry` as far as it comes. */
static bool take_block(const cJSON *object, tlob_table_block *entry, tlob_fault *why) {
    tlob_member m[] = {{.name = "block"}, {.name = "plan"}, {.name = "origin"}};
    return tlob_take_members(object, "the entry", m, 3, why) && take_shape(m[0].item, entry, why) &&
           take_plan(m[1].item, &entry->plan, why) && take_origin(m[2].item, &entry->origin, why) &&
           tlob_table_check_block(entry, why);
}

/* --- whole entries ------------------------------------------------------------------------------------------------ */

static void count_rejected(tlob_table_report *report, const char *what, int number, const tlob_fault *why) {
    if (!report->rejected++)
        snprintf(report->reason, sizeof(report->reason), "%s %d: %.235s", what, number, why->text);
}

static tlob_status load_block(tlob_table *table, const cJSON *object, const char *source, int number,
                              tlob_table_report *report) {
    tlob_table_block entry = {.source = source};
    tlob_fault why = {""};
    if (take_block(object, &entry, &why)) {
        const tlob_table_block *earlier = tlob_table_same_block(table, &entry);
        if (!earlier || earlier->plan == entry.plan) {
            report->accepted++;
            return earlier ? TLOB_OK : tlob_table_add_block(table, &entry);
        }
        tlob_reject(&why, "it contradicts '%.90s', which has for the same block: %s", earlier->source,
                    tlob_block_plan_name(earlier->plan));
    }
    count_rejected(report, "block", number, &why);
    entry.rejected = why.text;
    return tlob_table_add_block(table, &entry);
}

/* Whether an earlier entry is for the same; then this one must say the same. */
static bool check_earlier(const tlob_table_entry *earlier, const tlob_table_entry *entry, tlob_fault *why) {
    if (!earlier || (tlob_method_equal(&earlier->method, &entry->method) &&
                     !strcmp(earlier->origin.library, entry->origin.library)))
        return true;
    char method[96];
    tlob_method_print(&earlier->method, method, sizeof(method));
    return tlob_reject(why, "it contradicts '%.90s', which has for the same problem: %s", earlier->source, method);
}

static tlob_status load_entry(tlob_table *table, const cJSON *object, const char *source, int number,
                              tlob_table_report *report) {
    tlob_table_entry entry = {.source = source};
    tlob_fault why = {""};
    if (take_entry(object, &entry, &why)) {
        const tlob_table_entry *earlier = tlob_table_same(table, &entry);
        if (check_earlier(earlier, &entry, &why)) {
            report->accepted++;
            return earlier ? TLOB_OK : tlob_table_append(table, &entry);
        }
    }
    count_rejected(report, "entry", number, &why);
    entry.rejected = why.text;
    return tlob_table_append_rejected(table, &entry);
}

static tlob_status load_entries(tlob_table *table, const char *path, const cJSON *object, tlob_table_report *report) {
    const cJSON *entries[2] = {NULL, NULL}, *item;
    tlob_status status = tlob_entries_of(&kind, path, object, entries);
    int number = 0;
    cJSON_ArrayForEach(item, entries[0]) {
        char source[320];
        snprintf(source, sizeof(source), "%.280s, entry %d", path, ++number);
        if (status == TLOB_OK)
            status = load_entry(table, item, source, number, report);
    }
    tlob_table_sort(table);
    number = 0;
    cJSON_ArrayForEach(item, entries[1]) {
        char source[320];
        snprintf(source, sizeof(source), "%.280s, block %d", path, ++number);
        if (status == TLOB_OK)
            status = load_block(table, item, source, number, report);
    }
    return status;
}

/* From an object that has been read, or where `status` says so has not; frees it. */
static tlob_status finish(tlob_status status, const char *path, cJSON *object, tlob_table **table,
                          tlob_table_report *report) {
    tlob_table_report own;
    report = report ? report : &own;
    memset(report, 0, sizeof(*report));
    if (status == TLOB_OK)
        status = tlob_table_create(table);
    if (status == TLOB_OK) {
        snprintf((*table)->name, sizeof((*table)->name), "%s", path);
        status = load_entries(*table, path, object, report);
    }
    if (status != TLOB_OK)
        tlob_table_destroy(table);
    cJSON_Delete(object);
    return status;
}

tlob_status tlob_table_read(const char *path, tlob_table **table, tlob_table_report *report) {
    cJSON *object = NULL;
    if (table)
        *table = NULL;
    if (!path || !table)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_table_read", "%s is NULL", path ? "table" : "path");
    tlob_status status = tlob_json_read(&kind.json, path, &object);
    return finish(status, path, object, table, report);
}

tlob_status tlob_table_parse(const char *path, const char *text, size_t length, tlob_table **table,
                             tlob_table_report *report) {
    cJSON *object = NULL;
    if (table)
        *table = NULL;
    if (!path || !text || !table)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_table_parse", "%s is NULL",
                         !path ? "path" : !text ? "text" : "table");
    tlob_status status = tlob_json_parse(&kind.json, path, text, length, &object);
    return finish(status, path, object, table, report);
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static void put_problem(FILE *file, const tlob_gemm *g) {
    fprintf(file, "{\"problem\": {\"transa\": \"%s\", \"transb\": \"%s\"", op_words[g->transa], op_words[g->transb]);
    for (int i = WORDS; i < MEMBERS; i++)
        if (counts(g, i)) {
            int64_t value;
            memcpy(&value, (const char *)g + sizes[i - WORDS].offset, sizeof(value));
            fprintf(file, ", \"%s\": ", sizes[i - WORDS].name);
            tlob_put_integer(file, value);
        }
    fprintf(file, ", \"beta\": %d, \"compute\": \"%s\", \"epilogue\": \"%s\"},\n     ", (int)g->beta,
            compute_words[g->compute], tlob_epilogue_get_traits(g->epilogue)->name);
}

/* The last member of an entry. */
static void put_origin(FILE *file, const tlob_table_origin *origin) {
    fprintf(file, "     \"origin\": {\"device\": ");
    tlob_put_string(file, origin->device);
    fprintf(file, ", \"sm\": %d, \"multiprocessors\": %d, \"library\": ", origin->sm, origin->multiprocessors);
    tlob_put_string(file, origin->library);
    fprintf(file, "}}");
}

static void put_entry(void *user, const tlob_table_entry *entry) {
    if (entry->rejected)
        return;
    FILE *file = tlob_entries_next(user);
    put_problem(file, &entry->gemm);
    fprintf(file, "\"method\": {\"backend\": \"%s\", \"form\": \"%s\", \"configuration\": ", entry->method.backend,
            tlob_form_name(entry->method.form));
    tlob_put_fields(file, entry->method.configuration, entry->method.n_configuration);
    fprintf(file, "},\n");
    put_origin(file, &entry->origin);
}

static void put_block(void *user, const tlob_table_block *entry) {
    const int64_t values[] = {entry->shape.d_in, entry->shape.d_out, entry->shape.head_dim, entry->shape.seq,
                              entry->samples};
    if (entry->rejected)
        return;
    FILE *file = tlob_entries_next(user);
    for (int i = D_IN; i <= SAMPLES; i++) {
        fprintf(file, "%s\"%s\": ", i ? ", " : "{\"block\": {", block_names[i]);
        tlob_put_integer(file, values[i]);
    }
    fprintf(file, ", \"axis\": \"%s\", \"inference\": %s, \"compute\": \"%s\"},\n     \"plan\": \"%s\",\n",
            tlob_axis_name(entry->shape.axis), entry->inference ? "true" : "false", compute_words[entry->compute],
            tlob_block_plan_name(entry->plan));
    put_origin(file, &entry->origin);
}

tlob_status tlob_table_write(const tlob_table *table, const char *path) {
    static const char operation[] = "tlob_table_write";
    tlob_entries_writer w;
    if (!table || !path)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "%s is NULL", table ? "path" : "table");
    tlob_status status = tlob_entries_begin(&w, &kind, path, operation);
    if (status != TLOB_OK)
        return status;
    tlob_table_list(table, put_entry, &w);
    if (table->blocks.count) {
        tlob_entries_second(&w);
        tlob_table_list_blocks(table, put_block, &w);
    }
    return tlob_entries_end(&w);
}
