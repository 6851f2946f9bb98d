/* Attention over the paged KV cache; see decoder.h.
 *
 * The cache of a layer is, for each block and key head, groups of 16 tokens. Keys of a group are the right side of
 * queries x keys: tiles of 32 dimensions x 16 keys. Values are the right side of weights x values: half tiles of 16
 * keys x 16 dimensions. So both are read where they lie.
 *
 * A piece of work is one key head and 16 queries of a row: the query heads that share it, of one or several tokens. It
 * goes through the keys in segments of SEGMENT, cut at the same positions for every query, with the running maximum of
 * Milakov and Gimelshein 2018 ("Online normalizer calculation for softmax"). A key that a query must not see has a
 * weight of exactly 0. So the numbers of a query do not depend on who shares its piece, step or chunk.
 */
#include "decoder.h"

enum {
    SEGMENT = 512,
    ROW = SEGMENT + 64, /* room for groups too many; and else all rows meet in two sets of the first cache */
    QUERIES = 16,
    MOST_DIM = 256,
    GROUP = 16
};

typedef struct {
    const bf16 *keys, *values; /* of this head in block 0 */
    const int32_t *table;
    long block_stride, group_stride;
    int groups_per_block;
    long groups; /* of the row */
} Cached;

static inline long group_at(const Cached *cached, long group) {
    return cached->table[group / cached->groups_per_block] * cached->block_stride +
           group % cached->groups_per_block * cached->group_stride;
}

typedef struct {
    float sums[QUERIES], most[QUERIES];
    float mixed[QUERIES][MOST_DIM];
} Running;

/* Ask for a group's keys or values, which a later piece of work reads. */
static inline void fetch_group(const Cached *cached, const bf16 *keys_or_values, long group, int dim) {
    if (group < cached->groups)
        fetch_ahead(keys_or_values + group_at(cached, group), GROUP * dim * (int)sizeof(bf16));
}

/* scores[query][0 .. 16 groups - 1] of a segment; meanwhile keys of the piece `next` are fetched. */
static void score(const Cached *cached, const Cached *next, long group, int groups, int queries, int dim,
                  const bf16 *query, float scores[QUERIES][ROW]) {
    for (int first = 0; first < groups; first += PANELS_AT_ONCE) {
        const bf16 *panels[PANELS_AT_ONCE];
        for (int i = 0; i < PANELS_AT_ONCE; i++) {
            const int g = first + i < groups ? first + i : groups - 1; /* the last, once more than needed */
            panels[i] = cached->keys + group_at(cached, group + g);
            fetch_group(next, next->keys, group + first + i, dim);
        }
        tile_panels(queries, dim / TILE_INNER, query, dim, panels, &scores[0][first * GROUP], ROW);
    }
}

/* Scores of one query to weights in bfloat16; 0 behind the `visible` ones, up to `all`. Returns by how much what was
 * summed and mixed before must shrink, since the weights are now relative to a higher score. */
static float soften(const float *scores, int visible, int all, float scale, float *sums, float *most, bf16 *weights) {
    const f32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int whole = visible / LANES * LANES;
    f32x16 highest = splat(*most), total = {};
    for (int i = 0; i < whole; i += LANES)
        highest = larger(load(scores + i) * scale, highest);
    const f32x16 seen = splat((float)(visible - whole)), unseen = splat(-INFINITY);
    if (whole < visible)
        highest = larger(where_less(lane, seen, load(scores + whole) * scale, unseen), highest);
    const float now = maximum(highest), shrink = visible > 0 ? exponential(splat(*most - now))[0] : 1.0f;
    for (int i = 0; i < all; i += LANES) {
        f32x16 weight = i <= whole ? exponential(load(scores + i) * scale - now) : splat(0);
        if (i == whole)
            weight = where_less(lane, seen, weight, splat(0));
        total += weight;
        store_bf16(weights + i, weight);
    }
    *sums = *sums * shrink + sum(total);
    *most = now;
    return shrink;
}

/* Meanwhile values of the piece `next` are fetched. */
static void mix(const Cached *cached, const Cached *next, long group, int groups, int queries, int dim,
                const bf16 weights[QUERIES][ROW], const float *shrink, Running *running) {
    const bf16 *half[SEGMENT / GROUP];
    float sums[QUERIES][4 * LANES];
    for (int at = 0; at < dim; at += 4 * LANES) {
        for (int g = 0; g < groups; g++) {
            if (!at)
                fetch_group(next, next->values, group + g, dim);
            half[g] = cached->values + group_at(cached, group + g) + at / LANES * (TILE / 2);
        }
        tile_halves(queries, groups, &weights[0][0], ROW, half, &sums[0][0], 4 * LANES);
        for (int q = 0; q < queries; q++)
            for (int i = 0; i < 4 * LANES; i += LANES) {
                float *mixed = &running->mixed[q][at + i];
                store(mixed, load(mixed) * shrink[q] + load(&sums[q][i]));
            }
    }
}

static void attend_piece(const Cached *cached, const Cached *next, int queries, int dim, const bf16 *query,
                         const long *visible, float scale, Running *running) {
    static _Thread_local float scores[QUERIES][ROW] __attribute__((aligned(64)));
    static _Thread_local bf16 weights[QUERIES][ROW] __attribute__((aligned(64)));
    float shrink[QUERIES];
    const long last = visible[queries - 1];
    tile_setup_half(queries);
    for (long from = 0; from < last; from += SEGMENT) {
        const int keys = last - from < SEGMENT ? (int)(last - from) : SEGMENT;
        const int groups = (keys + GROUP - 1) / GROUP;
        score(cached, next, from / GROUP, groups, queries, dim, query, scores);
        for (int q = 0; q < queries; q++) {
            const long seen = visible[q] - from;
            shrink[q] = soften(scores[q],
                               seen < 0      ? 0
                               : seen > keys ? keys
                                             : (int)seen,
                               groups * GROUP, scale, &running->sums[q], &running->most[q], weights[q]);
        }
        mix(cached, next, from / GROUP, groups, queries, dim, weights, shrink, running);
    }
}

static Cached cached_of(const Decoder *decoder, const Layer *layer, const Step *step, int item) {
    const int row = step->tile_row[item / decoder->kv_heads], kv_head = item % decoder->kv_heads;
    const long per_group = (long)GROUP * decoder->head_dim, per_head = decoder->block_size / GROUP * per_group;
    return (Cached){
        .keys = layer->keys + kv_head * per_head,
        .values = layer->values + kv_head * per_head,
        .table = step->table + (long)row * step->table_stride,
        .block_stride = decoder->kv_heads * per_head,
        .group_stride = per_group,
        .groups_per_block = decoder->block_size / GROUP,
        .groups = (step->length[row] + GROUP - 1) / GROUP,
    };
}

/* The queries of a piece: number n of a row is token n / shared, head n % shared of those that share a key head. */
static void take_piece(const Decoder *decoder, const Step *step, int item, const Cached *cached, const Cached *next) {
    const int dim = decoder->head_dim, shared = decoder->heads / decoder->kv_heads, kv_head = item % decoder->kv_heads;
    const int tile = item / decoder->kv_heads, row = step->tile_row[tile];
    const long first = step->tile_first[tile], all = step->count[row] * shared;
    const int queries = all - first < QUERIES ? (int)(all - first) : QUERIES;
    bf16 query[QUERIES * MOST_DIM] __attribute__((aligned(64)));
    long visible[QUERIES], place[QUERIES];
    Running running;
    for (int q = 0; q < queries; q++) {
        const long token = (first + q) / shared, head = kv_head * shared + (first + q) % shared;
        visible[q] = step->length[row] - step->count[row] + token + 1;
        place[q] = ((step->first[row] + token) * decoder->heads + head) * dim;
        memcpy(query + q * dim, step->queries + place[q], (size_t)dim * sizeof(bf16));
        running.sums[q] = 0;
        running.most[q] = -INFINITY;
        memset(running.mixed[q], 0, (size_t)dim * sizeof(float));
    }
    memset(query + queries * dim, 0, (size_t)(QUERIES - queries) * dim * sizeof(bf16));
    attend_piece(cached, next, queries, dim, query, visible, 1.0f / sqrtf((float)dim), &running);
    for (int q = 0; q < queries; q++)
        for (int i = 0; i < dim; i += LANES)
            store_bf16(step->mixed + place[q] + i, load(&running.mixed[q][i]) / running.sums[q]);
}

void attend(const Decoder *decoder, const Layer *layer, const Step *step, int members, atomic_int *counter) {
    const int items = step->tiles * decoder->kv_heads;
    for (int item; (item = next_item(counter, items)) >= 0;) {
        const Cached cached = cached_of(decoder, layer, step, item);
        Cached next = {.groups = 0};
        if (item + members < items) /* the one that this member will have next, if all go on alike */
            next = cached_of(decoder, layer, step, item + members);
        take_piece(decoder, step, item, &cached, &next);
    }
}
