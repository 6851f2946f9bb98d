"""What the records of a load say in figures."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .load import Load
from .record import Record


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a time, in ms."""

    p50: float
    p90: float
    p99: float
    mean: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What a good request keeps, in ms: time to first token, mean time between tokens. None is no limit."""

    ttft_ms: float | None = None
    itl_ms: float | None = None

    def kept_by(self, record: Record) -> bool:
        in_time = self.ttft_ms is None or record.ttft_s * 1e3 <= self.ttft_ms
        return in_time and (self.itl_ms is None or record.mean_gap_s * 1e3 <= self.itl_ms)

    @property
    def any(self) -> bool:
        return self.ttft_ms is not None or self.itl_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One load on one server. Rates are per second, from the first request's begin to the last one's end.

    Of `concurrency` and `rate` one is 0. Tokens and times are of requests that succeeded. `goodput` is of the requests
    that kept all limits, or None without any. `errors` counts the failed ones by cause. `refused` ones are no failures:
    the server had no room and said so; `refusal` is how long that took.
    """

    concurrency: int
    rate: float
    requests: int
    failed: int
    wall_s: float
    input_tokens: int
    output_tokens: int
    requests_s: float
    output_tokens_s: float
    total_tokens_s: float
    ttft: Spread
    itl: Spread
    latency: Spread
    goodput: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    refusal: Spread = Spread(0.0, 0.0, 0.0, 0.0)

    @property
    def name(self) -> str:
        return f"{self.concurrency} at a time" if self.concurrency else f"{self.rate:g} a second"

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Summary:
        """The summary that dataclasses.asdict took apart. Raises TypeError or KeyError if it is none."""
        spreads = {name: Spread(**fields[name]) for name in ("ttft", "itl", "latency")}
        if "refusal" in fields:  # files of earlier versions lack it
            spreads["refusal"] = Spread(**fields["refusal"])
        return cls(**{**fields, **spreads})


def summarise_load(load: Load, records: Sequence[Record], limits: Limits) -> Summary:
    """The figures of a load of which at least one request succeeded."""
    good = [record for record in records if record.error is None]
    refused = [record for record in records if record.refused]
    failed = [record for record in records if record.error is not None and not record.refused]
    wall_s = max(record.ended_s for record in records) - min(record.begun_s for record in records)
    received, sent = sum(record.output_tokens for record in good), sum(record.input_tokens for record in good)
    return Summary(
        concurrency=load.concurrency,
        rate=load.rate,
        requests=len(records),
        failed=len(failed),
        wall_s=wall_s,
        input_tokens=sent,
        output_tokens=received,
        requests_s=len(good) / wall_s,
        output_tokens_s=received / wall_s,
        total_tokens_s=(received + sent) / wall_s,
        ttft=_spread([record.ttft_s for record in good]),
        itl=_spread([gap for record in good for gap in record.gaps_s]),
        latency=_spread([record.latency_s for record in good]),
        goodput=sum(map(limits.kept_by, good)) / wall_s if limits.any else None,
        errors=Counter(record.error for record in failed if record.error is not None),
        refused=len(refused),
        refusal=_spread([record.latency_s for record in refused]),
    )


def _spread(seconds: Sequence[float]) -> Spread:
    """Percentiles in ms; zeros where there is nothing, as between the tokens of answers of one token."""
    times = np.array(seconds or [0.0]) * 1e3
    p50, p90, p99 = np.percentile(times, (50, 90, 99)).tolist()
    return Spread(p50, p90, p99, float(times.mean()))


def as_fields(summary: Summary) -> dict[str, Any]:
    """The summary for a JSON file."""
    return dataclasses.asdict(summary) | {"errors": dict(summary.errors)}
