"""The `logprobs` objects of the two routes, as JSON.

They are put together from pieces that token_names.py keeps: with 20 alternatives a token takes 40 us, where building
objects and dumping them takes 60. And no single call holds the interpreter for all of a prompt, as a dump does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import NamedTuple

from ...ipc.logprobs import LOWEST, Entry
from .token_names import TokenNames


class Scored(NamedTuple):
    """A token, its log-probabilities if they are known, and the place in the text where it begins, in characters."""

    token: int
    entry: Entry | None
    offset: int


_UNKNOWN = Entry(LOWEST, [], [])


def chat_logprobs(names: TokenNames, tokens: Iterable[Scored]) -> str:
    """The object of chat: each token with its bytes and its alternatives."""
    return f'{{"content":[{",".join([_content(names, one.token, one.entry or _UNKNOWN) for one in tokens])}]}}'


def _content(names: TokenNames, token: int, entry: Entry) -> str:
    before, after = names.in_chat(token)
    alternatives = []
    for other, logprob in zip(entry.best_ids, entry.best_logprobs, strict=True):
        head, tail = names.in_chat(other)
        alternatives.append(f"{head}{logprob}{tail}}}")
    return f'{before}{entry.logprob}{after},"top_logprobs":[{",".join(alternatives)}]}}'


def completion_logprobs(names: TokenNames, tokens: Iterable[Scored]) -> str:
    """The object of completions: four parallel lists. The first token of a prompt has null for its log-probabilities.

    An alternative is known by its name alone there. Of several with one name the token itself counts, then the best.
    """
    called, logprobs, tops, offsets = [], [], [], []
    for token, entry, offset in tokens:
        name = names.in_completion(token)
        called.append(name)
        offsets.append(str(offset))
        logprobs.append("null" if entry is None else repr(entry.logprob))
        tops.append("null" if entry is None else _alternatives(names, name, entry))
    lists = {"tokens": called, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}
    return _object(f'"{name}":[{",".join(values)}]' for name, values in lists.items())


def _alternatives(names: TokenNames, name: str, entry: Entry) -> str:
    best = {name: entry.logprob}
    for other, logprob in zip(map(names.in_completion, entry.best_ids), entry.best_logprobs, strict=True):
        best.setdefault(other, logprob)
    return _object(starmap("{}:{}".format, best.items()))


def _object(members: Iterable[str]) -> str:
    return f"{{{','.join(members)}}}"
