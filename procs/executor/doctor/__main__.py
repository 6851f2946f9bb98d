"""Prints findings about torch and its devices to standard output, one a line: `fourstroke doctor` starts it.

What the launcher knows already comes as JSON in the only argument, see facts.Order. If this program dies or hangs,
that is the launcher's to tell, with the last thing that was said here to be done.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ....common.finding import Doing, Finding
from .backends import tests_of
from .checks import check
from .facts import Order, look
from .native import load
from .selftest import judge


def main(argument: str) -> None:
    """Look at torch, then test each backend."""
    order = Order(**json.loads(argument))
    _say(Doing("looking for devices"))
    found = look(order.cores)
    for finding in check(found, order):
        _say(finding)
    _say(Doing("building and loading the C kernels"))
    kernels, finding = load(Path(order.kernels))
    _say(finding)
    for test in tests_of(found, kernels):
        _say(Doing(f"testing {test.name}"))
        _say(judge(test.run()))


def _say(said: Finding | Doing) -> None:
    sys.stdout.write(said.line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
