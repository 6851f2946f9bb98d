"""Which request may be what kills executors: those that were in an open step each time when one died.

Whoever was there twice, without that a step of its was settled between, is computed alone, one after the other: then a
third death tells on whom it was. A step that is settled clears all who were in it. Knows no rows and no steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .request import Phase, Request

DEATHS_BEFORE_ALONE = 2
DEATHS_OF_THE_GUILTY = 3


@dataclass(slots=True)
class _Suspect:
    request: Request
    deaths: int = 0


class Suspects:
    """The suspects of one scheduler, in the order in which they came under suspicion."""

    def __init__(self) -> None:
        self._suspects: dict[int, _Suspect] = {}

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def died(self, present: Iterable[Request]) -> list[Request]:
        """The executor has died while these requests were in open steps. Returns those that have done it."""
        guilty = []
        for request in present:
            suspect = self._suspects.setdefault(request.rid, _Suspect(request))
            suspect.deaths += 1
            if suspect.deaths == DEATHS_OF_THE_GUILTY:
                guilty.append(request)
                del self._suspects[request.rid]
        return guilty

    def clear(self, rids: Iterable[int]) -> None:
        """Steps of these have been settled: it was none of them."""
        for rid in rids:
            self._suspects.pop(rid, None)

    def alone(self) -> Request | None:
        """Who is to be computed with nobody else beside it, if anybody is."""
        for rid in [rid for rid, one in self._suspects.items() if one.request.phase is Phase.GONE]:
            del self._suspects[rid]
        return next((one.request for one in self._suspects.values() if one.deaths >= DEATHS_BEFORE_ALONE), None)
