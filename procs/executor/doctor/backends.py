"""Which self-tests there are: those of each backend that this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..attention.cpu import CpuAttention
from ..native.library import Library
from ..ops import TorchOps
from .facts import Torch
from .native import model_test
from .problems import attention, gemm
from .selftest import SelfTest


def tests_of(found: Torch, kernels: Library | None) -> Iterator[SelfTest]:
    """All tests, each made when its turn comes."""
    yield from _cpu_tests()
    if kernels is not None:
        yield model_test(kernels)
    if found.cards and found.triton is not None:
        from .device_tests import all_reduce, device_tests  # here: without a card there may be no Triton

        devices = [torch.device("cuda", index) for index in range(len(found.cards))]
        for device in devices:
            yield from device_tests(f"device {device.index}", device)
        if found.collectives is not None:
            yield all_reduce(devices)


def _cpu_tests() -> Iterator[SelfTest]:
    cpu = torch.device("cpu")
    for dtype in (torch.float32, torch.bfloat16):
        yield gemm("the CPU", dtype, cpu, TorchOps(dtype).make_linear)
        yield attention("the CPU", dtype, cpu, CpuAttention)
