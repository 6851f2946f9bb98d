"""JSON responses, and refusals as responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from .errors import Refusal, error_object


def respond(status: int, value: Any, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """A response that holds a JSON value."""
    content = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Response(content, status, dict(headers), "application/json")


def refused(refusal: Refusal) -> Response:
    """A response that holds an error object."""
    body = error_object(refusal.status, str(refusal), refusal.param, refusal.code)
    return respond(refusal.status, body, refusal.headers)
