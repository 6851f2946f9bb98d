"""Answers: a stream put together to what would have come whole, and how an answer differs from the one expected."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from ..completions import Choice, Completion, TokenLogprob

LOGPROB_TOLERANCE = 1e-3
"""In float32 a sum comes out a little different with other neighbours in the batch; another token never does."""

_SHOWN_CHARS = 30


def put_together(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The answer that the events of a stream amount to, in the shape of one that comes whole.

    Raises KeyError if they have no usage.
    """
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for event in events:
        usage = event.get("usage") or usage
        for piece in event["choices"]:
            _add(choices.setdefault(piece["index"], {"index": piece["index"]}), piece)
    if usage is None:
        raise KeyError("usage")
    return {"choices": list(choices.values()), "usage": usage}


def _add(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add to a choice what an event tells of it."""
    if "delta" in piece:
        message = choice.setdefault("message", {"content": ""})
        message["content"] += piece["delta"].get("content") or ""
    else:
        choice["text"] = choice.get("text", "") + piece["text"]
    for key in ("finish_reason", "stop_reason"):
        choice[key] = choice.get(key) if piece.get(key) is None else piece[key]
    if piece.get("logprobs") is not None:
        sums = choice.setdefault("logprobs", {})
        for key, values in piece["logprobs"].items():
            sums[key] = sums.get(key, []) + (values or [])


def difference(expected: Completion, found: Completion) -> str:
    """How an answer differs from the one expected, in words; "" if it does not.

    `cached_tokens` may: how much of a prompt is found in the cache depends on what else was asked and who died.
    """
    for what, one, other in (
        ("choices", len(expected.choices), len(found.choices)),
        ("prompt tokens", expected.prompt_tokens, found.prompt_tokens),
        ("completion tokens", expected.completion_tokens, found.completion_tokens),
    ):
        if one != other:
            return f"{other} {what} instead of {one}"
    pairs = zip(expected.choices, found.choices, strict=True)
    return next(filter(None, (_of_choice(number, *pair) for number, pair in enumerate(pairs))), "")


def _of_choice(number: int, expected: Choice, found: Choice) -> str:
    if found.text != expected.text:
        return f"choice {number}: {_of_text(expected.text, found.text)}"
    for what, one, other in (
        ("finish reason", expected.finish_reason, found.finish_reason),
        ("stop reason", expected.stop_reason, found.stop_reason),
    ):
        if one != other:
            return f"choice {number}: {what} {other!r} instead of {one!r}"
    pairs = zip_longest(expected.logprobs or (), found.logprobs or ())
    place = next((place for place, pair in enumerate(pairs) if not _alike(*pair)), None)
    return "" if place is None else f"choice {number}: another log-probability at token {place}"


def _of_text(expected: str, found: str) -> str:
    at = next((at for at, pair in enumerate(zip_longest(expected, found)) if pair[0] != pair[1]), 0)
    shown = slice(max(0, at - _SHOWN_CHARS // 2), at + _SHOWN_CHARS)
    return f"another text from character {at} on: {found[shown]!r} instead of {expected[shown]!r}"


def _alike(one: TokenLogprob | None, other: TokenLogprob | None) -> bool:
    if one is None or other is None or one.token != other.token:
        return False
    # The first token of an echoed prompt has none.
    best, others = one.best or {}, other.best or {}
    return (
        _near(one.logprob, other.logprob)
        and best.keys() == others.keys()
        and all(_near(value, others[token]) for token, value in best.items())
    )


def _near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= LOGPROB_TOLERANCE
