"""`fourstroke chat`: lines in, streamed answers out, with the conversation kept. Works on a terminal and on a pipe."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

from ..common.errors import InvalidRequest
from ..common.types import SamplingParams
from .client import Client, request_fields
from .console import say

_PROMPT = "> "
_EXIT = "/exit"


class Chat:
    """A conversation with a server. `model` of None is the first that it serves."""

    def __init__(
        self, client: Client, params: SamplingParams, system: str | None = None, model: str | None = None
    ) -> None:
        self._client = client
        self._fields = request_fields(params, chat=True) | ({} if model is None else {"model": model})
        self.messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        self._on_terminal = sys.stdin.isatty()
        if self._on_terminal:
            import readline  # noqa: F401 (here: it turns on line editing, which a pipe must not have)

    def run(self) -> None:
        """Answer line after line until /exit or the end of the input."""
        while (line := self._next_line()) is not None:
            if line.strip():
                self._turn(line)

    def _next_line(self) -> str | None:
        try:
            line = input(_PROMPT if self._on_terminal else "")
        except EOFError:
            return None
        return None if line.strip() == _EXIT else line

    def _turn(self, line: str) -> None:
        """One question and its answer. What cannot be served is said, and is not part of the conversation."""
        self.messages.append({"role": "user", "content": line})
        try:
            answer = self._answer()
        except InvalidRequest as error:
            if not self._on_terminal:
                raise
            self.messages.pop()
            say(f"fourstroke: {error}")
            return
        self.messages.append({"role": "assistant", "content": answer})

    def _answer(self) -> str:
        """Show an answer as it comes; Ctrl-C at a terminal ends the answer, not the conversation."""
        parts: list[str] = []
        body = {**self._fields, "messages": self.messages}
        try:
            with closing(self._client.stream("/v1/chat/completions", body)) as events:
                for event in events:
                    for choice in event["choices"]:
                        parts.append(choice["delta"].get("content") or "")
                        sys.stdout.write(parts[-1])
                        sys.stdout.flush()
        except KeyboardInterrupt:
            if not self._on_terminal:
                raise
        sys.stdout.write("\n")
        sys.stdout.flush()
        return "".join(parts)
