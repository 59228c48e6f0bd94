#include "cli/checkpoint.h"

#include "io/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT       "tlob-checkpoint 1"
#define CHECKSUM_KEY "checksum" // the one key that it does not cover

enum { WEIGHTS, ADAM_M, ADAM_V, BEST_WEIGHTS, BEST_FIGURES, BEST_CONFUSION, N_TENSORS };
enum { N_FIGURES = 2 };

static const char *const names[N_TENSORS] = {
    [WEIGHTS] = "weights",
    [ADAM_M] = "adam_m",
    [ADAM_V] = "adam_v",
    [BEST_WEIGHTS] = "best_weights",
    [BEST_FIGURES] = "best_figures",
    [BEST_CONFUSION] = "best_confusion",
};

bool cli_checkpoint_init(cli_checkpoint *checkpoint, int64_t count, bool keep_best) {
    size_t bytes = (size_t)count * sizeof(float);
    *checkpoint = (cli_checkpoint){.count = count,
                                   .weights = malloc(bytes),
                                   .moments = malloc(2 * bytes),
                                   .best = keep_best ? malloc(bytes) : NULL};
    if (checkpoint->weights && checkpoint->moments && (checkpoint->best || !keep_best))
        return true;
    cli_error("out of memory for the state of %" PRId64 " parameters", count);
    return false;
}

void cli_checkpoint_finish(cli_checkpoint *checkpoint) {
    free(checkpoint->weights);
    free(checkpoint->moments);
    free(checkpoint->best);
}

// --- what is in the file ---

static io_tensor floats(int which, const float *data, int64_t count) {
    return (io_tensor){.name = names[which],
                       .dtype = IO_F32,
                       .rank = 1,
                       .shape = {count},
                       .data = data,
                       .bytes = (size_t)count * sizeof(float)};
}

// The tensors, and how many; `figures` is filled and must live as long as they do.
static int list_tensors(const cli_checkpoint *c, io_tensor tensors[N_TENSORS], double figures[N_FIGURES]) {
    tensors[WEIGHTS] = floats(WEIGHTS, c->weights, c->count);
    tensors[ADAM_M] = floats(ADAM_M, c->moments, c->count);
    tensors[ADAM_V] = floats(ADAM_V, c->moments + c->count, c->count);
    if (!c->best || !c->best_step)
        return BEST_WEIGHTS;
    figures[0] = c->best_figures.loss;
    figures[1] = c->best_figures.mean_max;
    tensors[BEST_WEIGHTS] = floats(BEST_WEIGHTS, c->best, c->count);
    tensors[BEST_FIGURES] = (io_tensor){.name = names[BEST_FIGURES],
                                        .dtype = IO_F64,
                                        .rank = 1,
                                        .shape = {N_FIGURES},
                                        .data = figures,
                                        .bytes = N_FIGURES * sizeof *figures};
    tensors[BEST_CONFUSION] = (io_tensor){.name = names[BEST_CONFUSION],
                                          .dtype = IO_I64,
                                          .rank = 2,
                                          .shape = {LOB_CLASSES, LOB_CLASSES},
                                          .data = c->best_figures.confusion,
                                          .bytes = sizeof c->best_figures.confusion};
    return N_TENSORS;
}

// All keys but the checksum's, with the values that this checkpoint would have.
static void describe(const cli_checkpoint *c, const cli_meta *run, cli_meta *meta) {
    cli_meta_add(meta, "format", "%s", FORMAT);
    cli_meta_add(meta, "version", "%s", tlob_version());
    for (int i = 0; i < run->count; i++)
        cli_meta_add(meta, run->entry[i].key, "%s", run->entry[i].value);
    cli_meta_add(meta, "steps", "%" PRId64, c->steps);
    cli_meta_add(meta, "draw", "%" PRId64, (int64_t)c->draw.state);
    cli_meta_add(meta, "best_step", "%" PRId64, c->best ? c->best_step : 0);
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    return io_hash(hash, text, strlen(text) + 1);
}

static uint64_t hash_tensor(uint64_t hash, const io_tensor *tensor) {
    return io_hash(hash_text(hash, tensor->name), tensor->data, tensor->bytes);
}

// --- saving ---

static bool is_finite(const char *path, const io_tensor *tensor) {
    const float *data = tensor->data;
    for (size_t i = 0; tensor->dtype == IO_F32 && i < tensor->bytes / sizeof *data; i++)
        if (!isfinite(data[i])) {
            cli_error("%s: not written, for \"%s\" is not finite at element %zu: training has diverged", path,
                      tensor->name, i);
            return false;
        }
    return true;
}

cli_checkpoint_fate cli_checkpoint_save(const char *path, const cli_checkpoint *checkpoint, const cli_meta *run) {
    io_tensor tensors[N_TENSORS];
    double figures[N_FIGURES];
    cli_meta meta = {.count = 0};
    io_error err;
    uint64_t hash = IO_HASH_EMPTY;
    int count = list_tensors(checkpoint, tensors, figures);
    describe(checkpoint, run, &meta);
    for (int i = 0; i < meta.count; i++)
        hash = hash_text(hash_text(hash, meta.entry[i].key), meta.entry[i].value);
    for (int i = 0; i < count; i++) {
        if (!is_finite(path, &tensors[i]))
            return CLI_CHECKPOINT_DIVERGED;
        hash = hash_tensor(hash, &tensors[i]);
    }
    cli_meta_add(&meta, CHECKSUM_KEY, "%016" PRIx64, hash);
    if (io_safetensors_save(path, tensors, count, meta.entry, meta.count, &err))
        return CLI_CHECKPOINT_SAVED;
    cli_error("%s", err.text);
    return CLI_CHECKPOINT_UNWRITTEN;
}

// --- loading ---

// Whether every byte is as it was written: what the format's own checks cannot see.
static void check_sum(cli_reader *r, const cli_meta *expected) {
    uint64_t hash = IO_HASH_EMPTY;
    char text[32];
    for (int i = 0; i < expected->count; i++)
        hash = hash_text(hash_text(hash, expected->entry[i].key), cli_read_text(r, expected->entry[i].key));
    for (int i = 0; i < N_TENSORS; i++) {
        const io_tensor *tensor = io_safetensors_find(r->file, names[i]);
        hash = tensor ? hash_tensor(hash, tensor) : hash;
    }
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (strcmp(text, cli_read_text(r, CHECKSUM_KEY)))
        cli_refuse(r, "damaged: its checksum is '%.32s', its contents have %s", cli_read_text(r, CHECKSUM_KEY), text);
}

// One thing that the run depends on: options are named as they are given (train_share is --train-share).
static void check_term(cli_reader *r, const char *key, const char *has, const char *asked) {
    char name[32];
    snprintf(name, sizeof name, "%s", key);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (!strcmp(key, CLI_RUN_MACHINE))
        cli_error("warning: %s: of a run on %s, and this is %s: what follows may differ in its last bits from a run "
                  "that was not stopped",
                  r->path, has, asked);
    else if (!strcmp(key, CLI_RUN_DATA))
        cli_refuse(r, "of a run on other samples, though there are as many: give the files that it was begun with");
    else
        cli_refuse(r,
                   "of a run with %s %.128s, and this one has %s %.128s: give the options and the files that it was "
                   "begun with",
                   name, has, name, asked);
}

static void check_run(cli_reader *r, const cli_meta *run) {
    for (int i = 0; r->good && i < run->count; i++) {
        const char *has = cli_read_text(r, run->entry[i].key);
        if (r->good && strcmp(run->entry[i].value, has))
            check_term(r, run->entry[i].key, has, run->entry[i].value);
    }
}

static const void *read_other(cli_reader *r, const io_tensor *like) {
    const io_tensor *tensor = io_safetensors_find(r->file, like->name);
    if (!tensor || tensor->dtype != like->dtype || tensor->bytes != like->bytes)
        cli_refuse(r, "tensor \"%s\" is missing or of another size: not a %s of `tlob train'", like->name, r->kind);
    return r->good ? tensor->data : NULL;
}

static void read_best(cli_reader *r, cli_checkpoint *c) {
    io_tensor tensors[N_TENSORS];
    double figures[N_FIGURES];
    list_tensors(c, tensors, figures);
    const float *weights = cli_read_floats(r, names[BEST_WEIGHTS], c->count, 0);
    const double *read = read_other(r, &tensors[BEST_FIGURES]);
    const int64_t *confusion = read_other(r, &tensors[BEST_CONFUSION]);
    for (int i = 0; r->good && i < LOB_CLASSES * LOB_CLASSES; i++)
        if (confusion[i] < 0 || confusion[i] > INT32_MAX)
            cli_refuse(r, "tensor \"%s\" counts %" PRId64 " samples", names[BEST_CONFUSION], confusion[i]);
    if (!r->good)
        return;
    memcpy(c->best, weights, (size_t)c->count * sizeof *weights);
    memcpy(c->best_figures.confusion, confusion, sizeof c->best_figures.confusion);
    c->best_figures.loss = read[0];
    c->best_figures.mean_max = read[1];
    for (int i = 0; i < LOB_CLASSES * LOB_CLASSES; i++)
        c->best_figures.samples += confusion[i];
}

static void read_state(cli_reader *r, cli_checkpoint *c) {
    const float *weights = cli_read_floats(r, names[WEIGHTS], c->count, 0);
    const float *m = cli_read_floats(r, names[ADAM_M], c->count, 0);
    const float *v = cli_read_floats(r, names[ADAM_V], c->count, 0);
    c->steps = cli_read_integer(r, "steps", 0, TLOB_ADAM_STEPS_MAX);
    c->draw.state = (uint64_t)cli_read_integer(r, "draw", INT64_MIN, INT64_MAX);
    c->best_step = cli_read_integer(r, "best_step", 0, c->best ? c->steps : 0);
    for (int64_t i = 0; r->good && i < c->count; i++)
        if (v[i] < 0)
            cli_refuse(r, "tensor \"%s\" is negative at element %" PRId64, names[ADAM_V], i);
    if (!r->good)
        return;
    memcpy(c->weights, weights, (size_t)c->count * sizeof *weights);
    memcpy(c->moments, m, (size_t)c->count * sizeof *m);
    memcpy(c->moments + c->count, v, (size_t)c->count * sizeof *v);
    if (c->best_step)
        read_best(r, c);
}

bool cli_checkpoint_load(const char *path, cli_checkpoint *checkpoint, const cli_meta *run) {
    io_safetensors *content;
    io_error err;
    cli_meta expected = {.count = 0};
    if (!io_safetensors_load(path, &content, &err)) {
        cli_error("%s", err.text);
        return false;
    }
    cli_reader r = {path, "checkpoint", content, true};
    const char *format = cli_read_text(&r, "format");
    if (strcmp(format, FORMAT))
        cli_refuse(&r, "its format is '%.32s', this version reads '%s'", format, FORMAT);
    describe(checkpoint, run, &expected);
    if (r.good)
        check_sum(&r, &expected);
    check_run(&r, run);
    if (r.good)
        read_state(&r, checkpoint);
    io_safetensors_free(&content);
    return r.good;
}
