"""Refusals: what a client is told when it gets no answer, in the error object of the OpenAI API.

Route handlers raise Refusal, or InvalidRequest for a request that must be changed; app.py turns both into
a response (`refused`). Nothing else that a client can cause may leave a handler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from ...common.errors import FourstrokeError, InvalidRequest
from ...common.rules import Schema

REQUEST_ID_PATTERN = "[A-Za-z0-9._-]{1,128}"
"""What an X-Request-Id must be to be echoed."""

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}

MAX_QUOTED_CHARS = 200
"""How much of what a client sent comes back in an error message."""


class Refusal(FourstrokeError):
    """An HTTP error status with its message; `headers` go into the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = tuple(headers)


def error_object(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an error response, or of an error event in a stream."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "type": {"enum": sorted({*_TYPES.values(), "server_error", "invalid_request_error"})},
                "param": {**_TEXT_OR_NULL, "description": "The field at fault."},
                "code": _TEXT_OR_NULL,
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
"""What `error_object` makes, as JSON Schema."""


def refused(refusal: Refusal) -> Response:
    """A response that holds an error object."""
    body = error_object(refusal.status, str(refusal), refusal.param, refusal.code)
    return JSONResponse(body, refusal.status, dict(refusal.headers))


def as_refusal(error: Refusal | InvalidRequest) -> Refusal:
    """A 400 for a request that must be changed; a refusal as it is."""
    return error if isinstance(error, Refusal) else Refusal(400, str(error), param=error.param)


def quoted(text: str) -> str:
    """A text that a client sent, shortened and with control characters escaped."""
    return repr(text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "...")


def model_not_found(name: str, served: Sequence[str]) -> Refusal:
    """The answer to a model name that is not served."""
    return Refusal(
        404,
        f"the model {quoted(name)} is not served here; served: {', '.join(served)}",
        param="model",
        code="model_not_found",
    )


def prompt_too_long(count: str, max_model_len: int, param: str) -> Refusal:
    """The answer to a prompt that leaves no room for one token of output; `count` is its size in words.

    Clients know this case, which another model might take, by the code or by words of the message: OpenAI's "maximum
    context length" or "prompt is too long".
    """
    return Refusal(
        400,
        f"the prompt is too long: it has {count} tokens, and this model's maximum context length is {max_model_len} "
        "tokens, of which one must be left",
        param=param,
        code="context_length_exceeded",
    )


def not_ready(status: str) -> Refusal:
    """The answer while the server starts, drains or lacks a process."""
    headers = (("Connection", "close"),) if status == "draining" else (("Retry-After", "1"),)
    return Refusal(503, f"the server is {status}", code=status, headers=headers)


def stopping() -> Refusal:
    """What is told to those whose answer is not finished when the process ends."""
    return Refusal(503, "the server is stopping", code="stopping", headers=(("Connection", "close"),))


def queue_full(waiting: int) -> Refusal:
    """The answer when too many requests wait already."""
    return Refusal(
        429,
        f"too many requests: {waiting} are running or waiting; try again later",
        code="queue_full",
        headers=(("Retry-After", "1"),),
    )
