// The built-in table of problems. Sizes in comments are those of the paper's block and of torch's layers.
#include "cli/problems.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// --- a list that grows ---

bool cli_problems_add(cli_problems *problems, const tlob_gemm *gemm, const char *format, ...) {
    if (problems->count == problems->room) {
        int room = problems->room ? 2 * problems->room : 64;
        cli_problem *list = realloc(problems->list, (size_t)room * sizeof *list);
        if (!list) {
            cli_error("out of memory");
            return false;
        }
        problems->list = list;
        problems->room = room;
    }
    cli_problem *problem = &problems->list[problems->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(problem->name, sizeof problem->name, format, args);
    va_end(args);
    problem->gemm = tlob_table_problem(gemm);
    return true;
}

void cli_problems_filter(cli_problems *problems, const char *pattern) {
    int kept = 0;
    for (int i = 0; i < problems->count; i++)
        if (!fnmatch(pattern, problems->list[i].name, 0))
            problems->list[kept++] = problems->list[i];
    problems->count = kept;
}

void cli_problems_free(cli_problems *problems) {
    free(problems->list);
    *problems = (cli_problems){0};
}

// --- shapes ---

// A packed product of matrices that lie transposed or not.
static tlob_gemm product(tlob_op transa, tlob_op transb, int64_t m, int64_t n, int64_t k) {
    tlob_gemm gemm = tlob_gemm_init(m, n, k);
    gemm.transa = transa;
    gemm.transb = transb;
    gemm.lda = transa ? k : m;
    gemm.ldb = transb ? n : k;
    gemm.compute = TLOB_COMPUTE_TF32;
    return gemm;
}

static tlob_gemm nn(int64_t m, int64_t n, int64_t k) {
    return product(TLOB_OP_N, TLOB_OP_N, m, n, k);
}

static tlob_gemm with_epilogue(tlob_gemm gemm, tlob_epilogue epilogue) {
    gemm.epilogue = epilogue;
    return gemm;
}

static tlob_gemm in_fp32(tlob_gemm gemm) {
    gemm.compute = TLOB_COMPUTE_FP32;
    return gemm;
}

// --- the block ---

// What a block of 32 inputs and 16 outputs does with N columns (libtlob/block.c).
static bool add_block(cli_problems *p, int64_t n, tlob_compute compute) {
    enum { IN = 32, OUT = 16 };
    tlob_gemm qkv = nn(OUT, n, IN), o = nn(OUT, n, OUT), d_o = product(TLOB_OP_T, TLOB_OP_N, OUT, n, OUT);
    tlob_gemm dw_o = product(TLOB_OP_N, TLOB_OP_T, OUT, OUT, n), dw = product(TLOB_OP_N, TLOB_OP_T, OUT, IN, n);
    tlob_gemm dx = product(TLOB_OP_T, TLOB_OP_N, IN, n, OUT), dx_add = dx;
    qkv.batch = dw.batch = 3;
    qkv.stride_a = dw.stride_c = OUT * IN;
    qkv.stride_c = dw.stride_a = OUT * n;
    dx_add.beta = 1;
    const struct {
        const char *name;
        tlob_gemm gemm;
    } all[] = {{"qkv", qkv}, {"o", o}, {"do", d_o}, {"dw_o", dw_o}, {"dw_qkv", dw}, {"dx", dx}, {"dx_add", dx_add}};
    for (int i = 0; i < 7; i++) {
        tlob_gemm gemm = all[i].gemm;
        gemm.compute = compute;
        if (!cli_problems_add(p, &gemm, "block/%s_%" PRId64 "%s", all[i].name, n,
                              compute == TLOB_COMPUTE_FP32 ? "/fp32" : ""))
            return false;
    }
    return true;
}

static bool add_blocks(cli_problems *p) {
    static const int64_t columns[] = {64, 256, 1024, 4096, 65536};
    for (int i = 0; i < 5; i++)
        if (!add_block(p, columns[i], TLOB_COMPUTE_TF32))
            return false;
    return add_block(p, 256, TLOB_COMPUTE_FP32) && add_block(p, 65536, TLOB_COMPUTE_FP32);
}

// --- wider models ---

// Multi-head attention of `dim` features on N tokens: its projections, in one piece (libtlob/mha.c).
static bool add_attention(cli_problems *p, int64_t dim, int64_t n) {
    const tlob_gemm in = with_epilogue(product(TLOB_OP_T, TLOB_OP_N, 3 * dim, n, dim), TLOB_EPILOGUE_BIAS);
    const tlob_gemm out = with_epilogue(product(TLOB_OP_T, TLOB_OP_N, dim, n, dim), TLOB_EPILOGUE_BIAS);
    const tlob_gemm dw_in = product(TLOB_OP_N, TLOB_OP_T, dim, 3 * dim, n);
    const tlob_gemm dw_out = product(TLOB_OP_N, TLOB_OP_T, dim, dim, n);
    const tlob_gemm dx = nn(dim, n, 3 * dim), d_o = nn(dim, n, dim);
    return cli_problems_add(p, &in, "attention/in_%" PRId64, dim) &&
           cli_problems_add(p, &out, "attention/out_%" PRId64, dim) &&
           cli_problems_add(p, &dw_in, "attention/dw_in_%" PRId64, dim) &&
           cli_problems_add(p, &dw_out, "attention/dw_out_%" PRId64, dim) &&
           cli_problems_add(p, &dx, "attention/dx_%" PRId64, dim) &&
           cli_problems_add(p, &d_o, "attention/do_%" PRId64, dim);
}

// A layer of `dim` features to four times as many and back, on N tokens (libtlob/linear.c).
static bool add_layers(cli_problems *p, int64_t dim, int64_t n, bool gelu) {
    const int64_t wide = 4 * dim;
    const char *name = gelu ? "gelu" : "relu";
    tlob_gemm up = product(TLOB_OP_T, TLOB_OP_N, wide, n, dim), dz = nn(wide, n, dim);
    up.epilogue = gelu ? TLOB_EPILOGUE_GELU_AUX_BIAS : TLOB_EPILOGUE_RELU_AUX_BIAS;
    dz.epilogue = gelu ? TLOB_EPILOGUE_DGELU_BGRAD : TLOB_EPILOGUE_DRELU_BGRAD;
    if (!cli_problems_add(p, &up, "layer/%s_up_%" PRId64, name, dim) ||
        !cli_problems_add(p, &dz, "layer/%s_back_%" PRId64, name, dim))
        return false;
    if (!gelu)
        return true;
    const tlob_gemm down = with_epilogue(product(TLOB_OP_T, TLOB_OP_N, dim, n, wide), TLOB_EPILOGUE_BIAS);
    const tlob_gemm dw = with_epilogue(product(TLOB_OP_N, TLOB_OP_T, dim, wide, n), TLOB_EPILOGUE_BGRADB);
    return cli_problems_add(p, &down, "layer/down_%" PRId64, dim) && cli_problems_add(p, &dw, "layer/dw_%" PRId64, dim);
}

static bool add_trunks(cli_problems *p) {
    for (int64_t dim = 64; dim <= 1024; dim *= 2)
        if (!add_attention(p, dim, 4096))
            return false;
    for (int64_t dim = 64; dim <= 1024; dim *= 4)
        if (!add_layers(p, dim, 1024, true))
            return false;
    return add_layers(p, 256, 1024, false);
}

// --- single shapes ---

static bool add_skinny(cli_problems *p) {
    static const int64_t thin[] = {1, 8, 16, 32}, wide[] = {256, 2048, 8192}, deep[] = {64, 512};
    static const int64_t sums[][3] = {{16, 16, 8192},  {16, 64, 65536}, {64, 16, 65536},   {1, 256, 65536},
                                      {32, 32, 16384}, {8, 8, 65536},   {256, 256, 65536}, {128, 2048, 8}};
    for (int t = 0; t < 4; t++)
        for (int w = 0; w < 3; w++)
            for (int d = 0; d < 2; d++) {
                const tlob_gemm row = nn(thin[t], wide[w], deep[d]), column = nn(wide[w], thin[t], deep[d]);
                if (!cli_problems_add(p, &row, "skinny/%" PRId64 "x%" PRId64 "x%" PRId64, row.m, row.n, row.k))
                    return false;
                if (d && !cli_problems_add(p, &column, "skinny/%" PRId64 "x%" PRId64 "x%" PRId64, column.m, column.n,
                                           column.k))
                    return false;
            }
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        const tlob_gemm gemm = product(TLOB_OP_N, TLOB_OP_T, sums[i][0], sums[i][1], sums[i][2]);
        if (!cli_problems_add(p, &gemm, "skinny/%" PRId64 "x%" PRId64 "x%" PRId64, gemm.m, gemm.n, gemm.k))
            return false;
    }
    return true;
}

static bool add_squares(cli_problems *p) {
    static const int64_t sizes[] = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096};
    for (int i = 0; i < 16; i++) {
        const tlob_gemm gemm = nn(sizes[i], sizes[i], sizes[i]), exact = in_fp32(gemm);
        if (!cli_problems_add(p, &gemm, "square/%" PRId64, gemm.m) ||
            (i % 3 == 0 && !cli_problems_add(p, &exact, "square/%" PRId64 "/fp32", gemm.m)))
            return false;
    }
    return true;
}

// --- batches ---

// One matrix after the other in A, B and D.
static tlob_gemm apart(tlob_gemm gemm, int64_t batch) {
    gemm.batch = batch;
    gemm.stride_a = gemm.m * gemm.k;
    gemm.stride_b = gemm.k * gemm.n;
    gemm.stride_c = gemm.m * gemm.n;
    return gemm;
}

// All multiply one B; A and D lie stacked as the rows of one matrix.
static tlob_gemm stacked(tlob_gemm gemm, int64_t batch) {
    gemm.batch = batch;
    gemm.stride_a = gemm.stride_c = gemm.m;
    gemm.stride_b = 0;
    gemm.lda = gemm.ldc = batch * gemm.m;
    return gemm;
}

// One A multiplies all; B and D lie side by side as the columns of one matrix.
static tlob_gemm side_by_side(tlob_gemm gemm, int64_t batch) {
    gemm = apart(gemm, batch);
    gemm.stride_a = 0;
    return gemm;
}

static bool add_batches(cli_problems *p) {
    static const int64_t shapes[][4] = {{64, 64, 64, 2},    {64, 64, 64, 16},   {64, 64, 64, 128}, {64, 64, 64, 1024},
                                        {16, 16, 16, 64},   {16, 16, 16, 4096}, {32, 32, 8, 1024}, {128, 128, 32, 32},
                                        {256, 256, 256, 8}, {8, 64, 32, 512}};
    static const int64_t shared[][4] = {{16, 64, 32, 3}, {16, 256, 32, 16}, {64, 64, 64, 64}, {128, 128, 128, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        const tlob_gemm gemm = apart(nn(s[0], s[1], s[2]), s[3]);
        if (!cli_problems_add(p, &gemm, "batch/%" PRId64 "x%" PRId64 "x%" PRId64 "_x%" PRId64, s[0], s[1], s[2], s[3]))
            return false;
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const int64_t *s = shared[i];
        const tlob_gemm one_b = stacked(nn(s[0], s[1], s[2]), s[3]), one_a = side_by_side(nn(s[0], s[1], s[2]), s[3]);
        if (!cli_problems_add(p, &one_b, "batch/one_b/%" PRId64 "x%" PRId64 "x%" PRId64 "_x%" PRId64, s[0], s[1], s[2],
                              s[3]) ||
            !cli_problems_add(p, &one_a, "batch/one_a/%" PRId64 "x%" PRId64 "x%" PRId64 "_x%" PRId64, s[0], s[1], s[2],
                              s[3]))
            return false;
    }
    return true;
}

// --- epilogues, and the map ---

static bool add_epilogues(cli_problems *p) {
    static const int64_t shapes[][3] = {{64, 1024, 64}, {256, 2048, 256}};
    for (int i = 0; i < 2; i++)
        for (int e = TLOB_EPILOGUE_NONE + 1; e < TLOB_EPILOGUE_COUNT; e++) {
            const int64_t *s = shapes[i];
            const tlob_gemm gemm = with_epilogue(nn(s[0], s[1], s[2]), (tlob_epilogue)e);
            if (!cli_problems_add(p, &gemm, "epilogue/%s/%" PRId64 "x%" PRId64 "x%" PRId64,
                                  tlob_epilogue_get_traits(gemm.epilogue)->name, s[0], s[1], s[2]))
                return false;
        }
    return true;
}

// A grid for reports. Two of its cells are squares that are there under their own names too.
static bool add_map(cli_problems *p) {
    static const int64_t deep[] = {32, 256, 2048};
    for (int d = 0; d < 3; d++)
        for (int64_t m = 16; m <= 1024; m *= 2)
            for (int64_t n = 16; n <= 1024; n *= 2) {
                const tlob_gemm gemm = nn(m, n, deep[d]);
                if (!cli_problems_add(p, &gemm, "map/k%" PRId64 "/%" PRId64 "x%" PRId64, gemm.k, m, n))
                    return false;
            }
    return true;
}

bool cli_problems_builtin(cli_problems *problems) {
    *problems = (cli_problems){0};
    if (add_blocks(problems) && add_trunks(problems) && add_skinny(problems) && add_squares(problems) &&
        add_batches(problems) && add_epilogues(problems) && add_map(problems))
        return true;
    cli_problems_free(problems);
    return false;
}
