"""The table of live requests: what comes from output finds its request here, and what ends is told to the engine.

When a process has died, what it had is handed over again to the one in its place, each choice with the tokens that it
has: nobody but this table knows of a request until its end. Called by the routes, by the wires from output, with each
heartbeat, and when the process drains or stops. Knows no HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from ...common.types import Finish
from ...ipc.messages import Ending, Text
from .admitted import Admitted
from .errors import Refusal, queue_full
from .live import Choice, LiveRequest
from .lives import LivesWatch, Replaced
from .resets import Engines, Resets
from .resubmission import renew, submissions
from .text_columns import read_text

_News = TypeVar("_News")

PATIENCE_S = 2.0
"""So long after a choice's time is up its end is waited for: who should say it may be dead."""


class Engine(Engines, Protocol):
    """Where choices are handed to (router.py)."""

    def submit(self, choices: list[Choice]) -> None:
        """Take all choices of a prompt."""

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        """False if the engine never saw the choice: then no ending will come from it."""

    def ended(self, choice: Choice) -> None:
        """A choice has ended, or nobody waits for it any more. It is not aborted after this."""

    def lost(self, replaced: Replaced) -> Collection[int]:
        """The ids of choices that were lost with those who have been replaced."""

    def resubmit(self, submissions: Sequence[list[Choice]]) -> None:
        """Take choices that were lost, in order, before all that came later."""


class Table:
    """All live requests. `capacity` is how many choices may live, those that are being tokenised included.

    It is that of all ingests together: `admitted` tells them of these and this of theirs.
    """

    def __init__(
        self,
        engine: Engine,
        first_rid: int,
        capacity: int,
        admitted: Admitted | None = None,
        lives: LivesWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first_rid` and all that follow are this process's own ids; `lives` are those of whoever is behind it."""
        self._engine = engine
        self._admitted = Admitted() if admitted is None else admitted
        self._lives = LivesWatch() if lives is None else lives
        self._clock = clock
        self._next_rid = first_rid
        self.capacity = capacity
        self._reserved = 0
        self._requests: dict[str, LiveRequest] = {}
        self._choices: dict[int, Choice] = {}
        self._resets = Resets(engine, self.new_rid)
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
        request.abort(self._clock())
        for choice in self._live(request):
            if not self._engine.abort(choice, Finish.ABORT, 0):
                self._end(_ended_here(choice, Finish.ABORT))
        return True

    def _live(self, request: LiveRequest) -> list[Choice]:
        """The choices of a request that have not ended."""
        return [choice for choice in request.choices if choice.rid in self._choices]

    def time_out(self, choices: Iterable[Choice]) -> None:
        """End choices whose time was up before the engine saw them."""
        for choice in choices:
            self._end(_ended_here(choice, Finish.TIMEOUT))

    def end_overdue(self) -> None:
        """End the choices whose time is up and whose end nobody has said."""
        latest_s = self._clock() - PATIENCE_S
        for request in [one for one in self._requests.values() if one.deadline_s <= latest_s]:
            for choice in self._live(request):
                self._engine.abort(choice, Finish.ABORT, 0)
                self._end(_ended_here(choice, request.early_end))

    def look(self) -> None:
        """See whether a process behind this one has been replaced, and hand over again what was lost with it.

        To be called before anything is taken in, and by and by: a text may have a gap where the one before died. What
        was sent into a change of lives, before this has seen it, is sent once more.
        """
        replaced = self._lives.look()
        if replaced is None:
            return
        lost = self._engine.lost(replaced)
        choices = [one for request in self._requests.values() for one in self._live(request) if one.rid in lost]
        for choice in choices:
            self._engine.abort(choice, Finish.ABORT, 0)  # an engine that lives may still compute it
        self._resets.ask_again(replaced)
        self._engine.resubmit(submissions([choice for choice in choices if self._goes_on(choice)]))

    def _goes_on(self, choice: Choice) -> bool:
        """Make a new request of a choice that was lost; false if it was to end anyway, and so has ended."""
        if choice.request.aborted:
            self._end(_ended_here(choice, Finish.ABORT))
            return False
        self._engine.ended(choice)
        del self._choices[choice.rid]
        renew(choice, self.new_rid())
        self._choices[choice.rid] = choice
        return True

    async def reset_cache(self, force: bool) -> Ending:
        """Have the prefix cache forgotten, and wait for all answers: STOP, or the first that is REJECTED.

        Raises Refusal when the process stops first. Who waits may go away: the answers are then passed over.
        """
        if self._closed is not None:
            raise self._closed
        return await self._resets.ask(force)

    def fail_all(self, refusal: Refusal) -> None:
        """End every request whose text is not complete, here and in the engine, and open no more."""
        self._closed = refusal
        for request in list(self._requests.values()):
            if any(choice.rid in self._choices for choice in request.choices):
                self.close(request)
                request.fail(refusal)
        self._resets.fail(refusal)

    def deliver(self, text: Text) -> None:
        """Put new text into the mailboxes. Choices that have ended here are passed over. Raises BadMessage."""
        self.look()
        columns = read_text(text)
        for choice, cached_tokens in self._known(columns.opened):
            if choice.cached_tokens is None:
                choice.cached_tokens = cached_tokens
        for choice, words in self._known(columns.prompt_words):
            choice.prompt_words.append(words.copy())
        for row in columns.rows:
            if row.rid in self._choices:
                choice = self._choices[row.rid]
                choice.add(row.ids, row.words)
                if row.delta:
                    choice.request.post(choice, row.delta)
        for ending in text.endings:
            if self._resets.take(ending):
                self._look_if_idle()
            else:
                self._end(ending)

    def _known(self, by_rid: Mapping[int, _News]) -> Iterator[tuple[Choice, _News]]:
        """What is said of choices that live."""
        for rid, news in by_rid.items():
            if rid in self._choices:
                yield self._choices[rid], news

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


def _ended_here(choice: Choice, finish: Finish) -> Ending:
    """The end of a choice of which no other will come."""
    return Ending(choice.rid, finish, None, -1, choice.generated_tokens, "")
