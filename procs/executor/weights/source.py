"""Taking weights out of a checkpoint while a model is built: by name, shape checked, each one once.

At the end `finish` refuses a checkpoint that holds more than the model took. Weights are put where the model
computes and cast to its dtype.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from ....common.errors import ModelError
from .blocks import Blocks
from .checkpoint import Checkpoint

_LOAD_THREADS = 4
"""At most; a core each is enough, since dequantizing runs in numpy without the interpreter's lock."""

_NOT_WEIGHTS = re.compile(r"rope_freqs\.weight|.*\.rotary_emb\.inv_freq")
"""Tables that follow from the configuration and that some checkpoints carry along."""

Built = TypeVar("Built")


class Weights:
    """The weights of one checkpoint, handed out once each."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        progress: Callable[[float], None],
        device: torch.device | None = None,
    ) -> None:
        """`progress` is told what part of the model's parts has been built, 0..1. No `device` is the CPU."""
        self.dtype = dtype
        self._device = device
        self._checkpoint = checkpoint
        self._progress = progress
        self._left = dict(checkpoint.shapes)

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor of that name. Raises ModelError if it is missing or has another shape."""
        self._hand_out(name, shape)
        return self._checkpoint.read(name).to(self._device, self.dtype)

    def take_as_stored(self, name: str, *shape: int) -> Blocks | torch.Tensor:
        """The same, but in the quantized blocks of the file, where it has them."""
        self._hand_out(name, shape)
        blocks = self._checkpoint.blocks(name)
        return self._checkpoint.read(name).to(self._device, self.dtype) if blocks is None else blocks

    def _hand_out(self, name: str, shape: tuple[int, ...]) -> None:
        found = self._left.pop(name, None)
        if found is None:
            raise ModelError(f"the checkpoint lacks tensor {name}")
        if found != shape:
            raise ModelError(f"tensor {name} has the shape {list(found)}; {list(shape)} is expected")

    def in_parallel(self, parts: Sequence[Callable[[], Built]], threads: int) -> list[Built]:
        """Build parts of a model, each of which takes its own weights, on a few threads; in order.

        Each thread keeps torch's operations to itself: an OpenMP team for each would crowd the cores. The
        last such setting is the default of threads to come, so the caller must set its own afterwards.
        """
        built: list[Built] = []
        with ThreadPoolExecutor(min(threads, _LOAD_THREADS), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for part in pool.map(lambda build: build(), parts):
                built.append(part)
                self._progress(len(built) / len(parts))
        return built

    def finish(self, *, unused: tuple[str, ...] = ()) -> None:
        """Refuse what is left, except `unused` and tables that are no weights."""
        left = [name for name in self._left if name not in unused and not _NOT_WEIGHTS.fullmatch(name)]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise ModelError(f"the model has no use for tensor {left[0]}{more} of the checkpoint")
