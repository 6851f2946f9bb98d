"""What the executor's workers report about KV transfers, put together into one answer for each.

Every worker moves its own part of the KV. A transfer is over when all of them have told so; until then a
worker may still read or write its blocks, so a failure waits for the others too. The answer is a report again, of
worker 0: mostly the very one that came, since 1,024 may come in one tick. Nothing here knows which
transfers were started; the connector asks.
"""

from __future__ import annotations

import enum
import re
from itertools import islice

from ....common.errors import BadMessage
from ....common.types import TransferOutcome
from ....ipc.messages import TransferReport

Key = tuple[int, int]
"""The id and the epoch of a request; reports of different epochs never meet."""

REMEMBERED = 4096
"""How many transfers that are over and taken a Combiner knows, to tell late duplicates from news."""

_SEVERITY = (0, 0, 2, 1)
"""How bad each TransferOutcome is. A tuple: as a key of a dict an enum member costs 0.3 us, twice a report."""

_MAX_INT64 = 2**63 - 1
_DECIMAL = re.compile(r"[0-9]{1,19}")


class Heard(enum.Enum):
    """What a report was: no news; one of those that a transfer waits for; the last of them."""

    DROPPED = enum.auto()
    NEWS = enum.auto()
    LAST = enum.auto()


DROPPED, NEWS, LAST = Heard  # by these names: to look one up in its class costs 0.1 us, and a report needs three


class Combiner:
    """Combines the reports of workers 0..workers-1. Raises ValueError for fewer than one."""

    def __init__(self, workers: int, remembered: int = REMEMBERED) -> None:
        if workers < 1:
            raise ValueError(f"reports of {workers} workers")
        self._workers = workers
        self._remembered = remembered
        self._heard: dict[Key, dict[int, TransferReport]] = {}
        self._over: dict[Key, None] = {}  # and taken; oldest first
        self._finished: dict[Key, TransferReport] = {}

    @property
    def pending(self) -> int:
        """Transfers of which some workers, but not all, have reported."""
        return len(self._heard)

    @property
    def remembered(self) -> int:
        """Transfers that are over and still known."""
        return len(self._over)

    def expect(self, rid: int, epoch: int) -> None:
        """A transfer starts under this name; one that bore it before is forgotten."""
        self._over.pop((rid, epoch), None)

    def add(self, key: Key, report: TransferReport) -> Heard:
        """Take a report about the transfer of this name in, or drop it: a duplicate, or one from no worker.

        A worker that contradicts itself has failed, in whichever order it did.
        """
        if key in self._finished or key in self._over or not 0 <= report.worker < self._workers:
            return DROPPED
        worst = report
        if self._workers > 1:
            heard = self._heard.setdefault(key, {})
            before = heard.get(report.worker)
            if before is not None and _SEVERITY[before.outcome] >= _SEVERITY[report.outcome]:
                return DROPPED
            heard[report.worker] = report
            if len(heard) < self._workers:
                return NEWS
            del self._heard[key]
            worst = min(heard.values(), key=_worst_first)
        self._finished[key] = _for_all(worst) if worst.worker or worst.detail else worst
        return LAST

    def missing(self, rid: int, epoch: int) -> list[int]:
        """The workers that have not reported on a transfer; none when it is over."""
        key = rid, epoch
        if key in self._finished or key in self._over:
            return []
        heard = self._heard.get(key, {})
        return [worker for worker in range(self._workers) if worker not in heard]

    def take_finished(self) -> dict[Key, TransferReport]:
        """The answers about transfers on which all have reported since the last call, in the order of last reports."""
        finished, self._finished = self._finished, {}
        over, most = self._over, self._remembered
        over.update(dict.fromkeys(islice(finished, max(0, len(finished) - most), None)))
        for key in list(islice(over, max(0, len(over) - most))):
            del over[key]
        return finished

    def reset(self) -> None:
        """Forget everything: the workers are new ones."""
        self._heard.clear()
        self._over.clear()
        self._finished.clear()


def _for_all(worst: TransferReport) -> TransferReport:
    """The answer that one worker's report gives for all; its detail names the worker."""
    detail = f"worker {worst.worker}: {worst.detail}" if worst.detail else ""
    return TransferReport(worst.rid, worst.epoch, worst.outcome, detail=detail)


def _worst_first(report: TransferReport) -> tuple[int, int]:
    return -_SEVERITY[report.outcome], report.worker


class Stages:
    """Saves to a store by the stages of a pipeline, and what must not be told before them.

    Each stage saves its own layers, so a save is over when the last stage says so. Sends and receives are
    complete when they get here and pass; but a send that ends while the same blocks are still being
    saved is told after the save, because whoever hears of it lets the blocks go.
    """

    def __init__(self, stages: int) -> None:
        self._saves = Combiner(stages)
        self._behind: dict[Key, list[TransferReport]] = {}

    def save(self, rid: int, epoch: int) -> None:
        """A save starts."""
        self._saves.expect(rid, epoch)
        self._behind[rid, epoch] = []

    def saved(self, report: TransferReport) -> list[TransferReport]:
        """A stage (the report's worker) has saved or failed to. Returns what can be told now, in order."""
        key = report.rid, report.epoch
        if key not in self._behind:
            return []
        self._saves.add(key, report)
        told: list[TransferReport] = []
        for save_key, save in self._saves.take_finished().items():
            told += [save, *self._behind.pop(save_key)]
        return told

    def moved(self, finished: TransferReport) -> list[TransferReport]:
        """A send or a receive is over. Returns what can be told now: it, or nothing yet."""
        behind = self._behind.get((finished.rid, finished.epoch))
        if behind is None or finished.outcome is TransferOutcome.RECEIVED:
            return [finished]
        behind.append(finished)
        return []


def read_report(rid: object, epoch: object, outcome: object, worker: object = 0, detail: object = "") -> TransferReport:
    """A report from values as they stand on a foreign wire, where an id may be decimal text.

    Raises BadMessage for anything else than a report.
    """
    if not isinstance(detail, str):
        raise BadMessage(f"a transfer report with the detail {detail!r:.40}")
    if type(outcome) is not int or outcome not in tuple(TransferOutcome):
        raise BadMessage(f"a transfer report with the outcome {outcome!r:.40}")
    return TransferReport(
        _number("id", rid), _number("epoch", epoch), TransferOutcome(outcome), _number("worker", worker), detail
    )


def _number(name: str, value: object) -> int:
    """A number of the wire, perhaps as decimal text. Raises BadMessage."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    if type(value) is not int or not 0 <= value <= _MAX_INT64:
        raise BadMessage(f"a transfer report with the {name} {value!r:.40}")
    return value
