"""The CPU's kernels in C: whether they can be built and loaded here, and the self-test of them."""

from __future__ import annotations

from pathlib import Path

import torch

from ....common.errors import ResourceError
from ....common.finding import Finding, green, yellow
from ..native.build import find_compiler
from ..native.compute import NativeCompute
from ..native.library import Library
from ..native.load import load_kernels
from . import tiny_model
from .selftest import Computation, SelfTest

_SUBJECT = "C kernels"


def load(cache: Path) -> tuple[Library | None, Finding]:
    """The library, built into a folder if it is not there yet, or None where there can be none."""
    try:
        kernels, lacking = load_kernels(cache)
    except ResourceError as error:
        return None, _without(" ".join(str(error).split()), find_compiler() is not None)
    if lacking is not None:
        return kernels, yellow(
            _SUBJECT, lacking, "let it (a sandbox, or Linux before 5.16?): prompts take longer without"
        )
    return kernels, green(_SUBJECT, str(kernels.path))


def _without(cause: str, compiler: bool) -> Finding:
    """Not red: what the kernels do torch does too."""
    remedy = "mend that, or try another compiler" if compiler else "install gcc (apt install gcc, or dnf install gcc)"
    return yellow(_SUBJECT, cause, f"{remedy}: torch alone is slower on the CPU")


def model_test(kernels: Library) -> SelfTest:
    """A whole model: the kernels have no smaller part that could be called."""

    def make() -> Computation:
        compute = NativeCompute(
            kernels,
            tiny_model.CONFIG,
            tiny_model.weights(torch.bfloat16),
            num_blocks=tiny_model.NUM_BLOCKS,
            block_size=tiny_model.BLOCK_SIZE,
            max_positions=tiny_model.CONFIG.max_position,
            threads=torch.get_num_threads(),
            quantization="none",
        )
        return lambda: tiny_model.logits_of(compute)

    name = "model in bfloat16 on the CPU by C kernels"
    return SelfTest(name, torch.bfloat16, torch.device("cpu"), make, tiny_model.right_logits)
