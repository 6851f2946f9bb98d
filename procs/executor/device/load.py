"""From a configuration to a DeviceRunner: load the model, measure a step, size the cache, record the graphs.

Imports Triton, by way of the kernels, so only a process that has a device imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ....common.config import Config
from ....common.errors import ResourceError
from ....common.machine import usable_cores
from ....ipc.messages import Hello
from ....ipc.plan import StepSlot
from ..attention.backend import Attention
from ..head import Head
from ..kernels.sample import sample
from ..kv_cache import KvCache
from ..models.config import ModelConfig
from ..models.llama import Llama
from ..rows import Rows
from ..sizing import Sizes, graph_rows, wanted_length
from ..structure import grammars_of
from ..weights.checkpoint import Checkpoint, open_checkpoint
from ..weights.source import Weights
from .attention import TritonAttention
from .buffers import StepBuffers, StepInput
from .card import Card
from .cuda import CudaCard
from .graphs import DecodeGraphs, decode_sizes
from .linear import LinearMaker
from .padding import dummies
from .precision import Precision, card_types, choose_precision
from .program import DeviceRows, Mix, Program, StepOutput
from .runner import DeviceRunner
from .sizing import size_device_cache
from .triton_ops import TritonOps
from .warmup import largest_step, measure


def load_device_runner(
    config: Config, slots: Sequence[StepSlot], progress: Callable[[float], None], index: int
) -> DeviceRunner:
    """A runner on the visible device with that number. Raises ModelError, ConfigError or ResourceError.

    `progress` is told what part of the weights is loaded, 0..1.
    """
    try:
        return load_on(CudaCard(index), config, slots, progress)
    except torch.OutOfMemoryError as error:
        raise ResourceError(f"the device's memory does not hold the model: {str(error).splitlines()[0]}") from None


@torch.inference_mode()
def load_on(card: Card, config: Config, slots: Sequence[StepSlot], progress: Callable[[float], None]) -> DeviceRunner:
    """The same on a given card."""
    precision = choose_precision(config, card_types(card.device))
    checkpoint = open_checkpoint(Path(config.model))
    grammars = grammars_of(config.model, checkpoint.config)
    loader = _Loader(card, config, checkpoint, precision, slots)
    model = loader.load_model(progress)
    sizes = loader.size(model)
    program, device_rows = loader.program(model, sizes)
    graphs = loader.record(program)
    rows = Rows(config.max_num_seqs, -(-sizes.max_model_len // config.block_size), grammars)
    hello = Hello(
        num_blocks=sizes.num_blocks,
        block_size=config.block_size,
        max_model_len=sizes.max_model_len,
        vocab_size=checkpoint.config.vocab_size,
        eos_token_ids=checkpoint.config.eos_token_ids,
    )
    head = Head(model, rows, hello.vocab_size)
    return DeviceRunner(card, program, graphs, loader.buffers, device_rows, rows, head, slots, hello)


class _Loader:
    """What the steps of loading share."""

    def __init__(
        self, card: Card, config: Config, checkpoint: Checkpoint, precision: Precision, slots: Sequence[StepSlot]
    ) -> None:
        self._card = card
        self._config = config
        self._checkpoint = checkpoint
        self._facts: ModelConfig = checkpoint.config
        self._precision = precision
        rows, tokens, changes = config.max_num_seqs, config.max_num_batched_tokens, len(slots[0].block_id)
        self.buffers = StepBuffers(card, len(slots), rows, tokens, changes)

    def load_model(self, progress: Callable[[float], None]) -> Llama:
        config, device, cores = self._config, self._card.device, self._config.threads_of_engine(usable_cores())
        linears = LinearMaker(self._precision.weights, config.batch_invariant, device, self._precision.dtype)
        weights = Weights(self._checkpoint, self._precision.dtype, progress, device)
        length = wanted_length(config, self._facts)
        model = Llama(self._facts, weights, length, cores, TritonOps(linears, device))
        torch.set_num_threads(cores)  # loading has set this to one
        return model

    def size(self, model: Llama) -> Sizes:
        """Run the largest steps with a cache of the dummy block alone, and see what is left."""
        config, dummy_row = self._config, self._config.max_num_seqs
        rows, tokens = config.max_num_seqs, config.max_num_batched_tokens
        length = wanted_length(config, self._facts)
        program, _ = self.program(model, Sizes(0, length))

        def run(slot: int, tokens: int) -> None:
            columns, mix = largest_step(rows, tokens, length, dummy_row)
            program.run(self.buffers.send(slot, len(columns["rows"]), len(columns["tokens"]), columns), mix)

        # In slots of their own: neither waits for the other's copy.
        measured = measure(self._card, lambda: run(0, tokens), lambda: run(1, min(rows, tokens)))
        block_bytes = config.block_size * self._facts.kv_bytes_per_token(self._precision.cache.itemsize)
        return size_device_cache(config, self._facts, block_bytes, measured)

    def program(self, model: Llama, sizes: Sizes) -> tuple[Program, DeviceRows]:
        """A step over a cache of that size, and the rows that it goes on from."""
        config, device = self._config, self._card.device
        cache = KvCache(self._facts, sizes.num_blocks + 1, config.block_size, self._precision.cache, device)
        blocks = -(-sizes.max_model_len // config.block_size)
        rows = DeviceRows(config.max_num_seqs, blocks, sizes.num_blocks, device)

        def attention(inputs: StepInput, tables: torch.Tensor, mix: Mix) -> Attention:
            return TritonAttention(inputs, tables, mix, config.batch_invariant)

        return Program(model, cache, rows, attention, _sample), rows

    def record(self, program: Program) -> DecodeGraphs[StepOutput]:
        """The graphs of decode steps."""
        config, dummy_row = self._config, self._config.max_num_seqs
        sizes = decode_sizes(graph_rows(config.max_num_seqs, config.max_num_batched_tokens, 1))

        def prepare(size: int) -> None:
            self.buffers.send(0, size, size, dummies(size, dummy_row))

        def decode(size: int) -> StepOutput:
            return program.run(self.buffers.views(size, size), Mix(size, 1))

        graphs = DecodeGraphs(self._card, sizes, prepare, decode)
        graphs.record()
        return graphs


def _sample(logits: torch.Tensor, inputs: StepInput) -> tuple[torch.Tensor, torch.Tensor]:
    return sample(
        logits,
        inputs.temperature,
        inputs.top_k,
        inputs.top_p,
        inputs.min_p,
        inputs.seeds,
        inputs.next_positions,
    )
