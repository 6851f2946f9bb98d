"""Choices of a request: their order, seeds and limits."""

from collections.abc import Collection, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish, SamplingParams
from fourstroke.procs.ingest.choices import EncodedPrompt, add_choices, choice_seed
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.lives import Replaced
from fourstroke.procs.ingest.table import Table

SEEDS = st.integers(-(2**63), 2**63 - 1)


class Nowhere:
    """An engine that does nothing."""

    engines = 1

    def submit(self, choices: list[Choice]) -> None: ...

    def abort(self, choice: Choice, reason: Finish, keep: int) -> bool:
        return True

    def ended(self, choice: Choice) -> None: ...

    def lost(self, replaced: Replaced) -> Collection[int]:
        return ()

    def resubmit(self, submissions: Sequence[list[Choice]]) -> None: ...

    def reset_cache(self, engine: int, rid: int, force: bool) -> None: ...


def choices(params: SamplingParams, *lengths: int, max_model_len: int = 100) -> list[Choice]:
    request = LiveRequest("r", (), False, True)
    prompts = [EncodedPrompt(np.full(length, length, np.int32), bytes([length])) for length in lengths]
    add_choices(request, prompts, params, Table(Nowhere(), 77, 10), max_model_len)
    return request.choices


def test_order() -> None:
    """k prompts and n choices make indexes 0..k*n-1 in the order of the prompts, with ids that differ."""
    found = choices(SamplingParams(n=2), 5, 7)
    assert [(one.index, one.prompt_index, len(one.prompt), one.digests) for one in found] == [
        (0, 0, 5, b"\5"),
        (1, 0, 5, b"\5"),
        (2, 1, 7, b"\7"),
        (3, 1, 7, b"\7"),
    ]
    assert [one.rid for one in found] == [77, 78, 79, 80]


@given(SEEDS)
def test_seeds_of_choices(seed: int) -> None:
    """The first choice has the seed that was given; the others have seeds of their own, the same every time."""
    seeds = [choice_seed(seed, index) for index in range(128)]
    assert seeds[0] == seed
    assert len(set(seeds)) == 128
    assert seeds == [choice_seed(seed, index) for index in range(128)]
    assert all(-(2**63) <= one < 2**63 for one in seeds)


def test_seeds_are_far_apart() -> None:
    """Neighbouring seeds share none of their choices' seeds."""
    assert len({choice_seed(seed, index) for seed in range(-50, 50) for index in range(50)}) == 5000


def test_splitmix64() -> None:
    """The mix is splitmix64: its published first outputs from state 0 (as unsigned numbers)."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [choice_seed(0, index) % 2**64 for index in (1, 2, 3)] == published


def test_without_a_seed() -> None:
    """Every choice of every request has a fresh seed."""
    seeds = {one.seed for _ in range(10) for one in choices(SamplingParams(n=10), 3)}
    assert len(seeds) == 100


@pytest.mark.parametrize(
    "max_tokens, min_tokens, limits", [(None, 0, (95, 0)), (10, 3, (10, 3)), (1000, 500, (95, 95)), (1, 1, (1, 1))]
)
def test_limits(max_tokens: int | None, min_tokens: int, limits: tuple[int, int]) -> None:
    """max_tokens is clipped to the room after the prompt, and min_tokens to max_tokens."""
    (choice,) = choices(SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens), 5)
    assert (choice.limits.max_tokens, choice.limits.min_tokens) == limits


def test_sampling() -> None:
    """Temperatures near 0 are 0, and top_k -1 is 0: the executor knows one value for off."""
    (cold,) = choices(SamplingParams(temperature=9e-6, top_k=-1), 3)
    assert (cold.sampling.temperature, cold.sampling.top_k) == (0.0, 0)
    (warm,) = choices(SamplingParams(temperature=1e-5, top_k=7, top_p=0.5, min_p=0.1, seed=-3), 3)
    sampling = warm.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1e-5, 7, 0.5, 0.1)
    assert warm.seed == -3
