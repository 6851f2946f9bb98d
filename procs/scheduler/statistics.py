"""What the scheduler counts; the fields are columns of its row on the board, which says what they mean."""

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
