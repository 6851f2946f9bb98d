"""Grammars of answers that have parts: a thought, calls, and the answer that a client's schema asks for.

Written for llguidance: a Lark grammar that refers to a JSON schema for each function (`@arguments0`) and to the grammar
of the answer (`@answer`). Knows no request but its tools; who calls: ../dialect.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....common.errors import InvalidRequest
from ..structure import Structure, exactly, grammar_text
from .format import CallFormat
from .request import ANY_OBJECT, Tools

Controls = Mapping[str, int]
"""The ids of the marks that are control tokens, which a grammar must name by id."""

_TERMINALS = r"""TEXT: /(.|\n)*/
BLANK: /\s*/"""


@dataclass(frozen=True, slots=True)
class Thought:
    """What may come before the answer: the marks around it, and whether the prompt has begun it."""

    opening: str
    closing: str
    opened: bool


def calls_grammar(tools: Tools, form: CallFormat, controls: Controls, answer: str | None) -> str:
    """The grammar of an answer with calls.

    Forced calls are all that there is, and their arguments obey their schemas. Otherwise there may be text around them,
    or instead of them the `answer`, whose grammar is given; then only functions that are strict have their schemas
    obeyed. Raises InvalidRequest for a schema that cannot be read.
    """
    calls = tools.offered
    rules = [f"call: {' | '.join(f'call{place}' for place in range(len(calls)))}"]
    for place, function in enumerate(calls):
        before = f'{{"name": "{function.name}", "{form.arguments[0]}": '
        rules.append(f'call{place}: {json.dumps(before)} @arguments{place} "}}"')
    if tools.forced:
        rules.append(f"start: {_only(tools, form, controls)}")
    elif answer is not None:
        rules.append(f"start: @answer | {_only(tools, form, controls)}")
    else:
        rules += _beside_text(tools, form, controls)
    parts = {} if answer is None else {"answer": answer}
    for place, function in enumerate(calls):
        obeyed = tools.forced or function.strict
        schema = function.parameters if obeyed else ANY_OBJECT
        parts[f"arguments{place}"] = grammar_text(Structure("json", schema, "tools", as_printed=True))
    return _whole(rules, parts)


def after_thought(thought: Thought, controls: Controls, answer: str) -> str:
    """A grammar with a thought before what another grammar allows."""
    begin = "" if thought.opened else f"BLANK {_terms(thought.opening, controls)} "
    rule, through = _through("through", thought.closing, controls)
    optional = "" if thought.opened else "?"
    return _whole([f"start: thought{optional} @after", f"thought: {begin}{through} BLANK", *rule], {"after": answer})


def _whole(rules: list[str], parts: Mapping[str, str]) -> str:
    """A grammar of rules that name other grammars. Those of a grammar that consists of several come along."""
    grammars: list[dict[str, Any]] = [{"lark_grammar": "\n".join([*rules, _TERMINALS])}]
    for name, part in parts.items():
        first, *others = _grammars(part)
        grammars += [{**first, "name": name}, *others]
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def _grammars(text: str) -> list[dict[str, Any]]:
    """The grammars of a text that llguidance takes: Lark, or an object that lists several, which a client may send."""
    if not text.lstrip().startswith("{"):
        return [{"lark_grammar": text}]
    try:
        grammars = json.loads(text)["grammars"]
        return [{**grammar} for grammar in [grammars[0], *grammars[1:]]]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = "structured_outputs: the grammar cannot be used beside tools or reasoning"
        raise InvalidRequest(message, "structured_outputs") from None


def _only(tools: Tools, form: CallFormat, controls: Controls) -> str:
    """Calls and nothing else."""
    more = f"({_terms(form.between, controls)} call)*" if tools.parallel else ""
    return f"{_terms(form.head, controls)} call {more} {_terms(form.tail, controls)}"


def _beside_text(tools: Tools, form: CallFormat, controls: Controls) -> list[str]:
    """Calls, or text, and both if the format has marks. From such a mark on the grammar is that of a call."""
    if form.bare:
        return [f"start: {_only(tools, form, controls)} | OTHER?", r"OTHER: /[^{\s](.|\n)*/"]
    rule, through = _through("through", form.opening, controls)
    head, tail = form.head.removeprefix(form.opening), _terms(form.tail, controls)
    one = f"{through} {_terms(head, controls)} call"
    if tools.parallel and form.one_by_one:
        return [f"start: ({one} {tail})* TEXT", *rule]
    more = f"({_terms(form.between, controls)} call)*" if tools.parallel else ""
    return [f"start: TEXT | {one} {more} {tail} BLANK", *rule]


def _through(name: str, mark: str, controls: Controls) -> tuple[list[str], str]:
    """Any text up to a mark, and the mark: the rules of it, and how they are named."""
    if mark in controls:
        return [], f"TEXT <[{controls[mark]}]>"
    return [f"{name}[lazy]: /(.|\\n)*{exactly(mark)}/"], name


def _terms(text: str, controls: Controls) -> str:
    """A text, in which control tokens stand by their ids."""
    if not controls:
        return json.dumps(text) if text else ""
    pieces = re.split(f"({'|'.join(map(re.escape, controls))})", text)
    return " ".join(f"<[{controls[piece]}]>" if piece in controls else json.dumps(piece) for piece in pieces if piece)
