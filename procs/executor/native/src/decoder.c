/* A step through all layers: one call, in which a team of threads goes from kernel to kernel; see decoder.h. */
#include "decoder.h"

#include <stdlib.h>

enum { KERNELS = 9 }; /* in a layer */

typedef struct {
    const Decoder *decoder;
    const Step *step;
    Team *team;
    atomic_int *counters; /* one for the embedding, for each kernel of each layer, and for the result */
} Run;

/* Each kernel needs all of what the one before has made. `next`: what is read after this layer, if anything. */
static void run_layer(const Run *run, const Layer *layer, const Weight *next, atomic_int *counter) {
    const Decoder *decoder = run->decoder;
    const Step *step = run->step;
    const int tokens = step->tokens, hidden = decoder->hidden, members = team_members(run->team);
    const int query = decoder->heads * decoder->head_dim, projected = query + 2 * decoder->kv_heads * decoder->head_dim;
    const Weight *weights[] = {&layer->query_key_value, &layer->output, &layer->gate_up, &layer->down, next};

    rms_norm(tokens, hidden, step->stream, layer->attention_norm, decoder->epsilon, step->normed, counter++);
    team_meet(run->team);
    project(&(Projection){weights[0], weights[1], tokens, EPILOGUE_STORE, projected, step->normed, step->projected},
            members, counter++);
    team_meet(run->team);
    rotate_and_write(decoder, layer, step, counter++);
    team_meet(run->team);
    attend(decoder, layer, step, members, counter++);
    team_meet(run->team);
    right_side(tokens, query, step->mixed, step->attended, counter++);
    team_meet(run->team);
    project(&(Projection){weights[1], weights[2], tokens, EPILOGUE_ADD, hidden, step->attended, step->stream}, members,
            counter++);
    team_meet(run->team);
    rms_norm(tokens, hidden, step->stream, layer->mlp_norm, decoder->epsilon, step->normed, counter++);
    team_meet(run->team);
    project(&(Projection){weights[2], weights[3], tokens, EPILOGUE_GATE, decoder->inner, step->normed, step->gated},
            members, counter++);
    team_meet(run->team);
    project(&(Projection){weights[3], weights[4], tokens, EPILOGUE_ADD, hidden, step->gated, step->stream}, members,
            counter++);
    team_meet(run->team);
}

static void run_step(void *argument, int member) {
    const Run *run = argument;
    const Decoder *decoder = run->decoder;
    const Step *step = run->step;
    atomic_int *counter = run->counters;
    (void)member;
    embed(decoder, step, counter++);
    team_meet(run->team);
    for (int i = 0; i < decoder->layers; i++, counter += KERNELS) {
        const Layer *layer = decoder->layer + i;
        run_layer(run, layer, i + 1 < decoder->layers ? &layer[1].query_key_value : &decoder->head, counter);
    }
    for (int block; (block = next_item(counter, blocks_of(step->tokens))) >= 0;)
        stream_take(step->tokens, decoder->hidden, step->stream, step->hidden, block);
    tile_release();
}

/* step->hidden of a step; its tokens' keys and values are in the cache then. 0 if there is no memory. */
int decoder_forward(Team *team, const Decoder *decoder, const Step *step) {
    Run run = {decoder, step, team, calloc(2 + (size_t)decoder->layers * KERNELS, sizeof(atomic_int))};
    if (!run.counters)
        return 0;
    team_run(team, run_step, &run);
    free(run.counters);
    return 1;
}

typedef struct {
    const Decoder *decoder;
    Team *team;
    int rows;
    const float *hidden;
    float *stream;
    bf16 *normed;
    float *logits;
    int vocabulary;
    atomic_int counters[3];
} Heads;

static void run_head(void *argument, int member) {
    Heads *heads = argument;
    const Decoder *decoder = heads->decoder;
    const Projection head = {&decoder->head,    &decoder->layer[0].query_key_value,
                             heads->rows,       EPILOGUE_STORE,
                             heads->vocabulary, heads->normed,
                             heads->logits};
    (void)member;
    for (int block; (block = next_item(&heads->counters[0], blocks_of(heads->rows))) >= 0;)
        stream_put(heads->rows, decoder->hidden, heads->hidden, heads->stream, block);
    team_meet(heads->team);
    rms_norm(heads->rows, decoder->hidden, heads->stream, decoder->final_norm, decoder->epsilon, heads->normed,
             &heads->counters[1]);
    team_meet(heads->team);
    project(&head, team_members(heads->team), &heads->counters[2]);
    tile_release();
}

/* Logits [rows, vocabulary] of hidden states [rows, hidden]; `stream` and `normed` are room for the rows, as in a step.
 */
void decoder_logits(Team *team, const Decoder *decoder, int rows, const float *hidden, float *stream, bf16 *normed,
                    float *logits, int vocabulary) {
    Heads heads = {decoder, team, rows, hidden, stream, normed, logits, vocabulary, {0, 0, 0}};
    team_run(team, run_head, &heads);
}

/* Zero blocks of a layer, so that no NaN of an earlier owner lies behind a new owner's tokens: a weight of 0 does not
 * hide it. */
void cache_clear(const Decoder *decoder, const int64_t *blocks, int count) {
    const long size = (long)decoder->kv_heads * decoder->block_size * decoder->head_dim;
    for (int i = 0; i < decoder->layers; i++)
        for (int b = 0; b < count; b++) {
            memset(decoder->layer[i].keys + blocks[b] * size, 0, (size_t)size * sizeof(bf16));
            memset(decoder->layer[i].values + blocks[b] * size, 0, (size_t)size * sizeof(bf16));
        }
}
