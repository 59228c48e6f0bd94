#include "tests/block/reference.h"

#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

io_safetensors *reference_open(const char *name) {
    const char *shared = getenv("TLOB_SHARED");
    char path[1024];
    snprintf(path, sizeof(path), "%s/reference/%s.safetensors", shared ? shared : TLOB_SOURCE_ROOT "/../shared", name);
    FILE *there = fopen(path, "rb");
    if (!there)
        cr_skip_test("no reference values at %s (set TLOB_SHARED)", path);
    fclose(there);
    io_safetensors *file;
    io_error err;
    cr_assert(io_safetensors_load(path, &file, &err), "%s", err.text);
    return file;
}

const io_tensor *reference_tensor(const io_safetensors *file, const char *name) {
    const io_tensor *t = io_safetensors_find(file, name);
    cr_assert(t && t->dtype == IO_F64, "no float64 tensor %s", name);
    return t;
}

int64_t reference_count(const io_tensor *t) {
    return (int64_t)(t->bytes / sizeof(double));
}

float *reference_floats(const io_safetensors *file, const char *name) {
    const io_tensor *t = reference_tensor(file, name);
    const double *from = t->data;
    float *to = malloc((size_t)reference_count(t) * sizeof(float));
    for (int64_t i = 0; i < reference_count(t); i++)
        to[i] = (float)from[i];
    return to;
}

int64_t reference_number(const io_safetensors *file, const char *key) {
    const char *text = io_safetensors_metadata(file, key);
    cr_assert(text, "no metadata %s", key);
    return strtoll(text, NULL, 10);
}
