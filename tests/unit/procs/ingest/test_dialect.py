"""What a model's dialect is, and what that makes of a request."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.dialect import Dialect
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.reading import Speech
from fourstroke.procs.ingest.structure import Structure
from fourstroke.procs.ingest.tokenizer import ModelTokenizer
from fourstroke.procs.ingest.tools.hermes import HERMES
from fourstroke.procs.ingest.tools.request import NO_TOOLS, read_tools

from ..tokenizer_files import byte_level, write_folder

TOOLS = [{"type": "function", "function": {"name": "f"}}]
AUTO = read_tools(Body({"tools": TOOLS}))
FORCED = read_tools(Body({"tools": TOOLS, "tool_choice": "required"}))
NONE = read_tools(Body({"tools": TOOLS, "tool_choice": "none"}))
PLAIN = Dialect(HERMES, False, {}, None)
THINKING = Dialect(HERMES, True, {"<think>": 5, "</think>": 6}, 6)
ANSWER = Structure("regex", "yes", "response_format")


def model(folder: Path, template: str, special: bool) -> ModelTokenizer:
    """A tokenizer that has the marks for tokens, which may be control tokens."""
    tokenizer = byte_level()
    marks = [AddedToken(mark, special=special, normalized=False) for mark in ("<tool_call>", "<think>", "</think>")]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(marks)
    return load_tokenizer(str(write_folder(folder, tokenizer, chat_template=template)))


@pytest.mark.parametrize("special", [False, True])
def test_marks_that_are_tokens(tmp_path: Path, special: bool) -> None:
    """Marks that are control tokens are known by id, others are text; the end of a thought is counted either way."""
    tokenizer = model(tmp_path / "model", "{{ '<tool_call></think>' }}", special)
    ids = {mark: tokenizer.token_bytes.index(mark.encode()) for mark in ("<tool_call>", "<think>", "</think>")}
    found = Dialect.of("auto", "auto", tokenizer)
    assert found == Dialect(HERMES, True, ids if special else {}, ids["</think>"])
    speech = found.speech(AUTO, "x")
    assert speech is not None
    assert set(speech.markers) == (set(ids.values()) if special else set())


@pytest.mark.parametrize(
    "flag, template, thinks",
    [("auto", "</think>", True), ("auto", "", False), ("none", "</think>", False), ("think", "", True)],
)
def test_reasoning_flag(tmp_path: Path, flag: str, template: str, thinks: bool) -> None:
    """Thoughts are looked for if the template speaks of them, or the operator says so."""
    assert Dialect.of("none", flag, model(tmp_path / "model", template, False)).thinks is thinks


def test_speech() -> None:
    """Answers are read if calls may be in them or thoughts; the prompt's end tells whether a thought has begun."""
    assert PLAIN.speech(NO_TOOLS, "") is PLAIN.speech(NONE, "") is None
    assert PLAIN.speech(AUTO, "<think>") == Speech(HERMES, ("f",))
    assert THINKING.speech(NONE, "<think>\n") == Speech(None, (), True, True, 6, (5, 6))
    assert THINKING.speech(AUTO, "x") == Speech(HERMES, ("f",), True, False, 6, (5, 6))


@pytest.mark.parametrize("dialect", [PLAIN, THINKING])
def test_free_answers(dialect: Dialect) -> None:
    """Without forced or strict calls and without a structure nothing is enforced."""
    for tools in (NO_TOOLS, AUTO, NONE):
        assert dialect.structure(None, tools, dialect.speech(tools, "")) is None


def test_structures() -> None:
    """A structure alone stays what it is; with a thought or calls it becomes a part, and its field is still named."""
    assert PLAIN.structure(ANSWER, NONE, None) is ANSWER
    for dialect, tools in ((PLAIN, AUTO), (THINKING, NO_TOOLS), (THINKING, AUTO)):
        found = dialect.structure(ANSWER, tools, dialect.speech(tools, ""))
        assert found is not None
        assert (found.kind, found.param) == ("parts", "response_format")
    forced = PLAIN.structure(None, FORCED, PLAIN.speech(FORCED, ""))
    assert forced is not None
    assert forced.param == "tools"


@pytest.mark.parametrize("dialect", [PLAIN, THINKING])
def test_forced_calls_and_a_structure(dialect: Dialect) -> None:
    """They exclude each other: the answer cannot be both."""
    with pytest.raises(InvalidRequest) as raised:
        dialect.structure(ANSWER, FORCED, dialect.speech(FORCED, ""))
    assert raised.value.param == "response_format"


def test_without_a_format() -> None:
    """A server that reads no calls refuses to be asked for some, and takes tools that may not be called."""
    dialect = Dialect(None, False, {}, None)
    for tools in (AUTO, FORCED):
        with pytest.raises(InvalidRequest) as raised:
            dialect.check(tools)
        assert raised.value.param == "tools"
    for fine in (NO_TOOLS, NONE):
        dialect.check(fine)
