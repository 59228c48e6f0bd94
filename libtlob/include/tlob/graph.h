/** CUDA graphs: what a stream does is captured once, and launched as often as it is needed. */
#ifndef TLOB_GRAPH_H
#define TLOB_GRAPH_H

#include <tlob/gemm.h>
#include <tlob/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a stream ready to be captured, by tlob_graph or by the caller's own cudaStreamBeginCapture. Loads every kernel
 * of libtlob's own (attention, epilogues, optimizer, loss), once a context; then checks each of the `count` problems,
 * lets the policy choose its backend, and runs it on operands of zeros, which are allocated for the call and freed: the
 * plan exists then, and the vendor's kernels are loaded. With count 0, where `problems` may be NULL, libtlob's kernels
 * are all.
 *
 * A product is warm for operands of the alignment that it ran with, here 256 bytes; with beta != 0 it runs twice, for C
 * that is D and for C elsewhere. For other alignments, and for products of tlob_gemm_run_on, call tlob_gemm_run or
 * tlob_gemm_run_on once with the operands themselves. Blocks, layers and models make products of their own: one call of
 * theirs on the stream, with the samples that will be captured, warms them all.
 *
 * Blocking. The products count in tlob_stream_stats and are traced. On a host context nothing ever is cold, and the
 * call does the same work. Errors: ARGUMENT, CLOSED, NOT_WARM during a capture of the stream, OUT_OF_MEMORY, CUDA, and
 * those of tlob_gemm_run; the message begins with the problem's index, and the problems before it are warm.
 * Thread-safety: as the stream.
 */
TLOB_API tlob_status tlob_warm(tlob_stream *stream, const tlob_gemm *problems, int64_t count);

/**
 * Work captured on a stream, to be launched as a whole. It keeps pointers and scalars as they were when it was
 * captured, and holds a reference to its stream, so that workspace and scratch outlive it; operands, buffers, blocks
 * and models are the caller's to keep. What is to change between launches lies in memory that the device reads:
 * operands, and the step count and learning rate of tlob_adam, which tlob_adam_set_lr sets between launches.
 */
typedef struct tlob_graph tlob_graph;

/**
 * Begins to capture what this thread enqueues on `stream` from now on, instead of running it. Asynchronous calls of
 * libtlob may be captured once they are warm. A product that is cold, or a call that would block, fails with NOT_WARM,
 * adds nothing, and leaves the capture as it was; what is made of several products may have added those before the cold
 * one. End the capture on the same thread. Loads libtlob's own kernels, as tlob_warm does.
 *
 * Errors: ARGUMENT (also for the default stream, which CUDA cannot capture, and for a stream that is being captured
 * already, by whomever), CLOSED, UNSUPPORTED on a host context, where calls run at once and there is nothing to
 * capture; CUDA. Thread-safety: as the stream.
 */
TLOB_API tlob_status tlob_graph_begin(tlob_stream *stream);

/**
 * Ends the capture and makes a graph of it. Whatever is returned but ARGUMENT, the capture is over and the stream can
 * be used as before it; a capture that CUDA has found invalid, because of what was called meanwhile, gives CUDA's error
 * here. On another thread than began it, CUDA refuses to end a capture: that is CUDA, and it goes on, to be ended on
 * the thread that began it.
 *
 * Ownership: free with tlob_graph_destroy. Errors: ARGUMENT where tlob_graph_begin has not begun a capture, or graph is
 * NULL; CLOSED, UNSUPPORTED on a host context, OUT_OF_MEMORY, CUDA.
 */
TLOB_API tlob_status tlob_graph_end(tlob_stream *stream, tlob_graph **graph);

/**
 * Enqueues the captured work on `stream`: that of the capture, or another of the same context. Because the graph uses
 * the workspace of the stream that it was captured on, a launch elsewhere waits for the work enqueued there, and work
 * enqueued there later waits for the launch: so graphs and products that share a workspace never run at once.
 * Asynchronous.
 *
 * Errors: ARGUMENT, CLOSED, NOT_WARM while one of the two streams is being captured: a graph cannot be part of another;
 * CUDA. Thread-safety: a launch uses both streams, and so belongs on the thread that uses them.
 */
TLOB_API tlob_status tlob_graph_launch(tlob_graph *graph, tlob_stream *stream);

/**
 * Frees the graph, gives its stream back as tlob_stream_close does, and sets `*graph` to NULL; NULL is allowed.
 * Launches that are still running finish.
 */
TLOB_API void tlob_graph_destroy(tlob_graph **graph);

#ifdef __cplusplus
}
#endif
#endif
