"""Structured output as clients ask for it: `response_format` and `structured_outputs`, as the text of a grammar.

A grammar is compiled before its request is accepted, in a thread for that alone and within limits of size and time: who
sends one that is hard to compile waits for it alone. The executor, where all requests would wait, compiles it again,
and so only what was cheap here. What a compiled grammar is, and its limits, is in ../grammar.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, LLTokenizer, grammar_from

from ...common.errors import InvalidRequest, ModelError
from ...common.rules import Schema
from ..grammar import MAX_GRAMMAR_BYTES, compile_grammar, error_of, grammar_tokenizer
from ..vocabulary import Vocabulary
from .body import Body
from .errors import Refusal

MAX_COMPILE_S = 0.2
"""Processor time that compiling a grammar may take: so long the executor will stand still for it, once."""

MAX_WAIT_S = 10.0
"""A request waits so long for the grammars of others to be compiled."""

_NICENESS = 10
_KEPT = 256
"""Grammars that are known to be good."""

_KINDS = ("json", "json_object", "regex", "choice", "grammar")
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,40}"
"""Between JSON's tokens. Without a bound small models like to go on with it for ever."""

_TYPES = {"json": (dict, str), "regex": (str,), "choice": (list,), "grammar": (str,)}
_ANY_OBJECT: dict[str, Any] = {"type": "object"}

_SCHEMA: Schema = {"type": ["object", "string"], "description": "A JSON Schema, or its JSON in a string."}
RESPONSE_FORMAT: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {
        "required": ["json_schema"],
        "properties": {
            "json_schema": {"type": "object", "required": ["schema"], "properties": {"schema": _SCHEMA}},
        },
    },
}
STRUCTURED_OUTPUTS: Schema = {
    "type": "object",
    "description": f"One of {', '.join(_KINDS)}.",
    "minProperties": 1,
    "properties": {
        "json": {**_SCHEMA, "type": ["object", "string", "null"]},
        "json_object": {"type": ["boolean", "null"]},
        "regex": {"type": ["string", "null"]},
        "choice": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string"}},
        "grammar": {"type": ["string", "null"], "description": "In Lark, or in GBNF."},
        "disable_any_whitespace": {"type": ["boolean", "null"]},
        "whitespace_pattern": {"type": ["string", "null"]},
        "disable_fallback": {"description": "Changes nothing."},
        "disable_additional_properties": {"enum": [False, None]},
    },
    "additionalProperties": {"type": "null"},
}
"""What `read_structure` takes, as JSON Schema."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What the text must obey: a `value` of one of the kinds, and the field of the request in which it stood.

    The kind "parts" is for what is made of several structures here (tools/grammar.py): its value is a function.
    """

    kind: str
    value: Any
    param: str
    whitespace: str | None = _WHITESPACE
    as_printed: bool = False
    """White space stands in JSON as Python and chat templates print it: one after each comma and colon."""


def read_structure(body: Body) -> Structure | None:
    """What a request says about structure; the value itself is not looked into. Raises InvalidRequest."""
    formatted, structured = _response_format(body), _structured_outputs(body)
    if formatted is not None and structured is not None:
        raise InvalidRequest("response_format and structured_outputs are both given", "structured_outputs")
    return formatted or structured


def _response_format(body: Body) -> Structure | None:
    param, value = "response_format", body.get("response_format")
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return Structure("json", _ANY_OBJECT, param)
    if kind != "json_schema":
        raise InvalidRequest(f"{param} must be an object whose type is text, json_object or json_schema", param)
    named = value.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if schema is None:
        raise InvalidRequest(f"{param}.json_schema must be an object with a schema", param)
    return _structure("json", schema, param)


def _structured_outputs(body: Body) -> Structure | None:
    param, given = "structured_outputs", body.get("structured_outputs")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidRequest(f"{param} must be an object", param)
    for name, value in given.items():
        if name not in STRUCTURED_OUTPUTS["properties"] and value is not None:
            raise InvalidRequest(f"{param}.{name:.40} is not supported", param)
    kinds = [kind for kind in _KINDS if given.get(kind) is not None]
    if given.get("json_object") is False:
        kinds.remove("json_object")
    if len(kinds) != 1:
        raise InvalidRequest(f"{param} must have one of {', '.join(_KINDS)}", param)
    closed = given.get("disable_additional_properties")
    if closed or not isinstance(closed, bool | None):
        raise InvalidRequest(f"{param}.disable_additional_properties is not supported", param)
    kind = kinds[0]
    if kind == "json_object":
        if given[kind] is not True:
            raise InvalidRequest(f"{param}.{kind} must be true or false", param)
        return Structure("json", _ANY_OBJECT, param, _whitespace(given, param))
    return _structure(kind, given[kind], param, _whitespace(given, param))


def _structure(kind: str, value: Any, param: str, whitespace: str | None = _WHITESPACE) -> Structure:
    structure = Structure(kind, value, param, whitespace)
    if not isinstance(value, _TYPES[kind]):
        raise _wrong(structure, f"must be {_names(_TYPES[kind])}")
    return structure


def _names(types: tuple[type, ...]) -> str:
    names: dict[type, str] = {dict: "an object", str: "a string", list: "a list"}
    return " or ".join(names[kind] for kind in types)


def _whitespace(given: Mapping[str, Any], param: str) -> str | None:
    disabled, pattern = given.get("disable_any_whitespace"), given.get("whitespace_pattern")
    if not isinstance(disabled, bool | None) or not isinstance(pattern, str | None):
        raise InvalidRequest(f"{param}: disable_any_whitespace is a flag and whitespace_pattern a string", param)
    return None if disabled else pattern or _WHITESPACE


def grammar_text(structure: Structure) -> str:
    """The grammar of a structure. Raises InvalidRequest if it is none, as far as that can be seen without compiling."""
    makers = {"json": _of_schema, "regex": _of_regex, "choice": _of_choice, "grammar": _of_grammar, "parts": _of_parts}
    text = makers[structure.kind](structure)
    _check_size(len(text.encode()), structure)
    return text


def _check_size(size: int, structure: Structure) -> None:
    if size > MAX_GRAMMAR_BYTES:
        raise _wrong(structure, f"has more than {MAX_GRAMMAR_BYTES:,} bytes")


def _wrong(structure: Structure, what: str) -> InvalidRequest:
    kind = {"json": "schema", "parts": "grammar of the whole answer"}.get(structure.kind, structure.kind)
    return InvalidRequest(f"{structure.param}: the {kind} {what}", structure.param)


def _of_schema(structure: Structure) -> str:
    schema = structure.value
    try:
        if isinstance(schema, str):
            _check_size(len(schema), structure)
            schema = json.loads(schema)
        if not isinstance(schema, dict):
            raise _wrong(structure, "must be an object")
        text = json.dumps(schema, ensure_ascii=False)
        _check_size(len(text), structure)
        # The schema's own options may come first, but none that has a keyword ignored.
        options = _spacing(structure)
        return LLMatcher.grammar_from_json_schema(text, defaults=options, overrides={"lenient": False})
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise _wrong(structure, f"cannot be read: {reason}") from None


def _spacing(structure: Structure) -> Any:
    """llguidance's options for white space, whose type is there for type checkers alone."""
    whitespace = structure.whitespace
    if structure.as_printed:
        return {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    if whitespace is None:
        return {"whitespace_flexible": False}
    return {"whitespace_flexible": True, "whitespace_pattern": whitespace}


def _of_regex(structure: Structure) -> str:
    return LLMatcher.grammar_from_regex(_text(structure))


def _of_grammar(structure: Structure) -> str:
    text = _text(structure)
    _check_size(len(text), structure)
    try:
        return grammar_from("grammar", text)
    except ValueError as error:
        raise _wrong(structure, f"cannot be read: {error}") from None


def _of_parts(structure: Structure) -> str:
    """A grammar that was put together here, of several: it is made when it is needed, in the thread for that."""
    return str(structure.value())


def _text(structure: Structure) -> str:
    if not isinstance(structure.value, str):
        raise _wrong(structure, "must be a string")
    return structure.value


def _of_choice(structure: Structure) -> str:
    """One regex: it compiles five times as fast as a grammar of so many words."""
    choices = structure.value
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) for one in choices):
        raise _wrong(structure, "must be a list of strings, at least one")
    _check_size(sum(map(len, choices)) + len(choices), structure)
    return LLMatcher.grammar_from_regex("|".join(map(exactly, choices)))


def exactly(text: str) -> str:
    """A regex that matches a text and nothing else."""
    return re.sub(r"[\x00-\x7f]", lambda match: match[0] if match[0].isalnum() else rf"\x{ord(match[0]):02x}", text)


class Grammars:
    """Makes grammars of structures, and remembers the good ones."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._good: OrderedDict[str, None] = OrderedDict()
        self._worker = ThreadPoolExecutor(1, "grammar", _step_back)

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def text(self, structure: Structure | None) -> str:
        """The text of a grammar that can be compiled; empty for no structure. Raises InvalidRequest or Refusal."""
        if structure is None:
            return ""
        work = asyncio.get_running_loop().run_in_executor(self._worker, self.check, structure)
        try:
            return await asyncio.wait_for(work, MAX_WAIT_S)
        except TimeoutError:
            raise Refusal(
                503, "the grammars of other requests are being compiled; try again", headers=(("Retry-After", "1"),)
            ) from None

    def check(self, structure: Structure) -> str:
        """The same, on the spot; called by one thread at a time."""
        text = grammar_text(structure)
        if text in self._good:
            return text
        try:
            tokenizer = self._ready_tokenizer()
        except ModelError as error:
            raise InvalidRequest(f"structured output is not there for this model: {error}", structure.param) from None
        began_s = time.thread_time()
        matcher = compile_grammar(tokenizer, text)
        if not matcher.is_error():
            matcher.compute_bitmask()
        took_s = time.thread_time() - began_s
        if matcher.is_error():
            raise _wrong(structure, f"cannot be used: {error_of(matcher)}")
        if took_s > MAX_COMPILE_S:
            raise _wrong(structure, f"takes {took_s:.1f} s to compile, and may take {MAX_COMPILE_S} s")
        self._good[text] = None
        if len(self._good) > _KEPT:
            self._good.popitem(last=False)
        return text

    def _ready_tokenizer(self) -> LLTokenizer:
        """Made by the first who needs it: most servers never do."""
        if self._tokenizer is None:
            vocabulary = self._vocabulary
            end = min(vocabulary.special_ids, default=0)  # which one makes no difference here
            self._tokenizer = grammar_tokenizer(vocabulary, len(vocabulary.token_bytes), (end,))
        return self._tokenizer


def _step_back() -> None:
    """A thread that compiles lets everybody else go first; on Linux a thread has a priority of its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
