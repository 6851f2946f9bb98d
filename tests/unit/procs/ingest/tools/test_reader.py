"""Calls in texts: the same however a text is cut, streamed as soon as they are certain, and nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fourstroke.procs.ingest.reading import Reading, Speech
from fourstroke.procs.ingest.tools.deltas import Arguments, CallBegin, Content
from fourstroke.procs.ingest.tools.hermes import HERMES
from fourstroke.procs.ingest.tools.llama3_json import LLAMA3_JSON
from fourstroke.procs.ingest.tools.mistral import MISTRAL
from fourstroke.procs.ingest.tools.registry import FORMATS

from .spoken import NAMES, Said, cut, cuts, read, speeches, texts

FORMS = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
CALL = '{"name": "f", "arguments": {"a": "}<"}}'
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=3)


def calls(speech: Speech, text: str) -> list[tuple[str, str]]:
    return read(speech, text).calls


@given(speeches, texts, cuts)
@example(Speech(HERMES, NAMES), "a \n<tool_call> \n" + CALL + "\n</tool_call>\n\nb", [1, 2, 4])
def test_any_cutting(speech: Speech, text: str, places: list[int]) -> None:
    """A text that comes in any pieces says what it says as a whole, and so does one that comes by the letter."""
    whole = read(speech, text)
    assert read(speech, *cut(text, places)) == whole
    assert read(speech, *text) == whole


@given(speeches, texts)
def test_nothing_is_lost(speech: Speech, text: str) -> None:
    """An answer without calls and reasoning is its text as it is; what is content is there in its order."""
    said = read(speech, text)
    if not said.calls and not said.reasoning and not (speech.thinks and text.lstrip().startswith("<think>")):
        assert said.content == text or (speech.thinks and speech.opened)
    rest = iter(text)
    assert all(char in rest for char in said.content)


@FORMS
@given(data=st.data())
def test_what_is_written_is_read(form: Any, data: st.DataObject) -> None:
    """Calls in a model's format, with any arguments, are read as they were written, and nothing else is there."""
    given_calls = data.draw(st.lists(st.tuples(st.sampled_from(NAMES), objects), min_size=1, max_size=3))
    printed = [(name, json.dumps(value, ensure_ascii=data.draw(st.booleans()))) for name, value in given_calls]
    member = data.draw(st.sampled_from(form.arguments))
    text = form.written([f'{{"name": "{name}", "{member}": {value}}}' for name, value in printed])
    assert read(Speech(form, NAMES), *cut(text, data.draw(cuts))) == Said("", "", printed, True)


@FORMS
def test_a_call_is_streamed(form: Any) -> None:
    """A call begins as soon as its name and the first brace are there; from then on every letter is sent at once."""
    reading = Reading(Speech(form, NAMES))
    text = form.written([f'{{"name": "f", "{form.arguments[0]}": {{"a": 1}}}}'])
    first = text.index('{"a"')
    assert [delta for char in text[:first] for delta in reading.take(char, False)] == []
    begin, brace = reading.take(text[first], False)
    assert isinstance(begin, CallBegin)
    assert brace == Arguments(0, "{")
    assert [reading.take(char, False) for char in '"a": 1}'] == [[Arguments(0, char)] for char in '"a": 1}']


def test_only_a_mark_is_held_back() -> None:
    """Text is sent at once, but for white space and what may be the beginning of a mark."""
    reading = Reading(Speech(HERMES, NAMES))
    taken = [reading.take(piece, False) for piece in ("Hi", " ", "you", " <", "b", "<tool_", "x")]
    assert taken == [[Content(text)] if text else [] for text in ("Hi", "", " you", "", " <b", "", "<tool_x")]
    assert reading.take(" <tool_call", True) == [Content(" <tool_call")]


@pytest.mark.parametrize(
    "text, content, found",
    [
        (f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", 2),
        (f"<tool_call>{CALL};{CALL}</tool_call>", "", 2),
        (f"Sure. \n<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}\n</tool_call>\n", "Sure.", 2),
        (f"<tool_call>{CALL}</tool_call> done", "done", 1),
        (f"<tool_call>{CALL} oops</tool_call>", "oops</tool_call>", 1),
        (f"<tool_call>{CALL[:-1]}</tool_call>", "", 1),
        (f"<tool_call><tool_call>{CALL}</tool_call>", "<tool_call>", 1),
        ("<tool_call>[]</tool_call>", "<tool_call>[]</tool_call>", 0),
        ('<tool_call>{"name": "nope", "arguments": {}}</tool_call>', None, 0),
        ('<tool_call>{"name": "f", "arguments": 5}</tool_call>', None, 0),
        ('<tool_call>{"name": "f", "arguments": "x"}</tool_call>', None, 0),
        ('<tool_call>{"name": 5}</tool_call>', None, 0),
        ('<tool_call>{"arguments": {}}</tool_call>', None, 0),
        ("<tool_call>{}</tool_call>", None, 0),
        ("<tool_call>", None, 0),
    ],
)
def test_hermes(text: str, content: str | None, found: int) -> None:
    """One call or a list between tags; what is none stays text, and white space around calls is dropped."""
    said = read(Speech(HERMES, NAMES), text)
    assert said.content == (text if content is None else content)
    assert said.calls == [("f", '{"a": "}<"}')] * found


@pytest.mark.parametrize(
    "members, arguments",
    [
        ('"name": "f"', "{}"),
        ('"name": "f", "arguments": null', "{}"),
        ('"arguments": {"a": 1}, "name": "f"', '{"a": 1}'),
        ('"id": "x", "type": "function", "name": "f", "arguments": {"a": 1}, "more": [{}]', '{"a": 1}'),
        ('"name": "f", "arguments": "{\\"a\\": 1}"', '{"a": 1}'),
        ('"arguments": "{\\"a\\": 1}", "name": "f"', '{"a": 1}'),
        ('"name": "f", "parameters": {"a": 1}', '{"a": 1}'),
        ('"name": "f", "arguments": {"a":\n 1 }', '{"a":\n 1 }'),
        ('"name": "\\u0066", "arguments": {}', "{}"),
    ],
)
def test_members(members: str, arguments: str) -> None:
    """A call's members may come in any order, with others among them; arguments may be missing or JSON in a string."""
    assert calls(Speech(HERMES, NAMES), f"<tool_call>{{{members}}}</tool_call>") == [("f", arguments)]


def test_llama3() -> None:
    """Calls begin the text or follow the tag. JSON that is no call is text, and is sent as soon as that is clear."""
    speech = Speech(LLAMA3_JSON, NAMES)
    call = '{"name": "f", "parameters": {}}'
    assert calls(speech, f"\n{call}") == calls(speech, f"<|python_tag|>{call}") == [("f", "{}")]
    assert read(speech, f"{call}; {call}\n") == Said("", "", [("f", "{}")] * 2, True)
    for text in (f"As JSON: {call}", '{"answer": {"name": "f"}}', '{"name": "Bob", "age": 5}', "{", "{}", "[1]"):
        assert read(speech, text) == Said(text, "", [], False)
    assert Reading(speech).take('{"answer": "', False) == [Content('{"answer": "')]


def test_mistral() -> None:
    """Calls are a list after the token; their ids are what Mistral's templates take."""
    deltas = Reading(Speech(MISTRAL, NAMES)).take('Well [TOOL_CALLS] [{"name": "f", "arguments": {}}]', True)
    assert deltas[0] == Content("Well")
    assert isinstance(deltas[1], CallBegin)
    assert len(deltas[1].id) == 9
    assert deltas[1].id.isalnum()


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_text_that_is_cut_off(form: Any) -> None:
    """Wherever a text is cut off, its calls are there as far as they came, and are complete if their arguments are."""
    arguments = '{"a": [1, "}"]}'
    text = form.written([f'{{"name": "f", "{form.arguments[0]}": {arguments}}}'])
    first = text.index('{"a"')
    for end in range(len(text)):
        said = read(Speech(form, NAMES), text[:end])
        if end <= first:
            assert said == Said(text[:end], "", [], False)
        else:
            came = arguments[: end - first]
            assert said == Said("", "", [("f", came)], came == arguments)


def test_a_second_call_that_is_cut_off() -> None:
    """A call of which only the beginning is there is text, beside one that is whole."""
    said = read(Speech(MISTRAL, NAMES), '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"na')
    assert said == Said(', {"na', "", [("f", "{}")], True)
    broken = read(Speech(HERMES, NAMES), '<tool_call>{"name": "f", "arguments": {"a": <b>')
    assert broken == Said("<b>", "", [("f", '{"a": ')], False)


def test_ids_differ() -> None:
    """Each call has an id of its own."""
    text = HERMES.written([CALL] * 20)
    begun = [delta for delta in Reading(Speech(HERMES, NAMES)).take(text, True) if isinstance(delta, CallBegin)]
    assert len({delta.id for delta in begun}) == 20
