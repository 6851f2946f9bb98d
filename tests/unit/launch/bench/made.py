"""Figures of loads that were never run, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping

from fourstroke.launch.bench.costs import Costs
from fourstroke.launch.bench.summary import Spread, Summary


def made_summary(streams: int, rate: float, wall_s: float = 1.0, ttft_ms: float = 100.0) -> Summary:
    """A load of so many streams that gave `rate` output tokens/s for `wall_s` seconds."""
    spread = Spread(ttft_ms, ttft_ms, ttft_ms, ttft_ms)
    return Summary(
        concurrency=streams,
        rate=0,
        requests=1,
        failed=0,
        wall_s=wall_s,
        input_tokens=1,
        output_tokens=int(rate * wall_s),
        requests_s=1 / wall_s,
        output_tokens_s=rate,
        total_tokens_s=rate,
        ttft=spread,
        itl=spread,
        latency=spread,
    )


def made_costs(streams: int, rate: float, cpu_s: Mapping[str, float], wall_s: float = 1.0) -> Costs:
    """The same with its CPU times; each chunk holds two tokens."""
    summary = made_summary(streams, rate, wall_s)
    return Costs(summary, summary.output_tokens // 2, cpu_s)
