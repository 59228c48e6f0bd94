/** JSON files: what the configuration and the tables of algorithms share. json.c alone parses with cJSON. */
#ifndef TLOB_JSON_H
#define TLOB_JSON_H

#include <cjson/cJSON.h>

#include "libtlob/internal.h"

/** A kind of file: one JSON object. */
typedef struct tlob_json_kind {
    const char *name;    /**< "configuration file" */
    const char *example; /**< what such an object looks like */
    tlob_status status;  /**< of every failure but OUT_OF_MEMORY */
    size_t most_bytes;   /**< that such a file may have */
} tlob_json_kind;

/** Reads a file into an object, to be given to cJSON_Delete. Errors: kind->status names file, line,
 * column and what is wrong. */
tlob_status tlob_json_read(const tlob_json_kind *kind, const char *path, cJSON **object);

/** The same for a text; `path` is what messages call it. */
tlob_status tlob_json_parse(const tlob_json_kind *kind, const char *path, const char *text, size_t length,
                            cJSON **object);

#endif
