/* A decoder of the Llama family, and one step of it.
 *
 * Sizes in numbers, not bytes, unless said. A step is a flat batch of tokens of many requests ("rows"). Tables of
 * blocks, block size and slots are those of the scheduler; a slot is block * block_size + offset.
 */
#pragma once

#include <stdint.h>

#include "team.h"
#include "weights.h"

typedef struct {
    Weight query_key_value, output; /* outputs of the first: all queries, then keys, then values */
    Weight gate_up, down;           /* of the first: 16 of gate, 16 of up, by turns */
    const float *attention_norm, *mlp_norm;
    bf16 *keys, *values; /* see attention.c for their order */
} Layer;

typedef struct {
    int32_t layers, hidden, inner, heads, kv_heads, head_dim, block_size;
    float epsilon;
    const Layer *layer;
    const float *cos, *sin;  /* [positions, head_dim / 2] */
    const bf16 *embedding;   /* [vocabulary, hidden] */
    const float *final_norm; /* [hidden] */
    Weight head;
} Decoder;

/* The residual stream is float32 [size] of each token, in blocks of up to 16 tokens: number 0 of all tokens of the
 * block, number 1, and so on, as a product's columns come out. Activations that are projected are right sides (tile.h).
 * Blocks begin 16 x size numbers apart. */
typedef struct {
    int32_t tokens, rows, tiles, table_stride;
    const int64_t *token, *position, *slot; /* per token */
    const int64_t *first, *count, *length;  /* per row: its tokens are first .. first + count - 1 */
    const int32_t *table;                   /* per row: its blocks, `table_stride` apart */
    const int32_t *tile_row, *tile_first;   /* pieces of attention: a row, and its first query of 16 */
    float *hidden;                          /* [tokens, hidden]: the result */
    float *stream;                          /* room for the step's tokens, and 16 numbers more */
    bf16 *normed, *attended, *gated;        /* right sides: room for the step's tokens; attended: of mixed */
    bf16 *queries, *mixed;                  /* [tokens, heads, head_dim] */
    float *projected;                       /* [tokens, outputs of query_key_value] */
} Step;

/* The kernels. All members of a team call them with the same arguments; `counter` is 0 before, and used once. */

enum { EPILOGUE_STORE, EPILOGUE_ADD, EPILOGUE_GATE };

/* A linear projection of `tokens`: `out` is float32 [tokens, outputs], of which there may be fewer than rows of
 * weights; or, for EPILOGUE_ADD, the stream that it is added to; or, for EPILOGUE_GATE, the right side of silu(gate) *
 * up. */
typedef struct {
    const Weight *weight, *next; /* next: the weights that are used after these, or 0 */
    int tokens, epilogue, outputs;
    const bf16 *right;
    void *out;
} Projection;

/* `members` share the work. */
void project(const Projection *of, int members, atomic_int *counter);

/* The tokens' embeddings to the stream. */
void embed(const Decoder *decoder, const Step *step, atomic_int *counter);

/* A block of the stream from rows [tokens, size], and to them. */
void stream_put(int tokens, int size, const float *rows, float *stream, int block);
void stream_take(int tokens, int size, const float *stream, float *rows, int block);

/* The right side of rows [tokens, inputs]. */
void right_side(int tokens, int inputs, const bf16 *rows, bf16 *right, atomic_int *counter);

/* The right side of stream / rms(stream) * weight (Zhang and Sennrich 2019). */
void rms_norm(int tokens, int size, const float *stream, const float *weight, float epsilon, bf16 *right,
              atomic_int *counter);

/* Turn queries and keys (Su et al. 2021, halves as in Hugging Face), and put keys and values into their slots. */
void rotate_and_write(const Decoder *decoder, const Layer *layer, const Step *step, atomic_int *counter);

/* step->mixed = causal attention of step->queries to the rows' cached tokens. `members` share the work. */
void attend(const Decoder *decoder, const Layer *layer, const Step *step, int members, atomic_int *counter);
