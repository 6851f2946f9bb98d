"""Drawing a token against the plain definition: rank everything, filter, renormalise, invert."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from fourstroke.procs.executor.draw import Filters, draw, survivors

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


@given(scores_strategy, filters_strategy, st.integers(1, VOCAB))
@settings(max_examples=400, deadline=None)
def test_survivors_are_those_of_the_definition(scores: np.ndarray, filters: Filters, candidates: int) -> None:
    """However many candidates are tried first, and whichever of equal ones, what survives is the same."""
    top = np.argsort(-scores, kind="stable")[:candidates]
    last_of_ties = VOCAB - 1 - np.argsort(-scores[::-1], kind="stable")[:candidates]
    expected = naive_survivors(scores, filters)
    for chosen in (top, last_of_ties, top[::-1]):
        assert survivors(scores, np.exp(scores), filters, chosen).tolist() == expected


@given(scores_strategy, filters_strategy, st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_draw_inverts_the_distribution_of_survivors(scores: np.ndarray, filters: Filters, noise: float) -> None:
    """The token is the survivor in whose share of the sum the noise falls."""
    kept = naive_survivors(scores, filters)
    shares = np.cumsum(np.exp(scores[kept].astype(np.float64)))
    token = draw(scores, filters, noise, np.argsort(-scores)[:8])
    place = kept.index(token)
    slack = 1e-5 * shares[-1]
    assert shares[place] >= noise * shares[-1] - slack
    assert (shares[place - 1] if place else 0) <= noise * shares[-1] + slack


def test_top_k_of_one_is_greedy() -> None:
    """The token is argmax's, the lowest id of equal ones, whatever the noise."""
    scores = relative([0.0, 3.0, 1.0, 3.0])
    assert {draw(scores, Filters(1, 1.0, 0.0), noise, np.arange(4)) for noise in (0.0, 0.5, 1 - 2**-53)} == {1}


def test_impossible_tokens_are_never_drawn() -> None:
    """A logit of minus infinity has no share, at neither end of the noise."""
    scores = np.full(600, -np.inf, np.float32)
    scores[[300, 310]] = 0
    for noise, token in ((0.0, 300), (0.4999, 300), (0.5, 310), (1 - 2**-53, 310)):
        assert draw(scores, Filters(0, 1.0, 0.0), noise, np.arange(4)) == token


def test_frequencies_are_the_probabilities() -> None:
    """Over evenly spread noise each token is drawn as often as its probability says, in a large vocabulary."""
    scores = np.log(np.linspace(1e-3, 1, 1000, dtype=np.float32))
    noise = (np.arange(20_000) + 0.5) / 20_000
    drawn = [draw(scores, Filters(0, 1.0, 0.0), float(u), np.arange(4)) for u in noise]
    expected = np.exp(scores.astype(np.float64))
    counts = np.bincount(drawn, minlength=1000)
    assert np.all(np.abs(counts - 20_000 * expected / expected.sum()) <= 1.01)
