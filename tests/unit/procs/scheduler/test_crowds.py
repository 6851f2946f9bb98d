"""What a step looks at, however many wait, run or are cached: calls are counted, and no clock is read.

The set-up is the driver's: block 4, 10 blocks, 4 rows, budget 64, model length 64, depth 1, unless a test says
otherwise.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.procs.scheduler.cache.blocks import BlockPool
from fourstroke.procs.scheduler.planning.admission import Admission
from fourstroke.procs.scheduler.planning.preemption import MAX_PREEMPTIONS
from fourstroke.procs.scheduler.planning.prefills import MAX_PASSED_OVER
from fourstroke.procs.scheduler.request import Phase
from fourstroke.procs.scheduler.rows import RowTable
from fourstroke.procs.scheduler.waiting import PORTION, WaitingLine

from .driver import Driver


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Counter[str]:
    """How often a method is called from now on, under its name."""
    calls: Counter[str] = Counter()
    method = getattr(owner, name)

    def counted(*args: object, **fields: object) -> object:
        calls[name] += 1
        return method(*args, **fields)

    monkeypatch.setattr(owner, name, counted)
    return calls


# Those who wait


def test_a_plan_passes_over_so_many_that_wait_for_a_prefix_and_no_more(monkeypatch):
    """All wait for what the first computes; none is forgotten, and who came first is admitted first."""
    waiters = 3 * MAX_PASSED_OVER
    driver = Driver(cache=True, blocks=400, rows=8, long_prefill_threshold=4)
    prefix = list(range(20, 45))
    driver.submit(0, prefix, max_tokens=1)
    driver.plan()
    driver.settle()
    for rid in range(1, waiters + 1):
        driver.core.submit(driver.make(rid, [*prefix, 100 + rid], max_tokens=1)[0], 0.0)
    probes = count_calls(monkeypatch, Admission, "probe")
    driver.plan()
    driver.settle()
    assert probes["probe"] == MAX_PASSED_OVER
    driver.run()
    assert list(driver.opened) == list(range(waiters + 1))


def test_a_plan_passes_over_so_many_that_are_too_long_and_no_more(monkeypatch):
    """Prompts that go whole and do not fit beside two decodes; each is served in the end."""
    waiters = MAX_PASSED_OVER + 3
    driver = Driver(blocks=400, chunked=False)
    for rid in (0, 1):
        driver.submit(rid, [20, 21], max_tokens=60)
    driver.plan()
    driver.settle()
    for rid in range(2, waiters + 2):
        driver.core.submit(driver.make(rid, [20] * 63, max_tokens=1)[0], 0.0)
    probes = count_calls(monkeypatch, Admission, "probe")
    driver.plan()
    driver.settle()
    assert probes["probe"] == MAX_PASSED_OVER
    driver.run()
    assert len(driver.ended) == waiters + 2


@given(
    priorities=st.lists(st.integers(-1, 1), max_size=3 * PORTION),
    leaving=st.randoms(use_true_random=False),
)
def test_a_walk_visits_all_while_those_it_visits_leave(priorities, leaving):
    """In the order of admission, each once, across the portions."""
    line, driver = WaitingLine(), Driver()
    requests = [driver.make(rid, [20], priority=priority)[0] for rid, priority in enumerate(priorities)]
    for request in requests:
        request.arrival = request.rid
        line.add(request)
    visited, stayed = [], 0
    for request in line.walk():
        visited.append(request)
        if leaving.random() < 0.5:
            line.remove(request)
        else:
            stayed += 1
    assert visited == sorted(requests, key=lambda one: (one.priority, one.rid))
    assert len(line) == stayed == len(list(line.walk()))


def test_a_walk_without_the_fresh_looks_at_none_of_them():
    """While the fresh have to wait, the preempted are found at once."""
    line, driver = WaitingLine(), Driver()
    for rid, phase in enumerate([Phase.FRESH, Phase.PREEMPTED, Phase.FRESH]):
        (request,) = driver.make(rid, [20])
        request.phase = phase
        line.add(request)
    assert [one.rid for one in line.walk(fresh=False)] == [1]
    assert [one.rid for one in line.walk()] == [1, 0, 2]


# Those who run


def shortage(rows: int) -> Driver:
    """So many decodes, each of which needs a block in the next step, and no block is free."""
    driver = Driver(blocks=rows, rows=rows, budget=4 * rows)
    for rid in range(rows):
        driver.submit(rid, [20 + rid, 21, 22, 23])
    driver.plan()
    driver.settle()
    assert driver.core.pool.free == 0
    return driver


def test_a_shortage_looks_at_each_row_a_few_times_however_many_need_a_block(monkeypatch):
    """Half of 64 rows give their block to the other half; the order of the victims is made once."""
    driver = shortage(64)
    looks = count_calls(monkeypatch, RowTable, "request")
    driver.core.plan(0.0)
    assert driver.core.statistics.preemptions == 32
    assert looks["request"] <= 4 * 64


fates = st.lists(
    st.tuples(st.integers(0, MAX_PREEMPTIONS), st.integers(-1, 1), st.integers(0, 3), st.booleans(), st.booleans()),
    min_size=6,
    max_size=6,
)


@given(fates=fates)
def test_victims_are_the_worst_of_those_left_each_time(fates):
    """Often preempted last, then worst priority, least lost, youngest; none in the step, none pinned."""
    driver = shortage(6)
    table, kept, left = driver.core.table, set(), {}
    for rid, (preemptions, priority, committed, pinned, is_kept) in enumerate(fates):
        request = driver.request(rid)
        request.preemptions, request.priority = preemptions, priority
        table.committed[request.row], table.pinned[request.row] = committed, pinned
        kept |= {request.row} if is_kept else set()
        if not pinned and not is_kept:
            left[request.row] = (preemptions >= MAX_PREEMPTIONS, -priority, committed, -rid)
    assert list(driver.core._preemption.victims(kept)) == sorted(left, key=left.__getitem__)


def test_what_comes_to_be_kept_is_no_victim():
    """A row that was put into the step after the order was made."""
    driver, kept = shortage(3), set()
    victims = driver.core._preemption.victims(kept)
    assert next(victims) == driver.request(2).row
    kept.add(driver.request(1).row)
    assert list(victims) == [driver.request(0).row]


def test_rows_release_the_deepest_block_of_each_first(monkeypatch):
    """One long context among short ones: as many entries are read as there are blocks."""
    driver = Driver(blocks=40)
    for rid, length in enumerate([3, 40, 9]):
        driver.submit(rid, [20 + rid] * length)
    driver.plan()
    table = driver.core.table
    rows = np.array([driver.request(rid).row for rid in (2, 0, 1)])
    expected = [block for row in rows for block in table.tables[row, : table.blocks[row]][::-1].tolist()]
    released = []
    monkeypatch.setattr(BlockPool, "release", lambda pool, ids: released.extend(ids.tolist()))
    table.release_many(rows)
    assert released == expected


def test_stop_ids_are_looked_up_and_not_searched():
    """A request keeps them as a set; a thousand cost what one costs."""
    ids = tuple(range(500, 1500))
    driver = Driver()
    driver.submit(1, [20], stop_token_ids=ids)
    assert driver.request(1).stop_ids == frozenset(ids)
    driver.plan()
    driver.settle(999)
    assert (driver.ended[1].finish, driver.ended[1].stop_token) == (Finish.STOP, 999)


def test_choices_without_a_cache_publish_their_prompt_and_nothing_after(monkeypatch):
    """Their generated blocks never have digests, so that a step of decodes has nothing to publish."""
    driver = Driver(blocks=40)
    driver.submit((1, 2, 3), range(20, 30), max_tokens=40)
    for _ in range(3):
        driver.turn()
    published = count_calls(monkeypatch, BlockPool, "publish")
    for _ in range(20):
        driver.turn()
    assert published["publish"] <= 1  # two choices found the prompt there and have looked behind it once
    driver.core.preempt(3)
    driver.run()
    assert driver.outputs[1] == driver.outputs[2] == driver.outputs[3]


# What is cached


class Looks(dict):
    """Counts how often it is searched."""

    count = 0

    def __contains__(self, key: object) -> bool:
        self.count += 1
        return super().__contains__(key)


def test_checkpoints_are_found_and_made_without_a_walk_through_the_prompt(monkeypatch):
    """A hit of 200 blocks is looked up by the checkpoints that exist; a chunk of 4 blocks looks at its own."""
    driver = Driver(
        cache=True, blocks=300, budget=1000, max_model_len=1000, state_slots=4, state_checkpoint_interval=400
    )
    text = range(20, 820)
    driver.submit(1, text, max_tokens=1)
    driver.run()
    (request,) = driver.make(2, [*text, 7])
    checkpoints, finds = driver.core._admitter._checkpoints, count_calls(monkeypatch, BlockPool, "find")
    digests = count_calls(monkeypatch, BlockPool, "digest")
    assert [checkpoints.usable_hits(request, hits) for hits in (99, 100, 199, 200)] == [0, 100, 100, 100]
    assert not finds and digests["digest"] <= 4 * len(list(driver.core.state_slots.checkpoints()))
    checkpoints._wishes = Looks({request.digests[51]: None, request.digests[190]: None})
    assert checkpoints.cut(request, 200, 16) == 8
    assert checkpoints._wishes.count == 4
