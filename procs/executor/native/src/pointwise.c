/* What is done to each token by itself: normalisation, rotation, and writing to the KV cache; see decoder.h. */
#include "decoder.h"

void rms_norm(int rows, int size, const float *hidden, const float *weight, float epsilon, bf16 *normed,
              atomic_int *counter) {
    for (int row; (row = next_item(counter, rows)) >= 0;) {
        const float *from = hidden + (long)row * size;
        f32x16 squares = {};
        for (int i = 0; i < size; i += LANES) {
            f32x16 x = load(from + i);
            squares += x * x;
        }
        const float scale = 1.0f / sqrtf(sum(squares) / (float)size + epsilon);
        for (int i = 0; i < size; i += LANES)
            store_bf16(normed + (long)row * size + i, load(from + i) * scale * load(weight + i));
    }
}

/* One head, turned, to bfloat16. */
static inline void turn(const float *head, const float *cos, const float *sin, int half, bf16 *to) {
    for (int i = 0; i < half; i += LANES) {
        f32x16 left = load(head + i), right = load(head + half + i), c = load(cos + i), s = load(sin + i);
        store_bf16(to + i, left * c - right * s);
        store_bf16(to + half + i, right * c + left * s);
    }
}

/* A key into the tiles of its 16 keys: pairs of dimensions, each with 16 keys (attention.c). */
static inline void put_key(bf16 *tiles, int key, const bf16 *head, int head_dim) {
    for (int pair = 0; pair < head_dim / 2; pair++)
        memcpy(tiles + pair * TILE_INNER + 2 * key, head + 2 * pair, 2 * sizeof(bf16));
}

/* A value into the half tiles of its 16 keys: for 16 dimensions pairs of keys. */
static inline void put_value(bf16 *halves, int key, const float *head, int head_dim) {
    for (int at = 0; at < head_dim; at += LANES) {
        bf16 numbers[LANES], *to = halves + at / LANES * (TILE / 2) + key / 2 * TILE_INNER + key % 2;
        store_bf16(numbers, load(head + at));
        for (int i = 0; i < LANES; i++)
            to[2 * i] = numbers[i];
    }
}

void rotate_and_write(const Decoder *decoder, const Layer *layer, const Step *step, atomic_int *counter) {
    const int dim = decoder->head_dim, half = dim / 2, heads = decoder->heads, kv_heads = decoder->kv_heads;
    const long per_group = 16L * dim, per_head = decoder->block_size / 16 * per_group;
    for (int token; (token = next_item(counter, step->tokens)) >= 0;) {
        const float *projected = step->projected + (long)token * (heads + 2 * kv_heads) * dim;
        const float *cos = decoder->cos + step->position[token] * half, *sin = decoder->sin + step->position[token] * half;
        const int64_t block = step->slot[token] / decoder->block_size, offset = step->slot[token] % decoder->block_size;
        for (int head = 0; head < heads; head++)
            turn(projected + head * dim, cos, sin, half, step->queries + ((long)token * heads + head) * dim);
        for (int head = 0; head < kv_heads; head++) {
            const long at = (block * kv_heads + head) * per_head + offset / 16 * per_group;
            bf16 key[dim];
            turn(projected + (heads + head) * dim, cos, sin, half, key);
            put_key(layer->keys + at, (int)(offset % 16), key, dim);
            put_value(layer->values + at, (int)(offset % 16), projected + (heads + kv_heads + head) * dim, dim);
        }
    }
}
