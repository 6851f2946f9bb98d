"""What the scheduler counts. Fields of Statistics are columns of its row on the board, which says what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .cost import StepCost
from .rows import Counts


@dataclass(slots=True)
class Statistics:
    """Totals since the start."""

    requests: int = 0
    requests_finished: int = 0
    requests_rejected: int = 0
    admissions: int = 0
    queue_seconds: int = 0
    """In nanoseconds, like all columns of that name: from arrival to the first admission."""
    preemptions: int = 0
    recomputed_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    steps_planned: int = 0
    attention_pairs: int = 0
    kv_tokens_read: int = 0
    late_results: int = 0
    transfers_failed: int = 0

    def add_step(self, prefill_tokens: int, cost: StepCost) -> None:
        """Count a planned step."""
        self.steps_planned += 1
        self.prompt_tokens += prefill_tokens
        self.attention_pairs += cost.pairs
        self.kv_tokens_read += cost.contexts


class CacheStats:
    """How much of prompts the prefix cache had: each request counts once, at its first admission."""

    def __init__(self, log_every: int = 100) -> None:
        self.total_requests = 0
        self.total_cached_tokens = 0
        self.total_full_tokens = 0
        self._log_every = log_every
        self._logged = (0, 0, 0)

    @property
    def hit_rate(self) -> float:
        return self.total_cached_tokens / self.total_full_tokens if self.total_full_tokens else 0.0

    def update(self, cached_tokens: int, full_tokens: int) -> None:
        self.total_requests += 1
        self.total_cached_tokens += cached_tokens
        self.total_full_tokens += full_tokens

    def take_line(self) -> str | None:
        """A line for the log, when an interval's requests have come since the last one."""
        requests, cached, full = self._logged
        if self.total_requests - requests < self._log_every:
            return None
        self._logged = (self.total_requests, self.total_cached_tokens, self.total_full_tokens)
        part = (self.total_cached_tokens - cached) / max(1, self.total_full_tokens - full)
        return (
            f"prefix cache: {part:.1%} of the prompt tokens of the last {self.total_requests - requests} requests, "
            f"{self.hit_rate:.1%} of all {self.total_requests}"
        )


@dataclass(slots=True)
class SpecStats:
    """How drafts fare. `distribution` counts steps of rows by how many of their drafts were accepted, 0..mtp_k."""

    mtp_k: int
    total_draft_tokens: int = 0
    total_accepted: int = 0
    total_steps: int = 0
    anomalies: int = 0
    distribution: dict[int, int] = field(default_factory=dict)
    _logged: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.distribution = dict.fromkeys(range(self.mtp_k + 1), 0)

    @property
    def acceptance_rate(self) -> float:
        return self.total_accepted / self.total_draft_tokens if self.total_draft_tokens else 0.0

    def update(self, granted: Counts, accepted: Counts) -> None:
        """Rows verified granted[i] drafts and took accepted[i]; a count that cannot be goes to mtp_k."""
        wrong = (accepted < 0) | (accepted > self.mtp_k)
        self.anomalies += int(np.count_nonzero(wrong))
        accepted = np.where(wrong, self.mtp_k, accepted)
        self.total_draft_tokens += int(granted.sum())
        self.total_accepted += int(accepted.sum())
        self.total_steps += len(accepted)
        for count, steps in enumerate(np.bincount(accepted, minlength=self.mtp_k + 1).tolist()):
            self.distribution[count] += steps

    def get_statistics(self) -> dict[str, object]:
        """All numbers by name."""
        return {
            "mtp_k": self.mtp_k,
            "total_draft_tokens": self.total_draft_tokens,
            "distribution": dict(self.distribution),
            "total_accepted": self.total_accepted,
            "total_steps": self.total_steps,
            "acceptance_rate": self.acceptance_rate,
        }

    def take_line(self) -> str | None:
        """A line for the log, when 1000 drafts of each place have been verified since the last one."""
        drafts, accepted = self._logged
        if not self.mtp_k or self.total_draft_tokens - drafts < 1000 * self.mtp_k:
            return None
        self._logged = (self.total_draft_tokens, self.total_accepted)
        part = (self.total_accepted - accepted) / (self.total_draft_tokens - drafts)
        return f"speculation: {part:.1%} of the last drafts accepted, {self.acceptance_rate:.1%} of all"
