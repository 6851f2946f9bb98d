"""How kernels are launched: the table covers every kernel on every architecture, and says all that a launch needs."""

from __future__ import annotations

import pytest

from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES
from fourstroke.procs.executor.kernels.tuning import OTHER, TABLE, Tuning, tuning


def test_every_architecture_has_a_row() -> None:
    """An architecture without a row of its own has the common one, and no row is for an unknown one."""
    for kernel, rows in TABLE.items():
        assert set(rows) <= {OTHER, *ARCHITECTURES}, kernel
        for arch in (OTHER, *ARCHITECTURES, "gfx906"):
            assert tuning(kernel, arch) == rows.get(arch, rows[OTHER])


@pytest.mark.parametrize("kernel", TABLE)
def test_sizes_are_powers_of_two(kernel: str) -> None:
    """Triton takes no others for waves and for the sizes of blocks."""
    for row in TABLE[kernel].values():
        assert all(size > 0 and size & (size - 1) == 0 for size in (row.num_warps, *row.blocks.values()))
        assert 1 <= row.num_stages <= 4


def test_blocks_have_the_same_names_everywhere() -> None:
    """A kernel has the same constants on every architecture."""
    for kernel, rows in TABLE.items():
        assert len({frozenset(row.blocks) for row in rows.values()}) == 1, kernel


def test_options() -> None:
    """Whether to fuse multiplication and addition is always said; the aim for occupancy only where there is one."""
    assert Tuning(8, 2).options == {"num_warps": 8, "num_stages": 2, "enable_fp_fusion": True}
    assert Tuning(8, 2, 4, fp_fusion=False).options == {
        "num_warps": 8,
        "num_stages": 2,
        "enable_fp_fusion": False,
        "waves_per_eu": 4,
    }
