/* tile.h on vectors. The right side of a block is its columns, one after the other. A sum is kept as 16 partial sums,
 * over every sixteenth pair of inputs, which are added up at the end. */
#pragma once

/* Tiles for which partial sums stay in registers; and those of a block that are multiplied before the next panels are.
 */
enum { TILES_AT_ONCE = 6, TILES_CACHED = 1 << 16 };

static inline void tile_setup(Columns columns) { (void)columns; }
static inline void tile_setup_half(int rows) { (void)rows; }
static inline void tile_release(void) {}

static inline void right_put(bf16 *right, int inputs, int columns, int pair, f32x16 even, f32x16 odd) {
    bf16 pairs[2 * COLUMNS];
    store_bf16_pairs(pairs, even, odd, COLUMNS);
    for (int column = 0; column < columns; column++)
        memcpy(right + (long)column * inputs + 2 * pair, pairs + 2 * column, 2 * sizeof(bf16));
}

static inline void right_from_rows(bf16 *right, int inputs, int columns, const bf16 *rows) {
    memcpy(right, rows, (size_t)columns * inputs * sizeof(bf16));
}

/* sums[lane] += the products of pair `lane` of both */
static inline f32x16 multiply_pairs(f32x16 sums, u32x16 left, u32x16 right) {
#if defined(__AVX512BF16__)
    return (f32x16)_mm512_dpbf16_ps((__m512)sums, (__m512bh)left, (__m512bh)right);
#else
    sums += (f32x16)(left << 16) * (f32x16)(right << 16);
    return sums + (f32x16)(left & 0xffff0000u) * (f32x16)(right & 0xffff0000u);
#endif
}

static inline u32x16 pairs_at(const bf16 *from) {
    u32x16 pairs;
    memcpy(&pairs, from, sizeof pairs);
    return pairs;
}

static inline u32x16 pair_everywhere(const bf16 *from) {
    uint32_t pair;
    memcpy(&pair, from, sizeof pair);
    return (u32x16){} + pair;
}

struct TileSums {
    f32x16 of[PANELS][BLOCKS][COLUMNS][LANES]; /* [column][output] */
};

/* `first` is 0: see TILES_CACHED. */
static inline void tile_begin(TileSums *sums, Columns columns, int first, const Product *before) {
    (void)first;
    (void)before;
    for (int panel = 0; panel < PANELS; panel++)
        for (int block = 0; block < BLOCKS; block++)
            memset(sums->of[panel][block], 0, (size_t)columns.of[block] * sizeof sums->of[0][0][0]);
}

/* Four outputs and up to four columns, whose partial sums stay in registers. */
static inline void add_four(f32x16 (*sums)[LANES], int columns, int tiles, const bf16 *left, int inputs,
                            const bf16 *right) {
    f32x16 all[4][4];
    for (int column = 0; column < columns; column++)
        for (int i = 0; i < 4; i++)
            all[column][i] = sums[column][i];
    for (int t = 0; t < tiles; t++)
        for (int i = 0; i < 4; i++) {
            const u32x16 weights = pairs_at(left + (long)t * PANELS * TILE + i * TILE_INNER);
            for (int column = 0; column < columns; column++)
                all[column][i] =
                    multiply_pairs(all[column][i], weights, pairs_at(right + (long)column * inputs + t * TILE_INNER));
        }
    for (int column = 0; column < columns; column++)
        for (int i = 0; i < 4; i++)
            sums[column][i] = all[column][i];
}

static inline void tile_add(TileSums *sums, Columns columns, int tiles, const bf16 *left, int inputs,
                            const bf16 *const right[BLOCKS], int first) {
    for (int panel = 0; panel < PANELS; panel++)
        for (int block = 0; block < BLOCKS; block++)
            for (int output = 0; output < LANES; output += 4) {
                const bf16 *weights = left + panel * TILE + output * TILE_INNER,
                           *numbers = right[block] + first * TILE_INNER;
                f32x16(*of)[LANES] = (f32x16(*)[LANES]) & sums->of[panel][block][0][output];
                int column = 0;
                for (; column + 4 <= columns.of[block]; column += 4)
                    add_four(of + column, 4, tiles, weights, inputs, numbers + (long)column * inputs);
                for (; column < columns.of[block]; column++)
                    add_four(of + column, 1, tiles, weights, inputs, numbers + (long)column * inputs);
            }
}

/* Sums of each of 16 vectors' lanes. */
static inline f32x16 sum_each(f32x16 rows[LANES]) {
    transpose(rows);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            rows[i] += rows[i + half];
    return rows[0];
}

static inline void tile_store(TileSums *sums, Columns columns, Product *to) {
    for (int panel = 0; panel < PANELS; panel++)
        for (int block = 0; block < BLOCKS; block++) {
            const int count = columns.of[block];
            for (int column = 0; column < count; column++) {
                float outputs[LANES], *at = to->of[panel][block] + column;
                store(outputs, sum_each(sums->of[panel][block][column]));
                for (int output = 0; output < LANES; output++)
                    at[output * count] = outputs[output];
            }
        }
}

/* Rows of vectors: 16 columns of the result at a time. */
static inline f32x16 row_times_panel(f32x16 sums, int pairs, const bf16 *left, const bf16 *right) {
    for (int pair = 0; pair < pairs; pair++)
        sums = multiply_pairs(sums, pair_everywhere(left + 2 * pair), pairs_at(right + pair * TILE_INNER));
    return sums;
}

static inline void tile_panels(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *const *panel,
                               float *out, long out_stride) {
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < PANELS_AT_ONCE; i++)
            store(out + row * out_stride + i * LANES,
                  row_times_panel((f32x16){}, tiles * TILE_INNER / 2, left + row * left_stride, panel[i]));
}

static inline void tile_halves(int rows, int halves, const bf16 *left, long left_stride, const bf16 *const *half,
                               float *out, long out_stride) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < 4; column++) {
            f32x16 sums = {};
            for (int i = 0; i < halves; i++)
                sums = row_times_panel(sums, TILE_INNER / 4, left + row * left_stride + 16 * i,
                                       half[i] + column * TILE / 2);
            store(out + row * out_stride + column * LANES, sums);
        }
}
