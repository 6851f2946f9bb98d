"""The model's chat template, run in a sandbox as transformers runs it. Knows nothing of tokens.

Follows transformers/utils/chat_template_utils.py: the same options, filters and functions, so that a
template renders here as it does there. The template is the model's, or a client's where the server trusts requests with
that, and it is bounded in time and memory (sandbox.py): models come from anywhere.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from ...common.errors import InvalidRequest
from .sandbox import BoundedEnvironment
from .values import strings

_RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What a template may raise for messages that it was not written for."""


NO_VARIABLES: Mapping[str, Any] = {}


class BrokenTemplate(Exception):
    """What is wrong with a template itself."""


class ChatTemplate:
    """A compiled template. Safe to render from several threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` are variables of the template, "bos_token" and its like. Raises BrokenTemplate."""
        environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = environment.paid("tojson", _tojson)
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
            names = meta.find_undeclared_variables(environment.parse(source))
        except RecursionError:
            raise BrokenTemplate("it is too deeply nested") from None
        except jinja2.TemplateError as error:
            raise BrokenTemplate(str(error)) from None
        self._environment = environment
        self._special_tokens = dict(special_tokens)
        self._knows_developer = "developer" in source
        self.takes_tools = "tools" in names
        """Whether it would do anything with tools."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        opens_answer: bool = True,
        tools: Sequence[Any] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The prompt of a conversation; with `opens_answer` up to where the assistant speaks. Raises InvalidRequest.

        `variables` are what the template may know beside that.
        The OpenAI API's newer name of the system role is "developer", which most templates were written without.
        """
        if not self._knows_developer:
            messages = [_with_system_role(message) for message in messages]
        self._environment.begin(sum(map(len, strings([*messages, *tools, variables]))))
        try:
            return self._template.render(
                {
                    "documents": None,
                    **variables,
                    "messages": messages,
                    "tools": list(tools) or None,
                    "add_generation_prompt": opens_answer,
                    **self._special_tokens,
                }
            )
        except _RENDER_ERRORS as error:
            raise InvalidRequest(f"the chat template does not take these messages: {error}", "messages") from None


def _with_system_role(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**message, "role": "system"} if message.get("role") == "developer" else message


class _Generation(Extension):
    """{% generation %} marks the assistant's words for training; here it is only its contents."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.datetime.now().strftime(layout)
