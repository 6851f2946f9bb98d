"""Prompts for a load: common words, random token ids, or the lines of a file. The same seed makes the same prompts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import ConfigError

Prompt = str | list[int]

_TEXT = (
    "the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no"
)
WORDS = tuple(_TEXT.split())
"""Common English words, each of which is about one token in every vocabulary."""

_FIRST_ID, _LAST_ID = 1000, 10_000
"""Ids that are text in any vocabulary of this century: above bytes and special tokens, below the smallest size."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """How prompts are made: of `words` or of `tokens`, of which one is above 0, or by drawing from `lines`."""

    words: int = 0
    tokens: int = 0
    lines: tuple[str, ...] = ()

    def draw(self, count: int, seed: str) -> list[Prompt]:
        """So many prompts. Those made of words or tokens have no beginning in common that a prefix cache could use.

        Lines are dealt out in random order, and again when there are not enough.
        """
        source = random.Random(seed)
        if self.lines:
            return self._lines(count, source)
        if self.tokens:
            return [source.choices(range(_FIRST_ID, _LAST_ID), k=self.tokens) for _ in range(count)]
        return [" ".join(source.choices(WORDS, k=self.words)) for _ in range(count)]

    def _lines(self, count: int, source: random.Random) -> list[Prompt]:
        dealt: list[Prompt] = []
        while len(dealt) < count:
            dealt += source.sample(self.lines, len(self.lines))
        return dealt[:count]

    @property
    def described(self) -> str:
        if self.lines:
            return f"prompts from {len(self.lines)} lines"
        return f"{self.tokens} tokens" if self.tokens else f"{self.words} words"


def read_lines(path: Path) -> tuple[str, ...]:
    """The prompts of a file, one in each line that is not empty. Raises ConfigError."""
    try:
        lines = tuple(line for line in path.read_text().splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: cannot read {path}: {error}") from None
    if not lines:
        raise ConfigError(f"--prompts: {path} has no lines")
    return lines
