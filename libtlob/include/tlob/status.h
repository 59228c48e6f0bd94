/** Status codes: what every fallible call of libtlob returns, and their texts. */
#ifndef TLOB_STATUS_H
#define TLOB_STATUS_H

#include <tlob/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One list gives the enum, the names and the texts. Values are part of the ABI: append only. */
#define TLOB_STATUS_LIST(X)                                                                                            \
    X(OK, 0, "success")                                                                                                \
    X(ERR_ARGUMENT, 1, "an argument is invalid")                                                                       \
    X(ERR_CLOSED, 2, "the context of this object has been destroyed")                                                  \
    X(ERR_MEMORY_SPACE, 3, "a pointer does not belong to the memory space of the context")                             \
    X(ERR_UNKNOWN_NAME, 4, "no backend, policy or setting has this name")                                              \
    X(ERR_SETTING, 5, "an environment variable or a configuration file holds what is not valid")                       \
    X(ERR_NOT_BUILT, 6, "this build of libtlob does not contain what was asked for")                                   \
    X(ERR_NO_DEVICE, 7, "there is no such CUDA device, or no usable driver")                                           \
    X(ERR_OUT_OF_MEMORY, 8, "memory could not be allocated")                                                           \
    X(ERR_UNSUPPORTED, 9, "the backend cannot do this problem")                                                        \
    X(ERR_NOT_WARM, 10, "a cold or blocking call was made while its stream is being captured")                                     \
    X(ERR_BACKEND, 11, "the vendor library reported a failure")                                                        \
    X(ERR_CUDA, 12, "the CUDA runtime reported a failure")                                                             \
    X(ERR_POLICY, 13, "the dispatch policy failed or chose a backend that the context does not have")                  \
    X(ERR_LABEL, 14, "a class label is out of range")                                                                  \
    X(ERR_FILE, 15, "a file could not be read or written, or is not of the kind that was asked for")

/** What a call reports. Details of the last failure on the calling thread: tlob_last_error(). */
typedef enum tlob_status {
#define TLOB_STATUS_ENUM(name, value, text) TLOB_##name = value,
    TLOB_STATUS_LIST(TLOB_STATUS_ENUM)
#undef TLOB_STATUS_ENUM
} tlob_status;

/** The enumerator as text, such as "TLOB_ERR_ARGUMENT"; "TLOB_ERR_?" for a value that is none. Static storage. */
TLOB_API const char *tlob_status_name(tlob_status status);

/** One English sentence without a full stop; never NULL. Static storage. */
TLOB_API const char *tlob_status_text(tlob_status status);

#ifdef __cplusplus
}
#endif
#endif
