"""What must hold when nothing is left to do in a World: books, and every request against the naive scheduler."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import NO_LOGPROBS
from fourstroke.procs.scheduler.cache.blocks import blocks_for
from fourstroke.procs.scheduler.request import Phase, Request

from .crowd import POISON
from .model import Asked, Story

if TYPE_CHECKING:
    from .world import World

for_life = attrgetter(
    "rid", "prompt_tokens", "seed", "sampling", "limits", "ticket", "keys", "priority", "deadline_s", "images",
    "mrope", "mrope_delta", "remote", "siblings", "needs_state", "arrival", "arrived_s", "token_limit",
)  # fmt: skip
"""What nothing changes in a request's life."""


def check_end(world: World) -> None:
    """Everything is free, and everybody was told what was to be told."""
    core = world.core
    assert core.pool.free == core.pool.size and core.counts() == (0, 0, 0) and not core.connector.open
    assert core.state_slots.free == core.state_slots.count and not world.movers.fake.busy
    assert not core._lives.fenced and not core.table.taken
    counted = core.statistics
    assert counted.requests == len(world.asked) == counted.requests_finished + counted.requests_rejected
    assert counted.generation_tokens == sum(map(len, world.outputs.values()))
    for rid in world.asked:
        _check_request(world, rid)
    for rid, done in world.resets.items():
        assert world.ended[rid].finish is (Finish.STOP if done else Finish.REJECTED)
    assert world.ended.keys() == (world.asked.keys() - world.silenced.keys()) | world.resets.keys()


def _check_request(world: World, rid: int) -> None:
    request, story, told = world.asked[rid], world.stories[rid], world.outputs.get(rid, [])
    assert for_life(request) == world.lives[rid], "something changed that is for life"
    assert request.phase is Phase.GONE
    assert told == story.outputs[: len(told)]
    _check_last_word(world, rid, story, told)
    assert world.opened[rid] % world.hello.block_size == 0 and world.opened[rid] < max(1, request.prompt_tokens)
    _check_logprobs(world, request, story, told)


def _check_last_word(world: World, rid: int, story: Story, told: list[int]) -> None:
    """The last word is the naive one, or one that something that happened explains."""
    if rid in world.silenced:
        assert len(told) == world.silenced[rid], "words after the last"
        return
    ended, request = world.ended[rid], world.asked[rid]
    assert (ended.finish is Finish.REJECTED) == _is_impossible(world, story.asked)
    assert (len(told) < len(story.outputs) or not story.outputs) or ended.finish is story.finish
    match ended.finish:
        case Finish.LENGTH if ended.detail == "kv_capacity":
            assert blocks_for(len(story.asked.prompt) + len(told), world.hello.block_size) > world.core.pool.size
        case Finish.STOP | Finish.LENGTH:
            assert (told, ended.finish, ended.stop_token) == (story.outputs, story.finish, story.stop_token)
            assert POISON not in story.asked.prompt or world.moves, "a poisoned prompt ended well"
        case Finish.ABORT:
            assert rid in world.aborted
        case Finish.TIMEOUT:
            assert world.deadlines[rid] <= world.now
        case Finish.ERROR:
            fetched = request.remote is not None and world.core.connector.fail
            assert rid in world.failing or POISON in story.asked.prompt or fetched
    if ended.detail != "kv_capacity":
        sends = request.remote is not None and request.remote.decoded and world.moves
        assert (ended.kv is not None) == (sends and ended.finish in (Finish.STOP, Finish.LENGTH))


def _is_impossible(world: World, asked: Asked) -> bool:
    known = len(asked.prompt)
    uncut = not world.policy.chunked and known > world.policy.max_num_batched_tokens
    too_large = blocks_for(known, world.hello.block_size) > world.core.pool.size
    return known >= world.hello.max_model_len or uncut or too_large


def _check_logprobs(world: World, request: Request, story: Story, told: list[int]) -> None:
    """One entry for each output, and after a good end one for each token of the prompt but the first."""
    known, sampling = request.prompt_tokens, request.sampling
    words = world.logprobs.get(request.rid, [])
    if sampling.logprobs != NO_LOGPROBS:
        assert np.array_equal(
            words or np.zeros((0, 1 + 2 * sampling.logprobs)),
            story.logprobs(known, known + len(told), sampling.logprobs),
        )
    else:
        assert not words
    words = world.prompt_logprobs.get(request.rid, [])
    ended = world.ended.get(request.rid)
    if sampling.prompt_logprobs != NO_LOGPROBS and ended and ended.finish in (Finish.STOP, Finish.LENGTH):
        assert len(words) == known - 1
    if words:
        assert np.array_equal(words, story.logprobs(1, 1 + len(words), sampling.prompt_logprobs))
