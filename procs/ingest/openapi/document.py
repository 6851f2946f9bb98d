"""The whole document: routes, their parameters, and every status that they can answer with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....common.rules import Schema
from ..body import MAX_BODY_BYTES
from ..errors import REQUEST_ID_PATTERN
from ..fields import PATHS, Route
from . import requests
from .answers import COMPONENTS

_ID = {"schema": {"type": "string", "pattern": f"^{REQUEST_ID_PATTERN}$"}, "required": True}
_ID_HEADER = {**_ID, "description": "The request's own X-Request-Id if it is one, else a fresh one."}
_RETRY_HEADER = {"schema": {"type": "string", "pattern": "^[0-9]+$"}, "description": "Seconds to wait."}

_ANY = {
    400: "The request is wrong; `param` names the field.",
    408: "The request did not arrive in time.",
    431: "The head of the request is too large.",
    500: "The server failed on this request.",
    503: "Not ready, draining, or too many connections.",
}
"""What every route can answer with."""

_BODY = {
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes.",
    415: "The body is not said to be JSON in UTF-8, or is compressed.",
}
_MODEL = {404: "There is no such model."}
_GENERATING = {429: "Too many requests wait.", 504: "The request took longer than its `timeout`."}
_RETRIED = (429, 503)


@dataclass(frozen=True, slots=True)
class _Operation:
    """One route and method. `answer` names the schema of its 200; `statuses` are those it has beside `_ANY`."""

    path: str
    method: str
    name: str
    summary: str
    answer: str | None
    statuses: dict[int, str]
    body: Schema | None = None
    body_required: bool = True
    needs_key: bool = True
    events: str | None = None


def _generating(route: Route, name: str, answer: str) -> _Operation:
    return _Operation(
        PATHS[route],
        "post",
        name,
        "Generate text, whole or as a stream of events.",
        answer,
        {**_BODY, **_MODEL, **_GENERATING},
        requests.generating(route),
        events=f"{answer}Chunk",
    )


_OPERATIONS = (
    _generating("completions", "createCompletion", "Completion"),
    _generating("chat", "createChatCompletion", "ChatCompletion"),
    _Operation("/v1/models", "get", "listModels", "The names that requests may use.", "Models", {}),
    _Operation("/v1/models/{name}", "get", "getModel", "One of them.", "Model", {**_MODEL}),
    _Operation(
        "/v1/requests/{id}/abort",
        "post",
        "abortRequest",
        "End a running request by the id in its answer.",
        "Aborted",
        {404: "No such request is running."},
    ),
    _Operation(
        "/reset_prefix_cache",
        "post",
        "resetPrefixCache",
        "Forget the prefix cache; with `force` when all that runs has ended.",
        "Reset",
        {**_BODY, 409: "Requests are running."},
        requests.reset(),
        body_required=False,
    ),
    _Operation(
        "/tokenize",
        "post",
        "tokenize",
        "Token ids of a text or a conversation.",
        "Tokens",
        {**_BODY, **_MODEL},
        requests.tokenize(),
    ),
    _Operation(
        "/detokenize",
        "post",
        "detokenize",
        "The text of token ids.",
        "Text",
        {**_BODY, **_MODEL},
        requests.detokenize(),
    ),
    _Operation(
        "/kv_event_sources", "get", "listKvEventSources", "Where KV events are published, by engine.", "KvSources", {}
    ),
    _Operation("/metrics", "get", "metrics", "All counters, as Prometheus reads them.", None, {}),
    _Operation("/health", "get", "health", "Can a token be produced?", "Health", {}, needs_key=False),
    _Operation("/live", "get", "live", "Does the process run?", "Alive", {}, needs_key=False),
    _Operation("/openapi.json", "get", "describe", "This description.", None, {}),
)


def document(with_key: bool) -> dict[str, Any]:
    """The description of a server; `with_key` if it asks for one."""
    paths: dict[str, Any] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, with_key)
    components: dict[str, Any] = {"schemas": COMPONENTS}
    if with_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "fourstroke", "version": "1", "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": components,
    }


def _described(operation: _Operation, with_key: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation, with_key),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        found["requestBody"] = {"content": content, "required": operation.body_required}
    if with_key:
        found["security"] = [{"key": []}] if operation.needs_key else []
    return found


def _parameters(operation: _Operation) -> list[dict[str, Any]]:
    names = [name for name in ("id", "name") if f"{{{name}}}" in operation.path]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    request_id = {"name": "X-Request-Id", "in": "header", "schema": {"type": "string"}}
    return [*in_path, {**request_id, "description": f"Echoed if it is {REQUEST_ID_PATTERN}, else replaced."}]


def _responses(operation: _Operation, with_key: bool) -> dict[str, Any]:
    found = {"200": _response("As asked.", _content(operation))}
    statuses = {**_ANY, **operation.statuses}
    if with_key and operation.needs_key:
        statuses[401] = "The API key is missing or wrong."
    for status, meaning in sorted(statuses.items()):
        schema: Schema = {"$ref": "#/components/schemas/Error"}
        if status == 503 and operation.answer == "Health":
            schema = {"anyOf": [schema, {"$ref": "#/components/schemas/Health"}]}
        found[str(status)] = _response(meaning, {"application/json": {"schema": schema}}, status)
    return found


def _response(meaning: str, content: dict[str, Any], status: int = 200) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": _ID_HEADER}
    if status in _RETRIED:
        headers["Retry-After"] = _RETRY_HEADER
    if status == 401:
        headers["WWW-Authenticate"] = {"schema": {"const": "Bearer"}, "required": True}
    return {"description": meaning, "headers": headers, "content": content}


def _content(operation: _Operation) -> dict[str, Any]:
    """What a 200 may hold, by its type."""
    if operation.path == "/metrics":
        return {"text/plain": {"schema": {"type": "string"}}}
    if operation.answer is None:
        return {"application/json": {"schema": {"type": "object"}}}
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{operation.answer}"}}}
    if operation.events is not None:
        content["text/event-stream"] = {"schema": _event(operation.events)}
    return content


def _event(chunk: str) -> Schema:
    """An event of a stream as the object of its fields: OpenAPI 3.1 has no word of its own for that."""
    held = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in (chunk, "Error")]}
    data = {
        "type": "string",
        "if": {"const": "[DONE]"},
        "else": {"contentMediaType": "application/json", "contentSchema": held},
        "description": "JSON; `[DONE]` in the last event, unless that is an error.",
    }
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}
