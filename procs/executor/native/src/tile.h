/* Products of small matrices of bfloat16, summed in float32: the only place where processors differ.
 *
 * In linear projections weights are the left side: tiles of 16 outputs x 32 inputs, row by row, 1 KiB; those of two
 * panels of 16 outputs by turns. Tokens are the right side, in blocks of up to 16, columns of the product. How a block
 * lies in memory is this file's secret: right_put and right_from_rows know. In attention (tile_panels, tile_halves)
 * queries are the left side and what is cached is the right one: see attention.c.
 *
 * A column of the result depends on its own column of the right side only, and is summed in the same order whatever the
 * number of columns is, so a token's numbers are the same bits alone and in any batch.
 */
#pragma once

#include "vectors.h"

enum { TILE_INNER = 32, TILE = 16 * TILE_INNER, COLUMNS = 16, PANELS = 2, BLOCKS = 2 };

/* A product of two panels with one or two blocks of columns: of[panel][block][output * columns of the block + column].
 */
typedef struct {
    float of[PANELS][BLOCKS][LANES * COLUMNS];
} Product;

/* The columns of one or two blocks; of no second one 0. */
typedef struct {
    int of[BLOCKS];
} Columns;

/* Blocks of up to 16 tokens: how many there are, where one begins, what it holds. */
static inline int blocks_of(int tokens) { return (tokens + COLUMNS - 1) / COLUMNS; }
static inline int columns_of(int tokens, int block) {
    const int left = tokens - block * COLUMNS;
    return left < 0 ? 0 : left < COLUMNS ? left : COLUMNS;
}

/* The right side of a block of `columns` tokens, `inputs` numbers each; of one token it is its numbers in their order.
 * right_put: numbers 2 pair and 2 pair + 1 of all columns. right_from_rows: all of it, from [columns, inputs]. */
static inline void right_put(bf16 *right, int inputs, int columns, int pair, f32x16 even, f32x16 odd);
static inline void right_from_rows(bf16 *right, int inputs, int columns, const bf16 *rows);

/* A thread calls this before the first product of a kernel: tile_setup before products of blocks with so many columns,
 * and tile_setup_half before tile_panels and tile_halves of so many rows: 1..16. */
static inline void tile_setup(Columns columns);
static inline void tile_setup_half(int rows);

/* A thread calls this when it will multiply nothing for a while: its tiles need not be saved when another gets its
 * core.
 */
static inline void tile_release(void);

/* Sums of a product: begun with those of the tiles before the first, as they were stored, or zero; grown by `tiles`
 * tiles of two panels ([tile][panel]) with one or two blocks; and stored. A thread has one such product under way. */
typedef struct TileSums TileSums;
static inline void tile_begin(TileSums *sums, Columns columns, int first, const Product *before);
static inline void tile_add(TileSums *sums, Columns columns, int tiles, const bf16 *left, int inputs,
                            const bf16 *const right[BLOCKS], int first);
static inline void tile_store(TileSums *sums, Columns columns, Product *to);

/* out[row][0..63] = left[16 rows, 32 tiles] x four panels of 16 columns, of which only `rows` of the 16 need be right:
 * a panel is tiles of 32 inputs that hold, for each pair of inputs, the two numbers of column 0, of column 1, ... */
enum { PANELS_AT_ONCE = 4 };
static inline void tile_panels(int rows, int tiles, const bf16 *left, long left_stride, const bf16 *const *panel,
                               float *out, long out_stride);

/* out[row][0..63] = left[16 rows, 16 halves] x right: half[i] is where the half tiles (8 pairs, 16 columns: 512 bytes)
 * of inner indices 16 i .. 16 i + 15 lie, one for each 16 of the 64 columns, one after the other. */
static inline void tile_halves(int rows, int halves, const bf16 *left, long left_stride, const bf16 *const *half,
                               float *out, long out_stride);

#if defined(__AMX_BF16__) && !defined(NO_AMX)
#include "tile_amx.h"
#else
#include "tile_vectors.h"
#endif
