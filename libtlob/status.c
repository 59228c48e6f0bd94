#include <tlob/status.h>

const char *tlob_status_name(tlob_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                                        \
    case TLOB_##name:                                                                                                  \
        return "TLOB_" #name;
        TLOB_STATUS_LIST(CASE)
#undef CASE
    }
    return "TLOB_ERR_?";
}

const char *tlob_status_text(tlob_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                                        \
    case TLOB_##name:                                                                                                  \
        return text;
        TLOB_STATUS_LIST(CASE)
#undef CASE
    }
    return "no status of libtlob";
}
