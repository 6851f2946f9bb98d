/* Vectors of 16 floats, and bfloat16. GCC's and Clang's vector extensions: the compiler maps them to what the
 * processor has. All arithmetic goes by whole vectors, so that no number is rounded otherwise for lying at an end. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define LANES 16

/* Ask for memory long before it is read: the processor's own prefetching leaves a third of the bandwidth unused here.
 */
static inline void fetch_ahead(const void *from, int bytes) {
    enum { LINE = 64 };
    for (int i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)from + i, 0, 2);
}

typedef uint16_t bf16;
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_any __attribute__((vector_size(64), aligned(4)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x16_any __attribute__((vector_size(32), aligned(2)));

static inline f32x16 load(const float *from) { return *(const f32x16_any *)from; }
static inline void store(float *to, f32x16 x) { *(f32x16_any *)to = x; }
static inline f32x16 splat(float x) { return (f32x16){} + x; }

/* GCC 12 widens and narrows vectors of the extension one number at a time: where there are instructions, they are
 * named. */
static inline u32x16 widen_u16(const uint16_t *from) {
#if defined(__AVX512F__)
    return (u32x16)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
#else
    return __builtin_convertvector(*(const u16x16_any *)from, u32x16);
#endif
}

static inline i32x16 widen_u8(const uint8_t *from) {
#if defined(__AVX512F__)
    return (i32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
#else
    i32x16 wide;
    for (int i = 0; i < LANES; i++)
        wide[i] = from[i];
    return wide;
#endif
}

static inline i32x16 widen_i8(const int8_t *from) {
#if defined(__AVX512F__)
    return (i32x16)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
#else
    i32x16 wide;
    for (int i = 0; i < LANES; i++)
        wide[i] = from[i];
    return wide;
#endif
}

static inline f32x16 from_bf16(const bf16 *from) { return (f32x16)(widen_u16(from) << 16); }

/* Rounds to the nearest, ties to even; a NaN stays one. */
static inline void store_bf16(bf16 *to, f32x16 x) {
#if defined(__AVX512BF16__)
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
    u32x16 bits = (u32x16)x;
    bits += 0x7fff + ((bits >> 16) & 1);
    *(u16x16_any *)to = __builtin_convertvector(bits >> 16, u16x16);
#endif
}

/* Two vectors to 32 numbers that lie one after the other. */
static inline void store_bf16_pair(bf16 *to, f32x16 first, f32x16 second) {
#if defined(__AVX512BF16__)
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, both);
#else
    store_bf16(to, first);
    store_bf16(to + LANES, second);
#endif
}

/* The first `count` (1..16) numbers. */
static inline void store_some(float *to, f32x16 x, int count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)x);
#else
    memcpy(to, &x, (size_t)count * sizeof(float));
#endif
}

/* Lanes of both by turns: the first `count` (1..16) pairs, rounded. */
static inline void store_bf16_pairs(bf16 *to, f32x16 even, f32x16 odd, int count) {
#if defined(__AVX512BF16__)
    const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    _mm512_mask_storeu_epi32(to, (__mmask16)((1u << count) - 1), _mm512_permutexvar_epi16(turns, both));
#else
    bf16 numbers[2][LANES];
    store_bf16(numbers[0], even);
    store_bf16(numbers[1], odd);
    for (int i = 0; i < 2 * count; i++)
        to[i] = numbers[i % 2][i / 2];
#endif
}

#define HIGHER(l, bit) ((l) & (bit) ? 16 + (l) - (bit) : (l))
#define LOWER(l, bit) ((l) & (bit) ? 16 + (l) : (l) + (bit))
#define ALL_LANES(of, bit)                                                                                             \
    of(0, bit), of(1, bit), of(2, bit), of(3, bit), of(4, bit), of(5, bit), of(6, bit), of(7, bit), of(8, bit),        \
        of(9, bit), of(10, bit), of(11, bit), of(12, bit), of(13, bit), of(14, bit), of(15, bit)
/* Swaps blocks of bit x bit lanes across the diagonal. */
#define SWAP_LANES(rows, bit)                                                                                          \
    for (int i = 0; i < LANES; i++)                                                                                    \
        if (!(i & (bit))) {                                                                                            \
            const f32x16 a = rows[i], b = rows[i + (bit)];                                                             \
            rows[i] = __builtin_shufflevector(a, b, ALL_LANES(HIGHER, bit));                                           \
            rows[i + (bit)] = __builtin_shufflevector(a, b, ALL_LANES(LOWER, bit));                                    \
        }

/* 16 x 16 numbers, rows and columns exchanged. */
static inline void transpose(f32x16 rows[LANES]) {
    SWAP_LANES(rows, 1)
    SWAP_LANES(rows, 2)
    SWAP_LANES(rows, 4)
    SWAP_LANES(rows, 8)
}

/* 1 / sqrt(x), both rounded to the nearest, as sqrtf and / do it. */
static inline f32x16 reciprocal_root(f32x16 x) {
#if defined(__AVX512F__)
    return 1.0f / (f32x16)_mm512_sqrt_ps((__m512)x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = sqrtf(x[i]);
    return 1.0f / x;
#endif
}

static inline float sum(f32x16 x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#endif
    float lanes[LANES];
    store(lanes, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Lane by lane: x where a < b, else y. */
static inline f32x16 where_less(f32x16 a, f32x16 b, f32x16 x, f32x16 y) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ), (__m512)y, (__m512)x);
#else
    i32x16 mask = a < b;
    return (f32x16)((mask & (i32x16)x) | (~mask & (i32x16)y));
#endif
}

/* b where a is NaN */
static inline f32x16 larger(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return where_less(b, a, a, b);
#endif
}

static inline float maximum(f32x16 x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#endif
    float lanes[LANES];
    store(lanes, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
    return lanes[0];
}

/* 2^(n + f) with f in [-1/2, 1/2] for e^x: n, and a polynomial for 2^f (Cody and Waite 1980, chapter 6: range
 * reduction). */
static inline f32x16 power_of_fraction(f32x16 x, f32x16 n) {
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const f32x16 r = x - n * ln2_high - n * ln2_low;
    f32x16 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * r * r + r + 1.0f;
}

/* e^x; relative error below 2e-7; 0 below -87, at least e^88 above 88. NaN stays NaN. */
static inline f32x16 exponential(f32x16 x) {
    const float log2e = 1.44269504f;
#if defined(__AVX512F__)
    const __m512 n = _mm512_roundscale_ps((__m512)(x * log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __mmask16 more_than_0 = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    return (f32x16)_mm512_maskz_scalef_ps(more_than_0, (__m512)power_of_fraction(x, (f32x16)n), n);
#else
    f32x16 clamped = larger(splat(-87.0f), x);
    clamped = where_less(splat(88.0f), clamped, splat(88.0f), clamped);
    const f32x16 shifted = clamped * log2e + 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    const i32x16 n = (i32x16)shifted - 0x4b400000;
    const f32x16 result = power_of_fraction(clamped, shifted - 12582912.0f) * (f32x16)((n + 127) << 23);
    return where_less(x, splat(-87.0f), splat(0), result);
#endif
}
