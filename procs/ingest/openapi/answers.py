"""What answers hold, as JSON Schema. The tests compare every answer that they get with it."""

from __future__ import annotations

from typing import Any

from ....common.config import KV_ENCODINGS, KV_HASHES
from ....common.rules import Schema
from ..answers import CALLED, OBJECTS, REASONS
from ..errors import ERROR
from ..fields import Route
from ..health import STATUSES

_STRING: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_BYTES: Schema = {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0, "maximum": 255}}


def _object(**members: Schema) -> Schema:
    """An object that has all of these members."""
    return {"type": "object", "properties": members, "required": list(members)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _with_optional(schema: Schema, **members: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], **members}}


_USAGE = _with_optional(
    _object(
        prompt_tokens=_COUNT,
        completion_tokens=_COUNT,
        total_tokens=_COUNT,
        prompt_tokens_details=_object(cached_tokens=_COUNT),
    ),
    completion_tokens_details=_object(reasoning_tokens=_COUNT),
)
_SCORE: dict[str, Schema] = {"token": _STRING, "logprob": _NUMBER, "bytes": _BYTES}
_LOGPROBS: dict[Route, Schema] = {
    "completions": _object(
        tokens=_list(_STRING),
        token_logprobs=_list({"type": ["number", "null"]}),
        top_logprobs=_list({"type": ["object", "null"], "additionalProperties": _NUMBER}),
        text_offset=_list(_COUNT),
    ),
    "chat": _object(content=_list(_object(**_SCORE, top_logprobs=_list(_object(**_SCORE))))),
}

_KV_SOURCE = _object(
    endpoint=_STRING,
    replay_endpoint=_or_null(_STRING),
    dp_rank=_COUNT,
    topic=_STRING,
    block_size=_COUNT,
    model=_STRING,
    encoding={"enum": list(KV_ENCODINGS)},
    hash={"enum": list(KV_HASHES)},
    incarnation=_COUNT,
)


def _choice(route: Route, content: dict[str, Schema], finish: Schema) -> Schema:
    return _object(
        index=_COUNT,
        **content,
        logprobs=_or_null(_LOGPROBS[route]),
        finish_reason=finish,
        stop_reason={"type": ["string", "integer", "null"], "description": "The stop string or stop id; null for EOS."},
    )


def _head(name: str) -> dict[str, Schema]:
    created = {**_COUNT, "description": "Seconds since 1970."}
    return {"id": _STRING, "object": {"const": name}, "created": created, "model": _STRING}


def _reasons(route: Route) -> list[str]:
    return [*REASONS.values(), *([CALLED] if route == "chat" else [])]


def _whole(route: Route, content: dict[str, Schema]) -> Schema:
    choice = _choice(route, content, {"enum": _reasons(route)})
    return _object(**_head(OBJECTS[route]), choices=_list(choice), usage=_ref("Usage"))


def _chunk(route: Route, name: str, content: dict[str, Schema]) -> Schema:
    """A chunk has a usage only if that was asked for, and then the last one alone has one that is not null."""
    choice = _choice(route, content, {"enum": [*_reasons(route), None]})
    return _with_optional(_object(**_head(name), choices=_list(choice)), usage=_or_null(_ref("Usage")))


_KIND: Schema = {"const": "function"}
_CALL = _object(id=_STRING, type=_KIND, function=_object(name=_STRING, arguments=_STRING))
_CALL_DELTA = _with_optional(
    _object(index=_COUNT, function=_with_optional(_object(arguments=_STRING), name=_STRING)), id=_STRING, type=_KIND
)
_REASONING: dict[str, Schema] = {"reasoning": _STRING, "reasoning_content": _STRING}
_MESSAGE = _with_optional(
    _object(role={"const": "assistant"}, content={"type": ["string", "null"]}, refusal={"type": "null"}),
    tool_calls=_list(_CALL),
    **_REASONING,
)
_DELTA: Schema = {
    "type": "object",
    "properties": {"role": {"const": "assistant"}, "content": _STRING, "tool_calls": _list(_CALL_DELTA), **_REASONING},
}
_MODEL = _object(
    id=_STRING, object={"const": "model"}, created=_COUNT, owned_by=_STRING, max_model_len={**_COUNT, "minimum": 1}
)


def _tokens() -> Schema:
    always = _object(tokens=_list(_COUNT), count=_COUNT, max_model_len=_COUNT)
    return {**always, "properties": {**always["properties"], "token_strs": _list(_STRING)}}


COMPONENTS: dict[str, Any] = {
    "Error": ERROR,
    "Usage": _USAGE,
    "Completion": _whole("completions", {"text": _STRING}),
    "CompletionChunk": _chunk("completions", OBJECTS["completions"], {"text": _STRING}),
    "ChatCompletion": _whole("chat", {"message": _MESSAGE}),
    "ChatCompletionChunk": _chunk("chat", OBJECTS["chat"] + ".chunk", {"delta": _DELTA}),
    "Models": _object(object={"const": "list"}, data=_list(_ref("Model"))),
    "Model": _MODEL,
    "Tokens": _tokens(),
    "Text": _object(prompt=_STRING),
    "Aborted": _object(id=_STRING, status={"const": "aborted"}),
    "Reset": _object(status={"const": "reset"}),
    "KvSources": _object(sources=_list(_KV_SOURCE)),
    "Health": _object(status={"enum": list(STATUSES)}, detail=_STRING),
    "Alive": _object(status={"const": "ok"}),
}
"""All schemas of answers by their names."""
