"""From the command line of `fourstroke kv-events` to the action that is meant; `tail` is here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ...ipc.events import Cleared, KvEvent, Removed, Stored
from ...ipc.follower import Item, Lost, Received, Restarted, Silent, Unreadable
from ...ipc.subscriber import KvSubscriber
from .bench import bench
from .check import check
from .cost import bench_cost


def kv_events(namespace: argparse.Namespace) -> None:
    """Run an action. Raises TargetMissed if a check finds something wrong."""
    match namespace.action:
        case "tail":
            _tail(namespace)
        case "check":
            check(namespace)
        case "bench" if namespace.pub is None:
            bench_cost(namespace.seconds, as_json=namespace.json)
        case "bench":
            bench(namespace)


def _tail(namespace: argparse.Namespace) -> None:
    show = _as_json if namespace.json else _as_text
    with _subscriber(namespace) as events:
        batches = 0
        for item in events:
            batches += isinstance(item, Received)
            for line in show(item):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if batches == namespace.batches:
                return


def _subscriber(namespace: argparse.Namespace) -> KvSubscriber:
    stream = namespace.pub, namespace.replay, namespace.topic, namespace.rank
    return KvSubscriber(*stream, heartbeat_s=namespace.heartbeat)


def _as_text(item: Item) -> Iterator[str]:
    match item:
        case Received(number, batch, replayed):
            yield f"{number:>8}  {batch.ts:.3f}  {'replayed' if replayed else 'live'}"
            yield from (f"          {_event(event)}" for event in batch.events)
        case Restarted():
            yield "another publisher: what was known is void"
        case Lost(first, end):
            yield f"batches {first} to {end - 1} are lost"
        case Unreadable(number, cause):
            yield f"{number:>8}  unreadable: {cause}"
        case Silent(seconds):
            yield f"nothing for {seconds:g} s"


def _event(event: KvEvent) -> str:
    match event:
        case Cleared():
            return "cleared"
        case Removed(digests, medium):
            return f"removed from {medium}: {_hashes(digests)}"
        case Stored():
            behind = "" if event.parent is None else f" behind {event.parent.hex()}"
            keys = "" if event.keys is None else f", keys {event.keys}"
            return f"stored in {event.medium}{behind}: {_hashes(event.digests)}, {event.block_size} tokens each{keys}"


def _hashes(digests: tuple[bytes, ...], shown: int = 4) -> str:
    more = f" and {len(digests) - shown} more" if len(digests) > shown else ""
    return " ".join(digest.hex() for digest in digests[:shown]) + more


def _as_json(item: Item) -> Iterator[str]:
    value: dict[str, Any] = {"item": type(item).__name__.lower()}
    if isinstance(item, Received):
        batch = {"seq": item.number, "replayed": item.replayed, "ts": item.batch.ts, "rank": item.batch.rank}
        yield json.dumps(value | batch | {"events": [_event_fields(event) for event in item.batch.events]})
    else:
        yield json.dumps(value | asdict(item))


def _event_fields(event: KvEvent) -> dict[str, Any]:
    match event:
        case Cleared():
            return {"type": "AllBlocksCleared"}
        case Removed(digests, medium):
            return {"type": "BlockRemoved", "block_hashes": _numbers(digests), "medium": medium}
        case Stored():
            return {
                "type": "BlockStored",
                "block_hashes": _numbers(event.digests),
                "parent_block_hash": None if event.parent is None else _numbers((event.parent,))[0],
                "token_ids": memoryview(event.tokens).cast("I").tolist(),
                "block_size": event.block_size,
                "medium": event.medium,
                "lora_name": event.adapter,
            }


def _numbers(digests: tuple[bytes, ...]) -> list[int]:
    return [int.from_bytes(digest, "big") for digest in digests]
