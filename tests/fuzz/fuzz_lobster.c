// Any two texts as a LOBSTER pair. Whatever the reader accepts must be consistent and must go all the way to a data set
// without a value that is not finite. Build with -fsanitize=fuzzer,address,undefined and the sources of lobdata/ and
// io/.
//
// Input: one byte of flags, the message text, a 0 byte, the orderbook text.
#include "lobdata/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds) {
    if (!holds)
        abort();
}

static void check_book(const lob_book *book, const lob_report *report) {
    size_t end = 0;
    require(book->rows > 0 && book->levels > 0 && book->rows == report->rows_kept && report->rows_kept <= report->rows);
    for (size_t s = 0; s < book->n_segments; s++) {
        require(book->segments[s].begin >= end && book->segments[s].end > book->segments[s].begin);
        end = book->segments[s].end;
    }
    require(end <= book->rows);
    for (size_t r = 0; r < book->rows; r++) {
        require(book->time_ns[r] >= (r ? book->time_ns[r - 1] : 0));
        require(book->type[r] >= LOB_SUBMISSION && book->type[r] <= LOB_HALT);
    }
}

static void check_dataset(const lob_book *book, int flags) {
    lob_dataset_params params = lob_dataset_default();
    params.features = (lob_feature_params){1 + (flags >> 4 & 1), 2, {1, 2}};
    params.label = (lob_label_params){2, 1 + (flags >> 5 & 1)};
    params.seq = 1 + (flags >> 6 & 1);
    params.theta_mode = flags >> 7 & 1 ? LOB_THETA_HALF_SPREAD : LOB_THETA_MEAN;
    params.validation_fraction = 0;
    lob_dataset *data;
    io_error err;
    if (lob_dataset_build(&params, &book, 1, NULL, &data, &err)) {
        require(err.text[0] && !data);
        return;
    }
    for (size_t i = 0; i < data->events * (size_t)data->features; i++)
        require(isfinite(data->x[i]));
    for (size_t i = 0; i < data->samples; i++) {
        require(data->label[i] < LOB_CLASSES);
        require(data->first_column[i] >= 0 && (size_t)data->first_column[i] + (size_t)data->seq <= data->events);
    }
    lob_dataset_destroy(&data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    int flags = data[0];
    const char *text = (const char *)data + 1, *zero = memchr(text, 0, size - 1);
    size_t message_size = zero ? (size_t)(zero - text) : size - 1;
    lob_text message = {"message", text, message_size};
    lob_text orderbook = {"orderbook", zero ? zero + 1 : "", zero ? size - 2 - message_size : 0};
    lob_read_params params = {.odd_rows = (lob_odd_rows)(flags & 3) % 3, .drop_hidden = flags >> 2 & 1};
    lob_book *book;
    lob_report report;
    io_error err = {""};
    if (lob_book_parse(&params, &message, &orderbook, &book, &report, &err)) {
        require(err.text[0] && !book);
        return 0;
    }
    check_book(book, &report);
    check_dataset(book, flags);
    lob_book_destroy(&book);
    return 0;
}
