/* Weights of linear projections, in the order in which the kernels read them.
 *
 * Panels of 16 outputs, outputs filled up with zeros, cut into tiles of 32 inputs (see tile.h); the tiles of two panels
 * lie by turns. Quantized kinds keep the numbers of GGUF's blocks of 32 inputs: a tile is 16 rows of 32 whole numbers,
 * and then a float16 scale for each of the 16 outputs (int4: and a minimum). They are dequantized to bfloat16 when they
 * are used, in the processor's cache, so that they give the same bits as the same weights kept in bfloat16.
 */
#pragma once

#include "tile.h"

enum { WEIGHT_BF16, WEIGHT_INT8, WEIGHT_INT4 };

typedef struct {
    int32_t kind;
    int32_t outputs, inputs; /* multiples of 32: panels go in pairs, and a tile has 32 inputs */
    const uint8_t *tiles;
    const float *bias; /* [outputs] or 0 */
} Weight;

long weight_tile_bytes(int kind);

/* Where the tiles of a pair of panels begin. */
const uint8_t *weight_pair(const Weight *weight, int pair);

/* `count` tiles of a pair of panels from `first` on, in bfloat16, [tile][panel]: where they lie, or dequantized into
 * `room`. */
const bf16 *weight_tiles(const Weight *weight, int pair, int first, int count, bf16 *room);
