"""Matrix products: against float32's, and the same bits for a row whatever its batch."""

import pytest
import torch

from fourstroke.procs.executor.kernels.matmul import matmul, scaled_matmul

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 2 * torch.finfo(dtype).eps, "atol": 1e-4}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 64, 128), (65, 100, 70), (3, 130, 64), (600, 65, 64)])
def test_is_the_reference_rounded_once(dtype: torch.dtype, bias: bool, m: int, n: int, k: int) -> None:
    """Sums in float32, rounded to the dtype; M, N and K may be anything; so many rows that tiles come in groups."""
    a, weight, added = _random(m, k, dtype=dtype), _random(n, k, dtype=dtype), _random(n, dtype=dtype)
    expected = a.float() @ weight.float().T + (added.float() if bias else 0)
    torch.testing.assert_close(matmul(a, weight, added if bias else None).float(), expected, **_tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_bits_alone_and_in_any_batch(dtype: torch.dtype) -> None:
    """Row by row, in batches that end within a tile, and all at once."""
    a, weight, bias = _random(130, 200, dtype=dtype), _random(70, 200, dtype=dtype), _random(70, dtype=dtype)
    together = matmul(a, weight, bias)
    for size in (1, 7, 64, 65):
        some = range(0, 130, size) if size > 1 else range(0, 130, 13)
        for start in some:
            assert torch.equal(matmul(a[start : start + size], weight, bias), together[start : start + size])


def test_rows_may_be_views_of_wider_ones() -> None:
    """Slices of columns, of the activations and of the weight, need no copy."""
    a, weight = _random(3, 200), _random(10, 300)
    assert torch.equal(
        matmul(a[:, 64:128], weight[:, 100:164]), matmul(a[:, 64:128].contiguous(), weight[:, 100:164].contiguous())
    )


def test_no_rows_are_no_launch() -> None:
    """An empty batch has an empty result."""
    assert matmul(torch.empty(0, 64), torch.empty(32, 64)).shape == (0, 32)
    scaled = scaled_matmul(torch.empty(0, 64), torch.empty(32, 64).to(FP8[0]), 1.0, torch.ones(32))
    assert scaled.shape == (0, 32)


@pytest.mark.parametrize("fp8", FP8)
@pytest.mark.parametrize("activations", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 64), (65, 70, 100)])
def test_8_bit_weights_with_their_scales(
    fp8: torch.dtype, activations: torch.dtype | None, m: int, n: int, k: int
) -> None:
    """(a * a_scale) times (weight * weight_scale), with a scale a row, one for all, a number; None: `a` has 8 bits."""
    a, weight = _random(m, k, dtype=activations or fp8), _random(n, k, dtype=fp8)
    weight_scale, rows = torch.rand(n) + 0.5, torch.rand(m) + 0.5
    products = a.float() @ weight.float().T * weight_scale
    out = activations or torch.bfloat16
    for scale in (rows, torch.tensor([0.25]), 0.25):
        expected = products * (scale[:, None] if isinstance(scale, torch.Tensor) else scale)
        result = scaled_matmul(a, weight, scale, weight_scale)
        assert result.dtype == out
        torch.testing.assert_close(result.float(), expected, **_tolerance(out))


def test_8_bit_products_add_a_bias_and_have_the_dtype_asked_for() -> None:
    """The bias is added after the scales; float32 shows it to all digits."""
    a, weight, bias = _random(4, 96, dtype=FP8[0]), _random(33, 96, dtype=FP8[0]), _random(33)
    result = scaled_matmul(a, weight, 0.5, torch.full((33,), 2.0), bias, torch.float32)
    torch.testing.assert_close(result, a.float() @ weight.float().T + bias, **_tolerance(torch.float32))


@pytest.mark.parametrize("activations", [None, torch.bfloat16])
def test_8_bit_rows_are_the_same_bits_alone_and_in_a_batch(activations: torch.dtype | None) -> None:
    """No other row changes a row, with scales too."""
    a, weight = _random(67, 100, dtype=activations or FP8[0]), _random(65, 100, dtype=FP8[0])
    a_scale, weight_scale = torch.rand(67), torch.rand(65)
    together = scaled_matmul(a, weight, a_scale, weight_scale)
    for row in (0, 63, 64, 66):
        alone = scaled_matmul(a[row, None], weight, a_scale[row, None], weight_scale)
        assert torch.equal(alone[0], together[row])
