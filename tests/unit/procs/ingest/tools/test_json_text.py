"""The end of a JSON value in text that comes in pieces: where Python's own parser finds it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.ingest.tools.json_text import Malformed, parsed, read_value
from fourstroke.procs.ingest.tools.source import Source, Steps

from .spoken import cut, cuts
from .test_reader import values


def taken(pieces: list[str]) -> tuple[str, str]:
    """The value at the beginning of a text that comes in pieces, and what is left. Raises Malformed."""
    source, found = Source(), list[str]()

    def steps() -> Steps[None]:
        yield from read_value(source, found.append)

    running = steps()
    for piece in pieces:
        source.add(piece)
        if next(running, "done") == "done":
            break
    else:
        source.ended = True
        next(running, None)
    return "".join(found), source.rest()


@given(values, st.sampled_from([None, 2]), st.sampled_from([",", "}", " x", "]", ""]), cuts)
def test_value(value: object, indent: int | None, after: str, places: list[int]) -> None:
    """All of a value is taken, and nothing behind it."""
    text = json.dumps(value, indent=indent)
    assert taken([text + after]) == (text, after)
    found, rest = taken(cut(text + after, places))
    assert found == text
    assert after.startswith(rest)


@pytest.mark.parametrize("text", ["", "{", '{"a', "[1, ", '"\\', "}", ",", "<", "{<", '{"a": [}', "(1)", "'a'"])
def test_malformed(text: str) -> None:
    """A text that ends in a value, or has what no value has, is refused."""
    with pytest.raises(Malformed):
        taken([text])


@pytest.mark.parametrize("text", ["{", "nope", "[" * 100_000])
def test_what_cannot_be_parsed(text: str) -> None:
    """What has a value's shape may still be none, or be too deep."""
    with pytest.raises(Malformed):
        parsed(text)
