"""A tiny HTTP server that streams completions as an OpenAI-compatible server does, or goes wrong as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny"
INPUT_TOKENS = 7


@dataclass
class FakeServer:
    """`bodies` are the requests that came; `most_open` is how many of them were open at the same time.

    Requests whose number is in `fail`, `cut` or `mute` get a 500, end without [DONE], or have no usage; those in `full`
    and `rude` get a 429, with and without a time to come back.
    """

    url: str = ""
    fail: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    mute: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    rude: frozenset[int] = frozenset()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    most_open: int = 0
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    """Answers a request to `fake`."""

    fake: FakeServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._whole({"data": [{"id": MODEL}, {"id": "other"}]})

    def do_POST(self) -> None:
        fake, body = self.fake, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with fake.lock:
            number = len(fake.bodies)
            fake.bodies.append(body)
            fake.keys.append(self.headers["Authorization"])
            fake.open += 1
            fake.most_open = max(fake.most_open, fake.open)
        if number in fake.fail:
            self._whole({"error": {"message": "out of fuel"}}, 500)
        elif number in fake.full | fake.rude:
            self._whole({"error": {"message": f"{number} wait"}}, 429, number in fake.full)
        else:
            with suppress(ConnectionError):  # the client has gone
                self._stream(number, body["max_tokens"])

    def _stream(self, number: int, tokens: int) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(tokens):
            self._event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]})
            if number in self.fake.cut:
                return
        self._event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        if number not in self.fake.mute:
            usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": tokens}
            self._event({"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}}})
        with self.fake.lock:  # before the client knows that it may send the next
            self.fake.open -= 1
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, event: object) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _whole(self, content: object, status: int = 200, come_back: bool = False) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        if come_back:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def fake_server(port: int = 0, **how: Any) -> Iterator[FakeServer]:
    """The server at a port, by default any free one."""
    fake = FakeServer(**how)
    handler = type("Handler", (Handler,), {"fake": fake})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.url = f"http://127.0.0.1:{http.server_address[1]}"
        try:
            yield fake
        finally:
            http.shutdown()
            thread.join()
