"""What the scheduler counts. `main` copies it to the board; deciding nothing, it is kept out of the core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Statistics:
    """Totals since the start."""

    requests: int = 0
    requests_finished: int = 0
    requests_rejected: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    steps_planned: int = 0
    late_results: int = 0
