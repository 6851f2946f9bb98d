"""Tools in words: what a template that knows none of them has of a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.reading import Speech
from fourstroke.procs.ingest.tools.hermes import HERMES
from fourstroke.procs.ingest.tools.registry import FORMATS
from fourstroke.procs.ingest.tools.request import read_tools
from fourstroke.procs.ingest.tools.wording import in_words

from .spoken import read

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "Wetter in Köln", "parameters": SCHEMA}}
FUNCTIONS = read_tools(Body({"tools": [TOOL]})).functions
USER = {"role": "user", "content": "Hi"}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_description(form: Any, role: str) -> None:
    """The functions and the model's format stand in the first message, after the client's own system message."""
    alone, user = in_words([USER], FUNCTIONS, form)
    assert (alone["role"], user) == ("system", USER)
    assert json.dumps(TOOL, ensure_ascii=False) in alone["content"]
    assert f'{form.head}{{"name": <function-name>, "{form.arguments[0]}": ' in alone["content"]
    first, _ = in_words([{"role": role, "content": "Be brief."}, USER], FUNCTIONS, form)
    assert first == {"role": role, "content": f"Be brief.\n\n{alone['content']}"}


def test_without_functions() -> None:
    """A conversation without tools is as it was."""
    messages = [{"role": "system", "content": "Be brief."}, USER, {"role": "tool", "content": "x"}]
    assert in_words(messages, (), HERMES) == messages


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_calls(form: Any) -> None:
    """Calls of the past are written so that they would be read as the calls that they are."""
    calls = [call("f", {"city": "Köln"}), call("g", {})]
    (message,) = in_words([{"role": "assistant", "content": "", "tool_calls": calls}], (), form)
    assert set(message) == {"role", "content"}
    said = read(Speech(form, ("f", "g")), message["content"])
    assert said.calls == [("f", '{"city": "Köln"}'), ("g", "{}")]
    assert not said.content


def test_content_beside_calls() -> None:
    """What was said before the calls stays before them."""
    (message,) = in_words([{"role": "assistant", "content": "Well.", "tool_calls": [call("f", {})]}], (), HERMES)
    assert message["content"].startswith("Well.\n<tool_call>")


def test_results() -> None:
    """Results are the user's words, those of one turn in one message, and apart from what the user says."""
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in "ab"]
    _, *found = in_words([USER, {"role": "assistant", "content": "x"}, *results, USER, results[0]], FUNCTIONS, HERMES)
    assert [message["role"] for message in found] == ["user", "assistant", "user", "user", "user"]
    assert found[2]["content"].count("<tool_response>") == 2
    assert found[2]["content"].index("a") < found[2]["content"].rindex("\nb\n")
    assert (found[0], found[3]) == (USER, USER)
