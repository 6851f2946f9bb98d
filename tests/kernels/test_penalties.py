"""Penalties and masks against PyTorch's."""

import pytest
import torch

from fourstroke.procs.executor.kernels.penalties import apply_mask, apply_penalties

ROWS = 3


def _pack(allowed: torch.Tensor) -> torch.Tensor:
    """Bits [R, V] as int32 [R, ceil(V / 32)], the lowest bit first."""
    words = torch.zeros(len(allowed), -(-allowed.shape[1] // 32), dtype=torch.int64)
    for token in range(allowed.shape[1]):
        words[:, token // 32] |= allowed[:, token].long() << (token % 32)
    return words.to(torch.int32)


def _random_case(vocab: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(ROWS, vocab, generator=generator) * 5
    counts = torch.randint(0, 4, (ROWS, vocab), generator=generator, dtype=torch.int32)
    return logits, counts, torch.rand(ROWS, vocab, generator=generator) < 0.3


@pytest.mark.parametrize("vocab", [31, 32, 1000, 2049])
def test_the_three_penalties(vocab: int) -> None:
    """Repetition for tokens of prompt and text, by the logit's sign; then frequency by count and presence once."""
    logits, counts, prompted = _random_case(vocab)
    repetition, presence, frequency = (
        torch.tensor([1.3, 1.0, 0.7]),
        torch.tensor([0.5, 0.0, -1.0]),
        torch.tensor([0.0, 0.25, 2.0]),
    )
    repeated = torch.where(logits > 0, logits / repetition[:, None], logits * repetition[:, None])
    expected = torch.where(prompted | (counts > 0), repeated, logits)
    expected = expected - frequency[:, None] * counts - presence[:, None] * (counts > 0)
    apply_penalties(logits, counts, _pack(prompted), repetition, presence, frequency)
    torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-6)


def test_penalties_that_are_off_change_no_bit() -> None:
    """1, 0 and 0 are no penalties, whatever was said, and for logits of minus infinity too."""
    logits, counts, prompted = _random_case(100)
    logits[:, 5] = float("-inf")
    before = logits.clone()
    apply_penalties(logits, counts, _pack(prompted), torch.ones(ROWS), torch.zeros(ROWS), torch.zeros(ROWS))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("vocab", [31, 32, 1000, 2049])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_takes_what_is_not_allowed(vocab: int, dtype: torch.dtype) -> None:
    """A clear bit is minus infinity; where a bit is set the logit keeps its bits, in the 32nd of a word as well."""
    logits, _, allowed = _random_case(vocab)
    logits = logits.to(dtype)
    expected = logits.masked_fill(~allowed, float("-inf"))
    apply_mask(logits, _pack(allowed))
    assert torch.equal(logits, expected)


def test_rows_may_lie_in_wider_buffers() -> None:
    """Views of the first tokens of wider rows, as of a padded vocabulary: what lies behind stays."""
    wide, _, allowed = _random_case(96)
    bits, expected = _pack(allowed), wide.clone()
    expected[:, :70] = expected[:, :70].masked_fill(~allowed[:, :70], float("-inf"))
    apply_mask(wide[:, :70], bits)
    assert torch.equal(wide, expected)


def test_no_rows_are_no_launch() -> None:
    """An empty batch is left alone."""
    logits, words = torch.empty(0, 64), torch.empty(0, 2, dtype=torch.int32)
    apply_mask(logits, words)
    apply_penalties(logits, torch.empty(0, 64, dtype=torch.int32), words, *torch.empty(3, 0))
