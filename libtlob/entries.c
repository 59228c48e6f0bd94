#include "libtlob/entries.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define EXACT ((int64_t)1 << 53) /* from this on JSON's readers may round a number, so it stands as a string */

bool tlob_reject(tlob_fault *why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    return false;
}

bool tlob_take_integer(const cJSON *item, int64_t *value, tlob_fault *why) {
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
    return tlob_reject(why, "\"%.40s\" is not a whole number of 64 bits", item->string);
}

bool tlob_take_members(const cJSON *object, const char *what, tlob_member *members, int count, tlob_fault *why) {
    if (!cJSON_IsObject(object))
        return tlob_reject(why, "%s is no JSON object", what);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        int i = 0;
        while (i < count && strcmp(item->string, members[i].name))
            i++;
        if (i == count)
            return tlob_reject(why, "%s has \"%.40s\", which is not known", what, item->string);
        if (members[i].item)
            return tlob_reject(why, "%s has \"%s\" twice", what, item->string);
        members[i].item = item;
    }
    for (int i = 0; i < count; i++)
        if (!members[i].item && !members[i].optional)
            return tlob_reject(why, "%s has no \"%s\"", what, members[i].name);
    return true;
}

bool tlob_take_fields(const cJSON *object, tlob_algorithm_field *fields, int most, int *count, tlob_fault *why) {
    if (!cJSON_IsObject(object))
        return tlob_reject(why, "\"%s\" is no JSON object", object->string);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        for (int i = 0; i < *count; i++)
            if (!strcmp(fields[i].name, item->string))
                return tlob_reject(why, "\"%s\" has \"%.40s\" twice", object->string, item->string);
        if (*count == most)
            return tlob_reject(why, "\"%s\" has more than %d fields", object->string, most);
        fields[*count].name = item->string;
        if (!tlob_take_integer(item, &fields[*count].value, why))
            return false;
        ++*count;
    }
    return true;
}

static bool check_array(const tlob_entries_kind *kind, const cJSON *array, tlob_fault *why) {
    if (!cJSON_IsArray(array))
        return tlob_reject(why, "\"%s\" is no array", array->string);
    if (cJSON_GetArraySize(array) > kind->most)
        return tlob_reject(why, "it has more than %d %s", kind->most, array->string);
    return true;
}

tlob_status tlob_entries_of(const tlob_entries_kind *kind, const char *path, const cJSON *object,
                            const cJSON *entries[2]) {
    tlob_member m[] = {{.name = "format"}, {.name = "version"}, {.name = "entries"},
                       {.name = kind->second, .optional = true}};
    tlob_fault why;
    int64_t version;
    if (tlob_take_members(object, "it", m, kind->second ? 4 : 3, &why) &&
        tlob_take_integer(m[1].item, &version, &why)) {
        if (!cJSON_IsString(m[0].item) || strcmp(m[0].item->valuestring, kind->format))
            tlob_reject(&why, "its format is not \"%s\"", kind->format);
        else if (version != 1)
            tlob_reject(&why, "it has version %" PRId64 ", and this libtlob reads version 1", version);
        else if (check_array(kind, m[2].item, &why) && (!m[3].item || check_array(kind, m[3].item, &why))) {
            entries[0] = m[2].item;
            entries[1] = m[3].item;
            return TLOB_OK;
        }
    }
    return tlob_fail(kind->json.status, kind->json.name, "'%s' is not one that can be read: %s", path, why.text);
}

tlob_status tlob_entries_begin(tlob_entries_writer *w, const tlob_entries_kind *kind, const char *path,
                               const char *operation) {
    w->kind = kind;
    w->path = path;
    w->count = w->most = 0;
    tlob_status status = tlob_aside_open(&w->aside, path, operation);
    if (status == TLOB_OK)
        fprintf(w->aside.file, "{\"format\": \"%s\", \"version\": 1, \"entries\": [", kind->format);
    return status;
}

FILE *tlob_entries_next(tlob_entries_writer *w) {
    fprintf(w->aside.file, "%s\n    ", w->count++ ? "," : "");
    return w->aside.file;
}

void tlob_entries_second(tlob_entries_writer *w) {
    fprintf(w->aside.file, "\n],\n\"%s\": [", w->kind->second);
    w->most = w->count;
    w->count = 0;
}

tlob_status tlob_entries_end(tlob_entries_writer *w) {
    const tlob_entries_kind *kind = w->kind;
    const int64_t most = w->most > w->count ? w->most : w->count;
    fprintf(w->aside.file, "\n]}\n");
    if (most <= kind->most && ftello(w->aside.file) <= (off_t)kind->json.most_bytes)
        return tlob_aside_commit(&w->aside);
    tlob_aside_drop(&w->aside);
    return tlob_fail(kind->json.status, w->aside.operation,
                     "'%s' is not written: its %" PRId64 " entries would be more than it could load again, %d or %zu "
                     "bytes", w->path, most, kind->most, kind->json.most_bytes);
}

void tlob_put_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fprintf(file, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    fputc('"', file);
}

void tlob_put_integer(FILE *file, int64_t value) {
    const char *quote = value >= EXACT || value <= -EXACT ? "\"" : "";
    fprintf(file, "%s%" PRId64 "%s", quote, value, quote);
}

void tlob_put_fields(FILE *file, const tlob_algorithm_field *fields, int count) {
    fputc('{', file);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s\"%s\": ", i ? ", " : "", fields[i].name);
        tlob_put_integer(file, fields[i].value);
    }
    fputc('}', file);
}
