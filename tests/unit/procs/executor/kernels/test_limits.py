"""The rules for compiled kernels: each limit, each bound, and the words for them."""

from __future__ import annotations

import pytest

from fourstroke.procs.executor.kernels.proof.figures import Built, Figures
from fourstroke.procs.executor.kernels.proof.limits import beyond_limits, worse_than

from .assemblies import PRODUCT, like

FP8 = like(PRODUCT, variant="fp8", fp8_dot=True, matrix={"v_mfma_f32_32x32x16_fp8_fp8": 12})


@pytest.mark.parametrize(
    "built",
    [
        PRODUCT,
        like(PRODUCT, lds_bytes=64 << 10),
        like(PRODUCT, arch="gfx950", lds_bytes=160 << 10),
        like(PRODUCT, sgpr_spills=5, agprs=46),
        like(PRODUCT, dot=False, matrix={}),
        FP8,
        like(FP8, arch="gfx950", matrix={"v_mfma_f32_32x32x64_f8f6f4": 2}),
        like(FP8, arch="gfx90a", matrix={"v_mfma_f32_32x32x8f16": 2}),
    ],
)
def test_within_limits(built: Built) -> None:
    """All is well up to the limit itself; where the card has no fp8, another type will do."""
    assert beyond_limits(built) == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"scratch_bytes": 16}, "uses 16 bytes of scratch memory a lane: its registers overflow"),
        ({"vgpr_spills": 3}, "spills 3 vector registers"),
        ({"lds_bytes": (64 << 10) + 1}, "wants 65537 bytes of LDS, and a program may have 65536"),
        ({"matrix": {}}, "multiplies matrices without the matrix units: no v_mfma, no v_wmma"),
        ({"fp8_dot": True}, "multiplies 8-bit floats in another type: no instruction for fp8"),
        ({"wave": 32}, "is compiled for waves of 32 lanes"),
    ],
)
def test_beyond_a_limit(changes: dict[str, object], words: str) -> None:
    """Each limit is refused by itself, in words that name the kernel."""
    assert beyond_limits(like(PRODUCT, **changes)) == [f"gfx942 matmul._matmul [bf16] {words}"]


def compared(now: list[Built], before: list[Built]) -> list[str]:
    """What is worse, in words, after the kernels of "matmul" were compiled for gfx942."""
    return worse_than(Figures("3.9.0", tuple(now)), Figures("3.9.0", tuple(before)), ["gfx942"], ["matmul"])


def test_no_loss() -> None:
    """The same, or better: fewer registers, more waves."""
    assert compared([PRODUCT], [PRODUCT]) == []
    assert compared([like(PRODUCT, vgprs=60, occupancy=8, lds_bytes=0)], [PRODUCT]) == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"vgprs": 95}, "vector registers 95, and 94 in the report"),
        ({"occupancy": 3}, "waves a SIMD 3, and 4 in the report"),
        ({"lds_bytes": 32 << 10}, "waves a SIMD 2, and 4 in the report"),
    ],
)
def test_a_loss(changes: dict[str, object], words: str) -> None:
    """More registers, or fewer waves by registers or by LDS, are findings."""
    assert compared([like(PRODUCT, **changes)], [PRODUCT]) == [f"gfx942 matmul._matmul [bf16]: {words}"]


def test_new_and_gone() -> None:
    """A variant that is only here or only in the report is a finding: the report must be written again."""
    assert compared([PRODUCT, FP8], [PRODUCT]) == ["gfx942 matmul._matmul [fp8] is not in the report"]
    assert compared([PRODUCT], [PRODUCT, FP8]) == [
        "gfx942 matmul._matmul [fp8] is in the report, but is no longer compiled"
    ]


def test_what_was_not_compiled_is_not_missed() -> None:
    """Other architectures and other kernels in the report are no findings when only some are compiled."""
    assert compared([PRODUCT], [PRODUCT, like(PRODUCT, arch="gfx950"), like(PRODUCT, file="rope")]) == []
