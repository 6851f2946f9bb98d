"""What the tokenizers library must be kept from, and what its errors become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...common.errors import ModelError

Merge = tuple[str, str]


def check_merges(vocabulary: Mapping[str, int], merges: Iterable[Merge], prefix: str, path: Path) -> None:
    """Raise ModelError unless both halves of each merge and what they become are tokens; the library panics."""
    for left, right in merges:
        if not (left in vocabulary and right in vocabulary and left + right.removeprefix(prefix) in vocabulary):
            raise ModelError(f"{path} merges {left!r} and {right!r}, and one of them or the result is no token")


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Errors of the library, which raises the base class itself, name the file; our own, too."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path} cannot be used: {error}") from None
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ModelError(f"{path} cannot be used: {error}") from None
