// Samples on their way to the device: drawn by a seeded generator, gathered on the host, uploaded through staging.
#ifndef CLI_FEED_H
#define CLI_FEED_H

#include "cli/data.h"

// A seeded generator of sample numbers: SplitMix64 (Steele, Lea, Flood 2014). The same seed draws the same samples
// everywhere, whatever device they go to.
typedef struct cli_draw {
    uint64_t state;
} cli_draw;

// A number from `range`, which must not be empty; all equally likely.
size_t cli_draw_sample(cli_draw *draw, lob_range range);

// Two staging buffers, so that one batch is gathered while the one before it travels, and one buffer on the device:
// the stream's order keeps a batch from overwriting one that is still computed on.
typedef struct cli_feed {
    tlob_stream *stream;
    const lob_dataset *data;
    tlob_buffer *device;
    tlob_staging *staging[2];
    int turn;
} cli_feed;

// Room for `capacity` samples. On failure false, after printing why; cli_feed_finish is due in both cases.
bool cli_feed_init(cli_feed *feed, tlob_stream *stream, const lob_dataset *data, int64_t capacity);
void cli_feed_finish(cli_feed *feed);

// A batch in the memory of the stream's context, valid for work enqueued before the next upload.
typedef struct cli_batch {
    const float *x;        // [features, count * seq]
    const uint8_t *labels; // [count]
    int64_t count;
} cli_batch;

// Gathers the samples with these numbers and enqueues their upload. False after printing why.
bool cli_feed_upload(cli_feed *feed, const size_t *samples, int64_t count, cli_batch *batch);

#endif
