"""A group of processes on one host that add up numbers over shared memory, once a tick.

One rank leads, the first that came, until it dies or is silent (see `terms`). A tick, seen from a rank, is this:

    follower   writes its offer, wakes the leader, sleeps until the leader's verdict is in memory
    leader     writes its offer, wakes who has not offered yet, sleeps until all members have, writes its verdict
               (the sums, and who is waited for in the next tick), wakes those who sleep

So a tick is what the leader has published, in one place and at once: all who read it have the same numbers, the same
failure and the same members. It costs a rank one or two sleeps in a poll that has a deadline.

Ticks and idle ranks. A tick begins when a rank that has something to plan calls; a group that is idle makes no
ticks. Idle ranks are members like all others, and the tick waits for them: its beginning makes their `fileno`
readable, their loops find that `is_called` and call, with empty queues. A rank takes part in the highest tick that
anybody has begun, so it catches up with one call however many it has missed.

Failures. A follower that is dead, or does not offer in time, makes the leader publish a failed tick and a group without
it. A leader that is dead or silent is given up by each follower for itself, and one of them leads the next term. Either
way a rank gets at most one CollectiveError and pays at most one time-out. Whoever is outside, because it is new, was
started again or had been stopped, offers in the current tick all the same; if that has ended without counting it,
the next one waits for it, and so does its call.

Generations. An offer says in which generation its rank is. If those that are counted differ (one is new, or has missed
a tick) the verdict begins a new one, and every rank knows that what it remembers need not be what the others do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ..common.errors import CollectiveError
from .ballot import Offer, Verdict, ballot_rows
from .collective import Combine, combined
from .peers import Peers
from .terms import Seat, Terms

SEGMENT = "ballot"
"""The segment of the group's memory, of ballot_bytes(size) bytes."""

TIMEOUT_S = 0.1
"""How long the leader waits for the members; a follower waits twice as long, since the leader may begin late.

A scheduler's loop comes round in about a millisecond whatever its executor does, so this is a hundred turns: time for
a busy machine, a page fault or a garbage collection, and yet a pause in the streams of the others that few notice.
"""


class SharedCollective:
    """Rank `rank` of `size`. Register it with the loop's poller: it has a fileno()."""

    def __init__(
        self, memory: memoryview | bytearray, folder: Path, rank: int, size: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.size = 1
        self.generation = 0
        self._me = Seat(rank, os.getpid())
        self._timeout_s = timeout_s
        self._rows = ballot_rows(memory, size)
        self._own = self._rows[rank]
        self._others = [other for other in range(size) if other != rank]
        self._terms = Terms(folder, self._me)
        self._term = 0
        self._leader = self._me
        self._group = Verdict(0, 0, 0, (0,) * size, 0, False, ())
        self._peers = Peers(folder, rank, size)
        self._own.enter(self._me.pid)

    @property
    def tick(self) -> int:
        """The last tick of which this rank knows how it ended."""
        return self._group.tick

    def fileno(self) -> int:
        return self._peers.fileno()

    def is_called(self) -> bool:
        """Whether a peer has begun a tick and waits for this rank to call. It quietens fileno, so ask in each turn."""
        self._peers.drain()
        return self._is_outrun(self._own.offered)

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._agree(values, sum)

    def max(self, values: Sequence[float]) -> list[float]:
        return self._agree(values, max)

    def close(self) -> None:
        """Leave the group, which takes it for a death."""
        self._own.leave()
        for other in self._others:
            self._peers.wake(other)
        self._peers.close()

    def _agree(self, values: Sequence[float], combine: Combine) -> list[float]:
        try:
            return self._until_counted(values, combine)
        finally:
            if self.is_called():  # the ring may have come, and gone, while this rank was in its tick
                self._peers.wake(self._me.rank)

    def _until_counted(self, values: Sequence[float], combine: Combine) -> list[float]:
        """Take part in one tick, or more if that had another leader or ended too early for one that was outside."""
        while True:
            self._look_around()
            tick = max(self._group.tick + 1, *(self._rows[other].offered for other in self._others), 1)
            is_member = self._group.members[self._me.rank] == self._me.pid
            self._own.offer(Offer(self._term, tick, self.generation if is_member else 0, tuple(values)))
            leads = self._leader == self._me
            verdict = self._lead(tick, combine) if leads else self._follow(tick)
            if verdict is not None and self._accept(verdict):
                return list(verdict.values[: len(values)])

    def _look_around(self) -> None:
        """Learn what the group has done; found it if there is none."""
        self._peers.drain()
        self._group = self._newest()
        term = max(row.term for row in self._rows)
        if term > self._term:
            self._enter(term)
        elif term == 0:
            self._enter_next_term()

    def _newest(self) -> Verdict:
        """The last verdict of anybody, or what this rank remembers if nobody's is newer."""
        verdicts = [verdict for row in self._rows if (verdict := row.verdict()) is not None]
        return max([self._group, *verdicts], key=lambda verdict: verdict.place)

    def _enter(self, term: int) -> None:
        self._term = term
        self._leader = self._terms.leader(term)
        self._own.enter_term(term)

    def _enter_next_term(self) -> None:
        """Lead it, or follow whoever has claimed it before, if that one lives."""
        term = self._term + 1
        while not self._terms.claim(term) and not self._peers.alive(self._terms.leader(term).pid):
            term += 1
        self._enter(term)

    def _is_outrun(self, tick: int) -> bool:
        """Whether a peer has begun a later tick, or is in a later term."""
        mine = (self._term, tick)
        return any((self._rows[other].term, self._rows[other].offered) > mine for other in self._others)

    def _lead(self, tick: int, combine: Combine) -> Verdict | None:
        """Gather and decide; None if this rank was given up for its silence, or the others are further on."""
        for other in self._others:
            if self._rows[other].pid and self._offer(other, tick) is None:
                self._peers.wake(other)
        deadline = time.monotonic() + self._timeout_s
        while not self._is_outrun(tick) and any(self._is_awaited(other, tick) for other in self._others):
            if not self._peers.wait(deadline):
                break
        if self._is_outrun(tick):
            return None
        verdict = self._decide(tick, combine)
        self._own.publish(verdict)
        for other in self._others:
            if self._rows[other].offered >= tick:
                self._peers.wake(other)
        return verdict

    def _offer(self, rank: int, tick: int) -> Offer | None:
        """What a rank offers in this term's tick."""
        offer = self._rows[rank].offer_of(tick)
        return offer if offer is not None and offer.term == self._term else None

    def _is_awaited(self, rank: int, tick: int) -> bool:
        """Whether a rank is a member that lives and has not offered."""
        pid = self._group.members[rank]
        return pid != 0 and self._offer(rank, tick) is None and self._is_here(Seat(rank, pid))

    def _is_here(self, seat: Seat) -> bool:
        """Whether a process lives, and still has its rank."""
        return self._rows[seat.rank].pid == seat.pid and self._peers.alive(seat.pid)

    def _decide(self, tick: int, combine: Combine) -> Verdict:
        offers = {rank: offer for rank in range(len(self._rows)) if (offer := self._offer(rank, tick)) is not None}
        missing = {rank for rank, pid in enumerate(self._group.members) if pid and rank not in offers}
        late = {rank for rank in self._others if rank not in missing and self._asks(rank, tick)}
        next_members = offers.keys() | late
        generations = {offer.generation for offer in offers.values()}
        in_step = len(generations) == 1 and 0 not in generations
        return Verdict(
            self._term,
            tick,
            generations.pop() if in_step else self._term << 40 | tick,
            tuple(row.pid if rank in next_members else 0 for rank, row in enumerate(self._rows)),
            sum(1 << rank for rank in offers),
            bool(missing),
            tuple(combined(combine, [offer.values for offer in offers.values()])),
        )

    def _asks(self, rank: int, tick: int) -> bool:
        """Whether a rank has asked to be let in a tick too late, as it would for ever if nobody waited for it."""
        offer = self._offer(rank, tick - 1)
        return offer is not None and offer.generation == 0

    def _follow(self, tick: int) -> Verdict | None:
        """Wait for the leader's word; None if this tick will have none, since another leads or all are further on."""
        self._peers.wake(self._leader.rank)
        deadline = time.monotonic() + 2 * self._timeout_s
        in_time = True
        while True:
            # Both are asked before the verdict is looked for: its leader may have died, and its readers gone on.
            is_here, is_outrun = self._is_here(self._leader), self._is_outrun(tick)
            verdict = self._newest()
            if verdict.place >= (self._term, tick):
                return verdict
            if is_outrun:
                return None
            if not (is_here and in_time):
                self._give_up_leader(tick)
            in_time = self._peers.wait(deadline)

    def _give_up_leader(self, tick: int) -> NoReturn:
        """Go on in the next term, without it. Raises CollectiveError."""
        lost = self._leader.rank
        members = tuple(0 if rank == lost else pid for rank, pid in enumerate(self._group.members))
        self._group = replace(self._group, tick=tick, members=members)
        self.generation = 0
        self._enter_next_term()
        raise CollectiveError(f"rank {lost}, which led, has not ended tick {tick}")

    def _accept(self, verdict: Verdict) -> bool:
        """Take note of how a tick ended, and whether it counted this rank. Raises CollectiveError if it failed."""
        lost = [rank for rank, pid in enumerate(self._group.members) if pid and not verdict.members[rank]]
        self._group = verdict
        if verdict.failed:
            self.generation = 0
            raise CollectiveError(f"rank {', '.join(map(str, lost)) or '?'} has not taken part in tick {verdict.tick}")
        if not verdict.counted >> self._me.rank & 1:
            return False
        self.size = verdict.counted.bit_count()
        self.generation = verdict.generation
        return True
