"""Grammars of answers with parts: which whole texts they take, and which they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.grammar import MAX_GRAMMAR_BYTES, compile_grammar, grammar_tokenizer
from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.structure import Structure, grammar_text
from fourstroke.procs.ingest.tools.grammar import Thought, after_thought, calls_grammar
from fourstroke.procs.ingest.tools.registry import FORMATS
from fourstroke.procs.ingest.tools.request import Tools, read_tools
from fourstroke.procs.vocabulary import Vocabulary

MARKS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<think>", "</think>"]
CONTROLS = {mark: 257 + place for place, mark in enumerate(MARKS)}
VOCABULARY = Vocabulary(
    [b"</s>", *(bytes([byte]) for byte in range(256)), *(mark.encode() for mark in MARKS)],
    frozenset({0, *CONTROLS.values()}),
)
TOKENIZER = grammar_tokenizer(VOCABULARY, len(VOCABULARY.token_bytes), (0,))

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ANSWER = grammar_text(Structure("regex", "yes|no", "structured_outputs"))
EVERY = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
SPELLED = pytest.mark.parametrize("controls", [{}, CONTROLS], ids=["spelled", "tokens"])


def tools(strict: bool = False, **body: Any) -> Tools:
    function = {"parameters": SCHEMA, "strict": strict}
    offered = [{"type": "function", "function": {"name": name, **function}} for name in "fg"]
    return read_tools(Body({"tools": offered, **body}))


def accepts(grammar: str, text: str, controls: Mapping[str, int]) -> bool:
    """Whether a text obeys a grammar as a whole, its marks being tokens if there are such."""
    matcher = compile_grammar(TOKENIZER, grammar)
    assert not matcher.is_error(), matcher.get_error()
    pieces = re.split(f"({'|'.join(map(re.escape, controls))})", text) if controls else [text]
    tokens = [
        token
        for piece in pieces
        for token in ([controls[piece]] if piece in controls else [1 + byte for byte in piece.encode()])
    ]
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def written(form: Any, *calls: tuple[str, str]) -> str:
    return form.written([f'{{"name": "{name}", "{form.arguments[0]}": {value}}}' for name, value in calls])


GOOD, WRONG = '{"a": 1}', '{"b": 1}'


@EVERY
@SPELLED
def test_forced(form: Any, controls: dict[str, int]) -> None:
    """Calls that obey their schemas and nothing else, in the model's own format."""
    grammar = calls_grammar(tools(tool_choice="required"), form, controls, None)
    assert accepts(grammar, written(form, ("f", GOOD)), controls)
    assert accepts(grammar, written(form, ("g", GOOD), ("f", GOOD)), controls)
    for text in (
        written(form, ("f", WRONG)),
        written(form, ("nope", GOOD)),
        "Hi",
        "",
        "Hi " + written(form, ("f", GOOD)),
    ):
        assert not accepts(grammar, text, controls)


@EVERY
@SPELLED
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "f"}}], ids=str)
def test_one_at_most(form: Any, controls: dict[str, int], choice: Any) -> None:
    """Without parallel calls, and where one function is named, there is one call."""
    alone = tools(tool_choice=choice, parallel_tool_calls=False if isinstance(choice, str) else None)
    grammar = calls_grammar(alone, form, controls, None)
    assert accepts(grammar, written(form, ("f", GOOD)), controls)
    assert not accepts(grammar, written(form, ("f", GOOD), ("f", GOOD)), controls)


@EVERY
@SPELLED
def test_strict_beside_text(form: Any, controls: dict[str, int]) -> None:
    """Text is free, and a call obeys its schema from its mark on."""
    grammar = calls_grammar(tools(strict=True), form, controls, None)
    for text in ("", "Hi", "a < b", written(form, ("f", GOOD)), written(form, ("f", GOOD), ("g", GOOD))):
        assert accepts(grammar, text, controls)
    assert accepts(grammar, f"Hi {written(form, ('f', GOOD))}", controls) or form.bare
    for text in (written(form, ("f", WRONG)), written(form, ("nope", GOOD)), f"{form.opening}Hi"):
        assert not accepts(grammar, text, controls) or (form.bare and not controls and text.startswith("<"))


@EVERY
@SPELLED
def test_answer_or_calls(form: Any, controls: dict[str, int]) -> None:
    """With a grammar for the answer there is that, or calls; those of functions that are not strict have any object."""
    grammar = calls_grammar(tools(), form, controls, ANSWER)
    for text in ("yes", written(form, ("f", GOOD)), written(form, ("f", WRONG), ("g", "{}"))):
        assert accepts(grammar, text, controls)
    for text in ("maybe", "yes" + written(form, ("f", GOOD)), written(form, ("f", "5"))):
        assert not accepts(grammar, text, controls)


@SPELLED
@pytest.mark.parametrize("opened", [False, True])
def test_thought(controls: dict[str, int], opened: bool) -> None:
    """A thought comes first, or need not if the prompt has not begun it; what follows obeys its grammar."""
    grammar = after_thought(Thought("<think>", "</think>", opened), controls, ANSWER)
    begin = "" if opened else "<think>"
    for text in (f"{begin}hm</think>yes", f"{begin}\nhm\n</think>\n\nno", f"{begin}</think>no"):
        assert accepts(grammar, text, controls)
    for text in (f"{begin}hm", f"{begin}hm</think>", f"{begin}hm</think>maybe", "maybe"):
        assert not accepts(grammar, text, controls)
    assert accepts(grammar, "yes", controls) is not opened


def test_thought_before_calls() -> None:
    """Grammars of parts are parts of others."""
    calls = calls_grammar(tools(), FORMATS["hermes"], {}, ANSWER)
    grammar = after_thought(Thought("<think>", "</think>", True), {}, calls)
    assert accepts(grammar, "hm</think>yes", {})
    assert accepts(grammar, f"hm</think>\n{written(FORMATS['hermes'], ('f', GOOD))}", {})
    assert not accepts(grammar, "yes", {})


@pytest.mark.parametrize("text", ["{", "{}", '{"grammars": 5}', '{"grammars": []}', '{"grammars": [5]}', "{" * 10_000])
def test_a_clients_grammar_that_has_no_parts(text: str) -> None:
    """What looks like a grammar of several and is none is the client's mistake."""
    with pytest.raises(InvalidRequest) as raised:
        after_thought(Thought("<think>", "</think>", True), {}, text)
    assert raised.value.param == "structured_outputs"


def test_lark_of_a_client() -> None:
    """The grammar of the answer may be Lark as it is."""
    grammar = calls_grammar(tools(), FORMATS["hermes"], {}, 'start: "yes"')
    assert accepts(grammar, "yes", {})
    assert not accepts(grammar, "no", {})


def test_schemas_that_are_too_large() -> None:
    """They are the mistake of the tools, not of the answer's structure."""
    function = {"name": "f", "parameters": {"description": "x" * MAX_GRAMMAR_BYTES}}
    forced = read_tools(Body({"tools": [{"type": "function", "function": function}], "tool_choice": "required"}))
    with pytest.raises(InvalidRequest) as raised:
        calls_grammar(forced, FORMATS["hermes"], {}, None)
    assert raised.value.param == "tools"
