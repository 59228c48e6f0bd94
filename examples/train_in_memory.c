/*
 * Trains a TLOB block on data in memory, the way an embedding program would: its own features, its own labels, no
 * files.
 *
 *     cc train_in_memory.c $(pkg-config --cflags --libs tlob) && ./a.out host
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tlob/tlob.h>

#define FEATURES 32
#define SAMPLES  256
#define STEPS    200

/* The label follows from the sum of the first four features, so that there is something to learn. */
static void make_batch(float *x, uint8_t *labels) {
    for (int i = 0; i < SAMPLES; i++) {
        float sum = 0;
        for (int f = 0; f < FEATURES; f++) {
            x[i * FEATURES + f] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
            sum += f < 4 ? x[i * FEATURES + f] : 0.0f;
        }
        labels[i] = sum > 0.5f ? 0 : sum < -0.5f ? 2 : 1;
    }
}

/* Everything that lives on the device. */
typedef struct session {
    tlob_context *ctx;
    tlob_stream *stream;
    tlob_model *model;
    tlob_buffer *x, *labels;
    tlob_staging *x_host, *labels_host; /* what the host writes to */
} session;

static tlob_status open_session(session *s, const tlob_context_params *params) {
    tlob_model_params model = tlob_model_params_default();
    model.max_samples = SAMPLES;
    model.adam.lr = 3e-3f;
    tlob_status status = tlob_context_create(&s->ctx, params);
    status = status ? status : tlob_stream_create(s->ctx, &s->stream);
    status = status ? status : tlob_model_create(s->stream, &model, &s->model);
    status = status ? status : tlob_buffer_create(s->ctx, sizeof(float) * FEATURES * SAMPLES, &s->x);
    status = status ? status : tlob_buffer_create(s->ctx, SAMPLES, &s->labels);
    status = status ? status : tlob_staging_create(s->ctx, sizeof(float) * FEATURES * SAMPLES, &s->x_host);
    return status ? status : tlob_staging_create(s->ctx, SAMPLES, &s->labels_host);
}

static void close_session(session *s) {
    tlob_staging_destroy(&s->labels_host);
    tlob_staging_destroy(&s->x_host);
    tlob_buffer_destroy(&s->labels);
    tlob_buffer_destroy(&s->x);
    tlob_model_destroy(&s->model);
    tlob_stream_close(&s->stream);
    tlob_context_destroy(&s->ctx);
}

/* One batch: write it, send it, step. Only the acquires wait, for the batch before this one to have left the host. */
static tlob_status train_one(session *s) {
    void *x, *labels;
    tlob_status status = tlob_staging_acquire(s->x_host, &x);
    status = status ? status : tlob_staging_acquire(s->labels_host, &labels);
    if (status)
        return status;
    make_batch(x, labels);
    status = tlob_staging_upload(s->x_host, s->stream, tlob_buffer_data(s->x), tlob_buffer_bytes(s->x));
    status = status ? status : tlob_staging_upload(s->labels_host, s->stream, tlob_buffer_data(s->labels), SAMPLES);
    return status ? status
                  : tlob_model_step(s->model, s->stream, tlob_buffer_data(s->x), tlob_buffer_data(s->labels), SAMPLES);
}

int main(int argc, char **argv) {
    session s = {0};
    tlob_context_params params = tlob_context_params_default();
    if (argc > 1 && !strcmp(argv[1], "host"))
        params.memory = TLOB_MEMORY_HOST;
    tlob_status status = open_session(&s, &params);
    for (int step = 1; step <= STEPS && !status; step++) {
        status = train_one(&s);
        tlob_model_figures figures;
        if (!status && step % 50 == 0 && !(status = tlob_model_result(s.model, s.stream, &figures)))
            printf("step %d: loss %.3f, %d of %d right\n", step, (double)figures.loss, (int)figures.correct, SAMPLES);
    }
    if (status)
        fprintf(stderr, "%s\n", tlob_last_error()->message);
    close_session(&s);
    return status ? 1 : 0;
}
