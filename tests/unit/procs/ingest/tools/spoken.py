"""Answers for tests: what a reading makes of a text, however it is cut, and texts that are full of marks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import strategies as st

from fourstroke.procs.ingest.reading import Reading, Speech
from fourstroke.procs.ingest.tools.deltas import Arguments, CallBegin, Content, Delta, Reasoning
from fourstroke.procs.ingest.tools.registry import FORMATS

NAMES = ("f", "get_time")


class Said(NamedTuple):
    """An answer put together: its content, its reasoning, its calls as (name, arguments)."""

    content: str
    reasoning: str
    calls: list[tuple[str, str]]
    called: bool


def read(speech: Speech, *pieces: str) -> Said:
    """What a text says that comes in these pieces, and then ends."""
    reading = Reading(speech)
    deltas = [delta for piece in pieces for delta in reading.take(piece, False)] + reading.take("", True)
    return Said(*joined(deltas), reading.called)


def joined(deltas: Sequence[Delta]) -> tuple[str, str, list[tuple[str, str]]]:
    """Deltas put together. A call begins once, with the next index, and its arguments follow it."""
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, CallBegin):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, Arguments):
            assert delta.index == len(calls) - 1
            assert delta.text
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.text)
    content = "".join(delta.text for delta in deltas if isinstance(delta, Content))
    return content, "".join(delta.text for delta in deltas if isinstance(delta, Reasoning)), calls


def cut(text: str, places: Sequence[int]) -> list[str]:
    """A text in pieces."""
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[first:last] for first, last in pairwise(edges)]


_SCRAPS = [
    *(mark for form in FORMATS.values() for mark in (form.opening, form.closing, form.head, form.between, form.tail)),
    *(
        "<think>",
        "</think>",
        "<tool",
        "_call>",
        "\n",
        " ",
        "Hi",
        "{",
        "}",
        "[",
        "]",
        ",",
        ";",
        ":",
        '"',
        "\\",
        "null",
        "7",
    ),
    *(
        '"name"',
        '"arguments"',
        '"parameters"',
        '"f"',
        '"nope"',
        '{"name": "f", "arguments": ',
        '{"a": ["}", {}]}',
        '"{}"',
    ),
    *('{"name": "f"}', '{"name": "get_time", "arguments": {}}', '{"parameters": {}, "id": 1, "name": "f"}', "👋"),
]
texts = st.lists(st.sampled_from(_SCRAPS), max_size=12).map("".join)
"""Texts made of what formats are made of, whole calls and broken ones."""

cuts = st.lists(st.integers(0, 120), max_size=6)
speeches = st.builds(
    Speech,
    st.sampled_from([None, *FORMATS.values()]),
    st.just(NAMES),
    thinks=st.booleans(),
    opened=st.booleans(),
)
