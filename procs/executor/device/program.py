"""What a step does on the device, from the columns that were copied there to the tokens that it samples.

Nothing here waits for the device or looks at what is there. So steps follow each other without the host, and a step
can be recorded as a graph. Knows no kernels: attention and sampling are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..attention.backend import Attention
from ..kv_cache import KvCache
from ..models.llama import Llama
from .buffers import StepInput


@dataclass(frozen=True, slots=True)
class Mix:
    """What the host knows of a step: how many of its rows, at the beginning, have one token; the most of a row."""

    decodes: int
    most_tokens: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """`hidden` [tokens, hidden]; `results` int64 [2, rows], the tokens, and whether they could not be sampled."""

    hidden: torch.Tensor
    results: torch.Tensor


class DeviceRows:
    """What the device remembers of the rows: the token that each sampled last, and its block table.

    There is one more row than the scheduler has, the dummy, and all entries of tables name the dummy block until
    they are set: so padding reads and writes nobody's.
    """

    def __init__(self, rows: int, blocks: int, dummy_block: int, device: torch.device) -> None:
        self.last = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        self.tables = torch.full((rows + 1, blocks), dummy_block, dtype=torch.int32, device=device)

    def change(self, inputs: StepInput) -> None:
        """Take in a step's changes of block tables."""
        if len(inputs.change_rows):
            self.tables.index_put_((inputs.change_rows, inputs.change_indices), inputs.change_blocks)


MakeAttention = Callable[[StepInput, torch.Tensor, Mix], Attention]
"""From a step's columns, the block tables of its rows, and its mix."""

Sample = Callable[[torch.Tensor, StepInput], tuple[torch.Tensor, torch.Tensor]]
"""From logits [rows, vocabulary] to tokens (int64) and which of them could not be sampled (bool)."""


class Program:
    """The model, its cache and the rows; see the module's docstring."""

    def __init__(
        self, model: Llama, cache: KvCache, rows: DeviceRows, attention: MakeAttention, sample: Sample
    ) -> None:
        self._model = model
        self._cache = cache
        self._rows = rows
        self._attention = attention
        self._sample = sample

    def run(self, inputs: StepInput, mix: Mix) -> StepOutput:
        """Run a step, after the changes of tables. Each row samples after its last token, wanted or not."""
        rows = self._rows
        tokens = torch.where(inputs.sources < 0, inputs.tokens, rows.last[inputs.sources.clamp(min=0)])
        attention = self._attention(inputs, rows.tables.index_select(0, inputs.rows), mix)
        hidden = self._model.forward(tokens, inputs.positions, inputs.slots, self._cache, attention)
        of_rows = hidden if mix.most_tokens == 1 else hidden.index_select(0, inputs.places)
        sampled, failed = self._sample(self._model.logits(of_rows), inputs)
        rows.last.index_copy_(0, inputs.targets, sampled)
        return StepOutput(hidden, torch.stack((sampled, failed.to(torch.int64))))
