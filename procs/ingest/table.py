"""The table of live requests: what comes from output finds its request here, and what ends is told to the engine.

Called by the routes, by the wire from output, and when the process drains or stops. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

import numpy as np

from ...common.errors import BadMessage
from ...common.types import Finish
from ...ipc.logprobs import Words, unpack
from ...ipc.messages import Ending, Text
from .admitted import Admitted
from .errors import Refusal, queue_full
from .live import Choice, LiveRequest


class Engine(Protocol):
    """Where choices are handed to (router.py)."""

    def submit(self, choices: list[Choice]) -> None:
        """Take all choices of a prompt."""

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        """False if the engine never saw the choice: then no ending will come from it."""

    def ended(self, choice: Choice) -> None:
        """A choice has ended, or nobody waits for it any more. It is not aborted after this."""

    def reset_cache(self, new_rid: Callable[[], int], force: bool) -> list[int]:
        """Forget the prefix cache. The answers are the endings of the ids that this has taken from `new_rid`."""


class Table:
    """All live requests. `capacity` is how many choices may live, those that are being tokenised included.

    It is that of all ingests together: `admitted` tells them of these and this of theirs.
    """

    def __init__(self, engine: Engine, index: int, capacity: int, admitted: Admitted | None = None) -> None:
        """`index` is this process's number among its like: it makes ids unique among all of them."""
        self._engine = engine
        self._admitted = Admitted() if admitted is None else admitted
        self._next_rid = (index << 48) + 1
        self.capacity = capacity
        self._reserved = 0
        self._requests: dict[str, LiveRequest] = {}
        self._choices: dict[int, Choice] = {}
        self._resets: dict[int, asyncio.Future[Ending]] = {}
        self._when_idle: Callable[[], None] | None = None
        self._closed: Refusal | None = None

    def __len__(self) -> int:
        """The choices that have not ended."""
        return len(self._choices)

    @property
    def busy(self) -> bool:
        """Whether a request is being tokenised, generated or sent, or an answer about the cache is on its way."""
        return bool(self._requests or self._reserved or self._resets)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call back, once, as soon as `busy` is false."""
        self._when_idle = call
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if self._when_idle is not None and not self.busy:
            call, self._when_idle = self._when_idle, None
            call()

    def reserve(self, count: int) -> None:
        """Take room for choices. Raises a 429 if there is none.

        The others are told before they are looked at: of two ingests that do this at the same time at least one sees
        the other, so that both may be refused, but never too many admitted.
        """
        self._reserved += count
        self._tell()
        taken = len(self._choices) + self._reserved + self._admitted.elsewhere
        if taken > self.capacity:
            self.release(count)
            raise queue_full(taken - count)

    def release(self, count: int) -> None:
        """Give back what `reserve` took: the choices are open now, or there will be none."""
        self._reserved -= count
        self._tell()
        self._look_if_idle()

    def _tell(self) -> None:
        self._admitted.tell(len(self._choices) + self._reserved, len(self._choices))

    def new_rid(self) -> int:
        rid = self._next_rid
        self._next_rid += 1
        return rid

    def open(self, request: LiveRequest) -> None:
        """Hand all choices of a request to the engine. Raises Refusal after `fail_all`."""
        if self._closed is not None:
            raise self._closed
        self._requests[request.id] = request
        self._choices.update({choice.rid: choice for choice in request.choices})
        for _, choices in groupby(request.choices, lambda choice: choice.prompt_index):
            self._engine.submit(list(choices))

    def close(self, request: LiveRequest) -> None:
        """Forget a request, and end what is still generated for it. Doing it twice does no harm."""
        self._requests.pop(request.id, None)
        for choice in request.choices:
            if self._choices.pop(choice.rid, None) is not None:
                self._engine.abort(choice, Finish.ABORT, 0)
                self._engine.ended(choice)
        self._tell()
        self._look_if_idle()

    def abandon(self, request: LiveRequest) -> None:
        """The client has left: end its choices, nobody reads their news."""
        self.close(request)
        request.leave()

    def abort(self, request_id: str) -> bool:
        """End the choices of a request, whose client gets what there is; false if there is no such request."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        for choice in request.choices:
            if choice.rid in self._choices and not self._engine.abort(choice, Finish.ABORT, 0):
                self._end(_unseen(choice, Finish.ABORT))
        return True

    def time_out(self, choices: Iterable[Choice]) -> None:
        """End choices whose time was up before the engine saw them."""
        for choice in choices:
            self._end(_unseen(choice, Finish.TIMEOUT))

    async def reset_cache(self, force: bool) -> Ending:
        """Have the prefix cache forgotten, and wait for all answers: STOP, or the first that is REJECTED.

        Raises Refusal when the process stops first. Who waits may go away: the answers are then passed over.
        """
        if self._closed is not None:
            raise self._closed
        new = asyncio.get_running_loop().create_future
        answers = {rid: new() for rid in self._engine.reset_cache(self.new_rid, force)}
        self._resets.update(answers)
        endings: list[Ending] = await asyncio.gather(*answers.values())
        return next((ending for ending in endings if ending.finish is not Finish.STOP), endings[0])

    def fail_all(self, refusal: Refusal) -> None:
        """End every request whose text is not complete, here and in the engine, and open no more."""
        self._closed = refusal
        for request in list(self._requests.values()):
            if any(choice.rid in self._choices for choice in request.choices):
                self.close(request)
                request.fail(refusal)
        for answer in self._resets.values():
            if not answer.done():
                answer.set_exception(refusal)
        self._resets.clear()

    def deliver(self, text: Text) -> None:
        """Put new text into the mailboxes. Choices that have ended here are passed over. Raises BadMessage."""
        prompt_logprobs, rows = unpack(text.prompt_logprobs), list(_rows(text))
        for rid, of_prompt in prompt_logprobs.items():
            if rid in self._choices:
                self._choices[rid].prompt_words.append(of_prompt.copy())
        for rid, delta, ids, words in rows:
            choice = self._choices.get(rid)
            if choice is not None:
                choice.add(ids, words)
                if delta:
                    choice.request.post(choice, delta)
        for ending in text.endings:
            if ending.rid in self._resets:
                self._end_reset(ending)
                continue
            self._end(ending)

    def _end(self, ending: Ending) -> None:
        choice = self._choices.pop(ending.rid, None)
        if choice is None:
            return
        choice.request.post(choice, "", ending)
        if ending.stop_string is not None:
            # Output found the string in the text; the scheduler may be some tokens ahead by now.
            self._engine.abort(choice, Finish.STOP, ending.tokens)
        self._engine.ended(choice)
        self._tell()

    def _end_reset(self, ending: Ending) -> None:
        answer = self._resets.pop(ending.rid)
        if not answer.done():
            answer.set_result(ending)
        self._look_if_idle()


def _unseen(choice: Choice, finish: Finish) -> Ending:
    """The end of a choice that the engine never saw."""
    return Ending(choice.rid, finish, None, -1, 0, 0, "")


def _rows(text: Text) -> Iterator[tuple[int, str, bytes, Words | None]]:
    """The rows of a Text: id, delta, ids of the tokens behind it, their log-probabilities. Raises BadMessage."""
    rows = len(text.deltas)
    if len(text.rids) != 8 * rows or len(text.counts) != 4 * rows:
        raise BadMessage(f"columns of other lengths than {rows} deltas")
    counts: Sequence[int] = np.frombuffer(text.counts, np.int32).tolist()
    if rows and (min(counts) < 0 or 4 * sum(counts) != len(text.token_ids)):
        raise BadMessage("counts that do not fit the token ids")
    rids: Sequence[int] = np.frombuffer(text.rids, np.int64).tolist()
    logprobs = unpack(text.logprobs)
    if logprobs:
        known = dict(zip(rids, counts, strict=True))
        if any(known.get(rid) != len(words) for rid, words in logprobs.items()):
            raise BadMessage("logprobs of other tokens than those of the rows")
    start = 0
    for rid, delta, count in zip(rids, text.deltas, counts, strict=True):
        yield rid, delta, text.token_ids[start : start + 4 * count], logprobs.get(rid)
        start += 4 * count
