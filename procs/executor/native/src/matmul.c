/* Linear projections; see decoder.h.
 *
 * Few rows are one block, and every weight is used once: a piece of work is a pair of panels, and a tile is dequantized
 * while the one before is multiplied. Many rows: a piece of work is some rows and some pairs of panels, as many as stay
 * in the second cache; they are dequantized once, and each block of rows, which stays in the first cache, meets all of them.
 */
#include "decoder.h"

enum { PAIR = 2 * LANES, PIECE = 256, MOST_PAIRS = 32, DEEP = 9, CACHED = 1 << 18, MOST_INPUTS = 32768 };

static void put(const Weight *weight, int epilogue, int rows, int column, int columns, const float *block, void *out,
                long out_stride) {
    for (int half = 0; half < 2; half++) {
        const int at = column + half * LANES, wide = columns - at < LANES ? columns - at : LANES;
        const f32x16 bias = weight->bias ? load(weight->bias + at) : splat(0);
        for (int row = 0; row < rows; row++) {
            float *to = (float *)out + row * out_stride + at;
            f32x16 x = load(block + row * PAIR + half * LANES) + bias;
            if (wide < LANES) {
                float lanes[LANES];
                store(lanes, x);
                for (int i = 0; i < wide; i++)
                    to[i] = epilogue == EPILOGUE_ADD ? to[i] + lanes[i] : lanes[i];
            } else {
                store(to, epilogue == EPILOGUE_ADD ? load(to) + x : x);
            }
        }
    }
}

static void put_gated(int rows, int column, const float *block, bf16 *out, long out_stride) {
    for (int row = 0; row < rows; row++) {
        f32x16 gate = load(block + row * PAIR), up = load(block + row * PAIR + LANES);
        store_bf16(out + row * out_stride + column / 2, gate / (1.0f + exponential(-gate)) * up);
    }
}

typedef struct {
    const bf16 *tile[2];
} Tiles;

static inline Tiles tiles_at(const Weight *weight, int pair, int tile, bf16 room[2][TILE]) {
    return (Tiles){{weight_tile(weight, 2 * pair, tile, room[0]), weight_tile(weight, 2 * pair + 1, tile, room[1])}};
}

/* A block of rows, with weights that are used for no other. */
static void multiply_once(const Weight *weight, int pair, int rows, const bf16 *left, float *block) {
    const int tiles = weight->inputs / TILE_INNER;
    bf16 room[2][2][TILE] __attribute__((aligned(64)));
    TileSums sums;
    tile_zero(&sums, rows);
    Tiles next = tiles_at(weight, pair, 0, room[0]);
    for (int t = 0; t < tiles; t++) {
        const Tiles now = next;
        if (t + 1 < tiles)
            next = tiles_at(weight, pair, t + 1, room[(t + 1) % 2]);
        tile_add(&sums, rows, left + t * TILE_INNER, weight->inputs, now.tile[0], now.tile[1]);
    }
    tile_store(&sums, rows, block, PAIR);
}

/* `tiles` more tiles of a product; the first begin it. */
static void multiply(int tiles, int first, const bf16 *const *panels, int rows, const bf16 *left, long left_stride,
                     float *block) {
    TileSums sums;
    if (first)
        tile_resume(&sums, rows, block, PAIR);
    else
        tile_zero(&sums, rows);
    for (int t = first; t < first + tiles; t++)
        tile_add(&sums, rows, left + t * TILE_INNER, left_stride, panels[0] + t * TILE, panels[1] + t * TILE);
    tile_store(&sums, rows, block, PAIR);
}

/* A block of rows and several pairs of panels, DEEP tiles at a time, so that those of the left side stay in the first cache,
 * which two threads may share. */
static void multiply_all(int tiles, int pairs, const bf16 *const panels[][2], int rows, const bf16 *left, long left_stride,
                         float blocks[][PAIR * PAIR]) {
    for (int first = 0; first < tiles; first += DEEP)
        for (int pair = 0; pair < pairs; pair++)
            multiply(tiles - first < DEEP ? tiles - first : DEEP, first, panels[pair], rows, left, left_stride, blocks[pair]);
}

static int at_least_one(int x) { return x > 1 ? x : 1; }

/* A whole panel: where it lies, or dequantized into `room`. */
static const bf16 *panel_of(const Weight *weight, int panel, bf16 *room) {
    const bf16 *first = weight_tile(weight, panel, 0, room);
    if (first == room)
        for (int t = 1; t < weight->inputs / TILE_INNER; t++)
            weight_tile(weight, panel, t, room + t * TILE);
    return first;
}

static void finish(const Weight *weight, int epilogue, int rows, int pair, int columns, const float *block, void *out,
                   long out_stride) {
    if (epilogue == EPILOGUE_GATE)
        put_gated(rows, pair * PAIR, block, out, out_stride);
    else
        put(weight, epilogue, rows, pair * PAIR, columns, block, out, out_stride);
}

static void few_rows(const Weight *weight, int rows, const bf16 *left, int epilogue, void *out, long out_stride,
                     int columns, atomic_int *counter) {
    float block[PAIR * PAIR] __attribute__((aligned(64)));
    for (int pair; (pair = next_item(counter, weight->outputs / PAIR)) >= 0;) {
        multiply_once(weight, pair, rows, left, block);
        finish(weight, epilogue, rows, pair, columns, block, out, out_stride);
    }
}

static void many_rows(const Weight *weight, int rows, const bf16 *left, int epilogue, void *out, long out_stride,
                      int columns, atomic_int *counter) {
    static _Thread_local bf16 room[MOST_INPUTS * PAIR] __attribute__((aligned(64)));
    static _Thread_local float blocks[MOST_PAIRS][PAIR * PAIR] __attribute__((aligned(64)));
    const long inputs = weight->inputs, item_bytes = epilogue == EPILOGUE_GATE ? sizeof(bf16) : sizeof(float);
    const int pairs = weight->outputs / PAIR, tiles = weight->inputs / TILE_INNER;
    const int fitting = at_least_one(CACHED / (PAIR * weight->inputs)), fair = at_least_one(pairs / 4);
    int chunk = fitting < fair ? fitting : fair;
    chunk = chunk < MOST_PAIRS ? chunk : MOST_PAIRS;
    const int chunks = (pairs + chunk - 1) / chunk, pieces = (rows + PIECE - 1) / PIECE;
    for (int item; (item = next_item(counter, chunks * pieces)) >= 0;) {
        const int first = item / pieces * chunk, count = pairs - first < chunk ? pairs - first : chunk;
        const int from = item % pieces * PIECE, to = from + PIECE < rows ? from + PIECE : rows;
        const bf16 *panels[MOST_PAIRS][2];
        for (int panel = 0; panel < 2 * count; panel++)
            panels[panel / 2][panel % 2] = panel_of(weight, 2 * first + panel, room + panel * LANES * inputs);
        for (int row = from; row < to; row += PAIR) {
            const int now = to - row < PAIR ? to - row : PAIR;
            char *rows_out = (char *)out + row * out_stride * item_bytes;
            multiply_all(tiles, count, (const bf16 *const(*)[2])panels, now, left + row * inputs, inputs, blocks);
            for (int pair = 0; pair < count; pair++)
                finish(weight, epilogue, now, first + pair, columns, blocks[pair], rows_out, out_stride);
        }
    }
}

void matmul(const Weight *weight, int rows, const bf16 *left, int epilogue, void *out, long out_stride, int columns,
            atomic_int *counter) {
    tile_setup();
    if (rows <= PAIR)
        few_rows(weight, rows, left, epilogue, out, out_stride, columns, counter);
    else
        many_rows(weight, rows, left, epilogue, out, out_stride, columns, counter);
}
