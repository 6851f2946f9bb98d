"""Launchers that AMD's AITER replaces where it is installed: kernels that AMD tunes by hand for its data centre cards.

Never required; who runs with --batch-invariant does not ask for it, for AITER promises nothing of that. Only functions
whose signature is the same in release 0.1.9 and in main of August 2026 (github.com/ROCm/aiter, aiter/ops/rmsnorm.py and
activation.py) stand in the table. Its paged attention wants the KV cache in another layout, and its sampling takes its
noise from torch's generator, not from seed and position: these stay ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from types import ModuleType
from typing import Any

import torch

log = logging.getLogger("fourstroke")

_PACKAGE = "aiter"
_ARCHITECTURES = ("gfx942", "gfx950")
"""Those that AITER calls supported."""

_DTYPES = (torch.bfloat16, torch.float16)
_LANES = 64
"""Widths that are no multiple of a wave are left to our kernels."""

Launcher = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Replacement:
    """How functions of AITER, by their names, are made a launcher with the arguments and the result of ours."""

    functions: tuple[str, ...]
    make: Callable[..., Launcher]


def _rms_norm(norm: Callable[..., torch.Tensor], add_and_norm: Callable[..., None]) -> Launcher:
    def rms_norm(
        hidden: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As ours; with a residual the result lies in the memory of `hidden`, of which no model asks again."""
        if residual is None:
            return norm(hidden, weight, eps)
        add_and_norm(hidden, residual, weight, eps)
        return hidden

    return rms_norm


def _silu_mul(silu_and_mul: Callable[..., None]) -> Launcher:
    def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
        """As ours."""
        product = torch.empty_like(gate_up[:, : gate_up.shape[1] // 2], memory_format=torch.contiguous_format)
        silu_and_mul(product, gate_up)
        return product

    return silu_mul


REPLACEMENTS = {
    "rms_norm": Replacement(("rms_norm", "fused_add_rms_norm_cu"), _rms_norm),
    "silu_mul": Replacement(("silu_and_mul",), _silu_mul),
}
"""By the name of our launcher."""


def best(ours: Launcher, arch: str) -> Launcher:
    """AITER's launcher in the place of one of ours; ours itself where AITER is not installed or has none for the card.

    What it cannot take, other dtypes and odd widths, goes to ours all the same.
    """
    replacement = REPLACEMENTS.get(ours.__name__)
    module = _aiter() if arch in _ARCHITECTURES else None
    if replacement is None or module is None:
        return ours
    functions = [vars(module).get(name) for name in replacement.functions]
    if None in functions:
        log.warning("AITER is installed, but lacks a function of %s: our own is used", replacement.functions)
        return ours
    theirs = replacement.make(*functions)

    @wraps(ours)
    def launcher(first: torch.Tensor, *rest: Any) -> torch.Tensor:
        return (theirs if _suits(first) else ours)(first, *rest)

    return launcher


def _suits(tensor: torch.Tensor) -> bool:
    rows, width = tensor.shape
    return rows > 0 and width % (2 * _LANES) == 0 and tensor.dtype in _DTYPES and tensor.is_contiguous()


@cache
def _aiter() -> ModuleType | None:
    """The package, or None if it is not installed or does not load here."""
    if importlib.util.find_spec(_PACKAGE) is None:
        return None
    try:
        return importlib.import_module(_PACKAGE)
    except (ImportError, OSError, RuntimeError) as error:  # it is compiled for one ROCm and looks for a card
        log.warning("AITER is installed, but cannot be loaded (%s): our own kernels are used", error)
        return None
