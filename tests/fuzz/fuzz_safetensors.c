// libFuzzer target for the safetensors reader. Whatever it is fed, it accepts or refuses, and an accepted file is
// whole.
//
//     clang -g -O1 -D_GNU_SOURCE -I. -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_safetensors.c io/*.c -lcjson
//     ./a.out -max_len=4096 CORPUS_FOLDER
#include "io/safetensors.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Reads every byte of a tensor, so that a sanitizer sees one that lies outside.
static unsigned touch(const io_tensor *tensor) {
    unsigned sum = 0;
    for (size_t i = 0; i < tensor->bytes; i++)
        sum += ((const unsigned char *)tensor->data)[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    io_error err = {{0}};
    io_safetensors *file;
    if (!io_safetensors_parse("fuzz", data, size, &file, &err)) {
        if (file || strncmp(err.text, "fuzz: ", 6) != 0)
            __builtin_trap();
        return 0;
    }
    volatile unsigned sum = 0;
    for (int i = 0; i < io_safetensors_count(file); i++) {
        const io_tensor *tensor = io_safetensors_at(file, i);
        if (io_safetensors_find(file, tensor->name) != tensor || (uintptr_t)tensor->data % 16)
            __builtin_trap();
        sum += touch(tensor);
    }
    io_safetensors_metadata(file, "version");
    io_safetensors_free(&file);
    return 0;
}
