"""The HTTP application: its routes, and every error as an error object.

Made of starlette; uvicorn calls it. What stands around it is in guard.py, what a route does in generate.py and
routes.py.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ...common.errors import InvalidRequest
from .errors import Refusal, as_refusal, quoted, refused
from .fields import PATHS
from .generate import Generate
from .guard import guarded
from .routes import Routes
from .service import Service


def make_app(service: Service) -> ASGIApp:
    """The application that serves a service. What guards it is around all of Starlette, also its answer to a bug."""
    return guarded(application(service), service.config.api_key, service.config.allowed_origins)


def application(service: Service) -> Starlette:
    """The routes and what becomes of errors."""
    routes = Routes(service)
    app = Starlette(
        routes=[
            Route(PATHS["completions"], Generate(service, "completions"), methods=["POST"]),
            Route(PATHS["chat"], Generate(service, "chat"), methods=["POST"]),
            Route("/v1/models", routes.models, methods=["GET"]),
            Route("/v1/models/{name:path}", routes.model, methods=["GET"]),
            Route("/v1/requests/{id}/abort", routes.abort, methods=["POST"]),
            Route("/reset_prefix_cache", routes.reset_prefix_cache, methods=["POST"]),
            Route("/tokenize", routes.tokenize, methods=["POST"]),
            Route("/detokenize", routes.detokenize, methods=["POST"]),
            Route("/kv_event_sources", routes.kv_event_sources, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
            Route("/live", routes.live, methods=["GET"]),
            Route("/openapi.json", routes.openapi, methods=["GET"]),
        ],
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


async def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, (Refusal, InvalidRequest))
    return refused(as_refusal(error))


async def _on_wrong_route(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{http.method} {quoted(http.scope['path'])}"  # http.url would decode the query, which may be no text
    message = f"{where} is not a route" if error.status_code == 404 else f"{where}: {error.detail}"
    return refused(Refusal(error.status_code, message, headers=tuple((error.headers or {}).items())))


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """For the books only: nobody reads it."""
    return refused(Refusal(400, "the connection was closed in the middle of the request"))


async def _on_bug(_: Request, __: Exception) -> Response:
    return refused(Refusal(500, "the server failed on this request; its log tells why"))
