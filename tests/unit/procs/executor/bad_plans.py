"""Plans that cannot be run: a good plan with one wrong number each, and what becomes of a runner that gets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fourstroke.common.errors import BadMessage
from fourstroke.ipc.messages import StepPlan
from fourstroke.ipc.plan import LAST, SAMPLES, StepSlot

from .driver import Driver, Entry

PROMPTS = [5, 6, 7], [8, 9, 10]
DECODE, CHUNK = range(2)
"""The rows of the good plan: one that goes on from its last token, and the prompt of a new one."""

Spoil = Callable[[StepSlot, StepPlan, Driver], StepPlan]
"""Makes a good plan, which lies in its slot, a bad one."""


def _number(column: str, place: int, number: int | Callable[[Driver], int]) -> Spoil:
    def spoil(slot: StepSlot, plan: StepPlan, driver: Driver) -> StepPlan:
        getattr(slot, column)[place] = number(driver) if callable(number) else number
        return plan

    return spoil


def _last_of_a_new_row(slot: StepSlot, plan: StepPlan, _driver: Driver) -> StepPlan:
    slot.flags[CHUNK], slot.count[CHUNK] = LAST | SAMPLES, 1
    return replace(plan, tokens=0)


def _new_row(number: int) -> Spoil:
    def spoil(_slot: StepSlot, plan: StepPlan, _driver: Driver) -> StepPlan:
        return replace(plan, new_rows=(replace(plan.new_rows[0], row=number), *plan.new_rows[1:]))

    return spoil


def _rows(driver: Driver) -> int:
    return driver.config.max_num_seqs


def _length(driver: Driver) -> int:
    return int(driver.runner.hello.max_model_len)


def _entries(driver: Driver) -> int:
    return -(-_length(driver) // driver.config.block_size)


def _blocks(driver: Driver) -> int:
    return int(driver.runner.hello.num_blocks)


def _out_of_range() -> dict[str, tuple[Spoil, str]]:
    ranges = (
        ("row", CHUNK, _rows, "row that is not there"),
        ("block_row", 0, _rows, "row that is not there"),
        ("block_index", 0, _entries, "end of a block table"),
        ("block_id", 0, _blocks, "block that is not there"),
        ("start", CHUNK, _length, "position beyond"),
    )
    return {
        f"{column} {number if isinstance(number, int) else 'just above'}": (_number(column, place, number), word)
        for column, place, bound, word in ranges
        for number in (bound, 2**31 - 1, -1, -(2**31))
    }


BAD: dict[str, tuple[Spoil, str]] = {
    **_out_of_range(),
    "no rows": (lambda _slot, plan, _driver: replace(plan, rows=0), "0 rows"),
    "a new row above": (_new_row(2**40), "a plan of 2 rows"),
    "a new row below": (_new_row(-1), "a plan of 2 rows"),
    "no slot": (lambda _slot, plan, _driver: replace(plan, slot=99), "slot 99"),
    "one token fewer": (lambda _slot, plan, _driver: replace(plan, tokens=plan.tokens - 1), "other tokens"),
    "one token more": (_number("count", CHUNK, 4), "other tokens"),
    "a row twice": (_number("row", CHUNK, 0), "twice"),
    "a row without tokens": (_number("count", CHUNK, 0), "without tokens"),
    "a negative count": (_number("count", CHUNK, -(2**31)), "without tokens"),
    "a huge count": (_number("count", CHUNK, 2**31 - 1), "tokens beyond"),
    "too large a step": (_number("count", CHUNK, lambda driver: driver.config.max_num_batched_tokens), "may have"),
    "an end beyond": (_number("start", CHUNK, lambda driver: _length(driver) - 2), "tokens beyond"),
    "a start before the last token": (_number("start", DECODE, 2), "below the most"),
    "the last token of a new row": (_last_of_a_new_row, "sampled nothing"),
    "negative drafts": (_number("drafts", CHUNK, -1), "more drafts than tokens"),
    "as many drafts as tokens": (_number("drafts", CHUNK, 3), "more drafts than tokens"),
    "more drafts than are made": (_number("drafts", CHUNK, 2), "row may have"),
}
"""How a plan is spoiled, and a word of the answer. The driver makes no drafts."""


def run_bad_plans(driver: Driver) -> None:
    """All are refused in words, and the good plan then gives what it gives by itself."""
    alone = [driver.generate([PROMPTS[row]], tokens)[0] for row, tokens in ((DECODE, 2), (CHUNK, 1))]
    driver.reset()
    requests = [driver.add(PROMPTS[DECODE])]
    driver.prefill(requests)
    requests.append(driver.add(PROMPTS[CHUNK]))
    entries = [Entry(requests[DECODE], 1, last=True), Entry(requests[CHUNK], 3)]
    plan = driver.plan(entries)
    slot = driver.slots[plan.slot]
    columns = {name: getattr(slot, name) for name in slot.__slots__}
    good = {name: column.copy() for name, column in columns.items()}
    for spoil, word in BAD.values():
        with pytest.raises(BadMessage, match=word):
            driver.runner.run(spoil(slot, plan, driver))
        for name, column in columns.items():
            np.copyto(column, good[name])
    driver.settle(entries, driver.runner.run(plan))
    assert [request.generated for request in requests] == alone
