"""Keeping what people wrote apart from what the chat template wrote, so that only the latter has control tokens.

A client's text that spells a control token is broken with a mark before it goes into the template: a
Unicode noncharacter that the request does not contain, neither as it is nor as JSON escapes it. Wherever the
template puts or copies the text, the spelling stays broken. The rendered prompt is then cut at the control tokens
that are whole, which only the template can have written, and the marks are taken out of the text between them. A
text that could become a control token together with the template's text beside it gets a mark at that side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...common.errors import InvalidRequest
from .messages import Message
from .tokenizer import ControlToken
from .values import strings

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class Separator:
    """Marks messages before rendering and cuts the rendered prompt, for one set of control tokens."""

    def __init__(self, controls: Sequence[ControlToken]) -> None:
        controls = sorted(controls, key=lambda control: len(control.text), reverse=True)
        self._by_text = {control.text: control for control in controls}
        self._cut = re.compile(f"({_either(re.escape(control.text) for control in controls)})")
        # A control token of one letter cannot be broken; no known model has one.
        texts = [control.text for control in controls if len(control.text) > 1]
        self._spelled = re.compile(_either(map(re.escape, texts)))
        self._heads = tuple({text[:end] for text in texts for end in range(1, len(text))})
        self._tails = tuple({text[start:] for text in texts for start in range(1, len(text))})
        self._all = "\0".join(texts)

    def mark(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[list[Message], list[Any], str]:
        """Copies of messages and tools that spell no control token, and the mark that breaks the spellings.

        The role is left alone: it is one of a few known words, from which some templates make their
        control tokens. Raises InvalidRequest if the messages hold all marks or are nested too deeply.
        """
        mark = _unused_mark([*messages, *tools])
        try:
            return [self._marked(message, mark) for message in messages], self._break_all(list(tools), mark), mark
        except RecursionError:
            raise InvalidRequest("messages are too deeply nested", "messages") from None

    def cut(self, prompt: str, mark: str) -> Iterator[int | str]:
        """The parts of a rendered prompt in order: a control token's id, or a text without marks."""
        parts = self._cut.split(prompt)  # texts at even places, control tokens between them
        for place, part in enumerate(parts):
            if place % 2:
                yield self._by_text[part].id
                continue
            if place and self._by_text[parts[place - 1]].strip_right:
                part = part.lstrip()
            if place + 1 < len(parts) and self._by_text[parts[place + 1]].strip_left:
                part = part.rstrip()
            if text := part.replace(mark, "").replace(_escaped(mark), ""):
                yield text

    def _marked(self, message: Message, mark: str) -> Message:
        marked = {name: self._break_all(value, mark) for name, value in message.items()}
        marked["role"] = message["role"]
        if (inner := message["content"].strip()) and inner in self._all:
            marked["content"] = _mark_end(marked["content"], mark)
        return marked

    def _break_all(self, value: Any, mark: str) -> Any:
        """A copy of a value in which no string, at any depth, spells a control token."""
        if isinstance(value, str):
            return self._break(value, mark)
        if isinstance(value, list):
            return [self._break_all(item, mark) for item in value]
        if isinstance(value, dict):
            return {self._break(name, mark): self._break_all(item, mark) for name, item in value.items()}
        return value

    def _break(self, text: str, mark: str) -> str:
        # Before the last letter; again, because a spelling may overlap the one that was broken.
        while self._spelled.search(text):
            text = self._spelled.sub(lambda found: found[0][:-1] + mark + found[0][-1], text)
        if text.rstrip().endswith(self._heads):
            text = _mark_end(text, mark)
        if text.lstrip().startswith(self._tails):
            text = _mark_start(text, mark)
        return text


# Templates trim texts: a mark goes beside the first or last letter that is not white space.


def _mark_start(text: str, mark: str) -> str:
    stripped = text.lstrip()
    return text[: len(text) - len(stripped)] + mark + stripped


def _mark_end(text: str, mark: str) -> str:
    stripped = text.rstrip()
    return stripped + mark + text[len(stripped) :]


def _either(patterns: Iterable[str]) -> str:
    """A pattern that matches any of the patterns; nothing, if there are none."""
    return "|".join(patterns) or "(?!)"


def _escaped(mark: str) -> str:
    r"""The mark where a template writes JSON in ASCII: "\ufdd0"."""
    return f"\\u{ord(mark):04x}"


def _unused_mark(values: list[Any]) -> str:
    used: set[str] = set()
    for text in strings(values):
        if not text.isascii():
            used.update(text)
    for mark in _MARKS:
        if mark not in used and not any(_escaped(mark) in text for text in strings(values)):
            return mark
    raise InvalidRequest("messages hold every one of U+FDD0..U+FDEF, which are no characters", "messages")
