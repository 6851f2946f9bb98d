"""What a compiled kernel must be, and what it may not lose against the figures that are kept: rules as a table.

Pure: figures in, words out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ..architectures import ARCHITECTURES
from .figures import Built, Figures

_FP8_INSTRUCTION = ("fp8", "bf8", "f8f6f4")
"""In the names of the instructions that multiply 8-bit floats."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A rule for every compiled kernel: whether it is broken, and how to say so."""

    broken: Callable[[Built], bool]
    words: Callable[[Built], str]


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure that may not become worse than it was."""

    name: str
    value: Callable[[Built], float]
    more_is_better: bool = False

    def worse(self, now: Built, before: Built) -> bool:
        """Whether the figure is worse now than before."""
        gain = self.value(now) - self.value(before)
        return gain < 0 if self.more_is_better else gain > 0


def _lds_limit(built: Built) -> int:
    return ARCHITECTURES[built.arch].lds_bytes


def _falls_off_fp8(built: Built) -> bool:
    if not built.fp8_dot or ARCHITECTURES[built.arch].fp8 is None:
        return False
    return not any(part in name for name in built.assembly.matrix for part in _FP8_INSTRUCTION)


LIMITS = (
    Limit(
        lambda built: built.assembly.scratch_bytes > 0,
        lambda built: f"uses {built.assembly.scratch_bytes} bytes of scratch memory a lane: its registers overflow",
    ),
    Limit(
        lambda built: built.assembly.vgpr_spills > 0,
        lambda built: f"spills {built.assembly.vgpr_spills} vector registers",
    ),
    Limit(
        lambda built: built.lds_bytes > _lds_limit(built),
        lambda built: f"wants {built.lds_bytes} bytes of LDS, and a program may have {_lds_limit(built)}",
    ),
    Limit(
        lambda built: built.dot and not built.assembly.matrix,
        lambda _: "multiplies matrices without the matrix units: no v_mfma, no v_wmma",
    ),
    Limit(_falls_off_fp8, lambda _: "multiplies 8-bit floats in another type: no instruction for fp8"),
    Limit(
        lambda built: built.assembly.wave != ARCHITECTURES[built.arch].wave,
        lambda built: f"is compiled for waves of {built.assembly.wave} lanes",
    ),
)

BOUNDS = (
    Bound("vector registers", lambda built: built.assembly.vgprs),
    Bound("waves a SIMD", lambda built: built.waves, more_is_better=True),
)


def beyond_limits(built: Built) -> list[str]:
    """What is wrong with a compiled kernel, in words; nothing if all is well."""
    return [f"{built.name} {limit.words(built)}" for limit in LIMITS if limit.broken(built)]


def worse_than(now: Figures, before: Figures, archs: Collection[str], files: Collection[str]) -> list[str]:
    """What has become worse, is new or is gone, among the architectures and kernels that were compiled now."""
    return [
        *_losses(now, before),
        *(f"{name} is not in the report" for name in _names(now, before)),
        *(
            f"{built.name} is in the report, but is no longer compiled"
            for key, built in before.by_key.items()
            if key not in now.by_key and built.arch in archs and built.file in files
        ),
    ]


def _losses(now: Figures, before: Figures) -> Iterator[str]:
    known = before.by_key
    for built in now.built:
        old = known.get(built.key)
        if old is None:
            continue
        for bound in BOUNDS:
            if bound.worse(built, old):
                yield f"{built.name}: {bound.name} {bound.value(built):g}, and {bound.value(old):g} in the report"


def _names(now: Figures, before: Figures) -> Iterator[str]:
    known = before.by_key
    return (built.name for built in now.built if built.key not in known)
