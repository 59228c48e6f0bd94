#include "backends/cublaslt/algorithm.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cublaslt/search.h"

/** A key, what this context has chosen for it, and what a file has promised. */
typedef struct entry {
    tlob_algo_key key;
    bool chosen, promised;
    tlob_algo_config choice, promise;
    char *source; /**< of the promise */
} entry;

struct tlob_shared {
    bool deterministic; /**< else the table stays empty */
    int multiprocessors;
    pthread_mutex_t lock; /**< guards all below; taken when a plan is built, never on a warm call */
    tlob_log_fn log;
    void *log_user;
    entry **entries; /**< sorted by key */
    size_t count, capacity;
};

/* --- fields ---------------------------------------------------------------------------------------------------- */

/** A member of a key or a configuration, as files name it, and the values that it can have. */
typedef struct field {
    const char *name;
    size_t offset, size;
    int64_t low, high;
} field;

#define KEY(member, low, high)                                                                                         \
    {#member, offsetof(tlob_algo_key, problem.member), sizeof(((tlob_algo_key *)0)->problem.member), low, high}

static const field key_fields[] = {
    {"type", offsetof(tlob_algo_key, type), sizeof(int64_t), CUDA_R_32F, CUDA_R_32F},
    KEY(transa, TLOB_OP_N, TLOB_OP_T),
    KEY(transb, TLOB_OP_N, TLOB_OP_T),
    KEY(m, 1, INT64_MAX),
    KEY(n, 1, INT64_MAX),
    KEY(k, 1, INT64_MAX),
    KEY(batch, 1, INT32_MAX),
    KEY(lda, 1, INT64_MAX),
    KEY(ldb, 1, INT64_MAX),
    KEY(ldc, 1, INT64_MAX),
    KEY(stride_a, 0, INT64_MAX),
    KEY(stride_b, 0, INT64_MAX),
    KEY(stride_c, 0, INT64_MAX),
    KEY(compute, TLOB_COMPUTE_TF32, TLOB_COMPUTE_FP32),
    KEY(epilogue, 0, TLOB_EPILOGUE_COUNT - 1),
    KEY(stride_bias, 0, INT64_MAX),
    KEY(ld_aux, 0, INT64_MAX),
    KEY(stride_aux, 0, INT64_MAX),
    KEY(align_a, 1, 256),
    KEY(align_b, 1, 256),
    KEY(align_c, 1, 256),
    KEY(align_d, 1, 256),
    KEY(align_bias, 0, 256),
    KEY(align_aux, 0, 256),
    KEY(reads_c, 0, 1),
    KEY(in_place, 0, 1),
    {"workspace_bytes", offsetof(tlob_algo_key, workspace_bytes), sizeof(int64_t), 0, INT64_MAX},
};

#define CONFIG(member, high) {#member, offsetof(tlob_algo_config, member), sizeof(int64_t), 0, high}

static const field config_fields[] = {
    CONFIG(id, INT32_MAX),         CONFIG(tile, INT32_MAX),         CONFIG(stages, INT32_MAX),
    CONFIG(split_k, INT32_MAX),    CONFIG(reduction, INT32_MAX),    CONFIG(swizzle, INT32_MAX),
    CONFIG(custom, INT32_MAX),     CONFIG(inner_shape, UINT16_MAX), CONFIG(cluster_shape, UINT16_MAX),
    CONFIG(workspace_bytes, INT64_MAX),
};

enum {
    KEY_FIELDS = sizeof(key_fields) / sizeof(key_fields[0]),
    CONFIG_FIELDS = sizeof(config_fields) / sizeof(config_fields[0]),
};

_Static_assert((int)KEY_FIELDS <= TLOB_ALGORITHM_FIELDS_MAX && (int)CONFIG_FIELDS <= TLOB_METHOD_FIELDS_MAX,
               "they fit into an entry, and into a method");

static int64_t get(const void *object, const field *f) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (f->size == sizeof(wide)) {
        memcpy(&wide, (const char *)object + f->offset, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, (const char *)object + f->offset, sizeof(narrow));
    return narrow;
}

static void put(void *object, const field *f, int64_t value) {
    int32_t narrow = (int32_t)value;
    if (f->size == sizeof(value))
        memcpy((char *)object + f->offset, &value, sizeof(value));
    else
        memcpy((char *)object + f->offset, &narrow, sizeof(narrow));
}

static int compare(const void *a, const void *b, const field *fields, int count) {
    for (int i = 0; i < count; i++) {
        int64_t x = get(a, &fields[i]), y = get(b, &fields[i]);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int tlob_algo_compare(const tlob_algo_config *a, const tlob_algo_config *b) {
    return compare(a, b, config_fields, CONFIG_FIELDS);
}

static bool same_config(const tlob_algo_config *a, const tlob_algo_config *b) {
    return tlob_algo_compare(a, b) == 0;
}

static int tell_fields(const void *object, const field *fields, int count, tlob_algorithm_field *to) {
    for (int i = 0; i < count; i++)
        to[i] = (tlob_algorithm_field){fields[i].name, get(object, &fields[i])};
    return count;
}

int tlob_algo_tell_config(const tlob_algo_config *config, tlob_algorithm_field *fields) {
    return tell_fields(config, config_fields, CONFIG_FIELDS, fields);
}

int tlob_algo_multiprocessors(const tlob_shared *shared) {
    return shared->multiprocessors;
}

/** "id 21 tile 15 ...": a configuration in a line, without what is 0. */
static const char *print_config(const tlob_algo_config *config, char text[192]) {
    size_t used = (size_t)snprintf(text, 192, "id %" PRId64, config->id);
    for (int i = 1; i < CONFIG_FIELDS && used < 192; i++) {
        int64_t value = get(config, &config_fields[i]);
        if (value)
            used += (size_t)snprintf(text + used, 192 - used, " %s %" PRId64, config_fields[i].name, value);
    }
    return text;
}

/* --- the table ------------------------------------------------------------------------------------------------- */

/** Where the key is, or belongs. */
static size_t place_of(const tlob_shared *shared, const tlob_algo_key *key, bool *found) {
    size_t low = 0, high = shared->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(&shared->entries[middle]->key, key, key_fields, KEY_FIELDS);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static entry *find(const tlob_shared *shared, const tlob_algo_key *key) {
    bool found;
    size_t at = place_of(shared, key, &found);
    return found ? shared->entries[at] : NULL;
}

/** The entry of a key, made where there is none. NULL: no memory, the table is as it was. */
static entry *find_or_add(tlob_shared *shared, const tlob_algo_key *key) {
    bool found;
    size_t at = place_of(shared, key, &found);
    if (found)
        return shared->entries[at];
    if (shared->count == shared->capacity) {
        size_t capacity = shared->capacity ? 2 * shared->capacity : 64;
        entry **grown = realloc(shared->entries, capacity * sizeof(*grown));
        if (!grown)
            return NULL;
        shared->entries = grown;
        shared->capacity = capacity;
    }
    entry *made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->key = *key;
    memmove(&shared->entries[at + 1], &shared->entries[at], (shared->count - at) * sizeof(*shared->entries));
    shared->entries[at] = made;
    shared->count++;
    return made;
}

tlob_status tlob_algo_attach(tlob_shared **shared, const tlob_shared_params *params) {
    *shared = NULL;
    tlob_shared *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "attach", 0, NULL, NULL,
                                 "no host memory for a table of algorithms");
    pthread_mutex_init(&made->lock, NULL);
    made->deterministic = params->deterministic;
    made->multiprocessors = params->multiprocessors > 0 ? params->multiprocessors : 1;
    made->log = params->log;
    made->log_user = params->log_user;
    *shared = made;
    return TLOB_OK;
}

void tlob_algo_detach(tlob_shared *shared) {
    if (!shared)
        return;
    for (size_t i = 0; i < shared->count; i++) {
        free(shared->entries[i]->source);
        free(shared->entries[i]);
    }
    free(shared->entries);
    pthread_mutex_destroy(&shared->lock);
    free(shared);
}

/* --- the list, and entries from files -------------------------------------------------------------------------- */

/** Why a promise that was not kept is rejected: both sides of it. */
static void print_conflict(const entry *e, char *text, size_t size) {
    char promise[192], choice[192];
    snprintf(text, size, "it says %s, and the fixed order chooses %s", print_config(&e->promise, promise),
             print_config(&e->choice, choice));
}

static void tell(const entry *e, tlob_algorithm_state state, const tlob_algo_config *config, const char *reason,
                 tlob_algorithm_fn visit, void *user) {
    tlob_algorithm told = {
        .backend = TLOB_CUBLASLT_NAME,
        .state = state,
        .reason = reason,
        .source = state == TLOB_ALGORITHM_CHOSEN ? "" : e->source,
        .library = (int64_t)cublasLtGetVersion(),
        .order = TLOB_ALGO_ORDER,
    };
    told.n_key = tell_fields(&e->key, key_fields, KEY_FIELDS, told.key);
    told.n_configuration = tell_fields(config, config_fields, CONFIG_FIELDS, told.configuration);
    visit(user, &told);
}

void tlob_algo_list(tlob_shared *shared, tlob_algorithm_fn visit, void *user) {
    pthread_mutex_lock(&shared->lock);
    for (size_t i = 0; i < shared->count; i++) {
        const entry *e = shared->entries[i];
        bool kept = e->chosen && e->promised && same_config(&e->choice, &e->promise);
        char reason[480] = "";
        if (e->chosen)
            tell(e, kept ? TLOB_ALGORITHM_CONFIRMED : TLOB_ALGORITHM_CHOSEN, &e->choice, "", visit, user);
        else
            tell(e, TLOB_ALGORITHM_LOADED, &e->promise, "", visit, user);
        if (e->chosen && e->promised && !kept) {
            print_conflict(e, reason, sizeof(reason));
            tell(e, TLOB_ALGORITHM_REJECTED, &e->promise, reason, visit, user);
        }
    }
    pthread_mutex_unlock(&shared->lock);
}

/** Fills `object` from the fields of an entry: each must be there once, and none that is not known. */
static bool take_fields(const tlob_algorithm_field *given, int n_given, const field *fields, int count, void *object,
                        char *why, size_t size) {
    bool seen[TLOB_ALGORITHM_FIELDS_MAX] = {false};
    for (int i = 0; i < n_given; i++) {
        int at = 0;
        while (at < count && strcmp(fields[at].name, given[i].name))
            at++;
        if (at == count)
            return snprintf(why, size, "the field \"%.40s\" is not known", given[i].name), false;
        if (seen[at])
            return snprintf(why, size, "the field \"%s\" is there twice", given[i].name), false;
        if (given[i].value < fields[at].low || given[i].value > fields[at].high)
            return snprintf(why, size, "%s is %" PRId64 ", must be from %" PRId64 " to %" PRId64, given[i].name,
                            given[i].value, fields[at].low, fields[at].high), false;
        seen[at] = true;
        put(object, &fields[at], given[i].value);
    }
    for (int i = 0; i < count; i++)
        if (!seen[i])
            return snprintf(why, size, "the field \"%s\" is missing", fields[i].name), false;
    return true;
}

bool tlob_algo_take_config(const tlob_algorithm_field *fields, int count, tlob_algo_config *config, char *why,
                           size_t size) {
    memset(config, 0, sizeof(*config));
    return take_fields(fields, count, config_fields, CONFIG_FIELDS, config, why, size);
}

/** Under the lock. */
static bool keep_promise(tlob_shared *shared, const tlob_algo_key *key, const tlob_algo_config *config,
                         const char *source, char *why, size_t size) {
    const entry *there = find(shared, key);
    if (there && there->chosen && !same_config(&there->choice, config)) {
        entry both = *there;
        both.promise = *config;
        print_conflict(&both, why, size);
        return false;
    }
    if (there && there->promised && !same_config(&there->promise, config))
        return snprintf(why, size, "%s has promised another configuration for the same key", there->source), false;
    if (there && there->promised)
        return true;
    char *kept = strdup(source);
    entry *e = kept ? find_or_add(shared, key) : NULL;
    if (!e) {
        free(kept);
        return snprintf(why, size, "there is no memory for it"), false;
    }
    e->promised = true;
    e->promise = *config;
    e->source = kept;
    return true;
}

bool tlob_algo_offer(tlob_shared *shared, const tlob_algorithm *given, char *why, size_t size) {
    tlob_algo_key key;
    tlob_algo_config config;
    int64_t version = (int64_t)cublasLtGetVersion();
    memset(&key, 0, sizeof(key));
    if (!shared->deterministic)
        return snprintf(why, size, "the context is not deterministic"), false;
    if (given->library != version)
        return snprintf(why, size, "it is for version %" PRId64 " of cuBLASLt, and this is %" PRId64, given->library,
                        version), false;
    if (given->order != TLOB_ALGO_ORDER)
        return snprintf(why, size, "it follows order %" PRId64 ", and this libtlob follows order %d", given->order,
                        TLOB_ALGO_ORDER), false;
    if (!take_fields(given->key, given->n_key, key_fields, KEY_FIELDS, &key, why, size) ||
        !tlob_algo_take_config(given->configuration, given->n_configuration, &config, why, size))
        return false;
    pthread_mutex_lock(&shared->lock);
    bool kept = keep_promise(shared, &key, &config, given->source, why, size);
    pthread_mutex_unlock(&shared->lock);
    return kept;
}

/* --- choosing -------------------------------------------------------------------------------------------------- */

#define MOST_OF_SOURCE 160 /* the end of it, which has the number: a line of the log has 511 bytes for all */

/** A line of the log; empty where there is nothing to say. */
typedef struct warning {
    char text[896];
} warning;

/** Under the lock: the choice for a key, searched for the first time that it is needed. */
static tlob_status answer(tlob_lane *lane, tlob_plan *plan, const tlob_algo_key *key, const tlob_gemm *gemm,
                          tlob_algo_config *config, warning *warn) {
    tlob_shared *shared = lane->params.shared;
    entry *e = find(shared, key);
    if (!e || !e->chosen) {
        tlob_status status = tlob_algo_search(lane, plan, shared->multiprocessors, gemm, config);
        if (status != TLOB_OK)
            return status;
        e = find_or_add(shared, key);
        if (!e)
            return tlob_backend_fail(TLOB_ERR_OUT_OF_MEMORY, TLOB_CUBLASLT_NAME, "plan", 0, NULL, gemm,
                                     "no host memory for an entry of the table of algorithms");
        e->chosen = true;
        e->choice = *config;
        if (e->promised && !same_config(&e->choice, &e->promise)) {
            char reason[480];
            size_t length = strlen(e->source), cut = length > MOST_OF_SOURCE ? length - MOST_OF_SOURCE : 0;
            print_conflict(e, reason, sizeof(reason));
            snprintf(warn->text, sizeof(warn->text), "algorithms: %s%s is rejected: %s", cut ? "..." : "",
                     e->source + cut, reason);
        }
    }
    *config = e->choice;
    return TLOB_OK;
}

tlob_status tlob_algo_choose(tlob_lane *lane, tlob_plan *plan, const tlob_gemm *gemm) {
    tlob_shared *shared = lane->params.shared;
    tlob_algo_config config;
    tlob_algo_key key;
    memset(&key, 0, sizeof(key));
    key.problem = plan->key;
    key.type = CUDA_R_32F;
    key.workspace_bytes = (int64_t)lane->params.workspace_bytes;
    warning warn = {""};
    pthread_mutex_lock(&shared->lock);
    tlob_status status = answer(lane, plan, &key, gemm, &config, &warn);
    pthread_mutex_unlock(&shared->lock);
    if (*warn.text) /* not under the lock: who receives it may look at the table */
        shared->log(shared->log_user, TLOB_LOG_WARN, warn.text);
    if (status != TLOB_OK)
        return status;
    plan->workspace_bytes = (size_t)config.workspace_bytes;
    return tlob_algo_make(lane->handle, plan, &config, gemm);
}
