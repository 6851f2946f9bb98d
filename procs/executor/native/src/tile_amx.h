/* tile.h on Intel's AMX. Of a block's right side, pairs of inputs are rows, and in a row lie the two numbers of column
 * 0, of column 1, ... */
#pragma once

#include <immintrin.h>

/* Tiles that are multiplied while the next ones are dequantized, and those of a block that stay in the first cache,
 * which two threads may share. */
enum { TILES_AT_ONCE = 2, TILES_CACHED = 9 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64))) TileConfig;

/* GCC 12's intrinsics do not say what they read: neither all of a configuration, nor the memory of a tile. */
static inline void tile_configure(const TileConfig *config) { __asm__ volatile("ldtilecfg %0" ::"m"(*config)); }
static inline void tile_fence(void) { __asm__ volatile("" ::: "memory"); }

static inline void tile_release(void) { __asm__ volatile("tilerelease" ::: "memory"); }

/* Tiles 0..3 are sums (panel 0 of both blocks, panel 1 of both), 4 and 5 the left side, 6 and 7 the right. */
static inline void tile_setup(Columns columns) {
    const uint16_t first = (uint16_t)(columns.of[0] * 4), second = (uint16_t)(columns.of[1] * 4);
    const uint8_t rows = second ? 16 : 0;
    const TileConfig config = {.palette = 1,
                               .row_bytes = {first, second, first, second, 64, 64, first, second},
                               .rows = {16, rows, 16, rows, 16, 16, 16, rows}};
    tile_configure(&config);
}

/* 0..3 sums, 4 left half, 5 right half, 6 left, 7 right. */
static inline void tile_setup_half(int rows) {
    const uint8_t few = (uint8_t)rows;
    const TileConfig half = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 32, 64, 64, 64}, .rows = {few, few, few, few, few, 8, few, 16}};
    tile_configure(&half);
}

static inline void right_put(bf16 *right, int inputs, int columns, int pair, f32x16 even, f32x16 odd) {
    (void)inputs;
    store_bf16_pairs(right + 2 * pair * columns, even, odd, columns);
}

static inline void right_from_rows(bf16 *right, int inputs, int columns, const bf16 *rows) {
    for (int input = 0; input < inputs; input += TILE_INNER, right += TILE_INNER * columns) {
        f32x16 pairs[LANES] = {}; /* each lane two numbers of bfloat16 */
        for (int column = 0; column < columns; column++)
            memcpy(&pairs[column], rows + (long)column * inputs + input, sizeof pairs[0]);
        transpose(pairs);
        for (int pair = 0; pair < LANES; pair++)
            store_some((float *)right + pair * columns, pairs[pair], columns);
    }
}

struct TileSums {
    char in_registers;
};

static inline void tile_zero(Columns columns) {
    _tile_zero(0);
    _tile_zero(2);
    if (columns.of[1]) {
        _tile_zero(1);
        _tile_zero(3);
    }
}

static inline void tile_begin(TileSums *sums, Columns columns, int first, const Product *before) {
    (void)sums;
    tile_fence();
    if (!first) {
        tile_zero(columns);
        return;
    }
    _tile_loadd(0, before->of[0][0], columns.of[0] * 4);
    _tile_loadd(2, before->of[1][0], columns.of[0] * 4);
    if (columns.of[1]) {
        _tile_loadd(1, before->of[0][1], columns.of[1] * 4);
        _tile_loadd(3, before->of[1][1], columns.of[1] * 4);
    }
}

static inline void tile_add(TileSums *sums, Columns columns, int tiles, const bf16 *left, int inputs,
                            const bf16 *const right[BLOCKS], int first) {
    (void)sums;
    (void)inputs;
    tile_fence();
    for (int t = 0; t < tiles; t++, left += PANELS * TILE) {
        _tile_loadd(6, right[0] + (long)(first + t) * TILE_INNER * columns.of[0], columns.of[0] * 4);
        _tile_loadd(4, left, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, left + TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (columns.of[1]) {
            _tile_loadd(7, right[1] + (long)(first + t) * TILE_INNER * columns.of[1], columns.of[1] * 4);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
}

static inline void tile_store(TileSums *sums, Columns columns, Product *to) {
    (void)sums;
    _tile_stored(0, to->of[0][0], columns.of[0] * 4);
    _tile_stored(2, to->of[1][0], columns.of[0] * 4);
    if (columns.of[1]) {
        _tile_stored(1, to->of[0][1], columns.of[1] * 4);
        _tile_stored(3, to->of[1][1], columns.of[1] * 4);
    }
    tile_fence();
}
static inline void tile_panels(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *const *panel,
                               float *out, long out_stride) {
    (void)rows;
    tile_fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int t = 0; t < tiles; t++) {
        _tile_loadd(6, left + t * TILE_INNER, left_stride * 2);
        _tile_loadd(7, panel[0] + t * TILE, 64);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(7, panel[1] + t * TILE, 64);
        _tile_dpbf16ps(1, 6, 7);
        _tile_loadd(7, panel[2] + t * TILE, 64);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(7, panel[3] + t * TILE, 64);
        _tile_dpbf16ps(3, 6, 7);
    }
    _tile_stored(0, out, out_stride * 4);
    _tile_stored(1, out + LANES, out_stride * 4);
    _tile_stored(2, out + 2 * LANES, out_stride * 4);
    _tile_stored(3, out + 3 * LANES, out_stride * 4);
    tile_fence();
}

static inline void tile_halves(int rows, int halves, const bf16 *left, long left_stride, const bf16 *const *half,
                               float *out, long out_stride) {
    (void)rows;
    tile_fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < halves; i++) {
        _tile_loadd(4, left + i * 16, left_stride * 2);
        _tile_loadd(5, half[i], 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(5, half[i] + TILE / 2, 64);
        _tile_dpbf16ps(1, 4, 5);
        _tile_loadd(5, half[i] + TILE, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(5, half[i] + TILE + TILE / 2, 64);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, out, out_stride * 4);
    _tile_stored(1, out + LANES, out_stride * 4);
    _tile_stored(2, out + 2 * LANES, out_stride * 4);
    _tile_stored(3, out + 3 * LANES, out_stride * 4);
    tile_fence();
}
