"""Anything may happen to a scheduler, in any order, and what must hold holds.

The same 1,200 examples each time, of about 100,000 planned steps. With `--hypothesis-profile=long` and the path of this
file there are 50,000, others every time.
"""

from __future__ import annotations

import sys
from random import Random

import hypothesis.strategies as st
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fourstroke.common.types import Finish, TransferOutcome
from fourstroke.procs.scheduler.request import Phase

from .crowd import some_request
from .world import World

setups = st.fixed_dictionaries(
    {
        "depth": st.sampled_from([2, 1]),
        "blocks": st.integers(4, 64),
        "block_size": st.sampled_from([4, 1, 16]),
        "rows": st.integers(1, 8),
        "budget": st.integers(1, 70),
        "max_model_len": st.sampled_from([48, 48, 16]),
        "headroom": st.sampled_from([0, 8, 64]),
        "cache": st.booleans(),
        "drafts": st.integers(0, 3),
        "accept": st.sampled_from([0.7, 0.0, 0.3, 1.0]),
        "prefill_first": st.booleans(),
        "chunked": st.booleans(),
        "long_prefill_threshold": st.sampled_from([0, 0, 3, 8]),
        "delay_factor": st.sampled_from([0.0, 0.0, 1.0]),
        "refusals": st.sampled_from([0, 0, 3]),
    }
)

extras = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"state_slots": st.integers(1, 9), "state_checkpoint_interval": st.sampled_from([0, 4, 16])}),
    st.fixed_dictionaries({"workers": st.integers(1, 2), "fails": st.booleans()}),
)
"""Recurrent state, or transfers, or neither."""


class Anything(RuleBasedStateMachine):
    """Each rule is one event, or some rounds of the usual ones; the World compares after each event."""

    @initialize(setup=setups, extra=extras, seed=st.integers(0, 2**16), requests=st.integers(4, 16))
    def begin(self, setup, extra, seed, requests):
        self.world = World(seed=seed, **setup, **extra)
        self.submit_many(seed, requests, turns=2)

    # Requests come and go

    def _ask(self, random: Random, choices: int) -> None:
        wish = some_request(random, moves=self.world.moves)
        first = len(self.world.asked)
        rids = tuple(range(first, first + choices))
        note(f"    {rids}: {wish}")
        self.world.ask(rids, **wish)

    @rule(random=st.randoms(use_true_random=False), choices=st.sampled_from([1, 1, 3]))
    def submit(self, random, choices):
        self._ask(random, choices)

    @rule(seed=st.integers(0, 2**16), requests=st.integers(1, 10), turns=st.integers(0, 4))
    def submit_many(self, seed, requests, turns):
        """Requests that a seed decides, with up to so many rounds after each."""
        random = Random(seed)
        for _ in range(requests):
            self._ask(random, random.choice((1, 1, 1, 1, 2, 4)))
            self._rounds(random.randint(0, turns), 0.1)

    @rule(which=st.integers(0, 20), stopped=st.booleans())
    def end(self, which, stopped):
        """Of a request that lives, has ended or never was: the last ones, or ids beyond them."""
        rid = max(0, len(self.world.asked) + 1 - which)
        self.world.end(rid, Finish.STOP if stopped else Finish.ABORT)

    @precondition(lambda self: self.world.core.table.running_count)
    @rule(which=st.integers(0, 7))
    def preempt(self, which):
        running = [one for one in self.world.core._lives.requests.values() if one.phase is Phase.RUNNING]
        self.world.preempt(running[which % len(running)].rid)

    # Time passes

    def _rounds(self, turns: int, seconds: float) -> None:
        for _ in range(turns):
            self.world.now += seconds
            self.world.turn()

    @rule(turns=st.integers(10, 40), seconds=st.sampled_from([0.0, 0.01, 0.5]))
    def go_on(self, turns, seconds):
        self._rounds(turns, seconds)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 30.0]))
    def wait_and_plan(self, seconds):
        self.world.now += seconds
        self.world.plan()

    @rule()
    def plan(self):
        self.world.plan()

    @precondition(lambda self: self.world.pending)
    @rule(miscounts=st.booleans())
    def settle(self, miscounts):
        if miscounts:
            self.world.miscount()
        self.world.settle()

    # Others fail

    @rule()
    def restart(self):
        self.world.restart()

    @rule(force=st.booleans())
    def reset(self, force):
        self.world.reset(force)

    @precondition(lambda self: self.world.gate)
    @rule()
    def agree(self):
        self.world.agree()

    @precondition(lambda self: self.world.moves)
    @rule(ticks=st.integers(1, 5))
    def tick(self, ticks):
        for _ in range(ticks):
            self.world.tick()

    @precondition(lambda self: self.world.moves)
    @rule(
        rid=st.integers(0, 20),
        epoch=st.integers(0, 3),
        outcome=st.sampled_from(list(TransferOutcome)),
        worker=st.integers(0, 2),
    )
    def rumour(self, rid, epoch, outcome, worker):
        self.world.rumour(rid, epoch, outcome, worker)

    def teardown(self):
        if sys.exc_info()[0] is None:  # else a rule has failed, and there is nothing to add
            self.world.run_out()


_LONG = settings.get_current_profile_name() == "long"

Anything.TestCase.settings = settings(
    max_examples=50_000 if _LONG else 1200,
    derandomize=not _LONG,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestAnything = Anything.TestCase
