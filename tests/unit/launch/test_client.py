"""The HTTP client against a small server of the standard library: answers, streams, errors, broken connections."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from fourstroke.common.errors import ConfigError, InvalidRequest, ServerError
from fourstroke.launch.client import Client, UnreachableError

ERROR = {"error": {"message": "no such thing", "type": "t", "param": "n", "code": None}}


class Handler(BaseHTTPRequestHandler):
    """Answers by path: /json echoes, /stream streams the body's `lines`, /status/N fails, /hang waits."""

    hanging = threading.Event()
    release = threading.Event()

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"path": self.path, "key": self.headers.get("Authorization")})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/json":
            self._answer(200, body)
        elif self.path.startswith("/status/"):
            self._answer(int(self.path.removeprefix("/status/")), ERROR)
        elif self.path == "/stream":
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(body["lines"]).encode())
        elif self.path == "/html":
            self._answer_bytes(200, b"<html>")
        elif self.path == "/hang":
            self.hanging.set()
            self.release.wait(60)

    def _answer(self, status: int, value: object) -> None:
        self._answer_bytes(status, json.dumps(value).encode())

    def _answer_bytes(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "s"
    server = TcpServer(("127.0.0.1", 0), Handler) if request.param == "tcp" else UnixServer(str(path), Handler)
    where = f"http://127.0.0.1:{server.server_address[1]}" if request.param == "tcp" else f"unix:{path}"
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield where
        server.shutdown()
        thread.join()


def test_json_round_trip(url: str) -> None:
    """What is posted and what is answered are JSON values, whatever is in them."""
    body = {"prompt": "naïve \u2028 👋", "n": None, "ids": [1, 2]}
    assert Client(url).post("/json", body) == body


def test_key(url: str) -> None:
    """The key is sent as a bearer token, and only if there is one."""
    assert Client(url, "secret").get("/x") == {"path": "/x", "key": "Bearer secret"}
    assert Client(url).get("/x")["key"] is None


def test_stream(url: str) -> None:
    """A stream's events come one by one up to [DONE]; blank lines and comments between them are nothing."""
    lines = ['data: {"a": 1}\n\n', ": keep-alive\n\n", 'data: {"a": 2}\n\n', "data: [DONE]\n\n"]
    assert list(Client(url).stream("/stream", {"lines": lines})) == [{"a": 1}, {"a": 2}]


def test_stream_that_breaks_off(url: str) -> None:
    """A stream without its end is an error, after what has come."""
    stream = Client(url).stream("/stream", {"lines": ['data: {"a": 1}\n\n']})
    assert next(stream) == {"a": 1}
    with pytest.raises(UnreachableError, match="middle"):
        next(stream)


def test_error_in_a_stream(url: str) -> None:
    """An error event is raised with its message."""
    with pytest.raises(ServerError, match="no such thing"):
        list(Client(url).stream("/stream", {"lines": [f"data: {json.dumps(ERROR)}\n\n"]}))


@pytest.mark.parametrize("status", [400, 404, 413])
def test_the_callers_fault(url: str, status: int) -> None:
    """A refused request carries the server's message and the parameter's name."""
    with pytest.raises(InvalidRequest, match="no such thing") as caught:
        Client(url).post(f"/status/{status}", {})
    assert caught.value.param == "n"


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_the_servers_fault(url: str, status: int) -> None:
    """Other errors are the server's, with its message."""
    with pytest.raises(ServerError, match="no such thing"):
        Client(url).post(f"/status/{status}", {})


def test_not_json(url: str) -> None:
    """An answer that is not JSON is a server error and not a traceback."""
    with pytest.raises(ServerError, match="not JSON"):
        Client(url).post("/html", {})


def test_nobody_there(tmp_path: Path) -> None:
    """A server that does not exist is unreachable."""
    with pytest.raises(UnreachableError, match="does not answer"):
        Client(f"unix:{tmp_path / 'none'}").get("/")


def test_close_ends_open_calls(url: str) -> None:
    """close() wakes up a call that waits in another thread, and fails later ones."""
    client = Client(url)
    Handler.hanging.clear()
    Handler.release.clear()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.post, "/hang", {})
        assert Handler.hanging.wait(60)
        client.close()
        assert isinstance(call.exception(60), UnreachableError)
    Handler.release.set()
    with pytest.raises(UnreachableError):
        client.post("/json", {})


@pytest.mark.parametrize("url", ["", "localhost", "localhost:8000", "ftp://x", "unix:", "http://"])
def test_bad_url(url: str) -> None:
    """What is no address of a server is refused at once."""
    with pytest.raises(ConfigError, match="--url"):
        Client(url)
