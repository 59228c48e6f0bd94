/** All of libtlob's public interface. */
#ifndef TLOB_TLOB_H
#define TLOB_TLOB_H

#include <tlob/adam.h>
#include <tlob/algorithms.h>
#include <tlob/backend.h>
#include <tlob/block.h>
#include <tlob/context.h>
#include <tlob/dispatch.h>
#include <tlob/error.h>
#include <tlob/form.h>
#include <tlob/gemm.h>
#include <tlob/graph.h>
#include <tlob/head.h>
#include <tlob/info.h>
#include <tlob/linear.h>
#include <tlob/memory.h>
#include <tlob/method.h>
#include <tlob/mha.h>
#include <tlob/model.h>
#include <tlob/status.h>
#include <tlob/stream.h>
#include <tlob/table.h>

#endif
