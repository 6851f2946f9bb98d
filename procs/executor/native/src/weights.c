/* See weights.h. What makes the tiles is called once, while a model loads. */
#include "weights.h"

enum { BLOCK = 32, GGUF_Q4_0 = 2, GGUF_Q4_1 = 3, GGUF_Q8_0 = 8 };

typedef _Float16 f16;

typedef struct {
    int8_t numbers[LANES][TILE_INNER];
    f16 scales[LANES];
} Int8Tile;

typedef struct {
    uint8_t numbers[LANES / 2][TILE_INNER]; /* of outputs 2 i and 2 i + 1: in the low nibbles, and in the high ones */
    f16 scales[LANES], minima[LANES];
} Int4Tile;

long weight_tile_bytes(int kind) {
    return kind == WEIGHT_INT8 ? (long)sizeof(Int8Tile) : kind == WEIGHT_INT4 ? (long)sizeof(Int4Tile) : TILE * 2;
}

/* Elsewhere the exponent is put right by a product, which is exact for subnormal numbers too. Neither infinity nor NaN
 * is a scale. */
static inline f32x16 from_f16(const f16 *from) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#else
    u32x16 wide = widen_u16((const uint16_t *)from);
    f32x16 magnitude = (f32x16)((wide & 0x7fff) << 13) * 0x1p112f;
    return (f32x16)((u32x16)magnitude | (wide & 0x8000) << 16);
#endif
}

static inline f32x16 numbers_of(i32x16 whole) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_cvtepi32_ps((__m512i)whole);
#else
    return __builtin_convertvector(whole, f32x16);
#endif
}

/* To memory, from which a number is broadcast for nothing; compilers would rather shuffle registers. */
static inline void spread(const f16 *from, float *to) {
    store(to, from_f16(from));
    __asm__ volatile("" ::: "memory");
}

static void dequantize_int8(const Int8Tile *tile, bf16 *to) {
    float scales[LANES];
    spread(tile->scales, scales);
    for (int output = 0; output < LANES; output++)
        store_bf16_pair(to + output * TILE_INNER, numbers_of(widen_i8(tile->numbers[output])) * scales[output],
                        numbers_of(widen_i8(tile->numbers[output] + LANES)) * scales[output]);
}

/* Two outputs: numbers below 16 are looked up among the 16 that an output has in a tile. */
static inline void look_up(const uint8_t *numbers, f32x16 low, f32x16 high, bf16 *to) {
#if defined(__AVX512BF16__)
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)numbers));
    const __m512i first = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
    const __m512i second = _mm512_or_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi16(16));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(first, both));
    _mm512_storeu_si512(to + TILE_INNER, _mm512_permutexvar_epi16(second, both));
#else
    bf16 all[2 * LANES];
    store_bf16_pair(all, low, high);
    for (int input = 0; input < TILE_INNER; input++) {
        to[input] = all[numbers[input] & 15];
        to[TILE_INNER + input] = all[LANES + (numbers[input] >> 4)];
    }
#endif
}

static void dequantize_int4(const Int4Tile *tile, bf16 *to) {
    const f32x16 number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float scales[LANES], minima[LANES];
    spread(tile->scales, scales);
    spread(tile->minima, minima);
    for (int i = 0; i < LANES; i += 2)
        look_up(tile->numbers[i / 2], number * scales[i] + minima[i], number * scales[i + 1] + minima[i + 1],
                to + i * TILE_INNER);
}

const uint8_t *weight_pair(const Weight *weight, int pair) {
    return weight->tiles + (long)pair * PANELS * (weight->inputs / TILE_INNER) * weight_tile_bytes(weight->kind);
}

const bf16 *weight_tiles(const Weight *weight, int pair, int first, int count, bf16 *room) {
    const uint8_t *from = weight_pair(weight, pair) + first * PANELS * weight_tile_bytes(weight->kind);
    if (weight->kind == WEIGHT_BF16)
        return (const bf16 *)from;
    for (int t = 0; t < PANELS * count; t++)
        if (weight->kind == WEIGHT_INT8)
            dequantize_int8((const Int8Tile *)from + t, room + t * TILE);
        else
            dequantize_int4((const Int4Tile *)from + t, room + t * TILE);
    return room;
}

/* Which tile has the number of an output and an input. */
static inline long tile_of(int output, int input, int inputs) {
    const int panel = output / LANES;
    return ((long)(panel / PANELS) * (inputs / TILE_INNER) + input / TILE_INNER) * PANELS + panel % PANELS;
}

/* Numbers [outputs, inputs] in bfloat16 to tiles. Here and below outputs and inputs are multiples of 32, and `tiles` is
 * zeros. */
void weight_pack_bf16(const bf16 *numbers, int outputs, int inputs, uint8_t *tiles) {
    for (int output = 0; output < outputs; output++)
        for (int input = 0; input < inputs; input += TILE_INNER)
            memcpy((bf16 *)tiles + tile_of(output, input, inputs) * TILE + output % LANES * TILE_INNER,
                   numbers + (long)output * inputs + input, TILE_INNER * sizeof(bf16));
}

static void put_int8(Int8Tile *tile, int output, const uint8_t *block) {
    memcpy(&tile->scales[output], block, sizeof(f16));
    memcpy(tile->numbers[output], block + 2, BLOCK);
}

static void put_int4(Int4Tile *tile, int output, const uint8_t *block, int has_minimum) {
    const uint8_t *nibbles = block + (has_minimum ? 4 : 2);
    memcpy(&tile->scales[output], block, sizeof(f16));
    if (has_minimum)
        memcpy(&tile->minima[output], block + 2, sizeof(f16));
    else
        tile->minima[output] = (f16)(-8.0f * (float)tile->scales[output]); /* exact: a power of two */
    for (int input = 0; input < BLOCK; input++) {
        const int number = input < 16 ? nibbles[input] & 15 : nibbles[input - 16] >> 4;
        tile->numbers[output / 2][input] |= (uint8_t)(number << 4 * (output % 2));
    }
}

/* GGUF's blocks [outputs, inputs / 32] of type Q4_0, Q4_1 or Q8_0 to tiles of int4 or int8; 0 for another type. */
int weight_pack_gguf(int type, const uint8_t *blocks, int outputs, int inputs, uint8_t *tiles) {
    const int bytes = type == GGUF_Q8_0 ? 34 : type == GGUF_Q4_1 ? 20 : 18;
    if (type != GGUF_Q8_0 && type != GGUF_Q4_1 && type != GGUF_Q4_0)
        return 0;
    for (int output = 0; output < outputs; output++)
        for (int input = 0; input < inputs; input += BLOCK, blocks += bytes) {
            const long tile = tile_of(output, input, inputs);
            if (type == GGUF_Q8_0)
                put_int8((Int8Tile *)tiles + tile, output % LANES, blocks);
            else
                put_int4((Int4Tile *)tiles + tile, output % LANES, blocks, type == GGUF_Q4_1);
        }
    return 1;
}
