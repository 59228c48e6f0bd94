/* The configuration file: one JSON object of settings. The one file of libtlob/ that knows cJSON. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "libtlob/internal.h"

#define MOST_BYTES 65536

const char *const tlob_setting_keys[TLOB_SETTING_COUNT] = {"compute", "policy", "workspace_mib", "log", "trace"};

static const char where[] = "configuration file";

static tlob_status unreadable(const char *path, int code) {
    return tlob_fail(TLOB_ERR_SETTING, where, "cannot read '%s': %s", path, strerror(code));
}

/* The whole file into `text`, which holds one byte more than a file may have. */
static tlob_status read_text(const char *path, char *text, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable(path, errno);
    ssize_t got = 1;
    for (*length = 0; *length <= MOST_BYTES && got != 0;) {
        got = read(fd, text + *length, MOST_BYTES + 1 - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = errno;
            close(fd);
            return unreadable(path, code);
        }
        *length += (size_t)got;
    }
    close(fd);
    if (*length > MOST_BYTES)
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s' has more than %d bytes: it can be no configuration file", path,
                         MOST_BYTES);
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

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static tlob_status parse_object(const char *path, const char *text, size_t length, cJSON **object) {
    const char *end = text;
    if (has_zero(text, length))
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s' holds a character 0, which no setting can", path);
    cJSON *json = parse(text, length, &end);
    if (json)
        while (end < text + length && strchr(" \t\r\n", *end))
            end++;
    if (!json || end != text + length) {
        cJSON_Delete(json);
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s', line %d: this is not JSON", path, line_of(text, end));
    }
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s' is not one JSON object, such as {\"compute\": \"fp32\"}", path);
    }
    *object = json;
    return TLOB_OK;
}

static int find_key(const char *name) {
    for (int i = 0; i < TLOB_SETTING_COUNT; i++)
        if (!strcmp(name, tlob_setting_keys[i]))
            return i;
    return -1;
}

static tlob_status take(const char *path, const cJSON *item, tlob_config *config) {
    int key = find_key(item->string);
    if (key < 0)
        return tlob_fail(TLOB_ERR_SETTING, where,
                         "'%s' has the key \"%.60s\"; valid are: compute, policy, workspace_mib, log, trace", path,
                         item->string);
    if (config->given[key])
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s' has the key \"%s\" twice", path, item->string);
    config->given[key] = true;
    char *text = config->text[key];
    if (key == TLOB_SETTING_WORKSPACE) {
        if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) || fabs(item->valuedouble) > 1e15)
            return tlob_fail(TLOB_ERR_SETTING, where, "'%s': \"%s\" must be a whole number from 1 to 65536", path,
                             item->string);
        snprintf(text, TLOB_SETTING_TEXT, "%.0f", item->valuedouble);
        return TLOB_OK;
    }
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= TLOB_SETTING_TEXT)
        return tlob_fail(TLOB_ERR_SETTING, where, "'%s': \"%s\" must be a string of at most %d bytes", path,
                         item->string, TLOB_SETTING_TEXT - 1);
    strcpy(text, item->valuestring);
    return TLOB_OK;
}

tlob_status tlob_config_read(const char *path, tlob_config *config) {
    memset(config, 0, sizeof(*config));
    char *text = malloc(MOST_BYTES + 1);
    if (!text)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, where, "%d bytes to read '%s' into", MOST_BYTES + 1, path);
    size_t length = 0;
    cJSON *object = NULL;
    tlob_status status = read_text(path, text, &length);
    if (status == TLOB_OK)
        status = parse_object(path, text, length, &object);
    free(text);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (status == TLOB_OK)
            status = take(path, item, config);
    }
    cJSON_Delete(object);
    return status;
}
