"""Whoever listens to the events knows the cache, whatever happened to requests, to the publisher and on the way."""

from __future__ import annotations

import random

import pytest

from fourstroke.ipc.event_codec import decode_batch
from fourstroke.ipc.events import Cleared, Removed

from .publishing import Publishing, Subscriber, cached
from .ring import Ring

SHARED = [7] * 30


def made(publishing: Publishing, **ring: object) -> Ring:
    return Ring(announcer=publishing.announcer, publish_events=True, **ring)


def settle(ring: Ring, publishing: Publishing) -> None:
    """Let the last requests end and the last events arrive."""
    ring.run()
    for _ in range(50):
        publishing.made.now += 1
        ring.turn_scheduler()
        publishing.turn.run()


def check(ring: Ring, publishing: Publishing) -> None:
    """Both who was there and who comes now have exactly what is cached, by hashes that fit their content."""
    for index in (publishing.listener(), publishing.late_joiner()):
        assert index.hashes() == cached(ring)
        assert index.verify() == []


def events_of(publishing: Publishing) -> list:
    return [event for _, payload in publishing.made.live.sent for event in decode_batch(payload).events]


@pytest.mark.parametrize("form", ["map", "array"])
def test_prompts_generated_text_salts_and_siblings(form):
    """What requests leave behind is told, salted and unsalted, once for all choices of a prompt."""
    publishing = Publishing(form=form)
    ring = made(publishing, blocks=400)
    ring.submit(SHARED, max_tokens=20)
    ring.submit(SHARED, max_tokens=20, cache_salt="s1")
    ring.submit([9] * 21, max_tokens=9, n=3, temperature=1.0, seed=5)
    settle(ring, publishing)
    check(ring, publishing)
    index = publishing.listener()
    assert index.match(SHARED) == index.match(SHARED, salt="s1") == {0: 28}
    assert index.match([9] * 21) == {0: 20}
    assert index.match(SHARED, salt="other") == {}


def test_aborted_preempted_and_ended_requests_say_nothing():
    """Their blocks stay where they are; a small pool evicts, and that is told."""
    publishing = Publishing()
    ring = made(publishing, blocks=24)
    requests = [ring.submit([20 + number] * (3 + 5 * number), max_tokens=40) for number in range(8)]
    for _ in range(30):
        ring.turn()
        publishing.turn.run()
    ring.table.abort(requests[0].id)
    settle(ring, publishing)
    assert ring.scheduler.core.statistics.preemptions > 0
    assert any(isinstance(event, Removed) for event in events_of(publishing))
    check(ring, publishing)


def test_a_reset_is_told_at_once():
    """Also when nothing runs; afterwards nobody knows of anything."""
    publishing = Publishing()
    ring = made(publishing)
    ring.submit(SHARED, max_tokens=4)
    settle(ring, publishing)
    assert publishing.listener().hashes()
    ring.submitter.reset_cache(10_000, False)
    ring.turn_scheduler()
    publishing.turn.run()
    assert events_of(publishing)[-1] == Cleared()
    assert publishing.listener().hashes() == cached(ring) == set()


def test_another_publisher_is_told_everything():
    """One that is killed loses what it knew and what was on its way; the next begins at 0 and has it all again."""
    publishing = Publishing()
    ring = made(publishing, blocks=400)
    for number in range(6):
        ring.submit([30 + number] * 17, max_tokens=8)
        for _ in range(10):
            ring.turn()
        if number % 2:
            publishing.start()
        publishing.turn.run()
    settle(ring, publishing)
    assert publishing.incarnation == 4
    assert publishing.made.live.sent[0][0] == 0
    check(ring, publishing)
    ring.submit(SHARED, max_tokens=4)
    settle(ring, publishing)
    check(ring, publishing)


@pytest.mark.parametrize("arrived", [True, False])
def test_another_scheduler_begins_with_cleared(arrived):
    """The one before was killed: what it told is void, also what was on its way, and the publisher goes on."""
    publishing = Publishing()
    ring = made(publishing)
    ring.submit(SHARED, max_tokens=4)
    if arrived:
        settle(ring, publishing)
    else:
        ring.run()
    publishing.start_scheduler(life=1)
    again = made(publishing)
    again.turn_scheduler()
    publishing.turn.run()
    assert publishing.listener().hashes() == set()
    again.submit([5] * 13, max_tokens=4)
    settle(again, publishing)
    assert publishing.listener().match(SHARED) == {}
    assert (events_of(publishing).count(Cleared()), publishing.turn._inbox.bad_frames) == (1 + arrived, 0)
    check(again, publishing)


@pytest.mark.parametrize("seed", range(12))
def test_any_history(seed):
    """Prompts that share prefixes, aborts, resets, a publisher that stalls behind a short queue and dies: in the end
    the readers are right, and what was dropped was told again.
    """
    dice = random.Random(seed)
    publishing = Publishing(queue=dice.choice([1, 3, 1000]), capacity=dice.choice([3, 1000]))
    ring = made(publishing, blocks=dice.choice([24, 64]), rows=4)
    for number in range(40):
        tokens = [dice.randrange(10, 13)] * dice.randint(1, 20) + [dice.randrange(10, 40)] * dice.randint(1, 8)
        request = ring.submit(tokens, max_tokens=dice.randint(1, 12), cache_salt=dice.choice([None, None, "s"]))
        for _ in range(dice.randint(0, 8)):
            ring.turn()
            if dice.random() < 0.5:
                publishing.turn.run()
        if dice.random() < 0.1:
            ring.table.abort(request.id)
        if dice.random() < 0.05:
            ring.submitter.reset_cache(10_000 + number, True)
        if dice.random() < 0.05:
            publishing.start()
    settle(ring, publishing)
    check(ring, publishing)
    row = publishing.scheduler_row
    assert row["kv_event_resyncs"] > 1 or not row["kv_event_dropped_channel"]


@pytest.mark.parametrize("seed", range(16))
def test_any_deaths(seed):
    """Schedulers and publishers are killed at any time, frames arrive as garbage, one reader stalls, one misses
    batches, one comes late: in the end all know what the last scheduler has cached, and nothing else.
    """
    dice = random.Random(seed)
    publishing = Publishing(queue=dice.choice([1, 4, 1000]), capacity=dice.choice([3, 1000]), heartbeat_s=5.0)
    blocks, lives = dice.choice([24, 64]), 0
    ring = made(publishing, blocks=blocks, rows=4)
    reader, stalled = Subscriber(publishing), Subscriber(publishing)
    for _ in range(40):
        tokens = [dice.randrange(10, 13)] * dice.randint(1, 20) + [dice.randrange(10, 40)] * dice.randint(1, 8)
        ring.submit(tokens, max_tokens=dice.randint(1, 12))
        for _ in range(dice.randint(0, 8)):
            ring.turn()
            publishing.made.now += 0.1
            if dice.random() < 0.05:
                publishing.garble()
            if dice.random() < 0.6:
                publishing.turn.run()
            if dice.random() < 0.4:
                reader.read(missed=dice.choice([0, 0, 1, 2]))
        if dice.random() < 0.15:
            lives += 1
            publishing.start_scheduler(lives)
            ring = made(publishing, blocks=blocks, rows=4)
        if dice.random() < 0.1:
            publishing.start()
        if dice.random() < 0.1:
            stalled.read()
    settle(ring, publishing)
    check(ring, publishing)
    assert publishing.waiting == 0
    for one in (reader, stalled):
        one.read()
        assert one.index.hashes() == cached(ring)
        assert one.index.verify() == []
