"""RMS normalisation against PyTorch's in float32."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from fourstroke.procs.executor.kernels.rms_norm import rms_norm

EPS = 1e-5


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("width", [1, 64, 576, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_is_the_reference_rounded_once(width: int, dtype: torch.dtype) -> None:
    """The result is float32's, rounded to the dtype: no further from it than two steps of the last place."""
    hidden, weight = _random(5, width, dtype=dtype) * 3, _random(width, dtype=dtype)
    expected = F.rms_norm(hidden.float(), (width,), weight.float(), EPS)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(rms_norm(hidden, weight, EPS).float(), expected, rtol=2 * step, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_residual_stream_is_added_in_place_before(dtype: torch.dtype) -> None:
    """With a residual, that becomes the sum, rounded, bit for bit as PyTorch adds, and that sum is normalised."""
    hidden, residual, weight = (_random(*shape, dtype=dtype) for shape in ((4, 576), (4, 576), (576,)))
    expected = residual + hidden
    before = hidden.clone()
    normed = rms_norm(hidden, weight, EPS, residual)
    assert torch.equal(residual, expected)
    assert torch.equal(hidden, before)
    assert torch.equal(normed, rms_norm(expected, weight, EPS))


def test_a_row_is_the_same_bits_alone_and_in_a_batch() -> None:
    """No other row changes a row."""
    hidden, weight = _random(9, 576, dtype=torch.bfloat16), _random(576, dtype=torch.bfloat16)
    together = rms_norm(hidden, weight, EPS)
    assert torch.equal(together, torch.cat([rms_norm(row[None], weight, EPS) for row in hidden]))


def test_no_tokens_are_no_launch() -> None:
    """An empty batch has an empty result."""
    assert rms_norm(torch.empty(0, 64), torch.ones(64), EPS).shape == (0, 64)
