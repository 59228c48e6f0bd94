#include "libtlob/json.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tlob_status unreadable(const tlob_json_kind *kind, const char *path, int code) {
    return tlob_fail(kind->status, kind->name, "cannot read '%s': %s", path, strerror(code));
}

/* The whole file into `text`, which holds one byte more than a file may have. */
static tlob_status read_text(const tlob_json_kind *kind, const char *path, char *text, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable(kind, path, errno);
    ssize_t got = 1;
    for (*length = 0; *length <= kind->most_bytes && got != 0;) {
        got = read(fd, text + *length, kind->most_bytes + 1 - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = errno;
            close(fd);
            return unreadable(kind, path, code);
        }
        *length += (size_t)got;
    }
    close(fd);
    if (*length > kind->most_bytes)
        return tlob_fail(kind->status, kind->name, "'%s' has more than %zu bytes: it can be no %s", path,
                         kind->most_bytes, kind->name);
    return TLOB_OK;
}

/* cJSON notes where it failed in a variable of its own that all threads share. */
static cJSON *parse(const char *text, size_t length, const char **end) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    cJSON *json = cJSON_ParseWithLengthOpts(text, length, end, false);
    pthread_mutex_unlock(&lock);
    return json;
}

/* A string ends at a byte 0 for whoever reads it: what is behind one, or behind its escape, would go unread. */
static bool has_zero(const char *text, size_t length) {
    return memchr(text, 0, length) || memmem(text, length, "\\u0000", 6);
}

/* Both counted from 1; a column is a byte. */
static void find_place(const char *text, const char *at, int *line, int *column) {
    *line = *column = 1;
    for (; text < at; text++) {
        *column = *text == '\n' ? 1 : *column + 1;
        *line += *text == '\n';
    }
}

tlob_status tlob_json_parse(const tlob_json_kind *kind, const char *path, const char *text, size_t length,
                            cJSON **object) {
    const char *end = text, *hint = length ? "" : "; it is empty";
    if (has_zero(text, length))
        return tlob_fail(kind->status, kind->name, "'%s' holds a character 0, which no %s can", path, kind->name);
    cJSON *json = parse(text, length, &end);
    if (json)
        while (end < text + length && strchr(" \t\r\n", *end))
            end++;
    if (!json || end != text + length) {
        int line, column;
        cJSON_Delete(json);
        find_place(text, end, &line, &column);
        return tlob_fail(kind->status, kind->name, "'%s', line %d, column %d: this is not JSON%s", path, line, column,
                         hint);
    }
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return tlob_fail(kind->status, kind->name, "'%s' is not one JSON object, such as %s", path, kind->example);
    }
    *object = json;
    return TLOB_OK;
}

tlob_status tlob_json_read(const tlob_json_kind *kind, const char *path, cJSON **object) {
    char *text = malloc(kind->most_bytes + 1);
    if (!text)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, kind->name, "%zu bytes to read '%s' into", kind->most_bytes + 1,
                         path);
    size_t length = 0;
    tlob_status status = read_text(kind, path, text, &length);
    if (status == TLOB_OK)
        status = tlob_json_parse(kind, path, text, length, object);
    free(text);
    return status;
}
