"""What requests hold, as JSON Schema: made of the tables by which they are checked. document.py puts it into routes."""

from __future__ import annotations

from typing import Any

from ....common.rules import Flag, Schema
from ..fields import FIELDS, FRAMING, LOGPROBS, TOKENS, TOOL_FIELDS, Field, Route
from ..messages import MESSAGES

_IGNORED = "Not a field of this route: ignored."
_NOT_HERE = "Not a field of this route: refused, unless it changes nothing."
_NOT_YET = "Not supported: refused, unless it changes nothing."


def generating(route: Route) -> Schema:
    """The body of a request that generates."""
    fields = [*FIELDS, LOGPROBS[route]]
    return {
        "type": "object",
        "properties": {field.name: _described(field, route) for field in fields},
        "required": [field.name for field in fields if field.required and field.usable(route)],
    }


def tokenize() -> Schema:
    """The body of /tokenize: a text or a conversation."""
    return {
        "type": "object",
        "properties": {
            "model": _nullable(_model()),
            "prompt": {"type": ["string", "null"]},
            "messages": _nullable(MESSAGES),
            "return_token_strs": {**_nullable(Flag().schema()), "default": False},
            **{field.name: _described(field, "chat") for field in (*FRAMING, *TOOL_FIELDS)},
        },
        "oneOf": [
            {"required": ["prompt"], "properties": {"prompt": {"type": "string"}, "messages": {"type": "null"}}},
            {"required": ["messages"], "properties": {"messages": {"type": "array"}, "prompt": {"type": "null"}}},
        ],
    }


def detokenize() -> Schema:
    """The body of /detokenize: token ids, which may be none."""
    tokens = {name: value for name, value in TOKENS.items() if name != "minItems"}
    return {
        "type": "object",
        "properties": {"model": _nullable(_model()), "tokens": tokens},
        "required": ["tokens"],
    }


def reset() -> Schema:
    """The body of /reset_prefix_cache, which may be left out."""
    return {"type": "object", "properties": {"force": {**_nullable(Flag().schema()), "default": False}}}


def _described(field: Field, route: Route) -> Schema:
    if field.required and not field.usable(route):
        return {"description": f"{field.meaning} {_IGNORED}"}
    if not field.usable(route) or field.schema is None:
        why = _NOT_YET if route in field.routes else _NOT_HERE
        return {"enum": [None, *field.neutral], "description": f"{field.meaning} {why}"}
    if field.required:
        return {**field.schema, "description": field.meaning}
    return {**_nullable(field.schema), "description": field.meaning, "default": field.default}


def _model() -> Schema:
    (field,) = [field for field in FIELDS if field.name == "model"]
    return {**(field.schema or {}), "description": field.meaning}


def _nullable(schema: Schema) -> Schema:
    """The same or null, which is the same as absent."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds: Any = schema["type"]
    return {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
