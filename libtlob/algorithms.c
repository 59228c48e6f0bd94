/* Tables of algorithms: what backends have chosen, as files. What the numbers mean is the backends' affair. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/entries.h"

#define FORMAT "tlob-algorithms"

static const tlob_entries_kind kind = {
    .json = {.name = "file of algorithms",
             .example = "{\"format\": \"" FORMAT "\", \"version\": 1, \"entries\": []}",
             .status = TLOB_ERR_FILE,
             .most_bytes = (size_t)16 << 20},
    .format = FORMAT,
    .most = 65536,
};

const char *tlob_algorithm_state_name(tlob_algorithm_state state) {
    static const char *const names[] = {"chosen", "loaded", "confirmed", "rejected"};
    return (unsigned)state < 4 ? names[state] : "?";
}

/* An entry of a file that no table has taken. */
struct tlob_refused {
    tlob_refused *next;
    char backend[24];
    char source[320];
    char reason[256];
};

/* --- what backends share within a context ---------------------------------------------------------------------- */

static void log_line(void *user, tlob_log_level level, const char *line) {
    tlob_log(user, level, "%s", line);
}

tlob_status tlob_shared_attach(tlob_context *ctx) {
    tlob_visit visit;
    tlob_status status = tlob_enter_cold(ctx, &visit);
    if (status != TLOB_OK)
        return status;
    ctx->attend_has_tiles = ctx->space->kernels->attend_has_tiles();
    ctx->has_fused_code = ctx->space->kernels->block_has_code && ctx->space->kernels->block_has_code();
    status = tlob_fail_cuda(ctx->space, ctx->space->describe(ctx->home.device, &ctx->device),
                            "cudaGetDeviceProperties");
    const tlob_shared_params params = {
        .deterministic = ctx->settings.deterministic,
        .workspace_bytes = ctx->space->memory == TLOB_MEMORY_CUDA ? ctx->settings.workspace_bytes : 0,
        .device = ctx->device.name,
        .sm = ctx->device.sm,
        .multiprocessors = ctx->device.multiprocessors,
        .log = log_line,
        .log_user = ctx,
    };
    for (int i = 0; i < ctx->n_backends && status == TLOB_OK; i++)
        if (ctx->backends[i]->attach)
            status = ctx->backends[i]->attach(&ctx->shared[i], &params);
    tlob_leave_cold(ctx, &visit);
    return status;
}

void tlob_shared_detach(tlob_context *ctx) {
    for (int i = 0; i < ctx->n_backends; i++)
        if (ctx->shared[i])
            ctx->backends[i]->detach(ctx->shared[i]);
    while (ctx->refused) {
        tlob_refused *next = ctx->refused->next;
        free(ctx->refused);
        ctx->refused = next;
    }
}

/* --- the list -------------------------------------------------------------------------------------------------- */

static void visit_refused(tlob_context *ctx, tlob_algorithm_fn visit, void *user) {
    pthread_mutex_lock(&ctx->refused_lock);
    for (const tlob_refused *r = ctx->refused; r; r = r->next) {
        const tlob_algorithm entry = {
            .backend = r->backend, .state = TLOB_ALGORITHM_REJECTED, .reason = r->reason, .source = r->source};
        visit(user, &entry);
    }
    pthread_mutex_unlock(&ctx->refused_lock);
}

static void visit_tables(tlob_context *ctx, tlob_algorithm_fn visit, void *user) {
    for (int i = 0; i < ctx->n_backends; i++)
        if (ctx->backends[i]->list_algorithms)
            ctx->backends[i]->list_algorithms(ctx->shared[i], visit, user);
}

tlob_status tlob_algorithms_list(tlob_context *ctx, tlob_algorithm_fn visit, void *user) {
    tlob_status status = tlob_context_check(ctx, "tlob_algorithms_list");
    if (status == TLOB_OK && !visit)
        status = tlob_fail(TLOB_ERR_ARGUMENT, "tlob_algorithms_list", "visit is NULL");
    if (status != TLOB_OK)
        return status;
    visit_tables(ctx, visit, user);
    visit_refused(ctx, visit, user);
    return TLOB_OK;
}

static tlob_status check_call(const tlob_context *ctx, const char *path, const char *where) {
    tlob_status status = tlob_context_check(ctx, where);
    if (status == TLOB_OK && !path)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "path is NULL");
    if (status == TLOB_OK && !ctx->settings.deterministic)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where,
                           "the context is not deterministic (%s), so that it looks at no table of algorithms: set "
                           "`deterministic`", tlob_origin_name(ctx->settings.deterministic_origin));
    return status;
}

/* --- saving ---------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const tlob_context *ctx;
    tlob_entries_writer to;
} writer;

static void put_entry(void *user, const tlob_algorithm *entry) {
    writer *w = user;
    if (entry->state != TLOB_ALGORITHM_CHOSEN && entry->state != TLOB_ALGORITHM_CONFIRMED)
        return;
    FILE *file = tlob_entries_next(&w->to);
    fprintf(file, "{\"backend\": \"%s\", \"library\": %" PRId64 ", \"order\": %" PRId64 ",", entry->backend,
            entry->library, entry->order);
    fprintf(file, "\n     \"device\": {\"name\": ");
    tlob_put_string(file, w->ctx->device.name);
    fprintf(file, ", \"sm\": %d, \"multiprocessors\": %d},\n     \"key\": ", w->ctx->device.sm,
            w->ctx->device.multiprocessors);
    tlob_put_fields(file, entry->key, entry->n_key);
    fprintf(file, ",\n     \"configuration\": ");
    tlob_put_fields(file, entry->configuration, entry->n_configuration);
    fputc('}', file);
}

tlob_status tlob_algorithms_save(tlob_context *ctx, const char *path) {
    static const char operation[] = "tlob_algorithms_save";
    writer w = {.ctx = ctx};
    tlob_status status = check_call(ctx, path, operation);
    if (status == TLOB_OK)
        status = tlob_entries_begin(&w.to, &kind, path, operation);
    if (status != TLOB_OK)
        return status;
    visit_tables(ctx, put_entry, &w);
    return tlob_entries_end(&w.to);
}

/* --- loading --------------------------------------------------------------------------------------------------- */

static bool check_device(const tlob_context *ctx, const cJSON *object, tlob_fault *why) {
    tlob_member m[] = {{.name = "name"}, {.name = "sm"}, {.name = "multiprocessors"}};
    int64_t sm, multiprocessors;
    const tlob_device_info *here = &ctx->device;
    if (!tlob_take_members(object, "\"device\"", m, 3, why))
        return false;
    if (!cJSON_IsString(m[0].item))
        return tlob_reject(why, "the device's name is no string");
    if (!tlob_take_integer(m[1].item, &sm, why) || !tlob_take_integer(m[2].item, &multiprocessors, why))
        return false;
    if (!strcmp(m[0].item->valuestring, here->name) && sm == here->sm && multiprocessors == here->multiprocessors)
        return true;
    return tlob_reject(why,
                  "it is for '%.60s' (sm_%" PRId64 ", %" PRId64 " multiprocessors), and this device is '%.60s' "
                  "(sm_%d, %d multiprocessors)", m[0].item->valuestring, sm, multiprocessors, here->name, here->sm,
                  here->multiprocessors);
}

/* Fills `entry` as far as it comes, and hands it to its backend. */
static bool take_entry(tlob_context *ctx, const cJSON *object, tlob_algorithm *entry, tlob_fault *why) {
    tlob_member m[] = {{.name = "backend"}, {.name = "library"}, {.name = "order"},
                       {.name = "device"},  {.name = "key"},     {.name = "configuration"}};
    int index;
    if (!tlob_take_members(object, "the entry", m, 6, why))
        return false;
    if (!cJSON_IsString(m[0].item))
        return tlob_reject(why, "\"backend\" is no string");
    entry->backend = m[0].item->valuestring;
    const tlob_backend_ops *ops = tlob_context_backend(ctx, entry->backend, &index);
    if (!ops)
        return tlob_reject(why, "this context has no backend '%.23s'", entry->backend);
    if (!ops->offer_algorithm)
        return tlob_reject(why, "%s chooses no algorithms", entry->backend);
    enum { MOST = TLOB_ALGORITHM_FIELDS_MAX };
    return check_device(ctx, m[3].item, why) && tlob_take_integer(m[1].item, &entry->library, why) &&
           tlob_take_integer(m[2].item, &entry->order, why) &&
           tlob_take_fields(m[4].item, entry->key, MOST, &entry->n_key, why) &&
           tlob_take_fields(m[5].item, entry->configuration, MOST, &entry->n_configuration, why) &&
           ops->offer_algorithm(ctx->shared[index], entry, why->text, sizeof(why->text));
}

static tlob_status keep_refused(tlob_context *ctx, const tlob_algorithm *entry, const tlob_fault *why) {
    tlob_refused *made = calloc(1, sizeof(*made));
    if (!made)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "tlob_algorithms_load", "no memory for a rejected entry");
    snprintf(made->backend, sizeof(made->backend), "%s", entry->backend);
    snprintf(made->source, sizeof(made->source), "%s", entry->source);
    snprintf(made->reason, sizeof(made->reason), "%s", why->text);
    pthread_mutex_lock(&ctx->refused_lock);
    *ctx->refused_end = made;
    ctx->refused_end = &made->next;
    pthread_mutex_unlock(&ctx->refused_lock);
    return TLOB_OK;
}

static tlob_status load_entry(tlob_context *ctx, const char *source, const cJSON *object,
                              tlob_algorithms_report *report) {
    tlob_algorithm entry = {.backend = "", .state = TLOB_ALGORITHM_LOADED, .reason = "", .source = source};
    tlob_fault why = {""};
    if (take_entry(ctx, object, &entry, &why)) {
        report->accepted++;
        return TLOB_OK;
    }
    tlob_log(ctx, TLOB_LOG_WARN, "algorithms: %s is rejected: %s", source, why.text);
    if (!report->rejected++)
        snprintf(report->reason, sizeof(report->reason), "%s", why.text);
    return keep_refused(ctx, &entry, &why);
}

static tlob_status take_object(tlob_context *ctx, const char *path, const cJSON *object,
                               tlob_algorithms_report *report) {
    const cJSON *entries[2] = {NULL, NULL}, *item;
    tlob_status status = tlob_entries_of(&kind, path, object, entries);
    int number = 0;
    cJSON_ArrayForEach(item, entries[0]) {
        char source[320];
        snprintf(source, sizeof(source), "%.280s, entry %d", path, ++number);
        if (status == TLOB_OK)
            status = load_entry(ctx, source, item, report);
    }
    if (status == TLOB_OK)
        tlob_log(ctx, TLOB_LOG_INFO, "algorithms: %s: %d accepted, %d rejected", path, report->accepted,
                 report->rejected);
    return status;
}

tlob_status tlob_algorithms_parse(tlob_context *ctx, const char *path, const char *text, size_t length,
                                  tlob_algorithms_report *report) {
    tlob_algorithms_report own;
    cJSON *object = NULL;
    tlob_status status = tlob_json_parse(&kind.json, path, text, length, &object);
    report = report ? report : &own;
    memset(report, 0, sizeof(*report));
    if (status == TLOB_OK)
        status = take_object(ctx, path, object, report);
    cJSON_Delete(object);
    return status;
}

tlob_status tlob_algorithms_load(tlob_context *ctx, const char *path, tlob_algorithms_report *report) {
    tlob_algorithms_report own;
    cJSON *object = NULL;
    tlob_status status = check_call(ctx, path, "tlob_algorithms_load");
    report = report ? report : &own;
    memset(report, 0, sizeof(*report));
    if (status == TLOB_OK)
        status = tlob_json_read(&kind.json, path, &object);
    if (status == TLOB_OK)
        status = take_object(ctx, path, object, report);
    cJSON_Delete(object);
    return status;
}
