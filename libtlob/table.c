/* Tables in memory: entries found by a hash of their problem, and listed in order. Their files: table_file.c. */
#include "libtlob/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_NAME_MAX 39

_Static_assert(sizeof(tlob_gemm) == 2 * sizeof(tlob_op) + 13 * sizeof(int64_t) + 2 * sizeof(float) +
                                        sizeof(tlob_compute) + sizeof(tlob_epilogue),
               "problems are hashed and compared byte by byte");

/* --- problems --------------------------------------------------------------------------------------------------- */

tlob_gemm tlob_table_problem(const tlob_gemm *gemm) {
    tlob_gemm g = *gemm;
    const tlob_epilogue_traits *t = tlob_epilogue_get_traits(g.epilogue);
    bool batched = g.batch > 1, aux = t->reads_aux || t->writes_aux, vector = t->reads_bias || t->writes_bgrad;
    g.alpha = 1.0f;
    g.beta = gemm->beta != 0.0f ? 1.0f : 0.0f;
    if (!batched)
        g.stride_a = g.stride_b = g.stride_c = 0;
    if (!aux)
        g.ld_aux = 0;
    if (!aux || !batched)
        g.stride_aux = 0;
    if (!vector || !batched)
        g.stride_bias = 0;
    return g;
}

static bool same_problem(const tlob_gemm *a, const tlob_gemm *b) {
    return !memcmp(a, b, sizeof(*a));
}

/* FNV-1a over words of 32 bits, mixed once more so that the low bits depend on all. */
static uint64_t hash_problem(const tlob_gemm *gemm) {
    uint32_t words[sizeof(*gemm) / sizeof(uint32_t)];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    memcpy(words, gemm, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29 ^ hash >> 47;
}

static int compare_int64(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static int compare_problems(const tlob_gemm *a, const tlob_gemm *b) {
    const int64_t pairs[][2] = {
        {a->m, b->m}, {a->n, b->n}, {a->k, b->k}, {a->batch, b->batch}, {a->transa, b->transa}, {a->transb, b->transb},
        {a->compute, b->compute}, {a->epilogue, b->epilogue}, {a->lda, b->lda}, {a->ldb, b->ldb}, {a->ldc, b->ldc},
        {a->stride_a, b->stride_a}, {a->stride_b, b->stride_b}, {a->stride_c, b->stride_c},
        {(int64_t)a->beta, (int64_t)b->beta}, {a->ld_aux, b->ld_aux}, {a->stride_aux, b->stride_aux},
        {a->stride_bias, b->stride_bias},
    };
    int order = 0;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs) && !order; i++)
        order = compare_int64(pairs[i][0], pairs[i][1]);
    return order;
}

/* --- origins ---------------------------------------------------------------------------------------------------- */

/* "13.1.0" of "cuBLASLt 13.1.0": backends whose libraries come from one toolkit contradict each other. */
static const char *release_of(const tlob_table_origin *origin) {
    const char *blank = strrchr(origin->library, ' ');
    return blank ? blank + 1 : origin->library;
}

static bool same_device(const tlob_table_origin *origin, const char *name, int sm, int multiprocessors) {
    return !strcmp(origin->device, name) && origin->sm == sm && origin->multiprocessors == multiprocessors;
}

bool tlob_table_is_device(const tlob_table_origin *origin, const tlob_device_info *device) {
    return same_device(origin, device->name, device->sm, device->multiprocessors);
}

void tlob_table_tell_device(const tlob_table_origin *origin, const tlob_device_info *device, char *text, size_t size) {
    snprintf(text, size, "it is of '%.60s' (sm_%d, %d multiprocessors), and this device is '%.60s' (sm_%d, %d)",
             origin->device, origin->sm, origin->multiprocessors, device->name, device->sm, device->multiprocessors);
}

/* Whether the library is the one that this process has; true for a backend that is not libtlob's own. */
static bool is_library_here(const tlob_table_entry *entry, char version[64]) {
    const tlob_backend_ops *ops = tlob_row_find((tlob_rows){0}, entry->method.backend);
    version[0] = 0;
    if (!ops)
        return true;
    if (ops->version)
        ops->version(version, 64);
    return !ops->missing && !strcmp(version, entry->origin.library);
}

static bool is_here(const tlob_table_entry *entry, const tlob_device_info *device) {
    char version[64];
    return tlob_table_is_device(&entry->origin, device) && is_library_here(entry, version);
}

int tlob_table_compare_origins(const tlob_table_origin *a, const tlob_table_origin *b) {
    int order = strcmp(a->device, b->device);
    order = order ? order : compare_int64(a->sm, b->sm);
    order = order ? order : compare_int64(a->multiprocessors, b->multiprocessors);
    return order ? order : strcmp(a->library, b->library);
}

static int compare_entries(const tlob_table_entry *a, const tlob_table_entry *b) {
    int order = tlob_table_compare_origins(&a->origin, &b->origin);
    return order ? order : compare_problems(&a->gemm, &b->gemm);
}

static int compare_records(const void *a, const void *b) {
    const tlob_record *const *x = a, *const *y = b;
    return compare_entries(&(*x)->entry, &(*y)->entry);
}

/* --- what an entry must be -------------------------------------------------------------------------------------- */

/* What is wrong with a problem is no failure of the caller's: his last error stays. */
static bool check_problem(const tlob_gemm *gemm, tlob_fault *why) {
    const tlob_error before = *tlob_last_error();
    if (tlob_gemm_check(gemm) != TLOB_OK) {
        tlob_reject(why, "the problem is not valid: %.200s", tlob_last_error()->message);
        tlob_error_restore(&before);
        return false;
    }
    if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0 || gemm->batch == 0 || gemm->alpha == 0.0f)
        return tlob_reject(why, "the problem has nothing to multiply: m, n, k, batch or alpha is 0");
    if (gemm->compute == TLOB_COMPUTE_DEFAULT)
        return tlob_reject(why, "the problem's compute mode is DEFAULT, must be TF32 or FP32");
    return true;
}

static bool check_field_names(const tlob_method *method, tlob_fault *why) {
    for (int i = 0; i < method->n_configuration; i++) {
        const char *name = method->configuration[i].name;
        size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
        if (length < 1 || length > FIELD_NAME_MAX || name[length])
            return tlob_reject(why,
                               "the configuration has a field '%.40s', must be 1 to %d lower case letters, digits "
                               "and '_'", name ? name : "", FIELD_NAME_MAX);
        for (int j = 0; j < i; j++)
            if (!strcmp(name, method->configuration[j].name))
                return tlob_reject(why, "the configuration has '%s' twice", name);
    }
    return true;
}

static bool check_method(const tlob_method *method, const tlob_gemm *gemm, tlob_fault *why) {
    if (!memchr(method->backend, 0, sizeof(method->backend)) ||
        !tlob_name_well_formed(method->backend, sizeof(method->backend)))
        return tlob_reject(why, "no backend can be named '%.*s': 1 to 23 lower case letters, digits and '_'",
                           (int)sizeof(method->backend), method->backend);
    if ((unsigned)method->form >= TLOB_FORM_COUNT)
        return tlob_reject(why, "form is %d, which is no tlob_form", (int)method->form);
    if (method->n_configuration < 0 || method->n_configuration > TLOB_METHOD_FIELDS_MAX)
        return tlob_reject(why, "n_configuration is %d, must be from 0 to %d", method->n_configuration,
                           TLOB_METHOD_FIELDS_MAX);
    const char *obstacle = tlob_form_obstacle(method->form, gemm);
    if (obstacle)
        return tlob_reject(why, "the problem cannot be done in this form: %.200s", obstacle);
    return check_field_names(method, why);
}

bool tlob_table_check_origin(const tlob_table_origin *origin, tlob_fault *why) {
    if (!memchr(origin->device, 0, sizeof(origin->device)) || !*origin->device)
        return tlob_reject(why, "the device's name must have 1 to %zu bytes", sizeof(origin->device) - 1);
    if (!memchr(origin->library, 0, sizeof(origin->library)))
        return tlob_reject(why, "the library must have at most %zu bytes", sizeof(origin->library) - 1);
    if (origin->sm < 0 || origin->multiprocessors < 0)
        return tlob_reject(why, "sm is %d and multiprocessors %d, must be at least 0", origin->sm,
                           origin->multiprocessors);
    return true;
}

bool tlob_table_check(const tlob_table_entry *entry, tlob_fault *why) {
    return check_problem(&entry->gemm, why) && check_method(&entry->method, &entry->gemm, why) &&
           tlob_table_check_origin(&entry->origin, why);
}

/* --- keeping them ----------------------------------------------------------------------------------------------- */

static int compare_fields(const void *a, const void *b) {
    const tlob_algorithm_field *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static const char *copy_text(char **room, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*room, text, size);
    *room += size;
    return copy;
}

/* A copy with all its text, the problem as tables have it, fields sorted by name. */
static tlob_record *make_record(const tlob_table_entry *entry) {
    const char *source = entry->source ? entry->source : "";
    size_t size = strlen(source) + 1 + (entry->rejected ? strlen(entry->rejected) + 1 : 0);
    int fields = entry->method.n_configuration;
    for (int i = 0; i < fields; i++)
        size += strlen(entry->method.configuration[i].name) + 1;
    tlob_record *made = calloc(1, sizeof(*made) + size);
    if (!made)
        return NULL;
    char *room = (char *)(made + 1);
    made->entry = *entry;
    made->entry.source = copy_text(&room, source);
    made->entry.rejected = entry->rejected ? copy_text(&room, entry->rejected) : NULL;
    for (int i = 0; i < fields; i++)
        made->entry.method.configuration[i].name = copy_text(&room, entry->method.configuration[i].name);
    qsort(made->entry.method.configuration, (size_t)fields, sizeof(tlob_algorithm_field), compare_fields);
    if (!entry->rejected)
        made->entry.gemm = tlob_table_problem(&entry->gemm);
    made->hash = hash_problem(&made->entry.gemm);
    return made;
}

static bool reserve(tlob_records *records) {
    if (records->count < records->room)
        return true;
    size_t room = records->room ? 2 * records->room : 64;
    tlob_record **list = realloc(records->list, room * sizeof(*list));
    if (!list)
        return false;
    records->list = list;
    records->room = room;
    return true;
}

static tlob_record **bucket_of(const tlob_table *table, uint64_t hash) {
    return &table->buckets[hash & (table->n_buckets - 1)];
}

static void link_record(tlob_table *table, tlob_record *record) {
    tlob_record **bucket = bucket_of(table, record->hash);
    record->next = *bucket;
    *bucket = record;
}

static bool reserve_buckets(tlob_table *table) {
    if (table->kept.count < table->n_buckets)
        return true;
    size_t count = table->n_buckets ? 2 * table->n_buckets : 64;
    tlob_record **buckets = calloc(count, sizeof(*buckets));
    if (!buckets)
        return false;
    free(table->buckets);
    table->buckets = buckets;
    table->n_buckets = count;
    for (size_t i = 0; i < table->kept.count; i++)
        link_record(table, table->kept.list[i]);
    return true;
}

static tlob_status no_memory(void) {
    return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "table", "no memory for an entry of a table");
}

tlob_status tlob_table_append(tlob_table *table, const tlob_table_entry *entry) {
    tlob_record *record = reserve(&table->kept) && reserve_buckets(table) ? make_record(entry) : NULL;
    if (!record)
        return no_memory();
    table->kept.list[table->kept.count++] = record;
    link_record(table, record);
    return TLOB_OK;
}

tlob_status tlob_table_append_rejected(tlob_table *table, const tlob_table_entry *entry) {
    tlob_record *record = reserve(&table->rejected) ? make_record(entry) : NULL;
    if (!record)
        return no_memory();
    table->rejected.list[table->rejected.count++] = record;
    return TLOB_OK;
}

void tlob_table_sort(tlob_table *table) {
    if (table->kept.count)
        qsort(table->kept.list, table->kept.count, sizeof(*table->kept.list), compare_records);
}

static tlob_record *find_same(const tlob_table *table, const tlob_table_entry *entry) {
    const tlob_gemm problem = tlob_table_problem(&entry->gemm);
    const tlob_table_origin *o = &entry->origin;
    uint64_t hash = hash_problem(&problem);
    tlob_record *r = table->n_buckets ? *bucket_of(table, hash) : NULL;
    while (r && !(r->hash == hash && same_problem(&r->entry.gemm, &problem) &&
                  same_device(&r->entry.origin, o->device, o->sm, o->multiprocessors) &&
                  !strcmp(release_of(&r->entry.origin), release_of(o))))
        r = r->next;
    return r;
}

/* Where in the sorted list a record is, or belongs. */
size_t tlob_table_rank(const tlob_table *table, const tlob_table_entry *entry) {
    size_t low = 0, high = table->kept.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entries(&table->kept.list[middle]->entry, entry) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(tlob_table *table, tlob_record *record) {
    size_t rank = tlob_table_rank(table, &record->entry);
    tlob_record **at = table->kept.list + rank;
    memmove(at + 1, at, (table->kept.count++ - rank) * sizeof(*at));
    *at = record;
    link_record(table, record);
}

static void remove_record(tlob_table *table, tlob_record *record) {
    size_t rank = tlob_table_rank(table, &record->entry);
    tlob_record **at = table->kept.list + rank, **link = bucket_of(table, record->hash);
    memmove(at, at + 1, (--table->kept.count - rank) * sizeof(*at));
    while (*link != record)
        link = &(*link)->next;
    *link = record->next;
    free(record);
}

/* --- the public face -------------------------------------------------------------------------------------------- */

tlob_status tlob_table_create(tlob_table **table) {
    if (!table)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_table_create", "table is NULL");
    *table = calloc(1, sizeof(**table));
    return *table ? TLOB_OK : tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "tlob_table_create", "no memory for a table");
}

const char *tlob_table_name(const tlob_table *table) {
    return *table->name ? table->name : "a table of the program";
}

static void free_records(tlob_records *records) {
    for (size_t i = 0; i < records->count; i++)
        free(records->list[i]);
    free(records->list);
}

void tlob_table_destroy(tlob_table **table) {
    if (!table || !*table)
        return;
    free_records(&(*table)->kept);
    free_records(&(*table)->rejected);
    tlob_table_free_blocks(*table);
    free((*table)->buckets);
    free(*table);
    *table = NULL;
}

tlob_status tlob_table_put(tlob_table *table, const tlob_table_entry *entry) {
    const char *where = "tlob_table_put";
    tlob_fault why;
    if (!table || !entry)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s is NULL", table ? "entry" : "table");
    tlob_table_entry added = *entry;
    added.source = "";
    added.rejected = NULL;
    if (!tlob_table_check(&added, &why))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "%s", why.text);
    tlob_record *record = reserve(&table->kept) && reserve_buckets(table) ? make_record(&added) : NULL;
    if (!record)
        return no_memory();
    tlob_record *before = find_same(table, &added); /* `entry` may be that one's */
    if (before)
        remove_record(table, before);
    insert(table, record);
    return TLOB_OK;
}

tlob_status tlob_table_list(const tlob_table *table, tlob_table_fn visit, void *user) {
    if (!table || !visit)
        return tlob_fail(TLOB_ERR_ARGUMENT, "tlob_table_list", "%s is NULL", table ? "visit" : "table");
    for (size_t i = 0; i < table->kept.count; i++)
        visit(user, &table->kept.list[i]->entry);
    for (size_t i = 0; i < table->rejected.count; i++)
        visit(user, &table->rejected.list[i]->entry);
    return TLOB_OK;
}

const tlob_table_entry *tlob_table_same(const tlob_table *table, const tlob_table_entry *entry) {
    const tlob_record *record = table && entry ? find_same(table, entry) : NULL;
    return record ? &record->entry : NULL;
}

int64_t tlob_table_count(const tlob_table *table, const tlob_device_info *device) {
    int64_t count = 0;
    for (size_t i = 0; table && i < table->kept.count; i++)
        count += !device || is_here(&table->kept.list[i]->entry, device);
    return count;
}

static bool has_product(const tlob_gemm *g) {
    return g->m > 0 && g->n > 0 && g->k > 0 && g->batch > 0 && g->alpha != 0.0f;
}

/* The first entry for a problem, in order, on a device, or on any. */
static const tlob_table_entry *find_first(const tlob_table *table, const tlob_gemm *gemm,
                                          const tlob_device_info *device) {
    const tlob_gemm problem = tlob_table_problem(gemm);
    const tlob_table_entry *first = NULL;
    uint64_t hash = hash_problem(&problem);
    for (const tlob_record *r = *bucket_of(table, hash); r; r = r->next)
        if (r->hash == hash && same_problem(&r->entry.gemm, &problem) && (!device || is_here(&r->entry, device)) &&
            (!first || compare_entries(&r->entry, first) < 0))
            first = &r->entry;
    return first;
}

const tlob_table_entry *tlob_table_find(const tlob_table *table, const tlob_gemm *gemm,
                                        const tlob_device_info *device) {
    return table && gemm && table->n_buckets && has_product(gemm) ? find_first(table, gemm, device) : NULL;
}

bool tlob_table_foreign(const tlob_table_entry *entry, const tlob_device_info *device, char *text, size_t size) {
    const tlob_table_origin *o = &entry->origin;
    char version[64];
    if (is_here(entry, device))
        return false;
    if (!tlob_table_is_device(o, device))
        tlob_table_tell_device(o, device, text, size);
    else if (!is_library_here(entry, version))
        snprintf(text, size, "it is of %s '%s', and this process has '%s'", entry->method.backend, o->library, version);
    return true;
}

void tlob_table_miss(const tlob_table *table, const tlob_gemm *gemm, const tlob_device_info *device, char *text,
                     size_t size) {
    if (!text || !size)
        return;
    text[0] = 0;
    if (tlob_table_find(table, gemm, device))
        return;
    const tlob_table_entry *any = tlob_table_find(table, gemm, NULL);
    if (any && device) {
        size_t used = (size_t)snprintf(text, size, "the entry for this problem does not count here: ");
        if (used < size)
            tlob_table_foreign(any, device, text + used, size - used);
    }
    else if (gemm && !has_product(gemm))
        snprintf(text, size, "there is nothing to multiply");
    else
        snprintf(text, size, "no entry for this problem");
}
