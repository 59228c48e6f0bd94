#include "cli/feed.h"

#include <string.h>

static uint64_t next(cli_draw *draw) {
    uint64_t z = draw->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

size_t cli_draw_sample(cli_draw *draw, lob_range range) {
    uint64_t count = range.end - range.begin, unfair = -count % count, value;
    do // the lowest 2^64 mod count values would make some numbers likelier
        value = next(draw);
    while (value < unfair);
    return range.begin + value % count;
}

static size_t sample_floats(const lob_dataset *data) {
    return (size_t)data->features * (size_t)data->seq;
}

bool cli_feed_init(cli_feed *feed, tlob_stream *stream, const lob_dataset *data, int64_t capacity) {
    *feed = (cli_feed){.stream = stream, .data = data};
    tlob_context *ctx = tlob_stream_context(stream);
    size_t bytes = (size_t)capacity * (sample_floats(data) * sizeof(float) + 1);
    if (!tlob_buffer_create(ctx, bytes, &feed->device) && !tlob_staging_create(ctx, bytes, &feed->staging[0]) &&
        !tlob_staging_create(ctx, bytes, &feed->staging[1]))
        return true;
    cli_tlob_error("memory for a batch");
    return false;
}

void cli_feed_finish(cli_feed *feed) {
    tlob_staging_destroy(&feed->staging[0]);
    tlob_staging_destroy(&feed->staging[1]);
    tlob_buffer_destroy(&feed->device);
}

bool cli_feed_upload(cli_feed *feed, const size_t *samples, int64_t count, cli_batch *batch) {
    const lob_dataset *data = feed->data;
    tlob_staging *staging = feed->staging[feed->turn];
    size_t floats = sample_floats(data), x_bytes = (size_t)count * floats * sizeof(float);
    void *host;
    feed->turn = !feed->turn;
    if (tlob_staging_acquire(staging, &host)) {
        cli_tlob_error("upload");
        return false;
    }
    float *x = host;
    uint8_t *labels = (uint8_t *)host + x_bytes;
    for (int64_t i = 0; i < count; i++) {
        memcpy(x + (size_t)i * floats, data->x + (size_t)data->first_column[samples[i]] * (size_t)data->features,
               floats * sizeof(float));
        labels[i] = data->label[samples[i]];
    }
    char *device = tlob_buffer_data(feed->device);
    *batch = (cli_batch){(const float *)(void *)device, (const uint8_t *)device + x_bytes, count};
    if (!tlob_staging_upload(staging, feed->stream, device, x_bytes + (size_t)count))
        return true;
    cli_tlob_error("upload");
    return false;
}
