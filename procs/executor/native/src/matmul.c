/* Linear projections; see decoder.h.
 *
 * Up to two blocks of tokens: every weight is used once: a piece of work is a pair of panels, and a tile is dequantized
 * while the one before is multiplied. More tokens: a piece of work is some of them and some pairs of panels, as many as
 * stay in the second cache; they are dequantized once, and all blocks of tokens, by twos, meet all of them.
 */
#include "decoder.h"

enum { PAIR = PANELS * LANES, PIECE = 256, MOST_PAIRS = 32, CACHED = 1 << 18, MOST_INPUTS = 32768 };

typedef const bf16 *Right[BLOCKS];

/* Two blocks of the tokens, from `block` on. */
static Columns columns_at(const Projection *of, int block) {
    return (Columns){{columns_of(of->tokens, block), columns_of(of->tokens, block + 1)}};
}

static inline const bf16 *right_of(const Projection *of, int block) {
    return of->right + (long)block * COLUMNS * of->weight->inputs;
}

static inline void add_bias(const float *bias, int columns, float *sums) {
    for (int output = 0; output < LANES; output++)
        for (int column = 0; column < columns; column++)
            sums[output * columns + column] += bias[output];
}

/* To rows of tokens, of which only outputs below `valid` are there. */
static void put_rows(const float *sums, int columns, int valid, float *out, long out_stride) {
    if (valid <= 0)
        return;
    const int count = valid < LANES ? valid : LANES;
    if (columns == 1) {
        store_some(out, load(sums), count);
        return;
    }
    f32x16 rows[LANES];
    for (int output = 0; output < LANES; output++)
        rows[output] = load(sums + output * columns); /* lanes behind the columns are others' numbers, and not stored */
    transpose(rows);
    for (int column = 0; column < columns; column++)
        store_some(out + column * out_stride, rows[column], count);
}

static void add_to(const float *sums, int columns, float *stream) {
    for (int i = 0; i < LANES * columns; i += LANES)
        store(stream + i, load(stream + i) + load(sums + i));
}

static void put_gated(float *gate, const float *up, int inputs, int columns, int panel, bf16 *right) {
    for (int i = 0; i < LANES * columns; i += LANES) {
        const f32x16 x = load(gate + i);
        store(gate + i, x / (1.0f + exponential(-x)) * load(up + i));
    }
    if (columns == 1) {
        store_bf16(right + panel * LANES, load(gate));
        return;
    }
    for (int output = 0; output < LANES; output += 2)
        right_put(right, inputs, columns, (panel * LANES + output) / 2, load(gate + output * columns),
                  load(gate + (output + 1) * columns));
}

/* What becomes of a product of pair `pair` of the panels and of one block. */
static void finish(const Projection *of, int pair, int block, int columns, Product *product, int side) {
    float *const sums[PANELS] = {product->of[0][side], product->of[1][side]};
    const int outputs = of->weight->outputs, first = pair * PAIR;
    for (int panel = 0; panel < PANELS && of->weight->bias; panel++)
        add_bias(of->weight->bias + first + panel * LANES, columns, sums[panel]);
    if (of->epilogue == EPILOGUE_GATE) {
        put_gated(sums[0], sums[1], outputs / 2, columns, pair,
                  (bf16 *)of->out + (long)block * COLUMNS * (outputs / 2));
        return;
    }
    for (int panel = 0; panel < PANELS; panel++) {
        const int output = first + panel * LANES;
        if (of->epilogue == EPILOGUE_ADD)
            add_to(sums[panel], columns, (float *)of->out + (long)block * COLUMNS * outputs + output * columns);
        else
            put_rows(sums[panel], columns, of->outputs - output,
                     (float *)of->out + (long)block * COLUMNS * of->outputs + output, of->outputs);
    }
}

static void finish_both(const Projection *of, int pair, int block, Columns columns, Product *product) {
    for (int side = 0; side < BLOCKS && columns.of[side]; side++)
        finish(of, pair, block + side, columns.of[side], product, side);
}

/* Where the pair of panels lies that a thread will read after this one: of this projection, or of the next. */
static const uint8_t *pair_after(const Projection *of, int pair, int members) {
    const int pairs = of->weight->outputs / PAIR;
    if (pair + members < pairs)
        return weight_pair(of->weight, pair + members);
    return of->next ? weight_pair(of->next, pair + members - pairs) : 0;
}

/* The products of two blocks with a pair of panels, which are used for no others; meanwhile memory at `after` is
 * fetched. */
static void multiply_once(const Projection *of, int pair, Columns columns, const uint8_t *after, Product *product) {
    const Weight *weight = of->weight;
    const Right right = {right_of(of, 0), right_of(of, 1)};
    const int tiles = weight->inputs / TILE_INNER, bytes = PANELS * (int)weight_tile_bytes(weight->kind);
    bf16 room[2][TILES_AT_ONCE * PANELS * TILE] __attribute__((aligned(64)));
    TileSums sums;
    tile_begin(&sums, columns, 0, product);
    int count = tiles < TILES_AT_ONCE ? tiles : TILES_AT_ONCE;
    const bf16 *left = weight_tiles(weight, pair, 0, count, room[0]);
    for (int first = 0, turn = 1; first < tiles; turn = !turn) {
        const int then = first + count, more = tiles - then < TILES_AT_ONCE ? tiles - then : TILES_AT_ONCE;
        const bf16 *now = left;
        if (after)
            fetch_ahead(after + first * bytes, count * bytes);
        if (more > 0)
            left = weight_tiles(weight, pair, then, more, room[turn]);
        tile_add(&sums, columns, count, now, weight->inputs, right, first);
        first = then;
        count = more;
    }
    tile_store(&sums, columns, product);
}

static void few_tokens(const Projection *of, int members, atomic_int *counter) {
    const Columns columns = columns_at(of, 0);
    Product product;
    tile_setup(columns);
    for (int pair; (pair = next_item(counter, of->weight->outputs / PAIR)) >= 0;) {
        multiply_once(of, pair, columns, pair_after(of, pair, members), &product);
        finish_both(of, pair, 0, columns, &product);
    }
}

/* Two blocks and several pairs of panels, some tiles at a time, so that those of the right side stay in the first
 * cache. */
static void multiply_all(int tiles, int pairs, const bf16 *const *panels, Columns columns, int inputs,
                         const Right right, Product *products) {
    TileSums sums;
    for (int first = 0; first < tiles; first += TILES_CACHED)
        for (int pair = 0; pair < pairs; pair++) {
            const int count = tiles - first < TILES_CACHED ? tiles - first : TILES_CACHED;
            tile_begin(&sums, columns, first, products + pair);
            tile_add(&sums, columns, count, panels[pair] + (long)first * PANELS * TILE, inputs, right, first);
            tile_store(&sums, columns, products + pair);
        }
}

static int at_least_one(int x) { return x > 1 ? x : 1; }

static int at_most(int x, int most) { return x < most ? x : most; }

/* Pairs of panels that are dequantized together: as many as stay in the second cache, and enough pieces for all. */
static int pairs_together(const Weight *weight) {
    const int fitting = at_least_one(CACHED / (PAIR * weight->inputs)), fair = at_least_one(weight->outputs / PAIR / 4);
    return at_most(at_most(fitting, fair), MOST_PAIRS);
}

static void many_tokens(const Projection *of, atomic_int *counter) {
    static _Thread_local bf16 room[MOST_INPUTS * PAIR] __attribute__((aligned(64)));
    static _Thread_local Product products[MOST_PAIRS];
    const Weight *weight = of->weight;
    const int pairs = weight->outputs / PAIR, tiles = weight->inputs / TILE_INNER, together = pairs_together(weight);
    const int groups = (pairs + together - 1) / together, blocks = blocks_of(of->tokens);
    const int pieces = (of->tokens + PIECE - 1) / PIECE, blocks_of_piece = PIECE / COLUMNS;
    for (int item; (item = next_item(counter, groups * pieces)) >= 0;) {
        const int first = item / pieces * together, count = at_most(together, pairs - first);
        const int from = item % pieces * blocks_of_piece, to = at_most(from + blocks_of_piece, blocks);
        const bf16 *panels[MOST_PAIRS];
        for (int pair = 0; pair < count; pair++)
            panels[pair] = weight_tiles(weight, first + pair, 0, tiles, room + (long)pair * PAIR * weight->inputs);
        for (int block = from; block < to; block += BLOCKS) {
            const Columns columns = columns_at(of, block);
            const Right right = {right_of(of, block), right_of(of, block + 1)};
            tile_setup(columns);
            multiply_all(tiles, count, panels, columns, weight->inputs, right, products);
            for (int pair = 0; pair < count; pair++)
                finish_both(of, first + pair, block, columns, products + pair);
        }
    }
}

void project(const Projection *of, int members, atomic_int *counter) {
    if (blocks_of(of->tokens) <= BLOCKS)
        few_tokens(of, members, counter);
    else
        many_tokens(of, counter);
}
