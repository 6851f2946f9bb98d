"""silu(gate) * up against PyTorch's in float32."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from fourstroke.procs.executor.kernels.silu_mul import silu_mul


def _gate_up(tokens: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(tokens, 2 * width, generator=torch.Generator().manual_seed(width)) * 4).to(dtype)


@pytest.mark.parametrize("width", [1, 1024, 1536, 1025])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_is_the_reference_rounded_once(width: int, dtype: torch.dtype) -> None:
    """Gate first, up then; float32's product, rounded to the dtype."""
    gate_up = _gate_up(3, width, dtype)
    gate, up = gate_up.float().chunk(2, dim=-1)
    torch.testing.assert_close(silu_mul(gate_up).float(), F.silu(gate) * up, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
def test_gates_far_from_zero_give_numbers() -> None:
    """A gate of minus 1e4 closes, one of plus 1e4 passes itself: no overflow on the way."""
    assert silu_mul(torch.tensor([[-1e4, 1e4, 1.0, 2.0]])).tolist() == [[0.0, 2e4]]


def test_a_row_is_the_same_bits_alone_and_in_a_batch() -> None:
    """No other row changes a row."""
    gate_up = _gate_up(5, 96, torch.bfloat16)
    assert torch.equal(silu_mul(gate_up), torch.cat([silu_mul(row[None]) for row in gate_up]))


def test_no_tokens_are_no_launch() -> None:
    """An empty batch has an empty result."""
    assert silu_mul(torch.empty(0, 64)).shape == (0, 32)
