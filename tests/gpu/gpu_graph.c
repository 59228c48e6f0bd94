/* CUDA graphs on a device: the training step as one graph, what is cold in a capture, and who outlives whom. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_lab.h"

static lab gpu;

/* --- the training step ----------------------------------------------------------------------------------------- */

enum { SAMPLES = 64, D_IN = 32, STEPS = 50, WEIGHTS = 3 * 16 * D_IN + 16 * 16 + 51 };

/* A model, and where its batches are put. */
typedef struct training {
    tlob_model *model;
    array x;
    uint8_t *labels;
} training;

static training start_training(void) {
    static const uint8_t none[SAMPLES];
    const tlob_model_params params = tlob_model_params_default();
    training t;
    OK(tlob_model_create(gpu.stream, &params, &t.model));
    t.x = lab_array(&gpu, NULL, D_IN * SAMPLES, 0);
    t.labels = lab_bytes(&gpu, none, SAMPLES);
    return t;
}

/* Each step has a batch of its own, and some another learning rate. */
static void set_step(const training *t, int step) {
    uint8_t labels[SAMPLES];
    float *x = lab_random(D_IN * SAMPLES, 1.5f, (uint64_t)step);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = (uint8_t)((i * 7 + step) % 3);
    OK(tlob_upload(gpu.stream, t->x.at, x, D_IN * SAMPLES * sizeof(*x)));
    OK(tlob_upload(gpu.stream, t->labels, labels, sizeof(labels)));
    if (step % 20 == 10)
        OK(tlob_model_set_lr(t->model, gpu.stream, 1e-2f / (float)step));
    free(x);
}

static tlob_status step(const training *t) {
    return tlob_model_step(t->model, gpu.stream, t->x.at, t->labels, SAMPLES);
}

static void read_step(const training *t, float *figures) {
    tlob_model_figures f;
    OK(tlob_model_result(t->model, gpu.stream, &f));
    figures[0] = f.loss;
    figures[1] = f.mean_max;
    figures[2] = (float)f.correct;
}

Test(gpu_graph, the_training_step_as_one_graph) {
    static float figures[2][3 * (STEPS + 1)], weights[2][WEIGHTS], moments[2][2 * WEIGHTS];
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        for (int captured = 0; captured < 2; captured++) {
            training t = start_training();
            tlob_graph *graph = NULL;
            int64_t steps;
            set_step(&t, 0);
            OK(step(&t)); /* warm from here on */
            read_step(&t, figures[captured]);
            if (captured) {
                OK(tlob_graph_begin(gpu.stream));
                OK(step(&t));
                OK(tlob_graph_end(gpu.stream, &graph));
            }
            for (int i = 1; i <= STEPS; i++) {
                set_step(&t, i);
                OK(captured ? tlob_graph_launch(graph, gpu.stream) : step(&t));
                read_step(&t, &figures[captured][3 * i]);
            }
            OK(tlob_model_get_weights(t.model, gpu.stream, weights[captured], WEIGHTS));
            OK(tlob_model_get_optimizer(t.model, gpu.stream, moments[captured], 2 * WEIGHTS, &steps));
            cr_assert_eq(steps, STEPS + 1);
            tlob_graph_destroy(&graph);
            tlob_model_destroy(&t.model);
        }
        cr_assert_neq(figures[0][3], figures[0][3 * STEPS], "the figures are those of their step");
        lab_same_bits("loss, focus and hits", figures[0], figures[1], 3 * (STEPS + 1));
        lab_same_bits("weights", weights[0], weights[1], WEIGHTS);
        lab_same_bits("moments", moments[0], moments[1], 2 * WEIGHTS);
    }
}

Test(gpu_graph, a_cold_step_is_refused_and_leaves_capture_and_work_as_they_were) {
    static float figures[2][3], weights[2][WEIGHTS];
    NEED_GPU();
    for (int p = 0; p < 3; p++) { /* a step of products: that of the fused plan has nothing cold */
        lab_open_cuda_plan(&gpu, policies[p], TLOB_PLAN_COMPOSED);
        for (int refused = 1; refused >= 0; refused--) { /* first, so that nothing is warm */
            training t = start_training();
            array filled = lab_array(&gpu, NULL, 8, 0);
            set_step(&t, 0);
            OK(tlob_stream_sync(gpu.stream));
            if (refused) {
                tlob_graph *graph;
                OK(tlob_graph_begin(gpu.stream));
                cr_assert_eq(step(&t), TLOB_ERR_NOT_WARM, "%s", tlob_last_error()->message);
                cr_assert_eq(tlob_stream_sync(gpu.stream), TLOB_ERR_NOT_WARM);
                OK(tlob_fill(gpu.stream, filled.at, 0, 8 * sizeof(float)));
                OK(tlob_graph_end(gpu.stream, &graph));
                OK(tlob_graph_launch(graph, gpu.stream));
                float *zeros = lab_read(&gpu, filled);
                for (int i = 0; i < 8; i++)
                    cr_assert_eq(zeros[i], 0.0f);
                free(zeros);
                tlob_graph_destroy(&graph);
            }
            OK(step(&t));
            read_step(&t, figures[refused]);
            OK(tlob_model_get_weights(t.model, gpu.stream, weights[refused], WEIGHTS));
            tlob_model_destroy(&t.model);
        }
        lab_same_bits("loss, focus and hits", figures[0], figures[1], 3);
        lab_same_bits("weights", weights[0], weights[1], WEIGHTS);
        lab_close(&gpu);
    }
}

/* --- products and kernels that have never run ------------------------------------------------------------------- */

enum { PRODUCTS = 6, FLOATS = 16384 };

static void products_of(tlob_gemm g[PRODUCTS]) {
    g[0] = tlob_gemm_init(64, 48, 32);
    g[1] = tlob_gemm_init(16, 256, 32);
    g[1].epilogue = TLOB_EPILOGUE_BIAS;
    g[2] = tlob_gemm_init(16, 24, 40);
    g[2].batch = 3;
    g[2].stride_a = 640, g[2].stride_b = 960, g[2].stride_c = 384;
    g[3] = tlob_gemm_init(72, 40, 24);
    g[3].transb = TLOB_OP_T;
    g[3].ldb = 44;
    g[3].beta = -0.5f;
    g[4] = tlob_gemm_init(64, 40, 24);
    g[4].epilogue = TLOB_EPILOGUE_RELU_AUX_BIAS;
    g[5] = tlob_gemm_init(33, 17, 0);
    g[5].epilogue = TLOB_EPILOGUE_BIAS;
}

/* Known trap: what is first launched in a capture has not been loaded. Each test is a process of its own. */
Test(gpu_graph, what_was_warmed_is_captured_without_having_run) {
    tlob_gemm g[PRODUCTS];
    NEED_GPU();
    products_of(g);
    FOR_EACH_POLICY(&gpu) {
        float *random = lab_random(FLOATS, 1.0f, 5);
        array in = lab_array(&gpu, random, FLOATS, 0), d[2][PRODUCTS], aux = lab_array(&gpu, NULL, 4096, 0);
        tlob_graph *graph;
        OK(tlob_warm(gpu.stream, g, PRODUCTS));
        for (int captured = 1; captured >= 0; captured--) {
            for (int i = 0; i < PRODUCTS; i++)
                d[captured][i] = lab_array(&gpu, NULL, 4096, 0);
            OK(tlob_stream_sync(gpu.stream));
            if (captured)
                OK(tlob_graph_begin(gpu.stream));
            for (int i = 0; i < PRODUCTS; i++) {
                const tlob_gemm_operands x = {.a = in.at, .b = in.at + 4096, .c = in.at + 8192, .bias = in.at + 64,
                                              .d = d[captured][i].at, .aux = aux.at};
                cr_assert_eq(tlob_gemm_run(gpu.stream, &g[i], &x), TLOB_OK, "product %d: %s", i,
                             tlob_last_error()->message);
            }
            if (captured) {
                OK(tlob_graph_end(gpu.stream, &graph));
                OK(tlob_graph_launch(graph, gpu.stream));
            }
        }
        for (int i = 0; i < PRODUCTS; i++) {
            float *replayed = lab_read(&gpu, d[1][i]), *eager = lab_read(&gpu, d[0][i]);
            cr_assert_eq(replayed[0], replayed[0], "product %d ran", i); /* no NaN */
            lab_same_bits("d", eager, replayed, 4096);
            free(replayed);
            free(eager);
        }
        tlob_graph_destroy(&graph);
        free(random);
    }
}

/* The kernels of libtlob's own are loaded by tlob_warm for a capture of the caller's, and by tlob_graph_begin. */
static void capture_unloaded(bool own) {
    enum { COUNT = 1000 };
    const tlob_adam_params params = tlob_adam_params_default();
    lab_open_cuda(&gpu, "threshold");
    float *start = lab_random(COUNT, 1.0f, 1), *gradients = lab_random(COUNT, 2.0f, 2);
    array g = lab_array(&gpu, gradients, COUNT, 0), w[2];
    tlob_adam *adam[2];
    for (int i = 0; i < 2; i++) {
        w[i] = lab_array(&gpu, start, COUNT, 0);
        OK(tlob_adam_create(gpu.ctx, COUNT, &params, &adam[i]));
    }
    if (own) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(tlob_warm(gpu.stream, NULL, 0));
        CUDA_OK(cudaStreamBeginCapture(tlob_stream_cuda(gpu.stream), cudaStreamCaptureModeGlobal));
        OK(tlob_adam_step(adam[1], gpu.stream, w[1].at, g.at));
        CUDA_OK(cudaStreamEndCapture(tlob_stream_cuda(gpu.stream), &graph));
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        CUDA_OK(cudaGraphLaunch(exec, tlob_stream_cuda(gpu.stream)));
        OK(tlob_stream_sync(gpu.stream));
        CUDA_OK(cudaGraphExecDestroy(exec));
        CUDA_OK(cudaGraphDestroy(graph));
    } else {
        tlob_graph *graph;
        OK(tlob_graph_begin(gpu.stream));
        OK(tlob_adam_step(adam[1], gpu.stream, w[1].at, g.at));
        OK(tlob_graph_end(gpu.stream, &graph));
        OK(tlob_graph_launch(graph, gpu.stream));
        tlob_graph_destroy(&graph);
    }
    OK(tlob_adam_step(adam[0], gpu.stream, w[0].at, g.at));
    float *eager = lab_read(&gpu, w[0]), *replayed = lab_read(&gpu, w[1]);
    lab_same_bits("w", eager, replayed, COUNT);
    for (int i = 0; i < 2; i++)
        tlob_adam_destroy(&adam[i]);
    free(start);
    free(gradients);
    free(eager);
    free(replayed);
    lab_close(&gpu);
}

Test(gpu_graph, kernels_that_were_never_launched_in_a_graph) {
    NEED_GPU();
    capture_unloaded(false);
}

Test(gpu_graph, kernels_that_were_never_launched_in_a_capture_of_the_callers) {
    NEED_GPU();
    capture_unloaded(true);
}

/* --- lifetimes, streams, failures ------------------------------------------------------------------------------- */

/* A long sum, of the kind that uses a workspace: D = A B^T with [16, 4096] and [32, 4096]. */
typedef struct long_sum {
    tlob_gemm gemm;
    array in, d;
    float *eager; /* the bits of D, to free */
} long_sum;

static tlob_status run_sum(const long_sum *s, tlob_stream *stream) {
    const tlob_gemm_operands x = {.a = s->in.at, .b = s->in.at, .d = s->d.at};
    return tlob_gemm_run(stream, &s->gemm, &x);
}

static long_sum make_sum(tlob_stream *stream, uint64_t seed) {
    long_sum s = {.gemm = tlob_gemm_init(16, 32, 4096)};
    float *random = lab_random(32 * 4096, 1.0f, seed);
    s.gemm.transb = TLOB_OP_T;
    s.gemm.ldb = 32;
    s.in = lab_array(&gpu, random, 32 * 4096, 0);
    s.d = lab_array(&gpu, NULL, 16 * 32, 0);
    OK(tlob_stream_sync(gpu.stream)); /* `stream` may be another */
    OK(run_sum(&s, stream));
    OK(tlob_stream_sync(stream));
    s.eager = lab_read(&gpu, s.d);
    free(random);
    return s;
}

static tlob_graph *capture_sum(const long_sum *s, tlob_stream *stream) {
    tlob_graph *graph;
    OK(tlob_graph_begin(stream));
    OK(run_sum(s, stream));
    OK(tlob_graph_end(stream, &graph));
    return graph;
}

/* D is what it was, and is poisoned for the next look. */
static void look_at(const long_sum *s, tlob_stream *stream) {
    OK(tlob_stream_sync(stream));
    float *now = lab_read(&gpu, s->d);
    lab_same_bits("d", s->eager, now, 16 * 32);
    OK(tlob_fill(gpu.stream, s->d.at, 0xff, 16 * 32 * sizeof(float)));
    OK(tlob_stream_sync(gpu.stream));
    free(now);
}

Test(gpu_graph, a_graph_outlives_its_stream) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        tlob_stream *stream;
        OK(tlob_stream_create(gpu.ctx, &stream));
        long_sum s = make_sum(stream, 1);
        tlob_graph *early = capture_sum(&s, stream), *late = capture_sum(&s, stream);
        OK(tlob_graph_launch(early, stream));
        tlob_graph_destroy(&early); /* while it runs */
        look_at(&s, stream);
        tlob_stream_close(&stream);
        tlob_buffer *taker; /* would get the workspace's memory, had it been freed */
        OK(tlob_buffer_create(gpu.ctx, (size_t)64 << 20, &taker));
        OK(tlob_fill(gpu.stream, tlob_buffer_data(taker), 0xff, (size_t)64 << 20));
        for (int i = 0; i < 10; i++) {
            OK(tlob_graph_launch(late, gpu.stream));
            look_at(&s, gpu.stream);
        }
        unsigned char *bytes = malloc((size_t)64 << 20);
        OK(tlob_download(gpu.stream, bytes, tlob_buffer_data(taker), (size_t)64 << 20));
        for (size_t i = 0; i < (size_t)64 << 20; i++)
            cr_assert(bytes[i] == 0xff, "byte %zu of another buffer was written", i);
        tlob_graph_destroy(&late);
        tlob_buffer_destroy(&taker);
        free(bytes);
        free(s.eager);
    }
}

Test(gpu_graph, two_graphs_of_one_stream_on_two_streams) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        tlob_stream *other;
        OK(tlob_stream_create(gpu.ctx, &other));
        long_sum one = make_sum(gpu.stream, 1), two = make_sum(gpu.stream, 2), three = make_sum(gpu.stream, 3);
        tlob_graph *first = capture_sum(&one, gpu.stream), *second = capture_sum(&two, gpu.stream);
        for (int i = 0; i < 100; i++) { /* all three use one workspace, and none waits for the host */
            OK(tlob_graph_launch(first, i % 2 ? other : gpu.stream));
            OK(run_sum(&three, gpu.stream));
            OK(tlob_graph_launch(second, i % 3 ? other : gpu.stream));
        }
        OK(tlob_stream_sync(other));
        look_at(&one, gpu.stream);
        look_at(&two, gpu.stream);
        look_at(&three, gpu.stream);
        tlob_graph_destroy(&first);
        tlob_graph_destroy(&second);
        tlob_stream_close(&other);
        free(one.eager);
        free(two.eager);
        free(three.eager);
    }
}

Test(gpu_graph, a_capture_that_was_spoiled) {
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        long_sum s = make_sum(gpu.stream, 1);
        tlob_graph *graph;
        OK(tlob_graph_begin(gpu.stream));
        OK(run_sum(&s, gpu.stream));
        cr_assert_neq(cudaStreamSynchronize(tlob_stream_cuda(gpu.stream)), cudaSuccess);
        cudaGetLastError();
        cr_assert_eq(tlob_graph_end(gpu.stream, &graph), TLOB_ERR_CUDA);
        cr_assert_eq(tlob_last_error()->vendor_code, cudaErrorStreamCaptureInvalidated, "%s",
                     tlob_last_error()->message);
        cr_assert_null(graph);
        cr_assert_eq(cudaGetLastError(), cudaSuccess, "nothing is left for the program's own check");
        OK(run_sum(&s, gpu.stream));
        look_at(&s, gpu.stream);
        graph = capture_sum(&s, gpu.stream);
        OK(tlob_graph_launch(graph, gpu.stream));
        look_at(&s, gpu.stream);
        tlob_graph_destroy(&graph);
        free(s.eager);
    }
}

Test(gpu_graph, what_a_capture_does_not_survive_is_refused) {
    tlob_stream *other, *default_stream;
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    long_sum s = make_sum(gpu.stream, 1);
    OK(tlob_stream_create(gpu.ctx, &other));
    OK(tlob_stream_open(gpu.ctx, NULL, &default_stream));
    tlob_graph *graph = capture_sum(&s, gpu.stream), *second;
    cr_assert_eq(tlob_graph_begin(default_stream), TLOB_ERR_ARGUMENT);
    OK(tlob_graph_begin(gpu.stream));
    OK(run_sum(&s, gpu.stream));
    cr_assert_eq(tlob_graph_begin(gpu.stream), TLOB_ERR_ARGUMENT);
    cr_assert_eq(tlob_warm(gpu.stream, &s.gemm, 1), TLOB_ERR_NOT_WARM);
    cr_assert_eq(tlob_graph_launch(graph, gpu.stream), TLOB_ERR_NOT_WARM);
    cr_assert_eq(tlob_graph_launch(graph, other), TLOB_ERR_NOT_WARM);
    OK(tlob_graph_end(gpu.stream, &second));
    OK(tlob_graph_launch(second, default_stream));
    look_at(&s, default_stream);
    tlob_graph_destroy(&graph);
    tlob_graph_destroy(&second);

    OK(tlob_graph_begin(other)); /* dropped with its stream */
    tlob_stream_close(&other);
    OK(run_sum(&s, gpu.stream));
    look_at(&s, gpu.stream);
    graph = capture_sum(&s, gpu.stream);
    tlob_stream_close(&default_stream);
    free(s.eager);
    lab_close(&gpu);
    tlob_graph_destroy(&graph); /* after its context */
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static size_t free_memory(void) {
    size_t left, all;
    CUDA_OK(cudaMemGetInfo(&left, &all));
    return left;
}

/* Far below what a leak of each launch or graph would come to, and above what the driver takes in pieces of 2 MiB for
 * its own ends. */
enum { DRIVERS_OWN = 6 << 20 };

Test(gpu_graph, neither_launches_nor_captures_leave_memory_behind) {
    const bool sanitized = getenv("TLOB_SANITIZED"); /* then other suites use the device too */
    const int launches = sanitized ? 20 : 1000, captures = sanitized ? 5 : 200;
    NEED_GPU();
    FOR_EACH_POLICY(&gpu) {
        training t = start_training();
        tlob_stream *other;
        size_t before = 0;
        OK(tlob_stream_create(gpu.ctx, &other));
        set_step(&t, 0);
        OK(step(&t));
        for (int i = -5; i < captures; i++) {
            tlob_graph *graph;
            OK(tlob_graph_begin(gpu.stream));
            OK(step(&t));
            OK(tlob_graph_end(gpu.stream, &graph));
            for (int launch = 0; launch < (i == 0 ? launches : 2); launch++)
                OK(tlob_graph_launch(graph, launch % 2 ? other : gpu.stream));
            OK(tlob_stream_sync(gpu.stream));
            tlob_graph_destroy(&graph);
            if (i == -1)
                before = free_memory();
        }
        const size_t after = free_memory();
        cr_assert(sanitized || after + DRIVERS_OWN >= before, "%zu bytes less", before - after);
        tlob_model_destroy(&t.model);
        tlob_stream_close(&other);
    }
}
