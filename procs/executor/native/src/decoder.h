/* A decoder of the Llama family, and one step of it.
 *
 * Sizes in numbers, not bytes, unless said. A step is a flat batch of tokens of many requests ("rows"). Tables of blocks, block
 * size and slots are those of the scheduler; a slot is block * block_size + offset.
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

typedef struct {
    int32_t tokens, rows, tiles, table_stride;
    const int64_t *token, *position, *slot;           /* per token */
    const int64_t *first, *count, *length;            /* per row: its tokens are first .. first + count - 1 */
    const int32_t *table;                             /* per row: its blocks, `table_stride` apart */
    const int32_t *tile_row, *tile_first;             /* pieces of attention: a row, and its first query of 16 */
    float *hidden;                                    /* [tokens, hidden]: the result, and the residual stream */
    bf16 *normed, *queries, *mixed, *gated;           /* room for the step's tokens, filled up to 32 */
    float *projected;
} Step;

/* The kernels. All members of a team call them with the same arguments; `counter` is 0 before, and used once. */

enum { EPILOGUE_STORE, EPILOGUE_ADD, EPILOGUE_GATE };

/* left [rows, weight.inputs] x weight; to float32 `out` (stored or added, `out_stride` apart), or, for EPILOGUE_GATE,
 * silu(gate) * up to bfloat16. Of the last panels only columns below `columns` are written. */
void matmul(const Weight *weight, int rows, const bf16 *left, int epilogue, void *out, long out_stride, int columns,
            atomic_int *counter);

/* normed[row] = hidden[row] / rms(hidden[row]) * weight (Zhang and Sennrich 2019). */
void rms_norm(int rows, int size, const float *hidden, const float *weight, float epsilon, bf16 *normed,
              atomic_int *counter);

/* Turn queries and keys (Su et al. 2021, halves as in Hugging Face), and put keys and values into their slots. */
void rotate_and_write(const Decoder *decoder, const Layer *layer, const Step *step, atomic_int *counter);

/* step->mixed = causal attention of step->queries to the rows' cached tokens. `members` share the work. */
void attend(const Decoder *decoder, const Layer *layer, const Step *step, int members, atomic_int *counter);
