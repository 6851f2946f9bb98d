"""Pieces of assembly as LLVM prints it, shortened to what is read, and figures made up for tests."""

from __future__ import annotations

import dataclasses

from fourstroke.procs.executor.kernels.proof.assembly import Assembly
from fourstroke.procs.executor.kernels.proof.figures import Built

GFX942 = """\
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.globl	product                         ; -- Begin function product
product:                                ; @product
	s_load_dwordx4 s[0:3], s[4:5], 0x0
	v_mfma_f32_32x32x8_bf16 v[0:15], v[48:49], v[72:73], 0
	s_nop 1                                 ; v_mfma_f32_4x4x4_16b_f16 would need two of these
	v_mfma_f32_32x32x8_bf16 v[0:15], v[50:51], v[74:75], v[0:15]
	v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[50:51], v[74:75], a[0:15]
	s_endpgm
; Kernel info:
; TotalNumSgprs: 29
; NumVgprs: 256
; NumAgprs: 46
; TotalNumVgprs: 302
; ScratchSize: 8
; Occupancy: 1
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     46
    .group_segment_fixed_size: 0
    .max_flat_workgroup_size: 256
    .name:           product
    .private_segment_fixed_size: 8
    .sgpr_count:     29
    .sgpr_spill_count: 3
    .vgpr_count:     302
    .vgpr_spill_count: 2
    .wavefront_size: 64
amdhsa.target:   amdgpu9.42-amd-amdhsa-unknown-gfx942
...
	.end_amdgpu_metadata
"""

GFX1100 = """\
product:                                ; @product
	v_wmma_f32_16x16x16_bf16 v[25:32], v[59:66], v[9:16], v[1:8]
	v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v3, v4
	s_endpgm
; Kernel info:
; NumVgprs: 139
; ScratchSize: 0
; Occupancy: 10
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .offset:         24
        .size:           4
    .name:           product
    .private_segment_fixed_size: 0
    .sgpr_count:     31
    .sgpr_spill_count: 0
    .vgpr_count:     139
    .vgpr_spill_count: 0
    .wavefront_size: 32
    .workgroup_processor_mode: 1
...
	.end_amdgpu_metadata
"""

PRODUCT = Built(
    arch="gfx942",
    file="matmul",
    kernel="_matmul",
    variant="bf16",
    num_warps=4,
    num_stages=2,
    lds_bytes=16384,
    dot=True,
    fp8_dot=False,
    assembly=Assembly(
        matrix={"v_mfma_f32_32x32x8_bf16": 24},
        vgprs=94,
        agprs=0,
        sgprs=30,
        scratch_bytes=0,
        vgpr_spills=0,
        sgpr_spills=0,
        occupancy=5,
        wave=64,
    ),
)
"""A kernel with which all is well."""


def like(built: Built, **changes: object) -> Built:
    """The same with other fields; those of the assembly are found by their names."""
    inner = {name: value for name, value in changes.items() if name in Assembly.__slots__}
    outer = {name: value for name, value in changes.items() if name not in inner}
    return dataclasses.replace(built, assembly=dataclasses.replace(built.assembly, **inner), **outer)
