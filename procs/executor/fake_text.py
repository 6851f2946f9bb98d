"""What the fake executor says: an invented continuation of any history, and invented log-probabilities.

Each position has a hash of its token and of the position before, and the next token is a function of the hash. The
plain definition, `continuation`, is what tests compare whole servers with; fake.py does the same in steps, over a
cache. Knows no steps, rows or blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...ipc.messages import Image
from ...ipc.plan import Column
from .words import put_words

VOCAB_SIZE = 49152
EOS_TOKEN_ID = 2
EOS_EVERY = 1000
"""One token of so many is EOS, on average."""

_FIRST_TOKEN = 17  # below are control tokens

ROOT = np.uint64(0x9E3779B97F4A7C15)
"""The hash before the first position."""

_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)
_AXES = np.array([0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F], np.uint64)

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]


def chain(previous: Hashes, inputs: Hashes) -> Hashes:
    """The hash of a position, from that of the position before and its input: token plus mark."""
    mixed = (previous ^ (inputs + ROOT)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


def next_token(hashes: Hashes) -> Column:
    """The token that follows a history with this hash, per entry."""
    spread = hashes >> np.uint64(32)
    tokens = _FIRST_TOKEN + (spread % np.uint64(VOCAB_SIZE - _FIRST_TOKEN)).astype(np.int32)
    tokens[spread % np.uint64(EOS_EVERY) == 0] = EOS_TOKEN_ID
    return tokens.astype(np.int32)


def other_token(tokens: Column) -> Column:
    """Some other token than each of these."""
    return (_FIRST_TOKEN + (tokens - _FIRST_TOKEN + 1) % (VOCAB_SIZE - _FIRST_TOKEN)).astype(np.int32)


def marks(places: Indices, positions: Indices, images: Sequence[Image] = ()) -> Hashes:
    """What tells tokens at these places from plain text there, for which it is 0.

    `positions` [3, tokens] are the model's three positions (mrope), or [tokens] if they are equal: each that is not the
    place counts, and so does every image that covers a place, as often as it is there.
    """
    shifts = (positions - places).astype(np.uint64)
    found: Hashes = (shifts * _AXES[:, None]).sum(axis=0, dtype=np.uint64)
    for image in images:
        within = places - image.offset
        covered = (within >= 0) & (within < image.tokens)
        identity = hashlib.blake2b(image.identity.encode(), digest_size=8).digest()
        found[covered] += (1 + within[covered]).astype(np.uint64) * np.frombuffer(identity, np.uint64)
    return found


def continuation(
    prompt: Sequence[int], count: int, images: Sequence[Image] = (), mrope: bytes = b"", mrope_delta: int = 0
) -> list[int]:
    """The tokens that follow a prompt, by the plain definition: no cache, no batch. `mrope` as in messages.Submit."""
    tokens, inputs_marks = list(prompt), _marks_of_text(len(prompt), count, images, mrope, mrope_delta)
    state = np.array([ROOT])
    for place in range(len(prompt) + count):
        if place >= len(prompt):
            tokens.append(int(next_token(state)[0]))
        state = chain(state, np.uint64(tokens[place]) + inputs_marks[place : place + 1])
    return tokens[len(prompt) :]


def _marks_of_text(prompt_tokens: int, count: int, images: Sequence[Image], mrope: bytes, mrope_delta: int) -> Hashes:
    places = np.arange(prompt_tokens + count)
    positions = np.tile(places, (3, 1))
    positions[:, prompt_tokens:] += mrope_delta
    if mrope:
        positions[:, :prompt_tokens] = np.frombuffer(mrope, np.int32).reshape(3, prompt_tokens)
    return marks(places, positions, images)


def text_logprobs(tokens: Sequence[int], first: int, top: int) -> Column:
    """The words (see messages.Logprobs) [len(tokens) - first, 1 + 2 top] of tokens[first:], each after those before it.

    By the plain definition, for plain text: with `first` 1 they are the log-probabilities of a prompt.
    """
    states = [np.array([ROOT])]
    for token in tokens:
        states.append(chain(states[-1], np.array([token], np.uint64)))
    return logprob_words(np.concatenate(states)[first:-1], np.array(tokens[first:], np.int64), top)


def logprob_words(hashes: Hashes, tokens: Indices, top: int) -> Column:
    """Words [entries, 1 + 2 top] of a token after a history, per entry.

    Best is the token that follows, then those with the next higher ids, each by 1 less probable.
    """
    words = np.zeros((len(hashes), 1 + 2 * top), np.int32)
    highest = -((hashes >> np.uint64(40)) & np.uint64(0xFF)).astype(np.float64) / 256
    following = next_token(hashes).astype(np.int64)
    ranks = np.arange(top)
    ids = (following[:, None] + ranks) % VOCAB_SIZE
    put_words(words, top, highest - (tokens - following) % VOCAB_SIZE, ids, highest[:, None] - ranks)
    return words
