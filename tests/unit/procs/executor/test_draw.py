"""Drawing a token against the plain definition: rank everything, filter, renormalise, draw."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from fourstroke.procs.executor import draw as draw_module
from fourstroke.procs.executor.draw import Filters, at_most_kth_highest, noise_count, survivors
from fourstroke.procs.executor.noise import gumbels

VOCAB = 40


def naive_survivors(scores: np.ndarray, filters: Filters) -> list[int]:
    """min_p, then top_k, then top_p, on a full ranking."""
    weights = np.exp(scores)
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    kept = [token for token in ranked if weights[token] >= filters.min_p]
    if filters.top_k:
        kept = kept[: filters.top_k]
    if filters.top_p < 1:
        mass = float(weights[kept].sum(dtype=np.float64))
        before = np.concatenate(([0.0], np.cumsum(weights[kept], dtype=np.float64)[:-1]))
        kept = [token for token, sum_before in zip(kept, before, strict=True) if sum_before < filters.top_p * mass]
    return sorted(kept)


def relative(values: list[float]) -> np.ndarray:
    scores = np.array(values, np.float32)
    return scores - scores.max()


# Few distinct values, so that ties at every cut are common.
scores_strategy = st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=VOCAB, max_size=VOCAB).map(relative)
filters_strategy = st.builds(
    Filters,
    top_k=st.sampled_from([0, 1, 2, 5, 8, 9, 39, 40, 1000]),
    top_p=st.sampled_from([1e-9, 0.11, 0.5, 0.87, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)


@given(scores_strategy, filters_strategy, st.sampled_from([2.0**-16, 0.1, 0.5, 2.0]), st.sampled_from([1, 3, 256]))
@settings(max_examples=400, deadline=None)
def test_survivors_are_those_of_the_definition(scores: np.ndarray, filters: Filters, share: float, groups: int) -> None:
    """However few tokens are ranked first, and however many are equal, what survives is the same."""
    assume(filters.rank)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_module, "_SHARES", (share, share / 4, 0.0))
        patch.setattr(draw_module, "_GROUPS", groups)
        ids, weights = survivors(scores, filters)
    assert ids.tolist() == naive_survivors(scores, filters)
    assert weights.tolist() == np.exp(scores)[ids].tolist()


@given(scores_strategy, st.integers(1, VOCAB), st.sampled_from([1, 3, 7, 256]))
def test_a_bound_below_the_kth_highest(scores: np.ndarray, count: int, groups: int) -> None:
    """At least k numbers of a row are not below the bound, however the row is grouped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_module, "_GROUPS", groups)
        assert np.count_nonzero(scores >= at_most_kth_highest(scores, count)) >= count


def draw(scores: np.ndarray, filters: Filters, variates: np.ndarray) -> int:
    """A draw from scores that stay what they are."""
    return draw_module.draw(scores.copy(), filters, variates)


def noise(position: int, vocab: int) -> np.ndarray:
    """The noise of one draw."""
    return gumbels(np.array([11], np.uint64), np.array([position], np.uint64), noise_count(vocab))[0]


@given(scores_strategy, filters_strategy, st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_a_draw_is_a_survivor_and_ignores_the_others(scores: np.ndarray, filters: Filters, position: int) -> None:
    """The token passes the filters, and is the one drawn where the others are impossible to begin with."""
    kept = naive_survivors(scores, filters)
    token = draw(scores, filters, noise(position, VOCAB))
    assert token in kept
    alone = np.full_like(scores, -np.inf)
    alone[kept] = scores[kept]
    assert draw(alone, Filters(0, 1.0, 0.0), noise(position, VOCAB)) == token


def test_top_k_of_one_is_greedy() -> None:
    """The token is argmax's, the lowest id of equal ones, whatever the noise."""
    scores = relative([0.0, 3.0, 1.0, 3.0])
    assert {draw(scores, Filters(1, 1.0, 0.0), noise(n, 4)) for n in range(50)} == {1}


def test_impossible_tokens_are_never_drawn() -> None:
    """A logit of minus infinity is never drawn, nor a group of them; equal ones are, each."""
    scores = np.full(1000, -np.inf, np.float32)
    scores[[300, 310, 999]] = 0
    drawn = [draw(scores, Filters(0, 1.0, 0.0), noise(n, 1000)) for n in range(200)]
    assert set(drawn) == {300, 310, 999}


def test_frequencies_are_the_probabilities() -> None:
    """In a vocabulary of several groups, the last one shorter, each token is as frequent as it is probable."""
    weights = np.linspace(0, 1, 600, dtype=np.float32) ** 4
    weights[256:512] *= 1e-3
    with np.errstate(divide="ignore"):
        scores = relative(np.log(weights))
    count = 20_000
    drawn = [draw(scores, Filters(0, 1.0, 0.0), noise(n, 600)) for n in range(count)]
    expected = np.exp(scores.astype(np.float64))
    expected *= count / expected.sum()
    counts = np.bincount(drawn, minlength=600)
    assert counts[0] == 0
    likely = expected > 5
    chi_square = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    degrees = np.count_nonzero(likely)
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


def test_rounding_of_the_logits_changes_no_draw() -> None:
    """A flat distribution over a large vocabulary, every logit off by rounding: the same tokens."""
    generator = np.random.default_rng(0)
    scores = relative(generator.normal(0, 0.1, 50_000))
    rounded = scores + generator.normal(0, 1e-6, len(scores)).astype(np.float32)
    for position in range(200):
        variates = noise(position, len(scores))
        expected = draw(scores, Filters(0, 1.0, 0.0), variates)
        assert draw(rounded, Filters(0, 1.0, 0.0), variates) == expected
