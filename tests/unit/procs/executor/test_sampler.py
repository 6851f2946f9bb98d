"""Sampling of a batch: rows are independent, failures stay with their row."""

import numpy as np
import torch

from fourstroke.procs.executor.logits import Logits
from fourstroke.procs.executor.sampler import Rules
from fourstroke.procs.executor.sampler import sample as sample_rows
from fourstroke.procs.executor.verify import Sampled

VOCAB = 1000


def sample(logits: torch.Tensor, rules: Rules, positions: np.ndarray) -> Sampled:
    return sample_rows(Logits(logits.clone()), rules, positions)


def rules(rows: list[tuple[float, int, float, float, int]]) -> Rules:
    kinds = (np.float32, np.int64, np.float64, np.float64, np.uint64)
    return Rules(*(np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


MIXED = rules(
    [
        (0.0, 0, 1.0, 0.0, 0),
        (1.0, 0, 1.0, 0.0, 1),
        (0.7, 20, 1.0, 0.0, 2),
        (1.3, 0, 0.9, 0.0, 3),
        (0.9, 300, 0.8, 0.0, 4),
        (1.0, 0, 1.0, 0.1, 5),
        (5.0, 0, 0.999, 0.0, 2**63 + 6),
        (1e-5, 5, 0.9, 0.1, 7),
    ]
)


def test_a_row_depends_on_nothing_but_itself() -> None:
    """Seeded rows get the same tokens in one batch, alone, and in another order."""
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(0)).bfloat16() * 3
    positions = np.arange(8) * 10
    together = sample(logits, MIXED, positions).tokens
    for order in (np.arange(8)[::-1], np.array([3]), np.array([6, 0, 6])):
        again = sample(logits[torch.from_numpy(order.copy())], MIXED.of(order), positions[order])
        assert again.tokens.tolist() == together[order].tolist()


def test_position_changes_the_token() -> None:
    """One seed draws new numbers at each position, and the same ones again."""
    logits = torch.zeros(1, VOCAB)
    rule = rules([(1.0, 0, 1.0, 0.0, 9)])
    drawn = [int(sample(logits, rule, np.array([position])).tokens[0]) for position in range(20)]
    again = [int(sample(logits, rule, np.array([position])).tokens[0]) for position in range(20)]
    assert drawn == again
    assert len(set(drawn)) > 15


def test_greedy_and_top_k_one_are_argmax() -> None:
    """Temperature 0, and top_k 1 at any temperature, choose the highest logit; of equal ones the first."""
    logits = torch.randint(0, 5, (3, VOCAB), generator=torch.Generator().manual_seed(0)).float()
    expected = [int(np.argmax(row)) for row in logits.numpy()]
    for rule in ((0.0, 0, 1.0, 0.0, 1), (100.0, 1, 1.0, 0.0, 1)):
        assert sample(logits, rules([rule] * 3), np.arange(3)).tokens.tolist() == expected


def test_rows_without_finite_logits_fail_alone() -> None:
    """NaN, all minus infinity and plus infinity fail; their batch mates get what they get alone."""
    logits = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(2))
    expected = sample(logits, MIXED, np.arange(8)).tokens
    logits[0, 17] = float("nan")
    logits[2] = float("-inf")
    logits[3, 5] = float("inf")
    logits[4, 5] = float("nan")
    result = sample(logits, MIXED, np.arange(8))
    assert result.failed.tolist() == [True, False, True, True, True, False, False, False]
    assert result.tokens[[1, 5, 6, 7]].tolist() == expected[[1, 5, 6, 7]].tolist()
    assert np.all((result.tokens >= 0) & (result.tokens < VOCAB))
