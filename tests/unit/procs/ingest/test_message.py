"""Deltas as the chat API has them."""

from __future__ import annotations

from fourstroke.procs.ingest.message import chunk_delta, message, text_of
from fourstroke.procs.ingest.tools.deltas import Arguments, CallBegin, Content, Reasoning

SAID = [
    Reasoning("h"),
    Reasoning("m"),
    Content("Well"),
    CallBegin(0, "x", "f"),
    Arguments(0, "{"),
    Arguments(0, "}"),
    Content("."),
    CallBegin(1, "y", "g"),
]


def test_message() -> None:
    """A whole message has everything in its place."""
    calls = [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "y", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    expected = {"role": "assistant", "content": "Well.", "refusal": None, "reasoning": "hm", "reasoning_content": "hm"}
    assert message(SAID) == {**expected, "tool_calls": calls}
    assert text_of(SAID) == "Well."


def test_content() -> None:
    """An empty answer is an empty text; null says that there is something else."""
    assert message([])["content"] == ""
    assert message([Reasoning("hm")])["content"] is None
    assert message([CallBegin(0, "x", "f")])["content"] is None
    assert set(message([Content("a")])) == {"role", "content", "refusal"}


def test_chunks() -> None:
    """A call is named once; what follows has its index alone."""
    assert [chunk_delta(delta) for delta in SAID[1:5]] == [
        {"reasoning": "m", "reasoning_content": "m"},
        {"content": "Well"},
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ]
