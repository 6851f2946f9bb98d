"""Structured output as clients ask for it: what is read, what is refused, and what a grammar made of it accepts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.grammar import MAX_GRAMMAR_BYTES, compile_grammar, grammar_tokenizer
from fourstroke.procs.ingest import structure
from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.errors import Refusal
from fourstroke.procs.ingest.structure import Grammars, grammar_text, read_structure
from fourstroke.procs.vocabulary import Vocabulary

from .surroundings import CHAT, COMPLETIONS, Surroundings, error

BYTES = Vocabulary([b"</s>", *(bytes([byte]) for byte in range(256))], frozenset({0}))
TOKENIZER = grammar_tokenizer(BYTES, 257, (0,))


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(BYTES)


def made(**body: Any) -> str:
    found = read_structure(Body(body))
    assert found is not None
    return grammar_text(found)


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def accepts(grammar: str, text: str) -> bool:
    """Whether a text obeys a grammar as a whole."""
    matcher = compile_grammar(TOKENIZER, grammar)
    assert not matcher.is_error(), matcher.get_error()
    tokens = [1 + byte for byte in text.encode()]
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


A_INT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    "body, good, bad",
    [
        (schema(A_INT), ['{"a":1}', '{ "a" : -20 }\n'.strip()], ['{"a":"1"}', '{"a":1,"b":2}', "{}", "1"]),
        ({"structured_outputs": {"json": A_INT}}, ['{"a": 1}'], ["[]"]),
        ({"structured_outputs": {"json": json.dumps(A_INT)}}, ['{"a":1}'], ["[]"]),
        (
            {"structured_outputs": {"json": A_INT, "disable_any_whitespace": True}},
            ['{"a":1}'],
            ['{ "a": 1}'],
        ),
        ({"response_format": {"type": "json_object"}}, ["{}", '{"é": [1, null]}'], ["1", "[]", "{"]),
        ({"structured_outputs": {"json_object": True}}, ["{}"], ["1"]),
        ({"structured_outputs": {"regex": r"[a-c]{2}\\d|é"}}, [r"ab\d", "é"], ["ab1", "abc", ""]),
        ({"structured_outputs": {"choice": ["a.b", "(\n", "é👋", "x"]}}, ["a.b", "(\n", "é👋", "x"], ["acb", "", "xx"]),
        ({"structured_outputs": {"grammar": 'start: "a" B+\nB: /[0-9]/'}}, ["a1", "a23"], ["a", "b1"]),
        ({"structured_outputs": {"grammar": 'root ::= "a" x*\nx ::= "b" | "c"'}}, ["a", "abcb"], ["b", "ad"]),
    ],
)
def test_what_obeys(body: dict[str, Any], good: list[str], bad: list[str]) -> None:
    """Each kind accepts what it should and nothing else."""
    grammar = made(**body)
    assert [accepts(grammar, text) for text in good] == [True] * len(good)
    assert [accepts(grammar, text) for text in bad] == [False] * len(bad)


def test_white_space_has_a_bound() -> None:
    """Between the tokens of JSON there is white space, but not for ever."""
    grammar = made(**schema(A_INT))
    assert accepts(grammar, "{" + 40 * " " + '"a":1}')
    assert not accepts(grammar, "{" + 41 * " " + '"a":1}')


def test_nothing_asked_for() -> None:
    """Null, absent and plain text are no structure."""
    for body in [{}, {"response_format": None, "structured_outputs": None}, {"response_format": {"type": "text"}}]:
        assert read_structure(Body(body)) is None


DEEP: dict[str, Any] = {"type": "string"}
for _ in range(600):
    DEEP = {"type": "object", "properties": {"a": DEEP}}

BAD = {
    "response_format": [
        1,
        "json_object",
        {},
        {"type": "nope"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        *(
            schema(value)["response_format"]
            for value in [
                1,
                [],
                "{",
                "[]",
                {"type": "nope"},
                {"$ref": "#/x"},
                {"$ref": "http://127.0.0.1:1/x"},
                {"type": "object", "required": "a"},
                {"type": "array", "uniqueItems": True},
                {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}},
                {"enum": ["x" * MAX_GRAMMAR_BYTES]},
                {"$defs": {"t": {"$ref": "#/$defs/t"}}, "$ref": "#/$defs/t"},
                DEEP,
            ]
        ),
    ],
    "structured_outputs": [
        1,
        [],
        {},
        {"nope": 1},
        {"regex": None},
        {"json_object": False},
        {"json_object": 1},
        {"regex": "a", "choice": ["b"]},
        {"structural_tag": "x", "regex": "a"},
        {"regex": "a", "disable_additional_properties": True},
        {"json": {}, "whitespace_pattern": 5},
        {"json": {}, "whitespace_pattern": "("},
        {"regex": 1},
        {"regex": False},
        {"regex": "("},
        {"regex": "[z-a]"},
        {"regex": "a" * (MAX_GRAMMAR_BYTES + 1)},
        {"regex": "(" * 2000 + "a" + ")" * 2000},
        {"choice": []},
        {"choice": "a"},
        {"choice": ["a", 1]},
        {"choice": ["x" * 100] * 1000},
        {"grammar": 5},
        {"grammar": "root ::= ("},
        {"grammar": "nothing"},
        {"grammar": ""},
    ],
}


@pytest.mark.parametrize("param, value", [(param, value) for param, values in BAD.items() for value in values])
def test_what_is_refused(grammars: Grammars, param: str, value: Any) -> None:
    """It is refused by the name of its field, in a few words, whatever llguidance has to say."""
    with pytest.raises(InvalidRequest) as raised:
        found = read_structure(Body({param: value}))
        assert found is not None
        grammars.check(found)
    assert raised.value.param == param
    assert str(raised.value).startswith(param)
    assert len(str(raised.value)) < 450


def test_two_of_them() -> None:
    """response_format and structured_outputs together are refused."""
    with pytest.raises(InvalidRequest):
        read_structure(Body({**schema({}), "structured_outputs": {"regex": "a"}}))


def test_what_takes_too_long_is_refused(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that took more time than it may is refused, and again the next time; a good one is compiled once."""
    found = read_structure(Body({"structured_outputs": {"regex": "abc"}}))
    assert found is not None
    monkeypatch.setattr(structure, "MAX_COMPILE_S", 0.0)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="to compile"):
            grammars.check(found)
    monkeypatch.undo()
    text = grammars.check(found)
    monkeypatch.setattr(structure, "MAX_COMPILE_S", 0.0)
    assert grammars.check(found) == text


def test_waiting_has_an_end(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the grammars of others for too long is told to come again."""
    monkeypatch.setattr(structure, "MAX_WAIT_S", 0.0)
    with pytest.raises(Refusal) as raised:
        asyncio.run(grammars.text(read_structure(Body({"structured_outputs": {"regex": "abc"}}))))
    assert raised.value.status == 503


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_both_routes(tmp_path: Path, path: str) -> None:
    """A good one goes to the engine with its request, a bad one is refused before; penalties go there, too."""

    async def check() -> None:
        around = Surroundings(tmp_path)
        prompt = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hi"}]}
        asked = {**prompt, "max_tokens": 2, "structured_outputs": {"regex": "[ab]+"}, "repetition_penalty": 2}
        assert (await around.post(path, asked)).status_code == 200
        sampling = around.engine.submits[0].sampling
        assert accepts(sampling.grammar, "abba")
        assert (sampling.repetition_penalty, sampling.presence_penalty) == (2.0, 0.0)
        found = error(await around.post(path, {**asked, "structured_outputs": {"regex": "("}, "stream": True}), 400)
        assert found["param"] == "structured_outputs"
        assert len(around.engine.submits) == 1
        around.service.grammars.close()

    asyncio.run(check())
