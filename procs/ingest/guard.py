"""What stands around the application: an id for each request, leave for pages of other origins, the key.

Plain ASGI, put together by app.py.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import REQUEST_ID_PATTERN, Refusal, refused

_WITHOUT_KEY = ("/live", "/health")
"""Routes for probes, which have no key."""

_REQUEST_ID = re.compile(REQUEST_ID_PATTERN.encode())

_EXPOSED = ("X-Request-Id", "Retry-After")
"""Headers that a page of another origin may read."""

_PREFLIGHT_S = 600
"""How long a browser may remember what it was allowed."""

_NO_ENTRY = refused(
    Refusal(
        401,
        "a valid API key is needed; send it as Authorization: Bearer KEY",
        code="invalid_api_key",
        headers=(("WWW-Authenticate", "Bearer"),),
    )
)


def guarded(app: ASGIApp, api_key: str | None, origins: Sequence[str]) -> ASGIApp:
    """An application with all of these around it. Who asks for leave has no key yet, so that comes before the key."""
    if api_key is not None:
        app = Guard(app, api_key)
    return RequestIds(Origins(app, origins) if origins else app)


class RequestIds:
    """Gives each response the id that its request brought, or a fresh one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = dict(scope["headers"]).get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex.encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


class Guard:
    """Lets in who has the key."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in _WITHOUT_KEY or self._admits(dict(scope["headers"]).get(b"authorization", b"")):
            await self._app(scope, receive, send)
        else:
            await _NO_ENTRY(scope, receive, send)

    def _admits(self, authorization: bytes) -> bool:
        scheme, _, key = authorization.partition(b" ")
        return hmac.compare_digest(key, self._api_key) and scheme.lower() == b"bearer"


class Origins(CORSMiddleware):
    """CORS: which other origins' pages a browser may let call the server. Never with cookies: there are none here."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=_EXPOSED,
            max_age=_PREFLIGHT_S,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """The same; a refusal as an error object, like all others."""
        found = super().preflight_response(request_headers)
        if found.status_code < 400:
            return found
        headers = [(name, value) for name, value in found.headers.items() if not name.startswith("content-")]
        return refused(Refusal(found.status_code, bytes(found.body).decode(), headers=headers))
