"""What is read from assembly: figures of the metadata and of LLVM's comments, and the matrix units' instructions."""

from __future__ import annotations

import pytest

from fourstroke.procs.executor.kernels.proof.assembly import (
    Assembly,
    UnreadableAssembly,
    matrix_instructions,
    read_assembly,
)

from .assemblies import GFX942, GFX1100


def test_waves_of_64() -> None:
    """All figures of an assembly with accumulator registers and spills."""
    assert read_assembly(GFX942) == Assembly(
        matrix={"v_mfma_f32_32x32x8_bf16": 2, "v_mfma_f32_32x32x16_fp8_fp8": 1},
        vgprs=302,
        agprs=46,
        sgprs=29,
        scratch_bytes=8,
        vgpr_spills=2,
        sgpr_spills=3,
        occupancy=1,
        wave=64,
    )


def test_waves_of_32() -> None:
    """gfx11 has no accumulator registers: its metadata does not mention them."""
    assert read_assembly(GFX1100) == Assembly(
        matrix={"v_wmma_f32_16x16x16_bf16": 1},
        vgprs=139,
        agprs=0,
        sgprs=31,
        scratch_bytes=0,
        vgpr_spills=0,
        sgpr_spills=0,
        occupancy=10,
        wave=32,
    )


@pytest.mark.parametrize(
    "name",
    [
        "v_mfma_f32_32x32x8bf16_1k",
        "v_mfma_f32_32x32x8_bf16",
        "v_mfma_f64_16x16x4_f64",
        "v_mfma_scale_f32_32x32x64_f8f6f4",
        "v_smfmac_f32_16x16x32_bf16",
        "v_wmma_f32_16x16x16_fp8_fp8",
        "v_swmmac_f32_16x16x32_bf16",
    ],
)
def test_names_of_the_matrix_units(name: str) -> None:
    """Each family of instructions is known, dense and sparse."""
    assert matrix_instructions(f"code:\n\t{name} v[0:3], v[4:5], v[6:7], 0\n") == {name: 1}


@pytest.mark.parametrize(
    "line",
    [
        "\tv_fma_f32 v0, v1, v2, v3",
        "\tv_dot2_f32_bf16 v0, v1, v2, v3",
        "\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]",
        "\ts_nop 1 ; v_mfma_f32_4x4x4_16b_f16",
        "\tv_accvgpr_read_b32 v0, a0",
        '\t.asciz "v_mfma_f32_32x32x8_bf16"',
        "v_wmma_label:",
    ],
)
def test_what_is_no_instruction_of_theirs(line: str) -> None:
    """Other arithmetic, comments, strings and labels do not count."""
    assert matrix_instructions(line + "\n") == {}


def test_the_most_frequent_first() -> None:
    """In the report the instruction that does the work stands first; of equals, by name."""
    code = "".join(f"\tv_mfma_f32_{name} v0, v1, v2, 0\n" for name in ("c", "b", "a", "c"))
    assert list(matrix_instructions(code).items()) == [("v_mfma_f32_c", 2), ("v_mfma_f32_a", 1), ("v_mfma_f32_b", 1)]


@pytest.mark.parametrize("figure", [".vgpr_count", ".private_segment_fixed_size", "Occupancy", ".wavefront_size"])
def test_a_figure_that_is_missing(figure: str) -> None:
    """A compiler that writes in another way is noticed: no figure is taken to be zero."""
    with pytest.raises(UnreadableAssembly, match=figure):
        read_assembly(GFX1100.replace(figure, "renamed"))
