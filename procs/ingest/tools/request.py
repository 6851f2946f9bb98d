"""What a chat request says of tools: `tools`, `tool_choice`, `parallel_tool_calls`, read and checked.

A function's parameters are looked into only as far as templates and clients need it: they are the schema of an object.
Where calls must obey them, they become a grammar (grammar.py), which finds all that is wrong with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ....common.errors import InvalidRequest
from ....common.rules import Schema
from ..body import Body
from ..errors import quoted
from ..values import is_flat, is_small

MAX_TOOLS = 128
MAX_TOOLS_CHARS = 1 << 20
"""Of all functions together: a prompt of 128 large ones is some 300 KB."""

MEMBER_CHARS = 16
"""A member of an object, or an item of a list, counts as so many: to look at a million of them takes 0.1 s."""

MAX_DEPTH = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_NAMED: Schema = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
}
_FUNCTION: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": f"^{_NAME.pattern}$"},
        "description": {"type": ["string", "null"]},
        "parameters": {"type": ["object", "null"], "description": "The JSON schema of an object."},
        "strict": {"type": ["boolean", "null"], "description": "Its arguments obey its schema."},
    },
}
TOOLS: Schema = {
    "type": "array",
    "maxItems": MAX_TOOLS,
    "items": {
        "type": "object",
        "required": ["type", "function"],
        "properties": {"type": {"const": "function"}, "function": _FUNCTION},
    },
}
TOOL_CHOICE: Schema = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        _NAMED,
        {
            "type": "object",
            "required": ["type", "allowed_tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "allowed_tools": {
                    "type": "object",
                    "required": ["mode", "tools"],
                    "properties": {
                        "mode": {"enum": ["auto", "required"]},
                        "tools": {"type": "array", "minItems": 1, "items": _NAMED},
                    },
                },
            },
        },
    ]
}
"""What the two fields may hold, as JSON Schema."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""What a function without `parameters` takes."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool

    def for_template(self) -> dict[str, Any]:
        """As chat templates take it, which is as clients send it."""
        said = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": said}


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, and which of them its answer may call.

    `names` are those; none of them: calls are not looked for. `forced`: the answer is calls and nothing else.
    `parallel`: there may be several.
    """

    functions: tuple[Function, ...] = ()
    names: tuple[str, ...] = ()
    forced: bool = False
    parallel: bool = True

    @property
    def constrained(self) -> bool:
        """Whether a grammar must see to it that calls are as the request wants them."""
        return bool(self.names) and (self.forced or not self.parallel or any(one.strict for one in self.offered))

    @property
    def offered(self) -> tuple[Function, ...]:
        return tuple(one for one in self.functions if one.name in self.names)


NO_TOOLS = Tools()


def read_tools(body: Body) -> Tools:
    """The tools in a request's body. Raises InvalidRequest, which names the field."""
    functions = _functions(body.get("tools"))
    parallel = body.get("parallel_tool_calls")
    if not isinstance(parallel, bool | None):
        raise InvalidRequest("parallel_tool_calls must be true or false", "parallel_tool_calls")
    choice = body.get("tool_choice")
    if not functions:
        if choice is not None and choice != "none":
            raise InvalidRequest("tool_choice needs tools", "tool_choice")
        return NO_TOOLS
    names, forced, one = _chosen(choice, [function.name for function in functions])
    return Tools(functions, names, forced, parallel is not False and not one)


def _functions(value: Any) -> tuple[Function, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidRequest("tools must be a list", "tools")
    if len(value) > MAX_TOOLS:
        raise InvalidRequest(f"tools may hold at most {MAX_TOOLS} functions", "tools")
    _check_size(value)
    functions = tuple(_function(tool, f"tools[{place}]") for place, tool in enumerate(value))
    names = [function.name for function in functions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidRequest(f"tools has two functions with the name {twice}", "tools")
    return functions


def _check_size(value: Any) -> None:
    """Refuse what would be expensive to print or too deep to walk."""
    if not is_small(value, MAX_TOOLS_CHARS, MEMBER_CHARS):
        raise InvalidRequest(f"tools has more than {MAX_TOOLS_CHARS:,} characters", "tools")
    if not is_flat(value, MAX_DEPTH):
        raise InvalidRequest(f"tools is nested more than {MAX_DEPTH} levels deep", "tools")


def _function(tool: Any, where: str) -> Function:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise InvalidRequest(f"{where} must be an object whose type is function", "tools")
    said = tool.get("function")
    if not isinstance(said, dict):
        raise InvalidRequest(f"{where}.function must be an object", "tools")
    name = said.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequest(f"{where}.function.name must be 1 to 64 letters, digits or any of _ . -", "tools")
    description, strict = said.get("description"), said.get("strict")
    if not isinstance(description, str | None):
        raise InvalidRequest(f"{where}.function.description must be a string", "tools")
    if not isinstance(strict, bool | None):
        raise InvalidRequest(f"{where}.function.strict must be true or false", "tools")
    return Function(name, description or "", _parameters(said.get("parameters"), where), bool(strict))


def _parameters(value: Any, where: str) -> dict[str, Any]:
    """A schema of objects. One that does not say so is made to."""
    if value is None:
        return NOTHING
    where += ".function.parameters"
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where} must be a JSON schema", "tools")
    if value.get("type", "object") != "object":
        raise InvalidRequest(f"{where} must be the schema of an object", "tools")
    properties, required = value.get("properties", {}), value.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        raise InvalidRequest(f"{where}.properties must be an object of schemas", "tools")
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise InvalidRequest(f"{where}.required must be a list of names", "tools")
    return {"type": "object", **value}


def _chosen(choice: Any, names: list[str]) -> tuple[tuple[str, ...], bool, bool]:
    """The functions that may be called, whether one must be, and whether no more than one may."""
    if choice is None or choice == "auto":
        return tuple(names), False, False
    if choice == "none":
        return (), False, False
    if choice == "required":
        return tuple(names), True, False
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return (_named(choice, names),), True, True
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools"), names)
    raise InvalidRequest(
        "tool_choice must be none, auto, required, or an object whose type is function or allowed_tools", "tool_choice"
    )


def _named(choice: Any, names: list[str]) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidRequest("tool_choice must name a function", "tool_choice")
    if name not in names:
        raise InvalidRequest(f"tool_choice names {quoted(name)}, which tools does not have", "tool_choice")
    return name


def _allowed(value: Any, names: list[str]) -> tuple[tuple[str, ...], bool, bool]:
    """`allowed_tools`: some of the functions, while the prompt, and so the prefix cache, has all of them."""
    mode = value.get("mode") if isinstance(value, dict) else None
    if mode not in ("auto", "required"):
        raise InvalidRequest("tool_choice.allowed_tools must have auto or required for its mode", "tool_choice")
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise InvalidRequest("tool_choice.allowed_tools must have a list of tools", "tool_choice")
    return tuple(dict.fromkeys(_named(tool, names) for tool in tools)), mode == "required", False
