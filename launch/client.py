"""A small client of the HTTP API, over TCP or a Unix socket, from the standard library.

Each call has a connection of its own, so threads may share a client, and `close` ends the calls that
are still open, which ends their requests in the server as well.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from ..common.errors import ConfigError, InvalidRequest, ServerError
from ..common.types import SamplingParams

_CLIENT_ERRORS = (400, 404, 413, 422)


class UnreachableError(ServerError):
    """The connection failed, or broke before the answer was whole."""


def request_fields(params: SamplingParams, chat: bool = False) -> dict[str, Any]:
    """The fields of a request: they have the same names in both APIs, but for log-probabilities in chat."""
    fields = asdict(params) | {"logit_bias": dict(params.logit_bias)}
    if chat and params.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": params.logprobs}
    return {name: value for name, value in fields.items() if value is not None}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Client:
    """`url` is http://host:port, https://host:port or unix:/path. Raises ConfigError if it is none of these.

    Calls raise InvalidRequest for what the caller must change, ServerError for what the server failed at,
    and UnreachableError if it does not answer.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url)
        if not (parts.scheme == "unix" and parts.path) and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ConfigError(f"--url must look like http://127.0.0.1:8000; got {url!r}")
        self._parts = parts
        self._url = url
        self._prefix = "" if parts.scheme == "unix" else parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
        self._closed = False

    def get(self, path: str) -> Any:
        with self._answer("GET", path, None) as response:
            return json.loads(response.read())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        with self._answer("POST", path, body) as response:
            return json.loads(response.read())

    def stream(self, path: str, body: dict[str, Any]) -> Generator[Any, None, None]:
        """The JSON objects of a stream of server-sent events, as they come."""
        with self._answer("POST", path, {**body, "stream": True}) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise ServerError(event["error"]["message"])
                yield event
            raise UnreachableError(f"{self._url} broke off in the middle of an answer")

    def close(self) -> None:
        """End all calls that are open; later ones fail."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                if connection.sock is not None:
                    _shut(connection.sock)

    @contextmanager
    def _answer(self, method: str, path: str, body: object) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        try:
            connection.connect()
            with self._lock:
                self._open.add(connection)
                if self._closed:
                    raise UnreachableError("the client was closed")
            content = None if body is None else json.dumps(body)
            connection.request(method, self._prefix + path, content, self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _error(response.status, response.read())
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{self._url} does not answer: {error or type(error).__name__}") from None
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise ServerError(f"{self._url} answered something that is not JSON: is it a fourstroke server?") from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._parts.scheme == "unix":
            return _UnixConnection(self._parts.path)
        assert self._parts.hostname is not None
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname, self._parts.port)


def _shut(sock: socket.socket) -> None:
    """Wake up whoever reads from a socket; close() alone would not."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end was quicker


def _error(status: int, content: bytes) -> InvalidRequest | ServerError:
    try:
        error = json.loads(content)["error"]
        message, param = str(error["message"]), error.get("param")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, param = f"HTTP status {status}", None
    return InvalidRequest(message, param) if status in _CLIENT_ERRORS else ServerError(message)
