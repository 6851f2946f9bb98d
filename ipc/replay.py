"""The frames in which KV event batches are published, asked for again and replayed; both ends use them.

    published  [topic, sequence, payload]
    request    [empty, start]                             as a DEALER sends it
    topic      [empty, topic, sequence, payload]          as it is answered, oldest first, to a DEALER
    legacy     [empty, sequence, payload]

A sequence has 8 bytes, big-endian, and END stands for one behind the last. Sockets are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..common.errors import BadMessage

ReplayForm = Literal["topic", "legacy"]

SEQUENCE_BYTES = 8
END = b"\xff" * SEQUENCE_BYTES


def sequence(number: int) -> bytes:
    return number.to_bytes(SEQUENCE_BYTES, "big")


def live_frames(topic: bytes, number: int, payload: bytes) -> list[bytes]:
    return [topic, sequence(number), payload]


def read_live(frames: Sequence[bytes]) -> tuple[int, bytes]:
    """Sequence and payload of a published message. Raises BadMessage."""
    if len(frames) != 3 or len(frames[1]) != SEQUENCE_BYTES:
        raise BadMessage(f"a published message of {[len(frame) for frame in frames[:4]]} bytes")
    return int.from_bytes(frames[1], "big"), frames[2]


def request_frames(start: int) -> list[bytes]:
    return [b"", sequence(start)]


def read_request(frames: Sequence[bytes]) -> tuple[bytes, int]:
    """Who asks for a replay, as a ROUTER names him, and from where. Raises BadMessage."""
    if len(frames) != 3 or frames[1] or len(frames[2]) != SEQUENCE_BYTES:
        raise BadMessage("not a request for a replay")
    return frames[0], int.from_bytes(frames[2], "big")


def answer_frames(form: ReplayForm, topic: bytes, number: int, payload: bytes) -> list[bytes]:
    """One batch of an answer, without its reader."""
    return [b"", topic, sequence(number), payload] if form == "topic" else [b"", sequence(number), payload]


def end_frames(form: ReplayForm) -> list[bytes]:
    return [b"", b"", END, b""] if form == "topic" else [b"", END, b""]


def read_answer(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """Sequence and payload of a batch of an answer in either form, or None for its end. Raises BadMessage."""
    if len(frames) not in (3, 4) or frames[0] or len(frames[-2]) != SEQUENCE_BYTES:
        raise BadMessage(f"an answer of {[len(frame) for frame in frames[:5]]} bytes")
    return None if frames[-2] == END else (int.from_bytes(frames[-2], "big"), frames[-1])
