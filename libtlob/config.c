/* The configuration file: one JSON object of settings. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libtlob/json.h"

const char *const tlob_setting_keys[TLOB_SETTING_COUNT] = {"compute", "policy", "workspace_mib", "log", "trace",
                                                           "deterministic", "table", "block_plan"};

#define WHERE "configuration file"

static int find_key(const char *name) {
    for (int i = 0; i < TLOB_SETTING_COUNT; i++)
        if (!strcmp(name, tlob_setting_keys[i]))
            return i;
    return -1;
}

static tlob_status take(const char *path, const cJSON *item, tlob_config *config) {
    int key = find_key(item->string);
    if (key < 0)
        return tlob_fail(TLOB_ERR_SETTING, WHERE,
                         "'%s' has the key \"%.60s\"; valid are: compute, policy, workspace_mib, log, trace, "
                         "deterministic, table, block_plan", path, item->string);
    if (config->given[key])
        return tlob_fail(TLOB_ERR_SETTING, WHERE, "'%s' has the key \"%s\" twice", path, item->string);
    config->given[key] = true;
    char *text = config->text[key];
    if (key == TLOB_SETTING_WORKSPACE) {
        if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) || fabs(item->valuedouble) > 1e15)
            return tlob_fail(TLOB_ERR_SETTING, WHERE, "'%s': \"%s\" must be a whole number from 1 to 65536", path,
                             item->string);
        snprintf(text, TLOB_SETTING_TEXT, "%.0f", item->valuedouble);
        return TLOB_OK;
    }
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= TLOB_SETTING_TEXT)
        return tlob_fail(TLOB_ERR_SETTING, WHERE, "'%s': \"%s\" must be a string of at most %d bytes", path,
                         item->string, TLOB_SETTING_TEXT - 1);
    strcpy(text, item->valuestring);
    return TLOB_OK;
}

tlob_status tlob_config_read(const char *path, tlob_config *config) {
    static const tlob_json_kind kind = {WHERE, "{\"compute\": \"fp32\"}", TLOB_ERR_SETTING, 65536};
    memset(config, 0, sizeof(*config));
    cJSON *object = NULL;
    tlob_status status = tlob_json_read(&kind, path, &object);
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (status == TLOB_OK)
            status = take(path, item, config);
    }
    cJSON_Delete(object);
    return status;
}
