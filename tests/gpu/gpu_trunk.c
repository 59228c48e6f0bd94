/* Linear layers and multi-head attention on a device: the oracle's cases in FP32, the reference values in TF32 too, and
 * what only a device has: which kernels are launched, captures, and threads that launch the same kernels. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "tests/gpu/gpu_lab.h"
#include "tests/trunk/trunk_cases.h"

#define FP32_BAR 2e-5

static lab gpu;

/* FOR_EACH_POLICY with the bar of this suite. */
#define FOR_EACH_POLICY_HERE                                                                                           \
    FOR_EACH_POLICY(&gpu)                                                                                              \
    if (gpu.bar = FP32_BAR, true)

Test(gpu_trunk, against_pytorch) {
    NEED_GPU();
    FOR_EACH_POLICY_HERE {
        case_linear_reference(&gpu);
        case_mha_reference(&gpu, TLOB_MHA_STACKED);
        case_mha_reference(&gpu, TLOB_MHA_SEPARATE);
    }
}

/* An input of a product is off by up to 2^-10; sums of k such errors and of k products both grow with the root of k. A
 * kernel that misplaced or lost something would be off by a multiple of that root's inverse. */
static double tf32_bar(int64_t k) {
    return 0x1p-9 * sqrt((double)k);
}

Test(gpu_trunk, against_pytorch_in_tf32) {
    NEED_GPU();
    for (int p = 0; p < 3; p++) {
        lab_open_cuda_in(&gpu, policies[p], TLOB_COMPUTE_TF32);
        gpu.bar = tf32_bar(256);
        case_linear_reference(&gpu);
        gpu.bar = tf32_bar(3 * 128);
        case_mha_reference(&gpu, TLOB_MHA_STACKED);
        case_mha_reference(&gpu, TLOB_MHA_SEPARATE);
        lab_close(&gpu);
    }
}

Test(gpu_trunk, linear) {
    NEED_GPU();
    FOR_EACH_POLICY_HERE {
        case_linear_gradients(&gpu);
        case_linear_shapes(&gpu);
        case_linear_no_columns(&gpu);
        lab_clear(&gpu);
        case_linear_products(&gpu);
    }
}

Test(gpu_trunk, mha_gradients_against_differences) {
    NEED_GPU();
    FOR_EACH_POLICY_HERE {
        case_mha_gradients(&gpu, TLOB_MHA_STACKED);
        case_mha_gradients(&gpu, TLOB_MHA_SEPARATE);
    }
}

Test(gpu_trunk, mha_shapes) {
    NEED_GPU();
    FOR_EACH_POLICY_HERE {
        case_mha_shapes(&gpu, TLOB_MHA_HEAD_DIM_MAX);
    }
}

Test(gpu_trunk, mha_scratch_products_and_the_rest) {
    NEED_GPU();
    FOR_EACH_POLICY_HERE {
        case_mha_scratch(&gpu, TLOB_MHA_STACKED);
        case_mha_scratch(&gpu, TLOB_MHA_SEPARATE);
        case_mha_no_samples(&gpu, TLOB_MHA_STACKED);
        case_mha_no_samples(&gpu, TLOB_MHA_SEPARATE);
        case_mha_init(&gpu);
        case_mha_products(&gpu);
    }
}

/* Each pointer in turn is the host's. */
Test(gpu_trunk, operands_of_the_host_are_refused) {
    NEED_GPU();
    lab_open_cuda(&gpu, "threshold");
    static const tlob_linear l = {4, 4, TLOB_ACTIVATION_RELU};
    static const tlob_mha_shape shape = {4, 1, 1};
    static _Alignas(16) float host[128];
    const int64_t count = tlob_mha_weight_count(&shape);
    array a[8];
    tlob_mha *mha;
    OK(tlob_mha_create(gpu.ctx, &shape, TLOB_MHA_STACKED, 1, &mha));
    for (int i = 0; i < 8; i++)
        a[i] = lab_array(&gpu, NULL, count, 0);
    OK(tlob_mha_forward(mha, gpu.stream, a[0].at, a[1].at, 1, a[2].at));
    for (int wrong = 0; wrong < 5; wrong++) {
        float *p[5];
        for (int i = 0; i < 5; i++)
            p[i] = i == wrong ? host : a[i].at;
        const tlob_status got[] = {
            tlob_linear_forward(gpu.stream, &l, p[0], p[1], p[2], 1, p[3], p[4]),
            tlob_linear_backward_input(gpu.stream, &l, p[0], p[1], 1, &l, p[2], p[3], p[4]),
            wrong < 4 ? tlob_linear_backward_weight(gpu.stream, &l, p[0], p[1], 1, p[2], p[3]) : TLOB_ERR_MEMORY_SPACE,
            wrong < 4 ? tlob_linear_backward_output(gpu.stream, &l, p[0], p[1], 1, p[2], p[3]) : TLOB_ERR_MEMORY_SPACE,
            tlob_mha_backward(mha, gpu.stream, p[0], p[1], p[2], 1, p[3], p[4]),
            wrong < 3 ? tlob_mha_forward(mha, gpu.stream, p[0], p[1], 1, p[2]) : TLOB_ERR_MEMORY_SPACE,
            wrong < 1 ? tlob_mha_init_weights(gpu.stream, &shape, 1, p[0]) : TLOB_ERR_MEMORY_SPACE,
        };
        for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); i++)
            cr_assert_eq(got[i], TLOB_ERR_MEMORY_SPACE, "call %zu, operand %d: %s", i, wrong, tlob_status_name(got[i]));
    }
    tlob_mha_destroy(&mha);
    lab_close(&gpu);
}

/* --- launches -------------------------------------------------------------------------------------------------- */

/* The kernels of a graph: libtlob's that finish what a product left, libtlob's others, the vendor's. Of the others, how
 * many are attention, and how many of those in tiles. */
typedef struct launches {
    int affine, finish, others, vendor;
    int attention, tiled;
    bool has_tiles; /* what the context says of the device */
} launches;

typedef struct driver_calls {
    CUresult (*node_params)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params);
    CUresult (*function_name)(const char **name, CUfunction function);
    CUresult (*kernel_name)(const char **name, CUkernel kernel);
} driver_calls;

/* Skips the test where the driver does not tell what a kernel is called: before CUDA 12.3. */
static driver_calls find_driver_calls(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    driver_calls calls = {0};
    if (driver) {
        *(void **)&calls.node_params = dlsym(driver, "cuGraphKernelNodeGetParams_v2");
        *(void **)&calls.function_name = dlsym(driver, "cuFuncGetName");
        *(void **)&calls.kernel_name = dlsym(driver, "cuKernelGetName");
    }
    if (!calls.node_params || !calls.function_name || !calls.kernel_name)
        cr_skip_test("the driver does not tell the names of kernels");
    return calls;
}

static void count_kernel(const driver_calls *driver, cudaGraphNode_t node, launches *n) {
    CUDA_KERNEL_NODE_PARAMS params;
    const char *name = NULL;
    cr_assert_eq(driver->node_params(node, &params), CUDA_SUCCESS);
    CUresult code = params.func ? driver->function_name(&name, params.func) : driver->kernel_name(&name, params.kern);
    cr_assert(code == CUDA_SUCCESS && name, "a kernel without a name");
    n->affine += strstr(name, "tlob_affine_args") != NULL;
    n->finish += strstr(name, "tlob_finish_args") != NULL;
    n->others += strstr(name, "tlob_attend_args") || strstr(name, "row_sum");
    n->attention += strstr(name, "tlob_attend_args") != NULL;
    n->tiled += strstr(name, "attend_tiled") != NULL;
    n->vendor += !strstr(name, "tlob_") && !strstr(name, "row_sum");
}

/* A large product, so that no library cuts it into parts along k, which would be kernels of their own. */
enum { DIM = 1024, HEADS = 16, SEQ = 64, SAMPLES = 64, N = SEQ * SAMPLES };

/* One pass, enqueued on the lab's stream. */
typedef struct rig {
    tlob_mha *mha;
    array weights, dweights, x, y, aux;
} rig;

typedef void pass(const rig *r);

static launches launches_of(const char *policy, tlob_mha_projection projection, pass *run) {
    static const tlob_mha_shape shape = {DIM, HEADS, SEQ};
    const int64_t count = tlob_mha_weight_count(&shape);
    lab_open_cuda(&gpu, policy);
    const driver_calls driver = find_driver_calls();
    rig r = {.weights = lab_array(&gpu, NULL, count, 0), .dweights = lab_array(&gpu, NULL, count, 0)};
    r.x = lab_array(&gpu, NULL, (int64_t)DIM * N, 0);
    r.y = lab_array(&gpu, NULL, (int64_t)DIM * N, 0);
    r.aux = lab_array(&gpu, NULL, (int64_t)DIM * N / 32, 0);
    OK(tlob_mha_create(gpu.ctx, &shape, projection, SAMPLES, &r.mha));
    OK(tlob_mha_forward(r.mha, gpu.stream, r.weights.at, r.x.at, SAMPLES, r.y.at));
    run(&r); /* warm from here on */
    begin_capture_on(&gpu);
    run(&r);
    cudaGraph_t graph = end_capture_on(&gpu);
    cudaGraphNode_t nodes[64];
    size_t n_nodes = 64;
    launches n = {0};
    CUDA_OK(cudaGraphGetNodes(graph, nodes, &n_nodes));
    cr_assert(n_nodes < 64, "there may be more nodes than this");
    for (size_t i = 0; i < n_nodes; i++) {
        enum cudaGraphNodeType type;
        CUDA_OK(cudaGraphNodeGetType(nodes[i], &type));
        cr_assert(type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset, "node %zu has type %d", i,
                  (int)type);
        if (type == cudaGraphNodeTypeKernel)
            count_kernel(&driver, nodes[i], &n);
    }
    n.has_tiles = gpu.ctx->attend_has_tiles;
    CUDA_OK(cudaGraphDestroy(graph));
    tlob_mha_destroy(&r.mha);
    lab_close(&gpu);
    return n;
}

static void run_mha_forward(const rig *r) {
    OK(tlob_mha_forward(r->mha, gpu.stream, r->weights.at, r->x.at, SAMPLES, r->y.at));
}

static void run_mha_backward(const rig *r) {
    OK(tlob_mha_backward(r->mha, gpu.stream, r->weights.at, r->x.at, r->x.at, SAMPLES, r->dweights.at, r->y.at));
}

static const tlob_linear relu = {DIM, DIM, TLOB_ACTIVATION_RELU};

static void run_linear_forward(const rig *r) {
    const float *bias = r->weights.at + DIM * DIM;
    OK(tlob_linear_forward(gpu.stream, &relu, r->weights.at, bias, r->x.at, N, r->y.at, r->aux.at));
}

static void run_linear_backward_input(const rig *r) {
    float *dbias = r->dweights.at;
    OK(tlob_linear_backward_input(gpu.stream, &relu, r->weights.at, r->x.at, N, &relu, r->aux.at, r->y.at, dbias));
}

static void run_linear_backward_weight(const rig *r) {
    float *dbias = r->dweights.at + DIM * DIM;
    OK(tlob_linear_backward_weight(gpu.stream, &relu, r->x.at, r->y.at, N, r->dweights.at, dbias));
}

static int all(const launches *n) {
    return n->affine + n->finish + n->others + n->vendor;
}

/* What classic needs kernels of libtlob for, and cublaslt does within its product. `exact`: where both libraries take
 * one kernel a product, the totals too. */
static void expect_launches(const char *what, tlob_mha_projection projection, pass *run, int affine, int finish,
                            bool exact) {
    launches classic = launches_of("fixed:cublas_classic", projection, run);
    launches lt = launches_of("fixed:cublaslt", projection, run);
    cr_log_info("%s: classic %d kernels, %d of them the vendor's; cublaslt %d, %d", what, all(&classic), classic.vendor,
                all(&lt), lt.vendor);
    cr_assert_eq(lt.affine + lt.finish, 0, "%s: cublaslt launches %d of libtlob's bias and epilogue kernels", what,
                 lt.affine + lt.finish);
    cr_assert_eq(classic.affine, affine, "%s: classic launches %d bias kernels, not %d", what, classic.affine, affine);
    cr_assert_eq(classic.finish, finish, "%s: classic launches %d epilogue kernels, not %d", what, classic.finish,
                 finish);
    cr_assert_eq(classic.others, lt.others);
    cr_assert_eq(lt.tiled, lt.has_tiles ? lt.attention : 0, "%s: %d kernels of the attention, %d of them in tiles",
                 what, lt.attention, lt.tiled);
    cr_assert(!exact || all(&classic) - all(&lt) == affine + finish,
              "%s: %d kernels on classic and %d on cublaslt, %d and %d of them the vendor's", what, all(&classic),
              all(&lt), classic.vendor, lt.vendor);
}

Test(gpu_trunk, fused_and_unfused_forward_differ_by_a_launch_for_each_bias) {
    NEED_GPU();
    expect_launches("forward, separate", TLOB_MHA_SEPARATE, run_mha_forward, 4, 0, true);
    expect_launches("forward, stacked", TLOB_MHA_STACKED, run_mha_forward, 2, 0, true);
}

Test(gpu_trunk, backward_products_have_no_epilogue_to_launch) {
    NEED_GPU();
    expect_launches("backward, separate", TLOB_MHA_SEPARATE, run_mha_backward, 0, 0, false);
    expect_launches("backward, stacked", TLOB_MHA_STACKED, run_mha_backward, 0, 0, false);
}

Test(gpu_trunk, the_epilogues_of_a_linear_layer_are_part_of_its_products) {
    NEED_GPU();
    expect_launches("relu_aux_bias", TLOB_MHA_STACKED, run_linear_forward, 0, 1, false);
    expect_launches("drelu_bgrad", TLOB_MHA_STACKED, run_linear_backward_input, 0, 1, false);
    expect_launches("bgradb", TLOB_MHA_STACKED, run_linear_backward_weight, 0, 1, false);
}

/* --- captures -------------------------------------------------------------------------------------------------- */

Test(gpu_trunk, captured_passes_have_the_bits_of_eager_ones) {
    NEED_GPU();
    static const tlob_mha_shape s = {.dim = 48, .heads = 3, .seq = 5};
    enum { FEW = 9, ELEMENTS = 48 * 5 * FEW };
    const int64_t count = tlob_mha_weight_count(&s);
    float *x = lab_random(ELEMENTS, 1.5f, 5), *dy = lab_random(ELEMENTS, 1.0f, 6);
    FOR_EACH_POLICY_HERE {
        array w = lab_array(&gpu, NULL, count, 0), ax = lab_array(&gpu, x, ELEMENTS, 0);
        array ady = lab_array(&gpu, dy, ELEMENTS, 0), y[2], dw[2], dx[2];
        tlob_mha *mha;
        OK(tlob_mha_create(gpu.ctx, &s, TLOB_MHA_SEPARATE, FEW, &mha));
        OK(tlob_mha_init_weights(gpu.stream, &s, 7, w.at));
        for (int captured = 0; captured < 2; captured++) {
            y[captured] = lab_array(&gpu, NULL, ELEMENTS, 0);
            dw[captured] = lab_array(&gpu, NULL, count, 0);
            dx[captured] = lab_array(&gpu, NULL, ELEMENTS, 0);
            if (captured)
                begin_capture_on(&gpu);
            OK(tlob_mha_forward(mha, gpu.stream, w.at, ax.at, FEW, y[captured].at));
            OK(tlob_mha_backward(mha, gpu.stream, w.at, ax.at, ady.at, FEW, dw[captured].at, dx[captured].at));
            if (captured) {
                cudaGraph_t graph = end_capture_on(&gpu);
                cudaGraphExec_t exec;
                CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
                CUDA_OK(cudaGraphLaunch(exec, tlob_stream_cuda(gpu.stream)));
                OK(tlob_stream_sync(gpu.stream));
                CUDA_OK(cudaGraphExecDestroy(exec));
                CUDA_OK(cudaGraphDestroy(graph));
            }
        }
        const struct {
            const char *name;
            array *of;
        } outputs[] = {{"y", y}, {"dw", dw}, {"dx", dx}};
        for (int i = 0; i < 3; i++) {
            float *eager = lab_read(&gpu, outputs[i].of[0]), *replayed = lab_read(&gpu, outputs[i].of[1]);
            lab_same_bits(outputs[i].name, eager, replayed, outputs[i].of[0].count);
            free(eager);
            free(replayed);
        }
        tlob_mha_destroy(&mha);
    }
    free(x);
    free(dy);
}

/* --- threads --------------------------------------------------------------------------------------------------- */

/* Forward passes again and again, on a thread and a stream of their own. */
typedef struct racer {
    int64_t seq;
    tlob_mha *mha;
    tlob_stream *stream;
    const float *weights, *x;
    float *y;
    tlob_status status;
    char message[512];
} racer;

static void *race(void *user) {
    racer *r = user;
    for (int i = 0; i < 5000 && r->status == TLOB_OK; i++)
        r->status = tlob_mha_forward(r->mha, r->stream, r->weights, r->x, 1, r->y);
    if (r->status == TLOB_OK)
        r->status = tlob_stream_sync(r->stream);
    if (r->status != TLOB_OK)
        snprintf(r->message, sizeof(r->message), "%s", tlob_last_error()->message);
    return NULL;
}

/* A group that one tile holds takes less shared memory than one whose next tile comes while one is used: of the same
 * kernel, whose limit all threads share. */
Test(gpu_trunk, short_and_long_groups_at_the_same_time) {
    NEED_GPU();
    enum { FEATURES = 64 };
    racer racers[] = {{.seq = 16}, {.seq = 256}};
    pthread_t threads[2];
    lab_open_cuda(&gpu, "threshold");
    for (int i = 0; i < 2; i++) {
        racer *r = &racers[i];
        const tlob_mha_shape shape = {.dim = FEATURES, .heads = 1, .seq = r->seq};
        r->weights = lab_array(&gpu, NULL, tlob_mha_weight_count(&shape), 0).at;
        r->x = lab_array(&gpu, NULL, FEATURES * r->seq, 0).at;
        r->y = lab_array(&gpu, NULL, FEATURES * r->seq, 0).at;
        OK(tlob_stream_create(gpu.ctx, &r->stream));
        OK(tlob_mha_create(gpu.ctx, &shape, TLOB_MHA_STACKED, 1, &r->mha));
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(racers[i].status, TLOB_OK, "seq %ld: %s", (long)racers[i].seq, racers[i].message);
        tlob_mha_destroy(&racers[i].mha);
        tlob_stream_close(&racers[i].stream);
    }
    lab_close(&gpu);
}
