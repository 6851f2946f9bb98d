"""Merges of byte-pair encoding, checked before the tokenizers library sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...common.errors import ModelError

Merge = tuple[str, str]


def check_merges(vocabulary: Mapping[str, int], merges: Iterable[Merge], prefix: str, path: Path) -> None:
    """Raise ModelError unless both halves of each merge and what they become are tokens; the library panics."""
    for left, right in merges:
        if not (left in vocabulary and right in vocabulary and left + right.removeprefix(prefix) in vocabulary):
            raise ModelError(f"{path} merges {left!r} and {right!r}, and one of them or the result is no token")
