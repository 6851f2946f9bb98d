"""Runs step plans: the executor without wires.

Plans are run in the order in which they come; the results of one are in `rows` before the next begins.
So a plan may name tokens and drafts that the scheduler has not seen yet (flag LAST). Nothing that a plan's
tokens or a row's numbers hold can raise: such rows fail one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ...common.config import Config
from ...common.machine import usable_cores
from ...ipc.messages import Hello, RowError, StepDone, StepPlan
from ...ipc.plan import StepSlot
from .batch import Batch, build_batch
from .compute import Compute
from .cpu import choose_kernels, load_compute, loaded_bytes
from .draft.prompt_lookup import PromptLookup
from .dtypes import torch_dtype
from .head import Head
from .machine import available_memory
from .plan_check import checked_plan
from .rows import Rows
from .sizing import size_cache
from .steering import NOT_FINITE
from .structure import grammars_of
from .unknown import replace_unknown
from .verify import Indices, verify, write_results
from .weights.checkpoint import open_checkpoint
from .work import work_of


class Runner:
    """A loaded model with its KV cache and rows, and the step slots it reads from and writes to."""

    def __init__(
        self,
        compute: Compute,
        rows: Rows,
        slots: Sequence[StepSlot],
        hello: Hello,
        lookup: PromptLookup | None,
    ) -> None:
        self.hello = hello
        self._slots = slots
        self._compute = compute
        self._rows = rows
        self._head = Head(compute, rows, hello.vocab_size)
        self._lookup = lookup

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepDone:
        """Run one step and leave its results in its slot. Raises BadMessage for a plan that is none."""
        slot = checked_plan(plan, self._slots, self.hello, self._rows.cursors)
        batch = self._take(plan, slot)
        errors = {chunk.index: "the model takes text only" for chunk in plan.media if chunk.images}
        errors |= replace_unknown(batch, self.hello.vocab_size)
        hidden = self._forward(batch)
        errors |= self._sample(plan, slot, batch, hidden)
        scored = self._head.score_prompts(batch, hidden, slot)
        errors |= dict.fromkeys(scored.tolist(), NOT_FINITE)
        return StepDone(plan.step, plan.slot, tuple(RowError(index, errors[index]) for index in sorted(errors)))

    def _take(self, plan: StepPlan, slot: StepSlot) -> Batch:
        """Put a plan's changes into the rows; the batch that it asks for."""
        for new in plan.new_rows:
            self._rows.admit(new)
        changes = slice(0, plan.blocks)
        self._rows.set_blocks(slot.block_row[changes], slot.block_index[changes], slot.block_id[changes])
        work = work_of(plan, slot, self._rows.cursors)
        return build_batch(work, slot, self._rows.tables, self.hello.block_size)

    def _forward(self, batch: Batch) -> torch.Tensor:
        if self._lookup is not None:
            self._lookup.remember(batch.slots, batch.tokens)
        return self._compute.forward(batch)

    def _sample(self, plan: StepPlan, slot: StepSlot, batch: Batch, hidden: torch.Tensor) -> dict[int, str]:
        """Sample the rows that want it, and move all rows on; the causes of those that failed, by their places."""
        cursors, draws = self._rows.cursors, batch.draws
        sampled = self._head.sample(batch, hidden, slot)
        verdict = verify(sampled, batch.tokens[draws.place], draws.turns, cursors.most_drafts)
        rows, places = batch.rows[draws.rows], batch.order[draws.rows]
        cursors.length[batch.rows] = batch.spans.length
        cursors.advance(rows, batch.drafts[draws.rows], verdict)
        self._propose(rows)
        write_results(slot, plan.rows, places, verdict, cursors.drafted[rows])
        failed = zip(places[verdict.failed].tolist(), rows[verdict.failed].tolist(), strict=True)
        return {place: self._rows.why_failed(row) for place, row in failed}

    def _propose(self, rows: Indices) -> None:
        """Have drafts ready for the next step of these rows."""
        if self._lookup is None:
            return
        cursors = self._rows.cursors
        for row in rows.tolist():
            last = int(cursors.pending[row, 0])
            cursors.propose(row, self._lookup.propose(self._rows.tables[row], int(cursors.length[row]), last))


def load_runner(config: Config, slots: Sequence[StepSlot], progress: Callable[[float], None]) -> Runner:
    """Open the model on the CPU, size its cache, load the weights. Raises ModelError, ConfigError or ResourceError.

    `progress` is told what part of the weights is loaded, 0..1.
    """
    cores = config.threads_of_engine(usable_cores())
    checkpoint = open_checkpoint(Path(config.model))
    model_config, dtype = checkpoint.config, torch_dtype(config.dtype)
    kernels = choose_kernels(config, checkpoint)
    size = loaded_bytes(config, checkpoint, kernels)
    sizes = size_cache(config, model_config, size, dtype.itemsize, available_memory())
    grammars = grammars_of(config.model, model_config)
    compute = load_compute(config, checkpoint, kernels, sizes, cores, progress)
    drafts = config.num_speculative_tokens
    rows = Rows(config.max_num_seqs, -(-sizes.max_model_len // config.block_size), grammars, drafts)
    lookup = PromptLookup(sizes.num_blocks, config.block_size, drafts) if drafts else None
    hello = Hello(
        num_blocks=sizes.num_blocks,
        block_size=config.block_size,
        max_model_len=sizes.max_model_len,
        vocab_size=model_config.vocab_size,
        eos_token_ids=model_config.eos_token_ids,
    )
    return Runner(compute, rows, slots, hello, lookup)
