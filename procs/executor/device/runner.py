"""Runs step plans on a device, one step ahead of their results. See loop.PlanRunner.

`launch` brings a step's columns to the device, starts everything that it computes, and a copy of the sampled tokens
back; nothing waits. The next step may be launched at once: the tokens that it goes on from are in the device's memory,
and all else follows from the plan. `collect` answers steps whose tokens have arrived.

Decode steps are replayed from graphs where one fits; others are launched kernel by kernel. Rows that want what the
device's sampler does not do (biases, masks, log-probabilities, ...) are sampled on the host by the same code as on a
CPU: a step that has some is waited for in `launch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ....ipc.messages import Hello, NewRow, RowError, Sampling, StepDone, StepPlan
from ....ipc.plan import StepSlot
from ...process import HasFileno
from ..batch import Batch, build_batch
from ..head import Head
from ..plan_check import checked_plan
from ..rows import Rows
from ..steering import NOT_FINITE
from ..unknown import replace_unknown
from ..verify import Flags, Indices, Sampled, Verdict, write_results
from ..work import Draws, work_of
from .buffers import StepBuffers
from .card import Card, Ended
from .graphs import DecodeGraphs
from .padding import Columns, changes_of, columns_of, padded
from .program import DeviceRows, Mix, Program, StepOutput
from .waiter import Waiter


@dataclass(frozen=True, slots=True)
class _Open:
    """A step that was launched. `by_host`: rows that sample, by their place in the batch, and what the host sampled."""

    plan: StepPlan
    slot: StepSlot
    batch: Batch
    errors: dict[int, str]
    by_host: tuple[Indices, Sampled]
    ended: Ended


class DeviceRunner:
    """A loaded model on a device, with its rows and the step slots; see the module's docstring."""

    def __init__(
        self,
        card: Card,
        program: Program,
        graphs: DecodeGraphs[StepOutput],
        buffers: StepBuffers,
        device_rows: DeviceRows,
        rows: Rows,
        head: Head,
        slots: Sequence[StepSlot],
        hello: Hello,
    ) -> None:
        self.hello = hello
        self._card = card
        self._program = program
        self._graphs = graphs
        self._buffers = buffers
        self._device_rows = device_rows
        self._rows = rows
        self._head = head
        self._slots = slots
        self._dummy_row = len(rows.tables)
        self._by_host = np.zeros(len(rows.tables), np.bool_)
        shape = (len(slots), 2, len(rows.tables))
        self._results = torch.zeros(shape, dtype=torch.int64, device=card.device)
        self._arrived = card.host_memory(self._results.nbytes).view(torch.int64).view(shape)
        self._waiter = Waiter()
        self._open: deque[_Open] = deque()

    @property
    def ends(self) -> HasFileno:
        return self._waiter

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        slot = checked_plan(plan, self._slots, self.hello, self._rows.cursors)
        batch, changes = self._take(plan, slot)
        errors = {chunk.index: "the model takes text only" for chunk in plan.media if chunk.images}
        errors |= replace_unknown(batch, self.hello.vocab_size)
        output = self._start(plan, batch, changes)
        places, sampled = self._sample_on_host(batch, output.hidden, slot)
        errors |= {int(batch.order[at]): self._rows.why_failed(batch.rows[at]) for at in places[sampled.failed]}
        scored = self._head.score_prompts(batch, output.hidden, slot)
        errors |= dict.fromkeys(scored.tolist(), NOT_FINITE)
        ended = self._send_back(plan.slot, output.results)
        self._open.append(_Open(plan, slot, batch, errors, (places, sampled), ended))
        self._waiter.watch(ended)

    def collect(self) -> StepDone | None:
        self._waiter.clear()
        if not self._open or not self._open[0].ended.done():
            return None
        step = self._open.popleft()
        errors = step.errors | self._write_results(step)
        return StepDone(
            step.plan.step, step.plan.slot, tuple(RowError(index, errors[index]) for index in sorted(errors))
        )

    def _take(self, plan: StepPlan, slot: StepSlot) -> tuple[Batch, Columns]:
        """Put a plan's changes into the rows; the batch that it asks for, and the changes of block tables."""
        rows = self._rows
        for new in plan.new_rows:
            rows.admit(new)
            self._by_host[new.row] = not _is_plain(new)
        told = slice(0, plan.blocks)
        changed = slot.block_row[told], slot.block_index[told]
        rows.set_blocks(*changed, slot.block_id[told])
        batch = build_batch(work_of(plan, slot, rows.cursors), slot, rows.tables, self.hello.block_size)
        rows.cursors.length[batch.rows] = batch.spans.length
        return batch, changes_of(rows.tables, *changed)

    def _start(self, plan: StepPlan, batch: Batch, changes: Columns) -> StepOutput:
        """Start what a step computes: by a graph if all rows decode and one holds them."""
        columns = columns_of(batch, self._rows.rules.of(batch.rows), self._dummy_row)
        mix = Mix(batch.spans.decodes, int(batch.spans.count.max()))
        size = self._graphs.fit(len(batch.rows)) if mix.most_tokens == 1 else None
        if size is not None:
            columns = padded(columns, size, self._dummy_row)
        inputs = self._buffers.send(plan.slot, len(columns["rows"]), len(columns["tokens"]), columns | changes)
        self._device_rows.change(inputs)
        return self._program.run(inputs, mix) if size is None else self._graphs.replay(size)

    def _sample_on_host(self, batch: Batch, hidden: torch.Tensor, slot: StepSlot) -> tuple[Indices, Sampled]:
        """Sample the rows that the device cannot, and tell it their tokens."""
        draws = _only(batch.draws, self._by_host[batch.rows[batch.draws.rows]])
        if not len(draws.rows):
            return draws.rows, Sampled(np.zeros(0, np.int64), np.zeros(0, np.bool_))
        sampled = self._head.sample(replace(batch, draws=draws), hidden, slot)
        device = self._card.device
        rows, tokens = (torch.from_numpy(part).to(device) for part in (batch.rows[draws.rows], sampled.tokens))
        self._device_rows.last.index_copy_(0, rows, tokens)
        return draws.rows, sampled

    def _send_back(self, slot: int, results: torch.Tensor) -> Ended:
        """Let a step's results [2, rows] come to the host: by a copy that the next step does not overwrite."""
        self._results[slot, :, : results.shape[1]].copy_(results)
        return self._card.fetch(self._results[slot], self._arrived[slot])

    def _write_results(self, step: _Open) -> dict[int, str]:
        """Leave the tokens of a step in its slot; the causes of rows that have none, by their places in the plan."""
        batch, rows = step.batch, step.batch.draws.rows
        tokens, failed = self._arrived[step.plan.slot].numpy().copy()
        places, sampled = step.by_host
        tokens[places], failed[places] = sampled.tokens, sampled.failed
        ones = np.ones(len(rows), np.int64)
        verdict = Verdict(tokens[rows, None], ones, failed[rows] != 0)
        into = batch.order[rows]
        write_results(step.slot, step.plan.rows, into, verdict, np.zeros_like(ones))
        failed = zip(into[verdict.failed].tolist(), batch.rows[rows[verdict.failed]].tolist(), strict=True)
        return {place: self._rows.why_failed(row) for place, row in failed}


def _is_plain(new: NewRow) -> bool:
    """Whether the device's sampler does all that a row wants. Compared as a whole, so that no new wish is missed."""
    asked = new.sampling
    plain = Sampling(asked.temperature, asked.top_k, asked.top_p, asked.min_p)
    return new == NewRow(new.row, new.seed, plain, state_slot=new.state_slot)


def _only(draws: Draws, wanted: Flags) -> Draws:
    """The draws of some of the rows that sample; each row has one."""
    rows = draws.rows[wanted]
    return Draws(rows, draws.turns[wanted], rows, draws.turn[wanted], draws.place[wanted])
