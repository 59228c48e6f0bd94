/* Tables of algorithms: what backends have chosen, as files. What the numbers mean is the backends' affair. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtlob/json.h"

#define FORMAT       "tlob-algorithms"
#define MOST_BYTES   ((size_t)16 << 20)
#define MOST_ENTRIES 65536
#define EXACT        ((int64_t)1 << 53) /* from this on JSON's readers may round a number, so it stands as a string */

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
    FILE *file;
    int entries;
} writer;

static void put_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fprintf(file, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    fputc('"', file);
}

static void put_fields(FILE *file, const char *name, const tlob_algorithm_field *fields, int count) {
    fprintf(file, ",\n     \"%s\": {", name);
    for (int i = 0; i < count; i++) {
        const char *quote = fields[i].value >= EXACT || fields[i].value <= -EXACT ? "\"" : "";
        fprintf(file, "%s\"%s\": %s%" PRId64 "%s", i ? ", " : "", fields[i].name, quote, fields[i].value, quote);
    }
    fputc('}', file);
}

static void put_entry(void *user, const tlob_algorithm *entry) {
    writer *w = user;
    if (entry->state != TLOB_ALGORITHM_CHOSEN && entry->state != TLOB_ALGORITHM_CONFIRMED)
        return;
    fprintf(w->file, "%s\n    {\"backend\": \"%s\", \"library\": %" PRId64 ", \"order\": %" PRId64 ",",
            w->entries++ ? "," : "", entry->backend, entry->library, entry->order);
    fprintf(w->file, "\n     \"device\": {\"name\": ");
    put_string(w->file, w->ctx->device.name);
    fprintf(w->file, ", \"sm\": %d, \"multiprocessors\": %d}", w->ctx->device.sm, w->ctx->device.multiprocessors);
    put_fields(w->file, "key", entry->key, entry->n_key);
    put_fields(w->file, "configuration", entry->configuration, entry->n_configuration);
    fputc('}', w->file);
}

static tlob_status fail_file(const char *operation, const char *path, const char *what) {
    int code = errno;
    return tlob_fail(TLOB_ERR_FILE, operation, "'%s': %s: %s", path, what, strerror(code ? code : EIO));
}

/* A new file beside the one that `path` names or links to, `target`. No reader knows it; its permissions are those of
 * the one that it replaces. */
static tlob_status open_aside(const char *path, char target[PATH_MAX], char aside[PATH_MAX], FILE **file) {
    static const char operation[] = "tlob_algorithms_save";
    struct stat info;
    uint32_t tag;
    bool replaces = stat(path, &info) == 0;
    if (replaces && !S_ISREG(info.st_mode))
        return tlob_fail(TLOB_ERR_FILE, operation, "'%s' is %s", path,
                         S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    if (replaces && !realpath(path, target))
        return fail_file(operation, path, "cannot be followed");
    if (!replaces)
        snprintf(target, PATH_MAX, "%s", path);
    if (strlen(path) >= PATH_MAX || getrandom(&tag, sizeof(tag), 0) != sizeof(tag) ||
        snprintf(aside, PATH_MAX, "%s.%08" PRIx32 ".tmp", target, tag) >= PATH_MAX)
        return tlob_fail(TLOB_ERR_FILE, operation, "'%.200s' is no name for a file that can be written aside", path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_file(operation, path, "cannot create a file beside it");
    if (replaces && fchmod(fd, info.st_mode & 07777)) {
        tlob_status status = fail_file(operation, path, "a file beside it cannot have its permissions");
        close(fd);
        unlink(aside);
        return status;
    }
    *file = fdopen(fd, "w");
    if (*file)
        return TLOB_OK;
    close(fd);
    unlink(aside);
    return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, operation, "no memory to write '%s' with", path);
}

static bool sync_directory(const char *path) {
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool synced = fsync(fd) == 0 || errno == EINVAL; /* EINVAL: this file system has no such thing */
    close(fd);
    return synced;
}

/* Closes the file in any case. */
static tlob_status put_in_place(FILE *file, const char *aside, const char *path) {
    static const char operation[] = "tlob_algorithms_save";
    errno = 0;
    bool written = fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
    int code = errno;
    written = fclose(file) == 0 && written;
    errno = code ? code : errno;
    tlob_status status = TLOB_OK;
    if (!written)
        status = fail_file(operation, path, "cannot be written");
    else if (rename(aside, path))
        status = fail_file(operation, path, "the new file cannot be put in place");
    if (status != TLOB_OK)
        unlink(aside);
    else if (!sync_directory(path))
        status = fail_file(operation, path, "written, but its directory cannot be synced");
    return status;
}

tlob_status tlob_algorithms_save(tlob_context *ctx, const char *path) {
    char target[PATH_MAX], aside[PATH_MAX];
    writer w = {.ctx = ctx};
    tlob_status status = check_call(ctx, path, "tlob_algorithms_save");
    if (status == TLOB_OK)
        status = open_aside(path, target, aside, &w.file);
    if (status != TLOB_OK)
        return status;
    fprintf(w.file, "{\"format\": \"" FORMAT "\", \"version\": 1, \"entries\": [");
    visit_tables(ctx, put_entry, &w);
    fprintf(w.file, "\n]}\n");
    if (w.entries <= MOST_ENTRIES && ftello(w.file) <= (off_t)MOST_BYTES)
        return put_in_place(w.file, aside, target);
    fclose(w.file);
    unlink(aside);
    return tlob_fail(TLOB_ERR_FILE, "tlob_algorithms_save",
                     "'%s' is not written: its %d entries would be more than it could load again, %d or %zu bytes",
                     path, w.entries, MOST_ENTRIES, MOST_BYTES);
}

/* --- loading --------------------------------------------------------------------------------------------------- */

/* Why an entry is rejected. */
typedef struct fault {
    char text[256];
} fault;

static bool reject(fault *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool reject(fault *why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    return false;
}

/* A whole number, or a string of one where it has more digits than a number of JSON. */
static bool take_integer(const cJSON *item, int64_t *value, fault *why) {
    if (cJSON_IsNumber(item) && item->valuedouble == floor(item->valuedouble) &&
        fabs(item->valuedouble) < (double)EXACT) {
        *value = (int64_t)item->valuedouble;
        return true;
    }
    if (cJSON_IsString(item)) {
        char *end;
        errno = 0;
        *value = strtoll(item->valuestring, &end, 10);
        const char *digits = item->valuestring + (*item->valuestring == '-');
        if (!errno && *digits >= '0' && *digits <= '9' && !*end)
            return true;
    }
    return reject(why, "\"%.40s\" is not a whole number of 64 bits", item->string);
}

/* The members of an object, each of which must be there once. */
typedef struct member {
    const char *name;
    const cJSON *item;
} member;

static bool take_members(const cJSON *object, const char *what, member *members, int count, fault *why) {
    if (!cJSON_IsObject(object))
        return reject(why, "%s is no JSON object", what);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        int i = 0;
        while (i < count && strcmp(item->string, members[i].name))
            i++;
        if (i == count)
            return reject(why, "%s has \"%.40s\", which is not known", what, item->string);
        if (members[i].item)
            return reject(why, "%s has \"%s\" twice", what, item->string);
        members[i].item = item;
    }
    for (int i = 0; i < count; i++)
        if (!members[i].item)
            return reject(why, "%s has no \"%s\"", what, members[i].name);
    return true;
}

static bool take_fields(const cJSON *object, tlob_algorithm_field *fields, int *count, fault *why) {
    if (!cJSON_IsObject(object))
        return reject(why, "\"%s\" is no JSON object", object->string);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        for (int i = 0; i < *count; i++)
            if (!strcmp(fields[i].name, item->string))
                return reject(why, "\"%s\" has \"%.40s\" twice", object->string, item->string);
        if (*count == TLOB_ALGORITHM_FIELDS_MAX)
            return reject(why, "\"%s\" has more than %d fields", object->string, TLOB_ALGORITHM_FIELDS_MAX);
        fields[*count].name = item->string;
        if (!take_integer(item, &fields[*count].value, why))
            return false;
        ++*count;
    }
    return true;
}

static bool check_device(const tlob_context *ctx, const cJSON *object, fault *why) {
    member m[] = {{"name", NULL}, {"sm", NULL}, {"multiprocessors", NULL}};
    int64_t sm, multiprocessors;
    const tlob_device_info *here = &ctx->device;
    if (!take_members(object, "\"device\"", m, 3, why))
        return false;
    if (!cJSON_IsString(m[0].item))
        return reject(why, "the device's name is no string");
    if (!take_integer(m[1].item, &sm, why) || !take_integer(m[2].item, &multiprocessors, why))
        return false;
    if (!strcmp(m[0].item->valuestring, here->name) && sm == here->sm && multiprocessors == here->multiprocessors)
        return true;
    return reject(why,
                  "it is for '%.60s' (sm_%" PRId64 ", %" PRId64 " multiprocessors), and this device is '%.60s' "
                  "(sm_%d, %d multiprocessors)", m[0].item->valuestring, sm, multiprocessors, here->name, here->sm,
                  here->multiprocessors);
}

/* Fills `entry` as far as it comes, and hands it to its backend. */
static bool take_entry(tlob_context *ctx, const cJSON *object, tlob_algorithm *entry, fault *why) {
    member m[] = {{"backend", NULL}, {"library", NULL}, {"order", NULL},
                  {"device", NULL},  {"key", NULL},     {"configuration", NULL}};
    int index;
    if (!take_members(object, "the entry", m, 6, why))
        return false;
    if (!cJSON_IsString(m[0].item))
        return reject(why, "\"backend\" is no string");
    entry->backend = m[0].item->valuestring;
    const tlob_backend_ops *ops = tlob_context_backend(ctx, entry->backend, &index);
    if (!ops)
        return reject(why, "this context has no backend '%.23s'", entry->backend);
    if (!ops->offer_algorithm)
        return reject(why, "%s chooses no algorithms", entry->backend);
    return check_device(ctx, m[3].item, why) && take_integer(m[1].item, &entry->library, why) &&
           take_integer(m[2].item, &entry->order, why) && take_fields(m[4].item, entry->key, &entry->n_key, why) &&
           take_fields(m[5].item, entry->configuration, &entry->n_configuration, why) &&
           ops->offer_algorithm(ctx->shared[index], entry, why->text, sizeof(why->text));
}

static tlob_status keep_refused(tlob_context *ctx, const tlob_algorithm *entry, const fault *why) {
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
    fault why = {""};
    if (take_entry(ctx, object, &entry, &why)) {
        report->accepted++;
        return TLOB_OK;
    }
    tlob_log(ctx, TLOB_LOG_WARN, "algorithms: %s is rejected: %s", source, why.text);
    if (!report->rejected++)
        snprintf(report->reason, sizeof(report->reason), "%s", why.text);
    return keep_refused(ctx, &entry, &why);
}

static const tlob_json_kind kind = {
    .name = "file of algorithms",
    .example = "{\"format\": \"" FORMAT "\", \"version\": 1, \"entries\": []}",
    .status = TLOB_ERR_FILE,
    .most_bytes = MOST_BYTES,
};

static tlob_status check_header(const cJSON *object, const char *path, const cJSON **entries) {
    member m[] = {{"format", NULL}, {"version", NULL}, {"entries", NULL}};
    fault why;
    int64_t version;
    if (take_members(object, "it", m, 3, &why) && take_integer(m[1].item, &version, &why)) {
        if (!cJSON_IsString(m[0].item) || strcmp(m[0].item->valuestring, FORMAT))
            reject(&why, "its format is not \"" FORMAT "\"");
        else if (version != 1)
            reject(&why, "it has version %" PRId64 ", and this libtlob reads version 1", version);
        else if (!cJSON_IsArray(m[2].item))
            reject(&why, "\"entries\" is no array");
        else if (cJSON_GetArraySize(m[2].item) > MOST_ENTRIES)
            reject(&why, "it has more than %d entries", MOST_ENTRIES);
        else {
            *entries = m[2].item;
            return TLOB_OK;
        }
    }
    return tlob_fail(TLOB_ERR_FILE, kind.name, "'%s' is not one that can be read: %s", path, why.text);
}

static tlob_status take_object(tlob_context *ctx, const char *path, const cJSON *object,
                               tlob_algorithms_report *report) {
    const cJSON *entries = NULL, *item;
    tlob_status status = check_header(object, path, &entries);
    int number = 0;
    cJSON_ArrayForEach(item, entries) {
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
    tlob_status status = tlob_json_parse(&kind, path, text, length, &object);
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
        status = tlob_json_read(&kind, path, &object);
    if (status == TLOB_OK)
        status = take_object(ctx, path, object, report);
    cJSON_Delete(object);
    return status;
}
