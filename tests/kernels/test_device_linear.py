"""Projections on a device, in the interpreter: what each kind computes, against float32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from fourstroke.procs.executor.device.linear import LinearMaker, quantize_rows

CPU = torch.device("cpu")
TYPES = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("fp8", TYPES, ids=str)
def test_quantized_rows_use_the_whole_range(fp8: torch.dtype) -> None:
    """Each row's largest number becomes the type's largest, and all are kept to a sixteenth; zeros stay zeros."""
    rows = numbers(6, 40, seed=1) * torch.tensor([1e-3, 1.0, 1e3, 1e6, 1.0, 0.0])[:, None]
    narrow, scale = quantize_rows(rows, fp8)
    assert torch.equal(narrow.float().abs().amax(dim=1)[:5], torch.full((5,), torch.finfo(fp8).max))
    largest = rows.abs().amax(dim=1, keepdim=True)
    assert ((narrow.float() * scale[:, None] - rows).abs() <= rows.abs() / 16 + largest / 2**14).all()


@pytest.mark.parametrize("fp8", TYPES, ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantized_projections(fp8: torch.dtype, bias: bool, dtype: torch.dtype) -> None:
    """The product of the quantized numbers, in the type of the activations."""
    hidden, weight = numbers(5, 48, seed=2).to(dtype), numbers(24, 48, seed=3).to(dtype)
    added = numbers(24, seed=4).to(dtype) if bias else None
    linear = LinearMaker(fp8, invariant=False, device=CPU, dtype=dtype).quantized(weight, added)
    left, right = (
        part.float() * scale[:, None] for part, scale in (quantize_rows(hidden, fp8), quantize_rows(weight, fp8))
    )
    expected = F.linear(left, right, None if added is None else added.float())
    found = linear(hidden)
    assert found.dtype == dtype
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found.float(), expected, rtol=2 * step, atol=1e-5 + step)


def test_the_head_is_never_quantized() -> None:
    """Plain projections take the weights as they are, also where others are quantized."""
    hidden, weight = numbers(3, 32, seed=5), numbers(16, 32, seed=6)
    for invariant in (False, True):
        linear = LinearMaker(TYPES[0], invariant, CPU, torch.float32).plain(weight)
        torch.testing.assert_close(linear(hidden), F.linear(hidden, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fp8", [None, TYPES[0]], ids=str)
def test_invariant_projections(fp8: torch.dtype | None) -> None:
    """A row has the same bits alone and among others, with quantized weights, too."""
    hidden, weight = numbers(70, 48, seed=7).bfloat16(), numbers(24, 48, seed=8).bfloat16()
    linear = LinearMaker(fp8, invariant=True, device=CPU).quantized(weight)
    together = linear(hidden)
    for row in (0, 63, 69):
        assert torch.equal(linear(hidden[row : row + 1])[0], together[row])
