#ifndef TLOB_EXPORT_H
#define TLOB_EXPORT_H

/** Marks what libtlob.so exports; everything else is hidden. */
#if defined(__GNUC__)
#    define TLOB_API __attribute__((visibility("default")))
#else
#    define TLOB_API
#endif

#endif
