"""The HTTP application: routes, the key, request ids, and every error as an error object.

Made of starlette; uvicorn calls it. What a route does is in generate.py and routes.py.
"""

from __future__ import annotations

import hmac
import re
import uuid

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...common.errors import InvalidRequest
from .errors import Refusal, as_refusal, quoted, refused
from .generate import Generate
from .routes import Routes
from .service import Service

_WITHOUT_KEY = ("/live", "/health")
"""Routes for probes, which have no key."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

_NO_ENTRY = refused(
    Refusal(
        401,
        "a valid API key is needed; send it as Authorization: Bearer KEY",
        code="invalid_api_key",
        headers=(("WWW-Authenticate", "Bearer"),),
    )
)


def make_app(service: Service) -> Starlette:
    """The application that serves a service."""
    routes = Routes(service)
    app = Starlette(
        routes=[
            Route("/v1/completions", Generate(service, "completions"), methods=["POST"]),
            Route("/v1/chat/completions", Generate(service, "chat"), methods=["POST"]),
            Route("/v1/models", routes.models, methods=["GET"]),
            Route("/v1/requests/{id}/abort", routes.abort, methods=["POST"]),
            Route("/reset_prefix_cache", routes.reset_prefix_cache, methods=["POST"]),
            Route("/tokenize", routes.tokenize, methods=["POST"]),
            Route("/detokenize", routes.detokenize, methods=["POST"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
            Route("/live", routes.live, methods=["GET"]),
        ],
        middleware=[Middleware(Guard, api_key=service.config.api_key)],
        exception_handlers={
            Refusal: _on_refusal,
            InvalidRequest: _on_refusal,
            HTTPException: _on_wrong_route,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False  # another spelling of a route is not the route
    return app


class Guard:
    """Lets in who has the key, and gives each response the id that its request brought."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex.encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        if scope["path"] in _WITHOUT_KEY or self._admits(headers.get(b"authorization", b"")):
            await self._app(scope, receive, send_with_id)
        else:
            await _NO_ENTRY(scope, receive, send_with_id)

    def _admits(self, authorization: bytes) -> bool:
        if self._api_key is None:
            return True
        scheme, _, key = authorization.partition(b" ")
        return hmac.compare_digest(key, self._api_key) and scheme.lower() == b"bearer"


async def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, (Refusal, InvalidRequest))
    return refused(as_refusal(error))


async def _on_wrong_route(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{http.method} {quoted(http.url.path)}"
    message = f"{where} is not a route" if error.status_code == 404 else f"{where}: {error.detail}"
    return refused(Refusal(error.status_code, message, headers=tuple((error.headers or {}).items())))


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """For the books only: nobody reads it."""
    return refused(Refusal(400, "the connection was closed in the middle of the request"))


async def _on_bug(_: Request, __: Exception) -> Response:
    return refused(Refusal(500, "the server failed on this request; its log tells why"))
