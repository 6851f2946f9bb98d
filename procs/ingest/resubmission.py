"""What is handed over again when a process that had it has died: the same choices, as new requests.

A choice goes on behind the tokens that it has: they go with its prompt, and output reads them again without a word,
so that both know what they would know had nobody died. Who calls: the table of live requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...ipc.messages import NO_LOGPROBS
from .live import Choice


def renew(choice: Choice, rid: int) -> None:
    """Make a new request of a choice, under an id that nobody knows yet.

    Log-probabilities of its prompt are asked for again, unless all have come.
    """
    choice.rid = rid
    if choice.sampling.prompt_logprobs == NO_LOGPROBS:
        return
    if sum(map(len, choice.prompt_words)) == len(choice.prompt) - 1:
        choice.sampling = replace(choice.sampling, prompt_logprobs=NO_LOGPROBS)
    else:
        choice.prompt_words.clear()


def submissions(choices: Iterable[Choice]) -> list[list[Choice]]:
    """The choices as they are submitted, in their order: those of a prompt together, while they have no tokens.

    A choice that has tokens goes alone, for these are its own.
    """
    found: list[list[Choice]] = []
    fresh: dict[tuple[object, ...], list[Choice]] = {}
    for choice in choices:
        if choice.generated:
            found.append([choice])
            continue
        alike = choice.request.id, choice.prompt_index, choice.sampling
        if alike in fresh:
            fresh[alike].append(choice)
        else:
            fresh[alike] = [choice]
            found.append(fresh[alike])
    return found
