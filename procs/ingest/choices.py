"""From parameters and prompts to the choices of a request: seeds, limits, order. Pure values."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from ...common.types import SamplingParams
from ...ipc.messages import NO_LOGPROBS, Limits, Sampling
from ...ipc.ring import Tokens
from .live import Choice, LiveRequest
from .table import Table

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class EncodedPrompt(NamedTuple):
    """The ids of a prompt, and the hashes of its full blocks: none without a prefix cache."""

    tokens: Tokens
    digests: bytes = b""


def add_choices(
    request: LiveRequest,
    prompts: Sequence[EncodedPrompt],
    params: SamplingParams,
    table: Table,
    max_model_len: int,
    grammar: str = "",
) -> None:
    """Give a request `n` choices for each prompt, in the order of the prompts. Their texts obey the grammar."""
    sampling = _sampling(params, bool(request.echoes), grammar)
    for prompt_index, (tokens, digests) in enumerate(prompts):
        limits = _limits(params, max_model_len - len(tokens))
        for number in range(params.n):
            index = prompt_index * params.n + number
            rid, seed = table.new_rid(), choice_seed(params.seed, index)
            request.choices.append(Choice(request, rid, seed, index, prompt_index, tokens, digests, sampling, limits))


def _limits(params: SamplingParams, room: int) -> Limits:
    """`room` is how many tokens fit after the prompt, at least 1."""
    most = room if params.max_tokens is None else min(params.max_tokens, room)
    return Limits(most, min(params.min_tokens, most), params.ignore_eos, tuple(map(int, params.stop_token_ids)))


def _sampling(params: SamplingParams, echo: bool, grammar: str) -> Sampling:
    """`echo`: the prompt belongs to the text, and has log-probabilities where that has any."""
    biases = dict(params.logit_bias)
    logprobs = NO_LOGPROBS if params.logprobs is None else params.logprobs
    return Sampling(
        temperature=0.0 if params.greedy else params.temperature,
        top_k=max(params.top_k, 0),
        top_p=params.top_p,
        min_p=params.min_p,
        biased=tuple(biases),
        biases=tuple(biases.values()),
        logprobs=logprobs,
        prompt_logprobs=logprobs if echo else NO_LOGPROBS,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        grammar=grammar,
    )


def choice_seed(seed: int | None, index: int) -> int:
    """The seed of a choice, in [-2^63, 2^63).

    Without a seed: a fresh one. With one: the first choice has the seed itself, so that it is the same
    whatever n is; the others have the output of splitmix64 (Steele, Lea, Flood 2014) at state seed + index.
    """
    if seed is None:
        return secrets.randbits(63)
    if index == 0:
        return seed
    z = (seed + index * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z
