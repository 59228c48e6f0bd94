#include "io/hash.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

// From the authors' list of test vectors.
Test(hash, known_answers) {
    static const struct {
        const char *text;
        uint64_t hash;
    } known[] = {
        {"", UINT64_C(0xcbf29ce484222325)},
        {"a", UINT64_C(0xaf63dc4c8601ec8c)},
        {"foobar", UINT64_C(0x85944171f73967e8)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t hash = io_hash(IO_HASH_EMPTY, known[i].text, strlen(known[i].text));
        cr_expect_eq(hash, known[i].hash, "'%s': %016" PRIx64, known[i].text, hash);
    }
}

Test(hash, a_chain_is_the_hash_of_the_whole) {
    const char text[] = "an order book";
    uint64_t whole = io_hash(IO_HASH_EMPTY, text, sizeof text);
    cr_expect_eq(io_hash(io_hash(IO_HASH_EMPTY, text, 5), text + 5, sizeof text - 5), whole);
    cr_expect_eq(io_hash(whole, NULL, 0), whole);
}
