"""An emission among outputs: each request's part goes whole and in order to the output that it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.logprobs import pack, unpack
from fourstroke.ipc.messages import Detail
from fourstroke.ipc.request_ids import output_of
from fourstroke.procs.scheduler.results.emission import Emission, LastWords, NewTokens
from fourstroke.procs.scheduler.results.sharing import shares


@dataclass(frozen=True)
class Opening:
    rid: int
    cached_tokens: int = 0
    ticket: bytes = b""


RIDS = st.integers(0, 40).map(lambda number: (number % 3 << 48) + number)
Part = tuple[int, bool, list[int], bool, bool, bool]
PARTS = st.lists(
    st.tuples(
        RIDS, st.booleans(), st.lists(st.integers(0, 99), max_size=4), st.booleans(), st.booleans(), st.booleans()
    ),
    unique_by=lambda part: part[0],
    max_size=12,
)


def words(tokens: list[int]) -> np.ndarray:
    return np.array([[token, 1, 2] for token in tokens], np.int32).reshape(-1, 3)


def emission_of(parts: list[Part]) -> Emission:
    """One that says of each of these that it is opened, its tokens, that it has ended, and log-probabilities."""
    new = [(rid, tokens, scored) for rid, _, tokens, _, scored, _ in parts if tokens]
    ends = [rid for rid, _, _, ended, _, _ in parts if ended]
    return Emission(
        [Opening(rid) for rid, opened, *_ in parts if opened],
        NewTokens(
            np.array([rid for rid, _, _ in new], np.int64),
            np.array([len(tokens) for _, tokens, _ in new], np.int32),
            np.array([token for _, tokens, _ in new for token in tokens], np.int32),
            pack([(rid, words(tokens)) for rid, tokens, scored in new if scored]),
        ),
        LastWords(
            np.array(ends, np.int64),
            np.array([1 + rid % 5 for rid in ends], np.int8),
            np.array([rid % 7 for rid in ends], np.int32),
            tuple(Detail(rid, f"end of {rid}") for rid in ends if rid % 2),
        ),
        pack([(rid, words([rid % 11])) for rid, *_, of_prompt in parts if of_prompt]),
    )


def plain(emission: Emission) -> tuple:
    """An emission as values that can be compared."""
    new, ended = emission.new, emission.ended
    tokens = np.split(new.tokens, np.cumsum(new.counts)[:-1]) if len(new.rids) else []
    scores = [
        {rid: found.tolist() for rid, found in unpack(one).items()} for one in (new.logprobs, emission.prompt_logprobs)
    ]
    return (
        [one.rid for one in emission.opened],
        list(zip(new.rids.tolist(), [one.tolist() for one in tokens], strict=True)),
        list(zip(ended.rids.tolist(), ended.finishes.tolist(), ended.stop_tokens.tolist(), strict=True)),
        ended.details,
        scores,
    )


@given(PARTS, st.integers(1, 5))
def test_shares(parts: list[Part], outputs: int) -> None:
    """A share is what would have been said had there been no requests but those of its output."""
    found = dict(shares(emission_of(parts), outputs))
    expected = {}
    for output in range(outputs):
        own = [part for part in parts if output_of(part[0], outputs) == output]
        if any(opened or tokens or ended or of_prompt for _, opened, tokens, ended, _, of_prompt in own):
            expected[output] = plain(emission_of(own))
    if outputs > 1:
        assert {output: plain(share) for output, share in found.items()} == expected
    else:
        assert plain(found[0]) == plain(emission_of(parts))


def test_equal_shares() -> None:
    """Requests of an ingest, whose ids are consecutive, are dealt out evenly."""
    rids = np.arange(1, 101, dtype=np.int64) + (2 << 48)
    assert np.bincount(output_of(rids, 4)).tolist() == [25] * 4
