/* Products of small matrices of bfloat16, summed in float32: the only place where processors differ.
 *
 * A row of the left side is contiguous. The right side comes in panels of 16 columns, cut along the inner dimension into
 * tiles of 32: tile t holds, for each pair of inner indices 32t + 2p, 32t + 2p + 1 (p = 0..15), the two numbers of
 * column 0, the two of column 1, and so on: 16 x 32 numbers, 1 KiB. So Intel's AMX wants it, and AVX-512's dot product too.
 *
 * A row of the result depends on its own row of the left side only, and is summed in the same order whatever the number
 * of rows is, so a request's numbers are the same bits alone and in any batch. Rows are computed in sixteens: the left
 * side has memory for the next multiple of 16 rows, with anything in it.
 */
#pragma once

#include "vectors.h"

enum { TILE_ROWS = 16, TILE_INNER = 32, TILE = 16 * TILE_INNER };

/* A thread calls this before the first product of a kernel: tile_setup before whole tiles, and tile_setup_half
 * before tile_panel and tile_halves of so many rows: 1..16. */
static inline void tile_setup(void);
static inline void tile_setup_half(int rows);

/* A thread calls this when it will multiply nothing for a while: its tiles need not be saved when another gets its core. */
static inline void tile_release(void);

/* Sums of left[rows, 32 tiles] x two panels, for 1..32 rows: set to zero, or to what was stored before, grown a tile of
 * either panel at a time, and stored to out[row][0..31], rows `out_stride` floats apart. A thread has one such product
 * under way. */
typedef struct TileSums TileSums;
static inline void tile_zero(TileSums *sums, int rows);
static inline void tile_resume(TileSums *sums, int rows, const float *from, long from_stride);
static inline void tile_add(TileSums *sums, int rows, const bf16 *left, long left_stride, const bf16 *tile0,
                            const bf16 *tile1);
static inline void tile_store(const TileSums *sums, int rows, float *out, long out_stride);

/* out[row][0..15] = left[16 rows, 32 tiles] x one panel; only `rows` of the 16 need be right. */
static inline void tile_panel(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *panel, float *out,
                              long out_stride);

/* out[row][0..63] = left[16 rows, 16 halves] x right: half[i] is where the half tiles (8 pairs, 16 columns: 512 bytes)
 * of inner indices 16 i .. 16 i + 15 lie, one for each 16 of the 64 columns, one after the other. */
static inline void tile_halves(int rows, int halves, const bf16 *left, long left_stride, const bf16 *const *half,
                               float *out, long out_stride);

#if defined(__AMX_BF16__) && !defined(NO_AMX)

#include <immintrin.h>

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64))) TileConfig;

/* GCC 12's intrinsics do not say what they read: neither all of a configuration, nor the memory of a tile. */
static inline void tile_configure(const TileConfig *config) { __asm__ volatile("ldtilecfg %0" ::"m"(*config)); }
static inline void tile_fence(void) { __asm__ volatile("" ::: "memory"); }

static inline void tile_release(void) { __asm__ volatile("tilerelease" ::: "memory"); }

static inline void tile_setup(void) {
    static const TileConfig whole = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    tile_configure(&whole);
}

/* 0..3 sums, 4 left half, 5 right half. */
static inline void tile_setup_half(int rows) {
    const uint8_t few = (uint8_t)rows;
    const TileConfig half = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 32, 64, 64, 64}, .rows = {few, few, few, few, few, 8, few, 16}};
    tile_configure(&half);
}

struct TileSums {
    char in_registers;
};

static inline void tile_zero(TileSums *sums, int rows) {
    (void)sums;
    _tile_zero(0);
    _tile_zero(1);
    if (rows > TILE_ROWS) {
        _tile_zero(2);
        _tile_zero(3);
    }
}

static inline void tile_resume(TileSums *sums, int rows, const float *from, long from_stride) {
    (void)sums;
    tile_fence();
    _tile_loadd(0, from, from_stride * 4);
    _tile_loadd(1, from + LANES, from_stride * 4);
    if (rows > TILE_ROWS) {
        _tile_loadd(2, from + TILE_ROWS * from_stride, from_stride * 4);
        _tile_loadd(3, from + TILE_ROWS * from_stride + LANES, from_stride * 4);
    }
}

static inline void tile_add(TileSums *sums, int rows, const bf16 *left, long left_stride, const bf16 *tile0,
                            const bf16 *tile1) {
    (void)sums;
    tile_fence();
    _tile_loadd(4, left, left_stride * 2);
    _tile_loadd(6, tile0, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, tile1, 64);
    _tile_dpbf16ps(1, 4, 7);
    if (rows > TILE_ROWS) {
        _tile_loadd(5, left + TILE_ROWS * left_stride, left_stride * 2);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

static inline void tile_store(const TileSums *sums, int rows, float *out, long out_stride) {
    (void)sums;
    _tile_stored(0, out, out_stride * 4);
    _tile_stored(1, out + LANES, out_stride * 4);
    if (rows > TILE_ROWS) {
        _tile_stored(2, out + TILE_ROWS * out_stride, out_stride * 4);
        _tile_stored(3, out + TILE_ROWS * out_stride + LANES, out_stride * 4);
    }
    tile_fence();
}

static inline void tile_panel(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *panel, float *out,
                              long out_stride) {
    (void)rows;
    tile_fence();
    _tile_zero(0);
    for (int t = 0; t < tiles; t++) {
        _tile_loadd(6, left + t * TILE_INNER, left_stride * 2);
        _tile_loadd(7, panel + t * TILE, 64);
        _tile_dpbf16ps(0, 6, 7);
    }
    _tile_stored(0, out, out_stride * 4);
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

#else

static inline void tile_setup(void) {}
static inline void tile_release(void) {}
static inline void tile_setup_half(int rows) { (void)rows; }

/* sums[c] += left pair x the pairs of 16 columns */
static inline f32x16 multiply_pairs(f32x16 sums, uint32_t pair, const bf16 *right) {
#if defined(__AVX512BF16__)
    return (f32x16)_mm512_dpbf16_ps((__m512)sums, (__m512bh)_mm512_set1_epi32((int)pair),
                                    (__m512bh)_mm512_loadu_si512(right));
#else
    u32x16 both;
    memcpy(&both, right, sizeof both);
    u32x16 left = (u32x16){} + pair;
    sums += (f32x16)(left << 16) * (f32x16)(both << 16);
    return sums + (f32x16)(left & 0xffff0000u) * (f32x16)(both & 0xffff0000u);
#endif
}

static inline uint32_t pair_at(const bf16 *left) {
    uint32_t pair;
    memcpy(&pair, left, sizeof pair);
    return pair;
}

struct TileSums {
    f32x16 halves[2][2 * TILE_ROWS];
};

static inline void tile_zero(TileSums *sums, int rows) {
    for (int half = 0; half < 2; half++)
        for (int row = 0; row < rows; row++)
            sums->halves[half][row] = splat(0);
}

static inline void tile_resume(TileSums *sums, int rows, const float *from, long from_stride) {
    for (int half = 0; half < 2; half++)
        for (int row = 0; row < rows; row++)
            sums->halves[half][row] = load(from + row * from_stride + half * LANES);
}

/* `rows` is a constant: sums stay in registers. */
static inline __attribute__((always_inline)) void add_rows(int rows, f32x16 *sums, const bf16 *left, long left_stride,
                                                           const bf16 *tile) {
    f32x16 some[4];
    for (int i = 0; i < rows; i++)
        some[i] = sums[i];
    for (int p = 0; p < 16; p++)
        for (int i = 0; i < rows; i++)
            some[i] = multiply_pairs(some[i], pair_at(left + i * left_stride + 2 * p), tile + p * TILE_INNER);
    for (int i = 0; i < rows; i++)
        sums[i] = some[i];
}

/* Four rows at a time read the right side once for four. */
static inline void add_tile(f32x16 *sums, int rows, const bf16 *left, long left_stride, const bf16 *tile) {
    int row = 0;
    for (; row + 4 <= rows; row += 4)
        add_rows(4, sums + row, left + row * left_stride, left_stride, tile);
    for (; row < rows; row++)
        add_rows(1, sums + row, left + row * left_stride, left_stride, tile);
}

static inline void tile_add(TileSums *sums, int rows, const bf16 *left, long left_stride, const bf16 *tile0,
                            const bf16 *tile1) {
    add_tile(sums->halves[0], rows, left, left_stride, tile0);
    add_tile(sums->halves[1], rows, left, left_stride, tile1);
}

static inline void tile_store(const TileSums *sums, int rows, float *out, long out_stride) {
    for (int half = 0; half < 2; half++)
        for (int row = 0; row < rows; row++)
            store(out + row * out_stride + half * LANES, sums->halves[half][row]);
}

static inline void tile_panel(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *panel, float *out,
                              long out_stride) {
    f32x16 sums[TILE_ROWS] = {};
    for (int t = 0; t < tiles; t++)
        add_tile(sums, rows, left + t * TILE_INNER, left_stride, panel + t * TILE);
    for (int row = 0; row < rows; row++)
        store(out + row * out_stride, sums[row]);
}

static inline void tile_halves(int rows, int halves, const bf16 *left, long left_stride, const bf16 *const *half,
                               float *out, long out_stride) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < 4; column++) {
            f32x16 sums = {};
            for (int i = 0; i < halves; i++)
                for (int p = 0; p < 8; p++)
                    sums = multiply_pairs(sums, pair_at(left + row * left_stride + 16 * i + 2 * p),
                                          half[i] + column * TILE / 2 + p * TILE_INNER);
            store(out + row * out_stride + column * LANES, sums);
        }
}

#endif
