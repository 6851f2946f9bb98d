"""Numbers on the command line: what argparse calls to read one, and what it says of one that is none."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def whole(text: str) -> int:
    """A whole number. Python's int() would take 1_000 and digits of other scripts as well."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    value = whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be above 0; got {text!r}")
    return value


def finite(text: str) -> float:
    """A number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text or not text.isascii():
        raise argparse.ArgumentTypeError(f"must be a finite number; got {text!r}")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0; got {text!r}")
    return value


def split_arguments(arguments: Sequence[str], starting: Sequence[tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """A command line, and what of it is for the server that it starts: all after the first `--`.

    `starting` are the commands that start one, each as the words that it begins with.
    """
    own, rest = list(arguments), []
    if "--" in own and any(tuple(own[: len(words)]) == words for words in starting):
        at = own.index("--")
        own, rest = own[:at], own[at + 1 :]
    return own, rest
