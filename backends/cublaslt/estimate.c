/* A model of how long a configuration takes. Its constants were fitted to 10000 measured products on an H200. */
#include <float.h>
#include <math.h>

#include "backends/cublaslt/search.h"

bool tlob_algo_tile(int64_t tile, int *rows, int *columns) {
    static const short tiles[][2] = {
        {0, 0},    {8, 8},    {8, 16},   {16, 8},   {8, 32},    {16, 16},  {32, 8},   {8, 64},    {16, 32},
        {32, 16},  {64, 8},   {32, 32},  {32, 64},  {64, 32},   {32, 128}, {64, 64},  {128, 32},  {64, 128},
        {128, 64}, {64, 256}, {128, 128}, {256, 64}, {64, 512}, {128, 256}, {256, 128}, {512, 64}, {64, 96},
        {96, 64},  {96, 128}, {128, 160}, {160, 128}, {192, 128}, {128, 192}, {128, 96}, {32, 256}, {256, 32},
    };
    _Static_assert(sizeof(tiles) / sizeof(tiles[0]) == CUBLASLT_MATMUL_TILE_256x32 + 1, "by cublasLtMatmulTile_t");
    if (tile < 1 || tile >= (int64_t)(sizeof(tiles) / sizeof(tiles[0])))
        return false;
    *rows = tiles[tile][0];
    *columns = tiles[tile][1];
    return true;
}

bool tlob_algo_stages(int64_t stages, int *depth, int *steps) {
    static const short all[][2] = {
        {0, 0},   {16, 1},  {16, 2}, {16, 3},  {16, 4},  {16, 5},  {16, 6},  {32, 1},  {32, 2},  {32, 3},
        {32, 4},  {32, 5},  {32, 6}, {64, 1},  {64, 2},  {64, 3},  {64, 4},  {64, 5},  {64, 6},  {128, 1},
        {128, 2}, {128, 3}, {128, 4}, {128, 5}, {128, 6}, {32, 10}, {8, 4},  {16, 10}, {8, 5},   {0, 0},
        {0, 0},   {8, 3},   {8, 4},  {16, 4},  {32, 4},  {64, 4},  {128, 4}, /* from 8xAUTO on: taken as 4 */
    };
    _Static_assert(CUBLASLT_MATMUL_STAGES_8x3 == 31, "by cublasLtMatmulStages_t");
    if (stages < 0 || stages >= (int64_t)(sizeof(all) / sizeof(all[0])) || !all[stages][0])
        return false;
    *depth = all[stages][0];
    *steps = all[stages][1];
    return true;
}

/** What an algorithm costs, in microseconds. An area is that of a tile by 64 x 64, an edge half its girth by 64. */
typedef struct costs {
    double launch;           /* of the kernel */
    double step;             /* of one step in k */
    double depth_by_area;    /* of one k of a tile that has a multiprocessor to itself */
    double depth_by_edge;    /* likewise */
    double depth_at_once;    /* of one k of a tile where tiles fill a multiprocessor */
    double fill;             /* of each k that is under way before the first is done, by edge */
    double resident;         /* areas that a multiprocessor holds at a time */
    double split;            /* of summing the parts of a split K */
    double split_by_element; /* of each element of each part, by 10^6 */
    double split_by_part;    /* of each part */
    double a_transposed;     /* factor of what depth costs */
    double b_transposed;     /* likewise */
    double memory;           /* of each element of A, B and D, by 10^6 */
    double latency;          /* in k: what is not hidden where few steps are under way */
} costs;

/** By the number of the algorithm; those that were not measured are taken as the most alike one that was. */
static const costs *costs_of(int64_t id) {
    static const costs
        fma = {2.44, 0.0133, 0.0102, 0.0127, 0.015, 0.01, 1.6, 0.963, 0.848,
               0.0291, 1.06, 0.748, 0.713, 22.9},
        fma_55 = {2.3, 0.019, 0.0109, 0.0139, 0.00192, 0.0291, 0.485, 1.1, 1.79,
                  0.16, 0.973, 0.986, 0.349, 2.57},
        tensor = {2.91, 0.0363, 0.0047, 0.00161, 0.00416, 0.000548, 0.585, 1.39, 1.06,
                  0.0372, 0.962, 1.02, 0.344, 10.7},
        tensor_23 = {2.65, 0.0397, 0.00636, 0.0116, 0.00089, 0.00747, 0.499, 1.55, 1.32,
                     0.0224, 1.08, 0.744, 0.519, 0.728},
        hopper = {1.72, 0.121, 0.000366, 0.00175, 0.000388, 0.0141, 1.81, 1.37, 5.47,
                  0.036, 0.66, 2.44, 0.611, 10.2},
        hopper_63 = {1.01, 0.207, 0.000784, 0.0136, 0.0169, 0.0156, 0.392, 0.691, 1.36,
                     0.156, 1.09, 1.09, 1.23, 1.63};
    switch (id) {
    case 21: case 58: return &tensor;
    case 23: return &tensor_23;
    case 43: return &hopper;
    case 45: case 63: return &hopper_63;
    case 55: return &fma_55;
    default: return &fma;
    }
}

static double parts(int64_t size, int64_t of) {
    return (double)((size - 1) / of + 1);
}

/** Of kernels for products with a vector, which have no tiles: those that the library itself proposes the most. */
static double estimate_vector(const tlob_product_key *p, const tlob_algo_config *config) {
    double outputs = (double)p->m * (double)p->n * (double)p->batch;
    double split = (double)config->split_k, depth = parts(p->k, config->split_k);
    if (p->m > 1 && p->n > 1)
        return DBL_MAX;
    if (config->id == 14 && config->custom == 0)
        return 2.75 + 8e-4 * depth + 2.3e-3 * split + 8e-3 * outputs;
    if (config->id == 13 && config->custom == 75 && config->split_k == 1)
        return 1.7 + 2.7e-4 * depth + 8e-4 * outputs;
    if (config->id == 13 && config->custom == 73 && config->split_k == 1)
        return 1.6 + 6e-4 * depth + 4.5e-4 * outputs;
    return DBL_MAX;
}

double tlob_algo_estimate(const tlob_product_key *p, const tlob_algo_config *config, int multiprocessors) {
    int rows, columns, depth, steps;
    if (!config->tile)
        return estimate_vector(p, config);
    if (config->custom || !tlob_algo_tile(config->tile, &rows, &columns) ||
        !tlob_algo_stages(config->stages, &depth, &steps))
        return DBL_MAX;
    const costs *c = costs_of(config->id);
    double area = rows * columns / 4096.0, edge = (rows + columns) / 128.0;
    double n_steps = parts((p->k - 1) / config->split_k + 1, depth), n_depth = n_steps * depth;
    double tiles = parts(p->m, rows) * parts(p->n, columns) * (double)p->batch * (double)config->split_k;
    double layout = (p->transa ? c->a_transposed : 1) * (p->transb ? c->b_transposed : 1);
    double outputs = (double)p->m * (double)p->n * (double)p->batch;
    double elements = ((double)p->m + (double)p->n) * (double)p->k * (double)p->batch + outputs;

    double each = ceil(tiles / multiprocessors), at_a_time = fmax(floor(c->resident / area), 1);
    double alone = n_steps * c->step + n_depth * (c->depth_by_area * area + c->depth_by_edge * edge) * layout;
    double busy = fmax(alone * ceil(each / at_a_time), n_depth * area * c->depth_at_once * each * layout);
    busy = fmax(busy * (1 + c->latency / (depth * steps)), c->memory * 1e-6 * elements);
    double time = c->launch + c->fill * depth * steps * edge + busy;
    if (config->split_k > 1)
        time += c->split + c->split_by_part * (double)config->split_k +
                c->split_by_element * 1e-6 * outputs * (double)config->split_k;
    return time;
}
