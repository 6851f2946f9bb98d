"""The events of a stream as text. What is the same in all chunks of a choice is put into JSON once.

A chunk with text costs one escape of its delta and one join: ingest's share of a token at 256 streams is
20 us. Text is escaped to ASCII: U+2028 and its like are letters in JSON but line ends to some clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from .answers import Head, finish_reason, stop_reason, usage
from .errors import Refusal, error_object
from .live import LiveRequest, News
from .message import chunk_delta
from .parts import Part, Parts
from .tools.deltas import Content, Delta
from .values import to_json

DONE = b"data: [DONE]\n\n"
_SLOT = "\0"
_SLOT_JSON = to_json(_SLOT)


class Events:
    """Makes the events of one stream."""

    def __init__(self, head: Head, choices: int, include_usage: bool) -> None:
        self._head = head
        self._chat = head.route == "chat"
        self._include_usage = include_usage
        self._around = [self._pieces(index) for index in range(choices)]
        self._begun = [not self._chat] * choices

    def of(self, news: News, part: Part) -> str:
        """The events that tell one choice's news: the role, the text, the end, each if it is due.

        The log-probabilities of tokens that have no text, as EOS has none, come with the end.
        """
        index, ending, logprobs = news.choice.index, news.ending, part.logprobs
        found = ""
        if not self._begun[index]:
            self._begun[index] = True
            found = self._chunk(index, {"role": "assistant", "content": ""}).replace(_SLOT_JSON, "null", 1)
        for delta in part.deltas:
            before, between, after = self._around[index]
            found += before + self._json(delta) + between + logprobs + after
            logprobs = "null"
        if ending is not None:
            content: str | dict[str, str] = {} if self._chat else ""
            chunk = self._chunk(index, content, finish_reason(ending, part.called), stop_reason(ending))
            found += chunk.replace(_SLOT_JSON, logprobs, 1)
        return found

    def usage(self, request: LiveRequest, parts: Sequence[Parts]) -> str:
        """The event with the usage, if it was asked for."""
        if not self._include_usage:
            return ""
        return _event({**self._head.members(streamed=True), "choices": [], "usage": usage(request, parts)})

    def _pieces(self, index: int) -> tuple[str, str, str]:
        """What stands before, between and after the delta and its log-probabilities in a chunk."""
        before, between, after = self._chunk(index, _SLOT).split(_SLOT_JSON)
        return before, between, after

    def _json(self, delta: Delta) -> str:
        if not isinstance(delta, Content):
            return to_json(chunk_delta(delta))
        text = encode_basestring_ascii(delta.text)
        return f'{{"content":{text}}}' if self._chat else text

    def _chunk(
        self, index: int, content: str | dict[str, str], finish: str | None = None, stop: str | int | None = None
    ) -> str:
        """A chunk with a slot for its log-probabilities."""
        choice = {
            "index": index,
            "delta" if self._chat else "text": content,
            "logprobs": _SLOT,
            "finish_reason": finish,
            "stop_reason": stop,
        }
        nothing: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return _event({**self._head.members(streamed=True), "choices": [choice], **nothing})


def error_event(refusal: Refusal) -> bytes:
    """The event that ends a stream that cannot go on."""
    return _event(error_object(refusal.status, str(refusal), refusal.param, refusal.code)).encode()


def _event(value: dict[str, Any]) -> str:
    return f"data: {to_json(value)}\n\n"
