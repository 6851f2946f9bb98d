"""`fourstroke kv-events bench` without --pub: what those who listen cost an engine.

A server of its own, with the fake executor, streams text all the time, while nobody, one or sixteen subscribers listen,
one of them without ever reading, and while the whole past is replayed. A step takes as long as passes between two
pieces of a stream. The conditions take turns, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

from ...common.figures import summarise
from ..bench.figures import as_table, make_console
from ..client import Client
from ..private_server import PrivateServer
from .listeners import listeners

STREAMS = 4
ROUNDS = 5
_STEP_S = 0.01
_PROMPT_TOKENS, _OUTPUT_TOKENS = 256, 128
_FLAGS = (
    *("--executor=fake", f"--fake-step={_STEP_S}", "--log-level=warning", "--kv-events"),
    *("--kv-events-endpoint=tcp://127.0.0.1:0", "--kv-events-replay-endpoint=tcp://127.0.0.1:0"),
)

CONDITIONS = {
    "nobody listens": (0, 0, 0),
    "1 subscriber": (1, 0, 0),
    "16 subscribers, one stalled": (15, 1, 0),
    "replays of everything": (0, 0, 1),
}
"""How many subscribers read, how many never do, and how many replays are asked for, one after the other."""


def bench_cost(seconds: float, *, as_json: bool) -> None:
    """Measure for so many seconds in each condition, and print the times between pieces of a stream."""
    gaps: dict[str, list[float]] = {name: [] for name in CONDITIONS}
    with ExitStack() as stack:
        server = PrivateServer(list(_FLAGS))
        stack.callback(server.close)
        client = Client(server.url)
        (source,) = client.get("/kv_event_sources")["sources"]
        load = stack.enter_context(_load(server.url))
        for _ in range(ROUNDS):
            for name, counts in CONDITIONS.items():
                with listeners(source["endpoint"], source["replay_endpoint"], *counts):
                    gaps[name] += load.measure(seconds / ROUNDS)
    figures = [summarise(name, "between tokens", "ms", found) for name, found in gaps.items()]
    if as_json:
        sys.stdout.write(json.dumps([asdict(figure) for figure in figures]) + "\n")
        return
    make_console().print(as_table(figures, 1))


class _Load:
    """Streams that go on all the time, and the times between their pieces, in ms."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._stopping = threading.Event()
        self._gaps: list[float] | None = None
        self._threads = [
            threading.Thread(target=self._stream, args=(number,), daemon=True) for number in range(STREAMS)
        ]
        for thread in self._threads:
            thread.start()

    def measure(self, seconds: float) -> list[float]:
        """The times between pieces that come in so many seconds from now on."""
        gaps: list[float] = []
        self._gaps = gaps
        self._stopping.wait(seconds)
        self._gaps = None
        return gaps

    def _stream(self, number: int) -> None:
        dice = random.Random(number)
        while not self._stopping.is_set():
            prompt = [dice.randrange(100, 40_000) for _ in range(_PROMPT_TOKENS)]
            body = {"prompt": prompt, "max_tokens": _OUTPUT_TOKENS, "ignore_eos": True}
            last_s = None
            for _ in self._client.stream("/v1/completions", body):
                now_s = time.perf_counter()
                if self._gaps is not None and last_s is not None:
                    self._gaps.append(1000 * (now_s - last_s))
                last_s = now_s

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def _load(url: str) -> Iterator[_Load]:
    load = _Load(url)
    try:
        yield load
    finally:
        load.stop()
