"""`fourstroke kv-events check`: listens to a stream, asks for its past, and holds both against its readers' rules."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import dropwhile

from ...common.errors import BadMessage, TargetMissed
from ...ipc.event_codec import decode_batch
from ...ipc.events import Cleared, Stored
from ...ipc.kv_index import KvIndex
from .listening import Heard, listen
from .rules import Rules


def check(namespace: argparse.Namespace) -> None:
    """Check a stream for some seconds and print what was found. Raises TargetMissed if something is wrong."""
    heard = listen(namespace.pub, namespace.replay, namespace.topic, namespace.seconds)
    seed = None if namespace.other_hash else namespace.seed
    rules = judge(heard, namespace.rank, replays=bool(namespace.replay), heartbeat_s=namespace.heartbeat, seed=seed)
    wrong = [f"{what} ({times} times)" for what, times in rules.wrong.items()]
    if namespace.json:
        found = {"batches": rules.batches, "events": rules.events, "forms": dict(rules.forms)}
        found["restarts"] = heard.restarts
        sys.stdout.write(json.dumps({**found, "wrong": dict(rules.wrong)}) + "\n")
    else:
        forms = " and ".join(rules.forms) or "no"
        sys.stdout.write(f"{rules.batches} batches, {rules.events} events in {forms} form\n")
        if heard.restarts:
            sys.stdout.write(f"the publisher was replaced {heard.restarts} times: this is of the last one\n")
        sys.stdout.write("".join(f"wrong: {line}\n" for line in wrong) or "nothing is wrong\n")
    if wrong:
        raise TargetMissed(f"{len(wrong)} things are wrong with the stream at {namespace.pub}")


def judge(heard: Heard, rank: int, *, replays: bool, heartbeat_s: float, seed: str | None) -> Rules:
    """The rules after all that has come; with `seed` hashes are computed again."""
    rules, payloads, expected = Rules(rank), heard.payloads, 0
    rules.wrong.update(heard.wrong)
    rules.wrong.update(_missing(heard, replays=replays, heartbeat_s=heartbeat_s))
    for number, payload in payloads.items():
        if number != expected:
            rules.miss()
        rules.hear(payload)
        expected = number + 1
    if len(rules.forms) > 1:
        rules.wrong["events come in both forms [15]"] += 1
    if seed is not None:
        rules.wrong.update(_unlike_hashes(payloads, seed))
    return rules


def _missing(heard: Heard, *, replays: bool, heartbeat_s: float) -> Iterator[str]:
    """What should have come and did not. Who has joined late misses nothing that was published before."""
    if replays and not heard.ended:
        yield "an answer has no end [12]"
    if heartbeat_s and heard.longest_silence_s > 3 * heartbeat_s:
        yield "an idle stream has no heartbeat [14]"
    come = heard.live.keys() | heard.replayed.keys()
    if heard.live and not come.issuperset(range(min(heard.live), max(heard.live))):
        yield "live numbers do not follow each other [1]"
    first = heard.replayed.get(0)
    if first is not None and not _begins_cleared(first):
        yield "the first event is not AllBlocksCleared"
    said = {number: payload for number, payload in heard.replayed.items() if number not in heard.instead}
    if any(heard.live.get(number, payload) != payload for number, payload in said.items()):
        yield "a batch was replayed with other bytes than it was published with"


def _begins_cleared(payload: bytes) -> bool:
    """Whether a batch begins with AllBlocksCleared, or is one whose content is told later."""
    try:
        batch = decode_batch(payload)
    except BadMessage:
        return False
    return batch.begins_cleared or batch.is_empty


def _unlike_hashes(payloads: Mapping[int, bytes], seed: str) -> Iterator[str]:
    """What is wrong with the hashes of blocks that are there in the end. Behind a hole nothing is known until all is
    cleared.
    """
    index: KvIndex | None = None
    expected, whole = 0, True
    for number, payload in payloads.items():
        whole, expected = whole and number == expected, number + 1
        try:
            batch = decode_batch(payload)
        except BadMessage:
            whole = False
            continue
        if not whole:
            batch = replace(batch, events=tuple(dropwhile(lambda event: not isinstance(event, Cleared), batch.events)))
            whole = bool(batch.events)
        sizes = [event.block_size for event in batch.events if isinstance(event, Stored)]
        if index is None and sizes:
            index = KvIndex(sizes[0], seed=seed)
        if index is not None:
            index.apply(batch)
    for problem in index.verify() if index and whole else ():
        yield f"hashes are not those of the content: {problem.split(': ', 1)[1].split(' should')[0]}"
