#include "lobdata/synth.h"
#include "io/atomic_file.h"
#include "lobdata/lobster.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    LEVELS_MAX = 50,
    ORDERS_MAX = 2048, // a side; far above what the flow keeps there
    TICK = 100,
    FIRST_BID = 5000000,
    EXECUTIONS = 30, // percent of the events
    LOT = 10
};

// The Hawkes process. MEMORY is the kernel's time constant in mean event distances; BRANCHING is how many events one
// event causes in its own kind and in the other.
static const double MEMORY = 20, BRANCHING_SELF = 0.90, BRANCHING_OTHER = 0.02;

// --- numbers that are the same everywhere ---------------------------------------------------------------------------

// splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// Uniform in (0, 1].
static double uniform(uint64_t *state) {
    return (double)((next_random(state) >> 11) + 1) * 0x1p-53;
}

// Uniform in 0 .. n - 1.
static int below(uint64_t *state, int n) {
    return (int)((next_random(state) >> 32) * (uint64_t)n >> 32);
}

static const double LN2 = 0x1.62e42fefa39efp-1;

// log(x) for 0 < x <= 1: 2 atanh((m - 1) / (m + 1)) of the mantissa, plus the exponent's share.
static double portable_log(double x) {
    int exponent = 0;
    for (; x < 0.75; x *= 2) // exact
        exponent--;
    double s = (x - 1) / (x + 1), square = s * s, sum = 0;
    for (int power = 21; power >= 1; power -= 2)
        sum = sum * square + 1.0 / power;
    return 2 * s * sum + exponent * LN2;
}

// exp(-x) for x >= 0 by its series at x / 2^n below 1/2, squared n times.
static double portable_exp_minus(double x) {
    int halvings = 0;
    if (x > 700)
        return 0;
    for (; x > 0.5; x *= 0.5)
        halvings++;
    double sum = 1;
    for (int k = 16; k >= 1; k--)
        sum = 1 - x / k * sum;
    for (; halvings; halvings--)
        sum *= sum;
    return sum;
}

// --- the book -------------------------------------------------------------------------------------------------------

typedef struct order {
    int64_t price, size, id;
} order;

// One side: all its orders, best price first, and within a price the oldest first. `outward` is 1 for asks, whose
// prices rise away from the touch, and -1 for bids.
typedef struct book_side {
    int outward;
    int count;
    order orders[ORDERS_MAX];
} book_side;

enum { BID, ASK };

typedef struct event {
    int type, direction;
    order order; // what the message says: price, size, id
} event;

typedef struct market {
    lob_synth_params params;
    uint64_t random;
    int64_t last_id;
    double time, decay;   // seconds since the opening; 1 / seconds
    double excitement[2]; // of upward and downward events
    double base, self, other;
    book_side sides[2];
} market;

// Where the orders of level m (0 is the best) begin; count where there are fewer levels.
static int level_begin(const book_side *side, int level) {
    int i = 0;
    for (; level && i < side->count; level--)
        for (int64_t price = side->orders[i].price; i < side->count && side->orders[i].price == price;)
            i++;
    return i;
}

static void insert_order(book_side *side, order new) {
    int i = side->count;
    for (; i && (side->orders[i - 1].price - new.price) * side->outward > 0; i--)
        side->orders[i] = side->orders[i - 1];
    side->orders[i] = new;
    side->count++;
}

static void reduce_order(book_side *side, int i, int64_t size) {
    side->orders[i].size -= size;
    if (side->orders[i].size)
        return;
    side->count--;
    memmove(side->orders + i, side->orders + i + 1, (size_t)(side->count - i) * sizeof *side->orders);
}

static int64_t random_size(market *m) {
    int lots = 1;
    while (lots < 40 && below(&m->random, 100) < 85)
        lots++;
    return (int64_t)lots * LOT;
}

// Orders that a side holds on average, which is also how many ticks behind the touch they may be placed: about one
// order a tick, so that the touch is thin and moves often.
static int usual_orders(const market *m) {
    return 20 + 4 * m->params.levels;
}

static void open_market(market *m, const lob_synth_params *params) {
    m->params = *params;
    m->random = params->seed;
    m->decay = params->events_per_second / MEMORY;
    m->self = BRANCHING_SELF * m->decay;
    m->other = BRANCHING_OTHER * m->decay;
    m->base = params->events_per_second / 2 * (1 - BRANCHING_SELF - BRANCHING_OTHER);
    for (int kind = 0; kind < 2; kind++) // the mean of the stationary process
        m->excitement[kind] = params->events_per_second / 2 / m->decay;
    m->sides[BID].outward = -1;
    m->sides[ASK].outward = 1;
    for (int i = 0; i < 2 * usual_orders(m); i++) {
        book_side *side = &m->sides[i % 2];
        int64_t touch = i % 2 == BID ? FIRST_BID : FIRST_BID + TICK;
        int64_t away = (i / 2) % usual_orders(m);
        insert_order(side, (order){touch + side->outward * away * TICK, random_size(m), ++m->last_id});
    }
}

// --- the flow -------------------------------------------------------------------------------------------------------

// Lets time pass until the next event and returns its kind: 0 upward, 1 downward. Thinning after Y. Ogata, IEEE Trans.
// Information Theory 27 (1981): between events the intensity only falls, so its value now bounds it.
static int next_event(market *m) {
    for (;;) {
        double bound = 2 * m->base + (m->self + m->other) * (m->excitement[0] + m->excitement[1]);
        double wait = -portable_log(uniform(&m->random)) / bound, left = portable_exp_minus(m->decay * wait);
        m->time += wait;
        m->excitement[0] *= left;
        m->excitement[1] *= left;
        double pick = uniform(&m->random) * bound;
        for (int kind = 0; kind < 2; kind++) {
            pick -= m->base + m->self * m->excitement[kind] + m->other * m->excitement[1 - kind];
            if (pick <= 0) {
                m->excitement[kind]++;
                return kind;
            }
        }
    }
}

static event add_limit_order(market *m, int which) {
    book_side *side = &m->sides[which], *opposite = &m->sides[1 - which];
    int64_t touch = side->orders[0].price, spread = (opposite->orders[0].price - touch) * -side->outward;
    int draw = below(&m->random, 100);
    int64_t away = draw < 25 ? (spread > TICK ? -1 : 0) : draw < 40 ? 0 : 1 + below(&m->random, usual_orders(m));
    order new = {touch + side->outward * away * TICK, random_size(m), ++m->last_id};
    insert_order(side, new);
    return (event){LOB_SUBMISSION, -side->outward, new};
}

static event execute_order(market *m, int which) {
    book_side *side = &m->sides[which];
    order hit = side->orders[0];
    int64_t wanted = random_size(m);
    hit.size = wanted < hit.size ? wanted : hit.size;
    reduce_order(side, 0, hit.size);
    return (event){LOB_EXECUTION, -side->outward, hit};
}

static event withdraw_order(market *m, int which) {
    book_side *side = &m->sides[which];
    int i = below(&m->random, side->count);
    order gone = side->orders[i];
    int partial = gone.size > LOT && below(&m->random, 100) < 10;
    if (partial)
        gone.size = gone.size / (2 * LOT) * LOT;
    reduce_order(side, i, gone.size);
    return (event){partial ? LOB_CANCELLATION : LOB_DELETION, -side->outward, gone};
}

// What an upward event (kind 0) is: a buy order arrives, or an ask is executed or withdrawn; a downward event (kind 1)
// mirrors it. Withdrawals grow with the number of orders, as if each had a constant chance, and keep the book bounded.
// A side about to run out of levels is refilled instead, and near the price 0 every event is upward.
static event apply_event(market *m, int kind) {
    if (m->sides[BID].orders[0].price <= 2 * usual_orders(m) * TICK)
        kind = 0;
    int growing = kind == 0 ? BID : ASK, shrinking = 1 - growing;
    int orders = m->sides[shrinking].count, room = 2 * usual_orders(m) - m->sides[growing].count;
    if (level_begin(&m->sides[shrinking], m->params.levels + 2) == orders)
        return add_limit_order(m, shrinking);
    if (below(&m->random, 100) < EXECUTIONS)
        return execute_order(m, shrinking);
    return below(&m->random, (room > 0 ? room : 0) + orders) < room ? add_limit_order(m, growing)
                                                                    : withdraw_order(m, shrinking);
}

static event hidden_execution(market *m) {
    int64_t price = (m->sides[BID].orders[0].price + m->sides[ASK].orders[0].price) / 2;
    return (event){LOB_HIDDEN_EXECUTION, below(&m->random, 2) ? 1 : -1, {price, random_size(m), 0}};
}

// The next event that changes one of the levels that are written.
static event next_visible_event(market *m) {
    int hidden = uniform(&m->random) <= m->params.hidden_share;
    for (;;) {
        int kind = next_event(m);
        if (hidden)
            return hidden_execution(m);
        int64_t last[2];
        for (int which = BID; which <= ASK; which++)
            last[which] = m->sides[which].orders[level_begin(&m->sides[which], m->params.levels) - 1].price;
        event e = apply_event(m, kind);
        int which = e.direction == 1 ? BID : ASK;
        if ((e.order.price - last[which]) * m->sides[which].outward <= 0)
            return e;
    }
}

// --- the files ------------------------------------------------------------------------------------------------------

typedef struct output {
    const char *path;
    io_atomic *file;
    gzFile stream;
} output;

static int output_open(output *out, const char *path, io_error *err) {
    size_t length = strlen(path);
    int compress = length > 3 && !strcmp(path + length - 3, ".gz");
    *out = (output){.path = path};
    if (io_atomic_open(path, &out->file, err))
        return -1;
    int fd = dup(fileno(io_atomic_stream(out->file)));
    out->stream = fd < 0 ? NULL : gzdopen(fd, compress ? "wb6" : "wbT");
    if (out->stream)
        return 0;
    if (fd >= 0)
        close(fd);
    return io_error_set(err, "%s: out of memory", io_error_path(path));
}

static int write_failed(const output *out, int code, io_error *err) {
    return io_error_set(err, "%s: write failed: %s", io_error_path(out->path),
                        code == Z_ERRNO ? strerror(errno) : "out of memory");
}

static int output_write(output *out, const char *text, size_t length, io_error *err) {
    int code;
    if (gzwrite(out->stream, text, (unsigned)length) == (int)length)
        return 0;
    gzerror(out->stream, &code);
    return write_failed(out, code, err);
}

static int output_close(output *out, io_error *err) {
    int code = out->stream ? gzclose(out->stream) : Z_OK;
    out->stream = NULL;
    return code == Z_OK ? 0 : write_failed(out, code, err);
}

static int write_message(output *out, const market *m, const event *e, io_error *err) {
    char line[160];
    int64_t time_ns = INT64_C(34200000000000) + (int64_t)(m->time * 1e9);
    int length = snprintf(line, sizeof line, "%" PRId64 ".%09" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",%d\n",
                          time_ns / 1000000000, time_ns % 1000000000, e->type, e->order.id, e->order.size,
                          e->order.price, e->direction);
    return output_write(out, line, (size_t)length, err);
}

// Price and size of the level whose orders begin at *i, which moves on to the next level.
static order sum_level(const book_side *side, int *i) {
    order level = {.price = side->orders[*i].price};
    for (; *i < side->count && side->orders[*i].price == level.price; (*i)++)
        level.size += side->orders[*i].size;
    return level;
}

static int write_book(output *out, const market *m, io_error *err) {
    char line[LEVELS_MAX * 84 + 1];
    size_t length = 0;
    int next_ask = 0, next_bid = 0;
    for (int i = 0; i < m->params.levels; i++) {
        order ask = sum_level(&m->sides[ASK], &next_ask), bid = sum_level(&m->sides[BID], &next_bid);
        length +=
            (size_t)snprintf(line + length, sizeof line - length, "%s%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
                             i ? "," : "", ask.price, ask.size, bid.price, bid.size);
    }
    line[length++] = '\n';
    return output_write(out, line, length, err);
}

static int write_rows(market *m, output *message, output *orderbook, io_error *err) {
    for (size_t row = 0; row < m->params.rows; row++) {
        if (m->params.stop && *m->params.stop)
            return io_error_set(err, "interrupted at row %zu of %zu: nothing was written", row, m->params.rows);
        event e = next_visible_event(m);
        if (write_message(message, m, &e, err) || write_book(orderbook, m, err))
            return -1;
    }
    return 0;
}

static int check_params(const lob_synth_params *params, io_error *err) {
    if (params->rows < 1)
        return io_error_set(err, "0 rows: expected 1 or more");
    if (params->levels < 1 || params->levels > LEVELS_MAX)
        return io_error_set(err, "%d levels: expected 1 to %d", params->levels, LEVELS_MAX);
    if (!(params->events_per_second >= 1e-3 && params->events_per_second <= 1e6))
        return io_error_set(err, "%g events per second: expected 0.001 to 1000000", params->events_per_second);
    if (!(params->hidden_share >= 0 && params->hidden_share <= 0.5))
        return io_error_set(err, "hidden share of %g: expected 0 to 0.5", params->hidden_share);
    return 0;
}

lob_synth_params lob_synth_default(void) {
    return (lob_synth_params){.seed = 1, .rows = 100000, .levels = 10, .events_per_second = 50};
}

int lob_synth_write(const lob_synth_params *params, const char *message_path, const char *orderbook_path,
                    io_error *err) {
    lob_synth_params defaults = lob_synth_default();
    output message = {0}, orderbook = {0};
    if (check_params(params ? params : &defaults, err))
        return -1;
    if (io_atomic_same(message_path, orderbook_path))
        return io_error_set(err, "%s: the message file and the orderbook file cannot be one file",
                            io_error_path(message_path));
    market *m = calloc(1, sizeof *m);
    if (!m)
        return io_error_set(err, "out of memory");
    open_market(m, params ? params : &defaults);
    int result = output_open(&message, message_path, err) || output_open(&orderbook, orderbook_path, err) ||
                 write_rows(m, &message, &orderbook, err);
    free(m);
    result = output_close(&message, result ? NULL : err) || result;
    result = output_close(&orderbook, result ? NULL : err) || result;
    result = result || io_atomic_commit(&message.file, err) || io_atomic_commit(&orderbook.file, err);
    io_atomic_abort(&message.file);
    io_atomic_abort(&orderbook.file);
    return result ? -1 : 0;
}
