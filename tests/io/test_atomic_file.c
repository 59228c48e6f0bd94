// Writing aside: a reader sees the old file or the new one, and no failure leaves anything behind.
#include "io/atomic_file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void make_dir(void) {
    strcpy(dir, "/tmp/tlob-atomic-XXXXXX");
    cr_assert(mkdtemp(dir) != NULL);
    umask(022);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

static void remove_dir(void) {
    chmod(dir, 0700);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(atomic_file, .init = make_dir, .fini = remove_dir);

static const char *in_dir(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text) {
    FILE *file = fopen(in_dir(name), "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void expect_content(const char *name, const char *text) {
    char content[64] = "";
    FILE *file = fopen(in_dir(name), "r");
    cr_assert(file != NULL, "no %s", name);
    content[fread(content, 1, sizeof content - 1, file)] = 0;
    fclose(file);
    cr_expect_str_eq(content, text, "%s holds \"%s\"", name, content);
}

static int files(void) {
    DIR *open = opendir(dir);
    int count = -2; // . and ..
    while (readdir(open))
        count++;
    closedir(open);
    return count;
}

static unsigned mode(const char *name) {
    struct stat info;
    cr_assert_eq(stat(in_dir(name), &info), 0);
    return info.st_mode & 07777;
}

static io_atomic *start(const char *name, const char *text) {
    io_atomic *file;
    io_error err;
    cr_assert_eq(io_atomic_open(in_dir(name), &file, &err), 0, "%s", err.text);
    fputs(text, io_atomic_stream(file));
    return file;
}

Test(atomic_file, commit_puts_a_new_file_in_place) {
    io_atomic *file = start("a", "new");
    io_error err;
    cr_expect_neq(access(in_dir("a"), F_OK), 0, "nothing is there before commit");
    cr_expect_eq(io_atomic_commit(&file, &err), 0, "%s", err.text);
    cr_expect_null(file);
    expect_content("a", "new");
    cr_expect_eq(mode("a"), 0644);
    cr_expect_eq(files(), 1);
}

Test(atomic_file, commit_replaces_and_keeps_the_mode) {
    put("a", "old");
    chmod(in_dir("a"), 0640);
    io_atomic *file = start("a", "new");
    fflush(io_atomic_stream(file));
    expect_content("a", "old");
    cr_expect_eq(io_atomic_commit(&file, NULL), 0);
    expect_content("a", "new");
    cr_expect_eq(mode("a"), 0640);
    cr_expect_eq(files(), 1);
}

Test(atomic_file, abort_leaves_the_old_file) {
    put("a", "old");
    io_atomic *file = start("a", "new");
    cr_expect_eq(files(), 2);
    io_atomic_abort(&file);
    cr_expect_null(file);
    io_atomic_abort(&file);
    io_atomic_abort(NULL);
    expect_content("a", "old");
    cr_expect_eq(files(), 1);
}

Test(atomic_file, symbolic_links_are_followed) {
    mkdir(in_dir("d"), 0777);
    put("d/a", "old");
    cr_assert_eq(symlink("d/a", in_dir("link")), 0);
    io_atomic *file = start("link", "new");
    cr_expect_eq(io_atomic_commit(&file, NULL), 0);
    expect_content("d/a", "new");
    struct stat info;
    cr_expect(lstat(in_dir("link"), &info) == 0 && S_ISLNK(info.st_mode));
}

Test(atomic_file, a_name_without_a_directory) {
    cr_assert_eq(chdir(dir), 0);
    io_atomic *file;
    cr_assert_eq(io_atomic_open("a", &file, NULL), 0);
    fputs("new", io_atomic_stream(file));
    cr_expect_eq(io_atomic_commit(&file, NULL), 0);
    expect_content("a", "new");
}

static void expect_refused(const char *path, const char *reason) {
    io_atomic *file = (io_atomic *)1;
    io_error err = {""};
    char expected[512];
    cr_expect_eq(io_atomic_open(path, &file, &err), -1);
    cr_expect_null(file);
    snprintf(expected, sizeof expected, "%s: %s", *path ? path : "(an empty name)", reason);
    cr_expect_str_eq(err.text, expected, "%s", err.text);
}

Test(atomic_file, targets_that_cannot_be_written) {
    mkdir(in_dir("d"), 0777);
    mkfifo(in_dir("fifo"), 0666);
    expect_refused(in_dir("d"), "cannot write: it is a directory");
    expect_refused(in_dir("fifo"), "cannot write: it is not a regular file");
    expect_refused("/dev/null", "cannot write: it is not a regular file");
    expect_refused(in_dir("no/a"), "cannot create a file beside it: No such file or directory");
    expect_refused(in_dir("a/"), "cannot write: no file name");
    expect_refused("", "cannot write: no file name");
    put("plain", "");
    expect_refused(in_dir("plain/a"), "cannot write: Not a directory");
    cr_expect_eq(files(), 3);
}

Test(atomic_file, a_directory_without_write_permission) {
    put("a", "old");
    chmod(dir, 0555);
    uid_t user = geteuid();
    if (user == 0 && seteuid(65534)) // root may write everywhere
        cr_skip_test("root, and cannot become anyone else");
    expect_refused(in_dir("a"), "cannot create a file beside it: Permission denied");
    cr_expect_eq(seteuid(user), 0);
    expect_content("a", "old");
    cr_expect_eq(files(), 1);
}

Test(atomic_file, a_full_disk_leaves_the_old_file) {
    put("a", "old");
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {8192, 8192};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int size = 100; size <= 1000; size += 900) { // in the buffer until commit, and written before it
        io_atomic *file = start("a", "");
        io_error err;
        char expected[300];
        for (int i = 0; i < size; i++)
            fputs("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789",
                  io_atomic_stream(file));
        cr_expect_eq(io_atomic_commit(&file, &err), -1);
        cr_expect_null(file);
        snprintf(expected, sizeof expected, "%s: write failed: File too large", in_dir("a"));
        cr_expect_str_eq(err.text, expected, "%s", err.text);
        expect_content("a", "old");
        cr_expect_eq(files(), 1);
    }
}

Test(atomic_file, a_target_that_became_a_directory) {
    io_atomic *file = start("a", "new");
    io_error err;
    char expected[300];
    mkdir(in_dir("a"), 0777);
    cr_expect_eq(io_atomic_commit(&file, &err), -1);
    snprintf(expected, sizeof expected, "%s: cannot put the new file in place: Is a directory", in_dir("a"));
    cr_expect_str_eq(err.text, expected, "%s", err.text);
    cr_expect_eq(files(), 1);
}

Test(atomic_file, long_paths_keep_the_reason) {
    char path[400];
    memset(path, 'x', sizeof path);
    path[399] = 0;
    io_atomic *file;
    io_error err;
    cr_expect_eq(io_atomic_open(path, &file, &err), -1);
    cr_expect(strstr(err.text, "File name too long") != NULL, "%s", err.text);
    cr_expect_eq(strlen(io_error_path(path)), 160);
    cr_expect_str_eq(io_error_path("short"), "short");
}

Test(atomic_file, same_says_whether_two_paths_are_one_file) {
    cr_assert(chdir(dir) == 0);
    fclose(fopen("old", "w"));
    cr_assert(symlink("old", "link") == 0 && link("old", "hard") == 0 && mkdir("folder", 0700) == 0);
    const struct {
        const char *a, *b;
        int same;
    } pairs[] = {{"old", "old", 1},         {"old", "./old", 1}, {"old", "link", 1},          {"old", "hard", 1},
                 {"old", "new", 0},         {"new", "./new", 1}, {"new", "folder/../new", 1}, {"new", "folder/new", 0},
                 {"new", "missing/new", 0}, {"new", "newer", 0}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cr_expect_eq(io_atomic_same(pairs[i].a, pairs[i].b), pairs[i].same, "%s %s", pairs[i].a, pairs[i].b);
}
