"""What is asked of a server: how many requests, of what kind, when. And the orders for the processes that ask.

A closed loop keeps a number of requests open: as soon as one has ended, the next is sent. In an open loop requests come
at random (a Poisson process), whether the server keeps up or not; they count from when they were to be sent.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from .prompts import Prompt, Prompts


@dataclass(frozen=True, slots=True)
class Target:
    """A server: `url` is http://host:port or unix:/path, `model` the name in requests, `name` the one in tables."""

    name: str
    url: str
    model: str
    api_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load. Of `concurrency` (requests at any time) and `rate` (requests in a second) one is 0."""

    requests: int
    output_tokens: int
    prompts: Prompts
    concurrency: int = 0
    rate: float = 0.0
    seed: str = "0"

    @property
    def name(self) -> str:
        return f"{self.concurrency} at a time" if self.concurrency else f"{self.rate:g} a second"

    @property
    def texts(self) -> list[Prompt]:
        """One prompt for each request, which are others for every load and every seed."""
        return self.prompts.draw(self.requests, f"{self.seed}/{self.name}")

    def arrivals_s(self) -> list[float]:
        """When the requests of an open loop come, from its begin on."""
        source, at = random.Random(f"{self.seed}/{self.name}/arrivals"), 0.0
        return [at := at + source.expovariate(self.rate) for _ in range(self.requests)]


@dataclass(frozen=True, slots=True)
class Order:
    """What one client process is to send; travels as a line of JSON.

    With `arrivals_s` each prompt goes off so many seconds after `begin_s`, a time of the monotonic clock; without
    them `concurrency` prompts are on their way at any time.
    """

    target: Target
    prompts: list[Prompt]
    output_tokens: int
    concurrency: int
    arrivals_s: list[float] | None
    begin_s: float

    @property
    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, line: str) -> Order:
        fields = json.loads(line)
        return cls(**{**fields, "target": Target(**fields["target"])})


def orders(target: Target, load: Load, clients: int, begin_s: float) -> Iterator[Order]:
    """The orders for at most `clients` processes: they share prompts and streams as evenly as can be."""
    prompts = load.texts
    if load.rate:
        arrivals = load.arrivals_s()
        for client in range(min(clients, load.requests)):
            mine = slice(client, None, clients)
            yield Order(target, prompts[mine], load.output_tokens, 0, arrivals[mine], begin_s)
        return
    streams = min(load.concurrency, load.requests)
    clients = min(clients, streams)
    for client in range(clients):
        share = len(range(client, streams, clients))
        yield Order(target, prompts[client::clients], load.output_tokens, share, None, begin_s)
