"""The naive scheduler: one request at a time, no batch, no cache, no end of memory.

It knows only what was asked and the plain definition of what the fake executor says (fake_text.py). It answers what a
request must be told, how it ends if nobody ends it before, and what its KV cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Image
from fourstroke.ipc.plan import Column
from fourstroke.procs.executor.fake import EOS_TOKEN_ID
from fourstroke.procs.executor.fake_text import ROOT, Hashes, chain, logprob_words, marks, next_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one request wants. `positions`: those of its prompt, for a model with three, here all the same; or none."""

    prompt: tuple[int, ...]
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    images: tuple[Image, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def mrope(self) -> bytes:
        return np.tile(np.array(self.positions, np.int32), (3, 1)).tobytes()

    @property
    def mrope_delta(self) -> int:
        return self.positions[-1] + 1 - len(self.prompt) if self.positions else 0


class Story:
    """A request alone: its `outputs`, why the last one ends it, and the `hashes` of prompt and outputs.

    `room` is how many outputs it can have at most; `after`: the tokens behind the prompt, one more than there is room
    for, whatever ends it before; `text`: prompt and outputs.
    """

    def __init__(self, asked: Asked, max_model_len: int) -> None:
        self.asked = asked
        self.room = max(0, min(asked.max_tokens, max_model_len - len(asked.prompt)))
        self.hashes = text_hashes(asked.prompt, self.room, asked.images, asked.positions)
        self.after = next_token(self.hashes[len(asked.prompt) - 1 :])
        self.outputs: list[int] = []
        self.finish = Finish.NONE if self.room else Finish.LENGTH
        self.stop_token = -1
        while not self.finish:
            self.outputs.append(int(self.after[len(self.outputs)]))
            self._judge(self.outputs[-1])
        self.text = np.array([*asked.prompt, *self.outputs], np.int32)

    def _judge(self, token: int) -> None:
        """Whether the request ends with the output that came last."""
        asked, told = self.asked, self.outputs
        may_stop = len(told) >= asked.min_tokens
        if may_stop and token == EOS_TOKEN_ID and not asked.ignore_eos:
            self.finish = Finish.STOP
        elif may_stop and token in asked.stop_token_ids:
            self.finish, self.stop_token = Finish.STOP, token
        elif may_stop and any(tuple(told[-len(words) :]) == words for words in asked.stop_sequences):
            self.finish = Finish.STOP
        elif len(told) == self.room:
            self.finish = Finish.LENGTH

    def logprobs(self, first: int, end: int, top: int) -> Column:
        """The words of the tokens first..end-1 of the text."""
        return logprob_words(self.hashes[first - 1 : end - 1], self.text[first:end].astype(np.int64), top)


@lru_cache(maxsize=4096)
def text_hashes(
    prompt: tuple[int, ...], outputs: int, images: tuple[Image, ...] = (), positions: tuple[int, ...] = ()
) -> Hashes:
    """The hash of every position of a prompt and so many outputs."""
    known = len(prompt)
    places = np.arange(known + outputs)
    shifted = places + (positions[-1] + 1 - known if positions else 0)
    shifted[:known] = positions or places[:known]
    own_marks = marks(places, np.tile(shifted, (3, 1)), images)
    hashes = np.zeros(known + outputs, np.uint64)
    last = np.array([ROOT])
    for place in range(known + outputs):
        token = prompt[place] if place < known else int(next_token(last)[0])
        last = chain(last, np.uint64(token) + own_marks[place : place + 1])
        hashes[place] = last[0]
    return hashes


def image_positions(prompt_tokens: int, images: Sequence[Image]) -> tuple[int, ...]:
    """Positions that count up, but not inside an image; they depend only on what comes before a token."""
    inside = [
        any(image.offset < place < image.offset + image.tokens for image in images) for place in range(prompt_tokens)
    ]
    counted = np.cumsum(~np.array(inside)) - 1
    return tuple(counted.tolist())


@lru_cache(maxsize=64)
def token_before_eos(prompt: tuple[int, ...], within: int = 6) -> int:
    """A token behind which EOS is soon said: after it at most so many outputs come before EOS."""
    last = text_hashes(prompt, 0)[-1:] if prompt else np.array([ROOT])
    candidates = np.arange(100, 2000)
    hashes = chain(np.repeat(last, len(candidates)), candidates.astype(np.uint64))
    found = np.zeros(len(candidates), np.bool_)
    for _ in range(within):
        tokens = next_token(hashes)
        found |= tokens == EOS_TOKEN_ID
        hashes = chain(hashes, tokens.astype(np.uint64))
    return int(candidates[np.flatnonzero(found)[0]])
