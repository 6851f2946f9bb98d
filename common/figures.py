"""What a benchmark measured: figures, and the targets that they are held against.

A measuring program prints a figure a line, as JSON, and `fourstroke bench` reads them. Knows no table and no clock.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

TIMES = ("ms", "µs")
"""Units of time, which a machine that is shared stretches; no other figure is excused by that."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A quantity, measured several times. `most` is its maximum; `parts` are medians of what it consists of."""

    case: str
    what: str
    unit: str
    samples: int
    p50: float
    p99: float
    most: float
    target: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def missed(self, slack: float) -> bool:
        """Whether the median is above the target; a time may be `slack` times the target."""
        if self.target is None:
            return False
        return self.p50 > self.target * (slack if self.unit in TIMES else 1)

    @property
    def line(self) -> str:
        """The figure as JSON, in one line."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, line: str) -> Figure:
        """The figure of a line. Raises ValueError if it is none."""
        fields = json.loads(line)
        if not isinstance(fields, dict) or fields.keys() != set(cls.__slots__):
            raise ValueError(f"no figure: {line:.80}")
        return cls(**fields)


def summarise(
    case: str,
    what: str,
    unit: str,
    values: Sequence[float],
    target: float | None = None,
    parts: Mapping[str, float] | None = None,
) -> Figure:
    """A figure of values, of which there is at least one."""
    p50, p99, most = np.percentile(values, (50, 99, 100)).tolist()
    return Figure(case, what, unit, len(values), p50, p99, most, target, parts or {})
