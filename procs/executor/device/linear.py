"""Linear projections on a device: by the vendor's library, batch-invariant by our own kernel, or with 8-bit weights.

The library (hipBLASLt, cuBLASLt) chooses tiles by the number of rows, so that a row's bits depend on its batch. Weights
in 8-bit floats have a scale for each output channel, activations one for each token, taken from what they are
(W8A8, dynamic, as in vLLM's fp8).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from ..kernels.matmul import matmul, scaled_matmul
from ..layers.linear import Linear

_LEAST_SCALE = 1e-12
"""Above 0, so that a row of zeros can be divided by its scale."""

_SCALED_MM_MULTIPLE = 16
"""torch._scaled_mm takes only widths that are multiples of this."""


class LinearMaker:
    """Makes projections of a kind, for activations of type `dtype`. `fp8` is the type of quantized weights; None: they
    are not quantized.
    """

    def __init__(
        self, fp8: torch.dtype | None, invariant: bool, device: torch.device, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self._fp8 = fp8
        self._invariant = invariant
        self._library = fp8 is not None and not invariant and multiplies_scaled(device, fp8, dtype)

    def plain(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """By a weight [out, in] as it is, and maybe a bias [out]."""
        return _InvariantLinear(weight, bias) if self._invariant else _LibraryLinear(weight, bias)

    def quantized(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """The same by a weight that is quantized here, if weights are."""
        if self._fp8 is None:
            return self.plain(weight, bias)
        by_library = self._library and all(size % _SCALED_MM_MULTIPLE == 0 for size in weight.shape)
        return _Fp8Linear(weight, bias, self._fp8, by_library)


class _LibraryLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self._weight, self._bias)


class _InvariantLinear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return matmul(hidden, self._weight, self._bias)


class _Fp8Linear:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, fp8: torch.dtype, by_library: bool) -> None:
        self._weight, self._scale = quantize_rows(weight, fp8)
        self._bias = bias
        self._by_library = by_library

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        narrow, scale = quantize_rows(hidden, self._weight.dtype)
        if not self._by_library:
            return scaled_matmul(narrow, self._weight, scale, self._scale, self._bias, hidden.dtype)
        return torch._scaled_mm(
            narrow,
            self._weight.t(),
            scale_a=scale[:, None],
            scale_b=self._scale[None],
            bias=self._bias,
            out_dtype=hidden.dtype,
        )


def quantize_rows(numbers: torch.Tensor, fp8: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, width] in 8-bit floats, and the scales, float32 [rows], by which they are to be multiplied.

    A row's largest number becomes the type's largest. Clamped: torch makes NaN of what is above.
    """
    limit = torch.finfo(fp8).max
    wide = numbers.float()
    scale = wide.abs().amax(dim=1).div_(limit).clamp_(min=_LEAST_SCALE)
    return (wide / scale[:, None]).clamp_(-limit, limit).to(fp8), scale


def multiplies_scaled(device: torch.device, fp8: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether torch._scaled_mm takes this 8-bit type here, with a scale a row, and gives results of type `dtype`.

    Asks by doing: the answer depends on the card, the library and torch's version.
    """
    if device.type != "cuda":
        return False
    ones = torch.ones(_SCALED_MM_MULTIPLE, _SCALED_MM_MULTIPLE, device=device).to(fp8)
    scale = torch.ones(_SCALED_MM_MULTIPLE, device=device)
    try:
        torch._scaled_mm(
            ones, ones.t(), scale_a=scale[:, None], scale_b=scale[None], bias=scale.to(dtype), out_dtype=dtype
        )
    except (RuntimeError, ValueError):
        return False
    return True
