"""The steady load: threads that ask one request after the other, each with its record and its answer.

Threads of this process and not bench's clients: those ask one kind of request and throw its text away, and the few
requests that are open here cost this process next to nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...common.errors import InvalidRequest, ServerError
from ..bench.record import Record
from ..client import Client, UnreachableError
from ..completions import Completion, read_completion
from .answers import put_together
from .asks import Ask

_TRY_AGAIN_S = 0.05
"""How soon a request whose connection broke is asked again."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A request that has ended: its times, and its answer unless the record has an error.

    `broke`: its connection did; `tries` counts how often it was asked.
    """

    ask: Ask
    record: Record
    answer: Completion | None
    broke: bool = False
    tries: int = 1


def ask_once(client: Client, ask: Ask) -> Heard:
    """Send a request and read its answer, to whatever end it comes."""
    begun_s = time.monotonic()
    moments_s: list[float] = []
    answer, error, broke = None, None, False
    try:
        if ask.streamed:
            whole = put_together(_noting(client.stream(ask.path, dict(ask.body)), moments_s))
        else:
            whole = client.post(ask.path, dict(ask.body))
        answer = read_completion(ask.name, whole)
    except (ServerError, InvalidRequest) as failure:
        error, broke = f"{type(failure).__name__}: {failure}", isinstance(failure, UnreachableError)
    except (KeyError, TypeError) as failure:
        error = f"an answer that lacks {failure}"
    usage = (0, 0) if answer is None else (answer.prompt_tokens, answer.completion_tokens)
    return Heard(ask, Record(begun_s, time.monotonic(), tuple(moments_s), *usage, error), answer, broke)


def _noting(events: Iterable[Any], moments_s: list[float]) -> Iterator[Any]:
    for event in events:
        moments_s.append(time.monotonic())
        yield event


def ask_each(client: Client, asks: Sequence[Ask], streams: int) -> list[Heard]:
    """Ask each of these once, so many at a time."""
    with ThreadPoolExecutor(streams) as pool:
        return list(pool.map(lambda ask: ask_once(client, ask), asks))


class SteadyLoad:
    """So many requests at any time, in turn, from now until `end`. `heard` has those that have ended.

    With `again` a request whose connection breaks is asked until one does not.
    """

    def __init__(self, client: Client, asks: Sequence[Ask], streams: int, again: bool) -> None:
        self.heard: list[Heard] = []
        self._client = client
        self._again = again
        self._next = itertools.cycle(asks)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._given_up = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(streams)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                ask = next(self._next)
            heard = self._ask(ask)
            with self._lock:
                self.heard.append(heard)

    def _ask(self, ask: Ask) -> Heard:
        heard = ask_once(self._client, ask)
        while heard.broke and self._again and not self._given_up.wait(_TRY_AGAIN_S):
            heard = dataclasses.replace(ask_once(self._client, ask), tries=heard.tries + 1)
        return heard

    def end(self, timeout_s: float) -> int:
        """Ask for no more, wait for what is open; how many requests had not ended in time and were broken off."""
        self._ending.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        late = sum(thread.is_alive() for thread in self._threads)
        self._given_up.set()
        self._client.close()
        for thread in self._threads:
            thread.join()
        return late
