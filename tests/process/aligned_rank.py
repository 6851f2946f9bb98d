"""One rank of a group, as a process: a loop around a gate like the scheduler's, told what to do line by line.

It hears "busy" (plan in every turn), "idle" (only answer the others) and "once" (plan one time); at the end of
its input it leaves. It tells, as lines of JSON, ["idle"], ["once", ranks counted], ["settled", ranks counted] when
the group has been the same for many ticks, and at last ["log", errors, [[tick, ranks counted, rule, allowed], ...]].
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from pathlib import Path
from typing import Any

from fourstroke.ipc.segment import Segment
from fourstroke.ipc.shared_collective import SEGMENT, SharedCollective
from fourstroke.procs.scheduler.align.coalesce import Coalesce, CoalesceSettings
from fourstroke.procs.scheduler.align.delay import Delay, DelaySettings
from fourstroke.procs.scheduler.align.gate import Algorithm, Aligned
from fourstroke.procs.scheduler.align.readiness import Readiness

IDLE = Readiness(False, False, 0, 0, 0.0, False, 0.0)
BUDGET = 1000


def algorithm(name: str) -> Algorithm:
    """Settings under which most rules of the table hold now and then."""
    if name == "delay":
        return Delay(DelaySettings(max_delay_passes=3, low_watermark=0.02))
    return Coalesce(CoalesceSettings(kv_high=0.98, ttft_max_ticks=4, partial_max_ticks=2), BUDGET)


class Rank:
    """The gate, what it is asked, and what it has answered."""

    def __init__(self, collective: SharedCollective, name: str, seed: int, settled_ticks: int) -> None:
        self.collective = collective
        self.gate = Aligned(collective, algorithm(name))
        self.log: list[tuple[int, int, str, bool]] = []
        self.busy = False
        self._random = random.Random(seed)
        self._settled_ticks = settled_ticks
        self._group = (0, 0)
        self._same = 0

    def turn(self) -> None:
        """Plan, or answer, or neither."""
        called = self.collective.is_called()
        if self.busy:
            self.ask(self._view())
        elif called:
            self.ask(IDLE)

    def ask(self, view: Readiness) -> None:
        allowed = self.gate.allow(view, time.monotonic())
        self.log.append((self.collective.tick, self.collective.size, self.gate.last.name, allowed))
        group = (self.collective.size, self.collective.generation)
        self._same = self._same + 1 if group == self._group else 0
        self._group = group
        if self._same == self._settled_ticks:
            tell("settled", self.collective.size)

    def _view(self) -> Readiness:
        one = self._random.random
        prefillable = one() < 0.8
        return Readiness(prefillable, prefillable and one() < 0.7, int(1000 * one()), 1, one(), one() < 0.3, 0.0)

    def obey(self, word: str) -> None:
        if word == "once":
            self.ask(self._view())
            tell("once", self.collective.size)
        else:
            self.busy = word == "busy"
            if not self.busy:
                tell("idle")


def tell(*event: Any) -> None:
    sys.stdout.write(f"{json.dumps(event)}\n")
    sys.stdout.flush()


def main(owner: str, folder: str, rank: str, size: str, timeout_s: str, name: str, settled_ticks: str) -> None:
    memory = Segment.attach(owner, SEGMENT).memory
    collective = SharedCollective(memory, Path(folder), int(rank), int(size), float(timeout_s))
    member = Rank(collective, name, int(rank), int(settled_ticks))
    tell("here")
    stdin = sys.stdin.fileno()
    poll = select.poll()
    poll.register(stdin, select.POLLIN)
    poll.register(collective, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll(0 if member.busy else None)]
        if stdin in ready:
            words = os.read(stdin, 4096).decode().split()
            if not words:
                break
            for word in words:
                member.obey(word)
        member.turn()
    collective.close()
    tell("log", member.gate.errors, member.log)


if __name__ == "__main__":
    main(*sys.argv[1:])
