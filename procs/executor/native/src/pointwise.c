/* What is done to each token by itself: normalisation, rotation, and writing to the KV cache; see decoder.h. */
#include "decoder.h"

/* Rows of 16 numbers that belong to 16 tokens: of a block of the stream. Lanes behind its columns are other numbers. */
static inline f32x16 stream_row(const float *block, int columns, int number) { return load(block + number * columns); }

void stream_put(int tokens, int size, const float *rows, float *stream, int block) {
    const int columns = columns_of(tokens, block);
    const float *from = rows + (long)block * COLUMNS * size;
    float *to = stream + (long)block * COLUMNS * size;
    for (int column = 0; column < columns; column++)
        for (int i = 0; i < size; i++)
            to[i * columns + column] = from[(long)column * size + i];
}

void stream_take(int tokens, int size, const float *stream, float *rows, int block) {
    const int columns = columns_of(tokens, block);
    const float *from = stream + (long)block * COLUMNS * size;
    for (int i = 0; i < size; i += LANES) {
        f32x16 numbers[LANES];
        for (int j = 0; j < LANES; j++)
            numbers[j] = stream_row(from, columns, i + j);
        transpose(numbers);
        for (int column = 0; column < columns; column++)
            store(rows + (long)(block * COLUMNS + column) * size + i, numbers[column]);
    }
}

void right_side(int tokens, int inputs, const bf16 *rows, bf16 *right, atomic_int *counter) {
    for (int block; (block = next_item(counter, blocks_of(tokens))) >= 0;) {
        const long at = (long)block * COLUMNS * inputs;
        right_from_rows(right + at, inputs, columns_of(tokens, block), rows + at);
    }
}

/* Whole blocks: tokens of a block share cache lines, which should not travel between cores. */
void embed(const Decoder *decoder, const Step *step, atomic_int *counter) {
    const int size = decoder->hidden;
    for (int block; (block = next_item(counter, blocks_of(step->tokens))) >= 0;) {
        const int columns = columns_of(step->tokens, block);
        const int64_t *token = step->token + block * COLUMNS;
        float *to = step->stream + (long)block * COLUMNS * size;
        for (int i = 0; i < size; i += LANES) {
            f32x16 numbers[LANES] = {};
            for (int column = 0; column < columns; column++)
                numbers[column] = from_bf16(decoder->embedding + token[column] * size + i);
            transpose(numbers);
            for (int j = 0; j < LANES; j++)
                store_some(to + (i + j) * columns, numbers[j], columns);
        }
    }
}

/* Lane by lane, what `sum` does to the numbers of one vector. */
static inline f32x16 sum_of(f32x16 parts[LANES]) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            parts[i] += parts[i + half];
    return parts[0];
}

/* One token: the same sums in the same order as a lane of norm_block. */
static void norm_one(int size, const float *stream, const float *weight, float epsilon, bf16 *right) {
    f32x16 squares = {};
    for (int i = 0; i < size; i += LANES)
        squares += load(stream + i) * load(stream + i);
    const f32x16 scale = splat(1.0f / sqrtf(sum(squares) / (float)size + epsilon));
    for (int i = 0; i < size; i += LANES)
        store_bf16(right + i, load(stream + i) * scale * load(weight + i));
}

static void norm_block(int size, int columns, const float *stream, const float *weight, float epsilon, bf16 *right) {
    f32x16 squares[LANES] = {};
    for (int i = 0; i < size; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const f32x16 x = stream_row(stream, columns, i + j);
            squares[j] += x * x;
        }
    const f32x16 scale = reciprocal_root(sum_of(squares) / (float)size + epsilon);
    for (int i = 0; i < size; i += 2)
        right_put(right, size, columns, i / 2, stream_row(stream, columns, i) * scale * weight[i],
                  stream_row(stream, columns, i + 1) * scale * weight[i + 1]);
}

void rms_norm(int tokens, int size, const float *stream, const float *weight, float epsilon, bf16 *right,
              atomic_int *counter) {
    for (int block; (block = next_item(counter, blocks_of(tokens))) >= 0;) {
        const int columns = columns_of(tokens, block);
        const long at = (long)block * COLUMNS * size;
        if (columns == 1)
            norm_one(size, stream + at, weight, epsilon, right + at);
        else
            norm_block(size, columns, stream + at, weight, epsilon, right + at);
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
        const float *cos = decoder->cos + step->position[token] * half,
                    *sin = decoder->sin + step->position[token] * half;
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
