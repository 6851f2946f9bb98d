"""Runs cases and writes their figures to standard output, one a line: `fourstroke bench scheduler` starts it.

What to run comes as JSON in the only argument: {"cases": [patterns of names], "steps": how many are measured}.
"""

from __future__ import annotations

import gc
import json
import sys

from ....common.errors import ConfigError
from ....common.types import EXIT_REFUSED
from .case import Effort
from .cases import chosen


def main(argument: str) -> None:
    """Run the cases. The collector of garbage stays as it is in the scheduler process."""
    order = json.loads(argument)
    steps = order["steps"]
    effort = Effort(warm_up=-(-steps // 4), steps=steps, repeats=max(3, steps // 16))
    for case in chosen(order["cases"]):
        for figure in case.run(effort):
            sys.stdout.write(figure.line + "\n")
            sys.stdout.flush()
        gc.collect()  # what the case has left behind is nothing that the next one should pay for


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_REFUSED)
