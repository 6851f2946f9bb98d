/* Linear projections; see decoder.h. A piece of work is two panels of weights and up to PIECE rows. Where these are more
 * than one block of rows, the panels are dequantised once for all blocks; else a tile is dequantised while the one before
 * is multiplied. */
#include "decoder.h"

enum { PAIR = 2 * LANES, PIECE = 512, MOST_INPUTS = 32768 };

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

static void multiply(int tiles, const bf16 *const *panels, int rows, const bf16 *left, long left_stride, float *block) {
    TileSums sums;
    tile_zero(&sums, rows);
    for (int t = 0; t < tiles; t++)
        tile_add(&sums, rows, left + t * TILE_INNER, left_stride, panels[0] + t * TILE, panels[1] + t * TILE);
    tile_store(&sums, rows, block, PAIR);
}

/* A whole panel: where it lies, or dequantised into `room`. */
static const bf16 *panel_of(const Weight *weight, int panel, bf16 *room) {
    const bf16 *first = weight_tile(weight, panel, 0, room);
    if (first == room)
        for (int t = 1; t < weight->inputs / TILE_INNER; t++)
            weight_tile(weight, panel, t, room + t * TILE);
    return first;
}

void matmul(const Weight *weight, int rows, const bf16 *left, int epilogue, void *out, long out_stride, int columns,
            atomic_int *counter) {
    static _Thread_local bf16 room[2][MOST_INPUTS * LANES] __attribute__((aligned(64)));
    const int tiles = weight->inputs / TILE_INNER, pairs = weight->outputs / PAIR, pieces = (rows + PIECE - 1) / PIECE;
    float block[PAIR * PAIR] __attribute__((aligned(64)));
    tile_setup();
    for (int item; (item = next_item(counter, pairs * pieces)) >= 0;) {
        const int pair = item / pieces, from = item % pieces * PIECE, to = from + PIECE < rows ? from + PIECE : rows;
        const bf16 *panels[2] = {0, 0};
        if (to - from > PAIR)
            for (int half = 0; half < 2; half++)
                panels[half] = panel_of(weight, 2 * pair + half, room[half]);
        for (int row = from; row < to; row += PAIR) {
            const int now = to - row < PAIR ? to - row : PAIR;
            const bf16 *block_left = left + (long)row * weight->inputs;
            if (panels[0])
                multiply(tiles, panels, now, block_left, weight->inputs, block);
            else
                multiply_once(weight, pair, now, block_left, block);
            if (epilogue == EPILOGUE_GATE)
                put_gated(now, pair * PAIR, block, (bf16 *)out + row * out_stride, out_stride);
            else
                put(weight, epilogue, now, pair * PAIR, columns, block, (float *)out + row * out_stride, out_stride);
        }
    }
}
