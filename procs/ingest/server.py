"""Running the application on a listening socket, with uvicorn, inside a loop that somebody else owns."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from .protocol import KEEP_ALIVE_S, Protocol

_GRACE_S = 2
"""How long answers that are ready may take to be sent when the process stops."""


class Server(uvicorn.Server):
    """uvicorn without its signal handlers and without its main loop: both are ingest's."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._listener = listener

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def start(self) -> None:
        """Begin to accept connections."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup([self._listener])

    async def tick(self) -> None:
        """Once a second: renew the Date header."""
        await self.on_tick(0)

    async def stop(self) -> None:
        """Accept no more, let answers that are ready go out, close."""
        await self.shutdown([self._listener])
