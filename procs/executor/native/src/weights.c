/* See weights.h. What makes the tiles is called once, while a model loads. */
#include "weights.h"

enum { AHEAD = 8192, BLOCK = 32, GGUF_Q4_0 = 2, GGUF_Q4_1 = 3, GGUF_Q8_0 = 8 };

typedef _Float16 f16;

typedef struct {
    int8_t numbers[TILE];
    f16 scales[LANES];
} Int8Tile;

typedef struct {
    uint8_t numbers[TILE / 2]; /* of 32: the first 16 in the low nibbles, the others in the high ones */
    f16 scales[LANES], minima[LANES];
} Int4Tile;

long weight_tile_bytes(int kind) {
    return kind == WEIGHT_INT8 ? (long)sizeof(Int8Tile) : kind == WEIGHT_INT4 ? (long)sizeof(Int4Tile) : TILE * 2;
}

/* The numbers of 16 outputs, each twice, since a row of a tile has pairs: outputs 0..7, and 8..15. */
typedef struct {
    f32x16 first, second;
} Twice;

/* float16 to float32: the exponent is put right by a product, which is exact for subnormal numbers too. Neither infinity
 * nor NaN is a scale. */
static inline f32x16 from_f16(const f16 *from) {
    u32x16 wide = widen_u16((const uint16_t *)from);
    f32x16 magnitude = (f32x16)((wide & 0x7fff) << 13) * 0x1p112f;
    return (f32x16)((u32x16)magnitude | (wide & 0x8000) << 16);
}

static inline Twice twice(const f16 *numbers) {
    f32x16 x = from_f16(numbers);
    return (Twice){__builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                   __builtin_shufflevector(x, x, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15)};
}

static inline f32x16 numbers_of(i32x16 whole) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_cvtepi32_ps((__m512i)whole);
#else
    return __builtin_convertvector(whole, f32x16);
#endif
}

static void dequantize_int8(const Int8Tile *tile, bf16 *to) {
    Twice scale = twice(tile->scales);
    for (int row = 0; row < TILE; row += TILE_INNER)
        store_bf16_pair(to + row, numbers_of(widen_i8(tile->numbers + row)) * scale.first,
                        numbers_of(widen_i8(tile->numbers + row + LANES)) * scale.second);
}

static void dequantize_int4(const Int4Tile *tile, bf16 *to) {
    Twice scale = twice(tile->scales), least = twice(tile->minima);
    for (int row = 0; row < TILE; row += TILE_INNER) {
        const i32x16 both = widen_u8(tile->numbers + row / 2);
        store_bf16_pair(to + row, numbers_of(both & 15) * scale.first + least.first,
                        numbers_of(both >> 4) * scale.second + least.second);
    }
}

const bf16 *weight_tile(const Weight *weight, int panel, int tile, bf16 *room) {
    const long bytes = weight_tile_bytes(weight->kind);
    const uint8_t *from = weight->tiles + ((long)panel * (weight->inputs / TILE_INNER) + tile) * bytes;
    fetch_ahead(from + AHEAD, (int)bytes);
    if (weight->kind == WEIGHT_BF16)
        return (const bf16 *)from;
    if (weight->kind == WEIGHT_INT8)
        dequantize_int8((const Int8Tile *)from, room);
    else
        dequantize_int4((const Int4Tile *)from, room);
    return room;
}

/* Where in a tile the number of an output (0..15) and an input (0..31) lies. */
static inline int place(int output, int input) { return input / 2 * TILE_INNER + output * 2 + input % 2; }

/* Numbers [outputs, inputs] in bfloat16 to tiles. Here and below outputs are a multiple of 16, inputs of 32, and `tiles`
 * is zeros. */
void weight_pack_bf16(const bf16 *numbers, int outputs, int inputs, uint8_t *tiles) {
    const int across = inputs / TILE_INNER;
    bf16 *to = (bf16 *)tiles;
    for (int output = 0; output < outputs; output++)
        for (int input = 0; input < inputs; input++)
            to[((long)(output / LANES) * across + input / TILE_INNER) * TILE + place(output % LANES, input % TILE_INNER)] =
                numbers[(long)output * inputs + input];
}

static void put_int8(Int8Tile *tile, int output, const uint8_t *block) {
    memcpy(&tile->scales[output], block, sizeof(f16));
    for (int input = 0; input < BLOCK; input++)
        tile->numbers[place(output, input)] = (int8_t)block[2 + input];
}

static void put_nibble(Int4Tile *tile, int at, int number) {
    uint8_t *byte = &tile->numbers[at / TILE_INNER * LANES + at % LANES];
    *byte |= (uint8_t)(at % TILE_INNER < LANES ? number : number << 4);
}

static void put_int4(Int4Tile *tile, int output, const uint8_t *block, int has_minimum) {
    const uint8_t *nibbles = block + (has_minimum ? 4 : 2);
    memcpy(&tile->scales[output], block, sizeof(f16));
    if (has_minimum)
        memcpy(&tile->minima[output], block + 2, sizeof(f16));
    else
        tile->minima[output] = (f16)(-8.0f * (float)tile->scales[output]); /* exact: a power of two */
    for (int input = 0; input < BLOCK; input++)
        put_nibble(tile, place(output, input), input < 16 ? nibbles[input] & 15 : nibbles[input - 16] >> 4);
}

/* GGUF's blocks [outputs, inputs / 32] of type Q4_0, Q4_1 or Q8_0 to tiles of int4 or int8; 0 for another type. */
int weight_pack_gguf(int type, const uint8_t *blocks, int outputs, int inputs, uint8_t *tiles) {
    const int across = inputs / BLOCK, bytes = type == GGUF_Q8_0 ? 34 : type == GGUF_Q4_1 ? 20 : 18;
    if (type != GGUF_Q8_0 && type != GGUF_Q4_1 && type != GGUF_Q4_0)
        return 0;
    for (int output = 0; output < outputs; output++)
        for (int t = 0; t < across; t++) {
            const uint8_t *block = blocks + ((long)output * across + t) * bytes;
            const long tile = (long)(output / LANES) * across + t;
            if (type == GGUF_Q8_0)
                put_int8((Int8Tile *)tiles + tile, output % LANES, block);
            else
                put_int4((Int4Tile *)tiles + tile, output % LANES, block, type == GGUF_Q4_1);
        }
    return 1;
}
