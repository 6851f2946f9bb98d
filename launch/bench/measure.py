"""Loads on one server, one after the other, with a bar that shows how far it is. Called by whoever loads a server."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...common.errors import ServerError
from ..client import Client
from .clients import Clients
from .load import Load, Target
from .record import Record
from .summary import Limits, Summary, summarise_load


def target_at(url: str, model: str | None, name: str | None, api_key: str | None) -> Target:
    """A server that answers at `url`; it is asked for its first model if none is named. Raises ServerError."""
    if model is None:
        listed = Client(url, api_key).get("/v1/models")
        try:
            model = str(listed["data"][0]["id"])
        except (LookupError, TypeError):
            raise ServerError(f"{url} lists no model at /v1/models") from None
    return Target(name or model, url, model, api_key)


def measure(clients: Clients, target: Target, loads: Iterable[Load], limits: Limits, bar: Progress) -> list[Summary]:
    """The figures of each load. A request that is not measured goes ahead of each, to warm up.

    Raises ServerError if that one fails, or if all requests of a load do.
    """
    summaries = []
    for load in loads:
        warm_up(clients, target, load)
        summaries.append(summarise_load(load, records_of(clients, target, load, bar), limits))
    return summaries


def warm_up(clients: Clients, target: Target, load: Load) -> None:
    """A request like those of the load. Raises ServerError if it fails."""
    seed = f"{load.seed}/{load.name}/warm-up"
    list(_succeeding(clients, target, dataclasses.replace(load, requests=1, concurrency=1, rate=0.0, seed=seed)))


def records_of(clients: Clients, target: Target, load: Load, bar: Progress) -> list[Record]:
    """The records of a load, all of them. Raises ServerError if all its requests fail."""
    task = bar.add_task(f"{target.name}, {load.name}", total=load.requests)
    records = []
    for record in _succeeding(clients, target, load):
        records.append(record)
        bar.advance(task)
    bar.remove_task(task)
    return records


def _succeeding(clients: Clients, target: Target, load: Load) -> Iterator[Record]:
    """The records of a load. Raises ServerError at its end if every request failed."""
    errors: Counter[str] = Counter()
    for record in clients.run(target, load):
        if record.error is not None:
            errors[record.error] += 1
        yield record
    if errors.total() == load.requests:
        raise ServerError(f"{target.name} at {target.url} answered no request: {errors.most_common(1)[0][0]}")


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar
