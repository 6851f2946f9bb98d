"""The rows of a plan filled with what only the executor knows: last tokens, drafts, positions."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fourstroke.ipc.messages import StepPlan
from fourstroke.ipc.plan import LAST, SAMPLES, StepShape, StepSlot, step_slots
from fourstroke.procs.executor.batch import build_batch
from fourstroke.procs.executor.cursors import Cursors
from fourstroke.procs.executor.work import Work, draws_of, work_of

BLOCK = 4
ROWS = 8


def fresh_slot(drafts: int = 3) -> StepSlot:
    """A slot full of what an earlier step left there."""
    shape = StepShape(ROWS, 64, drafts)
    (slot,) = step_slots(bytearray(b"\x07" * shape.memory_bytes(1)), shape, 1)
    return slot


def fill(slot: StepSlot, *rows: tuple[int, int, int, int, list[int]]) -> StepPlan:
    """A plan of rows (row, start, count or 0, drafts, host tokens); without tokens a row has LAST, and all sample."""
    tokens: list[int] = []
    for place, (row, start, count, drafts, given_tokens) in enumerate(rows):
        slot.row[place], slot.start[place] = row, start
        slot.count[place] = count or len(given_tokens)
        slot.drafts[place], slot.next[place] = drafts, -1
        slot.flags[place] = SAMPLES | (0 if given_tokens else LAST)
        tokens += given_tokens
    slot.tokens[: len(tokens)] = tokens
    return StepPlan(1, 0, len(rows), len(tokens), 0, ())


def cursors_of(last: list[int], drafts: list[list[int]], length: int = 5, most_drafts: int = 3) -> Cursors:
    """Rows 0.. with these last tokens and drafts."""
    cursors = Cursors(ROWS, most_drafts)
    for row, (token, of_row) in enumerate(zip(last, drafts, strict=True)):
        cursors.pending[row, 0], cursors.length[row] = token, length
        cursors.propose(row, np.array(of_row, np.int32))
    return cursors


def tokens_by_row(work: Work) -> list[list[int]]:
    """The tokens of each row, in plan order."""
    return [part.tolist() for part in np.split(work.tokens, work.first[1:])]


def test_rows_are_filled_from_their_last_tokens_and_drafts() -> None:
    """Three rows of three tokens each, all from the executor's memory. (EX-1)"""
    cursors = cursors_of([100, 200, 300], [[11, 12], [21, 22], [31, 32]])
    slot = fresh_slot()
    work = work_of(fill(slot, *((row, 5, 3, 2, []) for row in range(3))), slot, cursors)
    assert tokens_by_row(work) == [[100, 11, 12], [200, 21, 22], [300, 31, 32]]
    assert work.start.tolist() == [5, 5, 5]
    assert (work.given == -1).all()


def test_counts_may_be_ragged() -> None:
    """Rows of one step verify different numbers of drafts. (EX-2, BT-2, RG-25)"""
    drafts = [[11, 12, 13], [21, 22, 23], [31, 32, 33]]
    slot = fresh_slot()
    plan = fill(slot, (0, 5, 1, 0, []), (1, 5, 4, 3, []), (2, 5, 2, 1, []))
    work = work_of(plan, slot, cursors_of([100, 200, 300], drafts))
    assert tokens_by_row(work) == [[100], [200, 21, 22, 23], [300, 31]]
    assert work.drafts.tolist() == [0, 3, 1]


def test_rows_come_in_any_order() -> None:
    """The plan's order is that of the plan, whichever rows it names. (EX-2)"""
    slot = fresh_slot()
    plan = fill(slot, *((row, 5, 1, 0, []) for row in (2, 0, 1)))
    assert tokens_by_row(work_of(plan, slot, cursors_of([10, 20, 30], [[1], [2], [3]]))) == [[30], [10], [20]]


def test_a_row_verifies_the_drafts_that_it_has() -> None:
    """Granted three, with drafts for the first and the third of three rows: the second has its row. (BT-3, EX-2)"""
    grants = [(row, 5, 4, 3, []) for row in range(3)]
    slot = fresh_slot()
    work = work_of(fill(slot, *grants), slot, cursors_of([1, 2, 3], [[11, 12, 13], [], [31, 32, 33]]))
    assert work.count.tolist() == [4, 1, 4]
    assert tokens_by_row(work) == [[1, 11, 12, 13], [2], [3, 31, 32, 33]]
    none = work_of(fill(slot, *grants), slot, cursors_of([1, 2, 3], [[], [], []]))
    assert none.count.tolist() == [1, 1, 1]


@pytest.mark.parametrize("hosts", [(0, 2), (1, 3), (0,), (3,), (0, 1, 2, 3), ()])
def test_host_tokens_stay_where_they_are(hosts: tuple[int, ...]) -> None:
    """Rows with tokens of the host, at any place, keep them, and no neighbour's token leaks in. (EX-3)"""
    given_tokens = {place: [1000 + 10 * place + n for n in range(place + 1)] for place in hosts}
    slot = fresh_slot()
    plan = fill(
        slot, *((row, 5, 2, 1, []) if row not in hosts else (row, 0, 0, 0, given_tokens[row]) for row in range(4))
    )
    work = work_of(plan, slot, cursors_of([10, 20, 30, 40], [[11], [21], [31], [41]]))
    expected = [[10, 11], [20, 21], [30, 31], [40, 41]]
    assert tokens_by_row(work) == [given_tokens.get(place, own) for place, own in enumerate(expected)]
    assert work.given[work.given >= 0].tolist() == list(range(plan.tokens))
    assert slot.tokens[work.given[work.given >= 0]].tolist() == work.tokens[work.given >= 0].tolist()


def test_a_row_starts_where_it_stands() -> None:
    """What the plan says of start and count is the most that it can be; the executor's own count holds."""
    cursors = cursors_of([10], [[11]], length=6)
    slot = fresh_slot()
    work = work_of(fill(slot, (0, 9, 4, 3, [])), slot, cursors)
    assert (work.start.tolist(), work.count.tolist()) == ([6], [2])


def test_a_row_from_another_engine_verifies_the_drafts_of_the_host() -> None:
    """A first token and three drafts, all from the host. (BT-1)"""
    slot = fresh_slot()
    plan = fill(slot, (0, 1, 0, 3, [14, 101, 102, 103]))
    work = work_of(plan, slot, Cursors(ROWS, 3))
    assert tokens_by_row(work) == [[14, 101, 102, 103]]
    draws = draws_of(work.first, work.count, work.drafts, work.samples)
    assert draws.place.tolist() == [0, 1, 2, 3]


def test_rows_that_return_tokens() -> None:
    """A decode does, a last chunk does, a middle chunk does not. (EX-5)"""
    slot = fresh_slot()
    plan = fill(slot, (0, 5, 1, 0, []), (1, 0, 0, 0, [1, 2, 3]), (2, 0, 0, 0, [4, 5]))
    slot.flags[2] = 0
    work = work_of(plan, slot, cursors_of([10], [[]]))
    draws = draws_of(work.first, work.count, work.drafts, work.samples)
    assert draws.rows.tolist() == [0, 1]
    assert draws.place.tolist() == [0, 3]


def test_what_follows_is_known_within_a_chunk_and_from_the_plan_behind_it() -> None:
    """The token after each of a chunk's; none after tokens that are the executor's own."""
    slot = fresh_slot()
    plan = fill(slot, (1, 0, 0, 0, [1, 2, 3]), (0, 5, 2, 1, []), (2, 0, 0, 0, [4, 5]))
    slot.next[:3] = [9, 99, -1]
    work = work_of(plan, slot, cursors_of([10], [[11]]))
    assert work.following(slot).tolist() == [2, 3, 9, -1, -1, 5, -1]


rows_strategy = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.integers(1, 6), st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)),
    min_size=1,
    max_size=ROWS,
)


@given(rows_strategy, st.permutations(range(ROWS)))
@settings(max_examples=150, deadline=None)
def test_a_batch_is_the_work_sorted(rows: list[tuple[bool, bool, int, int, int, int]], numbers: list[int]) -> None:
    """Each token comes once, at its position and in its block; draws are a row's last ones; decodes stand first."""
    slot, cursors = fresh_slot(), Cursors(ROWS, 3)
    tables = np.random.default_rng(0).permutation(ROWS * 5).reshape(ROWS, 5).astype(np.int32)
    planned, expected = [], {}
    for (own, samples, count, granted, ready, start), row in zip(rows, numbers, strict=False):
        cursors.length[row], cursors.pending[row, 0] = start, 500 + row
        cursors.propose(row, np.arange(ready, dtype=np.int32) + 600 + 10 * row)
        if own:
            taken = min(granted, ready) if samples else 0
            planned.append((row, start, 1 + granted, granted, []))
            expected[row] = [500 + row, *range(600 + 10 * row, 600 + 10 * row + taken)], taken
        else:
            taken = min(granted, count - 1) if samples else 0
            planned.append((row, start, 0, granted, [100 * row + n for n in range(count)]))
            expected[row] = [100 * row + n for n in range(count)], taken
    plan = fill(slot, *planned)
    slot.flags[: plan.rows] &= [LAST | samples * SAMPLES for _, samples, *_ in rows]
    batch = build_batch(work_of(plan, slot, cursors), slot, tables, BLOCK)

    assert sorted(batch.order.tolist()) == list(range(plan.rows))
    assert (np.diff((batch.spans.count > 1).astype(int)) >= 0).all()
    for place, (order, row, first, count) in enumerate(
        zip(batch.order, batch.rows, batch.spans.first, batch.spans.count, strict=True)
    ):
        own, samples, *_, start = rows[order]
        part = slice(first, first + count)
        tokens, drafts = expected[int(row)]
        assert batch.tokens[part].tolist() == tokens
        assert batch.positions[part].tolist() == list(range(start, start + count))
        assert batch.slots[part].tolist() == [
            int(tables[row, position // BLOCK]) * BLOCK + position % BLOCK for position in range(start, start + count)
        ]
        assert (batch.given[part] >= 0).all() == (not own)
        draws = batch.draws.place[batch.draws.owner == place]
        assert draws.tolist() == (list(range(first + count - 1 - drafts, first + count)) if samples else [])
