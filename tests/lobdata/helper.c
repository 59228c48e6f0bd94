#include "helper.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

void make_dir(void) {
    strcpy(dir, "/tmp/tlob-lobdata-XXXXXX");
    cr_assert(mkdtemp(dir) != NULL);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

void remove_dir(void) {
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *in_dir(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    cr_assert(bytes && fread(bytes, 1, *size, file) == *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

void write_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

const char *shared_file(const char *name) {
    static char paths[2][1024];
    static int next;
    char *path = paths[next++ % 2];
    const char *shared = getenv("TLOB_SHARED");
    snprintf(path, sizeof paths[0], "%s/data/%s", shared ? shared : TLOB_SOURCE_ROOT "/../shared", name);
    if (access(path, R_OK))
        cr_skip_test("no %s", path);
    return path;
}

lob_book *read_shared(const char *prefix, int levels, const char *gz, lob_report *report) {
    char message[256], orderbook[256];
    snprintf(message, sizeof message, "%s_message_%d.csv%s", prefix, levels, gz);
    snprintf(orderbook, sizeof orderbook, "%s_orderbook_%d.csv%s", prefix, levels, gz);
    lob_book *book;
    io_error err;
    cr_assert_eq(lob_book_read(NULL, shared_file(message), shared_file(orderbook), &book, report, &err), 0, "%s",
                 err.text);
    return book;
}

static lob_book *parse(char *message, size_t message_size, char *orderbook, size_t orderbook_size) {
    lob_book *book;
    io_error err;
    lob_text texts[2] = {{"message", message, message_size}, {"orderbook", orderbook, orderbook_size}};
    cr_assert_eq(lob_book_parse(NULL, &texts[0], &texts[1], &book, NULL, &err), 0, "%s", err.text);
    free(message);
    free(orderbook);
    return book;
}

lob_book *book_of_quotes(size_t rows, const int64_t *bid, const int64_t *ask) {
    char *texts[2];
    size_t sizes[2];
    FILE *message = open_memstream(&texts[0], &sizes[0]), *orderbook = open_memstream(&texts[1], &sizes[1]);
    for (size_t r = 0; r < rows; r++) {
        fprintf(message, "34200.%09zu,1,%zu,10,100,1\n", r, r + 1);
        fprintf(orderbook, "%" PRId64 ",%d,%" PRId64 ",%d\n", ask[r], ask[r] == LOB_EMPTY_ASK ? 0 : 10, bid[r],
                bid[r] == LOB_EMPTY_BID ? 0 : 10);
    }
    fclose(message);
    fclose(orderbook);
    return parse(texts[0], sizes[0], texts[1], sizes[1]);
}

lob_book *random_book(unsigned seed, size_t rows, int levels) {
    char *texts[2];
    size_t sizes[2];
    FILE *message = open_memstream(&texts[0], &sizes[0]), *orderbook = open_memstream(&texts[1], &sizes[1]);
    int64_t bid = 5000000;
    for (size_t r = 0; r < rows; r++) {
        fprintf(message, "34200.%09zu,1,%zu,10,100,1\n", r, r + 1);
        bid += 100 * (rand_r(&seed) % 3 - 1);
        int64_t spread = 100 + 100 * (rand_r(&seed) % 2);
        for (int m = 0; m < levels; m++)
            fprintf(orderbook, "%s%" PRId64 ",%d,%" PRId64 ",%d", m ? "," : "", bid + spread + 100 * m,
                    1 + rand_r(&seed) % 500, bid - 100 * m, 1 + rand_r(&seed) % 500);
        fputc('\n', orderbook);
    }
    fclose(message);
    fclose(orderbook);
    return parse(texts[0], sizes[0], texts[1], sizes[1]);
}
