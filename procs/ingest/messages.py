"""The messages of a chat request: checked, and brought into the shape that chat templates expect.

Knows no template and no tokenizer.
"""

from __future__ import annotations

import json
from typing import Any

from ...common.errors import InvalidRequest
from ...common.rules import Schema
from .errors import quoted

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

Message = dict[str, Any]

_PART: Schema = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_CALL: Schema = {
    "type": "object",
    "required": ["function"],
    "properties": {
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "arguments": {"description": "An object, or its JSON in a string."},
            },
        },
        "id": {"type": ["string", "null"]},
    },
}
MESSAGES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": list(ROLES)},
            "content": {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": _PART}]},
            "tool_calls": {"type": ["array", "null"], "items": _CALL},
            "tool_call_id": {"type": ["string", "null"]},
        },
        "anyOf": [{"required": ["content"]}, {"required": ["tool_calls"]}],
    },
}
"""What `read_messages` takes, as JSON Schema."""


def read_messages(value: Any) -> list[Message]:
    """The messages with their contents as strings. Raises InvalidRequest."""
    if not isinstance(value, list) or not value:
        raise InvalidRequest("messages must be a list of at least one message", "messages")
    return [_read_message(message, f"messages[{place}]") for place, message in enumerate(value)]


def _read_message(message: Any, where: str) -> Message:
    if not isinstance(message, dict):
        raise InvalidRequest(f"{where} must be an object", "messages")
    role = message.get("role")
    if role not in ROLES:
        got = quoted(role) if isinstance(role, str) else type(role).__name__
        raise InvalidRequest(f"{where}.role must be one of {', '.join(ROLES)}; got {got}", "messages")
    if not isinstance(message.get("tool_call_id"), str | None):
        raise InvalidRequest(f"{where}.tool_call_id must be a string", "messages")
    result = {**message, "content": _content(message, where)}
    if message.get("tool_calls") is not None:
        result["tool_calls"] = _tool_calls(message["tool_calls"], where)
    return result


def _content(message: Message, where: str) -> str:
    if "content" not in message and not message.get("tool_calls"):
        raise InvalidRequest(f"{where}.content is missing", "messages")
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(f"{where}.content must be a string, a list of parts or null", "messages")
    return "".join([_part_text(part, where) for part in content])


def _part_text(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidRequest(f"{where}.content holds a part that has no type", "messages")
    if part["type"] != "text":
        raise InvalidRequest(
            f"{where}.content holds a part of type {quoted(part['type'])}; this model takes only text", "messages"
        )
    if not isinstance(part.get("text"), str):
        raise InvalidRequest(f"{where}.content holds a text part that has no text", "messages")
    return str(part["text"])


def _tool_calls(calls: Any, where: str) -> list[Any]:
    """Calls that the assistant made before. Their arguments come as JSON in a string; templates want the object."""
    if not isinstance(calls, list):
        raise InvalidRequest(f"{where}.tool_calls must be a list", "messages")
    return [_tool_call(call, where) for call in calls]


def _tool_call(call: Any, where: str) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where}.tool_calls holds a call without the name of a function", "messages")
    if not isinstance(call.get("id"), str | None):
        raise InvalidRequest(f"{where}.tool_calls holds an id that is no string", "messages")
    arguments = function.get("arguments")
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
            json.dumps(arguments, ensure_ascii=False).encode()  # half of a surrogate pair is a ValueError, too
        except (ValueError, RecursionError):
            raise InvalidRequest(f"{where}.tool_calls holds arguments that are not JSON", "messages") from None
    return {**call, "function": {**function, "arguments": arguments}}
