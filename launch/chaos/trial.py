"""A trial of a server that runs: what it answers undisturbed, then under blows, then what it holds when all is over."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...common.errors import ServerError
from ...common.types import role_of
from ..bench.measure import target_at
from ..client import Client
from ..completions import Completion
from ..console import say
from ..private_server import PrivateServer
from .answers import difference
from .asks import Ask, all_asks
from .blows import Blow, plan_blows
from .books import Books, leaks
from .load import Heard, SteadyLoad, ask_each
from .report import Found
from .soak import Samples, growing
from .strike import strike_all

ENDS_WITHIN_S = 120.0
"""After the load a request, and after the last blow a process, has so long; then it is lost."""

RESTS_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1
"""When nobody asks any more, the books are read so often until they are in order."""


@dataclass(frozen=True, slots=True)
class Order:
    """So many seconds of load from so many streams, with a blow every so often (None: never) on one of these roles."""

    seconds: float
    every_s: float | None
    roles: Sequence[str]
    streams: int
    seed: int


def run_trial(server: PrivateServer, names: Sequence[str], order: Order) -> Found:
    """Try a server whose board has these rows. Raises ServerError if it is not fit to be tried, or ends."""
    asks = all_asks(target_at(server.url, None, None, None).model)
    expected = undisturbed(server.url, asks, order.streams)
    books = Books(server.pid, names)
    if unrest := _unrest(books):
        raise ServerError(f"the server does not come to rest before anybody is hit: {unrest[0]}")
    before = books.holdings()
    samples = Samples(books.holdings)
    blows = _planned(order, books.names)

    def look(now_s: float) -> None:
        samples.look(now_s)
        if (cause := server.cause_of_death(0)) is not None:
            raise ServerError(f"the server ended: {cause}")

    load = SteadyLoad(Client(server.url), asks, order.streams, again="ingest" in order.roles)
    try:
        begun_s = time.monotonic()
        recoveries = strike_all(books, blows, order.seconds, ENDS_WITHIN_S, look)
        seconds = time.monotonic() - begun_s
    finally:
        late = load.end(ENDS_WITHIN_S)
    wrong = [f"{late} requests did not end within {ENDS_WITHIN_S:g} s"] if late else []
    wrong += judged(expected, load.heard)
    wrong += [
        f"{one.blow.name} was not ready again after {one.blow.signal.name}" for one in recoveries if not one.ready_s
    ]
    if len(recoveries) < len(blows):
        wrong.append(f"{len(blows) - len(recoveries)} blows were never struck: their victims were not ready")
    wrong += _unrest(books) + leaks(before, books.holdings())
    wrong += growing(samples) if order.every_s is None else []
    return Found(order.seed, seconds, load.heard, recoveries, samples, wrong)


def undisturbed(url: str, asks: Sequence[Ask], streams: int) -> dict[str, Completion]:
    """The answers of a server that nobody disturbs, by the titles of the requests.

    It is asked twice, the second time with a full prefix cache. Raises ServerError if a request fails, or if the
    answers differ: there would be nothing to hold others against.
    """
    first = ask_each(Client(url), asks, streams)
    answers = {heard.ask.title: heard.answer for heard in first if heard.answer is not None}
    failed = [f"{heard.ask.title}: {heard.record.error}" for heard in first if heard.answer is None]
    wrong = failed or judged(answers, ask_each(Client(url), asks, streams))
    if wrong:
        raise ServerError(f"the server is not fit to be tried; undisturbed, {wrong[0]}")
    return answers


def judged(expected: Mapping[str, Completion], heard: Sequence[Heard]) -> list[str]:
    """What is wrong with these, in words, each thing once with how often it was so."""
    wrong: Counter[str] = Counter()
    for one in heard:
        verdict = one.record.error if one.answer is None else difference(expected[one.ask.title], one.answer)
        if verdict:
            wrong[f"{one.ask.title}: {verdict}"] += 1
    return [f"{what}" + (f" ({times} times)" if times > 1 else "") for what, times in wrong.items()]


def _planned(order: Order, names: Sequence[str]) -> list[Blow]:
    """The blows of an order, which are said, too."""
    if order.every_s is None:
        return []
    victims = [name for name in names if role_of(name) in order.roles]
    blows = plan_blows(victims, order.seconds, order.every_s, order.seed)
    for blow in blows:
        say(f"chaos: at {blow.at_s:6.1f} s {blow.signal.name} for {blow.name}")
    return blows


def _unrest(books: Books) -> list[str]:
    """What is still not in order when a server has had time to come to rest."""
    gives_up_s = time.monotonic() + RESTS_WITHIN_S
    tick = threading.Event()  # nobody sets it: what happens on a board wakes nobody
    while (unrest := books.unrest()) and time.monotonic() < gives_up_s:
        tick.wait(_LOOK_EVERY_S)
    return unrest
