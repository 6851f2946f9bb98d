/* A step through all layers: one call, in which a team of threads goes from kernel to kernel; see decoder.h. */
#include "decoder.h"

#include <stdlib.h>

enum { KERNELS = 8 }; /* in a layer */

typedef struct {
    const Decoder *decoder;
    const Step *step;
    Team *team;
    atomic_int *counters; /* one for each kernel of each layer, and one for the embedding */
} Run;

static void embed(const Decoder *decoder, const Step *step, atomic_int *counter) {
    const int size = decoder->hidden;
    for (int token; (token = next_item(counter, step->tokens)) >= 0;)
        for (int i = 0; i < size; i += LANES)
            store(step->hidden + (long)token * size + i, from_bf16(decoder->embedding + step->token[token] * size + i));
}

/* Each kernel needs all of what the one before has made. */
static void run_layer(const Run *run, const Layer *layer, atomic_int *counter) {
    const Decoder *decoder = run->decoder;
    const Step *step = run->step;
    const int tokens = step->tokens, hidden = decoder->hidden, inner = decoder->inner;
    const int projected = (decoder->heads + 2 * decoder->kv_heads) * decoder->head_dim;

    rms_norm(tokens, hidden, step->hidden, layer->attention_norm, decoder->epsilon, step->normed, counter++);
    team_meet(run->team);
    matmul(&layer->query_key_value, tokens, step->normed, EPILOGUE_STORE, step->projected, projected, projected, counter++);
    team_meet(run->team);
    rotate_and_write(decoder, layer, step, counter++);
    team_meet(run->team);
    attend(decoder, layer, step, team_members(run->team), counter++);
    team_meet(run->team);
    matmul(&layer->output, tokens, step->mixed, EPILOGUE_ADD, step->hidden, hidden, hidden, counter++);
    team_meet(run->team);
    rms_norm(tokens, hidden, step->hidden, layer->mlp_norm, decoder->epsilon, step->normed, counter++);
    team_meet(run->team);
    matmul(&layer->gate_up, tokens, step->normed, EPILOGUE_GATE, step->gated, inner, inner, counter++);
    team_meet(run->team);
    matmul(&layer->down, tokens, step->gated, EPILOGUE_ADD, step->hidden, hidden, hidden, counter++);
    team_meet(run->team);
}

static void run_step(void *argument, int member) {
    const Run *run = argument;
    (void)member;
    embed(run->decoder, run->step, run->counters);
    team_meet(run->team);
    for (int i = 0; i < run->decoder->layers; i++)
        run_layer(run, run->decoder->layer + i, run->counters + 1 + i * KERNELS);
    tile_release();
}

/* step->hidden of a step; its tokens' keys and values are in the cache then. 0 if there is no memory. */
int decoder_forward(Team *team, const Decoder *decoder, const Step *step) {
    Run run = {decoder, step, team, calloc(1 + (size_t)decoder->layers * KERNELS, sizeof(atomic_int))};
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
    bf16 *normed;
    float *logits;
    int vocabulary;
    atomic_int counters[2];
} Heads;

static void run_head(void *argument, int member) {
    Heads *heads = argument;
    const Decoder *decoder = heads->decoder;
    (void)member;
    rms_norm(heads->rows, decoder->hidden, heads->hidden, decoder->final_norm, decoder->epsilon, heads->normed,
             &heads->counters[0]);
    team_meet(heads->team);
    matmul(&decoder->head, heads->rows, heads->normed, EPILOGUE_STORE, heads->logits, heads->vocabulary, heads->vocabulary,
           &heads->counters[1]);
    tile_release();
}

/* Logits [rows, vocabulary] of hidden states [rows, hidden]; `normed` is room for the rows, filled up to 32. */
void decoder_logits(Team *team, const Decoder *decoder, int rows, const float *hidden, bf16 *normed, float *logits,
                    int vocabulary) {
    Heads heads = {decoder, team, rows, hidden, normed, logits, vocabulary, {0, 0}};
    team_run(team, run_head, &heads);
}

/* Zero blocks of a layer, so that no NaN of an earlier owner lies behind a new owner's tokens: a weight of 0 does not hide it. */
void cache_clear(const Decoder *decoder, const int64_t *blocks, int count) {
    const long size = (long)decoder->kv_heads * decoder->block_size * decoder->head_dim;
    for (int i = 0; i < decoder->layers; i++)
        for (int b = 0; b < count; b++) {
            memset(decoder->layer[i].keys + blocks[b] * size, 0, (size_t)size * sizeof(bf16));
            memset(decoder->layer[i].values + blocks[b] * size, 0, (size_t)size * sizeof(bf16));
        }
}
