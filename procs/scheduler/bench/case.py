"""What all cases have in common: a name, figures, and how often is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ....common.figures import Figure


@dataclass(frozen=True, slots=True)
class Effort:
    """Steps to warm up, steps that are measured, and how often what happens once is made to happen."""

    warm_up: int = 50
    steps: int = 200
    repeats: int = 12


class Case(Protocol):
    """One thing to measure."""

    @property
    def name(self) -> str: ...

    def run(self, effort: Effort) -> Iterator[Figure]: ...


def short(tokens: int) -> str:
    """A number of tokens as it stands in names."""
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)
