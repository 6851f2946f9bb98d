"""All cases, with the targets of the scheduler's specification: medians on a core that nobody else uses."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ....common.errors import ConfigError
from .bursts import Endings, PrefillBurst, Received
from .case import Case
from .repeats import BlockedHead, Hashes
from .steady import SteadyDecode

_STEP_MS = {256: 0.6, 512: 1.0, 1024: 2.0}
_PLAN_BYTES = {512: 20_000.0}

CASES: tuple[Case, ...] = (
    *(
        SteadyDecode(rows, context, 0, _STEP_MS[rows], _PLAN_BYTES.get(rows))
        for rows in (256, 512, 1024)
        for context in (1024, 8192, 65_536)
    ),
    *(SteadyDecode(rows, context, 3) for rows in (256, 512, 1024) for context in (1024, 8192, 65_536)),
    Endings(4096, 64, 2.0),
    Endings(4096, 1024),
    BlockedHead(131_072, 50.0),
    Received(1024, 20, 2.0),
    Received(1024, 512),
    PrefillBurst(1024, 512),
    Hashes(),
)


def chosen(patterns: Sequence[str], cases: Sequence[Case] = CASES) -> list[Case]:
    """The cases that have one of these names, or of these patterns of names, as a shell has them.

    Raises ConfigError for a pattern that fits none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            raise ConfigError(f"no case is called {pattern!r}; there are {', '.join(case.name for case in cases)}")
    return [case for case in cases if any(fnmatchcase(case.name, pattern) for pattern in patterns)]
