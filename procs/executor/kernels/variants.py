"""What a kernel's file says of it for the ahead-of-time compiler: types, constants and what must be in the assembly.

`variants(arch)` of each kernel's file makes these with the constants and the tuning that its launcher would use.
Knows no compiler; the package `proof` compiles them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.jit import JITFunction

from .tuning import Tuning


@dataclass(frozen=True, slots=True)
class Variant:
    """One case of a kernel, for one architecture.

    `signature` has a type for each argument that is no constant, as Triton writes them: "*bf16", "*fp8e4nv", "i32",
    "fp32". `constexprs` has the values of the tl.constexpr arguments.

    A launch specialises by what it sees, so this says what it will see: pointers are aligned to 16 bytes, as torch
    allocates; `multiples_of_16` names the integers that are, too (strides, widths); `large` names the pointers to more
    than 2 GiB (weights, KV cache): the others may be read by buffer instructions.
    """

    name: str
    """Unique among the variants of a kernel: "bf16 D=128 GQA=4". Without the architecture."""
    kernel: JITFunction[Any]
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    tuning: Tuning = field(default_factory=Tuning)
    dot: bool = False
    """It multiplies matrices, so it must use the matrix units: v_mfma or v_wmma."""
    fp8: bool = False
    """It reads or writes 8-bit floats, converting them or not."""
    fp8_dot: bool = False
    """It multiplies 8-bit floats as they are: where the card has matrix instructions for them, it must use these."""
    multiples_of_16: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
