#include "cli/model_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tlob-model 1"

// --- weights: one table says what lies where in the flat parameters ---

enum { N_PARTS = 6, N_TENSORS = N_PARTS + 2 };

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

void cli_model_file_describe(const cli_model_file *file, cli_meta *meta) {
    const lob_dataset_params *data = &file->recipe.dataset;
    char windows[128];
    cli_windows_print(&data->features, windows, sizeof windows);
    cli_meta_add(meta, "levels", "%d", data->features.levels);
    cli_meta_add(meta, "windows", "%s", windows);
    cli_meta_add(meta, "d_in", "%" PRId64, file->shape.d_in);
    cli_meta_add(meta, "d_out", "%" PRId64, file->shape.d_out);
    cli_meta_add(meta, "head_dim", "%" PRId64, file->shape.head_dim);
    cli_meta_add(meta, "axis", "%s", cli_axis_names[file->shape.axis]);
    cli_meta_add(meta, "seq", "%" PRId64, file->shape.seq);
    cli_meta_add(meta, "horizon", "%d", data->label.horizon);
    cli_meta_add(meta, "smoothing", "%d", data->label.smoothing);
    cli_meta_add(meta, "stride", "%d", data->stride);
    cli_meta_add(meta, "odd_rows", "%s", cli_odd_rows_names[file->read.odd_rows]);
    cli_meta_add(meta, "drop_hidden", "%d", file->read.drop_hidden);
    cli_meta_add(meta, "train_share", "%.17g", data->train_fraction);
    cli_meta_add(meta, "theta_mode", "%s", theta_modes[data->theta_mode]);
    cli_meta_add(meta, "theta", "%.17g", file->norm.theta);
    cli_meta_add(meta, "seed", "%" PRIu64, file->seed);
    cli_meta_add(meta, "batch", "%" PRId64, file->batch);
    cli_meta_add(meta, "lr", "%.9g", (double)file->lr);
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
    cli_meta meta = {.count = 0};
    io_error err;
    cli_meta_add(&meta, "format", "%s", FORMAT);
    cli_meta_add(&meta, "version", "%s", tlob_version());
    cli_model_file_describe(file, &meta);
    cli_meta_add(&meta, "steps", "%" PRId64, file->steps);
    bool good = io_safetensors_save(path, tensors, N_TENSORS, meta.entry, meta.count, &err);
    if (!good)
        cli_error("%s", err.text);
    free(rows);
    return good;
}

// --- loading ---

static void read_recipe(cli_reader *r, cli_model_file *file) {
    lob_dataset_params *data = &file->recipe.dataset;
    *data = lob_dataset_default();
    file->recipe.axis = file->shape.axis = (tlob_axis)cli_read_choice(r, "axis", cli_axis_names);
    file->shape.d_in = cli_read_integer(r, "d_in", 1, LOB_FEATURES_MAX);
    file->shape.d_out = cli_read_integer(r, "d_out", 1, 1 << 20);
    file->shape.head_dim = cli_read_integer(r, "head_dim", 1, TLOB_HEAD_DIM_MAX);
    file->shape.seq = data->seq = (int)cli_read_integer(r, "seq", 1, 1000000);
    data->features.levels = (int)cli_read_integer(r, "levels", 1, LOB_FEATURES_MAX);
    if (!cli_windows_parse(cli_read_text(r, "windows"), &data->features))
        cli_refuse(r, "metadata \"windows\" is '%.64s', no list of numbers of events", cli_read_text(r, "windows"));
    data->label.horizon = (int)cli_read_integer(r, "horizon", 1, 1000000);
    data->label.smoothing = (int)cli_read_integer(r, "smoothing", 1, 1000000);
    data->stride = (int)cli_read_integer(r, "stride", 1, 1000000);
    file->read.odd_rows = (lob_odd_rows)cli_read_choice(r, "odd_rows", cli_odd_rows_names);
    file->read.drop_hidden = (int)cli_read_integer(r, "drop_hidden", 0, 1);
    data->train_fraction = cli_read_number(r, "train_share", 0, 1);
    data->validation_fraction = 1 - data->train_fraction;
    data->theta_mode = (lob_theta_mode)cli_read_choice(r, "theta_mode", theta_modes);
    file->norm.theta = data->theta = cli_read_number(r, "theta", 0, 1e300);
    file->seed = (uint64_t)cli_read_integer(r, "seed", 0, INT64_MAX);
    file->steps = cli_read_integer(r, "steps", 0, INT64_MAX);
    file->batch = cli_read_integer(r, "batch", 1, INT64_MAX);
    file->lr = (float)cli_read_number(r, "lr", 0, 1e30);
}

// What single values cannot show: whether they fit each other.
static void check_recipe(cli_reader *r, const cli_model_file *file) {
    int features = lob_feature_count(&file->recipe.dataset.features);
    if (features != file->shape.d_in)
        cli_refuse(r, "levels times windows is %d inputs, d_in is %" PRId64, features, file->shape.d_in);
    if (tlob_block_shape_check(&file->shape))
        cli_refuse(r, "%s", tlob_last_error()->message);
    if (file->recipe.dataset.label.smoothing > file->recipe.dataset.label.horizon)
        cli_refuse(r, "smoothing %d is more than horizon %d", file->recipe.dataset.label.smoothing,
                   file->recipe.dataset.label.horizon);
}

// Shapes are checked before anything is allocated: the metadata alone could ask for any amount.
static void read_tensors(cli_reader *r, cli_model_file *file) {
    part parts[N_TENSORS] = {[N_PARTS] = {"mean", file->shape.d_in, 0}, {"std", file->shape.d_in, 0}};
    const float *data[N_TENSORS] = {NULL};
    list_parts(&file->shape, parts);
    for (int i = 0; r->good && i < N_TENSORS; i++)
        data[i] = cli_read_floats(r, parts[i].name, parts[i].rows, parts[i].cols);
    if (!r->good)
        return;
    file->norm.features = (int)file->shape.d_in;
    for (int i = 0; i < file->norm.features; i++) {
        file->norm.mean[i] = data[N_PARTS][i];
        file->norm.std[i] = data[N_PARTS + 1][i];
        if (file->norm.std[i] < 0)
            cli_refuse(r, "tensor \"std\" is negative at element %d", i);
    }
    file->weights = malloc((size_t)tlob_model_weight_count(&file->shape) * sizeof *file->weights);
    if (!file->weights) {
        cli_refuse(r, "out of memory");
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
    cli_reader r = {path, "model", content, true};
    const char *format = cli_read_text(&r, "format");
    if (strcmp(format, FORMAT))
        cli_refuse(&r, "its format is '%.32s', this version reads '%s'", format, FORMAT);
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

lob_dataset *cli_model_file_samples(const char *path, const cli_model_file *file, const cli_data_options *options,
                                    bool all) {
    cli_recipe recipe = file->recipe;
    cli_data_options files = *options;
    cli_books books;
    lob_dataset *data = NULL;
    if (options->drop_hidden_given && !file->read.drop_hidden) {
        cli_error("--drop-hidden was asked for, but %s was made without it", path);
        return NULL;
    }
    if (all) {
        recipe.dataset.train_fraction = 0;
        recipe.dataset.validation_fraction = 1;
    }
    files.read.drop_hidden = file->read.drop_hidden;
    if (!files.odd_rows_given)
        files.read.odd_rows = file->read.odd_rows;
    if (!cli_books_read(&files, &books, stdout))
        data = cli_dataset_build(&recipe, &books, &file->norm);
    cli_books_free(&books);
    return data;
}
