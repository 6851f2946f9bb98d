"""The self-tests of a GPU: the projections and the attention that serve there, and a sum over several cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from ..attention.backend import Attention, Spans
from ..device.attention import TritonAttention
from ..device.buffers import PER_CHANGE, PER_ROW, PER_TOKEN, StepInput
from ..device.linear import LinearMaker
from ..device.precision import card_types
from ..device.program import Mix
from ..kv_cache import KvCache
from .problems import attention, gemm
from .selftest import SelfTest

_SUMMED = 1 << 20
"""Numbers on each card: enough that the cards exchange them in several pieces."""


def device_tests(where: str, device: torch.device) -> Iterator[SelfTest]:
    """The tests of one device: in 16 bits, and in 8 if it has them."""
    for dtype in (torch.bfloat16, torch.float16):
        yield gemm(where, dtype, device, LinearMaker(None, False, device).plain)
        yield gemm(f"{where}, batch-invariant", dtype, device, LinearMaker(None, True, device).plain)
        yield attention(where, dtype, device, triton_attention)
    fp8 = card_types(device).fp8
    if fp8 is not None:
        yield gemm(where, torch.bfloat16, device, LinearMaker(fp8, False, device).quantized, fp8)


def triton_attention(spans: Spans, cache: KvCache) -> Attention:
    """The attention of the device path, which otherwise finds a step's columns in its buffers."""
    device = cache.layers[0].keys.device

    def there(column: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(column.astype(np.int32)).to(device)

    columns = dict.fromkeys((*PER_ROW, *PER_TOKEN, *PER_CHANGE), torch.empty(0, device=device))
    columns |= {"first": there(spans.first), "count": there(spans.count), "lengths": there(spans.length)}
    mix = Mix(spans.decodes, int(spans.count.max()))
    return TritonAttention(StepInput(**columns), there(spans.tables), mix, invariant=False)


def all_reduce(devices: Sequence[torch.device]) -> SelfTest:
    """Sums over cards, each of which has its number, counted from 1, everywhere."""

    def add() -> torch.Tensor:
        parts = [torch.full((_SUMMED,), index + 1.0, device=device) for index, device in enumerate(devices)]
        torch.cuda.nccl.all_reduce(parts)  # type: ignore[no-untyped-call]
        return torch.cat([part.cpu() for part in parts])

    def right() -> torch.Tensor:
        return torch.full((len(devices) * _SUMMED,), len(devices) * (len(devices) + 1) / 2)

    return SelfTest(f"sum over {len(devices)} devices", torch.float32, devices[0], lambda: add, right)
