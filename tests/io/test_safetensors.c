// The safetensors reader and writer: what is written is read back, and no byte of a file is believed.
#include "io/safetensors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void make_dir(void) {
    strcpy(dir, "/tmp/tlob-safetensors-XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void remove_dir(void) {
    char path[128];
    const char *names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    cr_expect_eq(rmdir(dir), 0, "a file was left beside the target");
}

TestSuite(safetensors, .init = make_dir, .fini = remove_dir);

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const float weights[6] = {0, 1, 2, 3, 4, 5.5f};
static const uint8_t labels[3] = {0, 1, 2};
static const double mean[1] = {-0.5};
static const io_tensor sample[] = {
    {"labels", IO_U8, 1, {3}, labels, sizeof labels},
    {"w", IO_F32, 2, {2, 3}, weights, sizeof weights},
    {"mean", IO_F64, 0, {0}, mean, sizeof mean},
    {"none", IO_I64, 2, {0, 7}, NULL, 0},
};
#define N_SAMPLE ((int)(sizeof sample / sizeof *sample))
static const io_metadata sample_meta[] = {{"shape", "2x3"}, {"quote", "a \"b\" \\ \n \xc3\xa9"}};

Test(safetensors, reads_back_what_it_wrote) {
    io_error err = {{0}};
    io_safetensors *file;
    cr_assert(io_safetensors_save(in_dir("a"), sample, N_SAMPLE, sample_meta, 2, &err), "%s", err.text);
    cr_assert(io_safetensors_load(in_dir("a"), &file, &err), "%s", err.text);
    cr_expect_eq(io_safetensors_count(file), N_SAMPLE);
    for (int i = 0; i < N_SAMPLE; i++) {
        const io_tensor *t = io_safetensors_find(file, sample[i].name);
        cr_assert(t, "%s is missing", sample[i].name);
        cr_expect_eq(t->dtype, sample[i].dtype);
        cr_expect_eq(t->rank, sample[i].rank);
        cr_expect_eq(t->bytes, sample[i].bytes);
        cr_expect_eq(memcmp(t->shape, sample[i].shape, sizeof(int64_t) * (size_t)t->rank), 0);
        cr_expect(!t->bytes || memcmp(t->data, sample[i].data, t->bytes) == 0);
        cr_expect_eq((uintptr_t)t->data % 16, 0, "%s is not aligned", t->name);
    }
    cr_expect_str_eq(io_safetensors_metadata(file, "quote"), sample_meta[1].value);
    cr_expect_null(io_safetensors_metadata(file, "absent"));
    cr_expect_null(io_safetensors_find(file, "absent"));
    cr_expect_null(io_safetensors_at(file, N_SAMPLE));
    cr_expect_null(io_safetensors_at(file, -1));
    io_safetensors_free(&file);
    cr_expect_null(file);
    io_safetensors_free(&file);
    io_safetensors_free(NULL);
}

static char *slurp(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    cr_assert(f);
    char *content = malloc(1 << 16);
    *bytes = fread(content, 1, 1 << 16, f);
    fclose(f);
    return content;
}

Test(safetensors, the_same_arguments_give_the_same_bytes) {
    size_t a, b;
    cr_assert(io_safetensors_save(in_dir("a"), sample, N_SAMPLE, sample_meta, 2, NULL));
    cr_assert(io_safetensors_save(in_dir("b"), sample, N_SAMPLE, sample_meta, 2, NULL));
    char *first = slurp(in_dir("a"), &a), *second = slurp(in_dir("b"), &b);
    cr_expect(a == b && !memcmp(first, second, a));
    uint64_t header;
    memcpy(&header, first, 8);
    cr_expect_eq(header % 8, 0, "the data does not start at a multiple of 8 bytes");
    free(first);
    free(second);
}

Test(safetensors, an_empty_file_of_tensors_is_valid) {
    io_safetensors *file;
    cr_assert(io_safetensors_save(in_dir("a"), NULL, 0, NULL, 0, NULL));
    cr_assert(io_safetensors_load(in_dir("a"), &file, NULL));
    cr_expect_eq(io_safetensors_count(file), 0);
    cr_expect_null(io_safetensors_metadata(file, "x"));
    io_safetensors_free(&file);
}

// A file with this header and `data_bytes` bytes of data must be refused with `expected` in the message.
typedef struct refusal {
    const char *header;
    size_t data_bytes;
    const char *expected;
} refusal;

static const refusal refusals[] = {
    {"", 0, "no valid JSON"},
    {"[]", 0, "no valid JSON"},
    {"{", 0, "no valid JSON"},
    {"{\"a\":1", 0, "no valid JSON"},
    {"{} x", 0, "after the end"},
    {"{}", 4, "4 bytes of data after"},
    {"{\"\xff\":1}", 0, "UTF-8"},
    {"{\"a\":1}", 0, "exactly dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "exactly dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "exactly dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "F99"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no text"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "no list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "size 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "size 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,4]}}", 4, "size 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,4]}}", 4, "size 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "more than 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "ask for 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "do not lie"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{\"x\":0,\"y\":4}}}", 4, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 4, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     8, "overlapping"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, "twice"},
    {"{\"__metadata__\":1}", 0, "no object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "no text"},
    {"{\"__metadata__\":{\"a\":\"x\",\"a\":\"y\"}}", 0, "twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
};

static size_t build(char *to, uint64_t length, const char *header, size_t header_bytes, size_t data_bytes) {
    memcpy(to, &length, 8);
    memcpy(to + 8, header, header_bytes);
    memset(to + 8 + header_bytes, 0, data_bytes);
    return 8 + header_bytes + data_bytes;
}

static void expect_refused(const void *content, size_t bytes, const char *expected, const char *what) {
    io_error err = {{0}};
    io_safetensors *file = (io_safetensors *)&err;
    char *exact = malloc(bytes + 1); // an allocation of its own, so that a sanitizer sees the first byte too far
    memcpy(exact, content, bytes);
    exact = realloc(exact, bytes ? bytes : 1);
    cr_expect_not(io_safetensors_parse("some/file", exact, bytes, &file, &err), "accepted: %s", what);
    cr_expect_null(file);
    cr_expect(strstr(err.text, "some/file") && strstr(err.text, expected), "\"%s\" is not in: %s (%s)", expected,
              err.text, what);
    free(exact);
}

Test(safetensors, refuses_what_is_wrong_and_says_what) {
    char content[1024];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        size_t length = strlen(r->header);
        expect_refused(content, build(content, length, r->header, length, r->data_bytes), r->expected, r->header);
    }
    expect_refused("", 0, "at least 8", "empty");
    expect_refused("\1\0\0\0\0\0\0", 7, "at least 8", "seven bytes");
    expect_refused(content, build(content, 3, "{}", 2, 0), "cut off", "header cut off");
    expect_refused(content, build(content, UINT64_MAX, "{}", 2, 0), "more than", "header of 2^64-1");
    expect_refused(content, build(content, (uint64_t)1 << 40, "{}", 2, 0), "more than", "header of a terabyte");
    expect_refused(content, build(content, 3, "{}", 3, 0), "UTF-8", "NUL in the header");
}

Test(safetensors, no_change_of_one_byte_and_no_cut_breaks_the_reader) {
    size_t bytes;
    cr_assert(io_safetensors_save(in_dir("a"), sample, N_SAMPLE, sample_meta, 2, NULL));
    char *content = slurp(in_dir("a"), &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        io_safetensors *file;
        char *part = malloc(cut ? cut : 1);
        memcpy(part, content, cut);
        cr_expect_not(io_safetensors_parse("cut", part, cut, &file, NULL), "cut to %zu bytes it was accepted", cut);
        free(part);
    }
    for (size_t i = 0; i < bytes; i++)
        for (int value = 0; value < 256; value += 5) {
            io_safetensors *file;
            char old = content[i];
            content[i] = (char)value;
            io_safetensors_parse("changed", content, bytes, &file, NULL);
            io_safetensors_free(&file);
            content[i] = old;
        }
    free(content);
}

Test(safetensors, says_why_a_path_cannot_be_read) {
    io_error err = {{0}};
    io_safetensors *file;
    cr_expect_not(io_safetensors_load(in_dir("absent"), &file, &err));
    cr_expect(strstr(err.text, "absent: cannot read: No such file"), "%s", err.text);
    cr_expect_not(io_safetensors_load(dir, &file, &err));
    cr_expect(strstr(err.text, "not a regular file"), "%s", err.text);
    cr_expect_null(file);
}

static void expect_not_saved(const io_tensor *tensors, int count, const io_metadata *meta, int n_meta,
                             const char *expected) {
    io_error err = {{0}};
    cr_expect_not(io_safetensors_save(in_dir("a"), tensors, count, meta, n_meta, &err));
    cr_expect(strstr(err.text, expected), "\"%s\" is not in: %s", expected, err.text);
    cr_expect(access(in_dir("a"), F_OK) != 0, "a file was written all the same");
}

Test(safetensors, refuses_to_save_what_could_not_be_read) {
    io_tensor t = sample[1];
    expect_not_saved(&(io_tensor){.name = NULL}, 1, NULL, 0, "name");
    expect_not_saved(&(io_tensor){.name = ""}, 1, NULL, 0, "name");
    expect_not_saved(&(io_tensor){.name = "\xff"}, 1, NULL, 0, "UTF-8");
    expect_not_saved(&(io_tensor){.name = "__metadata__"}, 1, NULL, 0, "reserves");
    t.dtype = (io_dtype)99;
    expect_not_saved(&t, 1, NULL, 0, "dtype 99");
    t = sample[1], t.rank = 9;
    expect_not_saved(&t, 1, NULL, 0, "rank 9");
    t = sample[1], t.rank = -1;
    expect_not_saved(&t, 1, NULL, 0, "rank -1");
    t = sample[1], t.shape[1] = -3;
    expect_not_saved(&t, 1, NULL, 0, "size 1");
    t = sample[1], t.shape[0] = INT64_MAX;
    expect_not_saved(&t, 1, NULL, 0, "overflows");
    t = sample[1], t.bytes = 20;
    expect_not_saved(&t, 1, NULL, 0, "ask for 24 bytes, 20");
    t = sample[1], t.data = NULL;
    expect_not_saved(&t, 1, NULL, 0, "ask for 24 bytes, 0");
    const io_tensor twice[] = {sample[1], sample[0], sample[1]};
    expect_not_saved(twice, 3, NULL, 0, "given twice");
    const io_metadata same[] = {{"a", "1"}, {"a", "2"}}, bad[] = {{"a", "\x80"}}, null[] = {{"a", NULL}};
    expect_not_saved(sample, 1, same, 2, "given twice");
    expect_not_saved(sample, 1, bad, 1, "UTF-8");
    expect_not_saved(sample, 1, null, 1, "UTF-8");
}

Test(safetensors, a_failed_save_leaves_the_old_file) {
    size_t before, after;
    cr_assert(io_safetensors_save(in_dir("a"), sample, N_SAMPLE, sample_meta, 2, NULL));
    char *old = slurp(in_dir("a"), &before);
    io_tensor bad = sample[1];
    bad.bytes = 1;
    cr_expect_not(io_safetensors_save(in_dir("a"), &bad, 1, NULL, 0, NULL));
    char *now = slurp(in_dir("a"), &after);
    cr_expect(before == after && !memcmp(old, now, before));
    free(old);
    free(now);
    io_error err;
    cr_expect_not(io_safetensors_save("/nonexistent-folder/a", sample, 1, NULL, 0, &err));
    cr_expect(strstr(err.text, "/nonexistent-folder/a"), "%s", err.text);
}

Test(safetensors, element_sizes_and_names) {
    cr_expect_eq(io_dtype_size(IO_F64), 8);
    cr_expect_eq(io_dtype_size((io_dtype)-1), 0);
    cr_expect_eq(io_dtype_size((io_dtype)11), 0);
    cr_expect_str_eq(io_dtype_name(IO_I32), "I32");
    cr_expect_str_eq(io_dtype_name((io_dtype)11), "?");
}
