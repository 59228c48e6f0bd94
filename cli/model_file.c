#include "cli/model_file.h"

#include "io/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tlob-model 1"

// --- weights: one table says what lies where in the flat parameters ---

enum { N_PARTS = 6, N_TENSORS = N_PARTS + 2, N_META = 21 };

typedef struct part {
    const char *name;
    int64_t rows, cols; // column-major in the flat parameters; cols 0: a vector
} part;

static void list_parts(const tlob_block_shape *shape, part parts[N_PARTS]) {
    int64_t in = shape->d_in, out = shape->d_out;
    const part list[N_PARTS] = {{"w_q", out, in},
                                {"w_k", out, in},
                                {"w_v", out, in},
                                {"w_o", out, out},
                                {"w_head", TLOB_CLASSES, out * shape->seq},
                                {"b_head", TLOB_CLASSES, 0}};
    memcpy(parts, list, sizeof list);
}

static int64_t part_count(const part *p) {
    return p->rows * (p->cols ? p->cols : 1);
}

static void to_row_major(const part *p, const float *column_major, float *row_major) {
    int64_t cols = p->cols ? p->cols : 1;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < cols; j++)
            row_major[i * cols + j] = column_major[i + j * p->rows];
}

static void to_column_major(const part *p, const float *row_major, float *column_major) {
    int64_t cols = p->cols ? p->cols : 1;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < cols; j++)
            column_major[i + j * p->rows] = row_major[i * cols + j];
}

// --- saving ---

static io_tensor vector(const char *name, const float *data, int64_t count) {
    return (io_tensor){.name = name,
                       .dtype = IO_F32,
                       .rank = 1,
                       .shape = {count},
                       .data = data,
                       .bytes = (size_t)count * sizeof(float)};
}

static const char *const theta_modes[] = {
    [LOB_THETA_MEAN] = "mean", [LOB_THETA_HALF_SPREAD] = "half-spread", [LOB_THETA_GIVEN] = "given", NULL};

typedef struct meta_list {
    io_metadata entry[N_META];
    char text[N_META][128];
    int count;
} meta_list;

static void __attribute__((format(printf, 3, 4))) add_meta(meta_list *list, const char *key, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(list->text[list->count], sizeof list->text[0], format, args);
    va_end(args);
    list->entry[list->count] = (io_metadata){key, list->text[list->count]};
    list->count++;
}

static void describe(const cli_model_file *file, meta_list *list) {
    const lob_dataset_params *data = &file->recipe.dataset;
    char windows[128];
    cli_windows_print(&data->features, windows, sizeof windows);
    list->count = 0;
    add_meta(list, "format", "%s", FORMAT);
    add_meta(list, "version", "%s", tlob_version());
    add_meta(list, "d_in", "%" PRId64, file->shape.d_in);
    add_meta(list, "d_out", "%" PRId64, file->shape.d_out);
    add_meta(list, "head_dim", "%" PRId64, file->shape.head_dim);
    add_meta(list, "axis", "%s", cli_axis_names[file->shape.axis]);
    add_meta(list, "seq", "%" PRId64, file->shape.seq);
    add_meta(list, "levels", "%d", data->features.levels);
    add_meta(list, "windows", "%s", windows);
    add_meta(list, "horizon", "%d", data->label.horizon);
    add_meta(list, "smoothing", "%d", data->label.smoothing);
    add_meta(list, "stride", "%d", data->stride);
    add_meta(list, "odd_rows", "%s", cli_odd_rows_names[file->read.odd_rows]);
    add_meta(list, "drop_hidden", "%d", file->read.drop_hidden);
    add_meta(list, "train_share", "%.17g", data->train_fraction);
    add_meta(list, "theta_mode", "%s", theta_modes[data->theta_mode]);
    add_meta(list, "theta", "%.17g", file->norm.theta);
    add_meta(list, "seed", "%" PRIu64, file->seed);
    add_meta(list, "steps", "%" PRId64, file->steps);
    add_meta(list, "batch", "%" PRId64, file->batch);
    add_meta(list, "lr", "%.9g", (double)file->lr);
}

bool cli_model_file_save(const char *path, const cli_model_file *file) {
    part parts[N_PARTS];
    io_tensor tensors[N_TENSORS];
    list_parts(&file->shape, parts);
    float *rows = malloc((size_t)tlob_model_weight_count(&file->shape) * sizeof *rows);
    if (!rows) {
        cli_error("%s: out of memory", path);
        return false;
    }
    int64_t offset = 0;
    for (int i = 0; i < N_PARTS; i++) {
        to_row_major(&parts[i], file->weights + offset, rows + offset);
        tensors[i] = vector(parts[i].name, rows + offset, part_count(&parts[i]));
        if (parts[i].cols) {
            tensors[i].rank = 2;
            tensors[i].shape[0] = parts[i].rows;
            tensors[i].shape[1] = parts[i].cols;
        }
        offset += part_count(&parts[i]);
    }
    tensors[N_PARTS] = vector("mean", file->norm.mean, file->norm.features);
    tensors[N_PARTS + 1] = vector("std", file->norm.std, file->norm.features);
    meta_list meta;
    io_error err;
    describe(file, &meta);
    bool good = io_safetensors_save(path, tensors, N_TENSORS, meta.entry, meta.count, &err);
    if (!good)
        cli_error("%s", err.text);
    free(rows);
    return good;
}

// --- loading ---

typedef struct reader {
    const char *path;
    const io_safetensors *file;
    bool good; // false once something was refused; the first reason is the one that is printed
} reader;

static void __attribute__((format(printf, 2, 3))) refuse(reader *r, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->good)
        cli_error("%s: %s", r->path, text);
    r->good = false;
}

static const char *read_text(reader *r, const char *key) {
    const char *text = io_safetensors_metadata(r->file, key);
    if (!text)
        refuse(r, "metadata \"%s\" is missing: not a model of `tlob train'", key);
    return text ? text : "";
}

static int64_t read_integer(reader *r, const char *key, int64_t low, int64_t high) {
    const char *text = read_text(r, key);
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        refuse(r, "metadata \"%s\" is '%.32s', not a whole number from %" PRId64 " to %" PRId64, key, text, low, high);
    return r->good ? value : low;
}

static double read_number(reader *r, const char *key, double low, double high) {
    const char *text = read_text(r, key);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high))
        refuse(r, "metadata \"%s\" is '%.32s', not a number from %g to %g", key, text, low, high);
    return value;
}

static int read_choice(reader *r, const char *key, const char *const *names) {
    const char *text = read_text(r, key);
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i]))
            return i;
    refuse(r, "metadata \"%s\" is '%.32s', which this version does not know", key, text);
    return 0;
}

static void read_recipe(reader *r, cli_model_file *file) {
    lob_dataset_params *data = &file->recipe.dataset;
    *data = lob_dataset_default();
    file->recipe.axis = file->shape.axis = (tlob_axis)read_choice(r, "axis", cli_axis_names);
    file->shape.d_in = read_integer(r, "d_in", 1, LOB_FEATURES_MAX);
    file->shape.d_out = read_integer(r, "d_out", 1, 1 << 20);
    file->shape.head_dim = read_integer(r, "head_dim", 1, TLOB_HEAD_DIM_MAX);
    file->shape.seq = data->seq = (int)read_integer(r, "seq", 1, 1000000);
    data->features.levels = (int)read_integer(r, "levels", 1, LOB_FEATURES_MAX);
    if (!cli_windows_parse(read_text(r, "windows"), &data->features))
        refuse(r, "metadata \"windows\" is '%.64s', no list of numbers of events", read_text(r, "windows"));
    data->label.horizon = (int)read_integer(r, "horizon", 1, 1000000);
    data->label.smoothing = (int)read_integer(r, "smoothing", 1, 1000000);
    data->stride = (int)read_integer(r, "stride", 1, 1000000);
    file->read.odd_rows = (lob_odd_rows)read_choice(r, "odd_rows", cli_odd_rows_names);
    file->read.drop_hidden = (int)read_integer(r, "drop_hidden", 0, 1);
    data->train_fraction = read_number(r, "train_share", 0, 1);
    data->validation_fraction = 1 - data->train_fraction;
    data->theta_mode = (lob_theta_mode)read_choice(r, "theta_mode", theta_modes);
    file->norm.theta = data->theta = read_number(r, "theta", 0, 1e300);
    file->seed = (uint64_t)read_integer(r, "seed", 0, INT64_MAX);
    file->steps = read_integer(r, "steps", 0, INT64_MAX);
    file->batch = read_integer(r, "batch", 1, INT64_MAX);
    file->lr = (float)read_number(r, "lr", 0, 1e30);
}

// What single values cannot show: whether they fit each other.
static void check_recipe(reader *r, const cli_model_file *file) {
    int features = lob_feature_count(&file->recipe.dataset.features);
    if (features != file->shape.d_in)
        refuse(r, "levels times windows is %d inputs, d_in is %" PRId64, features, file->shape.d_in);
    if (tlob_block_shape_check(&file->shape))
        refuse(r, "%s", tlob_last_error()->message);
    if (file->recipe.dataset.label.smoothing > file->recipe.dataset.label.horizon)
        refuse(r, "smoothing %d is more than horizon %d", file->recipe.dataset.label.smoothing,
               file->recipe.dataset.label.horizon);
}

// The data of an F32 tensor [rows, cols] (cols 0: [rows]) without NaN and Inf, or NULL.
static const float *read_tensor(reader *r, const part *p) {
    const io_tensor *tensor = io_safetensors_find(r->file, p->name);
    int rank = p->cols ? 2 : 1;
    if (!tensor)
        refuse(r, "tensor \"%s\" is missing: not a model of `tlob train'", p->name);
    else if (tensor->dtype != IO_F32)
        refuse(r, "tensor \"%s\" has type %s, must be F32", p->name, io_dtype_name(tensor->dtype));
    else if (tensor->rank != rank || tensor->shape[0] != p->rows || (p->cols && tensor->shape[1] != p->cols))
        refuse(r,
               "tensor \"%s\" has rank %d and first sizes %" PRId64 ", %" PRId64
               "; the metadata asks for rank %d and %" PRId64 ", %" PRId64,
               p->name, tensor->rank, tensor->shape[0], tensor->shape[1], rank, p->rows, p->cols);
    for (int64_t i = 0; r->good && i < part_count(p); i++)
        if (!isfinite(((const float *)tensor->data)[i]))
            refuse(r, "tensor \"%s\" is not finite at element %" PRId64, p->name, i);
    return r->good ? tensor->data : NULL;
}

// Shapes are checked before anything is allocated: the metadata alone could ask for any amount.
static void read_tensors(reader *r, cli_model_file *file) {
    part parts[N_TENSORS] = {[N_PARTS] = {"mean", file->shape.d_in, 0}, {"std", file->shape.d_in, 0}};
    const float *data[N_TENSORS] = {NULL};
    list_parts(&file->shape, parts);
    for (int i = 0; r->good && i < N_TENSORS; i++)
        data[i] = read_tensor(r, &parts[i]);
    if (!r->good)
        return;
    file->norm.features = (int)file->shape.d_in;
    for (int i = 0; i < file->norm.features; i++) {
        file->norm.mean[i] = data[N_PARTS][i];
        file->norm.std[i] = data[N_PARTS + 1][i];
        if (file->norm.std[i] < 0)
            refuse(r, "tensor \"std\" is negative at element %d", i);
    }
    file->weights = malloc((size_t)tlob_model_weight_count(&file->shape) * sizeof *file->weights);
    if (!file->weights) {
        refuse(r, "out of memory");
        return;
    }
    float *to = file->weights;
    for (int i = 0; i < N_PARTS; to += part_count(&parts[i++]))
        to_column_major(&parts[i], data[i], to);
}

bool cli_model_file_load(const char *path, cli_model_file *file) {
    io_safetensors *content;
    io_error err;
    *file = (cli_model_file){0};
    if (!io_safetensors_load(path, &content, &err)) {
        cli_error("%s", err.text);
        return false;
    }
    reader r = {path, content, true};
    const char *format = read_text(&r, "format");
    if (strcmp(format, FORMAT))
        refuse(&r, "its format is '%.32s', this version reads '%s'", format, FORMAT);
    if (r.good)
        read_recipe(&r, file);
    if (r.good)
        check_recipe(&r, file);
    if (r.good)
        read_tensors(&r, file);
    io_safetensors_free(&content);
    if (!r.good) {
        free(file->weights);
        file->weights = NULL;
    }
    return r.good;
}
