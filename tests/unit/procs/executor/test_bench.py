"""`fourstroke bench executor`: the bare loop computes what it says it computes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fourstroke.common.errors import ConfigError
from fourstroke.ipc.plan import LAST, SAMPLES
from fourstroke.launch.bench.executor import Work, measure
from fourstroke.procs.executor.bench.driver import Driver

from .driver import executor_config
from .tiny import CONTEXT


def test_the_program(tiny_model: Path) -> None:
    """Started as a process, it gives four figures for each number of rows, and two for the lone prompt."""
    config = executor_config(tiny_model, max_model_len=CONTEXT)
    figures = list(measure(config, Work([1, 3], 20, 4, 10, 2)))
    assert [(figure.case, figure.what) for figure in figures] == [
        *((f"{rows} rows", what) for rows in (1, 3) for what in ("all", "output", "step", "decode")),
        ("prefill-10", "time"),
        ("prefill-10", "rate"),
    ]
    assert all(figure.p50 > 0 for figure in figures)
    assert {figure.samples for figure in figures if figure.what == "step"} == {2 * 3}


def test_the_plans(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts in chunks that fill the budget, each row samples once after its prompt and once in each decode, and
    no two rows share a block.
    """
    driver = Driver(executor_config(tiny_model, max_model_len=CONTEXT, max_num_batched_tokens=32), 3, 30)
    computed, sampled, blocks = np.zeros(3, int), np.zeros(3, int), {}
    run = driver._runner.run

    def look(plan):  # type: ignore[no-untyped-def]
        slot = driver._slots[plan.slot]
        assert plan.tokens <= 32
        for place in range(plan.rows):
            row = slot.row[place]
            assert slot.start[place] == computed[row]
            computed[row] += slot.count[place]
            sampled[row] += bool(slot.flags[place] & SAMPLES)
            assert bool(slot.flags[place] & LAST) == (slot.start[place] >= 20)
        for place in range(plan.blocks):
            blocks[int(slot.block_row[place]), int(slot.block_index[place])] = int(slot.block_id[place])
        return run(plan)

    monkeypatch.setattr(driver._runner, "run", look)
    driver.prefill(3, 20)
    assert computed.tolist() == [20] * 3 and sampled.tolist() == [1] * 3
    for position in range(20, 30):
        driver.decode(3, position)
    assert computed.tolist() == [30] * 3 and sampled.tolist() == [11] * 3
    assert len(set(blocks.values())) == len(blocks) == 3 * -(-30 // 16)


@pytest.mark.parametrize("changes", [{"max_num_seqs": 2}, {"num_blocks": 5}, {"max_model_len": 29}])
def test_work_that_does_not_fit(tiny_model: Path, changes: dict[str, int]) -> None:
    """It is refused in words."""
    config = dataclasses.replace(executor_config(tiny_model, max_model_len=CONTEXT), **changes)
    with pytest.raises(ConfigError, match="3 rows"):
        Driver(config, 3, 30)
