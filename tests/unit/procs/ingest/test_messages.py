"""Messages: their shapes, and what templates get of them."""

from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.messages import read_messages


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    "content, text", [("Hi", "Hi"), (None, ""), (parts("Hel", "lo"), "Hello"), ([], ""), (parts(""), "")]
)
def test_content(content: Any, text: str) -> None:
    """Content is a text, null, or parts whose texts are put together."""
    (message,) = read_messages([{"role": "user", "content": content, "name": "ann"}])
    assert message == {"role": "user", "content": text, "name": "ann"}


def test_messages_are_not_changed() -> None:
    """What the client sent stays as it is."""
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    given = [{"role": "assistant", "content": parts("a"), "tool_calls": [call]}]
    before = repr(given)
    read_messages(given)
    assert repr(given) == before


def test_tool_calls() -> None:
    """A call needs no content beside it, and its arguments become the object that templates print."""
    calls = [{"id": "1", "function": {"name": "f", "arguments": '{"city": "Oslo"}'}}]
    (message,) = read_messages([{"role": "assistant", "tool_calls": calls}])
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "arguments": None}, {"name": "f", "arguments": ""}])
def test_calls_without_arguments(function: dict[str, Any]) -> None:
    """Templates get an object in any case."""
    (message,) = read_messages([{"role": "assistant", "content": None, "tool_calls": [{"function": function}]}])
    assert message["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    "messages",
    [
        None,
        5,
        {},
        [],
        ["Hi"],
        [{}],
        [{"content": "Hi"}],
        [{"role": 5, "content": "Hi"}],
        [{"role": ["user"], "content": "Hi"}],
        [{"role": "user\nHi", "content": "Hi"}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {}}],
        [{"role": "user", "content": [5]}],
        [{"role": "user", "content": [{}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "user", "content": [{"type": None, "text": "Hi"}]}],
        [{"role": "user", "content": [{"type": ["text"], "text": "Hi"}]}],
        [{"role": "assistant", "tool_calls": []}],
        [{"role": "assistant", "tool_calls": 5}],
        [{"role": "assistant", "tool_calls": [5]}],
        [{"role": "assistant", "tool_calls": [{"function": "f"}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": 5, "arguments": "{}"}}]}],
        [{"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f", "arguments": "{}"}}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}]}],
        [{"role": "tool", "tool_call_id": 5, "content": "x"}],
    ],
    ids=str,
)
def test_refused(messages: Any) -> None:
    """What is no conversation is refused, and `messages` is named."""
    with pytest.raises(InvalidRequest) as raised:
        read_messages(messages)
    assert raised.value.param == "messages"


def test_other_parts_are_named() -> None:
    """A part that is no text is refused by its type, of which no more than a line comes back."""
    for kind in ("image_url", "input_audio", "x" * 10**6):
        with pytest.raises(InvalidRequest) as raised:
            read_messages([{"role": "user", "content": [*parts("Hi"), {"type": kind, kind: {}}]}])
        assert kind[:100] in str(raised.value)
        assert len(str(raised.value)) < 400


def test_deep_values() -> None:
    """A value in the wrong place may be nested as deeply as a body can be: it is refused, not shown."""
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    for message in (
        {"role": deep, "content": "x"},
        {"role": "user", "content": deep},
        {"role": "user", "content": [deep]},
    ):
        with pytest.raises(InvalidRequest):
            read_messages([message])
