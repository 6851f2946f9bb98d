"""`fourstroke kv-events check`: listens to a stream, asks for its past, and holds both against its readers' rules."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgpack
import zmq

from ...common.errors import BadMessage, TargetMissed
from ...ipc.event_codec import decode_batch
from ...ipc.events import Stored
from ...ipc.kv_index import KvIndex
from ...ipc.replay import END, SEQUENCE_BYTES, read_answer, read_live, request_frames
from .rules import Rules

_ANSWER_S = 10.0
"""So long an answer to the request for the past may take to begin or to go on."""


@dataclass(slots=True)
class Heard:
    """What has come: payloads by their numbers, live and replayed, and what was wrong with the frames."""

    live: dict[int, bytes] = field(default_factory=dict)
    replayed: dict[int, bytes] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    longest_silence_s: float = 0.0


def check(namespace: argparse.Namespace) -> None:
    """Check a stream for some seconds and print what was found. Raises TargetMissed if something is wrong."""
    heard = listen(namespace.pub, namespace.replay, namespace.topic, namespace.seconds)
    seed = None if namespace.other_hash else namespace.seed
    rules = judge(heard, namespace.rank, replays=bool(namespace.replay), heartbeat_s=namespace.heartbeat, seed=seed)
    wrong = [f"{what} ({times} times)" for what, times in rules.wrong.items()]
    if namespace.json:
        found = {"batches": rules.batches, "events": rules.events, "forms": dict(rules.forms)}
        sys.stdout.write(json.dumps({**found, "wrong": dict(rules.wrong)}) + "\n")
    else:
        forms = " and ".join(rules.forms) or "no"
        sys.stdout.write(f"{rules.batches} batches, {rules.events} events in {forms} form\n")
        sys.stdout.write("".join(f"wrong: {line}\n" for line in wrong) or "nothing is wrong\n")
    if wrong:
        raise TargetMissed(f"{len(wrong)} things are wrong with the stream at {namespace.pub}")


def listen(pub: str, replay: str, topic: str, seconds: float) -> Heard:
    """Listen for so many seconds, and until the answer about the past has ended."""
    heard = Heard()
    with zmq.Context() as context, context.socket(zmq.SUB) as live, context.socket(zmq.DEALER) as answers:
        live.linger = answers.linger = 0
        live.rcvhwm = answers.rcvhwm = 0
        live.subscribe(topic)
        live.connect(pub)
        poller = zmq.Poller()
        poller.register(live, zmq.POLLIN)
        if replay:
            answers.connect(replay)
            answers.send_multipart(request_frames(0))
            poller.register(answers, zmq.POLLIN)
        until_s = time.monotonic() + seconds
        answered_s = last_s = time.monotonic()
        while (now := time.monotonic()) < until_s or (replay and not heard.ended and now - answered_s < _ANSWER_S):
            for socket, _ in poller.poll(100):
                if socket is live:
                    last_s = time.monotonic()
                    _take_live(heard, live.recv_multipart())
                else:
                    answered_s = time.monotonic()
                    _take_answer(heard, answers.recv_multipart())
            heard.longest_silence_s = max(heard.longest_silence_s, time.monotonic() - last_s)
    return heard


def _take_live(heard: Heard, frames: Sequence[bytes]) -> None:
    try:
        number, payload = read_live(frames)
    except BadMessage:
        heard.wrong["a message has not three frames, or its number not 8 bytes [1]"] += 1
        return
    if heard.live and number != max(heard.live) + 1:
        heard.wrong["live numbers do not follow each other [1]"] += 1
    heard.live[number] = payload


def _take_answer(heard: Heard, frames: Sequence[bytes]) -> None:
    try:
        answer = read_answer(frames)
    except BadMessage:
        heard.wrong[f"an answer has {len(frames)} frames, or its number not {SEQUENCE_BYTES} bytes [12]"] += 1
        return
    if answer is None:
        heard.ended = True
        if frames[-1] or frames[-2] != END:
            heard.wrong["the end of an answer has a payload [12]"] += 1
        return
    number, payload = answer
    if heard.replayed and number != max(heard.replayed) + 1:
        heard.wrong["an answer has a hole [16]"] += 1
    if not heard.replayed and number != 0:
        heard.wrong["an answer begins behind what was asked for [16]"] += 1
    heard.replayed[number] = payload


def judge(heard: Heard, rank: int, *, replays: bool, heartbeat_s: float, seed: str | None) -> Rules:
    """The rules after all that has come; with `seed` hashes are computed again."""
    rules = Rules(rank)
    rules.wrong.update(heard.wrong)
    rules.wrong.update(_missing(heard, replays=replays, heartbeat_s=heartbeat_s))
    payloads = {**heard.live, **heard.replayed}
    for number in sorted(payloads):
        rules.hear(payloads[number])
    if len(rules.forms) > 1:
        rules.wrong["events come in both forms [15]"] += 1
    if seed is not None and 0 in payloads:
        rules.wrong.update(_unlike_hashes([payloads[number] for number in sorted(payloads)], seed))
    return rules


def _missing(heard: Heard, *, replays: bool, heartbeat_s: float) -> Iterator[str]:
    """What should have come and did not."""
    if replays and not heard.ended:
        yield "an answer has no end [12]"
    if heartbeat_s and heard.longest_silence_s > 3 * heartbeat_s:
        yield "an idle stream has no heartbeat [14]"
    first = heard.replayed.get(0)
    if first is not None and not _begins_cleared(first):
        yield "the first event is not AllBlocksCleared"
    if any(heard.live.get(number, payload) != payload for number, payload in heard.replayed.items()):
        yield "a batch was replayed with other bytes than it was published with"


def _begins_cleared(payload: bytes) -> bool:
    """Whether a batch begins with AllBlocksCleared, or is one whose content is told later."""
    match msgpack.unpackb(payload, strict_map_key=False):
        case [_, [], _] | [_, [{"type": "AllBlocksCleared"} | ["AllBlocksCleared"], *_], _]:
            return True
    return False


def _unlike_hashes(payloads: Sequence[bytes], seed: str) -> Iterator[str]:
    index: KvIndex | None = None
    for payload in payloads:
        try:
            batch = decode_batch(payload)
        except BadMessage:
            continue
        sizes = [event.block_size for event in batch.events if isinstance(event, Stored)]
        if index is None and sizes:
            index = KvIndex(sizes[0], seed=seed)
        if index is not None:
            index.apply(batch)
    for problem in index.verify() if index else ():
        yield f"hashes are not those of the content: {problem.split(': ', 1)[1].split(' should')[0]}"
