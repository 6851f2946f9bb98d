"""An answer's deltas as the chat API has them: the message as a whole, and the `delta` of each chunk of a stream.

Reasoning is there under two names: `reasoning_content`, which DeepSeek's API brought up and most clients read, and
`reasoning`, as vLLM and OpenRouter call it now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .tools.deltas import Arguments, CallBegin, Content, Delta, Reasoning


def text_of(deltas: Sequence[Delta]) -> str:
    """The text of an answer without reasoning and calls."""
    return "".join([delta.text for delta in deltas if isinstance(delta, Content)])


def message(deltas: Sequence[Delta]) -> dict[str, Any]:
    """The whole message. Its content is null if there is none, but something else."""
    found: dict[str, Any] = {"role": "assistant", "content": text_of(deltas), "refusal": None}
    reasoning = "".join([delta.text for delta in deltas if isinstance(delta, Reasoning)])
    calls = _calls(deltas)
    if reasoning:
        found |= _reasoning(reasoning)
    if calls:
        found["tool_calls"] = calls
    if reasoning or calls:
        found["content"] = found["content"] or None
    return found


def _calls(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    begun = [delta for delta in deltas if isinstance(delta, CallBegin)]
    arguments: list[list[str]] = [[] for _ in begun]
    for delta in deltas:
        if isinstance(delta, Arguments):
            arguments[delta.index].append(delta.text)
    return [_call(one, "".join(pieces)) for one, pieces in zip(begun, arguments, strict=True)]


def _call(begun: CallBegin, arguments: str) -> dict[str, Any]:
    return {"id": begun.id, "type": "function", "function": {"name": begun.name, "arguments": arguments}}


def _reasoning(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text}


def chunk_delta(delta: Delta) -> dict[str, Any]:
    """The `delta` of a chunk. A call's first has its id and its name, the others only more of its arguments."""
    if isinstance(delta, Content):
        return {"content": delta.text}
    if isinstance(delta, Reasoning):
        return _reasoning(delta.text)
    if isinstance(delta, Arguments):
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.text}}]}
    return {"tool_calls": [{"index": delta.index, **_call(delta, "")}]}
