/* Weights of linear projections, in the order in which the kernels read them.
 *
 * Panels of 16 outputs, and in each of these tiles of 32 inputs (see tile.h), outputs filled up with zeros. Quantized kinds keep
 * the numbers of GGUF's blocks of 32 inputs: a tile is 16 rows of 32 whole numbers, in the order of the bfloat16 tile, and
 * then a float16 scale for each of the 16 outputs (int4: and a minimum). They are dequantized to bfloat16 when
 * they are used, in the processor's cache, so that they give the same bits as the same weights kept in bfloat16.
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

/* Tile `tile` of a panel in bfloat16: where it lies, or dequantized into `room` (1 KiB). */
const bf16 *weight_tile(const Weight *weight, int panel, int tile, bf16 *room);
