"""An emission cut into one for each output, by the ids of the requests. Knows no wire and no ring."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....ipc.logprobs import pack, unpack
from ....ipc.messages import NO_VALUES, Logprobs
from ....ipc.request_ids import output_of
from .emission import Emission, LastWords, NewTokens


def shares(emission: Emission, outputs: int) -> Iterator[tuple[int, Emission]]:
    """What each output is to be told of an emission; those that it does not concern are left out."""
    if outputs == 1:
        yield 0, emission
        return
    for output in range(outputs):
        share = _share(emission, output, outputs)
        if share.opened or len(share.new.rids) or len(share.ended.rids) or share.prompt_logprobs != NO_VALUES:
            yield output, share


def _share(emission: Emission, output: int, outputs: int) -> Emission:
    new, ended = emission.new, emission.ended
    mine, ends = output_of(new.rids, outputs) == output, output_of(ended.rids, outputs) == output
    return Emission(
        [one for one in emission.opened if output_of(one.rid, outputs) == output],
        NewTokens(
            new.rids[mine],
            new.counts[mine],
            new.tokens[np.repeat(mine, new.counts)],
            _logprobs(new.logprobs, output, outputs),
        ),
        LastWords(
            ended.rids[ends],
            ended.finishes[ends],
            ended.stop_tokens[ends],
            tuple(detail for detail in ended.details if output_of(detail.rid, outputs) == output),
        ),
        _logprobs(emission.prompt_logprobs, output, outputs),
    )


def _logprobs(packed: Logprobs, output: int, outputs: int) -> Logprobs:
    return pack([(rid, words) for rid, words in unpack(packed).items() if output_of(rid, outputs) == output])
